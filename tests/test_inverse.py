"""Templates read backwards: what they say, what can't be inverted, the formats of the values."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from grammar import (
    Grammar,
    GrammarCache,
    GrammarSourceError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from grammar.turn_parts import ChoiceValue, GbnfValue, JsonValue, PatternValue, ValueSource
from parsing import ResponseTemplate, load_template, parse_response
from parsing.inverse import Beginning, beginning_of, inverse_of
from parsing.shapes import class_ranges
from server.turn_tools import ToolChoiceError
from server.turns import TurnGrammar, turn_grammar
from tests.grammar_support import VOCABULARY, accepts
from tests.turn_support import TEMPLATES, TOOLS, check_calls, take_text, walk

CACHE = GrammarCache()
CHATML = "<|im_start|>assistant\n"


def made(template: ResponseTemplate | str, **options: Any) -> TurnGrammar:
    loaded = TEMPLATES[template] if isinstance(template, str) else template
    return turn_grammar(loaded, vocabulary=VOCABULARY, cache=CACHE, **options)


def grammar_of(template: ResponseTemplate | str, **options: Any) -> Grammar:
    found = made(template, **options)
    assert found.grammar is not None, found.reason
    return found.grammar


def described(**fields: Any) -> ResponseTemplate:
    return load_template({"start_anchor": "@", "fields": fields})


def tool(name: str, properties: dict[str, Any], **more: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "parameters": parameters | more}}


# --- what a template says ------------------------------------------------------------------------


def test_every_shipped_template_can_be_inverted() -> None:
    for name, template in TEMPLATES.items():
        assert inverse_of(template).reason is None, name


def test_classes_are_exactly_what_the_engine_says() -> None:
    assert class_ranges("[^<]") == ((0, 59), (61, 0xD7FF), (0xE000, 0x10FFFF))
    assert class_ranges(r"\d")[0] == (48, 57)
    assert len(class_ranges(r"\d")) > 40


CALL = {"open": "<c>", "close": "</c>", "content": "json"}
FUNCTION = {"function": {"name": "{name}", "arguments": "{content}"}}


@pytest.mark.parametrize(
    ("field", "change", "reason"),
    [
        ("think", {"open_pattern": r"(<)x\1", "close": ">"}, "open_pattern"),
        ("think", {"open_pattern": r"(?i)<x>", "close": ">"}, "flags"),
        ("think", {"open": "<x>", "close_pattern": r"a(?<=b)c"}, "not at the beginning"),
        ("think", {"open": "<x>", "close_pattern": r"(?<=b)c"}, "what stands before"),
        ("think", {"open_pattern": r"<x\b>", "close": ">"}, "not at the beginning"),
        ("tool_calls", {**CALL, "transform": {"name": "{content.a}"}}, "function"),
        ("tool_calls", {**CALL, "transform": {"function": {"name": "x"}}}, "placeholder"),
        (
            "tool_calls",
            {
                **CALL,
                "transform": {"function": {"name": "{content.a.b}", "arguments": "{content.c}"}},
            },
            "not a key",
        ),
        (
            "tool_calls",
            {**CALL, "content": "text", "transform": FUNCTION["function"]},
            "tool_calls",
        ),
        ("think", {"open": "<x>", "close": ">", "transform": ["{content}"]}, "transform"),
    ],
)
def test_what_cant_be_inverted_is_named(field: str, change: dict[str, Any], reason: str) -> None:
    if "name" in json.dumps(change.get("transform", "")) and "{name}" in json.dumps(change):
        change = {**change, "open_pattern": "<(?P<name>x)>"}
        del change["open"]
    template = described(**{field: change}, content={})
    faults = inverse_of(template).faults
    assert [fault.field for fault in faults] == [field]
    assert reason in faults[0].reason or reason == field
    answer = made(template, content=JsonValue({"type": "integer"}))
    assert answer.grammar is None
    assert field in (answer.reason or "")


@pytest.mark.parametrize(
    ("prefix", "wanted"),
    [
        ("", Beginning()),
        (CHATML, Beginning()),
        (CHATML + "<think>\n", Beginning(open="reasoning_content", fresh=False)),
        (CHATML + "<think>\n\n</think>\n\n", Beginning(closed="reasoning_content", fresh=False)),
        (CHATML + "<think></think>So", Beginning(fresh=False)),
        (CHATML + "Well", Beginning(fresh=False)),
        (f"{CHATML}<think>a</think>b<|im_end|>\n{CHATML}", Beginning()),
    ],
)
def test_the_prompt_says_where_an_answer_begins(prefix: str, wanted: Beginning) -> None:
    assert beginning_of(TEMPLATES["qwen3"], prefix) == wanted


# --- content -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "good", "bad"),
    [
        (PatternValue(r"[ab<>/think]{1,9}"), ["ab", "<think", "hint"], ["<think>", "", "c"]),
        (ChoiceValue(("yes", "no", "<think>")), ["yes", "no"], ["<think>", "y", "yesno"]),
        (GbnfValue('root ::= [0-9]+ ("," [0-9]+)*'), ["1", "1,23"], ["", "1,", "x"]),
        (JsonValue({"type": "integer"}), ["1", "-20"], ["", "1.5", '"1"']),
    ],
)
def test_content_of_every_kind(value: ValueSource, good: list[str], bad: list[str]) -> None:
    grammar = grammar_of("qwen3", content=value)
    for text in good:
        for before in ("", "\n", "<think>\nhm, {1}\n</think>\n\n"):
            assert take_text(grammar.start(), before + text) is None, before + text
    for text in bad:
        assert not accepts(grammar, text)
        assert take_text(grammar.start(), "<think>hm</think>" + text) is not None
    assert not accepts(grammar, good[0] + " and more")
    assert not accepts(grammar, "so: " + good[0])


def test_content_that_is_all_delimiters_is_refused() -> None:
    with pytest.raises(GrammarSourceError, match="delimiters"):
        made("qwen3", content=ChoiceValue(("<think>",)))
    with pytest.raises(GrammarSourceError, match="lead back"):
        made("qwen3", content=GbnfValue('root ::= "(" root ")" | "x"'))


def test_content_is_never_read_as_a_call() -> None:
    free = grammar_of("llama3", content=JsonValue({"type": "object"}), tools=TOOLS)
    assert accepts(free, '{"name": "x", "text": 1}')
    assert accepts(free, '{"name": "now", "parameters": {}}')
    assert not accepts(free, '{"name": "x", "parameters": {}}')
    both = {"type": "object", "required": ["name", "parameters"]}
    answer = made("llama3", content=JsonValue(both), tools=TOOLS)
    assert answer.grammar is None
    assert "read as a call" in (answer.reason or "")
    assert made("llama3", content=JsonValue(both)).grammar is not None


def test_strings_hold_no_delimiters_however_they_are_spelled() -> None:
    schema = {
        "type": "object",
        "properties": {"s": {"type": "string"}, "<think>": {"const": "<think>"}},
    }
    grammar = grammar_of("qwen3", content=JsonValue(schema))
    assert accepts(grammar, '{"s": "<thin>"}')
    assert not accepts(grammar, '{"s": "<think>"}')
    assert accepts(grammar, '{"\\u003cthink>": "\\u003cthink>"}')
    assert not accepts(grammar, '{"<think>": "<think>"}')


# --- tools ---------------------------------------------------------------------------------------


def called(*calls: tuple[str, str]) -> str:
    return "".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>\n'
        for name, arguments in calls
    )


NOW = ("now", "{}")
NOTE = ("note-it", '{"text": "a"}')


def test_tool_choice_in_all_forms() -> None:
    allowed = {
        "type": "allowed_tools",
        "allowed_tools": {
            "mode": "required",
            "tools": [{"type": "function", "function": {"name": "now"}}],
        },
    }
    only_now: tuple[Any, ...] = ({"type": "function", "function": {"name": "now"}}, allowed)
    for choice in only_now:
        grammar = grammar_of("qwen3", tools=TOOLS, tool_choice=choice)
        assert accepts(grammar, called(NOW))
        assert accepts(grammar, called(NOW, NOW))
        assert not accepts(grammar, called(NOTE))
        assert not accepts(grammar, "Hello")
    auto = {**allowed, "allowed_tools": {**allowed["allowed_tools"], "mode": "auto"}}  # type: ignore[dict-item]
    grammar = grammar_of("qwen3", tools=TOOLS, tool_choice=auto)
    assert accepts(grammar, "Hello " + called(NOW))
    assert not accepts(grammar, "Hello " + called(NOTE))
    required = grammar_of("qwen3", tools=TOOLS, tool_choice="required")
    assert accepts(required, called(NOW, NOTE))
    assert not accepts(required, "Hello" + called(NOW))
    single = grammar_of("qwen3", tools=TOOLS, tool_choice="auto", parallel=False)
    assert accepts(single, "Hello " + called(NOTE) + "done")
    assert not accepts(single, called(NOTE, NOW))
    none = grammar_of("qwen3", tools=TOOLS, tool_choice="none")
    assert accepts(none, "Hello")
    assert not accepts(none, "Hello " + called(NOW))


@pytest.mark.parametrize(
    "choice",
    [
        "any",
        {"type": "function", "function": {"name": "absent"}},
        {"type": "function"},
        {"type": "allowed_tools", "mode": "some", "tools": [{"name": "now"}]},
        {"type": "allowed_tools", "mode": "auto", "tools": []},
    ],
)
def test_no_such_tool_choice(choice: Any) -> None:
    with pytest.raises(ToolChoiceError):
        made("qwen3", tools=TOOLS, tool_choice=choice)
    with pytest.raises(ToolChoiceError):
        made("qwen3", tool_choice="required")


def test_nothing_asked_for_is_no_grammar() -> None:
    for name in ("qwen3", "chatml"):
        assert made(name) == TurnGrammar(None)


def test_what_strict_tools_cant_enforce_is_an_error_with_its_place() -> None:
    odd = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(.)\1$"}}}
    function = {"name": "odd", "parameters": odd}
    with pytest.raises(UnsupportedSchemaError) as caught:
        made(
            "qwen3", tools=[*TOOLS, {"type": "function", "function": {**function, "strict": True}}]
        )
    assert [i.pointer for i in caught.value.issues] == ["/tools/3/function/parameters/properties/a"]
    loose = made("qwen3", tools=[*TOOLS, {"type": "function", "function": function}])
    assert [issue.pointer for issue in loose.issues] == [
        "/tools/3/function/parameters/properties/a"
    ]
    assert loose.grammar is not None


def test_a_schema_that_cant_be_compiled_takes_any_object() -> None:
    broken = {"type": "object", "properties": {"a": {"$ref": "http://elsewhere.example/x"}}}
    answer = made(
        "qwen3", tools=[{"type": "function", "function": {"name": "f", "parameters": broken}}]
    )
    assert answer.grammar is not None
    assert accepts(answer.grammar, called(("f", '{"a": [1]}')))
    assert answer.issues[0].pointer.startswith("/tools/0/function/parameters/properties/a")
    nothing = tool("f", {"a": False}, required=["a"])
    nothing["function"]["strict"] = True
    with pytest.raises(UnsatisfiableSchemaError):
        made("qwen3", tools=[nothing])


def test_tools_that_a_format_cant_write_are_told() -> None:
    unnamed = made("lfm2", tools=[*TOOLS, tool("with space", {})])
    assert [(issue.keyword, issue.pointer) for issue in unnamed.issues] == [
        ("name", "/tools/3/function")
    ]
    keyword = tool("f", {"not a word": {"type": "integer"}}, required=["not a word"])
    answer = made("lfm2", tools=[TOOLS[2], keyword])
    assert answer.grammar is not None
    assert [issue.pointer for issue in answer.issues] == ["/tools/1/function"]
    assert accepts(answer.grammar, "<|tool_call_start|>[now()]<|tool_call_end|>")
    assert made("lfm2", tools=[keyword], tool_choice="required").grammar is None


# --- formats of arguments ------------------------------------------------------------------------

TYPED = tool(
    "f",
    {
        "text": {"type": "string", "minLength": 1, "maxLength": 9},
        "maybe": {"type": ["string", "null"]},
        "n": {"type": "integer", "maximum": 9},
        "flag": {"type": ["boolean", "integer"]},
        "of": {"enum": ["a", 1, 2.5, False, None]},
        "list": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "any": {},
    },
    required=["text", "n"],
)
NAMED = {
    "open_pattern": r"<call (?P<name>\w+)>\n?",
    "close": "</call>",
    "repeats": True,
    "transform": FUNCTION,
}
FORMATS: dict[str, dict[str, Any]] = {
    "lines": {"content": "kv-lines"},
    "lines with signs": {
        "content": "kv-lines",
        "content_args": {"line_sep": ";;", "kv_sep": "=", "strip": False},
    },
    "json in tags": {
        "content": "xml-inline",
        "content_args": {
            "tag_pattern": r"<(?P<key>\w+)>(?P<value>.*?)</(?:\w+)>",
            "value_parser": {"name": "json"},
        },
    },
    "tags": {
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<p=(?P<key>[^>]+)>\s*(?P<value>.*?)\s*</p>"},
    },
    "marked": {
        "content": "json",
        "content_args": {"unquoted_keys": True, "string_delims": [["[[", "]]"], ["'", "'"]]},
    },
}


@pytest.mark.parametrize("name", FORMATS)
def test_arguments_in_every_format(name: str) -> None:
    template = described(
        tool_calls={**NAMED, **FORMATS[name]}, content={"repeats": True, "join": ""}
    )
    grammar = grammar_of(template, tools=[TYPED], tool_choice="required")
    for seed in range(40):
        text = walk(grammar.start(), random.Random(seed), steps=random.Random(seed).choice((5, 50)))
        message = parse_response(text, template, prefix="", tools=[TYPED], deep_types=True)
        assert check_calls(message, [TYPED]), text


def test_lists_of_calls_end_where_they_should() -> None:
    text = '[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "now", "arguments": {}}]'
    both = grammar_of("mistral_v3", tools=TOOLS)
    assert take_text(both.start(), text) is None
    single = grammar_of("mistral_v3", tools=TOOLS, parallel=False)
    assert take_text(single.start(), text) is not None
