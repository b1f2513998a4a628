"""``minProperties`` where few keys may be added: reached, or found to be unsatisfiable."""

from __future__ import annotations

import random
from typing import Any

import pytest

from grammar import UnsatisfiableSchemaError
from tests.grammar_support import accepts, compiled, random_walk

NULL = {"type": "null"}
EMPTY = {"properties": {"c": NULL}, "patternProperties": {"^$": NULL}}
CLOSED: dict[str, Any] = {"type": "object", "additionalProperties": False}
ORDERS = ("schema", "free")


@pytest.mark.parametrize("key_order", ORDERS)
@pytest.mark.parametrize(
    "schema",
    [
        {**CLOSED, **EMPTY, "minProperties": 3},
        {"type": "object", **EMPTY, "unevaluatedProperties": False, "minProperties": 3},
        {"type": "object", **EMPTY, "additionalProperties": {"allOf": [NULL, {"type": "array"}]}}
        | {"minProperties": 3},
        {**CLOSED, "patternProperties": {"^[ab]?$": NULL}, "minProperties": 4},
        {**CLOSED, "properties": {"a": False}, "patternProperties": {"^[ab]$": NULL}}
        | {"minProperties": 2},
        {"type": "object", "propertyNames": {"enum": ["c", "d"]}, "minProperties": 3},
        {"type": "object", "propertyNames": {"pattern": "^[0-9]{2}$"}, "minProperties": 101},
        {**CLOSED, "patternProperties": {"^a$": {"$ref": "#"}, "^b$": NULL}, "minProperties": 2},
    ],
)
def test_too_few_keys_are_found_when_compiling(schema: Any, key_order: str) -> None:
    with pytest.raises(UnsatisfiableSchemaError):
        compiled(schema, key_order=key_order)


@pytest.mark.parametrize("key_order", ORDERS)
@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {**CLOSED, "patternProperties": {"^[ab]$": NULL}, "minProperties": 2},
            ['{"a":null,"b":null}', '{"b":null,"a":null}'],
            ["{}", '{"a":null}', '{"b":null}', '{"a":null,"a":null}', '{"a":null,"c":null}'],
        ),
        (
            {**CLOSED, "properties": {"c": NULL}, "patternProperties": {"^[ab]$": NULL}}
            | {"minProperties": 2},
            ['{"c":null,"a":null}', '{"b":null,"a":null}', '{"c":null,"b":null,"a":null}'],
            ["{}", '{"c":null}', '{"b":null}', '{"c":null,"d":null}'],
        ),
        (
            {"type": "object", "propertyNames": {"pattern": "^[0-9]{2}$"}, "minProperties": 2}
            | {"additionalProperties": NULL},
            ['{"00":null,"99":null}', '{"10":null,"11":null,"12":null}'],
            ['{"00":null}', '{"1":null,"22":null}', '{"10":null,"10":null}'],
        ),
        (
            {**CLOSED, **EMPTY, "minProperties": 2},  # both, though each of them is optional
            ['{"c":null,"":null}'],
            ["{}", '{"c":null}', '{"":null}'],
        ),
        (
            {**CLOSED, **EMPTY, "required": ["c", ""], "minProperties": 2},
            ['{"c":null,"":null}'],
            ['{"c":null}', '{"":null}'],
        ),
    ],
)
def test_enough_keys_are_counted(
    schema: Any, good: list[str], bad: list[str], key_order: str
) -> None:
    grammar = compiled(schema, key_order=key_order)
    for text in good:
        assert accepts(grammar, text), text
    for text in bad:
        assert not accepts(grammar, text), text
    for seed in range(20):
        text, ended, _ = random_walk(grammar, random.Random(seed), steps=5, limit=400)
        assert not ended or text.count(b"null") >= schema["minProperties"]
