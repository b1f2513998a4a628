"""JSON strings: languages over characters, lifted to their JSON encoding over bytes.

The one place that knows how a character is written inside a JSON string (RFC 8259, section 7):
as UTF-8, as a short escape, as ``\\uXXXX``, or as a surrogate pair of those. Every spelling that a
reader must accept can be written, and nothing else: no control characters, no overlong or split
UTF-8, no lone surrogates.

A *content* state is ``(language, least, most)``: what remains of the regular language (None stands
for "anything"), and how many characters must and may still come (``most`` None = no limit). The
counter stands apart from the language, so a bound of any size costs the same: above the longest
token a counter can't run out within one token, and all such states share one mask.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import Any

from grammar.automaton import NOT_ACCEPTING, Automaton
from grammar.content import MAX_SCALAR, Content, Profiles
from grammar.regular import RegexBuilder, Rx

_SHORT = {0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}
_HEX = {b: int(chr(b), 16) for b in b"0123456789abcdefABCDEF"}
_CONTINUATION = range(0x80, 0xC0)


Range = tuple[int, int, Content]


class JsonStrings(Automaton):
    """``opening`` + string body + ``closing`` (which begins with the closing quote).

    Keys: ``("open", position, content)``, ``("body", content)``, ``("escape", content)`` after a
    backslash, ``("skip", content, n)`` n more continuation bytes that decide nothing,
    ``("utf8", content, bits, n, floor)`` a character begun, ``("hexskip", content, n)``,
    ``("hex", content, bits, n)``, and within ``\\uD83D\\uDE00`` ``("highskip", content, n)``,
    ``("pair", content, high, stage)`` (high None: the half decides nothing, and the content is
    what follows), ``("low", content, high, bits, n)``, ``("lowskip", content, n)``; at last
    ``("close", position)``. In the *skip* keys the content is what follows the character.
    """

    def __init__(
        self, builder: RegexBuilder, longest_token: int, opening: bytes, closing: bytes
    ) -> None:
        super().__init__()
        assert opening.endswith(b'"')
        assert closing.startswith(b'"')
        self._builder = builder
        self._longest = longest_token
        self._opening = opening
        self._closing = closing
        self._ranges: dict[Content, tuple[list[int], tuple[Range, ...]]] = {}
        self._profiles = Profiles()

    def start(self, content: Content) -> int:
        """The state before the opening. The content must not be empty."""
        assert self.is_possible(content)
        return self.state(("open", 0, self._simplify(content)))

    def is_possible(self, content: Content) -> bool:
        """Whether any string fits the content."""
        language, least, most = content
        if most is not None and least > most:
            return False
        if language is None:
            return True
        if least == 0 and most is None:
            return not language.is_empty()
        assert isinstance(language, Rx), "lengths are counted on regular languages only"
        return self._builder.length_window_nonempty(language, least, most)

    # -- characters -----------------------------------------------------------------------------

    def _simplify(self, content: Content) -> Content:
        language = content.language
        if language is not None and language.is_universal():
            return content._replace(language=None)
        return content

    def _transitions(self, content: Content) -> tuple[list[int], tuple[Range, ...]]:
        """Sorted disjoint ranges of characters that may follow, and their starts."""
        found = self._ranges.get(content)
        if found is None:
            ranges = tuple(self._make_ranges(content))
            found = ([r[0] for r in ranges], ranges)
            self._ranges[content] = found
        return found

    def _make_ranges(self, content: Content) -> Iterable[Range]:
        language, least, most = content
        if most == 0:
            return
        least, most = max(least - 1, 0), None if most is None else most - 1
        if language is None:
            after = Content(None, least, most)
            yield (0, 0xD7FF, after)
            yield (0xE000, MAX_SCALAR, after)
            return
        for low, high, target in language.transitions():
            after = self._simplify(Content(target, least, most))
            if self.is_possible(after):
                yield (low, high, after)

    def _target(self, content: Content, char: int) -> Content | None:
        starts, ranges = self._transitions(content)
        at = bisect_right(starts, char) - 1
        if at >= 0 and char <= ranges[at][1]:
            return ranges[at][2]
        return None

    def _between(self, content: Content, low: int, high: int) -> tuple[bool, Content | None]:
        """(whether any character in [low, high] may follow, the target if all lead to one)."""
        starts, ranges = self._transitions(content)
        at = bisect_right(starts, high) - 1
        if at < 0 or ranges[at][1] < low:
            return False, None
        start, stop, target = ranges[at]
        return True, target if start <= low and high <= stop else None

    # -- bytes ----------------------------------------------------------------------------------

    def successor(self, key: Any, byte: int) -> Hashable | None:
        kind = key[0]
        if kind == "body":
            return self._in_body(key[1], byte)
        if kind == "skip" or kind == "utf8":
            if byte not in _CONTINUATION:
                return None
            if kind == "skip":
                return ("skip", key[1], key[2] - 1) if key[2] > 1 else ("body", key[1])
            _, content, bits, n, floor = key
            return self._utf8(content, bits << 6 | byte & 0x3F, n - 1, floor)
        if kind == "escape":
            return self._in_escape(key[1], byte)
        if kind == "open":
            _, position, content = key
            if self._opening[position] != byte:
                return None
            last = position + 1 == len(self._opening)
            return ("body", content) if last else ("open", position + 1, content)
        if kind == "close":
            position = key[1]
            more = position < len(self._closing) and self._closing[position] == byte
            return ("close", position + 1) if more else None
        return self._in_hex(key, byte)

    def _in_body(self, content: Content, byte: int) -> Hashable | None:
        if byte == 0x22:
            return ("close", 1) if self._complete(content) else None
        if byte == 0x5C:
            possible, _ = self._between(content, 0, MAX_SCALAR)
            return ("escape", content) if possible else None
        if byte < 0x20:
            return None
        if byte < 0x80:
            target = self._target(content, byte)
            return None if target is None else ("body", target)
        if 0xC2 <= byte <= 0xDF:
            return self._utf8(content, byte & 0x1F, 1, 0x80)
        if 0xE0 <= byte <= 0xEF:
            return self._utf8(content, byte & 0x0F, 2, 0x800)
        if 0xF0 <= byte <= 0xF4:
            return self._utf8(content, byte & 0x07, 3, 0x10000)
        return None

    @staticmethod
    def _complete(content: Content) -> bool:
        language, least, _ = content
        return least == 0 and (language is None or language.nullable)

    def _utf8(self, content: Content, bits: int, n: int, floor: int) -> Hashable | None:
        """After a character's leading bytes: ``bits`` of it are known, ``n`` bytes are missing."""
        if n == 0:
            target = self._target(content, bits)
            return None if target is None or bits < floor else ("body", target)
        low, high = bits << 6 * n, (bits + 1 << 6 * n) - 1
        if high < floor or low > MAX_SCALAR:
            return None
        possible, target = self._between(content, max(low, floor), min(high, MAX_SCALAR))
        if target is not None and low >= floor and high <= MAX_SCALAR:
            return ("skip", target, n)
        return ("utf8", content, bits, n, floor) if possible else None

    def _in_escape(self, content: Content, byte: int) -> Hashable | None:
        if byte == 0x75:
            return self._hex(content, 0, 4)
        char = _SHORT.get(byte)
        target = None if char is None else self._target(content, char)
        return None if target is None else ("body", target)

    def _in_hex(self, key: Any, byte: int) -> Hashable | None:
        kind, content = key[0], key[1]
        if kind == "pair":
            _, _, high, stage = key
            if stage == 0:
                return ("pair", content, high, 1) if byte == 0x5C else None
            if byte != 0x75:
                return None
            return ("lowskip", content, 4) if high is None else self._low(content, high, 0, 4)
        digit = _HEX.get(byte)
        if digit is None:
            return None
        if kind == "hexskip":
            return ("hexskip", content, key[2] - 1) if key[2] > 1 else ("body", content)
        if kind == "highskip":
            n = key[2] - 1
            return ("highskip", content, n) if n else ("pair", content, None, 0)
        if kind == "lowskip":
            n = key[2]
            if (n == 4 and digit != 0xD) or (n == 3 and digit < 0xC):
                return None
            return ("lowskip", content, n - 1) if n > 1 else ("body", content)
        if kind == "hex":
            return self._hex(content, key[2] << 4 | digit, key[3] - 1)
        return self._low(content, key[2], key[3] << 4 | digit, key[4] - 1)

    def _hex(self, content: Content, bits: int, n: int) -> Hashable | None:
        """Within ``\\uXXXX``: ``bits`` of it are known, ``n`` digits are missing."""
        low, high = bits << 4 * n, (bits + 1 << 4 * n) - 1
        possible, target = self._between(content, low, high)
        if target is not None:
            return ("hexskip", target, n) if n else ("body", target)
        first, last = max(low, 0xD800), min(high, 0xDBFF)  # the high surrogates among them
        astral = False
        if first <= last:
            astral, target = self._between(
                content, 0x10000 + (first - 0xD800 << 10), 0x10000 + (last - 0xD800 << 10) + 0x3FF
            )
            if target is not None and first == low and last == high:
                return ("highskip", target, n) if n else ("pair", target, None, 0)
        if n == 0:
            return ("pair", content, bits, 0) if astral else None
        return ("hex", content, bits, n) if possible or astral else None

    def _low(self, content: Content, high: int, bits: int, n: int) -> Hashable | None:
        """Within the second half of a surrogate pair."""
        first = max(bits << 4 * n, 0xDC00)
        last = min((bits + 1 << 4 * n) - 1, 0xDFFF)
        if first > last:
            return None
        base = 0x10000 + (high - 0xD800 << 10) - 0xDC00
        possible, target = self._between(content, base + first, base + last)
        if n == 0:
            return None if target is None else ("body", target)
        return ("low", content, high, bits, n) if possible else None

    # -- what the walks ask ---------------------------------------------------------------------

    def label(self, key: Any) -> int:
        done = key[0] == "close" and key[1] == len(self._closing)
        return 0 if done else NOT_ACCEPTING

    def candidates(self, key: Any) -> Iterable[int] | None:
        kind = key[0]
        if kind == "open":
            return self._opening[key[1] : key[1] + 1]
        if kind == "close":
            return self._closing[key[1] : key[1] + 1]
        if kind == "skip" or kind == "utf8":
            return _CONTINUATION
        if kind == "escape":
            return (*_SHORT, 0x75)
        if kind == "pair":
            return b"\\" if key[3] == 0 else b"u"
        return None if kind == "body" else _HEX

    def representative(self, key: Any) -> Hashable:
        if key[0] in ("open", "close"):
            return key  # type: ignore[no-any-return]
        content: Content = key[1]
        saturated = self._saturate(content)
        if saturated == content:
            return key  # type: ignore[no-any-return]
        return (key[0], saturated, *key[2:])

    def _saturate(self, content: Content) -> Content:
        """Counters cut to what one token can tell apart."""
        language, least, most = content
        if language is not None:
            # Whether a word of the right length remains depends on the language. With no lower
            # bound left and room for its longest detour after any token, the upper one is idle.
            if least or most is None:
                return content
            detour = self._profiles.of(language).detour
            if detour is None:
                return content
            slack = self._longest + detour
            return content if most <= slack else Content(language, 0, slack)
        cap = self._longest + 1
        return Content(None, min(least, cap), None if most is None else min(most, cap))

    def bulk(self, key: Any) -> int | None:
        if key[0] != "body":
            return None
        language, least, most = key[1]
        if language is None:
            if most is None:
                return self._longest
            return most if least == 0 else None
        if least == 0 and most is None and self._profiles.of(language).total:
            return self._longest
        return None
