"""What other servers make of a schema: facts from `config/dialects.toml`, checked generically.

Invariant: no figure and no keyword of a provider stands in this code; the file explains its fields.

Read next: `config/dialects.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from server.lint.places import Place, Schema, lookup, places, types
from server.lint.rules import Finding

DIALECTS_FILE = "dialects.toml"

Effect = Literal["refused", "ignored", "different"]

_ADVICE: Mapping[Effect, str] = {
    "refused": "Leave it out there, or send that server a schema of its own.",
    "ignored": "Check the answers of that server for it yourself.",
    "different": "Don't rely on it there.",
}


class DialectsError(Exception):
    """The file of dialects can't be used: where and why."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Together(_Facts):
    """Keywords of `first` that don't go with keywords of `second` in one schema object."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    effect: Effect
    reason: str


class OfType(_Facts):
    """Keywords that mean nothing (or an error) in schemas of a type."""

    type: str
    keywords: tuple[str, ...]
    effect: Effect
    reason: str


class Limits(_Facts):
    """Most of each in one schema (tools: in one request); None: no limit is known."""

    properties: int | None = None
    depth: int | None = None
    enum_values: int | None = None
    characters: int | None = None
    enum_over: int | None = None
    enum_characters: int | None = None
    optional: int | None = None
    unions: int | None = None
    tools: int | None = None


class Dialect(_Facts):
    """One server's subset of JSON Schema; the fields are explained in the file."""

    name: str
    title: str
    source: str
    date: str
    root_object: bool = False
    root_refused: tuple[str, ...] = ()
    closed_objects: bool = False
    all_required: bool = False
    typed: bool = False
    ref_alone: bool = False
    recursion: Effect | None = None
    scalar_enums: bool = False
    least_items: int | None = None
    formats: tuple[str, ...] | None = None
    other_formats: Effect = "ignored"
    anchored_patterns: bool = False
    refused_in_patterns: tuple[str, ...] = ()
    refused: dict[str, str] = Field(default_factory=dict)
    ignored: dict[str, str] = Field(default_factory=dict)
    different: dict[str, str] = Field(default_factory=dict)
    together: tuple[Together, ...] = ()
    of_type: tuple[OfType, ...] = ()
    limits: Limits = Field(default_factory=Limits)

    @field_validator("refused_in_patterns")
    @classmethod
    def _patterns(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in value:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from None
        return value


def load_dialects(file: Path) -> dict[str, Dialect]:
    """The dialects by name, in the file's order.

    Raises:
        DialectsError: no such file, no TOML, or a field that isn't one.
    """
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DialectsError(f"{file}: can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DialectsError(f"{file}: {error}") from None
    found = {}
    for name, table in data.items():
        try:
            found[name] = Dialect.model_validate({"name": name, **table})
        except (ValidationError, TypeError) as error:
            raise DialectsError(f"{file}: [{name}]: {error}") from None
    return found


@dataclass(frozen=True, slots=True)
class Counts:
    """The figures of a schema that dialects limit.

    depth       objects within objects; a reference counts as what it leads to, once in a row
    characters  of property and definition names and of values of enum and const
    optional    properties that are not required; `unions`: uses of anyOf and of lists of types
    """

    properties: int
    depth: int
    enum_values: int
    characters: int
    optional: int
    unions: int


def counts(root: Schema) -> Counts:
    """The figures of a schema."""
    total: Counter[str] = Counter()
    for place in places(root):
        schema = place.schema
        properties = schema.get("properties")
        if isinstance(properties, dict):
            required = schema.get("required")
            names = set(required) if isinstance(required, list) else set()
            total["properties"] += len(properties)
            total["optional"] += sum(name not in names for name in properties)
            total["characters"] += sum(map(len, properties))
        for keyword in ("$defs", "definitions"):
            if isinstance(definitions := schema.get(keyword), dict):
                total["characters"] += sum(map(len, definitions))
        values = schema.get("enum")
        if isinstance(values, list):
            total["enum_values"] += len(values)
            total["characters"] += sum(len(value) for value in values if isinstance(value, str))
        if isinstance(schema.get("const"), str):
            total["characters"] += len(schema["const"])
        total["unions"] += isinstance(schema.get("anyOf"), list)
        total["unions"] += isinstance(schema.get("type"), list)
    return Counts(
        properties=total["properties"],
        depth=depth(root),
        enum_values=total["enum_values"],
        characters=total["characters"],
        optional=total["optional"],
        unions=total["unions"],
    )


#: Deeper than this nobody's limit is; the count stops there.
_MAX_DEPTH = 64


def depth(root: Schema) -> int:
    """How deeply objects stand within objects; a schema within itself counts once."""
    deepest = 0
    known: dict[int, int] = {}
    waiting: list[tuple[Schema, int, tuple[int, ...]]] = [(root, 0, ())]
    while waiting:
        schema, level, above = waiting.pop()
        if id(schema) in above or known.get(id(schema), -1) >= level or level > _MAX_DEPTH:
            continue
        known[id(schema)] = level
        inside = level + ("object" in types(schema) and "properties" in schema)
        deepest = max(deepest, inside)
        path = (*above, id(schema))
        reference = schema.get("$ref")
        target = lookup(root, reference) if isinstance(reference, str) else None
        if target is not None:
            waiting.append((target, level, path))
        for keyword, value in schema.items():
            if keyword in ("$defs", "definitions"):
                continue
            below = inside if keyword not in ("anyOf", "oneOf", "allOf") else level
            waiting.extend((item, below, path) for item in _schemas(keyword, value))
    return deepest


def _schemas(keyword: str, value: object) -> Iterator[Schema]:
    """The subschemas that a keyword's value holds (annotations and constants hold none)."""
    if keyword in ("enum", "const", "default", "examples"):
        return
    if keyword in ("properties", "patternProperties", "dependentSchemas") and isinstance(
        value, dict
    ):
        yield from (item for item in value.values() if isinstance(item, dict))
    elif isinstance(value, dict):
        yield value
    elif isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def is_recursive(root: Schema) -> bool:
    """Whether a subschema leads back to itself by references."""
    edges: dict[int, list[int]] = {}
    for place in places(root):
        targets = edges.setdefault(id(place.schema), [])
        reference = place.schema.get("$ref")
        target = lookup(root, reference) if isinstance(reference, str) else None
        if target is not None:
            targets.append(id(target))
        if place.parent is not None:
            edges[id(place.parent.schema)].append(id(place.schema))
    done: set[int] = set()
    for start in edges:
        stack, path = [(start, iter(edges[start]))], {start}
        if start in done:
            continue
        while stack:
            at, below = stack[-1]
            following = next(below, None)
            if following is None:
                stack.pop()
                path.discard(at)
                done.add(at)
            elif following in path:
                return True
            elif following not in done:
                path.add(following)
                stack.append((following, iter(edges.get(following, ()))))
    return False


def dialect_findings(root: Schema, dialect: Dialect) -> Iterator[Finding]:
    """What one dialect refuses, ignores or takes differently in a schema."""
    if dialect.root_object and root.get("type") != "object":
        yield _finding(
            dialect,
            "refused",
            "",
            "The root must be a schema of type object.",
            "Wrap it in an object with one property.",
        )
    for keyword in dialect.root_refused:
        if keyword in root:
            yield _finding(dialect, "refused", "", f"The root may not have {keyword}.")
    if dialect.recursion is not None and is_recursive(root):
        yield _finding(dialect, dialect.recursion, "", "A schema contains itself.")
    yield from _over_limits(root, dialect)
    for place in places(root):
        yield from _at(place, dialect)


def _at(place: Place, dialect: Dialect) -> Iterator[Finding]:
    schema, at = place.schema, place.pointer
    effects: tuple[tuple[Effect, Mapping[str, str]], ...] = (
        ("refused", dialect.refused),
        ("ignored", dialect.ignored),
        ("different", dialect.different),
    )
    for effect, keywords in effects:
        for keyword in schema:
            if keyword in keywords and not (keyword == "uniqueItems" and schema[keyword] is False):
                yield _finding(dialect, effect, at, f"{keyword}: {keywords[keyword]}.")
    for pair in dialect.together:
        first = [keyword for keyword in pair.first if keyword in schema]
        second = [keyword for keyword in pair.second if keyword in schema]
        if first and second:
            names = " with ".join([", ".join(first), ", ".join(second)])
            yield _finding(dialect, pair.effect, at, f"{names}: {pair.reason}.")
    for rule in dialect.of_type:
        met = [keyword for keyword in rule.keywords if keyword in schema]
        if met and schema.get("type") == rule.type:
            yield _finding(dialect, rule.effect, at, f"{', '.join(met)}: {rule.reason}.")
    yield from _shape(place, dialect)
    yield from _strings(place, dialect)


def _shape(place: Place, dialect: Dialect) -> Iterator[Finding]:
    schema, at = place.schema, place.pointer
    properties = schema.get("properties")
    is_object = schema.get("type") == "object" or isinstance(properties, dict)
    if dialect.closed_objects and is_object and schema.get("additionalProperties") is not False:
        yield _finding(
            dialect,
            "refused",
            at,
            "An object needs additionalProperties: false.",
            "Set it, if no other keys are wanted.",
        )
    if dialect.all_required and isinstance(properties, dict):
        required = schema.get("required")
        names = required if isinstance(required, list) else []
        missing = [name for name in properties if name not in names]
        if missing:
            shown = ", ".join(map(repr, missing[:5])) + (", ..." if len(missing) > 5 else "")
            yield _finding(
                dialect,
                "refused",
                at,
                f"Every property must be required; {shown} isn't.",
                "Require it, and allow null where it may be missing.",
            )
    if dialect.typed and place.keyword not in ("$defs", "definitions") and not is_typed(schema):
        yield _finding(
            dialect, "refused", at, "The schema needs a type.", "Say which type is meant."
        )
    beside = [key for key in schema if key != "$ref" and key not in ("$defs", "definitions")]
    if dialect.ref_alone and "$ref" in schema and beside:
        yield _finding(
            dialect,
            "refused",
            at,
            f"{', '.join(beside)} can't stand beside $ref.",
            "Move it into the schema that is referred to.",
        )
    values = schema.get("enum")
    if dialect.scalar_enums and isinstance(values, list):
        nested = [value for value in values if isinstance(value, (list, dict))]
        if nested:
            yield _finding(
                dialect, "refused", at, "Values of enum can't be arrays or objects there."
            )
    least = schema.get("minItems")
    if dialect.least_items is not None and isinstance(least, int) and least > dialect.least_items:
        yield _finding(
            dialect, "refused", at, f"minItems can be at most {dialect.least_items} there."
        )


def is_typed(schema: Schema) -> bool:
    """Whether a schema says what it is: by type, alternatives, values or a reference."""
    return any(key in schema for key in ("type", "anyOf", "enum", "const", "$ref"))


def _strings(place: Place, dialect: Dialect) -> Iterator[Finding]:
    schema, at = place.schema, place.pointer
    name = schema.get("format")
    if dialect.formats is not None and isinstance(name, str) and name not in dialect.formats:
        yield _finding(dialect, dialect.other_formats, at, f"The format {name!r} isn't known.")
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return
    if dialect.anchored_patterns and not (pattern.startswith("^") and pattern.endswith("$")):
        yield _finding(
            dialect,
            "refused",
            at,
            "A pattern must begin with ^ and end with $.",
            "Anchor it, with .* where anything may stand around it.",
        )
    for forbidden in dialect.refused_in_patterns:
        found = re.search(forbidden, pattern)
        if found:
            yield _finding(
                dialect, "refused", at, f"{found.group()!r} isn't supported in a pattern."
            )


_MEASURES: Sequence[tuple[str, str]] = (
    ("properties", "properties in all"),
    ("depth", "levels of objects within objects"),
    ("enum_values", "enumerated values in all"),
    ("characters", "characters of names and enumerated values"),
    ("optional", "optional properties"),
    ("unions", "uses of anyOf or of a list of types"),
)


def _over_limits(root: Schema, dialect: Dialect) -> Iterator[Finding]:
    limits, have = dialect.limits, counts(root)
    for field, what in _MEASURES:
        limit, count = getattr(limits, field), getattr(have, field)
        if limit is not None and count > limit:
            yield _finding(
                dialect,
                "refused",
                "",
                f"{count} {what}; at most {limit} are allowed.",
                "Split it into several requests, or make it smaller.",
            )
    if limits.enum_over is None or limits.enum_characters is None:
        return
    for place in places(root):
        size = enum_characters(place.schema, limits.enum_over)
        if size > limits.enum_characters:
            yield _finding(
                dialect,
                "refused",
                place.pointer,
                f"An enumeration of more than {limits.enum_over} values may have at most "
                f"{limits.enum_characters} characters; this one has {size}.",
            )


def enum_characters(schema: Schema, over: int) -> int:
    """The characters of an enumeration with more than `over` values; 0 for a shorter one."""
    values = schema.get("enum")
    if not isinstance(values, list) or len(values) <= over:
        return 0
    return sum(len(value) for value in values if isinstance(value, str))


def _finding(
    dialect: Dialect, effect: Effect, at: str, message: str, advice: str | None = None
) -> Finding:
    return Finding(effect, "warning", at, message, advice or _ADVICE[effect], dialect.name)


def tools_over_limit(strict_tools: int, dialect: Dialect) -> Iterator[Finding]:
    """Whether a request has more strict tools than a dialect takes."""
    limit = dialect.limits.tools
    if limit is not None and strict_tools > limit:
        message = f"{strict_tools} strict tools in one request; at most {limit} are allowed."
        yield _finding(dialect, "refused", "", message)
