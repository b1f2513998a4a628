"""The text of a region with tool calls -> the calls in it, as early as they can be known. Pure.

A response template says where in a region a call's name and arguments stand (`transform`):

    reader   where they stand                                    the arguments are passed on
    _Json    in JSON; the name there, or in the region's opener  as they are written
    _Pairs   in pairs (XML tags, lines); the name in the opener  pair by pair, as JSON
    _Python  in a list of calls in Python's spelling             argument by argument, as JSON
    _AtEnd   anywhere else                                       when the region ends

Invariants: what was passed on is never taken back; when the region has ended well, a call's
arguments are JSON of the value that the response template gives them. Of a region that did not end
well, the calls that were announced keep what there was of their arguments, and are not complete; if
none was announced, the region holds no call.

Read next: `server/deltas.py`, which feeds these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from parsing.settled import Ended, Named, Pair, PartReader
from parsing.template import Field
from parsing.tools import ToolTyping
from server.calls import Call, CallOutput, ToolCalls
from server.jsonstream import Begun, Done, JsonScanner, Path, ScanEvent, write_json

_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_CONTENT = "content"

#: What a value is by the tool's own schema: of (tool, argument, value).
Typing = Callable[[str, str, Any], Any]


class RegionCalls(Protocol):
    """Reads one region. `start`, `feed` for each piece, then `close` or `broken`."""

    @property
    def any(self) -> bool:
        """Whether a call was announced."""

    def start(self) -> Iterator[CallOutput]:
        """What the region's opener says."""

    def feed(self, text: str) -> Iterator[CallOutput]:
        """What the next piece of text says."""

    def close(self, value: Any) -> Iterator[CallOutput]:
        """The region ended; its value is this."""

    def broken(self, body: str) -> Iterator[CallOutput]:
        """The region ended, and its text is not what the template promised."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a part of a call comes from: a group of the opener, or a place in the content."""

    group: str | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How the field of a response template that holds the calls says them."""

    field: Field
    name: _Source | None
    arguments: _Source | None
    id: _Source | None

    @classmethod
    def of(cls, field: Field) -> CallFormat:
        """Read it off the field's `transform`."""
        groups = field.open.groups if field.open is not None else frozenset()
        return cls(
            field=field,
            name=_locate(field, groups, ("function", "name")),
            arguments=_locate(field, groups, ("function", "arguments")),
            id=_locate(field, groups, ("id",)),
        )

    def reader(self, captures: Mapping[str, str], calls: ToolCalls, typing: Typing) -> RegionCalls:
        """A reader of one region, whose opener captured this."""
        opened = _Opened(
            calls,
            name=self._captured(self.name, captures),
            id=self._captured(self.id, captures),
        )
        content, arguments, each = (
            self.field.content.name,
            self.arguments,
            self.field.transform_each,
        )
        in_content = arguments is not None and arguments.group is None
        if content == "json" and in_content and self.name is not None:
            assert arguments is not None
            name = None if self.name.group is not None else self.name.path
            plain = self.field.content.dialect.plain
            return _Json(opened, name, arguments.path, each=each, plain=plain)
        parts = PartReader(self.field.content)
        if content in ("xml-inline", "kv-lines") and opened.name and arguments == _Source():
            return _Pairs(opened, parts, typing)
        if content == "python-call-list" and each and arguments == _Source(path=("arguments",)):
            return _Python(opened, parts, typing)
        return _AtEnd(opened)

    @staticmethod
    def _captured(source: _Source | None, captures: Mapping[str, str]) -> str | None:
        return captures.get(source.group) if source is not None and source.group else None


def _locate(field: Field, groups: frozenset[str], path: tuple[str, ...]) -> _Source | None:
    """What the transform fills in at `path` of a call; None where it can't be told."""
    node: Any = field.transform
    if isinstance(node, list) and len(node) == 1:  # one call, as a list
        node = node[0]
    rest = list(path)
    while rest and isinstance(node, Mapping):
        node = node.get(rest.pop(0))
    match = _PLACEHOLDER.fullmatch(node) if isinstance(node, str) else None
    if match is None:
        return None
    root, *keys = match[1].split(".")
    if root in groups:
        return None if rest or keys else _Source(group=root)
    if field.transform_each:
        return _Source(path=(root, *keys, *rest))
    return _Source(path=(*keys, *rest)) if root == _CONTENT else None


def tool_typing(tools: Iterable[Mapping[str, Any]]) -> Typing:
    """What the schemas of `tools` make of the text of formats that know no types."""
    typing = ToolTyping(tools, deep=True)

    def typed(tool: str, argument: str, value: Any) -> Any:
        call = {"function": {"name": tool, "arguments": {argument: value}}}
        return typing.apply(call)["function"]["arguments"][argument]

    return typed


@dataclass(frozen=True, slots=True)
class _Found:
    """A call of a region's value."""

    name: str
    arguments: Any
    id: str | None


def _found(value: Any) -> list[_Found | None]:
    """The calls of a region's value; None for what is no call."""
    return [_call_of(item) for item in (value if isinstance(value, list) else [value])]


def _call_of(value: Any) -> _Found | None:
    if not isinstance(value, Mapping):
        return None
    function = value.get("function", value)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        return None
    call_id = value.get("id")
    return _Found(name, function.get("arguments"), call_id if isinstance(call_id, str) else None)


def _as_text(arguments: Any) -> str:
    """Arguments as JSON text. Models that write them as JSON in a string mean what it says."""
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else write_json(arguments)


class _Opened:
    """What a region's opener said, and where its calls go."""

    def __init__(self, calls: ToolCalls, *, name: str | None, id: str | None) -> None:
        self.calls = calls
        self.name = name
        self.id = id


class _AtEnd:
    """Nothing is known before the region's value is."""

    def __init__(self, opened: _Opened) -> None:
        self._opened = opened
        self.any = False

    def start(self) -> Iterator[CallOutput]:
        return iter(())

    def feed(self, text: str) -> Iterator[CallOutput]:
        return iter(())

    def close(self, value: Any) -> Iterator[CallOutput]:
        for found in _found(value):
            if found is not None:
                yield from self._whole(found)

    def broken(self, body: str) -> Iterator[CallOutput]:
        return iter(())

    def _announce(self, name: str, call_id: str | None) -> Iterator[CallOutput]:
        call, delta = self._opened.calls.announce(name, call_id)
        self._began(call)
        self.any = True
        yield delta

    def _began(self, call: Call) -> None:
        """A call was announced."""
        self._call = call

    def _whole(self, found: _Found) -> Iterator[CallOutput]:
        yield from self._announce(found.name, found.id)
        call = self._call
        yield from call.add(_as_text(found.arguments))
        yield from call.end(complete=True)


@dataclass(slots=True)
class _Slot:
    """A call in a region of JSON. Offsets count from the beginning of the region.

    start, sent  where the arguments begin (-1: nowhere yet), and how far they were passed on
    streamed     they are passed on as they are written, being an object
    held         what waits for the call's name
    settled      all of the arguments are there
    """

    call: Call | None = None
    start: int = -1
    sent: int = -1
    streamed: bool = False
    held: list[str] = field(default_factory=list)
    settled: bool = False


class _Json(_AtEnd):
    """Calls in JSON: the region's own, or one for each item of a list."""

    def __init__(
        self, opened: _Opened, name: Path | None, arguments: Path, *, each: bool, plain: bool
    ) -> None:
        super().__init__(opened)
        self._name = name
        self._arguments = arguments
        self._each = each
        self._plain = plain
        self._scanner = JsonScanner()
        self._fed = 0
        self._slots: dict[int, _Slot] = {}
        self._slot = _Slot()
        if not each:
            self._slots[0] = self._slot

    def start(self) -> Iterator[CallOutput]:
        if self._opened.name and not self._each:
            yield from self._announce(self._opened.name, self._opened.id)

    def feed(self, text: str) -> Iterator[CallOutput]:
        base = self._fed
        self._fed += len(text)
        for event in self._scanner.feed(text):
            yield from self._event(event, text, base)
        yield from self._pass_on(text, base, self._scanner.offset)

    def _event(self, event: ScanEvent, text: str, base: int) -> Iterator[CallOutput]:
        path = event.path
        if self._each:
            if not path or not isinstance(path[0], int):
                return
            if len(path) == 1 and isinstance(event, Begun):
                self._slot = self._slots[path[0]] = _Slot()
            path = path[1:]
        slot = self._slot
        if path == self._arguments:
            if isinstance(event, Begun) and slot.start < 0:
                slot.start = slot.sent = event.start
                slot.streamed = event.first == "{"
            elif isinstance(event, Done) and not slot.settled:
                yield from self._pass_on(text, base, event.end)
                if not slot.streamed:
                    yield from self._add(slot, _as_text(event.value))
                yield from self._settle(slot)
        elif path == self._name and isinstance(event, Done) and slot.call is None:
            name = event.value
            if isinstance(name, str) and name:
                yield from self._announce(name, self._opened.id)

    def _pass_on(self, text: str, base: int, until: int) -> Iterator[CallOutput]:
        slot = self._slot
        if slot.streamed and not slot.settled and until > slot.sent:
            piece = text[slot.sent - base : until - base]
            slot.sent = until
            yield from self._add(slot, piece)

    def _add(self, slot: _Slot, text: str) -> Iterator[CallOutput]:
        if slot.call is None:
            slot.held.append(text)
        else:
            yield from slot.call.add(text)

    def _settle(self, slot: _Slot) -> Iterator[CallOutput]:
        slot.settled = True
        if slot.call is not None:
            yield from slot.call.end(complete=True)

    def _announce(self, name: str, call_id: str | None) -> Iterator[CallOutput]:
        yield from super()._announce(name, call_id)
        slot = self._slot
        assert slot.call is not None
        if held := "".join(slot.held):
            slot.held.clear()
            yield from slot.call.add(held)
        if slot.settled:
            yield from slot.call.end(complete=True)

    def _began(self, call: Call) -> None:
        self._slot.call = call

    def close(self, value: Any) -> Iterator[CallOutput]:
        for number, found in enumerate(_found(value)):
            self._slot = slot = self._slots.setdefault(number, _Slot())
            if found is None:
                continue
            if slot.call is None:
                yield from self._announce(found.name, found.id)
            assert slot.call is not None
            if not slot.settled:
                rest = _rest(slot.call.arguments, found.arguments)
                yield from slot.call.add(rest or "")
                yield from slot.call.end(complete=rest is not None)

    def broken(self, body: str) -> Iterator[CallOutput]:
        for slot in self._slots.values():
            if slot.call is not None and not slot.settled:
                if slot.start >= 0 and self._plain:
                    yield from slot.call.add(body[slot.sent :].rstrip())
                yield from slot.call.end(complete=False)


def _rest(written: str, arguments: Any) -> str | None:
    """What is missing of the JSON text of `arguments`, of which a part is written. A dialect of
    JSON is written as JSON from the first place where the two differ."""
    if not written:
        return _as_text(arguments)
    scanner = JsonScanner()
    scanner.feed(written)
    return scanner.rest(arguments)


class _Pairs(_AtEnd):
    """One call, whose arguments are pairs."""

    def __init__(self, opened: _Opened, parts: PartReader, typing: Typing) -> None:
        super().__init__(opened)
        self._parts = parts
        self._typing = typing
        self._written: set[str] = set()

    def start(self) -> Iterator[CallOutput]:
        if self._opened.name:
            yield from self._announce(self._opened.name, self._opened.id)

    def feed(self, text: str) -> Iterator[CallOutput]:
        for part in self._parts.feed(text):
            if isinstance(part, Pair):
                yield from self._settled(part)

    def _settled(self, pair: Pair) -> Iterator[CallOutput]:
        return self._pair(pair.key, self._typing(self._call.name, pair.key, pair.value))

    def _pair(self, key: str, value: Any) -> Iterator[CallOutput]:
        before = ", " if self._written else "{"
        self._written.add(key)
        yield from self._call.add(f"{before}{write_json(key)}: {write_json(value)}")

    def close(self, value: Any) -> Iterator[CallOutput]:
        found = _found(value)[0]
        yield from self._fill(found.arguments if found is not None else None)

    def _fill(self, arguments: Any) -> Iterator[CallOutput]:
        """The pairs that only the end has settled, and the end."""
        if isinstance(arguments, Mapping):
            for key, item in arguments.items():
                if key not in self._written:
                    yield from self._pair(key, item)
        yield from self._end()

    def _end(self) -> Iterator[CallOutput]:
        yield from self._call.add("}" if self._written else "{}")
        yield from self._call.end(complete=True)

    def broken(self, body: str) -> Iterator[CallOutput]:
        yield from self._call.end(complete=False)


class _Python(_Pairs):
    """A list of calls."""

    def __init__(self, opened: _Opened, parts: PartReader, typing: Typing) -> None:
        super().__init__(opened, parts, typing)
        self._ended = 0
        self._begun = 0

    def start(self) -> Iterator[CallOutput]:
        return iter(())

    def feed(self, text: str) -> Iterator[CallOutput]:
        for part in self._parts.feed(text):
            match part:
                case Named():
                    yield from self._announce(part.name, None)
                case Pair():
                    yield from self._settled(part)
                case Ended():
                    yield from self._end()

    def _began(self, call: Call) -> None:
        super()._began(call)
        self._written = set()
        self._begun += 1

    def _end(self) -> Iterator[CallOutput]:
        self._ended += 1
        return super()._end()

    def close(self, value: Any) -> Iterator[CallOutput]:
        for number, found in enumerate(_found(value)):
            if found is None or number < self._ended:
                continue
            if number >= self._begun:
                yield from self._announce(found.name, found.id)
            yield from self._fill(found.arguments)

    def broken(self, body: str) -> Iterator[CallOutput]:
        if self._begun > self._ended:
            yield from self._call.end(complete=False)
