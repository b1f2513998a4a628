"""A small reader of regular expressions: pattern text in, syntax tree out.

Templates give their delimiters as patterns for the `regex` module. To know whether more text could
still change a match, `edges` rewrites a pattern piece by piece, and so needs its structure. No more
than that: a piece that eats exactly one character (`a`, `\\d`, `[^<]`, `.`) stays as written.

Invariant: whatever this module accepts means to the `regex` module (default version, DOTALL) what
the tree says. Anything else, be it rare (back-references, recursion, fuzzy matching, conditionals)
or unknown, raises `NotUnderstood`; such a pattern still works, but is only decided when the text is
whole. Next: `measures`, `edges`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn


class NotUnderstood(Exception):  # noqa: N818 - a signal between modules, never seen by callers
    """The pattern uses something whose behaviour at the edge of a text is not modelled here."""


@dataclass(frozen=True, slots=True)
class Atom:
    """Eats exactly one character. `char` is that character where it is a plain one, else None."""

    source: str
    char: str | None = None


@dataclass(frozen=True, slots=True)
class Seq:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """Any one of them, the first that fits first."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A group: `opening` is how it starts when written out again ("(?:", "(?P<n>", "(?>", ...)."""

    opening: str
    item: Node
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Repeat:
    """`item`, `low` to `high` (None: no limit) times. `mode`: "" greedy, "?" lazy, "+" atomic."""

    item: Node
    low: int
    high: int | None
    mode: str

    @property
    def count(self) -> str:
        """The bounds, as a pattern has them."""
        return f"{{{self.low},{'' if self.high is None else self.high}}}"


@dataclass(frozen=True, slots=True)
class Ahead:
    """A look-ahead."""

    item: Node
    negative: bool


@dataclass(frozen=True, slots=True)
class Behind:
    """A look-behind, kept as written, and what it looks for."""

    source: str
    item: Node


@dataclass(frozen=True, slots=True)
class Assertion:
    """A zero-width test: `kind` is "start" (`^`), "end" (`$`), "stop" (`\\Z`) or "word" (`\\b`)."""

    source: str
    kind: str


Node = Atom | Seq | Alt | Group | Repeat | Ahead | Behind | Assertion

_QUANTIFIER = re.compile(r"[*+?]|\{(?:\d+(?:,\d*)?|,\d+)\}")
_FUZZY = re.compile(r"\{[^{}\n]*[a-zA-Z<][^{}\n]*\}")
_CLASS_ESCAPES = frozenset("dDwWsS")
_CHAR_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
_NAMED_GROUP = re.compile(r"\(\?P?<([^\W\d]\w*)>")
_FLAGS = re.compile(r"\(\?([isu]+)\)")
_SCOPED_FLAGS = re.compile(r"\(\?([isu]+):")
MAX_DEPTH = 50


def parse(pattern: str) -> tuple[Node, str]:
    """The tree of a pattern and the inline flags that stand at its start (such as "(?i)").

    Raises NotUnderstood for anything that is not modelled; the pattern must compile.
    """
    flags = ""
    while match := _FLAGS.match(pattern):
        flags += match.group()
        pattern = pattern[match.end() :]
    reader = _Reader(pattern)
    node = reader.alternatives(0)
    if reader.at < len(pattern):
        reader.refuse()
    return node, flags


class _Reader:
    """Recursive descent over one pattern; `at` is the next character to read."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def refuse(self) -> NoReturn:
        raise NotUnderstood(self.pattern[self.at :][:20])

    def peek(self, text: str) -> bool:
        return self.pattern.startswith(text, self.at)

    def alternatives(self, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.refuse()
        options = [self.sequence(depth)]
        while self.peek("|"):
            self.at += 1
            options.append(self.sequence(depth))
        return options[0] if len(options) == 1 else Alt(tuple(options))

    def sequence(self, depth: int) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            item = self.item(depth)
            if item is not None:
                items.append(self.quantified(item))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def quantified(self, item: Node) -> Node:
        match = _QUANTIFIER.match(self.pattern, self.at)
        if match is None:
            if _FUZZY.match(self.pattern, self.at):
                self.refuse()
            return item
        if isinstance(item, (Assertion, Ahead, Behind)):
            self.refuse()
        self.at = match.end()
        mode = self.pattern[self.at : self.at + 1]
        if mode and mode in "?+":
            self.at += 1
        else:
            mode = ""
        low, high = _bounds(match.group())
        return Repeat(item, low, high, mode)

    def item(self, depth: int) -> Node | None:
        char = self.pattern[self.at]
        if char == "(":
            return self.group(depth)
        if char == "\\":
            return self.escape()
        if char == "[":
            return self.char_class()
        if char in "*+?":
            self.refuse()
        self.at += 1
        if char == ".":
            return Atom(".")
        if char in "^$":
            return Assertion(char, "start" if char == "^" else "end")
        # `{` and `}` are plain where they are no quantifier; `quantified` has looked already.
        return Atom(re.escape(char), char)

    def group(self, depth: int) -> Node | None:
        if self.peek("(?#"):
            end = self.pattern.find(")", self.at)
            self.at = end + 1
            return None
        for opening, negative in (("(?=", False), ("(?!", True)):
            if self.peek(opening):
                self.at += len(opening)
                return Ahead(self.body(depth), negative)
        for opening in ("(?<=", "(?<!"):
            if self.peek(opening):
                return self.behind(opening, depth)
        named = _NAMED_GROUP.match(self.pattern, self.at)
        scoped = _SCOPED_FLAGS.match(self.pattern, self.at)
        if named:
            self.at = named.end()
            return Group(f"(?P<{named[1]}>", self.body(depth), named[1])
        if scoped:
            self.at = scoped.end()
            return Group(scoped.group(), self.body(depth))
        for opening in ("(?:", "(?>"):
            if self.peek(opening):
                self.at += len(opening)
                return Group(opening, self.body(depth))
        if self.peek("(?") or self.peek("(*"):
            self.refuse()
        self.at += 1  # a numbered group: nobody can ask for it, so its number need not be kept
        return Group("(?:", self.body(depth))

    def body(self, depth: int) -> Node:
        node = self.alternatives(depth + 1)
        if not self.peek(")"):
            self.refuse()
        self.at += 1
        return node

    def behind(self, opening: str, depth: int) -> Node:
        start = self.at
        self.at += len(opening)
        item = self.body(depth)
        if not _plain(item):
            self.refuse()
        return Behind(self.pattern[start : self.at], item)

    def escape(self) -> Node:
        char = self.pattern[self.at + 1 : self.at + 2]
        start = self.at
        self.at += 2
        if char in _CLASS_ESCAPES:
            return Atom(self.pattern[start : self.at])
        if char in _CHAR_ESCAPES:
            return Atom(self.pattern[start : self.at], _CHAR_ESCAPES[char])
        if char in _HEX_ESCAPES:
            self.at += _HEX_ESCAPES[char]
            digits = self.pattern[start + 2 : self.at]
            if re.fullmatch(r"[0-9a-fA-F]+", digits) is None:
                self.refuse()
            return Atom(self.pattern[start : self.at], chr(int(digits, 16)))
        if char and char in "pP" and self.peek("{"):
            self.at = self.pattern.find("}", self.at) + 1
            return Atom(self.pattern[start : self.at])
        kinds = {"b": "word", "B": "word", "A": "start", "Z": "stop"}
        if char in kinds:
            return Assertion(self.pattern[start : self.at], kinds[char])
        if not char or char.isalnum():
            self.at = start
            self.refuse()
        return Atom(re.escape(char), char)

    def char_class(self) -> Node:
        start = self.at
        self.at += 1
        if self.peek("^"):
            self.at += 1
        first = True
        while first or not self.peek("]"):
            first = False
            if self.at >= len(self.pattern):
                self.refuse()
            if self.peek("[:"):
                self.at = self.pattern.find(":]", self.at) + 2
                if self.at < 2:
                    self.at = start
                    self.refuse()
                continue
            self.at += 2 if self.peek("\\") else 1
        self.at += 1
        return Atom(self.pattern[start : self.at])


def _bounds(quantifier: str) -> tuple[int, int | None]:
    if quantifier in "*+?":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[quantifier]
    low, comma, high = quantifier[1:-1].partition(",")
    least = int(low or 0)
    return least, (int(high) if high else None) if comma else least


def _plain(node: Node) -> bool:
    """Whether a look-behind's body only eats characters (or tests for the start of the text)."""
    match node:
        case Atom():
            return True
        case Assertion():
            return node.kind == "start"
        case Seq():
            return all(_plain(item) for item in node.items)
        case Alt():
            return all(_plain(option) for option in node.options)
        case Group() | Repeat():
            return _plain(node.item)
        case _:
            return False
