"""Which tokens of a grammar's mask the items of arrays forbid that must differ (``uniqueItems``).

Only these can be among them, and each is tried:

- tokens along which the item stays equal to the beginning of an earlier one, or becomes equal;
- tokens that end an item and hold more of the next than the beginning of its brackets or quote;
- where few values are left (``ArrayNode.is_scarce``), tokens that end an item and begin another.

In a free string of the first kind those matter alone that end it: whatever else comes, it can still
become another one. They are found by what they add to the string (``closers.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from grammar.automaton import DEAD
from grammar.masks import FEW, Mask, TokenSet, pack_bool
from grammar.nodes import Leaf
from grammar.reader import NAME, NUMBER, STRING, Reader
from grammar.walk import Walk

if TYPE_CHECKING:
    from grammar.unique import Tracked, UniqueMachine

MANY_TOKENS = 4096


def barred_tokens(machine: UniqueMachine, state: Tracked, mask: Mask) -> list[int]:
    """The tokens of the grammar's mask that the items forbid in a state."""
    barred: dict[int, None] = {}
    tried: set[int] = set()
    closing: dict[int, None] = {}
    if state.reader.is_near:
        _along(machine, state, mask, barred, tried, closing)
    vocabulary = machine.vocabulary
    scarce, demanding = machine.needs(state)
    inside = state.reader.mode in (STRING, NAME)
    if demanding:  # any value may be one that others need
        few = int(np.bitwise_count(mask).sum()) <= MANY_TOKENS
        suspects = mask if few else mask & pack_bool(vocabulary.plain_lengths == 0)
    else:
        suspects = mask & vocabulary.item_tokens(inside=inside, begun=not scarce)
    for token in (*closing, *_bits(suspects)):
        if token not in tried and token not in vocabulary.eos:
            tried.add(token)
            if machine.run(state, vocabulary.tokens[token]) is None:
                barred[token] = None
    return [token for token in barred if _has(mask, token)]


def without_barred(tokens: TokenSet, mask: Mask, barred: list[int]) -> TokenSet:
    """Some tokens, whose mask it is, without those that are barred."""
    if len(barred) <= FEW:
        return TokenSet(tokens.parts, (*tokens.without, *barred))
    flags = np.unpackbits(mask.view(np.uint8), bitorder="little")
    flags[barred] = 0
    ids = np.flatnonzero(flags).astype(np.int32)
    if not len(ids):
        return TokenSet(())
    if len(ids) <= FEW:
        return TokenSet((Walk(ids, None, ()),))
    left: Mask = np.packbits(flags, bitorder="little").view(np.uint32)
    return TokenSet((Walk(ids[:0].copy(), left, ()),))


def _along(
    machine: UniqueMachine,
    state: Tracked,
    mask: Mask,
    barred: dict[int, None],
    tried: set[int],
    closing: dict[int, None],
) -> None:
    """Try the tokens that keep to the beginning of an earlier item, or complete one."""
    trie, closers = machine.vocabulary.trie, machine.vocabulary.closers
    pending: list[tuple[int, int, Sequence[Leaf], Reader | None, bool, bool | None]] = [
        (0, 0, state.leaves, state.reader, False, True)
    ]
    while pending:
        node, depth, leaves, reader, repeated, alive = pending.pop()
        expected: frozenset[int] | None = None
        if reader is not None and not repeated:
            rests = reader.remainders()
            if rests is not None and all(a.is_roomy(at) for a, at, _ in leaves):
                ends = closers.below(node, depth)
                found = (token for rest in rests for token in ends.get(rest, ()))
                closing.update((token, None) for token in found if _has(mask, token))
                continue
            expected = reader.expected()
        children = trie.visit(node)[0]
        for byte in children if expected is None else expected & children.keys():
            child = children[byte]
            blank = alive and reader is not None and machine.changes_nothing(byte, reader)
            ends_none = reader is not None and reader.mode != NUMBER
            if blank and ends_none and closers.only_blanks(child):
                continue
            after, accepts, read = machine.read_on(leaves, reader, byte)
            if not after and not accepts:
                if any(automaton.step(at, byte) != DEAD for automaton, at, _ in leaves):
                    below = trie.order[trie.low[child] : trie.high[child]]
                    legal = mask[below >> 5] >> (below & 31).astype(np.uint32) & 1
                    gone = below[legal.astype(bool)].tolist()
                    barred.update(dict.fromkeys(gone))
                    tried.update(gone)
                continue
            again = repeated or (read is not None and read.repeats())
            if not again and (read is None or not read.is_near):
                continue
            verdict = True if read is None or blank else None
            ending = trie.visit(child)[1]
            tried.update(ending)
            if ending and read is not None and verdict is None:
                verdict = machine.is_alive(after, accepts, read)
            if not verdict:
                barred.update(dict.fromkeys(ending))
            pending.append((child, depth + 1, after, read, again, verdict))


def _has(mask: Mask, token: int) -> bool:
    return bool(int(mask[token >> 5]) >> (token & 31) & 1)


def _bits(mask: npt.NDArray[np.uint32]) -> list[int]:
    """The token ids of a packed mask."""
    if not mask.any():
        return []
    found: list[int] = np.flatnonzero(
        np.unpackbits(mask.view(np.uint8), bitorder="little")
    ).tolist()
    return found
