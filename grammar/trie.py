"""A byte trie over a vocabulary, in flat numpy arrays, for walking automata over all tokens.

Nodes are numbered level by level (the root is 0) and within a level in byte order, so the children
of a node are one contiguous run of node numbers. Tokens are sorted by their bytes, so the tokens
below a node are one contiguous run of the sorted order. Both runs are half-open intervals.

*Rests* are what may remain of tokens after a common part was read: one node, or several at once (a
``NodeSet``), which behaves like the trie of everything below them.

Read next: ``walk.py``, which runs automata over this trie.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
ByteArray = npt.NDArray[np.uint8]

MANY_NODES = 48
"""A larger set of nodes is stepped with numpy."""


class NodeSet:
    """Several nodes as one; compared by identity. Children are made on touch."""

    __slots__ = ("children", "ids", "is_whole", "nodes")

    def __init__(self, nodes: tuple[int, ...]) -> None:
        self.nodes = nodes
        self.children: dict[int, Rests | None] = {}
        self.is_whole = False  # whether ``children`` has all of them
        self.ids: IntArray | None = None


Rests: TypeAlias = int | NodeSet


class TokenTrie:
    """The trie of the non-empty byte strings of some tokens.

    Arrays (N nodes, T tokens):

    - ``byte`` uint8[N]: the byte on the edge into the node (0 for the root).
    - ``child`` int32[N+1]: the children of node ``i`` are nodes ``child[i]:child[i+1]``.
    - ``low``/``high`` int32[N]: the tokens at or below node ``i`` are ``order[low[i]:high[i]]``.
    - ``ends`` int32[N]: how many tokens end exactly at node ``i``; they are the first ones,
      ``order[low[i]:low[i]+ends[i]]``.
    - ``order`` int32[T]: token ids sorted by bytes, then by id.
    """

    ARRAYS = ("byte", "child", "low", "high", "ends", "order")
    __slots__ = ("_edges", "_nodes", "byte", "child", "ends", "high", "low", "order")

    def __init__(self, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        self.byte: ByteArray = arrays["byte"].astype(np.uint8, copy=False)
        self.child: IntArray = arrays["child"].astype(np.int32, copy=False)
        self.low: IntArray = arrays["low"].astype(np.int32, copy=False)
        self.high: IntArray = arrays["high"].astype(np.int32, copy=False)
        self.ends: IntArray = arrays["ends"].astype(np.int32, copy=False)
        self.order: IntArray = arrays["order"].astype(np.int32, copy=False)
        self._nodes: dict[int, tuple[dict[int, int], list[int]]] = {}
        self._edges: npt.NDArray[np.int64] | None = None

    @classmethod
    def build(cls, tokens: Sequence[bytes], ids: Sequence[int]) -> TokenTrie:
        """Build the trie of ``tokens[i] for i in ids``; empty byte strings are left out."""
        chosen = sorted((tokens[i], i) for i in ids if tokens[i])
        lengths = np.fromiter((len(t) for t, _ in chosen), dtype=np.int64, count=len(chosen))
        order = np.fromiter((i for _, i in chosen), dtype=np.int32, count=len(chosen))
        data = np.frombuffer(b"".join(t for t, _ in chosen) or b"\0", dtype=np.uint8)
        starts = np.zeros(len(chosen) + 1, dtype=np.int64)
        np.cumsum(lengths, out=starts[1:])

        node_byte = [np.zeros(1, dtype=np.uint8)]
        lows = [np.zeros(1, dtype=np.int64)]
        highs = [np.full(1, len(chosen), dtype=np.int64)]
        ends = [np.zeros(1, dtype=np.int64)]
        child_counts: list[npt.NDArray[np.int64]] = []
        active = np.arange(len(chosen))  # sorted tokens longer than the depth reached so far
        group = np.zeros(len(chosen), dtype=np.int64)  # their node, numbered within its level
        width = 1
        depth = 0
        while len(active):
            byte = data[starts[active] + depth]
            new = np.ones(len(active), dtype=bool)
            new[1:] = (group[1:] != group[:-1]) | (byte[1:] != byte[:-1])
            first = np.flatnonzero(new)
            node = np.cumsum(new) - 1
            child_counts.append(np.bincount(group[first], minlength=width))
            width = len(first)
            node_byte.append(byte[first])
            lows.append(active[first])
            # Tokens below a node stay contiguous: each one is as long as the depth or longer.
            last = np.append(first[1:], len(active)) - 1
            highs.append(active[last] + 1)
            done = lengths[active] == depth + 1
            ends.append(np.bincount(node[done], minlength=width))
            active, group = active[~done], node[~done]
            depth += 1
        child_counts.append(np.zeros(width, dtype=np.int64))
        counts = np.concatenate(child_counts)
        child = np.empty(len(counts) + 1, dtype=np.int32)
        child[0] = 1
        child[1:] = 1 + np.cumsum(counts)
        return cls(
            {
                "byte": np.concatenate(node_byte),
                "child": child,
                "low": np.concatenate(lows).astype(np.int32),
                "high": np.concatenate(highs).astype(np.int32),
                "ends": np.concatenate(ends).astype(np.int32),
                "order": order,
            }
        )

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The arrays as stored on disk; ``TokenTrie(trie.arrays())`` is the same trie."""
        return {name: getattr(self, name) for name in self.ARRAYS}

    def __len__(self) -> int:
        return len(self.byte)

    def visit(self, node: int) -> tuple[dict[int, int], list[int]]:
        """(byte -> child node in byte order, the tokens that end here); made on first touch."""
        found = self._nodes.get(node)
        if found is None:
            start, stop = self.child[node : node + 2].tolist()
            low, ends = int(self.low[node]), int(self.ends[node])
            found = (
                dict(zip(self.byte[start:stop].tolist(), range(start, stop), strict=True)),
                self.order[low : low + ends].tolist() if ends else _NO_TOKENS,
            )
            self._nodes[node] = found
        return found

    def children(self, rests: Rests) -> Mapping[int, Rests | None]:
        """Byte -> what remains after it (never None here)."""
        if isinstance(rests, int):
            return self.visit(rests)[0]
        if not rests.is_whole:
            self._expand(rests)
        return rests.children

    def step(self, rests: Rests, byte: int) -> Rests | None:
        """What remains after one more byte, or None."""
        if isinstance(rests, int):
            return self.visit(rests)[0].get(byte)
        if byte in rests.children or rests.is_whole:
            return rests.children.get(byte)
        if len(rests.nodes) > MANY_NODES:
            self._expand(rests)
            return rests.children.get(byte)
        met = (self.visit(node)[0].get(byte) for node in rests.nodes)
        nodes = tuple(node for node in met if node is not None)
        found = rests.children[byte] = _as_rests(nodes)
        return found

    def ids_at(self, rests: Rests) -> Iterable[int]:
        """The tokens that end exactly here."""
        if isinstance(rests, int):
            return self.visit(rests)[1]
        if rests.ids is None:
            rests.ids = self._ending_at(np.array(rests.nodes, dtype=np.int64))
        return rests.ids.tolist()  # type: ignore[no-any-return]

    def is_leaf(self, rests: Rests) -> bool:
        """Whether no token goes on from here."""
        if isinstance(rests, int):
            return not self.visit(rests)[0]
        if len(rests.nodes) > MANY_NODES:
            here = np.array(rests.nodes, dtype=np.int64)
            return not bool((self.child[here + 1] > self.child[here]).any())
        return not any(self.visit(node)[0] for node in rests.nodes)

    def union(self, parts: Sequence[Rests]) -> Rests:
        """Several rests as one; there must be some."""
        if len(parts) == 1:
            return parts[0]
        nodes: dict[int, None] = {}
        for part in parts:
            if isinstance(part, int):
                nodes[part] = None
            else:
                nodes.update(dict.fromkeys(part.nodes))
        found = _as_rests(tuple(nodes))
        assert found is not None
        return found

    def _expand(self, rests: NodeSet) -> None:
        here = np.array(rests.nodes, dtype=np.int64)
        below = self.below(here)
        bytes_ = self.byte[below]
        order = np.argsort(bytes_, kind="stable")
        below, bytes_ = below[order], bytes_[order]
        cuts = np.flatnonzero(bytes_[1:] != bytes_[:-1]) + 1
        children: dict[int, Rests | None] = {}
        for part in np.split(below, cuts) if len(below) else ():
            byte = int(self.byte[part[0]])
            known = rests.children.get(byte)
            children[byte] = _as_rests(tuple(part.tolist())) if known is None else known
        rests.children = children
        rests.is_whole = True

    def below(self, nodes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The children of some nodes, node by node."""
        counts = self.child[nodes + 1] - self.child[nodes]
        before = np.cumsum(counts) - counts
        return np.repeat(self.child[nodes] - before, counts) + np.arange(int(counts.sum()))

    def _ending_at(self, nodes: npt.NDArray[np.int64]) -> IntArray:
        ends = self.ends[nodes]
        starts = np.repeat(self.low[nodes] - (np.cumsum(ends) - ends), ends)
        return self.order[starts + np.arange(len(starts), dtype=np.int32)]

    def tokens_at(self, node: int) -> IntArray:
        """Ids of the tokens that end exactly at the node."""
        low = self.low[node]
        return self.order[low : low + self.ends[node]]

    def tokens_below(self, node: int) -> IntArray:
        """Ids of the tokens that pass through the node and go on."""
        return self.order[self.low[node] + self.ends[node] : self.high[node]]

    def find(self, text: bytes) -> int | None:
        """The node that ``text`` leads to from the root, or None."""
        node = 0
        for byte in text:
            child = self.visit(node)[0].get(byte)
            if child is None:
                return None
            node = child
        return node

    def edges(self) -> npt.NDArray[np.int64]:
        """int64[N]: the parent of each node times 256, plus the byte between them; ascending, as
        nodes are numbered. -1 for the root."""
        if self._edges is None:
            parent = np.repeat(np.arange(len(self)), np.diff(self.child))
            self._edges = np.full(len(self), -1, dtype=np.int64)
            self._edges[1:] = parent * 256 + self.byte[1:]
        return self._edges

    def down(self, nodes: npt.NDArray[np.int64], bytes_: ByteArray) -> npt.NDArray[np.int64]:
        """The children of some nodes by a byte each, or -1: int64[n]."""
        wanted = nodes * 256 + bytes_
        heads = np.flatnonzero(wanted[1:] != wanted[:-1]) + 1
        if 4 * len(heads) < len(wanted):  # few runs of the same: each is looked up once
            heads = np.concatenate([np.zeros(1, dtype=heads.dtype), heads])
            counts = np.diff(heads, append=len(wanted))
            return np.repeat(self._edge(wanted[heads]), counts)
        return self._edge(wanted)

    def _edge(self, wanted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        edges = self.edges()
        found = np.searchsorted(edges, wanted)
        found[found == len(edges)] = 0
        return np.where(edges[found] == wanted, found, -1)

    def nodes_in(self, other: TokenTrie) -> IntArray:
        """int32[N]: for each node the node of a larger trie with the same text."""
        keys = other.edges()
        found = np.zeros(len(self), dtype=np.int32)
        own_parent = np.zeros(len(self), dtype=np.int64)
        own_parent[1:] = np.repeat(np.arange(len(self)), np.diff(self.child))
        start, stop = 1, int(self.child[1])
        while start < stop:  # a level at a time: the parents are known by then
            wanted = found[own_parent[start:stop]].astype(np.int64) * 256 + self.byte[start:stop]
            found[start:stop] = np.searchsorted(keys, wanted)
            start, stop = stop, int(self.child[stop])
        return found


_NO_TOKENS: list[int] = []


def _as_rests(nodes: tuple[int, ...]) -> Rests | None:
    if len(nodes) == 1:
        return nodes[0]
    return NodeSet(nodes) if nodes else None
