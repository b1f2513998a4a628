"""Patterns, choices and grammars over HTTP, under OpenAI's, vLLM's and llama-server's names."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from tests.api_support import MODEL, chat, events_of, toy_client, user

#: The toy model wants to say this, and nothing else.
ANSWER = 'Well, "yes" it is.'
SPEC = {
    "multi_character_tokens": ["yes", "no", "Well", ", ", ' "', '{"'],
    "model": {"answer": ANSWER, "habits": ["yes (no (yes))", "no"]},
}
ANSWERS = 'root ::= ("yes" | "no") (" (" root ")")?'


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with toy_client(SPEC) as client:
        yield client


async def said(client: httpx.AsyncClient, **fields: Any) -> str:
    """What a chat answer says."""
    response = await client.post("/v1/chat/completions", json=chat(temperature=0, **fields))
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    text: str = choice["message"]["content"]
    return text


async def refused(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    """The error of a chat request."""
    response = await client.post("/v1/chat/completions", json=chat(**fields))
    assert response.status_code == 400, response.text
    error: dict[str, Any] = response.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


PATTERN = r"[a-z]{2,3}\."
REGEX: list[dict[str, Any]] = [
    {"response_format": {"type": "regex", "pattern": PATTERN}},
    {"structured_outputs": {"regex": PATTERN}},
    {"guided_regex": PATTERN},
]
CHOICE: list[dict[str, Any]] = [
    {"response_format": {"type": "choice", "choices": ["yes", "never"]}},
    {"structured_outputs": {"choice": ["yes", "never"]}},
    {"guided_choice": ["yes", "never"]},
]
GRAMMAR: list[dict[str, Any]] = [
    {"response_format": {"type": "grammar", "grammar": ANSWERS}},
    {"structured_outputs": {"grammar": ANSWERS}},
    {"guided_grammar": ANSWERS},
    {"grammar": ANSWERS},
]
SCHEMA = {"enum": [True, 17]}
JSON: list[dict[str, Any]] = [
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "x", "schema": SCHEMA, "strict": True},
        }
    },
    {"structured_outputs": {"json": SCHEMA}},
    {"structured_outputs": {"json": json.dumps(SCHEMA)}},
    {"guided_json": SCHEMA},
    {"guided_json": json.dumps(SCHEMA)},
    {"response_format": {"type": "json_object", "schema": SCHEMA}},
    {"json_schema": SCHEMA},
    {"json_schema": json.dumps(SCHEMA)},
]


async def test_free_text_is_what_the_model_wants_to_say(client: httpx.AsyncClient) -> None:
    assert await said(client) == ANSWER
    for nothing in ({"response_format": {"type": "text"}}, {"grammar": ""}, {"json_schema": None}):
        assert await said(client, **nothing) == ANSWER


@pytest.mark.parametrize("fields", REGEX)
async def test_a_pattern(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    assert re.fullmatch(PATTERN, await said(client, **fields))


@pytest.mark.parametrize("fields", CHOICE)
async def test_a_choice(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    assert await said(client, **fields) in ("yes", "never")


@pytest.mark.parametrize("fields", GRAMMAR)
async def test_a_grammar(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    assert re.fullmatch(r"(yes|no)( \((yes|no).*\))?", await said(client, **fields))


@pytest.mark.parametrize("fields", JSON)
async def test_a_schema(client: httpx.AsyncClient, fields: dict[str, Any]) -> None:
    assert json.loads(await said(client, **fields)) in (True, 17)


async def test_any_object(client: httpx.AsyncClient) -> None:
    text = await client.post(
        "/v1/chat/completions",
        json=chat(temperature=0, max_tokens=4, structured_outputs={"json_object": True}),
    )
    assert text.json()["choices"][0]["message"]["content"].startswith("{")


@pytest.mark.parametrize("group", [REGEX, CHOICE, GRAMMAR, JSON])
async def test_all_spellings_of_one_thing_are_one_grammar(
    client: httpx.AsyncClient, group: list[dict[str, Any]]
) -> None:
    texts = {await said(client, **fields) for fields in group}
    assert len(texts) == 1
    stats = (await client.get("/health")).json()["grammar_cache"]
    assert stats["misses"] == 1
    assert stats["hits"] == len(group) - 1


@pytest.mark.parametrize("fields", [*REGEX, *CHOICE, *GRAMMAR, *JSON])
async def test_plain_completions_take_them_too(
    client: httpx.AsyncClient, fields: dict[str, Any]
) -> None:
    body = {"model": "toy", "prompt": "Say it:", "temperature": 0, **fields}
    response = await client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["text"] == await said(client, **fields)


async def test_every_character_counts_where_the_answer_is_no_json(
    client: httpx.AsyncClient,
) -> None:
    pattern = r"\n yes\\  "
    fields = {"structured_outputs": {"regex": pattern}}
    assert await said(client, **fields) == "\n yes\\  "
    response = await client.post(
        "/v1/chat/completions",
        json=chat(
            temperature=0,
            stream=True,
            stream_options={"include_region_events": True},
            **fields,
        ),
    )
    events = events_of(response.text)[:-1]
    deltas = [c["delta"].get("content", "") for e in events for c in e.data["choices"]]
    assert "".join(deltas) == "\n yes\\  "
    regions = [event.data["region"] for event in events if event.name]
    assert [regions[0]["type"], regions[-1]["type"]] == ["region_open", "region_close"]
    assert regions[-1]["value"] == "\n yes\\  "


@pytest.mark.parametrize(
    ("fields", "param", "code", "words"),
    [
        (
            {"response_format": {"type": "regex"}},
            "response_format.pattern",
            "missing_required_parameter",
            "",
        ),
        ({"response_format": {"type": "regex", "pattern": 1}}, None, "invalid_type", "pattern"),
        (
            {"response_format": {"type": "regex", "pattern": "(a"}},
            "response_format.pattern",
            "invalid_grammar",
            "line 1, column 1",
        ),
        ({"structured_outputs": {"regex": r"(a)\1"}}, None, "unsupported_grammar", "back-ref"),
        ({"structured_outputs": {"regex": "a$b"}}, None, "unsatisfiable_grammar", "no text"),
        ({"structured_outputs": {"regex": "a" * 200_000}}, None, "grammar_too_complex", "at most"),
        (
            {"response_format": {"type": "choice", "choices": []}},
            "response_format.choices",
            "invalid_value",
            "",
        ),
        (
            {"response_format": {"type": "choice", "choices": ["a", "a"]}},
            "response_format.choices",
            "invalid_grammar",
            "twice",
        ),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "invalid_value", ""),
        ({"structured_outputs": {"choice": [""]}}, None, "invalid_grammar", "empty"),
        ({"grammar": 'root ::= "a"\nx ::= y'}, "grammar", "invalid_grammar", "line 2, column 7"),
        ({"grammar": "root ::= root"}, "grammar", "unsupported_grammar", "root -> root"),
        ({"grammar": 'root ::= "a" root'}, "grammar", "unsatisfiable_grammar", "completed"),
        ({"structured_outputs": {"grammar": "x"}}, "structured_outputs.grammar", None, "'::='"),
        ({"json_schema": {"type": "objekt"}}, "json_schema", "invalid_schema", "type"),
        ({"json_schema": "{"}, "json_schema", "invalid_value", "JSON"),
        ({"json_schema": '{"a": 1, "a": 2}'}, "json_schema", "invalid_value", "twice"),
        ({"json_schema": [1]}, "json_schema", "invalid_type", ""),
        (
            {"structured_outputs": {"json": {"type": "integer", "minimum": 2, "maximum": 1}}},
            "structured_outputs.json",
            "unsatisfiable_schema",
            "structured_outputs.json",
        ),
        ({"guided_choice": []}, "guided_choice", "invalid_value", ""),
        ({"guided_regex": "(a"}, "guided_regex", "invalid_grammar", "line 1"),
        ({"guided_json": "{"}, "guided_json", "invalid_value", "JSON"),
        ({"guided_regex": "a", "grammar": 'root ::= "a"'}, "grammar", "invalid_value", "guided_"),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "objekt"}}},
            "response_format.schema",
            "invalid_schema",
            "type",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "invalid_value", "none of them"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["b"]}},
            "structured_outputs",
            "invalid_value",
            "'regex' and 'choice'",
        ),
        ({"structured_outputs": {"yaml": 1}}, "structured_outputs.yaml", "unknown_parameter", ""),
        (
            {"structured_outputs": {"regex": "a", "structural_tag": "{}"}},
            "structured_outputs.structural_tag",
            "unsupported_parameter",
            "",
        ),
    ],
)
async def test_what_is_wrong_is_a_400_that_names_the_field(
    client: httpx.AsyncClient, fields: dict[str, Any], param: str | None, code: str, words: str
) -> None:
    error = await refused(client, **fields)
    if param is not None:
        assert error["param"] == param
    else:
        assert error["param"].startswith(next(iter(fields)))
    assert error["code"] == (code or "invalid_grammar")
    assert words in error["message"]
    if words.startswith("line"):
        assert error["line"] >= 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("response_format", "structured_outputs"),
        ("response_format", "json_schema"),
        ("response_format", "grammar"),
        ("structured_outputs", "json_schema"),
        ("structured_outputs", "grammar"),
        ("json_schema", "grammar"),
    ],
)
async def test_two_spellings_at_once_are_a_conflict_that_names_both(
    client: httpx.AsyncClient, one: str, other: str
) -> None:
    fields: dict[str, Any] = {
        "response_format": {"type": "choice", "choices": ["a"]},
        "structured_outputs": {"choice": ["a"]},
        "json_schema": {"const": "a"},
        "grammar": 'root ::= "a"',
    }
    error = await refused(client, **{name: fields[name] for name in (one, other)})
    assert (error["param"], error["code"]) == (other, "invalid_value")
    assert f"'{one}'" in error["message"]
    assert f"'{other}'" in error["message"]
    body = {"model": "toy", "prompt": "x", one: fields[one], other: fields[other]}
    assert (await client.post("/v1/completions", json=body)).status_code == 400


@pytest.mark.model
@pytest.mark.timeout(600)
def test_the_sdk_passes_them_through_its_extra_body(live_server: str) -> None:
    """All spellings against a real model, by way of the stock SDK."""
    sums = 'root ::= term (" + " term){0,3}\nterm ::= [1-9] | "(" root ")"'
    asked: list[tuple[dict[str, Any], str]] = [
        ({"response_format": {"type": "regex", "pattern": "[A-Z][a-z]{2,9}"}}, "[A-Z][a-z]{2,9}"),
        ({"structured_outputs": {"choice": ["cat", "dog"]}}, "cat|dog"),
        ({"structured_outputs": {"json": {"type": "boolean"}}}, "true|false"),
        ({"json_schema": {"enum": ["a", "b"]}}, '"[ab]"'),
        ({"structured_outputs": {"grammar": 'root ::= "n" "o"{1,5} "!"'}}, "no{1,5}!"),
    ]
    with openai.OpenAI(base_url=f"{live_server}/v1", api_key="unused", max_retries=0) as client:
        for body, pattern in asked:
            answer = client.chat.completions.create(
                model=MODEL, messages=user("Say something."), max_tokens=40, extra_body=body, seed=1
            )
            assert answer.choices[0].finish_reason == "stop"
            assert re.fullmatch(pattern, answer.choices[0].message.content or "")
        stream = client.chat.completions.create(
            model=MODEL,
            messages=user("Add some numbers."),
            max_tokens=40,
            seed=1,
            stream=True,
            extra_body={"grammar": sums},
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        assert re.fullmatch(r"[1-9()+ ]+", text)
        with pytest.raises(openai.BadRequestError) as caught:
            client.completions.create(
                model=MODEL, prompt="x", extra_body={"grammar": "root ::= root"}
            )
        assert caught.value.code == "unsupported_grammar"
        assert caught.value.param == "grammar"
