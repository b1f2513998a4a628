"""What `format` and content keywords are: assertions or annotations; and unknown meta-schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from grammar import UnsatisfiableSchemaError, UnsupportedSchemaError
from server.validate import AnswerValidator
from tests.grammar_support import accepts, compiled

DRAFT_4, DRAFT_6, DRAFT_7 = (f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 6, 7))
LATEST = "https://json-schema.org/draft/2020-12/schema"
JSON_TEXT = {"type": "string", "contentMediaType": "application/json"}

# Each asserts something of a string that "no" is not.
ASSERTING: dict[str, dict[str, Any]] = {
    "format": {"format": "date"},
    "encoding": {"contentEncoding": "base64"},
    "property": {"properties": {"format": {"format": "date"}}},
    "items": {"items": {"format": "uuid"}, "prefixItems": [{"format": "ipv4"}]},
    "all of": {"allOf": [{"format": "email"}, {"minLength": 1}]},
    "definition": {"$ref": "#/$defs/format", "$defs": {"format": {"format": "ipv6"}}},
    "below no keyword": {
        "$ref": "#/components/schemas/a",
        "components": {"schemas": {"a": {"anyOf": [{"format": "uri"}, {"format": "time"}]}}},
    },
    "names": {"propertyNames": {"format": "ipv4"}},
}
VALUES = ["no", {"format": "no"}, ["no", "no"], {"no": 1}]


@pytest.mark.parametrize("name", ASSERTING)
def test_annotations_assert_nothing(name: str) -> None:
    schema = ASSERTING[name]
    asserted = compiled(schema)
    annotated = compiled(schema, formats="annotate")
    validator = AnswerValidator(schema, formats="annotate")
    assert not all(accepts(asserted, json.dumps(value)) for value in VALUES)
    for value in VALUES:
        assert accepts(annotated, json.dumps(value)), value
        assert validator.check(value).valid, value
    assert not {"format", "contentEncoding"} & set(annotated.report.enforced)
    assert any("asserts nothing" in note for note in annotated.report.bounds)
    assert not any("asserts nothing" in note for note in asserted.report.bounds)


def test_an_annotation_has_nothing_outside() -> None:
    schema = {"not": {"format": "date"}}
    assert accepts(compiled(schema), '"no"')
    with pytest.raises(UnsatisfiableSchemaError):
        compiled(schema, formats="annotate")
    either = {"oneOf": [{"format": "date"}, {"type": "string"}, {"type": "null"}]}
    grammar = compiled(either, formats="annotate")
    assert accepts(grammar, "null") is False, "the first accepts null, too"
    assert accepts(grammar, "1")
    assert not accepts(grammar, '"2024-01-01"')


def test_values_that_only_look_like_keywords_stay() -> None:
    schema = {"const": {"format": "date"}}
    grammar = compiled(schema, formats="annotate")
    assert accepts(grammar, '{"format": "date"}')
    assert not accepts(grammar, "{}")
    assert AnswerValidator(schema, formats="annotate").check({}).valid is False


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ValueError, match="formats must be one of assert, annotate"):
        compiled({}, formats="ignore")


@pytest.mark.parametrize("media", ["application/json", "Application/LD+JSON; charset=utf-8"])
def test_json_in_strings_is_refused_where_it_is_an_assertion(media: str) -> None:
    """Draft 7, Validation 8.2: implementations that assert it must offer not to."""
    schema = {"$schema": DRAFT_7, **JSON_TEXT, "contentMediaType": media}
    with pytest.raises(UnsupportedSchemaError) as caught:
        compiled(schema)
    (issue,) = caught.value.issues
    assert (issue.keyword, issue.pointer) == ("contentMediaType", "")
    loose = compiled(schema, strict=False)
    assert [each.keyword for each in loose.report.unenforced] == ["contentMediaType"]
    assert AnswerValidator(schema).checks("contentMediaType", "")
    assert accepts(compiled(schema, formats="annotate"), '"{:}"')
    with pytest.raises(UnsupportedSchemaError):
        compiled({"$schema": DRAFT_7, "not": {"contentMediaType": media}})


def test_the_draft_decides_however_often_the_same_was_compiled() -> None:
    for dialect in (LATEST, DRAFT_6, DRAFT_4):
        assert accepts(compiled({"$schema": dialect, **JSON_TEXT}), '"{:}"')
    with pytest.raises(UnsupportedSchemaError):
        compiled({"$schema": DRAFT_7, **JSON_TEXT})
    text = {"$schema": DRAFT_7, "type": "string", "contentMediaType": "text/html"}
    assert accepts(compiled(text), '"<"')


def test_host_names_are_those_of_the_draft() -> None:
    name = '"ab--c.example"'
    for dialect, wanted in ((DRAFT_4, True), (DRAFT_7, False), (LATEST, False)):
        schema = {"$schema": dialect, "type": "string", "format": "hostname"}
        assert accepts(compiled(schema), name) == wanted
        assert AnswerValidator(schema).check(json.loads(name)).valid == wanted


@pytest.mark.parametrize(
    "dialect",
    [
        DRAFT_4, DRAFT_6, DRAFT_7, LATEST, "http://json-schema.org/draft-07/schema", "",
        "https://json-schema.org/draft-07/schema#", "http://json-schema.org/schema#",
        "https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-04/hyper-schema#",
        "https://spec.openapis.org/oas/3.1/dialect/base",
        "https://spec.openapis.org/oas/3.1/dialect/2024-11-10", "//json-schema.org/draft-06/schema",
    ],
)  # fmt: skip
def test_known_meta_schemas(dialect: str) -> None:
    assert accepts(compiled({"$schema": dialect, "type": "integer"}), "1")


@pytest.mark.parametrize(
    "dialect", ["https://example.org/draft2020-12/mine", "./schema.json", "https://example.org/#"]
)
def test_an_unknown_meta_schema_is_refused_by_name(dialect: str) -> None:
    """Core 8.1.2.1: which vocabularies it has, and whether they must be understood, is open."""
    for schema, pointer in (
        ({"$schema": dialect, "type": "integer"}, ""),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"$schema": dialect, "type": "integer"}}},
            "/$defs/a",
        ),
    ):
        with pytest.raises(UnsupportedSchemaError) as caught:
            compiled(schema)
        (issue,) = caught.value.issues
        assert (issue.keyword, issue.pointer) == ("$schema", pointer)
        assert dialect in issue.reason
        loose = compiled(schema, strict=False)
        assert accepts(loose, "1")
        assert not accepts(loose, '"a"')
        assert not AnswerValidator(schema).checks("$schema", pointer)
