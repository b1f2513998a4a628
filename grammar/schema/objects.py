"""Objects: the properties, and the keys beyond them, that several schema objects leave together.

``SOME_KEY``, which only complements say, asks for one key of a class with a certain value: a
declared property of that class (one spec for each), or an undeclared key (a class of witnesses).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grammar.content import ANYTHING, Content, Excluding, Language, Without
from grammar.errors import Issue, SchemaBudgetError
from grammar.regular import RegexBudgetError, Rx
from grammar.schema import keywords as kw
from grammar.schema.document import NOT, SOME_KEY, join
from grammar.schema.flatten import Conjunction
from grammar.schema.places import extra_place

if TYPE_CHECKING:
    from grammar.schema.merge import Merger

MAX_KEY_CLASSES = 64
_INTRICATE = frozenset(
    {"patternProperties", "propertyNames", "minProperties", "maxProperties", SOME_KEY}
)
Schemas = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ExtraSpec:
    """A class of undeclared keys, and the conjunction of their values' schemas."""

    content: Content
    value: Conjunction
    witness: bool = False


@dataclass(frozen=True, slots=True)
class ObjectSpec:
    """An object: declared properties in order, then keys of some classes, and how many in all."""

    names: tuple[str, ...]
    values: tuple[Conjunction, ...]
    required: tuple[bool, ...]
    extras: tuple[ExtraSpec, ...]
    least: int = 0
    most: int | None = None
    needs_witness: bool = False


def merge_objects(merger: Merger, schemas: Schemas) -> list[ObjectSpec]:
    """The objects that all the schema objects accept together; empty if there are none.

    Names are ordered by first appearance in the user's schemas; required names that nobody
    declares come last.
    """
    if len(schemas) == 1:
        pointer, schema = schemas[0]
        if not schema.keys() & _INTRICATE:
            return [_plain(pointer, schema)]
    names: dict[str, None] = {}
    required: dict[str, None] = {}
    key_rules: list[str] = []
    least, most = kw.limits(schemas, "minProperties", "maxProperties")
    ours = merger.document.is_written
    for pointer, schema in sorted(schemas, key=lambda pair: ours(pair[0])):
        names.update(dict.fromkeys(kw.mapping(schema, "properties", pointer)))
    for pointer, schema in schemas:
        required.update(dict.fromkeys(kw.names(schema, "required", pointer)))
        if "propertyNames" in schema:
            key_rules.append(join(pointer, "propertyNames"))
    names.update(required)
    _check_names(names, schemas)
    holds = merger.evaluator.holds
    usable = {n: None for n in names if all(holds(p, n) for p in key_rules)}
    if not required.keys() <= usable.keys() or (most is not None and least > most):
        return []
    spec = ObjectSpec(
        names=tuple(usable),
        values=tuple(_declared(merger, schemas, usable)),
        required=tuple(name in required for name in usable),
        extras=(),
        least=least,
        most=most,
    )
    some = [(p, s[SOME_KEY]) for p, s in schemas if SOME_KEY in s]
    if not some:
        spec = replace(spec, extras=_extras(merger, schemas, tuple(names), key_rules, None))
        return [_countable(merger, spec, schemas)]
    if len(some) > 1:
        origin = merger.document.origin(some[1][0])
        reason = "several undeclared keys are not looked for at once"
        merger.report(Issue("not", origin, reason))
    made = _with_some_key(merger, spec, schemas, tuple(names), key_rules, some[0])
    return [_countable(merger, each, schemas) for each in made]


def _plain(pointer: str, schema: dict[str, Any]) -> ObjectSpec:
    """One schema object that only declares, requires, and says what else may be there."""
    declared = kw.mapping(schema, "properties", pointer)
    required = set(kw.names(schema, "required", pointer))
    names = {**dict.fromkeys(declared), **dict.fromkeys(kw.names(schema, "required", pointer))}
    _check_names(names, [(pointer, schema)])
    place = extra_place(schema, pointer)
    others = () if place is None else (place,)
    values = tuple((join(pointer, "properties", n),) if n in declared else others for n in names)
    extras: tuple[ExtraSpec, ...] = ()
    if schema.get("additionalProperties") is not False:
        undeclared = Excluding(names) if names else ANYTHING
        extras = (ExtraSpec(Content(undeclared, 0, None), others),)
    return ObjectSpec(tuple(names), values, tuple(n in required for n in names), extras)


def _check_names(names: dict[str, None], schemas: Schemas) -> None:
    try:
        "".join(names).encode()
        return
    except UnicodeEncodeError:
        pass
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            pointer = next((p for p, s in schemas if name in s.get("properties", {})), "")
            raise kw.fault("properties", pointer, f"{name!r} is no Unicode text") from None


def _declared(merger: Merger, schemas: Schemas, names: Iterable[str]) -> Iterator[Conjunction]:
    """For each name, where the schemas of its value stand."""
    tables = [
        (
            pointer,
            kw.mapping(schema, "properties", pointer),
            tuple(kw.mapping(schema, "patternProperties", pointer)),
            extra_place(schema, pointer),
        )
        for pointer, schema in schemas
    ]
    for name in names:
        merger.document.breathe()
        places: dict[str, None] = {}
        for pointer, declared, patterns, extra in tables:
            found = [join(pointer, "properties", name)] if name in declared else []
            found += [
                join(pointer, "patternProperties", pattern)
                for pattern in patterns
                if merger.languages.key_matches(pattern, pointer, name)
            ]
            if not found and extra is not None:
                found.append(extra)
            places.update(dict.fromkeys(found))
        yield tuple(places)


def _with_some_key(
    merger: Merger,
    spec: ObjectSpec,
    schemas: Schemas,
    names: tuple[str, ...],
    key_rules: list[str],
    some: tuple[str, dict[str, Any]],
) -> Iterator[ObjectSpec]:
    pointer, rule = some
    language = _some_keys(merger, pointer, rule)
    value = join(pointer, SOME_KEY, "value")
    extras = _extras(merger, schemas, names, key_rules, (language, value))
    plain = tuple(e for e in extras if not e.witness)
    for i, name in enumerate(spec.names):
        if language.matches(name):
            values = list(spec.values)
            values[i] = tuple(dict.fromkeys((*values[i], value)))
            required = (*spec.required[:i], True, *spec.required[i + 1 :])
            yield replace(spec, values=tuple(values), required=required, extras=plain)
    if len(plain) < len(extras):
        yield replace(spec, extras=extras, needs_witness=True)


def _some_keys(merger: Merger, pointer: str, rule: dict[str, Any]) -> Rx:
    languages, builder = merger.languages, merger.languages.builder
    if "matching" in rule:
        return languages.key_pattern(rule["matching"], pointer)
    if "failing" in rule:
        failing = merger.document.add({NOT: rule["failing"]}, merger.document.origin(pointer))
        return languages.of_keys(merger, (failing,))
    taken = [languages.key_pattern(pattern, pointer) for pattern in rule["patterns"]]
    return builder.complement(builder.union(builder.literals(rule["names"]), *taken))


def _extras(
    merger: Merger,
    schemas: Schemas,
    names: tuple[str, ...],
    key_rules: list[str],
    some: tuple[Rx, str] | None,
) -> tuple[ExtraSpec, ...]:
    """The classes of undeclared keys: by which patterns they match, so that each has one schema."""
    patterns = [
        (pointer, pattern)
        for pointer, schema in schemas
        for pattern in kw.mapping(schema, "patternProperties", pointer)
    ]
    if not patterns and not key_rules and some is None:
        found = (extra_place(schema, pointer) for pointer, schema in schemas)
        conjunction = tuple(dict.fromkeys(p for p in found if p is not None))
        undeclared = Excluding(names) if names else ANYTHING
        return (ExtraSpec(Content(undeclared, 0, None), conjunction),)
    languages, builder = merger.languages, merger.languages.builder
    start = builder.universe
    for rule in key_rules:
        start = builder.intersect(start, languages.of_keys(merger, (rule,)))
    result = []
    for language, matched in _classes(merger, start, patterns):
        places: dict[str, None] = {}
        for pointer, schema in schemas:
            own = sorted(pattern for p, pattern in matched if p == pointer)
            extra = extra_place(schema, pointer)
            here = [join(pointer, "patternProperties", pattern) for pattern in own]
            if not here and extra is not None:
                here = [extra]
            places.update(dict.fromkeys(here))
        content = _undeclared(language, names)
        if content is not None:
            result.append(ExtraSpec(content, tuple(places)))
        if some is not None:
            content = _undeclared(builder.intersect(language, some[0]), names)
            if content is not None:
                witnesses = tuple(dict.fromkeys((*places, some[1])))
                result.append(ExtraSpec(content, witnesses, witness=True))
    return tuple(result)


def _undeclared(language: Rx, names: tuple[str, ...]) -> Content | None:
    """The keys of a language that are not declared; None if there are none."""
    if language.is_empty():
        return None
    kept: Language = language
    if names:
        kept = Without(language, Excluding(names))
        if kept.is_empty():
            return None
    return Content(kept, 0, None)


def _classes(
    merger: Merger, start: Rx, patterns: list[tuple[str, str]]
) -> list[tuple[Rx, frozenset[tuple[str, str]]]]:
    """``start`` cut by the patterns: (language, the patterns that it matches), none empty."""
    builder = merger.languages.builder
    classes: list[tuple[Rx, frozenset[tuple[str, str]]]] = [(start, frozenset())]
    for pointer, pattern in patterns:
        matching = merger.languages.key_pattern(pattern, pointer)
        split = []
        for language, matched in classes:
            inside = builder.intersect(language, matching)
            outside = builder.difference(language, matching)
            split += [(inside, matched | {(pointer, pattern)}), (outside, matched)]
        classes = [(language, matched) for language, matched in split if not language.is_empty()]
        if len(classes) > MAX_KEY_CLASSES:
            raise SchemaBudgetError(
                f"more than {MAX_KEY_CLASSES} overlapping classes of keys",
                pointer=merger.document.origin(pointer),
                keyword="patternProperties",
            )
    return [(language, matched) for language, matched in classes if not language.is_empty()]


def _countable(merger: Merger, spec: ObjectSpec, schemas: Schemas) -> ObjectSpec:
    """The spec, or (reported) one without a lower bound that finitely many keys might not reach."""
    if spec.least <= sum(spec.required) or not spec.extras:
        return spec
    try:
        endless = any(_is_endless(e.content.language) for e in spec.extras)
    except RegexBudgetError:
        endless = False
    if endless:
        return spec
    pointer = next(p for p, s in schemas if s.get("minProperties"))
    reason = "the keys that may be added are finitely many and are not counted"
    merger.report(Issue("minProperties", merger.document.origin(pointer), reason))
    return replace(spec, least=sum(spec.required))


def _is_endless(language: Language | None) -> bool:
    if isinstance(language, Without):
        language = language.language
    return not isinstance(language, Rx) or language.max_length() is None
