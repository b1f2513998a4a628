"""Packed masks: uint32[ceil(V/32)], bit ``i`` of word ``w`` being token ``32*w + i``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]
_ONE = np.uint32(1)


def pack_bool(flags: npt.NDArray[np.bool_]) -> Mask:
    """bool[V] -> uint32[ceil(V/32)]."""
    padded = np.zeros((len(flags) + 31) // 32 * 32, dtype=bool)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def set_bits(mask: Mask, ids: npt.NDArray[np.int32]) -> None:
    """Add some tokens to a mask."""
    bits = np.left_shift(_ONE, (ids & 31).astype(np.uint32))
    np.bitwise_or.at(mask, ids >> 5, bits)


def without_tokens(mask: Mask, tokens: Iterable[int]) -> Mask:
    """A read-only copy of a mask without some tokens."""
    left = mask.copy()
    for token in tokens:
        left[token >> 5] &= np.uint32(0xFFFFFFFF ^ 1 << (token & 31))
    left.flags.writeable = False
    return left


class FewTokens:
    """A mask of few tokens, which is made again from their list when it was dropped.

    ``listed``: int32[n], the tokens in any order, some perhaps twice; ``mask``: theirs, or None.
    """

    __slots__ = ("_ids", "listed", "mask")

    def __init__(self, listed: npt.NDArray[np.int32]) -> None:
        self.listed = listed
        self.mask: Mask | None = None
        self._ids: npt.NDArray[np.int32] | None = None

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """The tokens, ascending, each once; read-only."""
        if self._ids is None:
            ids = np.unique(self.listed)
            ids.flags.writeable = False
            self._ids = ids
        return self._ids

    def make(self, words: int) -> Mask:
        """Make the mask: uint32[words], read-only."""
        mask = np.zeros(words, dtype=np.uint32)
        set_bits(mask, self.listed)
        mask.flags.writeable = False
        self.mask = mask
        return mask


class Lent:
    """The masks of few tokens: when there are too many, the oldest are dropped.

    Args:
        words: length of a mask.
        limit_bytes: what they may take together.
    """

    def __init__(self, words: int, limit_bytes: int) -> None:
        self._words = words
        self._most = max(1, limit_bytes // (4 * words))
        self._lent: deque[FewTokens] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes that they take now."""
        return 4 * self._words * len(self._lent)

    def mask(self, few: FewTokens) -> Mask:
        """The mask: uint32[words], read-only."""
        if few.mask is None:
            self._lent.append(few)
            if len(self._lent) > self._most:
                self._lent.popleft().mask = None
            return few.make(self._words)
        return few.mask
