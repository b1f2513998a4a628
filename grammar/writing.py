"""How the values of a schema are written: plain JSON, or JSON within a text with delimiters.

The schema compiler decides what values there may be (specs); a ``Writer`` makes terminals of the
scalar ones and spells the keys. Within a region of a chat turn some texts must not occur, since
they end the region: there strings without them are left (``adapt``), and fixed texts that hold one
are spelled with an escape.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from json.encoder import encode_basestring

from grammar.charset import CharSet
from grammar.content import Content, Excluding, Without
from grammar.nodes import Node, Terminal
from grammar.regular import RegexBuilder, Rx
from grammar.schema.merge import ExtractSpec, NumberSpec, Spec, StringSpec, WordsSpec
from grammar.schema.objects import ObjectSpec
from grammar.text import OneOf
from grammar.workspace import Workspace

MANY_WORDS = 2000
MANY_BYTES = 50_000
"""Longer enumerations are kept as a list and not as a trie, which takes some 400 bytes for each."""


class Writer:
    """Plain JSON."""

    #: Whether what is written can be read as JSON, so that items can be compared.
    compares = True

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def adapt(self, spec: Spec) -> Spec | None:
        """What of a spec can be written so; None if nothing can."""
        return spec

    def key(self, name: str) -> bytes:
        """A declared key, between its quotes."""
        return encode_basestring(name)[1:-1].encode()

    def scalar(self, spec: WordsSpec | StringSpec | ExtractSpec | NumberSpec) -> Node:
        """The terminal of a scalar."""
        workspace = self.workspace
        if isinstance(spec, ExtractSpec):
            return Terminal(spec.terminal, spec.terminal.start())
        if isinstance(spec, WordsSpec):
            return words_of(workspace, spec.texts)
        if isinstance(spec, StringSpec):
            strings = workspace.strings()
            return Terminal(strings, strings.start(spec.content))
        return Terminal(workspace.ascii, workspace.ascii.start(spec.language))


class GuardedWriter(Writer):
    """JSON in which none of some texts occurs.

    Args:
        barred: the texts, as they would stand in the JSON text; none holds a quote or a backslash.
    """

    def __init__(self, workspace: Workspace, barred: Sequence[str]) -> None:
        super().__init__(workspace)
        self.barred = tuple(barred)
        self.guard = _without_spelled(workspace.builder, self.barred)

    def adapt(self, spec: Spec) -> Spec | None:
        if not self.barred:
            return spec
        if isinstance(spec, StringSpec):
            content = self.content(spec.content)
            return StringSpec(content) if self._possible(content) else None
        if isinstance(spec, ExtractSpec):
            encoded = spec.terminal.passages.encoded
            if not any(barred.encode() in encoded for barred in self.barred):
                return spec
            terminal = spec.within(self.guard)
            return None if terminal is None else replace(spec, terminal=terminal)
        if isinstance(spec, ObjectSpec) and spec.extras:
            extras = (replace(e, content=self.content(e.content)) for e in spec.extras)
            return replace(spec, extras=tuple(e for e in extras if self._possible(e.content)))
        return spec

    def _possible(self, content: Content) -> bool:
        return self.workspace.strings().is_possible(content)

    def content(self, content: Content) -> Content:
        """A string's content without the barred texts."""
        builder = self.workspace.builder
        language = content.language
        if language is None:
            return content._replace(language=self.guard)
        if isinstance(language, Excluding):
            language = builder.complement(builder.literals(language.words))
        if isinstance(language, Without):
            words = builder.literals(language.rest.words)
            assert isinstance(language.language, Rx)
            language = builder.difference(language.language, words)
        assert isinstance(language, Rx)
        return content._replace(language=builder.intersect(language, self.guard))

    def key(self, name: str) -> bytes:
        return self.spelled(name)[1:-1].encode()

    def spelled(self, text: str) -> str:
        """A string as JSON in which no barred text occurs."""
        written = encode_basestring(text)
        firsts = {barred[0] for barred in self.barred if barred in written}
        if firsts:
            firsts |= {char for char, letter in _SHORT.items() if letter in firsts}
            written = _escaped(text, lambda char: char in firsts)
        if any(barred in written for barred in self.barred):
            written = _escaped(text, lambda char: True)
        return written

    def _text(self, text: str) -> str:
        return self.spelled(json.loads(text)) if text.startswith('"') else text

    def scalar(self, spec: WordsSpec | StringSpec | ExtractSpec | NumberSpec) -> Node:
        if isinstance(spec, WordsSpec):
            return words_of(self.workspace, tuple(map(self._text, spec.texts)))
        return super().scalar(spec)


def words_of(workspace: Workspace, texts: tuple[str, ...]) -> Terminal:
    """One of some fixed texts."""
    encoded = tuple(text.encode() for text in texts)
    if len(encoded) > MANY_WORDS or sum(map(len, encoded)) > MANY_BYTES:
        many = workspace.shared(("one of", encoded), lambda: OneOf(encoded, last=False))
        return Terminal(many, many.start())
    words = workspace.words(workspace.trie(encoded))
    return Terminal(words, words.start())


def _escaped(text: str, chosen: Callable[[str], bool]) -> str:
    """A string as JSON, with the chosen characters as escapes."""
    parts = []
    for char in text:
        if chosen(char):
            units = char.encode("utf-16-be").hex()
            parts += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
        else:
            parts.append(encode_basestring(char)[1:-1])
    return '"' + "".join(parts) + '"'


_SHORT = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_HEX = frozenset("0123456789abcdefABCDEF")
EXACT = 0x250
"""The first character behind Latin script (Unicode blocks up to Latin Extended-B)."""


def _without_spelled(builder: RegexBuilder, texts: Sequence[str]) -> Rx:
    """The strings in whose spelling no text can occur, whatever escapes are chosen.

    A text may begin within an escape: ``functools`` in ``\\functools`` (a form feed and more), or
    ``Action`` in ``\\u000Action``. Where one or two digits of an escape count, all characters past
    ``EXACT`` are taken to have them: those that do are thousands, each of them a transition of
    every state, which would take seconds to step, and no text has one before ``ction``.
    """
    found = [builder.literal(text) for text in texts]
    for text in texts:
        for char, letter in _SHORT.items():
            if text[0] == letter:
                found.append(builder.literal(char + text[1:]))
        for digits in range(1, min(5, len(text))):
            if not _HEX.issuperset(text[:digits]):
                break
            step, low = 16**digits, int(text[:digits], 16)
            last = EXACT if digits <= 2 else 0x10000
            codes = CharSet((code, code) for code in range(low, last, step))
            codes |= CharSet.span(last, 0x10FFFF)  # past 0xFFFF an escape ends in half a pair
            found.append(builder.concat(builder.chars(codes), builder.literal(text[digits:])))
    everything = builder.universe
    return builder.complement(builder.concat(everything, builder.union(*found), everything))


def without(builder: RegexBuilder, texts: Sequence[str]) -> Rx:
    """All texts in which none of some occurs."""
    if not texts:
        return builder.universe
    found = builder.concat(builder.universe, builder.literals(texts), builder.universe)
    return builder.complement(found)
