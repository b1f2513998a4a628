"""Tool calls of an answer, as they come: their deltas, and the calls as they stand. Pure.

A call is announced once, by its index, id and name; then its arguments follow, as JSON text to
which is only ever added. The calls at the end are what their deltas said, joined.

Invariants: calls are announced in the order of their indices; the arguments of a call that is
`complete` are a JSON text (an object, as far as the model wrote one), those of one that was cut off
or went wrong are what there was of it; no delta ends inside a JSON escape.

Read next: `server/callreaders.py`, which finds the calls in the text of a region.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from server.growing import GrowingText, TextRule
from server.jsonstream import Done, JsonScanner, ScanEvent
from server.pointers import pointer_of


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a tool call: its id and name where it begins, then more of its arguments."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class ValueEvent:
    """A value that is complete, inside the JSON of the content, or of a call's arguments.

    pointer  where it stands (RFC 6901), from the root of that JSON
    call     the index of the call; None: the content
    """

    pointer: str
    value: Any
    call: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The event's own part of the wire object."""
        where = {"field": "content"} if self.call is None else {"field": "tool_calls"}
        call = {} if self.call is None else {"call": self.call}
        return {**where, **call, "pointer": self.pointer, "value": self.value}


@dataclass(frozen=True, slots=True)
class AnswerCall:
    """A call of a finished answer. `complete` is False where it was cut off or went wrong."""

    id: str
    name: str
    arguments: str
    complete: bool = True


CallOutput = ToolCallDelta | ValueEvent


def new_call_id() -> str:
    """An id as OpenAI's look: `call_` and 24 letters and digits."""
    return "call_" + uuid.uuid4().hex[:24]


class ValueScanner:
    """The values of one JSON text, as events. `call`: of which call's arguments; None: content."""

    def __init__(self, call: int | None = None) -> None:
        self._call = call
        self._scanner = JsonScanner()

    def feed(self, text: str) -> list[ValueEvent]:
        """The values that more text completes."""
        return self._values(self._scanner.feed(text))

    def finish(self) -> list[ValueEvent]:
        """The last one, where only the end says that it is complete."""
        return self._values(self._scanner.finish())

    def _values(self, events: list[ScanEvent]) -> list[ValueEvent]:
        return [
            ValueEvent(pointer_of(event.path), event.value, self._call)
            for event in events
            if isinstance(event, Done) and event.known
        ]


class Call:
    """One call, from its announcement on."""

    def __init__(self, index: int, call_id: str, name: str, *, values: bool) -> None:
        self.index = index
        self.id = call_id
        self.name = name
        self.complete = False
        self._arguments = GrowingText(TextRule(strip=False, is_json=True))
        self._values = ValueScanner(index) if values else None

    @property
    def arguments(self) -> str:
        """What there is of them."""
        return str(self._arguments)

    def add(self, text: str) -> Iterator[CallOutput]:
        """More of the arguments."""
        yield from self._outputs(self._arguments.feed(text))

    def end(self, *, complete: bool) -> Iterator[CallOutput]:
        """No more of the arguments will come."""
        yield from self._outputs(self._arguments.finish())
        self.complete = complete
        if self._values is not None and complete:
            yield from self._values.finish()

    def _outputs(self, ready: str) -> Iterator[CallOutput]:
        if ready:
            yield ToolCallDelta(self.index, arguments=ready)
            if self._values is not None:
                yield from self._values.feed(ready)


class ToolCalls:
    """The calls of one answer."""

    def __init__(self, *, values: bool = False, new_id: Callable[[], str] = new_call_id) -> None:
        """`values`: tell of every value that is complete, too; `new_id` makes a call's id."""
        self._calls: list[Call] = []
        self._ids: set[str] = set()
        self._values = values
        self._new_id = new_id

    def announce(self, name: str, call_id: str | None = None) -> tuple[Call, ToolCallDelta]:
        """Another call begins. `call_id`: what the model calls it, which counts where it is new."""
        if not call_id or call_id in self._ids:
            call_id = self._new_id()
        self._ids.add(call_id)
        call = Call(len(self._calls), call_id, name, values=self._values)
        self._calls.append(call)
        return call, ToolCallDelta(call.index, call.id, name)

    def finished(self) -> tuple[AnswerCall, ...]:
        """The calls as they stand."""
        return tuple(
            AnswerCall(call.id, call.name, call.arguments, call.complete) for call in self._calls
        )
