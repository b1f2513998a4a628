"""Terminals over plain text (no JSON, no quoting): a language as UTF-8, and one of many texts.

Invariant: what comes out is valid UTF-8. A terminal that is *last* (nothing can follow it) may end
at any byte where its language allows; walks then look for no exits, so that even free text costs
one shared mask.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from grammar.automaton import NOT_ACCEPTING, TOKENS, Automaton
from grammar.characters import CONTINUATION, Characters
from grammar.content import Content
from grammar.regular import RegexBuilder
from grammar.safe import Even

NARROW = 16
"""A state where at most this many characters may follow is walked byte by byte."""


class PlainText(Characters):
    """A language over characters, written as UTF-8.

    Args:
        last: whether nothing can follow the text.
    """

    def __init__(self, builder: RegexBuilder, longest_token: int, *, last: bool) -> None:
        super().__init__(builder, longest_token)
        self.is_last = last
        self._narrow: dict[Content, tuple[int, ...] | None] = {}

    def start(self, content: Content) -> int:
        """The state before the first character. The content must not be empty."""
        assert self.is_possible(content)
        return self.state(("body", self._simplify(content)))

    def successor(self, key: Any, byte: int) -> Hashable | None:
        if key[0] == "body":
            return self._begin_character(key[1], byte)
        return self._continue_character(key, byte)

    def label(self, key: Any) -> int:
        return 0 if key[0] == "body" and self._complete(key[1]) else NOT_ACCEPTING

    def candidates(self, key: Any) -> Iterable[int] | None:
        if key[0] != "body":
            return CONTINUATION
        content: Content = key[1]
        if content not in self._narrow:
            self._narrow[content] = self._first_bytes(content)
        return self._narrow[content]

    def _first_bytes(self, content: Content) -> tuple[int, ...] | None:
        """The bytes that a character may begin with, or None if there are many characters."""
        _, ranges = self._transitions(content)
        if sum(high - low + 1 for low, high, _ in ranges) > NARROW:
            return None
        found: set[int] = set()
        for low, high, _ in ranges:
            found.update(range(low, min(high, 0x7F) + 1))
            if high > 0x7F:
                found.update(range(_lead(max(low, 0x80)), _lead(high) + 1))
        return tuple(sorted(found))

    def representative(self, key: Any) -> Hashable:
        return self._saturated_key(key)

    # Whole tokens are taken unseen only where none of them could also be left half way.

    def even(self, key: Any) -> Even | None:
        return self._safety.even(key[1]) if self.is_last and key[0] == "body" else None

    def safe(self, key: Any) -> tuple[int, int] | None:
        return self._safety.of(key[1]) if self.is_last and key[0] == "body" else None


def _lead(char: int) -> int:
    """The first byte of a character above 0x7F in UTF-8."""
    if char < 0x800:
        return 0xC0 | char >> 6
    return 0xE0 | char >> 12 if char < 0x10000 else 0xF0 | char >> 18


class OneOf(Automaton):
    """Exactly one of some byte strings, and (``last``) then nothing.

    Key: ``(low, high, position)``: the words that fit so far are those with indices from ``low`` to
    before ``high`` in sorted order, and ``position`` bytes of them were read. Unlike a trie this
    costs nothing for words that nobody comes near, so there may be a great many.
    """

    def __init__(self, words: Sequence[bytes], *, last: bool = True) -> None:
        super().__init__()
        self.is_last = last
        self.words = tuple(sorted(words))
        assert self.words

    def start(self) -> int:
        """The state before the first byte."""
        return self.state((0, len(self.words), 0))

    def successor(self, key: tuple[int, int, int], byte: int) -> Hashable | None:
        _, high, position = key
        first = self._from(byte, key)
        last = self._from(byte + 1, (first, high, position))
        return (first, last, position + 1) if first < last else None

    def _from(self, byte: int, key: tuple[int, int, int]) -> int:
        """The first word whose next byte is ``byte`` or greater."""
        low, high, position = key

        def following(word: bytes) -> int:
            return word[position] if len(word) > position else -1

        return bisect_left(self.words, byte, low, high, key=following)

    def label(self, key: tuple[int, int, int]) -> int:
        low, _, position = key
        return 0 if len(self.words[low]) == position else NOT_ACCEPTING

    def candidates(self, key: tuple[int, int, int]) -> Iterable[int]:
        _, high, position = key
        found = []
        at = self._from(0, key)
        while at < high:
            byte = self.words[at][position]
            found.append(byte)
            at = self._from(byte + 1, (at, high, position))
        return found


class OneToken(Automaton):
    """One token as a whole, told by its id and not by its bytes (``<think>`` in a grammar).

    Besides bytes (0..255) a step can be a whole token, ``TOKENS + id``; only these terminals know
    such steps. Key: whether the token was read.

    Args:
        ids: the tokens.
        but: whether it is any token but these.
        size: how many tokens there are.
    """

    takes_tokens = True

    def __init__(self, ids: Iterable[int], *, but: bool, size: int) -> None:
        super().__init__()
        named = frozenset(ids)
        self._ids = frozenset(range(size)) - named if but else named

    def start(self) -> int:
        """The state before the token."""
        return self.state(False)

    def successor(self, key: bool, byte: int) -> Hashable | None:
        if key or byte < TOKENS:
            return None
        return True if byte - TOKENS in self._ids else None

    def label(self, key: bool) -> int:
        return 0 if key else NOT_ACCEPTING

    def candidates(self, key: bool) -> Iterable[int]:
        return ()

    def tokens(self, state: int) -> Collection[int]:
        return () if self.key(state) else self._ids
