"""Packed masks: uint32[ceil(V/32)], bit ``i`` of word ``w`` being token ``32*w + i``."""

from __future__ import annotations

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
