"""Diagnostics of one answer: what the mask did in every step, forced ones included.

A sampled token's figures come with its choice. A token of a forced run is taken before the model
has been asked; what was legal in its place is remembered here, and the logits of that place are
wanted when it is evaluated, which is in the next step anyway.

Invariant: what is watched changes no token. Read next: `sequence.py`, which owns one where the
request asks for diagnostics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine.layout import Ids, Mask
from server.engine.types import AnswerDiagnostics, StepDiagnostics, TokenDiagnostics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from server.engine.forced import Splitter
    from server.engine.model import LanguageModel


class Watch:
    """The figures of one answer, whose first token is at position `begin` of its sequence."""

    def __init__(self, begin: int) -> None:
        self._begin = begin
        #: The positions whose logits are still to be observed: what was legal behind them.
        self.unseen: dict[int, tuple[Mask, Ids | None]] = {}
        self._steps: dict[int, StepDiagnostics] = {}  # by position of the token
        self._forced: set[int] = set()

    def sampled(self, position: int, step: StepDiagnostics) -> None:
        """The token at a position was sampled."""
        self._steps[position] = step

    def forced(self, position: int, mask: Mask, ids: Ids | None) -> None:
        """The token at a position was forced, where a mask would have allowed these."""
        self._forced.add(position)
        self.unseen[position - 1] = mask, ids

    def observe(
        self, position: int, diagnose: Callable[[Mask, Ids | None], StepDiagnostics]
    ) -> None:
        """The logits at one of the positions in `unseen` are there."""
        self._steps[position + 1] = diagnose(*self.unseen.pop(position))

    def result(
        self, answer: Sequence[int], model: LanguageModel, splitter: Splitter | None
    ) -> AnswerDiagnostics:
        """All figures of the answer's tokens; the splitter knows the tokenizer's own split."""
        text = model.token_text
        return AnswerDiagnostics(
            tokens=tuple(
                TokenDiagnostics(
                    token,
                    step,
                    position in self._forced or step.forced,
                    text(token),
                    text(step.wanted),
                )
                for position, token in enumerate(answer, start=self._begin)
                if (step := self._steps.get(position)) is not None
            ),
            canonical=None if splitter is None else splitter.is_canonical(answer),
        )
