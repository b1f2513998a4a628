"""What each keyword is to this compiler, and checked access to keyword values.

Every keyword of drafts 4 to 2020-12 is in exactly one of the sets below; a keyword in none of them
is no JSON Schema keyword, is ignored as the specification says, and is listed in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from grammar.errors import SchemaError

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")

ANNOTATIONS = frozenset(
    {
        "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment",
        "$defs", "definitions", "$vocabulary", "title", "description", "default", "examples",
        "deprecated", "readOnly", "writeOnly", "contentMediaType", "contentSchema",
        "x-ground",
    }
)  # fmt: skip
"""They assert nothing about an instance (2020-12: Core 8, Validation 8.3 to 9). ``x-ground`` is for
those who check the finished answer against its source."""

COMBINATORS = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "then",
        "else", "dependentRequired", "dependentSchemas", "dependencies", "enum", "const", "type",
        "nullable", "unevaluatedItems", "unevaluatedProperties",
    }
)  # fmt: skip
BY_TYPE: Mapping[str, frozenset[str]] = {
    "string": frozenset(
        {"minLength", "maxLength", "pattern", "format", "contentEncoding", "x-extract"}
    ),
    "number": frozenset(
        {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    ),
    "array": frozenset(
        {
            "items", "prefixItems", "additionalItems", "minItems", "maxItems", "contains",
            "minContains", "maxContains", "uniqueItems",
        }
    ),
    "object": frozenset(
        {
            "properties", "required", "additionalProperties", "patternProperties",
            "propertyNames", "minProperties", "maxProperties",
        }
    ),
}  # fmt: skip
"""Enforced while generating, exactly or under a stated bound, for instances of that type; where one
can't be, that is reported where it is met."""

FORMAT_MODES: Mapping[str, frozenset[str]] = {
    "assert": frozenset(),
    "annotate": frozenset({"format", "contentEncoding", "contentMediaType"}),
}
"""What ``formats`` may be: the keywords that then are annotations, as they are for whoever reads
drafts since 2019-09 without the format-assertion vocabulary (Validation 7.2.1 and 8.2)."""

FORMATS = frozenset(
    {
        "date-time", "date", "time", "duration", "email", "idn-email", "hostname", "idn-hostname",
        "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid", "uri-template",
        "json-pointer", "relative-json-pointer", "regex",
    }
)  # fmt: skip
"""The formats that JSON Schema defines (Validation 7.3); others assert nothing."""

KNOWN = ANNOTATIONS | COMBINATORS | frozenset().union(*BY_TYPE.values())
ASSERTING = KNOWN - ANNOTATIONS
"""What may say something about an instance, the compiler's own keywords aside."""


def fault(keyword: str, pointer: str, message: str) -> SchemaError:
    """The error for a keyword whose value is not what JSON Schema says."""
    return SchemaError(message, pointer=pointer, keyword=keyword)


def count(schema: Mapping[str, Any], keyword: str, pointer: str) -> int | None:
    """A non-negative integer, also where it is written ``2.0``; None if absent."""
    value = schema.get(keyword)
    if value is None and keyword not in schema:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise fault(keyword, pointer, f"must be a non-negative integer, not {value!r}")
    return value


def limits(
    schemas: Iterable[tuple[str, Mapping[str, Any]]], low: str, high: str
) -> tuple[int, int | None]:
    """The narrowest bounds that two counting keywords give over (pointer, schema object) pairs.

    0 and None where nobody says any.
    """
    least, most = 0, None
    for pointer, schema in schemas:
        least = max(least, count(schema, low, pointer) or 0)
        bound = count(schema, high, pointer)
        most = bound if most is None else most if bound is None else min(most, bound)
    return least, most


def number(schema: Mapping[str, Any], keyword: str, pointer: str) -> int | float | None:
    """A finite number; None if absent."""
    value = schema.get(keyword)
    if value is None and keyword not in schema:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value - value != 0:
        raise fault(keyword, pointer, f"must be a finite number, not {value!r}")
    return value


def string(schema: Mapping[str, Any], keyword: str, pointer: str) -> str | None:
    """A string; None if absent."""
    value = schema.get(keyword)
    if value is None and keyword not in schema:
        return None
    if not isinstance(value, str):
        raise fault(keyword, pointer, f"must be a string, not {value!r}")
    return value


def names(schema: Mapping[str, Any], keyword: str, pointer: str) -> tuple[str, ...]:
    """A list of strings; empty if absent (or draft 3's boolean ``required``)."""
    value = schema.get(keyword, [])
    if keyword == "required" and isinstance(value, bool):
        raise fault(keyword, pointer, "must be a list of property names (as from draft 4 on)")
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise fault(keyword, pointer, f"must be a list of strings, not {value!r:.80}")
    return tuple(dict.fromkeys(value))


def listed(schema: Mapping[str, Any], pointer: str) -> list[list[Any]]:
    """The values of ``const`` (as one of one) and of ``enum``, of each that is there."""
    found = [[schema["const"]]] if "const" in schema else []
    if "enum" in schema:
        if not isinstance(schema["enum"], list):
            raise fault("enum", pointer, "must be a list of values")
        found.append(schema["enum"])
    return found


def mapping(schema: Mapping[str, Any], keyword: str, pointer: str) -> Mapping[str, Any]:
    """An object; empty if absent."""
    value = schema.get(keyword, {})
    if not isinstance(value, dict):
        raise fault(keyword, pointer, f"must be an object, not {value!r:.80}")
    return value


def schemas(schema: Mapping[str, Any], keyword: str, pointer: str) -> int:
    """The length of a non-empty list of schemas; 0 if absent."""
    if keyword not in schema:
        return 0
    value = schema[keyword]
    if not isinstance(value, list) or not value:
        raise fault(keyword, pointer, f"must be a non-empty list of schemas, not {value!r:.80}")
    return len(value)


def subtypes(schema: Mapping[str, Any], pointer: str) -> frozenset[str]:
    """``types`` as a set to intersect: ``integer`` is in it where ``number`` is; all if absent."""
    found = types(schema, pointer)
    if found is None:
        return frozenset(TYPES)
    return found | {"integer"} if "number" in found else found


def types(schema: Mapping[str, Any], pointer: str) -> frozenset[str] | None:
    """The types that ``type`` allows, with ``nullable``; None if absent."""
    if "type" not in schema:
        return None
    value = schema["type"]
    listed = value if isinstance(value, list) else [value]
    if not listed or any(t not in TYPES for t in listed if isinstance(t, str)):
        raise fault("type", pointer, f"must be one of {', '.join(TYPES)}, or some of them")
    if not all(isinstance(t, str) for t in listed):
        raise fault("type", pointer, f"must be one of {', '.join(TYPES)}, or some of them")
    if schema.get("nullable") is True:
        listed = [*listed, "null"]
    return frozenset(listed)
