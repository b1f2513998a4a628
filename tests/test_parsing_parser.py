"""The parser as its callers see it: events, messages, errors, prefixes, second thoughts."""

from __future__ import annotations

from typing import Any

import pytest

from parsing import (
    ResponseParseError,
    ResponseParser,
    ResponseTemplateError,
    load_template,
    parse_response,
)

CALL = {"type": "function", "function": "{content}"}
TEMPLATE: dict[str, Any] = {
    "start_anchor": "<|assistant|>",
    "fields": {
        "reasoning": {"open": "<think>", "close": "</think>"},
        "calls": {
            "open": "<call>",
            "close": "</call>",
            "repeats": True,
            "content": "json",
            "transform": CALL,
        },
        "content": {"close": "<end>"},
    },
    "defaults": {"role": "assistant"},
}


def run(
    text: str, template: dict[str, Any] = TEMPLATE
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    parser = ResponseParser(template, prefix="")
    events = [event for character in text for event in parser.feed(character)]
    message, last = parser.finalize()
    return message, events + last


def ends(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [e for e in events if e["type"] in ("region_close", "region_malformed")]


def test_events_in_order() -> None:
    parser = ResponseParser(TEMPLATE, prefix="user<|assistant|>")
    assert parser.initial_events == []
    assert parser.feed("<think>hm</thi") == [
        {"type": "region_open", "field": "reasoning"},
        {"type": "region_chunk", "field": "reasoning", "text": "hm", "dirty": False},
    ]
    assert parser.feed("") == []
    assert parser.feed("nk>Hi<call>1") == [
        {"type": "region_close", "field": "reasoning", "value": "hm"},
        {"type": "region_open", "field": "content"},
        {"type": "region_chunk", "field": "content", "text": "Hi", "dirty": False},
        {"type": "region_close", "field": "content", "value": "Hi"},
        {"type": "region_open", "field": "calls"},
        {"type": "region_chunk", "field": "calls", "text": "1", "dirty": True},
    ]
    value = {"type": "function", "function": 1}
    message, last = parser.finalize()
    assert last == [{"type": "region_close", "field": "calls", "value": value, "closed": False}]
    assert message == {"role": "assistant", "reasoning": "hm", "content": "Hi", "calls": [value]}
    with pytest.raises(RuntimeError):
        parser.feed("x")
    with pytest.raises(RuntimeError):
        parser.finalize()


def test_values_in_events_are_copies() -> None:
    message, events = run('<call>{"a": [1]}</call>')
    ends(events)[0]["value"]["function"]["a"].append(2)
    assert message["calls"][0]["function"] == {"a": [1]}


def test_the_prefix_is_cut_at_its_last_anchor_and_parsed() -> None:
    parser = ResponseParser(TEMPLATE, prefix="<|assistant|>old<end><|assistant|><think>\nSo")
    assert [event["type"] for event in parser.initial_events] == ["region_open", "region_chunk"]
    parser.feed(" be it</think>Hi")
    assert parser.finalize()[0]["reasoning"] == "So be it"


def test_a_prefix_is_required() -> None:
    for prefix in (None, [1, 2]):
        with pytest.raises(ResponseParseError, match="prefix"):
            parse_response("x", TEMPLATE, prefix=prefix)  # type: ignore[arg-type]


def test_white_space_between_regions_wipes_nothing() -> None:
    text = "Hello.\n<call>1</call>\n<call>2</call>\n<end>\n<end>\n"
    message, events = run(text)
    assert message["content"] == "Hello."
    assert [e["value"] for e in ends(events) if e["field"] == "content"] == [
        "Hello.",
        "",
        "",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("described", "wanted"),
    [
        ({}, "q"),
        ({"repeats": True}, ["p", "q"]),
        ({"repeats": True, "join": "|"}, "p|q"),
        ({"content_args": {"strip": False}}, "q"),
        ({"transform": {"text": "{content}"}}, {"text": "q"}),
    ],
)
def test_blank_stretches_do_not_count(described: dict[str, Any], wanted: Any) -> None:
    template = {
        "start_anchor": "@",
        "fields": {"x": {"open": "<a>", "close": "</a>"}, "c": described},
    }
    assert run("p<a></a>\n<a></a>q<a></a> ", template)[0]["c"] == wanted


def test_blank_text_is_kept_where_it_is_all_there_is() -> None:
    template = {"start_anchor": "@", "fields": {"c": {"content_args": {"strip": False}}}}
    assert run(" \n", template)[0] == {"c": " \n"}
    number = {"start_anchor": "@", "fields": {"c": {"content": "int", "close": "<e>"}}}
    assert run("7<e>\n", number)[0] == {"c": 7}


def test_a_malformed_region_harms_nothing_else() -> None:
    text = "Hi<call>{</call><call>2</call>"
    message, events = run(text)
    assert message == {
        "role": "assistant",
        "content": "Hi",
        "calls": [{"type": "function", "function": 2}],
    }
    malformed = [event for event in events if event["type"] == "region_malformed"]
    assert [(e["field"], e["text"], e["position"]) for e in malformed] == [("calls", "{", 8)]
    with pytest.raises(ResponseParseError) as caught:
        parse_response(text, TEMPLATE, prefix="")
    assert (caught.value.field, caught.value.position) == ("calls", 8)
    assert caught.value.message == message
    assert len(caught.value.malformed) == 1


def test_a_required_field_that_never_came() -> None:
    fields = {"x": {"open": "<a>", "close": "</a>", "optional": False}, "c": {}}
    with pytest.raises(ResponseParseError, match="required") as caught:
        parse_response("Hi", {"start_anchor": "@", "fields": fields}, prefix="")
    assert caught.value.field == "x"
    assert caught.value.message == {"c": "Hi"}


def test_a_forgotten_close_swallows_nothing() -> None:
    message, events = run("<think>Look it up. <call>1</call> Done.<end>")
    assert message["reasoning"] == "Look it up."
    assert message["calls"] == [{"type": "function", "function": 1}]
    assert message["content"] == "Done."
    assert [event.get("closed", True) for event in ends(events)] == [False, True, True]


@pytest.mark.parametrize(
    ("text", "reasoning"),
    [
        ("<think>hm<end>", "hm"),
        ("<think>tags like <call> and </call> are", "tags like <call> and </call> are"),
        ("<think>a <call> b", "a <call> b"),
        ("<think>some <call> here</think>", "some <call> here"),
    ],
)
def test_a_tag_that_is_only_named_opens_nothing(text: str, reasoning: str) -> None:
    message, _ = run(text)
    assert message == {"role": "assistant", "reasoning": reasoning}


def test_an_end_mark_in_place_of_a_close() -> None:
    message, events = run("<call>[1]<end>")
    assert message["calls"] == [{"type": "function", "function": [1]}]
    assert ends(events)[0]["closed"] is False


def test_a_call_cut_off_within_an_argument_is_no_call() -> None:
    field = {
        "open_pattern": r"<f=(?P<name>\w+)>",
        "close": "</f>",
        "content": "xml-inline",
        "content_args": {"tag_pattern": r"<p=(?P<key>\w+)>(?P<value>.*?)</p>"},
        "transform": {"name": "{name}", "arguments": "{content}"},
    }
    template = {"start_anchor": "@", "fields": {"call": field}}
    message, events = run("<f=go><p=a>1</p><p=b>unfin", template)
    assert message == {}
    assert events[-1]["type"] == "region_malformed"
    assert events[-1]["closed"] is False
    assert run("<f=go></f>", template)[0] == {"call": {"name": "go", "arguments": {}}}


def test_order_defaults_and_empty_values() -> None:
    fields = {
        "b": {"open": "<b>", "close": "</b>"},
        "a": {"open": "<a>", "close": "</a>", "content": "int"},
        "d": {"open": "<d>", "close": "</d>"},
    }
    template = {"start_anchor": "@", "fields": fields, "defaults": {"d": None, "z": []}}
    message, _ = run("<a>0</a><b></b><d></d>", template)
    assert list(message.items()) == [("d", ""), ("z", []), ("a", 0)]
    template["defaults"]["z"].append(1)
    assert run("", template)[0] == {"d": None, "z": [1]}


def test_groups_of_both_sides() -> None:
    fields = {
        "x": {
            "open_pattern": r"<(?P<k>\w+)(?: v=(?P<o>\w))?>",
            "close_pattern": r"</(?P<e>\w+)>",
            "transform": ["{k}", "{content}", "{e}"],
        }
    }
    template = {"start_anchor": "@", "fields": fields}
    assert run("<p>1</q>", template)[0] == {"x": ["p", "1", "q"]}
    fields["x"]["transform"] = ["{o}"]
    _, events = run("<p>1</q>", template)
    assert events[-1]["type"] == "region_malformed"


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        ("x", None),
        ({"fields": {"c": {}}}, None),
        ({"start_anchor": "@", "fields": {}}, None),
        ({"start_anchor": "@", "fields": [1]}, None),
        ({"start_anchor": "", "fields": {"c": {}}}, None),
        ({"start_anchor": "@", "start_anchor_pattern": "@", "fields": {"c": {}}}, None),
        ({"start_anchor_pattern": "(", "fields": {"c": {}}}, None),
        ({"start_anchor": "@", "version": 2, "fields": {"c": {}}}, None),
        ({"start_anchor": "@", "defaults": None, "fields": {"c": {}}}, None),
        ({"start_anchor": "@", "extra": 1, "fields": {"c": {}}}, None),
        ({"start_anchor": "@", "fields": {"c": {}, "d": {}}}, None),
        ({"start_anchor": "@", "fields": {"c": "<a>"}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"opens": "a"}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"open": None}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"open": []}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"open": ["a", ""]}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"open": "a", "open_pattern": "a"}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"close_pattern": ["a"]}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"close_pattern": "(?P<n>a)"}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"join": ""}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"join": 1, "repeats": True}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"repeats": "false"}}}, "c"),
        ({"start_anchor": "@", "fields": {"c": {"optional": 0}}}, "c"),
        ({"start_anchor": "@", "defaults": {"c": ""}, "fields": {"c": {"repeats": True}}}, "c"),
    ],
)
def test_broken_templates(broken: Any, field: str | None) -> None:
    with pytest.raises(ResponseTemplateError) as caught:
        ResponseParser(broken, prefix="")
    assert caught.value.field == field


def test_templates_can_be_shared() -> None:
    template = load_template(TEMPLATE)
    assert load_template(template) is template
    first, second = ResponseParser(template, prefix=""), ResponseParser(template, prefix="")
    first.feed("<think>a")
    second.feed("b")
    assert first.finalize()[0]["reasoning"] == "a"
    assert second.finalize()[0] == {"role": "assistant", "content": "b"}
