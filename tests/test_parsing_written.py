"""Calls that are written out in every family's notation are the calls that are read back."""

from __future__ import annotations

from typing import Any

import pytest

from parsing import ResponseTemplate, load_template, parse_response
from parsing.written import written_call
from tests.test_parsing_library import FILES

CALLING = [file for file in FILES.values() if "tool_calls" in file.template.fields]
PROPERTIES = {
    "a": {"type": "integer"},
    "b": {"type": "array"},
    "c": {"type": "string"},
    "d": {"type": "object"},
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_it", "parameters": {"type": "object", "properties": PROPERTIES}},
    }
]
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"c": "São Paulo"},
    {"a": -1, "b": [True, None, 2.5, "x"], "c": 'two\nlines, "quotes"', "d": {"e": {}}},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=["none", "one", "all"])
@pytest.mark.parametrize("file", CALLING, ids=lambda file: str(file.name))
def test_a_written_call_is_read_back(file: Any, arguments: dict[str, Any]) -> None:
    text = written_call(file.template, "get_it", arguments, tools=TOOLS)
    assert text is not None
    message = parse_response(text, file.template, prefix="", tools=TOOLS, deep_types=True)
    [call] = message["tool_calls"]
    assert call["function"] == {"name": "get_it", "arguments": arguments}
    assert "<|im_end|>" not in text
    assert "<|eot_id|>" not in text


def template(**calls: Any) -> ResponseTemplate:
    fields = {"tool_calls": calls, "content": {"close": "<end>"}}
    return load_template({"start_anchor": "<start>", "fields": fields})


FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}


def test_what_is_not_read_back_is_not_told() -> None:
    lines = template(
        open_pattern=r"<call (?P<name>\w+)>",
        close="</call>",
        repeats=True,
        content="kv-lines",
        transform=FUNCTION,
    )
    assert written_call(lines, "f", {"a": "x"}) == "<call f>\na: x\n</call>"
    assert written_call(lines, "no name", {}) is None
    assert written_call(lines, "f", {"a": "two\nlines"}) is None
    assert written_call(lines, "f", {"a": "</call>"}) is None
    silent = load_template({"start_anchor": "x", "fields": {"content": {}}})
    assert written_call(silent, "f", {}) is None
