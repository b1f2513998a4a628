"""Combinators against a validator: unions that overlap, conditions, dependencies, complements.

Every instance of a small set is tried in both directions, with keys in any order.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from grammar import UnsatisfiableSchemaError, UnsupportedSchemaError
from tests.combined_schemas import instances, keyed, keyed_instances, schema
from tests.grammar_support import accepts, compiled, random_walk

ALL = list(instances())
KEYED = list(keyed_instances())


def agree(given: Any, values: list[Any]) -> str:
    """The grammar accepts of the values just what the validator does; says what came of it."""
    validator = Draft202012Validator(given)
    wanted = [validator.is_valid(value) for value in values]
    try:
        grammar = compiled(given, whitespace="compact", key_order="free")
    except UnsatisfiableSchemaError:
        assert not any(wanted), given
        return "unsatisfiable"
    except UnsupportedSchemaError:
        return "refused"
    for value, want in zip(values, wanted, strict=True):
        text = json.dumps(value, separators=(",", ":"))
        assert accepts(grammar, text) == want, (given, value)
    return "some" if any(wanted) else "none"


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_small_schemas_against_a_validator(first: int) -> None:
    found = [agree(schema(random.Random(seed)), ALL) for seed in range(first, first + 10)]
    assert found.count("some") >= 3


@pytest.mark.slow
def test_many_small_schemas_against_a_validator() -> None:
    found = [agree(schema(random.Random(seed), 4), ALL) for seed in range(1000, 1400)]
    assert found.count("some") > 200
    assert found.count("refused") < 30


def objects(tags: list[Any], names: list[str], values: list[Any]) -> list[Any]:
    """Objects with a tag or none and up to two of some properties."""
    found: list[Any] = []
    for tag in tags:
        start = {} if tag is None else {"type": tag}
        found.append(start)
        for i, name in enumerate(names):
            for value in values:
                found.append({**start, name: value})
                found += [{**start, name: value, other: "x"} for other in names[:i]]
    return found


def test_an_optional_tag() -> None:
    branches = [
        {
            "properties": {"type": {"const": f"t{i}"}, "id": {"type": "string"}, f"p{i}": {}},
            "additionalProperties": False,
        }
        for i in range(30)
    ]
    values = objects([None, "t0", "t7", "t29", "no"], ["id", "p0", "p7", "p8"], ["x", 1])
    assert agree({"type": "object", "oneOf": branches}, values) == "some"


def test_branches_that_require_different_properties() -> None:
    branches = [
        {
            "properties": {"name": {"type": "string"}, f"p{i}": {"type": "string"}},
            "required": ["name", f"p{i}"],
        }
        for i in range(12)
    ]
    values = [
        {**start, **rest}
        for start in ({}, {"name": "x"}, {"name": 1})
        for rest in ({}, {"p0": "x"}, {"p11": 1}, {"p0": "x", "p3": "y"}, {"p0": "x", "p3": 1})
    ]
    assert agree({"oneOf": branches}, values) == "some"


def test_the_same_branch_twice_holds_nothing() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    given = {
        "$defs": {"one": inner, "two": {"description": "the same", **inner}},
        "oneOf": [{"$ref": "#/$defs/one"}, {"$ref": "#/$defs/two"}, {"type": "null"}],
    }
    assert agree(given, ALL) == "some"
    assert agree({"allOf": [inner, {"not": {"$ref": "#/$defs/two"}}], **given}, ALL) in (
        "none",
        "unsatisfiable",
    )


def test_conditions_on_one_tag() -> None:
    """Twenty of them, as forms have."""
    conditions = [
        {
            "if": {"properties": {"type": {"const": f"t{i}"}}},
            "then": {"required": [f"p{i}"], "properties": {f"p{i}": {"type": "string"}}},
        }
        for i in range(20)
    ]
    given = {"type": "object", "properties": {"type": {"type": "string"}}, "allOf": conditions}
    values = objects([None, "t0", "t19", "no"], ["p0", "p7", "p19"], ["x", 1])
    everything = {f"p{i}": "x" for i in range(20)}
    values += [everything, {**everything, "p3": 1}, {"type": "t0", **everything}]
    assert agree(given, values) == "some"


def test_a_chain_of_conditions() -> None:
    given: dict[str, Any] = {"required": ["last"]}
    for i in range(19, -1, -1):
        condition = {"properties": {"type": {"const": f"t{i}"}}, "required": ["type"]}
        given = {"if": condition, "then": {"required": [f"p{i}"]}, "else": given}
    values = objects([None, "t0", "t19", "no"], ["p0", "p19", "last"], ["x", 1])
    assert agree({"type": "object", **given}, [*values, 1, None]) == "some"


def test_fifty_lists_of_required_names() -> None:
    given = {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(51)},
        "anyOf": [{"required": [f"p{i}", f"p{i + 1}"]} for i in range(50)],
    }
    values = [{f"p{i}": "x" for i in some} for some in ((), (0,), (0, 1), (0, 2), (49, 50), (7, 8))]
    assert agree(given, values) == "some"


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_a_hundred_objects_in_an_array_in_a_union(keyword: str) -> None:
    members = [
        {
            "type": "object",
            "properties": {"kind": {"const": f"k{i}"}, "value": {"type": ["string", "null"]}},
            "required": ["kind"],
        }
        for i in range(100)
    ]
    given = {
        "oneOf": [
            {"type": "array", "items": {keyword: members}, "minItems": 1},
            {keyword: members[:50]},
            {"type": "string"},
        ]
    }
    inner = [{"kind": "k0"}, {"kind": "k99", "value": None}, {"kind": "k7", "value": 1}, {}]
    values = [*inner, *([i] for i in inner), *([i, inner[1]] for i in inner), [], "x", 1]
    assert agree(given, values) == "some"
    assert agree({"not": given}, values) == "some"


def test_negations_of_negations() -> None:
    given: Any = {"properties": {"a": {"type": "string"}}, "required": ["a"]}
    for _ in range(40):
        given = {"not": {"not": given}}
    assert agree(given, ALL) == "some"
    given = {"properties": {"a": {"enum": ["x", 1]}}, "required": ["b"]}
    for _ in range(10):
        given = {"not": {"properties": {"a": given}, "required": ["a"]}}
    assert agree(given, ALL) == "some"


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_classes_of_keys_against_a_validator(first: int) -> None:
    found = [agree(keyed(random.Random(seed)), KEYED) for seed in range(first, first + 10)]
    assert found.count("some") >= 3
    assert "refused" not in found


@pytest.mark.parametrize("key_order", ["schema", "free"])
def test_what_is_begun_is_ended_however_few_keys_there_are(key_order: str) -> None:
    walks = ended = 0
    for seed in range(60):
        rng = random.Random(seed)
        given = keyed(rng)
        try:
            grammar = compiled(given, whitespace="compact", key_order=key_order)
        except UnsatisfiableSchemaError:
            continue
        for steps in (3, 12, 40):
            text, done, _ = random_walk(grammar, rng, steps, limit=400)
            assert not done or Draft202012Validator(given).is_valid(json.loads(text)), (given, text)
            walks, ended = walks + 1, ended + done
    assert walks > 80
    assert ended > walks * 0.7, (ended, walks)  # some go on for long


def test_keys_that_are_few_are_counted() -> None:
    given = {"patternProperties": {"^x[12]$": {}}, "additionalProperties": False}
    assert agree({"type": "object", **given, "minProperties": 2}, KEYED) == "some"
    both = {"properties": {"y": {}}, **given, "minProperties": 2, "required": ["y"]}
    assert agree({"type": "object", **both}, KEYED) == "some"
    assert agree({"type": "object", **given, "minProperties": 3}, KEYED) == "unsatisfiable"


def test_several_keys_are_looked_for_at_once() -> None:
    nots = [
        {"not": {"patternProperties": {"^x": {"type": "string"}}}},
        {"not": {"additionalProperties": {"type": "integer"}}},
        {"not": {"propertyNames": {"maxLength": 1}}},
    ]
    assert agree({"type": "object", "allOf": nots}, KEYED) == "some"
    assert agree({"type": "object", "allOf": nots, "maxProperties": 1}, KEYED) == "none"
    one_for_all = {"xx": None}  # no string, no integer, and longer than a character
    assert agree({"allOf": nots, "maxProperties": 1}, [*KEYED, one_for_all]) == "some"
    assert agree({"type": "object", "allOf": nots, "maxProperties": 2}, KEYED) == "some"


def test_arrays_and_objects_that_are_not_a_constant() -> None:
    constants: list[Any] = [
        [],
        ["x"],
        ["x", 1],
        [["x"]],
        {},
        {"a": "x"},
        {"a": {"a": "x"}},
        1,
        None,
    ]
    for constant in constants:
        assert agree({"not": {"const": constant}}, ALL) == "some"
    assert agree({"not": {"enum": constants}}, ALL) == "some"
    assert agree({"type": "object", "not": {"enum": constants}}, ALL) == "some"
    assert agree({"oneOf": [{"const": {"a": "x"}}, {"required": ["a"]}]}, ALL) == "some"


def test_many_contains() -> None:
    """Exclusive ones of any number; of overlapping ones as many as can be told apart."""
    arrays = [[], [0], [0, 1], list(range(8)), list(range(7)), [*range(7), "x"], [7, 6, *range(6)]]
    exclusive = [{"contains": {"const": i}} for i in range(8)]
    assert agree({"type": "array", "allOf": exclusive}, arrays) == "some"
    bounded = [{"contains": {"const": i}, "maxContains": 1} for i in range(8)]
    assert agree({"allOf": bounded}, [*arrays, [*range(8), 3], [*range(8), 9]]) == "some"
    nested = [{"contains": {"minimum": i}, "minContains": 1} for i in range(7)]
    assert agree({"type": "array", "items": {"type": "integer"}, "allOf": nested}, arrays) == "some"
