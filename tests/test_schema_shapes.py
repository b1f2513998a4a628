"""Any JSON where a schema belongs: a grammar or a typed refusal, never another error."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammar import SchemaError, Vocabulary, compile_json_schema
from grammar.schema.keywords import KNOWN
from server.lint import lint_schema, load_dialects
from server.lint.profile import refusal
from server.settings import packaged_config_dir

BYTES = Vocabulary([bytes([b]) for b in range(256)] + [b""], {}, [256])
DIALECTS = load_dialects(packaged_config_dir() / "dialects.toml")

_names = st.sampled_from([*sorted(KNOWN), "a", "b"])
_scalars = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        -2.5,
        1e300,
        "",
        "a",
        "string",
        "integer",
        "object",
        "array",
        "#",
        "#/$defs/a",
        "^a+$",
        "(",
        "date",
    ]
)
_anything = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)
_schemas = st.dictionaries(_names, _anything, max_size=5)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(_schemas)
def test_whatever_a_schema_holds_it_is_compiled_or_refused(schema: dict[str, Any]) -> None:
    for strict in (True, False):
        try:
            grammar = compile_json_schema(schema, BYTES, strict=strict)
        except SchemaError:
            continue
        grammar.start().mask()


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(_schemas)
def test_whatever_a_schema_holds_the_linter_reports(schema: dict[str, Any]) -> None:
    lint_schema(schema, DIALECTS.values())
    refusal(schema, DIALECTS["openai"])


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": True},
        {"not": {"enum": True}},
        {"oneOf": [{"enum": 1}, {"enum": [1]}]},
        {"const": 1, "enum": "a"},
        {"if": {"enum": {}}, "then": False},
        {"allOf": [{"const": 1}, {"enum": None}]},
    ],
)
def test_an_enum_that_is_no_list_is_named(schema: dict[str, Any]) -> None:
    with pytest.raises(SchemaError) as error:
        compile_json_schema(schema, BYTES)
    assert error.value.keyword == "enum"
