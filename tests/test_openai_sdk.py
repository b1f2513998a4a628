"""The stock openai SDK, over real HTTP, against a real server with a real model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal

import httpx
import openai
import pytest
from pydantic import BaseModel, Field

from tests.api_support import MODEL, strict_format, user

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def client(live_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        api_key="unused", base_url=f"{live_server}/v1", max_retries=0, timeout=300
    ) as client:
        yield client


class Kind(StrEnum):
    CAT = "cat"
    DOG = "dog"


class Address(BaseModel):
    street: str = Field(max_length=20)
    number: int = Field(ge=1, le=999)


class Pet(BaseModel):
    """What people use: enums, literals, options, lists, bounds, defaults, models in models."""

    name: str = Field(min_length=1, max_length=12, description="The pet's name.")
    kind: Kind
    size: Literal["small", "large"]
    age: int = Field(ge=0, le=30)
    weight: Annotated[int, Field(ge=0, le=200)] | None = None
    tags: list[Annotated[str, Field(max_length=8)]] = Field(max_length=2)
    home: Address


class Answer(BaseModel):
    """Bounded on all sides, so that it always comes to an end."""

    kind: Kind
    count: int = Field(ge=0, le=99)
    word: str = Field(max_length=10)


# --- the ordinary ways -----------------------------------------------------------------------


def test_create(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=user("Say hello."), max_tokens=12, seed=1
    )
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert choice.message.refusal is None
    assert choice.finish_reason in ("stop", "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 12
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer._request_id
    assert answer.timings["tokens"] > 0  # type: ignore[attr-defined]


def test_create_stream_is_what_create_says(client: openai.OpenAI) -> None:
    # A schema that leaves no choice: across requests not even a seed makes sampling exactly equal.
    wanted = {"name": "fixed", "strict": True, "schema": {"const": "one, two, three, four"}}
    common: Any = {
        "model": MODEL,
        "messages": user("Count to two."),
        "response_format": {"type": "json_schema", "json_schema": wanted},
    }
    whole = client.chat.completions.create(**common)
    chunks = list(client.chat.completions.create(**common, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_parse(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=user("Invent a pet and describe it as JSON."),
        response_format=Answer,
        max_tokens=150,
        seed=3,
    )
    assert isinstance(answer.choices[0].message.parsed, Answer)
    report: Any = answer.gabarito  # type: ignore[attr-defined]
    assert (report["schema"]["enforced"], report["schema"]["unenforced"]) == (True, [])
    assert report["validation"] == {"complete": True, "valid": True}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parse_with_everything_in_the_model(client: openai.OpenAI, seed: int) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=user("Invent a pet."),
        response_format=Pet,
        max_tokens=300,
        temperature=0.7,
        seed=seed,
    )
    pet = answer.choices[0].message.parsed
    assert pet is not None
    assert 0 <= pet.age <= 30
    assert len(pet.tags) <= 2


def test_stream_helper_with_its_events(client: openai.OpenAI) -> None:
    kinds: dict[str, int] = {}
    with client.chat.completions.stream(
        model=MODEL,
        messages=user("Invent something, as JSON."),
        response_format=Answer,
        max_tokens=150,
        seed=4,
        stream_options={"include_usage": True},
    ) as stream:
        for event in stream:
            kinds[event.type] = kinds.get(event.type, 0) + 1
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Answer)
    assert kinds["content.delta"] > 2
    assert kinds["content.done"] == 1
    assert final.usage is not None
    assert final.usage.completion_tokens > 0


async def test_the_async_client_streams_too(live_server: str) -> None:
    async with openai.AsyncOpenAI(api_key="-", base_url=f"{live_server}/v1") as client:
        stream = await client.chat.completions.create(
            model=MODEL, messages=user("Hi"), max_tokens=5, stream=True
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


def test_text_with_characters_of_several_bytes(client: openai.OpenAI) -> None:
    """A character is never split, not even one that takes several tokens."""
    schema = {"type": "string", "enum": ["héé 😀😀 日本語 \u2028", "☃" * 5 + '"\\']}
    stream = client.chat.completions.create(
        model=MODEL,
        messages=user("Choose."),
        max_tokens=200,
        seed=1,
        stream=True,
        response_format=strict_format(schema),
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert json.loads(text) in schema["enum"]
    assert "\ufffd" not in text


# --- parameters ---------------------------------------------------------------------------------


def test_a_seed_repeats_and_another_differs(client: openai.OpenAI) -> None:
    def say(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model=MODEL, messages=user("Tell a story."), max_tokens=16, seed=seed, temperature=1.5
        )
        return answer.choices[0].message.content

    say(11)  # the prompt is in the cache from here on, and evaluated in the same steps
    assert say(11) == say(11)
    assert len({say(seed) for seed in (11, 12, 13)}) > 1


def test_several_choices(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=user("Name a colour."), max_tokens=8, n=2, seed=1, temperature=1.5
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    alone = client.chat.completions.create(
        model=MODEL, messages=user("Name a colour."), max_tokens=8, seed=2, temperature=1.5
    )
    assert answer.usage is not None
    assert alone.usage is not None
    assert answer.usage.prompt_tokens == alone.usage.prompt_tokens


def test_several_choices_through_the_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, messages=user("Choose."), response_format=Answer, max_tokens=150, n=2, seed=1
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.message.role for choice in final.choices] == ["assistant", "assistant"]
    assert all(choice.message.parsed is not None for choice in final.choices)


def test_a_stop_string_ends_the_answer_and_is_not_in_it(client: openai.OpenAI) -> None:
    common: Any = {"model": MODEL, "messages": user("Count: 1, 2, 3"), "seed": 1, "temperature": 0}
    free = client.chat.completions.create(**common, max_tokens=24).choices[0].message.content
    assert free
    assert len(free) > 6
    stop = free[3:6]
    stopped = client.chat.completions.create(**common, max_tokens=24, stop=[stop]).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.message.content == free[: free.index(stop)].strip()


def test_log_probabilities(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=user("Hi"),
        max_tokens=6,
        temperature=0,
        logprobs=True,
        top_logprobs=3,
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content
    for token in logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert token.token == token.top_logprobs[0].token, "greedy takes the likeliest"
        assert bytes(token.bytes or []).decode("utf-8", "replace") == token.token
    text = b"".join(bytes(token.bytes or []) for token in logprobs.content).decode()
    assert text.strip() == answer.choices[0].message.content


def test_a_bias_forbids_a_token(client: openai.OpenAI, live_server: str) -> None:
    common: Any = {"model": MODEL, "messages": user("Hi"), "max_tokens": 1, "temperature": 0}
    first = client.chat.completions.create(**common, logprobs=True)
    assert first.choices[0].logprobs is not None
    token = first.choices[0].logprobs.content[0].token  # type: ignore[index]
    ids = httpx.post(f"{live_server}/tokenize", json={"content": token}).json()["tokens"]
    other = client.chat.completions.create(**common, logit_bias={str(i): -100 for i in ids})
    assert other.choices[0].message.content != first.choices[0].message.content


def test_the_prompt_is_cached(client: openai.OpenAI) -> None:
    prompt = user("A rather long question about nothing in particular, asked twice in a row?")
    for _ in range(2):
        answer = client.chat.completions.create(model=MODEL, messages=prompt, max_tokens=2)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens > 5  # type: ignore[operator]


def test_plain_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=["Once upon", "The sky is"], max_tokens=5, seed=1, logprobs=2
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.text for choice in answer.choices)
    streamed = client.completions.create(model=MODEL, prompt="Once", max_tokens=5, stream=True)
    assert [c.choices[0].finish_reason for c in streamed][-1] in ("stop", "length")


def test_models(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert client.models.retrieve(model.id).id == model.id
    assert client.models.retrieve(MODEL).id == model.id


def test_region_events_pass_through_the_sdk(client: openai.OpenAI) -> None:
    options: Any = {"include_usage": True, "include_region_events": True}
    stream = client.chat.completions.create(
        model=MODEL, messages=user("Hi"), max_tokens=8, seed=1, stream=True, stream_options=options
    )
    text, regions = "", []
    for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        elif chunk.usage is None:
            regions.append(chunk.region)  # type: ignore[attr-defined]
    assert [r["type"] for r in (regions[0], regions[-1])] == ["region_open", "region_close"]
    assert "".join(r["text"] for r in regions if r["type"] == "region_chunk").strip() == text
    with client.chat.completions.stream(
        model=MODEL,
        messages=user("Hi"),
        response_format=Answer,
        max_tokens=150,
        seed=1,
        stream_options=options,
    ) as helper:
        for _ in helper:
            pass
        assert helper.get_final_completion().choices[0].message.parsed is not None


# --- errors ---------------------------------------------------------------------------------------


def test_errors_have_their_own_classes(client: openai.OpenAI) -> None:
    def fails(kind: type[openai.APIStatusError], **fields: Any) -> openai.APIStatusError:
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": MODEL, "messages": user("Hi"), **fields})
        assert caught.value.request_id
        return caught.value

    assert fails(openai.NotFoundError, model="nope").code == "model_not_found"
    assert fails(openai.BadRequestError, temperature=5).param == "temperature"
    assert fails(openai.BadRequestError, extra_body={"foo": 1}).code == "unknown_parameter"
    too_long = fails(openai.BadRequestError, messages=user("word " * 10_000))
    assert too_long.code == "context_length_exceeded"
    bad = fails(openai.BadRequestError, response_format=strict_format({"type": "objekt"}))
    assert (bad.param, bad.code) == ("response_format", "invalid_schema")
    not_enforced = fails(
        openai.BadRequestError,
        response_format=strict_format({"type": "string", "pattern": "(a)\\1"}),
    )
    assert not_enforced.code == "unsupported_schema"
    assert "pattern" in not_enforced.message
    with pytest.raises(openai.LengthFinishReasonError):
        client.chat.completions.parse(
            model=MODEL, messages=user("Hi"), response_format=Answer, max_tokens=2
        )


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # the SDK's own dump of `parsed`
def test_an_answer_can_be_sent_back_as_it_came(client: openai.OpenAI) -> None:
    first: Any = client.chat.completions.parse(
        model=MODEL, messages=user("Choose."), response_format=Answer, max_tokens=150, seed=1
    )
    for message in (first.choices[0].message, first.choices[0].message.model_dump(mode="json")):
        conversation = [*user("Choose."), message, *user("Again.")]
        second = client.chat.completions.create(model=MODEL, messages=conversation, max_tokens=2)
        assert second.choices[0].message.role == "assistant"
