"""A client that goes away stops its generation, streaming or not: plain ASGI, no sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.api_support import HandDriven, ScriptedEngine, app_with, chat, piece, soon

PATHS = {
    "/v1/chat/completions": chat(),
    "/v1/completions": {"model": "toy", "prompt": "hi"},
}


def exchange_with(engine: ScriptedEngine, path: str, **fields: Any) -> HandDriven:
    body = json.dumps({**PATHS[path], **fields}).encode()
    return HandDriven(app_with(engine), path, body)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("count", [1, 2])
async def test_a_disconnect_cancels_every_choice(path: str, streaming: bool, count: int) -> None:
    engine = ScriptedEngine()
    exchange = exchange_with(engine, path, stream=streaming, n=count)
    task = asyncio.create_task(exchange.run())
    await soon(lambda: len(engine.generations) == count)
    for generation in engine.generations:
        generation.deliver([piece("a")])
    if streaming:
        await soon(lambda: exchange.text.count('"a"') == count)
    assert not any(generation.cancelled for generation in engine.generations)
    exchange.disconnect()
    await asyncio.wait_for(task, 5)
    assert all(generation.cancelled for generation in engine.generations)
    if not streaming:
        assert exchange.sent == [], "nobody is left to answer"


@pytest.mark.parametrize("path", PATHS)
async def test_a_disconnect_before_the_first_token_cancels_too(path: str) -> None:
    engine = ScriptedEngine()
    exchange = exchange_with(engine, path, stream=False)
    task = asyncio.create_task(exchange.run())
    await soon(lambda: len(engine.generations) == 1)
    exchange.disconnect()
    await asyncio.wait_for(task, 5)
    assert engine.generations[0].cancelled


async def test_a_client_that_leaves_in_the_middle_of_its_body_costs_nothing() -> None:
    engine = ScriptedEngine()
    exchange = HandDriven(app_with(engine), "/v1/chat/completions", b"")
    exchange.inbox.put_nowait({"type": "http.request", "body": b'{"mod', "more_body": True})
    exchange.disconnect()
    # The first message of `run()` is a complete empty body; take its place with half a one.
    inbox, exchange.inbox = exchange.inbox, asyncio.Queue()

    class _Halved(asyncio.Queue[dict[str, Any]]):
        def put_nowait(self, item: dict[str, Any]) -> None:
            return None

        async def get(self) -> dict[str, Any]:
            return await inbox.get()

    exchange.inbox = _Halved()
    await asyncio.wait_for(exchange.run(), 5)
    assert engine.generations == []
    assert exchange.sent == []


async def test_a_stream_whose_client_stops_reading_is_cut_when_it_leaves() -> None:
    """The disconnect arrives while a chunk is being sent, not while one is awaited."""
    engine = ScriptedEngine()
    exchange = exchange_with(engine, "/v1/chat/completions", stream=True)
    stuck = asyncio.Event()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body" and b'"a"' in message["body"]:
            stuck.set()
            await asyncio.Event().wait()

    async def receive() -> Any:
        if not exchange.sent:
            exchange.sent.append({"type": "request given"})
            return {"type": "http.request", "body": exchange.body, "more_body": False}
        await stuck.wait()
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"",
        "query_string": b"",
        "headers": exchange.headers,
    }
    task = asyncio.create_task(exchange.app(scope, receive, send))
    await soon(lambda: len(engine.generations) == 1)
    engine.generations[0].deliver([piece("a")])
    await asyncio.wait_for(task, 5)
    assert engine.generations[0].cancelled


async def test_a_finished_answer_is_not_cancelled_by_the_disconnect_that_follows() -> None:
    from tests.api_support import finished

    engine = ScriptedEngine(lambda _: [piece("a"), finished(tokens=1)])
    exchange = exchange_with(engine, "/v1/chat/completions", stream=False)
    await exchange.run()
    exchange.disconnect()
    assert json.loads(exchange.text)["choices"][0]["message"]["content"] == "a"
