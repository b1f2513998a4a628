"""`x-extract` over HTTP: the source of a request, what is refused, and what comes out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from tests.api_support import chat, toy_client

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
    async with toy_client(SPEC) as client:
        yield client


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


async def test_completions_extract_from_the_prompt_or_what_is_given(
    client: httpx.AsyncClient,
) -> None:
    async def complete(prompt: Any, **fields: Any) -> httpx.Response:
        body = {"model": "toy", "json_schema": EVIDENCE, "prompt": prompt, "max_tokens": 120}
        return await client.post("/v1/completions", json={**body, "temperature": 0, **fields})

    def quotes(response: httpx.Response) -> list[str]:
        assert response.status_code == 200, response.text
        return [json.loads(each["text"])["quote"] for each in response.json()["choices"]]

    assert quotes(await complete("red blue"))[0] in "red blue"
    assert quotes(await complete("red blue", source=["one", "two"]))[0] in "one\n\ntwo"
    assert all(q in "one two" for q in quotes(await complete(["red", "blue"], source="one two")))
    several = await complete(["red", "blue"])
    assert several.status_code == 400
    assert "no source to extract from" in several.json()["error"]["message"]


async def test_a_schema_is_compiled_for_a_source(client: httpx.AsyncClient) -> None:
    async def compiled(**fields: Any) -> httpx.Response:
        return await client.post("/v1/schemas/compile", json={"schema": EVIDENCE, **fields})

    assert (await compiled(source=" ")).json()["error"]["param"] == "source"
    assert "no source to extract from" in (await compiled()).json()["error"]["message"]
    first = (await compiled(source="red blue")).json()
    assert first["schema"]["enforced"] is True
    assert first["cached"] is False
    assert (await compiled(source="red blue")).json()["cached"] is True
    named = {"type": "json_schema", "json_schema": {"name": "x", "hash": first["hash"]}}
    for source in ("red blue", "one two"):
        body = chat(response_format=named, source=source, max_tokens=120, temperature=0)
        assert quote_of(await client.post("/v1/chat/completions", json=body)) in source
    linted = await client.post("/v1/schemas/lint", json={"schema": EVIDENCE})
    assert "not-enforced" not in {each["rule"] for each in linted.json()["findings"]}


CALLED = {
    "type": "object",
    "properties": {"quote": {"type": "string", "x-extract": {"from": "source", "unit": "words"}}},
    "required": ["quote"],
    "additionalProperties": False,
}


async def call(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    function = {"name": "note", "parameters": CALLED, "strict": True}
    body = chat(
        tools=[{"type": "function", "function": {**function, **fields.pop("function", {})}}],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        max_tokens=200,
        **fields,
    )
    return await client.post("/v1/chat/completions", json=body)


@pytest.mark.parametrize("template", ["qwen3", "lfm2"])
async def test_arguments_of_calls_are_passages_of_the_source(
    client: httpx.AsyncClient, template: str
) -> None:
    for source in ("red blue", "one two"):
        response = await call(client, source=source, response_template=template)
        assert response.status_code == 200, response.text
        [made] = response.json()["choices"][0]["message"]["tool_calls"]
        assert json.loads(made["function"]["arguments"])["quote"] in source
        assert response.json()["gabarito"]["tools"] == {"enforced": True, "valid": True}
    missing = await call(client, source=" ", response_template=template)
    assert missing.status_code == 400
    assert missing.json()["error"]["param"] == "source"


async def test_a_format_of_plain_text_extracts_nothing_and_says_so(
    client: httpx.AsyncClient,
) -> None:
    fields = {"source": "red blue", "response_template": "qwen3_coder"}
    refused = await call(client, **fields)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "tools[0].function.parameters"
    assert error["code"] == "invalid_function_parameters"
    assert [(i["keyword"], i["pointer"]) for i in error["issues"]] == [
        ("x-extract", "/properties/quote")
    ]
    loose = await call(client, function={"strict": False}, **fields)
    assert loose.status_code == 200, loose.text
    [issue] = loose.json()["gabarito"]["tools"]["unenforced"]
    assert (issue["keyword"], issue["pointer"]) == ("x-extract", "/properties/quote")
    assert issue["checked"] is False, "no validator knows the source"
