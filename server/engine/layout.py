"""Masks token by token: what to add to logits, how many tokens are legal, which if they are few.

A packed mask is laid out once and kept, since grammars share their masks and adding an array is ten
times as fast as choosing by bits. Read next: `sampling.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.engine.model import Logits
from server.engine.selection import Scratch

Ids = NDArray[np.signedinteger[Any]]
Mask = NDArray[np.uint32]

_FEW = 256  # legal tokens up to this many are looked at one by one, not as a whole vocabulary
_KEPT_MASKS = 32  # how many masks are kept laid out; each takes four bytes a token


class Workspace:
    """Buffers of vocabulary size, and masks laid out, shared by all samplers of one thread."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self.scores: Logits = np.empty(vocab_size, dtype=np.float32)
        self.scratch = Scratch.of(vocab_size)
        self._laid_out: OrderedDict[int, _LaidOut] = OrderedDict()

    def lay_out(self, mask: Mask) -> _LaidOut:
        """A mask token by token. Grammars share their masks, so the last ones are kept."""
        found = self._laid_out.get(id(mask))
        if found is None or found.mask is not mask:
            octets = mask.astype("<u4", copy=False).view(np.uint8)
            bits = np.unpackbits(octets, count=self.vocab_size, bitorder="little")
            count = int(np.count_nonzero(bits))
            ids = np.flatnonzero(bits) if count <= _FEW else None
            found = self._laid_out[id(mask)] = _LaidOut(mask, _barrier(bits), count, ids)
            if len(self._laid_out) > _KEPT_MASKS:
                self._laid_out.popitem(last=False)
        elif mask.flags.writeable:  # somebody may have changed it since
            del self._laid_out[id(mask)]
            return self.lay_out(mask)
        else:
            self._laid_out.move_to_end(id(mask))
        return found


class _LaidOut(NamedTuple):
    """A packed mask; what to add to logits, 0 or minus infinity (adding is ten times as fast as
    choosing); how many tokens it allows, and which if they are few."""

    mask: Mask
    barrier: Logits
    legal: int
    ids: Ids | None


def _barrier(bits: NDArray[np.uint8]) -> Logits:
    barrier = np.zeros(bits.size, dtype=np.float32)
    barrier[bits == 0] = -np.inf
    return barrier


def without(
    token: int, mask: Mask | None, ids: Ids | None, vocab_size: int
) -> tuple[Mask, Ids | None]:
    """A mask, and its ids where they are listed, without one token."""
    if mask is None:
        mask = np.full((vocab_size + 31) // 32, 0xFFFFFFFF, dtype=np.uint32)
        if vocab_size % 32:
            mask[-1] = (1 << vocab_size % 32) - 1
    else:
        mask = mask.copy()
    mask[token >> 5] &= np.uint32(~(1 << (token & 31)) & 0xFFFFFFFF)
    return mask, None if ids is None else ids[ids != token]
