"""Finished answers against their whole schema: verdicts, reasons, drafts, and the bounds."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from grammar import SchemaError, compile_json_schema
from server.pointers import pointer_of, value_at
from server.validate import AnswerValidator
from server.violations import MAX_VIOLATIONS
from tests.grammar_support import VOCABULARY, random_walk
from tests.test_schema_corpus import lines

#: Matches aaa… in the end, after more steps than anybody has.
SLOW_PATTERN = "^(?:a?){30}a{30}$(?<=a)"


LATEST = "https://json-schema.org/draft/2020-12/schema"


def verdict(schema: Any, text: str) -> bool | None:
    return AnswerValidator(schema).check_text(text).valid


# --- verdicts and reasons ---------------------------------------------------------------------


def test_a_violation_says_where_and_what() -> None:
    schema = {"properties": {"a/b": {"type": "array", "items": {"uniqueItems": True}}}}
    found = AnswerValidator(schema).check_text('{"a/b": [[1, 2], [3, 3.0]]}')
    assert found.as_dict() == {
        "valid": False,
        "errors": [
            {
                "pointer": "/a~1b/1",
                "keyword": "uniqueItems",
                "schema_pointer": "/properties/a~1b/items/uniqueItems",
                "message": "[3,3.0] has non-unique elements",
            }
        ],
    }


def test_valid_is_short() -> None:
    assert AnswerValidator({"type": "object"}).check({}).as_dict() == {"valid": True}


LONG = "3" * 5000  # more digits than Python's integers are read from


@pytest.mark.parametrize(
    ("schema", "text", "valid"),
    [
        ({"type": "integer"}, LONG, True),
        ({"type": "integer", "maximum": 5}, "-" + LONG, True),
        ({"maximum": 5}, LONG, False),
        ({"type": "string"}, LONG, False),
        ({"multipleOf": 3}, LONG, True),
        ({"multipleOf": 7}, LONG, False),
        ({"uniqueItems": True}, f"[{LONG}, {LONG}]", False),
        ({"uniqueItems": True}, f"[{LONG}, {LONG}4]", True),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, LONG, True),
        ({"type": "number"}, "1e99999999999999999999", None),
    ],
)
def test_numbers_of_any_length_are_judged(schema: Any, text: str, valid: bool | None) -> None:
    found = AnswerValidator(schema).check_text(text)
    assert found.valid is valid
    assert all("JSON" not in violation.message for violation in found.violations)
    assert bool(found.violations) is (valid is False)


def test_a_number_of_a_million_digits_takes_no_time() -> None:
    started = time.thread_time()
    assert verdict({"type": "integer", "multipleOf": 3}, "3" * 1_000_000) is True
    assert time.thread_time() - started < 5  # as an integer: minutes


def test_many_violations_are_cut_short() -> None:
    found = AnswerValidator({"items": {"type": "string"}}).check([1] * 50)
    assert len(found.violations) == MAX_VIOLATIONS
    assert found.as_dict()["more_errors"] is True
    just = AnswerValidator({"items": {"type": "string"}}).check([1] * MAX_VIOLATIONS)
    assert "more_errors" not in just.as_dict()


def test_a_long_message_is_cut_in_the_middle() -> None:
    (only,) = AnswerValidator({"type": "integer"}).check("x" * 5000).violations
    assert len(only.message) < 320
    assert only.message.startswith('"xxx')
    assert only.message.endswith('is not of type "integer"')


@pytest.mark.parametrize("text", ["", "{", '{"a": NaN}', "[1,]", "01"])
def test_what_is_no_json_is_not_valid(text: str) -> None:
    found = AnswerValidator(True).check_text(text)
    assert found.valid is False
    assert found.violations[0].message.startswith("is not JSON: ")


@pytest.mark.parametrize(
    ("schema", "text", "valid"),
    [
        ({"type": "integer"}, "1.0", True),
        ({"type": "integer"}, "1e3", True),
        ({"exclusiveMinimum": 0.1}, "0.1", False),
        ({"exclusiveMinimum": 0.1}, "0.10000000000000000000000000000001", True),
        ({"maximum": 9007199254740993}, "9007199254740993.00001", False),
        ({"multipleOf": 0.01}, "1.15", True),
        ({"multipleOf": 0.1}, "0.30000000000000000000001", False),
        ({"maximum": 10**40}, "1" + "0" * 41, False),
        ({"pattern": "^\\d$"}, '"\u0663"', False),
        ({"pattern": "^(?=a).b"}, '"ab"', True),
        ({"maxLength": 1}, '"\U0001f600"', True),
        ({"format": "date"}, '"2024-02-30"', False),
        ({"format": "made-up"}, '"x"', True),
        ({"type": "string", "nullable": True}, "null", True),
        ({"type": "string", "nullable": False}, "null", False),
        ({"enum": [{"type": "null", "nullable": True}]}, '{"type":"null","nullable":true}', True),
    ],
)  # fmt: skip
def test_the_schema_is_read_as_the_grammar_reads_it(schema: Any, text: str, valid: bool) -> None:
    assert verdict(schema, text) is valid


@pytest.mark.parametrize(
    ("schema", "text", "valid"),
    [
        ({"items": [{"type": "string"}]}, "[1]", False),
        ({"items": [{"type": "string"}], "additionalItems": False}, '["a", 1]', False),
        ({"minimum": 3, "exclusiveMinimum": True}, "3", False),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, "1.0", True),
        ({"$schema": "https://example.org/mine", "type": "integer"}, '"a"', False),
        ({"$schema": "http://json-schema.org/draft-07/schema", "items": [False]}, "[1]", False),
        ({"$schema": LATEST, "items": [False]}, "[1]", False),
        (False, "1", False),
        (True, "1", True),
    ],
)  # fmt: skip
def test_every_draft(schema: Any, text: str, valid: bool) -> None:
    assert verdict(schema, text) is valid


# --- what can't be decided --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ({"$ref": "https://example.org/x.json"}, 1, "no validator can be made of the schema"),
        ({"pattern": SLOW_PATTERN}, "a" * 30, "too many steps"),
        ({"anyOf": [{"pattern": SLOW_PATTERN}]}, "a" * 30, "too many steps"),
        (True, "\ud800", "surrogate"),
    ],
)
def test_what_the_validator_cannot_tell(schema: Any, value: Any, reason: str) -> None:
    found = AnswerValidator(schema).check_text(json.dumps(value))
    assert found.valid is None
    assert found.reason is not None
    assert reason in found.reason


@pytest.mark.parametrize("depth", [501, 5_000])
def test_deep_values_are_not_looked_at(depth: int) -> None:
    validator = AnswerValidator({"items": {"$ref": "#"}})
    assert validator.check_text("[" * depth + "]" * depth).valid is None
    assert validator.check_text('["' + "[" * depth + '"]').valid is True, "text is not depth"
    assert validator.check_text("[" + ",".join(["[]"] * depth) + "]").valid is True


def test_which_keywords_are_checked() -> None:
    validator = AnswerValidator(
        {"properties": {"a": {"format": "regex"}, "b": {"format": "made-up"}}}
    )
    assert validator.checks("format", "/properties/a")
    assert not validator.checks("format", "/properties/b")
    assert not validator.checks("format", "/properties/c")
    assert validator.checks("uniqueItems", "/properties/a")
    assert not validator.checks("contentEncoding", "")
    assert not AnswerValidator({"$ref": "https://example.org/x"}).checks("uniqueItems", "")


# --- bounds -----------------------------------------------------------------------------------

#: Each level of a value is looked at by two branches, so that errors double with it.
DOUBLING = {
    "anyOf": {
        "anyOf": [
            {"type": "array", "items": {"$ref": "#"}, "contains": {"const": 5}},
            {"type": "array", "items": {"$ref": "#"}},
            {"type": "integer"},
        ]
    },
    "oneOf": {
        "oneOf": [
            {"type": "array", "items": {"$ref": "#"}, "maxItems": 1},
            {"type": "array", "items": {"$ref": "#"}, "minItems": 2},
            {"type": "integer"},
        ]
    },
    "allOf": {
        "allOf": [
            {"type": ["array", "integer"], "items": {"$ref": "#"}},
            {"prefixItems": [{"$ref": "#"}]},
        ]
    },
    "anchor": {
        "$anchor": "me",
        "anyOf": [{"items": {"$ref": "#me"}, "type": "array"}, {"items": {"$ref": "#me"}}],
        "type": ["array", "integer"],
    },
    "names": {
        "anyOf": [
            {"type": "object", "additionalProperties": {"$ref": "#"}},
            {"type": "object", "patternProperties": {"": {"$ref": "#"}}},
            {"type": "integer"},
        ]
    },
}


@pytest.mark.parametrize("name", DOUBLING)
@pytest.mark.parametrize("depth", [3, 14, 60, 400])
def test_reasons_are_found_in_bounded_time(name: str, depth: int) -> None:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value} if name == "names" else [value]
    validator = AnswerValidator(DOUBLING[name])
    begun = time.thread_time()
    found = validator.check(value)
    assert time.thread_time() - begun < 2
    assert found.valid is False
    assert len(found.violations) >= 1


def test_large_plain_values_are_listed() -> None:
    schema = {
        "items": {
            "properties": {
                "a": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                "b": {"maxLength": 3},
            }
        }
    }
    value = [{"a": i, "b": "abc"} for i in range(600)] + [{"a": "x", "b": "abcd"}]
    found = AnswerValidator(schema).check(value)
    assert [v.pointer for v in found.violations] == ["/600/a", "/600/b"]


# --- agreement with the grammar ---------------------------------------------------------------


def test_what_the_grammar_makes_is_valid(shared_dir: Path) -> None:
    """A strict answer that the validator refuses would be an error 500: there must be none."""
    rng = random.Random(11)
    seen = 0
    real = list(lines(shared_dir / "data/jsonschemabench/dev.jsonl.gz"))
    official = list(lines(shared_dir / "data/json-schema-test-suite/draft2020-12.jsonl.gz"))
    for case in rng.sample(real, 80) + rng.sample(official, 80):
        try:
            grammar = compile_json_schema(case["schema"], VOCABULARY)
        except SchemaError:
            continue
        validator = AnswerValidator(case["schema"])
        assert validator.problem is None, case["id"]
        for _ in range(3):
            text, ended, _ = random_walk(grammar, rng, steps=12, limit=120)
            if ended:
                seen += 1
                assert validator.check_text(text.decode()).valid is True, (case["id"], text)
    assert seen > 100


# --- pointers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "pointer"), [((), ""), (("a", 0), "/a/0"), (("a/b", "c~d", ""), "/a~1b/c~0d/")]
)
def test_pointers(path: tuple[str | int, ...], pointer: str) -> None:
    assert pointer_of(path) == pointer


def test_what_a_pointer_leads_to() -> None:
    value = {"a/b": [{"c~": 1}]}
    assert value_at(value, "") == value
    assert value_at(value, "/a~1b/0/c~0") == 1
    assert value_at(value, "/a~1b/1") is None
    assert value_at(value, "/x/y") is None
