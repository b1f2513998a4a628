"""What all grammars on one vocabulary share: terminals, their walks, and regular languages.

Terminals are interned by structure, so two schemas that both have a free string, or the same
property names, share the automaton and every walk that was ever made of it. Memory is bounded by
generations: when the terminals outgrow the limit the vocabulary gets a new workspace; grammars go
on with the one they were compiled in (regular languages of two builders must never meet) and drop
it when they die.

Locking: everything here is filled on demand by whichever thread needs it, under ``lock``, which a
compilation gives up for a while where others wait (see ``worklock.py``), so what is looked up and
not found may be there once it was made. Look-ups
of what is there already (a known mask, a known edge) happen in ``machine.py`` without it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from grammar.automaton import Automaton, RegularAscii
from grammar.content import Content, Excluding, Without
from grammar.keys import KeyStrings
from grammar.marks import MarkedText, TimedText
from grammar.masks import Lent, TokenSet
from grammar.regular import RegexBuilder, Rx
from grammar.strings import JsonStrings
from grammar.style import MAX_BLANKS
from grammar.text import OneToken, PlainText
from grammar.words import Words, WordTrie
from grammar.worklock import WorkLock

if TYPE_CHECKING:
    from grammar.bodies import FreeBodies
    from grammar.vocabulary import Vocabulary

DEFAULT_LIMIT = 128 << 20
"""Bytes that terminals, their walks and masks may take on one vocabulary before new grammars begin
a new generation. The old one goes with the last grammar or request that uses it."""
MANY_WORDS = 500
"""Making a trie of more words gives way to others in between."""
MAX_LENT_BYTES = 24 << 20
NODE_BYTES = 900
"""What a node of a regular language takes with what is known of it."""
A = TypeVar("A", bound=Automaton)


class Workspace:
    """Terminals of one vocabulary (``Vocabulary.workspace``); all methods need ``lock`` held."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        limit_bytes: int = DEFAULT_LIMIT,
        *,
        before: Workspace | None = None,
    ) -> None:
        self.longest_token = vocabulary.longest
        self._vocabulary_size = vocabulary.size
        self.limit_bytes = limit_bytes
        self.lock: WorkLock = WorkLock() if before is None else before.lock
        self._next_look = 0
        #: Set by the vocabulary; its own walks are forgotten with the generation before.
        self.bodies: FreeBodies | None = None if before is None else before.bodies
        if self.bodies is not None:
            self.bodies.forget()
        self.builder = RegexBuilder()
        self.languages: dict[Hashable, object] = {}
        #: What subschemas without parts mean (kept by the schema compiler).
        self.leaves: dict[Hashable, Any] = {}
        self._automata: dict[Hashable, Automaton] = {}
        self._tries: dict[tuple[bytes, ...], WordTrie] = {}
        self._ascii = RegularAscii()
        #: The tokens of masks by what they are made of; see ``keep``.
        self.sets: dict[Hashable, TokenSet] = {}
        self._set_bytes = 0
        #: The bits of masks.
        self.lent = Lent(vocabulary.mask_words, MAX_LENT_BYTES)

    def __del__(self) -> None:
        builder: RegexBuilder | None = getattr(self, "builder", None)
        if builder is not None:
            builder.release()

    def is_due(self) -> bool:
        """Whether the terminals have outgrown the limit, so that a new generation should begin.

        Asked before every compilation; since adding up takes time, it looks the more seldom the
        more room there is: at every 64th one, every 16th, or every fourth.
        """
        self._next_look -= 1
        if self._next_look <= 0:
            total = self.memory_bytes()
            used = total / self.limit_bytes
            self._next_look = 64 if used < 0.25 else 16 if used < 0.5 else 4
            return total > self.limit_bytes
        return False

    def memory_bytes(self) -> int:
        """An estimate of what the terminals of this generation hold, in bytes."""
        automata = sum(a.memory_bytes() for a in (self._ascii, *self._automata.values()))
        bodies = 0 if self.bodies is None else self.bodies.memory_bytes()
        tries = sum(trie.memory_bytes() for trie in self._tries.values())
        languages = NODE_BYTES * self.builder.node_count + 1000 * len(self.languages)
        return automata + tries + languages + bodies + self._set_bytes + self.lent.nbytes

    def keep(self, key: Hashable, tokens: TokenSet) -> None:
        """Share the tokens of a mask with all that are made of the same; in ``sets``."""
        self.sets[key] = tokens
        self._set_bytes += 300 + tokens.memory_bytes()

    def shared(self, key: Hashable, make: Callable[[], A]) -> A:
        """The terminal of a key (which tells its class), made if it is not there."""
        found = self._automata.get(key)
        if found is None:
            found = self._automata[key] = make()
        return found  # type: ignore[return-value]  # the key names the class

    @property
    def ascii(self) -> RegularAscii:
        """The one automaton of all ASCII languages (numbers, gaps)."""
        return self._ascii

    def marked(self, mark: str, *, before: bool, after: bool) -> Rx:
        """A punctuation mark between bounded gaps of the flexible style."""
        key = ("mark", mark, before, after)
        found = self.languages.get(key)
        if found is None:
            builder = self.builder
            blank = builder.union(builder.literal(" "), builder.literal("\t"))
            line = builder.union(builder.literal("\n"), builder.literal("\r\n"))
            gap = builder.concat(builder.repeat(line, 0, 2), builder.repeat(blank, 0, MAX_BLANKS))
            parts = [gap] * before + [builder.literal(mark)] + [gap] * after
            found = self.languages[key] = builder.concat(*parts)
        assert isinstance(found, Rx)
        return found

    def trie(self, words: tuple[bytes, ...]) -> WordTrie:
        """The trie of some distinct words."""
        found = self._tries.get(words)
        if found is None:
            made = WordTrie(words, self.builder.breathe if len(words) > MANY_WORDS else None)
            found = self._tries.setdefault(words, made)
        return found

    def words(self, trie: WordTrie, opening: bytes = b"", closing: bytes = b"") -> Words:
        """``opening`` + a word of the trie + ``closing``. The trie must come from ``trie()``."""
        key = (id(trie), opening, closing)
        return self.shared(key, lambda: Words(trie, opening, closing))

    def literal(self, text: bytes) -> Words:
        """One fixed byte string."""
        return self.words(self.trie((text,)))

    def keys(self, opening: bytes, closing: bytes) -> KeyStrings:
        """Undeclared keys between ``opening`` and ``closing``, told apart by their text."""
        return self.shared(
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
        if isinstance(language, Without):
            words = Excluding(sorted({*language.rest.words, *seen}))
            return content._replace(language=Without(language.language, words))
        return content._replace(language=Without(language, Excluding(sorted(seen))))

    def text(self, *, last: bool) -> PlainText:
        """Plain text; ``last``: nothing can follow it."""
        return self.shared(
            ("text", last), lambda: PlainText(self.builder, self.longest_token, last=last)
        )

    def marked_text(self, marks: Mapping[int, int], *, last: bool) -> MarkedText:
        """Plain text with characters that stand for tokens (``marks.py``)."""
        return self.shared(
            ("marked", last), lambda: MarkedText(self.builder, self.longest_token, marks, last=last)
        )

    def timed_text(self, marks: Mapping[int, int], closing: Rx) -> TimedText:
        """The same, before a closing delimiter that can be called for."""
        after = self.marked_text(marks, last=False)
        return self.shared(
            ("timed", closing),
            lambda: TimedText(self.builder, self.longest_token, marks, closing, after),
        )

    def token(self, ids: frozenset[int], *, but: bool) -> OneToken:
        """One of some tokens as a whole, or (``but``) any token except those."""
        return self.shared(
            ("token", ids, but), lambda: OneToken(ids, but=but, size=self._vocabulary_size)
        )

    def strings(self, opening: bytes = b'"', closing: bytes = b'"') -> JsonStrings:
        """JSON strings between ``opening`` and ``closing``, which hold the quotes."""
        return self.shared(
            ("strings", opening, closing),
            lambda: JsonStrings(self.builder, self.longest_token, opening, closing),
        )
