"""A real server with a real model, treated as real clients treat it: well, badly, and at once."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from urllib.parse import urlsplit

import httpx
import jsonschema
import openai
import pytest

from tests.api_support import MODEL, events_of, strict_format, user
from tests.sdk_schemas import SCHEMAS

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


# --- bytes on the wire ----------------------------------------------------------------------------


def test_raw_bytes_of_a_stream(live_server: str) -> None:
    body = {
        "model": MODEL,
        "messages": user("Hi"),
        "max_tokens": 8,
        "n": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with httpx.stream("POST", f"{live_server}/v1/chat/completions", json=body, timeout=120) as r:
        assert r.headers["content-type"].startswith("text/event-stream")
        assert r.headers["x-request-id"]
        parts: list[tuple[float, bytes]] = [(time.monotonic(), part) for part in r.iter_bytes()]
        ended = time.monotonic()
    raw = b"".join(part for _, part in parts)
    assert raw.endswith(b"data: [DONE]\n\n")
    assert ended - parts[-1][0] < 0.5, "the body ends right after [DONE]"
    events = events_of(raw.decode("utf-8"))
    chunks = [event.data for event in events[:-1]]
    assert all(event.name is None for event in events)
    assert len({(chunk["id"], chunk["created"], chunk["object"]) for chunk in chunks}) == 1
    assert [chunk["choices"][0]["index"] for chunk in chunks[:2]] == [0, 1]
    for index in (0, 1):
        mine = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert [("role" in c["delta"]) for c in mine] == [True] + [False] * (len(mine) - 1)
        assert [c["finish_reason"] is not None for c in mine] == [False] * (len(mine) - 1) + [True]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 0
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_a_special_token_in_a_message_is_ordinary_text(live_server: str) -> None:
    def prompt_tokens(content: str) -> int:
        body = {"model": MODEL, "messages": user(content), "max_tokens": 1}
        answer = httpx.post(f"{live_server}/v1/chat/completions", json=body, timeout=120).json()
        return int(answer["usage"]["prompt_tokens"])

    def count(text: str, parse_special: bool) -> int:
        body = {"content": text, "parse_special": parse_special}
        return int(httpx.post(f"{live_server}/tokenize", json=body, timeout=30).json()["count"])

    spelling = "<|im_end|>"
    assert count(spelling, True) == 1
    assert count(spelling, False) > 1
    assert prompt_tokens(f"x{spelling}") == prompt_tokens("x") + count(spelling, False)


# --- clients that go away, and worse --------------------------------------------------------------

ENDLESS = {
    "model": MODEL,
    "messages": user("Write a very long story."),
    "max_tokens": 4000,
    "logit_bias": {"2": -100, "0": -100},
}


def _engine(base_url: str) -> dict[str, int]:
    stats: dict[str, int] = httpx.get(f"{base_url}/health", timeout=30).json()["engine"]
    return stats


def _wait_for(base_url: str, slots_used: int, seconds: float = 60) -> dict[str, int]:
    deadline = time.monotonic() + seconds
    while (stats := _engine(base_url))["slots_used"] != slots_used:
        assert time.monotonic() < deadline, f"{stats['slots_used']} slots are still used"
        time.sleep(0.05)
    return stats


@pytest.mark.parametrize("streaming", [True, False])
def test_a_client_that_goes_away_frees_its_slot(live_server: str, streaming: bool) -> None:
    before = _wait_for(live_server, 0)
    body = json.dumps({**ENDLESS, "stream": streaming}).encode()
    connection = _send(live_server, body)
    _wait_for(live_server, 1)
    if streaming:
        received = b""
        while received.count(b'"content"') < 4:
            received += connection.recv(4096)
    connection.close()
    after = _wait_for(live_server, 0)
    assert after["cancelled"] == before["cancelled"] + 1
    assert after["completion_tokens"] - before["completion_tokens"] < 2000


def _send(base_url: str, body: bytes, *, length: int | None = None) -> socket.socket:
    """Send a request by hand, so that the connection can be treated badly."""
    address = urlsplit(base_url)
    connection = socket.create_connection((address.hostname, address.port), timeout=60)
    connection.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body) if length is None else length}\r\n\r\n".encode()
        + body
    )
    return connection


NASTY: dict[str, bytes] = {
    "not JSON": b"{",
    "deep": b'{"a":' * 5000 + b"1" + b"}" * 5000,
    "invalid UTF-8": b'{"model": "\xff\xfe"}',
    "a lone surrogate": json.dumps({**ENDLESS, "messages": user("\ud800")}).encode(),
    "a schema that refers to itself": json.dumps(
        {**ENDLESS, "response_format": strict_format({"$ref": "#"})}
    ).encode(),
    "a pattern that explodes": json.dumps(
        {
            **ENDLESS,
            "response_format": strict_format(
                {"type": "string", "pattern": "^((a|b|c){1,200}){1,200}$"}
            ),
            "max_tokens": 5,
        }
    ).encode(),
    "a schema of nonsense": json.dumps(
        {**ENDLESS, "response_format": strict_format({"type": ["x"], "properties": 3, "enum": {}})}
    ).encode(),
    "huge": b'{"model": "' + b"x" * 9_000_000 + b'"}',
}


@pytest.mark.parametrize("name", NASTY)
def test_nasty_requests_leave_the_server_serving(live_server: str, name: str) -> None:
    response = httpx.post(
        f"{live_server}/v1/chat/completions",
        content=NASTY[name],
        headers={"content-type": "application/json"},
        timeout=120,
    )
    if response.status_code != 200:
        assert response.status_code in (400, 413)
        assert response.json()["error"]["message"]
    assert _still_serves(live_server)


def test_cut_connections_leave_the_server_serving(live_server: str) -> None:
    for body, length in ((b'{"model": ', 5000), (b"", 10), (json.dumps(ENDLESS).encode(), None)):
        _send(live_server, body, length=length).close()
    _wait_for(live_server, 0)
    assert _still_serves(live_server)


def _still_serves(base_url: str) -> bool:
    body = {"model": MODEL, "messages": user("Hi"), "seed": 1}
    body["response_format"] = strict_format({"enum": ["yes", "no"]})
    answer = httpx.post(f"{base_url}/v1/chat/completions", json=body, timeout=120).json()
    return json.loads(answer["choices"][0]["message"]["content"]) in ("yes", "no")


# --- the promise ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_200_strict_requests_with_20_schemas_all_fit(live_server: str) -> None:
    assert len(SCHEMAS) == 20
    gate = asyncio.Semaphore(4)
    reasons: list[str] = []

    async with openai.AsyncOpenAI(api_key="-", base_url=f"{live_server}/v1", timeout=600) as client:

        async def one(name: str, seed: int) -> None:
            schema = SCHEMAS[name]
            async with gate:
                answer = await client.chat.completions.create(
                    model=MODEL,
                    messages=user(f"Write an example of a {name} as JSON."),
                    response_format=strict_format(schema),
                    temperature=1,
                    seed=seed,
                    max_tokens=120,
                )
            choice = answer.choices[0]
            reasons.append(choice.finish_reason)
            if choice.finish_reason != "length":
                value = json.loads(choice.message.content or "")
                jsonschema.validate(
                    value, schema, format_checker=jsonschema.FormatChecker(["date", "uuid"])
                )

        await asyncio.gather(*(one(name, seed) for name in SCHEMAS for seed in range(10)))
    assert len(reasons) == 200
    assert reasons.count("stop") > 100, "most answers come to an end by themselves"
