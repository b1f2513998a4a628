"""Packed masks: uint32[ceil(V/32)], bit ``i`` of word ``w`` being token ``32*w + i``."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]
_ONE = np.uint32(1)
_WORD = np.dtype("<u4")
MANY = 40
"""So many bits are set one by one."""


def pack_bool(flags: npt.NDArray[np.bool_]) -> Mask:
    """bool[V] -> uint32[ceil(V/32)]."""
    padded = np.zeros((len(flags) + 31) // 32 * 32, dtype=bool)
    padded[: len(flags)] = flags
    return np.packbits(padded, bitorder="little").view("<u4").astype(np.uint32, copy=False)


def set_bits(mask: Mask, ids: npt.NDArray[np.int32]) -> None:
    """Add some tokens to a mask."""
    bits = np.left_shift(_ONE, (ids & 31).astype(np.uint32))
    np.bitwise_or.at(mask, ids >> 5, bits)


class TokenSet:
    """The tokens of a mask, from which its bits are made again when they were dropped.

    ``listed``: int32[n], tokens in any order, some perhaps twice; ``masks``: more of them, packed;
    ``without``: tokens that are not meant although they are among those; ``mask``: the bits of it
    all while they are there, else None.
    """

    __slots__ = ("_ids", "listed", "mask", "masks", "without")

    def __init__(
        self,
        listed: npt.NDArray[np.int32],
        masks: tuple[Mask, ...] = (),
        without: tuple[int, ...] = (),
    ) -> None:
        self.listed = listed
        self.masks = masks
        self.without = without
        self.mask: Mask | None = None
        self._ids: npt.NDArray[np.int32] | None = None

    @property
    def is_few(self) -> bool:
        """Whether all tokens are listed."""
        return not self.masks

    @property
    def is_empty(self) -> bool:
        """Whether there surely are none."""
        return not self.masks and not len(self.ids if self.without else self.listed)

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """The tokens, ascending, each once; read-only. Only where they are few."""
        assert not self.masks
        if self._ids is None:
            ids = np.unique(self.listed)
            if self.without:
                ids = np.setdiff1d(ids, np.array(self.without, dtype=np.int32))
            ids.flags.writeable = False
            self._ids = ids
        return self._ids

    def memory_bytes(self) -> int:
        """An estimate of what it takes without its bits and the masks that it refers to."""
        return 320 + 8 * len(self.masks) + self.listed.nbytes

    def make(self, words: int) -> Mask:
        """Make the mask: uint32[words], read-only."""
        masks = self.masks
        if len(self.listed) <= MANY:  # plain Python is faster than several calls of numpy
            octets = bytearray(masks[0]) if masks else bytearray(4 * words)
            for token in self.listed.tolist():
                octets[token >> 3] |= 1 << (token & 7)
            mask: Mask = np.frombuffer(octets, dtype=_WORD)
        else:
            mask = masks[0].copy() if masks else np.zeros(words, dtype=np.uint32)
            set_bits(mask, self.listed)
        for more in masks[1:]:
            mask |= more
        for token in self.without:
            mask[token >> 5] &= np.uint32(0xFFFFFFFF ^ 1 << (token & 31))
        mask.flags.writeable = False
        self.mask = mask
        return mask


class Lent:
    """The bits of masks: when there are too many, the oldest are dropped.

    Args:
        words: length of a mask.
        limit_bytes: what they may take together.
    """

    def __init__(self, words: int, limit_bytes: int) -> None:
        self._words = words
        self._most = max(1, limit_bytes // (4 * words))
        self._lent: deque[TokenSet] = deque()

    @property
    def nbytes(self) -> int:
        """Bytes that they take now."""
        return 4 * self._words * len(self._lent)

    def mask(self, tokens: TokenSet) -> Mask:
        """The mask: uint32[words], read-only."""
        mask = tokens.mask
        if mask is None:
            self._lent.append(tokens)
            if len(self._lent) > self._most:
                self._lent.popleft().mask = None
            mask = tokens.make(self._words)
        return mask
