"""Plain subschemas go straight to rules: the same grammar, report and errors as by the detour."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from grammar import Grammar, SchemaError
from grammar.schema.compile import compile_json_schema
from grammar.schema.compiler import SchemaCompiler
from tests.grammar_support import VOCABULARY

NAME = {"type": "string", "description": "a name"}
SCHEMAS: dict[str, Any] = {
    "object": {
        "type": "object",
        "title": "T",
        "properties": {"a": NAME, "b/c": {"type": "integer", "minimum": 0}, "d~": {}},
        "required": ["a", "z"],
        "unheard-of": 1,
    },
    "closed": {"type": "object", "properties": {"a": {"enum": ["x", "y", "x"]}, "b": True},
               "additionalProperties": False, "required": ["b"]},
    "typed extras": {"type": "object", "additionalProperties": {"type": ["null", "boolean"]}},
    "array": {"type": "array", "items": {"const": "k"}, "minItems": 1, "maxItems": 2},
    "different": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True},
    "anything": {},
    "references": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"$ref": "#/$defs/leaf"}, "n": {"$ref": "#/$defs/node"}},
                "additionalProperties": False,
            },
            "leaf": {"type": "boolean", "format": "no such"},
        },
    },
    "neighbours": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/a", "minLength": 3}},
        "additionalProperties": False,
        "definitions": {"a": {"type": "string", "maxLength": 2}},
    },
    "anyOf": {"anyOf": [{"type": "null"}, {"type": "array", "items": {"type": "null"}}]},
    "oneOf": {"oneOf": [{"type": "null"}, {"type": "string", "maxLength": 1}]},
    "oneOf of one type": {"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 3}]},
    "no end": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    "no such": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
    "itself": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
    "nothing": {"type": "object", "properties": {"a": False}, "required": ["a"]},
    "too few": {"type": "array", "items": False, "minItems": 1},
    "no list": {"type": "object", "required": "a"},
    "no names": {"type": "object", "required": [1]},
    "no schema": {"type": "object", "properties": {"a": [1]}},
    "no count": {"type": "array", "minItems": -1},
}  # fmt: skip


def made(schema: Any, whitespace: str) -> Grammar | str:
    """The grammar, or what the error says."""
    try:
        return compile_json_schema(schema, VOCABULARY, whitespace=whitespace, strict=False)
    except SchemaError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("whitespace", ["flexible", "adaptive"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_both_ways_make_the_same(
    name: str, whitespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    direct = made(SCHEMAS[name], whitespace)
    monkeypatch.setattr(SchemaCompiler, "_is_plain", lambda *_: False)
    detour = made(SCHEMAS[name], whitespace)
    if isinstance(direct, str) or isinstance(detour, str):
        assert direct == detour
        return
    assert direct.report == detour.report
    rng = random.Random(name)
    for _ in range(10):
        one, other = direct.start(), detour.start()
        for _ in range(40):
            mask = one.mask()
            assert np.array_equal(mask, other.mask())
            assert one.is_accepting() == other.is_accepting()
            bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
            legal = [t for t in np.flatnonzero(bits).tolist() if t not in VOCABULARY.eos]
            if not legal:
                break
            token = rng.choice(legal)
            one.advance(token)
            other.advance(token)
