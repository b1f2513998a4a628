"""GBNF to a grammar: what is regular becomes terminals, the rest rules that call each other.

1. Every name must be defined, and no rule may begin with itself, not even behind items that can be
   empty: such a cycle is refused and shown.
2. Rules that do not lead into a cycle are regular. Each stretch of regular items in a sequence is
   one language, hence one terminal, shared by its text like all terminals.
3. What remains becomes ``sequences.Rule``s. Repetitions of them are counted, never unrolled; a
   repeated part that can be empty is replaced by its non-empty half (``_Maker._half``).
4. Rules that no finite text satisfies are pruned; if the root is among them, that is said.

The caller holds the workspace's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeGuard

from grammar.content import Content
from grammar.errors import GrammarSourceError
from grammar.gbnf_source import ROOT, Regular, Source
from grammar.gbnf_syntax import Choice, Name, Repeat, Sequence, Term, Token
from grammar.nodes import Node, Terminal
from grammar.regular import Kind, Rx
from grammar.sequences import Call, Rule, Word
from grammar.workspace import Workspace


class TokenIds(Protocol):
    """The tokens of a vocabulary by name."""

    ends: frozenset[int]

    def find(self, token: int | str) -> int | None:
        """The id of a token that is named by its id or by its text, None if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Compiled:
    """Nodes, the number of the root, and what was left out."""

    nodes: tuple[Node, ...]
    root: int
    notes: tuple[str, ...]


def compile_rules(text: str, workspace: Workspace, tokens: TokenIds, max_rules: int) -> Compiled:
    """Compile a GBNF text.

    Args:
        tokens: the tokens that the text may name.
        max_rules: how many rules there may be, those made for groups included.

    Raises:
        GrammarSourceError: it is no GBNF, is left-recursive, can't be satisfied, or is too large.
        RegexBudgetError: the builder's fuel ran out.
    """
    source = Source(text)
    source.check()
    regular = Regular(source, workspace.builder)
    if ROOT in regular.names:
        terminal = workspace.text(last=True)
        state = terminal.start(as_content(regular.of(source.rules[ROOT])))
        return Compiled((Terminal(terminal, state),), 0, ())
    return _Maker(source, regular, workspace, tokens, max_rules).make()


def as_content(language: Rx) -> Content:
    """A language as a content. Counted characters (``[^,]{0,99}``) are counted beside the language,
    so that large bounds have few masks."""
    if language.kind is Kind.REPEAT and language.hi is not None:
        body = language.parts[0]
        if body.kind is Kind.CHARS:
            return Content(language.builder.star(body), language.lo, language.hi)
    return Content(language, 0, None)


@dataclass(frozen=True, slots=True)
class _Language:
    """A regular language as an item of a sequence."""

    language: Rx


@dataclass(frozen=True, slots=True)
class _Called:
    """A rule by its number, ``lo`` to ``hi`` times."""

    rule: int
    lo: int = 1
    hi: int | None = 1


@dataclass(frozen=True, slots=True)
class _Atom:
    """A token as a whole."""

    ids: frozenset[int]
    but: bool


_Item: TypeAlias = _Language | _Called | _Atom
_Alternatives: TypeAlias = "list[list[_Item]]"


class _Maker:
    """Makes rules of the parts that are not regular. Rule 0 is the root until ``_nodes``."""

    def __init__(
        self,
        source: Source,
        regular: Regular,
        workspace: Workspace,
        tokens: TokenIds,
        max_rules: int,
    ) -> None:
        self._source = source
        self._regular = regular
        self._workspace = workspace
        self._tokens = tokens
        self._max_rules = max_rules
        self._rules: list[_Alternatives] = []
        self._named: dict[str, int] = {}
        self._pending: list[tuple[int, Term]] = []
        self._halves: dict[int, int] = {}  # a rule that can be empty -> its non-empty half

    def make(self) -> Compiled:
        self._name(ROOT)
        while self._pending:
            number, term = self._pending.pop()
            self._rules[number] = self._alternatives(term)
        whole = len(self._rules)
        nullable = self._fixed_point(lambda item, good: self._may_be_empty(item, good))
        for alternatives in self._rules[:whole]:
            for items in alternatives:
                items[:] = [self._countable(item, nullable) for item in items]
        self._make_halves(nullable)
        return self._nodes()

    # -- from terms to items --------------------------------------------------------------------

    def _new(self) -> int:
        if len(self._rules) >= self._max_rules:
            raise GrammarSourceError(
                f"more than {self._max_rules} rules and groups", problem="too complex"
            )
        self._rules.append([])
        return len(self._rules) - 1

    def _name(self, name: str) -> int:
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = self._new()
            self._pending.append((found, self._source.rules[name]))
        return found

    def _rule_of(self, term: Term) -> int:
        if isinstance(term, Name):
            return self._name(term.name)
        number = self._new()
        self._pending.append((number, term))
        return number

    def _alternatives(self, term: Term) -> _Alternatives:
        options = term.options if isinstance(term, Choice) else (term,)
        regular = [option for option in options if self._regular.includes(option)]
        found = [self._items(option) for option in options if not self._regular.includes(option)]
        if regular:
            found.append(self._joined([_Language(self._regular.of(Choice(tuple(regular))))]))
        return found

    def _items(self, term: Term) -> list[_Item]:
        """A sequence of items; stretches of regular ones as one."""
        found: list[_Item] = []
        stack = [term]
        while stack:
            top = stack.pop()
            if isinstance(top, Sequence) and not self._regular.includes(top):
                stack.extend(reversed(top.items))
            elif self._regular.includes(top):
                found.append(_Language(self._regular.of(top)))
            elif isinstance(top, Token):
                found.append(self._atom(top))
            elif isinstance(top, Repeat):
                if top.hi != 0:
                    found.append(_Called(self._rule_of(top.body), top.lo, top.hi))
            else:
                found.append(_Called(self._rule_of(top)))
        return self._joined(found)

    def _joined(self, items: Iterable[_Item]) -> list[_Item]:
        builder = self._regular.builder
        found: list[_Item] = []
        run: list[Rx] = []
        for item in (*items, None):
            if isinstance(item, _Language):
                run.append(item.language)
                continue
            language = builder.concat(*run)
            if language is not builder.epsilon:
                found.append(_Language(language))
            run = []
            if item is not None:
                found.append(item)
        return found

    def _atom(self, term: Token) -> _Atom:
        token = self._tokens.find(term.token)
        if token is None:
            raise self._source.error(term.at, f"the vocabulary has no token {term.token!r}")
        if token in self._tokens.ends:
            raise self._source.error(
                term.at,
                f"{term.token!r} ends the text by itself and can't be referred to",
                "unsupported",
            )
        ids = frozenset((token,)) | (self._tokens.ends if term.but else frozenset())
        return _Atom(ids, term.but)

    # -- emptiness ------------------------------------------------------------------------------

    def _fixed_point(self, holds: Callable[[_Item, list[bool]], bool]) -> list[bool]:
        """The rules of which some alternative has only items that hold: a least fixed point."""
        users: list[list[int]] = [[] for _ in self._rules]
        for number, alternatives in enumerate(self._rules):
            for rule in {i.rule for items in alternatives for i in items if isinstance(i, _Called)}:
                users[rule].append(number)
        good = [False] * len(self._rules)
        pending = list(range(len(self._rules)))
        while pending:
            number = pending.pop()
            if good[number]:
                continue
            if any(all(holds(i, good) for i in items) for items in self._rules[number]):
                good[number] = True
                pending += users[number]
        return good

    @staticmethod
    def _may_be_empty(item: _Item, nullable: list[bool]) -> bool:
        if isinstance(item, _Called):
            return item.lo == 0 or nullable[item.rule]
        return isinstance(item, _Language) and item.language.nullable

    @staticmethod
    def _can_be_written(item: _Item, productive: list[bool]) -> bool:
        if isinstance(item, _Called):
            return item.lo == 0 or productive[item.rule]
        return not isinstance(item, _Language) or not item.language.is_empty()

    def _countable(self, item: _Item, nullable: list[bool]) -> _Item:
        """Repetitions of what can be empty as fewer ones of what can't."""
        if isinstance(item, _Called) and (item.lo, item.hi) != (1, 1) and nullable[item.rule]:
            return _Called(self._half(item.rule), 0, item.hi)
        return item

    def _half(self, rule: int) -> int:
        found = self._halves.get(rule)
        if found is None:
            found = self._halves[rule] = self._new()
        return found

    def _make_halves(self, nullable: list[bool]) -> None:
        done = 0
        while done < len(self._halves):
            rule, half = list(self._halves.items())[done]
            done += 1
            for items in self._rules[rule]:
                for at, item in enumerate(items):
                    self._regular.builder.spend(len(items))
                    if not self._may_be_empty(item, nullable):
                        self._rules[half].append(items[at:])
                        break
                    some = self._nonempty(item)
                    self._rules[half].append([some, *items[at + 1 :]])

    def _nonempty(self, item: _Item) -> _Item:
        """The texts of an item that can be empty, but the empty one."""
        builder = self._regular.builder
        if isinstance(item, _Language):
            some = builder.repeat(builder.any_char, 1, None)
            return _Language(builder.intersect(item.language, some))
        if isinstance(item, _Called):
            if item.lo:  # not repeated: see ``_countable``
                return _Called(self._half(item.rule))
            return _Called(item.rule, 1, item.hi)
        raise AssertionError("a token is never empty")

    # -- from items to nodes --------------------------------------------------------------------

    def _nodes(self) -> Compiled:
        productive = self._fixed_point(self._can_be_written)
        names = {number: name for name, number in self._named.items()}
        hopeless = [name for number, name in names.items() if not productive[number]]
        if not productive[0]:
            raise GrammarSourceError(
                f"no finite text fits: {', '.join(sorted(hopeless)[:8])} can never be completed",
                problem="unsatisfiable",
            )
        for number, alternatives in enumerate(self._rules):
            self._rules[number] = [
                [i for i in items if not isinstance(i, _Called) or productive[i.rule]]
                for items in alternatives
                if all(self._can_be_written(item, productive) for item in items)
            ]
        nullable = self._fixed_point(self._may_be_empty)
        order = self._order(nullable)
        place = {number: at for at, number in enumerate(order)}
        called = {i.rule for r in self._rules for items in r for i in items if _is_call(i)}
        nodes = [
            Rule(
                place[number],
                [
                    [
                        self._part(
                            item,
                            nullable,
                            place,
                            last=number == 0 and 0 not in called and at + 1 == len(items),
                        )
                        for at, item in enumerate(items)
                    ]
                    for items in self._rules[number]
                ],
                nullable=nullable[number],
            )
            for number in order
        ]
        notes = tuple(f"the rule {name!r} can never be completed" for name in sorted(hopeless))
        return Compiled(tuple(nodes), place[0], notes)

    def _part(
        self, item: _Item, nullable: list[bool], place: dict[int, int], *, last: bool
    ) -> Word | Call:
        workspace = self._workspace
        if isinstance(item, _Called):
            once = (item.lo, item.hi) == (1, 1)
            return Call(place[item.rule], once and nullable[item.rule], item.lo, item.hi)
        if isinstance(item, _Atom):
            token = workspace.token(item.ids, but=item.but)
            return Word(token, token.start(), nullable=False)
        content = as_content(item.language)
        terminal = workspace.text(last=last)
        return Word(terminal, terminal.start(content), item.language.nullable)

    def _order(self, nullable: list[bool]) -> list[int]:
        """The rules, each one before those that it may begin with."""
        firsts = [
            sorted({r for items in alternatives for r in self._first_rules(items, nullable)})
            for alternatives in self._rules
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

    def _first_rules(self, items: list[_Item], nullable: list[bool]) -> Iterator[int]:
        for item in items:
            if isinstance(item, _Called):
                yield item.rule
            if not self._may_be_empty(item, nullable):
                return


def _is_call(item: _Item) -> TypeGuard[_Called]:
    return isinstance(item, _Called)
