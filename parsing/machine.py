"""The streaming state machine: text in, a flat list of steps out. All that changes state is here.

States and what is watched in them (`ResponseTemplate.outside` and `Field.inside`):

| state                    | watched                               | text goes to            |
|--------------------------|---------------------------------------|-------------------------|
| outside, implicit field  | every explicit opener, implicit close | the implicit field      |
| outside, no such field   | every explicit opener                 | nowhere                 |
| inside an explicit field | its own close only                    | that field              |

| delimiter      | step                                                                      |
|----------------|---------------------------------------------------------------------------|
| opener of F    | an open implicit region ends; F opens, even if its body will be empty     |
| close of F     | the region ends; back to outside                                          |
| implicit close | the implicit region ends if one is open; more text opens another          |

Invariants
- `text[:pos]` is dealt with, `text[pos:]` is not. After each `feed`, what is left is exactly what
  may still be part of a delimiter (of a long rest, see below, possibly a little more).
- The steps depend on the text only, not on how it was cut: text is dealt with up to the first place
  where more text could change the outcome (see `edges`).
- Each delimiter may match emptily once at a place. So every turn of the loop either moves `pos` or
  uses up one of finitely many empty matches.
- Work is linear in the text: a find stays good until it is passed, and a long undecided rest is
  looked at again only when it grew by a quarter, or when a literal its pattern waits for came in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as default

import regex

from parsing.delimiters import Duty, Find, Watch, captures, choose, look
from parsing.template import Field, ResponseTemplate

_SHORT_REST = 256
_TRIM = 1024


@dataclass(slots=True)
class Region:
    """A region being read. `start`: where its body begins, in characters of the output."""

    field: Field
    start: int
    opener: str = ""
    captures: dict[str, str] = default(default_factory=dict)
    parts: list[str] = default(default_factory=list)

    @property
    def body(self) -> str:
        """Its text so far."""
        return "".join(self.parts)


@dataclass(frozen=True, slots=True)
class Opened:
    """A region began; its opener captured this."""

    field: Field
    captures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Text:
    """More text of the region that is open."""

    field: Field
    text: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A region ended. `whole` is False where the text ended before the region's close came."""

    field: Field
    start: int
    body: str
    captures: Mapping[str, str]
    whole: bool


Step = Opened | Text | Closed
Cut = Callable[[Region], int | None]


class Machine:
    """Reads one text. `offset` is the position of its first character (negative for a prefix)."""

    def __init__(self, template: ResponseTemplate, offset: int = 0) -> None:
        self._template = template
        self._text = ""
        self._pos = 0
        self._offset = offset
        self._region: Region | None = None
        self._finds: dict[Watch, Find] = {}
        self._spent: set[Watch] = set()
        self._spent_at = -1
        self._waiting: list[str] = []
        self._growth_needed = 0
        self._hints: tuple[str, ...] = ()
        self._hint_tail = ""
        self.searches = 0
        self.characters_searched = 0

    def feed(self, text: str) -> list[Step]:
        """Take in a piece of text; the steps that are certain now, in order."""
        self._waiting.append(text)
        self._growth_needed -= len(text)
        if not text or (self._growth_needed > 0 and not self._hinted(text)):
            return []
        self._take_in()
        steps: list[Step] = []
        self._advance(steps, complete=False)
        self._trim()
        return steps

    def finish(self, cut: Cut) -> list[Step]:
        """No more text will come: decide the rest and close what is open.

        `cut` is asked about an explicit region whose close never came; a number says where in its
        body it ends after all, and the text from there on is read again, outside.
        """
        self._take_in()
        steps: list[Step] = []
        self._advance(steps, complete=False)
        while True:
            self._finds.clear()
            self._advance(steps, complete=True)
            region = self._region
            if region is None:
                return steps
            explicit = region.field.open is not None
            place = cut(region) if explicit and region.field.close is not None else None
            if place is None:
                self._close(steps, whole=not explicit or region.field.close is None)
                return steps
            self._read_again(region, place, steps)

    # --- the loop ----------------------------------------------------------------------------

    def _advance(self, steps: list[Step], *, complete: bool) -> None:
        while not self._only_space_after_end():
            outside = self._region is None or self._region.field.open is None
            duty = self._template.outside if outside else self._inside()
            if duty.scout is not None and not complete and self._quiet(duty):
                self._release(steps, len(self._text))
                self._growth_needed = 0
                return
            found = choose([(watch, self._look(watch, complete)) for watch in duty.watches])
            if isinstance(found, int):
                self._release(steps, min(found, len(self._text)))
                if not complete:
                    self._wait(duty.watches)
                return
            watch, match = found
            self._release(steps, match.start())
            self._apply(steps, watch, match)
        if not complete:
            self._wait(())

    def _only_space_after_end(self) -> bool:
        """Whether the implicit field's close matched emptily here, and only white space follows: if
        it stays so, that was `$` before a final newline, which is no region of its own."""
        closed = self._spent_at == self._pos and any(not watch.opens for watch in self._spent)
        return closed and self._region is None and not self._text[self._pos :].strip()

    def _inside(self) -> Duty:
        assert self._region is not None
        return self._region.field.inside

    def _quiet(self, duty: Duty) -> bool:
        if self._spent_at == self._pos:
            return False  # what matched emptily here is not looked for here
        first = duty.first(self._text, self._pos)
        self.searches += 1
        self.characters_searched += first - self._pos
        return first == len(self._text)

    def _look(self, watch: Watch, complete: bool) -> Find:
        since = self._pos + (self._spent_at == self._pos and watch in self._spent)
        find = self._finds.get(watch)
        if find is None or not find.since <= since <= find.start:
            find = self._finds[watch] = look(watch, self._text, since, complete)
            self.searches += 1
            self.characters_searched += max(0, min(find.start, len(self._text)) - since)
        return find

    def _apply(self, steps: list[Step], watch: Watch, match: regex.Match[str]) -> None:
        if match.start() == match.end():
            if self._spent_at != match.end():
                self._spent.clear()
                self._spent_at = match.end()
            self._spent.add(watch)
        self._pos = match.end()
        if watch.opens:
            if self._region is not None:
                self._close(steps, whole=True)
            opened = self._template.fields[watch.field]
            self._region = Region(opened, self._here, match.group(), captures(match))
            steps.append(Opened(opened, self._region.captures))
        elif self._region is not None:
            self._region.captures |= captures(match)
            self._close(steps, whole=True)

    def _release(self, steps: list[Step], end: int) -> None:
        """Give `text[pos:end]`, which is no delimiter, to whatever region is current."""
        if end <= self._pos:
            return
        piece = self._text[self._pos : end]
        if self._region is None and self._template.implicit is not None:
            self._region = Region(self._template.implicit, self._here)
            steps.append(Opened(self._template.implicit, self._region.captures))
        if self._region is not None:
            self._region.parts.append(piece)
            steps.append(Text(self._region.field, piece))
        self._pos = end

    def _close(self, steps: list[Step], *, whole: bool) -> None:
        region = self._region
        assert region is not None
        self._region = None
        steps.append(Closed(region.field, region.start, region.body, region.captures, whole))

    # --- the text at hand --------------------------------------------------------------------

    @property
    def _here(self) -> int:
        return self._offset + self._pos

    def _take_in(self) -> None:
        self._text += "".join(self._waiting)
        self._waiting.clear()
        self._finds.clear()

    def _wait(self, watches: tuple[Watch, ...]) -> None:
        """Say how much more text has to come before looking again is worth it."""
        rest = len(self._text) - self._pos
        self._growth_needed = 0 if rest <= _SHORT_REST else rest // 4
        if not self._growth_needed:
            return
        missing = (watch.delimiter.lacks(self._text, self._pos) for watch in watches)
        self._hints = tuple(need for needs in missing for need in needs)
        self._hint_tail = self._text[-max(map(len, self._hints), default=1) :]

    def _hinted(self, text: str) -> bool:
        if not self._hints:
            return False
        longest = max(map(len, self._hints))
        seen = self._hint_tail[-longest + 1 :] + text if longest > 1 else text
        if any(hint in seen for hint in self._hints):
            return True
        self._hint_tail = seen[-longest:]
        return False

    def _trim(self) -> None:
        """Drop text that is dealt with, but for what a look-behind may still read."""
        keep = self._template.look_back
        if keep is None:
            return
        drop = self._pos - keep - 1  # one more: `^` must not see a new beginning
        if drop >= _TRIM:
            self._text = self._text[drop:]
            self._pos -= drop
            self._offset += drop
            self._spent_at -= drop
            self._finds.clear()

    def _read_again(self, region: Region, place: int, steps: list[Step]) -> None:
        """End an unclosed region at `place` of its body, and go on with the rest of that body."""
        body = region.body
        region.parts[:] = [body[:place]]
        self._close(steps, whole=False)
        self._text = region.opener + body
        self._offset = region.start - len(region.opener)
        self._pos = len(region.opener) + place
        self._finds.clear()
        self._spent.clear()
