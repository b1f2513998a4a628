"""A byte trie over a vocabulary, in flat numpy arrays, for walking automata over all tokens.

Nodes are numbered level by level (the root is 0) and within a level in byte order, so the children
of a node are one contiguous run of node numbers. Tokens are sorted by their bytes, so the tokens
below a node are one contiguous run of the sorted order. Both runs are half-open intervals.

Read next: ``walk.py``, which runs automata over this trie.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]
ByteArray = npt.NDArray[np.uint8]


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
    __slots__ = ("_children", "byte", "child", "ends", "high", "low", "order")

    def __init__(self, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        self.byte: ByteArray = arrays["byte"].astype(np.uint8, copy=False)
        self.child: IntArray = arrays["child"].astype(np.int32, copy=False)
        self.low: IntArray = arrays["low"].astype(np.int32, copy=False)
        self.high: IntArray = arrays["high"].astype(np.int32, copy=False)
        self.ends: IntArray = arrays["ends"].astype(np.int32, copy=False)
        self.order: IntArray = arrays["order"].astype(np.int32, copy=False)
        self._children: dict[int, dict[int, int]] = {}

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

    def children(self, node: int) -> dict[int, int]:
        """Byte -> child node, in byte order; made on first touch."""
        found = self._children.get(node)
        if found is None:
            start, stop = int(self.child[node]), int(self.child[node + 1])
            found = dict(zip(self.byte[start:stop].tolist(), range(start, stop), strict=True))
            self._children[node] = found
        return found

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
            child = self.children(node).get(byte)
            if child is None:
                return None
            node = child
        return node
