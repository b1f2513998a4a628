"""The rules of a schema as the compiler makes them: what becomes a node each.

A rule is a spec of scalars, an array or object whose parts are rules by their numbers, or a list of
alternative rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from grammar.arrays import ArrayNode, Contains, ItemChoice
from grammar.distinct import Stock
from grammar.objects import Extra, ObjectNode
from grammar.schema.merge import ConstantSpec, ExtractSpec, NumberSpec, Spec, StringSpec, WordsSpec
from grammar.schema.objects import ObjectSpec


@dataclass(frozen=True, slots=True)
class ArrayRule:
    """An array; see ``ArrayNode``."""

    prefix: tuple[tuple[ItemChoice, ...], ...]
    rest: tuple[ItemChoice, ...]
    least: int
    most: int | None
    contains: tuple[Contains, ...] = ()
    unique: str | None = None  # the pointer of the schema object that says so

    def node(self, good: Sequence[bool], stocks: Mapping[int, Stock] | None = None) -> ArrayNode:
        """The node, with the choices that can be written; ``stocks``: see ``ArrayNode``."""
        prefix = [[c for c in choices if good[c.rule]] for choices in self.prefix]
        rest = [c for c in self.rest if good[c.rule]]
        most = self.most
        barred = next((i for i, choices in enumerate(prefix) if not choices), None)
        if barred is None and not rest:
            barred = len(prefix)
        if barred is not None:
            most = barred if most is None else min(most, barred)
            prefix, rest = prefix[:barred], []
        compares = self.unique is not None
        return ArrayNode(
            prefix, rest, self.least, most, self.contains, compares=compares, stocks=stocks
        )


@dataclass(frozen=True, slots=True)
class ObjectRule:
    """An object: what is known of it, the rules of its values, and what makes the node."""

    spec: ObjectSpec
    values: tuple[int, ...]
    extras: tuple[int, ...]
    make: type[ObjectNode]

    def node(
        self, good: Sequence[bool], key: Callable[[str], bytes] = lambda name: name.encode()
    ) -> ObjectNode:
        """The node, with the properties and keys whose values can be written; ``key`` spells."""
        spec = self.spec
        kept = [i for i, value in enumerate(self.values) if good[value]]
        return self.make(
            [key(spec.names[i]) for i in kept],
            [self.values[i] for i in kept],
            [spec.required[i] for i in kept],
            [
                Extra(extra.content, value, extra.witness, extra.size)
                for extra, value in zip(spec.extras, self.extras, strict=True)
                if good[value]
            ],
            spec.least,
            spec.most,
            spec.wanted,
        )


Rule = WordsSpec | StringSpec | ExtractSpec | NumberSpec | ArrayRule | ObjectRule | tuple[int, ...]


class Same:
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
        return isinstance(other, Same) and self.key == other.key


def parts_of(rule: Rule) -> tuple[int, ...]:
    """The rules that a rule is made of."""
    if isinstance(rule, tuple):
        return rule
    if isinstance(rule, ArrayRule):
        return tuple(c.rule for choices in (*rule.prefix, rule.rest) for c in choices)
    if isinstance(rule, ObjectRule):
        return (*rule.values, *rule.extras)
    return ()


def is_productive(rule: Rule, good: Sequence[bool]) -> bool:
    """Whether some finite text satisfies a rule, when the rules that are ``good`` have one."""
    if isinstance(rule, ObjectRule):
        spec = rule.spec
        for value, needed in zip(rule.values, spec.required, strict=True):
            if needed and not good[value]:
                return False
        counted = spec.least or spec.most is not None or spec.wanted
        return not counted or rule.node(good).is_possible()
    if isinstance(rule, tuple):
        return any(good[part] for part in rule)
    if isinstance(rule, WordsSpec):
        return bool(rule.texts)
    if isinstance(rule, ArrayRule):
        if not rule.least and not rule.contains:
            return True  # the empty one
        firsts = [*rule.prefix, rule.rest][: rule.least]
        written = all(any(good[c.rule] for c in choices) for choices in firsts)
        return written and rule.node(good).is_possible()
    return True  # strings and numbers are only made where something fits
