"""Rules of a context-free grammar: alternatives of sequences of terminals and rules.

Calls and returns are put off (``Context.settle``), so nothing recurses, and ambiguity is shared:
a rule that several places wait for is begun once, with their stacks as one. That needs two things,
which whoever makes the rules sees to (``gbnf.py``):

- A rule begins only rules with greater numbers (which is to say: no left recursion).
- Whether a rule can be empty is known beforehand. A sequence steps over such an item by itself,
  and a rule that was begun never reports that it was empty.

Repetitions are counted in the frame's place, however large their bounds; what is repeated is not
empty. A call at the very end of a sequence hands on the stack that it was given, so that right
recursion needs no more memory with every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from grammar.automaton import Automaton, Outcome
from grammar.nodes import Closure, Context, Leaf, Node, Place, Stack


@dataclass(frozen=True, slots=True)
class Word:
    """A terminal in its first state; ``nullable``: it also accepts the empty text."""

    automaton: Automaton
    state: int
    nullable: bool


@dataclass(frozen=True, slots=True)
class Call:
    """A rule, ``least`` to ``most`` times in a row (``most`` None = any number of times).

    ``nullable``: the rule can be empty; then it is called once, and may be stepped over.
    """

    rule: int
    nullable: bool = False
    least: int = 1
    most: int | None = 1


class Rule(Node):
    """One rule. A frame's place is (alternative, item, repetitions of that item so far).

    Args:
        number: the rule's own number.
        alternatives: what it may be.
        nullable: whether it can be empty.
    """

    merges = True

    def __init__(
        self, number: int, alternatives: Sequence[Sequence[Word | Call]], *, nullable: bool
    ) -> None:
        self.number = number
        self.alternatives = tuple(map(tuple, alternatives))
        self.nullable = nullable

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        out.call(self.number, stack)
        if self.nullable:
            context.pop(stack, 0, out)

    def begin(self, context: Context, stack: Stack, out: Closure) -> None:
        for at in range(len(self.alternatives)):
            self._go(context, at, 0, 0, stack, out)

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        out.returns.append((self, place, stack))

    def go_on(self, context: Context, place: Place, stack: Stack, out: Closure) -> None:
        alternative, index, count = place
        if self._go(context, alternative, index, count, stack, out):
            context.pop(stack, 0, out)

    def _go(
        self, context: Context, which: int, index: int, count: int, stack: Stack, out: Closure
    ) -> bool:
        """Begin what may come at a place; whether the sequence may end there."""
        items = self.alternatives[which]
        while index < len(items):
            item = items[index]
            is_end = index + 1 == len(items)
            if isinstance(item, Word):
                after = stack if is_end else context.push(self, (which, index + 1, 0), stack)
                out.leaves.append(Leaf(item.automaton, item.state, after))
                if not item.nullable:
                    return False
            else:
                done = count + 1
                if item.most is None:
                    done = min(done, item.least)  # more than enough is all the same
                if item.most is not None and done >= item.most:
                    place = (which, index + 1, 0)
                else:
                    place = (which, index, done)
                if item.most != 0:
                    ends = is_end and place[1] > index
                    out.call(item.rule, stack if ends else context.push(self, place, stack))
                if count < item.least and not item.nullable:
                    return False
            index, count = index + 1, 0
            here = (self, (which, index, 0), stack)
            if here in out.visited:
                return False  # whoever was here before has done the rest, the end included
            out.visited.add(here)
        return True
