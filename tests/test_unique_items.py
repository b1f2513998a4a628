"""uniqueItems: no two equal items ever, every array of different ones, never stuck."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from grammar import UnsatisfiableSchemaError, UnsupportedSchemaError, Vocabulary
from grammar.compared import Number, value_of
from grammar.reader import Reader
from tests.grammar_support import (
    VOCABULARY,
    accepts,
    brute_force,
    compiled,
    dumps,
    feed,
    ids_of,
    random_walk,
)

ARRAY = {"type": "array", "uniqueItems": True}
WORDS = {**ARRAY, "items": {"enum": ["a", "b", "ab", 1, None, True]}}
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "boolean"}, "b": {"enum": [1, 2]}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("whitespace", ["adaptive", "flexible"])
def test_items_are_equal_by_value(whitespace: str) -> None:
    grammar = compiled(ARRAY, whitespace=whitespace)
    for text in (
        "[]", "[1]", "[1, 2]", '["a", "b", 1, true, null, {}, []]', "[1, true]", "[0, false]",
        '[{"a": 1}, {"a": 2}]', '[{"a": 1}, {"b": 1}]', "[[1], [2], 1]", "[[1], [1, 1]]",
        '["", "a", "aa"]', "[9007199254740993, 9007199254740992]", '[[], {}, ""]', "[1, 10, 100]",
    ):  # fmt: skip
        assert accepts(grammar, text), text
    for text in (
        "[1, 1]", "[1, 1.0]", "[1, 1e0]", "[100, 1e2]", "[0, -0]", "[0, 0.0e5]", "[0.1, 1e-1]",
        '["a", "a"]', '["a", "\\u0061"]', '["/", "\\/"]', '["😀", "\\ud83d\\ude00"]',
        '[{"a": 1, "b": 2}, {"b": 2, "a": 1}]', "[[1], [1]]", "[[1], [1.0]]", "[null, null]",
        "[true, 1, true]", "[{}, {}]", '[{"a": [1, 2]}, {"a": [1, 2.0]}]', '[1, "x", 2, "x"]',
    ):  # fmt: skip
        assert not accepts(grammar, text), text


def test_white_space_makes_no_difference() -> None:
    grammar = compiled(ARRAY, whitespace="flexible")
    assert not accepts(grammar, '[{"a": [1]}, {  "a":[ 1 ] }]')
    assert accepts(grammar, '[{"a": [1]}, {  "a":[ 2 ] }]')


def test_a_repetition_ends_before_its_last_byte() -> None:
    matcher = compiled({**ARRAY, "items": {"type": "string"}}, whitespace="compact").start()
    assert feed(matcher, '["ab","ab')
    assert not matcher.is_allowed(ord('"'))
    assert matcher.is_allowed(ord("c"))
    assert feed(matcher, 'c"]')


def test_another_item_begins_only_if_one_is_left() -> None:
    matcher = compiled({**ARRAY, "items": {"enum": ["x", "y"]}}, whitespace="compact").start()
    assert feed(matcher, '["y","')
    assert matcher.forced_bytes() == b'x"]'
    assert feed(matcher, 'x"')
    assert not matcher.is_allowed(ord(","))


def test_what_has_to_come_is_kept_free() -> None:
    places = [{"enum": [1, 2]}, {"enum": [1, 2]}, {"enum": [1, 2, 3]}]
    schema = {**ARRAY, "prefixItems": places, "items": False, "minItems": 3}
    grammar = compiled(schema, whitespace="compact")
    assert accepts(grammar, "[2,1,3]")
    matcher = grammar.start()
    assert feed(matcher, "[1,2,")
    assert matcher.forced_bytes() == b"3"
    tail = {**ARRAY, "prefixItems": [{"enum": [1, 2, 3]}, {"const": 1}], "minItems": 2}
    first = compiled(tail, whitespace="compact").start()
    assert feed(first, "[")
    assert [chr(b) for b in range(256) if first.is_allowed(b)] == ["2", "3"]


def test_inner_and_outer_arrays() -> None:
    schema = {**ARRAY, "items": {**ARRAY, "items": {"enum": ["x", "y"]}}, "minItems": 5}
    grammar = compiled(schema, whitespace="compact")
    assert accepts(grammar, '[[],["x"],["y"],["x","y"],["y","x"]]')
    assert not accepts(grammar, '[[],["x"],["y"],["x","y"],["y","y"]]')
    matcher = grammar.start()
    assert feed(matcher, '[[],["x"],["y"],["x","y"],')
    assert matcher.forced_bytes() == b'["y","x"]]'


def test_only_the_arrays_that_say_so() -> None:
    schema = {
        "anyOf": [
            {**ARRAY, "items": {"type": "string"}},
            {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        ]
    }
    grammar = compiled(schema, whitespace="compact")
    assert accepts(grammar, '["a","a","b"]')
    assert not accepts(grammar, '["a","a","c"]')
    assert not accepts(grammar, '["a","b","a","c"]')
    assert accepts(compiled({"type": "array", "uniqueItems": False}), "[1, 1]")


def test_through_references_and_merging() -> None:
    schema = {
        "$defs": {"set": ARRAY, "tree": {**ARRAY, "items": {"$ref": "#/$defs/tree"}}},
        "type": "object",
        "properties": {
            "a": {"$ref": "#/$defs/set", "items": {"type": "integer"}},
            "b": {"allOf": [{"$ref": "#/$defs/set"}, {"items": {"enum": [1, 2]}}]},
            "c": {"$ref": "#/$defs/tree"},
        },
    }
    grammar = compiled(schema)
    assert accepts(grammar, '{"a": [1, 2], "b": [2, 1], "c": [[], [[]]]}')
    assert not accepts(grammar, '{"a": [1, 1], "b": [], "c": []}')
    assert not accepts(grammar, '{"a": [], "b": [2, 2], "c": []}')
    assert not accepts(grammar, '{"a": [], "b": [], "c": [[[]], [[]]]}')


def test_beside_contains() -> None:
    schema = {**WORDS, "contains": {"type": "string"}, "minContains": 2, "maxItems": 3}
    grammar = compiled(schema, whitespace="compact")
    assert accepts(grammar, '[1,"a","b"]')
    assert not accepts(grammar, '[1,null,"a"]')
    assert not accepts(grammar, '["a","a"]')


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({**ARRAY, "items": {"enum": ["a", "b"]}, "minItems": 3}, ""),
        ({**ARRAY, "items": {"enum": [1, 1.0, 2]}, "minItems": 3}, ""),
        ({"properties": {"x": {**ARRAY, "items": {"type": "null"}, "minItems": 2}},
          "required": ["x"], "type": "object"}, "/properties/x"),
        ({**ARRAY, "prefixItems": [{"const": 1}, {"const": 1}], "minItems": 2}, ""),
        ({**ARRAY, "items": {"type": "string", "pattern": "^[ab]$"}, "minItems": 3}, ""),
        ({**ARRAY, "items": {"type": "integer", "minimum": 1, "maximum": 9}, "minItems": 10}, ""),
        ({**ARRAY, "items": CLOSED, "minItems": 7}, ""),
        ({**WORDS, "contains": {"type": "string"}, "minContains": 4}, ""),
    ],
)  # fmt: skip
def test_too_few_values_are_found_when_compiling(schema: dict[str, Any], pointer: str) -> None:
    with pytest.raises(UnsatisfiableSchemaError) as caught:
        compiled(schema)
    assert (caught.value.pointer, caught.value.keyword) == (pointer, "uniqueItems")


def test_an_optional_array_that_nothing_fits_is_forbidden() -> None:
    full = {**ARRAY, "items": {"type": "boolean"}, "minItems": 3}
    grammar = compiled({"type": "object", "properties": {"a": full}, "additionalProperties": False})
    assert accepts(grammar, "{}")
    assert not feed(grammar.start(), '{"a')


def test_what_is_not_counted_is_refused_by_name() -> None:
    schema = {**WORDS, "prefixItems": [True], "contains": {"type": "string"}}
    with pytest.raises(UnsupportedSchemaError) as caught:
        compiled(schema)
    assert [(i.keyword, i.pointer) for i in caught.value.issues] == [("uniqueItems", "")]


SCHEMAS: list[dict[str, Any]] = [
    ARRAY,
    {**WORDS, "minItems": 4},
    {**ARRAY, "items": {"type": "integer", "minimum": 1, "maximum": 12}, "minItems": 9},
    {**ARRAY, "items": {"type": "string", "pattern": "^[ab]{1,2}$"}, "minItems": 3},
    {**ARRAY, "items": {"type": "string"}, "minItems": 3},
    {**ARRAY, "items": {**ARRAY, "maxItems": 2, "items": {"enum": ["a", "ab", 1]}}, "minItems": 3},
    {**ARRAY, "items": CLOSED, "minItems": 2},
    {
        "type": "object",
        "properties": {
            "t": {**ARRAY, "items": {"anyOf": [{"type": "string", "maxLength": 1}, CLOSED]}},
            "z": {"type": "integer"},
        },
        "required": ["t", "z"],
    },
]


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
@pytest.mark.parametrize("whitespace", ["compact", "adaptive", "flexible"])
def test_walks_are_sound_and_never_stuck(index: int, whitespace: str) -> None:
    schema, rng = SCHEMAS[index], random.Random(index)
    grammar = compiled(schema, whitespace=whitespace)
    validator = Draft202012Validator(schema)
    ended = 0
    for _ in range(4):
        text, done, _ = random_walk(grammar, rng, steps=20, limit=200)
        if done:
            ended += 1
            assert validator.is_valid(json.loads(text)), text
    assert ended


@pytest.mark.parametrize("index", range(len(SCHEMAS)))
def test_masks_are_those_of_brute_force(index: int) -> None:
    rng = random.Random(100 + index)
    for whitespace in ("compact", "adaptive"):
        grammar = compiled(SCHEMAS[index], whitespace=whitespace)
        _, _, path = random_walk(grammar, rng, steps=20, limit=40)
        for count in range(rng.randrange(12), min(len(path), 30), 12):
            matcher = grammar.start()
            for token in path[:count]:
                matcher.advance(token)
            assert ids_of(matcher.mask()) == brute_force(grammar, path[:count])


def test_rollback_is_replay() -> None:
    rng = random.Random(7)
    for schema in SCHEMAS:
        grammar = compiled(schema)
        _, _, path = random_walk(grammar, rng, steps=30, limit=40)
        matcher = grammar.start()
        for token in path:
            matcher.advance(token)
        for count in (len(path) // 3, len(path) // 4):
            matcher.rollback(count)
            path = path[: len(path) - count]
            fresh = grammar.start()
            for token in path:
                fresh.advance(token)
            assert ids_of(matcher.mask()) == ids_of(fresh.mask())
            assert matcher.is_accepting() == fresh.is_accepting()


def test_the_known_end_repeats_no_item() -> None:
    rng = random.Random(9)
    for schema in SCHEMAS[:6]:
        grammar = compiled(schema)
        for steps in range(0, 30, 6):
            matcher = grammar.start()
            for _ in range(steps):
                legal = [t for t in ids_of(matcher.mask()) if t not in VOCABULARY.eos]
                if legal:
                    matcher.advance(rng.choice(legal))
            size, end = matcher.distance(), matcher.shortest_end()
            assert end is not None
            assert size == sum(len(VOCABULARY.tokens[token]) for token in end)
            for token in end:
                matcher.advance(token)
            assert matcher.is_accepting()


SCALARS = (
    st.sampled_from(["a", "b", "ab", "", 0, 1, 1.5, True, False, None, 12, -1])
    | st.text("abé", max_size=3)
    | st.integers(-20, 20)
)
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("ab"), SCALARS)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(VALUES, max_size=6), st.sampled_from(["fixed", "compact", "pretty"]))
def test_exactly_the_arrays_of_different_items(items: list[Any], style: str) -> None:
    for whitespace in ("adaptive", "flexible"):
        valid = Draft202012Validator(ARRAY).is_valid(items)
        assert accepts(compiled(ARRAY, whitespace=whitespace), dumps(items, style)) == valid


@st.composite
def finite(draw: st.DrawFn) -> dict[str, Any]:
    """Arrays of few values, with bounds."""
    values = st.sampled_from([0, 1, 2, "a", "ab", "b", None, True])
    items = draw(
        st.lists(values, min_size=1, max_size=5).map(lambda listed: {"enum": listed})
        | st.just({"type": "integer", "minimum": 0, "maximum": 3})
        | st.just({"type": "string", "pattern": "^a?b?$"})
        | st.just({"type": ["boolean", "null"]})
        | st.just({"type": "array", "items": {"enum": [0, "a"]}, "maxItems": 1})
    )
    schema = {**ARRAY, "items": items, "minItems": draw(st.integers(0, 4))}
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(st.just({"enum": [0, "a"]}), min_size=1, max_size=3))
    if draw(st.booleans()):
        schema["maxItems"] = draw(st.integers(schema["minItems"], 5))
    return schema


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(finite(), st.randoms(use_true_random=False))
def test_few_values(schema: dict[str, Any], rng: random.Random) -> None:
    """Sound and never stuck, and what is found unsatisfiable is so."""
    validator = Draft202012Validator(schema)
    pool = [0, 1, 2, 3, "a", "ab", "b", "", None, True, False, [], [0], ["a"]]
    samples = [rng.sample(pool, rng.randrange(6)) for _ in range(60)]
    valid = [value for value in samples if validator.is_valid(value)]
    try:
        grammar = compiled(schema, whitespace="compact")
    except UnsatisfiableSchemaError:
        assert not valid
        return
    for value in valid:
        assert accepts(grammar, dumps(value, "compact")), value
    for _ in range(2):
        text, done, _ = random_walk(grammar, rng, steps=8, limit=120)
        assert done
        assert validator.is_valid(json.loads(text)), text


def test_numbers_as_keys() -> None:
    same = ("1", "1.0", "1e0", "10E-1", "0.1e+1")
    assert len({Number(text) for text in same}) == 1
    assert len({Number("9007199254740993"), Number("9007199254740992")}) == 2
    assert Number("9007199254740993") == Number("9007199254740993.0")
    assert value_of(True) != value_of(1)
    assert value_of({"a": 1, "b": [None]}) == value_of({"b": [None], "a": 1.0})


def test_what_an_item_may_still_become() -> None:
    def near(text: str) -> list[Any]:
        reader: Reader | None = Reader.opened(1)
        for byte in text.encode():
            assert reader is not None
            reader = reader.step(byte, watched=False)
        assert reader is not None
        return list(reader.levels[0].near)

    assert near('"ab","ac",') == ["ab", "ac"]
    assert near('"ab","ac","a') == ["ab", "ac"]
    assert near('"ab","ac","\\u0061c') == ["ac"]
    assert near('"ab","ac","ac"') == []
    assert near("12,1") == [Number("12")]
    assert near("12,13") == []
    assert near('{"a":1,"b":2},{"b":2') == [value_of({"a": 1, "b": 2})]
    assert near('{"a":1,"b":2},{"c"') == []


def test_the_tokens_that_end_a_string_by_what_they_add() -> None:
    texts = [b'ab"', b'a\\u0062", "', b'\xa9"', b'\xa9\\n"}', b'"', b'", "x"', b"ab", b'a\\"']
    texts.append(b'\\ud83d"')
    tokens = [bytes([b]) for b in range(256)] + texts
    vocabulary = Vocabulary([*tokens, b""], {}, [len(tokens)])
    closers = vocabulary.closers
    found = {body: [t - 256 for t in ts if t >= 256] for body, ts in closers.below(0, 0).items()}
    assert found[b"ab"] == [0, 1]
    assert found[b"\xa9"] == [2]
    assert found[b"\xa9\n"] == [3]
    assert found[b""] == [4, 5]
    assert set(found) == {b"ab", b"\xa9", b"\xa9\n", b""}
    node = vocabulary.trie.find(b'"')
    assert node is not None
    behind = closers.below(node, 1)
    assert [t - 256 for t in behind[b", "]] == [5]


@pytest.mark.parametrize("whitespace", ["adaptive", "flexible"])
@pytest.mark.parametrize(
    "begun",
    ['["a\\"b", "a', '["é", "É', '["ab", "a", "', '["a\\\\", "a\\\\', '["\\n", "', "[12, 1",
     "[1, "],
)  # fmt: skip
def test_masks_near_earlier_items(whitespace: str, begun: str) -> None:
    grammar = compiled({**ARRAY, "items": {"type": ["string", "integer"]}}, whitespace=whitespace)
    path = list(begun.encode())
    if begun.endswith("É"):
        path.pop()  # within a character that begins as the earlier one does
    matcher = grammar.start()
    assert feed(matcher, bytes(path))
    assert ids_of(matcher.mask()) == brute_force(grammar, path)


def test_the_way_to_the_end_is_one_of_different_items() -> None:
    schema = {**ARRAY, "items": {"type": "string"}, "minItems": 5}
    matcher = compiled(schema, whitespace="compact").start()
    for text in ("", '["a","', "b", '","b'):
        assert feed(matcher, text)
        tokens = matcher.shortest_end()
        assert tokens is not None
        assert matcher.distance() == sum(len(VOCABULARY.tokens[t]) or 1 for t in tokens)
        rest = matcher.copy()
        for at, token in enumerate(tokens):
            assert rest.shortest_end() == tokens[at:]
            rest.advance(token)
        assert rest.is_accepting()
