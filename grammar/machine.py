"""States: interned sets of leaves, with memoised transitions and masks.

A state is everything that can be told of the text so far. Its mask is put together from the walks
of its terminals over the vocabulary (shared with every other state and schema that has the same
terminal) and, for the tokens that leave a terminal, from the walks of those behind it over what
remains of these tokens. States that are made of the same walks have the same mask object.

Ownership: states refer to each other (``edges``, ``bytes``), also in circles, so the machine that
made them cuts those references when it dies. Memory is bounded by ``MAX_STATES`` and
``MAX_STACKS``: past them all memos are dropped and rebuilt on demand; matchers only hold the states
they stand on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from grammar.automaton import DEAD, NOT_ACCEPTING, TOKENS, Outcome
from grammar.distance import Distance
from grammar.masks import FEW, Mask, TokenSet
from grammar.nodes import Closure, Context, Leaf, Node, Stack
from grammar.states import Behind, State
from grammar.style import Style
from grammar.trie import Rests
from grammar.vocabulary import Vocabulary
from grammar.walk import Walk, walk
from grammar.workspace import Workspace

_new_leaf = tuple.__new__  # as ``Leaf(...)``, without the detour over Python
MAX_STATES = 50_000
MAX_STACKS = 100_000
MAX_MASK_BYTES = 64 << 20
MAX_FORCED = 1 << 16
EVERY_BYTE = tuple(sorted(range(256), key=lambda byte: (not 0x20 <= byte < 0x7F, byte)))
MANY_EXITS = 1000
"""Past so many exits met for one mask an ambiguous grammar is stepped byte by byte instead."""


class Machine:
    """The lazily determinised pushdown automaton of one grammar.

    Callers hold ``workspace.lock`` for everything that may create something: all methods here.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        workspace: Workspace,
        rules: Sequence[Node],
        root: int,
        styles: Sequence[Style],
    ) -> None:
        """``workspace``: the one that the rules' terminals are from."""
        self.vocabulary = vocabulary
        self.context = Context(workspace, rules)
        self._states: dict[Hashable, State] = {}
        self._after: dict[tuple[Stack, Outcome], Behind] = {}
        self._mask_bytes = 0
        self._distance: Distance | None = None
        self._merges = any(node.merges for node in rules)
        closure = Closure()
        for style in styles:
            rules[root].expand(self.context, self.context.bottom(style), closure)
        self.context.settle(closure)
        self.start = self._intern(closure.leaves, closure.accepts)

    def __del__(self) -> None:
        for state in getattr(self, "_states", {}).values():
            state.edges.clear()
            state.bytes.clear()

    def __len__(self) -> int:
        return len(self._states)

    def memory_bytes(self) -> int:
        """An estimate of what states, stacks and masks hold, in bytes."""
        states, stacks = 750 * len(self._states), 270 * len(self.context.stacks)
        return self._mask_bytes + states + stacks + 680 * len(self._after)

    def _intern(self, found: Sequence[Leaf], accepts: bool) -> State:
        leaves = self._distinct(found) if len(found) > 1 else tuple(found)
        single = len(leaves) == 1  # as most are; a set takes more time and memory than its leaf
        key: Hashable = (leaves[0] if single else frozenset(leaves), accepts)
        state = self._states.get(key)
        if state is None:
            states, stacks = len(self._states), len(self.context.stacks)
            if states >= MAX_STATES or stacks >= MAX_STACKS or self._mask_bytes > MAX_MASK_BYTES:
                self._forget()
            state = self._states[key] = State(leaves, accepts)
        return state

    def _distinct(self, leaves: Iterable[Leaf]) -> tuple[Leaf, ...]:
        return tuple(dict.fromkeys(self._merged(leaves) if self._merges else leaves))

    def _merged(self, leaves: Iterable[Leaf]) -> list[Leaf]:
        """Leaves that differ only in what follows them as one."""
        stacks: dict[tuple[int, int], dict[Stack, None]] = {}
        first: dict[tuple[int, int], Leaf] = {}
        for leaf in leaves:
            key = (id(leaf.automaton), leaf.state)
            first.setdefault(key, leaf)
            stacks.setdefault(key, {})[leaf.stack] = None
        return [
            leaf if len(stacks[key]) == 1 else leaf._replace(stack=self.context.either(stacks[key]))
            for key, leaf in first.items()
        ]

    def _forget(self) -> None:
        """Drop every memo but the start; states in use live on with their own leaves."""
        start = getattr(self, "start", None)
        for state in self._states.values():
            state.edges.clear()
            state.bytes.clear()
            if state is not start:
                state.tokens = None
        self._states.clear()
        self._after.clear()
        self.context.stacks.clear()
        self._distance = None
        self._mask_bytes = 0

    # -- transitions ----------------------------------------------------------------------------

    def step(self, state: State, byte: int) -> State | None:
        """The state after one byte, or None."""
        if byte in state.bytes:
            return state.bytes[byte]
        leaves, accepts = self._move(state.leaves, byte)
        found = self._intern(leaves, accepts) if leaves or accepts else None
        state.bytes[byte] = found
        return found

    def _move(self, leaves: Iterable[Leaf], byte: int) -> tuple[list[Leaf], bool]:
        """What follows one byte (or whole token) from some leaves, and whether that may end."""
        out: list[Leaf] = []
        ended: list[tuple[Stack, Outcome]] = []
        for automaton, at, stack in leaves:
            after = automaton.rows[at].get(byte)
            if after is None:
                after = automaton.step(at, byte)
            if after == DEAD:
                continue
            out.append(_new_leaf(Leaf, (automaton, after, stack)))
            label = automaton.labels[after]
            if label != NOT_ACCEPTING:
                ended.append((stack, automaton.outcome(label)))
        accepts = False
        if len(ended) > 1 and self._merges:
            out, accepts = self._settled(ended, out)
        else:
            for stack, outcome in ended:
                behind = self.after(stack, outcome)
                out += behind.leaves
                accepts |= behind.accepts
        return out, accepts

    def follow(self, leaves: Iterable[Leaf], byte: int) -> tuple[tuple[Leaf, ...], bool]:
        """What follows one byte (or whole token) from some leaves, each once, and whether that may
        end; no state is made of it."""
        found, accepts = self._move(leaves, byte)
        return self._distinct(found), accepts

    def _settled(
        self, ended: Iterable[tuple[Stack, Outcome]], leaves: list[Leaf]
    ) -> tuple[list[Leaf], bool]:
        """What lies behind several terminals that ended together, on top of some leaves."""
        closure = Closure()
        closure.leaves = leaves
        for stack, outcome in ended:
            self.context.pop(stack, outcome, closure)
        self.context.settle(closure)
        return closure.leaves, closure.accepts

    def run(self, state: State, text: bytes) -> State | None:
        """The state after some bytes, or None. The states between are not kept."""
        if self._merges:
            return self._run_together(state, text)
        count = len(text)
        out: list[Leaf] = []
        accepts = False
        met: set[tuple[Stack, Outcome, int]] = set()
        pending = [(leaf, 0) for leaf in state.leaves]
        for leaf, done in pending:  # which grows
            automaton, at, stack = leaf
            while done < count:
                at, done = automaton.advance(at, text, done)
                if at == DEAD:
                    break
                label = automaton.labels[at]
                if label == NOT_ACCEPTING:
                    continue  # it is the end
                outcome = automaton.outcome(label)
                key = (stack, outcome, done)
                if key in met:
                    continue
                met.add(key)
                behind = self.after(stack, outcome)
                if done == count:
                    out += behind.leaves
                    accepts |= behind.accepts
                else:
                    pending += [(leaf, done) for leaf in behind.leaves]
            if at != DEAD:
                out.append(_new_leaf(Leaf, (automaton, at, stack)))
        return self._intern(out, accepts) if out or accepts else None

    def _run_together(self, state: State, text: bytes) -> State | None:
        """The same where leaves are to be merged after every byte."""
        leaves: Sequence[Leaf] = state.leaves
        accepts = state.accepts
        for byte in text:
            found, accepts = self._move(leaves, byte)
            if not found and not accepts:
                return None
            leaves = found if len(found) < 2 else self._distinct(found)
        return self._intern(leaves, accepts)

    def advance(self, state: State, token: int) -> State | None:
        """The state after one token, by its bytes or as a whole, or None."""
        if state.loops and self.vocabulary.plain_lengths[token]:
            return state
        text = self.vocabulary.tokens[token]
        by_bytes = self.run(state, text) if text else None
        takers = [leaf for leaf in state.leaves if leaf[0].takes_tokens]
        if not takers:
            return by_bytes
        leaves, accepts = self._move(takers, TOKENS + token)
        if by_bytes is not None:
            leaves += by_bytes.leaves
            accepts |= by_bytes.accepts
        return self._intern(leaves, accepts) if leaves or accepts else None

    def hurry(self, state: State) -> State:
        """The state where a text that a budget can end is at its end."""
        leaves = []
        for automaton, at, stack in state.leaves:
            if automaton.is_timed:
                if not automaton.runs(at):
                    continue
                automaton, at = automaton.hurried(at)
            leaves.append(Leaf(automaton, at, stack))
        return self._intern(leaves, state.accepts)

    def after(self, stack: Stack, label: Outcome) -> Behind:
        """What lies behind a terminal that has just ended with ``label``."""
        key = (stack, label)
        found = self._after.get(key)
        if found is None:
            leaves, accepts = self._settled([key], [])
            if len(self._after) >= MAX_STATES:
                self._after.clear()
            found = self._after[key] = Behind(self._distinct(leaves), accepts)
        return found

    @property
    def distance(self) -> Distance:
        """How far states are from the end; made on first use."""
        if self._distance is None:
            self._distance = Distance(self.context, self.vocabulary)
        return self._distance

    # -- masks ----------------------------------------------------------------------------------

    def fill_mask(self, state: State) -> Mask:
        """Compute and keep the state's mask: uint32[ceil(V/32)], read-only."""
        tokens = state.tokens
        if tokens is None:
            tokens = self._tokens_of(state)
            state.stuck = tokens.is_empty
            state.tokens = tokens
        return self.context.workspace.lent.mask(tokens)

    def _tokens_of(self, state: State) -> TokenSet:
        """The tokens of the state's mask; the same object where they are made of the same."""
        vocabulary = self.vocabulary
        parts: dict[Walk, None] = {}
        vague, too_many = self._gather(state, parts)
        if state.accepts:
            parts[vocabulary.end_walk] = None
        more = [t for leaf in state.leaves if leaf[0].takes_tokens for t in leaf[0].tokens(leaf[1])]
        if too_many:
            more += self._swept(state)
        wrong: list[int] = []
        if vague:  # what a vague key could not decide is tried for real
            for token in vocabulary.double_key_tokens:
                legal = self.run(state, vocabulary.tokens[token]) is not None
                (more if legal else wrong).append(token)
        sets = self.context.workspace.sets
        key: Hashable = frozenset(parts)
        if more or wrong:
            key = (key, tuple(more), tuple(wrong))
        found = sets.get(key)
        if found is not None:
            return found
        if more:
            parts[Walk.of(more, vocabulary.mask_words)] = None
        made = TokenSet(parts, wrong)
        private = len(more) > FEW
        for part in parts:
            private |= part.private
        if private:  # nothing that others share may keep what is one grammar's
            self._mask_bytes += made.memory_bytes() + sum(part.memory_bytes() for part in parts)
        else:
            self.context.workspace.keep(key, made)
        return made

    def _gather(self, state: State, parts: dict[Walk, None]) -> tuple[bool, bool]:
        """Collect the walks that have legal tokens.

        Returns whether a vague key was among them, and whether there were too many to go on.
        """
        vocabulary = self.vocabulary
        vague = False
        pending: list[tuple[tuple[Leaf, ...], Rests]] = [(state.leaves, 0)]
        met: set[tuple[Stack, int, Rests]] = set()
        while pending:
            leaves, rests = pending.pop()
            for automaton, at, stack in leaves:
                if automaton.remembers:
                    vague = True
                found = automaton.walks.get((at, rests))
                if found is None:
                    found = walk(automaton, at, vocabulary, rests)
                if found.stays:
                    parts[found] = None
                for label, left in found.exits:
                    key = (stack, label, left)
                    if key not in met:
                        met.add(key)
                        pending.append((self.after(stack, label).leaves, left))
            if self._merges and len(met) > MANY_EXITS:
                return vague, True
        return vague, False

    def _swept(self, state: State) -> list[int]:
        """The legal tokens, found by stepping states over the trie.

        The walks of terminals know nothing of each other, so in an ambiguous grammar their exits
        can double with every byte of a token; states merge what has become the same.
        """
        trie = self.vocabulary.trie
        found: list[int] = []
        frontier: dict[State, list[npt.NDArray[np.int64]]] = {state: [np.zeros(1, dtype=np.int64)]}
        while frontier:
            at, nodes = frontier.popitem()
            below = trie.below(np.unique(np.concatenate(nodes)))
            bytes_ = trie.byte[below]
            for byte in np.unique(bytes_).tolist():
                after = self.step(at, byte)
                if after is not None:
                    met = below[bytes_ == byte]
                    for node in met[trie.ends[met] > 0].tolist():
                        found += trie.tokens_at(node).tolist()
                    frontier.setdefault(after, []).append(met)
        return found

    # -- forced bytes ---------------------------------------------------------------------------

    def forced(self, state: State) -> bytes:
        """The bytes that every continuation begins with."""
        text = bytearray()
        at = state
        while not at.accepts and len(text) < MAX_FORCED:
            byte = self._only_byte(at)
            if byte is None:
                break
            text.append(byte)
            after = self.step(at, byte)
            assert after is not None
            at = after
        return bytes(text)

    def _only_byte(self, state: State) -> int | None:
        only: int | None = None
        for automaton, at, _ in state.leaves:
            if automaton.is_wide(at) or automaton.tokens(at):
                return None
            for byte in automaton.live(at):
                if only is None:
                    only = byte
                elif only != byte:
                    return None
        return only

    # -- what can be told without a mask ---------------------------------------------------------

    def following(self, state: State, among: Sequence[int] = EVERY_BYTE) -> Iterator[int]:
        """Which of some bytes may come next, as they are found; some perhaps several times."""
        for automaton, at, _ in state.leaves:
            tried = automaton.tried(at)
            if tried is None:
                asked: Iterable[int] = among
            else:
                asked = tried if among is EVERY_BYTE else [byte for byte in tried if byte in among]
            for byte in asked:
                if automaton.step(at, byte) != DEAD:
                    yield byte

    def has_choice(self, state: State) -> bool:
        """Whether several tokens are legal, not all of them end tokens. False: perhaps so."""
        single = self.vocabulary.single_bytes
        first = -1
        for byte in self.following(state):
            if byte in single and byte != first:
                if first >= 0 or (state.accepts and self.vocabulary.eos):
                    return True
                first = byte
        return False

    def goes_on(self, state: State, node: int) -> bool:
        """Whether a token below a node of the trie is legal, what leads to the node being read."""
        trie = self.vocabulary.trie
        pending = [(state, node)]
        while pending:
            at, above = pending.pop()
            for byte, child in trie.visit(above)[0].items():
                after = self.step(at, byte)
                if after is None:
                    continue
                if trie.visit(child)[1]:
                    return True
                pending.append((after, child))
        return False

    def describe(self, state: State, limit: int = 6) -> str:
        """Where a state stands, for error messages: its terminals and the frames around them."""
        parts = []
        for automaton, at, stack in state.leaves[:limit]:
            frames: list[str] = []
            frame: Stack | None = stack
            while frame is not None and frame.node is not None and len(frames) < 8:
                frames.append(type(frame.node).__name__)
                frame = frame.tail
            inside = " in ".join(frames) or "top level"
            parts.append(f"{type(automaton).__name__}{automaton.key(at)!r:.80} in {inside}")
        if len(state.leaves) > limit:
            parts.append(f"{len(state.leaves) - limit} more")
        if state.accepts:
            parts.append("the end")
        return "expecting " + (" or ".join(parts) or "nothing")
