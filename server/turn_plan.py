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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from grammar import Marks
from grammar import turn_parts as parts
from grammar.turn_parts import EMPTY, JsonValue, Part, ValueSource
from parsing import shapes
from parsing.inverse import CALLS, Beginning, Inverse, Region
from parsing.shapes import Mark, NotInvertible
from server.turn_arguments import arguments_value, dialect_of
from server.turn_delimiters import (
    GAP,
    LINE,
    bar,
    begins_with_space,
    needle,
    read,
    split,
    written,
)
from server.turn_tools import Mode, Tool, arguments_schema, calls_schema, never_a_call

CONTENT = "content"
_ANY: Part = parts.Free(())


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request asks of a turn. `content`: the value that the content must be; None: free."""

    content: ValueSource | None
    mode: Mode
    tools: tuple[Tool, ...]
    parallel: bool
    reasoning: bool


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the turn something stands: `fresh`, nothing before it; `closed`, right behind this
    text, the close of a region; `in_text`, behind free text, which takes in the white space."""

    fresh: bool = False
    closed: str = ""
    in_text: bool = False


_LATER = _Place()
_IN_TEXT = _Place(in_text=True)


@dataclass(slots=True)
class Plan:
    """Makes the parts of a turn; `values` are collected on the way, and the bodies of calls are
    made once, by the place of their tool (None: of all together)."""

    inverse: Inverse
    marks: Marks
    wishes: Wishes
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
            place = _Place(self.beginning.fresh, texts[0] if texts else "")
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
            return _alt([self._closed(region, body, rest), self._ended(region, body)])
        more = region.repeats and self.wishes.reasoning
        return _seq(
            self._reasoning_body(region),
            self._from(_Place(closed=self._close_texts(region)[0]), reasons=more),
        )

    def _from(self, place: _Place, *, reasons: bool) -> Part:
        """A turn from a place between regions on."""
        options = [self._answer(place)]
        for region in self._thoughts() if reasons else ():
            after = _Place(closed=self._close_texts(region)[0])
            more: Part = EMPTY
            if region.repeats:
                more = parts.Repeat(self._reasoning(region, _LATER), 0, None)
            options.append(_seq(self._reasoning(region, place), more, self._answer(after)))
        return _alt(options)

    def _answer(self, place: _Place) -> Part:
        """What follows the reasoning: content, calls, or both."""
        wishes = self.wishes
        if wishes.mode == "required":
            return self._calls(place)
        if wishes.content is None and self.inverse.implicit is not None:
            return self._text_with_calls(place)
        content = self._content(place)
        return content if wishes.mode == "none" else _alt([content, self._calls(place)])

    def _glue(self, place: _Place) -> Part:
        """What may stand between two regions."""
        if self._anchored() and not place.fresh:
            anchors = [parts.Marked(parts.Text(text)) for text in self.inverse.anchors]
            return parts.Alt((EMPTY, *anchors))
        return GAP

    def _lead(self, mark: Mark, place: _Place) -> Part:
        """What may stand before an opener: between regions, or, where it must stand right at its
        place, no more than the white space that it begins with."""
        if mark.place == "anywhere":
            return EMPTY if place.in_text else self._glue(place)
        return GAP if begins_with_space(mark.pattern) else EMPTY

    def _anchored(self) -> bool:
        """Whether every region is a message of its own, with its own beginning (as harmony's)."""
        return self.inverse.implicit is None and any(r.repeats for r in self._thoughts())

    # --- reasoning -------------------------------------------------------------------------------

    def _thoughts(self) -> Iterator[Region]:
        for region in self.inverse.regions.values():
            if region.name not in (CONTENT, CALLS) and region.opens:
                yield region

    def _is_over(self, region: Region) -> bool:
        return region.name not in (CONTENT, CALLS) and not region.repeats

    def _reasoning(self, region: Region, place: _Place) -> Part:
        options = []
        for mark in self._openings(region, place):
            lead = self._lead(mark, place)
            body = self._reasoning_body(region, mark.ahead)
            options.append(_seq(lead, written(mark.pattern, {}), body))
        return _alt(options)

    def _reasoning_body(self, region: Region, ahead: shapes.Pattern | None = None) -> Part:
        closing = _alt([written(mark.pattern, {}) for mark in self._writable(region)])
        if closing == parts.NOTHING:
            raise NotInvertible(f"field {region.name!r}: only the end of the turn closes it")
        return parts.Timed(self._free_body(region, ahead), closing)

    def _free_body(self, region: Region, ahead: shapes.Pattern | None = None) -> Part:
        """Text without the region's closes, which begins as its opener wants."""
        text = parts.Free(tuple(bar(mark) for mark in region.closes if mark.place != "end"))
        if ahead is None:
            return text
        return parts.Both(text, parts.Seq((parts.Look(read(ahead), negative=False), _ANY)))

    # --- delimiters ------------------------------------------------------------------------------

    def _openings(self, region: Region, place: _Place) -> list[Mark]:
        """The ways to open a region at a place."""
        return [
            mark
            for mark in region.opens
            if mark.place == "anywhere"
            or (mark.place == "start" and place.fresh)
            or (mark.place == "after" and place.closed and place.closed.endswith(mark.before))
        ]

    def _writable(self, region: Region) -> list[Mark]:
        """The closes that are written, and after which the turn can go on."""
        ends = self._ends()
        return [
            mark
            for mark in region.closes
            if mark.place != "end"
            and mark.ahead is None
            and not self.marks.ends_turn(mark.needle)
            and mark.needle not in ends
        ]

    def _ends(self) -> frozenset[str]:
        """The marks that stand for the end of the turn: they close the implicit field."""
        implicit = self.inverse.implicit
        return frozenset(m.needle for m in implicit.closes) if implicit is not None else frozenset()

    def _close_texts(self, region: Region) -> list[str]:
        return [shapes.example(mark.pattern, {}) for mark in self._writable(region)] or [""]

    def _end_of_turn(self, region: Region) -> Part | None:
        """What may be written where the turn ends with a region; None where it can't end there."""
        ends = self._ends()
        marks = [m for m in region.closes if m.place == "end" or self._is_end(m, ends)]
        if not marks and region.closes and region.name != CONTENT:
            return None
        final = [m for m in marks if self.marks.is_special(m.needle)]
        return _alt([EMPTY, *(written(mark.pattern, {}) for mark in final)])

    def _is_end(self, mark: Mark, ends: frozenset[str]) -> bool:
        return self.marks.ends_turn(mark.needle) or mark.needle in ends

    def _closed(self, region: Region, body: Part, rest: Part) -> Part:
        """A region's body, a close that is written, and the rest of the turn."""
        closing = [written(mark.pattern, {}) for mark in self._writable(region)]
        return _seq(body, _alt(closing), rest) if closing else parts.NOTHING

    def _ended(self, region: Region, body: Part) -> Part:
        """A region's body that the turn ends with."""
        end = self._end_of_turn(region)
        return parts.NOTHING if end is None else _seq(body, end)

    # --- content ---------------------------------------------------------------------------------

    def _content(self, place: _Place) -> Part:
        """The content by itself, to the end of the turn, or with calls behind it."""
        region = self.inverse.regions.get(CONTENT)
        if region is None:
            raise NotInvertible(f"the template has no field {CONTENT!r}")
        body = self._content_body(region)
        if not region.opens:
            separators = self._separators()
            between = parts.Repeat(_seq(separators, GAP), 0, 1) if separators else EMPTY
            end = self._end_of_turn(region) or EMPTY
            return _seq(GAP, between, body, between, end)
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
            options += [_seq(self._lead(mark, place), opener, each) for each in (closed, ended)]
        return _alt(options)

    def _content_body(self, region: Region) -> Part:
        wanted = self.wishes.content
        if wanted is None:
            return self._free_body(region)
        watched = list(region.closes) if region.opens else self._watched()
        if isinstance(wanted, JsonValue) and not region.opens and self.wishes.mode != "none":
            for mark in watched:
                wanted = never_a_call(wanted, mark)
        self.values.append(replace(wanted, barred=_barred(watched)))
        return _seq(GAP, parts.Value(len(self.values) - 1), GAP)

    def _watched(self) -> list[Mark]:
        """The delimiters that the parser looks for outside of explicit regions."""
        implicit = self.inverse.implicit
        found = [mark for region in self.inverse.regions.values() for mark in region.opens]
        return found + list(implicit.closes if implicit is not None else ())

    def _separators(self) -> Part | None:
        """Closes of the implicit field that end nothing, but part one stretch from the next: tags
        of which there are both halves, `<response>` and `</response>`."""
        implicit = self.inverse.implicit
        closes = implicit.closes if implicit is not None else ()
        texts = {mark.needle for mark in closes}
        marks = [mark for mark in closes if _counterpart(mark.needle) in texts]
        return _alt([written(mark.pattern, {}) for mark in marks]) if marks else None

    def _text_with_calls(self, place: _Place) -> Part:
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
            (units if unlimited else once).append(self._call(calls, _IN_TEXT, closed=True))
            tails.append(self._last_calls(calls, _IN_TEXT))
            if place.fresh:
                starts = [self._call_at_start(calls)]
        loop = parts.Repeat(_alt([_after(text, u) for u in units]), 0, None) if units else EMPTY
        tail = _alt([_after(text, each) for each in tails])
        options = [_after(first, each) for each in tails]
        options += [_seq(_after(first, unit), loop, tail) for unit in units]
        for call in once:
            options.append(_seq(_after(first, call), loop, text, end))
            begun = [_seq(_after(first, unit), loop) for unit in units]
            options += [_seq(each, _after(text, call), loop, text, end) for each in begun]
        return _alt([*options, *starts])

    # --- calls -----------------------------------------------------------------------------------

    def _calls(self, place: _Place) -> Part:
        """One call or more, and the end of the turn."""
        calls = self.inverse.regions.get(CALLS)
        if calls is None:
            raise NotInvertible(f"the template has no field {CALLS!r}")
        return self._calls_here(calls, place)

    def _calls_here(self, calls: Region, place: _Place) -> Part:
        closed = self._call(calls, place, closed=True)
        if not (self.wishes.parallel and calls.repeats):
            return _alt([_seq(closed, GAP), self._last_calls(calls, place)])
        more = parts.Repeat(self._call(calls, _LATER, closed=True), 0, None)
        last = self._last_calls(calls, _LATER)
        return _alt(
            [
                _seq(closed, more, _alt([GAP, last])),
                self._last_calls(calls, place),
            ]
        )

    def _rest_of_calls(self) -> Part:
        """Calls behind explicit content, or none."""
        return _alt([EMPTY, self._calls(_LATER)])

    def _call_at_start(self, calls: Region) -> Part:
        """A call that may only stand where the answer begins."""
        only = replace(calls, opens=tuple(m for m in calls.opens if m.place == "start"))
        place = _Place(fresh=True)
        text: Part = parts.Free(tuple(bar(m) for m in self._watched() if m.place == "anywhere"))
        closed = self._call(only, place, closed=True)
        return _alt([_seq(closed, text), self._last_calls(only, place)])

    def _last_calls(self, calls: Region, place: _Place) -> Part:
        """Calls up to one that the turn ends with. A close that only looks ahead (at the opener of
        the next call) lets a call follow at once."""
        last = self._call(calls, place, closed=False)
        chained = [mark for mark in calls.closes if mark.ahead is not None]
        if not chained or not (self.wishes.parallel and calls.repeats):
            return last
        here, next_ = (self._call(calls, p, closed=None) for p in (place, _LATER))
        following = self._call(calls, _LATER, closed=False)
        return _alt([last, _seq(here, parts.Repeat(next_, 0, None), following)])

    def _call(self, calls: Region, place: _Place, *, closed: bool | None) -> Part:
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
                options.append(_seq(lead, head, tail, whole(self._calls_body(calls))))
                continue
            named = []
            for tool in self.wishes.tools:
                head, tail = split(mark.pattern, {group: tool.name})
                named.append(_seq(tail, whole(self._arguments(calls, tool))))
            options.append(_seq(lead, head, _alt(named)))
        return _alt(options)

    def _calls_body(self, calls: Region) -> Part:
        """The body of a region that says itself which tools are called."""
        if None not in self.bodies:
            self.bodies[None] = self._make_calls_body(calls)
        return self.bodies[None]

    def _make_calls_body(self, calls: Region) -> Part:
        assert calls.call is not None
        if calls.content.name == "python-call-list":
            called = _alt([self._python_call(calls, tool) for tool in self.wishes.tools])
        else:
            schema, origins = calls_schema(calls.call, self.wishes.tools)
            dialect = dialect_of(calls.content)
            called = self._value(JsonValue(schema, _barred(calls.closes), origins, dialect=dialect))
        if calls.call.listed:
            more = parts.Repeat(_seq(parts.Text(","), LINE, called), 0, None)
            rest = more if self.wishes.parallel else EMPTY
            called = _seq(parts.Text("["), LINE, called, rest, LINE, parts.Text("]"))
        return _seq(GAP, called, GAP)

    def _python_call(self, calls: Region, tool: Tool) -> Part:
        value = self._value(arguments_value(tool, calls.content, _barred(calls.closes)))
        return _seq(parts.Text(tool.name + "("), value, parts.Text(")"))

    def _arguments(self, calls: Region, tool: Tool) -> Part:
        """The body of a region that is one tool's arguments."""
        if tool.place not in self.bodies:
            self.bodies[tool.place] = self._make_arguments(calls, tool)
        return self.bodies[tool.place]

    def _make_arguments(self, calls: Region, tool: Tool) -> Part:
        barred = _barred(calls.closes)
        if calls.content.name == "json":
            schema, origins = arguments_schema(tool)
            dialect = dialect_of(calls.content)
            value = self._value(JsonValue(schema, barred, origins, dialect=dialect))
        else:
            value = self._value(arguments_value(tool, calls.content, barred))
            if not calls.content.strip:
                return value
        return _seq(GAP, value, GAP)

    def _value(self, value: ValueSource) -> Part:
        if value not in self.values:
            self.values.append(value)
        return parts.Value(self.values.index(value))


def _counterpart(tag: str) -> str:
    """The other half of a tag."""
    return f"<{tag[2:]}" if tag.startswith("</") else f"</{tag[1:]}"


def _barred(marks: Sequence[Mark]) -> tuple[str, ...]:
    """What strings in a value must do without. Raises NotInvertible where a delimiter could be
    found in a value however its strings are."""
    found: dict[str, None] = {}
    for mark in marks:
        if mark.place == "end" or (mark.place == "start" and mark.ahead is not None):
            continue
        text = needle(mark)
        if not set(text) - _STRUCTURAL or _HEX.issuperset(text):
            raise NotInvertible(f"a delimiter ({text!r}) could be found in the notation of JSON")
        found[text] = None
    return tuple(found)


_HEX = frozenset("0123456789abcdefABCDEF")
_STRUCTURAL = frozenset('{}[]:,"0123456789+-.eE truefalsnull\t\r\n')


def _seq(*items: Part) -> Part:
    flat: list[Part] = []
    for item in items:
        if item == parts.NOTHING:
            return item
        flat.extend(item.items if isinstance(item, parts.Seq) else (item,))
    return flat[0] if len(flat) == 1 else parts.Seq(tuple(flat))


def _after(text: Part, follows: Part) -> Part:
    """Free text and what follows it, with the text in each alternative, so that one terminal holds
    the text and the delimiter behind it."""
    if isinstance(follows, parts.Alt):
        return _alt([_seq(text, option) for option in follows.options])
    return _seq(text, follows)


def _alt(options: Sequence[Part]) -> Part:
    kept = [o for o in dict.fromkeys(options) if o != parts.NOTHING]
    return kept[0] if len(kept) == 1 else parts.Alt(tuple(kept))
