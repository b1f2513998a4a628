"""From items in a row to nodes: what GBNF and the turns of a chat have in common.

A `RuleTable` is filled by a front end: rules, each a list of alternatives, each a list of items: a
regular language (`Language`), another rule some times over (`Called`), whole tokens (`Atom`), or a
node that somebody else made (`Made`). The front end sees to it that no rule can begin with itself.
`nodes` does the rest: what can be empty, what can never be completed, the order of the rules, and
which texts nothing can follow (their walks look for no exits).

The caller holds the workspace's lock. Read next: `sequences.py`, what the nodes do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from grammar.content import Content
from grammar.nodes import Node
from grammar.regular import Kind, Rx
from grammar.sequences import Call, Rule, Word
from grammar.text import PlainText
from grammar.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Language:
    """A regular language. ``closing``: how it ends when a budget cuts it short, None where none
    can (see ``marks.TimedText``)."""

    language: Rx
    closing: Rx | None = None


@dataclass(frozen=True, slots=True)
class Called:
    """A rule by its number, ``lo`` to ``hi`` times."""

    rule: int
    lo: int = 1
    hi: int | None = 1


@dataclass(frozen=True, slots=True)
class Atom:
    """A token as a whole."""

    ids: frozenset[int]
    but: bool


@dataclass(frozen=True, slots=True)
class Made:
    """A node that is never empty, by its number in ``RuleTable.made``."""

    number: int


Item: TypeAlias = Language | Called | Atom | Made
Alternatives: TypeAlias = "list[list[Item]]"


def as_content(language: Rx) -> Content:
    """A language as a content. Counted characters (``[^,]{0,99}``) are counted beside the language,
    so that large bounds have few masks."""
    if language.kind is Kind.REPEAT and language.hi is not None:
        body = language.parts[0]
        if body.kind is Kind.CHARS:
            return Content(language.builder.star(body), language.lo, language.hi)
    return Content(language, 0, None)


class RuleTable:
    """Rules being collected; rule 0 is the root.

    Args:
        base: how many nodes stand before these in the grammar's list.
        max_rules: how many rules there may be.
        too_many: makes the error for more.
    """

    def __init__(
        self,
        workspace: Workspace,
        max_rules: int,
        too_many: Callable[[], Exception],
        *,
        base: int = 0,
    ) -> None:
        self.workspace = workspace
        self.builder = workspace.builder
        self.rules: list[Alternatives] = []
        self.made: list[Node] = []
        self._base = base
        self._max_rules = max_rules
        self._too_many = too_many
        self._halves: dict[int, int] = {}  # a rule that can be empty -> its non-empty half

    def new(self) -> int:
        """The number of another rule; its alternatives are to be set."""
        if len(self.rules) >= self._max_rules:
            raise self._too_many()
        self.rules.append([])
        return len(self.rules) - 1

    def joined(self, items: list[Item]) -> list[Item]:
        """Items with neighbouring languages joined, and without the empty text."""
        found: list[Item] = []
        run: list[Rx] = []
        for item in (*items, None):
            if isinstance(item, Language) and item.closing is None:
                run.append(item.language)
                continue
            language = self.builder.concat(*run)
            if language is not self.builder.epsilon:
                found.append(Language(language))
            run = []
            if item is not None:
                found.append(item)
        return found

    # -- emptiness ------------------------------------------------------------------------------

    def halve(self) -> None:
        """Write repetitions of what can be empty as ones of its non-empty half."""
        whole = len(self.rules)
        nullable = self._fixed_point(self._may_be_empty)
        for alternatives in self.rules[:whole]:
            for items in alternatives:
                items[:] = [self._countable(item, nullable) for item in items]
        done = 0
        while done < len(self._halves):
            rule, half = list(self._halves.items())[done]
            done += 1
            for items in self.rules[rule]:
                for at, item in enumerate(items):
                    self.builder.spend(len(items))
                    if not self._may_be_empty(item, nullable):
                        self.rules[half].append(items[at:])
                        break
                    self.rules[half].append([self._nonempty(item), *items[at + 1 :]])

    def productive(self) -> list[bool]:
        """For each rule, whether some finite text fits it."""
        return self._fixed_point(self._can_be_written)

    def _fixed_point(self, holds: Callable[[Item, list[bool]], bool]) -> list[bool]:
        """The rules of which some alternative has only items that hold: a least fixed point."""
        users: list[list[int]] = [[] for _ in self.rules]
        for number, alternatives in enumerate(self.rules):
            for rule in {i.rule for items in alternatives for i in items if isinstance(i, Called)}:
                users[rule].append(number)
        good = [False] * len(self.rules)
        pending = list(range(len(self.rules)))
        while pending:
            number = pending.pop()
            if good[number]:
                continue
            if any(all(holds(i, good) for i in items) for items in self.rules[number]):
                good[number] = True
                pending += users[number]
        return good

    @staticmethod
    def _may_be_empty(item: Item, nullable: list[bool]) -> bool:
        if isinstance(item, Called):
            return item.lo == 0 or nullable[item.rule]
        return isinstance(item, Language) and item.language.nullable

    @staticmethod
    def _can_be_written(item: Item, productive: list[bool]) -> bool:
        if isinstance(item, Called):
            return item.lo == 0 or productive[item.rule]
        return not isinstance(item, Language) or not item.language.is_empty()

    def _countable(self, item: Item, nullable: list[bool]) -> Item:
        """Repetitions of what can be empty as fewer ones of what can't."""
        if isinstance(item, Called) and (item.lo, item.hi) != (1, 1) and nullable[item.rule]:
            return Called(self._half(item.rule), 0, item.hi)
        return item

    def _half(self, rule: int) -> int:
        found = self._halves.get(rule)
        if found is None:
            found = self._halves[rule] = self.new()
        return found

    def _nonempty(self, item: Item) -> Item:
        """The texts of an item that can be empty, but the empty one."""
        builder = self.builder
        if isinstance(item, Language):
            some = builder.repeat(builder.any_char, 1, None)
            return Language(builder.intersect(item.language, some))
        if isinstance(item, Called):
            if item.lo:  # not repeated: see ``_countable``
                return Called(self._half(item.rule))
            return Called(item.rule, 1, item.hi)
        raise AssertionError("a token is never empty")

    # -- from items to nodes --------------------------------------------------------------------

    def nodes(
        self, productive: list[bool], marks: Mapping[int, int] | None = None
    ) -> tuple[list[Node], int]:
        """The rules as nodes, then those that were made elsewhere; and the root's number.

        The root must be productive. ``marks``: characters that stand for whole tokens, with their
        ids (see ``marks.py``).
        """
        for number, alternatives in enumerate(self.rules):
            self.rules[number] = [
                [i for i in items if not isinstance(i, Called) or productive[i.rule]]
                for items in alternatives
                if all(self._can_be_written(item, productive) for item in items)
            ]
        nullable = self._fixed_point(self._may_be_empty)
        order = self._order(nullable)
        tails = self._tails()
        place = {number: self._base + at for at, number in enumerate(order)}
        made_at = self._base + len(order)
        nodes: list[Node] = []
        for number in order:
            parts = [
                [
                    self._part(
                        item,
                        nullable,
                        place,
                        made_at,
                        last=number in tails and at + 1 == len(items),
                        marks=marks,
                    )
                    for at, item in enumerate(items)
                ]
                for items in self.rules[number]
            ]
            nodes.append(Rule(place[number], parts, nullable=nullable[number]))
        return nodes + self.made, place[0]

    def _part(
        self,
        item: Item,
        nullable: list[bool],
        place: dict[int, int],
        made_at: int,
        *,
        last: bool,
        marks: Mapping[int, int] | None,
    ) -> Word | Call:
        workspace = self.workspace
        if isinstance(item, Called):
            once = (item.lo, item.hi) == (1, 1)
            return Call(place[item.rule], once and nullable[item.rule], item.lo, item.hi)
        if isinstance(item, Made):
            return Call(made_at + item.number)
        if isinstance(item, Atom):
            token = workspace.token(item.ids, but=item.but)
            return Word(token, token.start(), nullable=False)
        terminal: PlainText
        if item.closing is not None:
            assert marks is not None
            terminal = workspace.timed_text(marks, item.closing)
        elif marks is None:
            terminal = workspace.text(last=last)
        else:
            terminal = workspace.marked_text(marks, last=last)
        return Word(terminal, terminal.start(as_content(item.language)), item.language.nullable)

    def _tails(self) -> frozenset[int]:
        """The rules at whose end the text ends: the root, and those that are only called, and once,
        at the end of such rules. A greatest fixed point."""
        callers: list[list[tuple[int, bool]]] = [[] for _ in self.rules]
        for number, alternatives in enumerate(self.rules):
            for items in alternatives:
                for at, item in enumerate(items):
                    if isinstance(item, Called):
                        ends = at + 1 == len(items) and item.hi == 1
                        callers[item.rule].append((number, ends))
        good = set(range(len(self.rules)))
        pending = list(good)
        while pending:
            number = pending.pop()
            fine = all(ends and caller in good for caller, ends in callers[number])
            if number in good and not fine:
                good.discard(number)
                pending += [
                    i.rule for items in self.rules[number] for i in items if isinstance(i, Called)
                ]
        return frozenset(good)

    def _order(self, nullable: list[bool]) -> list[int]:
        """The rules, each one before those that it may begin with."""
        firsts = [
            sorted({r for items in alternatives for r in self._first_rules(items, nullable)})
            for alternatives in self.rules
        ]
        waiting = [0] * len(firsts)
        for rules in firsts:
            for rule in rules:
                waiting[rule] += 1
        ready = [number for number, count in enumerate(waiting) if not count]
        order = []
        while ready:
            number = ready.pop()
            order.append(number)
            for rule in firsts[number]:
                waiting[rule] -= 1
                if not waiting[rule]:
                    ready.append(rule)
        assert len(order) == len(firsts), "left recursion was refused before"
        return order

    def _first_rules(self, items: list[Item], nullable: list[bool]) -> Iterator[int]:
        for item in items:
            if isinstance(item, Called):
                yield item.rule
            if not self._may_be_empty(item, nullable):
                return
