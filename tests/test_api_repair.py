"""Repair over HTTP with a scripted engine: every attempt, prompt, budget, count and event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from grammar import Fewest
from server.engine.errors import (
    BudgetTooSmallError,
    ContextOverflowError,
    EngineError,
    QueueFullError,
)
from server.engine.types import GenerationEvent, GenerationRequest, TextPiece
from tests.api_support import (
    Event,
    HandDriven,
    ScriptedEngine,
    app_with,
    chat,
    client_of,
    events_of,
    finished,
    piece,
    soon,
    strict_format,
)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
GROUNDED = {
    **PERSON,
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "x-ground": "number"}},
}
SOURCE = "Ada Lovelace was thirty-six when she died."
RIGHT = '{"name": "Ada Lovelace", "age": 36}'
WRONG = '{"name": "Ada Lovelace", "age": 41}'
OTHER = '{"name": "Ada Lovelace", "age": 52}'
#: Left to the validator: a pattern with a back-reference.
LOOSE = {
    "type": "json_schema",
    "json_schema": {
        "name": "x",
        "schema": {
            "type": "object",
            "properties": {"p": {"type": "string", "pattern": "a|(b)\\1"}},
        },
    },
}

Said = tuple[str, str]  # the text, and how it ended


class Attempts(ScriptedEngine):
    """Says one text after another: `(text, finish reason)`, in pieces of a few characters."""

    def __init__(self, *said: Said, **options: Any) -> None:
        super().__init__(self._say, **options)
        self._said = list(said)

    def _say(self, request: GenerationRequest) -> list[GenerationEvent]:
        text, reason = self._said.pop(0)
        pieces: list[GenerationEvent] = [piece(text[i : i + 5]) for i in range(0, len(text), 5)]
        end = finished(stop_sequence="}") if reason == "stop_sequence" else finished(reason, 10)
        return [*pieces, end]

    @property
    def prompts(self) -> list[str]:
        return [self.detokenize(generation.request.prompt) for generation in self.generations]

    @property
    def budgets(self) -> list[int | None]:
        return [generation.request.max_tokens for generation in self.generations]


async def post(engine: ScriptedEngine, **fields: Any) -> httpx.Response:
    fields = {"response_format": strict_format(GROUNDED), "repair": {}, **fields}
    async with client_of(app_with(engine)) as client:
        return await client.post("/v1/chat/completions", json=chat(SOURCE, **fields))


async def answer_of(engine: ScriptedEngine, **fields: Any) -> dict[str, Any]:
    response = await post(engine, **fields)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def failure_of(engine: ScriptedEngine, **fields: Any) -> dict[str, Any]:
    response = await post(engine, **fields)
    assert response.status_code == 422, response.text
    error: dict[str, Any] = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == ("answer_error", "repair_failed", None)
    return error


def turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


FIRST = turn("user", SOURCE) + "<|im_start|>assistant\n"


def rejected(*texts: str) -> str:
    """The prompt after these answers with a wrong age."""
    turns = turn("user", SOURCE)
    for text in texts:
        age = json.loads(text)["age"]
        turns += turn("assistant", text)
        turns += turn("user", REJECTED.format(age=age))
    return turns + "<|im_start|>assistant\n"


REJECTED = (
    "This answer was rejected:\n"
    "- /age: the source does not state {age}, neither in digits nor in words\n"
    "Answer again, with what is wrong put right."
)


# --- accepted ---------------------------------------------------------------------------------


async def test_a_first_answer_that_is_good_costs_one_attempt() -> None:
    engine = Attempts((RIGHT, "stop"))
    answer = await answer_of(engine, max_tokens=50)
    assert answer["choices"][0]["message"]["content"] == RIGHT
    assert answer["gabarito"]["repair"] == {"attempts": 1, "rejected": []}
    assert answer["gabarito"]["validation"] == {"complete": True, "valid": True}
    assert answer["gabarito"]["grounding"] == {"ungrounded": []}
    assert answer["usage"]["completion_tokens"] == 10
    assert (engine.prompts, engine.budgets) == ([FIRST], [50])


async def test_a_truncated_attempt_gets_a_larger_budget_and_the_same_prompt() -> None:
    engine = Attempts((RIGHT[:20], "length"), (RIGHT, "stop"))
    answer = await answer_of(engine, max_tokens=8)
    assert (engine.prompts, engine.budgets) == ([FIRST, FIRST], [8, 16])
    assert answer["choices"][0]["message"]["content"] == RIGHT
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["gabarito"]["repair"] == {
        "attempts": 2,
        "rejected": [
            {
                "attempt": 1,
                "outcome": "truncated",
                "max_tokens": 8,
                "completion_tokens": 10,
                "content": RIGHT[:20],
                "reasons": [{"type": "truncated", "message": "the answer was cut off at 8 tokens"}],
            }
        ],
    }


async def test_usage_and_timings_count_all_attempts() -> None:
    answer = await answer_of(Attempts((RIGHT[:20], "length"), (RIGHT, "stop")), max_tokens=8)
    assert answer["usage"]["prompt_tokens"] == 14
    assert answer["usage"]["completion_tokens"] == 20
    assert answer["usage"]["total_tokens"] == 34
    assert answer["timings"]["tokens"] == 20
    assert answer["timings"]["decode_ms"] == 12.0
    assert answer["timings"]["queue_ms"] == 2.0


async def test_an_ungrounded_answer_goes_back_with_the_reason() -> None:
    engine = Attempts((WRONG, "stop"), (RIGHT, "stop"))
    answer = await answer_of(engine)
    assert engine.prompts == [FIRST, rejected(WRONG)]
    assert engine.budgets == [None, None]
    (attempt,) = answer["gabarito"]["repair"]["rejected"]
    assert (attempt["outcome"], attempt["content"]) == ("ungrounded", WRONG)
    (reason,) = attempt["reasons"]
    assert (reason["type"], reason["pointer"], reason["value"], reason["kind"]) == (
        "ungrounded",
        "/age",
        41,
        "number",
    )
    assert answer["gabarito"]["grounding"] == {"ungrounded": []}


async def test_an_invalid_answer_goes_back_with_the_validators_words() -> None:
    engine = Attempts(('{"p": "["}', "stop"), ('{"p": "a"}', "stop"))
    answer = await answer_of(engine, response_format=LOOSE)
    assert turn("assistant", '{"p": "["}') in engine.prompts[1]
    assert '- /p: "[" does not match "a|(b)' in engine.prompts[1]
    (attempt,) = answer["gabarito"]["repair"]["rejected"]
    assert attempt["outcome"] == "invalid"
    assert attempt["reasons"][0]["keyword"] == "pattern"
    assert attempt["reasons"][0]["schema_pointer"] == "/properties/p/pattern"
    assert answer["gabarito"]["validation"]["valid"] is True


async def test_every_kind_of_fault_in_one_request() -> None:
    engine = Attempts((WRONG[:9], "length"), (WRONG, "stop"), (OTHER, "stop"), (RIGHT, "stop"))
    answer = await answer_of(engine, max_tokens=8)
    assert engine.budgets == [8, 16, 16, 16]
    assert engine.prompts == [FIRST, FIRST, rejected(WRONG), rejected(WRONG, OTHER)]
    outcomes = [attempt["outcome"] for attempt in answer["gabarito"]["repair"]["rejected"]]
    assert outcomes == ["truncated", "ungrounded", "ungrounded"]
    assert answer["usage"]["completion_tokens"] == 40


async def test_a_stop_string_that_cuts_the_answer_is_told_to_the_model() -> None:
    engine = Attempts((RIGHT[:-1], "stop_sequence"), (RIGHT, "stop"))
    await answer_of(engine, stop="}")
    assert "- the answer broke off before it was complete, at a stop string" in engine.prompts[1]


async def test_rejected_reasons_are_no_source() -> None:
    """The second attempt repeats a number that only the first rejection names."""
    engine = Attempts((WRONG, "stop"), ('{"name": "41", "age": 41}', "stop"), (RIGHT, "stop"))
    answer = await answer_of(engine)
    assert answer["gabarito"]["repair"]["attempts"] == 3


async def test_an_attempt_that_only_the_report_faults_is_accepted() -> None:
    answer = await answer_of(Attempts((WRONG, "stop")), on_ungrounded="report")
    assert answer["choices"][0]["message"]["content"] == WRONG
    assert answer["gabarito"]["repair"]["attempts"] == 1
    assert answer["gabarito"]["grounding"]["ungrounded"][0]["pointer"] == "/age"


async def test_logprobs_are_those_of_the_accepted_answer() -> None:
    engine = Attempts((WRONG, "stop"), (RIGHT, "stop"))
    answer = await answer_of(engine, logprobs=True)
    tokens = [token["token"] for token in answer["choices"][0]["logprobs"]["content"]]
    assert "".join(tokens) == RIGHT


@pytest.mark.parametrize("text", ["aa", "a"])
async def test_answers_without_a_schema_can_grow_too(text: str) -> None:
    engine = Attempts((text, "length"), (text + "b", "stop"))
    wanted = {"type": "regex", "pattern": "a+b"}
    answer = await answer_of(engine, response_format=wanted, max_tokens=2)
    assert answer["choices"][0]["message"]["content"] == text + "b"
    assert answer["gabarito"]["validation"] == {"complete": True}


# --- given up ---------------------------------------------------------------------------------


async def test_a_repeated_answer_ends_the_loop() -> None:
    respelt = json.dumps(json.loads(WRONG), sort_keys=True, indent=1)
    engine = Attempts((WRONG[:9], "length"), (WRONG, "stop"), (respelt, "stop"))
    error = await failure_of(engine, max_tokens=8, repair={"max_attempts": 8})
    assert error["reason"] == "repeated_answer"
    assert [a["outcome"] for a in error["attempts"]] == ["truncated", "ungrounded", "repeated"]
    assert error["attempts"][2]["repeats"] == 2
    assert error["attempts"][2]["reasons"][0]["value"] == 41
    assert error["usage"]["completion_tokens"] == 30
    assert error["message"].startswith("No acceptable answer after 3 attempts: the model gave an")
    assert "/age: the source does not state 41" in error["message"]


async def test_the_attempts_run_out() -> None:
    said = [(f'{{"name": "A", "age": {age}}}', "stop") for age in range(40, 60)]
    engine = Attempts(*said)
    error = await failure_of(engine, repair={"max_attempts": 3})
    assert error["reason"] == "attempts_exhausted"
    assert len(error["attempts"]) == len(engine.generations) == 3


async def test_four_attempts_are_the_default() -> None:
    said = [(f'{{"name": "A", "age": {age}}}', "stop") for age in range(40, 60)]
    assert len((await failure_of(Attempts(*said)))["attempts"]) == 4
    only = await failure_of(Attempts(*said), repair=None, on_ungrounded="repair")
    assert len(only["attempts"]) == 4


async def test_one_attempt_is_a_check_with_a_typed_failure() -> None:
    error = await failure_of(Attempts((WRONG, "stop")), repair={"max_attempts": 1})
    assert error["reason"] == "attempts_exhausted"
    assert error["message"].startswith("No acceptable answer after 1 attempt: ")


async def test_a_budget_that_cannot_grow_ends_the_loop() -> None:
    engine = Attempts((RIGHT[:9], "length"), (RIGHT[:15], "length"))
    error = await failure_of(engine, max_tokens=8, repair={"max_tokens": 12})
    assert engine.budgets == [8, 12]
    assert error["reason"] == "budget_exhausted"
    first = Attempts((RIGHT[:9], "length"))
    assert (await failure_of(first, repair={"max_tokens": 5}))["reason"] == "budget_exhausted"
    assert first.budgets == [5]
    unlimited = await failure_of(Attempts((RIGHT[:9], "length")))
    assert unlimited["reason"] == "budget_exhausted"
    (reason,) = unlimited["attempts"][0]["reasons"]
    assert reason["message"] == "the answer was cut off where the context ends"


async def test_the_budget_ends_where_the_context_does() -> None:
    engine = Attempts((RIGHT[:9], "length"), (RIGHT[:15], "length"))
    room = engine.n_ctx - len(engine.tokenize(FIRST))
    error = await failure_of(engine, max_tokens=room - 10)
    assert engine.budgets == [room - 10, room]
    assert error["reason"] == "budget_exhausted"


@pytest.mark.parametrize(
    "error",
    [ContextOverflowError(300, 200), BudgetTooSmallError(Fewest((1,) * 9, 9), 2, is_context=True)],
)
async def test_a_prompt_that_outgrows_the_context_ends_the_loop(error: EngineError) -> None:
    overflow = error

    def refuse(request: GenerationRequest) -> None:
        if len(request.prompt) > 200:
            raise overflow

    failure = await failure_of(Attempts((WRONG, "stop"), refuse=refuse))
    assert failure["reason"] == "context_exhausted"
    assert [attempt["outcome"] for attempt in failure["attempts"]] == ["ungrounded"]


async def test_a_fault_of_the_grammar_is_no_reason_to_ask_again() -> None:
    engine = Attempts(('{"name": 1}', "stop"))
    response = await post(engine)
    assert response.status_code == 500
    assert response.json()["error"]["code"] == "invalid_answer"


async def test_a_full_queue_is_told_as_such() -> None:
    seen: list[int] = []

    def refuse(_: GenerationRequest) -> None:
        seen.append(1)
        if len(seen) == 2:
            raise QueueFullError(3)

    response = await post(Attempts((WRONG, "stop"), refuse=refuse))
    assert response.status_code == 429
    assert response.headers["retry-after"] == "3"


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"repair": {"max_attempts": 0}}, "repair.max_attempts"),
        ({"repair": {"max_attempts": 17}}, "repair.max_attempts"),
        ({"repair": {"max_attempts": 2.5}}, "repair.max_attempts"),
        ({"repair": {"max_tokens": 0}}, "repair.max_tokens"),
        ({"repair": {"attempts": 3}}, "repair.attempts"),
        ({"repair": True}, "repair"),
        ({"response_format": {"type": "text"}}, "repair"),
        ({"response_format": {"type": "text"}, "repair": None, "on_ungrounded": "repair"}, "on_"),
    ],
)
async def test_bad_requests_name_the_field(fields: dict[str, Any], param: str) -> None:
    engine = Attempts()
    response = await post(engine, **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(param)
    assert not engine.generations


async def test_no_repair_is_no_loop() -> None:
    engine = Attempts((WRONG[:9], "length"))
    answer = await answer_of(engine, repair=None, max_tokens=3)
    assert "repair" not in answer["gabarito"]
    assert answer["choices"][0]["finish_reason"] == "length"


# --- streams ----------------------------------------------------------------------------------


async def stream_of(engine: ScriptedEngine, **fields: Any) -> list[Event]:
    response = await post(engine, stream=True, **fields)
    assert response.status_code == 200, response.text
    return events_of(response.text)


def content_of(events: Sequence[Event]) -> list[str]:
    return [
        choice["delta"]["content"]
        for event in events
        if event.data != "[DONE]" and "choices" in event.data
        for choice in event.data["choices"]
        if choice["delta"].get("content")
    ]


async def test_a_stream_tells_of_attempts_and_streams_only_the_accepted_answer() -> None:
    engine = Attempts((WRONG[:9], "length"), (WRONG, "stop"), (RIGHT, "stop"))
    events = await stream_of(engine, max_tokens=8, stream_options={"include_usage": True})
    opening, *rest = events
    assert opening.data["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    named = [event for event in rest if event.name]
    assert [(event.name, event.data["attempt"]["attempt"]) for event in named] == [
        ("attempt_open", 1),
        ("attempt_close", 1),
        ("attempt_open", 2),
        ("attempt_close", 2),
        ("attempt_open", 3),
        ("attempt_close", 3),
    ]
    assert all(event.data["choices"] == [] for event in named)
    assert named[0].data["attempt"] == {
        "choice": 0,
        "type": "attempt_open",
        "attempt": 1,
        "max_tokens": 8,
    }
    close = named[3].data["attempt"]
    assert (close["type"], close["outcome"], close["content"]) == (
        "attempt_close",
        "ungrounded",
        WRONG,
    )
    assert close["reasons"][0]["pointer"] == "/age"
    assert named[5].data["attempt"]["outcome"] == "accepted"
    # What follows is an ordinary stream of the accepted answer, in its own pieces.
    after = rest[rest.index(named[5]) + 1 :]
    assert content_of(rest[: rest.index(named[5])]) == []
    deltas = content_of(after)
    assert "".join(deltas) == RIGHT
    assert len(deltas) > 3
    *_, finish, usage, done = after
    assert finish.data["choices"][0]["finish_reason"] == "stop"
    assert finish.data["gabarito"]["repair"]["attempts"] == 3
    assert usage.data["usage"]["completion_tokens"] == 30
    assert done.data == "[DONE]"


async def test_a_failure_in_a_stream_is_an_error_event_in_the_envelope() -> None:
    engine = Attempts((WRONG, "stop"), (WRONG, "stop"))
    *events, last = await stream_of(engine)
    assert content_of(events) == []
    assert last.name is None
    assert last.data["error"]["code"] == "repair_failed"
    assert last.data["error"]["reason"] == "repeated_answer"
    assert len(last.data["error"]["attempts"]) == 2
    assert [e.name for e in events[1:]] == ["attempt_open", "attempt_close"] * 2


async def test_region_events_are_those_of_the_accepted_answer() -> None:
    engine = Attempts((WRONG, "stop"), (RIGHT, "stop"))
    events = await stream_of(engine, stream_options={"include_region_events": True})
    regions = [e.data["region"] for e in events if e.name and e.name.startswith("region")]
    assert "".join(r.get("text", "") for r in regions) == RIGHT
    assert regions[-1]["value"] == RIGHT


# --- going away, running out of time ----------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_ends_the_loop(stream: bool) -> None:
    engine = ScriptedEngine()
    wanted = chat(
        SOURCE, response_format=strict_format(GROUNDED), repair={}, max_tokens=8, stream=stream
    )
    exchange = HandDriven(app_with(engine), "/v1/chat/completions", json.dumps(wanted).encode())
    task = asyncio.create_task(exchange.run())
    await soon(lambda: len(engine.generations) == 1)
    engine.generations[0].deliver([piece(WRONG), finished()])
    await soon(lambda: len(engine.generations) == 2)
    assert not engine.generations[1].cancelled
    exchange.disconnect()
    await asyncio.wait_for(task, 5)
    assert engine.generations[1].cancelled
    await asyncio.sleep(0.05)
    assert len(engine.generations) == 2
    assert (
        "content"
        not in exchange.text.replace('"content":""', "")
        .replace(json.dumps(WRONG)[1:-1], "")
        .split("attempt_close")[0]
    )


async def test_time_is_counted_over_all_attempts() -> None:
    engine = ScriptedEngine()
    app = app_with(engine, request_timeout_seconds=0.3)
    wanted = chat(SOURCE, response_format=strict_format(GROUNDED), repair={}, max_tokens=8)
    async with client_of(app) as client:
        task = asyncio.create_task(client.post("/v1/chat/completions", json=wanted))
        await soon(lambda: len(engine.generations) == 1)
        await asyncio.sleep(0.2)
        engine.generations[0].deliver([piece(WRONG), finished()])
        response = await asyncio.wait_for(task, 5)
    assert response.status_code == 504
    assert "(0.3 s)" in response.json()["error"]["message"]
    assert len(engine.generations) == 2
    assert engine.generations[1].cancelled


async def test_nothing_of_a_rejected_answer_is_sent_while_it_is_written() -> None:
    engine = ScriptedEngine()
    wanted = chat(SOURCE, response_format=strict_format(GROUNDED), repair={}, stream=True)
    exchange = HandDriven(app_with(engine), "/v1/chat/completions", json.dumps(wanted).encode())
    task = asyncio.create_task(exchange.run())
    await soon(lambda: len(engine.generations) == 1)
    engine.generations[0].deliver([TextPiece('{"name": "Secret', ())])
    await soon(lambda: "attempt_open" in exchange.text)
    await asyncio.sleep(0.05)
    assert "Secret" not in exchange.text
    exchange.disconnect()
    await asyncio.wait_for(task, 5)
