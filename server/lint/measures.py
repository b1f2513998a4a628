"""The figures of a schema that servers limit, and whether it contains itself.

Read next: `dialects.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from server.lint.places import Schema, lookup, places, types


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
            given = required if isinstance(required, list) else []
            names = {name for name in given if isinstance(name, str)}
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


def enum_characters(schema: Schema, over: int) -> int:
    """The characters of an enumeration with more than `over` values; 0 for a shorter one."""
    values = schema.get("enum")
    if not isinstance(values, list) or len(values) <= over:
        return 0
    return sum(len(value) for value in values if isinstance(value, str))
