"""Languages over characters, lifted to UTF-8: what JSON strings and plain text have in common.

A *content* state is ``(language, least, most)``: what remains of the regular language (None stands
for "anything"), and how many characters must and may still come (``most`` None = no limit). The
counter stands apart from the language, so a bound of any size costs the same: above the longest
token a counter can't run out within one token, and all such states share one mask.

Invariant: whole characters only, each in its one UTF-8 form: nothing overlong, split or surrogate.

Read next: ``strings.py`` (JSON strings) and ``text.py`` (plain text), the two kinds.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from typing import Any

from grammar.automaton import Automaton
from grammar.content import MAX_SCALAR, Content, Detours, Excluding, Language
from grammar.regular import Kind, RegexBuilder, Rx
from grammar.safe import Safety

CONTINUATION = range(0x80, 0xC0)
CONTENT_BYTES = 2500
"""What a content takes whose characters were asked for, with what is safe in it."""

Range = tuple[int, int, Content]


class Characters(Automaton):
    """Base class. Keys that subclasses share: ``("body", content)`` between two characters,
    ``("utf8", content, bits, n, floor)`` a character begun, and ``("skip", content, n)`` n more
    continuation bytes that decide nothing (there the content is what follows the character).
    """

    def __init__(self, builder: RegexBuilder, longest_token: int) -> None:
        super().__init__()
        self._builder = builder
        self._longest = longest_token
        self._ranges: dict[Content, tuple[list[int], tuple[Range, ...]]] = {}
        self._detours = Detours()
        self._saturated: dict[Rx, Rx] = {}
        owner = weakref.proxy(self)  # no circle
        self._safety = Safety(lambda content: owner._transitions(content)[1], longest_token)

    def memory_bytes(self) -> int:
        return super().memory_bytes() + CONTENT_BYTES * len(self._ranges)

    def is_possible(self, content: Content) -> bool:
        """Whether any text fits the content."""
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
        language, least, most = content
        if isinstance(language, Excluding) and not least and most is None:
            if 0xD800 <= char <= 0xDFFF or char > MAX_SCALAR:
                return None
            return self._simplify(content._replace(language=language.behind(chr(char))))
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

    @staticmethod
    def _complete(content: Content) -> bool:
        language, least, _ = content
        return least == 0 and (language is None or language.nullable)

    # -- bytes ----------------------------------------------------------------------------------

    def _begin_character(self, content: Content, byte: int) -> Hashable | None:
        """After a character's first byte, written as UTF-8."""
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

    def _continue_character(self, key: Any, byte: int) -> Hashable | None:
        """The key after one more byte within a ``skip`` or ``utf8`` key."""
        if byte not in CONTINUATION:
            return None
        if key[0] == "skip":
            return ("skip", key[1], key[2] - 1) if key[2] > 1 else ("body", key[1])
        _, content, bits, n, floor = key
        return self._utf8(content, bits << 6 | byte & 0x3F, n - 1, floor)

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

    def spans(self, key: Any) -> Iterable[tuple[int, int, Hashable]] | None:
        if key[0] != "body":
            return None
        _, ranges = self._transitions(key[1])
        return [
            (low, min(high, 0x7F), ("body", target)) for low, high, target in ranges if low < 0x80
        ]

    def is_ascii(self, key: Any) -> bool:
        return self._safety.is_ascii(key[1])

    # -- what the walks ask ---------------------------------------------------------------------

    def _saturated_key(self, key: Any) -> Hashable:
        """The key with its content's counters saturated (its content is its second part)."""
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
            if most is None and not least:
                return content._replace(language=self._saturated_language(language))
            if least or most is None:
                return content
            detour = self._detours.of(language)
            if detour is None:
                return content
            slack = self._longest + detour
            return content if most <= slack else Content(language, 0, slack)
        cap = self._longest + 1
        return Content(None, min(least, cap), None if most is None else min(most, cap))

    def _saturated_language(self, language: Language) -> Language:
        """A language with the same mask, where counters are cut to what a token can tell apart.

        Behind a repetition at the front a token of n characters can't tell how many more than n
        are required or allowed. A bound on the length (which is how it looks when a language was
        intersected with one) is treated as the counter beside a language is.
        """
        if not isinstance(language, Rx):
            return language
        found = self._saturated.get(language)
        if found is None:
            found = self._saturated[language] = self._cut(language)
        return found

    def _cut(self, language: Rx) -> Rx:
        builder, cap = self._builder, self._longest + 1
        head = language.parts[0] if language.kind is Kind.CONCAT else language
        if head.kind is Kind.REPEAT and not head.parts[0].nullable:
            high = None if head.hi is None else min(head.hi, cap)
            front = builder.repeat(head.parts[0], min(head.lo, cap), high)
            return front if head is language else builder.concat(front, language.parts[1])
        if language.kind is Kind.INTERSECT:
            for part in language.parts:
                bound = part.hi if part.kind is Kind.REPEAT and part.lo == 0 else None
                if bound is None or part.parts[0] is not builder.any_char or bound < cap:
                    continue
                rest = builder.intersect(*(other for other in language.parts if other is not part))
                detour = self._detours.of(rest)
                if detour is not None and bound > self._longest + detour:
                    size = builder.repeat(builder.any_char, 0, self._longest + detour)
                    return builder.intersect(rest, size)
        return language
