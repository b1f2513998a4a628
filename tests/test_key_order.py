"""``key_order="free"``: every order of the keys, required ones there, none twice; masks as ever."""

from __future__ import annotations

import json
import random
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from grammar import SchemaBudgetError, UnsatisfiableSchemaError, UnsupportedSchemaError
from tests.grammar_support import (
    accepts,
    brute_force,
    compiled,
    dumps,
    feed,
    ids_of,
    random_walk,
)
from tests.test_schema_properties import SETTINGS, instance, schemas

STYLES = ["fixed", "compact", "pretty"]
NUMBERS = {"a": {"type": "integer"}, "ab": {"type": "integer"}, "b": {"type": "boolean"}}
COUNTED = {
    "type": "object",
    "properties": {**NUMBERS, "name": {"const": 1}},
    "required": ["b", "zz"],
    "additionalProperties": {"type": "null"},
    "minProperties": 3,
    "maxProperties": 4,
}
POOL: dict[str, Any] = {
    "a": 1, "ab": 2, "b": True, "name": 1, "zz": None, "q": None, "x1": 5,
}  # fmt: skip
CASES: dict[str, Any] = {
    "counted": COUNTED,
    "closed": {"properties": NUMBERS, "required": ["ab"], "additionalProperties": False},
    "patterns": {
        "properties": {"a": {}},
        "patternProperties": {
            "^x": {"type": "integer"},
            "^[a-m]": {"type": ["integer", "boolean"]},
        },
        "additionalProperties": {"const": None},
        "required": ["x1"],
    },
    "names": {"properties": {"a": {}}, "propertyNames": {"pattern": "^[aqx]"}, "minProperties": 2},
    "dependent": {
        "type": "object",
        "properties": NUMBERS,
        "dependentRequired": {"a": ["b", "q"]},
        "dependentSchemas": {"ab": {"required": ["a"], "maxProperties": 3}},
    },
    "unevaluated": {
        "type": "object",
        "properties": {"a": {}},
        "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"q": {}}}],
        "unevaluatedProperties": False,
    },
    "not": {"type": "object", "not": {"patternProperties": {"^[^a]": {"type": "null"}}}},
    "tagged": {
        "oneOf": [
            {"properties": {"name": {"const": 1}, "a": {}}, "required": ["name"]},
            {"properties": {"name": False, "b": {"const": True}}, "required": ["b"]},
        ]
    },
}


@pytest.mark.parametrize("name", CASES)
def test_exactly_the_valid_objects_in_exactly_every_order(name: str) -> None:
    schema = CASES[name]
    validator = Draft202012Validator(schema)
    adaptive = compiled(schema, key_order="free")
    flexible = compiled(schema, key_order="free", whitespace="flexible")
    counts = {True: 0, False: 0}
    for size in range(5):
        for keys in permutations(POOL, size):
            value = {key: POOL[key] for key in keys}
            valid = validator.is_valid(value)
            counts[valid] += 1
            text = dumps(value, STYLES[sum(counts.values()) % 3])
            assert accepts(adaptive, text) == valid, text
            assert accepts(flexible, text) == valid, text
    assert min(counts.values()) >= 5


def test_no_key_twice_however_it_is_spelled() -> None:
    grammar = compiled({"type": "object", "properties": {"a": {}}}, key_order="free")
    assert accepts(grammar, '{"x": 1, "a": 1, "y": 2}')
    assert not accepts(grammar, '{"a": 1, "a": 1}')
    assert not accepts(grammar, '{"x": 1, "a": 2, "x": 3}')
    assert not accepts(grammar, '{"x": 1, "a": 2, "\\u0078": 3}')
    assert not accepts(grammar, '{"\\u0061": 1}')  # a declared name has one spelling
    assert not accepts(grammar, '{"y": 1, "\\u0061": 1}')


def test_schema_order_is_the_default_and_undeclared_keys_come_last() -> None:
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    for grammar in (compiled(schema), compiled(schema, key_order="schema")):
        assert accepts(grammar, '{"b": 1, "a": 1, "x": 1}')
        assert not accepts(grammar, '{"a": 1, "b": 1}')
        assert not accepts(grammar, '{"x": 1, "b": 1}')
    with pytest.raises(ValueError, match="key_order must be one of schema, free"):
        compiled(schema, key_order="any")


def test_constants_that_are_objects_take_any_order() -> None:
    schema = {"enum": [{"a": 1, "b": {"c": 2, "d": [3]}}, {"b": 7}]}
    grammar = compiled(schema, key_order="free")
    assert accepts(grammar, '{"b": {"d": [3], "c": 2}, "a": 1}')
    assert accepts(grammar, '{"b": 7}')
    assert not accepts(grammar, '{"b": {"d": [3], "c": 2}}')
    assert not accepts(compiled(schema), '{"b": {"d": [3], "c": 2}, "a": 1}')


def test_forced_bytes_know_which_keys_are_left() -> None:
    schema = {"properties": NUMBERS, "required": [*NUMBERS], "additionalProperties": False}
    matcher = compiled({"type": "object", **schema}, whitespace="fixed", key_order="free").start()
    assert matcher.forced_bytes() == b'{"'
    assert feed(matcher, '{"b')
    assert matcher.forced_bytes() == b'": '
    assert feed(matcher, '": true')
    assert matcher.forced_bytes() == b', "a'
    assert feed(matcher, ', "ab": 1')
    assert matcher.is_allowed(ord(",")) is matcher.is_allowed(ord("2")) is True
    assert feed(matcher, ",")
    assert matcher.forced_bytes() == b' "a": '  # the only key left
    assert feed(matcher, ' "a": 3}')
    assert matcher.is_accepting()


@pytest.mark.parametrize("whitespace", ["fixed", "compact", "pretty", "adaptive", "flexible"])
@pytest.mark.parametrize("name", CASES)
def test_masks_are_brute_force(name: str, whitespace: str) -> None:
    grammar = compiled(CASES[name], whitespace=whitespace, key_order="free")
    fresh = compiled(CASES[name], whitespace=whitespace, key_order="free")
    rng = random.Random(name)
    for _ in range(2):
        _, _, path = random_walk(grammar, rng, steps=25, limit=40)
        for cut in sorted({0, len(path), *(rng.randrange(len(path) + 1) for _ in range(3))}):
            matcher = grammar.start()
            for token in path[:cut]:
                matcher.advance(token)
            assert ids_of(matcher.mask()) == brute_force(fresh, path[:cut])


def test_rollback_is_a_fresh_replay_and_evictions_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grammar = compiled(COUNTED, key_order="free")
    rng = random.Random(4)
    paths = [random_walk(grammar, rng, steps=20, limit=60)[2] for _ in range(4)]
    for path in paths:
        matcher = grammar.start()
        masks = []
        for token in path:
            masks.append(matcher.mask())
            matcher.advance(token)
        for back in (1, 4, len(path)):
            other = matcher.copy()
            other.rollback(back)
            for token, mask in zip(path[len(path) - back :], masks[-back:], strict=True):
                assert np.array_equal(other.mask(), mask)
                other.advance(token)
        with monkeypatch.context() as patch:
            patch.setattr("grammar.machine.MAX_STATES", 4)
            small = compiled(COUNTED, key_order="free")
            for _ in range(2):
                again = small.start()
                for token, mask in zip(path, masks, strict=True):
                    assert np.array_equal(again.mask(), mask)
                    again.advance(token)
            assert small.states <= 5


def test_orders_of_the_same_keys_meet_in_one_state() -> None:
    grammar = compiled({"properties": NUMBERS, "type": "object"}, key_order="free")
    ids = set()
    for keys in permutations(["a", "ab", "b", "x"]):
        matcher = grammar.start()
        assert feed(matcher, json.dumps({key: key == "b" or 1 for key in keys})[:-1] + ",")
        ids.add(matcher.state_id)
    assert len(ids) == 1


def test_hundreds_of_optional_properties_cost_what_is_met() -> None:
    names = [f"property {i * 7919 % 1000} of many" for i in range(400)]
    schema = {"type": "object", "properties": {name: {"type": "integer"} for name in names}}
    closed = {**schema, "additionalProperties": False, "required": names[::40]}
    grammar = compiled(closed, whitespace="fixed", key_order="free")
    assert grammar.states <= 2
    chosen = names.copy()
    random.Random(8).shuffle(chosen)
    text = json.dumps(dict.fromkeys(chosen, 1))
    assert accepts(grammar, text)
    assert grammar.states <= 3 * len(text) + 10
    assert not accepts(grammar, json.dumps(dict.fromkeys(chosen[: chosen.index(names[80])], 1)))


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same value, the keys of its objects in another order."""
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    rng.shuffle(names)
    return {name: shuffled(value[name], rng) for name in names}


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), pairs
    return dict(pairs)


@SETTINGS
@given(schemas(), st.integers(0, 2**32), st.sampled_from(["adaptive", "flexible", "compact"]))
def test_soundness(schema: Any, seed: int, whitespace: str) -> None:
    try:
        grammar = compiled(schema, whitespace=whitespace, key_order="free")
    except (UnsatisfiableSchemaError, UnsupportedSchemaError, SchemaBudgetError):
        return
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    rng = random.Random(seed)
    for _ in range(3):
        text, ended, _ = random_walk(grammar, rng, steps=rng.choice([0, 10, 40]))
        if ended:
            value = json.loads(text, object_pairs_hook=distinct)
            # The year 0000 is a date (RFC 3339: four digits), but not one of Python's.
            year_zero = "0000-" in json.dumps(value)
            assert validator.is_valid(value) or year_zero, (schema, text)


@SETTINGS
@given(schemas(), st.integers(0, 2**32))
def test_completeness(schema: Any, seed: int) -> None:
    rng = random.Random(seed)
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    candidates = [shuffled(instance(schema, schema, rng), rng) for _ in range(8)]
    valid = [value for value in candidates if validator.is_valid(value)]
    if not valid:
        return
    try:
        adaptive = compiled(schema, whitespace="adaptive", key_order="free")
        flexible = compiled(schema, whitespace="flexible", key_order="free")
    except (UnsupportedSchemaError, SchemaBudgetError):
        return
    for value in valid:
        for style in STYLES:
            text = dumps(value, style)
            assert accepts(adaptive, text), (schema, text)
            assert accepts(flexible, text), (schema, text)


def test_tokens_that_span_several_keys() -> None:
    """Tokens with whole members, declared and not, around keys whose text is not known."""
    from grammar import Vocabulary, compile_json_schema

    more = [
        b'":1,"a":1,"',
        b'x":1,"a":1,"x',
        b'":1,"a":1,"x":1',
        b'{"x":1,"a":1,"y":1}',
        b'":1,"b"',
    ]
    tokens = [bytes([b]) for b in range(256)] + more + [b""]
    vocabulary = Vocabulary(tokens, {len(tokens) - 1: "<e>"}, [len(tokens) - 1])
    schema = {"type": "object", "properties": {"a": {}}}
    for text in ('{"', '{"x', '{"x":1,"', '{"y":1,"x', "", '{"a":1,"x', '{"xx'):
        matcher = compile_json_schema(
            schema, vocabulary, whitespace="compact", key_order="free"
        ).start()
        assert feed(matcher, text)
        legal = ids_of(matcher.mask())
        for token in range(256, len(tokens) - 1):
            alone = compile_json_schema(
                schema, vocabulary, whitespace="compact", key_order="free"
            ).start()
            ok = feed(alone, text) and feed(alone, tokens[token])
            assert (token in legal) == ok, (text, tokens[token])
