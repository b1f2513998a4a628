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

from collections.abc import Callable, Collection, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeAlias

from grammar.automaton import NOT_ACCEPTING, Automaton, Outcome
from grammar.style import Style
from grammar.workspace import Workspace

Place: TypeAlias = "tuple[Any, ...]"
"""Where within its node a frame stands: a phase, and what the node wants to remember."""


class Stack:
    """One frame on top of the rest. ``depth`` counts the arrays and objects that are open."""

    __slots__ = ("compared", "depth", "node", "place", "style", "tail", "uid")

    def __init__(
        self, uid: int, node: Node | None, place: Place, tail: Stack | None, style: Style
    ) -> None:
        self.uid = uid
        self.node = node
        self.place = place
        self.tail = tail
        self.style = style
        self.depth: int = 0 if tail is None else tail.depth + (node is not None and node.nests)
        #: The innermost frame (this one or below) of an array that compares its items.
        self.compared: Stack | None = None if tail is None else tail.compared
        if node is not None and node.compares:
            self.compared = self


class Leaf(NamedTuple):
    """A terminal in one of its states, and the stack to go on with when it is done."""

    automaton: Automaton
    state: int
    stack: Stack


_new_leaf = tuple.__new__  # as ``Leaf(...)``, without the detour over Python


class Closure:
    """What may come next, being collected: leaves, and whether the text may end here.

    Nodes that would otherwise call each other too deeply or too often put their calls off
    (``Context.settle`` makes them): ``returns`` are frames to go on with, ``calls`` are rules to
    begin, each with the stacks that wait for it.
    """

    __slots__ = ("accepts", "calls", "due", "leaves", "returns", "visited")

    def __init__(self) -> None:
        self.leaves: list[Leaf] = []
        self.accepts = False
        self.returns: list[tuple[Node, Place, Stack]] = []
        self.calls: dict[int, dict[Stack, None]] = {}
        self.due: list[int] = []  # the rules in ``calls``, as a heap
        self.visited: set[tuple[Node, Place, Stack]] = set()

    def call(self, rule: int, stack: Stack) -> None:
        """Begin a rule later, once all stacks that wait for it are known."""
        waiting = self.calls.get(rule)
        if waiting is None:
            waiting = self.calls[rule] = {}
            heappush(self.due, rule)
        waiting[stack] = None


class Context:
    """What nodes need to expand: rules, the workspace, and the interning of stacks."""

    def __init__(self, workspace: Workspace, rules: Sequence[Node]) -> None:
        self.workspace = workspace
        self.rules = list(rules)
        self.stacks: dict[tuple[int, Place, int], Stack] = {}
        self._either = Either()
        self._texts: dict[bytes, tuple[Automaton, int]] = {}
        self._marks: dict[tuple[bytes, bool, bool], tuple[Automaton, int]] = {}
        self._next_uid = 0

    def bottom(self, style: Style) -> Stack:
        """A new empty stack."""
        self._next_uid += 1
        return Stack(self._next_uid, None, (), None, style)

    def push(self, node: Node, place: Place, tail: Stack, style: Style | None = None) -> Stack:
        """The stack with one more frame; equal stacks are the same object.

        From a frame with a style on, that one holds; the frame's place must tell it.
        """
        key = (id(node), place, tail.uid)
        found = self.stacks.get(key)
        if found is None:
            self._next_uid += 1
            found = self.stacks[key] = Stack(
                self._next_uid, node, place, tail, tail.style if style is None else style
            )
        return found

    def either(self, stacks: Iterable[Stack]) -> Stack:
        """One stack that goes on like each of several."""
        parts: dict[Stack, None] = {}
        for stack in stacks:
            members = stack.place if isinstance(stack.node, Either) else (stack,)
            parts.update(dict.fromkeys(members))
        if len(parts) == 1:
            return next(iter(parts))
        ordered = tuple(sorted(parts, key=lambda stack: stack.uid))
        return self.push(self._either, ordered, ordered[0])

    def settle(self, out: Closure) -> None:
        """Make the calls that were put off.

        Rules are begun in the order of their numbers, and a rule begins only others with greater
        numbers (``sequences.py`` sees to that), so whoever waits for a rule is known by then.
        """
        while True:
            while out.returns:
                frame = out.returns.pop()
                if frame not in out.visited:
                    out.visited.add(frame)
                    node, place, stack = frame
                    node.go_on(self, place, stack, out)
            if not out.due:
                return
            rule = heappop(out.due)
            self.rules[rule].begin(self, self.either(out.calls.pop(rule)), out)

    def leaf(self, automaton: Automaton, state: int, stack: Stack, out: Closure) -> None:
        """Add a terminal; one that accepts the empty string is also skipped."""
        out.leaves.append(_new_leaf(Leaf, (automaton, state, stack)))
        label = automaton.labels[state]
        if label != NOT_ACCEPTING:
            self.pop(stack, automaton.outcome(label), out)

    def text(self, text: bytes, stack: Stack, out: Closure) -> None:
        """Add a fixed, non-empty text."""
        found = self._texts.get(text)
        if found is None:
            automaton = self.workspace.literal(text)
            found = self._texts[text] = (automaton, automaton.start())
        out.leaves.append(_new_leaf(Leaf, (*found, stack)))  # not empty, so not skipped

    def mark(
        self, text: bytes, stack: Stack, out: Closure, *, before: bool = True, after: bool = True
    ) -> None:
        """Add a punctuation mark with flexible gaps before and after it."""
        key = (text, before, after)
        found = self._marks.get(key)
        if found is None:
            automaton = self.workspace.ascii
            language = self.workspace.marked(text.decode(), before=before, after=after)
            found = self._marks[key] = (automaton, automaton.start(language))
        out.leaves.append(_new_leaf(Leaf, (*found, stack)))

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
    #: Whether leaves that differ only in their stacks are to be merged (see ``Context.either``).
    merges = False
    #: Whether it is an array whose items must differ (see ``unique.py``).
    compares = False

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        """Add the leaves that this node begins with; ``stack`` is what follows the node."""
        raise NotImplementedError

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        """Go on after the part that was pushed as ``(self, place)``; ``stack`` is the rest."""
        raise AssertionError(f"{type(self).__name__} pushes no frames")

    def owed(self, place: Place) -> Collection[int]:
        """Of the terminals that end in a place: labels that have to come sometime, so that to write
        one of them now is as short a way to the end as any (see ``distance.py``)."""
        return ()

    def begin(self, context: Context, stack: Stack, out: Closure) -> None:
        """``expand`` for whoever put the call off (``Closure.call``)."""
        self.expand(context, stack, out)

    def go_on(self, context: Context, place: Place, stack: Stack, out: Closure) -> None:
        """``resume`` for whoever put the return off (``Closure.returns``)."""
        raise AssertionError(f"{type(self).__name__} puts nothing off")


class Either(Node):
    """Several stacks as one: a frame's place holds them, and its tail is one of them."""

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        for each in place:
            context.pop(each, label, out)


class Terminal(Node):
    """One terminal that looks the same in every style."""

    def __init__(self, automaton: Automaton, state: int) -> None:
        self.automaton = automaton
        self.state = state

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        context.leaf(self.automaton, self.state, stack, out)


class Later(Node):
    """A rule whose node is made when it is first begun, and takes its place then."""

    __slots__ = ("_make", "_number")

    def __init__(self, number: int, make: Callable[[int], Node]) -> None:
        self._number = number
        self._make = make

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        node = context.rules[self._number] = self._make(self._number)
        node.expand(context, stack, out)

    def begin(self, context: Context, stack: Stack, out: Closure) -> None:
        node = context.rules[self._number] = self._make(self._number)
        node.begin(context, stack, out)


class Choice(Node):
    """One of several rules."""

    def __init__(self, rules: Sequence[int]) -> None:
        self.rules = tuple(rules)

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        for rule in self.rules:
            context.rules[rule].expand(context, stack, out)


class Styled(Node):
    """A JSON value within other text, in one of some styles of white space.

    Its styles are settled in it, so that a grammar may have many such values, each with its own.
    """

    def __init__(self, rule: int, styles: Sequence[Style]) -> None:
        self.rule = rule
        self.styles = tuple(styles)

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        for style in self.styles:
            frame = context.push(self, (style.name,), stack, style)
            context.rules[self.rule].expand(context, frame, out)

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        context.pop(stack, 0, out)
