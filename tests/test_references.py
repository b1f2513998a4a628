"""References inside a document: static, dynamic and recursive ones, by resource and by draft."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import validators
from jsonschema.exceptions import _WrappedReferencingError

from grammar import SchemaBudgetError, SchemaError, UnsatisfiableSchemaError
from grammar.schema.references import resolve_uri
from tests.grammar_support import accepts, compiled
from tests.test_schema_corpus import accepted

DRAFT4 = "http://json-schema.org/draft-04/schema#"
DRAFT7 = "http://json-schema.org/draft-07/schema#"
DRAFT2019 = "https://json-schema.org/draft/2019-09/schema"
DRAFT2020 = "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("base", "reference", "expected"),
    [
        # RFC 3986, 5.4.1 and 5.4.2
        ("http://a/b/c/d;p?q", "g:h", "g:h"),
        ("http://a/b/c/d;p?q", "g", "http://a/b/c/g"),
        ("http://a/b/c/d;p?q", "./g", "http://a/b/c/g"),
        ("http://a/b/c/d;p?q", "g/", "http://a/b/c/g/"),
        ("http://a/b/c/d;p?q", "/g", "http://a/g"),
        ("http://a/b/c/d;p?q", "//g", "http://g"),
        ("http://a/b/c/d;p?q", "?y", "http://a/b/c/d;p?y"),
        ("http://a/b/c/d;p?q", "g?y", "http://a/b/c/g?y"),
        ("http://a/b/c/d;p?q", "#s", "http://a/b/c/d;p?q#s"),
        ("http://a/b/c/d;p?q", "g#s", "http://a/b/c/g#s"),
        ("http://a/b/c/d;p?q", "g?y#s", "http://a/b/c/g?y#s"),
        ("http://a/b/c/d;p?q", ";x", "http://a/b/c/;x"),
        ("http://a/b/c/d;p?q", "", "http://a/b/c/d;p?q"),
        ("http://a/b/c/d;p?q", ".", "http://a/b/c/"),
        ("http://a/b/c/d;p?q", "./", "http://a/b/c/"),
        ("http://a/b/c/d;p?q", "..", "http://a/b/"),
        ("http://a/b/c/d;p?q", "../g", "http://a/b/g"),
        ("http://a/b/c/d;p?q", "../..", "http://a/"),
        ("http://a/b/c/d;p?q", "../../g", "http://a/g"),
        ("http://a/b/c/d;p?q", "../../../g", "http://a/g"),
        ("http://a/b/c/d;p?q", "/./g", "http://a/g"),
        ("http://a/b/c/d;p?q", "g/./h", "http://a/b/c/g/h"),
        ("http://a/b/c/d;p?q", "g/../h", "http://a/b/c/h"),
        # Schemes that are not the web's
        ("urn:uuid:deadbeef", "#/$defs/a", "urn:uuid:deadbeef#/$defs/a"),
        ("urn:uuid:deadbeef", "urn:x:y#z", "urn:x:y#z"),
        ("tag:a,2020:x", "#b", "tag:a,2020:x#b"),
        ("schema://host/a/b", "c", "schema://host/a/c"),
        ("", "item.json", "item.json"),
        ("a/item.json", "other.json#x", "a/other.json#x"),
        ("item.json", "other.json", "other.json"),
        ("http://a", "g", "http://a/g"),
        # No URIs
        ("http://[", "g", "g"),
        ("http://a", "http://[#x", "http://[#x"),
    ],
)
def test_uri_references(base: str, reference: str, expected: str) -> None:
    assert resolve_uri(base, reference) == expected


def says(schema: Any, valid: list[Any], invalid: list[Any], **options: Any) -> None:
    """Compile, and compare with what is expected and with an independent validator."""
    grammar = compiled(schema, whitespace="flexible", **options)
    judge = validators.validator_for(schema, default=validators.Draft202012Validator)(schema)
    for value in valid:
        assert judge.is_valid(value), value
        assert accepted(grammar, value), value
    for value in invalid:
        assert not judge.is_valid(value), value
        assert not accepts(grammar, json.dumps(value)), value


LIST = {
    "$id": "list",
    "type": "array",
    "items": {"$dynamicRef": "#item"},
    "$defs": {"any": {"$dynamicAnchor": "item"}},
}


def test_a_dynamic_reference_leads_to_the_outermost_anchor() -> None:
    item = {"$dynamicAnchor": "item", "type": "string"}
    says(
        {"$id": "http://a.example/root", "$ref": "list", "$defs": {"item": item, "list": LIST}},
        [[], ["a"]], [[1], {}, ["a", None]],
    )  # fmt: skip


def test_one_resource_means_something_else_on_each_way_to_it() -> None:
    schema = {
        "$id": "http://a.example/root",
        "type": "object",
        "properties": {"s": {"$ref": "strings"}, "n": {"$ref": "numbers"}, "x": {"$ref": "list"}},
        "$defs": {
            "list": LIST,
            "strings": {
                "$id": "strings", "$ref": "list",
                "$defs": {"item": {"$dynamicAnchor": "item", "type": "string"}},
            },
            "numbers": {
                "$id": "numbers", "$ref": "list",
                "$defs": {"item": {"$dynamicAnchor": "item", "type": "integer"}},
            },
        },
    }  # fmt: skip
    says(
        schema,
        [{"s": ["a"], "n": [1], "x": ["a", 1, None]}, {"s": [], "x": [[]]}],
        [{"s": [1]}, {"n": ["a"]}, {"x": 1}],
    )


def test_a_tree_is_extended_all_the_way_down() -> None:
    tree = {
        "$id": "tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {
            "data": True,
            "children": {"type": "array", "items": {"$dynamicRef": "#node"}},
        },
    }
    schema = {
        "$id": "http://a.example/strict-tree",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": False,
        "$defs": {"tree": tree},
    }
    says(
        schema,
        [{}, {"data": 1}, {"data": 1, "children": [{"children": [{"data": 2}]}]}],
        [{"daat": 1}, {"children": [{"daat": 1}]}, {"children": [{"children": [{"x": 1}]}]}],
    )


def test_without_bookending_it_is_an_ordinary_reference() -> None:
    inner = {
        "$id": "inner",
        "$dynamicRef": "#item",
        "$defs": {"own": {"$anchor": "item", "type": "integer"}},
    }
    outer = {"$dynamicAnchor": "item", "type": "string"}
    other = {"$id": "other", "$dynamicAnchor": "item"}
    schema = {
        "$id": "http://a.example/root",
        "$ref": "inner",
        "$defs": {"inner": inner, "outer": outer, "other": other},
    }
    says(schema, [1], ["a", None])


def test_a_resource_that_was_left_does_not_count() -> None:
    schema = {
        "$id": "http://a.example/main",
        "if": {
            "$id": "first",
            "$defs": {"thing": {"$dynamicAnchor": "thing", "type": "number"}},
        },
        "then": {
            "$id": "second",
            "$ref": "start",
            "$defs": {"thing": {"$dynamicAnchor": "thing", "type": "null"}},
        },
        "$defs": {
            "start": {"$id": "start", "$dynamicRef": "inner#thing"},
            "thing": {"$id": "inner", "$dynamicAnchor": "thing", "type": "string"},
        },
    }
    says(schema, [None], ["a", 1])


def test_complements_keep_the_scope() -> None:
    item = {"$dynamicAnchor": "item", "type": "string"}
    schema = {
        "$id": "http://a.example/root",
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "not": {"$ref": "list"},
        "$defs": {"item": item, "list": LIST},
    }
    says(schema, [[1], [None]], [["a"], []])


def test_constants_are_judged_by_dynamic_references_too() -> None:
    item = {"$dynamicAnchor": "item", "type": "string"}
    schema = {
        "$id": "http://a.example/root",
        "enum": [["a"], [1], [], 1],
        "$ref": "list",
        "$defs": {"item": item, "list": LIST},
    }
    says(schema, [["a"], []], [[1], 1])
    single = {
        "properties": {"a": {"$dynamicRef": "#x"}},
        "enum": [{"a": 1}, {"a": "b"}],
        "$defs": {"x": {"$dynamicAnchor": "x", "type": "string"}},
    }
    says(single, [{"a": "b"}], [{"a": 1}])


def test_a_static_reference_to_a_dynamic_anchor_is_static() -> None:
    """As Core 8.2.3.1 says; validators are known that follow it dynamically."""
    inner = {"$id": "inner", "$defs": {"y": {"$dynamicAnchor": "y", "type": "string"}}}
    outer = {"$dynamicAnchor": "y", "type": "integer"}
    schema = {"$id": "http://a.example/r", "$ref": "inner#y", "$defs": {"i": inner, "y": outer}}
    grammar = compiled(schema)
    assert accepts(grammar, '"a"')
    assert not accepts(grammar, "1")


def test_both_references_hold() -> None:
    schema = {
        "$ref": "#/$defs/short",
        "$dynamicRef": "#x",
        "$defs": {"short": {"maxLength": 1}, "x": {"$dynamicAnchor": "x", "type": "string"}},
    }
    says(schema, ["", "a"], ["ab", 1])


def test_recursive_references() -> None:
    tree = {
        "$id": "tree",
        "$recursiveAnchor": True,
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$recursiveRef": "#"}}},
    }
    strict = {
        "$schema": DRAFT2019,
        "$id": "http://a.example/strict",
        "$recursiveAnchor": True,
        "$ref": "tree",
        "unevaluatedProperties": False,
        "$defs": {"tree": tree},
    }
    says(strict, [{}, {"children": [{"children": []}]}], [{"a": 1}, {"children": [{"a": 1}]}])
    tree["$recursiveAnchor"] = False
    says(strict, [{"children": [{"a": 1}]}], [{"a": 1}])
    with pytest.raises(SchemaError) as error:
        compiled({"$schema": DRAFT2019, "$recursiveRef": "#/$defs/a", "$defs": {"a": {}}})
    assert error.value.keyword == "$recursiveRef"


def test_drafts_that_know_no_dynamic_references_ignore_them() -> None:
    schema = {"$schema": DRAFT2020, "items": {"$recursiveRef": "#"}, "type": "array"}
    assert accepts(compiled(schema), "[1]")
    schema = {"$schema": DRAFT2019, "items": {"$dynamicRef": "#a"}, "type": "array"}
    assert accepts(compiled(schema), "[1]")


def test_an_embedded_resource_has_its_own_draft() -> None:
    old = {
        "$schema": DRAFT7,
        "$id": "old",
        "properties": {"a": {"$ref": "#/definitions/n", "maximum": 5}},
        "definitions": {"n": {"type": "integer"}},
    }
    schema = {
        "$schema": DRAFT2020,
        "$id": "http://a.example/root",
        "type": "object",
        "properties": {"o": {"$ref": "old"}, "n": {"$ref": "old#/definitions/n", "maximum": 5}},
        "$defs": {"old": old},
    }
    says(schema, [{"o": {"a": 9}, "n": 4}], [{"o": {"a": "x"}}, {"n": 9}])
    older = {"$schema": DRAFT4, "id": "older", "const": 1, "type": "integer"}
    schema = {"$schema": DRAFT2020, "$ref": "older", "$defs": {"x": older}}
    grammar = compiled(schema)
    assert accepts(grammar, "2")  # which knows no const
    assert not accepts(grammar, "2.0")


def test_pointers_with_escapes_and_through_arrays() -> None:
    schema = {
        "properties": {
            "tilde": {"$ref": "#/$defs/a~0b"},
            "slash": {"$ref": "#/$defs/a~1b"},
            "percent": {"$ref": "#/$defs/a%25b"},
            "quote": {"$ref": "#/$defs/a%22b"},
            "space": {"$ref": "#/$defs/a%20"},
            "array": {"$ref": "#/anyOf/1"},
        },
        "anyOf": [{"type": "object"}, {"type": "null"}],
        "$defs": {
            "a~b": {"type": "integer"}, "a/b": {"type": "string"}, "a%b": {"type": "boolean"},
            'a"b': {"type": "null"}, "a ": {"const": 1}, "a": {"const": 2},
        },
    }  # fmt: skip
    says(
        schema,
        [{"tilde": 1, "slash": "", "percent": True, "quote": None, "space": 1, "array": None}],
        [{"tilde": ""}, {"slash": 1}, {"percent": 1}, {"quote": 1}, {"space": 2}, {"array": {}}],
    )


@pytest.mark.parametrize(
    "reference", ["#/anyOf/00", "#/anyOf/\u0660", "#/anyOf/2", "#/anyOf/-", "#a"]
)
def test_what_leads_nowhere_is_named(reference: str) -> None:
    schema = {"anyOf": [{"type": "null"}, {"$ref": reference}]}
    with pytest.raises(SchemaError) as error:
        compiled(schema)
    assert (error.value.pointer, error.value.keyword) == ("/anyOf/1", "$ref")


@pytest.mark.parametrize("keyword", ["$anchor", "$dynamicAnchor"])
def test_a_name_of_several_subschemas_is_refused(keyword: str) -> None:
    schema = {"$dynamicRef": "#x", "$defs": {"a": {keyword: "x"}, "b": {"$dynamicAnchor": "x"}}}
    with pytest.raises(SchemaError, match="several subschemas"):
        compiled(schema)
    del schema["$dynamicRef"]
    compiled(schema)


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
@pytest.mark.parametrize("reference", [DRAFT2020, "http://b.example/x#a", "other.json"])
def test_other_documents_are_refused_by_name(keyword: str, reference: str) -> None:
    anchors = {x: {"$id": x, "$dynamicAnchor": "item"} for x in ("a", "b")}
    for defs in ({}, anchors):
        with pytest.raises(SchemaError) as error:
            compiled({"$defs": defs, "properties": {"p": {keyword: reference}}})
        assert (error.value.pointer, error.value.keyword) == ("/properties/p", keyword)
        assert reference in str(error.value)


def test_loops_are_refused_by_name_in_every_scope() -> None:
    loop = {"$id": "loop", "$dynamicAnchor": "x", "anyOf": [{"$dynamicRef": "#x"}]}
    schema = {
        "$id": "http://a.example/r",
        "$dynamicAnchor": "x",
        "$ref": "loop",
        "$defs": {"l": loop},
    }
    with pytest.raises(SchemaError, match="refers to itself without end"):
        compiled(schema)


def test_scopes_are_not_shown() -> None:
    item = {"$dynamicAnchor": "item", "type": "string", "pattern": "(a)\\1"}
    schema = {"$id": "http://a.example/root", "$ref": "list", "$defs": {"item": item, "list": LIST}}
    report = compiled(schema, strict=False).report
    assert [(i.keyword, i.pointer) for i in report.unenforced] == [("pattern", "/$defs/item")]
    assert all("@" not in note for note in report.bounds)
    item = {"$dynamicAnchor": "item", "type": "string", "maxLength": -1}
    schema = {"$id": "http://a.example/root", "$ref": "list", "$defs": {"item": item, "list": LIST}}
    with pytest.raises(SchemaError) as error:
        compiled(schema)
    assert error.value.pointer == "/$defs/item"
    item = {"$dynamicAnchor": "item", "type": "string", "minLength": 2, "maxLength": 1}
    schema = {
        "$id": "http://a.example/root",
        "$ref": "list",
        "minItems": 1,
        "$defs": {"item": item, "list": LIST},
    }
    with pytest.raises(UnsatisfiableSchemaError) as unsatisfiable:
        compiled(schema)
    assert unsatisfiable.value.pointer == "/$defs/list/items"


@pytest.mark.parametrize(
    "uri", ["http://[", "http://[x#", "::", "%", "\ud800", "#", "", "a b", "//", "?"]
)
def test_what_is_no_uri_is_no_name(uri: str) -> None:
    for keyword in ("$id", "$anchor", "$dynamicAnchor"):
        compiled({keyword: uri, "$defs": {"a": {keyword: uri, "type": "string"}}})
    for keyword in ("$ref", "$dynamicRef"):
        with pytest.raises(SchemaError) as error:
            compiled({"properties": {"a": {"$id": "x", keyword: "y" + uri}}})
        assert error.value.keyword == keyword


# -- generated documents, against an independent validator ---------------------------------------

IDS = ["r0", "r1", "r2"]
NAMES = ["x", "y"]
LEAVES: list[Any] = [
    {"type": "integer"}, {"type": "string"}, {"type": "null"}, {"const": 1}, {"maxLength": 1},
    {"minimum": 2}, True,
]  # fmt: skip


@st.composite
def references(draw: st.DrawFn) -> dict[str, Any]:
    """A reference to something that the documents below have."""
    # A static reference to a dynamic anchor is left out: the judge follows it dynamically.
    resource = draw(st.sampled_from(["", *IDS]))
    keyword = draw(st.sampled_from(["$ref", "$dynamicRef", "$dynamicRef"]))
    named = ["#z"] if keyword == "$ref" else ["#x", "#y", "#x", "#z"]
    place = draw(st.sampled_from(["", "#/$defs/s", "#/$defs/t", *named]))
    return {keyword: (resource + place) or "#"}


@st.composite
def parts(draw: st.DrawFn, depth: int = 2) -> Any:
    """A subschema without names of its own."""
    kind = draw(st.sampled_from(["leaf", "ref", "array", "object", "any", "not", "if", "both"]))
    if kind == "leaf" or depth == 0:
        return draw(st.sampled_from(LEAVES))
    if kind == "ref":
        return draw(references())
    inner = parts(depth - 1)
    if kind == "array":
        return {"type": "array", "items": draw(inner)}
    if kind == "object":
        return {"type": "object", "properties": {"a": draw(inner)}}
    if kind == "any":
        return {"anyOf": [draw(inner), draw(inner)]}
    if kind == "not":
        return {"not": draw(inner)}
    if kind == "if":
        return {"if": draw(inner), "then": draw(inner), "else": draw(inner)}
    return {**draw(references()), "allOf": [draw(inner)]}


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    """A resource's contents: two definitions that have an anchor each, dynamic or not."""
    body = draw(parts())
    schema: dict[str, Any] = dict(body) if isinstance(body, dict) else {}
    schema["$defs"] = {}
    for key, name in (("s", "x"), ("t", "y")):
        inner = draw(parts())
        named = dict(inner) if isinstance(inner, dict) else {}
        named[draw(st.sampled_from(["$anchor", "$dynamicAnchor", "$dynamicAnchor"]))] = name
        schema["$defs"][key] = named
    schema["$defs"]["u"] = {"$anchor": "z", **draw(st.sampled_from(LEAVES[:-1]))}
    return schema


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document of four resources, side by side or within each other."""
    root: dict[str, Any] = {"$id": "http://a.example/root", **draw(resources())}
    around = root
    for name in IDS:
        inner = {"$id": name, **draw(resources())}
        around["$defs"][name] = inner
        around = draw(st.sampled_from([root, inner]))
    return root


VALUES: list[Any] = [
    None, 1, 2, "a", "ab", True, [], [1], ["a"], [None], [[1]], [[]], {}, {"a": 1}, {"a": "a"},
    {"a": None}, {"a": []}, {"a": {"a": 1}}, {"a": [2]}, [{"a": "ab"}], {"b": 1}, [1, "a"],
]  # fmt: skip


@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(documents())
def test_generated_documents(schema: dict[str, Any]) -> None:
    judge = validators.Draft202012Validator(schema)
    try:
        grammar = compiled(schema, whitespace="compact")
    except UnsatisfiableSchemaError:
        assert not any(map(judge.is_valid, VALUES))
        return
    except SchemaBudgetError:
        return
    except SchemaError as error:
        assert "without end" in str(error) or "can't be enforced" in str(error), error
        return
    for value in VALUES:
        try:
            valid = judge.is_valid(value)
        except (RecursionError, _WrappedReferencingError):
            continue  # the judge met a loop that the grammar needed not enter
        text = json.dumps(value, separators=(",", ":"))
        assert accepts(grammar, text) == valid, (schema, value)
