"""`x-extract` over HTTP: the source of a request, what is refused, and what comes out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from server.api.app import create_app
from server.engine.engine import LocalEngine
from server.engine.toy import ToyModel
from tests.api_support import chat, client_of, settings

EVIDENCE = {
    "type": "object",
    "properties": {
        "quote": {"type": "string", "x-extract": {"from": "source", "unit": "words"}},
        "age": {"type": "integer", "x-ground": {"kind": "quote", "evidence": "quote"}},
    },
    "required": ["quote", "age"],
    "additionalProperties": False,
}
SPEC = {
    "multi_character_tokens": ['{"', '": ', '": "', '", "', "quote", "age", "Ada", "is", "old"],
    "model": {"answer": '{"quote": "Ada is old", "age": 41}', "habits": []},
}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    engine = LocalEngine(ToyModel.from_spec(SPEC))
    try:
        async with client_of(create_app(settings(), engine=engine)) as client:
            yield client
    finally:
        engine.close()


async def ask(client: httpx.AsyncClient, schema: Any = EVIDENCE, **fields: Any) -> httpx.Response:
    strict = fields.pop("strict", True)
    spec = {"name": "evidence", "schema": schema, "strict": strict}
    return await client.post(
        "/v1/chat/completions",
        json=chat(
            temperature=0,
            max_tokens=120,
            response_format={"type": "json_schema", "json_schema": spec},
            **fields,
        ),
    )


def quote_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    content = json.loads(response.json()["choices"][0]["message"]["content"])
    return str(content["quote"])


async def test_the_quote_is_words_of_the_source(client: httpx.AsyncClient) -> None:
    source = 'Ada said: "I am 41". She is well.'
    response = await ask(client, source=source)
    assert quote_of(response) in source
    assert response.json()["gabarito"]["schema"]["keywords"].count("x-extract") == 1
    free = await ask(client, source="So Ada is old, she says.")
    assert quote_of(free) == "Ada is old", "what the model wants is let through where it is there"


async def test_the_source_is_what_the_user_said_or_what_is_given(
    client: httpx.AsyncClient,
) -> None:
    messages = [
        {"role": "system", "content": "Ada is old."},
        {"role": "user", "content": "red"},
        {"role": "assistant", "content": "Ada is old."},
        {"role": "user", "content": [{"type": "text", "text": "blue"}]},
    ]
    assert quote_of(await ask(client, messages=messages)) in "red\n\nblue"
    assert quote_of(await ask(client, messages=messages, source=["one", "two"])) in "one\n\ntwo"


async def test_one_grammar_for_each_source(client: httpx.AsyncClient) -> None:
    async def misses() -> int:
        return int((await client.get("/health")).json()["grammar_cache"]["misses"])

    await ask(client, source="one source")
    before = await misses()
    await ask(client, source="one source")
    assert await misses() == before
    await ask(client, source="another source")
    assert await misses() == before + 1
    plain = {"type": "object", "properties": {"a": {"type": "integer"}}}
    await ask(client, plain, source="one source")
    await ask(client, plain, source="another source")
    assert await misses() == before + 2, "a schema that extracts nothing is compiled once"


@pytest.mark.parametrize("strict", [True, False])
async def test_without_a_source_the_request_is_refused(
    client: httpx.AsyncClient, strict: bool
) -> None:
    for fields in ({"messages": [{"role": "system", "content": "Hi"}]}, {"source": " \n"}):
        response = await ask(client, strict=strict, **fields)
        error = response.json()["error"]
        assert response.status_code == 400
        assert error["param"] == "source"
        assert error["code"] == "missing_required_parameter"
        assert "x-extract" in error["message"]


async def test_what_no_source_satisfies_is_refused_by_pointer(client: httpx.AsyncClient) -> None:
    schema = {
        "type": "object",
        "properties": {"quote": {"type": "string", "x-extract": "source", "minLength": 90}},
        "required": ["quote"],
    }
    response = await ask(client, schema, source="short")
    assert response.status_code == 400
    assert "/properties/quote" in response.json()["error"]["message"]


async def test_completions_and_warm_up_have_no_source_and_say_so(
    client: httpx.AsyncClient,
) -> None:
    bound = {"model": "toy", "json_schema": EVIDENCE, "prompt": "Ada is old.", "max_tokens": 9}
    response = await client.post("/v1/completions", json=bound)
    assert response.status_code == 400
    assert "no source to extract from" in response.json()["error"]["message"]
    linted = await client.post("/v1/schemas/lint", json={"schema": EVIDENCE})
    assert "not-enforced" not in {each["rule"] for each in linted.json()["findings"]}
