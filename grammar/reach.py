"""How far it is from any place of a source to where a passage that fits a pattern may end.

A pattern is a deterministic automaton over characters, which runs along the source from wherever a
passage begins. What is asked for is the least number of characters after which a passage may end,
from character ``i`` in the automaton's state ``q``: a table of N + 1 by Q, made backwards,

    distance[i, q] = 0 if a passage may end before i and q accepts,
                     else 1 + distance[i + 1, step(q, i)]

in blocks side by side: first what every block does to every state, then from block to block where
the nearest end lies, then within all blocks at once. So it takes some hundred steps of numpy and
not one for each character.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from grammar.passages import Flags, Ints, Passages
from grammar.regular import RegexBuilder, Rx

FAR = 1 << 30
"""A distance that is none: no end can be reached."""
MAX_PATTERN_STATES = 512
MAX_TABLE_BYTES = 64 << 20


class TooLargeError(Exception):
    """The pattern has too many states for a source of this length."""


class Reach:
    """A pattern on a source. It also has to say what there is to be said of the least length.

    States are numbered from 0, the first one; the last one is dead.

    Args:
        passages: the source.
        language: the pattern.

    Raises:
        TooLargeError: it has more than ``MAX_PATTERN_STATES`` states, or the table would have more
            than ``MAX_TABLE_BYTES``.
    """

    def __init__(self, passages: Passages, language: Rx) -> None:
        codes, index = np.unique(passages.codes, return_inverse=True)
        self._index: Ints = index.astype(np.int32)
        self._next = _transitions(language, codes)
        states = _states(language)
        size = (len(passages.codes) + 1) * (len(states) + 1) * 4
        if size > MAX_TABLE_BYTES:
            raise TooLargeError
        self.accepts = np.array([*(state.nullable for state in states), False])
        self._distance = _distances(passages.is_end, self.accepts, self._next, self._index)

    def distance(self, begun: Ints, at: Ints) -> Ints:
        """Characters from before character ``begun`` in state ``at`` to the nearest end, or
        ``FAR``: int32[n]."""
        found: Ints = self._distance[begun, at]
        return found

    def step(self, at: Ints, index: Ints) -> Ints:
        """The states after the characters of these indices: int32[n]."""
        found: Ints = self._next[at, self._index[index]]
        return found

    def memory_bytes(self) -> int:
        """An estimate, in bytes."""
        return int(self._distance.nbytes + self._next.nbytes + self._index.nbytes)


def longer(builder: RegexBuilder, language: Rx, least: int) -> Rx:
    """The words of a language that have ``least`` characters or more."""
    return builder.intersect(language, builder.repeat(builder.any_char, least, None))


def _states(language: Rx) -> Sequence[Rx]:
    """Every state, the first one first; without the dead one."""
    found = {language: None}
    pending = [language]
    while pending:
        for _, _, target in pending.pop().transitions():
            if target not in found:
                if len(found) >= MAX_PATTERN_STATES:
                    raise TooLargeError
                found[target] = None
                pending.append(target)
    return list(found)


def _transitions(language: Rx, codes: Ints) -> Ints:
    """int32[Q+1, U]: the state after each different character of the source; Q is the dead one."""
    states = _states(language)
    number = {state: i for i, state in enumerate(states)}
    table = np.full((len(states) + 1, len(codes)), len(states), dtype=np.int32)
    for i, state in enumerate(states):
        for low, high, target in state.transitions():
            first, last = np.searchsorted(codes, [low, high + 1]).tolist()
            table[i, first:last] = number[target]
    return table


def _distances(is_end: Flags, accepts: Flags, steps: Ints, index: Ints) -> Ints:
    """The table that the module describes: int32[N+1, Q+1]."""
    count, states = len(index), len(accepts)
    size = max(1, int(count**0.5))
    blocks = max(1, -(-count // size))
    chars = np.zeros((blocks, size), dtype=np.int32)
    chars.reshape(-1)[:count] = index
    inside = np.zeros((blocks, size), dtype=bool)
    inside.reshape(-1)[:count] = True
    ends = np.zeros((blocks, size), dtype=bool)
    ends.reshape(-1)[:count] = is_end[:count]
    identity: Ints = np.tile(np.arange(states, dtype=np.int32), (blocks, 1))

    reached: Ints = identity.copy()
    nearest: Ints = np.full((blocks, states), FAR, dtype=np.int32)
    for j in range(size):
        hit = ends[:, j, None] & accepts[reached] & (nearest == FAR)
        nearest[hit] = j
        after = steps[reached, chars[:, j, None]]
        reached = np.where(inside[:, j, None], after, reached)

    behind = np.empty((blocks, states), dtype=np.int32)  # the distances at the end of each block
    last: Ints = np.where(is_end[count] & accepts, 0, FAR).astype(np.int32)
    for b in reversed(range(blocks)):
        behind[b] = last
        width = int(inside[b].sum())
        last = np.minimum(np.minimum(last[reached[b]] + width, FAR), nearest[b])

    table = np.empty((blocks, size, states), dtype=np.int32)
    rows = np.arange(blocks)[:, None]
    current: Ints = behind
    for j in reversed(range(size)):
        stepped = np.minimum(current[rows, steps[identity, chars[:, j, None]]] + 1, FAR)
        here = np.where(ends[:, j, None] & accepts, 0, stepped)
        current = np.where(inside[:, j, None], here, current).astype(np.int32)
        table[:, j] = current
    whole = np.empty((count + 1, states), dtype=np.int32)
    whole[:count] = table.reshape(blocks * size, states)[:count]
    whole[count] = np.where(is_end[count] & accepts, 0, FAR)
    return whole
