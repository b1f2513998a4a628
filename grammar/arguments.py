"""Arguments that are written one after the other, each in a frame of its own: XML-like parameters,
lines of keys and values, the keywords of a Python call.

The schema compiler says what the object may be (``ObjectSpec``); here its members become rules:

    members(i) = between member(i) members(i + 1)        the i-th property, in the schema's order
               | members(i + 1)                          if it is not required

A member's value is plain text, if the reader takes it for a string as it stands, or JSON.
Undeclared properties can't be written so; counts of properties are not enforced, which is an issue.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from grammar.dialects import DialectWriter, language_of
from grammar.errors import Issue, UnsatisfiableSchemaError
from grammar.marks import TEXT
from grammar.nodes import Node, Styled
from grammar.regular import RegexBuilder, Rx
from grammar.rules import Called, Item, Language, Made, RuleTable
from grammar.schema.compiler import SchemaCompiler
from grammar.schema.flatten import Conjunction
from grammar.schema.merge import ExtractSpec, Spec, StringSpec, WordsSpec
from grammar.schema.objects import ObjectSpec
from grammar.style import Style
from grammar.turn_parts import ArgumentsValue, Frame, Part
from grammar.writing import without

Lower = Callable[[Part], Rx]


@dataclass(frozen=True, slots=True)
class _Written:
    """A member's value: a language, or the number of a rule of the schema compiler."""

    text: Rx | None
    rule: int | None


class Arguments:
    """One ``ArgumentsValue`` on its way to rules.

    Args:
        compiler: of its schema; its rules are made here, its nodes by whoever asked.
        writer: the compiler's.
        lower: makes languages of regular parts.
    """

    def __init__(
        self, value: ArgumentsValue, compiler: SchemaCompiler, writer: DialectWriter, lower: Lower
    ) -> None:
        self._value = value
        self._compiler = compiler
        self._writer = writer
        self._lower = lower
        self._builder: RegexBuilder = compiler.workspace.builder
        self._members = {member.name: member for member in value.members}
        self._plain = self._builder.star(self._builder.chars(TEXT))
        self.issues: list[Issue] = []
        self._specs: list[tuple[ObjectSpec, list[_Written]]] = []
        self._good: list[bool] = []
        self._made: dict[int, Made] = {}

    def nodes(self) -> list[Node]:
        """The nodes of the values that are written as JSON."""
        specs: list[Spec] = self._compiler.specs((self._compiler.document.start,))
        for spec in specs:
            if isinstance(spec, ObjectSpec):
                self._check_counts(spec)
                pairs = zip(spec.names, spec.values, strict=True)
                self._specs.append((spec, [self._written(name, value) for name, value in pairs]))
        self._compiler.finish()
        self._good = self._compiler.productive()
        return self._compiler.nodes_of(self._good)

    def _check_counts(self, spec: ObjectSpec) -> None:
        most = spec.most is not None and spec.most < len(spec.names)
        if most or spec.least > sum(spec.required) or spec.wanted:
            reason = "how many arguments there are is not counted in this format"
            self.issues.append(Issue("maxProperties" if most else "minProperties", "", reason))

    def _written(self, name: str, value: Conjunction) -> _Written:
        member = self._members.get(name)
        if member is None:
            return _Written(None, None)
        types = member.types
        text: Rx | None = None
        if member.text:
            text = self._text(value)
            if member.null and self._compiler.specs((*value, self._typed(["null"]))):
                text = self._builder.union(text, self._builder.literal("null"))
        if types is not None and not types:
            return _Written(text, None)
        narrowed = value if types is None else (*value, self._typed(list(types)))
        return _Written(text, self._compiler.rule(narrowed))

    def _typed(self, types: list[str]) -> str:
        return self._compiler.document.add({"type": types}, "")

    def _text(self, value: Conjunction) -> Rx:
        """The strings that fit, as they are."""
        builder = self._builder
        found = []
        for spec in self._compiler.specs((*value, self._typed(["string"]))):
            if isinstance(spec, StringSpec):
                found.append(language_of(builder, spec.content))
            elif isinstance(spec, WordsSpec):
                found.append(builder.literals(json.loads(t) for t in spec.texts if t[:1] == '"'))
            elif isinstance(spec, ExtractSpec):
                reason = "passages of a source are not written as plain text, as in this format"
                self.issues.append(Issue("x-extract", value[-1], reason))
                found.append(self._plain)
        barred = without(builder, self._value.barred)
        return builder.intersect(builder.union(*found), self._plain, barred)

    # -- rules ------------------------------------------------------------------------------------

    def fill(self, table: RuleTable, styles: tuple[Style, ...]) -> int:
        """Add the rules; returns the number of the one that is all of the arguments.

        Raises:
            UnsatisfiableSchemaError: no arguments can be written.
        """
        root = table.new()
        for spec, written in self._specs:
            first = self._sequence(table, spec, written, styles)
            if first is not None:
                table.rules[root].append([Called(first)])
        if not table.rules[root]:
            raise UnsatisfiableSchemaError(
                "no arguments of this tool can be written in this format"
            )
        return root

    def _sequence(
        self, table: RuleTable, spec: ObjectSpec, written: list[_Written], styles: tuple[Style, ...]
    ) -> int | None:
        """The first of the rules of one kind of object; None if a required member can't be."""
        done = table.new()
        table.rules[done].append([])
        later = first = done  # what may follow: something written already, or nothing
        between = Language(self._lower(self._value.between))
        for name, required, value in reversed(
            list(zip(spec.names, spec.required, written, strict=True))
        ):
            member = self._member(table, name, value, styles)
            if member is None:
                if required:
                    return None
                continue
            following = later
            rules = []
            for before, skip in (([between], later), ([], first)):
                number = table.new()
                table.rules[number].append(
                    table.joined([*before, Called(member), Called(following)])
                )
                if not required:
                    table.rules[number].append([Called(skip)])
                rules.append(number)
            later, first = rules
        return first

    def _member(
        self, table: RuleTable, name: str, value: _Written, styles: tuple[Style, ...]
    ) -> int | None:
        member = self._members.get(name)
        alternatives: list[list[Item]] = []
        for frame in member.frames if member is not None else ():
            before, after = self._lower(frame.before), self._lower(frame.after)
            if value.text is not None:
                text = self._fitting(value.text, frame)
                whole = self._builder.concat(before, text, after)
                if not text.is_empty():
                    alternatives.append([Language(whole)])
            if value.rule is not None and self._good[value.rule]:
                made = self._styled(table, value.rule, styles)
                alternatives.append([Language(before), made, Language(after)])
        if not alternatives:
            return None
        number = table.new()
        table.rules[number] = [table.joined(items) for items in alternatives]
        return number

    def _styled(self, table: RuleTable, rule: int, styles: tuple[Style, ...]) -> Made:
        found = self._made.get(rule)
        if found is None:
            table.made.append(Styled(rule, styles))
            found = self._made[rule] = Made(len(table.made) - 1)
        return found

    def _fitting(self, text: Rx, frame: Frame) -> Rx:
        builder = self._builder
        everything = builder.universe
        if frame.not_first is not None:
            begun = builder.concat(self._lower(frame.not_first), everything)
            text = builder.difference(text, begun)
        if frame.not_last is not None:
            ended = builder.concat(everything, self._lower(frame.not_last))
            text = builder.difference(text, ended)
        return text
