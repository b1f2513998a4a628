"""Tools over HTTP: what is refused, what the model is told, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from server.api.app import create_app
from server.settings import Settings
from tests.api_support import (
    Event,
    ScriptedEngine,
    chat,
    client_of,
    events_of,
    finished,
    piece,
    saying,
)

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

#: A chat template that knows tools, calls and results.
KNOWING = (
    "{% if tools %}[{% for tool in tools %}{{ tool.function.name }}{% endfor %}]{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.id }}:{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tool(name: str, parameters: Any = CITY, **function: Any) -> dict[str, Any]:
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": {"name": name, **function}}


def calling(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def called(call_id: str, name: str = "look", arguments: str = '{"city": "A"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, content: str = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


async def post(
    engine: ScriptedEngine, model: dict[str, Any] | None = None, **fields: Any
) -> httpx.Response:
    settings = Settings.model_validate({"server": {"served_name": "toy"}, "model": model or {}})
    async with client_of(create_app(settings, engine=engine)) as client:
        return await client.post("/v1/chat/completions", json=chat(**fields))


async def answer_of(engine: ScriptedEngine, **fields: Any) -> dict[str, Any]:
    response = await post(engine, **fields)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def stream(engine: ScriptedEngine, **fields: Any) -> list[Event]:
    response = await post(engine, stream=True, **fields)
    assert response.status_code == 200, response.text
    events = events_of(response.text)
    assert events[-1].data == "[DONE]"
    return events[:-1]


# --- answers ------------------------------------------------------------------------------------

TWO = ("Let me look.\n", calling("look", '{"city": "São"}'), "\n", calling("now", "{}"))
TOOLS = [tool("look", description="Looks."), tool("now", None)]


async def test_an_answer_with_calls_has_openais_shape() -> None:
    [choice] = (await answer_of(ScriptedEngine(saying(*TWO)), tools=TOOLS))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    calls = choice["message"].pop("tool_calls")
    assert choice["message"] == {"role": "assistant", "content": "Let me look.", "refusal": None}
    ids = [call.pop("id") for call in calls]
    assert all(each.startswith("call_") for each in ids)
    assert len(set(ids)) == 2
    assert calls == [
        {"type": "function", "function": {"name": "look", "arguments": '{"city": "São"}'}},
        {"type": "function", "function": {"name": "now", "arguments": "{}"}},
    ]


async def test_content_is_null_where_there_is_none() -> None:
    answer = await answer_of(ScriptedEngine(saying(calling("now", "{}"))), tools=TOOLS)
    assert answer["choices"][0]["message"]["content"] is None


async def test_an_answer_without_calls_is_an_ordinary_one() -> None:
    answer = await answer_of(ScriptedEngine(saying("Hi.")), tools=TOOLS)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {"role": "assistant", "content": "Hi.", "refusal": None}


async def test_choice_none_offers_nothing() -> None:
    engine = ScriptedEngine(saying(calling("now", "{}")), chat_template=KNOWING)
    answer = await answer_of(engine, tools=TOOLS, tool_choice="none")
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]
    assert choice["message"]["content"] == calling("now", "{}")
    assert "now" not in engine.detokenize(engine.last.prompt)


async def test_a_call_that_is_cut_off_says_so() -> None:
    script = saying('<tool_call>{"name": "look", "arguments": {"ci', reason="length")
    answer = await answer_of(ScriptedEngine(script), tools=TOOLS)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length"
    [call] = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"ci'}
    assert answer["gabarito"]["tools"]["incomplete"] == [{"choice": 0, "call": 0, "id": call["id"]}]


async def test_several_choices_have_calls_of_their_own() -> None:
    engine = ScriptedEngine(lambda _: [piece(calling("now", "{}")), finished()])
    answer = await answer_of(engine, tools=TOOLS, n=3)
    ids = [choice["message"]["tool_calls"][0]["id"] for choice in answer["choices"]]
    assert len(set(ids)) == 3
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"tool_calls"}


async def test_reasoning_comes_before_the_calls() -> None:
    engine = ScriptedEngine(saying("<think>Hm.</think>\n\n", calling("now", "{}")))
    response = await post(engine, tools=TOOLS, response_template="qwen3")
    message = response.json()["choices"][0]["message"]
    assert message["reasoning_content"] == "Hm."
    assert message["tool_calls"][0]["function"]["name"] == "now"


# --- streams ------------------------------------------------------------------------------------


async def test_a_stream_announces_a_call_once_and_then_adds_to_its_arguments() -> None:
    pieces = ('<tool_call>{"name": "look", "argu', 'ments": {"ci', 'ty": "A"', "}}</tool_call>")
    events = await stream(ScriptedEngine(saying(*pieces)), tools=TOOLS)
    chunks = [event.data["choices"][0] for event in events]
    deltas = [chunk["delta"] for chunk in chunks]
    call_id = deltas[1]["tool_calls"][0]["id"]
    assert deltas == [
        {"role": "assistant", "content": None},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": call_id,
                    "type": "function",
                    "function": {"name": "look", "arguments": ""},
                }
            ]
        },
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"ci'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": 'ty": "A"'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]},
        {},
    ]
    assert [chunk["finish_reason"] for chunk in chunks][-2:] == [None, "tool_calls"]
    assert all(event.name is None for event in events)


async def test_value_and_region_events_are_named_and_in_true_order() -> None:
    pieces = ("Hm.", '<tool_call>{"name": "look", "arguments": {"city": "A"', "}}</tool_call>")
    events = await stream(
        ScriptedEngine(saying(*pieces)),
        tools=TOOLS,
        stream_options={"include_value_events": True, "include_region_events": True},
    )
    seen: list[Any] = []
    for event in events:
        if event.name == "value":
            assert event.data["choices"] == []
            seen.append(event.data["value"])
        elif event.name is not None:
            seen.append((event.name, event.data["region"]["field"]))
        else:
            seen.append(list(event.data["choices"][0]["delta"]))
    where = {"choice": 0, "field": "tool_calls", "call": 0}
    assert seen == [
        ["role", "content"],
        ("region_open", "content"),
        ("region_chunk", "content"),
        ["content"],
        ("region_close", "content"),
        ("region_open", "tool_calls"),
        ("region_chunk", "tool_calls"),
        ["tool_calls"],
        ["tool_calls"],
        {**where, "pointer": "/city", "value": "A"},
        ("region_chunk", "tool_calls"),
        ["tool_calls"],
        {**where, "pointer": "", "value": {"city": "A"}},
        ("region_close", "tool_calls"),
        [],
    ]


async def test_values_of_a_structured_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}, "b": {"type": "number"}}}
    events = await stream(
        ScriptedEngine(saying('{"a": [1, "x', '\\u00e9"', "], ", '"b": 2', "}")),
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        stream_options={"include_value_events": True},
        n=2,
    )
    values = [event.data["value"] for event in events if event.name == "value"]
    for index in range(2):
        assert [
            (value["pointer"], value["value"]) for value in values if value["choice"] == index
        ] == [
            ("/a/0", 1),
            ("/a/1", "xé"),
            ("/a", [1, "xé"]),
            ("/b", 2),
            ("", {"a": [1, "xé"], "b": 2}),
        ]
    assert {value["field"] for value in values} == {"content"}


async def test_a_number_that_no_double_holds_is_null_in_a_regions_value() -> None:
    wide = tool("f", {"type": "object", "properties": {"a": {"type": "number"}}})
    events = await stream(
        ScriptedEngine(saying(calling("f", '{"a": 1e999}'))),
        tools=[wide],
        stream_options={"include_region_events": True},
    )
    [value] = [e.data["region"]["value"] for e in events if e.name == "region_close"]
    assert value["function"]["arguments"] == {"a": None}
    parts = [
        part for e in events for c in e.data["choices"] for part in c["delta"].get("tool_calls", ())
    ]
    assert "".join(part["function"]["arguments"] for part in parts) == '{"a": 1e999}'


async def test_without_asking_there_are_no_value_events() -> None:
    events = await stream(ScriptedEngine(saying(*TWO)), tools=TOOLS)
    assert all(event.name is None for event in events)


async def test_free_text_has_no_values() -> None:
    events = await stream(
        ScriptedEngine(saying("[1, 2]")), stream_options={"include_value_events": True}
    )
    assert all(event.name is None for event in events)


# --- what the model is told ---------------------------------------------------------------------


async def test_a_template_that_knows_tools_is_given_them() -> None:
    engine = ScriptedEngine(saying("ok"), chat_template=KNOWING)
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": "", "tool_calls": [called("c1")]},
        result("c1"),
    ]
    await answer_of(engine, tools=TOOLS, messages=messages)
    assert engine.detokenize(engine.last.prompt) == (
        "[looknow]<|im_start|>user\nGo.<|im_end|>\n"
        '<|im_start|>assistant\n<call>c1:look{"city": "A"}<|im_end|>\n'
        "<|im_start|>tool\nsunny<|im_end|>\n<|im_start|>assistant\n"
    )


async def test_all_tools_are_told_of_whichever_may_be_called() -> None:
    for choice in (
        {"type": "function", "function": {"name": "now"}},
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "now"}}],
            },
        },
    ):
        engine = ScriptedEngine(saying("ok"), chat_template=KNOWING)
        await answer_of(engine, tools=TOOLS, tool_choice=choice)
        assert engine.detokenize(engine.last.prompt).startswith("[looknow]")


async def test_a_template_that_knows_none_gets_the_fallback_prompt() -> None:
    engine = ScriptedEngine(saying("ok"))
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [called("c1"), called("c2", "now")]},
        result("c1"),
        result("c2", "<|im_end|>"),
        {"role": "user", "content": "And?"},
    ]
    await answer_of(engine, tools=TOOLS, messages=messages)
    prompt = engine.detokenize(engine.last.prompt)
    assert prompt.startswith("<|im_start|>system\nBe kind.\n\nYou have functions")
    assert '{"name": "look", "description": "Looks.", "parameters": {"type"' in prompt
    assert prompt.endswith(
        "<|im_start|>user\nGo.<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "look", "arguments": {"city": "A"}}\n'
        '</tool_call>\n<tool_call>\n{"name": "now", "arguments": {"city": "A"}}\n</tool_call>'
        "<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nsunny\n</tool_response>\n"
        "<tool_response>\n<|im_end|>\n</tool_response>\n\nAnd?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert engine.last.prompt.count(257) == 4, "the result's own <|im_end|> is no token"


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ("auto", "Otherwise answer in words."),
        ("required", "Answer with function calls only."),
        (
            {"type": "function", "function": {"name": "now"}},
            'Answer with a call of the function "now" only.',
        ),
    ],
)
async def test_the_fallback_prompt_says_what_must_be_called(choice: Any, words: str) -> None:
    engine = ScriptedEngine(saying("ok"))
    await answer_of(engine, tools=TOOLS, tool_choice=choice)
    assert words in engine.detokenize(engine.last.prompt)


async def test_the_fallback_copes_with_templates_that_refuse_system_messages() -> None:
    engine = ScriptedEngine(
        saying("ok"),
        chat_template="{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('no system') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}",
    )
    await answer_of(engine, tools=TOOLS)
    prompt = engine.detokenize(engine.last.prompt)
    assert prompt.startswith("<user>You have functions")
    assert prompt.endswith("\n\nhi")


NOTATIONS = [
    ("qwen3_coder", "<tool_call><function={}>\n<parameter={}>{}</parameter>\n</tool_call>"),
    ("lfm2", "<|tool_call_start|>[{}({}='{}')]<|tool_call_end|>"),
    ("llama3", '{{"name": "{}", "parameters": {{"{}": "{}"}}}}'),
]


@pytest.mark.parametrize(("template", "notation"), NOTATIONS)
async def test_the_fallback_tells_calls_in_the_notation_that_is_read(
    template: str, notation: str
) -> None:
    engine = ScriptedEngine(saying("ok"))
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [called("c1")]},
        result("c1"),
    ]
    await answer_of(engine, tools=TOOLS, messages=messages, response_template=template)
    prompt = engine.detokenize(engine.last.prompt)
    told = f"like this:\n{notation.format('function_name', 'argument', 'value')}\nCall functions"
    assert told in prompt
    written = notation.format("look", "city", "A")
    assert f"<|im_start|>assistant\n{written}<|im_end|>" in prompt
    assert "as JSON between these tags" not in prompt
    grammar = engine.last.grammar
    assert grammar is not None
    matcher = grammar.start()
    for token in engine.tokenize(written):
        assert matcher.is_allowed(token), "what the model is told is what it may write"
        matcher.advance(token)


async def test_a_call_that_the_notation_cannot_write_is_told_as_json() -> None:
    engine = ScriptedEngine(saying("ok"))
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [called("c1", arguments="[1]")]},
        result("c1"),
    ]
    await answer_of(engine, tools=TOOLS, messages=messages, response_template="lfm2")
    prompt = engine.detokenize(engine.last.prompt)
    assert '<tool_call>\n{"name": "look", "arguments": [1]}\n</tool_call>' in prompt


# --- what is refused ----------------------------------------------------------------------------

ASKED = {"role": "user", "content": "x"}


def assistant(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"tools": "f"}, "tools", "invalid_type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing_required_parameter"),
        ({"tools": [{}]}, "tools[0].type", "missing_required_parameter"),
        (
            {"tools": [{"type": "custom", "custom": {"name": "f"}}]},
            "tools[0].type",
            "unsupported_value",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "unsupported_value"),
        ({"tools": [tool("no spaces")]}, "tools[0].function.name", "invalid_value"),
        ({"tools": [tool("x" * 65)]}, "tools[0].function.name", "invalid_value"),
        ({"tools": [tool("")]}, "tools[0].function.name", "invalid_value"),
        ({"tools": [tool("f"), tool("f")]}, "tools[1].function.name", "invalid_value"),
        ({"tools": [tool("f", 3)]}, "tools[0].function.parameters", "invalid_type"),
        ({"tools": [tool("f", extra=1)]}, "tools[0].function.extra", "unknown_parameter"),
        ({"tools": [tool(f"f{i}") for i in range(129)]}, "tools", "invalid_value"),
        (
            {"tools": [tool("f", {"type": "string"})]},
            "tools[0].function.parameters",
            "invalid_function_parameters",
        ),
        ({"tool_choice": "required"}, "tool_choice", "invalid_value"),
        ({"tool_choice": "any", "tools": TOOLS}, "tool_choice", "invalid_value"),
        ({"tool_choice": 3, "tools": TOOLS}, "tool_choice", "invalid_value"),
        (
            {"tool_choice": {"type": "function"}, "tools": TOOLS},
            "tool_choice.function",
            "missing_required_parameter",
        ),
        (
            {"tool_choice": {"type": "custom", "custom": {"name": "f"}}, "tools": TOOLS},
            "tool_choice.type",
            "unsupported_value",
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": TOOLS},
            "tool_choice.function.name",
            "invalid_value",
        ),
        (
            {
                "tool_choice": {
                    "type": "allowed_tools",
                    "allowed_tools": {
                        "mode": "auto",
                        "tools": [
                            {"type": "function", "function": {"name": name}}
                            for name in ("now", "g")
                        ],
                    },
                },
                "tools": TOOLS,
            },
            "tool_choice.allowed_tools.tools[1].function.name",
            "invalid_value",
        ),
        ({"parallel_tool_calls": "no"}, "parallel_tool_calls", "invalid_type"),
        (
            {"messages": [ASKED, {"role": "tool", "content": "x"}]},
            "messages[1].tool_call_id",
            "missing_required_parameter",
        ),
        ({"messages": [ASKED, result("c1")]}, "messages[1].tool_call_id", "invalid_value"),
        (
            {"messages": [ASKED, assistant(called("c1")), result("c2")]},
            "messages[2].tool_call_id",
            "invalid_value",
        ),
        (
            {"messages": [ASKED, assistant(called("c1")), result("c1"), result("c1")]},
            "messages[3].tool_call_id",
            "invalid_value",
        ),
        (
            {"messages": [ASKED, assistant(called("c1"), called("c2")), result("c1")]},
            "messages[1].tool_calls",
            "invalid_value",
        ),
        (
            {"messages": [ASKED, assistant(called("c1")), ASKED]},
            "messages[1].tool_calls",
            "invalid_value",
        ),
        (
            {"messages": [ASKED, assistant(called("c1"), called("c1")), result("c1")]},
            "messages[1].tool_calls",
            "invalid_value",
        ),
    ],
)
async def test_what_is_wrong_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    response = await post(ScriptedEngine(saying("ok")), **fields)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert error["message"]


async def test_missing_results_are_named() -> None:
    messages = [ASKED, assistant(called("c1"), called("c2")), result("c2")]
    response = await post(ScriptedEngine(saying("ok")), messages=messages)
    assert response.json()["error"]["message"].endswith("did not have response messages: c1")


async def test_an_answer_can_be_sent_back_as_it_came() -> None:
    engine = ScriptedEngine(saying(*TWO), chat_template=KNOWING)
    message = (await answer_of(engine, tools=TOOLS))["choices"][0]["message"]
    results = [result(call["id"], "x") for call in message["tool_calls"]]
    await answer_of(engine, tools=TOOLS, messages=[ASKED, message, *results])
    assert json.dumps({"city": "São"}, ensure_ascii=False) in engine.detokenize(engine.last.prompt)
