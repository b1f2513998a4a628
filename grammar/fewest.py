"""The fewest tokens of any answer, as a search over places between tokens.

``distance.py`` finds a text that is short in bytes, and its fewest tokens; another text may have
more bytes and fewer tokens. Whether *any* answer fits a number of tokens is asked here: a shortest
path (A*, unit costs) over configurations, each a set of terminals in their states. One token leads
to many configurations, found level by level in the vocabulary's trie with all nodes that a
configuration was reached at as one array, so the cost depends on how many different configurations
there are and not on how many tokens.

The search is of a *relaxed* grammar, which allows a little more: undeclared keys are not remembered
(they may repeat), and items need not differ. So what it says about too few tokens holds, and what
it finds is an answer if the real grammar takes it, which is tried. A configuration is left out
where another was met, with no more tokens, of the same text with wider bounds on its length.

Invariants: no answer has fewer tokens than ``at_least``; ``tokens`` are an answer. Where the bounds
end the search ``at_least`` is what it knew by then: the number of tokens may lie between the two.
Read next: ``matcher.py``, which asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from grammar.automaton import TOKENS, Automaton
from grammar.characters import Characters
from grammar.content import Content
from grammar.keys import KeyStrings
from grammar.nodes import Leaf
from grammar.regular import RegexBudgetError
from grammar.strings import JsonStrings

if TYPE_CHECKING:
    from grammar.machine import Machine
    from grammar.states import State
    from grammar.trie import TokenTrie

MAX_WORK = 200_000
"""Steps of one search: bytes tried in configurations."""
MAX_MET = 20_000
"""Configurations of one search."""
NEVER = 1 << 60
_SOME_KEY = b"\\ud800"
"""The text of every undeclared key here; half a character, so that none really has it."""

FEW_NODES = 16
_Nodes = npt.NDArray[np.int64]
_ROOT: _Nodes = np.zeros(1, dtype=np.int64)


class Fewest(NamedTuple):
    """What is known of the fewest tokens of an answer.

    ``tokens``: those of an answer that has few, None where none is known; ``at_least``: no answer
    has fewer. They are the fewest where these agree.
    """

    tokens: tuple[int, ...] | None
    at_least: int

    @property
    def is_exact(self) -> bool:
        """Whether no answer has fewer tokens than this one."""
        return self.tokens is not None and len(self.tokens) <= self.at_least


class Config:
    """Terminals in their states, and whether the text may end; compared by identity."""

    __slots__ = ("accepts", "after", "came", "cost", "least", "leaves", "tried")

    def __init__(self, leaves: tuple[Leaf, ...], accepts: bool, least: int) -> None:
        self.leaves = leaves
        self.accepts = accepts
        self.least = least  # bytes at least that end its terminals
        self.after: dict[int, Config | None] = {}  # by byte
        self.tried: frozenset[int] | None = None  # the bytes that may follow; None: most of them
        self.cost = -1  # tokens that lead here, where it is a place between tokens
        self.came: tuple[Config, int] | None = None  # from where, by which token


class FewestSearch:
    """A search from one state, done in slices (``go_on``)."""

    def __init__(self, machine: Machine, state: State, most: int | None) -> None:
        """``most``: an answer of so many tokens is known; only one of fewer is of interest."""
        self._machine = machine
        self._most = most
        self._trie = machine.vocabulary.trie
        self._other_trie = machine.vocabulary.other_trie
        self._longest = machine.vocabulary.longest
        lengths = machine.vocabulary.plain_lengths
        sizes, tokens = np.unique(lengths, return_index=True)
        self._plain = {
            size: token for size, token in zip(sizes.tolist(), tokens.tolist(), strict=True) if size
        }
        self._configs: dict[tuple[frozenset[Leaf], bool], Config] = {}
        self._bounds: dict[object, list[tuple[int, float, int]]] = {}
        self._work = 0
        self._entered = 0
        self._heap: list[tuple[int, int, int, Config]] = []
        self._goal: Config | None = None
        start = self._config(state.leaves, state.accepts)
        self._enter(start, 0, None)

    @property
    def is_over(self) -> bool:
        """Whether the goal was found, or there is nothing left to try, or no more work to do."""
        return (
            self._goal is not None
            or not self._heap
            or (self._most is not None and self._heap[0][0] >= self._most)
            or self._work > MAX_WORK
            or len(self._configs) > MAX_MET
        )

    @property
    def at_least(self) -> int:
        """No answer has fewer tokens than this."""
        found = self._heap[0][0] if self._heap else NEVER
        if self._goal is not None:
            found = self._goal.cost
        return found if self._most is None else min(found, self._most)

    def path(self) -> tuple[int, ...] | None:
        """The tokens that lead to the goal, if it was found."""
        if self._goal is None:
            return None
        tokens: list[int] = []
        at = self._goal
        while at.came is not None:
            at, token = at.came
            tokens.append(token)
        return tuple(reversed(tokens))

    def go_on(self) -> None:
        """Look at one place between tokens, the nearest. The caller holds the workspace's lock."""
        while self._heap:
            _, negative, _, config = heappop(self._heap)
            if -negative == config.cost:
                break  # it was not reached with fewer tokens since
        else:
            return
        if config.accepts:
            self._goal = config
            return
        estimate = config.cost + -(-config.least // self._longest)
        try:
            for after, token in self._following(config).items():
                self._enter(after, config.cost + 1, (config, token))
        except RegexBudgetError:
            # What follows is not known, so nothing beyond this place is.
            self._work = MAX_WORK + 1
            heappush(self._heap, (estimate, -config.cost, 0, config))

    # -- places between tokens ------------------------------------------------------------------

    def _enter(self, config: Config, cost: int, came: tuple[Config, int] | None) -> None:
        if 0 <= config.cost <= cost or self._is_covered(config, cost):
            return
        config.cost, config.came = cost, came
        self._entered += 1
        estimate = cost + -(-config.least // self._longest)
        heappush(self._heap, (estimate, -cost, self._entered, config))

    def _is_covered(self, config: Config, cost: int) -> bool:
        """Whether the same text with wider bounds was met. Notes the bounds of this one."""
        text = _text(config)
        if text is None or config.accepts:
            return False
        content = text.content
        least, most = content.least, np.inf if content.most is None else content.most
        stacks = frozenset(leaf.stack for leaf in config.leaves)
        kind = (config.leaves[0].automaton, text.place, stacks)
        met = self._bounds.setdefault(kind, [])
        if any(low <= least and most <= high and paid <= cost for low, high, paid in met):
            return True
        met.append((least, most, cost))
        return False

    def _following(self, config: Config) -> dict[Config, int]:
        """What one token leads to, and such a token."""
        found: dict[Config, int] = {}
        trie = self._trie
        text = _text(config)
        if text is not None and text.is_free:
            found = self._within(config, text.content)
            trie = self._other_trie
        level: dict[Config, list[_Nodes]] = {config: [_ROOT]}
        while level:
            below: dict[Config, list[_Nodes]] = {}
            for at, parts in level.items():
                nodes = parts[0] if len(parts) == 1 else np.concatenate(parts)
                for byte, children in _children(trie, at, nodes):
                    after = self._step(at, byte)
                    if after is None:
                        continue
                    if after not in found:
                        ends = np.flatnonzero(trie.ends[children])
                        if len(ends):
                            found[after] = int(trie.order[trie.low[children[ends[0]]]])
                    below.setdefault(after, []).append(children)
            level = below
        for token in {t for leaf in config.leaves for t in leaf[0].tokens(leaf[1])}:
            after = self._take(config, token)
            if after is not None:
                found.setdefault(after, token)
        return found

    def _within(self, config: Config, content: Content) -> dict[Config, int]:
        """What plain tokens lead to within a free string, as far as it is of use: fewer characters
        that must come. Where none must, it is the same string with narrower bounds."""
        found: dict[Config, int] = {}
        automaton, at, _ = config.leaves[0]
        for length, token in self._plain.items() if content.least else ():
            if content.most is not None and length > content.most:
                continue
            most = None if content.most is None else content.most - length
            left = ("body", Content(None, max(0, content.least - length), most))
            key = automaton.key(at)
            after = automaton.state((key[0], left, key[2]) if key[0] != "body" else left)
            leaves = [Leaf(automaton, after, leaf.stack) for leaf in config.leaves]
            found[self._config(leaves, False)] = token
            self._work += 1
        return found

    # -- configurations -------------------------------------------------------------------------

    def _step(self, config: Config, byte: int) -> Config | None:
        """The configuration after one byte, or None."""
        if byte in config.after:
            return config.after[byte]
        self._work += 1
        leaves, accepts = self._machine.follow(config.leaves, byte)
        found = config.after[byte] = self._config(leaves, accepts) if leaves or accepts else None
        return found

    def _take(self, config: Config, token: int) -> Config | None:
        """The configuration after a token as a whole, and by its bytes, if it has any."""
        self._work += 1
        takers = [leaf for leaf in config.leaves if leaf[0].takes_tokens]
        leaves, accepts = self._machine.follow(takers, TOKENS + token)
        text = self._machine.vocabulary.tokens[token]
        at: Config | None = config if text else None
        for byte in text:
            at = None if at is None else self._step(at, byte)
        if at is not None:
            leaves = (*leaves, *at.leaves)
            accepts |= at.accepts
        return self._config(leaves, accepts) if leaves or accepts else None

    def _config(self, found: Iterable[Leaf], accepts: bool) -> Config:
        leaves = tuple(dict.fromkeys(map(_forgetful, found)))
        key = (frozenset(leaves), accepts)
        config = self._configs.get(key)
        if config is None:
            least = 0 if accepts else min(map(_least, leaves), default=0)
            config = self._configs[key] = Config(leaves, accepts, least)
            tried = [automaton.tried(at) for automaton, at, _ in leaves]
            if None not in tried:
                config.tried = frozenset(byte for each in tried for byte in each or ())
        return config


def _children(trie: TokenTrie, at: Config, nodes: _Nodes) -> Iterator[tuple[int, _Nodes]]:
    """The nodes below some, by the byte that leads to them, as far as it may follow."""
    if len(nodes) <= FEW_NODES:
        below: dict[int, list[int]] = {}
        for node in nodes.tolist():
            for byte, child in trie.visit(node)[0].items():
                if at.tried is None or byte in at.tried:
                    below.setdefault(byte, []).append(child)
        for byte, few in below.items():
            yield byte, np.array(few, dtype=np.int64)
        return
    children = trie.below(nodes)
    bytes_ = trie.byte[children]
    if at.tried is not None:
        for byte in at.tried:
            met = children[bytes_ == byte]
            if len(met):
                yield byte, met
        return
    order = np.argsort(bytes_, kind="stable")
    children, bytes_ = children[order], bytes_[order]
    cuts = (np.flatnonzero(bytes_[1:] != bytes_[:-1]) + 1).tolist()
    for begin, end in zip([0, *cuts], [*cuts, len(children)], strict=True):
        if begin < end:
            yield int(bytes_[begin]), children[begin:end]


def _forgetful(leaf: Leaf) -> Leaf:
    """The leaf without the text of an undeclared key that it has begun."""
    automaton, at, stack = leaf
    if not isinstance(automaton, KeyStrings):
        return leaf
    flavour, inner, raw = automaton.key(at)
    if not raw or raw == _SOME_KEY:
        return leaf
    return Leaf(automaton, automaton.state((flavour, inner, _SOME_KEY)), stack)


class _Text(NamedTuple):
    """A text: what may still be in it; where else it stands (within a character, say); whether it
    is a string of any characters between two of them, so that what a plain token leads to depends
    on its length only."""

    content: Content
    place: tuple[object, ...]
    is_free: bool


def _text(config: Config) -> _Text | None:
    """What all terminals of a configuration are, if they are one text (before several stacks)."""
    if not config.leaves:
        return None
    automaton, at, _ = config.leaves[0]
    if any(leaf.state != at or leaf.automaton is not automaton for leaf in config.leaves):
        return None
    key, flavour = _inner_key(automaton, at)
    content = next((part for part in key if isinstance(part, Content)), None)
    if content is None:
        return None
    place = (flavour, *(part for part in key if part is not content), content.language)
    is_string = type(automaton) in (JsonStrings, KeyStrings)
    return _Text(content, place, is_string and key[0] == "body" and content.language is None)


def _inner_key(automaton: Automaton, at: int) -> tuple[tuple[Any, ...], str]:
    """The key of a text's state (see ``characters.py``), and the kind of an undeclared key."""
    if not isinstance(automaton, Characters):
        return (), ""
    key: tuple[Any, ...] = automaton.key(at)
    return (key[1], key[0]) if isinstance(automaton, KeyStrings) else (key, "")


def _least(leaf: Leaf) -> int:
    """Bytes at least that end a terminal, where that is easily told."""
    key, _ = _inner_key(leaf.automaton, leaf.state)
    content = next((part for part in key if isinstance(part, Content)), None)
    if content is None:
        return 0
    language = content.language
    least = max(content.least, 0 if language is None else language.min_length())
    return least if key[0] in ("open", "body") else max(0, least - 1)  # within a character
