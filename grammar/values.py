"""Which value some text was written in: a string, a number, an array, or a whole rule.

A value is told by the stack below it: as long as that stack stays untouched the text is inside.
Found by running the text again byte by byte and remembering, for each way to read it, the highest
stack that nothing has been taken from.

Invariant: while a matcher has been inside a value all along, ``is_inside`` says so. Read next:
``matcher.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from grammar.automaton import DEAD, NOT_ACCEPTING
from grammar.nodes import Either, Leaf, Stack

if TYPE_CHECKING:
    from grammar.machine import Machine
    from grammar.states import State

Value: TypeAlias = Stack


def enclosing(machine: Machine, state: State, tokens: Sequence[int]) -> Value | None:
    """The innermost value within which some tokens were written, beginning at a state.

    None where a token was taken as a whole, or the tokens don't fit. Needs the workspace's lock.
    """
    lows: dict[Leaf, Stack] = {leaf: leaf.stack for leaf in state.leaves}
    for token in tokens:
        text = machine.vocabulary.tokens[token]
        if not text:
            return None
        for byte in text:
            lows = _step(machine, lows, byte)
    return max(lows.values(), key=_height, default=None)


def is_inside(state: State, value: Value) -> bool:
    """Whether some way to go on from the state lies within the value."""
    return any(_holds(leaf.stack, value) for leaf in state.leaves)


def _step(machine: Machine, lows: dict[Leaf, Stack], byte: int) -> dict[Leaf, Stack]:
    after: dict[Leaf, Stack] = {}

    def keep(leaf: Leaf, low: Stack) -> None:
        known = after.get(leaf)
        if known is None or _height(known) < _height(low):
            after[leaf] = low

    for (automaton, at, stack), low in lows.items():
        reached = automaton.step(at, byte)
        if reached == DEAD:
            continue
        keep(Leaf(automaton, reached, stack), low)
        label = automaton.labels[reached]
        if label != NOT_ACCEPTING:
            below = low if low is not stack or stack.tail is None else stack.tail
            for leaf in machine.after(stack, automaton.outcome(label)).leaves:
                keep(leaf, _common(below, leaf.stack))
    return after


def _common(low: Stack, stack: Stack) -> Stack:
    """The highest stack at or below ``low`` that ``stack`` lies on."""
    at: Stack | None = low
    while at is not None and at.tail is not None and not _holds(stack, at):
        at = at.tail
    assert at is not None
    return at


def _holds(stack: Stack, low: Stack) -> bool:
    """Whether ``low`` is the stack or lies below its top."""
    at: Stack | None = stack
    while at is not None:
        if at is low:
            return True
        if isinstance(at.node, Either):
            return any(_holds(member, low) for member in at.place)
        at = at.tail
    return False


def _height(stack: Stack) -> int:
    height = 0
    at = stack.tail
    while at is not None:
        height, at = height + 1, at.tail
    return height
