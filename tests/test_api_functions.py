"""`functions` and `function_call`, the predecessors of tools: the same in their own shape."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.api_support import ScriptedEngine, odd_template, saying
from tests.test_api_binding import NEVER, takes
from tests.test_api_tools import (
    ASKED,
    CITY,
    KNOWING,
    TOOLS,
    answer_of,
    calling,
    post,
    stream,
    tool,
)

LOOK = {"name": "look", "description": "Looks.", "parameters": CITY}
NOW = {"name": "now"}
FUNCTIONS = [LOOK, NOW]
CALL = calling("look", '{"city": "São"}')
ASSISTANT = {
    "role": "assistant",
    "content": None,
    "function_call": {"name": "look", "arguments": '{"city": "A"}'},
}
RESULT = {"role": "function", "name": "look", "content": "sunny"}


async def test_an_answer_has_the_old_shape() -> None:
    answer = await answer_of(ScriptedEngine(saying("Hm.\n", CALL)), functions=FUNCTIONS)
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"] == {
        "role": "assistant",
        "content": "Hm.",
        "refusal": None,
        "function_call": {"name": "look", "arguments": '{"city": "São"}'},
    }
    assert answer["gabarito"]["tools"] == {"enforced": True, "valid": True}
    words = await answer_of(ScriptedEngine(saying("Hm.")), functions=FUNCTIONS)
    assert words["choices"][0]["finish_reason"] == "stop"
    assert "function_call" not in words["choices"][0]["message"]


async def test_a_stream_has_the_old_shape() -> None:
    engine = ScriptedEngine(saying(*(CALL[at : at + 6] for at in range(0, len(CALL), 6))))
    events = await stream(engine, functions=FUNCTIONS)
    deltas = [choice["delta"] for event in events for choice in event.data["choices"]]
    assert deltas[0] == {"role": "assistant", "content": None}
    calls = [delta["function_call"] for delta in deltas if "function_call" in delta]
    assert calls[0] == {"name": "look", "arguments": ""}
    assert all(call.keys() == {"arguments"} for call in calls[1:])
    assert json.loads("".join(call["arguments"] for call in calls)) == {"city": "São"}
    assert events[-1].data["choices"][0]["finish_reason"] == "function_call"
    assert not any("tool_calls" in delta for delta in deltas)


@pytest.mark.parametrize(
    ("choice", "may", "must_not"),
    [
        (None, ["words", CALL, calling("now", "{}")], [CALL + CALL]),
        ("auto", ["words", CALL], [CALL + CALL]),
        ({"name": "now"}, [calling("now", "{}")], ["words", CALL]),
    ],
)
async def test_choices_bind_the_answer(choice: Any, may: list[str], must_not: list[str]) -> None:
    engine = ScriptedEngine(saying(calling("now", "{}")))
    await answer_of(engine, functions=FUNCTIONS, function_call=choice)
    assert all(takes(engine, text) for text in may)
    assert not any(takes(engine, text) for text in must_not)


async def test_none_offers_nothing() -> None:
    engine = ScriptedEngine(saying("words"))
    answer = await answer_of(engine, functions=FUNCTIONS, function_call="none")
    assert answer["choices"][0]["message"]["content"] == "words"
    assert engine.last.grammar is None
    assert "Looks." not in engine.detokenize(engine.last.prompt)


async def test_the_model_is_told_the_same_as_of_tools() -> None:
    prompts = []
    for fields in (
        {"functions": FUNCTIONS, "messages": [ASKED, ASSISTANT, RESULT]},
        {
            "tools": [tool("look", description="Looks."), tool("now", None)],
            "messages": [
                ASKED,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": "call_1", "type": "function", "function": ASSISTANT["function_call"]}
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            ],
        },
    ):
        for template in (None, KNOWING):
            given = {} if template is None else {"chat_template": template}
            engine = ScriptedEngine(saying("ok"), **given)  # type: ignore[arg-type]
            await answer_of(engine, **fields)
            prompts.append(engine.detokenize(engine.last.prompt))
    assert prompts[:2] == prompts[2:]
    assert "sunny" in prompts[0]


async def test_a_second_call_is_told_of(tmp_path: Path) -> None:
    text = '@call@{"name": "now", "arguments": {}}!#call#{"name": "look", "arguments": {}}!'
    model = {"response_template": odd_template(tmp_path)}  # nothing is enforced
    response = await post(ScriptedEngine(saying(text)), model, functions=[NOW, {"name": "look"}])
    answer = response.json()
    assert answer["choices"][0]["message"]["function_call"] == {"name": "now", "arguments": "{}"}
    assert answer["gabarito"]["warnings"] == [
        "The model made several calls; function_call is the first."
    ]
    response = await post(
        ScriptedEngine(saying(text)), model, functions=[NOW, {"name": "look"}], stream=True
    )
    assert '"look"' not in response.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"functions": FUNCTIONS, "tools": TOOLS}, "functions"),
        ({"functions": [NOW, NOW]}, "functions[1].name"),
        ({"functions": [{"name": "f", "parameters": {"type": "string"}}]}, "functions[0].param"),
        ({"functions": [{"name": "f", "parameters": {"type": "x"}}]}, "functions[0].parameters"),
        ({"functions": [{"name": "f", "x": 1}]}, "functions[0].x"),
        (
            {"functions": [{"name": "f", "parameters": NEVER}], "function_call": {"name": "f"}},
            "functions[0].parameters",
        ),
        ({"functions": FUNCTIONS, "function_call": {"name": "g"}}, "function_call.name"),
        ({"functions": FUNCTIONS, "function_call": 1}, "function_call"),
        ({"functions": FUNCTIONS, "tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "function_call": "none"}, "function_call"),
        ({"messages": [ASKED, RESULT]}, "messages[1].name"),
        ({"messages": [ASKED, ASSISTANT, {**RESULT, "name": "now"}]}, "messages[2].name"),
        ({"messages": [ASKED, ASSISTANT, {"role": "function", "content": "x"}]}, "messages[2].n"),
        ({"messages": [ASKED, ASSISTANT, ASKED]}, "messages[1].function_call"),
        ({"messages": [ASKED, ASSISTANT]}, "messages[1].function_call"),
        ({"messages": [{**ASKED, "function_call": {"name": "f", "arguments": ""}}]}, "messages[0]"),
    ],
)
async def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    response = await post(ScriptedEngine(saying("ok")), **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(param)
