"""What chat and plain completions have in common on the way to the engine.

Invariant: a value that only the loaded model can judge (a token id, the number of choices) is
checked here, and a wrong one is a 400 that names the field.

Read next: `server/engine/types.py`, the engine's own request.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypedDict

import anyio.to_thread

from grammar import Grammar
from server.api.clients import current_client
from server.api.errors import ApiError
from server.api.models import SampledRequest
from server.api.runtime import Served
from server.engine.errors import BudgetTooSmallError
from server.engine.types import GenerationRequest, SamplingParams

#: Stands for a `top_p` of 0: the likeliest token reaches it.
_LEAST = sys.float_info.min

#: Most choices of one request, where the engine has no more slots than that.
MAX_CHOICES = 8


def sampling_of(wanted: SampledRequest, served: Served) -> SamplingParams:
    """The request's sampling parameters over the server's defaults.

    Raises:
        ApiError: 400, as `require_tokens`.
    """
    defaults = served.settings.sampling

    def chosen(value: float | None, default: float) -> float:
        return default if value is None else value

    return SamplingParams(
        temperature=chosen(wanted.temperature, defaults.temperature),
        top_p=max(chosen(wanted.top_p, defaults.top_p), _LEAST),
        top_k=defaults.top_k if wanted.top_k is None else max(wanted.top_k, 0),
        min_p=chosen(wanted.min_p, defaults.min_p),
        seed=wanted.seed,
        frequency_penalty=wanted.frequency_penalty or 0.0,
        presence_penalty=wanted.presence_penalty or 0.0,
        repeat_penalty=chosen(wanted.repetition, defaults.repeat_penalty),
        logit_bias=_logit_bias(wanted.logit_bias or {}, served.engine.vocabulary.size),
    )


class EngineOptions(TypedDict):
    """The members of the engine's request that both generating endpoints set alike."""

    raw_logprobs: bool
    diagnostics: bool
    closes: bool
    repetition_guard: int
    client: str


def engine_options(wanted: SampledRequest, served: Served) -> EngineOptions:
    """What the request asks of the engine besides sampling, over the server's defaults."""
    guard = wanted.repetition_guard
    if guard is None:
        guard = served.settings.engine.repetition_guard or 0
    return {
        "raw_logprobs": bool(wanted.logprobs_raw),
        "diagnostics": bool(wanted.diagnostics),
        "closes": wanted.truncation == "close",
        "repetition_guard": guard,
        "client": current_client.get(),
    }


def generations_of(
    wanted: SampledRequest,
    served: Served,
    prompts: Sequence[Sequence[int]],
    *,
    count: int,
    grammar: Grammar | None,
    max_tokens: int | None,
    top_logprobs: int | None,
) -> list[GenerationRequest]:
    """What the engine is asked for: `count` answers to each prompt, one prompt after the other.

    Args:
        top_logprobs: how many alternatives each token is told with; None: no log-probabilities.

    Raises:
        ApiError: 400, as `require_tokens`.
    """
    options = engine_options(wanted, served)
    return [
        GenerationRequest(
            prompt=tuple(prompt),
            max_tokens=max_tokens,
            sampling=each,
            stop=wanted.stops,
            grammar=grammar,
            top_logprobs=top_logprobs,
            **options,
        )
        for prompt in prompts
        for each in with_seeds(sampling_of(wanted, served), count)
    ]


def seconds_of(wanted: SampledRequest, served: Served) -> float:
    """How long the request may take: what it asks for, up to what the server allows."""
    most = served.settings.server.request_timeout_seconds
    return most if wanted.timeout is None else min(wanted.timeout, most)


async def require_room(
    wanted: SampledRequest, grammar: Grammar | None, max_tokens: int | None, *, context: int
) -> None:
    """Check that an answer that is to be closed in time can be.

    Finds a valid answer of few tokens, off the event loop; the engine asks for it again, and then
    it is known. `context`: what the longest prompt leaves.

    Raises:
        BudgetTooSmallError: every valid answer has more than `max_tokens`.
    """
    if wanted.truncation != "close" or grammar is None or context < 1:
        return  # a prompt that fills the context is refused by the engine
    most = context if max_tokens is None else min(max_tokens, context)
    found = await anyio.to_thread.run_sync(grammar.fewest, most, abandon_on_cancel=True)
    if max_tokens is not None and found.at_least > max_tokens:
        raise BudgetTooSmallError(found, max_tokens, is_context=False)


def require_tokens(wanted: SampledRequest, served: Served) -> None:
    """Check that the tokens that a request names are in the vocabulary, before any work.

    Raises:
        ApiError: 400, `logit_bias` names one that isn't.
    """
    _logit_bias(wanted.logit_bias or {}, served.engine.vocabulary.size)


def _logit_bias(wanted: Mapping[str, float], size: int) -> dict[int, float]:
    bias: dict[int, float] = {}
    for name, value in wanted.items():
        if int(name) >= size:
            raise ApiError(
                400,
                f"Invalid value for 'logit_bias': token {name} is not in this model's vocabulary "
                f"of {size} tokens.",
                param=f"logit_bias.{name}",
                code="invalid_value",
            )
        bias[int(name)] = value
    return bias


def max_choices(wanted: int | None, served: Served) -> int:
    """The number of choices.

    Raises:
        ApiError: 400, more than one request may have.
    """
    count = wanted or 1
    limit = max(MAX_CHOICES, served.settings.engine.n_seq)
    if count > limit:
        raise ApiError(
            400,
            f"Invalid value for 'n': this server gives at most {limit} choices, not {count}.",
            param="n",
            code="invalid_value",
        )
    return count


def with_seeds(sampling: SamplingParams, count: int) -> list[SamplingParams]:
    """The sampling parameters of each choice: a given seed counts up, so that choices differ."""
    if sampling.seed is None:
        return [sampling] * count
    return [replace(sampling, seed=sampling.seed + index) for index in range(count)]
