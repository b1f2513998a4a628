"""Soundness and completeness over generated schemas, against an independent validator.

Soundness: any walk of legal tokens that ends is a text that parses and validates, and no walk gets
stuck. Completeness: a valid instance, its keys in schema order, is accepted in every style.
"""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from grammar import SchemaBudgetError, UnsatisfiableSchemaError, UnsupportedSchemaError
from tests.grammar_support import accepts, compiled, dumps, random_walk
from tests.test_schema_corpus import accepted

NAMES = ["a", "b", "ab", "name", "é", 'q"', "x y"]
PATTERNS = ["^[a-c]{1,4}$", "[0-9]", "^x", "y$", "^(on|off)$", "a.b", "^[^a]*$", "^\\w+-\\d{2}$"]
TYPES = ["object", "array", "string", "number", "integer"]
FORMATS = ["date", "time", "date-time", "ipv4", "uuid", "email"]


def bounded(draw: st.DrawFn, low: str, high: str, top: int) -> dict[str, int]:
    """None, one or both of two bounds, in order."""
    first, second = sorted((draw(st.integers(0, top)), draw(st.integers(0, top))))
    return {k: v for k, v in ((low, first), (high, second)) if draw(st.booleans())}


@st.composite
def strings(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    kind = draw(st.sampled_from(["free", "length", "pattern", "format", "both"]))
    if kind in ("length", "both"):
        schema |= bounded(draw, "minLength", "maxLength", 8)
    if kind in ("pattern", "both"):
        schema["pattern"] = draw(st.sampled_from(PATTERNS))
    if kind == "format":
        schema["format"] = draw(st.sampled_from(FORMATS))
    return schema


@st.composite
def numbers(draw: st.DrawFn) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": draw(st.sampled_from(["integer", "number"]))}
    values = st.integers(-200, 200) | st.sampled_from([0.5, -1.25, 99.99, 1e-3])
    for keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if draw(st.integers(0, 3)) == 0:
            schema[keyword] = draw(values)
    if schema["type"] == "integer" and draw(st.integers(0, 4)) == 0:
        schema["multipleOf"] = draw(st.integers(1, 12))
    return schema


SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.sampled_from(["", "ab", "é\n", "1"])
CONSTANTS = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(
    st.sampled_from(NAMES), SCALARS, max_size=2
)  # fmt: skip


@st.composite
def objects(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: draw(children) for name in names},
        "required": draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=2)),
    }
    extra = draw(st.sampled_from(["absent", "false", "schema"]))
    if extra != "absent":
        schema["additionalProperties"] = False if extra == "false" else draw(children)
    if draw(st.integers(0, 3)) == 0:
        schema |= bounded(draw, "minProperties", "maxProperties", 4)
    if draw(st.integers(0, 3)) == 0:
        schema["dependentRequired"] = {draw(st.sampled_from(NAMES)): [draw(st.sampled_from(NAMES))]}
    if draw(st.integers(0, 4)) == 0:
        schema["patternProperties"] = {draw(st.sampled_from(PATTERNS[:5])): draw(children)}
    return schema


@st.composite
def arrays(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array", **bounded(draw, "minItems", "maxItems", 3)}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(children, min_size=1, max_size=2))
    if draw(st.booleans()):
        schema["items"] = draw(st.just(False) | children)
    if draw(st.integers(0, 3)) == 0:
        schema["contains"] = draw(children)
        schema |= bounded(draw, "minContains", "maxContains", 3)
    return schema


@st.composite
def combined(draw: st.DrawFn, children: st.SearchStrategy[Any]) -> dict[str, Any]:
    keyword = draw(st.sampled_from(["anyOf", "allOf", "oneOf", "not", "if"]))
    if keyword == "not":
        return {"not": draw(children), "type": draw(st.sampled_from(TYPES))}
    if keyword == "if":
        return {"if": draw(children), "then": draw(children), "else": draw(children)}
    return {keyword: draw(st.lists(children, min_size=1, max_size=2))}


def schemas() -> st.SearchStrategy[Any]:
    """Schemas of the enforced keywords; ``$ref`` leads to a definition or back to the root."""
    leaves = (
        strings()
        | numbers()
        | st.sampled_from([{"type": "boolean"}, {"type": "null"}, {"type": ["string", "null"]}])
        | st.lists(CONSTANTS, min_size=1, max_size=4).map(lambda v: {"enum": v})
        | CONSTANTS.map(lambda v: {"const": v})
        | st.just({"$ref": "#/$defs/leaf"})
    )
    return st.recursive(leaves, lambda c: objects(c) | arrays(c) | combined(c), max_leaves=6).map(
        lambda schema: {**schema, "$defs": {"leaf": {"type": "integer", "minimum": 3}}}
    )


SETTINGS = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@SETTINGS
@given(schemas(), st.integers(0, 2**32), st.sampled_from(["adaptive", "flexible", "compact"]))
def test_soundness(schema: Any, seed: int, whitespace: str) -> None:
    try:
        grammar = compiled(schema, whitespace=whitespace)
    except (UnsatisfiableSchemaError, UnsupportedSchemaError, SchemaBudgetError):
        return
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    rng = random.Random(seed)
    for _ in range(3):
        text, ended, _ = random_walk(grammar, rng, steps=rng.choice([0, 10, 40]))
        if ended:
            value = json.loads(text)
            # The year 0000 is a date (RFC 3339: four digits), but not one of Python's.
            year_zero = "0000-" in json.dumps(value)
            assert validator.is_valid(value) or year_zero, (schema, text)


def instance(schema: Any, root: Any, rng: random.Random, depth: int = 0) -> Any:
    """A value that is meant to be valid (the validator has the last word), keys in order."""
    if schema is True or not schema:
        return rng.choice([None, 1, "s", [], {}])
    if schema is False:
        return None
    if "$ref" in schema:
        return instance(root["$defs"]["leaf"], root, rng, depth)
    if "not" in schema:
        return rng.choice([{}, {"a": 1}, [], [1], "b", "x1", 0, 7, -3.5])
    if "if" in schema:
        return instance(rng.choice([schema["then"], schema["else"]]), root, rng, depth)
    for keyword in ("anyOf", "allOf", "oneOf"):
        if keyword in schema:
            return instance(rng.choice(schema[keyword]), root, rng, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type")
    kind = rng.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        result = {}
        names = [*schema["properties"], *(r for r in schema["required"])]
        for name in dict.fromkeys(names):
            if name in schema["required"] or rng.random() < 0.6:
                child = schema["properties"].get(name, schema.get("additionalProperties", True))
                result[name] = instance(child, root, rng, depth + 1)
        if schema.get("additionalProperties", True) is not False and rng.random() < 0.4:
            result["zz"] = instance(schema.get("additionalProperties", True), root, rng, depth + 1)
        return result
    if kind == "array":
        places = [*schema.get("prefixItems", []), *([schema.get("items", True)] * 3)]
        count = rng.randint(schema.get("minItems", 0), schema.get("maxItems", 3))
        return [instance(place, root, rng, depth + 1) for place in places[:count]]
    if kind in ("integer", "number"):
        value = rng.choice([0, 3, -7, 12, 150, rng.randint(-300, 300)])
        return value if kind == "integer" else rng.choice([value, value / 4, value + 0.125])
    if kind == "string":
        return rng.choice(
            ["", "a", "abc", "x1y", "on", "é日\n\"\\😀", "a0b", "w-12", "2024-02-29", "10.0.0.1",
             "12:00:00Z", "2024-02-29T12:00:00+01:00", "a@b.org", "x" * rng.randint(0, 9),
             "123e4567-e89b-12d3-a456-426614174000"]
        )  # fmt: skip
    return {"boolean": rng.random() < 0.5, "null": None}[kind]


OTHERS_ORDER = {
    "anyOf": [
        {
            "type": "object",
            "properties": {"a": {"const": None}},
            "required": ["é"],
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"é": {"type": "null"}}, "required": []},
    ]
}


@SETTINGS
@given(schemas(), st.integers(0, 2**32))
@example(OTHERS_ORDER, 0)
def test_completeness(schema: Any, seed: int) -> None:
    rng = random.Random(seed)
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    candidates = [instance(schema, schema, rng) for _ in range(8)]
    valid = [value for value in candidates if validator.is_valid(value)]
    if not valid:
        return
    try:
        adaptive = compiled(schema, whitespace="adaptive")
        flexible = compiled(schema, whitespace="flexible")
    except (UnsupportedSchemaError, SchemaBudgetError):
        return
    reordering = {"allOf", "oneOf", "not", "if", "dependentRequired", "contains"}
    if any(f'"{keyword}"' in json.dumps(schema) for keyword in reordering):
        # Several schema objects share an object: any order of its keys may be the schema's.
        for value in valid:
            assert accepted(flexible, value), (schema, value)
        return
    for value in valid:
        if not accepts(flexible, dumps(value, "compact")):
            # Made for one alternative, valid by another one, whose keys come in another order.
            assert accepted(flexible, value), (schema, value)
            continue
        for style in ("fixed", "compact", "pretty"):
            text = dumps(value, style)
            assert accepts(adaptive, text), (schema, text)
            assert accepts(flexible, text), (schema, text)
