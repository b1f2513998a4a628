"""Schemas made of combinators over small subschemas, and the small instances that tell them apart.

Everything is drawn from few names and values, so that subschemas overlap, contradict and imply each
other often, and all instances over them can be tried.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

NAMES = ("a", "b", "c")
SCALARS: tuple[Any, ...] = (None, True, 0, 1, 2.5, "", "x", "yy")
LEAVES: tuple[Any, ...] = (
    True, False, {"type": "string"}, {"type": "integer"}, {"type": ["null", "boolean"]},
    {"const": "x"}, {"const": 1}, {"enum": ["x", "yy", None]}, {"enum": [0, 1]},
    {"type": "string", "maxLength": 1}, {"type": "string", "pattern": "^y"},
    {"type": "number", "minimum": 1}, {"maximum": 1}, {"type": "object"}, {"type": "array"},
    {"not": {"const": "x"}}, {"minLength": 1},
)  # fmt: skip


def instances() -> Iterator[Any]:
    """Scalars, objects of up to three keys, short arrays, and one level of nesting."""
    yield from SCALARS
    few: tuple[Any, ...] = ("x", "yy", 1, None)
    absent = object()
    for values in product((absent, *few), repeat=len(NAMES)):
        yield {n: v for n, v in zip(NAMES, values, strict=True) if v is not absent}
    yield {"d": "x"}
    yield {"a": "x", "d": 1}
    yield {"a": "x", "b": "x", "d": None, "e": 1}
    yield {"d": "x", "e": "yy"}
    for inner in ({}, {"a": "x"}, {"a": 1, "b": "x"}, [], ["x"], [1, "x"]):
        yield {"a": inner}
        yield {"a": inner, "b": "x"}
        yield [inner]
        yield ["x", inner]
    for items in product(("x", 1, None), repeat=2):
        yield list(items)
    yield from ([], ["x"], [1], ["x", "x", 1], [1, 1, 1, 1])


def schema(rng: random.Random, depth: int = 3) -> Any:
    """A random schema."""
    if depth <= 0 or rng.random() < 0.15:
        return rng.choice(LEAVES)
    kind = rng.choice(
        ["object", "object", "object", "tagged", "array", "oneOf", "anyOf", "allOf", "not", "if",
         "depend"]
    )  # fmt: skip
    if kind == "object":
        return _object(rng, depth)
    if kind == "tagged":
        return _tagged(rng, depth)
    if kind == "array":
        return _array(rng, depth)
    if kind == "not":
        return {**_beside(rng), "not": schema(rng, depth - 1)}
    if kind == "if":
        made = {**_beside(rng), "if": schema(rng, depth - 1)}
        for arm in ("then", "else"):
            if rng.random() < 0.7:
                made[arm] = schema(rng, depth - 1)
        return made
    if kind == "depend":
        keyword = rng.choice(["dependentRequired", "dependentSchemas"])
        listed = keyword == "dependentRequired"
        needs = {
            name: [rng.choice(NAMES)] if listed else schema(rng, depth - 1)
            for name in rng.sample(NAMES, 2)
        }
        return {"type": "object", keyword: needs}
    branches = [schema(rng, depth - 1) for _ in range(rng.choice([2, 2, 3, 4]))]
    return {**_beside(rng), kind: branches}


def _beside(rng: random.Random) -> dict[str, Any]:
    object_or_string = {"type": ["object", "string"]}
    return rng.choice([{}, {}, {"type": "object"}, {"required": ["a"]}, object_or_string])


def _object(rng: random.Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {} if rng.random() < 0.3 else {"type": "object"}
    if rng.random() < 0.9:
        names = rng.sample(NAMES, rng.choice([1, 2, 3]))
        made["properties"] = {n: schema(rng, rng.choice([0, 0, depth - 1])) for n in names}
    if rng.random() < 0.5:
        made["required"] = rng.sample(NAMES, rng.choice([1, 1, 2]))
    if rng.random() < 0.4:
        made["additionalProperties"] = rng.choice([False, False, {"type": "string"}])
    if rng.random() < 0.15:
        made["patternProperties"] = {rng.choice(["^[ab]$", "^d", "b|c"]): rng.choice(LEAVES)}
    if rng.random() < 0.1:
        made["minProperties"] = rng.choice([1, 2])
    if rng.random() < 0.1:
        made["maxProperties"] = rng.choice([0, 1, 2])
    if rng.random() < 0.1:
        made["propertyNames"] = rng.choice([{"maxLength": 1}, {"enum": ["a", "d"]}])
    return made


def _tagged(rng: random.Random, depth: int) -> dict[str, Any]:
    """A union of objects that a property tells apart, which may be missing or shared."""
    tag = rng.choice(NAMES)
    branches = []
    for value in rng.sample(["x", "yy", 1, None], rng.choice([2, 3])):
        branch = _object(rng, depth - 1)
        branch.setdefault("properties", {})[tag] = {"const": value}
        if rng.random() < 0.6:
            branch["required"] = sorted({*branch.get("required", ()), tag})
        branches.append(branch)
    return {rng.choice(["oneOf", "oneOf", "anyOf"]): branches}


def _array(rng: random.Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array"}
    if rng.random() < 0.6:
        made["items"] = schema(rng, depth - 1)
    if rng.random() < 0.3:
        made["prefixItems"] = [schema(rng, depth - 1)]
    if rng.random() < 0.3:
        made["contains"] = schema(rng, 0)
        if rng.random() < 0.5:
            made[rng.choice(["minContains", "maxContains"])] = rng.choice([0, 1, 2])
    if rng.random() < 0.3:
        made[rng.choice(["minItems", "maxItems"])] = rng.choice([0, 1, 2])
    return made


KEYS = ("a", "b", "x1", "x2", "y")
_CLASSES = ("^x", "^x[12]$", "^[ab]$", "1$", "^y$", "^z")


def keyed(rng: random.Random) -> Any:
    """Objects by classes of keys, some of them finite, with complements and counts."""

    def plain() -> dict[str, Any]:
        made: dict[str, Any] = {}
        value: Any = {"type": "string"}
        if rng.random() < 0.6:
            chosen = rng.sample(_CLASSES, rng.choice([1, 2]))
            made["patternProperties"] = {p: rng.choice([value, True, False]) for p in chosen}
        if rng.random() < 0.6:
            made["additionalProperties"] = rng.choice([False, value, {"type": "integer"}])
        if rng.random() < 0.4:
            chosen = rng.sample(KEYS, rng.choice([1, 2]))
            made["properties"] = {n: rng.choice([value, True, {"type": "integer"}]) for n in chosen}
        if rng.random() < 0.2:
            made["propertyNames"] = rng.choice([{"pattern": "^x"}, {"maxLength": 1}])
        if rng.random() < 0.2:
            made["required"] = [rng.choice(KEYS)]
        return made

    parts: list[Any] = [{"not": plain()} for _ in range(rng.choice([0, 1, 2, 3]))]
    given = {"type": "object", **plain(), "allOf": [True, *parts]}
    if rng.random() < 0.5:
        given["minProperties"] = rng.choice([1, 2, 3])
    if rng.random() < 0.4:
        given["maxProperties"] = rng.choice([1, 2, 3, 4])
    return given


def keyed_instances() -> Iterator[Any]:
    """All objects over five keys with a string or a number each."""
    absent = object()
    for values in product((absent, "s", 1), repeat=len(KEYS)):
        yield {n: v for n, v in zip(KEYS, values, strict=True) if v is not absent}
