"""Parts of a region's value that are settled before it ends: a call's arguments as they come.

A region's value is known when its close has come. Where it is made of parts that no later text can
change, the parts are known earlier:

| content          | a part                | settled                                               |
|------------------|-----------------------|-------------------------------------------------------|
| xml-inline       | a pair of key, value  | when its tag's match is decided, whatever follows     |
| kv-lines         | a pair                | at the line's end                                     |
| python-call-list | a call's name, a pair | at the call's `(`; at the `,` or `)` behind the value |

Invariant: the parts depend on the text only, not on how it was cut, and are the beginning of what
`parse_content` makes of the whole text (for pairs: before a repeated key replaces an earlier one).
Work is linear in the text, but for what a tag's pattern costs by itself.
Read `content` for the values themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from parsing.content import Content, parse_line, parse_tag
from parsing.delimiters import Watch, look
from parsing.errors import ResponseParseError
from parsing.jsonlike import ContentError
from parsing.pycalls import parse_calls

_SHORT_REST = 256


@dataclass(frozen=True, slots=True)
class Named:
    """A call of a list has begun: its name."""

    name: str


@dataclass(frozen=True, slots=True)
class Pair:
    """An argument of the current call, or of the only one."""

    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Ended:
    """The current call of a list is complete."""


Part = Named | Pair | Ended


class PartReader:
    """Reads the text of one region, piece by piece. After a fault nothing comes any more: what the
    text was is said when the region ends."""

    def __init__(self, content: Content) -> None:
        match content.name:
            case "xml-inline" if not content.args.get("merge_duplicates"):
                self._parts: _Tags | _Lines | _Calls | None = _Tags(content)
            case "kv-lines":
                self._parts = _Lines(content)
            case "python-call-list":
                self._parts = _Calls()
            case _:
                self._parts = None

    def feed(self, text: str) -> list[Part]:
        """The parts that are settled now."""
        parts: list[Part] = []
        if self._parts is not None:
            try:
                for part in self._parts.feed(text):
                    parts.append(part)  # noqa: PERF402 - what came before a fault counts
            except (ContentError, ResponseParseError):
                self._parts = None
        return parts


class _Tags:
    """Matches of a tag's pattern. The text is looked at again when it grew by a quarter, or when
    something came in that a match still lacked."""

    def __init__(self, content: Content) -> None:
        assert content.tag is not None
        self._content = content
        self._watch = Watch("", False, content.tag)
        self._text = ""
        self._waiting: list[str] = []
        self._growth_needed = 0
        self._hints: tuple[str, ...] = ()
        self._tail = ""

    def feed(self, text: str) -> Iterator[Part]:
        if self._watch.delimiter.partial is None:
            return
        self._waiting.append(text)
        self._growth_needed -= len(text)
        if self._growth_needed > 0 and not self._hinted(text):
            return
        rest = self._text + "".join(self._waiting)
        self._waiting.clear()
        at = 0
        while True:
            find = look(self._watch, rest, at, complete=False)
            if find.match is None:
                break
            if find.match.end() == find.match.start():
                raise ContentError("an empty tag")  # settled by nobody; the whole text decides
            yield Pair(*parse_tag(self._content, find.match, whole=True))
            at = find.match.end()
        self._text = rest[at:]
        self._wait()

    def _wait(self) -> None:
        size = len(self._text)
        self._growth_needed = size // 4 if size > _SHORT_REST else 0
        self._hints = tuple(self._watch.delimiter.lacks(self._text, 0))
        self._tail = self._text[-max(map(len, self._hints), default=1) :]

    def _hinted(self, text: str) -> bool:
        if not self._hints:
            return False
        seen = self._tail + text
        if any(hint in seen for hint in self._hints):
            return True
        self._tail = seen[-max(map(len, self._hints)) :]
        return False


class _Lines:
    def __init__(self, content: Content) -> None:
        self._content = content
        self._end = str(content.args.get("line_sep", "\n"))
        self._held: list[str] = []
        self._tail = ""

    def feed(self, text: str) -> Iterator[Part]:
        """A separator is found where it is complete, also when it was cut."""
        seen = self._tail + text
        self._held.append(text)
        if self._end in seen:
            *lines, rest = "".join(self._held).split(self._end)
            self._held, seen = [rest], rest
            for line in lines:
                if (pair := parse_line(self._content, line, whole=True)) is not None:
                    yield Pair(*pair)
        self._tail = seen[-(len(self._end) - 1) :] if len(self._end) > 1 else ""


_MARK = re.compile(r"[\"'\\()\[\]{},]")


class _Calls:
    """Follows quotes and brackets; what stands between two marks of a call is read by `pycalls`."""

    def __init__(self) -> None:
        self._depth = 0
        self._quote = ""
        self._escaped = False
        self._held: list[str] = []
        self._pairs = 0

    def feed(self, text: str) -> Iterator[Part]:
        at = 0
        while at < len(text):
            if self._escaped:
                self._escaped = False
                self._held.append(text[at])
                at += 1
                continue
            match = _MARK.search(text, at)
            if match is None:
                self._held.append(text[at:])
                return
            self._held.append(text[at : match.start()])
            at = match.end()
            yield from self._mark(match.group())

    def _mark(self, mark: str) -> Iterator[Part]:
        if self._quote or mark in "\"'\\":
            self._held.append(mark)
            self._escaped = mark == "\\"
            if mark == self._quote:
                self._quote = ""
            elif not self._quote and mark != "\\":
                self._quote = mark
            return
        if mark in "([{":
            self._depth += 1
            if self._depth == 1:
                self._take_nothing()
            elif self._depth == 2 and mark == "(":
                yield self._named(self._take())
            else:
                self._held.append(mark)
            return
        if self._depth == 2 and mark in ",)":
            yield from self._pair(self._take(), last=mark == ")")
        elif self._depth < 2:
            self._take_nothing()
        else:
            self._held.append(mark)
        self._depth -= mark != ","

    def _take(self) -> str:
        text = "".join(self._held).strip()
        self._held.clear()
        return text

    def _take_nothing(self) -> None:
        if self._take():
            raise ContentError("text between calls")

    def _named(self, name: str) -> Named:
        self._pairs = 0
        return Named(str(parse_calls(f"[{name}()]")[0]["name"]))

    def _pair(self, text: str, *, last: bool) -> Iterator[Part]:
        if text or not last or self._pairs:
            arguments = parse_calls(f"[f({text})]")[0]["arguments"]
            if len(arguments) != 1:
                raise ContentError("not one argument")
            self._pairs += 1
            yield from (Pair(key, value) for key, value in arguments.items())
        if last:
            yield Ended()
