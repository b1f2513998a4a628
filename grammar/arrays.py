"""Arrays: items by position, counted, and counted by what they match.

``contains`` is decided item by item: an item takes one of several choices, "matches" or "does not",
each with a rule of its own, and the frame counts the matches. White space is as in ``objects.py``.

Invariant: a place that can be reached can be completed. Where matches are counted, the places from
which the array can end are found beforehand, and no choice leads elsewhere.

Whether items differ is not seen here: an array that ``compares`` them says so to ``unique.py``,
which asks back whether enough other values are left (``distinct.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

from grammar.automaton import Outcome, RegularAscii
from grammar.compared import Items, Value
from grammar.distinct import Stock, Supply
from grammar.errors import SchemaBudgetError
from grammar.nodes import Closure, Context, Node, Place, Stack
from grammar.words import Words

MAX_COUNTED_PLACES = 100_000
SPARE = 8
"""So many more values than items there must be for items not to be scarce."""

# Phases of a frame's place; an ``At`` follows.
ITEM = "item"  # an item comes next
ITEM_DONE = "item done"
OPENED = "opened"  # only in the flexible style


class ItemChoice(NamedTuple):
    """One way to write an item: its rule, and 1 for each ``contains`` that it matches, else 0."""

    rule: int
    matches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Contains:
    """How many items must (``least``) and may (``most``, None = any) match one subschema."""

    least: int
    most: int | None

    @property
    def enough(self) -> int:
        """The count above which nothing changes."""
        return self.least if self.most is None else self.most

    def count(self, before: int, match: int) -> int | None:
        """The count after one more item, or None where it is too much."""
        after = before + match
        if self.most is not None:
            return after if after <= self.most else None
        return min(after, self.least)


class At(NamedTuple):
    """How many items are done (no more than matter), and how many matched each ``contains``."""

    items: int
    hits: tuple[int, ...]


class ComparedOpening(Words):
    """The opening of an array whose items are compared: its bracket, and white space."""

    opens_compared = True


class ComparedBracket(RegularAscii):
    """The same with any white space (the flexible style)."""

    opens_compared = True


class ArrayNode(Node):
    """An array.

    Args:
        prefix: the choices for each of the first items.
        rest: the choices for every later item; empty where there may be none.
        least, most: bounds on the number of items; ``most`` None = no limit.
        contains: bounds on the number of matches; each choice has as many ``matches``.
        compares: whether items must differ.
        stocks: if so, the values of each choice's rule; without them they count as plenty.

    Raises:
        SchemaBudgetError: counting the matches would take too many places.
    """

    nests = 1

    def __init__(
        self,
        prefix: Sequence[Sequence[ItemChoice]],
        rest: Sequence[ItemChoice],
        least: int,
        most: int | None,
        contains: Sequence[Contains] = (),
        *,
        compares: bool = False,
        stocks: Mapping[int, Stock] | None = None,
    ) -> None:
        self.prefix = tuple(map(tuple, prefix))
        self.rest = tuple(rest)
        self.least = least
        self.most = most
        self.contains = tuple(contains)
        # Above this many items nothing more can change, so counting stops.
        self.enough = max(least, len(self.prefix)) if most is None else most
        self.start = At(0, (0,) * len(self.contains))
        self._alive = self._completable() if self.contains else None
        self.compares = compares
        self.supply = None if stocks is None else Supply(self, stocks)

    def is_possible(self) -> bool:
        """Whether any array fits, given that all choices can be written."""
        if self.supply is not None and not self.supply.suffices(self.start, ()):
            return False
        if self._alive is not None:
            return self.start in self._alive
        if self.most is not None and self.least > self.most:
            return False
        firsts = self.prefix[: self.least]
        return all(firsts) and (self.least <= len(self.prefix) or bool(self.rest))

    def _choices(self, index: int) -> tuple[ItemChoice, ...]:
        if self.most is not None and index >= self.most:
            return ()
        return self.prefix[index] if index < len(self.prefix) else self.rest

    def _after(self, at: At, choice: ItemChoice) -> At | None:
        """Where an item written by a choice leads, or None if the array could not end there."""
        hits = []
        for bound, before, match in zip(self.contains, at.hits, choice.matches, strict=True):
            count = bound.count(before, match)
            if count is None:
                return None
            hits.append(count)
        after = At(min(at.items + 1, self.enough), tuple(hits))
        return after if self._alive is None or after in self._alive else None

    def may_close(self, at: At) -> bool:
        """Whether the array may end at a place."""
        enough = (hit >= bound.least for bound, hit in zip(self.contains, at.hits, strict=True))
        return at.items >= self.least and all(enough)

    def next_places(self, at: At) -> Iterator[tuple[int, At]]:
        """The rules of which one may be written next, and the place after it."""
        for choice in self._choices(at.items):
            after = self._after(at, choice)
            if after is not None:
                yield choice.rule, after

    def _completable(self) -> frozenset[At]:
        """All places from which the array can end: a least fixed point, backwards."""
        sizes = [self.enough + 1, *(bound.enough + 1 for bound in self.contains)]
        if prod(sizes) > MAX_COUNTED_PLACES:
            raise SchemaBudgetError(
                f"counting matches takes {prod(sizes)} places", keyword="contains"
            )
        self._alive = None
        before: dict[At, list[At]] = {}
        alive, pending = set(), []
        for count, *hits in product(*map(range, sizes)):
            at = At(count, tuple(hits))
            for _, after in self.next_places(at):
                before.setdefault(after, []).append(at)
            if self.may_close(at):
                alive.add(at)
                pending.append(at)
        while pending:
            for at in before.get(pending.pop(), ()):
                if at not in alive:
                    alive.add(at)
                    pending.append(at)
        return frozenset(alive)

    # -- items that must differ -----------------------------------------------------------------

    def is_scarce(self, count: int) -> bool:
        """Whether there may be too few values of some kind for more than ``count`` items."""
        return self.supply is not None and self.supply.fewest < count + SPARE

    def is_demanding(self, at: At) -> bool:
        """Whether items must still come after a place, some of which have few values."""
        return self.supply is not None and self.supply.is_tight and not self.may_close(at)

    def can_go_on(self, at: At, earlier: Items, value: Value) -> bool:
        """Whether the array can be completed from a place after some items and one more."""
        if self.supply is None or not self.is_demanding(at):
            return True
        return self.supply.suffices(at, {*earlier, value})

    # -- frames ---------------------------------------------------------------------------------

    def _open(self, context: Context, text: bytes, stack: Stack, out: Closure) -> None:
        if self.compares:
            workspace = context.workspace
            trie = workspace.trie((text,))
            opening = workspace.shared(("compared", text), lambda: ComparedOpening(trie))
            context.leaf(opening, opening.start(), stack, out)
        else:
            context.text(text, stack, out)

    def expand(self, context: Context, stack: Stack, out: Closure) -> None:
        style = stack.style
        if style.flexible:
            opened = context.push(self, (OPENED, self.start), stack)
            if self.compares:
                workspace = context.workspace
                gap = workspace.shared("compared gap", ComparedBracket)
                context.leaf(
                    gap, gap.start(workspace.marked("[", before=False, after=True)), opened, out
                )
            else:
                context.mark(b"[", opened, out, before=False)
            return
        if self.may_close(self.start):
            context.text(b"[]", stack, out)
        if any(self.next_places(self.start)):
            opened = context.push(self, (ITEM, self.start), stack)
            self._open(context, b"[" + style.line(stack.depth + 1), opened, out)

    def resume(
        self, context: Context, place: Place, stack: Stack, label: Outcome, out: Closure
    ) -> None:
        phase, what = place
        style = stack.style
        if phase == ITEM:
            self._items(context, what, stack, out)
        elif phase == ITEM_DONE and style.flexible:
            if self.may_close(what):
                context.mark(b"]", stack, out, after=False)
            if any(self.next_places(what)):
                context.mark(b",", context.push(self, (ITEM, what), stack), out)
        elif phase == ITEM_DONE:
            if self.may_close(what):
                context.text(style.line(stack.depth) + b"]", stack, out)
            if any(self.next_places(what)):
                comma = context.push(self, (ITEM, what), stack)
                context.text(b"," + style.after_comma(stack.depth + 1), comma, out)
        else:  # opened, in the flexible style
            if self.may_close(what):
                context.text(b"]", stack, out)
            self._items(context, what, stack, out)

    def _items(self, context: Context, at: At, stack: Stack, out: Closure) -> None:
        for rule, after in self.next_places(at):
            context.rules[rule].expand(context, context.push(self, (ITEM_DONE, after), stack), out)
