"""Grounding over HTTP: where rules and sources come from, and what becomes of wrong values."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.api_support import (
    ScriptedEngine,
    app_with,
    chat,
    client_of,
    events_of,
    finished,
    piece,
    saying,
    strict_format,
)


def schema(**age: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": ["integer", "null"], **age},
        },
        "required": ["name", "age"],
    }


SOURCE = "Ada Lovelace was thirty-six when she died."
RIGHT = '{"name": "Ada Lovelace", "age": 36}'
WRONG = '{"name": "Ada Lovelace", "age": 41}'
NULLED = {"name": "Ada Lovelace", "age": None}


async def post(said: str, **fields: Any) -> httpx.Response:
    fields = {"response_format": strict_format(schema()), **fields}
    async with client_of(app_with(ScriptedEngine(saying(*said)))) as client:
        body = chat(SOURCE)
        return await client.post("/v1/chat/completions", json={**body, **fields})


async def grounding_of(said: str, **fields: Any) -> Any:
    response = await post(said, **fields)
    assert response.status_code == 200, response.text
    return response.json()["gabarito"].get("grounding")


def pointers(grounding: Any) -> list[str]:
    return [each["pointer"] for each in grounding["ungrounded"]]


async def test_what_nobody_asked_for_is_not_said() -> None:
    assert await grounding_of(WRONG) is None


async def test_the_request_asks_and_the_report_names_pointer_and_value() -> None:
    found = await grounding_of(WRONG, grounding="auto")
    (each,) = found["ungrounded"]
    assert (each["pointer"], each["value"], each["kind"]) == ("/age", 41, "number")
    assert "does not state 41" in each["reason"]
    assert await grounding_of(RIGHT, grounding="auto") == {"ungrounded": []}


async def test_the_schema_asks_without_a_field_in_the_request() -> None:
    wanted = strict_format(schema(**{"x-ground": "number"}))
    assert pointers(await grounding_of(WRONG, response_format=wanted)) == ["/age"]
    assert await grounding_of(WRONG, response_format=wanted, grounding="off") is None


async def test_an_explicit_source_takes_the_place_of_the_messages() -> None:
    assert pointers(await grounding_of(RIGHT, grounding="auto", source="Nobody, 3.")) == [
        "/name",
        "/age",
    ]
    assert not pointers(
        await grounding_of(WRONG, grounding="auto", source=["Ada Lovelace", "at 41"])
    )
    assert pointers(await grounding_of(RIGHT, grounding="auto", source=[])) == ["/name", "/age"]


async def test_only_what_the_user_said_is_a_source() -> None:
    messages = [
        {"role": "system", "content": "You are 41."},
        {"role": "user", "content": "Ada Lovelace"},
        {"role": "assistant", "content": "41?"},
        {"role": "user", "content": [{"type": "text", "text": "She was thirty-six."}]},
    ]
    assert pointers(await grounding_of(WRONG, grounding="auto", messages=messages)) == ["/age"]
    assert not pointers(await grounding_of(RIGHT, grounding="auto", messages=messages))


async def test_an_answer_that_was_cut_off_is_not_checked() -> None:
    async with client_of(app_with(ScriptedEngine(saying(WRONG[:9], reason="length")))) as client:
        body = chat(SOURCE, response_format=strict_format(schema()), grounding="auto")
        report = (await client.post("/v1/chat/completions", json=body)).json()["gabarito"]
    assert "grounding" not in report
    assert report["validation"]["complete"] is False


async def test_each_choice_has_its_own_report() -> None:
    texts = iter([WRONG, RIGHT])
    engine = ScriptedEngine(lambda _: [piece(next(texts)), finished()])
    async with client_of(app_with(engine)) as client:
        body = chat(SOURCE, response_format=strict_format(schema()), grounding="auto", n=2)
        choices = (await client.post("/v1/chat/completions", json=body)).json()["gabarito"][
            "choices"
        ]
    assert [pointers(choice["grounding"]) for choice in choices] == [["/age"], []]


# --- null -------------------------------------------------------------------------------------


async def test_null_takes_the_place_of_what_is_not_grounded() -> None:
    response = await post(WRONG, grounding="auto", on_ungrounded="null", logprobs=True)
    answer = response.json()
    assert json.loads(answer["choices"][0]["message"]["content"]) == NULLED
    grounding = answer["gabarito"]["grounding"]
    assert grounding["nulled"] is True
    assert grounding["ungrounded"][0]["value"] == 41
    tokens = [token["token"] for token in answer["choices"][0]["logprobs"]["content"]]
    assert "".join(tokens) == WRONG, "what the model wrote"


async def test_a_grounded_answer_stays_as_it_was_written() -> None:
    response = await post(RIGHT, grounding="auto", on_ungrounded="null")
    assert response.json()["choices"][0]["message"]["content"] == RIGHT
    assert response.json()["gabarito"]["grounding"] == {"ungrounded": []}


async def test_where_null_is_not_allowed_the_answer_is_a_typed_failure() -> None:
    wanted = strict_format(schema(type="integer"))
    response = await post(WRONG, grounding="auto", on_ungrounded="null", response_format=wanted)
    assert response.status_code == 422
    error = response.json()["error"]
    assert (error["type"], error["code"], error["param"]) == (
        "answer_error",
        "ungrounded",
        "on_ungrounded",
    )
    assert "/age" in error["message"]
    assert error["content"] == WRONG
    assert error["ungrounded"][0]["pointer"] == "/age"


async def test_with_repair_what_cannot_be_null_is_repaired() -> None:
    wanted = strict_format(schema(type="integer"))
    texts = iter([WRONG, RIGHT])
    engine = ScriptedEngine(lambda _: [piece(next(texts)), finished()])
    async with client_of(app_with(engine)) as client:
        body = chat(
            SOURCE, response_format=wanted, grounding="auto", on_ungrounded="null", repair={}
        )
        answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == RIGHT
    assert answer["gabarito"]["repair"]["rejected"][0]["content"] == WRONG


async def test_with_repair_what_can_be_null_is_accepted() -> None:
    response = await post(WRONG, grounding="auto", on_ungrounded="null", repair={})
    answer = response.json()
    assert json.loads(answer["choices"][0]["message"]["content"]) == NULLED
    assert answer["gabarito"]["repair"]["attempts"] == 1


async def test_several_choices_with_nulls_in_a_stream() -> None:
    texts = iter([WRONG, RIGHT])
    engine = ScriptedEngine(lambda _: [piece(next(texts)), finished()])
    async with client_of(app_with(engine)) as client:
        body = chat(
            SOURCE,
            response_format=strict_format(schema()),
            grounding="auto",
            on_ungrounded="null",
            n=2,
            stream=True,
        )
        events = events_of((await client.post("/v1/chat/completions", json=body)).text)
    said: dict[int, str] = {0: "", 1: ""}
    for event in events[:-1]:
        assert event.name is None
        for choice in event.data["choices"]:
            said[choice["index"]] += choice["delta"].get("content", "")
    assert json.loads(said[0]) == NULLED
    assert said[1] == RIGHT
    choices = events[-2].data["gabarito"]["choices"]
    assert [choice["grounding"].get("nulled") for choice in choices] == [True, None]


async def test_null_leaves_the_rest_as_it_was_written() -> None:
    exact = '{"name":  "Ada Lovelace", "age": 41, "x": 0.12345678901234567890123, "y": 1e999}'
    wanted = strict_format({**schema(), "additionalProperties": True})
    fields = {"on_ungrounded": "null", "grounding": {"fields": {"age": "number"}}}
    response = await post(exact, response_format=wanted, **fields)
    assert response.status_code == 422, "no validator can say whether 1e999 may stay"
    exact = exact.replace(', "y": 1e999', "")
    response = await post(exact, response_format=wanted, **fields)
    content = response.json()["choices"][0]["message"]["content"]
    assert content == exact.replace("41", "null")


@pytest.mark.parametrize("number", ["9" * 5000, "1e999"])
async def test_a_number_that_cannot_be_read_is_not_grounded(number: str) -> None:
    response = await post(WRONG.replace("41", number), grounding="auto", max_tokens=9)
    assert response.status_code == 200, response.text
    told = response.json()["gabarito"]
    assert told["validation"]["valid"] is True
    [ungrounded] = told["grounding"]["ungrounded"]
    assert (ungrounded["pointer"], ungrounded["value"]) == ("/age", None)
    assert "too large" in ungrounded["reason"]
    error = await post(WRONG.replace("41", number), grounding="auto", repair={"max_attempts": 1})
    assert error.json()["error"]["code"] == "repair_failed"


# --- refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"grounding": "numbers"}, "grounding"),
        ({"grounding": 3}, "grounding"),
        ({"grounding": {"fields": {"/age": "nothing"}}}, "grounding.fields"),
        ({"grounding": {"x": 1}}, "grounding.x"),
        ({"grounding": "auto", "source": 3}, "source"),
        ({"grounding": "auto", "on_ungrounded": "drop"}, "on_ungrounded"),
        ({"on_ungrounded": "report"}, "on_ungrounded"),
        ({"grounding": "auto", "response_format": {"type": "text"}}, "grounding"),
        ({"grounding": "auto", "response_format": {"type": "regex", "pattern": "a"}}, "grounding"),
        ({"on_ungrounded": "null", "response_format": None}, "on_ungrounded"),
        ({"response_format": strict_format(schema(**{"x-ground": "numbers"}))}, "response_format"),
    ],
)
async def test_bad_requests_name_the_field(fields: dict[str, Any], param: str) -> None:
    response = await post(RIGHT, **fields)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"].startswith(param)


async def test_a_source_may_be_a_million_characters_long() -> None:
    text = "x" * 1_000_000
    assert (await post(RIGHT, grounding="auto", source=text)).status_code == 200
    response = await post(RIGHT, grounding="auto", source=[text, text])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "source"
    assert (await post(RIGHT, source=[text, text])).status_code == 200, "nothing is looked for"


async def test_what_nobody_asked_for_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("nobody asked for it")

    for name in ("rules", "Source", "RepairLoop"):
        monkeypatch.setattr(f"server.api.demands.{name}", never)
    monkeypatch.setattr("server.api.chat.HeldChoices.__init__", never)
    monkeypatch.setattr("server.api.judging.check", never)
    assert await grounding_of(WRONG) is None


async def test_plain_completions_say_that_they_do_not_check() -> None:
    body = {
        "model": "toy",
        "prompt": SOURCE,
        "response_format": strict_format(schema(**{"x-ground": "number"})),
    }
    async with client_of(app_with(ScriptedEngine(saying(WRONG)))) as client:
        answer = (await client.post("/v1/completions", json=body)).json()
        refused = await client.post("/v1/completions", json={**body, "grounding": "auto"})
    assert answer["gabarito"]["warnings"] == [
        "x-ground is not checked in plain completions, only in chat."
    ]
    assert refused.status_code == 400
