"""Which tokens need no walking inside a string: characters that can't go wrong for a while.

Of a content (what may still stand between the quotes) the *safe* characters are a set such that any
text of up to ``depth`` of them keeps the string alive, whatever their order. ``[A-Za-z0-9_]*`` is
safe for its class without end; a counted class is so until its counter runs out; so is a language
that forbids a word for all characters but one of that word. A walk that stands where everything
below a node of the vocabulary's trie is made of safe characters takes all of it unseen. A content
is *even* where, beyond that, no other plain character may stand at any of these places: then all
plain tokens are told at once, by the characters that they hold (``plain.py``).

A set of characters is an int with a bit for each ASCII character; bit 0 stands for all characters
beyond ASCII but the *odd* ones (kinds of white space, which patterns often leave out), and bit 1
for what is never safe: odd characters, control characters, bytes that are no whole characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from grammar.charset import SCALAR_RANGES, SPACE, WHITE_SPACE
from grammar.rx import Kind, Rx

if TYPE_CHECKING:
    from grammar.content import Content
    from grammar.trie import TokenTrie

BEYOND, NEVER = 1, 2
ENDLESS = 1 << 20
"""The depth of what is safe without end."""
SPARE_LOOKS = 16
"""So many contents are looked at beyond one for each character of a token, before a search ends."""
ODD = tuple(r for r in (SPACE | WHITE_SPACE).ranges if r[0] >= 0x80)
_ASCII = sum(1 << code for code in range(0x20, 0x80) if code not in (0x22, 0x5C))
_ODD_COUNT = sum(high - low + 1 for low, high in ODD)
_BEYOND_COUNT = sum(high - max(low, 0x80) + 1 for low, high in SCALAR_RANGES) - _ODD_COUNT

Ranges = Iterable[tuple[int, int, "Content"]]


class Even(NamedTuple):
    """A plain token of n characters without odd ones stays exactly if its first character is in
    ``first``, all others are in ``rest``, and n is at most ``depth``. ``odd``: whether a token with
    odd characters might stay."""

    first: int
    rest: int
    depth: int
    odd: bool


class _Step(NamedTuple):
    """The plain characters that may follow, and the contents behind them. ``mixed``: some of those
    beyond ASCII may and some may not; ``odd``: an odd one may; ``beyond``: any beyond ASCII may."""

    live: int
    mixed: bool
    odd: bool
    beyond: bool
    targets: tuple[tuple[int, Content], ...]


class Safety:
    """What is safe in contents, each found once.

    Args:
        ranges: the transitions of a content: disjoint ranges of characters and what follows.
        longest: characters of the longest token; no greater depth is looked for.
    """

    def __init__(self, ranges: Callable[[Content], Ranges], longest: int) -> None:
        self._ranges = ranges
        self._longest = longest
        self._safe: dict[Content, tuple[int, int]] = {}
        self._even: dict[Content, tuple[int, int, bool] | None] = {}
        self._steps: dict[Content, _Step] = {}

    def of(self, content: Content) -> tuple[int, int]:
        """(safe characters, how many of them in a row)."""
        found = self._safe.get(content)
        if found is None:
            found = self._search(content)
        return found

    def _search(self, start: Content) -> tuple[int, int]:
        counted = self._counted(start)
        if counted is not None:
            self._safe[start] = counted
            return counted
        safe = self._step(start).live
        while True:
            depth, levels, fewer = self._spread(start, safe)
            if fewer == safe:
                break
            safe = fewer
        for at, level in enumerate(levels):
            for content in level:
                if self._steps[content].live == safe:
                    left = depth if depth == ENDLESS else depth - at
                    self._safe.setdefault(content, (safe, left))
        return self._safe.setdefault(start, (safe, depth))

    def _spread(self, start: Content, safe: int) -> tuple[int, list[list[Content]], int]:
        """The contents that safe characters lead to, by their distance, as far as it goes well.

        Returns (depth, contents by distance, the set to try instead if it should be smaller).
        """
        levels = [[start]]
        seen = {start}
        while safe and len(levels) <= self._longest:
            fresh = self._behind(levels[-1], safe, seen)
            if not fresh:
                return ENDLESS, levels, safe
            if len(seen) + len(fresh) > len(levels) + SPARE_LOOKS:
                return len(levels), levels, safe
            common = safe
            for content in fresh:
                common &= self._step(content).live
            if common != safe:
                if 4 * common.bit_count() < 3 * safe.bit_count():
                    return len(levels), levels, safe
                return 0, levels, common
            seen.update(fresh)
            levels.append(fresh)
        return len(levels) - 1, levels, safe

    def is_ascii(self, content: Content) -> bool:
        """Whether no character beyond ASCII may follow."""
        return not self._step(content).beyond

    def even(self, content: Content) -> Even | None:
        """What tells all plain tokens at once, where a content is even, at least behind the first
        character."""
        found = self._evenness(content)
        if found is not None:
            chars, depth, odd = found
            return Even(chars, chars, depth, odd)
        step = self._step(content)
        if step.mixed or not step.targets:
            return None
        found = self._evenness(step.targets[0][1])
        if found is None or step.live & ~found[0]:
            return None
        if any(self._evenness(target) != found for _, target in step.targets[1:]):
            return None
        chars, depth, odd = found
        return Even(step.live, chars, min(depth + 1, ENDLESS), odd or step.odd)

    def _counted(self, content: Content) -> tuple[int, int] | None:
        """(characters, depth) of one class of characters that is only counted, known at once."""
        language, _, most = content
        if not isinstance(language, Rx) or language.kind is not Kind.REPEAT:
            return None
        if language.parts[0].kind is not Kind.CHARS:
            return None
        bounds = (ENDLESS if bound is None else bound for bound in (language.hi, most))
        return self._step(content).live, min(*bounds, ENDLESS)

    def _evenness(self, start: Content) -> tuple[int, int, bool] | None:
        """(the plain characters that may stand here and at all later places, how many in a row,
        whether an odd one may); None where they are not the same everywhere."""
        if start in self._even:
            return self._even[start]
        step = self._step(start)
        counted = self._counted(start)
        if counted is not None and not step.mixed:
            found = self._even[start] = (*counted, step.odd)
            return found
        if step.mixed:
            self._even[start] = None
            return None
        levels = [[start]]
        seen = {start}
        depth: int | None = None
        odd = step.odd
        while depth is None:
            fresh = self._behind(levels[-1], step.live, seen)
            steps = [self._step(content) for content in fresh]
            odd |= any(other.odd for other in steps)
            if not fresh:
                depth = ENDLESS
            elif any(other.mixed for other in steps):
                break
            elif not any(other.live for other in steps):
                depth = len(levels)
            elif any(other.live != step.live for other in steps):
                break
            elif len(levels) >= self._longest:
                depth = self._longest
            elif len(seen) + len(fresh) > len(levels) + SPARE_LOOKS:
                break
            seen.update(fresh)
            levels.append(fresh)
        even = None if depth is None else (step.live, depth, odd)
        self._even[start] = even
        if even is not None and depth == ENDLESS:
            for content in seen:
                self._even[content] = even
        return even

    def _behind(self, level: list[Content], chars: int, seen: set[Content]) -> list[Content]:
        """The contents not seen yet that some characters lead to from those of a level."""
        fresh: dict[Content, None] = {}
        for content in level:
            for bits, target in self._step(content).targets:
                if bits & chars and target not in seen:
                    fresh[target] = None
        return list(fresh)

    def _step(self, content: Content) -> _Step:
        found = self._steps.get(content)
        if found is None:
            targets: dict[Content, int] = {}
            live = beyond = odd = 0
            for low, high, target in self._ranges(content):
                bits = 0
                if low < 0x80:
                    bits = ((2 << min(high, 0x7F)) - (1 << low)) & _ASCII
                if high >= 0x80:
                    bits |= BEYOND
                    beyond += high - max(low, 0x80) + 1
                    odd += sum(max(0, min(last, high) - max(first, low) + 1) for first, last in ODD)
                targets[target] = targets.get(target, 0) | bits
                live |= bits
            beyond -= odd
            if beyond < _BEYOND_COUNT:
                live &= ~BEYOND
            mixed = 0 < beyond < _BEYOND_COUNT
            pairs = tuple((bits, target) for target, bits in targets.items())
            found = self._steps[content] = _Step(live, mixed, odd > 0, beyond + odd > 0, pairs)
        return found


class Below:
    """What stands below each of the N nodes of a trie.

    ``low``, ``high``: uint64[N], halves of the set of characters of all tokens that go on there;
    ``height``: int32[N], bytes of the longest. ``wild``: bool[V], tokens that are never safe.
    """

    __slots__ = ("height", "high", "low")

    def __init__(self, trie: TokenTrie, wild: npt.NDArray[np.bool_]) -> None:
        bits = [1 << bit_of(byte) for byte in range(256)]
        low_of = np.array([b & (1 << 64) - 1 for b in bits], dtype=np.uint64)
        high_of = np.array([b >> 64 for b in bits], dtype=np.uint64)
        own_low, own_high = low_of[trie.byte], high_of[trie.byte]
        # A wild token makes its last node, and so all above it, unsafe.
        ends = np.flatnonzero(trie.ends)
        count = np.zeros(len(trie.order) + 1, dtype=np.int64)
        np.cumsum(wild[trie.order], out=count[1:])
        some = count[trie.low[ends] + trie.ends[ends]] > count[trie.low[ends]]
        own_low[ends[some]] |= np.uint64(NEVER)
        self.low = np.zeros(len(trie), dtype=np.uint64)
        self.high = np.zeros(len(trie), dtype=np.uint64)
        self.height: npt.NDArray[np.int32] = np.zeros(len(trie), dtype=np.int32)
        levels = [0, 1]
        while levels[-1] < len(trie):
            levels.append(int(trie.child[levels[-1]]))
        for start, stop in zip(levels[-2::-1], levels[:0:-1], strict=True):  # upwards
            inner = start + np.flatnonzero(
                trie.child[start + 1 : stop + 1] > trie.child[start:stop]
            )
            if not len(inner):
                continue
            first, last = int(trie.child[inner[0]]), int(trie.child[stop])
            cuts = trie.child[inner] - first
            here = slice(first, last)
            self.low[inner] = np.bitwise_or.reduceat(own_low[here] | self.low[here], cuts)
            self.high[inner] = np.bitwise_or.reduceat(own_high[here] | self.high[here], cuts)
            self.height[inner] = np.maximum.reduceat(self.height[here] + 1, cuts)


def bit_of(byte: int) -> int:
    """The bit that stands for a byte of a token."""
    return byte if 0x20 <= byte < 0x80 else 0 if byte >= 0x80 else 1
