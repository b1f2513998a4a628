"""Delimiters as small regular patterns: what a delimiter's text may look like, for who writes it.

`syntax` reads a pattern to know what the `regex` module does with it. Whoever *writes* a delimiter,
or has to keep it out of a text, needs its language instead: characters as ranges, no engine. A
`Mark` is one way to write a delimiter, with what its zero-width tests ask of the neighbourhood:

| in the pattern            | in the mark                                                        |
|---------------------------|--------------------------------------------------------------------|
| `^` at the beginning      | `place` is "start": only where the answer begins                    |
| `(?<=text)` there         | `place` is "after", `before` the text                               |
| `$`, `\\Z` by themselves   | `place` is "end": the end of the text closes the region             |
| `(?=X)` at the end        | `ahead` is X: how what follows must begin                           |
| `(?!X)`, `(?=X)` between  | a `Look` in the pattern                                             |

Anything else that has no width raises `NotInvertible`. Next: `inverse`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import regex

from parsing import syntax
from parsing.delimiters import Delimiter


class NotInvertible(Exception):  # noqa: N818 - a signal between modules, never seen by callers
    """A part of a template whose texts can't be described."""


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of some ranges (first and last code point), ascending."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any one of them."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item`, `low` to `high` times (None: no limit)."""

    item: Pattern
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Capture:
    """A named group."""

    name: str
    item: Pattern


@dataclass(frozen=True, slots=True)
class Look:
    """A look-ahead at what follows within the pattern (or behind it)."""

    item: Pattern
    negative: bool


Pattern = Chars | Text | Seq | Alt | Repeat | Capture | Look
EMPTY = Seq(())
MAX_WAYS = 64


@dataclass(frozen=True, slots=True)
class Mark:
    """One way to write a delimiter; see the table above."""

    pattern: Pattern
    place: Literal["anywhere", "start", "after", "end"] = "anywhere"
    before: str = ""
    ahead: Pattern | None = None

    @property
    def needle(self) -> str:
        """The longest text without which the mark can't be there; may be empty."""
        return max(needed(self.pattern), key=len, default="")

    @property
    def head(self) -> str:
        """The first such text."""
        return next(iter(needed(self.pattern)), "")


def marks_of(delimiter: Delimiter) -> tuple[Mark, ...]:
    """All ways to write a delimiter. Raises NotInvertible."""
    if delimiter.pattern is None:
        return tuple(Mark(Text(text)) for text in delimiter.literals)
    return marks_of_pattern(delimiter.pattern)


@lru_cache(maxsize=256)
def marks_of_pattern(pattern: str) -> tuple[Mark, ...]:
    """All ways to write what a pattern matches. Raises NotInvertible."""
    try:
        node, flags = syntax.parse(pattern)
    except (syntax.NotUnderstood, RecursionError) as reason:
        raise NotInvertible(f"{reason} is not understood") from None
    if flags:
        raise NotInvertible(f"flags ({flags}) are not understood")
    marks = [mark for items in _ways(node) for mark in _apart(_mark(items))]
    return tuple(dict.fromkeys(marks))


def _apart(mark: Mark) -> list[Mark]:
    """A mark that is one of some texts as a mark for each of them, so that all can be named."""
    items = mark.pattern.items if isinstance(mark.pattern, Seq) else (mark.pattern,)
    if needed(mark.pattern):
        return [mark]
    for at, item in enumerate(items):
        if (
            isinstance(item, Alt)
            and len(item.options) <= MAX_WAYS
            and all(map(needed, item.options))
        ):
            parts = [_sequence([*items[:at], o, *items[at + 1 :]]) for o in item.options]
            return [Mark(part, mark.place, mark.before, mark.ahead) for part in parts]
    return [mark]


# --- alternatives and their conditions -------------------------------------------------------


def _ways(node: syntax.Node) -> list[list[syntax.Node]]:
    """A pattern as alternatives of sequences, apart as far as zero-width tests ask for it."""
    match node:
        case syntax.Alt(options):
            ways = [way for option in options for way in _ways(option)]
        case syntax.Seq(items):
            parts = [_ways(i) if _tests(i) else [[i]] for i in items]
            ways = [[n for part in parts_ for n in part] for parts_ in _bounded_product(parts)]
        case syntax.Group(opening, item, None) if opening in ("(?:", "(?>"):
            ways = _ways(item)
        case _:
            ways = [[node]]
    if len(ways) > MAX_WAYS:
        raise NotInvertible("it has too many alternatives")
    return ways


def _bounded_product(
    parts: list[list[list[syntax.Node]]],
) -> Iterator[tuple[list[syntax.Node], ...]]:
    total = 1
    for part in parts:
        total *= len(part)
    if total > MAX_WAYS:
        raise NotInvertible("it has too many alternatives")
    return product(*parts)


def _tests(node: syntax.Node) -> bool:
    """Whether a node has an alternative that only tests."""
    match node:
        case syntax.Assertion() | syntax.Behind():
            return True
        case syntax.Alt(options):
            return any(map(_tests, options))
        case syntax.Seq(items):
            return any(map(_tests, items))
        case syntax.Group(_, item) | syntax.Repeat(item):
            return _tests(item)
        case _:
            return False


def _mark(items: list[syntax.Node]) -> Mark:
    place: Literal["anywhere", "start", "after", "end"] = "anywhere"
    before = ""
    if items:
        match items[0]:
            case syntax.Assertion(kind="start"):
                place, items = "start", items[1:]
            case syntax.Assertion(kind="end" | "stop") if len(items) == 1:
                return Mark(EMPTY, "end")
            case syntax.Behind(source, item) if source.startswith("(?<="):
                found = pattern_of(item)
                if not isinstance(found, Text):
                    raise NotInvertible(f"{source} looks behind for more than a text")
                place, before, items = "after", found.text, items[1:]
    ahead: Pattern | None = None
    if items and isinstance(items[-1], syntax.Ahead) and not items[-1].negative:
        ahead, items = pattern_of(items[-1].item), items[:-1]
    return Mark(_sequence(map(pattern_of, items)), place, before, ahead)


# --- patterns --------------------------------------------------------------------------------


def pattern_of(node: syntax.Node) -> Pattern:
    """The pattern of a syntax tree. Raises NotInvertible where it tests what lies before."""
    match node:
        case syntax.Atom(source, None):
            return Chars(class_ranges(source))
        case syntax.Atom(_, str() as char):
            return Text(char)
        case syntax.Seq(items):
            return _sequence(map(pattern_of, items))
        case syntax.Alt(options):
            return _choice([pattern_of(option) for option in options])
        case syntax.Group(opening, item, name):
            if name is not None:
                return Capture(name, pattern_of(item))
            if opening not in ("(?:", "(?>"):
                raise NotInvertible(f"{opening}...) is not understood")
            return pattern_of(item)
        case syntax.Repeat(item, low, high):
            return Repeat(pattern_of(item), low, high)
        case syntax.Ahead(item, negative):
            return Look(pattern_of(item), negative)
        case _:
            raise NotInvertible(f"{node.source} is not at the beginning")


def _sequence(items: Iterable[Pattern]) -> Pattern:
    """Some patterns in a row, neighbouring texts joined, short alternatives multiplied out.

    Marks such as `<\\|python_(?:tag|start)\\|>` become whole texts by that.
    """
    flat: list[Pattern] = []
    for item in items:
        flat.extend(item.items if isinstance(item, Seq) else (item,))
    joined: list[Pattern] = []
    for item in flat:
        if joined:
            both = _joined(joined[-1], item)
            if both is not None:
                joined[-1] = both
                continue
        joined.append(item)
    return joined[0] if len(joined) == 1 else Seq(tuple(joined))


def _joined(left: Pattern, right: Pattern) -> Pattern | None:
    first, second = _texts(left), _texts(right)
    if first is None or second is None or len(first) * len(second) > MAX_WAYS:
        return None
    return _choice([Text(a + b) for a in first for b in second])


def _texts(pattern: Pattern) -> list[str] | None:
    """The texts of a pattern that has few."""
    match pattern:
        case Text(text):
            return [text]
        case Alt(options) if all(isinstance(option, Text) for option in options):
            return [option.text for option in options if isinstance(option, Text)]
        case Repeat(Text(text), 0, 1) if not text.isspace():
            return [text, ""]
        case _:
            return None


def _choice(options: list[Pattern]) -> Pattern:
    unique = list(dict.fromkeys(options))
    return unique[0] if len(unique) == 1 else Alt(tuple(unique))


@lru_cache(maxsize=256)
def class_ranges(source: str) -> tuple[tuple[int, int], ...]:
    """The characters that a piece such as `[^<\\s]` eats, as ranges: all are tried."""
    runs = regex.compile(f"(?:{source})+", regex.DOTALL)
    found: list[tuple[int, int]] = []
    for low, high in ((0, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)):
        text = "".join(map(chr, range(low, high + 1)))
        for match in runs.finditer(text):
            first, last = low + match.start(), low + match.end() - 1
            if found and found[-1][1] + 1 == first:
                first = found.pop()[0]
            found.append((first, last))
    return tuple(found)


# --- what can be said of a pattern ------------------------------------------------------------


def needed(pattern: Pattern) -> list[str]:
    """The texts without which the pattern can't be there, in order."""
    match pattern:
        case Text(text):
            return [text] if text else []
        case Seq(items):
            return [text for item in items for text in needed(item)]
        case Capture(_, item):
            return needed(item)
        case Repeat(item, low) if low:
            return needed(item)
        case _:
            return []


def captures_in(pattern: Pattern) -> set[str]:
    """The names of its groups."""
    match pattern:
        case Seq(items) | Alt(items):
            return set().union(*map(captures_in, items))
        case Capture(name, item):
            return {name} | captures_in(item)
        case Repeat(item) | Look(item):
            return captures_in(item)
        case _:
            return set()


def example(pattern: Pattern, groups: dict[str, str]) -> str:
    """One text of the pattern, short, with some groups given. Look-aheads are not minded."""
    match pattern:
        case Text(text):
            return text
        case Chars(ranges):
            return next((c for c in " a0-" if any(a <= ord(c) <= b for a, b in ranges)), "")
        case Seq(items):
            return "".join(example(item, groups) for item in items)
        case Alt(options):
            return example(options[0], groups)
        case Capture(name, item):
            return groups[name] if name in groups else example(item, groups)
        case Repeat(item, low):
            return example(item, groups) * low
        case Look():
            return ""
