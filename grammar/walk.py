"""Which tokens may follow a terminal's state: the walk of an automaton over the vocabulary trie.

A walk depends only on the terminal, so it is made once and shared by every schema and request. It
says which tokens *stay* inside the terminal (or end exactly where it may end), and where longer
tokens *leave* it: there the stack has to say whether the rest of the token may follow. What remains
of the tokens that leave is a ``Rests`` of the trie, one for each label however many places they
leave at, and the terminals behind are walked over these rests, again memoised: a new stack costs
some look-ups.

Three ways of walking, the same result: free strings are a choice from what ``bodies.py`` scanned;
else level by level with numpy where most bytes may follow, and node by node in plain Python where
few may.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from grammar.automaton import DEAD, NOT_ACCEPTING, Automaton
from grammar.masks import FEW, Mask, pack_bool, set_bits
from grammar.trie import IntArray, NodeSet, Rests, TokenTrie

if TYPE_CHECKING:
    from grammar.vocabulary import Vocabulary

NARROW_FRONTIER = 12
"""Below this width a level is walked in plain Python."""
SMALL = 64
"""Below this many tokens a walk is made in plain Python."""
LARGE = 512
"""Where a narrow walk gets wide with more tokens than this below, it goes on with numpy."""


class Free(NamedTuple):
    """A string that holds any text of ``least`` to ``most`` characters but some words, between what
    is left of its ``opening`` and its ``closing``; ``ended``: the last byte can't be written."""

    opening: bytes
    least: int
    most: int | None
    words: tuple[str, ...]
    closing: bytes
    ended: bool = False


class Less(NamedTuple):
    """A string between ``opening`` and ``closing`` that goes as from the state of ``key``, but is
    none of ``words``."""

    key: Hashable
    opening: bytes
    words: tuple[str, ...]
    closing: bytes


class Walk:
    """The result of a walk; compared by identity.

    ``ids``: int32[n], tokens that stay, and ``mask``: uint32[ceil(V/32)] or None, more of them.
    ``exits``: (label, what remains of the tokens that leave with it).
    """

    __slots__ = ("exits", "ids", "mask", "stays")
    #: Whether it belongs to one grammar only.
    private = False

    def __init__(
        self, ids: IntArray, mask: Mask | None, exits: tuple[tuple[int, Rests], ...]
    ) -> None:
        self.ids = ids
        self.mask = mask
        self.exits = exits
        #: Whether any token stays.
        self.stays = mask is not None or len(ids) > 0

    @classmethod
    def of(cls, ids: Sequence[int], words: int) -> Walk:
        """Some tokens as what stays; ``words``: how many a packed mask has."""
        listed = np.array(ids, dtype=np.int32)
        if len(ids) <= FEW:
            return cls(listed, None, ())
        mask = np.zeros(words, dtype=np.uint32)
        set_bits(mask, listed)
        return cls(listed[:0].copy(), mask, ())

    def memory_bytes(self) -> int:
        """An estimate, in bytes."""
        mask = 0 if self.mask is None else self.mask.nbytes
        sets = sum(16 * len(r.nodes) + 500 for _, r in self.exits if isinstance(r, NodeSet))
        return 200 + mask + self.ids.nbytes + sets


def walk(automaton: Automaton, state: int, vocabulary: Vocabulary, rests: Rests = 0) -> Walk:
    """Walk from ``state`` over some rests of tokens (0: all tokens). Memoised on the automaton."""
    found = automaton.walks.get((state, rests))
    if found is None:
        followed = automaton.follow(automaton.key(state), vocabulary.trie, rests)
        if followed is not None:
            found = _walk_of(*followed, vocabulary)
            automaton.keep_walk(state, rests, found, found.memory_bytes())
            return found
        same = automaton.representative_of(state)
        if same != state:
            found = walk(automaton, same, vocabulary, rests)
            automaton.keep_walk(state, rests, found, 0)
            return found
        own = automaton.own_walk(state, vocabulary, rests)
        if own is not None:
            automaton.keep_walk(state, rests, own, own.memory_bytes())
            return own
        less = automaton.less(automaton.key(state))
        if less is not None:
            whole = walk(automaton, automaton.state(less.key), vocabulary, rests)
            found = vocabulary.bodies.without(whole, less, rests)
            size = 0 if found is whole else found.memory_bytes()
            automaton.keep_walk(state, rests, found, size)
            return found
        free = automaton.free(automaton.key(state))
        if free is not None:
            found = vocabulary.bodies.walk(free, rests)
            automaton.keep_walk(state, rests, found, 0)
        else:
            found = _Walker(automaton, vocabulary).run(state, rests)
            automaton.keep_walk(state, rests, found, found.memory_bytes())
    return found


def _walk_of(ids: list[int], exits: dict[int, list[Rests]], vocabulary: Vocabulary) -> Walk:
    array = np.array(ids, dtype=np.int32)
    union = vocabulary.trie.union
    left = tuple((label, union(parts)) for label, parts in exits.items())
    if len(ids) <= FEW:
        return Walk(array, None, left)
    mask = np.zeros(vocabulary.mask_words, dtype=np.uint32)
    set_bits(mask, array)
    mask.flags.writeable = False
    return Walk(array[:0], mask, left)


class _Walker:
    def __init__(self, automaton: Automaton, vocabulary: Vocabulary) -> None:
        self.automaton = automaton
        self.vocabulary = vocabulary
        self.ids: list[int] = []
        self.arrays: list[IntArray] = []
        self.exits: dict[int, list[Rests]] = {}

    def run(self, state: int, rests: Rests) -> Walk:
        vocabulary = self.vocabulary
        base = self._plain(state) if rests == 0 else None
        trie = vocabulary.trie if base is None else vocabulary.other_trie
        if self.automaton.is_wide(state) and self._is_large(trie, rests):
            self._wide(trie, state, rests)
        else:
            self._narrow(trie, [(rests, state)])
        exits = tuple((label, self._exit(trie, parts)) for label, parts in self.exits.items())
        ids = np.array(self.ids, dtype=np.int32)
        if self.arrays:
            ids = np.concatenate([ids, *self.arrays])
        if len(ids) <= FEW and base is None:
            return Walk(ids, None, exits)
        mask = self._pack(ids, base)
        flags = np.unpackbits(mask.view(np.uint8), bitorder="little")
        if np.count_nonzero(flags) <= FEW:
            return Walk(np.flatnonzero(flags).astype(np.int32), None, exits)
        return Walk(ids[:0], mask, exits)

    def _plain(self, state: int) -> Mask | None:
        """The plain tokens that stay, if that is known without running the automaton over all."""
        automaton, vocabulary = self.automaton, self.vocabulary
        even = automaton.even(automaton.key(state))
        if even is None:
            return None
        for token in vocabulary.plain.odd.tolist() if even.odd else ():
            at = state
            for byte in vocabulary.tokens[token]:  # no quote among them: it can't leave a string
                at = automaton.step(at, byte)
                if at == DEAD:
                    break
            else:
                self.ids.append(token)
        return vocabulary.plain.staying(even)

    @staticmethod
    def _is_large(trie: TokenTrie, rests: Rests) -> bool:
        if isinstance(rests, int):
            return bool(trie.high[rests] - trie.low[rests] > SMALL)
        return len(rests.nodes) > SMALL

    def _exit(self, trie: TokenTrie, parts: list[Rests]) -> Rests:
        if trie is not self.vocabulary.trie:  # only strings are walked so, and all leave by a quote
            nodes = self.vocabulary.other_nodes
            parts = [int(nodes[part]) for part in parts if isinstance(part, int)]
        return self.vocabulary.trie.union(parts)

    def _pack(self, ids: IntArray, base: Mask | None) -> Mask:
        flags = np.zeros(self.vocabulary.size, dtype=bool)
        flags[ids] = True
        mask = pack_bool(flags)
        if base is not None:
            mask |= base
        mask.flags.writeable = False
        return mask

    def _narrow(self, trie: TokenTrie, pending: list[tuple[Rests, int]]) -> None:
        """Depth first, following only the bytes that the automaton allows."""
        automaton = self.automaton
        step, labels, visit = automaton.step, automaton.labels, trie.visit
        is_last, ids, tried = automaton.is_last, self.ids, automaton.tried
        while pending:
            rests, state = pending.pop()
            live = tried(state)
            if isinstance(rests, int):
                if live is None and trie.high[rests] - trie.low[rests] > LARGE:
                    self._wide(trie, state, rests)
                    continue
                children = visit(rests)[0]
                few = live is not None and len(live) < len(children)
                for byte in live if few and live is not None else children:
                    child = children.get(byte)
                    if child is None:
                        continue
                    after = step(state, byte)
                    if after == DEAD:
                        continue
                    more, ending = visit(child)
                    ids += ending
                    if more:
                        if labels[after] != NOT_ACCEPTING and not is_last:
                            self.exits.setdefault(labels[after], []).append(child)
                        pending.append((child, after))
                continue
            for byte in trie.children(rests) if live is None else live:
                several = trie.step(rests, byte)
                if several is None:
                    continue
                after = step(state, byte)
                if after == DEAD:
                    continue
                ids += trie.ids_at(several)
                if not trie.is_leaf(several):
                    if labels[after] != NOT_ACCEPTING and not is_last:
                        self.exits.setdefault(labels[after], []).append(several)
                    pending.append((several, after))

    def _wide(self, trie: TokenTrie, state: int, rests: Rests) -> None:
        """Breadth first, a level at a time; narrow remainders are left to ``_narrow``."""
        automaton, table = self.automaton, self.automaton.table
        below = self.vocabulary.below if trie is self.vocabulary.trie else None
        start = (rests,) if isinstance(rests, int) else rests.nodes
        nodes = np.array(start, dtype=np.int64)
        states = np.full(len(start), state, dtype=np.int32)
        first = True
        while first or len(nodes) >= NARROW_FRONTIER or _tokens_below(trie, nodes) > LARGE:
            first = False
            counts = trie.child[nodes + 1] - trie.child[nodes]
            total = int(counts.sum())
            if not total:
                return
            before = np.cumsum(counts) - counts
            children = np.repeat(trie.child[nodes] - before, counts) + np.arange(total)
            after = table.step(automaton, np.repeat(states, counts), trie.byte[children])
            alive = np.flatnonzero(after != DEAD)
            nodes, states = children[alive], after[alive]
            self._take_ends(trie, nodes)
            more = np.flatnonzero(trie.child[nodes + 1] > trie.child[nodes])
            nodes, states = nodes[more], states[more]
            rows = table.rows(automaton, states)
            if below is not None:
                safe = below.height[nodes] <= table.depth[rows]
                safe &= below.low[nodes] & ~table.low[rows] == 0
                safe &= below.high[nodes] & ~table.high[rows] == 0
                self._take_below(trie, nodes[safe])
                rest = np.flatnonzero(~safe)
                nodes, states, rows = nodes[rest], states[rest], rows[rest]
            if automaton.is_last:
                continue
            labels = table.label[rows]
            leaving = np.flatnonzero(labels != NOT_ACCEPTING)
            for label in set(labels[leaving].tolist()):
                found = nodes[leaving][labels[leaving] == label]
                self.exits.setdefault(label, []).extend(found.tolist())
        self._narrow(trie, list(zip(nodes.tolist(), states.tolist(), strict=True)))

    def _take_ends(self, trie: TokenTrie, nodes: npt.NDArray[np.int64]) -> None:
        ends = trie.ends[nodes]
        here = nodes[ends > 0]
        if len(here):
            self.arrays.append(trie.order[trie.low[here]])
            for node in here[trie.ends[here] > 1].tolist():  # several ids for the same bytes
                self.arrays.append(trie.tokens_at(node)[1:])

    def _take_below(self, trie: TokenTrie, nodes: npt.NDArray[np.int64]) -> None:
        """All tokens that go on from some nodes."""
        if len(nodes):
            starts = trie.low[nodes] + trie.ends[nodes]
            counts = trie.high[nodes] - starts
            before = np.cumsum(counts) - counts
            at = np.repeat(starts - before, counts) + np.arange(int(counts.sum()))
            self.arrays.append(trie.order[at])


def _tokens_below(trie: TokenTrie, nodes: npt.NDArray[np.int64]) -> int:
    return int((trie.high[nodes] - trie.low[nodes]).sum())
