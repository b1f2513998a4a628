"""Twenty schemas of the kinds that people send; each can be enforced exactly."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]


def strict_object(**properties: Any) -> Schema:
    """All keys required, no others: what the SDKs send."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text(longest: int = 20) -> Schema:
    return {"type": "string", "maxLength": longest}


def integer(least: int, most: int) -> Schema:
    return {"type": "integer", "minimum": least, "maximum": most}


SCHEMAS: dict[str, Schema] = {
    "person": strict_object(name=text(), age=integer(0, 120)),
    "colour": {"enum": ["red", "green", "blue", "ultra violet"]},
    "book": strict_object(
        title=text(30), year=integer(1450, 2030), authors={"type": "array", "items": text(15)}
    )
    | {"title": "Book", "description": "A printed book."},
    "point": {
        "type": "array",
        "prefixItems": [{"type": "number"}, {"type": "number"}],
        "items": False,
        "minItems": 2,
    },
    "address": strict_object(
        street=text(), zip={"type": "string", "pattern": "^[0-9]{5}$"}, city=text(15)
    ),
    "payment": {
        "anyOf": [
            strict_object(
                kind={"const": "card"}, number={"type": "string", "pattern": "^[0-9]{4}$"}
            ),
            strict_object(kind={"const": "cash"}, amount=integer(1, 1000)),
        ]
    },
    "date": strict_object(day={"type": "string", "format": "date"}),
    "identifier": strict_object(id={"type": "string", "format": "uuid"}),
    "flags": {
        "type": "object",
        "additionalProperties": {"type": "boolean"},
        "minProperties": 0,
    },
    "optional keys": {
        "type": "object",
        "properties": {"a": integer(0, 9), "b": text(5), "c": {"type": "null"}},
        "required": ["b"],
        "additionalProperties": False,
    },
    "tree": {
        "$defs": {
            "node": strict_object(
                label=text(6),
                children={"type": "array", "maxItems": 1, "items": {"$ref": "#/$defs/node"}},
            )
        },
        "$ref": "#/$defs/node",
    },
    "matrix": {
        "type": "array",
        "minItems": 2,
        "maxItems": 2,
        "items": {"type": "array", "minItems": 2, "maxItems": 2, "items": integer(-9, 9)},
    },
    "price": strict_object(
        amount={"type": "number", "exclusiveMinimum": 0, "maximum": 1000},
        currency={"enum": ["€", "$"]},
    ),
    "nullable": strict_object(
        value={"type": ["integer", "null"]}, note={"type": ["string", "null"]}
    ),
    "word": {"type": "string", "minLength": 3, "maxLength": 8},
    "shouted word": {"type": "string", "pattern": "^[A-Z]+!$", "maxLength": 12},
    "nested": strict_object(a=strict_object(b=strict_object(c=strict_object(d=integer(1, 5))))),
    "constant": strict_object(version={"const": 3}, payload={"const": {"x": [1, None, "é\n"]}}),
    "survey": strict_object(
        answers={
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": strict_object(text=text(12), score=integer(1, 5), sure={"type": "boolean"}),
        }
    ),
    "anything short": {"anyOf": [integer(-1000, 1000), {"type": "boolean"}, text(8)]},
}
