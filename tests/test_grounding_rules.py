"""Which values are checked: `x-ground` in schemas, `grounding` in requests, and who wins."""

from __future__ import annotations

from typing import Any

import pytest

from server.grounding import GroundingError, check, nulled, rules

NOTHING = "There is nothing of it here."


def pointers(
    value: Any, schema: Any = None, option: Any = None, source: str = NOTHING
) -> list[str]:
    return [each.pointer for each in check(value, rules(schema, option), source)]


GROUNDED = {"type": "string", "x-ground": "verbatim"}


@pytest.mark.parametrize(
    ("schema", "value", "found"),
    [
        ({"properties": {"a": GROUNDED, "b": {"type": "string"}}}, {"a": "x", "b": "y"}, ["/a"]),
        (GROUNDED, "x", [""]),
        ({"items": GROUNDED}, ["x", "y"], ["/0", "/1"]),
        ({"prefixItems": [True, GROUNDED]}, ["x", "y", "z"], ["/1"]),
        ({"items": [{}, GROUNDED], "additionalItems": {}}, ["x", "y", "z"], ["/1"]),
        ({"x-ground": "verbatim"}, {"a": ["x", {"b": "y"}], "c": None}, ["/a/0", "/a/1/b"]),
        ({"additionalProperties": GROUNDED, "properties": {"a": {}}}, {"b/": "y"}, ["/b~1"]),
        ({"patternProperties": {"^n": GROUNDED}}, {"name": "x", "a": "y"}, ["/name"]),
        ({"$ref": "#/$defs/t", "$defs": {"t": GROUNDED}}, "x", [""]),
        ({"allOf": [{"type": "string"}, GROUNDED]}, "x", [""]),
        ({"anyOf": [GROUNDED, {"type": "null"}]}, "x", [""]),
        ({"anyOf": [GROUNDED, {"type": "null"}]}, None, []),
        (
            {"oneOf": [{"properties": {"k": {"const": 1}, "v": GROUNDED}, "required": ["k"]},
                       {"properties": {"k": {"const": 2}, "v": {}}, "required": ["k"]}]},
            {"k": 2, "v": "x"}, [],
        ),
        (
            {"oneOf": [{"properties": {"k": {"const": 1}, "v": GROUNDED}, "required": ["k"]},
                       {"properties": {"k": {"const": 2}, "v": {}}, "required": ["k"]}]},
            {"k": 3, "v": "x"}, ["/v"],  # not valid under either: a check too many
        ),
        ({"if": {"minLength": 2}, "then": GROUNDED, "else": {}}, "xy", [""]),
        ({"if": {"minLength": 2}, "then": GROUNDED, "else": {}}, "x", []),
        ({"dependentSchemas": {"a": {"properties": {"b": GROUNDED}}}}, {"a": 1, "b": "x"}, ["/b"]),
        ({"dependentSchemas": {"a": {"properties": {"b": GROUNDED}}}}, {"b": "x"}, []),
        ({"not": GROUNDED}, 1, []),
        ({"properties": {"x-ground": {"type": "string"}}}, {"x-ground": "x"}, []),
        ({"properties": {"x-ground": GROUNDED}}, {"x-ground": "x"}, ["/x-ground"]),
        ({"enum": [{"x-ground": "no kind"}, "x"]}, "x", []),
        (
            {"$ref": "#/$defs/n",
             "$defs": {"n": {"properties": {"v": GROUNDED, "next": {"$ref": "#/$defs/n"}}}}},
            {"v": "x", "next": {"v": "y", "next": {"v": "z"}}},
            ["/v", "/next/v", "/next/next/v"],
        ),
    ],
)  # fmt: skip
def test_the_schema_says_what_is_checked(schema: Any, value: Any, found: list[str]) -> None:
    assert pointers(value, schema) == found


VALUE = {"a": {"name": "x", "tags": ["y", "z"]}, "items": [{"name": "u"}, {"name": "v"}]}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        (["/a/name"], ["/a/name"]),
        (["/a"], ["/a/name", "/a/tags/0", "/a/tags/1"]),
        (["/items/*/name"], ["/items/0/name", "/items/1/name"]),
        (["/items/1/name"], ["/items/1/name"]),
        (["/**/name"], ["/a/name", "/items/0/name", "/items/1/name"]),
        (["/**"], ["/a/name", "/a/tags/0", "/a/tags/1", "/items/0/name", "/items/1/name"]),
        (["/*/name"], ["/a/name"]),
        (["name"], ["/a/name", "/items/0/name", "/items/1/name"]),
        (["items.name"], ["/items/0/name", "/items/1/name"]),
        (["tags"], ["/a/tags/0", "/a/tags/1"]),
        (["a.items.name"], []),
        (["/name"], []),
    ],
)
def test_fields_of_the_request(fields: list[str], found: list[str]) -> None:
    assert pointers(VALUE, option={"fields": dict.fromkeys(fields, "verbatim")}) == found


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"/**": "verbatim", "tags": None}, ["/a/name", "/items/0/name", "/items/1/name"]),
        ({"tags": None, "/**": "verbatim", "/items": None}, ["/a/name", "/a/tags/0", "/a/tags/1"]),
        ({"/**": None, "tags": "verbatim", "/a/tags/1": None}, ["/a/tags/0"]),
    ],
)
def test_the_last_field_that_fits_counts(fields: Any, found: list[str]) -> None:
    assert pointers(VALUE, option={"fields": fields}) == found


def test_fields_before_the_schema_before_the_default() -> None:
    schema = {
        "properties": {
            "a": {"type": "string", "x-ground": {"kind": "verbatim", "case": "ignore"}},
            "b": {"type": "string"},
            "c": {"enum": ["red", "blue"]},
            "d": {"const": "Invoice"},
        }
    }
    value = {"a": "NOTHING", "b": "NOTHING", "c": "red", "d": "Invoice"}
    assert pointers(value, schema) == []
    assert pointers(value, schema, "verbatim") == ["/b"]
    assert pointers(value, schema, {"fields": {"a": "verbatim"}}) == ["/a"]
    assert pointers(value, schema, {"default": "verbatim", "fields": {"b": None}}) == []
    assert pointers(value, schema, {"fields": {"c": "verbatim"}}) == ["/c"]
    assert pointers(value, schema, "off") == []
    assert rules(schema, "off") == ()


@pytest.mark.parametrize(
    ("schema", "option", "where"),
    [
        ({"properties": {"a": {"x-ground": "truth"}}}, None, "/properties/a/x-ground"),
        ({"$defs": {"a": {"x-ground": {"kind": "verbatim", "c": 1}}}}, None, "/$defs/a/x-ground"),
        ({"x-ground": {"case": "ignore"}}, None, "/x-ground"),
        ({"x-ground": {"kind": "verbatim", "case": "IGNORE"}}, None, "/x-ground"),
        ({"x-ground": {"kind": "verbatim", "evidence": "q"}}, None, "/x-ground"),
        ({"x-ground": {"kind": ["verbatim"]}}, None, "/x-ground"),
        ({"x-ground": True}, None, "/x-ground"),
        (None, 3, "grounding"),
        (None, True, "grounding"),
        (None, {"field": {}}, "grounding.field"),
        (None, {"fields": ["a"]}, "grounding.fields"),
        (None, {"fields": {"": "verbatim"}}, "grounding.fields['']"),
        (None, {"fields": {"a": "nothing"}}, "grounding.fields['a']"),
    ],
)  # fmt: skip
def test_what_can_not_be_read_is_refused_by_place(schema: Any, option: Any, where: str) -> None:
    with pytest.raises(GroundingError) as error:
        rules(schema, option)
    assert error.value.where == where
    assert str(error.value).startswith(f"{where}: ")


def test_null_where_the_schema_has_room() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "string"}, "c": {}},
        "x-ground": "verbatim",
    }
    value = {"a": "x", "b": "y", "c": ["z"]}
    ungrounded = check(value, rules(schema), NOTHING)
    result, left = nulled(value, ungrounded, schema)
    assert result == {"a": None, "b": "y", "c": [None]}
    assert [each.pointer for each in left] == ["/b"]
    assert value == {"a": "x", "b": "y", "c": ["z"]}, "the caller's value is left alone"


def test_null_everywhere_at_once_and_at_the_root() -> None:
    assert nulled("x", check("x", rules(None, "verbatim"), NOTHING), None) == (None, ())
    ungrounded = check({"a": "x", "b": "y"}, rules(None, "verbatim"), NOTHING)
    assert nulled({"a": "x", "b": "y"}, ungrounded, True) == ({"a": None, "b": None}, ())


def test_nothing_becomes_null_in_an_invalid_answer() -> None:
    schema = {"properties": {"a": {"type": ["string", "null"]}, "b": {"type": "integer"}}}
    value = {"a": "x", "b": "no integer"}
    ungrounded = check(value, rules(schema, {"fields": {"a": "verbatim"}}), NOTHING)
    assert nulled(value, ungrounded, schema) == (value, ungrounded)


@pytest.mark.parametrize(
    "schema",
    [
        {"items": [{"type": ["string", "null"]}]},
        {"$schema": "https://example.org/mine", "items": {"type": ["string", "null"]}},
        {"$defs": {"unused": {"$ref": "https://example.org/x.json"}}, "items": {"nullable": True}},
        {"definitions": {"a": {"$id": "#a", "type": ["string", "null"]}}, "items": {}},
    ],
)
def test_schemas_of_older_drafts_and_with_unused_references(schema: Any) -> None:
    ungrounded = check(["x"], rules(schema, "verbatim"), NOTHING)
    assert [each.pointer for each in ungrounded] == ["/0"]
    assert nulled(["x"], ungrounded, schema) == ([None], ())


def test_null_in_a_schema_whose_errors_double_with_every_level() -> None:
    branch = {"type": ["array", "null"], "items": {"$ref": "#"}}
    schema = {"anyOf": [{**branch, "contains": {"const": 5}}, branch, {"type": "string"}]}
    value: Any = "x"
    for _ in range(60):
        value = [value, "x"]
    ungrounded = check(value, rules(schema, {"fields": {"/1": "verbatim"}}), NOTHING)
    result, left = nulled(value, ungrounded, schema)
    assert (result[1], left) == (None, ())
