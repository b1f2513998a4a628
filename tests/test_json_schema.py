"""What each keyword makes of the output: texts that must be accepted, and ones that must not."""

from __future__ import annotations

from typing import Any

import pytest

from grammar import (
    Budget,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from tests.grammar_support import accepts, compiled, feed

# schema, accepted texts, rejected texts (in the fixed style)
CASES: list[tuple[Any, list[str], list[str]]] = [
    (True, ["1", '"a"', "{}", "[1, {}]", "null"], ["", "1 2", "[1,2]"]),
    ({"type": "null"}, ["null"], ["true", "nul"]),
    ({"type": "boolean"}, ["true", "false"], ["True", "1"]),
    (
        {"type": "integer"},
        ["0", "-7", "123456789012345678901234567890", "1.0"],
        ["01", "1.5", "-0", "+1", "1e3", "", "1.00", "1."],
    ),
    (
        {"type": "number"},
        ["0", "-0.5", "1.25", "1e10", "2E-3", "123"],
        [".5", "1.", "01", "1e", "--1", "NaN", "Infinity", "1e999"],
    ),
    (
        {"type": "integer", "minimum": -5, "maximum": 120},
        ["-5", "-1", "0", "99", "120"],
        ["-6", "121", "1000", "-10"],
    ),
    (
        {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 10.5},
        ["1", "10"],
        ["0", "11", "-1"],
    ),
    (
        {"type": "number", "minimum": 0.1, "exclusiveMaximum": 2},
        ["0.1", "0.10", "1.999", "1"],
        ["0.09", "2", "2.0", "-1"],
    ),
    (
        {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        ["0.5", "1"],
        ["0", "0.0", "-1"],
    ),
    ({"type": "integer", "multipleOf": 7}, ["0", "7", "-14", "7007"], ["1", "8", "70.7"]),
    ({"type": "number", "multipleOf": 0.25, "minimum": -1}, ["0.5", "-0.75", "3"], ["0.3", "-2"]),
    ({"type": "string", "pattern": "^[\U0001F600-\U0001F64F]$"},
     ['"😀"', '"\\ud83d\\ude00"', '"\\uD83D\\uDE4F"'], ['"\\ud83d\\ude50"', '"\\ud83c\\ude00"']),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"日本é"', '"\\u0041b"'],
     ['"a"', '"abcd"', '"日"']),
    ({"type": "string", "maxLength": 1}, ['"😀"', '"\\ud83d\\ude00"', '""'], ['"😀a"']),
    ({"type": "string", "pattern": "[0-9]"}, ['"a7b"', '"\\u0037"'], ['"abc"', '""']),
    ({"type": "string", "pattern": "^a|b$"}, ['"axx"', '"xb"'], ['"xa"', '"bx"']),
    ({"type": "string", "pattern": "^\\d{3}$", "minLength": 3}, ['"123"'], ['"12"', '"1234"']),
    ({"type": "string", "pattern": "^(ab)*$", "minLength": 3, "maxLength": 5}, ['"abab"'],
     ['"ab"', '"ababab"']),
    ({"type": "string", "pattern": '^"\\\\"$'}, [], ['"""']),
    ({"type": "string", "pattern": "^indeed\\!\\-\\_$"}, ['"indeed!-_"'], ['"indeed"']),
    ({"type": "string", "format": "date"}, ['"2024-02-29"'], ['"2023-02-29"', '"2024-2-9"']),
    ({"type": "string", "format": "uuid"}, ['"123e4567-e89b-12d3-a456-426614174000"'], ['"123"']),
    ({"type": "string", "format": "ipv4"}, ['"10.0.0.255"'], ['"10.0.0.256"', '"1.2.3"']),
    ({"enum": [1, "a", None, True, [1, {"k": []}], 2.5]},
     ["1", '"a"', "null", "true", '[1, {"k": []}]', "2.5"], ["2", '"b"', "false", "[1]"]),
    ({"const": {"a": "é\n", "b": [1, 2]}}, ['{"a": "é\\n", "b": [1, 2]}'], ['{"a": "é\\n"}']),
    ({"enum": ["a", "ab", 3], "type": "string", "minLength": 2}, ['"ab"'], ['"a"', "3"]),
    ({"type": ["string", "null"]}, ['"x"', "null"], ["1"]),
    ({"type": "string", "nullable": True}, ['"x"', "null"], ["1"]),
    ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
     ["1", "[1, 2]"], ['"a"', "[null]"]),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {}},
         "required": ["a", "c"], "additionalProperties": False},
        ['{"a": 1, "c": 2}', '{"a": 1, "b": {}, "c": []}'],
        ['{"a": 1}', '{"c": 1, "a": 2}', '{"a": 1, "c": 2, "d": 3}', '{"a": "x", "c": 1}', "{}"],
    ),
    (
        {"type": "object", "properties": {"a": {"type": "integer"}}},
        ["{}", '{"a": 1}', '{"a": 1, "z": [], "ab": 0, "": 1}', '{"z": 1}'],
        ['{"a": "x"}', '{"z": 1, "a": 1}', '{"\\u0061": "x"}', '{"z": 1, "\\u0061": 1}'],
    ),
    (
        {"type": "object", "properties": {"a": {}}, "additionalProperties": {"type": "null"}},
        ['{"a": 1, "x": null}', '{"x": null, "y": null}'],
        ['{"x": 1}', '{"a": 1, "x": 2}'],
    ),
    ({"type": "object", "required": ["z"]}, ['{"z": 1}', '{"z": 1, "a": 2}'], ["{}", '{"a": 1}']),
    (
        {"type": "object", "properties": {'q"\\é': {"type": "null"}}, "required": ['q"\\é'],
         "additionalProperties": False},
        ['{"q\\"\\\\é": null}'],
        ["{}"],
    ),
    (
        {"type": "object", "patternProperties": {"^n": {"type": "integer"}, "s$": {"minimum": 5}},
         "additionalProperties": False},
        ['{"n": 1, "ns": 7, "s": "any"}', "{}"],
        ['{"n": "x"}', '{"ns": 3}', '{"q": 1}'],
    ),
    (
        {"type": "object", "properties": {"na": {}}, "patternProperties": {"^n": {"type": "null"}}},
        ['{"na": null}', '{"x": 1}'],
        ['{"na": 1}', '{"nb": 1}'],
    ),
    (
        {"type": "object", "propertyNames": {"pattern": "^[a-z]+$", "maxLength": 2}},
        ['{"ab": 1}', "{}"],
        ['{"abc": 1}', '{"A": 1}', '{"": 1}'],
    ),
    ({"type": "object", "properties": {"a": False, "b": {}}}, ['{"b": 1}', "{}"], ['{"a": 1}']),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3},
     ["[1]", "[1, 2, 3]"], ["[]", "[1, 2, 3, 4]", '["a"]', "[1,2]"]),
    ({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
     ["[]", "[1]", '[1, "a"]'], ['["a"]', '[1, "a", 2]']),
    ({"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "null"}},
     ["[]", "[1]", "[1, null, null]"], ["[1, 1]", "[null]"]),
    ({"type": "array", "maxItems": 0}, ["[]"], ["[1]"]),
    ({"type": "array", "items": False}, ["[]"], ["[1]"]),
    (
        {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
            "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}},
            "required": ["v"], "additionalProperties": False}}},
        ['{"v": 1}', '{"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3}]}'],
        ['{"kids": []}', '{"v": 1, "kids": [1]}'],
    ),
    (
        {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
        ["[]", "[null, [[]]]"], ["[1]", "null"],
    ),
    (
        {"properties": {"a/b~c": {"type": "null"}, "d": {"$ref": "#/properties/a~1b~0c"}},
         "type": "object"},
        ['{"d": null}'], ['{"d": 1}'],
    ),
    ({"$defs": {"x": {"$anchor": "here", "type": "integer"}}, "$ref": "#here"}, ["1"], ['"a"']),
    ({"$id": "http://x.test/s", "$ref": "t", "$defs": {"t": {"$id": "t", "type": "null"}}},
     ["null"], ["1"]),
    (
        {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                   {"properties": {"a": {"minimum": 3}, "b": {"type": "null"}}}]},
        ['{"a": 3, "b": null}', '{"a": 7}'], ['{"a": 2}', "{}", '{"a": 3, "b": 1}'],
    ),
    ({"$ref": "#/$defs/n", "minimum": 5, "$defs": {"n": {"type": "integer"}}}, ["5"], ["4", "5.5"]),
    (
        {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/n",
         "minimum": 5, "definitions": {"n": {"type": "integer"}}},
        ["4"], ["4.5"],
    ),
    (
        {"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}, "x": {"type": "integer"}},
                    "required": ["k", "x"]},
                   {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]},
        ['{"k": "a", "x": 1}', '{"k": "b"}'], ['{"k": "a"}', '{"k": "c"}'],
    ),
    ({"type": "array", "unevaluatedItems": False, "prefixItems": [{}]}, ["[1]"], ["[1, 2]"]),
    ({"not": {"type": "null"}}, ["1", '"a"', "{}"], ["null"]),
    ({"not": {"type": "integer"}, "type": "number"}, ["1.5", "-0.25"], ["1", "1.0", "-3.00", "0"]),
    ({"not": {"enum": [1, "a", None]}}, ["2", "1.5", '"b"', '"aa"', "true"],
     ["1", "1.0", '"a"', '"\\u0061"', "null"]),
    ({"type": "string", "not": {"pattern": "^a", "maxLength": 3}}, ['"b"', '"abcd"'], ['"ab"']),
    ({"type": "number", "not": {"multipleOf": 0.5}}, ["0.3", "7.25"], ["0.5", "7", "7.50", "0"]),
    ({"type": "number", "not": {"minimum": 2, "maximum": 5}}, ["1", "5.5"], ["2", "3.1", "5"]),
    ({"type": "object", "not": {"required": ["a"]}}, ["{}", '{"b": 1}'], ['{"a": 1}']),
    ({"type": "object", "not": {"properties": {"a": {"type": "null"}}}}, ['{"a": 1}'],
     ["{}", '{"a": null}', '{"b": 1}']),
    ({"type": "object", "not": {"additionalProperties": {"type": "null"}}},
     ['{"a": 1}', '{"a": null, "b": 2}'], ["{}", '{"a": null}']),
    ({"type": "object", "not": {"minProperties": 2}}, ["{}", '{"a": 1}'], ['{"a": 1, "b": 2}']),
    ({"type": "array", "not": {"items": {"type": "null"}}}, ["[1]", "[null, 2, null]"],
     ["[]", "[null]"]),
    ({"not": {"not": {"type": "string"}}}, ['"a"'], ["1"]),
    ({"not": {"anyOf": [{"type": "string"}, {"type": "object"}]}}, ["1", "[]"], ['"a"', "{}"]),
    ({"not": {"allOf": [{"minimum": 3}, {"type": "number"}]}}, ["2", '"a"'], ["3"]),
    ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, ["1", "3.5", '"a"'], ["3", "2.5", "4.0"]),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object",
      "properties": {"a": {}, "b": {}}}, ['{"a": 1}', '{"b": 1}'], ["{}", '{"a": 1, "b": 1}']),
    ({"if": {"properties": {"k": {"const": "x"}}, "required": ["k"]},
      "then": {"required": ["v"]}, "else": {"maxProperties": 1}, "type": "object",
      "properties": {"k": {"type": "string"}, "v": {}}},
     ['{"k": "x", "v": 1}', '{"k": "y"}', '{"v": 1}', "{}"], ['{"k": "x"}', '{"k": "y", "v": 1}']),
    ({"type": "object", "properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
     ["{}", '{"b": 1}', '{"a": 1, "b": 1}', '{"c": 1}'], ['{"a": 1}']),
    ({"type": "object", "dependentSchemas": {"a": {"properties": {"b": {"type": "null"}}}}},
     ['{"b": null, "a": 1}', '{"b": 1}', '{"a": 1}'], ['{"b": 1, "a": 1}']),
    ({"type": "object", "dependencies": {"a": ["b"], "c": {"maxProperties": 1}}},
     ['{"c": 1}', '{"a": 1, "b": 1}'], ['{"a": 1}', '{"c": 1, "d": 1}']),
    ({"type": "object", "minProperties": 2, "maxProperties": 3, "properties": {"a": {}}},
     ['{"a": 1, "b": 1}', '{"x": 1, "y": 1, "z": 1}'],
     ["{}", '{"a": 1}', '{"a": 1, "b": 1, "c": 1, "d": 1}', '{"b": 1, "b": 1}']),
    ({"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"],
      "minProperties": 2, "maxProperties": 2, "additionalProperties": False},
     ['{"a": 1, "b": 1}', '{"b": 1, "c": 1}'], ['{"b": 1}', '{"a": 1, "b": 1, "c": 1}']),
    ({"type": "array", "contains": {"type": "null"}}, ["[null]", "[1, null, 2, null]"],
     ["[]", "[1]"]),
    ({"type": "array", "contains": {"minimum": 5}, "minContains": 2, "maxContains": 3,
      "items": {"type": "integer"}, "maxItems": 5},
     ["[5, 6]", "[1, 5, 2, 6, 7]"], ["[5]", "[5, 6, 7, 8]", "[1, 2, 3, 4, 5]"]),
    ({"type": "array", "prefixItems": [True], "contains": {"type": "string"},
      "unevaluatedItems": {"type": "null"}},
     ['["a"]', '[1, "a", null]', '[1, null, "a", "b"]'], ["[1, 2]", '["a", 2]', "[1, null]"]),
    ({"type": "array", "allOf": [{"contains": {"const": n}} for n in range(5)]},
     ["[4, 3, 2, 1, 0]", "[0, 0, 1, 2, 7, 3, 4]"], ["[0, 1, 2, 3]", "[]"]),
    ({"type": "array", "contains": {"const": 1}, "minContains": 0, "maxContains": 1},
     ["[]", "[1, 2]"], ["[1, 1]", "[1.0, 1]"]),
    ({"type": "string", "contentEncoding": "base64"}, ['""', '"YQ=="', '"YWJj"'], ['"YQ"', '"a"']),
    ({"allOf": [{"properties": {"a": {"type": "null"}}}], "properties": {"b": {}},
      "unevaluatedProperties": False, "type": "object"},
     ['{"a": null, "b": 1}', "{}"], ['{"c": 1}', '{"a": 1}']),
    ({"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]},
                {"properties": {"b": {"const": 2}}, "required": ["b"]}],
      "unevaluatedProperties": False, "type": "object"},
     ['{"a": 1}', '{"b": 2}', '{"a": 1, "b": 2}'], ["{}", '{"a": 1, "b": 3}', '{"a": 1, "c": 1}']),
    ({"$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n", "type": "null"}}}, ["null"],
     ["1"]),
    ({"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False}, ['{"a": 1}'],
     ['{"b": 1}']),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_keyword(number: int) -> None:
    schema, good, bad = CASES[number]
    grammar = compiled(schema, whitespace="fixed")
    for text in good:
        assert accepts(grammar, text), (schema, text)
    for text in bad:
        assert not accepts(grammar, text), (schema, text)


STRING = compiled({"type": "string"})


@pytest.mark.parametrize(
    "body",
    ["", "a", "é", "日本", "😀", '\\"', "\\\\", "\\/", "\\b\\f\\n\\r\\t", "\\u0000", "\\u00e9",
     "\\uD83D\\uDE00", "\\ud83d\\ude00", "\\uFFFF", "\x7f", "\u2028"],
)  # fmt: skip
def test_every_spelling_that_a_reader_must_accept(body: str) -> None:
    assert accepts(STRING, f'"{body}"')


@pytest.mark.parametrize(
    "body",
    [b"\n", b"\t", b"\x00", b"\x1f", b"\\x", b"\\u12", b"\\u12g4", b"\\ud83d", b"\\ude00",
     b"\\ud83d\\u0041", b"\\ud83dx", b"\\ud83d\\n", b"\xff", b"\xc3", b"\xc0\xaf", b"\xc1\xbf",
     b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80",
     b"\xf5\x80\x80\x80",
     b"\x80", b"a\xe6\x97", b'"'],
)  # fmt: skip
def test_no_other_spelling(body: bytes) -> None:
    assert not accepts(STRING, b'"' + body + b'"')


STYLES = {
    "fixed": '{"a": [1, 2], "b": {}}',
    "compact": '{"a":[1,2],"b":{}}',
    "pretty": '{\n  "a": [\n    1,\n    2\n  ],\n  "b": {}\n}',
    "four": '{\n    "a": [\n        1,\n        2\n    ],\n    "b": {}\n}',
    "tab": '{\n\t"a": [\n\t\t1,\n\t\t2\n\t],\n\t"b": {}\n}',
    "loose": '{ "a" :[1 ,2 ]\n,"b":{ } }',
    "mixed": '{"a": [1,2], "b": {}}',
}
ALLOWED = {
    "fixed": {"fixed"},
    "compact": {"compact"},
    "pretty": {"pretty"},
    "adaptive": {"fixed", "compact", "pretty", "four", "tab"},
    "flexible": set(STYLES),
}


@pytest.mark.parametrize("mode", list(ALLOWED))
def test_white_space(mode: str) -> None:
    grammar = compiled({"type": "object"}, whitespace=mode)
    assert {name for name, text in STYLES.items() if accepts(grammar, text)} == ALLOWED[mode]


DRAFT_4 = "http://json-schema.org/draft-04/schema"
DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def test_adaptive_is_settled_by_the_first_gap() -> None:
    grammar = compiled({"type": "object"}, whitespace="adaptive")
    matcher = grammar.start()
    assert feed(matcher, '{"a": ')
    assert feed(matcher, "[1")
    after = matcher.copy()
    assert feed(after, ", 2]")
    assert not feed(matcher, ",2")


def test_white_space_is_bounded() -> None:
    grammar = compiled({"type": "object"}, whitespace="flexible")
    matcher = grammar.start()
    assert feed(matcher, "{\n\n" + " " * 128)
    assert not feed(matcher, " ")


def test_large_bounds_are_cheap() -> None:
    grammar = compiled({"type": "string", "minLength": 9_990, "maxLength": 10_000})
    matcher = grammar.start()
    assert feed(matcher, '"' + "a" * 90)
    first = matcher.mask()
    assert feed(matcher, "a" * 500)
    assert (matcher.mask() == first).all()
    assert feed(matcher, "a" * (9_990 - 590))
    assert feed(matcher.copy(), '"')
    assert feed(matcher, "a" * 10)
    assert not matcher.is_allowed(ord("a"))
    assert feed(matcher, '"')
    huge = compiled({"type": "array", "minItems": 10**9, "maxItems": 10**12, "items": {}})
    assert feed(huge.start(), "[1, 2")
    wide = compiled({"type": "string", "pattern": "^[a-c]+$", "maxLength": 10**9})
    assert feed(wide.start(), '"abc"')


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (False, ""),
        ({"type": "string", "minLength": 3, "maxLength": 2}, ""),
        ({"type": "string", "pattern": "^a$", "minLength": 2}, ""),
        ({"type": "integer", "minimum": 3, "maximum": 2}, ""),
        ({"type": "integer", "minimum": 1.2, "maximum": 1.8}, ""),
        ({"enum": []}, ""),
        ({"enum": [1], "type": "string"}, ""),
        ({"type": "array", "minItems": 2, "maxItems": 1}, ""),
        ({"type": "array", "minItems": 1, "items": False}, "/items"),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "/properties/a"),
        ({"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}, "/properties/a"),
        ({"type": "object", "required": ["b"], "additionalProperties": False},
         "/additionalProperties"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, ""),
        ({"anyOf": [False, {"type": "array", "minItems": 1, "items": {"$ref": "#"}}]},
         "/anyOf/1/items"),
        ({"type": "object", "properties": {"self": {"$ref": "#"}}, "required": ["self"]},
         "/properties/self"),
        ({"not": {}}, ""), ({"type": "string", "not": {"type": "string"}}, ""),
        ({"type": "object", "maxProperties": 1, "required": ["a", "b"]}, ""),
        ({"type": "array", "contains": {"type": "null"}, "items": {"type": "string"}}, ""),
        ({"type": "array", "contains": {}, "minContains": 3, "maxItems": 2}, ""),
    ],
)  # fmt: skip
def test_contradictions_are_found_when_compiling(schema: Any, pointer: str) -> None:
    with pytest.raises(UnsatisfiableSchemaError) as error:
        compiled(schema)
    assert error.value.pointer == pointer


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    [
        ({"type": "strin"}, "type", ""),
        ({"type": []}, "type", ""),
        ({"type": [["string"]]}, "type", ""),
        ({"properties": {"a": {"minLength": -1, "type": "string"}}}, "minLength", "/properties/a"),
        ({"type": "string", "maxLength": "3"}, "maxLength", ""),
        ({"type": "string", "pattern": "("}, "pattern", ""),
        ({"type": "string", "pattern": 3}, "pattern", ""),
        ({"type": "number", "minimum": "3"}, "minimum", ""),
        ({"type": "number", "multipleOf": 0}, "multipleOf", ""),
        ({"type": "object", "required": "a"}, "required", ""),
        ({"type": "object", "properties": []}, "properties", ""),
        ({"anyOf": []}, "anyOf", ""),
        ({"enum": "a"}, "enum", ""),
        ({"$ref": "#/$defs/none"}, "$ref", ""),
        ({"$ref": "http://elsewhere.test/schema"}, "$ref", ""),
        ({"$ref": "#"}, "$ref", ""),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"anyOf": [{"$ref": "#"}]}}},
            "$ref",
            "",
        ),
        ({"type": "object", "properties": {"a": 3}}, "", "/properties/a"),
        (3, "", ""),
        ([], "", ""),
    ],
)
def test_a_schema_that_is_none_is_refused_by_place(schema: Any, keyword: str, pointer: str) -> None:
    with pytest.raises(SchemaError) as error:
        compiled(schema)
    assert not isinstance(error.value, UnsatisfiableSchemaError)
    assert (error.value.keyword, error.value.pointer) == (keyword, pointer)


UNSUPPORTED = [
    (
        {
            "type": "array",
            "uniqueItems": True,
            "prefixItems": [True],
            "items": {"enum": [1, "a"]},
            "contains": {"type": "string"},
        },
        "uniqueItems",
        "",
    ),
    ({"not": {"uniqueItems": True}}, "not", ""),
    ({"type": "number", "multipleOf": 0.12345678}, "multipleOf", ""),
    ({"type": "string", "pattern": "(a)\\1"}, "pattern", ""),
    ({"properties": {"a": {"not": {"x-extract": "source"}}}}, "not", "/properties/a"),
    ({"$schema": DRAFT_7, "contentMediaType": "text/json"}, "contentMediaType", ""),
    ({"$schema": DRAFT_7, "not": {"contentMediaType": "text/json"}}, "not", ""),
    ({"$schema": "https://example.org/mine", "oneOf": [True]}, "$schema", ""),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "keyword", "pointer"), UNSUPPORTED)
def test_what_is_not_enforced_is_reported_never_ignored(
    schema: Any, keyword: str, pointer: str
) -> None:
    with pytest.raises(UnsupportedSchemaError) as error:
        compiled(schema)
    assert [(i.keyword, i.pointer) for i in error.value.issues] == [(keyword, pointer)]
    assert keyword in str(error.value)
    report = compiled(schema, strict=False).report
    assert [(i.keyword, i.pointer) for i in report.unenforced] == [(keyword, pointer)]
    assert all(i.reason for i in report.unenforced)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "uniqueItems": True, "minProperties": 3},
        {"type": "array", "uniqueItems": False},
        {"type": "array", "uniqueItems": True, "maxItems": 1},
        {"type": "object", "minProperties": 1, "required": ["a"]},
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False,
         "maxProperties": 1},
        {"if": {"format": "email"}}, {"unevaluatedProperties": {}, "allOf": [{}]},
        {"title": "t", "description": "d", "default": 1, "examples": [1], "readOnly": True,
         "$comment": "c", "deprecated": False, "then": {}, "type": "null"},
    ],
)  # fmt: skip
def test_what_asserts_nothing_is_not_reported(schema: Any) -> None:
    assert compiled(schema).report.unenforced == ()


def test_all_issues_are_told_at_once() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "number", "multipleOf": 0.12345678},
            "b": {"not": {"x-extract": "source"}, "type": "string", "pattern": "(?i)x"},
        },
    }
    with pytest.raises(UnsupportedSchemaError) as error:
        compiled(schema)
    found = {(i.keyword, i.pointer) for i in error.value.issues}
    assert found == {
        ("multipleOf", "/properties/a"),
        ("not", "/properties/b"),
        ("pattern", "/properties/b"),
    }


def test_the_report_names_what_is_enforced_and_what_is_no_keyword() -> None:
    report = compiled({"type": "string", "minLength": 1, "title": "t", "x-mine": 1}).report
    assert report.enforced == ("minLength", "type")
    assert any("x-mine" in note for note in report.bounds)


def nested(depth: int) -> Any:
    schema: Any = {"type": "null"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


@pytest.mark.parametrize(
    "schema",
    [
        nested(1000),
        {"allOf": [{"anyOf": [{"minimum": i}, {"maximum": -i}]} for i in range(1, 40)]},
        {"oneOf": [{"oneOf": [{"minimum": i * j} for i in range(9)]} for j in range(9)]},
        {"not": {"$ref": "#/$defs/a"}, "$defs": {"a": {"not": {"allOf": [{}, {"not": {}}]}}}},
        {"type": "array", "contains": {"minimum": 1}, "minContains": 10**6},
        {"type": "string", "pattern": "(a|aa)*" * 6 + "b" + "(.*c){9}.{0,30}d", "minLength": 40},
        {"enum": ["x" * 1000] * 5000},
    ],
)
def test_nasty_schemas_end_in_an_error_or_a_grammar(schema: Any) -> None:
    try:
        assert compiled(schema, budget=Budget(rules=2000, regex_steps=100_000)).start() is not None
    except SchemaError as error:
        assert error.message


def test_deep_but_legal_nesting_works() -> None:
    grammar = compiled(nested(100), whitespace="compact")
    assert accepts(grammar, "[" * 100 + "null" + "]" * 100)
    assert accepts(grammar, "[" * 50 + "]" * 50)


def test_many_optional_properties() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": "integer"} for i in range(1000)},
        "additionalProperties": False,
    }
    grammar = compiled(schema, whitespace="fixed")
    assert accepts(grammar, '{"p0": 1, "p500": 2, "p999": 3}')
    assert not accepts(grammar, '{"p500": 1, "p0": 2}')


def test_no_key_twice() -> None:
    grammar = compiled({"type": "object", "properties": {"a": {}}}, whitespace="compact")
    for good in ('{"b":1,"c":1,"bc":1}', '{"a":1,"aa":1}', '{"x":{"x":1,"y":{"x":1}},"y":1}'):
        assert accepts(grammar, good), good
    for bad in (
        '{"b":1,"b":1}',
        '{"b":1,"c":2,"b":3}',
        '{"b":1,"\\u0062":1}',
        '{"x":{"y":1,"y":2}}',
    ):
        assert not accepts(grammar, bad), bad
    free = compiled({"type": "object"}, whitespace="flexible")
    assert not accepts(free, '{"é": 1, "\\u00e9": 1}')
    assert not accepts(free, '{"": 1 , "": 1}')
    patterns = {
        "type": "object",
        "patternProperties": {"^a{1,2}$": {}},
        "additionalProperties": False,
    }
    bounded = compiled(patterns, whitespace="compact")
    assert accepts(bounded, '{"aa":1,"a":1}')
    matcher = bounded.start()
    assert feed(matcher, '{"aa":1,"a":null')
    assert matcher.forced_bytes() == b"}"


def test_what_is_no_integer_is_none_as_a_double_either() -> None:
    """Readers keep doubles: many digits before the point leave no room for the fraction."""
    grammar = compiled({"type": "number", "not": {"type": "integer"}})
    for text in ("0.5", "-12.25", "0.30000000000000004", "1.999999999999", "12345678901234.5"):
        assert accepts(grammar, text), text
        assert not float(text).is_integer()
    nine = "0." + 16 * "9"
    for text in ("1", "1.0", "1.00", nine, f"{'9' * 20}.5", "1.00000000000000000000001"):
        assert not accepts(grammar, text), text


def test_integers_of_old_drafts_have_no_fraction() -> None:
    """From draft-06 on ``1.0`` is an integer; in draft-04 only ``1`` is."""
    for constant in ({"enum": [1, 2.0]}, {"enum": [1.0, 2]}, {"minimum": 1, "maximum": 2}):
        schema = {"type": "integer", **constant}
        new, old = compiled(schema), compiled({"$schema": f"{DRAFT_4}#", **schema})
        for text, in_new, in_old in (("1", 1, 1), ("1.0", 1, 0), ("2", 1, 1), ("2.0", 1, 0)):
            assert accepts(new, text) == bool(in_new), (constant, text)
            assert accepts(old, text) == bool(in_old), (constant, text)
    number = compiled({"$schema": DRAFT_4, "enum": [1.0]})
    assert accepts(number, "1.0")
    assert accepts(number, "1")


def test_keywords_that_the_schemas_own_draft_does_not_know_are_ignored() -> None:
    rule = {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "properties": {"a": {}}}
    old = compiled({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", **rule})
    assert accepts(old, '{"a": 1}')
    assert "if at (root) is no keyword of draft-04: ignored" in old.report.bounds
    for dialect in ("http://json-schema.org/draft-07/schema#", "https://example.org/my-own"):
        strict = "my-own" not in dialect
        new = compiled({"$schema": dialect, "type": "object", **rule}, strict=strict)
        assert not accepts(new, '{"a": 1}')
        assert accepts(new, '{"a": 1, "b": 1}')
    late = {"prefixItems": [{"const": 1}], "type": "array", "minItems": 1}
    seventh = {"$schema": "http://json-schema.org/draft-07/schema#", **late}
    assert accepts(compiled(seventh), "[2]")
    assert not accepts(
        compiled({"items": {"$id": "http://json-schema.org/draft-07/", **late}}), "[[2]]"
    )
