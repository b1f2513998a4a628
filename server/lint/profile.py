"""The hosted API's refusals of a strict schema, in its own words: what passes here passes there.

`refusal(schema, dialect)` is the first complaint that the API of `config/dialects.toml`'s [openai]
would make, or None. The wording is that of errors which users have reported; the order in which a
schema is searched (document order) and the wording of limits that nobody has quoted are ours.

Invariant: limits and keywords come from the dialect; only the sentences stand here.

Read next: `server/api/profiles.py`, which answers with them.
"""

from __future__ import annotations

from collections.abc import Iterator

from server.lint.dialects import Dialect
from server.lint.measures import counts, enum_characters
from server.lint.places import Place, Schema, is_typed, places


def refusal(root: Schema, dialect: Dialect) -> str | None:
    """What the hosted API says against a schema, without its name; None if it takes it."""
    return next(_complaints(root, dialect), None)


def _complaints(root: Schema, dialect: Dialect) -> Iterator[str]:
    if dialect.root_object and root.get("type") != "object":
        found = root.get("type")
        yield f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{found}\"'."
    for keyword in dialect.root_refused:
        if keyword in root:
            yield f"schema must have type 'object' and not have '{keyword}' at the top level."
    yield from _limits(root, dialect)
    for place in places(root):
        context = f"In context={_context(place)}, "
        yield from (context + text for text in _at(place, dialect))


def _context(place: Place) -> str:
    """The path as the API shows it: a tuple of strings."""
    return repr(place.path)


def _at(place: Place, dialect: Dialect) -> Iterator[str]:
    schema = place.schema
    if "$ref" in schema:
        beside = [key for key in schema if key not in ("$ref", "$defs", "definitions")]
        if dialect.ref_alone and beside:
            yield f"$ref cannot have keywords {{{', '.join(map(repr, beside))}}}."
        return
    if dialect.typed and not is_typed(schema):
        yield "schema must have a 'type' key."
    for keyword in schema:
        if keyword in dialect.refused:
            yield f"'{keyword}' is not permitted."
    properties = schema.get("properties")
    if schema.get("type") == "object" or isinstance(properties, dict):
        if dialect.closed_objects and schema.get("additionalProperties") is not False:
            yield "'additionalProperties' is required to be supplied and to be false."
        if dialect.all_required:
            yield from _required(schema, properties if isinstance(properties, dict) else {})
    if schema.get("type") == "array" and "items" not in schema:
        yield "array schema missing items."
    name = schema.get("format")
    formats = dialect.formats if dialect.other_formats == "refused" else None
    if formats is not None and name is not None and name not in formats:
        yield f"'{name}' is not a valid format."


def _required(schema: Schema, properties: Schema) -> Iterator[str]:
    text = (
        "'required' is required to be supplied and to be an array including every key in properties"
    )
    given = schema.get("required")
    required = given if isinstance(given, list) else []
    missing = next((name for name in properties if name not in required), None)
    if missing is not None:
        yield f"{text}. Missing '{missing}'."
    extra = next((name for name in required if name not in properties), None)
    if extra is not None:
        yield f"{text}. Extra required key '{extra}' supplied."


def _limits(root: Schema, dialect: Dialect) -> Iterator[str]:
    limits, have = dialect.limits, counts(root)
    if limits.depth is not None and have.depth > limits.depth:
        yield f"{have.depth} levels of nesting exceeds limit of {limits.depth}."
    for limit, count, what, advice in (
        (limits.properties, have.properties, "object properties", "object properties"),
        (limits.enum_values, have.enum_values, "enum values", "enums"),
        (
            limits.characters,
            have.characters,
            "characters of property names, definition names, enum values and const values",
            "names and values",
        ),
    ):
        if limit is not None and count > limit:
            yield (
                f"Expected at most {limit} {what} in total within a single schema when using "
                f"structured outputs, but received {count}. Consider reducing the number of "
                f"{advice}, or use 'strict: false' to opt out of structured outputs."
            )
    if limits.enum_over is not None and limits.enum_characters is not None:
        for place in places(root):
            size = enum_characters(place.schema, limits.enum_over)
            if size > limits.enum_characters:
                yield (
                    f"In context={_context(place)}, expected at most {limits.enum_characters} "
                    f"characters in an enum with more than {limits.enum_over} values, but "
                    f"received {size}."
                )
