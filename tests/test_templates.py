"""Which templates a model gets: its own, the fitting one, or those that the settings name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parsing import ResponseTemplateError
from server.api.app import create_app
from server.prompt import ChatTemplate, ChatTemplateSourceError
from server.settings import Settings
from server.templates import (
    TemplateSettingError,
    chat_template_for,
    response_template_for,
)
from tests.api_support import (
    TEMPLATE,
    ScriptedEngine,
    chat,
    client_of,
    events_of,
    saying,
)


def with_model(**model: Any) -> Settings:
    return Settings.model_validate({"server": {"served_name": "toy"}, "model": model})


def test_the_chat_template_is_the_models_own() -> None:
    template = chat_template_for(ScriptedEngine(chat_template="own"), with_model())
    assert (template.source, template.is_fallback) == ("own", False)
    assert chat_template_for(ScriptedEngine(chat_template=None), with_model()).is_fallback


def test_the_settings_may_name_another_chat_template(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("mine", encoding="utf-8")
    engine = ScriptedEngine(chat_template="own")
    assert chat_template_for(engine, with_model(chat_template=str(file))).source == "mine"
    with pytest.raises(TemplateSettingError, match=r"model\.chat_template: .*gone"):
        chat_template_for(engine, with_model(chat_template=str(tmp_path / "gone")))
    file.write_text("{% if %}", encoding="utf-8")
    with pytest.raises(ChatTemplateSourceError):
        chat_template_for(engine, with_model(chat_template=str(file)))


def test_special_tokens_are_guarded() -> None:
    template = chat_template_for(ScriptedEngine(), with_model())
    prompt = template.render([{"role": "user", "content": "<|im_end|>"}])
    assert [piece.text for piece in prompt.pieces if piece.plain] == ["<|im_end|>"]


def test_the_response_template_fits_the_chat_template() -> None:
    fields = response_template_for(ChatTemplate(TEMPLATE), with_model()).fields
    assert "content" in fields
    unknown = response_template_for(ChatTemplate("{{ messages }}"), with_model())
    assert list(unknown.fields) == ["content"]


def test_the_settings_may_name_another_response_template(tmp_path: Path) -> None:
    chat_template = ChatTemplate(TEMPLATE)
    named = response_template_for(chat_template, with_model(response_template="qwen3"))
    assert "reasoning_content" in named.fields
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"start_anchor": "x", "fields": {"answer": {}}}), encoding="utf-8")
    own = response_template_for(chat_template, with_model(response_template=str(file)))
    assert list(own.fields) == ["answer"]
    with pytest.raises(TemplateSettingError, match="qwen3"):
        response_template_for(chat_template, with_model(response_template="nope"))
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(ResponseTemplateError):
        response_template_for(chat_template, with_model(response_template=str(file)))


def test_a_tokenizers_own_response_template(tmp_path: Path) -> None:
    described = {"start_anchor": "x", "fields": {"thinking": {"open": "a"}, "answer": {}}}
    file = tmp_path / "tokenizer_config.json"
    file.write_text(json.dumps({"chat_template": "...", "response_template": described}))
    for named in (file, tmp_path):
        template = response_template_for(
            ChatTemplate(TEMPLATE), with_model(response_template=str(named))
        )
        assert list(template.fields) == ["thinking", "answer"]
    for given in ({"chat_template": "..."}, {"response_template": {"fields": {"a": {}}}}):
        file.write_text(json.dumps(given))
        with pytest.raises(ResponseTemplateError, match=r"tokenizer_config\.json"):
            response_template_for(ChatTemplate(TEMPLATE), with_model(response_template=str(file)))


THOUGHT = "<think>hm</think>Hi<tool_call>x"


@pytest.mark.parametrize(
    ("asked", "reasoning", "content"),
    [
        ({}, None, THOUGHT),
        ({"response_template": None}, None, THOUGHT),
        ({"response_template": "qwen3"}, "hm", "Hi<tool_call>x"),
        ({"response_template": "plain"}, None, THOUGHT),
    ],
)
async def test_a_request_may_name_another(
    asked: dict[str, Any], reasoning: str | None, content: str
) -> None:
    engine = ScriptedEngine(saying(*THOUGHT))
    async with client_of(create_app(with_model(), engine=engine)) as client:
        whole = await client.post("/v1/chat/completions", json=chat(**asked))
        stream = await client.post("/v1/chat/completions", json=chat(stream=True, **asked))
    message = whole.json()["choices"][0]["message"]
    assert (message["content"], message.get("reasoning_content")) == (content, reasoning)
    chunks = [event.data for event in events_of(stream.text) if event.data != "[DONE]"]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == (reasoning or "")


@pytest.mark.parametrize("name", ["nope", "", "../response_templates/qwen3.json"])
@pytest.mark.parametrize("more", [{}, {"stream": True}, {"response_format": {"type": "text"}}])
async def test_a_template_that_there_is_not(name: str, more: dict[str, Any]) -> None:
    engine = ScriptedEngine(saying("x"))
    async with client_of(create_app(with_model(), engine=engine)) as client:
        response = await client.post(
            "/v1/chat/completions", json=chat(response_template=name, **more)
        )
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, "response_template")
    assert error["code"] == "invalid_value"
    assert "chatml" in error["message"]
    assert "qwen3" in error["message"]
    assert engine.generations == []


async def test_only_chat_takes_a_template() -> None:
    async with client_of(create_app(with_model(), engine=ScriptedEngine(saying("x")))) as client:
        body = {"model": "toy", "prompt": "x", "response_template": "plain"}
        response = await client.post("/v1/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "unknown_parameter"


async def test_a_bad_template_keeps_the_server_from_becoming_ready() -> None:
    app = create_app(with_model(response_template="nope"), engine=ScriptedEngine())
    async with client_of(app) as client:
        response = await client.get("/ready")
        health = await client.get("/health")
    assert response.status_code == 503
    assert "response_template" in response.json()["error"]["message"]
    assert (health.status_code, health.json()["state"]) == (200, "failed")
