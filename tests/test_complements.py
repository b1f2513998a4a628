"""Complements of ``format`` and ``propertyNames``: what comes out is certainly not of the kind."""

from __future__ import annotations

import json
import random
from itertools import combinations
from typing import Any

import jsonschema_rs
import pytest
from jsonschema import Draft202012Validator

from grammar import UnsatisfiableSchemaError
from grammar.formats import WHOLE, format_language, may_be_of_format
from grammar.regular import RegexBuilder
from grammar.schema import keywords as kw
from tests.grammar_support import accepts, compiled, random_walk

OF_FORMAT = {
    "date": "2024-02-29",
    "time": "12:00:00Z",
    "date-time": "2024-02-29T12:00:00Z",
    "duration": "P3DT4H",
    "email": "a@b.org",
    "idn-email": "ä@b.org",
    "hostname": "a-1.example",
    "ipv4": "10.0.0.1",
    "ipv6": "fe80::1",
    "uri": "https://example.org/x",
    "iri": "https://example.org/ä",
    "uri-reference": "../a?b",
    "iri-reference": "ä",
    "uri-template": "/{a,b:3}{?c*}/ä%20",
    "idn-hostname": "bücher.example",
    "regex": "^(a|b)*[c-z]$",
    "uuid": "123e4567-e89b-12d3-a456-426614174000",
    "json-pointer": "/a/0",
    "relative-json-pointer": "1/a",
}
NEITHER = "some words, | that are nothing of the kind"
#: Not of the format, but near to it.
NEAR = {
    "date": "2023-02-29",
    "time": "12:00:00",
    "date-time": "2024-02-29 12:00:00Z",
    "duration": "P1Y1D",
    "email": "a.b.org",
    "hostname": "a b",
    "idn-hostname": "a b",
    "ipv4": "10.0.0.256",
    "ipv6": "1:2:3:4:5:6:7",
    "uri": "//example.org/x",
    "uri-reference": "a b",
    "iri": "ä",
    "iri-reference": "a\ue000",
    "uri-template": "{a",
    "uuid": "123e4567-e89b-12d3-a456-42661417400",
    "json-pointer": "/~",
    "relative-json-pointer": "01",
    "regex": "*a",
}


@pytest.mark.parametrize("name", sorted(OF_FORMAT))
def test_what_is_not_of_a_format_is_certainly_not(name: str) -> None:
    grammar = compiled({"type": "string", "not": {"format": name}})
    validator = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    assert not accepts(grammar, json.dumps(OF_FORMAT[name]))
    if name in NEAR:
        assert not validator.is_valid(NEAR[name])
        assert accepts(grammar, json.dumps(NEAR[name]))
    if name != "regex":
        assert accepts(grammar, json.dumps(NEITHER))
    assert any(name in bound for bound in grammar.report.bounds) == (name not in WHOLE)
    rng = random.Random(name)
    for _ in range(40):
        text, ended, _ = random_walk(grammar, rng, steps=rng.choice([3, 15]))
        if ended:
            assert not validator.is_valid(json.loads(text)), text


@pytest.mark.parametrize("name", sorted(OF_FORMAT))
def test_the_bound_of_a_format_holds_all_of_it(name: str) -> None:
    builder = RegexBuilder(budget=20_000_000)
    language, bound = format_language(builder, name), may_be_of_format(builder, name)
    assert language is not None
    assert builder.difference(language, bound).is_empty()


def test_every_format_has_a_complement() -> None:
    assert set(OF_FORMAT) == kw.FORMATS
    assert kw.FORMATS >= WHOLE


def test_strings_that_are_no_base64() -> None:
    grammar = compiled({"type": "string", "not": {"contentEncoding": "base64"}})
    for text in ("", "AAAA", "AA==", "AAA="):
        assert not accepts(grammar, json.dumps(text))
    for text in ("A", "AA=", "A===", "A A=", "AAA\n", "AA==AAAA"):
        assert accepts(grammar, json.dumps(text))
    with pytest.raises(UnsatisfiableSchemaError):
        compiled({"type": "string", "not": {"contentEncoding": "7bit"}})


def test_one_of_formats_is_exclusive() -> None:
    schema = {"oneOf": [{"format": "email"}, {"format": "uri"}], "type": "string"}
    grammar = compiled(schema)
    assert accepts(grammar, '"a@b.org"')
    assert accepts(grammar, '"https://example.org"')
    assert not accepts(grammar, '"mailto:a@b.org"')
    assert not accepts(grammar, '"neither"')


NAMES: dict[str, Any] = {
    "pattern": {"pattern": "^[a-c]+$"},
    "length": {"maxLength": 1},
    "enum": {"enum": ["a", "bb", "zz"]},
    "format": {"not": {"format": "email"}},
    "none": False,
}


@pytest.mark.parametrize("key_order", ["schema", "free"])
@pytest.mark.parametrize("name", NAMES)
def test_some_key_fails_property_names(name: str, key_order: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {}, "bb": {}},
        "not": {"propertyNames": NAMES[name]},
    }
    grammar = compiled(schema, key_order=key_order)
    checker = Draft202012Validator.FORMAT_CHECKER
    validator = Draft202012Validator(schema, format_checker=checker)
    counts = {True: 0, False: 0}
    for size in range(4):
        for keys in combinations(["a", "bb", "zz", "d", "x@y.org"], size):
            value = dict.fromkeys(keys, 1)
            valid = validator.is_valid(value)
            counts[valid] += 1
            assert accepts(grammar, json.dumps(value)) == valid, value
    assert counts[True]
    assert counts[False]
