"""Tool calls in a region of JSON, passed on as they are written. Pure.

The region is a call, or a list of calls; its name stands in the JSON, or in the region's opener.

Read next: `server/jsonstream.py`, which tells where the values stand; `server/callreaders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from server.callregions import AtEnd, Opened, as_text, found_in
from server.calls import Call, CallOutput
from server.jsonstream import Begun, Done, JsonScanner, Path, ScanEvent


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


class JsonCalls(AtEnd):
    """Calls in JSON: the region's own, or one for each item of a list."""

    def __init__(
        self, opened: Opened, name: Path | None, arguments: Path, *, each: bool, plain: bool
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
                    yield from self._add(slot, as_text(event.value))
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
        for number, found in enumerate(found_in(value)):
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
        return as_text(arguments)
    scanner = JsonScanner()
    scanner.feed(written)
    return scanner.rest(arguments)
