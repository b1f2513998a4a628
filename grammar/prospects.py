"""What may still come at the places of a passage: where it may end, and whether it can at all.

Places are told by the number of characters that are begun before them (``Passages.after``). Of
each the *base* is known: that number where the text read so far began. So bounds on the length are
bounds on where the passage ends, the same however far the place has moved on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from grammar.passages import Flags, Ints, Passages
from grammar.reach import FAR, Reach

Chosen = npt.NDArray[np.intp] | slice


class Prospects:
    """Of n places.

    Args:
        passages: the source.
        first: int32[n], the least end that the bounds allow.
        last: int32[n], the greatest end that there is within the bounds, less than ``first`` or -1
            where there is none; None: an end is always near enough.
    """

    __slots__ = ("first", "last", "passages")

    def __init__(self, passages: Passages, first: Ints, last: Ints | None) -> None:
        self.passages = passages
        self.first = first
        self.last = last

    def of(self, chosen: Chosen) -> Prospects:
        """Those of some of the places."""
        last = None if self.last is None else self.last[chosen]
        return Prospects(self.passages, self.first[chosen], last)

    def advance(self, places: Ints, begun: Ints) -> Flags | None:
        """Go on by a byte, to these places; whether they are alive: bool[n], or None: all are."""
        return None if self.last is None else begun <= self.last

    def alive(self, places: Ints, begun: Ints) -> Flags | None:
        """Whether an end can be reached from these places: bool[n], or None: it always can."""
        return None if self.last is None else begun <= self.last

    def may_end(self, which: npt.NDArray[np.intp], begun: Ints) -> Flags:
        """Whether a passage may end at some of the places, which are ends: bool[len(which)]."""
        may = begun >= self.first[which]
        return may if self.last is None else may & (begun <= self.last[which])

    def nearest(self, places: Ints, begun: Ints) -> Ints:
        """The nearest end that can be reached from each of the places, which are these, or
        ``FAR``: int32[n]."""
        ends = self.passages.next_end
        found = ends[np.minimum(np.maximum(begun, self.first), len(ends) - 1)]
        inside = found < len(ends) if self.last is None else found <= self.last
        return np.where(inside, found, np.int32(FAR))


class PatternProspects(Prospects):
    """The same under a pattern, which knows of the least length.

    Args:
        passages, reach: the source, and the pattern on it.
        base: int32[n].
        at: int32[n], the pattern's states before the character that is being read.
        most: the greatest length.
    """

    __slots__ = ("at", "base", "most", "reach")

    def __init__(self, passages: Passages, reach: Reach, base: Ints, at: Ints, most: int) -> None:
        self.passages = passages
        self.reach = reach
        self.base = base
        self.at = at
        self.most = most

    def of(self, chosen: Chosen) -> PatternProspects:
        base, at = self.base[chosen], self.at[chosen]
        return PatternProspects(self.passages, self.reach, base, at, self.most)

    def advance(self, places: Ints, begun: Ints) -> Flags:
        behind = self.reach.step(self.at, begun - 1)
        self.at = np.where(self.passages.between[places], behind, self.at)
        return self._can_end(begun, behind)

    def alive(self, places: Ints, begun: Ints) -> Flags:
        return self._can_end(begun, self._behind(places, begun))

    def _behind(self, places: Ints, begun: Ints) -> Ints:
        """The states behind the characters that are begun."""
        stepped = self.reach.step(self.at, np.maximum(begun - 1, 0))
        return np.where(self.passages.between[places], self.at, stepped)

    def nearest(self, places: Ints, begun: Ints) -> Ints:
        behind = self._behind(places, begun)
        found = begun + self.reach.distance(begun, behind)
        return np.where(self._can_end(begun, behind), found, np.int32(FAR))

    def _can_end(self, begun: Ints, behind: Ints) -> Flags:
        distance = self.reach.distance(begun, behind)
        can: Flags = np.less_equal(distance, self.most - (begun - self.base))
        return can

    def may_end(self, which: npt.NDArray[np.intp], begun: Ints) -> Flags:
        fits: Flags = self.reach.accepts[self.at[which]]
        fits &= np.less_equal(begun - self.base[which], self.most)
        return fits
