"""JSON Schema to grammar: rules made from a work list, pruned, and turned into nodes.

1. Each conjunction of subschemas is one rule; its parts are rules of their own, queued until none
   is left, so recursive schemas need no recursion here.
2. Rules that no finite JSON value satisfies are found by a fixed point and pruned: an optional
   property of that kind is forbidden, an alternative is dropped, an array ends before it. If the
   root is among them the schema is unsatisfiable, and that is said now, not met later.
3. What remains becomes nodes (``grammar.nodes``, ``grammar.containers``).
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from typing import Any

from grammar.arrays import ItemChoice
from grammar.budget import Budget, OutOfTimeError
from grammar.errors import (
    Issue,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
)
from grammar.matcher import Report
from grammar.nodes import Later, Node
from grammar.objects import ObjectNode
from grammar.schema.direct import listed_strings, plain_rule, plain_target
from grammar.schema.document import Document
from grammar.schema.flatten import Alternative, Conjunction, Flattener
from grammar.schema.languages import Languages
from grammar.schema.leaves import says_nothing, signature
from grammar.schema.making import NodeMaker, may_wait
from grammar.schema.merge import (
    ArraySpec,
    ConstantSpec,
    Merger,
    NumberSpec,
    Spec,
    StringSpec,
    Way,
    WordsSpec,
    scalar_texts,
)
from grammar.schema.objects import ObjectSpec
from grammar.schema.plan import ArrayRule, ObjectRule, Rule, Same
from grammar.schema.pruning import blame, productive, settled
from grammar.schema.reports import report_of
from grammar.workspace import Workspace
from grammar.writing import Writer

MAX_LEAVES = 4096
_SCALARS = (WordsSpec, StringSpec, NumberSpec)


class SchemaCompiler:
    """One schema on its way to nodes.

    Args:
        object_node: makes the nodes of objects.
        writer: how values are written; None for plain JSON.
        base: how many nodes stand before these in the grammar's list.
        source: what ``x-extract`` extracts from.
    """

    def __init__(
        self,
        document: Document,
        workspace: Workspace,
        budget: Budget,
        object_node: type[ObjectNode],
        *,
        writer: Writer | None = None,
        base: int = 0,
        source: str | None = None,
    ) -> None:
        self.object_node = object_node
        self.document = document
        document.breathe = workspace.builder.breathe
        self.workspace = workspace
        self.budget = budget
        self.writer = Writer(workspace) if writer is None else writer
        self.base = base
        self.issues: dict[Issue, None] = {}
        self.notes: dict[str, None] = {}
        # Rules are known by their numbers in the grammar; those before are not ours.
        self.rules: list[Rule] = [()] * base
        self._numbers: dict[Conjunction, int] = {}  # but for single subschemas
        self._at: dict[str, int] = {}  # the rules of single subschemas, by pointer
        self._pending: list[tuple[int, Conjunction]] = []
        self._links: dict[int, int] = {}  # rules that are to be the same as others
        self._same: dict[tuple[Alternative, ...], int] = {}  # rules by what they come down to
        self._leaves: dict[str, int] = {}  # rules by signature
        self.visited: dict[str, Any] = {}  # the schema objects that were used, by pointer
        # What is written otherwise than as plain JSON has to be adapted, spec by spec.
        self._direct = type(self.writer) is Writer
        self._source = source
        for dialect, pointer in document.unknown_dialects:
            reason = f"{dialect:.80} is a meta-schema that is not known; read as draft 2020-12"
            self._report(Issue("$schema", pointer, reason))

    # What most schemas do without is made when it is asked for.

    @cached_property
    def _languages(self) -> Languages:
        return Languages(self.workspace, self.document, self._report, self._note, self._source)

    @cached_property
    def _flattener(self) -> Flattener:
        def exclusive(left: Conjunction, right: Conjunction) -> bool:
            return self._merger.exclusive(left, right)

        matches = self._languages.key_matches
        return Flattener(self.document, self._report, exclusive, matches)

    @cached_property
    def _merger(self) -> Merger:
        flattener = self._flattener
        return Merger(
            self.document,
            self._languages,
            self._report,
            flattener.conjunction,
            flattener.complement,
        )

    def _report(self, issue: Issue) -> None:
        shown = self.document.origin(issue.pointer)
        self.issues.setdefault(Issue(issue.keyword, shown, issue.reason))

    def _note(self, note: str) -> None:
        self.notes.setdefault(note)

    # -- rules ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Make all rules, from the root, which is the first of ours."""
        self.rule((self.document.start,))
        self.finish()

    def finish(self) -> None:
        """Make the rules that were asked for, and all that they need."""
        try:
            self._finish()
        except SchemaError as error:
            shown = self.document.origin(error.pointer)
            if shown == error.pointer:
                raise
            raise type(error)(error.message, pointer=shown, keyword=error.keyword) from None

    def _finish(self) -> None:
        breathe = self.workspace.builder.breathe
        while self._pending:
            breathe()
            number, conjunction = self._pending.pop()
            try:
                self._make(number, conjunction)
            except OutOfTimeError as error:
                pointer = self.document.origin(conjunction[-1]) if conjunction else ""
                raise SchemaBudgetError(str(error), pointer=pointer) from None
        for number, target in self._links.items():
            self.rules[number] = self.rules[target]
        self._links.clear()
        compares = self.writer.compares
        self.rules = settled(self.workspace.builder, self.rules, compares, self._report)

    def _make(self, number: int, conjunction: Conjunction) -> None:
        """Make a rule that was asked for."""
        if self._direct and len(conjunction) == 1 and self._is_plain(number, conjunction[0]):
            return
        alternatives = tuple(self._flattener.conjunction(conjunction))
        same = self._same.setdefault(alternatives, number)
        if same != number:
            self.rules[number] = self.rules[same]
            return
        specs: list[Spec] = []
        for alternative in alternatives:
            specs += self._specs(alternative)
        self.rules[number] = self._from_specs(specs)

    def _is_plain(self, number: int, pointer: str) -> bool:
        """Make a rule the short way, where there is one."""
        schema = self.document.get(pointer)
        if not isinstance(schema, dict):
            return schema is False  # and nothing fits, which is what the rule says already
        if "$ref" in schema:
            target = plain_target(self, pointer, schema)
            if target is None:
                return False
            self._links[number] = self.part(target, self.document.get(target))
            return True
        rule = plain_rule(self, pointer, schema)
        if rule is None:
            return False
        self.rules[number] = rule
        return True

    def _specs(self, alternative: Alternative) -> list[Spec]:
        for pointer in alternative:
            self.visited[pointer] = self.document.get(pointer)
        return self._merger.specs(alternative)

    def specs(self, conjunction: Conjunction) -> list[Spec]:
        """What fits all of some subschemas, as far as it can be written."""
        found: list[Spec] = []
        for alternative in self._flattener.conjunction(conjunction):
            found += self._specs(alternative)
        return [spec for spec in map(self.writer.adapt, found) if spec is not None]

    def rule(self, conjunction: Conjunction) -> int:
        """The number of the rule of a conjunction; ``finish`` makes it."""
        if len(conjunction) == 1:
            return self.part(conjunction[0], self.document.get(conjunction[0]))
        found = self._numbers.get(conjunction)
        if found is None:
            found = self._numbers[conjunction] = self._new(())
            if conjunction:
                self._pending.append((found, conjunction))
            else:
                self.rules[found] = self._from_specs(self._anything())
        return found

    def part(self, pointer: str, schema: Any) -> int:
        """The same for the single subschema that stands at a pointer."""
        found = self._at.get(pointer)
        if found is None:
            if not isinstance(schema, bool):  # as the document has it, which may drop keywords
                schema = self.document.get(pointer)
            said = signature(schema)
            if said is not None:
                self.visited[pointer] = schema
                found = self._leaf(pointer, schema, said)
            elif self._direct and says_nothing(schema):
                if schema is not True:
                    self.visited[pointer] = schema
                found = self.rule(())
            else:
                found = self._new(())
                self._pending.append((found, (pointer,)))
            self._at[pointer] = found
        return found

    def _anything(self) -> list[Spec]:
        """What says that anything fits."""
        return self._kept(("anything", self.document.float_integers), ())[0]

    def _leaf(self, pointer: str, schema: Any, said: str) -> int:
        """The rule of a subschema without parts, shared by all that say the same."""
        number = self._leaves.get(said)
        if number is None:
            specs, quiet = listed_strings(self, schema), True
            if specs is None:
                key = ("leaf", said, self.document.float_integers, self.document.asserts_content)
                specs, quiet = self._kept(key, (pointer,))
            number = self._new(())  # before its parts: the root is the first rule
            self.rules[number] = self._from_specs(specs)
            if quiet:  # else each has to be reported
                self._leaves[said] = number
        return number

    def _kept(self, key: Hashable, alternative: Alternative) -> tuple[list[Spec], bool]:
        """Specs that the workspace keeps, and whether nothing had to be reported of them."""
        kept = self.workspace.leaves
        specs: list[Spec] | None = kept.get(key)
        if specs is not None:
            return specs, True
        issues, notes = self.issues, self.notes
        self.issues, self.notes = {}, {}
        specs = self._merger.specs(alternative)
        quiet = not self.issues and not self.notes
        self.issues, self.notes = issues | self.issues, notes | self.notes
        if quiet:
            if len(kept) >= MAX_LEAVES:
                kept.clear()
            kept[key] = specs
        return specs, quiet

    def _from_specs(self, specs: list[Spec]) -> Rule:
        if not self._direct:
            specs = [s for s in map(self.writer.adapt, specs) if s is not None]
        if len(specs) > 1:
            specs = [h.spec for h in dict.fromkeys(map(Same, specs))]
        if len(specs) == 1 and isinstance(specs[0], _SCALARS):
            return specs[0]
        made = [self._from_spec(s) for s in specs]
        return self.rules[made[0]] if len(made) == 1 else tuple(made)

    def _new(self, rule: Rule) -> int:
        if len(self.rules) - self.base >= self.budget.rules:
            raise SchemaBudgetError(f"more than {self.budget.rules} rules")
        self.rules.append(rule)
        return len(self.rules) - 1

    def _from_spec(self, spec: Spec) -> int:
        if isinstance(spec, ConstantSpec):
            return self._constant(spec.value)
        if isinstance(spec, ArraySpec):
            prefix = tuple(tuple(map(self._choice, ways)) for ways in spec.prefix)
            rest = tuple(map(self._choice, spec.rest))
            return self._new(
                ArrayRule(prefix, rest, spec.least, spec.most, spec.contains, spec.unique)
            )
        if isinstance(spec, ObjectSpec):
            values = tuple(self.rule(c) for c in spec.values)
            extras = tuple(self.rule(extra.value) for extra in spec.extras)
            return self._new(ObjectRule(spec, values, extras, self.object_node))
        return self._new(spec)

    def _choice(self, way: Way) -> ItemChoice:
        conjunction, matches = way
        return ItemChoice(self.rule(conjunction), matches)

    def _constant(self, value: Any) -> int:
        if isinstance(value, list):
            items = tuple((ItemChoice(self._constant(v)),) for v in value)
            return self._new(ArrayRule(items, (), len(items), len(items)))
        if isinstance(value, dict):
            names = tuple(value)
            values = tuple(self._constant(v) for v in value.values())
            spec = ObjectSpec(names, ((),) * len(names), (True,) * len(names), ())
            return self._new(ObjectRule(spec, values, (), self.object_node))
        return self._new(WordsSpec(tuple(scalar_texts(value, ""))))

    # -- nodes ----------------------------------------------------------------------------------

    def productive(self) -> list[bool]:
        """For each rule, whether some finite text satisfies it."""
        return productive(self.workspace.builder, self.rules)

    def nodes(self) -> list[Node]:
        """The rules as nodes, pruned.

        Raises:
            UnsatisfiableSchemaError: nothing satisfies the root.
        """
        good = self.productive()
        if not good[self.base]:
            by_rule: dict[int, Conjunction] = {
                number: (pointer,) for pointer, number in self._at.items()
            }
            by_rule |= {number: conjunction for conjunction, number in self._numbers.items()}
            pointer, keyword = blame(self.rules, self.base, good, by_rule)
            pointer = self.document.origin(pointer)
            raise UnsatisfiableSchemaError(
                "no JSON value satisfies this", pointer=pointer, keyword=keyword
            )
        return self.nodes_of(good)

    def nodes_of(self, good: list[bool]) -> list[Node]:
        """The rules as nodes, given which are productive; nothing fits the others.

        Those of plain JSON are made when they are begun, so that what no answer comes to is not.
        """
        makes = NodeMaker(self.workspace, self.rules, good, self.writer)
        lazily = self._direct
        return [
            Later(number, makes) if lazily and may_wait(rule) else makes(number)
            for number, rule in enumerate(self.rules)
        ][self.base :]

    def release(self) -> None:
        """Break the circles of references: nothing then waits for the cycle collector."""
        own = vars(self)
        for part in (own.get("_flattener"), own.get("_merger"), self):
            if part is not None:
                vars(part).clear()

    # -- report ---------------------------------------------------------------------------------

    def report(self) -> Report:
        """What is enforced, what is not, and what was ignored."""
        return report_of(self.document, self.issues, self.notes, self.visited)
