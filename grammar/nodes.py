"""The grammar proper: nodes that say what may follow, and the stacks that remember where we are.

A *stack* is an interned linked list of frames ``(node, place)``; the bottom frame carries the
white-space style. A *leaf* is ``(automaton, state, stack)``: a terminal, and what follows it. The
closure of a stack is the set of leaves that may come next; ``expand`` and ``resume`` compute it by
calling each other, never consuming a byte (grammars with a cycle of such calls are refused when
they are compiled).

Nodes refer to each other by rule number only, so there are no reference cycles among nodes,
stacks and states. Read next: ``machine.py``, which makes states of leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from grammar.automaton import NOT_ACCEPTING, Automaton, Outcome
from grammar.style import Style
from grammar.workspace import Workspace

Place: TypeAlias = "tuple[Any, ...]"
"""Where within its node a frame stands: a phase, and what the node wants to remember."""


class Stack:
    """One frame on top of the rest. ``depth`` counts the arrays and objects that are open."""

    __slots__ = ("depth", "node", "place", "style", "tail", "uid")

    def __init__(
        self, uid: int, node: Node | None, place: Place, tail: Stack | None, style: Style
    ) -> None:
        self.uid = uid
        self.node = node
        self.place = place
        self.tail = tail
        self.style = style
        self.depth: int = 0 if tail is None else tail.depth + (node is not None and node.nests)


class Leaf(NamedTuple):
    """A terminal in one of its states, and the stack to go on with when it is done."""

    automaton: Automaton
    state: int
    stack: Stack


class Closure:
    """What may come next, being collected: leaves, and whether the text may end here."""

    __slots__ = ("accepts", "leaves")

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.accepts = False


class Context:
    """What nodes need to expand: rules, the workspace, and the interning of stacks."""

    def __init__(self, workspace: Workspace, rules: Sequence[Node]) -> None:
        self.workspace = workspace
        self.rules = rules
        self.stacks: dict[tuple[int, Place, int], Stack] = {}
        self._next_uid = 0

    def bottom(self, style: Style) -> Stack:
        """A new empty stack."""
        self._next_uid += 1
        return Stack(self._next_uid, None, (), None, style)

    def push(self, node: Node, place: Place, tail: Stack) -> Stack:
        """The stack with one more frame; equal stacks are the same object."""
        key = (id(node), place, tail.uid)
        found = self.stacks.get(key)
        if found is None:
            self._next_uid += 1
            found = self.stacks[key] = Stack(self._next_uid, node, place, tail, tail.style)
        return found

    def leaf(self, automaton: Automaton, state: int, stack: Stack, out: Closure) -> None:
        """Add a terminal; one that accepts the empty string is also skipped."""
        out.leaves.append(Leaf(automaton, state, stack))
        label = automaton.labels[state]
        if label != NOT_ACCEPTING:
            self.pop(stack, automaton.outcome(label), out)

    def text(self, text: bytes, stack: Stack, out: Closure) -> None:
        """Add a fixed, non-empty text."""
        automaton = self.workspace.literal(text)
        self.leaf(automaton, automaton.start(), stack, out)

    def blank(self, stack: Stack, out: Closure) -> None:
        """Add a flexible gap."""
        automaton = self.workspace.ascii
        self.leaf(automaton, automaton.start(self.workspace.gap()), stack, out)

    def pop(self, stack: Stack, label: Outcome, out: Closure) -> None:
        """Go on below a finished terminal or node."""
        if stack.node is None:
            out.accepts = True
        else:
            assert stack.tail is not None
            stack.node.resume(self, stack.place, stack.tail, label, out)


class Node:
    """A part of a grammar. ``nests`` is 1 for arrays and objects, whose contents are indented."""

    nests = 0

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        """Add the leaves that this node begins with; ``stack`` is what follows the node."""
        raise NotImplementedError

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        """Go on after the part that was pushed as ``(self, place)``; ``stack`` is the rest."""
        raise AssertionError(f"{type(self).__name__} pushes no frames")


class Terminal(Node):
    """One terminal that looks the same in every style."""

    def __init__(self, automaton: Automaton, state: int) -> None:
        self.automaton = automaton
        self.state = state

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        context.leaf(self.automaton, self.state, stack, out)


class Choice(Node):
    """One of several rules."""

    def __init__(self, rules: Sequence[int]) -> None:
        self.rules = tuple(rules)

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        for rule in self.rules:
            context.rules[rule].expand(context, stack, out)
