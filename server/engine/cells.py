"""Slots: which cells of the model's cache the slots hold, and which of them they share.

A cell is one token at one position. A slot that copied a beginning from another one holds the same
cells, and a cell is free only when the last slot lets go of it:

    tokens[slot]   what the slot's positions 0, 1, … hold
    used           distinct cells: what is gone from the model's `n_ctx`

Invariant: every call here goes with the same one to the model, so that the two agree; only the
scheduler makes them. Read next: `scheduler.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from server.engine.sequence import Sequence

SHORT = 16  # so many tokens are a forced run rather than a prompt, or not worth waiting for


@dataclass(slots=True, eq=False)
class Slot:
    """One of the model's sequences; see the table in `scheduler.py`."""

    index: int
    tokens: list[int]
    sequence: Sequence | None = None
    last_used: int = 0
    admitted: int = 0
    fresh: bool = False  # its sequence's prompt is evaluated for the first time

    @property
    def pending(self) -> int:
        """How many of the sequence's tokens are not in the cache yet."""
        assert self.sequence is not None
        return len(self.sequence.tokens) - len(self.tokens)

    @property
    def is_reading(self) -> bool:
        """Whether what is pending is (the rest of) a prompt, or as long as one."""
        return self.fresh or self.pending > SHORT

    def is_ahead_of(self, other: Slot) -> bool:
        """Whether it is reading more of what the other one needs than it holds now."""
        assert self.sequence is not None
        assert other.sequence is not None
        to_come, tokens = self.sequence.tokens, other.sequence.tokens
        least = max(len(self.tokens), len(other.tokens), SHORT)
        if not self.is_reading or len(to_come) <= least:
            return False
        return common_prefix(to_come, tokens, len(tokens) - 1) > least


class CellTable:
    """The cells of `slots` slots; all empty in the beginning."""

    def __init__(self, slots: int) -> None:
        self.tokens: tuple[list[int], ...] = tuple([] for _ in range(slots))
        self._cells: tuple[list[int], ...] = tuple([] for _ in range(slots))
        self._holders: dict[int, int] = {}
        self._next = 0

    @property
    def used(self) -> int:
        """Distinct cells that are held."""
        return len(self._holders)

    def is_sound(self) -> bool:
        """Whether every cell is owned by exactly the slots that count as its holders: then owned
        and free cells together are all there are."""
        owners = Counter(cell for cells in self._cells for cell in cells)
        return owners == self._holders

    def held_by(self, slots: Iterable[int]) -> int:
        """Distinct cells that some slots hold together."""
        return len(set().union(*(self._cells[slot] for slot in slots)))

    def append(self, slot: int, token: int) -> None:
        """A token was evaluated at the slot's end."""
        self.tokens[slot].append(token)
        self._cells[slot].append(self._next)
        self._holders[self._next] = 1
        self._next += 1

    def truncate(self, slot: int, length: int) -> None:
        """The slot lets go of all but its first `length` cells."""
        holders = self._holders
        for cell in self._cells[slot][length:]:
            if holders[cell] == 1:
                del holders[cell]
            else:
                holders[cell] -= 1
        del self._cells[slot][length:]
        del self.tokens[slot][length:]

    def share(self, source: int, target: int, length: int) -> None:
        """The empty slot `target` holds the first `length` cells of `source`, too."""
        assert not self.tokens[target], "only into an empty slot"
        self.tokens[target].extend(self.tokens[source][:length])
        cells = self._cells[source][:length]
        self._cells[target].extend(cells)
        for cell in cells:
            self._holders[cell] += 1


def common_prefix(left: list[int], right: list[int], most: int) -> int:
    """Length of the longest common beginning, at most `most` (none, if that is negative)."""
    length = max(0, min(len(left), len(right), most))
    if left[:length] == right[:length]:
        return length
    return next(i for i in range(length) if left[i] != right[i])
