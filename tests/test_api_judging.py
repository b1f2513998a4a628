"""What an answer says of its own validity, and that a wrong one is never sent as right.

The engine here says what the test wants, whatever the grammar allows: a grammar with a fault.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import httpx
import pytest

from server.engine.types import Steered
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

AGE = {
    "type": "object",
    "properties": {"age": {"type": "integer", "maximum": 150}},
    "required": ["age"],
}
#: Not enforced: the format. Known to the validator: it and the rest.
PATTERN = {"type": "object", "properties": {"p": {"type": "string", "pattern": "a|(b)\\1"}}}
STRICT = strict_format(AGE)
RIGHT = '{"age": 36}'
WRONG = '{"age": 360}'


def loose(schema: Any) -> Any:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}


async def post(
    engine: ScriptedEngine, path: str = "/v1/chat/completions", **fields: Any
) -> httpx.Response:
    body = chat(**fields)
    if path == "/v1/completions":
        body["prompt"] = body.pop("messages")[0]["content"]
    async with client_of(app_with(engine)) as client:
        return await client.post(path, json=body)


async def report_of(script: Any, **fields: Any) -> dict[str, Any]:
    response = await post(ScriptedEngine(script), **fields)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["gabarito"]
    return found


# --- what is said -----------------------------------------------------------------------------


async def test_a_strict_answer_says_that_it_was_enforced_and_is_valid() -> None:
    assert await report_of(saying(RIGHT), response_format=STRICT) == {
        "schema": {
            "enforced": True,
            "keywords": ["maximum", "properties", "required", "type"],
            "unenforced": [],
        },
        "validation": {"complete": True, "valid": True},
    }


async def test_what_was_left_out_is_checked_afterwards() -> None:
    report = await report_of(saying('{"p": "["}'), response_format=loose(PATTERN))
    schema = report["schema"]
    assert schema["enforced"] is False
    assert schema["keywords"] == ["properties", "type"]
    (issue,) = schema["unenforced"]
    assert (issue["keyword"], issue["pointer"], issue["checked"]) == (
        "pattern",
        "/properties/p",
        True,
    )
    assert issue["reason"]
    assert report["validation"]["valid"] is False
    (error,) = report["validation"]["errors"]
    assert (error["pointer"], error["keyword"]) == ("/p", "pattern")
    assert error["schema_pointer"] == "/properties/p/pattern"
    assert '"["' in error["message"]
    valid = await report_of(saying('{"p": "[a]"}'), response_format=loose(PATTERN))
    assert valid["validation"] == {"complete": True, "valid": True}


async def test_what_is_no_keyword_is_noted() -> None:
    schema = {**AGE, "maxage": 3}
    report = await report_of(saying(RIGHT), response_format=strict_format(schema))
    assert report["schema"]["notes"] == ["maxage at (root) is no keyword: ignored"]


@pytest.mark.parametrize(
    ("end", "reason"),
    [("length", "length"), ("stop_sequence", "stop_sequence")],
)
async def test_an_answer_that_was_cut_off_claims_nothing(end: str, reason: str) -> None:
    last = finished("length") if end == "length" else finished(stop_sequence="}")
    report = await report_of(lambda _: [piece('{"age": 3'), last], response_format=STRICT)
    assert report["validation"] == {"complete": False, "reason": reason}
    assert report["schema"]["enforced"] is True


async def steered(cause: str, text: str, *, there: bool = True, **fields: Any) -> httpx.Response:
    """An answer that the engine led to an end, and whether it got there."""
    led = Steered(2, cause)  # type: ignore[arg-type]
    end = replace(finished("length", 3), steered=led, is_complete=there)
    fields = {"response_format": STRICT, **fields}
    return await post(ScriptedEngine(lambda _: [piece(text), end]), **fields)


@pytest.mark.parametrize("cause", ["max_tokens", "context", "repetition"])
async def test_an_answer_that_the_engine_closed_is_complete(cause: str) -> None:
    answer = (await steered(cause, RIGHT)).json()
    assert answer["gabarito"]["validation"] == {"complete": True, "valid": True}
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_an_answer_that_was_led_to_an_end_and_missed_it_is_not() -> None:
    report = (await steered("repetition", RIGHT[:-1], there=False)).json()["gabarito"]
    assert report["validation"] == {"complete": False, "reason": "length"}


@pytest.mark.parametrize(("cause", "attempts"), [("max_tokens", 2), ("repetition", 1)])
async def test_repair_gives_a_closed_answer_more_tokens(cause: str, attempts: int) -> None:
    response = await steered(cause, RIGHT, repair={"max_attempts": 2}, max_tokens=8)
    if attempts == 1:
        assert response.json()["gabarito"]["repair"]["attempts"] == 1
    else:
        first, second = response.json()["error"]["attempts"]
        assert (first["outcome"], second["max_tokens"]) == ("truncated", 16)
        assert first["reasons"][0]["message"] == "the answer was closed at 8 tokens"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"type": "regex", "pattern": "a+"}, "aa"),
        ({"type": "choice", "choices": ["a", "b"]}, "a"),
        ({"type": "grammar", "grammar": 'root ::= "a"'}, "a"),
    ],
)
async def test_answers_without_a_schema_say_whether_they_are_complete(
    wanted: Any, text: str
) -> None:
    report = await report_of(saying(text), response_format=wanted)
    assert report == {"validation": {"complete": True}}
    cut = await report_of(saying(text, reason="length"), response_format=wanted)
    assert cut == {"validation": {"complete": False, "reason": "length"}}


async def test_any_object() -> None:
    report = await report_of(saying('{"a": 1}'), response_format={"type": "json_object"})
    assert report["validation"] == {"complete": True, "valid": True}


async def test_free_text_says_nothing() -> None:
    assert "gabarito" not in (await post(ScriptedEngine(saying("{")))).json()


async def test_each_choice_has_its_own_verdict() -> None:
    texts = iter(['{"p": "["}', '{"p": "a"}', '{"p'])
    ends = iter([finished(), finished(), finished("length")])
    report = await report_of(
        lambda _: [piece(next(texts)), next(ends)], response_format=loose(PATTERN), n=3
    )
    first, second, third = report["choices"]
    assert (first["index"], first["validation"]["valid"]) == (0, False)
    assert second == {"index": 1, "validation": {"complete": True, "valid": True}}
    assert third == {"index": 2, "validation": {"complete": False, "reason": "length"}}


async def test_in_a_stream_the_last_chunk_says_it() -> None:
    response = await post(ScriptedEngine(saying(RIGHT)), response_format=STRICT, stream=True)
    *chunks, done = events_of(response.text)
    assert done.data == "[DONE]"
    assert [("gabarito" in chunk.data) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].data["gabarito"]["validation"] == {"complete": True, "valid": True}


async def test_plain_completions_say_it_too() -> None:
    response = await post(ScriptedEngine(saying(RIGHT)), "/v1/completions", response_format=STRICT)
    assert response.json()["gabarito"]["validation"] == {"complete": True, "valid": True}
    response = await post(
        ScriptedEngine(saying(*RIGHT)), "/v1/completions", response_format=STRICT, stream=True
    )
    last = events_of(response.text)[-2].data
    assert last["gabarito"]["validation"] == {"complete": True, "valid": True}


# --- a fault of the server --------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("wanted", [STRICT, loose(AGE), {"type": "json_object"}])
async def test_an_invalid_answer_that_was_enforced_whole_is_withheld(
    path: str, wanted: Any, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ScriptedEngine(saying("[]" if wanted["type"] == "json_object" else WRONG))
    app = app_with(engine)
    body = chat(response_format=wanted)
    if path == "/v1/completions":
        body["prompt"] = body.pop("messages")[0]["content"]
    with caplog.at_level(logging.ERROR, "gabarito.api"):
        async with client_of(app) as client:
            response = await client.post(path, json=body)
            health = (await client.get("/health")).json()
    assert response.status_code == 500
    assert response.headers["x-should-retry"] == "false"
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("server_error", "invalid_answer")
    assert error["errors"][0]["keyword"] in ("maximum", "type")
    assert health["answers"] == {"withheld": 1}
    assert "does not fit a schema that was enforced whole" in caplog.text


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_in_a_stream_it_is_an_error_event_and_no_end(path: str) -> None:
    engine = ScriptedEngine(saying(*WRONG))
    response = await post(engine, path, response_format=STRICT, stream=True)
    *chunks, last = events_of(response.text)
    assert last.data["error"]["code"] == "invalid_answer"
    assert all(c["finish_reason"] is None for chunk in chunks for c in chunk.data["choices"])
    assert engine.generations[0].cancelled


async def test_text_that_is_no_json_is_withheld_as_well() -> None:
    response = await post(ScriptedEngine(saying("Sure!")), response_format=STRICT)
    assert response.status_code == 500
    assert "is not JSON" in response.json()["error"]["errors"][0]["message"]


async def test_what_the_validator_cannot_tell_is_no_fault() -> None:
    slow = "^(?:a?){30}a{30}$(?<=a)"  # takes the validator more steps than it has
    schema = {"type": "string", "pattern": slow}
    report = await report_of(saying('"' + "a" * 30 + '"'), response_format=strict_format(schema))
    assert report["validation"]["complete"] is True
    assert report["validation"]["valid"] is None
    assert "too many steps" in report["validation"]["reason"]


async def test_the_same_schema_has_one_validator(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    original = __import__("server.api.answerformat", fromlist=["x"]).AnswerValidator
    monkeypatch.setattr(
        "server.api.answerformat.AnswerValidator",
        lambda schema, **options: made.append(schema) or original(schema, **options),
    )
    async with client_of(app_with(ScriptedEngine(saying(RIGHT)))) as client:
        for _ in range(3):
            await client.post("/v1/chat/completions", json=chat(response_format=STRICT))
        await client.post("/v1/chat/completions", json=chat(response_format={"type": "text"}))
        wanted = {"type": "regex", "pattern": ".*"}
        await client.post("/v1/chat/completions", json=chat(response_format=wanted))
    assert made == [AGE]
