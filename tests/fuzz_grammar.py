"""Fuzz targets for the regular-expression and the JSON Schema front ends.

    python -m tests.fuzz regex|schema [libFuzzer's options]

``tests/test_fuzz.py`` runs both on random bytes. A target is a function of bytes and states these
invariants:

- The front end ends, and raises nothing but its documented errors.
- What it accepts never gets stuck: a place of a random legal walk that may not end has a legal
  token, and end-of-sequence tokens are legal exactly where the text may end.
- A walk that ends is right: the pattern's language holds the text; the JSON text parses, holds no
  key twice, and is valid for an independent validator (which is not asked about formats).
"""

from __future__ import annotations

import json
import random
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema import SchemaError as JsonSchemaError
from referencing.exceptions import Unresolvable

from grammar import Budget, GrammarSourceError, SchemaError, compile_json_schema, compile_regex
from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from tests.grammar_support import VOCABULARY, random_walk

BUDGET = Budget(rules=500, regex_steps=30_000)
PIECES = (
    *"abz09 _-/éabcab01",
    *".^$|()[]*+?\\",
    "(?:", "(?=", "(?!", "(?<=", "(?<!", "[^", "a-z", "\\d", "\\w", "\\s", "\\b", "\\B", "\\p{L}",
    "{2}", "{0,3}", "{1,}", "{9,99}", "*?", "\\u00e9", "\\x41", "\\n", "\\1", "(?<n>", "\\k<n>",
)  # fmt: skip
TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
NAMES = ("a", "b", "ab", "é", 'q"')
PATTERNS = ("^a", "b$", "^[a-c]{1,3}$", "(?!x)", "^\\d+$", "(", "a{3,2}")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, 1.0, -2, 2.5, 10**9, "", "a", "ab", [], [1], {}, {"a": 1}, "\ud800",
)  # fmt: skip


class Source:
    """Choices drawn from bytes; when these run out, the first of each."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, below: int) -> int:
        """A number from 0 to ``below - 1``."""
        if self._at >= len(self._data):
            return 0
        self._at += 1
        return self._data[self._at - 1] % below

    def one_of(self, choices: tuple[Any, ...]) -> Any:
        """One of the choices."""
        return choices[self.number(len(choices))]

    @property
    def is_spent(self) -> bool:
        """Whether no bytes are left."""
        return self._at >= len(self._data)


def pattern_of(source: Source) -> str:
    """A string that has some chance to be a pattern."""
    text = ""
    is_closed = source.number(4) > 0
    while not source.is_spent and len(text) < 60:
        text += source.one_of(PIECES)
    if not is_closed:
        return text
    text += "]" * (text.count("[") > text.count("]"))
    return text + ")" * (text.count("(") - text.count(")"))


def schema_of(source: Source, depth: int = 3) -> Any:
    """A schema, or nearly one: keywords may hold what they must not."""
    if source.is_spent or depth == 0:
        return source.one_of(({}, {"type": "string"}, {"type": "integer"}, True, False))

    def part() -> Any:
        return schema_of(source, depth - 1)

    def value() -> Any:
        return source.one_of(VALUES)

    def several() -> list[Any]:
        return [part() for _ in range(1 + source.number(2))]

    def named() -> dict[str, Any]:
        return {source.one_of(NAMES): part() for _ in range(1 + source.number(3))}

    makers: dict[str, Any] = {
        "type": lambda: source.one_of((*TYPES, ["string", "null"], "text", 3)),
        "properties": named,
        "required": lambda: [source.one_of(NAMES) for _ in range(source.number(3))],
        "items": part,
        "additionalProperties": part,
        "prefixItems": several,
        "patternProperties": lambda: {source.one_of(PATTERNS): part()},
        "propertyNames": part,
        "contains": part,
        "anyOf": several,
        "oneOf": several,
        "allOf": several,
        "not": part,
        "if": part,
        "then": part,
        "else": part,
        "dependentRequired": lambda: {source.one_of(NAMES): [source.one_of(NAMES)]},
        "enum": lambda: [value() for _ in range(1 + source.number(3))],
        "const": value,
        "pattern": lambda: source.one_of(PATTERNS),
        "$ref": lambda: source.one_of(("#", "#/$defs/a", "#/properties/a", "http://else.where/")),
        "$defs": named,
        "uniqueItems": lambda: source.one_of((True, False)),
    }
    counts = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
    bounds = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    schema: dict[str, Any] = {}
    for _ in range(1 + source.number(3)):
        keyword = source.one_of((*makers, *counts, *bounds))
        schema[keyword] = makers[keyword]() if keyword in makers else value()
    return schema


def fuzz_regex(data: bytes) -> bool:
    """One run of the regex front end; whether it accepted the pattern."""
    pattern = pattern_of(Source(data))
    try:
        grammar = compile_regex(pattern, VOCABULARY, budget=BUDGET)
    except GrammarSourceError:
        return False
    language = parse_full(RegexBuilder(), pattern)
    rng = random.Random(data)
    for _ in range(2):
        text, ended, _ = random_walk(grammar, rng, steps=6, limit=30)
        assert not ended or language.matches(text.decode()), (pattern, text)
    return True


def fuzz_schema(data: bytes) -> bool:
    """One run of the schema front end; whether it accepted the schema."""
    schema = schema_of(Source(data))
    try:
        grammar = compile_json_schema(schema, VOCABULARY, budget=BUDGET)
    except SchemaError:
        return False
    rng = random.Random(data)
    for _ in range(2):
        text, ended, _ = random_walk(grammar, rng, steps=10, limit=80)
        if ended:
            value = json.loads(text, object_pairs_hook=_without_repeats)
            assert _is_valid(schema, value), (schema, text)
    return True


def _is_valid(schema: Any, value: Any) -> bool:
    """What the validator says; it has no say where it finds the schema itself wrong, or where it
    goes round: through an ``if`` that has neither ``then`` nor ``else`` and refers to its schema,
    say, which asserts nothing."""
    try:
        Draft202012Validator.check_schema(schema)
        return Draft202012Validator(schema).is_valid(value)
    except (JsonSchemaError, Unresolvable, RecursionError):
        return True  # in an older draft's spelling, or in a part that asserts nothing
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # its native part, out of stack
            return True
        raise


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({key for key, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


TARGETS = {"regex": fuzz_regex, "schema": fuzz_schema}
