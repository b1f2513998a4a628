"""Tool calls as they come, of every shipped format: the same deltas joined, however cut, wherever
the answer ends."""

from __future__ import annotations

import gc
import json
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsing import load_template
from server.calls import AnswerCall, ToolCallDelta, ValueEvent
from server.deltas import (
    AnswerMessage,
    ContentDelta,
    Output,
    ReasoningDelta,
    RegionEvent,
)
from server.templates import region_reader
from tests.family_samples import FAMILIES, SAMPLES, TOOLS, Sample, call, messages_of, with_ids
from tests.test_response_templates import CALLING, FILES, WORDS, conversation, cuts, source_of

TEMPLATES = {name: file.template for name, file in FILES.items()}
WITH_CALLS = [sample for sample in SAMPLES if "tool_calls" in sample.message]


def run(
    name: str, pieces: Iterable[str], prefix: str = "", *, values: bool = True
) -> tuple[AnswerMessage, list[Output]]:
    """The message and all outputs; checks what holds for every answer."""
    template = TEMPLATES[name]
    reader = region_reader(template, prefix, tools=TOOLS, values=values)
    outputs = reader.start()
    for piece in pieces:
        outputs += reader.feed(piece)
    outputs += reader.finish()
    message = reader.message
    assert joined(outputs) == told(message)
    assert "".join(o.text for o in outputs if isinstance(o, ContentDelta)) == message.content
    reasoning = "".join(o.text for o in outputs if isinstance(o, ReasoningDelta))
    assert reasoning == (message.reasoning or "")
    return message, outputs


def joined(outputs: Iterable[Output]) -> list[list[str]]:
    """Id, name and arguments of each call, from its deltas; announced once, in order."""
    calls: list[list[str]] = []
    for output in outputs:
        if isinstance(output, ToolCallDelta):
            if output.id is not None:
                assert output.index == len(calls), "announced once, in the order of the indices"
                assert output.name
                calls.append([output.id, output.name, output.arguments])
            else:
                assert output.name is None
                assert output.arguments, "a delta says something"
                calls[output.index][2] += output.arguments
    return calls


def told(message: AnswerMessage) -> list[list[str]]:
    return [[call.id, call.name, call.arguments] for call in message.calls]


def as_said(message: AnswerMessage) -> tuple[Any, ...]:
    """Everything of a message but the ids, which are new each time."""
    calls = [(call.name, call.arguments, call.complete) for call in message.calls]
    return message.content, message.reasoning, calls, message.error


def meant(calls: Iterable[AnswerCall]) -> list[dict[str, Any]]:
    assert all(call.complete for call in calls)
    return [call_of(each) for each in calls]


def call_of(made: AnswerCall) -> dict[str, Any]:
    return call(made.name, **json.loads(made.arguments))


def check(name: str, text: str, prefix: str, message: dict[str, Any]) -> None:
    whole, _ = run(name, [text], prefix)
    wanted = [{k: v for k, v in each.items() if k != "id"} for each in message["tool_calls"]]
    assert meant(whole.calls) == wanted
    assert whole.content == message.get("content", "")
    assert whole.reasoning == message.get("reasoning_content")
    for made, each in zip(whole.calls, message["tool_calls"], strict=True):
        assert made.id.startswith("call_") if "id" not in each else made.id == each["id"]
    for pieces in cuts(text):
        answer, outputs = run(name, pieces, prefix)
        assert as_said(answer) == as_said(whole)
        assert values_of(outputs, len(whole.calls)) == [
            json.loads(each.arguments) for each in whole.calls
        ]


def values_of(outputs: Iterable[Output], count: int) -> list[Any]:
    """The arguments as the value events tell them; each value once, its parts before it."""
    events = [o for o in outputs if isinstance(o, ValueEvent)]
    for index in range(count):
        pointers = [event.pointer for event in events if event.call == index]
        assert len(set(pointers)) == len(pointers)
        assert pointers[-1] == ""
        for at, pointer in enumerate(pointers):
            assert not any(later.startswith(pointer + "/") for later in pointers[at + 1 :])
    return [event.value for event in events if event.pointer == ""]


@pytest.mark.parametrize("sample", WITH_CALLS, ids=lambda sample: sample.template)
def test_the_calls_of_the_samples(sample: Sample) -> None:
    check(sample.template, sample.text, f"... {sample.prefix}", sample.message)


@pytest.mark.parametrize("name", CALLING)
def test_calls_that_a_chat_template_renders(name: str) -> None:
    family = FAMILIES[name]
    for message in messages_of(family):
        if "tool_calls" in message:
            prompt, answer = conversation(family, source_of(name), message)
            check(family.template, answer, prompt, message)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(CALLING), WORDS, st.lists(WORDS, max_size=3), st.integers(-99, 99))
def test_any_arguments(name: str, text: str, tags: list[str], days: int) -> None:
    family = FAMILIES[name]
    calls: list[dict[str, Any]] = [call("note", text=text, tags=tags)]
    if family.parallel:
        calls.append(call("get_weather", city=text, days=days))
    if family.ids:
        calls = with_ids(calls)
    message = {"tool_calls": calls}
    prompt, answer = conversation(family, source_of(name), message)
    check(family.template, answer, prompt, message)


def beginnings(text: str) -> Iterator[str]:
    step = max(1, len(text) // 40)
    yield from (text[:end] for end in range(0, len(text), step))


@pytest.mark.parametrize("sample", WITH_CALLS, ids=lambda sample: sample.template)
def test_an_answer_that_is_cut_off_anywhere(sample: Sample) -> None:
    """The same however cut, and what there was of a call is a beginning of the call."""
    prefix = f"... {sample.prefix}"
    full, _ = run(sample.template, [sample.text], prefix)
    for text in beginnings(sample.text):
        whole, _ = run(sample.template, [text], prefix)
        for pieces in cuts(text):
            answer, _ = run(sample.template, pieces, prefix)
            assert as_said(answer) == as_said(whole), text
        for made, wanted in zip(whole.calls, full.calls, strict=False):
            assert wanted.name.startswith(made.name)
            if made.name == wanted.name and not made.complete:
                assert wanted.arguments.startswith(made.arguments)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(WITH_CALLS), st.randoms(use_true_random=False))
def test_a_spoilt_answer_is_the_same_however_it_is_cut(
    sample: Sample, chance: random.Random
) -> None:
    text = list(sample.text)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(text))
        text[at : at + chance.randrange(3)] = chance.choice(["", "x", '"', "{", "}", "\\", "<"])
    spoilt = "".join(text)
    whole, _ = run(sample.template, [spoilt], sample.prefix)
    for pieces in cuts(spoilt):
        answer, _ = run(sample.template, pieces, sample.prefix)
        assert as_said(answer) == as_said(whole)


# --- exact deltas -------------------------------------------------------------------------------


def outputs_of(name: str, *pieces: str) -> list[Any]:
    """Deltas as short tuples: (index, name) where a call begins, (index, arguments) after."""
    short: list[Any] = []
    for output in run(name, pieces, values=False)[1]:
        match output:
            case ToolCallDelta(index, None, _, arguments):
                short.append((index, arguments))
            case ToolCallDelta(index, _, name_of_call, arguments):
                assert arguments == ""
                short.append((index, name_of_call, "begins"))
            case ContentDelta(text):
                short.append(text)
            case RegionEvent():
                pass
            case _:
                short.append(output)
    return short


def test_arguments_are_passed_on_as_they_are_written() -> None:
    assert outputs_of(
        "qwen3",
        "Let me",
        " see.\n<tool_",
        'call>\n{"name": "get_w',
        'eather", "argu',
        'ments": {"city": "S\\u00',
        'e3o", "days',
        '" : 3}',
        "}\n</tool_call>",
        '\n<tool_call>{"name":"now"}</tool_call>',
    ) == [
        "Let me",
        " see.",
        (0, "get_weather", "begins"),
        (0, '{"city": "S'),
        (0, '\\u00e3o", "days'),
        (0, '" : 3}'),
        (1, "now", "begins"),
        (1, "{}"),
    ]


def test_arguments_that_come_before_the_name_wait_for_it() -> None:
    assert outputs_of(
        "qwen3", '<tool_call>{"arguments": {"city": "A"}', ', "name": "get_weather"}</tool_call>'
    ) == [(0, "get_weather", "begins"), (0, '{"city": "A"}')]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("null", "{}"), ('"{\\"city\\": \\"A\\"}"', '{"city": "A"}'), ("[1]", "[1]"), ("{}", "{}")],
)
def test_arguments_that_are_no_object(arguments: str, text: str) -> None:
    answer = f'<tool_call>{{"name": "get_weather", "arguments": {arguments}}}</tool_call>'
    assert outputs_of("qwen3", answer)[1:] == [(0, text)]


def test_pairs_are_passed_on_as_they_are_settled() -> None:
    assert outputs_of(
        "qwen3_coder",
        "<tool_call>\n<function=get_weather",
        ">\n<parameter=city>\nSão",
        " Paulo\n</parameter>\n<para",
        "meter=days>\n3\n</parameter>\n</function>\n",
        "</tool_call>",
    ) == [
        (0, "get_weather", "begins"),
        (0, '{"city": "São Paulo"'),
        (0, ', "days": 3'),
        (0, "}"),
    ]


def test_calls_in_pythons_spelling_are_passed_on_argument_by_argument() -> None:
    assert outputs_of(
        "lfm2",
        "<|tool_call_start|>[get_weather(",
        'city="A, (b)", ',
        "days=3), no",
        "w(), note(tags=[1, ",
        '"]"])]<|tool_call_end|>',
    ) == [
        (0, "get_weather", "begins"),
        (0, '{"city": "A, (b)"'),
        (0, ', "days": 3'),
        (0, "}"),
        (1, "now", "begins"),
        (1, "{}"),
        (2, "note", "begins"),
        (2, '{"tags": [1, "]"]'),
        (2, "}"),
    ]


def test_a_dialect_is_json_from_where_it_differs() -> None:
    assert outputs_of(
        "hermes",
        '<tool_call>{"name": "note", "arguments": {"text": "a", "tags": [1, ',
        "'x', {'b': 'c'}]}}</tool_call>",
    ) == [
        (0, "note", "begins"),
        (0, '{"text": "a", "tags": [1, '),
        (0, '"x", {"b": "c"}]}'),
    ]


def test_a_call_that_is_cut_off_keeps_what_there_was_and_is_not_complete() -> None:
    message, outputs = run(
        "qwen3", ['<tool_call>{"name": "get_weather", "arguments": {"city": "S\\']
    )
    assert [(each.name, each.arguments, each.complete) for each in message.calls] == [
        ("get_weather", '{"city": "S\\', False)
    ]
    assert message.content == ""
    assert message.error is not None
    assert not any(isinstance(o, ValueEvent) for o in outputs)


def test_a_call_whose_close_alone_is_missing_is_complete() -> None:
    message, _ = run("qwen3", ['<tool_call>{"name": "now", "arguments": {}}'])
    assert [each.complete for each in message.calls] == [True]
    assert message.error is None


def test_what_names_no_function_is_content() -> None:
    for body in ('{"a": 1}', "[1]", "no JSON", '{"name": 3, "arguments": {}}'):
        message, _ = run("qwen3", [f"So: <tool_call>{body}</tool_call>"])
        assert message.calls == ()
        assert body in message.content
        assert message.error


def test_values_come_behind_the_deltas_that_complete_them() -> None:
    text = '<tool_call>{"name": "note", "arguments": {"text": "a", "tags": [1, {"b/c": null}]}}'
    _, outputs = run("qwen3", [text[:57], text[57:], "</tool_call>"])
    order: list[Any] = [
        (o.pointer, o.value) if isinstance(o, ValueEvent) else o.arguments
        for o in outputs
        if isinstance(o, ValueEvent | ToolCallDelta)
    ]
    assert order == [
        "",
        '{"text": "a", "t',
        ("/text", "a"),
        'ags": [1, {"b/c": null}]}',
        ("/tags/0", 1),
        ("/tags/1/b~1c", None),
        ("/tags/1", {"b/c": None}),
        ("/tags", [1, {"b/c": None}]),
        ("", {"text": "a", "tags": [1, {"b/c": None}]}),
    ]


def test_without_offered_tools_a_call_is_content() -> None:
    source = {
        "start_anchor": "x",
        "fields": {
            "content": {"open": "<c>", "close": "</c>"},
            "tool_calls": {"open": "<t>", "close": "</t>", "content": "json"},
        },
    }
    reader = region_reader(load_template(source), "x")
    outputs = [*reader.start(), *reader.feed("<c>a</c><t>{}</t>"), *reader.finish()]
    assert reader.message.calls == ()
    assert reader.message.content == "a{}"
    assert not any(isinstance(o, ToolCallDelta) for o in outputs)


def test_ids_are_the_models_own_where_it_gives_any_and_unique() -> None:
    section = "<|tool_call_begin|>{id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    ids = ("functions.now:0", "functions.now:1", "functions.now:1")
    message, _ = run("kimi_k2", [section.format(id=each) for each in ids])
    assert [each.id for each in message.calls[:2]] == list(ids[:2])
    assert message.calls[2].id.startswith("call_")


def test_numbers_that_no_double_holds_do_no_harm() -> None:
    message, outputs = run(
        "qwen3",
        ['<tool_call>{"arguments": {"days": [1e999], "city": "A"}, "name": "get_weather"}', "x"],
    )
    assert message.calls[0].arguments == '{"days": [1e999], "city": "A"}'
    assert message.calls[0].complete
    assert [o.pointer for o in outputs if isinstance(o, ValueEvent)] == ["/city"]


def calling_with(body: str) -> dict[str, str]:
    return {
        "qwen3": f'<tool_call>{{"name": "note", "arguments": {{"text": "{body}"}}}}</tool_call>',
        "qwen3_coder": "<tool_call>\n<function=note>\n<parameter=text>\n"
        + body.replace("xxxxxxxx", "<b>\n</b>")
        + "\n</parameter>\n</function>\n</tool_call>",
        "lfm2": f'<|tool_call_start|>[note(text="{body}", tags=[])]<|tool_call_end|>',
    }


def seconds_for(name: str, size: int) -> float:
    """What a call with a text of `size` takes: the best of three, the collector's pauses apart."""
    text = calling_with("x" * size)[name]
    chunks = [text[at : at + 4] for at in range(0, len(text), 4)]
    times = []
    gc.disable()
    try:
        for _ in range(3):
            begin = time.thread_time()
            message, _events = run(name, chunks)
            times.append(time.thread_time() - begin)
            assert len(message.calls[0].arguments) > size
            assert message.calls[0].complete
    finally:
        gc.enable()
    return min(times)


@pytest.mark.parametrize("name", ["qwen3", "qwen3_coder", "lfm2"])
def test_long_arguments_cost_linear_time(name: str) -> None:
    assert seconds_for(name, 80_000) < 10 * seconds_for(name, 20_000), "four times the text"
