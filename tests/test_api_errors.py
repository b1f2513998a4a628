"""Every kind of error: status, OpenAI's envelope, the field's name; and the server goes on."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from grammar import (
    Issue,
    NoLegalContinuation,
    SchemaBudgetError,
    SchemaError,
    StepBudgetError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from server.api.app import create_app
from server.api.errors import to_api_error
from server.engine.errors import (
    BadLogitsError,
    ContextOverflowError,
    EngineClosedError,
    QueueFullError,
)
from server.engine.types import Failed, GenerationRequest
from server.settings import Settings
from tests.api_support import ScriptedEngine, app_with, chat, client_of, saying


async def post(
    body: Any = None, *, engine: ScriptedEngine | None = None, **options: Any
) -> httpx.Response:
    app = app_with(engine or ScriptedEngine(saying("ok")), max_body_bytes=100_000)
    async with client_of(app) as client:
        if body is not None:
            options["json"] = body
        response = await client.post("/v1/chat/completions", **options)
        after = await client.post("/v1/chat/completions", json=chat())
    assert after.status_code == 200 or engine is not None, "the server goes on"
    return response


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert {"message", "type", "param", "code"} <= error.keys()
    assert isinstance(error["message"], str)
    assert response.headers["x-request-id"]
    return error


SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"foo": 1}, "foo", "unknown_parameter"),
        ({"temprature": 1, "model": None}, "temprature", "unknown_parameter"),
        (
            {"messages": [{"role": "user", "content": "x", "x": 1}]},
            "messages[0].x",
            "unknown_parameter",
        ),
        ({"model": None}, "model", "invalid_type"),
        ({"model": ""}, "model", "invalid_value"),
        ({"messages": []}, "messages", "invalid_value"),
        ({"messages": "hi"}, "messages", "invalid_type"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0].role", "invalid_value"),
        (
            {"messages": [{"role": "user"}]},
            "messages[0].content",
            "missing_required_parameter",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
            "messages[0].content[0].type",
            "unsupported_value",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
            "messages[0].content[0].type",
            "unsupported_value",
        ),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content", "invalid_type"),
        ({"temperature": 2.1}, "temperature", "invalid_value"),
        ({"temperature": -0.1}, "temperature", "invalid_value"),
        ({"temperature": "1"}, "temperature", "invalid_type"),
        ({"temperature": True}, "temperature", "invalid_type"),
        ({"top_p": -0.1}, "top_p", "invalid_value"),
        ({"top_p": 1.1}, "top_p", "invalid_value"),
        ({"top_k": -2}, "top_k", "invalid_value"),
        ({"max_tokens": -2}, "max_tokens", "invalid_value"),
        ({"max_tokens": -1.0}, "max_tokens", "invalid_type"),
        (
            {"repeat_penalty": 1.1, "repetition_penalty": 1.1},
            "repetition_penalty",
            "invalid_value",
        ),
        ({"min_p": 1.5}, "min_p", "invalid_value"),
        ({"seed": 2**63}, "seed", "invalid_value"),
        ({"seed": 1.5}, "seed", "invalid_type"),
        ({"n": 0}, "n", "invalid_value"),
        ({"n": 9}, "n", "invalid_value"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "invalid_value"),
        ({"stop": ""}, "stop", "invalid_value"),
        ({"stop": ["a", ""]}, "stop", "invalid_value"),
        ({"stop": [1]}, "stop[0]", "invalid_type"),
        ({"frequency_penalty": 2.5}, "frequency_penalty", "invalid_value"),
        ({"presence_penalty": -2.5}, "presence_penalty", "invalid_value"),
        ({"repeat_penalty": 0}, "repeat_penalty", "invalid_value"),
        ({"logit_bias": {"x": 1}}, "logit_bias.x", "invalid_value"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "invalid_value"),
        ({"logit_bias": {"261": 1}}, "logit_bias.261", "invalid_value"),
        ({"top_logprobs": 3}, "top_logprobs", "invalid_value"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "invalid_value"),
        ({"max_tokens": 0}, "max_tokens", "invalid_value"),
        ({"max_completion_tokens": 0}, "max_completion_tokens", "invalid_value"),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_tokens", "invalid_value"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "invalid_value"),
        ({"metadata": {"a": 1}}, "metadata.a", "invalid_type"),
        ({"functions": [{}]}, "functions[0].name", "missing_required_parameter"),
        ({"function_call": {"name": "f"}}, "function_call.name", "invalid_value"),
        ({"function_call": "required"}, "function_call", "invalid_value"),
        ({"audio": {"voice": "x"}}, "audio", "unsupported_parameter"),
        ({"modalities": ["text", "audio"]}, "modalities", "unsupported_parameter"),
        ({"prediction": {"type": "content"}}, "prediction", "unsupported_parameter"),
        ({"web_search_options": {}}, "web_search_options", "unsupported_parameter"),
        ({"moderation": {"model": "x"}}, "moderation", "unsupported_parameter"),
        ({"response_format": {"type": "xml"}}, "response_format", "invalid_value"),
        ({"response_format": "json"}, "response_format", "invalid_value"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format.json_schema",
            "missing_required_parameter",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
            "response_format.json_schema.name",
            "missing_required_parameter",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "not ok", "schema": SCHEMA},
                }
            },
            "response_format.json_schema.name",
            "invalid_value",
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "x", "schema": SCHEMA},
                    "schema": SCHEMA,
                }
            },
            "response_format.schema",
            "unknown_parameter",
        ),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", "invalid_prompt"),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "invalid_value"),
    ],
)
async def test_a_bad_field_is_named(fields: dict[str, Any], param: str, code: str) -> None:
    response = await post(chat(**fields))
    error = error_of(response)
    assert response.status_code == 400
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)
    assert param.split(".")[-1].split("[")[0] in error["message"] or "content" in param


@pytest.mark.parametrize("name", ["model", "messages"])
async def test_a_missing_field_is_named(name: str) -> None:
    body = chat()
    del body[name]
    error = error_of(await post(body))
    assert (error["param"], error["code"]) == (name, "missing_required_parameter")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1"),
        (b"[1]", "must be an object"),
        (b'{"a": 1, "a": 2}', "'a' stands twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": %s}' % (b"1" * 5000), "more than 4000 digits"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "levels"),
        (b'{"a": ' + b"[" * 40_000 + b"]" * 40_000 + b"}", "nested"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    ],
)
async def test_a_body_that_is_no_proper_json_is_refused(content: bytes, reason: str) -> None:
    response = await post(content=content, headers={"content-type": "application/json"})
    error = error_of(response)
    assert response.status_code == 400
    assert error["code"] == "invalid_json"
    assert reason in error["message"]


async def test_another_content_type_is_refused() -> None:
    response = await post(content=b"a=1", headers={"content-type": "text/plain"})
    assert response.status_code == 415
    assert error_of(response)["code"] == "unsupported_content_type"


@pytest.mark.parametrize("declared", [True, False])
async def test_a_huge_body_is_refused_whatever_its_length_header_says(declared: bool) -> None:
    content = b'{"messages": "' + b"x" * 300_000 + b'"}'

    async def parts() -> Any:
        for start in range(0, len(content), 10_000):
            yield content[start : start + 10_000]

    body: Any = content if declared else parts()
    response = await post(content=body, headers={"content-type": "application/json"})
    assert response.status_code == 413
    assert error_of(response)["code"] == "request_too_large"


async def test_unknown_addresses_and_methods() -> None:
    async with client_of(app_with(ScriptedEngine())) as client:
        missing = await client.get("/v1/nothing")
        wrong = await client.get("/v1/chat/completions")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "unknown_url")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


async def test_another_model_is_not_found() -> None:
    response = await post(chat(model="gpt-5"))
    error = error_of(response)
    assert response.status_code == 404
    assert (error["param"], error["code"]) == ("model", "model_not_found")


def refusing(error: Exception) -> ScriptedEngine:
    def refuse(_: GenerationRequest) -> None:
        raise error

    return ScriptedEngine(refuse=refuse)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind", "code", "retry_after"),
    [
        (
            ContextOverflowError(1200, 1000),
            400,
            "invalid_request_error",
            "context_length_exceeded",
            None,
        ),
        (QueueFullError(7), 429, "rate_limit_error", "rate_limit_exceeded", "7"),
        (EngineClosedError("x"), 503, "server_error", "engine_stopped", "5"),
        (RuntimeError("secret path /etc"), 500, "server_error", "internal_error", None),
    ],
)
async def test_what_the_engine_refuses(
    error: Exception, status: int, kind: str, code: str, retry_after: str | None, streaming: bool
) -> None:
    response = await post(chat(stream=streaming), engine=refusing(error))
    found = error_of(response)
    assert (response.status_code, found["type"], found["code"]) == (status, kind, code)
    assert response.headers.get("retry-after") == retry_after
    assert "secret" not in found["message"]


async def test_if_one_choice_is_refused_none_stays() -> None:
    def refuse(_: GenerationRequest) -> None:
        if len(engine.generations) == 2:
            raise QueueFullError(1)

    engine = ScriptedEngine(refuse=refuse)
    response = await post(chat(n=3), engine=engine)
    assert response.status_code == 429
    assert [generation.cancelled for generation in engine.generations] == [True, True]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (NoLegalContinuation("inside a string"), "no_legal_continuation", "inside a string"),
        (StepBudgetError(9, "inside a string"), "step_too_costly", "9 steps"),
        (BadLogitsError("NaN at 0x7f"), "internal_error", "internal error"),
    ],
)
async def test_what_fails_on_the_way(error: Exception, code: str, said: str) -> None:
    engine = ScriptedEngine(lambda _: [Failed(error)])
    response = await post(chat(n=2), engine=engine)
    found = error_of(response)
    assert (response.status_code, found["code"]) == (500, code)
    assert said in found["message"]
    assert "0x7f" not in found["message"]
    assert all(generation.cancelled for generation in engine.generations)


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    engine = ScriptedEngine()
    async with client_of(app_with(engine, request_timeout_seconds=0.05)) as client:
        response = await client.post("/v1/chat/completions", json=chat())
    assert (response.status_code, error_of(response)["code"]) == (504, "request_timeout")
    assert response.headers["x-should-retry"] == "false"
    assert engine.generations[0].cancelled


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            SchemaError("must be an object", pointer="/properties/a", keyword="type"),
            "invalid_schema",
        ),
        (
            UnsatisfiableSchemaError("no value", pointer="/a", keyword="minimum"),
            "unsatisfiable_schema",
        ),
        (SchemaBudgetError("too many rules"), "schema_too_complex"),
        (
            UnsupportedSchemaError(
                [Issue("uniqueItems", "/properties/a", "r"), Issue("not", "", "s")]
            ),
            "unsupported_schema",
        ),
    ],
)
def test_schema_errors_name_every_keyword_and_its_place(error: SchemaError, code: str) -> None:
    api_error = to_api_error(error, schema_name="person")
    found = api_error.envelope()["error"]
    assert api_error.status == 400
    assert (found["param"], found["code"]) == ("response_format", code)
    assert "'person'" in found["message"]
    for issue in getattr(error, "issues", ()):
        assert f"{issue.keyword} at {issue.pointer or '(root)'}" in found["message"]
        assert {
            "keyword": issue.keyword,
            "pointer": issue.pointer,
            "reason": issue.reason,
        } in found["issues"]


async def test_the_sdk_maps_each_status_to_its_own_class() -> None:
    async def caught(engine: ScriptedEngine, **fields: Any) -> type[Exception]:
        http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app_with(engine)), base_url="http://test"
        )
        client = openai.AsyncOpenAI(
            api_key="-", base_url="http://test/v1", http_client=http, max_retries=0
        )
        async with client:
            with pytest.raises(openai.APIStatusError) as info:
                await client.chat.completions.create(**chat(**fields))
        assert info.value.request_id
        return type(info.value)

    assert await caught(ScriptedEngine(), temperature=3) is openai.BadRequestError
    assert await caught(ScriptedEngine(), model="x") is openai.NotFoundError
    assert await caught(refusing(QueueFullError(1))) is openai.RateLimitError
    assert await caught(refusing(RuntimeError("x"))) is openai.InternalServerError


async def test_request_ids_are_echoed_if_sane_and_made_otherwise() -> None:
    async with client_of(app_with(ScriptedEngine(saying("x")))) as client:
        echoed = await client.get("/health", headers={"x-request-id": "abc-123"})
        for offered in ("", "x" * 200, "a b", "a\tb"):
            made = await client.get("/health", headers={"x-request-id": offered})
            assert made.headers["x-request-id"].startswith("req_")
        stream = await client.post(
            "/v1/chat/completions", json=chat(stream=True), headers={"x-request-id": "s1"}
        )
    assert echoed.headers["x-request-id"] == "abc-123"
    assert stream.headers["x-request-id"] == "s1"


async def test_errors_carry_cors_headers_where_cors_is_on() -> None:
    engine = ScriptedEngine()
    app = app_with(engine, cors_origins=["http://page.test"])
    async with client_of(app) as client:
        headers = {"origin": "http://page.test"}
        response = await client.post("/v1/chat/completions", json={}, headers=headers)
    assert response.status_code == 400
    assert response.headers["access-control-allow-origin"] == "http://page.test"
    assert response.headers["x-request-id"]


async def test_while_the_model_loads_health_is_up_and_the_rest_waits() -> None:
    settings = Settings.model_validate({"model": {"name": "/nowhere/model.gguf"}})
    app = create_app(settings)
    async with client_of(app) as client:
        loading = await client.get("/ready")
        health = await client.get("/health")
        asked = await client.post("/v1/chat/completions", json=chat())
        assert (health.status_code, health.json()["state"]) == (200, "loading")
        assert (loading.status_code, error_of(loading)["code"]) == (503, "model_loading")
        assert loading.headers["retry-after"]
        assert asked.status_code == 503
        async with app.router.lifespan_context(app):
            async with asyncio.timeout(20):
                while (await client.get("/health")).json()["state"] == "loading":
                    await asyncio.sleep(0.01)
            failed = await client.get("/ready")
            assert (failed.status_code, error_of(failed)["code"]) == (503, "model_failed")
            assert "/nowhere/model.gguf" in error_of(failed)["message"]
            assert (await client.get("/health")).status_code == 200


async def test_an_engine_that_stops_makes_the_server_unready() -> None:
    engine = ScriptedEngine(saying("x"))
    async with client_of(app_with(engine)) as client:
        assert (await client.get("/ready")).status_code == 200
        engine.closed = True
        assert (await client.get("/ready")).status_code == 503


def test_the_error_body_is_json_that_says_nothing_of_the_inside() -> None:
    envelope = to_api_error(KeyError("password")).envelope()
    assert "password" not in json.dumps(envelope)
