"""Objects: the properties, and the keys beyond them, that several schema objects leave together.

``SOME_KEY``, which only complements say, asks for one key of a class with a certain value: a
declared property of that class (one spec for each), or an undeclared key (a class of witnesses).
Where several are asked for, one key may be the witness of some of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grammar.content import ANYTHING, Content, Excluding, Language, Without
from grammar.errors import Issue, SchemaBudgetError
from grammar.regular import RegexBudgetError, Rx
from grammar.schema import keywords as kw
from grammar.schema.document import NOT, SOME_KEY, join
from grammar.schema.flatten import Conjunction
from grammar.schema.key_counts import words_of
from grammar.schema.places import extra_place

if TYPE_CHECKING:
    from grammar.schema.merge import Merger

MAX_KEY_CLASSES = 64
MAX_WANTED = 5
MAX_DECLARED = 64
"""So few keys that one must be of are declared, so that they can't be used up by others."""
MAX_WAYS = 1024
_INTRICATE = frozenset(
    {"patternProperties", "propertyNames", "minProperties", "maxProperties", SOME_KEY}
)
Schemas = list[tuple[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ExtraSpec:
    """A class of undeclared keys, and the conjunction of their values' schemas.

    ``witness``: for which of the keys that are looked for it stands (bits); ``size``: how many keys
    it has, None if that does not matter.
    """

    content: Content
    value: Conjunction
    witness: int = 0
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ObjectSpec:
    """An object: declared properties in order, then keys of some classes, and how many in all."""

    names: tuple[str, ...]
    values: tuple[Conjunction, ...]
    required: tuple[bool, ...]
    extras: tuple[ExtraSpec, ...]
    least: int = 0
    most: int | None = None
    wanted: int = 0


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
    wanted = _wanted(merger, schemas)
    for key in wanted:  # few keys may run out: they are declared
        few = words_of(key.language, MAX_DECLARED) if key.others is None else sorted(key.others)
        names.update(dict.fromkeys(few or ()))
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
    if not wanted:
        spec = replace(spec, extras=_extras(merger, schemas, tuple(names), key_rules, ()))
        return [_counted(merger, spec, schemas)]
    made = _with_some_keys(merger, spec, schemas, tuple(names), key_rules, wanted)
    return [_counted(merger, each, schemas) for each in made]


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


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A key that must be there: its language, the pointer of its value's schema.

    ``others``: any key but these will do, with any value; None: it is not like that.
    """

    language: Rx
    value: str
    others: frozenset[str] | None = None


def _wanted(merger: Merger, schemas: Schemas) -> list[_Wanted]:
    """The keys that are looked for (``SOME_KEY``), those that nearly any key is behind the rest."""
    found: dict[tuple[int, str], _Wanted] = {}
    loose: dict[frozenset[str], _Wanted] = {}
    for pointer, schema in schemas:
        if SOME_KEY not in schema:
            continue
        rule, value = schema[SOME_KEY], join(pointer, SOME_KEY, "value")
        language = _some_keys(merger, pointer, rule)
        if "names" in rule and not rule["patterns"] and merger.document.is_true(value):
            names = frozenset(rule["names"])
            loose[names] = _Wanted(language, value, names)
            continue
        key = (id(language), repr(rule["value"]))
        if key not in found and len(found) == MAX_WANTED:
            origin = merger.document.origin(pointer)
            reason = f"more than {MAX_WANTED} undeclared keys are not looked for at once"
            merger.report(Issue("not", origin, reason))
            break
        found[key] = _Wanted(language, value)
    widest = [key for names, key in loose.items() if not any(names < other for other in loose)]
    return [*found.values(), *widest]


def _with_some_keys(
    merger: Merger,
    spec: ObjectSpec,
    schemas: Schemas,
    names: tuple[str, ...],
    key_rules: list[str],
    wanted: list[_Wanted],
) -> Iterator[ObjectSpec]:
    """A spec for each way to find the keys among the declared properties and the others."""
    exact = [key for key in wanted if key.others is None]
    # An undeclared key is any of the others, so these need one bit.
    extras = _extras(merger, schemas, names, key_rules, wanted[: len(exact) + 1])
    available = 0
    for extra in extras:
        available |= extra.witness
    # (the spec so far, which keys are left to the undeclared ones)
    made: dict[tuple[ObjectSpec, int], None] = {(spec, 0): None}
    for index, key in enumerate(wanted):
        bit = min(index, len(exact))
        after: dict[tuple[ObjectSpec, int], None] = {}
        for each, left in made:
            if key.others is not None and (left or _has_other(each, key.others)):
                after[each, left] = None
                continue
            if available >> bit & 1:
                after[each, left | 1 << bit] = None
            for i, name in enumerate(each.names):
                if not key.language.matches(name):
                    continue
                place = tuple(dict.fromkeys((*each.values[i], key.value)))
                if len(wanted) > 1 and merger.exclusive(place, ()):
                    continue
                values = (*each.values[:i], place, *each.values[i + 1 :])
                required = (*each.required[:i], True, *each.required[i + 1 :])
                after[replace(each, values=values, required=required), left] = None
        if len(after) > MAX_WAYS:
            raise SchemaBudgetError(
                f"more than {MAX_WAYS} ways to find the keys that must be there",
                pointer=merger.document.origin(schemas[0][0]),
                keyword="not",
            )
        made = after
    for each, left in made:
        kept = tuple(e for e in extras if not e.witness & ~left)
        yield replace(each, extras=kept, wanted=left)


def _has_other(spec: ObjectSpec, names: frozenset[str]) -> bool:
    pairs = zip(spec.names, spec.required, strict=True)
    return any(needed and name not in names for name, needed in pairs)


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
    wanted: Sequence[_Wanted],
) -> tuple[ExtraSpec, ...]:
    """The classes of undeclared keys: by which patterns they match, so that each has one schema."""
    patterns = [
        (pointer, pattern)
        for pointer, schema in schemas
        for pattern in kw.mapping(schema, "patternProperties", pointer)
    ]
    if not patterns and not key_rules and not wanted:
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
        for bits in range(1, 1 << len(wanted)):
            keys = [key for bit, key in enumerate(wanted) if bits >> bit & 1]
            inner = builder.intersect(language, *(key.language for key in keys))
            content = _undeclared(inner, names)
            if content is not None:
                values = tuple(dict.fromkeys((*places, *(key.value for key in keys))))
                result.append(ExtraSpec(content, values, witness=bits))
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


def _counted(merger: Merger, spec: ObjectSpec, schemas: Schemas) -> ObjectSpec:
    """The spec with the sizes of its classes of keys, where so few might not reach ``least``."""
    lacking = spec.least - sum(spec.required)
    if lacking <= 0 or not spec.extras:
        return spec
    try:
        extras = tuple(
            extra if extra.witness else replace(extra, size=_size(extra, lacking))
            for extra in spec.extras
        )
    except RegexBudgetError as error:
        pointer = next(p for p, s in schemas if s.get("minProperties"))
        shown = merger.document.origin(pointer)
        raise SchemaBudgetError(str(error), pointer=shown, keyword="minProperties") from None
    return replace(spec, extras=extras)


def _size(extra: ExtraSpec, enough: int) -> int | None:
    words = words_of(extra.content.language, enough)
    return None if words is None else len(words)
