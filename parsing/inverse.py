"""A response template read backwards: what a whole turn of the model may look like.

The parser finds regions in a text; whoever writes one needs the same template the other way round:
how each region is opened and closed, what its body holds, and where in the body (or in the opener)
a tool call's name and arguments stand: the `transform` inverted. `inverse_of` says that in plain
data, without a word about how a language is enforced; `faults` lists, by field, what can't be said.

Where several shapes are thinkable (which key comes first, whether there is an `id`), candidates are
written out and parsed by the template itself, and those that come back right are kept.

Read next: `shapes`, the delimiters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from parsing import shapes
from parsing.content import Content
from parsing.errors import ResponseParseError
from parsing.parser import ResponseParser, parse_response
from parsing.shapes import Mark, NotInvertible, marks_of
from parsing.template import Field, ResponseTemplate

CALLS = "tool_calls"
_PROBE_NAME = "probe_name"
_ENDS = ("region_close", "region_malformed")
_EXTRA_KEYS = ("id", "tool_call_id")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a template can't be inverted: the field, and what about it."""

    field: str
    reason: str

    def __str__(self) -> str:
        return f"field {self.field!r}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the object that is a call: `key`, and what its value is. `extra` members carry
    nothing: they may be left out."""

    key: str
    kind: Literal["name", "arguments", "type", "extra"]

    @property
    def optional(self) -> bool:
        """Whether it may be left out."""
        return self.kind in ("type", "extra")


@dataclass(frozen=True, slots=True)
class Call:
    """Where a call's name and arguments stand.

    group: the group of the opener that is the name, or None where the body says it.
    orders: where the body is an object with name and arguments: its members, in each order that
    the template reads. Empty where the body is the arguments alone.
    listed: the region holds a list of calls.
    """

    group: str | None
    orders: tuple[tuple[Member, ...], ...] = ()
    listed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """One field: how its regions begin and end (no `opens`: the implicit field), and their body."""

    name: str
    opens: tuple[Mark, ...]
    closes: tuple[Mark, ...]
    content: Content
    repeats: bool
    call: Call | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Inverse:
    """A template, read backwards. `anchors`: the texts after which an answer begins; in a template
    without an implicit field they may also stand between two regions."""

    regions: Mapping[str, Region]
    implicit: Region | None
    anchors: tuple[str, ...]
    faults: tuple[Fault, ...]

    @property
    def reason(self) -> str | None:
        """Why it can't be used, in words; None if it can."""
        return "; ".join(map(str, self.faults)) or None


@lru_cache(maxsize=128)
def inverse_of(template: ResponseTemplate) -> Inverse:
    """What a turn may look like that the template reads. Never raises: see `Inverse.faults`."""
    regions: dict[str, Region] = {}
    faults: list[Fault] = []
    for name, field in template.fields.items():
        try:
            regions[name] = _region(template, field)
            _check(template, regions[name])
        except NotInvertible as reason:
            faults.append(Fault(name, str(reason)))
    implicit = template.implicit
    return Inverse(
        regions=MappingProxyType(regions),
        implicit=None if implicit is None else regions.get(implicit.name),
        anchors=template.anchor.literals,
        faults=tuple(faults),
    )


def _region(template: ResponseTemplate, field: Field) -> Region:
    opens: tuple[Mark, ...] = ()
    closes: tuple[Mark, ...] = ()
    if field.open is not None:
        try:
            opens = marks_of(field.open)
        except NotInvertible as reason:
            raise NotInvertible(f"open_pattern: {reason}") from None
    if field.close is not None:
        try:
            closes = marks_of(field.close)
        except NotInvertible as reason:
            raise NotInvertible(f"close_pattern: {reason}") from None
    for mark in closes:
        if mark.place not in ("anywhere", "end"):
            raise NotInvertible("close_pattern: it asks for what stands before it")
    region = Region(field.name, opens, closes, field.content, field.repeats)
    if field.name != CALLS:
        if field.transform is not None:
            raise NotInvertible("transform: only that of tool_calls is read backwards")
        return region
    return replace(region, call=_call(template, field, region))


# --- trials ------------------------------------------------------------------------------------


def _check(template: ResponseTemplate, region: Region) -> None:
    """Whether what is written for a region is read as this region: its delimiters are written out
    and parsed. Raises NotInvertible."""
    free = region.content.name == "text"
    for mark in region.opens:
        if mark.place != "after" and mark.head.isspace():
            raise NotInvertible("open: white space opens it")
        for lead in ("", " \n") if mark.place == "anywhere" else ("",):
            _try(template, region, mark, lead)
    for mark in (*region.opens, *region.closes) if free and region.opens else region.opens:
        if _overlaps(mark.head):
            raise NotInvertible(f"the delimiter {mark.head!r} can overlap itself")


def _try(template: ResponseTemplate, region: Region, mark: Mark, lead: str) -> None:
    body = "x" if region.call is None else probe(region, "a")
    if body == "x" and mark.ahead is not None:
        body = shapes.example(mark.ahead, {}) or body
    opener = shapes.example(mark.pattern, {})
    closers = [m for m in region.closes if m.place != "end" and m.ahead is None]
    plain = region.content.name == "text" and mark.ahead is None
    for closer in closers if plain else [None]:
        close = "" if closer is None else shapes.example(closer.pattern, {})
        parser = ResponseParser(template, prefix=mark.before if mark.place == "after" else "")
        text = f"{lead}{opener}{body}{close}"
        events = [*parser.feed(text + ("" if closer is None else "y")), *_last_events(parser)]
        ended = [e for e in events if e["type"] in _ENDS]
        spans = zip(ended, parser.spans[len(parser.spans) - len(ended) :], strict=True)
        start = len(lead) + len(opener)
        end = start + len(body) if closer is not None else None
        found = any(
            event["field"] == region.name
            and at >= start
            and not text[start:at].strip()  # white space may go with the opener
            and (end is None or stop == end)
            and (closer is None or event.get("closed", True))
            for event, (at, stop) in spans
        )
        if not found and mark.place != "after":
            raise NotInvertible(f"what is written for it ({text!r}) is read as something else")


def _last_events(parser: ResponseParser) -> list[Any]:
    try:
        return parser.finalize()[1]
    except ResponseParseError as error:
        return list(error.events)


def _overlaps(text: str) -> bool:
    """Whether a text ends as it begins, so that two of them can overlap."""
    return any(text.startswith(text[at:]) for at in range(1, len(text)))


# --- calls: the transform backwards ------------------------------------------------------------


def _call(template: ResponseTemplate, field: Field, region: Region) -> Call:
    if field.open is None:
        raise NotInvertible("open: calls need an opener of their own")
    transform = field.transform
    listed = field.transform_each
    if isinstance(transform, list):
        if len(transform) != 1 or listed:
            raise NotInvertible("transform: a list of other than one call")
        transform = transform[0]
    function = transform.get("function") if isinstance(transform, Mapping) else None
    if function == "{content}" and not listed:
        whole, name, arguments = True, "content.name", "content.arguments"
    elif isinstance(function, Mapping):
        whole = False
        name, arguments = (_placeholder(function.get(key)) for key in ("name", "arguments"))
    else:
        raise NotInvertible("transform: it makes no {function: {name, arguments}}")
    groups = set().union(*(shapes.captures_in(mark.pattern) for mark in region.opens))
    if name in groups:
        if arguments != "content" or listed:
            raise NotInvertible("transform: the arguments are not the whole content")
        if region.content.name == "python-call-list":
            raise NotInvertible("content: a list of calls, but the name is in the opener")
        return Call(group=name)
    if region.content.name == "python-call-list":
        if not listed or (name, arguments) != ("name", "arguments"):
            raise NotInvertible("transform: a list of calls is taken apart with transform_each")
        return Call(None, (), listed=True)
    if region.content.name != "json":
        raise NotInvertible(
            f"content: calls in {region.content.name!r} without a name in the opener"
        )
    keys = [_key(path, listed=listed) for path in (name, arguments)]
    orders = tuple(_orders(template, region, keys[0], keys[1], listed=listed, whole=whole))
    if not orders:
        raise NotInvertible("transform: no way to write a call is read back by the template")
    return Call(None, orders, listed)


def _placeholder(value: Any) -> str:
    if isinstance(value, str) and value[:1] == "{" and value[-1:] == "}":
        return value[1:-1]
    raise NotInvertible(f"transform: {value!r} is no placeholder")


def _key(path: str, *, listed: bool) -> str:
    parts = path.split(".")
    if not listed:
        if parts[0] != "content":
            raise NotInvertible(f"transform: {path!r} is neither in the content nor in the opener")
        parts = parts[1:]
    if len(parts) != 1:
        raise NotInvertible(f"transform: {path!r} is not a key of the content")
    return parts[0]


def _orders(
    template: ResponseTemplate,
    region: Region,
    name: str,
    arguments: str,
    *,
    listed: bool,
    whole: bool,
) -> Iterator[tuple[Member, ...]]:
    """The orders of a call's members that the template reads back."""
    called, given = Member(name, "name"), Member(arguments, "arguments")
    marked = [Member("type", "type")]
    # A key has one place, so that no object can have it twice: `id` comes last, others first.
    others = [Member(key, "extra") for key in _EXTRA_KEYS]

    def reads(*members: Member) -> bool:
        return _reads(template, region, members, listed=listed)

    for core in ((called, given), (given, called)):
        if not reads(*core):
            continue
        before = [m for m in (*marked, *others[1:]) if not whole and reads(m, *core)]
        after = [m for m in others[:1] if not whole and reads(*before, *core, m)]
        yield (*before, *core, *after)


def _reads(
    template: ResponseTemplate, region: Region, members: tuple[Member, ...], *, listed: bool
) -> bool:
    values = {
        "name": f'"{_PROBE_NAME}"',
        "arguments": '{"a": 1}',
        "type": '"function"',
        "extra": '"x"',
    }
    body = "{" + ", ".join(f'"{m.key}": {values[m.kind]}' for m in members) + "}"
    return read_call(template, region, f"[{body}]" if listed else body, _PROBE_NAME) == {"a": 1}


def probe(region: Region, name: str) -> str:
    """The shortest body of a region that calls `name`, if it takes no arguments."""
    call = region.call
    assert call is not None
    if region.content.name == "python-call-list":
        return f"[{name}()]"
    if region.content.name != "json":
        return "\n"
    if call.group is not None:
        return "{}"
    values = {"name": json.dumps(name), "arguments": "{}"}
    members = (m for m in call.orders[0] if not m.optional)
    body = "{" + ", ".join(f'"{m.key}": {values[m.kind]}' for m in members) + "}"
    return f"[{body}]" if call.listed else body


def read_call(
    template: ResponseTemplate, region: Region, body: str, name: str
) -> dict[str, Any] | None:
    """The arguments of the one call that a region with this body is read as, if it is one of
    `name` and nothing else; None otherwise. The region is written in the shortest way."""
    for mark in region.opens:
        group = region.call.group if region.call is not None else None
        opener = shapes.example(mark.pattern, {} if group is None else {group: name})
        written = [m for m in region.closes if m.place != "end" and m.ahead is None]
        closer = shapes.example(written[0].pattern, {}) if written else ""
        try:
            message = parse_response(
                mark.before + opener + body + closer, template, prefix="", deep_types=True
            )
        except ResponseParseError:
            continue
        calls = message.get(CALLS)
        if not isinstance(calls, list) or len(calls) != 1 or not isinstance(calls[0], dict):
            continue
        function = calls[0].get("function")
        if not isinstance(function, dict) or set(function) != {"name", "arguments"}:
            continue
        if function["name"] == name and isinstance(function["arguments"], dict):
            return dict(function["arguments"])
    return None


# --- where the prompt leaves the model -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where an answer begins. `open`: the field whose region the prompt has left open; `closed`:
    the field whose region ended just before; `fresh`: nothing at all stands before."""

    open: str | None = None
    closed: str | None = None
    fresh: bool = True


def beginning_of(template: ResponseTemplate, prefix: str) -> Beginning:
    """Where an answer to a prompt begins; a prompt without the template's anchor says nothing."""
    if template.anchor.whole.search(prefix) is None:
        return Beginning()
    parser = ResponseParser(template, prefix=prefix)
    events: list[Mapping[str, Any]] = list(parser.initial_events)
    try:
        events += parser.finalize()[1]
    except ResponseParseError as error:
        events += error.events
    opened = closed = None
    fresh = True
    for event in events:
        name = str(event["field"])
        implicit = template.fields[name].open is None
        if event["type"] == "region_open" and not implicit:
            opened, closed, fresh = name, None, False
        elif event["type"] == "region_chunk" and implicit and str(event["text"]).strip():
            closed, fresh = None, False
        elif event["type"] in _ENDS and not implicit and event.get("closed", True):
            opened, closed = None, name
    return Beginning(opened, closed, fresh)
