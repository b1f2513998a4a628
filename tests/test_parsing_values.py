"""From a region's text to its value: content types, transforms, tool typing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parsing import ResponseParseError, ResponseTemplateError, parse_response
from parsing.content import load_content, parse_content
from parsing.jsonlike import ContentError
from parsing.tools import ToolTyping


def value(name: str, text: str, **args: Any) -> Any:
    return parse_content(load_content(name, args), text)


def field(text: str, **described: Any) -> Any:
    """The value of one `<a>...</a>` region of a field described like this."""
    template = {"start_anchor": "@", "fields": {"x": {"open": "<a>", "close": "</a>", **described}}}
    return parse_response(f"<a>{text}</a>", template, prefix="").get("x")


@pytest.mark.parametrize(
    ("name", "text", "args", "wanted"),
    [
        ("text", " a ", {}, "a"),
        ("text", " a ", {"strip": False}, " a "),
        ("int", " -4_2\n", {}, -42),
        ("float", "1e3", {}, 1000.0),
        ("bool", " TRUE ", {}, True),
        ("bool", " TRUE ", {"strip": False}, False),
        ("json", '{"a": [1, null]}', {}, {"a": [1, None]}),
        ("json", " no ", {"allow_non_json": True}, "no"),
        ("json", "{a : 1, b:{c:2}}", {"unquoted_keys": True}, {"a": 1, "b": {"c": 2}}),
        ("json", '{"u": "x,b:c", n:1}', {"unquoted_keys": True}, {"u": "x,b:c", "n": 1}),
        ("json", '{"a": «x "y" \\n»}', {"string_delims": [["«", "»"]]}, {"a": 'x "y" \\n'}),
        ("json", '{"a": "«"}', {"string_delims": [["«", "»"]]}, {"a": "«"}),
        ("xml-inline", "<p=a>1</p> <p=b></p>", {}, {"a": "1", "b": ""}),
        ("xml-inline", "<p=a>1</p><p=a>2</p>", {"merge_duplicates": True}, {"a": ["1", "2"]}),
        ("xml-inline", "<p=a>[1]</p>", {"value_parser": {"name": "json"}}, {"a": [1]}),
        ("kv-lines", "a: 1\n\nno\n b :2:3", {}, {"a": "1", "b": "2:3"}),
        ("kv-lines", "a=1;b=2", {"line_sep": ";", "kv_sep": "="}, {"a": "1", "b": "2"}),
        ("python-call-list", "[]", {}, []),
        (
            "python-call-list",
            """[a.b-c(x="\\u00e9", y=['it"s', {"k": -1.5e2}], z=None), g()]""",
            {},
            [
                {"name": "a.b-c", "arguments": {"x": "é", "y": ['it"s', {"k": -150.0}], "z": None}},
                {"name": "g", "arguments": {}},
            ],
        ),
        (
            "python-call-list",
            r"[f(a='\ud83d\ude00')]",
            {},
            [{"name": "f", "arguments": {"a": "😀"}}],
        ),
    ],
)
def test_values(name: str, text: str, args: dict[str, Any], wanted: Any) -> None:
    if name == "xml-inline":
        args = {"tag_pattern": r"<p=(?P<key>\w+)>(?P<value>.*?)</p>", **args}
    assert value(name, text, **args) == wanted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("int", "4.0"),
        ("int", "9" * 5000),
        ("float", "1,5"),
        ("json", "NaN"),
        ("json", '{"a": 1} x'),
        ("json", '"\\ud800"'),
        ("json", "[" * 300 + "]" * 300),
        ("json", "[" * 100_000),
        ("python-call-list", "[f(1)]"),
        ("python-call-list", "[f(a=1,)]"),
        ("python-call-list", "[f(a=1, a=2)]"),
        ("python-call-list", "[f(a=01)]"),
        ("python-call-list", "[f(a=1.)]"),
        ("python-call-list", "[f(a=1e999)]"),
        ("python-call-list", f"[f(a={2**53})]"),
        ("python-call-list", "[f(a='x\ny')]"),
        ("python-call-list", r"[f(a='\ud800')]"),
        ("python-call-list", r"[f(a='\q')]"),
        ("python-call-list", "[f(a='"),
        ("python-call-list", "[f(a=nope)]"),
        ("python-call-list", "[f(a={b: 1})]"),
        ("python-call-list", '[f(a={"b": 1, "b": 2})]'),
        ("python-call-list", "[f(a=1)] x"),
        ("python-call-list", f"[f(a={'[' * 200}{']' * 200})]"),
        ("python-call-list", "[f(é=1)]"),
    ],
)
def test_texts_that_do_not_fit(name: str, text: str) -> None:
    with pytest.raises(ContentError):
        value(name, text)


def test_marks_that_are_dressed_up_quotes() -> None:
    args = {"unquoted_keys": True, "string_delims": [['<|"|>', '<|"|>']]}
    code = 'code:<|"|>q(<|"|><|"|><|"|>S<|"|><|"|><|"|>)<|"|>,refs:[<|"|>d<|"|>,\'e\', "f"]'
    assert value("json", f"{{{code}}}", **args) == {"code": 'q("""S""")', "refs": ["d", "e", "f"]}
    with pytest.raises(ContentError):
        value("json", '{a:<|"|>x}', **args)


def test_long_texts_in_a_dialect_take_no_longer_than_they_must() -> None:
    args = {"string_delims": [['<|"|>', '<|"|>'], ["<s>", "</s>"]]}
    for unit in ('x<|"|>', "<s>", '"', "'", "\\", "{a:", "'a\n"):
        for text in (unit * 20_000, "[" + unit * 20_000 + "]"):
            with pytest.raises(ContentError):
                value("json", text, **args)
    tags = {"tag_pattern": r"<p=(?P<key>\w+)>(?P<value>.*?)</p>"}
    assert value("xml-inline", "<p=a>" * 20_000, **tags) == {}


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(JSON_VALUES)
def test_dialects_read_plain_json_as_it_is(given_value: Any) -> None:
    text = json.dumps(given_value)
    assert value("json", text) == given_value
    args = {"unquoted_keys": True, "string_delims": [["<|", "|>"]]}
    assert value("json", text, **args) == given_value


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_]\w{0,3}", fullmatch=True).filter(str.isascii), JSON_VALUES
    )
)
def test_calls_are_read_back(arguments: dict[str, Any]) -> None:
    written = ", ".join(f"{key}={json.dumps(item)}" for key, item in arguments.items())
    assert value("python-call-list", f"[f({written})]") == [{"name": "f", "arguments": arguments}]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["int", "float", "bool", "json", "kv-lines", "python-call-list"]),
    st.text("[]{}()=,:'\"\\abf01.-eu \n", max_size=24),
)
def test_any_text_is_a_value_or_a_content_error(name: str, text: str) -> None:
    try:
        value(name, text)
        value("json", text, unquoted_keys=True, string_delims=[["'", "'"], ["<", ">"]])
    except ContentError:
        pass


def test_transforms() -> None:
    shape = {"v": "{content.a.b}", "n": 1, "l": ["{content.a}", "{ a }", None]}
    assert field('{"a": {"b": [1]}}', content="json", transform=shape) == {
        "v": [1],
        "n": 1,
        "l": [{"b": [1]}, "{ a }", None],
    }
    named = {"type": "function", "function": {"name": "{name}", "arguments": "{args}"}}
    calls = field(
        '[{"name": "f", "args": {}}]', content="json", transform=named, transform_each=True
    )
    assert calls == [{"type": "function", "function": {"name": "f", "arguments": {}}}]
    for text in ("{}", "[1]", '[{"name": "f"}]'):
        with pytest.raises(ResponseParseError) as caught:
            field(text, content="json", transform=named, transform_each=True)
        assert (caught.value.field, caught.value.position) == ("x", 3)
    for text in ('{"a": null}', '{"a": {}}', "[]"):
        with pytest.raises(ResponseParseError, match=r"content\.a\.b"):
            field(text, content="json", transform=shape)


def call_with(schema: dict[str, Any], arguments: Any, *, deep: bool = True) -> Any:
    tools = [None, {"type": "function", "function": {"name": "f", "parameters": schema}}]
    call = {"function": {"name": "f", "arguments": arguments}}
    typed = ToolTyping(tools, deep=deep).apply([call, "other"])
    assert call["function"]["arguments"] == arguments, "the value given is not changed"
    return typed[0]["function"]["arguments"]


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        ({"type": "integer"}, " 007 ", 7),
        ({"type": "integer"}, "1e3", 1000),
        ({"type": "integer"}, "7.5", "7.5"),
        ({"type": "integer"}, "9" * 30, int("9" * 30)),
        ({"type": "integer"}, "1e999999999", "1e999999999"),
        ({"type": "number"}, "1.50", 1.5),
        ({"type": "number"}, "2", 2),
        ({"type": "number"}, "nan", "nan"),
        ({"type": "boolean"}, "False", False),
        ({"type": "boolean"}, "yes", "yes"),
        ({"type": "null"}, "None", None),
        ({"type": "object"}, '{"a": 1}', {"a": 1}),
        ({"type": "object"}, '{"a": NaN}', '{"a": NaN}'),
        ({"type": "array"}, "[1]", [1]),
        ({"type": "integer", "nullable": True}, "null", None),
        ({"type": ["string", "integer"]}, "7", "7"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", None),
        ({"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "true", True),
        ({"$ref": "#/$defs/N"}, "5", 5),
        ({"$ref": "#/$defs/Missing"}, "5", "5"),
        ({"$ref": "#/$defs/Loop"}, "5", "5"),
        ({"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]}, "5", 5),
        ({"allOf": [{"$ref": "#/$defs/N"}]}, "5", 5),
        ({"enum": [1, "2", None]}, "1", 1),
        ({"enum": [1, "2", None]}, "2", "2"),
        ({"const": True}, "true", True),
        ({"anyOf": [{"enum": [1]}, {"const": "x"}]}, "1", 1),
        ({"type": "any"}, "1", "1"),
        (True, "1", "1"),
    ],
)
def test_types_of_one_argument(schema: Any, text: str, wanted: Any) -> None:
    whole = {
        "properties": {"k": schema},
        "$defs": {"N": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
    }
    typed = call_with(whole, {"k": text, "unknown": "1"})
    assert typed == {"k": wanted, "unknown": "1"}
    assert type(typed["k"]) is type(wanted)


def test_types_inside_arguments() -> None:
    schema = {
        "properties": {
            "o": {"type": "object", "properties": {"n": {"type": "integer"}}},
            "l": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}},
            "p": {"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}},
            "i": {"type": "integer"},
        },
        "additionalProperties": {"type": "number"},
    }
    given_values = {
        "o": {"n": "1", "m": "1"},
        "l": ["1", "true", "x"],
        "p": ["1", "true"],
        "i": ["1", "x"],
        "other": "1.5",
    }
    assert call_with(schema, given_values) == {
        "o": {"n": 1, "m": "1"},
        "l": [1, True, "x"],
        "p": [1, True],
        "i": [1, "x"],
        "other": 1.5,
    }
    shallow = call_with(schema, {k: given_values[k] for k in ("o", "l", "i")}, deep=False)
    assert shallow == {"o": given_values["o"], "l": given_values["l"], "i": [1, "x"]}


def test_calls_of_unknown_tools_and_text_arguments_stay() -> None:
    typing = ToolTyping([{"name": "f", "parameters": {"properties": {"a": {"type": "integer"}}}}])
    for call in (
        {"function": {"name": "g", "arguments": {"a": "1"}}},
        {"function": {"name": "f", "arguments": '{"a": "1"}'}},
        {"function": "f"},
        "f",
    ):
        assert typing.apply(call) == call
    assert typing.apply({"function": {"name": "f", "arguments": {"a": "1"}}})["function"] == {
        "name": "f",
        "arguments": {"a": 1},
    }


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({"content": "yaml"}, "unknown content type"),
        ({"content": ["json"]}, "unknown content type"),
        ({"content_args": None}, "must be an object"),
        ({"content_args": {"nope": 1}}, "has no argument 'nope'"),
        ({"content": "json", "content_args": {"unquoted_keys": 1}}, "true or false"),
        ({"content": "json", "content_args": {"string_delims": [["a"]]}}, "pairs"),
        ({"content": "xml-inline"}, "tag_pattern"),
        ({"content": "xml-inline", "content_args": {"tag_pattern": "("}}, "does not compile"),
        ({"content": "xml-inline", "content_args": {"tag_pattern": "a"}}, "'key'"),
        ({"content": "kv-lines", "content_args": {"kv_sep": ""}}, "non-empty"),
        ({"content": "kv-lines", "content_args": {"value_parser": "json"}}, "object"),
        (
            {"content": "kv-lines", "content_args": {"value_parser": {"name": "x"}}},
            "unknown content",
        ),
        ({"content": "kv-lines", "content_args": {"value_parser": {"nome": "x"}}}, "no key 'nome'"),
        ({"transform": "n: {content}"}, "mixes"),
        ({"transform": {"k": ["{nope.a}"]}}, "unknown"),
        ({"transform_each": True}, "needs a transform"),
        ({"transform": {}, "transform_each": 1}, "true or false"),
    ],
)
def test_what_is_known_at_load_is_said_at_load(described: dict[str, Any], reason: str) -> None:
    with pytest.raises(ResponseTemplateError, match=reason) as caught:
        field("1", **described)
    assert caught.value.field == "x"
