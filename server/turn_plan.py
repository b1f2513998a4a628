"""The inverse of a response template, put together: the parts of one turn for one request.

A turn is, in this order: what the prompt has left open, reasoning, and then what was asked for:

| tool_choice      | content free               | content bound to a format   |
|------------------|----------------------------|-----------------------------|
| none, no tools   | free text                  | the value, and nothing else |
| auto             | free text with calls in it | the value, or calls         |
| required, a name | calls                      | calls                       |

Between delimiters and values stands at most a little white space. A region ends by its own close,
or with the turn where that close is (or stands for) the end of the turn. Free text and the texts of
regions hold no delimiter that the parser would find there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from grammar import turn_parts as parts
from grammar.turn_parts import (
    EMPTY,
    ChoiceValue,
    GbnfValue,
    JsonValue,
    Part,
    PatternValue,
    ValueSource,
)
from parsing import shapes
from parsing.inverse import CALLS, Beginning, Region
from parsing.shapes import NotInvertible
from server.turn_arguments import arguments_value, dialect_of
from server.turn_delimiters import GAP, LINE, bar, read, split, written
from server.turn_regions import (
    CONTENT,
    IN_TEXT,
    LATER,
    Place,
    Regions,
    alt,
    barred_in,
    behind,
    counterpart,
    seq,
)
from server.turn_tools import Tool, arguments_schema, calls_schema, never_a_call

_ANY: Part = parts.Free(())


@dataclass(slots=True)
class Plan(Regions):
    """Makes the parts of a turn; `values` are collected on the way, and the bodies of calls are
    made once, by the place of their tool (None: of all together)."""

    beginning: Beginning
    values: list[ValueSource] = field(default_factory=list)
    bodies: dict[int | None, Part] = field(default_factory=dict)

    def turn(self) -> parts.Turn:
        """The whole turn. Raises NotInvertible, naming the field, where the template does not fit
        what is asked for."""
        opened = self.beginning.open
        if opened is None:
            closed = self.inverse.regions.get(self.beginning.closed or "")
            texts = self._close_texts(closed) if closed is not None else [""]
            place = Place(self.beginning.fresh, texts[0] if texts else "")
            reasons = self.wishes.reasoning and not (closed is not None and self._is_over(closed))
            root = self._from(place, reasons=reasons)
        else:
            root = self._within(self.inverse.regions[opened])
        return parts.Turn(root, tuple(self.values))

    # --- the turn, from a place on ---------------------------------------------------------------

    def _within(self, region: Region) -> Part:
        """A turn that begins inside a region that the prompt has opened."""
        if region.name == CALLS:
            raise NotInvertible(f"field {CALLS!r}: the prompt has opened a call")
        if region.name == CONTENT:
            body = self._content_body(region)
            rest = self._rest_of_calls() if self.wishes.mode == "auto" else EMPTY
            return alt([self._closed(region, body, rest), self._ended(region, body)])
        more = region.repeats and self.wishes.reasoning
        return seq(
            self._reasoning_body(region),
            self._from(Place(closed=self._close_texts(region)[0]), reasons=more),
        )

    def _from(self, place: Place, *, reasons: bool) -> Part:
        """A turn from a place between regions on."""
        options = [self._answer(place)]
        for region in self._thoughts() if reasons else ():
            after = Place(closed=self._close_texts(region)[0])
            more: Part = EMPTY
            if region.repeats:
                more = parts.Repeat(self._reasoning(region, LATER), 0, None)
            options.append(seq(self._reasoning(region, place), more, self._answer(after)))
        return alt(options)

    def _answer(self, place: Place) -> Part:
        """What follows the reasoning: content, calls, or both."""
        wishes = self.wishes
        if wishes.mode == "required":
            return self._calls(place)
        if wishes.content is None and self.inverse.implicit is not None:
            return self._text_with_calls(place)
        content = self._content(place)
        return content if wishes.mode == "none" else alt([content, self._calls(place)])

    # --- reasoning -------------------------------------------------------------------------------

    def _is_over(self, region: Region) -> bool:
        return region.name not in (CONTENT, CALLS) and not region.repeats

    def _reasoning(self, region: Region, place: Place) -> Part:
        options = []
        for mark in self._openings(region, place):
            lead = self._lead(mark, place)
            body = self._reasoning_body(region, mark.ahead)
            options.append(seq(lead, written(mark.pattern, {}), body))
        return alt(options)

    def _reasoning_body(self, region: Region, ahead: shapes.Pattern | None = None) -> Part:
        closing = alt([written(mark.pattern, {}) for mark in self._writable(region)])
        if closing == parts.NOTHING:
            raise NotInvertible(f"field {region.name!r}: only the end of the turn closes it")
        return parts.Timed(self._free_body(region, ahead), closing)

    def _free_body(self, region: Region, ahead: shapes.Pattern | None = None) -> Part:
        """Text without the region's closes, which begins as its opener wants."""
        text = parts.Free(tuple(bar(mark) for mark in region.closes if mark.place != "end"))
        if ahead is None:
            return text
        return parts.Both(text, parts.Seq((parts.Look(read(ahead), negative=False), _ANY)))

    # --- content ---------------------------------------------------------------------------------

    def _content(self, place: Place) -> Part:
        """The content by itself, to the end of the turn, or with calls behind it."""
        region = self.inverse.regions.get(CONTENT)
        if region is None:
            raise NotInvertible(f"the template has no field {CONTENT!r}")
        body = self._content_body(region)
        if not region.opens:
            separators = self._separators()
            between = parts.Repeat(seq(separators, GAP), 0, 1) if separators else EMPTY
            end = self._end_of_turn(region) or EMPTY
            return seq(self._gap(region), between, body, between, end)
        rest: Part = EMPTY
        if self.wishes.mode == "auto" and self.wishes.content is None:
            rest = self._rest_of_calls()
        options = []
        for mark in self._openings(region, place):
            opener, inner = written(mark.pattern, {}), body
            if mark.ahead is not None and self.wishes.content is None:
                inner = self._free_body(region, mark.ahead)
            closed = self._closed(region, inner, rest)
            ended = self._ended(region, inner)
            options += [seq(self._lead(mark, place), opener, each) for each in (closed, ended)]
        return alt(options)

    def _content_body(self, region: Region) -> Part:
        wanted = self.wishes.content
        if wanted is None:
            return self._free_body(region)
        watched = list(region.closes) if region.opens else self._watched()
        if isinstance(wanted, JsonValue) and not region.opens and self.wishes.mode != "none":
            for mark in watched:
                wanted = never_a_call(wanted, mark)
        wanted = replace(wanted, barred=barred_in(watched))
        if isinstance(wanted, PatternValue | ChoiceValue | GbnfValue):
            wanted = replace(wanted, trimmed=region.content.strip)
        self.values.append(wanted)
        gap = self._gap(region)
        return seq(gap, parts.Value(len(self.values) - 1), gap)

    def _gap(self, region: Region) -> Part:
        """White space around the content: none where the template keeps it and it would count."""
        counts = not region.content.strip and not isinstance(self.wishes.content, JsonValue)
        return EMPTY if counts else GAP

    def _separators(self) -> Part | None:
        """Closes of the implicit field that end nothing, but part one stretch from the next: tags
        of which there are both halves, `<response>` and `</response>`."""
        implicit = self.inverse.implicit
        closes = implicit.closes if implicit is not None else ()
        texts = {mark.needle for mark in closes}
        marks = [mark for mark in closes if counterpart(mark.needle) in texts]
        return alt([written(mark.pattern, {}) for mark in marks]) if marks else None

    def _text_with_calls(self, place: Place) -> Part:
        """Free text, in which calls may stand."""
        implicit = self.inverse.implicit
        assert implicit is not None
        watched = [mark for mark in self._watched() if mark.place != "end"]
        text: Part = parts.Free(tuple(bar(m) for m in watched if m.place == "anywhere"))
        first = text
        for mark in watched:
            if mark.place == "start" and place.fresh:
                first = parts.Both(first, parts.Seq((parts.Look(bar(mark), True), _ANY)))
        end = self._end_of_turn(implicit) or EMPTY
        units: list[Part] = []
        separators = self._separators()
        if separators is not None:
            units.append(separators)
        # Special tokens that close the content can only be the last.
        tails: list[Part] = [end]
        starts: list[Part] = []
        once: list[Part] = []
        if self.wishes.mode == "auto":
            calls = self.inverse.regions[CALLS]
            unlimited = self.wishes.parallel and calls.repeats
            (units if unlimited else once).append(self._call(calls, IN_TEXT, closed=True))
            tails.append(self._last_calls(calls, IN_TEXT))
            if place.fresh:
                starts = [self._call_at_start(calls)]
        loop = parts.Repeat(alt([behind(text, u) for u in units]), 0, None) if units else EMPTY
        tail = alt([behind(text, each) for each in tails])
        options = [behind(first, each) for each in tails]
        options += [seq(behind(first, unit), loop, tail) for unit in units]
        for call in once:
            options.append(seq(behind(first, call), loop, text, end))
            begun = [seq(behind(first, unit), loop) for unit in units]
            options += [seq(each, behind(text, call), loop, text, end) for each in begun]
        return alt([*options, *starts])

    # --- calls -----------------------------------------------------------------------------------

    def _calls(self, place: Place) -> Part:
        """One call or more, and the end of the turn."""
        calls = self.inverse.regions.get(CALLS)
        if calls is None:
            raise NotInvertible(f"the template has no field {CALLS!r}")
        return self._calls_here(calls, place)

    def _calls_here(self, calls: Region, place: Place) -> Part:
        closed = self._call(calls, place, closed=True)
        if not (self.wishes.parallel and calls.repeats):
            return alt([seq(closed, GAP), self._last_calls(calls, place)])
        more = parts.Repeat(self._call(calls, LATER, closed=True), 0, None)
        last = self._last_calls(calls, LATER)
        return alt(
            [
                seq(closed, more, alt([GAP, last])),
                self._last_calls(calls, place),
            ]
        )

    def _rest_of_calls(self) -> Part:
        """Calls behind explicit content, or none."""
        return alt([EMPTY, self._calls(LATER)])

    def _call_at_start(self, calls: Region) -> Part:
        """A call that may only stand where the answer begins."""
        only = replace(calls, opens=tuple(m for m in calls.opens if m.place == "start"))
        place = Place(fresh=True)
        text: Part = parts.Free(tuple(bar(m) for m in self._watched() if m.place == "anywhere"))
        closed = self._call(only, place, closed=True)
        return alt([seq(closed, text), self._last_calls(only, place)])

    def _last_calls(self, calls: Region, place: Place) -> Part:
        """Calls up to one that the turn ends with. A close that only looks ahead (at the opener of
        the next call) lets a call follow at once."""
        last = self._call(calls, place, closed=False)
        chained = [mark for mark in calls.closes if mark.ahead is not None]
        if not chained or not (self.wishes.parallel and calls.repeats):
            return last
        here, next_ = (self._call(calls, p, closed=None) for p in (place, LATER))
        following = self._call(calls, LATER, closed=False)
        return alt([last, seq(here, parts.Repeat(next_, 0, None), following)])

    def _call(self, calls: Region, place: Place, *, closed: bool | None) -> Part:
        """One region of calls. `closed`: with its close written, or (False) ended by the turn, or
        (None) with no close at all."""

        def whole(body: Part) -> Part:
            if closed is None:
                return body
            return self._closed(calls, body, EMPTY) if closed else self._ended(calls, body)

        assert calls.call is not None
        group = calls.call.group
        options = []
        for mark in self._openings(calls, place):
            lead = self._lead(mark, place)
            if group is None:
                head, tail = split(mark.pattern, {})
                options.append(seq(lead, head, tail, whole(self._calls_body(calls))))
                continue
            named = []
            for tool in self.wishes.tools:
                head, tail = split(mark.pattern, {group: tool.name})
                named.append(seq(tail, whole(self._arguments(calls, tool))))
            options.append(seq(lead, head, alt(named)))
        return alt(options)

    def _calls_body(self, calls: Region) -> Part:
        """The body of a region that says itself which tools are called."""
        if None not in self.bodies:
            self.bodies[None] = self._make_calls_body(calls)
        return self.bodies[None]

    def _make_calls_body(self, calls: Region) -> Part:
        assert calls.call is not None
        if calls.content.name == "python-call-list":
            called = alt([self._python_call(calls, tool) for tool in self.wishes.tools])
        else:
            schema, origins = calls_schema(calls.call, self.wishes.tools)
            dialect = dialect_of(calls.content)
            called = self._value(
                JsonValue(
                    schema,
                    barred_in(calls.closes),
                    origins,
                    source=self.wishes.source,
                    dialect=dialect,
                )
            )
        if calls.call.listed:
            more = parts.Repeat(seq(parts.Text(","), LINE, called), 0, None)
            rest = more if self.wishes.parallel else EMPTY
            called = seq(parts.Text("["), LINE, called, rest, LINE, parts.Text("]"))
        return seq(GAP, called, GAP)

    def _python_call(self, calls: Region, tool: Tool) -> Part:
        value = self._value(self._arguments_value(calls, tool, barred_in(calls.closes)))
        return seq(parts.Text(tool.name + "("), value, parts.Text(")"))

    def _arguments(self, calls: Region, tool: Tool) -> Part:
        """The body of a region that is one tool's arguments."""
        if tool.place not in self.bodies:
            self.bodies[tool.place] = self._make_arguments(calls, tool)
        return self.bodies[tool.place]

    def _make_arguments(self, calls: Region, tool: Tool) -> Part:
        barred = barred_in(calls.closes)
        if calls.content.name == "json":
            schema, origins = arguments_schema(tool)
            dialect = dialect_of(calls.content)
            source = self.wishes.source
            value = self._value(JsonValue(schema, barred, origins, source=source, dialect=dialect))
        else:
            value = self._value(self._arguments_value(calls, tool, barred))
            if not calls.content.strip:
                return value
        return seq(GAP, value, GAP)

    def _arguments_value(
        self, calls: Region, tool: Tool, barred: tuple[str, ...]
    ) -> parts.ArgumentsValue:
        return replace(arguments_value(tool, calls.content, barred), source=self.wishes.source)

    def _value(self, value: ValueSource) -> Part:
        if value not in self.values:
            self.values.append(value)
        return parts.Value(self.values.index(value))
