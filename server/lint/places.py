"""The subschemas of a JSON Schema, and what can be said of each without compiling it.

Invariant: never recurses without a bound, follows references inside the document only, and takes
any JSON for a schema (a wrong one is the compiler's to refuse; here it has no subschemas).

Read next: `rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from server.pointers import pointer_of, value_at

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

#: Where subschemas stand (2020-12: Core 10 and 11; older drafts' `definitions`, `dependencies`).
_ONE = (
    "additionalProperties", "items", "additionalItems", "contains", "not", "if", "then", "else",
    "propertyNames", "unevaluatedItems", "unevaluatedProperties", "contentSchema",
)  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_NAMED = (
    "properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies",
)  # fmt: skip

#: References followed in a row, and alternatives within alternatives looked into.
_DEPTH = 32

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A subschema and where it stands.

    path      the keys and indices from the root
    keyword   the keyword that holds it; "" at the root
    name      its key there: a property's name, say; "" where it has none
    parent    the schema object around it; None at the root
    """

    path: tuple[str, ...]
    schema: Schema
    keyword: str = ""
    name: str = ""
    parent: Place | None = None

    @property
    def pointer(self) -> str:
        """The JSON Pointer (RFC 6901), "" for the root."""
        return pointer_of(self.path)

    @property
    def is_property(self) -> bool:
        """Whether it describes a property that has a name."""
        return self.keyword == "properties"

    @property
    def is_required(self) -> bool:
        """Whether the object around it must have this property."""
        required = self.parent.schema.get("required") if self.parent is not None else None
        return self.is_property and isinstance(required, list) and self.name in required


def places(root: Schema) -> Iterator[Place]:
    """All schema objects of a document, each before its subschemas, in the document's order."""
    waiting = [Place((), root)]
    while waiting:
        place = waiting.pop()
        yield place
        waiting.extend(reversed(list(_below(place))))


def _below(place: Place) -> Iterator[Place]:
    for keyword, value in place.schema.items():
        if keyword in _ONE and isinstance(value, dict):
            yield Place((*place.path, keyword), value, keyword, "", place)
        elif keyword in _MANY and isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, dict):
                    yield Place((*place.path, keyword, str(index)), item, keyword, "", place)
        elif keyword in _NAMED and isinstance(value, dict):
            for name, item in value.items():
                if isinstance(item, dict):
                    yield Place((*place.path, keyword, name), item, keyword, name, place)


def resolved(schema: Schema, root: Schema) -> Schema:
    """What a schema says by its `$ref`, where that leads to an object inside the document.

    The keywords beside a reference count, too, and win.
    """
    for _ in range(_DEPTH):
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target = lookup(root, reference)
        if target is None:
            return schema
        schema = {**target, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def lookup(root: Schema, reference: str) -> Schema | None:
    """The schema object that `#` or `#/...` names; None if it leads anywhere else."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found = value_at(root, unquote(reference[1:]))
    return found if isinstance(found, dict) else None


def branches(schema: Schema, root: Schema) -> list[Schema]:
    """The alternatives of a schema: those of `anyOf` and `oneOf`, within each other, too."""
    found: list[Schema] = []
    waiting = [(resolved(schema, root), 0)]
    while waiting:
        here, depth = waiting.pop()
        inner = [
            option
            for keyword in ("anyOf", "oneOf")
            if isinstance(options := here.get(keyword), list)
            for option in options
            if isinstance(option, dict)
        ]
        if inner and depth < _DEPTH:
            rest = {key: here[key] for key in here if key not in ("anyOf", "oneOf")}
            waiting.extend(
                ({**rest, **resolved(option, root)}, depth + 1) for option in reversed(inner)
            )
        else:
            found.append(here)
    return found


def types(schema: Schema) -> frozenset[str]:
    """The JSON types that one alternative allows; all of them where it doesn't say."""
    named = schema.get("type")
    if isinstance(named, str):
        allowed = frozenset({named} & set(TYPES))
    elif isinstance(named, list):
        allowed = frozenset(kind for kind in TYPES if kind in named)
    else:
        allowed = frozenset(TYPES)
    values = constants(schema)
    if values is not None:
        allowed &= frozenset(map(type_of, values)) | (
            {"number"} if any(type_of(value) == "integer" for value in values) else frozenset()
        )
    if schema.get("nullable") is True:
        allowed |= {"null"}
    return allowed


def type_of(value: object) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def constants(schema: Schema) -> list[Any] | None:
    """The values of `enum` or `const`; None if the schema has neither."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return list(values) if isinstance(values, list) else None


def allows_null(schema: Schema, root: Schema) -> bool:
    """Whether null is one of the values, as far as the alternatives' types tell."""
    return any("null" in types(branch) for branch in branches(schema, root))


def has_type(schema: Schema, root: Schema, wanted: str) -> bool:
    """Whether the schema or one of its alternatives names this type."""
    return any(
        wanted in types(branch) and ("type" in branch or constants(branch) is not None)
        for branch in branches(schema, root)
    )


def is_typed(schema: Schema) -> bool:
    """Whether a schema says what it is: by type, alternatives, values or a reference."""
    return any(key in schema for key in ("type", "anyOf", "enum", "const", "$ref"))
