"""The *plain* tokens of a vocabulary, those that can stand anywhere in the body of a JSON string.

A plain token is whole characters without quote, backslash or control character (RFC 8259, section
7). Which characters it holds is kept as masks, one for each character of ASCII and one for all
others together, so that all tokens of some characters are found by a few Boolean operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grammar.charset import CharSet
from grammar.masks import Mask, pack_bool
from grammar.safe import ODD, Even, bit_of

MAX_MASKS = 512
_BITS = (0, *range(0x20, 0x80))


class PlainTokens:
    """The plain tokens among V tokens.

    ``lengths``: int32[V], characters of a plain token, else 0; ``odd``: int32[n], the plain tokens
    with an odd character (see ``safe.py``).
    """

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self._size = len(tokens)
        self.lengths = _lengths(tokens)
        plain: list[int] = np.flatnonzero(self.lengths).tolist()
        data = np.frombuffer(b"".join(tokens[i] for i in plain), dtype=np.uint8)
        sizes = np.array([len(tokens[i]) for i in plain], dtype=np.int64)
        owners = np.repeat(np.array(plain, dtype=np.int32), sizes)
        firsts = (np.cumsum(sizes) - sizes)[sizes > 0]
        bits = np.array([bit_of(byte) for byte in range(256)], dtype=np.uint8)[data]
        odd = CharSet(ODD)
        beyond = np.unique(owners[bits == 0]).tolist()
        self.odd = np.array(
            [i for i in beyond if any(ord(c) in odd for c in tokens[i].decode())], dtype=np.int32
        )
        self._tame = self.lengths > 0
        self._tame[self.odd] = False
        self._holding = np.stack([self._pack(owners[bits == bit]) for bit in _BITS])
        self._starting = np.stack(
            [self._pack(owners[firsts[bits[firsts] == bit]]) for bit in _BITS]
        )
        self._tame_mask = pack_bool(self._tame)
        self._within: dict[int, Mask] = {}
        self._short: dict[int, Mask] = {}

    def _pack(self, ids: npt.NDArray[np.int32]) -> Mask:
        flags = np.zeros(self._size, dtype=bool)
        flags[ids] = True
        return pack_bool(flags)

    def wild(self) -> npt.NDArray[np.bool_]:
        """bool[V]: the tokens that are not plain, or odd."""
        return ~self._tame

    def staying(self, even: Even) -> Mask:
        """The plain tokens without odd characters that stay: uint32[ceil(V/32)], read-only."""
        mask = self._of(even.rest)
        if even.first != even.rest:
            mask = mask & np.bitwise_or.reduce(self._starting[_rows(even.first)], axis=0)
        if even.depth < int(self.lengths.max(initial=0)):
            short = self._short.get(even.depth)
            if short is None:
                short = self._short[even.depth] = pack_bool(self.lengths <= even.depth)
            mask = mask & short
        mask.flags.writeable = False
        return mask

    def _of(self, chars: int) -> Mask:
        """Those all of whose characters are in a set."""
        found = self._within.get(chars)
        if found is None:
            if len(self._within) >= MAX_MASKS:
                self._within.clear()
            others = np.bitwise_or.reduce(self._holding[_rows(~chars)], axis=0)
            found = self._within[chars] = self._tame_mask & ~others
        return found


def _rows(chars: int) -> list[int]:
    return [row for row, bit in enumerate(_BITS) if chars >> bit & 1]


def _lengths(tokens: Sequence[bytes]) -> npt.NDArray[np.int32]:
    lengths = np.zeros(len(tokens), dtype=np.int32)
    for i, token in enumerate(tokens):
        if not token or min(token) < 0x20 or b'"' in token or b"\\" in token:
            continue
        try:
            lengths[i] = len(token) if token.isascii() else len(token.decode())
        except UnicodeDecodeError:
            continue
    return lengths


_BEGINNINGS = frozenset((b"", b'"', b"{", b"[", b'{"'))


def item_tokens(tokens: Sequence[bytes]) -> dict[tuple[bool, bool], Mask]:
    """Tokens that may end an array's item and begin another: uint32[ceil(V/32)] by two questions.

    Whether the token begins within a string, which must end first; and whether only those are
    meant that have more of the next item than its first bracket or quote.
    """
    cases = (False, True)
    flags = {(i, b): np.zeros(len(tokens), dtype=bool) for i in cases for b in cases}
    for token, text in enumerate(tokens):
        if b"," not in text:
            continue
        parts = text.split(b",")
        rests = (b",".join(parts[at:]).strip(b" \t\r\n") for at in range(1, len(parts)))
        begun = any(rest not in _BEGINNINGS for rest in rests)
        behind_quote = b"," in text.partition(b'"')[2]
        flags[False, False][token] = True
        flags[False, True][token] = begun
        flags[True, False][token] = behind_quote
        flags[True, True][token] = begun and behind_quote
    return {key: pack_bool(each) for key, each in flags.items()}
