"""Over HTTP: answers closed in time, runaway values, diagnostics, raw log-probabilities, limits."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from server.api.app import create_app
from server.api.telling import HIGH_MEAN_KL
from server.engine.engine import LocalEngine
from server.engine.types import EngineDefaults, GenerationRequest
from server.settings import Settings
from tests.api_support import (
    MODEL,
    ScriptedEngine,
    chat,
    events_of,
    saying,
    strict_format,
)
from tests.api_support import (
    client_of as http_client,
)
from tests.scripted_model import ScriptedModel
from tests.test_engine_closing import TOKENS, prefers

NAMES = {"type": "array", "items": {"enum": ["abc", "q"]}, "minItems": 2}


def app_over(script: Any, **engine_options: Any) -> Any:
    model = ScriptedModel(TOKENS, script, n_ctx=300)
    settings = Settings.model_validate({"engine": engine_options})
    return create_app(settings, engine=LocalEngine(model, EngineDefaults(n_batch=32)))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = app_over(prefers(", ", "abc", '"'))
    async with http_client(app) as http:
        yield http
    app.state.runtime.close()


def body(schema: Any = NAMES, **fields: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "prompt": "go",
        "temperature": 0,
        "response_format": strict_format(schema),
        **fields,
    }


async def post(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/v1/completions", json=body(**fields))
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


async def test_an_answer_is_closed_in_time(client: httpx.AsyncClient) -> None:
    answer = await post(client, max_tokens=16, truncation="close")
    (choice,) = answer["choices"]
    value = json.loads(choice["text"])
    assert value == ["abc"] * len(value)
    assert len(value) >= 2
    assert choice["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] <= 16
    said = answer["gabarito"]
    assert said["closed_by_budget"]["cause"] == "max_tokens"
    assert 0 < said["closed_by_budget"]["token"] < 16
    assert said["validation"] == {"complete": True, "valid": True}


async def test_without_it_the_answer_is_cut(client: httpx.AsyncClient) -> None:
    for fields in ({}, {"truncation": "cut"}, {"truncation": None}):
        answer = await post(client, max_tokens=16, **fields)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert "closed_by_budget" not in answer["gabarito"]
        assert answer["gabarito"]["validation"] == {"complete": False, "reason": "length"}


async def test_a_stream_says_so_in_its_last_chunk(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/v1/completions", json=body(max_tokens=16, truncation="close", stream=True)
    )
    chunks = [event.data for event in events_of(response.text) if event.data != "[DONE]"]
    json.loads("".join(chunk["choices"][0]["text"] for chunk in chunks))
    assert chunks[-1]["gabarito"]["closed_by_budget"]["cause"] == "max_tokens"


async def test_several_choices_say_it_each(client: httpx.AsyncClient) -> None:
    answer = await post(client, max_tokens=16, truncation="close", n=2)
    assert [each["index"] for each in answer["gabarito"]["choices"]] == [0, 1]


@pytest.mark.parametrize("stream", [False, True])
async def test_too_few_tokens_are_refused_with_the_number(
    client: httpx.AsyncClient, stream: bool
) -> None:
    response = await client.post(
        "/v1/completions", json=body(max_tokens=1, truncation="close", stream=stream)
    )
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("max_tokens", "max_tokens_too_small")
    least = error["min_tokens"]
    assert f"needs {least} tokens" in error["message"]
    assert error["max_tokens"] == 1
    answer = await post(client, max_tokens=least, truncation="close")
    assert answer["usage"]["completion_tokens"] == least
    json.loads(answer["choices"][0]["text"])


async def test_the_rest_of_the_context_counts_too(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/v1/completions", json=body(prompt="z" * 297, max_tokens=99, truncation="close")
    )
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "max_tokens_too_small")
    assert "the context leaves 3" in error["message"]


async def test_a_runaway_value_is_ended() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "maxItems": 1, "minItems": 1}
    for settings, fields in (({}, {"repetition_guard": 16}), ({"repetition_guard": 16}, {})):
        app = app_over(prefers("z"), **settings)
        async with http_client(app) as client:
            answer = await post(client, schema=schema, max_tokens=100, **fields)
            assert json.loads(answer["choices"][0]["text"]) == ["z" * 16]
            assert answer["choices"][0]["finish_reason"] == "length"
            assert answer["gabarito"]["closed_by_budget"]["cause"] == "repetition"
            off = await post(client, schema=schema, max_tokens=40, repetition_guard=0)
            assert off["choices"][0]["text"].count("z") > 30
        app.state.runtime.close()


async def test_diagnostics_and_the_warning_that_the_model_fights() -> None:
    app = app_over(prefers("z"))
    async with http_client(app) as client:
        answer = await post(client, max_tokens=30, diagnostics=True)
        told = answer["gabarito"]["diagnostics"]
        text = answer["choices"][0]["text"]
        assert "".join(token["token"] for token in told["tokens"]) == text
        assert told["total_kl"] == pytest.approx(sum(t["kl"] for t in told["tokens"]), abs=1e-4)
        assert told["mean_kl"] > HIGH_MEAN_KL
        assert told["overruled_share"] == 1.0
        assert told["tokens"][0]["wanted"] == {"id": TOKENS.index(b"z"), "token": "z"}
        for token in told["tokens"]:
            assert token["legal_mass"] == pytest.approx(math.exp(-token["kl"]), abs=1e-4)
        (warning,) = answer["gabarito"]["warnings"]
        assert "fighting the schema" in warning
        plain = await post(client, max_tokens=30)
        assert plain["choices"][0]["text"] == text
        assert not {"diagnostics", "warnings"} & set(plain["gabarito"])
    app.state.runtime.close()


async def test_a_model_that_agrees_gives_no_warning(client: httpx.AsyncClient) -> None:
    answer = await post(client, schema={"type": "string"}, max_tokens=12, diagnostics=True)
    assert answer["gabarito"]["diagnostics"]["mean_kl"] < HIGH_MEAN_KL
    assert "warnings" not in answer["gabarito"]


async def test_raw_log_probabilities(client: httpx.AsyncClient) -> None:
    asked = {"max_tokens": 8, "logprobs": 2}
    masked = (await post(client, **asked))["choices"][0]["logprobs"]["token_logprobs"]
    raw = (await post(client, **asked, logprobs_raw=True))["choices"][0]["logprobs"]
    assert all(one < other for one, other in zip(raw["token_logprobs"], masked, strict=False))
    assert ", " in raw["top_logprobs"][0], "what the model wanted, though it was not legal"
    alone = (await post(client, max_tokens=8, logprobs=0, logprobs_raw=True))["choices"][0]
    assert alone["logprobs"]["token_logprobs"] == raw["token_logprobs"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"truncation": "auto"}, "truncation"),
        ({"repetition_guard": 3}, "repetition_guard"),
        ({"repetition_guard": 5000}, "repetition_guard"),
        ({"timeout": 0}, "timeout"),
        ({"diagnostics": "yes"}, "diagnostics"),
        ({"logprobs_raw": True}, "logprobs_raw"),
    ],
)
async def test_wrong_values_are_named(
    client: httpx.AsyncClient, fields: dict[str, Any], param: str
) -> None:
    response = await client.post("/v1/completions", json=body(**fields))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


# --- who asks, and how long ----------------------------------------------------------------------


async def test_a_request_may_ask_for_less_time() -> None:
    app = create_app(Settings(), engine=ScriptedEngine())
    async with http_client(app) as client, asyncio.timeout(10):
        response = await client.post(
            "/v1/chat/completions", json={**chat(), "model": MODEL, "timeout": 0.05}
        )
    assert response.status_code == 504
    assert response.json()["error"]["code"] == "request_timeout"


@pytest.mark.parametrize(
    ("headers", "fields", "client"),
    [
        ({}, {}, "address:127.0.0.1"),
        ({}, {"user": "ann"}, "user:ann"),
        ({"authorization": "Bearer sk-1"}, {"user": "ann"}, "key:"),
        ({"authorization": "Bearer  "}, {}, "address:127.0.0.1"),
    ],
)
async def test_clients_are_told_apart(
    headers: dict[str, str], fields: dict[str, Any], client: str
) -> None:
    engine = ScriptedEngine(saying("x"))
    async with http_client(create_app(Settings(), engine=engine)) as http:
        await http.post(
            "/v1/chat/completions", json={**chat(), "model": MODEL, **fields}, headers=headers
        )
    assert engine.last.client.startswith(client)
    assert "sk-1" not in engine.last.client


async def test_the_engine_is_told_what_was_asked_for() -> None:
    engine = ScriptedEngine(saying("x"))
    async with http_client(create_app(Settings(), engine=engine)) as http:
        fields = {"truncation": "close", "diagnostics": True, "repetition_guard": 20}
        await http.post("/v1/chat/completions", json={**chat(), "model": MODEL, **fields})
    asked: GenerationRequest = engine.last
    assert (asked.closes, asked.diagnostics, asked.repetition_guard) == (True, True, 20)
