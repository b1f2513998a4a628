"""What other servers make of a schema: facts from `config/dialects.toml`, checked generically.

Invariant: no figure and no keyword of a provider stands in this code; the file explains its fields.

Read next: `config/dialects.toml`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from server.lint.measures import counts, enum_characters, is_recursive
from server.lint.places import Place, Schema, is_typed, places
from server.lint.rules import Finding
from server.settings import SettingsError

DIALECTS_FILE = "dialects.toml"

Effect = Literal["refused", "ignored", "different"]

_ADVICE: Mapping[Effect, str] = {
    "refused": "Leave it out there, or send that server a schema of its own.",
    "ignored": "Check the answers of that server for it yourself.",
    "different": "Don't rely on it there.",
}


class DialectsError(SettingsError):
    """The file of dialects can't be used: `file`, `key` and what was wrong with it."""


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
        raise DialectsError(str(file), "", f"can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DialectsError(str(file), "", f"not valid TOML: {error}") from None
    found = {}
    for name, table in data.items():
        try:
            found[name] = Dialect.model_validate({"name": name, **table})
        except (ValidationError, TypeError) as error:
            raise DialectsError(str(file), f"[{name}]", str(error)) from None
    return found


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
    schema, at = place.schema, place
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
    schema, at = place.schema, place
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


def _strings(place: Place, dialect: Dialect) -> Iterator[Finding]:
    schema, at = place.schema, place
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


def _finding(
    dialect: Dialect, effect: Effect, at: Place | str, message: str, advice: str | None = None
) -> Finding:
    # The pointer of a place is as long as it is deep: it is made for findings only.
    pointer = at if isinstance(at, str) else at.pointer
    return Finding(effect, "warning", pointer, message, advice or _ADVICE[effect], dialect.name)


def tools_over_limit(strict_tools: int, dialect: Dialect) -> Iterator[Finding]:
    """Whether a request has more strict tools than a dialect takes."""
    limit = dialect.limits.tools
    if limit is not None and strict_tools > limit:
        message = f"{strict_tools} strict tools in one request; at most {limit} are allowed."
        yield _finding(dialect, "refused", "", message)
