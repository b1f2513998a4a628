"""What a finished generation says of itself in the `gabarito` object.

    closed_by_budget  where the answer was first led towards an end, and why
    diagnostics       what the grammar did to the model, token by token and as a whole
    warnings          a sentence where the model was fighting the schema

Read next: `server/api/extension.py`; `server/engine/steering.py` and `watching.py` for the facts.
"""

from __future__ import annotations

from typing import Any

from server.api.extension import Extension
from server.engine.types import AnswerDiagnostics, Finished, TokenDiagnostics

#: Mean KL of a token, in nats, from which on a warning is given: the mask then left on average (a
#: geometric mean) less than exp(-1) = 37 % of the probability to the tokens that it allowed, so the
#: answer is more the grammar's than the model's.
HIGH_MEAN_KL = 1.0

#: Fewer tokens than this say too little about a mean.
_ENOUGH_TOKENS = 8


def tell_end(extension: Extension, index: int, end: Finished) -> None:
    """Enter what the end of a choice says."""
    facts = extension.choices[index]
    if end.steered is not None:
        facts.closed_by_budget = {"token": end.steered.token, "cause": end.steered.cause}
    if end.diagnostics is not None:
        facts.diagnostics = _diagnostics(end.diagnostics)
        mean = mean_kl(end.diagnostics)
        if mean > HIGH_MEAN_KL and len(end.diagnostics.tokens) >= _ENOUGH_TOKENS:
            extension.warn(
                f"The model was fighting the schema: its mean KL is {mean:.2f} nats a token "
                f"(more than {HIGH_MEAN_KL:g} is high). Say in the prompt what shape is wanted, or "
                "bring the schema closer to what the model writes by itself."
            )


def mean_kl(diagnostics: AnswerDiagnostics) -> float:
    """Total KL over the number of tokens, in nats; 0 of an empty answer."""
    return diagnostics.total_kl / max(1, len(diagnostics.tokens))


def _diagnostics(found: AnswerDiagnostics) -> dict[str, Any]:
    return {
        "tokens": [_token(token) for token in found.tokens],
        "total_kl": _rounded(found.total_kl),
        "mean_kl": _rounded(mean_kl(found)),
        "forced_share": _rounded(found.forced_share),
        "overruled_share": _rounded(found.overruled_share),
        "canonical": found.canonical,
    }


def _token(token: TokenDiagnostics) -> dict[str, Any]:
    step = token.step
    return {
        "id": token.token,
        "token": token.data.decode("utf-8", "replace"),
        "legal": step.legal_count,
        "legal_mass": _rounded(step.legal_mass),
        "kl": _rounded(step.kl),
        "wanted": {"id": step.wanted, "token": token.wanted.decode("utf-8", "replace")},
        "overruled": step.overruled,
        "forced": token.forced,
    }


def _rounded(value: float) -> float:
    return round(value, 6)
