"""Which tokens may follow a terminal's state: the walk of an automaton over the vocabulary trie.

A walk depends only on the terminal, so it is made once and shared by every schema and request. It
says which tokens *stay* inside the terminal (or end exactly where it may end), and where longer
tokens *leave* it: there the stack has to say whether the rest of the token may follow. Exits with
few tokens behind them are merged into one small trie of rests (``Tails``), so that a new stack
costs some tens of dictionary look-ups; the others are named by their trie node (``deep``).

Two ways of walking, the same result: level by level with numpy where most bytes may follow, and
node by node in plain Python where few may.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from grammar.automaton import DEAD, NOT_ACCEPTING, Automaton
from grammar.trie import IntArray, TokenTrie
from grammar.vocabulary import Vocabulary, pack_bool

Mask = npt.NDArray[np.uint32]

FEW = 256
"""Up to this many token ids are kept as ids; more are kept as a packed mask."""
SMALL_EXIT = 512
"""An exit with more tokens behind it is not merged into the tails."""
NARROW_FRONTIER = 12
"""Below this width a level is walked in plain Python."""


class Tails:
    """A trie of the rests of tokens after an exit; ``ids`` are the tokens that end at a node."""

    __slots__ = ("children", "ids")

    def __init__(self) -> None:
        self.children: dict[int, Tails] = {}
        self.ids: list[int] = []

    def add(self, rest: bytes, token: int) -> None:
        """Enter one token by what remains of it."""
        node = self
        for byte in rest:
            child = node.children.get(byte)
            if child is None:
                child = node.children[byte] = Tails()
            node = child
        node.ids.append(token)

    def size(self) -> int:
        """Nodes and ids, for memory estimates."""
        return 1 + len(self.ids) + sum(child.size() for child in self.children.values())


class Walk(NamedTuple):
    """The result of a walk.

    ``ids``: tokens that stay, if few, else empty; ``mask``: uint32[ceil(V/32)] of them, if many.
    ``tails``: label -> rests of the tokens that leave. ``deep``: (label, trie node, depth)
    of large exits.
    """

    ids: list[int]
    mask: Mask | None
    tails: dict[int, Tails]
    deep: tuple[tuple[int, int, int], ...]

    def memory_bytes(self) -> int:
        """An estimate, in bytes."""
        mask = 0 if self.mask is None else self.mask.nbytes
        return 300 + mask + 8 * len(self.ids) + 120 * sum(t.size() for t in self.tails.values())


def walk(
    automaton: Automaton, state: int, vocabulary: Vocabulary, node: int = 0, depth: int = 0
) -> Walk:
    """Walk from ``state`` over the tokens below a trie node. Memoised on the automaton.

    ``node`` 0 is the root (all tokens); another node stands ``depth`` bytes below it.
    """
    state = automaton.representative_of(state)
    found = automaton.known_walk(state, node)
    if found is None:
        found = _Walker(automaton, vocabulary).run(state, node, depth)
        automaton.keep_walk(state, node, found)
    return found


class _Walker:
    def __init__(self, automaton: Automaton, vocabulary: Vocabulary) -> None:
        self.automaton = automaton
        self.vocabulary = vocabulary
        self.ids: list[int] = []
        self.arrays: list[IntArray] = []
        self.exits: list[tuple[int, int, int]] = []  # label, node, depth

    def run(self, state: int, node: int, depth: int) -> Walk:
        vocabulary = self.vocabulary
        bulk = self.automaton.bulk(self.automaton.key(state)) if node == 0 else None
        base: Mask | None = None
        trie = vocabulary.trie
        if bulk is not None:
            trie, base = vocabulary.other_trie, vocabulary.plain_mask
            if bulk < vocabulary.longest:
                lengths = vocabulary.plain_lengths
                base = pack_bool((lengths > 0) & (lengths <= bulk))
        if self.automaton.is_wide(state):
            self._wide(trie, state, node, depth)
        else:
            self._narrow(trie, [(node, state, depth)])
        tails, deep = self._merge_exits(trie)
        count = len(self.ids) + sum(map(len, self.arrays))
        if base is None and count <= FEW:
            ids = self.ids + [i for array in self.arrays for i in array.tolist()]
            return Walk(ids, None, tails, deep)
        return Walk([], self._pack(base), tails, deep)

    def _pack(self, base: Mask | None) -> Mask:
        flags = np.zeros(self.vocabulary.size, dtype=bool)
        flags[self.ids] = True
        for array in self.arrays:
            flags[array] = True
        mask = pack_bool(flags)
        if base is not None:
            mask |= base
        mask.flags.writeable = False
        return mask

    def _narrow(self, trie: TokenTrie, pending: list[tuple[int, int, int]]) -> None:
        """Depth first, following only the bytes that the automaton allows."""
        automaton = self.automaton
        step, labels, ends = automaton.step, automaton.labels, trie.ends
        while pending:
            node, state, depth = pending.pop()
            children = trie.children(node)
            bytes_: Iterable[int] = children
            if not automaton.is_wide(state):
                live = automaton.live(state)
                bytes_ = live if len(live) < len(children) else children
            for byte in bytes_:
                child = children.get(byte)
                if child is None:
                    continue
                after = step(state, byte)
                if after == DEAD:
                    continue
                if ends[child]:
                    self.ids.extend(trie.tokens_at(child).tolist())
                if trie.child[child + 1] == trie.child[child]:
                    continue
                if labels[after] != NOT_ACCEPTING:
                    self.exits.append((labels[after], child, depth + 1))
                pending.append((child, after, depth + 1))

    def _wide(self, trie: TokenTrie, state: int, node: int, depth: int) -> None:
        """Breadth first, a level at a time; narrow remainders are left to ``_narrow``."""
        nodes = np.array([node], dtype=np.int64)
        states = np.array([state], dtype=np.int32)
        first = True
        while first or len(nodes) >= NARROW_FRONTIER:
            first = False
            counts = trie.child[nodes + 1] - trie.child[nodes]
            total = int(counts.sum())
            if not total:
                return
            before = np.cumsum(counts) - counts
            children = np.repeat(trie.child[nodes] - before, counts) + np.arange(total)
            after = self.automaton.step_many(np.repeat(states, counts), trie.byte[children])
            alive = after != DEAD
            nodes, states = children[alive], after[alive]
            depth += 1
            self._take_ends(trie, nodes)
            more = trie.child[nodes + 1] > trie.child[nodes]
            nodes, states = nodes[more], states[more]
            labels = self.automaton.labels_of(states)
            for at in np.flatnonzero(labels != NOT_ACCEPTING).tolist():
                self.exits.append((int(labels[at]), int(nodes[at]), depth))
        self._narrow(
            trie, [(n, s, depth) for n, s in zip(nodes.tolist(), states.tolist(), strict=True)]
        )

    def _take_ends(self, trie: TokenTrie, nodes: npt.NDArray[np.int64]) -> None:
        ends = trie.ends[nodes]
        here = nodes[ends > 0]
        if len(here):
            self.arrays.append(trie.order[trie.low[here]])
            for node in here[trie.ends[here] > 1].tolist():  # several ids for the same bytes
                self.arrays.append(trie.tokens_at(node)[1:])

    def _merge_exits(
        self, trie: TokenTrie
    ) -> tuple[dict[int, Tails], tuple[tuple[int, int, int], ...]]:
        tails: dict[int, Tails] = {}
        deep: list[tuple[int, int, int]] = []
        tokens = self.vocabulary.tokens
        for label, node, depth in self.exits:
            below = trie.tokens_below(node)
            if len(below) > SMALL_EXIT and trie is self.vocabulary.trie:
                deep.append((label, node, depth))
                continue
            into = tails.get(label)
            if into is None:
                into = tails[label] = Tails()
            for token in below.tolist():
                into.add(tokens[token][depth:], token)
        return tails, tuple(deep)
