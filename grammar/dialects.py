"""JSON as some chat formats write it: other quotes, bare keys, strings between marks, Python words.

==========  =====================================================================================
JSON        JSON
``marks``   strings also between marks, ``<escape>text<escape>``: any text without them
``python``  strings also in single quotes; ``True``, ``False``, ``None`` beside JSON's words
==========  =====================================================================================

Keys may be bare (``{city:1}``) or in single quotes; an object has them all alike, so that is a part
of the style. Undeclared keys are always written as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grammar.automaton import Automaton
from grammar.charset import CharSet
from grammar.content import Content
from grammar.marks import TEXT, Marks
from grammar.nodes import Closure, Context, Node, Stack
from grammar.regular import RegexBuilder, Rx
from grammar.safe import Even
from grammar.schema.merge import ExtractSpec, NumberSpec, Spec, StringSpec, WordsSpec
from grammar.strings import JsonStrings
from grammar.style import COMPACT, FIXED, Style
from grammar.walk import Free
from grammar.workspace import Workspace
from grammar.writing import GuardedWriter, without, words_of

_BARE = re.compile(r"\w+", re.ASCII)
_PYTHON_WORDS = {"true": "True", "false": "False", "null": "None"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What may be written beyond JSON.

    Attributes:
        bare_keys: keys may stand without quotes, if they are words.
        marks: pairs of texts around strings of plain text.
        python: single-quoted strings with escapes, and Python's words; whole numbers only up to
            what a double holds.
    """

    bare_keys: bool = False
    marks: tuple[tuple[str, str], ...] = ()
    python: bool = False

    def styles(self, names: Iterable[str], usual: Sequence[Style]) -> tuple[Style, ...]:
        """How a value is written whose objects have keys of these names."""
        if not (self.bare_keys or self.python or self.marks):
            return tuple(usual)
        plain = all(map(_BARE.fullmatch, names))
        quotes = [b"'"] if plain and (self.python or ("'", "'") in self.marks) else []
        if plain and self.bare_keys:
            quotes = [b""]
        found = list(usual) if not self.bare_keys else [COMPACT, FIXED]
        for quote in quotes:
            shown = quote.decode() or "bare"
            found += [replace(s, name=f"{s.name} {shown}", quote=quote) for s in (COMPACT, FIXED)]
        return tuple(found)


class DialectWriter(GuardedWriter):
    """Writes values in a dialect, without some texts."""

    def __init__(
        self, workspace: Workspace, barred: Sequence[str], dialect: Dialect, marks: Marks
    ) -> None:
        super().__init__(workspace, barred)
        self._dialect = dialect
        self.compares = not (dialect.bare_keys or dialect.marks or dialect.python)
        self._marks = marks
        self._numbers = _python_numbers(workspace.builder) if dialect.python else None
        self.names: set[str] = set()

    def adapt(self, spec: Spec) -> Spec | None:
        if self._numbers is not None:
            if isinstance(spec, NumberSpec):
                language = self.workspace.builder.intersect(spec.language, self._numbers)
                return None if language.is_empty() else NumberSpec(language)
            if isinstance(spec, WordsSpec):
                texts = tuple(filter(_python_reads, spec.texts))
                return WordsSpec(texts) if texts else None
        return super().adapt(spec)

    def key(self, name: str) -> bytes:
        self.names.add(name)
        return super().key(name)

    def scalar(self, spec: WordsSpec | StringSpec | ExtractSpec | NumberSpec) -> Node:
        workspace, dialect = self.workspace, self._dialect
        if isinstance(spec, NumberSpec | ExtractSpec):
            return super().scalar(spec)
        found: list[tuple[Automaton, int]] = []
        if isinstance(spec, WordsSpec):
            texts = list(map(self._text, spec.texts))
            if dialect.python:
                texts += [_PYTHON_WORDS[t] for t in spec.texts if t in _PYTHON_WORDS]
                texts += [_single_quoted(t) for t in texts if t.startswith('"')]
            node = words_of(workspace, tuple(t for t in dict.fromkeys(texts) if self._fits(t)))
            found.append((node.automaton, node.state))
        else:
            strings = workspace.strings()
            found.append((strings, strings.start(spec.content)))
            if dialect.python:
                found.append(self._quoted(spec.content))
        for opening, closing in dialect.marks:
            language = self._between(opening, closing, spec)
            if not language.is_empty():
                text = workspace.marked_text(self._marks.ids, last=False)
                found.append((text, text.start(Content(language, 0, None))))
        return Terminals(found)

    def _fits(self, text: str) -> bool:
        return not any(barred in text for barred in self.barred)

    def _quoted(self, content: Content) -> tuple[Automaton, int]:
        workspace = self.workspace
        strings = workspace.shared(
            ("single-quoted",), lambda: SingleQuoted(workspace.builder, workspace.longest_token)
        )
        return strings, strings.start(content)

    def _between(self, opening: str, closing: str, spec: WordsSpec | StringSpec) -> Rx:
        """The marked spellings of a string."""
        builder = self.workspace.builder
        if isinstance(spec, WordsSpec):
            texts = [json.loads(t) for t in spec.texts if t.startswith('"')]
            body = builder.literals(texts)
        else:
            body = language_of(builder, spec.content)
        plain = builder.star(builder.chars(TEXT))
        barred = without(builder, (opening, closing, *self.barred))
        return builder.concat(
            self._marks.language(builder, opening),
            builder.intersect(body, plain, barred),
            self._marks.language(builder, closing),
        )


class Terminals(Node):
    """One of several terminals."""

    def __init__(self, terminals: Sequence[tuple[Automaton, int]]) -> None:
        self.terminals = tuple(terminals)

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        for automaton, state in self.terminals:
            context.leaf(automaton, state, stack, out)


class SingleQuoted(JsonStrings):
    """Strings in single quotes, with JSON's escapes and ``\\'``. Keys as in ``JsonStrings``."""

    def __init__(self, builder: RegexBuilder, longest_token: int) -> None:
        super().__init__(builder, longest_token, b'"', b'"')
        self._opening = self._closing = b"'"

    def _in_body(self, content: Content, byte: int) -> Hashable | None:
        if byte == 0x27:
            return ("close", 1) if self._complete(content) else None
        if byte == 0x22:
            return self._begin_character(content, byte)
        return super()._in_body(content, byte)

    def _in_escape(self, content: Content, byte: int) -> Hashable | None:
        if byte != 0x27:
            return super()._in_escape(content, byte)
        target = self._target(content, byte)
        return None if target is None else ("body", target)

    exceptions = (*range(0x20), 0x22, 0x27, 0x5C)

    def candidates(self, key: Any) -> Iterable[int] | None:
        return (
            (*(super().candidates(key) or ()), 0x27)
            if key[0] == "escape"
            else super().candidates(key)
        )

    # What is known at once of JSON strings does not hold where other quotes end them.

    def even(self, key: Any) -> Even | None:
        return None

    def safe(self, key: Any) -> tuple[int, int] | None:
        return None

    def loops(self, state: int) -> bool:
        return False

    def free(self, key: Any) -> Free | None:
        return None


def language_of(builder: RegexBuilder, content: Content) -> Rx:
    """A content as one language, its lengths included."""
    language, least, most = content
    assert language is None or isinstance(language, Rx), "strings have regular languages"
    found = builder.universe if language is None else language
    if least or most is not None:
        found = builder.intersect(found, builder.repeat(builder.any_char, least, most))
    return found


def _single_quoted(text: str) -> str:
    """A JSON string in single quotes."""
    body = text[1:-1].replace("'", "\\'").replace('\\"', '"')
    return f"'{body}'"


def _python_reads(text: str) -> bool:
    """Whether a JSON scalar is one for a reader of Python's spelling: no number too large."""
    value = json.loads(text)
    if isinstance(value, float):
        return abs(value) < 1e100
    return not isinstance(value, int) or abs(value) < 10**15


def _python_numbers(builder: RegexBuilder) -> Rx:
    digit = builder.chars(CharSet.span("0", "9"))
    sign = builder.optional(builder.literal("-"))
    fraction = builder.concat(builder.literal("."), builder.repeat(digit, 1, None))
    exponent = builder.concat(
        builder.chars(CharSet.of("eE")),
        builder.optional(builder.chars(CharSet.of("+-"))),
        builder.repeat(digit, 1, 2),
    )
    return builder.concat(
        sign, builder.repeat(digit, 1, 15), builder.optional(fraction), builder.optional(exponent)
    )
