"""The bodies of free JSON strings on a vocabulary: scanned once, whatever stands around them.

Most strings of real schemas are *free*: any text, perhaps bounded in length, perhaps without some
words (the undeclared keys of an object). What a token does inside one depends on how many
characters it needs, and, where it holds a closing quote, on the text before that. Both are found
once for all tokens; the walk of a particular string then is a comparison of counters and a choice
of closing quotes, and equal ones are the same object for every schema.

Invariant: the walks are those that ``walk.py`` would find by running the automaton.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from grammar.automaton import DEAD
from grammar.content import Content
from grammar.masks import FEW, Mask, pack_bool
from grammar.regular import RegexBuilder
from grammar.strings import JsonStrings
from grammar.trie import IntArray, Rests
from grammar.walk import Free, Less, Walk

if TYPE_CHECKING:
    from grammar.vocabulary import Vocabulary


class _Scan(NamedTuple):
    """Of the tokens below some rests: ``ids`` stay in the body and need ``needs`` characters (one
    that is begun counts); ``closers``: text before a closing quote -> the rests after the quote."""

    ids: IntArray
    needs: npt.NDArray[np.int32]
    closers: dict[str, list[Rests]]
    longest_closer: int


class FreeBodies:
    """Walks of free strings on one vocabulary; all methods need the workspace's lock."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._trie = vocabulary.trie
        self._size = vocabulary.size
        self._plain = vocabulary.plain_lengths
        self._other = vocabulary.other_trie
        self._other_nodes = vocabulary.other_nodes
        self._automaton = JsonStrings(RegexBuilder(), vocabulary.longest, b'"', b'"')
        self._inside = self._automaton.state(("body", Content(None, 0, None)))
        self._scans: dict[Rests, _Scan] = {}
        self._masks: dict[int, Mask] = {}
        self._walks: dict[Hashable, Walk] = {}
        self._bytes = 0

    def forget(self) -> None:
        """Drop what was made for particular strings; the scan of the whole vocabulary stays."""
        self._scans = {0: self._scans[0]} if 0 in self._scans else {}
        self._masks.clear()
        self._walks.clear()
        self._bytes = 0

    def memory_bytes(self) -> int:
        """An estimate, in bytes."""
        return self._bytes

    def prepare(self) -> None:
        """Scan the vocabulary now instead of on first use."""
        self._scan(0)

    def walk(self, free: Free, rests: Rests) -> Walk:
        """The walk of a free string over some rests (0: the whole vocabulary)."""
        trie = self._trie
        passed: list[int] = []
        at: Rests | None = rests
        for byte in free.opening:
            at = trie.step(at, byte) if at is not None else None
            if at is not None:
                passed += trie.ids_at(at)
        if at is None:
            return Walk(np.array(passed, dtype=np.int32), None, ())
        scan = self._scan(at)
        closers = scan.closers
        hits = frozenset([word for word in free.words if word in closers])
        least = min(free.least, scan.longest_closer + 1)
        needs = scan.needs
        most = free.most
        if most is not None and (not len(needs) or most >= needs[-1]):
            most = None if most >= scan.longest_closer else most
        key = (free.opening, rests, least, most, hits, free.closing, free.ended)
        found = self._walks.get(key)
        if found is None:
            found = self._walks[key] = self._make(free, at, scan, (least, most), hits, passed)
            self._bytes += found.memory_bytes()
        return found

    def without(self, whole: Walk, less: Less, rests: Rests) -> Walk:
        """A walk of strings, without what ends some words; the walk itself if that is nothing."""
        trie = self._trie
        at: Rests | None = rests
        for byte in less.opening:
            at = trie.step(at, byte) if at is not None else None
        if at is None:
            return whole
        closers = self._scan(at).closers
        ended: list[int] = []
        left: set[int] = set()
        for word in less.words:
            for part in closers.get(word, ()):
                here: Rests | None = part
                for byte in less.closing[1:]:
                    assert here is not None
                    ended += trie.ids_at(here)
                    here = trie.step(here, byte)
                    if here is None:
                        break
                else:
                    assert here is not None
                    ended += trie.ids_at(here)
                    left.update((here,) if isinstance(here, int) else here.nodes)
        if not ended and not left:
            return whole
        exits = []
        for label, after in whole.exits:
            nodes = (after,) if isinstance(after, int) else after.nodes
            kept = [node for node in nodes if node not in left]
            if kept:
                exits.append((label, after if len(kept) == len(nodes) else trie.union(kept)))
        mask, ids = whole.mask, whole.ids
        if ended:
            gone = np.array(ended, dtype=np.int32)
            ids = ids[~np.isin(ids, gone)]
            if mask is not None:
                flags = np.zeros(self._size, dtype=bool)
                flags[gone] = True
                mask = mask & ~pack_bool(flags)
                mask.flags.writeable = False
        return Walk(ids, mask, tuple(exits))

    def _make(
        self,
        free: Free,
        at: Rests,
        scan: _Scan,
        bounds: tuple[int, int | None],
        hits: frozenset[str],
        passed: list[int],
    ) -> Walk:
        trie = self._trie
        least, most = bounds
        count = len(scan.ids)
        if most is not None:
            count = int(np.searchsorted(scan.needs, most, side="right"))
        mask = None
        stay = scan.ids[:count]
        if count > FEW:
            mask, stay = self._mask(at, count, stay), stay[:0]
        closing = [
            rests
            for text, parts in scan.closers.items()
            if least <= len(text) and (most is None or len(text) <= most) and text not in hits
            for rests in parts
        ]
        exits: tuple[tuple[int, Rests], ...] = ()
        if closing:
            exits = self._close(free, trie.union(closing), passed)
        ids = np.concatenate([stay, np.array(passed, dtype=np.int32)])
        return Walk(ids, mask, exits)

    def _close(
        self, free: Free, after_quote: Rests, passed: list[int]
    ) -> tuple[tuple[int, Rests], ...]:
        """Follow the rest of the closing text; adds the tokens that end on the way."""
        trie = self._trie
        at: Rests | None = after_quote
        for done in range(1, len(free.closing) + 1):
            if at is None or (free.ended and done == len(free.closing)):
                return ()
            passed += trie.ids_at(at)
            if done == len(free.closing):
                return () if trie.is_leaf(at) else ((0, at),)
            at = trie.step(at, free.closing[done])
        raise AssertionError("a closing text is not empty")

    def _mask(self, at: Rests, count: int, ids: IntArray) -> Mask:
        found = self._masks.get(count) if at == 0 else None
        if found is None:
            flags = np.zeros(self._size, dtype=bool)
            flags[ids] = True
            found = pack_bool(flags)
            found.flags.writeable = False
            self._bytes += found.nbytes
            if at == 0:
                self._masks[count] = found
        return found

    # -- scanning -------------------------------------------------------------------------------

    def _scan(self, rests: Rests) -> _Scan:
        found = self._scans.get(rests)
        if found is None:
            found = self._scans[rests] = self._run(rests)
            self._bytes += 200 + 8 * len(found.ids) + 200 * len(found.closers)
        return found

    def _run(self, rests: Rests) -> _Scan:
        """Run the automaton over the tokens below; from the root, over those not plain only."""
        ids: list[int] = []
        needs: list[int] = []
        closers: dict[str, list[Rests]] = {}
        whole_vocabulary = rests == 0
        trie = self._other if whole_vocabulary else self._trie
        automaton = self._automaton
        pending: list[tuple[Rests, int, int, bytes]] = [(rests, self._inside, 0, b"")]
        while pending:
            at, state, done, text = pending.pop()
            for byte, child in trie.children(at).items():
                assert child is not None
                after = automaton.step(state, byte)
                if after == DEAD:
                    continue
                kind = automaton.key(after)[0]
                if kind == "close":
                    closers.setdefault(json.loads(b'"' + text + b'"'), []).append(
                        int(self._other_nodes[child])
                        if whole_vocabulary and isinstance(child, int)
                        else child
                    )
                    continue
                whole = kind == "body"
                ending = trie.ids_at(child)
                count = len(ids)
                ids += ending
                needs += [done + 1] * (len(ids) - count)
                pending.append((child, after, done + whole, text + bytes((byte,))))
        return self._sorted(ids, needs, closers, whole_vocabulary)

    def _sorted(
        self, ids: Sequence[int], needs: Sequence[int], closers: dict[str, list[Rests]], all_: bool
    ) -> _Scan:
        found = np.array(ids, dtype=np.int32)
        counts = np.array(needs, dtype=np.int32)
        if all_:
            plain = np.flatnonzero(self._plain).astype(np.int32)
            found = np.concatenate([plain, found])
            counts = np.concatenate([self._plain[plain], counts])
        order = np.argsort(counts, kind="stable")
        longest = max(map(len, closers), default=0)
        return _Scan(found[order], counts[order], closers, longest)
