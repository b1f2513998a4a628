"""The client helper: its loop against scripted servers, on the stock SDK."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel, Field, field_validator

from server.client import ExtractionFailed, aextract, extract, extraction
from tests.api_support import app_with
from tests.test_api_repair import Attempts

SOURCE = "Ana is forty-one years old."


class Person(BaseModel):
    name: str = Field(json_schema_extra={"x-ground": "verbatim"})
    age: int = Field(json_schema_extra={"x-ground": "number"})

    @field_validator("name")
    @classmethod
    def _no_digits(cls, value: str) -> str:
        if any(character.isdigit() for character in value):
            raise ValueError("a name has no digits")
        return value


def answer(content: str | None, reason: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": more.pop("refusal", None)}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 7, "total_tokens": 8},
        **more,
    }


def person(name: str = "Ana", age: int = 41) -> str:
    return json.dumps({"name": name, "age": age})


class Server:
    """Says one thing after another, and remembers what it was asked."""

    def __init__(self, *answers: Any, owner: str = "somebody") -> None:
        self.answers = list(answers)
        self.owner = owner
        self.asked: list[dict[str, Any]] = []
        self.listed = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/models"):
            self.listed += 1
            model = {"id": "m", "object": "model", "created": 0, "owned_by": self.owner}
            return httpx.Response(200, json={"object": "list", "data": [model]})
        self.asked.append(json.loads(request.content))
        said = self.answers.pop(0)
        return said if isinstance(said, httpx.Response) else httpx.Response(200, json=said)


def client_of(server: Callable[[httpx.Request], httpx.Response]) -> openai.OpenAI:
    transport = httpx.MockTransport(server)
    return openai.OpenAI(
        base_url="http://test/v1",
        api_key="-",
        max_retries=0,
        http_client=httpx.Client(transport=transport),
    )


def outcomes(attempts: Any) -> list[str]:
    return [attempt["outcome"] for attempt in attempts]


def test_an_answer_that_is_good_at_once() -> None:
    server = Server(answer(person()))
    client = client_of(server)
    assert extract(client, Person, SOURCE) == Person(name="Ana", age=41)
    (asked,) = server.asked
    assert [message["role"] for message in asked["messages"]] == ["system", "user"]
    assert asked["messages"][1]["content"] == SOURCE
    assert asked["temperature"] == 0
    spec = asked["response_format"]["json_schema"]
    assert (spec["name"], spec["strict"]) == ("Person", True)
    assert spec["schema"]["required"] == ["name", "age"]
    assert "x-ground" not in json.dumps(spec), "other servers may refuse the keyword"
    server.answers.append(answer(person()))
    extract(client, Person, SOURCE)
    assert server.listed == 1, "a client's server is asked once who it is"


def test_a_cut_answer_gets_twice_the_budget_and_the_same_prompt() -> None:
    server = Server(answer('{"na', "length"), answer(person()))
    done = extraction(client_of(server), Person, SOURCE, max_tokens=10)
    assert outcomes(done.attempts) == ["truncated", "accepted"]
    assert [asked["max_tokens"] for asked in server.asked] == [10, 20]
    assert server.asked[0]["messages"] == server.asked[1]["messages"]


def test_what_the_source_does_not_state_goes_back_with_the_reason() -> None:
    server = Server(answer(person(age=14)), answer(person()))
    done = extraction(client_of(server), Person, SOURCE)
    assert outcomes(done.attempts) == ["ungrounded", "accepted"]
    assert done.attempts[0]["reasons"][0]["pointer"] == "/age"
    rejected, told = server.asked[1]["messages"][2:]
    assert rejected == {"role": "assistant", "content": person(age=14)}
    assert told["role"] == "user"
    assert "/age" in told["content"]
    assert "14" in told["content"]


def test_what_the_models_own_validators_say_goes_back_too() -> None:
    server = Server(answer(person("Ana2")), answer("no JSON"), answer(person()))
    done = extraction(client_of(server), Person, SOURCE, grounding="off")
    assert outcomes(done.attempts) == ["invalid", "invalid", "accepted"]
    assert "a name has no digits" in server.asked[1]["messages"][-1]["content"]
    assert len(server.asked[2]["messages"]) == 6


def test_an_answer_that_comes_again_ends_the_loop() -> None:
    server = Server(answer(person(age=14)), answer('{ "age": 14, "name": "Ana" }'))
    with pytest.raises(ExtractionFailed) as failed:
        extract(client_of(server), Person, SOURCE)
    assert failed.value.failure == "repeated_answer"
    assert outcomes(failed.value.attempts) == ["ungrounded", "repeated"]


def test_attempts_run_out() -> None:
    server = Server(*(answer(person(age=age)) for age in (1, 2)))
    with pytest.raises(ExtractionFailed) as failed:
        extract(client_of(server), Person, SOURCE, max_attempts=2)
    assert failed.value.failure == "attempts_exhausted"
    assert outcomes(failed.value.attempts) == ["ungrounded", "ungrounded"]


@pytest.mark.parametrize(
    "said",
    [answer(None, refusal="I can't."), answer("", "content_filter")],
    ids=["refusal", "filter"],
)
def test_a_refusal_is_no_answer(said: dict[str, Any]) -> None:
    with pytest.raises(ExtractionFailed) as failed:
        extract(client_of(Server(said)), Person, SOURCE)
    assert failed.value.failure == "refused"


def test_an_error_of_the_server_is_the_sdks_own() -> None:
    broken = httpx.Response(400, json={"error": {"message": "no", "code": "invalid_value"}})
    with pytest.raises(openai.BadRequestError):
        extract(client_of(Server(broken)), Person, SOURCE)


def test_a_gabarito_runs_the_loop_itself() -> None:
    history = {"repair": {"attempts": 2, "rejected": [{"outcome": "ungrounded"}]}}
    server = Server(answer(person(), gabarito=history), owner="gabarito")
    done = extraction(client_of(server), Person, SOURCE, grounding={"default": "auto"})
    assert outcomes(done.attempts) == ["ungrounded", "accepted"]
    assert done.attempts[1]["attempt"] == 2
    (asked,) = server.asked
    assert asked["repair"] == {"max_attempts": 4}
    assert asked["source"] == SOURCE
    assert asked["on_ungrounded"] == "repair"
    assert asked["grounding"] == {"default": "auto"}
    age = asked["response_format"]["json_schema"]["schema"]["properties"]["age"]
    assert age["x-ground"] == "number"


def test_a_gabaritos_failure_is_ours() -> None:
    error = {
        "message": "The repair failed.",
        "type": "invalid_request_error",
        "code": "repair_failed",
        "reason": "repeated_answer",
        "attempts": [{"outcome": "ungrounded"}, {"outcome": "repeated"}],
    }
    server = Server(httpx.Response(422, json={"error": error}))
    with pytest.raises(ExtractionFailed, match="The repair failed") as failed:
        extract(client_of(server), Person, SOURCE, side="server")
    assert failed.value.failure == "repeated_answer"
    assert outcomes(failed.value.attempts) == ["ungrounded", "repeated"]


def test_a_gabarito_is_told_what_only_the_model_knows() -> None:
    server = Server(answer(person("Ana2")), answer(person()))
    done = extraction(client_of(server), Person, SOURCE, side="server")
    assert outcomes(done.attempts) == ["invalid", "accepted"]
    assert [asked["repair"]["max_attempts"] for asked in server.asked] == [4, 3]
    server = Server(answer(person("Ana2")))
    with pytest.raises(ExtractionFailed) as failed:
        extract(client_of(server), Person, SOURCE, side="server", max_attempts=1)
    assert failed.value.failure == "attempts_exhausted"


async def test_the_asynchronous_client_does_the_same() -> None:
    server = Server(answer(person(age=14)), answer(person()))
    async with openai.AsyncOpenAI(
        base_url="http://test/v1",
        api_key="-",
        http_client=httpx.AsyncClient(transport=httpx.MockTransport(server)),
    ) as client:
        assert await aextract(client, Person, SOURCE) == Person(name="Ana", age=41)
    assert len(server.asked) == 2


async def test_against_the_server_itself() -> None:
    good, bad, other = person(), person(age=14), person(age=15)

    async def ask(*said: str) -> tuple[Person, Attempts]:
        engine = Attempts(*((text, "stop") for text in said))
        transport = httpx.ASGITransport(app=app_with(engine))
        async with openai.AsyncOpenAI(
            base_url="http://test/v1",
            api_key="-",
            http_client=httpx.AsyncClient(transport=transport),
        ) as client:
            return await aextract(client, Person, SOURCE), engine

    found, engine = await ask(bad, good)
    assert found == Person(name="Ana", age=41)
    assert "14" in engine.prompts[1]
    with pytest.raises(ExtractionFailed) as failed:
        await ask(bad, other, bad)
    assert failed.value.failure == "repeated_answer"
    assert outcomes(failed.value.attempts) == ["ungrounded", "ungrounded", "repeated"]


def test_a_property_may_be_called_like_an_extension() -> None:
    class Header(BaseModel):
        token: str = Field(alias="x-token", json_schema_extra={"x-ground": "verbatim"})

    server = Server(answer('{"x-token": "Ana"}'))
    extract(client_of(server), Header, SOURCE)
    schema = server.asked[0]["response_format"]["json_schema"]["schema"]
    assert list(schema["properties"]) == ["x-token"]
    assert "x-ground" not in schema["properties"]["x-token"]


def test_a_wrong_side_is_named() -> None:
    with pytest.raises(ValueError, match="side must be"):
        extract(client_of(Server()), Person, SOURCE, side="both")
