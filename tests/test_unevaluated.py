"""``unevaluatedProperties`` and ``unevaluatedItems``, and their complements, beside combinators."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft201909Validator, Draft202012Validator

from grammar import SchemaBudgetError, UnsatisfiableSchemaError, UnsupportedSchemaError
from tests.grammar_support import accepts, compiled
from tests.test_schema_corpus import accepted

OBJECTS: list[Any] = [
    dict(zip(names, values, strict=True))
    for size in range(4)
    for names in itertools.combinations("abc", size)
    for values in itertools.product((1, "x"), repeat=size)
]
ARRAYS: list[Any] = [list(v) for n in range(4) for v in itertools.product((1, "x", None), repeat=n)]


def says(schema: Any, valid: list[Any], invalid: list[Any]) -> None:
    grammar = compiled(schema, whitespace="flexible")
    for value in valid:
        assert accepted(grammar, value), value
    for value in invalid:
        assert not accepts(grammar, json.dumps(value)), value


def test_all_branches_that_hold_evaluate() -> None:
    names = "abcdefg"
    branches = [{"properties": {n: {"type": "integer"}}, "required": [n]} for n in names]
    schema = {"type": "object", "anyOf": branches, "unevaluatedProperties": False}
    says(
        schema,
        [{"a": 1}, {"a": 1, "g": 2}, dict.fromkeys(names, 1), {"b": 1, "c": 1, "d": 1}],
        [{}, {"a": "x"}, {"a": 1, "b": "x"}, {"a": 1, "z": 1}],
    )


def test_branches_that_exclude_each_other_may_be_many() -> None:
    branches = [
        {"properties": {"kind": {"const": i}, f"p{i}": True}, "required": ["kind"]}
        for i in range(30)
    ]
    schema = {"type": "object", "anyOf": branches, "unevaluatedProperties": False}
    says(
        schema,
        [{"kind": 3, "p3": 1}, {"kind": 29}],
        [{"kind": 3, "p4": 1}, {"p3": 1}, {"kind": 30}],
    )


def test_what_fails_evaluates_nothing() -> None:
    named = {"properties": {"a": True}, "required": ["a"]}
    schema = {
        "type": "object",
        "oneOf": [{"properties": {"b": True}}, {"not": named}],
        "unevaluatedProperties": {"type": "string"},
    }
    # The second branch fails because ``named`` holds, within ``not``: that evaluates nothing.
    says(schema, [{"a": ""}, {"a": "", "b": 1}], [{"a": 1}, {"a": 1, "b": 1}, {}, {"b": 1}])
    schema = {
        "type": "object",
        "if": {"not": named},
        "else": {"properties": {"b": True}},
        "unevaluatedProperties": False,
    }
    says(schema, [{}], [{"a": 1}, {"a": 1, "b": 1}])


def test_nested_in_complements() -> None:
    closed = {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}
    twice = {"properties": {"x": {"not": closed}}}
    says(
        {"type": "object", "not": twice},
        [{"x": {"a": 1}}],
        [{}, {"x": {"b": 1}}, {"x": {"a": 1, "b": 1}}],
    )
    says(
        {"type": "object", "not": {"properties": {"x": closed}}},
        [{"x": {"b": 1}}, {"x": {"a": 1, "b": 1}}],
        [{}, {"x": {"a": 1}}, {"x": {}}],
    )


def test_constants_within_properties() -> None:
    closed = {"allOf": [{"properties": {"a": True}}], "unevaluatedProperties": False}
    schema = {"enum": [{"x": {"a": 1}}, {"x": {"a": 1, "b": 1}}], "properties": {"x": closed}}
    says(schema, [{"x": {"a": 1}}], [{"x": {"a": 1, "b": 1}}])
    tail = {"allOf": [{"prefixItems": [True]}], "unevaluatedItems": {"type": "string"}}
    schema = {"enum": [{"x": [1, "a"]}, {"x": [1, 1]}], "properties": {"x": tail}}
    says(schema, [{"x": [1, "a"]}], [{"x": [1, 1]}])


def test_an_item_behind_the_first_ones_is_wrong() -> None:
    schema = {
        "type": "array",
        "not": {"prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
    }
    says(schema, [["a"], [1, 2], [1, "a", None]], [[], [1], [1, "a"]])
    schema = {
        "type": "array",
        "not": {"allOf": [{"prefixItems": [True]}], "unevaluatedItems": {"type": "string"}},
    }
    says(schema, [[1, 2], [1, "a", None]], [[], [1], [1, "a"], ["a"]])


PARTS: list[Any] = [
    {"properties": {"a": {"type": "integer"}}},
    {"properties": {"a": True}, "required": ["a"]},
    {"properties": {"b": {"type": "string"}}, "required": ["b"]},
    {"properties": {"b": True}},
    {"patternProperties": {"^[bc]$": {"type": "integer"}}},
    {"additionalProperties": {"type": "integer"}},
    {"required": ["c"]},
    {"prefixItems": [{"type": "integer"}]},
    {"prefixItems": [True, {"type": "string"}]},
    {"contains": {"type": "string"}},
    {"items": {"type": "integer"}},
    {"minItems": 2},
    {"unevaluatedProperties": {"type": "string"}},
    {"unevaluatedItems": {"type": "integer"}},
    True,
    False,
]
RESTS: list[Any] = [False, False, {"type": "integer"}, {"type": "string"}]


def parts(depth: int) -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(PARTS)
    if depth == 0:
        return leaves
    inner = parts(depth - 1)
    several = st.lists(inner, min_size=1, max_size=3)
    return (
        leaves
        | st.builds(lambda k, v: {k: v}, st.sampled_from(["anyOf", "oneOf", "allOf"]), several)
        | st.builds(lambda v: {"not": v}, inner)
        | st.builds(lambda i, t, e: {"if": i, "then": t, "else": e}, inner, inner, inner)
        | st.builds(lambda v: {"dependentSchemas": {"a": v}}, inner)
        | closed(depth - 1)
    )


@st.composite
def closed(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    keyword = draw(st.sampled_from(["unevaluatedProperties", "unevaluatedItems"]))
    own = draw(parts(depth))
    schema = dict(own) if isinstance(own, dict) else {}
    return {**schema, keyword: draw(st.sampled_from(RESTS))}


@pytest.mark.parametrize("draft", ["2020-12", "2019-09"])
@settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(schema=closed() | parts(2))
def test_generated_schemas(draft: str, schema: Any) -> None:
    if isinstance(schema, bool) or (draft == "2019-09" and "prefixItems" in json.dumps(schema)):
        return
    schema = {"$schema": f"https://json-schema.org/draft/{draft}/schema", **schema}
    first = (Draft202012Validator if draft == "2020-12" else Draft201909Validator)(schema)
    second = jsonschema_rs.validator_for(schema)
    try:
        grammar = compiled(schema, whitespace="compact", key_order="free")
    except (UnsupportedSchemaError, SchemaBudgetError):
        return
    except UnsatisfiableSchemaError:
        grammar = None
    for value in [*OBJECTS, *ARRAYS]:
        valid = second.is_valid(value)
        if valid != first.is_valid(value):
            continue  # the judges disagree
        text = json.dumps(value, separators=(",", ":"))
        assert (grammar is not None and accepts(grammar, text)) == valid, (schema, value)
