"""`/v1/schemas/...` and profiles, over the toy model: a real engine, real grammars."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from server.api.app import create_app
from server.api.profiles import require_tools
from server.engine.engine import LocalEngine
from server.engine.toy import ToyModel
from server.lint import load_dialects
from server.settings import Settings, packaged_config_dir
from tests.api_support import chat, client_of, settings

PERSON = {
    "type": "object",
    "properties": {"age": {"type": "integer"}},
    "required": ["age"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "properties": {"age": {"type": "integer"}}}
SPEC = {
    "multi_character_tokens": ['{"', '": ', "age"],
    "model": {"answer": '{"age": 41}', "habits": []},
}


async def serve(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    engine = LocalEngine(ToyModel.from_spec(SPEC))
    try:
        async with client_of(create_app(settings, engine=engine)) as client:
            yield client
    finally:
        engine.close()


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async for client in serve(settings()):
        yield client


def strict(schema: Any, **more: Any) -> dict[str, Any]:
    spec = {"name": "person", "schema": schema, "strict": True, **more}
    return {"type": "json_schema", "json_schema": spec}


async def ask(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post("/v1/chat/completions", json=chat("How old?", **fields))


async def test_lint_reports_findings_figures_and_sources(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/v1/schemas/lint", json={"schema": LOOSE, "targets": ["openai", "openai"]}
    )
    assert response.status_code == 200, response.text
    report = response.json()
    assert report["object"] == "schema.lint"
    assert report["enforced"] is True
    assert [(f["rule"], f["pointer"]) for f in report["findings"]] == [("refused", "")] * 2
    assert report["counts"]["properties"] == 1
    assert set(report["targets"]) == {"openai"}
    assert report["targets"]["openai"]["date"]


async def test_lint_takes_tools_and_all_targets_by_default(client: httpx.AsyncClient) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": LOOSE}}
    report = (await client.post("/v1/schemas/lint", json={"tools": [tool]})).json()
    assert set(report["targets"]) == {"openai", "anthropic", "gemini", "llama_cpp", "vllm"}
    assert report["findings"][0]["pointer"] == "/0/function/parameters"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("lint", {}, "schema"),
        ("lint", {"schema": {}, "tools": []}, "schema"),
        ("lint", {"schema": {}, "targets": ["openai", "x"]}, "targets[1]"),
        ("lint", {"schema": 3}, "schema"),
        ("compile", {}, "schema"),
        ("compile", {"schema": {}, "name": "a b"}, "name"),
        ("compile", {"schema": {"type": 3}}, "schema"),
        ("compile", {"schema": {}, "more": 1}, "more"),
    ],
)
async def test_bad_bodies_name_the_field(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], param: str
) -> None:
    response = await client.post(f"/v1/schemas/{path}", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


async def test_a_compiled_schema_can_be_named_by_its_hash(client: httpx.AsyncClient) -> None:
    response = await client.post("/v1/schemas/compile", json={"schema": PERSON, "name": "person"})
    assert response.status_code == 200, response.text
    made = response.json()
    assert made["object"] == "schema.compiled"
    assert made["schema"] == {
        "enforced": True,
        "keywords": ["additionalProperties", "properties", "required", "type"],
        "unenforced": [],
    }
    assert made["size_bytes"] > 0
    assert made["states"] >= 1
    assert made["compile_ms"] > 0
    assert made["cached"] is False
    again = (await client.post("/v1/schemas/compile", json={"schema": PERSON})).json()
    assert (again["hash"], again["cached"]) == (made["hash"], True)

    named = {"name": "p", "hash": made["hash"]}
    answer = await ask(client, response_format={"type": "json_schema", "json_schema": named})
    assert answer.status_code == 200, answer.text
    assert json.loads(answer.json()["choices"][0]["message"]["content"]) == {"age": 41}
    stats = (await client.get("/health")).json()["grammar_cache"]
    assert stats["misses"] == 1, "the request by hash compiled nothing"


async def test_a_hash_brings_its_options(client: httpx.AsyncClient) -> None:
    schema = {**PERSON, "properties": {"age": {"type": "integer", "format": "date"}}}
    asked = {"schema": schema, "formats": "annotate", "key_order": "free"}
    made = (await client.post("/v1/schemas/compile", json=asked)).json()
    assert "format" not in made["schema"]["keywords"]
    assert any("format at /properties/age asserts nothing" in note for note in made["bounds"])
    for options in ({}, {"formats": "annotate", "key_order": "free"}):
        named = {"name": "p", "hash": made["hash"], **options}
        answer = await ask(client, response_format={"type": "json_schema", "json_schema": named})
        assert answer.status_code == 200, answer.text
    named["formats"] = "assert"
    answer = await ask(client, response_format={"type": "json_schema", "json_schema": named})
    assert answer.status_code == 400
    assert "'annotate'" in answer.json()["error"]["message"]


async def test_what_strict_false_leaves_out_is_said_when_compiling(
    client: httpx.AsyncClient,
) -> None:
    schema = {"type": "string", "pattern": "(a)\\1"}
    refused = await client.post("/v1/schemas/compile", json={"schema": schema})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "unsupported_schema"
    made = await client.post("/v1/schemas/compile", json={"schema": schema, "strict": False})
    assert made.status_code == 200, made.text
    assert [u["keyword"] for u in made.json()["schema"]["unenforced"]] == ["pattern"]


async def test_a_wrong_hash_is_an_error_that_names_it(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/schemas/compile", json={"schema": PERSON})).json()
    for spec, param, code in (
        ({"hash": "0" * 64}, "response_format.json_schema.hash", "unknown_schema"),
        ({"hash": "xyz"}, "response_format.json_schema.hash", "invalid_value"),
        (
            {"hash": made["hash"], "schema": PERSON},
            "response_format.json_schema.hash",
            "invalid_value",
        ),
        (
            {"hash": made["hash"], "strict": False},
            "response_format.json_schema.strict",
            "invalid_value",
        ),
        (
            {"hash": made["hash"], "formats": "annotate"},
            "response_format.json_schema.formats",
            "invalid_value",
        ),
        (
            {"hash": made["hash"], "key_order": "free"},
            "response_format.json_schema.key_order",
            "invalid_value",
        ),
    ):
        named = {"type": "json_schema", "json_schema": {"name": "p", **spec}}
        response = await ask(client, response_format=named)
        assert response.status_code == 400, response.text
        error = response.json()["error"]
        assert (error["param"], error["code"]) == (param, code)


async def test_the_profile_answers_as_the_hosted_api_would(client: httpx.AsyncClient) -> None:
    assert (await ask(client, response_format=strict(LOOSE))).status_code == 200
    refused = await ask(client, response_format=strict(LOOSE), profile="openai")
    assert refused.status_code == 400
    assert refused.json() == {
        "error": {
            "message": "Invalid schema for response_format 'person': In context=(), "
            "'additionalProperties' is required to be supplied and to be false.",
            "type": "invalid_request_error",
            "param": "response_format",
            "code": None,
        }
    }
    passes = await ask(client, response_format=strict(PERSON), profile="openai")
    assert passes.status_code == 200
    lax = await ask(client, response_format=strict(LOOSE, strict=False), profile="openai")
    assert lax.status_code == 200, "only strict schemas are held to the subset"


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        (
            {"response_format": {"type": "json_object"}},
            "messages",
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'.",
        ),
        (
            {"response_format": {"type": "regex", "pattern": "a"}},
            "response_format.type",
            "Invalid value: 'regex'. Supported values are: 'json_schema', 'json_object', and "
            "'text'.",
        ),
        (
            {"structured_outputs": {"regex": "a"}},
            None,
            "Unrecognized request argument supplied: structured_outputs",
        ),
        ({"grammar": 'root ::= "a"'}, None, "Unrecognized request argument supplied: grammar"),
    ],
)
async def test_the_profile_refuses_what_only_this_server_has(
    client: httpx.AsyncClient, fields: dict[str, Any], param: str | None, message: str
) -> None:
    refused = await ask(client, profile="openai", **fields)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], error["message"]) == (param, message)
    assert (await ask(client, **fields)).status_code == 200


async def test_the_settings_may_ask_for_the_profile_and_a_request_against_it() -> None:
    strictest = settings()
    grammar = strictest.grammar.model_copy(update={"profile": "openai"})
    async for client in serve(strictest.model_copy(update={"grammar": grammar})):
        assert (await ask(client, response_format=strict(LOOSE))).status_code == 400
        free = await ask(client, response_format=strict(LOOSE), profile="none")
        assert free.status_code == 200
        assert (await ask(client)).status_code == 200


def test_strict_tools_are_held_to_the_profile_too() -> None:
    from server.api.errors import ApiError

    dialects = load_dialects(packaged_config_dir() / "dialects.toml")
    require_tools([(0, "f", PERSON)], dialects["openai"])
    with pytest.raises(ApiError) as refused:
        require_tools([(0, "f", PERSON), (1, "g", LOOSE)], dialects["openai"])
    assert refused.value.param == "tools[1].function.parameters"
    assert refused.value.code == "invalid_function_parameters"
    assert refused.value.message.startswith("Invalid schema for function 'g': In context=(), ")
    require_tools([(0, "f", PERSON)] * 20, dialects["anthropic"])
    with pytest.raises(ApiError, match="21 strict tools"):
        require_tools([(0, "f", PERSON)] * 21, dialects["anthropic"])


async def test_a_requests_strict_tools_are_held_to_its_profile(client: httpx.AsyncClient) -> None:
    def tool(name: str, strict: bool) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {"name": name, "parameters": LOOSE, "strict": strict},
        }

    refused = await ask(client, tools=[tool("a", False), tool("b", True)], profile="openai")
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "tools[1].function.parameters"
    assert error["code"] == "invalid_function_parameters"
    assert error["message"].startswith("Invalid schema for function 'b': In context=(), ")


async def test_a_schema_that_takes_too_long_to_compile_is_refused() -> None:
    limited = Settings.model_validate(
        {"server": {"served_name": "toy"}, "grammar": {"compile_seconds": 0.02}}
    )
    letters = "".join(f"(?=.*{c}.{{5}})" for c in "abcdefghij")
    hostile = {"type": "object", "properties": {"a": {"type": "string", "pattern": letters}}}
    said = "compiling takes more than 0.02 s of processor time"
    async for client in serve(limited):
        refused = await ask(client, response_format=strict(hostile))
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert (error["type"], error["code"]) == ("invalid_request_error", "schema_too_complex")
        assert error["param"] == "response_format"
        assert said in error["message"]
        assert error["issues"] == [{"keyword": "", "pointer": "", "reason": said}]
        refused = await ask(client, response_format={"type": "regex", "pattern": letters + ".*"})
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "grammar_too_complex"
        function = {"name": "f", "parameters": hostile, "strict": True}
        tool = {"type": "function", "function": function}
        refused = await ask(client, tools=[tool], tool_choice="required")
        assert refused.status_code == 400
        assert said in refused.json()["error"]["message"]
        answered = await ask(client, response_format=strict(PERSON))
        assert answered.status_code == 200
        assert json.loads(answered.json()["choices"][0]["message"]["content"]) == {"age": 41}
