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
MAX_LOOKED = 64
"""So many tokens are looked at where the way has to be left."""


class UniqueDistance(Distance):
    """Distances in a grammar with arrays that compare their items."""

    def __init__(self, machine: UniqueMachine) -> None:
        super().__init__(machine.context, machine.vocabulary)
        self._machine = ref(machine)  # which owns this

    @property
    def _owner(self) -> UniqueMachine:
        machine = self._machine()
        assert machine is not None
        return machine

    def size(self, state: State) -> int | None:
        if not self._owner.may_repeat(state):
            return super().size(state)
        found = self.tokens(state)
        texts = self._owner.vocabulary.tokens
        return None if found is None else sum(len(texts[token]) or 1 for token in found)

    def tokens(self, state: State) -> tuple[int, ...] | None:
        if not self._owner.may_repeat(state):
            return super().tokens(state)
        taken: list[int] = []
        at = state
        while len(taken) < MAX_TOKENS:
            way = super().tokens(at)
            if way is None:
                return None
            for token in way:
                after = self._owner.advance(at, token)
                if after is None:
                    break
                at = after
                taken.append(token)
            else:
                return tuple(taken)
            found = self._elsewhere(at)
            if found is None:
                return None
            taken.append(found[0])
            at = found[1]
        return None

    def _elsewhere(self, at: State) -> tuple[int, State] | None:
        """The token that leads nearest to an end, of some, and the state after it."""
        best: tuple[int, State] | None = None
        least: int | None = None
        for token in self._legal(at):
            after = self._owner.advance(at, token)
            size = None if after is None else super().size(after)
            if after is not None and size is not None and (least is None or size < least):
                best, least = (token, after), size
        return best

    def _legal(self, at: State) -> Iterable[int]:
        machine = self._owner
        mask = machine.fill_mask(at)
        bits = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        texts = machine.vocabulary.tokens
        return sorted(
            (token for token in bits.tolist() if texts[token]),
            key=lambda token: (not texts[token].isalnum(), len(texts[token]), token),
        )[:MAX_LOOKED]
