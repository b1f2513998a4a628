"""The complement of one schema object's own keywords, as schemas: De Morgan, keyword by keyword.

``not`` is pushed down to where it can be said positively: an object that lacks a property, a string
that is too long, an array with an item that fails. What results is the union of the schemas
returned; combinators and references are left to ``flatten``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import (
    AT,
    BEHIND,
    FRACTION,
    NONE,
    NOT,
    NOT_ENCODING,
    NOT_FORMAT,
    NOT_MULTIPLE,
    NOT_PATTERN,
    SOME_KEY,
    Document,
    join,
)
from grammar.schema.places import contains_bounds, extra_place, item_places

Schema = dict[str, Any]


class NoComplementError(Exception):
    """A keyword's complement can't be said exactly; the message says why."""


def complements(document: Document, schema: Schema, pointer: str) -> Iterator[Schema]:
    """Schemas that together accept what the object's own keywords refuse.

    Raises:
        NoComplementError: that can't be had exactly.
    """
    yield from _types(schema, pointer)
    for listed in kw.listed(schema, pointer):
        composite = [value for value in listed if isinstance(value, (list, dict))]
        unequal = {NONE: [value for value in listed if not isinstance(value, (list, dict))]}
        if composite:
            ways = (_unequal(document, value, pointer) for value in composite)
            unequal["allOf"] = [{"anyOf": each} for each in ways]
        yield unequal
    if document.asserts_content and "contentMediaType" in schema:
        raise NoComplementError("contentMediaType has no complement here")
    yield from _strings(schema, pointer)
    yield from _numbers(schema, pointer)
    yield from _arrays(document, schema, pointer)
    yield from _objects(document, schema, pointer)


def _unequal(document: Document, constant: Any, pointer: str) -> list[Schema]:
    """Schemas that together accept what differs from an array or object."""
    own = "array" if isinstance(constant, list) else "object"
    ways: list[Schema] = [{"type": [t for t in kw.TYPES if t not in (own, "integer")]}]
    if isinstance(constant, list):
        if constant:
            ways.append({"type": own, "maxItems": len(constant) - 1})
        ways.append({"type": own, "minItems": len(constant) + 1})
        for i, value in enumerate(constant):
            items = [*([True] * i), {"not": {"const": value}}]
            ways.append({"type": own, "minItems": i + 1, "prefixItems": items})
    else:
        for name, value in constant.items():
            ways.append({"type": own, "properties": {name: {"not": {"const": value}}}})
        other = {"names": list(constant), "patterns": [], "value": True}
        ways.append({"type": own, SOME_KEY: other})
    origin = document.origin(pointer)
    return [{AT: document.add(way, origin)} for way in ways]


def _types(schema: Schema, pointer: str) -> Iterator[Schema]:
    allowed = kw.types(schema, pointer)
    if allowed is None:
        return
    for name in ("null", "boolean", "string", "array", "object"):
        if name not in allowed:
            yield {"type": name}
    if "number" not in allowed:
        yield {"type": "number", FRACTION: True} if "integer" in allowed else {"type": "number"}


def _strings(schema: Schema, pointer: str) -> Iterator[Schema]:
    least, most = kw.limits([(pointer, schema)], "minLength", "maxLength")
    if least:
        yield {"type": "string", "maxLength": least - 1}
    if most is not None:
        yield {"type": "string", "minLength": most + 1}
    if "pattern" in schema:
        yield {"type": "string", NOT_PATTERN: schema["pattern"]}
    name = kw.string(schema, "format", pointer)
    if name in kw.FORMATS:
        yield {"type": "string", NOT_FORMAT: name}
    encoding = kw.string(schema, "contentEncoding", pointer)
    if encoding is not None and encoding.lower() == "base64":
        yield {"type": "string", NOT_ENCODING: encoding}
    if "x-extract" in schema:
        raise NoComplementError("the texts that a source does not hold have no grammar here")


def _numbers(schema: Schema, pointer: str) -> Iterator[Schema]:
    for side, strict, other in (
        ("minimum", "exclusiveMinimum", "Maximum"),
        ("maximum", "exclusiveMaximum", "Minimum"),
    ):
        value, flag = kw.number(schema, side, pointer), schema.get(strict)
        if value is not None:
            keyword = other.lower() if flag is True else "exclusive" + other
            yield {"type": "number", keyword: value}
        if flag is not None and not isinstance(flag, bool):
            yield {"type": "number", other.lower(): kw.number(schema, strict, pointer)}
    divisor = kw.number(schema, "multipleOf", pointer)
    if divisor is not None:
        yield {"type": "number", NOT_MULTIPLE: divisor}


def _arrays(document: Document, schema: Schema, pointer: str) -> Iterator[Schema]:
    least, most = kw.limits([(pointer, schema)], "minItems", "maxItems")
    if least:
        yield {"type": "array", "maxItems": least - 1}
    if most is not None:
        yield {"type": "array", "minItems": most + 1}
    prefix, rest = item_places(schema, pointer)
    for i, place in enumerate(prefix):
        items = [*([True] * i), {NOT: place}]
        yield {"type": "array", "minItems": i + 1, "prefixItems": items}
    if rest is not None and document.schema(rest) is False:
        yield {"type": "array", "minItems": len(prefix) + 1}
    elif rest is not None and document.schema(rest) not in (True, {}):
        yield {"type": "array", "contains": {NOT: rest}, BEHIND: len(prefix)}
    if "contains" in schema:
        yield from _contains(schema, pointer)
    if schema.get("uniqueItems") is True:
        raise NoComplementError("items are not compared with each other")


def _contains(schema: Schema, pointer: str) -> Iterator[Schema]:
    least, most = contains_bounds(schema, pointer)
    inner = {AT: join(pointer, "contains")}
    if least:
        yield {"type": "array", "contains": inner, "minContains": 0, "maxContains": least - 1}
    if most is not None:
        yield {"type": "array", "contains": inner, "minContains": most + 1}


def _objects(document: Document, schema: Schema, pointer: str) -> Iterator[Schema]:
    required = kw.names(schema, "required", pointer)
    declared = kw.mapping(schema, "properties", pointer)
    for name in required:
        if declared.get(name, True) in (True, {}):
            yield {"type": "object", "properties": {name: False}}
    for name, value in declared.items():
        if value is not True and value != {}:
            wrong = {name: {NOT: join(pointer, "properties", name)}}
            broken: Schema = {"type": "object", "properties": wrong}
            # A required property that is not there is as wrong as a wrong one.
            yield broken if name in required else {**broken, "required": [name]}
    patterns = kw.mapping(schema, "patternProperties", pointer)
    for pattern in patterns:
        broken = {NOT: join(pointer, "patternProperties", pattern)}
        yield {"type": "object", SOME_KEY: {"matching": pattern, "value": broken}}
    extra = extra_place(schema, pointer)
    if extra is not None and document.schema(extra) not in (True, {}):
        outside = {"names": list(declared), "patterns": list(patterns), "value": {NOT: extra}}
        yield {"type": "object", SOME_KEY: outside}
    least, most = kw.limits([(pointer, schema)], "minProperties", "maxProperties")
    if least:
        yield {"type": "object", "maxProperties": least - 1}
    if most is not None:
        yield {"type": "object", "minProperties": most + 1}
    if schema.get("propertyNames", True) is not True:
        failing = {"failing": join(pointer, "propertyNames"), "value": True}
        yield {"type": "object", SOME_KEY: failing}
