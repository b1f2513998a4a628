"""JSON as it is written: which values have begun and which are complete, piece by piece. Pure.

    scanner = JsonScanner()
    for piece in pieces:
        for event in scanner.feed(piece):
            ...                      # Begun(path, start, first), Done(path, value, start, end)
    scanner.finish()                 # a number at the root is only complete when the text is

A pushdown automaton over strict JSON (RFC 8259) that never looks back: every character is looked
at once, strings and runs of white space by one regular expression each. Paths are tuples of keys
and indices; offsets count characters from the first one.

Invariants: the events depend on the text only, not on how it was cut; a value that is `Done` is
what a JSON reader would say of its text. A text that is no JSON ends the scanning (`failed`) at the
offset of the first character that can't be, with everything before it reported.

Read next: `server/calls.py`, which reads tool calls with it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

#: How deep arrays and objects may nest, as in everything else that reads JSON here.
MAX_DEPTH = 200

Path = tuple[str | int, ...]

_SPACE = re.compile(r"[ \t\n\r]*")
_STRING_RUN = re.compile(r'[^"\\\x00-\x1f]*')
_NUMBER_RUN = re.compile(r"[0-9+\-.eE]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_LITERALS: dict[str, Any] = {"true": True, "false": False, "null": None}

#: Stands for a value that JSON can write and Python's numbers can't hold.
_UNSPEAKABLE = object()


@dataclass(frozen=True, slots=True)
class Begun:
    """A value has begun: `first` is its first character, at offset `start`."""

    path: Path
    start: int
    first: str


@dataclass(frozen=True, slots=True)
class Done:
    """A value is complete: its text is `[start, end)`. `known` is False (and `value` None) where it
    is or holds a number that Python's can't hold: the text is JSON, but the value can't be told."""

    path: Path
    value: Any
    start: int
    end: int
    known: bool = True


ScanEvent = Begun | Done


class _Expect(Enum):
    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


class _Token(Enum):
    NONE = auto()
    STRING = auto()
    ESCAPE = auto()  # in a string, behind a backslash
    NUMBER = auto()
    LITERAL = auto()


@dataclass(slots=True)
class _Open:
    """An array or object that is being written. `key`: of the member that is current or next."""

    value: list[Any] | dict[str, Any]
    start: int
    key: str | int
    speakable: bool = True


@dataclass(slots=True)
class _State:
    expect: _Expect = _Expect.VALUE
    token: _Token = _Token.NONE
    start: int = 0  # of the token
    parts: list[str] = field(default_factory=list)


class JsonScanner:
    """Reads one JSON text. `offset`: how many characters belong to it so far, which stays behind
    where scanning failed, and where the text is complete and only white space may follow."""

    def __init__(self) -> None:
        self.offset = 0
        self.failed = False
        self._stack: list[_Open] = []
        self._state = _State()
        self._events: list[ScanEvent] = []

    @property
    def complete(self) -> bool:
        """Whether the root value is complete."""
        return self._state.expect is _Expect.NOTHING

    def feed(self, text: str) -> list[ScanEvent]:
        """What the next piece begins and completes."""
        at = 0
        while at < len(text) and not self.failed:
            match self._state.token:
                case _Token.NONE:
                    at = self._between(text, at)
                case _Token.STRING:
                    at = self._string(text, at)
                case _Token.ESCAPE:
                    self._take(text[at])
                    self._state.token = _Token.STRING
                    at += 1
                case _Token.NUMBER:
                    at = self._number(text, at)
                case _Token.LITERAL:
                    at = self._literal(text, at)
        return self._given()

    def finish(self) -> list[ScanEvent]:
        """The text is over: a number at the root is complete now."""
        if self._state.token is _Token.NUMBER and not self.failed and not self._stack:
            self._end_number()
        return self._given()

    def rest(self, value: Any) -> str | None:
        """The JSON text that makes what was read so far a text of `value`, of which it must be a
        beginning; None if it stopped inside a token, or isn't one."""
        state = self._state
        if state.token is not _Token.NONE or state.expect is _Expect.NOTHING:
            return None
        chain, inner = [], value
        try:
            for frame in self._stack[:-1]:
                chain.append((frame, inner))
                inner = inner[frame.key]
            text = self._rest_of_last(inner)
            for frame, outer in reversed(chain):
                text += _members(frame, outer, begun=True)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            return None
        return text

    # --- between tokens ----------------------------------------------------------------------

    def _between(self, text: str, at: int) -> int:
        expect = self._state.expect
        space = _SPACE.match(text, at)
        assert space is not None
        if expect is _Expect.NOTHING:
            self.failed = space.end() < len(text)
            return len(text)
        self.offset += space.end() - at
        at = space.end()
        if at == len(text):
            return at
        char = text[at]
        match expect:
            case _Expect.KEY | _Expect.KEY_OR_END if char == '"':
                self._begin(_Token.STRING)
            case _Expect.COLON if char == ":":
                self._step(_Expect.VALUE)
            case _Expect.COMMA_OR_END if char == ",":
                self._comma()
            case _Expect.COMMA_OR_END | _Expect.VALUE_OR_END if char == "]":
                self._close(list)
            case _Expect.COMMA_OR_END | _Expect.KEY_OR_END if char == "}":
                self._close(dict)
            case _Expect.VALUE | _Expect.VALUE_OR_END:
                self._value(char)
            case _:
                self.failed = True
        return at if self._state.token in (_Token.NUMBER, _Token.LITERAL) else at + 1

    def _value(self, char: str) -> None:
        if char == '"':
            self._announce(char)
            self._begin(_Token.STRING)
        elif char in "[{" and len(self._stack) < MAX_DEPTH:
            self._announce(char)
            opened = _Open([], self.offset, 0) if char == "[" else _Open({}, self.offset, "")
            self._stack.append(opened)
            self._step(_Expect.VALUE_OR_END if char == "[" else _Expect.KEY_OR_END)
        elif char == "-" or "0" <= char <= "9":
            self._announce(char)
            self._begin(_Token.NUMBER, steps=0)
        elif char in "tfn":
            self._announce(char)
            self._begin(_Token.LITERAL, steps=0)
        else:
            self.failed = True

    def _begin(self, token: _Token, *, steps: int = 1) -> None:
        self._state.token = token
        self._state.start = self.offset
        self._state.parts = []
        self.offset += steps

    def _step(self, expect: _Expect) -> None:
        self._state.expect = expect
        self.offset += 1

    def _comma(self) -> None:
        frame = self._stack[-1]
        if isinstance(frame.value, list):
            frame.key = len(frame.value)
            self._step(_Expect.VALUE)
        else:
            self._step(_Expect.KEY)

    def _close(self, kind: type) -> None:
        frame = self._stack[-1] if self._stack else None
        if frame is None or not isinstance(frame.value, kind):
            self.failed = True
            return
        self.offset += 1
        self._stack.pop()
        self._complete(frame.value if frame.speakable else _UNSPEAKABLE, frame.start)

    # --- within tokens -----------------------------------------------------------------------

    def _take(self, piece: str) -> None:
        self._state.parts.append(piece)
        self.offset += len(piece)

    def _string(self, text: str, at: int) -> int:
        run = _STRING_RUN.match(text, at)
        assert run is not None
        self._take(run.group())
        at = run.end()
        if at == len(text):
            return at
        char = text[at]
        if char == "\\":
            self._take(char)
            self._state.token = _Token.ESCAPE
        elif char == '"':
            self._end_string()
        else:
            self.failed = True
        return at + 1

    def _end_string(self) -> None:
        try:
            value = json.loads(f'"{"".join(self._state.parts)}"')
            value.encode()
        except ValueError:  # no escape, or half a surrogate pair
            self.failed = True
            return
        self.offset += 1
        start = self._state.start
        self._state.token = _Token.NONE
        if self._state.expect in (_Expect.KEY, _Expect.KEY_OR_END):
            self._stack[-1].key = value
            self._state.expect = _Expect.COLON
        else:
            self._complete(value, start)

    def _number(self, text: str, at: int) -> int:
        run = _NUMBER_RUN.match(text, at)
        assert run is not None
        self._take(run.group())
        if run.end() < len(text):
            self._end_number()
        return run.end()

    def _end_number(self) -> None:
        text = "".join(self._state.parts)
        if _NUMBER.fullmatch(text) is None:
            self.failed = True
            return
        try:
            value = json.loads(text)
        except ValueError:  # more digits than Python reads
            value = math.inf
        self._state.token = _Token.NONE
        finite = not isinstance(value, float) or math.isfinite(value)
        self._complete(value if finite else _UNSPEAKABLE, self._state.start)

    def _literal(self, text: str, at: int) -> int:
        self._take(text[at])
        word = "".join(self._state.parts)
        if word in _LITERALS:
            self._state.token = _Token.NONE
            self._complete(_LITERALS[word], self._state.start)
        elif not any(literal.startswith(word) for literal in _LITERALS):
            self.failed = True
            self.offset -= 1
        return at + 1

    # --- events ------------------------------------------------------------------------------

    def _path(self) -> Path:
        return tuple(frame.key for frame in self._stack)

    def _announce(self, char: str) -> None:
        self._events.append(Begun(self._path(), self.offset, char))

    def _complete(self, value: Any, start: int) -> None:
        known = value is not _UNSPEAKABLE
        told = value if known else None
        self._events.append(Done(self._path(), told, start, self.offset, known))
        if not self._stack:
            self._state.expect = _Expect.NOTHING
            return
        self._state.expect = _Expect.COMMA_OR_END
        frame = self._stack[-1]
        frame.speakable = frame.speakable and known
        if isinstance(frame.value, list):
            frame.value.append(value)
        else:
            frame.value[str(frame.key)] = value

    def _given(self) -> list[ScanEvent]:
        events, self._events = self._events, []
        return events

    # --- completing a text -------------------------------------------------------------------

    def _rest_of_last(self, value: Any) -> str:
        """The rest of the innermost array or object, or of the root, whose value is `value`."""
        if not self._stack:
            return write_json(value)
        frame = self._stack[-1]
        match self._state.expect:
            case _Expect.COLON:
                return ": " + write_json(value[frame.key]) + _members(frame, value, begun=True)
            case _Expect.VALUE if isinstance(frame.value, dict):
                return write_json(value[frame.key]) + _members(frame, value, begun=True)
            case _Expect.VALUE | _Expect.KEY:
                text = _members(frame, value, begun=False)
                if not text.startswith(", "):
                    raise ValueError("nothing follows the comma")
                return text.removeprefix(", ")
            case _Expect.VALUE_OR_END | _Expect.KEY_OR_END:
                return _members(frame, value, begun=False).removeprefix(", ")
            case _:
                return _members(frame, value, begun=False)


def _members(frame: _Open, value: Any, *, begun: bool) -> str:
    """What is missing of an array or object; `begun`: its current member was written already."""
    if isinstance(frame.value, list):
        missing = value[len(frame.value) + begun :]
        return "".join(f", {write_json(item)}" for item in missing) + "]"
    written = {*frame.value, frame.key} if begun else frame.value
    return (
        "".join(
            f", {write_json(name)}: {write_json(item)}"
            for name, item in value.items()
            if name not in written
        )
        + "}"
    )


def write_json(value: Any) -> str:
    """A value as JSON text, its characters as they are."""
    return json.dumps(value, ensure_ascii=False)
