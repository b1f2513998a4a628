"""Packed masks: uint32[ceil(V/32)], bit ``i`` of word ``w`` being token ``32*w + i``."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Protocol

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.uint32]
_ONE = np.uint32(1)
_WORD = np.dtype("<u4")
_NO_IDS = np.zeros(0, dtype=np.int32)
FEW = 256
"""Up to this many token ids are kept as ids; more are kept as a packed mask."""
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


class Part(Protocol):
    """Some tokens: ``ids`` int32[n], and perhaps more of them as a packed mask."""

    @property
    def ids(self) -> npt.NDArray[np.int32]: ...
    @property
    def mask(self) -> Mask | None: ...


class TokenSet:
    """The tokens of a mask, from which its bits are made again when they were dropped.

    Those of some ``parts``, but for the tokens ``without``. ``mask``: the bits while they are
    there, else None.
    """

    __slots__ = ("_ids", "mask", "parts", "without")

    def __init__(self, parts: Iterable[Part], without: Iterable[int] = ()) -> None:
        self.parts = tuple(parts)
        self.without = tuple(without)
        self.mask: Mask | None = None
        self._ids: npt.NDArray[np.int32] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""
        if not self.without:
            return not self.parts
        return all(part.mask is None for part in self.parts) and not len(self.ids)

    @property
    def is_few(self) -> bool:
        """Whether they are listed and at most ``FEW``."""
        count = 0
        for part in self.parts:
            if part.mask is not None:
                return False
            count += len(part.ids)
        return count <= FEW

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """The tokens, ascending, each once; read-only. Only where no part has a mask."""
        if self._ids is None:
            ids = np.unique(np.concatenate([_NO_IDS, *(part.ids for part in self.parts)]))
            if self.without:
                ids = np.setdiff1d(ids, np.array(self.without, dtype=np.int32))
            ids.flags.writeable = False
            self._ids = ids
        return self._ids

    def memory_bytes(self) -> int:
        """An estimate of what it takes without its bits and its parts."""
        return 200 + 8 * len(self.parts) + 32 * len(self.without)

    def make(self, words: int) -> Mask:
        """Make the mask: uint32[words], read-only."""
        lists = []
        octets: bytearray | None = None
        count = 0
        for part in self.parts:
            if part.mask is not None and octets is None:
                octets = bytearray(part.mask)
            if len(part.ids):
                lists.append(part.ids)
                count += len(part.ids)
        if octets is None:
            octets = bytearray(4 * words)
        mask: Mask = np.frombuffer(octets, dtype=_WORD)
        if count <= MANY:  # plain Python is faster than several calls of numpy
            for ids in lists:
                for token in ids.tolist():
                    octets[token >> 3] |= 1 << (token & 7)
        else:
            set_bits(mask, lists[0] if len(lists) == 1 else np.concatenate(lists))
        for part in self.parts:
            if part.mask is not None:
                mask |= part.mask
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
