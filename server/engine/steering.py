"""Bringing an answer to a legal end in time: before its tokens run out, or out of a runaway value.

Two things may narrow what the grammar allows:

    closing      a token is admitted only if the answer can still be completed with the tokens that
                 are left after it (`truncation: close`)
    repetition   once the last tokens have repeated themselves for long, a token is admitted only
                 if it leads out of the value they were written in (`repetition_guard`)

The sampler proposes, `admits` judges, and what is refused is taken out of the mask and drawn again,
which is drawing from the admitted tokens alone; after a few refusals the next token of the shortest
end is taken. So nothing is computed for the tokens that nobody wants, and as long as there is room
enough for the shortest end byte by byte a proposal costs one look-up.

Invariant: with closing on, the answer can be completed within the tokens left: a token is admitted
only where an end of so many tokens is known, or as the next one of the end that was known before.
Read next: `sequence.py`, which asks; `grammar/distance.py`, which knows the ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.engine.types import Steered, SteeringCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grammar import Matcher
    from grammar.values import Value

PERIODS = 3
"""So many times at least something is repeated before it counts as repetition."""


class Repetition:
    """Notices when the last `length` tokens are one short run of tokens over and over."""

    def __init__(self, length: int) -> None:
        self.length = length
        self._tokens: list[int] = []
        # matches[p]: how many tokens in a row equalled the one p places before them
        self._matches = [0] * (length // PERIODS + 1)

    def push(self, token: int) -> Sequence[int] | None:
        """Add a token; returns the last `length` ones if they repeat themselves."""
        tokens, matches = self._tokens, self._matches
        tokens.append(token)
        repeats = False
        for period in range(1, min(len(matches), len(tokens))):
            if tokens[-1 - period] == token:
                matches[period] += 1
                repeats = repeats or matches[period] + period >= self.length
            else:
                matches[period] = 0
        return tokens[-self.length :] if repeats else None

    def reset(self) -> None:
        """Forget all tokens."""
        self._tokens.clear()
        self._matches = [0] * len(self._matches)


class Steering:
    """Judges the tokens of one answer. `matcher` is the sequence's own and is left where it is."""

    def __init__(
        self,
        matcher: Matcher,
        *,
        closes: bool,
        repetition: int,
        plan: tuple[int, ...] | None = None,
    ) -> None:
        """`repetition`: how many repeated tokens are too many; 0 for any number. `plan`: the tokens
        of an answer that fits; there may be none that fits and is shorter in bytes."""
        self._matcher = matcher
        self._closes = closes
        self._repetition = Repetition(repetition) if repetition else None
        self._value: Value | None = None
        self._plan = plan
        self._longest = matcher.vocabulary.longest
        self.steered: Steered | None = None

    @property
    def watches(self) -> bool:
        """Whether tokens have to be judged now."""
        return self._closes or self._value is not None

    @property
    def closes(self) -> bool:
        """Whether the answer is to be completed within its tokens."""
        return self._closes

    def give_up(self) -> None:
        """There is no known way out of the value; it may go on."""
        self._value = None

    def mark(self, token: int, cause: SteeringCause) -> None:
        """Something was narrowed before the answer's token of that index, for the first time."""
        if self.steered is None:
            self.steered = Steered(token, cause if self._value is None else "repetition")

    def admits(self, token: int, room: int) -> bool:
        """Whether a legal token may be taken, after which `room` more can be."""
        plan = self._plan
        if plan and plan[0] == token and (not self._closes or len(plan) - 1 <= room):
            return True
        matcher = self._matcher
        before = matcher.distance() if self._value is not None else None
        matcher.advance(token)
        try:
            if self._value is not None and matcher.is_inside(self._value):
                size = matcher.distance()
                if size is None or before is None or size >= before:
                    return False
            return not self._closes or self._can_close(room)
        finally:
            matcher.rollback(1)

    def admits_run(self, run: Sequence[int], room: int) -> bool:
        """Whether the tokens of a forced run may be taken, `room` being all that are left."""
        if not self._closes:
            return True
        if len(run) > room:
            return False
        plan = self._plan
        if plan and plan[: len(run)] == tuple(run) and len(plan) <= room:
            return True
        for token in run:
            self._matcher.advance(token)
        try:
            return self._can_close(room - len(run))
        finally:
            self._matcher.rollback(len(run))

    def planned(self) -> int | None:
        """The next token of the shortest end; None where the answer is complete (or none is known,
        which closing rules out)."""
        if self._plan is None:
            self._matcher.hurry()
            self._plan = self._matcher.shortest_end()
        return self._plan[0] if self._plan else None

    def took(self, token: int) -> None:
        """A token was taken, and the matcher stands behind it."""
        plan, self._plan = self._plan, None
        if plan and plan[0] == token:
            self._plan = plan[1:]
        if self._value is not None and not self._matcher.is_inside(self._value):
            self._value = None
            if self._repetition is not None:
                self._repetition.reset()
        if self._repetition is not None and self._value is None:
            repeated = self._repetition.push(token)
            if repeated is not None:
                self._value = self._matcher.value_of(repeated)
                self._repetition.reset()

    def _can_close(self, room: int) -> bool:
        """Whether the place where the matcher stands is at most `room` tokens from the end."""
        size = self._matcher.distance()
        if size is None or size > room * self._longest:
            return False
        if size <= room:
            return True
        plan = self._matcher.shortest_end()
        return plan is not None and len(plan) <= room
