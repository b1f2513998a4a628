"""Tools through the stock openai SDK, over real HTTP, with a real model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, Literal

import httpx
import jsonschema
import openai
import pytest
from openai import pydantic_function_tool
from pydantic import BaseModel, Field

from tests.api_support import MODEL, events_of, user
from tests.tool_sets import TOOL_SETS, tool

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def client(live_server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        api_key="unused", base_url=f"{live_server}/v1", max_retries=0, timeout=300
    ) as client:
        yield client


class GetWeather(BaseModel):
    """The weather of a city."""

    city: str = Field(max_length=12)
    days: int = Field(ge=1, le=7)


class Convert(BaseModel):
    """Convert a temperature."""

    degrees: int = Field(ge=-60, le=60)
    to: Literal["celsius", "fahrenheit"]


TOOLS: Any = [pydantic_function_tool(GetWeather), pydantic_function_tool(Convert)]


def test_parse_with_tools_of_pydantic_models(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        messages=user("What is the weather in Paris on the next three days?"),
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=120,
        seed=1,
    )
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [call] = choice.message.tool_calls or []
    assert call.id.startswith("call_")
    assert isinstance(call.function.parsed_arguments, GetWeather | Convert)
    assert answer.gabarito["tools"] == {"enforced": True, "valid": True}  # type: ignore[attr-defined]


@pytest.mark.parametrize("n", [1, 2])
def test_the_stream_helper_with_its_tool_events(client: openai.OpenAI, n: int) -> None:
    arguments: dict[tuple[int, int], str] = {}
    done: list[Any] = []
    with client.chat.completions.stream(
        model=MODEL,
        messages=user("The weather in Oslo?"),
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "GetWeather"}},
        max_tokens=120,
        seed=2,
        n=n,
        stream_options={
            "include_usage": True,
            "include_region_events": True,  # type: ignore[typeddict-unknown-key]
            "include_value_events": True,
        },
    ) as stream:
        for event in stream:
            if event.type == "tool_calls.function.arguments.delta":
                so_far = arguments.get((0, event.index), "") + event.arguments_delta
                arguments[0, event.index] = so_far
                if n == 1:
                    assert event.arguments == so_far, "only ever added to"
            elif event.type == "tool_calls.function.arguments.done":
                done.append(event)
        final = stream.get_final_completion()
    assert len(final.choices) == n
    for choice in final.choices:
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls or []
        assert call.function.name == "GetWeather"
        assert isinstance(call.function.parsed_arguments, GetWeather)
        assert choice.message.content is None
    assert len(done) == n
    if n == 1:
        assert done[0].arguments == arguments[0, 0] == call.function.arguments
        assert done[0].name == "GetWeather"


def test_a_stream_says_what_the_whole_answer_says(live_server: str) -> None:
    """With a schema that leaves no choice, so that sampling can't make a difference."""
    fixed = tool("greet", "Greets.", name={"const": 'Zoë \\ "Z" 😀'}, times={"const": [1, {}]})
    body = {
        "model": MODEL,
        "messages": user("Greet."),
        "tools": [fixed],
        "tool_choice": {"type": "function", "function": {"name": "greet"}},
        "max_tokens": 120,
    }
    url = f"{live_server}/v1/chat/completions"
    whole = httpx.post(url, json=body, timeout=120).json()["choices"][0]
    streamed = httpx.post(url, json={**body, "stream": True}, timeout=120)
    deltas = [event.data["choices"][0] for event in events_of(streamed.text)[:-1]]
    calls = [part for each in deltas for part in each["delta"].get("tool_calls", ())]
    assert [part["function"].get("name") for part in calls if "id" in part] == ["greet"]
    text = "".join(part["function"]["arguments"] for part in calls)
    # White space is the model's own choice, and another one each time.
    assert json.loads(text) == json.loads(
        whole["message"]["tool_calls"][0]["function"]["arguments"]
    )
    assert json.loads(text) == {"name": 'Zoë \\ "Z" 😀', "times": [1, {}]}
    assert deltas[-1]["finish_reason"] == whole["finish_reason"] == "tool_calls"


def test_an_agent_of_three_turns(client: openai.OpenAI) -> None:
    """Two tools, one step with both at once, and words in the end."""
    functions = {
        "population": lambda city: {"Oslo": 717_710, "Rome": 2_748_109}[city],
        "larger": lambda a, b: max(a, b),
    }
    city = {"enum": ["Oslo", "Rome"]}
    number = {"type": "integer", "minimum": 0, "maximum": 9_999_999}
    tools: Any = [
        tool("population", "How many people live in a city.", city=city),
        tool("larger", "The larger of two numbers.", a=number, b=number),
    ]
    messages: Any = [*user("Which is larger, Oslo or Rome? Use the tools.")]

    def step(*, calls: int, **fields: Any) -> Any:
        """One turn, with the results of its calls; other seeds until there are as many calls."""
        for seed in range(8):
            [choice] = client.chat.completions.create(
                model=MODEL, messages=messages, tools=tools, max_tokens=100, seed=seed, **fields
            ).choices
            if len(choice.message.tool_calls or ()) >= calls:
                break
        assert len(choice.message.tool_calls or ()) >= calls
        messages.append(choice.message)
        for call in choice.message.tool_calls or ():
            arguments = json.loads(call.function.arguments)
            value = functions[call.function.name](**arguments)  # type: ignore[operator]
            messages.append({"role": "tool", "tool_call_id": call.id, "content": str(value)})
        return choice

    # A model of this size does not plan: the choices lead it, the arguments are its own.
    only = {"type": "function", "function": {"name": "population"}}
    allowed = {"mode": "required", "tools": [only]}
    # It does not stop calling either: what it has begun is closed within its tokens.
    closed = {"truncation": "close"}
    first = step(
        calls=2,
        tool_choice={"type": "allowed_tools", "allowed_tools": allowed},
        parallel_tool_calls=True,
        extra_body=closed,
    )
    assert {call.function.name for call in first.message.tool_calls} == {"population"}
    larger = {"type": "function", "function": {"name": "larger"}}
    second = step(calls=1, tool_choice=larger)
    assert second.finish_reason == "tool_calls"
    assert [call.function.name for call in second.message.tool_calls] == ["larger"]
    third = step(calls=1, tool_choice="required", parallel_tool_calls=False)
    assert third.finish_reason == "tool_calls"
    assert len(third.message.tool_calls) == 1
    last = step(calls=0, tool_choice="none", stop=["\n"])
    assert last.finish_reason in ("stop", "length")
    assert not last.message.tool_calls
    roles = [m["role"] if isinstance(m, dict) else m.role for m in messages]
    assert roles.count("assistant") == 4
    assert roles.count("tool") >= 4


def test_values_come_while_the_answer_is_written(client: openai.OpenAI) -> None:
    options: Any = {"include_value_events": True}
    stream = client.chat.completions.create(
        model=MODEL,
        messages=user("The weather in Rome, two days?"),
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "GetWeather"}},
        max_tokens=120,
        seed=3,
        stream=True,
        stream_options=options,
    )
    form: dict[str, Any] = {}
    text = ""
    for chunk in stream:
        if not chunk.choices and (value := getattr(chunk, "value", None)):
            assert value["call"] == 0
            form[value["pointer"]] = value["value"]
        elif chunk.choices:
            for part in chunk.choices[0].delta.tool_calls or ():
                assert part.function is not None
                text += part.function.arguments or ""
    assert form == {
        "/city": json.loads(text)["city"],
        "/days": json.loads(text)["days"],
        "": json.loads(text),
    }
    assert list(form) == ["/city", "/days", ""]


def test_a_call_that_runs_out_of_tokens(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        messages=user("The weather in Rome?"),
        tools=[tool("note", "Keep a text.", text={"type": "string", "minLength": 300})],
        tool_choice="required",
        max_tokens=30,
        seed=1,
    )
    [choice] = answer.choices
    assert choice.finish_reason == "length"
    [call] = choice.message.tool_calls or []
    assert call.function.arguments.startswith('{"text": "')  # type: ignore[union-attr]
    incomplete = answer.gabarito["tools"]["incomplete"]  # type: ignore[attr-defined]
    assert incomplete == [{"choice": 0, "call": 0, "id": call.id}]


def test_errors_name_the_tool(client: openai.OpenAI) -> None:
    bad = {"type": "object", "properties": {"a": {"type": "objekt"}}}
    function: Any = {"type": "function", "function": {"name": "f", "parameters": bad}}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=user("Hi"), tools=[TOOLS[0], function])
    assert caught.value.param == "tools[1].function.parameters"
    assert caught.value.code == "invalid_function_parameters"


# --- many requests, many formats ------------------------------------------------------------------

#: JSON in tags, XML, and calls in Python's spelling.
FORMATS = ("hermes", "qwen3_coder", "lfm2")
REQUESTS = 100


@pytest.mark.slow
async def test_a_hundred_requests_in_three_formats_all_come_back_as_valid_calls(
    live_server: str,
) -> None:
    limit = asyncio.Semaphore(4)

    async def ask(client: httpx.AsyncClient, number: int) -> tuple[int, str, Any]:
        question, tools = TOOL_SETS[number * len(TOOL_SETS) // REQUESTS]
        template = FORMATS[number % len(FORMATS)]
        body = {
            "model": MODEL,
            "messages": user(question),
            "tools": tools,
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "response_template": template,
            "temperature": 1.0,
            "seed": number,
            "max_tokens": 300,
        }
        async with limit:
            response = await client.post(f"{live_server}/v1/chat/completions", json=body)
        assert response.status_code == 200, response.text
        return number, template, response.json()

    async with httpx.AsyncClient(timeout=300) as client:
        answers = await asyncio.gather(*(ask(client, number) for number in range(REQUESTS)))
    seen: set[tuple[str, int]] = set()
    for number, template, answer in answers:
        [choice] = answer["choices"]
        _, tools = TOOL_SETS[number * len(TOOL_SETS) // REQUESTS]
        schemas = {each["function"]["name"]: each["function"]["parameters"] for each in tools}
        assert choice["finish_reason"] == "tool_calls"
        [call] = choice["message"]["tool_calls"]
        jsonschema.validate(
            json.loads(call["function"]["arguments"]),
            schemas[call["function"]["name"]],
            format_checker=jsonschema.FormatChecker(),
        )
        assert answer["gabarito"]["tools"] == {"enforced": True, "valid": True}
        seen.add((template, number * len(TOOL_SETS) // REQUESTS))
    assert len(seen) == len(FORMATS) * len(TOOL_SETS), "every set of tools in every format"
