"""Call lists in Python's spelling: `[get_weather(city="Paris", days=3), a.b()]`.

    list   = "[" [ call { "," call } ] "]"
    call   = name "(" [ key "=" value { "," key "=" value } ] ")"
    value  = string | number | true | false | null | "[" ... "]" | "{" string ":" value ... "}"

Only keyword arguments, each once; no trailing commas, no tuples, no expressions: the text is read,
never run. Names are ASCII words joined by dots or hyphens. Strings stand on one line, in either
kind of quotes, with JSON's escapes and `\\'`. Raises ContentError and nothing else.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

from parsing.jsonlike import ContentError

MAX_DEPTH = 100
_LARGEST = 2**53 - 1

_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = re.compile(r"[A-Za-z_]\w*(?:[.-]\w+)*", re.ASCII)
_KEY = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORD = re.compile(r"[A-Za-z]+")
_PLAIN = re.compile(r"[^\\'\"\x00-\x1f]+")
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPES = {
    "\\": "\\",
    "'": "'",
    '"': '"',
    "/": "/",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
}
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")


def parse_calls(text: str) -> list[dict[str, Any]]:
    """The calls of a list, each {"name", "arguments"}. Raises ContentError."""
    reader = _Reader(text)
    calls: list[dict[str, Any]] = []
    reader.expect("[")
    if not reader.take("]"):
        calls.append(reader.call())
        while not reader.take("]"):
            reader.expect(",")
            calls.append(reader.call())
    reader.space()
    if reader.at < len(text):
        reader.fail("text after the list")
    return calls


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, what: str) -> NoReturn:
        near = self.text[self.at : self.at + 20]
        raise ContentError(f"not a list of calls: {what} at character {self.at} ({near!r})")

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def take(self, mark: str) -> bool:
        self.space()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def expect(self, mark: str) -> None:
        if not self.take(mark):
            self.fail(f"expected {mark!r}")

    def word(self, pattern: re.Pattern[str], what: str) -> str:
        self.space()
        match = pattern.match(self.text, self.at)
        if match is None:
            self.fail(f"expected {what}")
        self.at = match.end()
        return match.group()

    def call(self) -> dict[str, Any]:
        name = self.word(_NAME, "a function's name")
        self.expect("(")
        arguments: dict[str, Any] = {}
        if self.take(")"):
            return {"name": name, "arguments": arguments}
        while True:
            key = self.word(_KEY, "an argument's name")
            if key in arguments:
                self.fail(f"argument {key!r} given twice")
            self.expect("=")
            arguments[key] = self.value(0)
            if self.take(")"):
                return {"name": name, "arguments": arguments}
            self.expect(",")

    def value(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.fail("nests too deeply")
        self.space()
        char = self.text[self.at : self.at + 1]
        if char and char in "\"'":
            return self.string()
        if self.take("["):
            return self.items(depth)
        if self.take("{"):
            return self.pairs(depth)
        if char == "-" or char.isdigit():
            return self.number()
        word = self.word(_WORD, "a value")
        if word not in _WORDS:
            self.at -= len(word)
            self.fail("expected a value")
        return _WORDS[word]

    def items(self, depth: int) -> list[Any]:
        values: list[Any] = []
        if self.take("]"):
            return values
        while True:
            values.append(self.value(depth + 1))
            if self.take("]"):
                return values
            self.expect(",")

    def pairs(self, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.take("}"):
            return values
        while True:
            self.space()
            if self.text[self.at : self.at + 1] not in ('"', "'"):
                self.fail("expected a quoted key")
            key = self.string()
            if key in values:
                self.fail(f"key {key!r} given twice")
            self.expect(":")
            values[key] = self.value(depth + 1)
            if self.take("}"):
                return values
            self.expect(",")

    def number(self) -> int | float:
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            self.fail("expected a number")
        follows = self.text[match.end() : match.end() + 1]
        if follows.isalnum() or follows in ("_", "."):
            self.fail("expected a number")
        written = match.group()
        if match[1] is None and match[2] is None:
            if len(written) > 17 or abs(int(written)) > _LARGEST:
                self.fail("a whole number beyond 2**53 - 1")
            self.at = match.end()
            return int(written)
        value = float(written)
        if not math.isfinite(value):
            self.fail("a number too large")
        self.at = match.end()
        return value

    def string(self) -> str:
        quote = self.text[self.at]
        self.at += 1
        parts: list[str] = []
        while True:
            char = self.text[self.at : self.at + 1]
            if char == quote:
                self.at += 1
                return "".join(parts)
            if char == "\\":
                parts.append(self.escape())
                continue
            if char in ("'", '"'):
                parts.append(char)
                self.at += 1
                continue
            match = _PLAIN.match(self.text, self.at)
            if match is None:
                self.fail("an unfinished string" if not char else "a control character in a string")
            parts.append(match.group())
            self.at = match.end()

    def escape(self) -> str:
        plain = _ESCAPES.get(self.text[self.at + 1 : self.at + 2])
        if plain is not None:
            self.at += 2
            return plain
        match = _UNICODE.match(self.text, self.at)
        if match is None:
            self.fail("an unknown escape")
        code = int(match[1], 16)
        if 0xD800 <= code < 0xDC00:
            low = _UNICODE.match(self.text, match.end())
            if low is not None and 0xDC00 <= int(low[1], 16) < 0xE000:
                self.at = low.end()
                return chr(0x10000 + ((code - 0xD800) << 10) + (int(low[1], 16) - 0xDC00))
        if 0xD800 <= code < 0xE000:
            self.fail("half a surrogate pair")
        self.at = match.end()
        return chr(code)
