"""Models, health, tokenize and detokenize, plain completions, the OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api_support import (
    SPECIAL,
    ScriptedEngine,
    app_with,
    client_of,
    events_of,
    finished,
    piece,
    saying,
)


async def call(method: str, path: str, engine: ScriptedEngine | None = None, **options: Any) -> Any:
    async with client_of(app_with(engine or ScriptedEngine(saying("a", "b")))) as client:
        response = await client.request(method, path, **options)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_served_model_is_listed_and_found_by_both_names() -> None:
    listed = await call("GET", "/v1/models")
    assert listed["object"] == "list"
    [model] = listed["data"]
    assert (model["id"], model["object"], model["aliases"]) == ("toy", "model", ["default"])
    for name in ("toy", "default"):
        assert (await call("GET", f"/v1/models/{name}"))["id"] == "toy"
    async with client_of(app_with(ScriptedEngine())) as client:
        other = await client.get("/v1/models/owner/other")
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")


async def test_health_shows_the_engines_figures() -> None:
    health = await call("GET", "/health")
    assert (health["status"], health["state"], health["model"]) == ("ok", "ready", "toy")
    assert health["engine"]["slots"] == 4
    assert health["grammar_cache"]["entries"] == 0


@pytest.mark.parametrize("name", ["content", "text", "prompt"])
async def test_tokenize_and_back(name: str) -> None:
    tokens = (await call("POST", "/tokenize", json={name: "aé<think>"}))["tokens"]
    assert tokens == [97, 195, 169, 259]
    back = await call("POST", "/detokenize", json={"tokens": tokens})
    assert back == {"content": "aé<think>"}


async def test_a_conversation_is_split_as_for_an_answer() -> None:
    tool = {"type": "function", "function": {"name": "look", "description": "Looks."}}
    for fields in ({}, {"tools": [tool]}):
        engine = ScriptedEngine(saying("ok"))
        messages = [{"role": "user", "content": "Hi <|im_end|>"}]
        found = await call("POST", "/tokenize", engine, json={"messages": messages, **fields})
        body = {"model": "toy", "messages": messages, **fields}
        await call("POST", "/v1/chat/completions", engine, json=body)
        assert tuple(found["tokens"]) == engine.last.prompt
        assert found["count"] == len(engine.last.prompt)


async def test_tokenize_options() -> None:
    special = await call("POST", "/tokenize", json={"content": "a", "add_special": True})
    assert special == {"tokens": [256, 97], "count": 2}
    plain = await call("POST", "/tokenize", json={"content": SPECIAL[0], "parse_special": False})
    assert plain["count"] == len(SPECIAL[0])
    pieces = await call("POST", "/tokenize", json={"content": "é<think>", "with_pieces": True})
    assert pieces["tokens"] == [
        {"id": 195, "piece": [195]},
        {"id": 169, "piece": [169]},
        {"id": 259, "piece": "<think>"},
    ]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "text": "b"}, "content"),
        ("/tokenize", {"content": "a", "messages": []}, "content"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "king", "content": "a"}]}, "messages[0].role"),
        ("/tokenize", {"content": "a", "tools": []}, "tools"),
        ("/tokenize", {"content": "a", "x": 1}, "x"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/v1/completions", {"model": "toy"}, "prompt"),
        ("/v1/completions", {"model": "toy", "prompt": []}, "prompt"),
        ("/v1/completions", {"model": "toy", "prompt": ""}, "prompt"),
        ("/v1/completions", {"model": "toy", "prompt": [1, "a"]}, "prompt"),
        ("/v1/completions", {"model": "toy", "prompt": "a", "suffix": "b"}, "suffix"),
        ("/v1/completions", {"model": "toy", "prompt": "a", "best_of": 2}, "best_of"),
        ("/v1/completions", {"model": "toy", "prompt": "a", "logprobs": 6}, "logprobs"),
        (
            "/v1/completions",
            {"model": "toy", "prompt": "a", "echo": True, "logprobs": 1},
            "logprobs",
        ),
        ("/v1/completions", {"model": "toy", "prompt": "a", "messages": []}, "messages"),
        ("/v1/completions", {"model": "toy", "prompt": ["a"] * 65}, "prompt"),
        (
            "/v1/completions",
            {
                "model": "toy",
                "prompt": "a",
                "stream": True,
                "stream_options": {"include_region_events": True},
            },
            "stream_options.include_region_events",
        ),
    ],
)
async def test_bad_bodies_name_the_field(path: str, body: dict[str, Any], param: str) -> None:
    engine = ScriptedEngine(saying("x"))
    engine.detokenize = _strict_detokenize  # type: ignore[method-assign]
    async with client_of(app_with(engine)) as client:
        response = await client.post(path, json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


def _strict_detokenize(ids: Any) -> str:
    from server.engine.errors import InvalidRequestError

    raise InvalidRequestError("tokens", f"{list(ids)} are not in the vocabulary")


async def test_a_plain_completion_has_openais_shape() -> None:
    engine = ScriptedEngine(saying("a", "b"))
    answer = await call(
        "POST", "/v1/completions", engine, json={"model": "toy", "prompt": "x<|im_end|>"}
    )
    assert answer["object"] == "text_completion"
    assert answer["choices"] == [
        {"index": 0, "text": "ab", "logprobs": None, "finish_reason": "stop"}
    ]
    assert engine.last.prompt == (120, 257), "a plain prompt may write special tokens"
    assert engine.last.max_tokens == 16


async def test_several_prompts_and_choices_are_numbered_prompt_by_prompt() -> None:
    engine = ScriptedEngine(
        lambda request: [piece(f"{request.prompt[0]}/{request.sampling.seed}"), finished(tokens=1)]
    )
    body = {"model": "toy", "prompt": ["a", "b"], "n": 2, "seed": 5, "echo": True}
    answer = await call("POST", "/v1/completions", engine, json=body)
    assert [c["text"] for c in answer["choices"]] == ["a97/5", "a97/6", "b98/5", "b98/6"]
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2, 3]
    assert answer["usage"]["prompt_tokens"] == 14, "each prompt counts once"


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [([97, 98], [(97, 98)]), ([[97], [98, 99]], [(97,), (98, 99)]), ("<|im_start|>", [(256,)])],
)
async def test_prompts_may_be_token_ids(prompt: Any, prompts: list[tuple[int, ...]]) -> None:
    engine = ScriptedEngine(saying("x"))
    body = {"model": "toy", "prompt": prompt, "echo": True}
    answer = await call("POST", "/v1/completions", engine, json=body)
    assert [generation.request.prompt for generation in engine.generations] == prompts
    assert [c["text"] for c in answer["choices"]] == [engine.detokenize(p) + "x" for p in prompts]


async def test_legacy_log_probabilities() -> None:
    engine = ScriptedEngine(lambda _: [piece("ab", -0.5), piece("c", -1.5), finished(tokens=2)])
    body = {"model": "toy", "prompt": "x", "logprobs": 1}
    answer = await call("POST", "/v1/completions", engine, json=body)
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["ab", "c"],
        "token_logprobs": [-0.5, -1.5],
        "top_logprobs": [{"ab": -0.5}, {"c": -1.5}],
        "text_offset": [0, 2],
    }


async def test_a_plain_completion_streams() -> None:
    body = {
        "model": "toy",
        "prompt": "x",
        "stream": True,
        "echo": True,
        "stream_options": {"include_usage": True},
    }
    async with client_of(app_with(ScriptedEngine(saying("a", "b")))) as client:
        response = await client.post("/v1/completions", json=body)
    events = events_of(response.text)
    assert events[-1].data == "[DONE]"
    *chunks, usage = [event.data for event in events[:-1]]
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["x", "a", "b", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 2)
    assert len({chunk["id"] for chunk in [*chunks, usage]}) == 1


async def test_the_openapi_document_describes_the_bodies() -> None:
    document = await call("GET", "/openapi.json")
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ChatCompletionRequest"
    }
    schemas = document["components"]["schemas"]
    properties = schemas["ChatCompletionRequest"]["properties"]
    for name, described in properties.items():
        assert described.get("description"), f"{name} has no description"
    assert "schema" in schemas["JsonSchema"]["properties"]
