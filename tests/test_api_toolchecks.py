"""Calls against what was offered: what is said of them, and which are withheld.

The engine says what the test wants, whatever the grammar allows: a grammar with a fault.
"""

from __future__ import annotations

from typing import Any

import pytest

from server.api.errors import ApiError
from server.api.toolchecks import CallJudge
from server.api.tools import ToolRequest
from server.calls import AnswerCall
from tests.api_support import ScriptedEngine, app_with, chat, client_of, events_of, saying
from tests.test_api_tools import CITY, answer_of, calling, post, tool

#: Not enforced: a pattern with a back-reference.
PATTERN = {
    "type": "object",
    "properties": {"p": {"type": "string", "pattern": "a|(b)\\1"}},
    "required": ["p"],
}
LOOK = [tool("look")]
SEEK = [tool("seek", PATTERN)]


async def tools_of(said: str, tools: Any) -> dict[str, Any]:
    answer = await answer_of(
        ScriptedEngine(saying(said)), model={"response_template": "qwen3"}, tools=tools
    )
    found: dict[str, Any] = answer["gabarito"]["tools"]
    return found


async def test_calls_that_fit() -> None:
    facts = await tools_of(calling("look", '{"city": "A"}') * 2, LOOK)
    assert facts == {"enforced": True, "valid": True}


async def test_without_a_call_nothing_is_valid() -> None:
    assert await tools_of("Hello.", LOOK) == {"enforced": True}


async def test_what_is_not_enforced_is_checked() -> None:
    said = calling("seek", '{"p": "a"}') + calling("seek", '{"p": "["}')
    facts = await tools_of(said, SEEK)
    assert facts["enforced"] is False
    assert [issue["checked"] for issue in facts["unenforced"]] == [True]
    assert facts["valid"] is False
    (invalid,) = facts["invalid"]
    assert (invalid["choice"], invalid["call"], invalid["name"]) == (0, 1, "seek")
    assert invalid["id"]
    assert (invalid["errors"][0]["pointer"], invalid["errors"][0]["keyword"]) == ("/p", "pattern")


@pytest.mark.parametrize("said", [calling("look", '{"city": 3}'), calling("lo", "{}")])
async def test_a_call_that_was_enforced_and_does_not_fit_is_withheld(said: str) -> None:
    model = {"response_template": "qwen3"}
    response = await post(ScriptedEngine(saying(said)), model=model, tools=LOOK)
    assert response.status_code == 500
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "invalid_answer")
    assert error["errors"]
    streamed = await post(ScriptedEngine(saying(said)), model=model, tools=LOOK, stream=True)
    *chunks, last = events_of(streamed.text)
    assert last.data["error"]["code"] == "invalid_answer"
    assert all(c["finish_reason"] is None for chunk in chunks for c in chunk.data["choices"])


async def test_such_faults_are_counted() -> None:
    app = app_with(ScriptedEngine(saying(calling("look", "{}"))))
    body = chat(tools=LOOK, response_template="qwen3")
    async with client_of(app) as client:
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 500
        assert (await client.get("/health")).json()["answers"] == {"withheld": 1}


# --- free text --------------------------------------------------------------------------------


def judge(*tools: Any) -> CallJudge:
    offer = ToolRequest.model_validate({"tools": list(tools)}).offer
    assert offer is not None
    return CallJudge(offer, {"enforced": False, "reason": "no inverse"}, lambda: None)


def call(name: str, arguments: str, *, complete: bool = True) -> AnswerCall:
    return AnswerCall("c", name, arguments, complete)


def test_a_strict_function_takes_no_call_that_does_not_fit() -> None:
    each = judge(tool("look", CITY, strict=True))
    each.judge(0, [call("look", '{"city": "A"}')])
    with pytest.raises(ApiError) as refused:
        each.judge(0, [call("look", '{"city": 3}')])
    error = refused.value
    assert (error.status, error.kind, error.code) == (422, "answer_error", "invalid_tool_call")
    assert error.extra["call"] == {"name": "look", "arguments": '{"city": 3}'}
    assert error.extra["errors"][0]["pointer"] == "/city"


def test_others_are_listed() -> None:
    each = judge(tool("look"), tool("now", None))
    each.judge(0, [call("look", "{}"), call("now", "{}"), call("now", '{"a": 1}')])
    each.judge(1, [call("other", "{}"), call("look", '{"ci', complete=False), call("now", "3")])
    facts = each.facts()
    assert facts["valid"] is False
    places = [(found["choice"], found["call"], found["name"]) for found in facts["invalid"]]
    assert places == [(0, 0, "look"), (0, 2, "now"), (1, 0, "other"), (1, 2, "now")]
    message = facts["invalid"][2]["errors"][0]["message"]
    assert message == "there is no function 'other' that may be called"


def test_what_cannot_be_told_is_said() -> None:
    slow = {"type": "object", "properties": {"a": {"pattern": "^(?:a?){30}a{30}$(?<=a)"}}}
    each = judge(tool("look", slow, strict=True))
    each.judge(0, [call("look", f'{{"a": "{"a" * 30}"}}')])
    facts = each.facts()
    assert facts["valid"] is True
    (undecided,) = facts["undecided"]
    assert (undecided["call"], undecided["name"]) == (0, "look")
    assert "too many steps" in undecided["reason"]
