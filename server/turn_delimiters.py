"""A template's delimiters as parts of a grammar: how they are written, and how kept out of a text.

What a template *reads* is wider than what a model should *write*: white space without limit, any
character of a class. Written delimiters keep to ASCII where they can, and to a few characters
where the pattern has no limit. To keep a delimiter out of a text, on the other hand, its most
telling text is barred, or all that its pattern matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from grammar import turn_parts as parts
from grammar.turn_parts import Part
from parsing import shapes
from parsing.shapes import Mark

WHITE = parts.Chars(((9, 10), (13, 13), (32, 32)))
GAP: Part = parts.Repeat(WHITE, 0, 2)
"""White space between a delimiter and what it encloses."""
LINE: Part = parts.Repeat(WHITE, 0, 6)
"""White space between the items of a list: a line break and its indentation, at most."""
_PRINTABLE = ((32, 126),)
_SPACES = ((9, 10), (13, 13), (32, 32))
MAX_SPACES = 2
MAX_FILLER = 24
MIN_NEEDLE = 3


def written(pattern: shapes.Pattern, groups: Mapping[str, str]) -> Part:
    """A delimiter as it may be written; `groups` are given. White space around it is left out."""
    return whole(_trimmed(pattern), groups)


def whole(pattern: shapes.Pattern, groups: Mapping[str, str]) -> Part:
    """The same with the white space around it."""
    return parts.Marked(_write(pattern, groups))


def split(pattern: shapes.Pattern, groups: Mapping[str, str]) -> tuple[Part, Part]:
    """The same in two parts, the first up to the first text that must be there: what follows may
    differ from call to call, while free text goes on to that."""
    inner = _trimmed(pattern)
    items = inner.items if isinstance(inner, shapes.Seq) else (inner,)
    at = next((i for i, item in enumerate(items) if shapes.needed(item)), len(items) - 1)
    if items and shapes.captures_in(items[at]):
        at -= 1
    head, tail = shapes.Seq(items[: at + 1]), shapes.Seq(items[at + 1 :])
    return parts.Marked(_write(head, groups)), parts.Marked(_write(tail, groups))


def _trimmed(pattern: shapes.Pattern) -> shapes.Pattern:
    items = list(pattern.items) if isinstance(pattern, shapes.Seq) else [pattern]
    while items and _is_optional_space(items[0]):
        del items[0]
    while items and _is_optional_space(items[-1]):
        del items[-1]
    return items[0] if len(items) == 1 else shapes.Seq(tuple(items))


def begins_with_space(pattern: shapes.Pattern) -> bool:
    """Whether a delimiter takes in white space before it."""
    first = pattern.items[0] if isinstance(pattern, shapes.Seq) and pattern.items else pattern
    return _is_optional_space(first)


def _is_optional_space(pattern: shapes.Pattern) -> bool:
    return isinstance(pattern, shapes.Repeat) and not pattern.low and _is_space(pattern.item)


def _is_space(pattern: shapes.Pattern) -> bool:
    if isinstance(pattern, shapes.Text):
        return pattern.text.isspace()
    ranges = pattern.ranges if isinstance(pattern, shapes.Chars) else ()
    return bool(ranges) and all(chr(low).isspace() for low, _ in ranges)


def _write(pattern: shapes.Pattern, groups: Mapping[str, str]) -> Part:
    match pattern:
        case shapes.Text(text):
            return parts.Text(text)
        case shapes.Chars(ranges):
            wanted = _SPACES if _is_space(pattern) else _PRINTABLE
            return parts.Chars(_common(ranges, wanted) or ranges)
        case shapes.Seq(items):
            return _row(_write(item, groups) for item in items)
        case shapes.Alt(options):
            return parts.Alt(tuple(_write(option, groups) for option in options))
        case shapes.Repeat(item, low, high):
            most = max(low, MAX_SPACES if _is_space(item) else MAX_FILLER)
            most = most if high is None else min(high, most)
            return parts.Repeat(_write(item, groups), low, most)
        case shapes.Capture(name, item):
            return _given(groups[name], item) if name in groups else _write(item, groups)
        case shapes.Look(item, negative):
            return parts.Look(read(item), negative)


def _given(text: str, group: shapes.Pattern) -> Part:
    """A group's text, and that what follows can't be taken for more of it."""
    repeated = group.item if isinstance(group, shapes.Repeat) and group.high is None else None
    if not isinstance(repeated, shapes.Chars):
        return parts.Text(text)
    return parts.Seq((parts.Text(text), parts.Look(read(repeated), negative=True)))


def _row(items: Iterable[Part]) -> Part:
    """Parts in a row; those of rows in it too, so that look-aheads see all that follows."""
    flat: list[Part] = []
    for item in items:
        flat.extend(item.items if isinstance(item, parts.Seq) else (item,))
    return parts.Seq(tuple(flat))


def _common(
    left: Iterable[tuple[int, int]], right: Iterable[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    pairs = ((max(a, c), min(b, d)) for a, b in left for c, d in right)
    return tuple((low, high) for low, high in pairs if low <= high)


def read(pattern: shapes.Pattern) -> Part:
    """All that a pattern matches."""
    match pattern:
        case shapes.Text(text):
            return parts.Text(text)
        case shapes.Chars(ranges):
            return parts.Chars(ranges)
        case shapes.Seq(items):
            return parts.Seq(tuple(map(read, items)))
        case shapes.Alt(options):
            return parts.Alt(tuple(map(read, options)))
        case shapes.Repeat(item, low, high):
            return parts.Repeat(read(item), low, high)
        case shapes.Capture(_, item):
            return read(item)
        case shapes.Look(item, negative):
            return parts.Look(read(item), negative)


def bar(mark: Mark) -> Part:
    """What must not occur in a text where the delimiter would be found.

    A mark such as `<tool_call>` is barred as soon as it is there; one that begins with a word may
    stand in a text as long as nothing makes a delimiter of it.
    """
    head = mark.head
    if len(head) >= MIN_NEEDLE and not head[0].isalnum():
        return parts.Text(head)
    whole = mark.pattern if mark.ahead is None else shapes.Seq((mark.pattern, mark.ahead))
    return read(_trimmed(whole))


def needle(mark: Mark) -> str:
    """The text that JSON strings must do without, so that the delimiter can't be in them."""
    if mark.needle:
        return mark.needle
    return "" if mark.ahead is None else max(shapes.needed(mark.ahead), key=len, default="")
