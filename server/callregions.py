"""Readers of a region with tool calls: what they have in common, and those of pairs. Pure.

`AtEnd` knows a call when the region has ended; `Pairs` passes arguments on pair by pair (XML tags,
lines), `PythonCalls` argument by argument.

Read next: `server/calljson.py`, the reader of JSON; `server/callreaders.py`, which chooses one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from parsing.settled import Ended, Named, Pair, PartReader
from server.calls import Call, CallOutput, ToolCalls
from server.jsonstream import write_json

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
class Found:
    """A call of a region's value."""

    name: str
    arguments: Any
    id: str | None


def found_in(value: Any) -> list[Found | None]:
    """The calls of a region's value; None for what is no call."""
    return [_call_of(item) for item in (value if isinstance(value, list) else [value])]


def _call_of(value: Any) -> Found | None:
    if not isinstance(value, Mapping):
        return None
    function = value.get("function", value)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        return None
    call_id = value.get("id")
    return Found(name, function.get("arguments"), call_id if isinstance(call_id, str) else None)


def as_text(arguments: Any) -> str:
    """Arguments as JSON text. Models that write them as JSON in a string mean what it says."""
    if isinstance(arguments, str):
        return arguments
    return "{}" if arguments is None else write_json(arguments)


class Opened:
    """What a region's opener said, and where its calls go."""

    def __init__(self, calls: ToolCalls, *, name: str | None, id: str | None) -> None:
        self.calls = calls
        self.name = name
        self.id = id


class AtEnd:
    """Nothing is known before the region's value is."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self.any = False

    def start(self) -> Iterator[CallOutput]:
        return iter(())

    def feed(self, text: str) -> Iterator[CallOutput]:
        return iter(())

    def close(self, value: Any) -> Iterator[CallOutput]:
        for found in found_in(value):
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

    def _whole(self, found: Found) -> Iterator[CallOutput]:
        yield from self._announce(found.name, found.id)
        call = self._call
        yield from call.add(as_text(found.arguments))
        yield from call.end(complete=True)


class Pairs(AtEnd):
    """One call, whose arguments are pairs."""

    def __init__(self, opened: Opened, parts: PartReader, typing: Typing) -> None:
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
        found = found_in(value)[0]
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


class PythonCalls(Pairs):
    """A list of calls."""

    def __init__(self, opened: Opened, parts: PartReader, typing: Typing) -> None:
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
        for number, found in enumerate(found_in(value)):
            if found is None or number < self._ended:
                continue
            if number >= self._begun:
                yield from self._announce(found.name, found.id)
            yield from self._fill(found.arguments)

    def broken(self, body: str) -> Iterator[CallOutput]:
        if self._begun > self._ended:
            yield from self._call.end(complete=False)
