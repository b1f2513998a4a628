"""Arguments outside of JSON: how a template's content type frames each of them.

`xml-inline`, `kv-lines` and `python-call-list` write one argument after the other. What stands
around a value comes from the template (`tag_pattern`, `line_sep`, `kv_sep`); whether the value is
plain text or JSON follows from what the parser's typing makes of text (`parsing.tools.text_types`),
so that what is written is read back as what the schema asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from grammar import turn_parts as parts
from grammar.dialects import Dialect
from grammar.turn_parts import ArgumentsValue, Frame, Member, Part
from parsing import shapes
from parsing.content import Content
from parsing.shapes import NotInvertible, marks_of
from parsing.tools import TextTypes, text_types
from server.turn_delimiters import GAP, WHITE, read, whole
from server.turn_tools import Tool, arguments_schema

PYTHON = Dialect(python=True)
_SCALARS = ("null", "boolean", "number")
_KEY = "key"
_VALUE = "value"


def dialect_of(content: Content) -> Dialect:
    """How a template's JSON is written."""
    given = content.dialect
    return Dialect(bare_keys=given.unquoted_keys, marks=given.string_delims)


def arguments_value(tool: Tool, content: Content, barred: tuple[str, ...]) -> ArgumentsValue:
    """The arguments of a tool in a content type that is not JSON. Raises NotInvertible."""
    schema, origins = arguments_schema(tool)
    names = tuple(_names(tool.parameters))
    between: Part = GAP
    dialect = parts.JSON
    match content.name:
        case "xml-inline":
            frames = {name: _tag_frames(content, name) for name in names}
            barred = tuple(dict.fromkeys((*barred, *_ends(content))))
        case "kv-lines":
            frames = {name: _line_frames(content, name) for name in names}
            between = parts.EMPTY
            barred = (*barred, content.args.get("line_sep", "\n"))
        case "python-call-list":
            frames = {name: _keyword_frames(name) for name in names}
            between = parts.Seq((parts.Text(","), parts.Repeat(WHITE, 0, 1)))
            dialect = PYTHON
        case _:
            raise NotInvertible(f"content {content.name!r} is not inverted")
    as_json = content.name == "python-call-list" or _is_json(content.value)
    if content.value is not None and not as_json and content.value.name != "text":
        raise NotInvertible(f"value_parser {content.value.name!r} is not inverted")
    types = text_types(tool.parameters)
    members = [
        _json_member(name, frames[name]) if as_json else _text_member(name, frames[name], types)
        for name in names
        if frames[name]
    ]
    return ArgumentsValue(schema, tuple(members), between, barred, origins, dialect)


def _is_json(content: Content | None) -> bool:
    return content is not None and content.name == "json"


def _names(schema: Any) -> Iterator[str]:
    """The names of all properties that a schema could mean."""
    found: dict[str, None] = {}
    pending: list[Any] = [schema]
    while pending:
        node = pending.pop(0)
        if isinstance(node, Mapping):
            if isinstance(node.get("properties"), Mapping):
                found.update(dict.fromkeys(map(str, node["properties"])))
            required = node.get("required")
            if isinstance(required, list):
                found.update((name, None) for name in required if isinstance(name, str))
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return iter(found)


def _json_member(name: str, frames: tuple[Frame, ...]) -> Member:
    return Member(name, frames, text=False, null=False, types=None)


def _text_member(
    name: str, frames: tuple[Frame, ...], types: Mapping[str, TextTypes | None]
) -> Member:
    kind = types.get(name, TextTypes(keeps=True))
    if kind is None:
        raise NotInvertible(f"several schemas say what the argument {name!r} is")
    listed = kind.types
    if "boolean" in listed:  # 0 and 1 read as booleans, too: whichever comes first has them
        first = listed.index("boolean")
        listed = tuple(t for i, t in enumerate(listed) if t not in _NUMBERS or i < first)
    if kind.values:
        listed = _SCALARS
    return Member(name, frames, text=kind.keeps, null=kind.null, types=listed)


_NUMBERS = ("integer", "number")


# --- frames --------------------------------------------------------------------------------------


def _tag_frames(content: Content, name: str) -> tuple[Frame, ...]:
    """The ways to write a tag; none where its pattern can't hold the name."""
    assert content.tag is not None
    probe = "1"
    found: list[Frame] = []
    for mark in marks_of(content.tag):
        items = list(mark.pattern.items) if isinstance(mark.pattern, shapes.Seq) else []
        at = next((i for i, item in enumerate(items) if _holds(item, _VALUE)), None)
        if mark.place != "anywhere" or mark.ahead is not None or at is None:
            raise NotInvertible("tag_pattern: it has no plain tags")
        sample = shapes.example(mark.pattern, {_KEY: name, _VALUE: probe})
        match = content.tag.whole.fullmatch(sample)
        if match is None or match[_KEY] != name or match[_VALUE] != probe:
            continue
        found += _frames(items[:at], items[at + 1 :], name)
    return tuple(found)


def _holds(item: shapes.Pattern, group: str) -> bool:
    return isinstance(item, shapes.Capture) and item.name == group


def _frames(
    before: list[shapes.Pattern], after: list[shapes.Pattern], name: str
) -> Iterator[Frame]:
    """With and without what may stand right at the value and would be taken off it."""
    groups = {_KEY: name}
    lefts: list[tuple[Part, Part | None]] = [(_whole(before, groups), None)]
    rights: list[tuple[Part, Part | None]] = [(_whole(after, groups), None)]
    if before and _is_optional(before[-1]):
        skipped = read(_one(before[-1]))
        inner = _whole(before[:-1], groups)
        lefts = [(inner, skipped), (parts.Seq((inner, _once(before[-1]))), _stays(before[-1]))]
    if after and _is_optional(after[0]):
        skipped = read(_one(after[0]))
        inner = _whole(after[1:], groups)
        rights = [(inner, skipped), (parts.Seq((_once(after[0]), inner)), _stays(after[0]))]
    for left, not_first in lefts:
        for right, not_last in rights:
            yield Frame(left, right, not_first, not_last)


def _is_optional(item: shapes.Pattern) -> bool:
    return isinstance(item, shapes.Repeat) and item.low == 0


def _one(item: shapes.Pattern) -> shapes.Pattern:
    assert isinstance(item, shapes.Repeat)
    return item.item


def _once(item: shapes.Pattern) -> Part:
    return whole(_one(item), {})


def _stays(item: shapes.Pattern) -> Part | None:
    """What a value must not begin with even behind the optional piece: more of the same."""
    assert isinstance(item, shapes.Repeat)
    return read(item.item) if item.high is None else None


def _whole(items: list[shapes.Pattern], groups: Mapping[str, str]) -> Part:
    return whole(shapes.Seq(tuple(items)), groups)


def _ends(content: Content) -> Iterator[str]:
    """What a value must not hold, since it ends a tag."""
    assert content.tag is not None
    for mark in marks_of(content.tag):
        items = mark.pattern.items if isinstance(mark.pattern, shapes.Seq) else ()
        at = next((i for i, item in enumerate(items) if _holds(item, _VALUE)), len(items))
        texts = shapes.needed(shapes.Seq(tuple(items[at + 1 :])))
        if not texts:
            raise NotInvertible("tag_pattern: no text ends a value")
        yield max(texts, key=len)


def _line_frames(content: Content, name: str) -> tuple[Frame, ...]:
    line_sep = content.args.get("line_sep", "\n")
    kv_sep = content.args.get("kv_sep", ":")
    if kv_sep in name or line_sep in name or name != name.strip() or not name:
        return ()
    space = parts.Repeat(parts.Text(" "), 0, 1) if content.strip else parts.EMPTY
    blank = parts.Chars(shapes.class_ranges(r"\s")) if content.strip else None
    before = parts.Seq((parts.Text(name + kv_sep), space))
    return (Frame(before, parts.Text(line_sep), blank, blank),)


def _keyword_frames(name: str) -> tuple[Frame, ...]:
    if not name.isascii() or not name.isidentifier():
        return ()
    return (Frame(parts.Text(name + "="), parts.EMPTY),)
