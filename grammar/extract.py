"""A terminal that admits passages of a source only: extraction by construction (``x-extract``).

A state is what a suffix automaton's state is (Blumer et al., 1985): the set of places in the source
at which the text read so far may have ended. It is not built beforehand. A state's *places* are an
array of byte offsets into the encoded source; one more byte keeps those where the source has it.
Equal sets are one state, however they were reached. Most states have few places, and the states met
are those of the texts that were really written, so a source of any length costs its encoding only.

Beside the places a state has the characters read, as far as bounds ask for them, and the state of
a pattern (``reach.py``). All its places have read the same text, so these are the same for all.
A place is *alive* if some passage's end can still be reached under the bounds and the pattern;
a state exists while one of its places is alive, so there are no dead ends.

Masks are not walked state by state: all places of a state go down the vocabulary's trie together
(``extract_walk.py``).

Such a terminal belongs to one grammar, and is freed with it. It keeps at most ``KEPT_BYTES`` of
places and as much of walks; places are found again from the text that leads to them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from grammar.automaton import NOT_ACCEPTING, Automaton
from grammar.extract_walk import walk_passages
from grammar.passages import Ints, Passages
from grammar.prospects import PatternProspects, Prospects
from grammar.reach import FAR, Reach

if TYPE_CHECKING:
    from grammar.trie import Rests
    from grammar.vocabulary import Vocabulary
    from grammar.walk import Walk

QUOTE = 0x22
KEPT_BYTES = 16 << 20
FEW_PLACES = 64
"""With more places than this a state is taken to be wide: most bytes may follow."""


class Body(NamedTuple):
    """A state between the quotes: the number of its set of places, the characters read (no more
    than any bound asks for), and the pattern's state before the character that is being read."""

    places: int
    read: int
    at: int


_OPEN, _CLOSED = "open", "closed"
Key = Body | str


class _Origin(NamedTuple):
    """The bytes ``encoded[end - length:end]`` lead to a set of places."""

    end: int
    length: int


class Extract(Automaton):
    """A JSON string that holds a passage.

    Keys: ``"open"`` before the first quote, a ``Body``, ``"closed"`` behind the last one.

    Args:
        passages: the source.
        least, most: bounds of the passage's length in characters.
        reach: the pattern on this source; None: there is none.
    """

    private = True

    def __init__(
        self, passages: Passages, least: int, most: int | None, reach: Reach | None
    ) -> None:
        super().__init__()
        self.passages = passages
        self.least = max(least, 1)
        self.most = most
        self.reach = reach
        self._numbers: dict[bytes, int] = {}
        self._origins: list[_Origin] = [_Origin(0, 0)]
        self._kept: OrderedDict[int, Ints] = OrderedDict()
        self._kept_bytes = 0
        self.opened = Body(0, 0, 0)
        starts = passages.starts
        alive = self.prospects(self.opened, starts).alive(starts, passages.after[starts])
        self._starts: Ints = starts if alive is None else starts[alive]

    def is_possible(self) -> bool:
        """Whether there is any passage under the bounds."""
        return bool(len(self._starts))

    def start(self) -> int:
        """The state before the opening quote."""
        assert self.is_possible()
        return self.state(_OPEN)

    # -- places ---------------------------------------------------------------------------------

    def places(self, number: int) -> Ints:
        """The places of a set: int32[n], offsets into the encoded source, ascending."""
        if number == 0:
            return self._starts
        found = self._kept.get(number)
        if found is None:
            end, length = self._origins[number]
            found = self._starts
            for byte in self.passages.encoded[end - length : end]:
                found = self._advanced(found, byte)
            self._keep(number, found)
        else:
            self._kept.move_to_end(number)
        return found

    def _advanced(self, places: Ints, byte: int) -> Ints:
        """The places one byte on; none is at the end of the source, which no byte follows."""
        source = self.passages.bytes
        if len(places) and places[-1] == len(source):
            places = places[:-1]
        further: Ints = places[source[places] == byte] + np.int32(1)
        return further

    def _keep(self, number: int, places: Ints) -> None:
        self._kept[number] = places
        self._kept_bytes += places.nbytes
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= dropped.nbytes

    def _number(self, places: Ints, length: int) -> int:
        """The number of a set of places that texts of ``length`` bytes lead to."""
        name = (
            places.tobytes()
            if len(places) <= 4
            else hashlib.blake2b(places.tobytes(), digest_size=20).digest()
        )
        found = self._numbers.get(name)
        if found is None:
            found = self._numbers[name] = len(self._origins)
            self._origins.append(_Origin(int(places[0]), length))
            self._keep(found, places)
        return found

    # -- what may still come --------------------------------------------------------------------

    def prospects(self, body: Body, places: Ints) -> Prospects:
        """What may still come at places that a body has led to."""
        passages = self.passages
        begun = passages.after[places]
        base = begun - np.int32(body.read)
        if len(places) and not passages.between[places[0]]:
            base -= 1  # a character that is only begun was not counted as read
        count = len(passages.codes)
        if self.reach is not None:
            at = np.full(len(places), body.at, dtype=np.int32)
            most = FAR - 1 if self.most is None else self.most
            return PatternProspects(passages, self.reach, base, at, most)
        first = base + np.int32(self.least)
        if self.most is None:
            if self.least <= body.read + 1 and passages.is_end[-1]:
                return Prospects(passages, first, None)  # the source's end is one for all
            last = np.full(len(places), passages.last_end[-1], dtype=np.int32)
        else:
            last = passages.last_end[np.minimum(base + np.int32(self.most), count)]
        return Prospects(passages, first, np.where(last < first, np.int32(-1), last))

    def _survives(self, body: Body, places: Ints) -> bool:
        """Whether a place of a body is alive."""
        alive = self.prospects(body, places).alive(places, self.passages.after[places])
        return True if alive is None else bool(alive.any())

    def _accepts(self, body: Body) -> bool:
        places = self.places(body.places)
        where = np.flatnonzero(self.passages.may_end[places])
        begun = self.passages.after[places[where]]
        return bool(self.prospects(body, places).may_end(where, begun).any())

    # -- the automaton --------------------------------------------------------------------------

    def successor(self, key: Key, byte: int) -> Hashable | None:
        if key == _OPEN:
            return self.opened if byte == QUOTE else None
        if not isinstance(key, Body):
            return None
        if byte == QUOTE and self._accepts(key):
            return _CLOSED
        places = self._advanced(self.places(key.places), byte)
        if not len(places):
            return None
        read, at = key.read, key.at
        if self.passages.between[places[0]]:
            if self.reach is not None:
                last = self.passages.after[places[:1]] - 1
                at = int(self.reach.step(np.array([at], dtype=np.int32), last)[0])
            read = read + 1 if self.most is not None else min(read + 1, self.least)
        length = self._origins[key.places].length + 1
        after = Body(self._number(places, length), read, at)
        return after if self._survives(after, places) else None

    def label(self, key: Key) -> int:
        return 0 if key == _CLOSED else NOT_ACCEPTING

    def candidates(self, key: Key) -> Iterable[int] | None:
        if key == _OPEN:
            return (QUOTE,)
        if not isinstance(key, Body):
            return ()
        places = self.places(key.places)
        if len(places) > FEW_PLACES:
            return None
        places = places[places < len(self.passages.bytes)]
        return (*set(self.passages.bytes[places].tolist()), QUOTE)

    def completion(self, state: int) -> bytes | None:
        key = self._keys[state]
        if not isinstance(key, Body):
            if key == _CLOSED:
                return b""
            body = self.completion(self.state(self.opened))
            return None if body is None else b'"' + body
        places = self.places(key.places)
        begun = self.passages.after[places]
        ends = self.prospects(key, places).nearest(places, begun)
        reached = np.flatnonzero(ends < FAR)
        starts, stops = places[reached], self.passages.borders[ends[reached]]
        best = int(np.argmin(stops - starts))
        return self.passages.encoded[int(starts[best]) : int(stops[best])] + b'"'

    def own_walk(self, state: int, vocabulary: Vocabulary, rests: Rests) -> Walk | None:
        key = self._keys[state]
        if key == _CLOSED:
            return None
        return walk_passages(self, key if isinstance(key, Body) else None, vocabulary, rests)

    # -- memory ---------------------------------------------------------------------------------

    def keep_walk(self, state: int, rests: Rests, walk: Walk, size: int) -> None:
        if self._walk_bytes > KEPT_BYTES:
            self.walks.clear()
            self._walk_bytes = 0
        super().keep_walk(state, rests, walk, size)

    def memory_bytes(self) -> int:
        own = self.passages.memory_bytes() + self._starts.nbytes
        own += 0 if self.reach is None else self.reach.memory_bytes()
        return super().memory_bytes() + own + self._kept_bytes + 300 * len(self._origins)
