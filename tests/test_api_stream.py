"""Streaming: the order of chunks that the openai SDK relies on, and region events in between."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from sse_starlette.sse import AppStatus

from server.api import sse
from server.api.app import create_app
from server.engine.errors import DecodeError
from server.engine.types import Failed
from server.settings import Settings
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
    saying,
    soon,
)

REGIONS = {"include_region_events": True}


async def stream(engine: ScriptedEngine, **fields: Any) -> list[Event]:
    async with client_of(app_with(engine)) as client:
        response = await client.post("/v1/chat/completions", json=chat(stream=True, **fields))
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    return events_of(response.text)


def deltas(events: list[Event], index: int = 0) -> list[dict[str, Any]]:
    return [
        choice["delta"]
        for event in events[:-1]
        for choice in event.data["choices"]
        if choice["index"] == index
    ]


async def test_chunks_come_in_openais_order() -> None:
    events = await stream(ScriptedEngine(saying("Hel", "lo")))
    assert events[-1].data == "[DONE]"
    assert deltas(events) == [
        {"role": "assistant", "content": ""},
        {"content": "Hel"},
        {"content": "lo"},
        {},
    ]
    chunks = [event.data for event in events[:-1]]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert len({chunk["created"] for chunk in chunks}) == 1
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, None, "stop"]
    assert all(event.name is None for event in events)
    assert "usage" not in chunks[0]
    assert [("timings" in chunk) for chunk in chunks] == [False, False, False, True]


async def test_usage_comes_last_where_it_was_asked_for() -> None:
    events = await stream(ScriptedEngine(saying("a", "b")), stream_options={"include_usage": True})
    *others, usage = [event.data for event in events[:-1]]
    assert usage["choices"] == []
    assert usage["usage"]["total_tokens"] == 9
    assert "timings" in usage
    assert all(chunk["usage"] is None for chunk in others)
    assert not any("timings" in chunk for chunk in others)


async def test_choices_first_appear_in_order_whichever_speaks_first() -> None:
    engine = ScriptedEngine()
    exchange = HandDriven(app_with(engine), "/v1/chat/completions", _body(n=3))
    task = asyncio.create_task(exchange.run())
    await soon(lambda: len(engine.generations) == 3)
    for index in (2, 0, 1):
        engine.generations[index].deliver([piece(str(index)), finished(tokens=1)])
    await task
    events = events_of(exchange.text)
    first_seen = [e.data["choices"][0]["index"] for e in events[:3]]
    assert first_seen == [0, 1, 2]
    for index in range(3):
        roles = [d for d in deltas(events, index) if "role" in d]
        assert len(roles) == 1
        assert "".join(d.get("content", "") for d in deltas(events, index)) == str(index)
    with_timings = [e for e in events[:-1] if "timings" in e.data]
    assert with_timings == [events[-2]], "only the last chunk has them"


async def test_log_probabilities_go_with_the_text_and_none_is_lost() -> None:
    engine = ScriptedEngine(
        lambda _: [piece(" ", -1.0), piece("a", -0.5), piece(" ", -2.0), finished(tokens=3)]
    )
    events = await stream(engine, logprobs=True, top_logprobs=0)
    found = [
        token["token"]
        for event in events[:-1]
        for choice in event.data["choices"]
        if choice["logprobs"]
        for token in choice["logprobs"]["content"]
    ]
    assert found == [" ", "a", " "]


async def test_region_events_are_named_and_in_true_order() -> None:
    settings = Settings.model_validate(
        {"server": {"served_name": "toy"}, "model": {"response_template": "qwen3"}}
    )
    engine = ScriptedEngine(saying("<think>", "Hm", "</think>", "Yes", "!"))
    async with client_of(create_app(settings, engine=engine)) as client:
        response = await client.post(
            "/v1/chat/completions", json=chat(stream=True, stream_options=REGIONS)
        )
    events = events_of(response.text)
    seen: list[Any] = []
    for event in events[:-1]:
        if event.name is None:
            seen.append(event.data["choices"][0]["delta"])
        else:
            assert event.data["choices"] == []
            assert event.data["object"] == "chat.completion.chunk"
            region = event.data["region"]
            assert region["type"] == event.name
            assert region["choice"] == 0
            seen.append((event.name, region["field"], region.get("text", region.get("value"))))
    assert seen == [
        {"role": "assistant", "content": ""},
        ("region_open", "reasoning_content", None),
        ("region_chunk", "reasoning_content", "Hm"),
        {"reasoning_content": "Hm"},
        ("region_close", "reasoning_content", "Hm"),
        ("region_open", "content", None),
        ("region_chunk", "content", "Yes"),
        {"content": "Yes"},
        ("region_chunk", "content", "!"),
        {"content": "!"},
        ("region_close", "content", "Yes!"),
        {},
    ]


async def test_without_asking_there_are_no_region_events() -> None:
    events = await stream(ScriptedEngine(saying("a")), stream_options={})
    assert all(event.name is None for event in events)
    assert not any("region" in event.data for event in events[:-1])


async def test_an_error_after_the_start_is_an_event_and_the_end() -> None:
    engine = ScriptedEngine(lambda _: [piece("a"), Failed(DecodeError("llama_decode said 1"))])
    events = await stream(engine)
    assert deltas(events)[-1] == {"content": "a"}
    error = events[-1].data["error"]
    assert error["type"] == "server_error"
    assert "llama" not in error["message"], "the inside stays inside"
    assert not any(event.data == "[DONE]" for event in events)


async def test_line_breaks_of_other_scripts_do_not_break_an_event() -> None:
    text = "a\u2028b\u2029c\x85d\r\ne"
    async with client_of(app_with(ScriptedEngine(saying(text)))) as client:
        response = await client.post("/v1/chat/completions", json=chat(stream=True))
    for line in response.text.splitlines():
        assert not line or line.startswith("data: ")
    assert deltas(events_of(response.text))[1] == {"content": text}


async def test_keep_alives_are_comments() -> None:
    engine = ScriptedEngine()
    app = app_with(engine, ping_seconds=0.02)
    exchange = HandDriven(app, "/v1/chat/completions", _body())
    task = asyncio.create_task(exchange.run())
    await soon(lambda: exchange.text.count(": ping\n\n") >= 2)
    engine.generations[0].deliver([piece("x"), finished(tokens=1)])
    await task
    assert "event:" not in exchange.text
    assert "".join(d.get("content", "") for d in deltas(events_of(exchange.text))) == "x"


async def test_the_body_ends_right_after_done() -> None:
    engine = ScriptedEngine(saying("x"))
    exchange = HandDriven(app_with(engine), "/v1/chat/completions", _body())
    async with asyncio.timeout(2):
        await exchange.run()
    *_, done, end = exchange.sent
    assert done["body"] == b"data: [DONE]\n\n"
    assert end == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_stream_that_takes_too_long_ends_with_an_error() -> None:
    engine = ScriptedEngine()
    exchange = HandDriven(
        app_with(engine, request_timeout_seconds=0.05), "/v1/chat/completions", _body()
    )
    await exchange.run()
    assert events_of(exchange.text)[-1].data["error"]["code"] == "request_timeout"
    assert engine.generations[0].cancelled


async def test_a_stream_that_outlives_the_server_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "SHUTDOWN_SECONDS", 0.01)
    engine = ScriptedEngine()
    exchange = HandDriven(app_with(engine), "/v1/chat/completions", _body())
    task = asyncio.create_task(exchange.run())
    await soon(lambda: len(engine.generations) == 1)
    engine.generations[0].deliver([piece("a")])
    await soon(lambda: '"a"' in exchange.text)
    monkeypatch.setattr(AppStatus, "should_exit", True)  # what a signal sets
    async with asyncio.timeout(5):
        await task
    events = events_of(exchange.text)
    assert events[-1].data["error"]["code"] == "shutting_down"
    assert exchange.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert engine.generations[0].cancelled


def _body(**fields: Any) -> bytes:
    return json.dumps(chat(stream=True, **fields)).encode()
