"""JSON Schema to grammar: rules made from a work list, pruned, and turned into nodes.

1. Each conjunction of subschemas is one rule; its parts are rules of their own, queued until none
   is left, so recursive schemas need no recursion here.
2. Rules that no finite JSON value satisfies are found by a fixed point and pruned: an optional
   property of that kind is forbidden, an alternative is dropped, an array ends before it. If the
   root is among them the schema is unsatisfiable, and that is said now, not met later.
3. What remains becomes nodes (``grammar.nodes``, ``grammar.containers``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grammar.arrays import ArrayNode, ItemChoice
from grammar.errors import (
    Issue,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from grammar.matcher import Grammar, Report
from grammar.nodes import Choice, Node, Terminal
from grammar.objects import Extra, ObjectNode
from grammar.schema import keywords as kw
from grammar.schema.document import Document
from grammar.schema.flatten import Conjunction, Flattener
from grammar.schema.languages import Languages
from grammar.schema.merge import (
    ArraySpec,
    ConstantSpec,
    Merger,
    NumberSpec,
    Spec,
    StringSpec,
    WordsSpec,
    scalar_texts,
)
from grammar.schema.objects import ObjectSpec
from grammar.style import WHITESPACE_MODES
from grammar.vocabulary import Vocabulary
from grammar.workspace import Workspace

UNLIMITED_FUEL = 1 << 60


@dataclass(frozen=True, slots=True)
class Budget:
    """What one compilation may cost.

    Attributes:
        rules: distinct combinations of subschemas.
        regex_steps: steps of regular-language work (about a microsecond each).
        schema_bytes: length of the schema as compact JSON.
    """

    rules: int = 20_000
    regex_steps: int = 1_000_000
    schema_bytes: int = 4_000_000


@dataclass(frozen=True, slots=True)
class _Array:
    prefix: tuple[int, ...]
    rest: int | None
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class _Object:
    spec: ObjectSpec
    values: tuple[int, ...]
    extras: tuple[int, ...]


_Rule = WordsSpec | StringSpec | NumberSpec | _Array | _Object | tuple[int, ...]


def compile_json_schema(
    schema: dict[str, Any] | bool,
    vocabulary: Vocabulary,
    *,
    strict: bool = True,
    whitespace: str = "adaptive",
    budget: Budget | None = None,
) -> Grammar:
    """Compile a JSON Schema to a grammar of the JSON texts that are valid under it.

    Args:
        schema: the schema, any draft from 4 to 2020-12; the order of its keys is the order of
            properties in the output.
        strict: with True, a keyword that can't be enforced is an error; with False it is left out
            and listed in ``Grammar.report.unenforced``.
        whitespace: one of ``fixed``, ``compact``, ``pretty``, ``adaptive``, ``flexible``.
        budget: what the compilation may cost; None for the default.

    Raises:
        SchemaError: the schema is not valid; or, as one of its subclasses, it is unsupported,
            unsatisfiable, or too costly.
        ValueError: an unknown white-space mode.
    """
    if whitespace not in WHITESPACE_MODES:
        raise ValueError(f"whitespace must be one of {', '.join(WHITESPACE_MODES)}")
    limit = budget if budget is not None else Budget()
    document = Document(schema)
    try:
        size = len(json.dumps(schema, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"is no JSON: {error}") from None
    if size > limit.schema_bytes:
        raise SchemaBudgetError(f"{size} bytes; at most {limit.schema_bytes} are compiled")
    workspace = vocabulary.workspace
    with workspace.lock:
        workspace.trim()
        workspace.builder.refuel(limit.regex_steps)
        try:
            compiler = _Compiler(document, workspace, limit)
            compiler.run()
            if strict and compiler.issues:
                raise UnsupportedSchemaError(tuple(compiler.issues))
            nodes = compiler.nodes()
        finally:
            workspace.builder.refuel(UNLIMITED_FUEL)
        return Grammar(vocabulary, nodes, 0, WHITESPACE_MODES[whitespace], compiler.report())


class _Compiler:
    def __init__(self, document: Document, workspace: Workspace, budget: Budget) -> None:
        self.document = document
        self.workspace = workspace
        self.budget = budget
        self.issues: dict[Issue, None] = {}
        self.notes: dict[str, None] = {}
        self.rules: list[_Rule] = []
        self._numbers: dict[Conjunction, int] = {}
        self._pending: list[tuple[int, Conjunction]] = []
        self._visited: set[str] = set()
        languages = Languages(workspace, document.schema, self._report, self._note)
        self._flattener = Flattener(document, self._report, lambda a, b: merger.exclusive(a, b))
        merger = Merger(document, languages, self._report, self._flattener.conjunction)
        self._merger = merger

    def _report(self, issue: Issue) -> None:
        self.issues.setdefault(issue)

    def _note(self, note: str) -> None:
        self.notes.setdefault(note)

    # -- rules ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Make all rules, from the root; rule 0 is the root."""
        self._rule(("",))
        while self._pending:
            number, conjunction = self._pending.pop()
            alternatives = self._flattener.conjunction(conjunction)
            specs: list[Spec] = []
            for alternative in alternatives:
                self._visited.update(alternative)
                specs += self._merger.specs(alternative)
            made = [self._from_spec(spec) for spec in dict.fromkeys(map(_hashable, specs))]
            if len(made) == 1:
                self.rules[number] = self.rules[made[0]]
            else:
                self.rules[number] = tuple(made)

    def _rule(self, conjunction: Conjunction) -> int:
        found = self._numbers.get(conjunction)
        if found is None:
            found = self._numbers[conjunction] = self._new(())
            self._pending.append((found, conjunction))
        return found

    def _new(self, rule: _Rule) -> int:
        if len(self.rules) >= self.budget.rules:
            raise SchemaBudgetError(f"more than {self.budget.rules} rules")
        self.rules.append(rule)
        return len(self.rules) - 1

    def _from_spec(self, holder: _Holder) -> int:
        spec = holder.spec
        if isinstance(spec, ConstantSpec):
            return self._constant(spec.value)
        if isinstance(spec, ArraySpec):
            prefix = tuple(self._rule(c) for c in spec.prefix)
            rest = None if spec.rest is None else self._rule(spec.rest)
            return self._new(_Array(prefix, rest, spec.least, spec.most))
        if isinstance(spec, ObjectSpec):
            values = tuple(self._rule(c) for c in spec.values)
            extras = tuple(self._rule(c) for _, c in spec.extras)
            return self._new(_Object(spec, values, extras))
        return self._new(spec)

    def _constant(self, value: Any) -> int:
        if isinstance(value, list):
            items = tuple(self._constant(v) for v in value)
            return self._new(_Array(items, None, len(items), len(items)))
        if isinstance(value, dict):
            names = tuple(value)
            values = tuple(self._constant(v) for v in value.values())
            spec = ObjectSpec(names, ((),) * len(names), (True,) * len(names), ())
            return self._new(_Object(spec, values, ()))
        return self._new(WordsSpec(tuple(scalar_texts(value, ""))))

    # -- pruning --------------------------------------------------------------------------------

    def _productive(self) -> list[bool]:
        """For each rule, whether some finite text satisfies it: a least fixed point."""
        users: list[list[int]] = [[] for _ in self.rules]
        for number, rule in enumerate(self.rules):
            for part in _parts(rule):
                users[part].append(number)
        good = [False] * len(self.rules)
        pending = list(range(len(self.rules)))
        while pending:
            number = pending.pop()
            if not good[number] and _is_productive(self.rules[number], good):
                good[number] = True
                pending += users[number]
        return good

    def nodes(self) -> list[Node]:
        """The rules as nodes, pruned.

        Raises:
            UnsatisfiableSchemaError: nothing satisfies the root.
        """
        good = self._productive()
        if not good[0]:
            pointer, keyword = self._blame(good)
            raise UnsatisfiableSchemaError(
                "no JSON value satisfies this", pointer=pointer, keyword=keyword
            )
        return [
            self._node(rule, good) if good[number] else Choice(())
            for number, rule in enumerate(self.rules)
        ]

    def _blame(self, good: list[bool]) -> tuple[str, str]:
        """Where the contradiction lies: the deepest unsatisfiable subschema that is required."""
        by_rule = {number: conjunction for conjunction, number in self._numbers.items()}
        number, seen = 0, {0}
        while True:
            rule = self.rules[number]
            needed: Sequence[int] = ()
            if isinstance(rule, _Object):
                needed = [v for v, r in zip(rule.values, rule.spec.required, strict=True) if r]
            elif isinstance(rule, _Array):
                items = [*rule.prefix, *([rule.rest] if rule.rest is not None else [])]
                needed = items[: rule.least]
            bad = [n for n in needed if not good[n] and n not in seen and n in by_rule]
            if not bad:
                conjunction = by_rule[number]
                return (conjunction[-1] if conjunction else ""), ""
            number = bad[0]
            seen.add(number)

    def _node(self, rule: _Rule, good: list[bool]) -> Node:
        workspace = self.workspace
        if isinstance(rule, tuple):
            return Choice([part for part in rule if good[part]])
        if isinstance(rule, WordsSpec):
            words = workspace.words(workspace.trie(tuple(t.encode() for t in rule.texts)))
            return Terminal(words, words.start())
        if isinstance(rule, StringSpec):
            strings = workspace.strings()
            return Terminal(strings, strings.start(rule.content))
        if isinstance(rule, NumberSpec):
            return Terminal(workspace.ascii, workspace.ascii.start(rule.language))
        if isinstance(rule, _Array):
            prefix, rest, most = rule.prefix, rule.rest, rule.most
            barred = next((i for i, part in enumerate(prefix) if not good[part]), None)
            if barred is None and (rest is None or not good[rest]):
                barred = len(prefix)
            if barred is not None:
                most = barred if most is None else min(most, barred)
                prefix, rest = prefix[:barred], None
            return ArrayNode(
                [[ItemChoice(part)] for part in prefix],
                [] if rest is None else [ItemChoice(rest)],
                rule.least,
                most,
            )
        spec = rule.spec
        kept = [i for i, value in enumerate(rule.values) if good[value]]
        return ObjectNode(
            [json.dumps(spec.names[i], ensure_ascii=False)[1:-1].encode() for i in kept],
            [rule.values[i] for i in kept],
            [spec.required[i] for i in kept],
            [
                Extra(content, value)
                for (content, _), value in zip(spec.extras, rule.extras, strict=True)
                if good[value]
            ],
        )

    # -- report ---------------------------------------------------------------------------------

    def report(self) -> Report:
        """What is enforced, what is not, and what was ignored."""
        enforced: set[str] = set()
        unenforced = tuple(self.issues)
        left_out = {(issue.keyword, issue.pointer) for issue in unenforced}
        for pointer in sorted(self._visited):
            schema = self.document.schema(pointer)
            assert isinstance(schema, dict)
            for keyword in schema:
                if keyword not in kw.KNOWN:
                    self._note(f"{keyword} at {pointer or '(root)'} is no keyword: ignored")
                elif keyword not in kw.ANNOTATIONS and (keyword, pointer) not in left_out:
                    enforced.add(keyword)
        return Report(tuple(sorted(enforced)), unenforced, tuple(self.notes))


class _Holder:
    """A spec as a dictionary key: equal specs of one rule are made once."""

    __slots__ = ("key", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.key: object = spec
        if isinstance(spec, ConstantSpec):
            self.key = json.dumps(spec.value, sort_keys=False)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Holder) and self.key == other.key


def _hashable(spec: Spec) -> _Holder:
    return _Holder(spec)


def _parts(rule: _Rule) -> tuple[int, ...]:
    if isinstance(rule, tuple):
        return rule
    if isinstance(rule, _Array):
        return rule.prefix if rule.rest is None else (*rule.prefix, rule.rest)
    if isinstance(rule, _Object):
        return (*rule.values, *rule.extras)
    return ()


def _is_productive(rule: _Rule, good: list[bool]) -> bool:
    if isinstance(rule, tuple):
        return any(good[part] for part in rule)
    if isinstance(rule, WordsSpec):
        return bool(rule.texts)
    if isinstance(rule, _Array):
        if rule.most is not None and rule.least > rule.most:
            return False
        firsts = rule.prefix[: rule.least]
        enough = rule.least <= len(rule.prefix) or (rule.rest is not None and good[rule.rest])
        return enough and all(good[part] for part in firsts)
    if isinstance(rule, _Object):
        return all(
            good[value] or not needed
            for value, needed in zip(rule.values, rule.spec.required, strict=True)
        )
    return True  # strings and numbers are only made where something fits
