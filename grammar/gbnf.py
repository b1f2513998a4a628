"""GBNF to a grammar: what is regular becomes terminals, the rest rules that call each other.

1. Every name must be defined, and no rule may begin with itself, not even behind items that can be
   empty: such a cycle is refused and shown.
2. Rules that do not lead into a cycle are regular. Each stretch of regular items in a sequence is
   one language, hence one terminal, shared by its text like all terminals.
3. What remains becomes ``sequences.Rule``s, by way of ``rules.RuleTable``. Repetitions of them are
   counted, never unrolled; a repeated part that can be empty is replaced by its non-empty half.
4. Rules that no finite text satisfies are pruned; if the root is among them, that is said.

The caller holds the workspace's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from grammar.errors import GrammarSourceError
from grammar.gbnf_source import ROOT, Regular, Source
from grammar.gbnf_syntax import Choice, Name, Repeat, Sequence, Term, Token
from grammar.nodes import Node, Terminal
from grammar.regular import Rx
from grammar.rules import (
    Alternatives,
    Atom,
    Called,
    Item,
    Language,
    RuleTable,
    as_content,
)
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


def regular_language(text: str, workspace: Workspace) -> Rx:
    """The language of a GBNF text that is regular.

    Raises:
        GrammarSourceError: it is no GBNF, or not regular.
    """
    source = Source(text)
    source.check()
    regular = Regular(source, workspace.builder)
    if ROOT not in regular.names:
        raise GrammarSourceError(
            "a grammar whose rules lead back to themselves can't stand within other text",
            problem="unsupported",
        )
    return regular.of(source.rules[ROOT])


class _Maker:
    """Makes rules of the parts that are not regular."""

    def __init__(
        self,
        source: Source,
        regular: Regular,
        workspace: Workspace,
        tokens: TokenIds,
        max_rules: int,
    ) -> None:
        def too_many() -> GrammarSourceError:
            return GrammarSourceError(
                f"more than {max_rules} rules and groups", problem="too complex"
            )

        self._source = source
        self._regular = regular
        self._tokens = tokens
        self._table = RuleTable(workspace, max_rules, too_many)
        self._named: dict[str, int] = {}
        self._pending: list[tuple[int, Term]] = []

    def make(self) -> Compiled:
        table = self._table
        self._name(ROOT)
        while self._pending:
            number, term = self._pending.pop()
            table.rules[number] = self._alternatives(term)
        table.halve()
        productive = table.productive()
        hopeless = [name for name, number in self._named.items() if not productive[number]]
        if not productive[0]:
            raise GrammarSourceError(
                f"no finite text fits: {', '.join(sorted(hopeless)[:8])} can never be completed",
                problem="unsatisfiable",
            )
        notes = tuple(f"the rule {name!r} can never be completed" for name in sorted(hopeless))
        nodes, root = table.nodes(productive)
        return Compiled(tuple(nodes), root, notes)

    def _name(self, name: str) -> int:
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = self._table.new()
            self._pending.append((found, self._source.rules[name]))
        return found

    def _rule_of(self, term: Term) -> int:
        if isinstance(term, Name):
            return self._name(term.name)
        number = self._table.new()
        self._pending.append((number, term))
        return number

    def _alternatives(self, term: Term) -> Alternatives:
        options = term.options if isinstance(term, Choice) else (term,)
        regular = [option for option in options if self._regular.includes(option)]
        found = [self._items(option) for option in options if not self._regular.includes(option)]
        if regular:
            language = Language(self._regular.of(Choice(tuple(regular))))
            found.append(self._table.joined([language]))
        return found

    def _items(self, term: Term) -> list[Item]:
        """A sequence of items; stretches of regular ones as one."""
        found: list[Item] = []
        stack = [term]
        while stack:
            top = stack.pop()
            if isinstance(top, Sequence) and not self._regular.includes(top):
                stack.extend(reversed(top.items))
            elif self._regular.includes(top):
                found.append(Language(self._regular.of(top)))
            elif isinstance(top, Token):
                found.append(self._atom(top))
            elif isinstance(top, Repeat):
                if top.hi != 0:
                    found.append(Called(self._rule_of(top.body), top.lo, top.hi))
            else:
                found.append(Called(self._rule_of(top)))
        return self._table.joined(found)

    def _atom(self, term: Token) -> Atom:
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
        return Atom(ids, term.but)
