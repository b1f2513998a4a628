"""From pieces of text to deltas and region events: the same message however the text is cut."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsing import ResponseTemplate, load_template, parse_response
from server.deltas import (
    AnswerReader,
    ContentDelta,
    Output,
    ReasoningDelta,
    RegionEvent,
    StructuredReader,
)
from server.growing import whole_escapes
from server.templates import region_reader, without_tool_calls

PREFIX = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"

THINKING = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close": "</think>"},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "content": "json",
            "repeats": True,
        },
        "content": {"close": "<|im_end|>"},
    },
}


def template(*, tools: bool = False) -> ResponseTemplate:
    loaded = load_template(THINKING)
    return loaded if tools else without_tool_calls(loaded)


def run(reader: AnswerReader, pieces: Iterable[str]) -> list[Output]:
    outputs = reader.start()
    for text in pieces:
        outputs += reader.feed(text)
    return outputs + reader.finish()


def joined(outputs: list[Output], kind: type) -> str:
    return "".join(o.text for o in outputs if type(o) is kind)  # type: ignore[union-attr]


def regions(outputs: list[Output]) -> list[tuple[str, str]]:
    return [
        (o.type, o.field)
        for o in outputs
        if isinstance(o, RegionEvent) and o.type != "region_chunk"
    ]


def cuts(text: str) -> st.SearchStrategy[list[str]]:
    """All the ways of cutting a text up."""
    return st.lists(st.integers(0, len(text))).map(
        lambda at: [
            text[a:b] for a, b in zip([0, *sorted(at)], [*sorted(at), len(text)], strict=True)
        ]
    )


ANSWER = "<think>\nLet me see.\n</think>\n\nHello, **you**.\n<tool_call>{}</tool_call> <b>\n\n"


@given(cuts(ANSWER))
def test_the_message_does_not_depend_on_the_cuts(pieces: list[str]) -> None:
    reader = region_reader(template(), PREFIX)
    outputs = run(reader, pieces)
    assert reader.message.content == "Hello, **you**.\n<tool_call>{}</tool_call> <b>"
    assert reader.message.reasoning == "Let me see."
    assert joined(outputs, ContentDelta) == reader.message.content
    assert joined(outputs, ReasoningDelta) == reader.message.reasoning
    assert regions(outputs) == [
        ("region_open", "reasoning_content"),
        ("region_close", "reasoning_content"),
        ("region_open", "content"),
        ("region_close", "content"),
    ]


def test_events_come_in_true_order_each_before_its_delta() -> None:
    outputs = run(region_reader(template(), PREFIX), ["<think>a", "b</think>c", "d"])
    assert outputs == [
        RegionEvent("region_open", "reasoning_content"),
        RegionEvent("region_chunk", "reasoning_content", text="a"),
        ReasoningDelta("a"),
        RegionEvent("region_chunk", "reasoning_content", text="b"),
        ReasoningDelta("b"),
        RegionEvent("region_close", "reasoning_content", value="ab"),
        RegionEvent("region_open", "content"),
        RegionEvent("region_chunk", "content", text="c"),
        ContentDelta("c"),
        RegionEvent("region_chunk", "content", text="d"),
        ContentDelta("d"),
        RegionEvent("region_close", "content", value="cd"),
    ]


def test_a_region_that_the_prompt_has_opened_is_announced() -> None:
    reader = region_reader(template(), PREFIX + "<think>\n")
    outputs = run(reader, ["so", "</think>ok"])
    assert outputs[0] == RegionEvent("region_open", "reasoning_content")
    assert reader.message.reasoning == "so"
    assert reader.message.content == "ok"


def test_what_lies_inside_the_prompt_is_no_part_of_the_answer() -> None:
    reader = region_reader(template(), PREFIX + "<think>\n\n</think>\n\n")
    outputs = run(reader, ["391"])
    assert reader.message.content == "391"
    assert reader.message.reasoning is None
    assert ("region_open", "reasoning_content") not in regions(outputs)


def test_a_prompt_without_the_anchor_adds_nothing_to_the_answer() -> None:
    reader = region_reader(template(), "Once upon a time <think>")
    run(reader, ["there was"])
    assert reader.message.content == "there was"


def test_a_malformed_region_is_not_lost() -> None:
    reader = region_reader(template(tools=True), PREFIX)
    outputs = run(reader, ["a<tool_call>{no json}</tool_call>"])
    assert "{no json}" in reader.message.content
    assert reader.message.error is not None
    assert joined(outputs, ContentDelta) == reader.message.content


def test_without_tools_a_call_is_content_and_a_template_without_implicit_field_stays() -> None:
    assert "tool_calls" not in template().fields
    source = {
        "start_anchor": "x",
        "fields": {"content": {"open": "<c>", "close": "</c>"}, "tool_calls": {"open": "<t>"}},
    }
    loaded = load_template(source)
    assert without_tool_calls(loaded) is loaded


def test_white_space_that_the_template_keeps_is_kept() -> None:
    source = {
        "start_anchor": "<|im_start|>assistant\n",
        "fields": {"content": {"content_args": {"strip": False}}},
    }
    reader = region_reader(load_template(source), PREFIX)
    outputs = run(reader, [" a", " "])
    assert reader.message.content == " a "
    assert joined(outputs, ContentDelta) == " a "


JOINED = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {
            "open": "<think>",
            "close": "</think>",
            "repeats": True,
            "join": "\n",
        },
        "content": {"repeats": True, "join": "\n\n"},
    },
}


@given(cuts(" a \n<think> x</think> \n <think>y </think>b c\n"))
def test_regions_of_one_field_are_joined_as_the_template_says(pieces: list[str]) -> None:
    reader = region_reader(load_template(JOINED), PREFIX)
    outputs = run(reader, pieces)
    whole = parse_response("".join(pieces), JOINED, prefix=PREFIX)
    assert whole == {"content": "a\n\nb c", "reasoning_content": "x\ny"}
    assert reader.message.content == whole["content"] == joined(outputs, ContentDelta)
    assert reader.message.reasoning == whole["reasoning_content"]
    assert joined(outputs, ReasoningDelta) == reader.message.reasoning


def test_an_empty_answer_is_empty() -> None:
    reader = region_reader(template(), PREFIX)
    run(reader, [])
    assert (reader.message.content, reader.message.reasoning) == ("", None)


# --- structured answers ------------------------------------------------------------------------

JSON_TEXT = json.dumps({"a": 'x"\\\u00e9\U0001f600', "b": ["\n", "\\u0041"]})

_STRING = re.compile(r'(?:[^"\\]|\\.)*')


@given(cuts(f" \n{JSON_TEXT}\n"))
def test_a_structured_answer_is_its_text_and_never_stops_inside_an_escape(
    pieces: list[str],
) -> None:
    reader = StructuredReader()
    outputs = run(reader, pieces)
    assert reader.message.content == JSON_TEXT
    assert joined(outputs, ContentDelta) == JSON_TEXT
    so_far = ""
    for output in outputs:
        if isinstance(output, ContentDelta):
            so_far += output.text
            body = so_far.removeprefix('{"a": "')
            if body != so_far:
                string = _STRING.match(body)
                assert string is not None
                assert body[string.end() :][:1] in ("", '"'), "half an escape"
                json.loads(f'"{string[0]}"').encode()


def test_a_structured_answer_is_one_region() -> None:
    outputs = run(StructuredReader(), ["", " ", '{"a"', ": 1}"])
    assert outputs == [
        RegionEvent("region_open", "content"),
        RegionEvent("region_chunk", "content", text='{"a"'),
        ContentDelta('{"a"'),
        RegionEvent("region_chunk", "content", text=": 1}"),
        ContentDelta(": 1}"),
        RegionEvent("region_close", "content", value='{"a": 1}'),
    ]


def test_a_structured_answer_that_was_cut_off_is_passed_on_whole() -> None:
    reader = StructuredReader()
    outputs = run(reader, ['"\\ud83d', "\\ude"])
    assert reader.message.content == '"\\ud83d\\ude'
    assert joined(outputs, ContentDelta) == reader.message.content


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("", ""),
        ("abc", ""),
        ("a\\", "\\"),
        ("a\\\\", ""),
        ("a\\\\\\", "\\"),
        ("\\n", ""),
        ("\\u", "\\u"),
        ("\\u00e", "\\u00e"),
        ("\\u00e9", ""),
        ("\\uD83D", "\\uD83D"),
        ("\\ud83d\\", "\\ud83d\\"),
        ("\\ud83d\\u", "\\ud83d\\u"),
        ("\\ud83d\\ude0", "\\ud83d\\ude0"),
        ("\\ud83d\\ude00", ""),
        ("\\ud83d\\ude00\\ud83d", "\\ud83d"),
        ("\\ude00", ""),
        ("\\ud83dx", ""),
        ("\\ud83d\\n", ""),
        ("\\ud83d\\u0041", ""),
        ("\\uzzzz", ""),
        ("\\\\ud83d", ""),
    ],
)
def test_what_is_held_back(text: str, held: str) -> None:
    assert text[whole_escapes(text) :] == held
