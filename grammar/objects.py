"""Objects: declared properties in order, then undeclared keys, counted where that is asked for.

Objects whose keys come in any order are ``any_order.py``.

In every style but ``flexible`` the gaps are known texts, so punctuation, gaps and the quotes and
colons of keys are fused into single terminals (``,\\n  "name": ``): fewer states, and long forced
runs. ``flexible`` spells the same out with gap terminals between.

Where an object stands is a ``Progress``; a frame's ``place`` is a phase and what belongs to it.
Invariant: a progress that can be reached can be completed, so ``_choices`` offers a key only
where the required ones still fit below ``most`` and enough others remain to reach ``least``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grammar.automaton import Automaton, Outcome
from grammar.content import Content
from grammar.nodes import Closure, Context, Node, Place, Stack
from grammar.words import Words
from grammar.workspace import Workspace

# Phases of a frame's place, and what follows the phase there.
VALUE_DONE = "value done"  # a Progress
KEY_DONE = "key done"  # a Progress; the label says which property
EXTRA_KEY_DONE = "extra key done"  # a Progress and a class; the label is the key's text
# In the flexible style also:
OPENED = "opened"  # nothing else
AFTER_COMMA = "after comma"  # a Progress
COLON = "colon"  # the rule of the value to come


@dataclass(frozen=True, slots=True)
class Extra:
    """A class of undeclared keys: what a key may be, and the rule of its value.

    Attributes:
        witness: which of the keys that ``ObjectNode.wanted`` asks for a key of this class is;
            classes with witnesses lie within others without.
        size: how many keys it has, as far as that was counted; None = plenty.
    """

    content: Content
    rule: int
    witness: int = 0
    size: int | None = None


class Progress(NamedTuple):
    """Declared properties before ``done`` are done or skipped (in any order: those whose bits are
    set in it); ``keys`` keys were written (0 if nobody counts); ``seen`` are the undeclared ones;
    ``witnessed`` are those of ``ObjectNode.wanted`` that were there; ``vague``: one of unknown text
    was there."""

    done: int
    keys: int
    witnessed: int
    seen: frozenset[str]
    vague: bool


START = Progress(0, 0, 0, frozenset(), False)


class ObjectNode(Node):
    """An object.

    Args:
        names: encoded names (between the quotes) of the declared properties that may occur.
        values: the rule of each one's value.
        required: for each, whether it must be there.
        extras: the classes of undeclared keys.
        least, most: bounds on the number of properties; ``most`` None = no limit.
        wanted: a set of bits: for each, an undeclared key must be there whose class has it.
    """

    nests = 1

    def __init__(
        self,
        names: Sequence[bytes],
        values: Sequence[int],
        required: Sequence[bool],
        extras: Sequence[Extra],
        least: int = 0,
        most: int | None = None,
        wanted: int = 0,
    ) -> None:
        self.names = tuple(names)
        self._terminals: dict[tuple[bytes, bytes], Words] = {}
        self.values = tuple(values)
        self.extras = tuple(extras)
        self.least = least
        self.most = most
        self.wanted = wanted
        self._counts = least > 0 or most is not None
        self._fewest = _fewest(wanted, {extra.witness for extra in extras})
        sizes = [extra.size for extra in extras if not extra.witness]
        # how many undeclared keys there are; None = plenty
        self._supply = None if None in sizes else sum(size or 0 for size in sizes)
        count = len(self.names)
        # until[i]: the first required property at or after i, or count where there is none;
        # needed[i]: how many required ones there are at or after i
        until, needed = [count] * (count + 1), [0] * (count + 1)
        for i in range(count - 1, -1, -1):
            until[i] = i if required[i] else until[i + 1]
            needed[i] = needed[i + 1] + required[i]
        self.until = tuple(until)
        self.needed = tuple(needed)

    # -- what may come --------------------------------------------------------------------------

    def is_possible(self) -> bool:
        """Whether any object fits, given that all values and extras can be written."""
        witnesses = self._fewest[self.wanted]
        if witnesses is None:
            return False
        enough = self._supply is None or self.least <= len(self.names) + self._supply
        total = max(self.needed[0] + witnesses, self.least)
        return enough and (self.most is None or total <= self.most)

    def _may_close(self, at: Progress) -> bool:
        return not self._owed(at) and at.keys >= self.least and at.witnessed == self.wanted

    def _owed(self, at: Progress) -> int:
        """How many required properties are still to come."""
        return self.needed[at.done]

    def _slack(self, at: Progress) -> int:
        """How many keys may come that are not required (1 stands for any number)."""
        if self.most is None:
            return 1
        witnesses = self._fewest[self.wanted & ~at.witnessed]
        assert witnesses is not None, "an object that is not possible is written"
        return self.most - at.keys - self._owed(at) - witnesses

    def _declared(self, at: Progress) -> tuple[int, int]:
        """The range of declared properties of which one may come next; empty if low > high."""
        low, count = at.done, len(self.names)
        high = min(self.until[low], count - 1)
        if self._slack(at) <= 0:
            low = self.until[low]
        if self._supply is not None and self._counts:
            high = min(high, at.keys + count + self._supply - self.least)
        return low, high

    def _extra(self, at: Progress) -> list[int]:
        """The classes of undeclared keys of which one may come next."""
        if not self._extras_fit(at):
            return []
        if self._slack(at) > 0:
            return list(range(len(self.extras)))
        left = self.wanted & ~at.witnessed
        fewest = self._fewest
        return [
            i
            for i, e in enumerate(self.extras)
            if (fewest[left & ~e.witness] or 0) < (fewest[left] or 0)
        ]

    def _counted(self, at: Progress) -> int:
        """How many keys count once one more was written."""
        count = at.keys + 1 if self._counts else 0
        return count if self.most is not None else min(count, self.least)

    def _then(self, at: Progress, done: int) -> Progress:
        return Progress(done, self._counted(at), at.witnessed, at.seen, at.vague)

    # -- what ``any_order.py`` does in another way ----------------------------------------------

    def _declared_next(self, at: Progress) -> bool:
        """Whether a declared property may come next."""
        low, high = self._declared(at)
        return low <= high

    def _key(
        self, workspace: Workspace, at: Progress, opening: bytes, closing: bytes
    ) -> tuple[Automaton, int]:
        """The terminal of the next declared key, which exists; its label is the property."""
        words = self._terminals.get((opening, closing))
        if words is None:
            words = workspace.words(workspace.trie(self.names), opening, closing)
            self._terminals[opening, closing] = words
        return words, words.start(*self._declared(at))

    def _extras_fit(self, at: Progress) -> bool:
        """Whether undeclared keys may come yet."""
        if self._owed(at):
            return False
        supply = self._supply
        return supply is None or at.keys + supply - len(at.seen) >= self.least

    def _after_key(self, at: Progress, index: int) -> Progress:
        return self._then(at, index + 1)

    def _done_at_extra(self, at: Progress) -> int:
        """``done`` once an undeclared key was begun: the declared ones are over."""
        return len(self.names)

    # -- frames ---------------------------------------------------------------------------------

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        style = stack.style
        if style.flexible:
            context.mark(b"{", context.push(self, (OPENED,), stack), out, before=False)
            return
        if self._may_close(START):
            context.text(b"{}", stack, out)
        self._keys(context, START, b"{" + style.line(stack.depth + 1), stack, out)

    def _keys(
        self, context: Context, at: Progress, before: bytes, stack: Stack, out: Closure
    ) -> None:
        workspace = context.workspace
        style = stack.style
        colon = b"" if style.flexible else b":" + style.colon
        if self._declared_next(at):
            after = context.push(self, (KEY_DONE, at), stack)
            words = self._key(workspace, at, before + style.quote, style.quote + colon)
            context.leaf(*words, after, out)
        opening, closing = before + b'"', b'"' + colon
        for i in self._extra(at):
            content = workspace.excluding(self.extras[i].content, at.seen)
            strings = workspace.keys(opening, closing)
            if strings.is_possible(content):
                start = strings.begin(content, completed=not at.vague)
                after = context.push(self, (EXTRA_KEY_DONE, at, i), stack)
                context.leaf(strings, start, after, out)

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        phase = place[0]
        if phase == VALUE_DONE:
            self._after_value(context, place[1], stack, out)
        elif phase == KEY_DONE:
            assert isinstance(label, int)
            at = self._after_key(place[1], label)
            self._value(context, at, self.values[label], stack, out)
        elif phase == EXTRA_KEY_DONE:
            self._after_extra(context, place[1], place[2], stack, label, out)
        elif phase == OPENED:
            if self._may_close(START):
                context.text(b"}", stack, out)
            self._keys(context, START, b"", stack, out)
        elif phase == AFTER_COMMA:
            self._keys(context, place[1], b"", stack, out)
        else:
            context.rules[place[1]].expand(context, stack, out)

    def _after_extra(
        self, context: Context, at: Progress, which: int, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        extra = self.extras[which]
        known = isinstance(label, str)
        at = Progress(
            self._done_at_extra(at),
            self._counted(at),
            at.witnessed | extra.witness,
            at.seen | {str(label)} if known else at.seen,
            not known,
        )
        self._value(context, at, extra.rule, stack, out)

    def _after_value(self, context: Context, at: Progress, stack: Stack, out: Closure) -> None:
        style = stack.style
        if style.flexible:
            if self._may_close(at):
                context.mark(b"}", stack, out, after=False)
            if self._declared_next(at) or self._extra(at):
                context.mark(b",", context.push(self, (AFTER_COMMA, at), stack), out)
            return
        if self._may_close(at):
            context.text(style.line(stack.depth) + b"}", stack, out)
        self._keys(context, at, b"," + style.after_comma(stack.depth + 1), stack, out)

    def owed(self, place: Place) -> Collection[int]:
        return self._owed_next(place[1]) if place[0] == KEY_DONE else ()

    def _owed_next(self, at: Progress) -> Collection[int]:
        """The required properties that may come next."""
        index = self.until[at.done]
        return (index,) if index < len(self.names) else ()

    def _value(self, context: Context, at: Progress, rule: int, stack: Stack, out: Closure) -> None:
        after = context.push(self, (VALUE_DONE, at), stack)
        if stack.style.flexible:
            context.mark(b":", context.push(self, (COLON, rule), after), out)
        else:
            context.rules[rule].expand(context, after, out)


def _fewest(wanted: int, classes: Collection[int]) -> dict[int, int | None]:
    """For each part of a set of bits, the fewest of some sets that cover it; None if none do."""
    found: dict[int, int | None] = {0: 0}
    for part in range(1, wanted + 1):
        if part & ~wanted:
            continue
        ways = (found[part & ~each] for each in classes if part & each)
        found[part] = min((1 + way for way in ways if way is not None), default=None)
    return found
