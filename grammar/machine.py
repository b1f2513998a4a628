"""States: interned sets of leaves, with memoised transitions and masks.

A state is everything that can be told of the text so far. Its mask is put together from the walks
of its terminals (shared with every other state and schema that has the same terminal) and, for the
tokens that leave a terminal, from stepping the state behind it over the few bytes that remain.

Ownership: states refer to each other (``edges``, ``bytes``), also in circles, so the machine that
made them cuts those references when it dies; nothing waits for the cycle collector. Memory is
bounded by ``MAX_STATES``: past it all memos are dropped and rebuilt on demand; matchers only hold
the states they stand on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from grammar.automaton import DEAD, NOT_ACCEPTING, Outcome
from grammar.nodes import Closure, Context, Leaf, Node, Stack
from grammar.style import Style
from grammar.vocabulary import Vocabulary
from grammar.walk import FEW, Mask, Tails, walk

MAX_STATES = 50_000
MAX_MASK_BYTES = 64 << 20
MAX_FORCED = 1 << 16


class State:
    """A set of leaves, and whether the text may end here. Compared by identity."""

    __slots__ = ("accepts", "bytes", "edges", "ids", "leaves", "mask")

    def __init__(self, leaves: tuple[Leaf, ...], accepts: bool) -> None:
        self.leaves = leaves
        self.accepts = accepts
        self.edges: dict[int, State] = {}
        self.bytes: dict[int, State | None] = {}
        self.mask: Mask | None = None
        self.ids: npt.NDArray[np.int32] | None = None


class Machine:
    """The lazily determinised pushdown automaton of one grammar.

    Callers hold ``workspace.lock`` for everything that may create something: all methods here.
    """

    def __init__(
        self, vocabulary: Vocabulary, rules: Sequence[Node], root: int, styles: Sequence[Style]
    ) -> None:
        self.vocabulary = vocabulary
        self.context = Context(vocabulary.workspace, rules)
        self._states: dict[tuple[tuple[int, int, int], ...], State] = {}
        self._after: dict[tuple[int, Outcome], State] = {}
        self._mask_bytes = 0
        self._vague = False
        closure = Closure()
        for style in styles:
            rules[root].expand(self.context, self.context.bottom(style), closure)
        self.start = self._intern(closure)

    def __del__(self) -> None:
        for state in getattr(self, "_states", {}).values():
            state.edges.clear()
            state.bytes.clear()

    def __len__(self) -> int:
        return len(self._states)

    def memory_bytes(self) -> int:
        """An estimate of what states, stacks and masks hold, in bytes."""
        return self._mask_bytes + 900 * len(self._states) + 200 * len(self.context.stacks)

    def _intern(self, closure: Closure) -> State:
        unique = {(id(a), s, k.uid): leaf for leaf in closure.leaves for a, s, k in (leaf,)}
        key = tuple(sorted(unique))
        if closure.accepts:
            key = (*key, (-1, 0, 0))
        found = self._states.get(key)
        if found is None:
            if len(self._states) >= MAX_STATES or self._mask_bytes > MAX_MASK_BYTES:
                self._forget()
            leaves = tuple(unique[k] for k in sorted(unique))
            found = self._states[key] = State(leaves, closure.accepts)
        return found

    def _forget(self) -> None:
        """Drop every memo but the start; states in use live on with their own leaves."""
        start = getattr(self, "start", None)
        for state in self._states.values():
            state.edges.clear()
            state.bytes.clear()
            if state is not start:
                state.mask = None
        self._states.clear()
        self._after.clear()
        self.context.stacks.clear()
        self._mask_bytes = 0

    # -- transitions ----------------------------------------------------------------------------

    def step(self, state: State, byte: int) -> State | None:
        """The state after one byte, or None."""
        if byte in state.bytes:
            return state.bytes[byte]
        closure = Closure()
        for automaton, at, stack in state.leaves:
            after = automaton.step(at, byte)
            if after == DEAD:
                continue
            closure.leaves.append(Leaf(automaton, after, stack))
            label = automaton.labels[after]
            if label != NOT_ACCEPTING:
                self.context.pop(stack, automaton.outcome(label), closure)
        dead = not closure.leaves and not closure.accepts
        found = None if dead else self._intern(closure)
        state.bytes[byte] = found
        return found

    def run(self, state: State, text: bytes) -> State | None:
        """The state after some bytes, or None."""
        for byte in text:
            after = self.step(state, byte)
            if after is None:
                return None
            state = after
        return state

    def after(self, stack: Stack, label: Outcome) -> State:
        """The state behind a terminal that has just ended with ``label``."""
        key = (stack.uid, label)
        found = self._after.get(key)
        if found is None:
            closure = Closure()
            self.context.pop(stack, label, closure)
            found = self._intern(closure)
            self._after[key] = found
        return found

    # -- masks ----------------------------------------------------------------------------------

    def fill_mask(self, state: State) -> Mask:
        """Compute and keep the state's mask: uint32[ceil(V/32)], read-only."""
        ids: list[int] = []
        masks: list[Mask] = []
        self._vague = False
        for automaton, at, stack in state.leaves:
            self._vague |= automaton.remembers
            found = walk(automaton, at, self.vocabulary)
            self._collect(found.ids, found.mask, ids, masks)
            for label, tails in found.tails.items():
                self._follow(self.after(stack, label), tails, ids)
            for label, node, depth in found.deep:
                self._descend(self.after(stack, label), node, depth, ids, masks)
        if state.accepts:
            ids.extend(self.vocabulary.eos)
        if self._vague:  # what a vague key could not decide is tried for real
            tokens = self.vocabulary.tokens
            ids.extend(t for t in self.vocabulary.double_key_tokens if self.run(state, tokens[t]))
        mask = np.zeros(self.vocabulary.mask_words, dtype=np.uint32)
        for other in masks:
            mask |= other
        if len(ids) <= FEW:
            for token in ids:
                mask[token >> 5] |= np.uint32(1 << (token & 31))
        else:
            chosen = np.array(ids, dtype=np.int64)
            bits = np.left_shift(np.uint32(1), (chosen & 31).astype(np.uint32))
            np.bitwise_or.at(mask, chosen >> 5, bits)
        if not masks and len(ids) <= FEW:
            state.ids = np.array(sorted(set(ids)), dtype=np.int32)
            state.ids.flags.writeable = False
        mask.flags.writeable = False
        state.mask = mask
        self._mask_bytes += mask.nbytes
        return mask

    @staticmethod
    def _collect(
        new_ids: list[int], new_mask: Mask | None, ids: list[int], masks: list[Mask]
    ) -> None:
        ids.extend(new_ids)
        if new_mask is not None:
            masks.append(new_mask)

    def _follow(self, state: State, tails: Tails, ids: list[int]) -> None:
        """Tokens that left a terminal: may the rest of each follow?"""
        pending = [(state, tails)]
        while pending:
            at, node = pending.pop()
            for byte, child in node.children.items():
                after = self.step(at, byte)
                if after is not None:
                    ids.extend(child.ids)
                    if child.children:
                        pending.append((after, child))

    def _descend(
        self, state: State, node: int, depth: int, ids: list[int], masks: list[Mask]
    ) -> None:
        """The same where many tokens leave at once: walk the next terminals from that trie node."""
        for automaton, at, stack in state.leaves:
            self._vague |= automaton.remembers
            found = walk(automaton, at, self.vocabulary, node, depth)
            self._collect(found.ids, found.mask, ids, masks)
            for label, tails in found.tails.items():
                self._follow(self.after(stack, label), tails, ids)
            for label, inner, inner_depth in found.deep:
                self._descend(self.after(stack, label), inner, inner_depth, ids, masks)

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

    @staticmethod
    def _only_byte(state: State) -> int | None:
        only: int | None = None
        for automaton, at, _ in state.leaves:
            if automaton.is_wide(at):
                return None
            for byte in automaton.live(at):
                if only is None:
                    only = byte
                elif only != byte:
                    return None
        return only

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
