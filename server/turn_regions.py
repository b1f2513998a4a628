"""The regions of a template at a place in a turn: how they may open there, and how they end.

Read next: `turn_plan`, which puts them in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from grammar import Marks
from grammar import turn_parts as parts
from grammar.turn_parts import EMPTY, Part, ValueSource
from parsing import shapes
from parsing.inverse import CALLS, Inverse, Region
from parsing.shapes import Mark, NotInvertible
from server.turn_delimiters import GAP, begins_with_space, needle, written
from server.turn_tools import Mode, Tool

CONTENT = "content"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a request asks of a turn.

    content  the value that the content must be; None: free
    source   what the arguments of calls extract from (`x-extract`); None: nothing
    """

    content: ValueSource | None
    mode: Mode
    tools: tuple[Tool, ...]
    parallel: bool
    reasoning: bool
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the turn something stands: `fresh`, nothing before it; `closed`, right behind this
    text, the close of a region; `in_text`, behind free text, which takes in the white space."""

    fresh: bool = False
    closed: str = ""
    in_text: bool = False


LATER = Place()
IN_TEXT = Place(in_text=True)


@dataclass(slots=True)
class Regions:
    """A template's regions for one request on one vocabulary."""

    inverse: Inverse
    marks: Marks
    wishes: Wishes

    def _glue(self, place: Place) -> Part:
        """What may stand between two regions."""
        if self._anchored() and not place.fresh:
            anchors = [parts.Marked(parts.Text(text)) for text in self.inverse.anchors]
            return parts.Alt((EMPTY, *anchors))
        return GAP

    def _lead(self, mark: Mark, place: Place) -> Part:
        """What may stand before an opener: between regions, or, where it must stand right at its
        place, no more than the white space that it begins with."""
        if mark.place == "anywhere":
            return EMPTY if place.in_text else self._glue(place)
        return GAP if begins_with_space(mark.pattern) else EMPTY

    def _anchored(self) -> bool:
        """Whether every region is a message of its own, with its own beginning (as harmony's)."""
        return self.inverse.implicit is None and any(r.repeats for r in self._thoughts())

    def _thoughts(self) -> Iterator[Region]:
        for region in self.inverse.regions.values():
            if region.name not in (CONTENT, CALLS) and region.opens:
                yield region

    def _openings(self, region: Region, place: Place) -> list[Mark]:
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
        return alt([EMPTY, *(written(mark.pattern, {}) for mark in final)])

    def _is_end(self, mark: Mark, ends: frozenset[str]) -> bool:
        return self.marks.ends_turn(mark.needle) or mark.needle in ends

    def _closed(self, region: Region, body: Part, rest: Part) -> Part:
        """A region's body, a close that is written, and the rest of the turn."""
        closing = [written(mark.pattern, {}) for mark in self._writable(region)]
        return seq(body, alt(closing), rest) if closing else parts.NOTHING

    def _ended(self, region: Region, body: Part) -> Part:
        """A region's body that the turn ends with."""
        end = self._end_of_turn(region)
        return parts.NOTHING if end is None else seq(body, end)

    def _watched(self) -> list[Mark]:
        """The delimiters that the parser looks for outside of explicit regions."""
        implicit = self.inverse.implicit
        found = [mark for region in self.inverse.regions.values() for mark in region.opens]
        return found + list(implicit.closes if implicit is not None else ())


def counterpart(tag: str) -> str:
    """The other half of a tag."""
    return f"<{tag[2:]}" if tag.startswith("</") else f"</{tag[1:]}"


def barred_in(marks: Sequence[Mark]) -> tuple[str, ...]:
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


def seq(*items: Part) -> Part:
    """One part after the other, in the simplest form; nothing where one of them is nothing."""
    flat: list[Part] = []
    for item in items:
        if item == parts.NOTHING:
            return item
        flat.extend(item.items if isinstance(item, parts.Seq) else (item,))
    return flat[0] if len(flat) == 1 else parts.Seq(tuple(flat))


def behind(text: Part, follows: Part) -> Part:
    """Free text and what follows it, with the text in each alternative, so that one terminal holds
    the text and the delimiter behind it."""
    if isinstance(follows, parts.Alt):
        return alt([seq(text, option) for option in follows.options])
    return seq(text, follows)


def alt(options: Sequence[Part]) -> Part:
    """Any one of some parts, in the simplest form."""
    kept = [o for o in dict.fromkeys(options) if o != parts.NOTHING]
    return kept[0] if len(kept) == 1 else parts.Alt(tuple(kept))
