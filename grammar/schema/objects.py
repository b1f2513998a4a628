"""Objects: the properties, and the keys beyond them, that several schema objects leave together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grammar.content import ANYTHING, Content, Excluding
from grammar.errors import SchemaBudgetError
from grammar.regular import Rx
from grammar.schema import keywords as kw
from grammar.schema.document import join
from grammar.schema.flatten import Conjunction
from grammar.schema.places import extra_place

if TYPE_CHECKING:
    from grammar.schema.merge import Merger

MAX_KEY_CLASSES = 64


@dataclass(frozen=True, slots=True)
class ObjectSpec:
    """An object: declared properties in order, then keys of some classes.

    ``values`` and the second part of ``extras`` are conjunctions of subschemas.
    """

    names: tuple[str, ...]
    values: tuple[Conjunction, ...]
    required: tuple[bool, ...]
    extras: tuple[tuple[Content, Conjunction], ...]


def merge_objects(merger: Merger, schemas: list[tuple[str, dict[str, Any]]]) -> ObjectSpec | None:
    """The object that all the schema objects accept together, or None if there is none.

    Names are ordered by first appearance; required names that nobody declares come last.
    """
    names: dict[str, None] = {}
    required: dict[str, None] = {}
    key_rules: list[str] = []
    for pointer, schema in schemas:
        merger.report_unsupported("object", pointer, schema)
        names.update(dict.fromkeys(kw.mapping(schema, "properties", pointer)))
        required.update(dict.fromkeys(kw.names(schema, "required", pointer)))
        if "propertyNames" in schema:
            key_rules.append(join(pointer, "propertyNames"))
    names.update(required)
    usable = [n for n in names if all(merger.evaluator.holds(p, n) for p in key_rules)]
    if any(name not in usable for name in required):
        return None
    values = tuple(_declared(merger, schemas, name) for name in usable)
    for pointer, name in ((p, n) for p, s in schemas for n in kw.mapping(s, "properties", p)):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise kw.fault("properties", pointer, f"{name!r} is no Unicode text") from None
    return ObjectSpec(
        names=tuple(usable),
        values=values,
        required=tuple(name in required for name in usable),
        extras=_extras(merger, schemas, tuple(names), key_rules),
    )


def _declared(merger: Merger, schemas: list[tuple[str, dict[str, Any]]], name: str) -> Conjunction:
    places: dict[str, None] = {}
    for pointer, schema in schemas:
        found = []
        if name in schema.get("properties", {}):
            found.append(join(pointer, "properties", name))
        found.extend(
            join(pointer, "patternProperties", pattern)
            for pattern in kw.mapping(schema, "patternProperties", pointer)
            if merger.languages.key_matches(pattern, pointer, name)
        )
        extra = extra_place(schema, pointer)
        if not found and extra is not None:
            found.append(extra)
        places.update(dict.fromkeys(found))
    return tuple(places)


def _extras(
    merger: Merger,
    schemas: list[tuple[str, dict[str, Any]]],
    names: tuple[str, ...],
    key_rules: list[str],
) -> tuple[tuple[Content, Conjunction], ...]:
    """The classes of undeclared keys: by which patterns they match, so that each has one schema."""
    patterns = [
        (pointer, pattern)
        for pointer, schema in schemas
        for pattern in kw.mapping(schema, "patternProperties", pointer)
    ]
    if not patterns and not key_rules:
        places = (extra_place(schema, pointer) for pointer, schema in schemas)
        conjunction = tuple(dict.fromkeys(p for p in places if p is not None))
        undeclared = Excluding(names) if names else ANYTHING
        return ((Content(undeclared, 0, None), conjunction),)
    return _classes(merger, schemas, names, key_rules, patterns)


def _classes(
    merger: Merger,
    schemas: list[tuple[str, dict[str, Any]]],
    names: tuple[str, ...],
    key_rules: list[str],
    patterns: list[tuple[str, str]],
) -> tuple[tuple[Content, Conjunction], ...]:
    languages = merger.languages
    builder = languages.builder
    start = builder.complement(builder.literals(names))
    for rule in key_rules:
        start = builder.intersect(start, languages.of_keys(merger, (rule,)))
    classes: list[tuple[Rx, frozenset[tuple[str, str]]]] = [(start, frozenset())]
    for pointer, pattern in patterns:
        matching = languages.key_pattern(pattern, pointer)
        split = []
        for language, matched in classes:
            inside = builder.intersect(language, matching)
            outside = builder.difference(language, matching)
            split += [(inside, matched | {(pointer, pattern)}), (outside, matched)]
        classes = [(language, matched) for language, matched in split if not language.is_empty()]
        if len(classes) > MAX_KEY_CLASSES:
            raise SchemaBudgetError(
                f"more than {MAX_KEY_CLASSES} overlapping classes of keys",
                pointer=pointer,
                keyword="patternProperties",
            )
    result = []
    for language, matched in classes:
        if language.is_empty():
            continue
        places: dict[str, None] = {}
        for pointer, schema in schemas:
            own = sorted(pattern for p, pattern in matched if p == pointer)
            extra = extra_place(schema, pointer)
            found = [join(pointer, "patternProperties", pattern) for pattern in own]
            if not found and extra is not None:
                found = [extra]
            places.update(dict.fromkeys(found))
        result.append((Content(language, 0, None), tuple(places)))
    return tuple(result)
