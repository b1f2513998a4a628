"""The transition table of wide walks: steps of an automaton for whole arrays of states and bytes.

Only states that such a walk met have a row. A row is filled on demand; what many bytes at once lead
to is entered in one go (``Automaton.spans``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from grammar.automaton import Automaton

UNKNOWN = -2
_NO_ROWS = np.zeros(0, dtype=np.int32)
_NO_STEPS = np.zeros((0, 256), dtype=np.int32)
_NO_BITS = np.zeros(0, dtype=np.uint64)


class StepTable:
    """int32 states by rows and bytes, of one automaton.

    Beside it stand, by row: ``label`` int32, and what ``Automaton.safe`` says of the state as
    ``low`` and ``high`` uint64 (the set's two halves) and ``depth`` int32.
    """

    __slots__ = ("_row_of", "_used", "after", "depth", "high", "label", "low")

    def __init__(self) -> None:
        # Most automata are only walked byte by byte, so nothing is made before it is needed.
        self._row_of: npt.NDArray[np.int32] = _NO_ROWS
        self._used = 0
        self.after: npt.NDArray[np.int32] = _NO_STEPS
        self.label: npt.NDArray[np.int32] = _NO_ROWS
        self.low: npt.NDArray[np.uint64] = _NO_BITS
        self.high: npt.NDArray[np.uint64] = _NO_BITS
        self.depth: npt.NDArray[np.int32] = _NO_ROWS

    @property
    def nbytes(self) -> int:
        """Bytes of the table itself."""
        return self.after.nbytes

    def rows(self, automaton: Automaton, states: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """The rows of some states, int32[n]; new ones are begun."""
        count = len(automaton)
        if len(self._row_of) < count:
            grown = np.full(max(2 * count, 64), -1, dtype=np.int32)
            grown[: len(self._row_of)] = self._row_of
            self._row_of = grown
        rows = self._row_of[states]
        if len(rows) and rows.min() < 0:
            for state in sorted(set(states[rows < 0].tolist())):
                self._begin(automaton, state)
            rows = self._row_of[states]
        return rows

    def _begin(self, automaton: Automaton, state: int) -> None:
        row = self._used
        if row == len(self.after):
            count = max(row, 16)  # as many again
            more = np.full((count, 256), UNKNOWN, dtype=np.int32)
            self.after = np.concatenate([self.after, more])
            for name in ("label", "low", "high", "depth"):
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros(count, dtype=old.dtype)]))
        self._used += 1
        self._row_of[state] = row
        self.label[row] = automaton.labels[state]
        safe = automaton.safe(automaton.key(state))
        if safe is not None:
            bits, depth = safe
            self.low[row], self.high[row] = bits & _HALF, bits >> 64
            self.depth[row] = depth

    def step(
        self,
        automaton: Automaton,
        states: npt.NDArray[np.int32],
        bytes_: npt.NDArray[np.uint8],
    ) -> npt.NDArray[np.int32]:
        """``Automaton.step`` for arrays: int32[n] and uint8[n] -> int32[n]."""
        rows = self.rows(automaton, states)
        result = self.after[rows, bytes_]
        unknown = np.flatnonzero(result == UNKNOWN)
        if len(unknown):
            for state in set(states[unknown].tolist()):
                self._fill_spans(automaton, state)
            result = self.after[rows, bytes_]
            unknown = np.flatnonzero(result == UNKNOWN)
        if len(unknown):
            pairs = states[unknown].astype(np.int64) * 256 + bytes_[unknown]
            for pair in sorted(set(pairs.tolist())):
                state, byte = divmod(pair, 256)
                self.after[self._row_of[state], byte] = automaton.step(state, byte)
            result = self.after[rows, bytes_]
        return result

    def _fill_spans(self, automaton: Automaton, state: int) -> None:
        """Enter what many bytes at once lead to."""
        at = self._row_of[state]
        spans = automaton.spans(automaton.key(state))
        if spans is None or self.after[at, 0] != UNKNOWN:
            return
        row = np.full(0x80, _DEAD, dtype=np.int32)
        for low, high, key in spans:
            row[low : high + 1] = automaton.state(key)
        for byte in automaton.exceptions:
            row[byte] = automaton.step(state, byte)
        self.after[at, :0x80] = row
        if automaton.is_ascii(automaton.key(state)):
            self.after[at, 0x80:] = _DEAD


_DEAD = -1  # as ``automaton.DEAD``; that module imports this one
_HALF = (1 << 64) - 1
