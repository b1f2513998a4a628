"""API keys: who is let in, what the others are told, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from server.settings import Settings, SettingsError, load_settings
from tests.api_support import ScriptedEngine, app_with, chat, client_of, saying

KEYS = ["first-key", "second-key"]


async def ask(headers: dict[str, str], method: str = "POST", path: str = "") -> httpx.Response:
    app = app_with(ScriptedEngine(saying("ok")), api_keys=KEYS, cors_origins=["http://page.test"])
    async with client_of(app) as client:
        body = chat() if method == "POST" else None
        return await client.request(
            method, path or "/v1/chat/completions", json=body, headers=headers
        )


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
async def test_every_key_opens(key: str, scheme: str) -> None:
    assert (await ask({"Authorization": f"{scheme} {key}"})).status_code == 200


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Bearer first", "Bearer first-key2", "Basic first-key"],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("GET", "/nope"),
    ],
)
async def test_no_other_does(header: str | None, method: str, path: str) -> None:
    response = await ask({} if header is None else {"Authorization": header}, method, path)
    assert response.status_code == 401
    error = response.json()["error"]
    assert (error["type"], error["param"], error["code"]) == (
        "invalid_request_error",
        None,
        "invalid_api_key",
    )
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"]
    assert "first-key" not in response.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_what_watches_over_the_server_needs_none(method: str, path: str) -> None:
    assert (await ask({}, method, path)).status_code == 200


async def test_a_browser_may_ask_whether_it_may_ask() -> None:
    headers = {"Origin": "http://page.test", "Access-Control-Request-Method": "POST"}
    preflight = await ask(headers, "OPTIONS")
    assert preflight.status_code == 200
    refused = await ask({"Origin": "http://page.test"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "http://page.test"


def test_keys_are_not_shown(tmp_path: Path) -> None:
    settings = Settings.model_validate({"server": {"api_keys": KEYS}})
    assert "first-key" not in repr(settings)
    file = tmp_path / "gabarito.toml"
    file.write_text('[server]\napi_keys = ["good", "not good"]')
    with pytest.raises(SettingsError) as caught:
        load_settings(file, env={})
    assert caught.value.key == "server.api_keys"
    assert "good" not in str(caught.value)
    file.write_text("")
    env = {"GABARITO_API_KEYS": "a, b"}
    assert load_settings(file, env=env).server.api_keys == ("a", "b")
