"""Repair of several choices, and of tool calls, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.engine.errors import QueueFullError
from server.engine.types import GenerationEvent, GenerationRequest
from tests.api_support import ScriptedEngine, strict_format
from tests.test_api_repair import (
    FIRST,
    GROUNDED,
    RIGHT,
    WRONG,
    Attempts,
    Said,
    answer_of,
    failure_of,
    post,
    rejected,
    stream_of,
)

# --- several choices --------------------------------------------------------------------------


class ByChoice(Attempts):
    """Says one text after another, of each choice its own; the seed tells which it is."""

    def __init__(self, *choices: Sequence[Said]) -> None:
        super().__init__()
        self._choices = [list(said) for said in choices]

    def _say(self, request: GenerationRequest) -> list[GenerationEvent]:
        assert request.sampling.seed is not None
        self._said = [self._choices[request.sampling.seed - 7].pop(0)]
        return super()._say(request)


TWO = ([(WRONG, "stop"), (RIGHT[:9], "length"), (RIGHT, "stop")], [(RIGHT, "stop")])


async def test_each_choice_is_repaired_by_itself() -> None:
    engine = ByChoice(*TWO)
    answer = await answer_of(engine, n=2, seed=7, max_tokens=20)
    assert [choice["message"]["content"] for choice in answer["choices"]] == [RIGHT, RIGHT]
    first, second = answer["gabarito"]["choices"]
    assert [each["outcome"] for each in first["repair"]["rejected"]] == ["ungrounded", "truncated"]
    assert (first["repair"]["attempts"], second["repair"]["attempts"]) == (3, 1)
    assert engine.prompts == [FIRST, FIRST, rejected(WRONG), rejected(WRONG)]
    assert engine.budgets == [20, 20, 20, 40]
    # The prompt of the first attempts is one, those of the others count by themselves.
    assert answer["usage"]["prompt_tokens"] == 3 * 7
    assert answer["usage"]["completion_tokens"] == 4 * 10
    # Attempts at a choice wait in turn, choices side by side.
    assert (answer["timings"]["queue_ms"], answer["timings"]["decode_ms"]) == (3.0, 18.0)


async def test_a_stream_of_several_choices_sends_each_when_it_is_accepted() -> None:
    events = await stream_of(ByChoice(*TWO), n=2, seed=7, max_tokens=20)
    assert [event.data["choices"][0]["index"] for event in events[:2]] == [0, 1]
    attempts = [event.data["attempt"] for event in events if event.name]
    assert [(a["choice"], a["attempt"]) for a in attempts if a["type"] == "attempt_open"] == [
        (0, 1),
        (1, 1),
        (0, 2),
        (0, 3),
    ]
    said = {0: "", 1: ""}
    ends = []
    for event in events[:-1]:
        for choice in event.data["choices"]:
            said[choice["index"]] += choice["delta"].get("content") or ""
            if choice["finish_reason"]:
                ends.append(choice["index"])
    assert said == {0: RIGHT, 1: RIGHT}
    assert ends == [1, 0]
    assert events[-1].data == "[DONE]"


async def test_a_choice_that_cannot_be_repaired_ends_the_request() -> None:
    engine = ByChoice([(RIGHT, "stop")], [(WRONG, "stop"), (WRONG, "stop")])
    error = await failure_of(engine, n=2, seed=7)
    assert (error["choice"], error["reason"]) == (1, "repeated_answer")
    assert "choice 1" in error["message"]
    assert [attempt["content"] for attempt in error["attempts"]] == [WRONG, WRONG]
    assert error["usage"]["completion_tokens"] == 30


async def test_one_refused_choice_leaves_none() -> None:
    def refuse(_: GenerationRequest) -> None:
        if engine.generations:
            raise QueueFullError(retry_after_seconds=3)

    engine = Attempts((RIGHT, "stop"), refuse=refuse)
    assert (await post(engine, n=2)).status_code == 429
    assert all(generation.cancelled for generation in engine.generations)


# --- tool calls -------------------------------------------------------------------------------

#: What no grammar enforces: a pattern with a back-reference.
TWICE = {
    "type": "object",
    "properties": {"city": {"type": "string", "pattern": r"^(.)\1$"}},
    "required": ["city"],
}
NOTE = {"type": "function", "function": {"name": "note", "parameters": TWICE}}
NOW = {"type": "function", "function": {"name": "now"}}


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


GOOD = call("note", '{"city": "aa"}')
BAD = call("note", '{"city": "ab"}')


async def called(engine: ScriptedEngine, **fields: Any) -> dict[str, Any]:
    fields = {"response_format": None, "tools": [NOTE, NOW], **fields}
    return await answer_of(engine, **fields)


async def test_a_call_that_does_not_fit_goes_back_with_its_fault() -> None:
    engine = Attempts((call("now", "{}") + BAD, "stop"), (GOOD, "stop"))
    answer = await called(engine)
    [made] = answer["choices"][0]["message"]["tool_calls"]
    assert made["function"] == {"name": "note", "arguments": '{"city": "aa"}'}
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    [attempt] = answer["gabarito"]["repair"]["rejected"]
    assert attempt["outcome"] == "invalid"
    assert [c["function"]["name"] for c in attempt["tool_calls"]] == ["now", "note"]
    [reason] = attempt["reasons"]
    assert (reason["pointer"], reason["keyword"]) == (
        "/tool_calls/1/function/arguments/city",
        "pattern",
    )
    tools = answer["gabarito"]["tools"]
    assert tools["valid"] is True
    assert "invalid" not in tools, "that is about the answer that is sent"
    # The model is told which of the calls was wrong, as what the calls came to.
    told = engine.prompts[1]
    assert told.endswith("<|im_start|>assistant\n")
    assert BAD.replace("\n", "") in told.replace("\n", "")
    wrong = told.index('- /arguments/city: "ab" does not match')
    assert told.index("This call was not made") < told.index("This call was rejected:") < wrong


async def test_a_call_that_is_cut_off_gets_more_tokens() -> None:
    engine = Attempts((GOOD[:-20], "length"), (GOOD, "stop"))
    answer = await called(engine, max_tokens=10)
    assert engine.budgets == [10, 20]
    assert engine.prompts[0] == engine.prompts[1]
    assert answer["gabarito"]["repair"]["rejected"][0]["outcome"] == "truncated"


async def test_the_same_call_again_ends_the_loop() -> None:
    again = call("note", '{ "city" : "ab" }')
    error = await failure_of(
        Attempts((BAD, "stop"), (again, "stop")), response_format=None, tools=[NOTE]
    )
    assert error["reason"] == "repeated_answer"
    assert error["attempts"][1]["repeats"] == 1
    assert error["attempts"][1]["tool_calls"][0]["function"]["arguments"] == '{ "city" : "ab" }'


async def test_words_are_accepted_where_no_call_is_needed() -> None:
    answer = await called(Attempts(("No need.", "stop")))
    assert answer["choices"][0]["message"]["content"] == "No need."
    assert answer["gabarito"]["repair"] == {"attempts": 1, "rejected": []}
    engine = Attempts(("No need.", "stop"), (GOOD, "stop"))
    answer = await called(engine, tool_choice="required")
    assert answer["choices"][0]["message"]["tool_calls"]
    assert "it calls no function, and one must be called" in engine.prompts[1]


async def test_a_format_beside_tools_is_repaired_like_any() -> None:
    engine = Attempts((WRONG, "stop"), (RIGHT, "stop"))
    answer = await called(engine, response_format=strict_format(GROUNDED))
    assert answer["choices"][0]["message"]["content"] == RIGHT
    assert answer["gabarito"]["repair"]["rejected"][0]["outcome"] == "ungrounded"
    engine = Attempts((BAD, "stop"), (RIGHT, "stop"))
    answer = await called(engine, response_format=strict_format(GROUNDED))
    assert answer["choices"][0]["message"]["content"] == RIGHT
    assert "tool_calls" not in answer["choices"][0]["message"]


async def test_a_stream_holds_calls_until_they_are_accepted() -> None:
    events = await stream_of(
        Attempts((BAD, "stop"), (GOOD, "stop")), response_format=None, tools=[NOTE]
    )
    closes = [e.data["attempt"] for e in events if e.name == "attempt_close"]
    assert [close["outcome"] for close in closes] == ["invalid", "accepted"]
    assert closes[0]["tool_calls"][0]["function"]["arguments"] == '{"city": "ab"}'
    deltas = [
        call["function"]["arguments"]
        for event in events[:-1]
        for choice in event.data["choices"]
        for call in choice["delta"].get("tool_calls", ())
    ]
    assert "".join(deltas) == '{"city": "aa"}'
