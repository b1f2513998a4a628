"""`GET /metrics`: exact counts after known requests."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.api.app import create_app
from server.settings import Settings
from tests.api_support import MODEL, ScriptedEngine, chat, saying
from tests.api_support import client_of as http_client
from tests.test_api_closing import app_over, body, post
from tests.test_engine_closing import prefers


async def figures(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """Every sample of a scrape: (name, label values in order of the labels' names) -> value."""
    response = await client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_requests_by_endpoint_and_status() -> None:
    app = create_app(Settings(), engine=ScriptedEngine(saying("x", "y")))
    async with http_client(app) as client:
        asked = {**chat(), "model": MODEL}
        for wanted in (asked, asked, {**asked, "stream": True}, {**asked, "temperature": 9}):
            await client.post("/v1/chat/completions", json=wanted)
        await client.get("/v1/models/nobody")
        await client.get("/nowhere")
        found = await figures(client)
    name = "gabarito_http_requests_total"
    assert {key[1:]: value for key, value in found.items() if key[0] == name} == {
        ("/v1/chat/completions", "200"): 3,
        ("/v1/chat/completions", "400"): 1,
        ("/v1/models/{model_id:path}", "404"): 1,
        ("other", "404"): 1,
    }
    assert found["gabarito_answers_total", "stop", "no"] == 3
    assert found["gabarito_forced_tokens_total",] == 3
    assert found["gabarito_forced_share_count",] == 3
    assert found["gabarito_forced_share_sum",] == pytest.approx(1.5)
    assert found["gabarito_first_token_seconds_sum",] == pytest.approx(3 * 0.003)
    assert found["gabarito_slots",] == 4


async def test_what_the_engine_and_the_cache_count() -> None:
    app = app_over(prefers("z"))
    async with http_client(app) as client:
        for _ in range(2):
            await post(client, max_tokens=30, diagnostics=True)
        refused = await client.post("/v1/completions", json=body(max_tokens=1, truncation="close"))
        assert refused.status_code == 400
        answer = await post(client, max_tokens=30)
        found = await figures(client)
    app.state.runtime.close()
    tokens = answer["usage"]["completion_tokens"]
    assert found["gabarito_engine_completion_tokens_total",] == 3 * tokens
    assert found["gabarito_engine_finished_total",] == 3
    assert found["gabarito_kv_cells",] == 300
    assert found["gabarito_queued",] == 0
    assert found["gabarito_slots_used",] == 0
    assert found["gabarito_grammar_cache_misses_total",] == 1
    assert found["gabarito_grammar_cache_hits_total",] == 3
    assert found["gabarito_kl_nats_per_token_count",] == 2
    assert found["gabarito_answers_withheld_total",] == 0
    steps = found["gabarito_engine_step_seconds_total",]
    assert 0 < found["gabarito_engine_decode_seconds_total",] <= steps


async def test_what_diagnostics_say_is_added_up() -> None:
    app = app_over(prefers(", ", "abc", '"'))
    async with http_client(app) as client:
        answers = [
            await post(client, max_tokens=30, diagnostics=True, temperature=heat, seed=heat)
            for heat in (0, 1, 2)
        ]
        app.state.runtime.served.formats.count_fault()
        found = await figures(client)
        health = (await client.get("/health")).json()
    app.state.runtime.close()
    said = [answer["gabarito"]["diagnostics"] for answer in answers]
    for name, part in (
        ("kl_nats", "total_kl"),
        ("kl_nats_per_token", "mean_kl"),
        ("overruled_share", "overruled_share"),
    ):
        assert found[f"gabarito_{name}_count",] == 3
        total = sum(each[part] for each in said)
        assert found[f"gabarito_{name}_sum",] == pytest.approx(total, rel=1e-3, abs=1e-3)
    masses = [
        sum(token["legal_mass"] for token in each["tokens"]) / len(each["tokens"]) for each in said
    ]
    assert found["gabarito_legal_mass_sum",] == pytest.approx(sum(masses), rel=1e-3, abs=1e-3)
    canonical = [each["canonical"] for each in said]
    for label, value in (("yes", True), ("no", False), ("unknown", None)):
        assert found.get(("gabarito_answer_splits_total", label), 0) == canonical.count(value)
    assert found["gabarito_answers_withheld_total",] == 1
    assert health["answers"] == {"withheld": 1}


async def test_before_there_is_a_model_there_are_only_requests() -> None:
    app = create_app(Settings())  # never started
    async with http_client(app) as client:
        assert (await client.get("/ready")).status_code == 503
        found = await figures(client)
    assert found["gabarito_http_requests_total", "/ready", "503"] == 1
    assert ("gabarito_slots",) not in found
