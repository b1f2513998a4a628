"""The parser: steps of the machine in, events and a message out.

A region is `region_open`, any number of `region_chunk`, and then either `region_close` with its
value or `region_malformed`; regions never nest, and all are ended by `finalize`. A malformed region
gives no value and harms nothing else. How the text was cut is not looked at here: see `machine`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parsing.content import parse_content
from parsing.errors import ResponseParseError, ResponseTemplateError
from parsing.jsonlike import ContentError
from parsing.machine import Closed, Machine, Opened, Region, Step, Text
from parsing.message import MessageBuilder
from parsing.recovery import find_cut
from parsing.template import Field, ResponseTemplate, load_template
from parsing.tools import ToolTyping
from parsing.transform import apply_transform, apply_transform_each

Event = dict[str, Any]
Tools = Iterable[Mapping[str, Any]]
TemplateSource = Mapping[str, Any] | ResponseTemplate

_NO_PREFIX = (
    "a prefix is needed: the prompt that the model was given, since it may have opened a region "
    'already; pass "" if the text stands alone'
)


class ResponseParser:
    """Parses one answer as it comes in.

    template: a description or a loaded template.
    prefix: the prompt the model was given, as text. What follows its last start anchor belongs to
    the answer and is parsed first (`initial_events`); without an anchor in it, all of it does.
    tools: tool definitions whose parameters say what types the arguments of calls have.
    deep_types: see `tools`; types arguments by the whole schema instead of its outermost types.

    Raises ResponseTemplateError for a bad template, ResponseParseError for a missing prefix.
    """

    def __init__(
        self,
        template: TemplateSource,
        prefix: str | None = None,
        tools: Tools | None = None,
        *,
        deep_types: bool = False,
    ) -> None:
        if isinstance(template, (str, Path)):
            raise ResponseTemplateError("must be an object; load_template reads files")
        self._template = load_template(template)
        if prefix is None:
            raise ResponseParseError(_NO_PREFIX)
        if not isinstance(prefix, str):
            raise ResponseParseError(f"the prefix must be text, not {type(prefix).__name__}")
        self._typing = ToolTyping(tools, deep=deep_types)
        self._message = MessageBuilder(self._template)
        self._malformed: list[Event] = []
        self._spans: list[tuple[int, int]] = []
        self._openings: list[Mapping[str, str]] = []
        self._finished = False
        opened = _after_anchor(self._template, prefix)
        self._machine = Machine(self._template, offset=-len(opened))
        self.initial_events: list[Event] = self._events(self._machine.feed(opened))

    @property
    def template(self) -> ResponseTemplate:
        """What it reads by."""
        return self._template

    @property
    def malformed(self) -> Sequence[Event]:
        """The `region_malformed` events so far."""
        return tuple(self._malformed)

    @property
    def spans(self) -> Sequence[tuple[int, int]]:
        """Where the bodies of the regions that have ended lie, in the order in which they ended:
        start and end in characters of the answer; negative within the prefix."""
        return tuple(self._spans)

    @property
    def openings(self) -> Sequence[Mapping[str, str]]:
        """What the openers of the regions captured, in the order of the `region_open` events, those
        of `initial_events` first."""
        return self._openings

    def feed(self, text: str) -> list[Event]:
        """Take in the next piece of the answer; the events that are certain now.

        Events are {"type": "region_open", "field"}, {"type": "region_chunk", "field", "text",
        "dirty"}, {"type": "region_close", "field", "value"} and {"type": "region_malformed",
        "field", "text", "error", "position"}. `dirty`: the raw text is not fit to be shown. A close
        or malformed event has `closed: False` where the text ended before the region's close came.
        Raises RuntimeError after `finalize`.
        """
        self._check_open()
        return self._events(self._machine.feed(text))

    def finalize(self) -> tuple[dict[str, Any], list[Event]]:
        """The answer is complete: the message and the last events.

        Raises ResponseParseError where a required field never came; the message and the events are
        in the error then. Raises RuntimeError when called twice.
        """
        self._check_open()
        self._finished = True
        events = self._events(self._machine.finish(self._cut))
        message = self._message.build()
        missing = self._message.missing()
        if missing:
            raise ResponseParseError(
                "the required field never came",
                field=missing[0],
                message=message,
                events=events,
                malformed=self._malformed,
            )
        return message, events

    # --- steps to events ---------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._finished:
            raise RuntimeError("this parser is finished; use a new one for the next text")

    def _events(self, steps: Iterable[Step]) -> list[Event]:
        return [self._event(step) for step in steps]

    def _event(self, step: Step) -> Event:
        match step:
            case Opened(field, captures):
                self._openings.append(dict(captures))
                return {"type": "region_open", "field": field.name}
            case Text(field, text):
                dirty = field.content.dirty
                return {"type": "region_chunk", "field": field.name, "text": text, "dirty": dirty}
            case Closed():
                return self._close(step)

    def _close(self, step: Closed) -> Event:
        field = step.field
        blank = field.open is None and (not step.body or step.body.isspace())
        event: Event = {"type": "region_close", "field": field.name}
        self._spans.append((step.start, step.start + len(step.body)))
        try:
            value = self._value(field, step.body, step.captures, whole=step.whole)
            self._message.add(field, value, blank=blank)
            event["value"] = copy.deepcopy(value)
        except ContentError as error:
            if blank:  # white space between regions: no value, and no fault of the model's
                self._message.add(field, None, blank=True)
                event["value"] = None
            else:
                event = {
                    "type": "region_malformed",
                    "field": field.name,
                    "text": step.body,
                    "error": str(error),
                    "position": step.start,
                }
                self._malformed.append(event)
        if not step.whole:
            event["closed"] = False
        return event

    def _value(self, field: Field, body: str, captures: Mapping[str, str], *, whole: bool) -> Any:
        value = parse_content(field.content, body, whole=whole)
        if field.transform is not None:
            apply = apply_transform_each if field.transform_each else apply_transform
            value = apply(field.transform, captures, value)
        return self._typing.apply(value)

    def _cut(self, region: Region) -> int | None:
        return find_cut(self._template, region, self._readable)

    def _readable(self, field: Field, body: str, captures: Mapping[str, str]) -> bool:
        try:
            self._value(field, body, captures, whole=True)
        except ContentError:
            return False
        return True


def parse_response(
    text: str,
    template: TemplateSource,
    *,
    prefix: str | None,
    tools: Tools | None = None,
    deep_types: bool = False,
) -> dict[str, Any]:
    """Parse a complete answer into a message. See ResponseParser for the parameters.

    Raises ResponseTemplateError for a bad template; ResponseParseError for a missing prefix, for a
    malformed region and for a required field that never came. The last two carry the message of
    everything else as `message`.
    """
    parser = ResponseParser(template, prefix=prefix, tools=tools, deep_types=deep_types)
    events = [*parser.initial_events, *parser.feed(text)]
    message, last = parser.finalize()
    if parser.malformed:
        worst = parser.malformed[0]
        raise ResponseParseError(
            worst["error"],
            field=worst["field"],
            position=worst["position"],
            message=message,
            events=[*events, *last],
            malformed=parser.malformed,
        )
    return message


def _after_anchor(template: ResponseTemplate, prefix: str) -> str:
    """What of the prompt belongs to the answer."""
    end = 0
    for match in template.anchor.whole.finditer(prefix):
        end = match.end()
    return prefix[end:]
