"""Which tokens may follow in a passage: all places of a state go down the token trie together.

A pair is a node of the trie and a place in the source; a level of the trie is one step of numpy for
all pairs. (``walk.py`` would make a state of the automaton for every node that it meets, and most
of these belong to no text that is ever written.) What remains of the tokens that leave behind the
closing quote is given as single nodes and never as a set: the walks behind them are shared by all
grammars, so they must not depend on the source.

Invariant: the walk is the one that ``walk.py`` would find by running the automaton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from grammar.masks import FEW, pack_bool
from grammar.trie import Rests, TokenTrie
from grammar.walk import Walk

if TYPE_CHECKING:
    from grammar.extract import Body, Extract
    from grammar.vocabulary import Vocabulary

MANY = 1024
"""With more places and tokens than this it pays to put the places in order."""
_QUOTE = 0x22
Nodes = npt.NDArray[np.int64]


class PassageWalk(Walk):
    """A walk that belongs to one source, so that nothing shared may keep it."""

    __slots__ = ()

    private = True


def walk_passages(
    automaton: Extract, body: Body | None, vocabulary: Vocabulary, rests: Rests
) -> Walk:
    """The walk from a state (None: before the opening quote) over some rests."""
    trie = vocabulary.trie
    found = _Found(trie)
    at: Rests | None = rests
    if body is None:
        body = automaton.opened
        at = trie.step(rests, _QUOTE)
        if at is not None:
            found.stay([at] if isinstance(at, int) else at.nodes)
    if at is not None:
        for node in (at,) if isinstance(at, int) else at.nodes:
            _descend(automaton, trie, node, body, found)
    return found.walk(vocabulary.size)


class _Found:
    """The nodes that were met, as flags."""

    def __init__(self, trie: TokenTrie) -> None:
        self._trie = trie
        self._stays = np.zeros(len(trie), dtype=bool)
        self._closes = np.zeros(len(trie), dtype=bool)

    def stay(self, nodes: Nodes | list[int] | tuple[int, ...]) -> None:
        """Tokens that end at these nodes stay."""
        self._stays[nodes] = True

    def close(self, nodes: Nodes) -> None:
        """The closing quote may follow at these nodes."""
        self._closes[nodes] = True

    def walk(self, size: int) -> Walk:
        """What was found, as a walk over a vocabulary of ``size`` tokens."""
        trie = self._trie
        closing = np.flatnonzero(self._closes)
        left = trie.down(closing, np.full(len(closing), _QUOTE, dtype=np.uint8))
        left = left[left >= 0]
        self._stays[left] = True  # where the token ends with the quote; longer ones leave
        nodes = np.flatnonzero(self._stays)
        ends = trie.ends[nodes]
        nodes, ends = nodes[ends > 0], ends[ends > 0]
        starts = np.repeat(trie.low[nodes] - (np.cumsum(ends) - ends), ends)
        ids = trie.order[starts + np.arange(len(starts), dtype=np.int32)]
        left = left[trie.child[left + 1] > trie.child[left]]
        exits: tuple[tuple[int, Rests], ...] = tuple((0, node) for node in left.tolist())
        if len(ids) <= FEW:
            return PassageWalk(ids, None, exits)
        flags = np.zeros(size, dtype=bool)
        flags[ids] = True
        mask = pack_bool(flags)
        mask.flags.writeable = False
        return PassageWalk(ids[:0], mask, exits)


def _descend(automaton: Extract, trie: TokenTrie, root: int, body: Body, found: _Found) -> None:
    """From one node, all places at once, level by level."""
    passages = automaton.passages
    source, after = passages.bytes, passages.after
    places = automaton.places(body.places)
    prospects = automaton.prospects(body, places)
    below = int(trie.high[root] - trie.low[root])
    if min(len(places), below) > MANY:  # in the order of what follows them, most steps are in runs
        order = np.argsort(passages.ahead(places))
        places, prospects = places[order], prospects.of(order)
    nodes = np.full(len(places), root, dtype=np.int64)
    while len(places):
        may_end = np.flatnonzero(passages.may_end[places])
        if len(may_end):
            found.close(nodes[may_end[prospects.may_end(may_end, after[places[may_end]])]])
        kept = np.flatnonzero(places < len(source))
        if len(kept) < len(places):
            nodes, places, prospects = nodes[kept], places[kept], prospects.of(kept)
        nodes = trie.down(nodes, source[places])
        kept = np.flatnonzero(nodes >= 0)
        nodes, places, prospects = nodes[kept], places[kept] + np.int32(1), prospects.of(kept)
        alive = prospects.advance(places, after[places])
        if alive is not None:
            kept = np.flatnonzero(alive)
            nodes, places, prospects = nodes[kept], places[kept], prospects.of(kept)
        found.stay(nodes)
        kept = np.flatnonzero(trie.child[nodes + 1] > trie.child[nodes])
        nodes, places, prospects = nodes[kept], places[kept], prospects.of(kept)
