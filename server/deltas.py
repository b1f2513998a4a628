"""Text pieces of an answer -> what the API says about them, in true order. Pure: no I/O, no clock.

An answer is read by an `AnswerReader`, of which there are two:

- `RegionReader` runs the response parser: text in a `content` region becomes `ContentDelta`s,
  reasoning becomes `ReasoningDelta`s, and tool calls become `ToolCallDelta`s;
- `StructuredReader` is for answers that are content from end to end (a `response_format` of a
  model that neither thinks nor marks its content).

Both also report the regions themselves (`RegionEvent`), each event before the deltas of its text,
and, where asked, every value of JSON content and of calls' arguments that is complete
(`ValueEvent`), after the delta that completes it.

Invariants:

- the deltas of a kind, joined, are what `message` says, for every way of cutting the text up;
- content and reasoning don't begin or end with white space, unless the template says otherwise;
- no delta of JSON ends inside an escape, nor between the two halves of a surrogate pair, so that
  whoever parses the JSON as it grows never meets half a character.

Read next: `server/callreaders.py` for the calls; `server/api/chat.py`, which sends these on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from parsing import ResponseParseError
from server.callreaders import CallFormat
from server.callregions import RegionCalls, Typing
from server.calls import AnswerCall, ToolCallDelta, ToolCalls, ValueEvent, ValueScanner
from server.growing import GrowingText, TextRule

#: Fields of a response template whose text is the answer, and those whose text is the reasoning.
CONTENT_FIELD = "content"
REASONING_FIELDS = frozenset({"reasoning_content", "thinking"})

#: The field whose regions hold tool calls.
TOOL_CALLS_FIELD = "tool_calls"

#: Fields of a message that have a place of their own in the API.
_NAMED = frozenset({"role", CONTENT_FIELD, TOOL_CALLS_FIELD}) | REASONING_FIELDS

RegionEventType = Literal["region_open", "region_chunk", "region_close"]


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of `message.content`."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of `message.reasoning_content`."""

    text: str


@dataclass(frozen=True, slots=True)
class RegionEvent:
    """What the response parser saw: a region began, went on (`text`), or ended (`value`).

    dirty  the text of a chunk is not yet the value (it will be parsed as JSON, say)
    """

    type: RegionEventType
    field: str
    text: str | None = None
    value: Any = None
    dirty: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The event's own part of the wire object."""
        if self.type == "region_open":
            return {"type": self.type, "field": self.field}
        if self.type == "region_chunk":
            return {
                "type": self.type,
                "field": self.field,
                "text": self.text,
                "dirty": self.dirty,
            }
        return {"type": self.type, "field": self.field, "value": self.value}


Output = ContentDelta | ReasoningDelta | RegionEvent | ToolCallDelta | ValueEvent


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """The finished answer. `extra` holds fields of the response template that the API doesn't name.

    `error` says what was wrong with the first region that was not what the template promised.
    """

    content: str
    reasoning: str | None = None
    calls: tuple[AnswerCall, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class Parser(Protocol):
    """The part of `parsing.ResponseParser` that a `RegionReader` uses."""

    @property
    def initial_events(self) -> Sequence[Mapping[str, Any]]:
        """What the prompt itself already contained."""

    @property
    def openings(self) -> Sequence[Mapping[str, str]]:
        """What the openers of the regions captured, in the order of the `region_open` events."""

    def feed(self, text: str) -> Sequence[Mapping[str, Any]]:
        """Events that more text settles."""

    def finalize(self) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
        """The message, and the last events."""


class AnswerReader(Protocol):
    """Reads one answer: `start()`, `feed()` for each piece, `finish()`; then `message` is there."""

    def start(self) -> list[Output]:
        """What is known before the first piece."""

    def feed(self, text: str) -> list[Output]:
        """What the next piece of text says."""

    def finish(self) -> list[Output]:
        """What was held back, at the end of the answer."""

    @property
    def is_reasoning(self) -> bool:
        """Whether a region of reasoning is open."""

    @property
    def message(self) -> AnswerMessage:
        """The whole answer; to be read after `finish()`."""


@dataclass(frozen=True, slots=True)
class CallRules:
    """How tool calls are read: as which format, by which types, and where they go."""

    format: CallFormat
    typing: Typing
    calls: ToolCalls


class RegionReader:
    """Reads an answer by the model's response template.

    A region whose text isn't what the template promised (no JSON, say) is not lost: its text
    becomes content, unless it holds a call that was announced already, and `message.error` says
    why.
    """

    def __init__(
        self,
        parser: Parser,
        rules: Mapping[str, TextRule],
        *,
        calls: CallRules | None = None,
        values: bool = False,
    ) -> None:
        """
        Args:
            rules: those of the template's fields; a field without one is stripped.
            calls: None: no tools were offered, and what the template takes for a call is content.
            values: tell of the values in the content, which is JSON, too.
        """
        self._parser = parser
        self._content = GrowingText(rules.get(CONTENT_FIELD, TextRule()))
        reasoning = next((name for name in REASONING_FIELDS if name in rules), "")
        self._reasoning = GrowingText(rules.get(reasoning, TextRule()))
        self._calls = calls
        self._region: RegionCalls | None = None
        self._body: list[str] = []
        self._regions = 0
        self._values = ValueScanner() if values else None
        self._extra: dict[str, Any] = {}
        self._error: str | None = None
        self._open: str | None = None

    def start(self) -> list[Output]:
        """The region that the prompt has opened and not closed, if any.

        What lies wholly inside the prompt is no part of the answer, and no event tells of it.
        """
        opened: str | None = None
        for event in self._parser.initial_events:
            if event["type"] == "region_open":
                opened = str(event["field"])
                self._regions += 1
            elif event["type"] != "region_chunk":
                opened = None
        if opened is None:
            return []
        self._regions -= 1
        self._open = opened
        return list(self._opened(opened))

    def feed(self, text: str) -> list[Output]:
        """Events and deltas of one more piece of text."""
        return list(self._outputs(self._parser.feed(text)))

    def finish(self) -> list[Output]:
        """Let the parser settle what it still held back.

        A required field that never came is no error here: an answer may be cut off anywhere.
        """
        message: Mapping[str, Any]
        events: Sequence[Mapping[str, Any]]
        try:
            message, events = self._parser.finalize()
        except ResponseParseError as error:
            message, events = error.message or {}, error.events
        self._extra = {name: value for name, value in message.items() if name not in _NAMED}
        outputs = list(self._outputs(events))
        if rest := self._content.finish():
            outputs += self._content_delta(rest)
        if self._values is not None:
            outputs += self._values.finish()
        return outputs

    @property
    def is_reasoning(self) -> bool:
        """Whether a region of reasoning is open."""
        return self._open in REASONING_FIELDS

    @property
    def message(self) -> AnswerMessage:
        """The answer, as its deltas told it."""
        return AnswerMessage(
            content=str(self._content),
            reasoning=str(self._reasoning) or None,
            calls=() if self._calls is None else self._calls.calls.finished(),
            extra=self._extra,
            error=self._error,
        )

    def _outputs(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Output]:
        for event in events:
            name = str(event["field"])
            if event["type"] != "region_chunk":
                self._open = name if event["type"] == "region_open" else None
            match event["type"]:
                case "region_open":
                    yield from self._opened(name)
                case "region_chunk":
                    chunk, dirty = str(event["text"]), bool(event["dirty"])
                    yield RegionEvent("region_chunk", name, text=chunk, dirty=dirty)
                    yield from self._chunk(name, chunk)
                case "region_close":
                    yield RegionEvent("region_close", name, value=event["value"])
                    yield from self._closed(event)
                case _:  # region_malformed
                    yield RegionEvent("region_close", name)
                    yield from self._broken(name, event)

    def _opened(self, name: str) -> Iterator[Output]:
        captures = self._parser.openings[self._regions]
        self._regions += 1
        if text := self._text_of(name):
            text.open_region()
        yield RegionEvent("region_open", name)
        if name == TOOL_CALLS_FIELD and self._calls is not None:
            rules = self._calls
            self._region = rules.format.reader(captures, rules.calls, rules.typing)
            self._body.clear()
            yield from self._region.start()

    def _chunk(self, name: str, chunk: str) -> Iterator[Output]:
        if self._region is not None:
            self._body.append(chunk)
            yield from self._region.feed(chunk)
        else:
            yield from self._delta(name, chunk)

    def _closed(self, event: Mapping[str, Any]) -> Iterator[Output]:
        region, self._region = self._region, None
        if region is None:
            return
        yield from region.close(event["value"])
        if not region.any and event["value"] not in ([], {}, None):
            self._error = self._error or f"{event['field']}: no call in {event['value']!r:.200}"
            yield from self._delta(CONTENT_FIELD, "".join(self._body))

    def _broken(self, name: str, event: Mapping[str, Any]) -> Iterator[Output]:
        self._error = self._error or f"{name}: {event['error']}"
        region, self._region = self._region, None
        body = str(event["text"])
        if region is not None:
            yield from region.broken(body)
        if self._text_of(name) is None and (region is None or not region.any):
            yield from self._delta(CONTENT_FIELD, body)

    def _text_of(self, name: str) -> GrowingText | None:
        if name == CONTENT_FIELD or (name == TOOL_CALLS_FIELD and self._calls is None):
            return self._content
        return self._reasoning if name in REASONING_FIELDS else None

    def _delta(self, name: str, chunk: str) -> Iterator[Output]:
        text = self._text_of(name)
        if text is not None and (ready := text.feed(chunk)):
            if text is self._content:
                yield from self._content_delta(ready)
            else:
                yield ReasoningDelta(ready)

    def _content_delta(self, ready: str) -> Iterator[Output]:
        yield ContentDelta(ready)
        if self._values is not None:
            yield from self._values.feed(ready)


class StructuredReader:
    """Reads an answer that is one JSON text, or a text of another grammar: all of it is content.

    Of a text that is no JSON every character counts, white space at its ends, too.
    """

    def __init__(self, *, is_json: bool = True, values: bool = False) -> None:
        """`values`: tell of every value of the JSON that is complete, too."""
        self._text = GrowingText(TextRule(strip=is_json, is_json=is_json))
        self._values = ValueScanner() if values and is_json else None
        self._opened = False

    def start(self) -> list[Output]:
        """Nothing is known yet."""
        return []

    def feed(self, text: str) -> list[Output]:
        """The text up to the last character that is whole as JSON, too."""
        return self._outputs(self._text.feed(text))

    def finish(self) -> list[Output]:
        """An answer that was cut off may end in half an escape: it is passed on as it is."""
        outputs = self._outputs(self._text.finish())
        if self._opened:
            outputs.append(RegionEvent("region_close", CONTENT_FIELD, value=str(self._text)))
        if self._values is not None:
            outputs += self._values.finish()
        return outputs

    @property
    def is_reasoning(self) -> bool:
        """Never: all of it is content."""
        return False

    @property
    def message(self) -> AnswerMessage:
        """The text, as it was written."""
        return AnswerMessage(content=str(self._text))

    def _outputs(self, ready: str) -> list[Output]:
        outputs: list[Output] = []
        if ready:
            if not self._opened:
                self._opened = True
                outputs.append(RegionEvent("region_open", CONTENT_FIELD))
            outputs.append(RegionEvent("region_chunk", CONTENT_FIELD, text=ready))
            outputs.append(ContentDelta(ready))
            if self._values is not None:
                outputs += self._values.feed(ready)
        return outputs
