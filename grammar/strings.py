"""JSON strings: languages over characters, lifted to their JSON encoding over bytes.

The one place that knows how a character is written inside a JSON string (RFC 8259, section 7):
as UTF-8, as a short escape, as ``\\uXXXX``, or as a surrogate pair of those. Every spelling that a
reader must accept can be written, and nothing else: no control characters, no overlong or split
UTF-8, no lone surrogates.

What may stand between the quotes, and its UTF-8 form, is ``characters.py``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable
from typing import Any

from grammar.automaton import DEAD, NOT_ACCEPTING
from grammar.characters import CONTINUATION, Characters
from grammar.content import ANYTHING, MAX_SCALAR, Content, Excluding, Without
from grammar.regular import RegexBuilder
from grammar.safe import Even
from grammar.walk import Free, Less

_SHORT = {0x22: 0x22, 0x5C: 0x5C, 0x2F: 0x2F, 0x62: 8, 0x66: 12, 0x6E: 10, 0x72: 13, 0x74: 9}
_HEX = {b: int(chr(b), 16) for b in b"0123456789abcdefABCDEF"}


_ODD_BYTE = re.compile(rb"[^ !#-\[\]-\x7f]")
"""What is no plain character of one byte."""
_ANY = Content(None, 0, None)


class JsonStrings(Characters):
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
        super().__init__(builder, longest_token)
        assert opening.endswith(b'"')
        assert closing.startswith(b'"')
        self._opening = opening
        self._closing = closing

    def start(self, content: Content) -> int:
        """The state before the opening. The content must not be empty."""
        assert self.is_possible(content)
        return self.state(("open", 0, self._simplify(content)))

    def around(self) -> tuple[bytes, bytes]:
        """The opening and the closing."""
        return self._opening, self._closing

    # -- bytes ----------------------------------------------------------------------------------

    def advance(self, state: int, text: bytes, at: int) -> tuple[int, int]:
        # as in the base class, without making the states between plain characters
        key, _, after = self._leap(self._keys[state], text, at)
        if key is None:
            return DEAD, at
        if after == at:
            return super().advance(state, text, at)
        state = self.state(key)
        return (state, after) if after == len(text) else super().advance(state, text, after)

    def _leap(self, key: Any, text: bytes, at: int) -> tuple[Hashable | None, int, int]:
        """Go along the opening and plain characters of ASCII, where that takes no language's
        states: (the key after them or None where they can't follow, where the body begins in the
        text, where they end)."""
        kind = key[0]
        content: Content = key[-1]
        start = at
        if kind == "open":
            opening, position = self._opening, key[1]
            stop = min(len(opening) - position, len(text) - at)
            if opening[position : position + stop] != text[at : at + stop]:
                return None, at, at
            start = at + stop
            if position + stop < len(opening):
                return ("open", position + stop, content), start, start
        elif kind != "body":
            return key, at, at
        language, least, most = content
        odd = _ODD_BYTE.search(text, start)
        after = len(text) if odd is None else odd.start()
        if language is None:
            if least or most is not None:
                if most is not None:
                    most -= after - start
                    if most < 0:
                        return None, start, at
                content = Content(None, max(least - after + start, 0), most)
        elif isinstance(language, Excluding) and not least and most is None:
            for byte in text[start:after]:
                language = language.behind(chr(byte))
                if language is ANYTHING:
                    break
            content = self._simplify(Content(language, 0, None))
        else:
            after = start
        return ("body", content), start, after

    def successor(self, key: Any, byte: int) -> Hashable | None:
        kind = key[0]
        if kind == "body":
            return self._in_body(key[1], byte)
        if kind == "skip" or kind == "utf8":
            return self._continue_character(key, byte)
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
        return None if byte < 0x20 else self._begin_character(content, byte)

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

    exceptions = (*range(0x20), 0x22, 0x5C)

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
            return CONTINUATION
        if kind == "escape":
            return (*_SHORT, 0x75)
        if kind == "pair":
            return b"\\" if key[3] == 0 else b"u"
        return None if kind == "body" else _HEX

    def even(self, key: Any) -> Even | None:
        return self._safety.even(key[1]) if key[0] == "body" else None

    def safe(self, key: Any) -> tuple[int, int] | None:
        return self._safety.of(key[1]) if key[0] == "body" else None

    def loops(self, state: int) -> bool:
        key = self._keys[state]
        return bool(key[0] == "body" and key[1] == _ANY)

    def is_roomy(self, state: int) -> bool:
        key = self._keys[state]
        if key[0] != "body":
            return False
        language, _, most = key[1]
        return language is None and (most is None or most > self._longest)

    def free(self, key: Any) -> Free | None:
        kind = key[0]
        if kind != "body" and kind != "open":
            return None
        opening = self._opening[key[1] :] if kind == "open" else b""
        language, least, most = key[-1]
        words: tuple[str, ...] = ()
        if language is not None:
            if not isinstance(language, Excluding) or least or most is not None:
                return None
            words = language.words
        return Free(opening, least, most, words, self._closing)

    def less(self, key: Any) -> Less | None:
        kind = key[0]
        if kind != "body" and kind != "open":
            return None
        language, least, most = key[-1]
        if not isinstance(language, Without) or least or most is not None:
            return None
        if not language.is_roomy():
            return None
        opening = self._opening[key[1] :] if kind == "open" else b""
        whole = self._simplify(Content(language.language, 0, None))
        return Less((*key[:-1], whole), opening, language.rest.words, self._closing)

    def representative(self, key: Any) -> Hashable:
        if key[0] in ("open", "close"):
            return key  # type: ignore[no-any-return]
        return self._saturated_key(key)
