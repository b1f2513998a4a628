"""Texts as few tokens: how the shortest end of an answer is cut.

Any cut of a legal text into tokens is legal, since masks look at bytes only. The fewest tokens are
found by dynamic programming from the end over the vocabulary's byte trie. Free characters
(``Fill``) are chosen to suit: a long run is made of the longest plain token there is.

Invariant: the tokens spell the text, and no cut of the same text has fewer. Read next:
``distance.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from grammar.endings import Fill, Piece

if TYPE_CHECKING:
    from grammar.vocabulary import Vocabulary

MAX_INLINE = 64
"""So many free characters are cut together with the text around them."""


class Speller:
    """Cuts texts into the tokens of one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._fillers: list[bytes] = []
        single = {text for text in vocabulary.tokens if len(text) == 1}
        self._lacking = bytes(byte for byte in range(256) if bytes((byte,)) not in single)
        lengths = vocabulary.plain_lengths
        self._has_letters = any(
            vocabulary.tokens[i].isascii() for i in (lengths == 1).nonzero()[0].tolist()
        )

    def spells(self, pieces: Iterable[Piece]) -> bool:
        """Whether the vocabulary can spell each of some parts; then no cut of them all together
        has more tokens than bytes. Quick, but where a byte is no token by itself."""
        return all(
            len(piece.translate(None, self._lacking)) == len(piece)
            or self._fewest(piece) is not None
            if isinstance(piece, bytes)
            else isinstance(piece, int) or not piece.size or self._has_letters
            for piece in pieces
        )

    def cut(self, pieces: Iterable[Piece]) -> list[int] | None:
        """The tokens of a text; None where the vocabulary can't spell it."""
        tokens: list[int] = []
        text = bytearray()
        for piece in pieces:
            if isinstance(piece, bytes):
                text += piece
            elif isinstance(piece, Fill) and piece.size <= MAX_INLINE:
                text += self._filler(piece.size)
            else:
                before = self._fewest(bytes(text))
                if before is None:
                    return None
                tokens += before
                text.clear()
                if isinstance(piece, Fill):
                    longest = self._vocabulary.filler
                    if longest is None:
                        return None
                    whole, rest = divmod(piece.size, len(self._vocabulary.tokens[longest]))
                    tokens += [longest] * whole
                    text += self._filler(min(rest, MAX_INLINE)) + b"a" * (rest - MAX_INLINE)
                else:
                    tokens.append(piece)
        last = self._fewest(bytes(text))
        return None if last is None else tokens + last

    def _fewest(self, text: bytes) -> list[int] | None:
        """The fewest tokens that spell a text; of several cuts the one with longer tokens first."""
        visit = self._vocabulary.trie.visit
        size = len(text)
        counts = [0] * (size + 1)
        chosen: list[tuple[int, int]] = [(0, 0)] * size
        unreachable = size + 1
        for begin in range(size - 1, -1, -1):
            best, found = unreachable, (0, 0)
            node, at = 0, begin
            while at < size:
                child = visit(node)[0].get(text[at])
                if child is None:
                    break
                node, at = child, at + 1
                ids = visit(node)[1]
                if ids and counts[at] + 1 <= best:
                    best, found = counts[at] + 1, (at, ids[0])
            counts[begin], chosen[begin] = best, found
        if size and counts[0] >= unreachable:
            return None
        tokens, at = [], 0
        while at < size:
            at, token = chosen[at]
            tokens.append(token)
        return tokens

    def _filler(self, count: int) -> bytes:
        """So many ASCII characters, at most ``MAX_INLINE``, as few of the plain tokens."""
        if not self._fillers:
            self._fillers = self._cheapest_fillers()
        return self._fillers[count]

    def _cheapest_fillers(self) -> list[bytes]:
        """By length, a text that as few plain tokens as possible spell."""
        vocabulary = self._vocabulary
        texts: dict[int, bytes] = {}
        for i in vocabulary.plain_lengths.nonzero()[0].tolist():
            text = vocabulary.tokens[i]
            if len(text) <= MAX_INLINE and text.isascii():
                texts.setdefault(len(text), text)
        made: list[tuple[int, bytes]] = [(0, b"")]
        for count in range(1, MAX_INLINE + 1):
            ways = (
                (made[count - size][0] + 1, made[count - size][1] + text)
                for size, text in sorted(texts.items(), reverse=True)
                if size <= count
            )
            fallback = (made[-1][0] + 1, made[-1][1] + b"a")
            made.append(min(ways, key=lambda way: way[0], default=fallback))
        return [text for _, text in made]
