"""Whether there are enough different values to fill an array whose items must differ.

A ``Stock`` says of a rule which values it has, if they are few. Positions of an array that are
still to be filled and the few values that fit them are a bipartite graph; the array can be
completed when some matching covers the positions (P. Hall, 1935), found by augmenting paths.
Positions with more values than the array has items at most can always be filled.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grammar.compared import Value

if TYPE_CHECKING:
    from grammar.arrays import ArrayNode, At

Few = frozenset[Value]


@dataclass(frozen=True, slots=True)
class Stock:
    """The values of a rule: ``few``, all of them, or None where they are plenty; and ``fewest``,
    how many there are, at least, of each of the strings, arrays and objects, and of all."""

    few: Few | None
    fewest: int


def can_fill(places: Sequence[Few], used: Container[Value]) -> bool:
    """Whether each place can get a value of its own that was not used."""
    holder: dict[Value, int] = {}
    for start in range(len(places)):
        # Breadth first for a value that is free, taking others' values on the way.
        came: dict[Value, tuple[int, Value | None]] = {}
        pending: list[tuple[int, Value | None]] = [(start, None)]
        free: Value | None = None
        found = False
        while pending and not found:
            place, by = pending.pop(0)
            for value in places[place]:
                if value in came or value in used:
                    continue
                came[value] = (place, by)
                if value not in holder:
                    free, found = value, True
                    break
                pending.append((holder[value], value))
        if not found:
            return False
        while free is not None:
            place, by = came[free]
            holder[free] = place
            free = by
    return True


class Supply:
    """What an array's positions can be filled with; see ``ArrayNode``."""

    def __init__(self, node: ArrayNode, stocks: Mapping[int, Stock]) -> None:
        self._node = node
        self._prefix = [
            _union([stocks[choice.rule].few for choice in choices]) for choices in node.prefix
        ]
        self._classes = [(c.matches, stocks[c.rule].few) for c in node.rest]
        self._rest = _union([few for _, few in self._classes])
        used = [stocks[c.rule] for choices in (*node.prefix, node.rest) for c in choices]
        self.fewest = min((stock.fewest for stock in used), default=0)
        #: Whether some position has few values.
        self.is_tight = any(stock.few is not None for stock in used)
        #: Whether counting what is left takes more than ``can_go_on`` does.
        self.is_intricate = self.is_tight and (
            len(node.contains) > 1 or (bool(node.contains) and bool(node.prefix))
        )

    def suffices(self, at: At, used: Sequence[Value] | Container[Value]) -> bool:
        """Whether the items that must still come can be found, after ``used`` ones."""
        if not self.is_tight:
            return True
        if self._node.contains:
            return self._suffices_counted(at, used)
        least, first = self._node.least, len(self._prefix)
        places = [few for few in self._prefix[at.items : least] if few is not None]
        more = max(0, least - max(at.items, first))
        if more and self._rest is not None:
            left = sum(value not in used for value in self._rest)
            if left < more:
                return False
            if places:
                places += [self._rest] * more
        return not places or can_fill(places, used)

    def _suffices_counted(self, at: At, used: Container[Value]) -> bool:
        """The same beside one ``contains``, whose classes of items have nothing in common."""
        node = self._node
        bound, hits = node.contains[0], at.hits[0]
        room = {0: 0.0, 1: 0.0}
        for matches, few in self._classes:
            left = float("inf") if few is None else sum(value not in used for value in few)
            room[matches[0]] += left
        missing = max(0, bound.least - hits)
        matching = room[1] if bound.most is None else min(room[1], bound.most - hits)
        total = float("inf") if node.most is None else node.most - at.items
        return missing <= min(matching, total) and matching + room[0] >= node.least - at.items


def _union(parts: Sequence[Few | None]) -> Few | None:
    found: Few = frozenset()
    for part in parts:
        if part is None:
            return None
        found |= part
    return found
