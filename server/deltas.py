"""Text pieces of an answer -> what the API says about them, in true order. Pure: no I/O, no clock.

An answer is read by an `AnswerReader`, of which there are two:

- `RegionReader` runs the response parser: text in a `content` region becomes `ContentDelta`s,
  reasoning becomes `ReasoningDelta`s;
- `StructuredReader` is for answers bound to a `response_format`: all of the text is content.

Both also report the regions themselves (`RegionEvent`), each event before the deltas of its text.

Invariants:

- the deltas of a kind, joined, are what `message` says, for every way of cutting the text up;
- content and reasoning don't begin or end with white space, unless the template says otherwise;
- no delta of a structured answer ends inside a JSON escape, nor between the two halves of a
  surrogate pair, so that whoever parses the JSON as it grows never meets half a character.

Read next: `server/api/chat.py`, which sends these on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from parsing import ResponseParseError

#: Fields of a response template whose text is the answer, and those whose text is the reasoning.
CONTENT_FIELD = "content"
REASONING_FIELDS = frozenset({"reasoning_content", "thinking"})

#: Fields of a message that have a place of their own in the API, or (tool calls that nobody offered
#: tools for) none at all yet.
_NAMED = frozenset({"role", CONTENT_FIELD, "tool_calls"}) | REASONING_FIELDS

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


Output = ContentDelta | ReasoningDelta | RegionEvent


@dataclass(frozen=True, slots=True)
class AnswerMessage:
    """The finished answer. `extra` holds fields of the response template that the API doesn't name.

    `error` says what was wrong with the first region that was not what the template promised.
    """

    content: str
    reasoning: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None


class Parser(Protocol):
    """The part of `parsing.ResponseParser` that a `RegionReader` uses."""

    @property
    def initial_events(self) -> Sequence[Mapping[str, Any]]:
        """What the prompt itself already contained."""

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
    def message(self) -> AnswerMessage:
        """The whole answer; to be read after `finish()`."""


@dataclass(frozen=True, slots=True)
class TextRule:
    """How the regions of a field become one text.

    strip  white space at a region's two ends isn't part of it
    join   stands between two regions of the field; None: they follow one another as they are
    """

    strip: bool = True
    join: str | None = None


class _Text:
    """A message's text as it grows, over all regions of its fields."""

    def __init__(self, rule: TextRule) -> None:
        self._rule = rule
        self._parts: list[str] = []
        self._held = ""
        self._at_start = True
        self._separator = ""

    def open_region(self) -> None:
        """Another region of the field begins."""
        if self._parts and self._rule.join is not None:
            self._held = ""
            self._at_start = True
            self._separator = self._rule.join

    def feed(self, text: str) -> str:
        """What can be passed on now: white space waits until something follows it."""
        if self._rule.strip:
            text = self._held + text
            if self._at_start:
                text = text.lstrip()
            ready = text.rstrip()
            self._held = text[len(ready) :]
            text = ready
        if not text:
            return ""
        text = self._separator + text
        self._separator = ""
        self._at_start = False
        self._parts.append(text)
        return text

    def __str__(self) -> str:
        return "".join(self._parts)


_STRIPPED = TextRule()


class RegionReader:
    """Reads an answer by the model's response template.

    A region whose text isn't what the template promised (no JSON, say) is not lost: its text
    becomes content, and `message.error` says why.
    """

    def __init__(self, parser: Parser, rules: Mapping[str, TextRule]) -> None:
        """`rules`: those of the template's fields; a field without one is stripped."""
        self._parser = parser
        self._content = _Text(rules.get(CONTENT_FIELD, _STRIPPED))
        reasoning = next((name for name in REASONING_FIELDS if name in rules), "")
        self._reasoning = _Text(rules.get(reasoning, _STRIPPED))
        self._extra: dict[str, Any] = {}
        self._error: str | None = None

    def start(self) -> list[Output]:
        """The region that the prompt has opened and not closed, if any.

        What lies wholly inside the prompt is no part of the answer, and no event tells of it.
        """
        opened: str | None = None
        for event in self._parser.initial_events:
            if event["type"] == "region_open":
                opened = str(event["field"])
            elif event["type"] != "region_chunk":
                opened = None
        return [] if opened is None else [RegionEvent("region_open", opened)]

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
        return list(self._outputs(events))

    @property
    def message(self) -> AnswerMessage:
        """The answer, as its deltas told it."""
        return AnswerMessage(
            content=str(self._content),
            reasoning=str(self._reasoning) or None,
            extra=self._extra,
            error=self._error,
        )

    def _outputs(self, events: Iterable[Mapping[str, Any]]) -> Iterator[Output]:
        for event in events:
            name = str(event["field"])
            match event["type"]:
                case "region_open":
                    if text := self._text_of(name):
                        text.open_region()
                    yield RegionEvent("region_open", name)
                case "region_chunk":
                    chunk, dirty = str(event["text"]), bool(event["dirty"])
                    yield RegionEvent("region_chunk", name, text=chunk, dirty=dirty)
                    yield from self._delta(name, chunk)
                case "region_close":
                    yield RegionEvent("region_close", name, value=event["value"])
                case _:  # region_malformed
                    self._error = self._error or f"{name}: {event['error']}"
                    yield RegionEvent("region_close", name)
                    if name != CONTENT_FIELD and name not in REASONING_FIELDS:
                        yield from self._delta(CONTENT_FIELD, str(event["text"]))

    def _text_of(self, name: str) -> _Text | None:
        if name == CONTENT_FIELD:
            return self._content
        return self._reasoning if name in REASONING_FIELDS else None

    def _delta(self, name: str, chunk: str) -> Iterator[Output]:
        text = self._text_of(name)
        if text is not None and (ready := text.feed(chunk)):
            yield ContentDelta(ready) if text is self._content else ReasoningDelta(ready)


class StructuredReader:
    """Reads an answer that is one JSON text, or a text of another grammar: all of it is content.

    Of a text that is no JSON every character counts, white space at its ends, too.
    """

    def __init__(self, *, is_json: bool = True) -> None:
        self._is_json = is_json
        self._text = _Text(TextRule(strip=is_json))
        self._held = ""
        self._opened = False

    def start(self) -> list[Output]:
        """Nothing is known yet."""
        return []

    def feed(self, text: str) -> list[Output]:
        """The text up to the last character that is whole as JSON, too."""
        if not self._is_json:
            return self._pass_on(text)
        text = self._held + text
        ready = whole_escapes(text)
        self._held = text[ready:]
        return self._pass_on(text[:ready])

    def finish(self) -> list[Output]:
        """An answer that was cut off may end in half an escape: it is passed on as it is."""
        outputs = self._pass_on(self._held)
        self._held = ""
        if self._opened:
            outputs.append(RegionEvent("region_close", CONTENT_FIELD, value=str(self._text)))
        return outputs

    @property
    def message(self) -> AnswerMessage:
        """The text, as it was written."""
        return AnswerMessage(content=str(self._text))

    def _pass_on(self, text: str) -> list[Output]:
        outputs: list[Output] = []
        if ready := self._text.feed(text):
            if not self._opened:
                self._opened = True
                outputs.append(RegionEvent("region_open", CONTENT_FIELD))
            outputs.append(RegionEvent("region_chunk", CONTENT_FIELD, text=ready))
            outputs.append(ContentDelta(ready))
        return outputs


_HIGH = r"[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE = re.compile(
    rf"(?:[^\\]+|\\[^u]|\\u{_HIGH}\\u{_LOW}|\\u(?!{_HIGH})[0-9a-fA-F]{{4}})*", re.DOTALL
)
_BEGUN = re.compile(
    rf"\\(?:u(?:[0-9a-fA-F]{{0,3}}|{_HIGH}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?))?"
)


def whole_escapes(text: str) -> int:
    """How much of `text`, JSON from a point outside an escape, ends outside an escape again.

    Half a surrogate pair counts as a part of an escape. At most 11 characters are left over; what
    can't become an escape any more (broken JSON) counts as whole.
    """
    match = _WHOLE.match(text)
    assert match is not None
    return match.end() if _BEGUN.fullmatch(text, match.end()) else len(text)
