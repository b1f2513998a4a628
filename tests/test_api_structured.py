"""`response_format` end to end over the toy model: a real engine, real grammars, no native code."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from server.api.app import create_app
from server.engine.engine import LocalEngine
from server.engine.toy import ToyModel
from server.settings import Settings
from tests.api_support import chat, client_of, events_of, settings, toy_client

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}

SPEC = {
    "multi_character_tokens": [
        '{"',
        '": ',
        '": "',
        '", "',
        '"}',
        "name",
        "age",
        "Ada",
        "thirty",
        "41",
    ],
    "model": {
        "answer": 'Sure: {"name": "Ada", "age": "thirty"}',
        "habits": ['{"name": "Bo", "age": 41}'],
    },
}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with toy_client(SPEC) as client:
        yield client


def schema_format(schema: Any, *, strict: bool | None = True) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": "person", "schema": schema, "strict": strict},
    }


async def ask(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    response = await client.post("/v1/chat/completions", json=chat(temperature=0, **fields))
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_strict_schema_makes_the_stubborn_model_write_digits(
    client: httpx.AsyncClient,
) -> None:
    free = await ask(client)
    assert free["choices"][0]["message"]["content"] == SPEC["model"]["answer"]  # type: ignore[index]
    bound = await ask(client, response_format=schema_format(PERSON))
    text = bound["choices"][0]["message"]["content"]
    assert json.loads(text) == {"name": "Ada", "age": 41}
    assert bound["choices"][0]["finish_reason"] == "stop"
    assert bound["gabarito"] == {
        "schema": {
            "enforced": True,
            "keywords": ["additionalProperties", "properties", "required", "type"],
            "unenforced": [],
        },
        "validation": {"complete": True, "valid": True},
    }


async def test_the_second_request_finds_the_grammar_compiled(client: httpx.AsyncClient) -> None:
    first = await ask(client, response_format=schema_format(PERSON))
    second = await ask(client, response_format=schema_format(PERSON))
    assert first["timings"]["grammar"]["cache"] == "miss"
    assert first["timings"]["grammar"]["compile_ms"] > 0
    assert second["timings"]["grammar"]["cache"] == "hit"
    assert first["choices"] == second["choices"]
    stats = (await client.get("/health")).json()["grammar_cache"]
    assert (stats["hits"], stats["misses"], stats["entries"]) == (1, 1, 1)


async def test_the_order_of_keys_is_the_schemas_own(client: httpx.AsyncClient) -> None:
    turned = {**PERSON, "properties": dict(reversed(list(PERSON["properties"].items())))}  # type: ignore[attr-defined]
    answer = await ask(client, response_format=schema_format(turned), max_tokens=60)
    assert answer["choices"][0]["message"]["content"].startswith('{"age"')


async def test_the_order_of_keys_can_be_the_models(client: httpx.AsyncClient) -> None:
    turned = {**PERSON, "properties": dict(reversed(list(PERSON["properties"].items())))}  # type: ignore[attr-defined]
    asked = schema_format(turned)
    asked["json_schema"]["key_order"] = "free"
    answer = await ask(client, response_format=asked, max_tokens=60)
    assert json.loads(answer["choices"][0]["message"]["content"]) == {"name": "Ada", "age": 41}
    assert answer["choices"][0]["message"]["content"].startswith('{"name"')
    asked["json_schema"]["key_order"] = "schema"
    answer = await ask(client, response_format=asked, max_tokens=60)
    assert answer["choices"][0]["message"]["content"].startswith('{"age"')
    asked["json_schema"]["key_order"] = "sorted"
    response = await client.post("/v1/chat/completions", json=chat(response_format=asked))
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "response_format.json_schema.key_order"
    assert "'schema' or 'free'" in error["message"]


async def test_the_server_can_be_set_to_free_key_order() -> None:
    engine = LocalEngine(ToyModel.from_spec(SPEC))
    turned = {**PERSON, "properties": dict(reversed(list(PERSON["properties"].items())))}  # type: ignore[attr-defined]
    try:
        app = create_app(
            Settings.model_validate({**settings().model_dump(), "grammar": {"key_order": "free"}}),
            engine=engine,
        )
        async with client_of(app) as client:
            for asked, first in ((None, '{"name"'), ("schema", '{"age"')):
                wanted = schema_format(turned)
                wanted["json_schema"]["key_order"] = asked
                answer = await ask(client, response_format=wanted, max_tokens=60)
                assert answer["choices"][0]["message"]["content"].startswith(first)
    finally:
        engine.close()


MAIL = {
    "type": "object",
    "properties": {"name": {"type": "string", "format": "email"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


async def test_formats_can_be_annotations(client: httpx.AsyncClient) -> None:
    asked = schema_format(MAIL)
    asked["json_schema"]["formats"] = "annotate"
    answer = await ask(client, response_format=asked, max_tokens=60)
    assert json.loads(answer["choices"][0]["message"]["content"]) == {"name": "Ada", "age": 41}
    told = answer["gabarito"]
    assert told["validation"] == {"complete": True, "valid": True}, "read in the same way"
    assert told["schema"]["keywords"] == [
        "additionalProperties",
        "properties",
        "required",
        "type",
    ]
    note = "format at /properties/name asserts nothing, since formats are annotations here"
    assert told["schema"]["notes"] == [note]
    asked["json_schema"]["formats"] = "assert"
    answer = await ask(client, response_format=asked, max_tokens=90)
    assert "format" in answer["gabarito"]["schema"]["keywords"]
    assert '"Ada"' not in answer["choices"][0]["message"]["content"]
    asked["json_schema"]["formats"] = "ignore"
    response = await client.post("/v1/chat/completions", json=chat(response_format=asked))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "response_format.json_schema.formats"


async def test_the_server_can_be_set_to_formats_as_annotations() -> None:
    engine = LocalEngine(ToyModel.from_spec(SPEC))
    grammar = {"formats": "annotate"}
    try:
        app = create_app(
            Settings.model_validate({**settings().model_dump(), "grammar": grammar}), engine=engine
        )
        async with client_of(app) as client:
            answer = await ask(client, response_format=schema_format(MAIL), max_tokens=60)
            content = answer["choices"][0]["message"]["content"]
            assert json.loads(content) == {"name": "Ada", "age": 41}
    finally:
        engine.close()


async def test_a_stream_of_a_structured_answer(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/v1/chat/completions",
        json=chat(
            temperature=0,
            stream=True,
            stream_options={"include_usage": True, "include_region_events": True},
            response_format=schema_format(PERSON),
        ),
    )
    events = events_of(response.text)
    text = "".join(
        choice["delta"].get("content", "")
        for event in events[:-1]
        for choice in event.data["choices"]
    )
    assert json.loads(text) == {"name": "Ada", "age": 41}
    regions = [event.data["region"] for event in events[:-1] if event.name]
    assert [r["type"] for r in regions[:1] + regions[-1:]] == ["region_open", "region_close"]
    assert {r["field"] for r in regions} == {"content"}
    assert "".join(r.get("text", "") for r in regions) == text == regions[-1]["value"]
    finish = next(
        e.data for e in events[:-1] if e.data["choices"] and e.data["choices"][0]["finish_reason"]
    )
    assert finish["gabarito"]["schema"]["enforced"] is True
    assert events[-2].data["timings"]["grammar"]["cache"] == "miss"


UNENFORCEABLE = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": "(a)\\1"}},
    "required": ["a"],
}


async def test_strict_refuses_what_cannot_be_enforced_by_name_and_place(
    client: httpx.AsyncClient,
) -> None:
    response = await client.post(
        "/v1/chat/completions", json=chat(response_format=schema_format(UNENFORCEABLE))
    )
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("response_format", "unsupported_schema")
    assert "pattern at /properties/a" in error["message"]
    assert error["issues"][0]["keyword"] == "pattern"
    assert error["issues"][0]["pointer"] == "/properties/a"


@pytest.mark.parametrize("strict", [False, None])
async def test_without_strict_the_rest_is_enforced_and_the_answer_says_what_was_not(
    client: httpx.AsyncClient, strict: bool | None
) -> None:
    answer = await ask(
        client, response_format=schema_format(UNENFORCEABLE, strict=strict), max_tokens=30
    )
    assert answer["choices"][0]["message"]["content"].startswith("{")
    report = answer["gabarito"]["schema"]
    assert report["enforced"] is False
    assert [(i["keyword"], i["pointer"]) for i in report["unenforced"]] == [
        ("pattern", "/properties/a")
    ]


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "objekt"}, "invalid_schema"),
        ({"type": "object", "properties": []}, "invalid_schema"),
        ({"type": "string", "pattern": "("}, "invalid_schema"),
        ({"$ref": "#/nowhere"}, "invalid_schema"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "unsatisfiable_schema"),
    ],
)
async def test_a_bad_schema_is_a_400_that_names_response_format(
    client: httpx.AsyncClient, schema: Any, code: str
) -> None:
    response = await client.post(
        "/v1/chat/completions", json=chat(response_format=schema_format(schema))
    )
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["param"], error["code"]) == ("response_format", code)
    assert "'person'" in error["message"]


async def test_json_object_is_any_object(client: httpx.AsyncClient) -> None:
    answer = await ask(client, response_format={"type": "json_object"}, max_tokens=60)
    assert isinstance(json.loads(answer["choices"][0]["message"]["content"]), dict)
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["gabarito"] == {
        "schema": {"enforced": True, "keywords": ["type"], "unenforced": []},
        "validation": {"complete": True, "valid": True},
    }


async def test_a_schema_may_be_absent(client: httpx.AsyncClient) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "anything"}}
    answer = await ask(client, response_format=wanted, max_tokens=60)
    json.loads(answer["choices"][0]["message"]["content"])


async def test_plain_completions_take_a_schema_too(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/v1/completions",
        json={
            "model": "toy",
            "prompt": "x<eos>",
            "temperature": 0,
            "max_tokens": 60,
            "response_format": schema_format(PERSON),
        },
    )
    answer = response.json()
    assert json.loads(answer["choices"][0]["text"]) == {"name": "Ada", "age": 41}
    assert answer["gabarito"]["schema"]["enforced"] is True


async def test_the_limit_cuts_an_answer_off_and_says_so(client: httpx.AsyncClient) -> None:
    answer = await ask(client, response_format=schema_format(PERSON), max_tokens=3)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["gabarito"]["validation"] == {"complete": False, "reason": "length"}
