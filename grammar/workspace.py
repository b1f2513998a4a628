"""What all grammars on one vocabulary share: terminals, their walks, and regular languages.

Terminals are interned by structure, so two schemas that both have a free string, or the same
property names, share the automaton and every walk that was ever made of it. Memory is bounded by
generations: when the terminals outgrow the limit the tables start afresh; grammars that hold old
terminals go on with them and drop them when they die.

Locking: everything here is filled on demand by whichever thread needs it, under ``lock``. Look-ups
of what is there already (a known mask, a known edge) happen in ``machine.py`` without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, TypeVar

from grammar.automaton import Automaton, RegularAscii, Words, WordTrie
from grammar.content import Content, Excluding
from grammar.keys import KeyStrings
from grammar.regular import RegexBuilder, Rx
from grammar.strings import JsonStrings
from grammar.style import MAX_BLANKS

if TYPE_CHECKING:
    from grammar.vocabulary import Vocabulary

DEFAULT_LIMIT = 192 << 20
A = TypeVar("A", bound=Automaton)


class Workspace:
    """Terminals of one vocabulary (``Vocabulary.workspace``); all methods need ``lock`` held."""

    def __init__(self, vocabulary: Vocabulary, limit_bytes: int = DEFAULT_LIMIT) -> None:
        self.longest_token = vocabulary.longest
        self.limit_bytes = limit_bytes
        self.lock = threading.RLock()
        self.generation = 0
        self.begin_generation()

    def begin_generation(self) -> None:
        """Forget all terminals; what still uses the old ones keeps them alive."""
        self.generation += 1
        self.builder = RegexBuilder()
        self.languages: dict[Hashable, object] = {}
        self._automata: dict[Hashable, Automaton] = {}
        self._tries: dict[tuple[bytes, ...], WordTrie] = {}
        self._ascii = RegularAscii()

    def trim(self) -> None:
        """Begin a new generation if the terminals have outgrown the limit."""
        if self.memory_bytes() > self.limit_bytes:
            self.begin_generation()

    def memory_bytes(self) -> int:
        """An estimate of what the terminals of this generation hold, in bytes."""
        return sum(a.memory_bytes() for a in (self._ascii, *self._automata.values()))

    def _intern(self, key: Hashable, make: Callable[[], A]) -> A:
        found = self._automata.get(key)
        if found is None:
            found = self._automata[key] = make()
        return found  # type: ignore[return-value]  # the key names the class

    @property
    def ascii(self) -> RegularAscii:
        """The one automaton of all ASCII languages (numbers, gaps)."""
        return self._ascii

    def gap(self) -> Rx:
        """The bounded white space of the flexible style."""
        found = self.languages.get("gap")
        if found is None:
            builder = self.builder
            blank = builder.union(builder.literal(" "), builder.literal("\t"))
            line = builder.union(builder.literal("\n"), builder.literal("\r\n"))
            found = builder.concat(builder.repeat(line, 0, 2), builder.repeat(blank, 0, MAX_BLANKS))
            self.languages["gap"] = found
        assert isinstance(found, Rx)
        return found

    def trie(self, words: tuple[bytes, ...]) -> WordTrie:
        """The trie of some distinct words."""
        found = self._tries.get(words)
        if found is None:
            found = self._tries[words] = WordTrie(words)
        return found

    def words(self, trie: WordTrie, opening: bytes = b"", closing: bytes = b"") -> Words:
        """``opening`` + a word of the trie + ``closing``. The trie must come from ``trie()``."""
        key = (id(trie), opening, closing)
        return self._intern(key, lambda: Words(trie, opening, closing))

    def literal(self, text: bytes) -> Words:
        """One fixed byte string."""
        return self.words(self.trie((text,)))

    def keys(self, opening: bytes, closing: bytes) -> KeyStrings:
        """Undeclared keys between ``opening`` and ``closing``, told apart by their text."""
        return self._intern(
            ("keys", opening, closing),
            lambda: KeyStrings(self.builder, self.longest_token, opening, closing),
        )

    def excluding(self, content: Content, seen: frozenset[str]) -> Content:
        """The content without some words."""
        if not seen:
            return content
        key = ("without", content, seen)
        found = self.languages.get(key)
        if found is None:
            found = self.languages[key] = self._excluding(content, seen)
        assert isinstance(found, Content)
        return found

    def _excluding(self, content: Content, seen: frozenset[str]) -> Content:
        language = content.language
        if language is None:
            return content._replace(language=Excluding(sorted(seen)))
        if isinstance(language, Excluding):
            return content._replace(language=Excluding(sorted({*language.words, *seen})))
        assert isinstance(language, Rx)
        words = self.builder.literals(sorted(seen))
        return content._replace(language=self.builder.difference(language, words))

    def strings(self, opening: bytes = b'"', closing: bytes = b'"') -> JsonStrings:
        """JSON strings between ``opening`` and ``closing``, which hold the quotes."""
        return self._intern(
            ("strings", opening, closing),
            lambda: JsonStrings(self.builder, self.longest_token, opening, closing),
        )
