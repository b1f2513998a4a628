"""The shortest end known of a text in which some arrays' items must differ.

``distance.py`` knows nothing of the items' values. So where they can matter its way to the end is
tried, and where it repeats an item another token is taken there and the way sought anew. What comes
out is the way of a real text, though not always the shortest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import ref

import numpy as np

from grammar.distance import Distance

if TYPE_CHECKING:
    from grammar.states import State
    from grammar.unique import UniqueMachine

MAX_TOKENS = 2048
MAX_KEPT = 1024
MAX_LOOKED = 64
"""So many tokens are looked at where the way has to be left."""


class UniqueDistance(Distance):
    """Distances in a grammar with arrays that compare their items."""

    def __init__(self, machine: UniqueMachine) -> None:
        super().__init__(machine.context, machine.vocabulary)
        self._machine = ref(machine)  # which owns this
        self._different: dict[State, tuple[int, ...] | None] = {}

    @property
    def _owner(self) -> UniqueMachine:
        machine = self._machine()
        assert machine is not None
        return machine

    def size(self, state: State) -> int | None:
        if not self._owner.may_repeat(state):
            return super().size(_plain(state))
        found = self.tokens(state)
        texts = self._owner.vocabulary.tokens
        return None if found is None else sum(len(texts[token]) or 1 for token in found)

    def tokens(self, state: State) -> tuple[int, ...] | None:
        if not self._owner.may_repeat(state):
            return super().tokens(_plain(state))
        found = self._different.get(state, _UNKNOWN)
        if not isinstance(found, _Unknown):
            return found
        if len(self._different) >= MAX_KEPT:
            self._different.clear()
        passed, taken = self._follow(state)
        self._different[state] = taken
        if taken is not None:  # the way on is known from every state on it
            for count, at in enumerate(passed):
                self._different[at] = taken[count:]
        return taken

    def _follow(self, state: State) -> tuple[list[State], tuple[int, ...] | None]:
        """A way to the end, tried out, and the states along it."""
        taken: list[int] = []
        passed: list[State] = []
        at = state
        while len(taken) < MAX_TOKENS:
            way = super().tokens(_plain(at))
            if way is None:
                return passed, None
            for token in way:
                after = self._owner.advance(at, token)
                if after is None:
                    break
                passed.append(at)
                taken.append(token)
                at = after
            else:
                return passed, tuple(taken)
            found = self._elsewhere(at)
            if found is None:
                return passed, None
            passed.append(at)
            taken.append(found[0])
            at = found[1]
        return passed, None

    def _elsewhere(self, at: State) -> tuple[int, State] | None:
        """The token that leads nearest to an end, of some, and the state after it.

        One that leads no further away, to where the item differs from all others, is taken at once.
        """
        best: tuple[int, State] | None = None
        least: int | None = None
        here = super().size(_plain(at))
        for token in self._legal(at):
            after = self._owner.advance(at, token)
            size = None if after is None else super().size(_plain(after))
            if after is None or size is None:
                continue
            if here is not None and size <= here and not _is_near(after):
                return token, after
            if least is None or size < least:
                best, least = (token, after), size
        return best

    def _legal(self, at: State) -> Iterable[int]:
        machine = self._owner
        bits = np.unpackbits(machine.fill_mask(at).view(np.uint8), bitorder="little")
        order = machine.vocabulary.short_first
        found: list[int] = order[np.flatnonzero(bits[order])[:MAX_LOOKED]].tolist()
        return found


class _Unknown:
    """Nothing is known of a state yet (None: there is no way)."""


_UNKNOWN = _Unknown()


def _plain(state: State) -> State:
    """The state of the grammar, which many texts share."""
    plain: State = getattr(state, "plain", state)
    return plain


def _is_near(state: State) -> bool:
    reader = getattr(state, "reader", None)
    return reader is not None and reader.is_near
