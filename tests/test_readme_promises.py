"""The README's examples of what strict promises and what not, run as they stand there.

Which values a small model makes up may differ from machine to machine; that none of them passes as
grounded, and that nothing passes as complete that isn't, may not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel, Field

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

README = Path(__file__).resolve().parent.parent / "README.md"
STATED = {12500, 90}


def examples() -> list[str]:
    text = README.read_text(encoding="utf-8")
    section = text.split("## What strict does and does not promise\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


@pytest.fixture(scope="module")
def ran(live_server: str) -> dict[str, Any]:
    """The examples' variables, once they have all run against a server of ours."""
    names: dict[str, Any] = {}
    for example in examples():
        source = example.replace("http://127.0.0.1:8000", live_server)
        exec(compile(source, str(README), "exec"), names)
    names["client"].close()
    return names


def value_of(answer: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(answer.choices[0].message.content)
    assert list(value) == ["customer", "monthly_fee", "payment_days"]
    return value


def made_up(value: dict[str, Any]) -> set[str]:
    """The numbers that the contract does not state."""
    numbers = {name: number for name, number in value.items() if isinstance(number, int)}
    return {f"/{name}" for name, number in numbers.items() if number not in STATED}


def test_all_examples_are_run() -> None:
    assert len(examples()) == 5


def test_numbers_that_are_made_up_are_named(ran: dict[str, Any]) -> None:
    answer = ran["made_up"]
    value = value_of(answer)
    report = answer.gabarito
    assert report["validation"] == {"complete": True, "valid": True}, "it fits, which is the point"
    named = {each["pointer"]: each["value"] for each in report["grounding"]["ungrounded"]}
    assert named.keys() - {"/customer"} == made_up(value)
    assert all(named[pointer] == value[pointer[1:]] for pointer in named)


def test_a_number_from_an_annex_becomes_null(ran: dict[str, Any]) -> None:
    value = value_of(ran["with_a_way_out"])
    assert value["payment_days"] is None or value["payment_days"] in STATED


def test_repair_ends_with_stated_values_or_with_a_failure(ran: dict[str, Any]) -> None:
    if "repaired" in ran:
        assert not made_up(value_of(ran["repaired"]))
        return
    body = ran["failure"]
    assert body["code"] == "repair_failed"
    assert body["reason"] in ("repeated_answer", "attempts_exhausted")
    assert all(attempt["reasons"] for attempt in body["attempts"])
    assert body["usage"]["completion_tokens"] == sum(
        attempt["completion_tokens"] for attempt in body["attempts"]
    )


def test_an_answer_that_was_cut_off_says_so(ran: dict[str, Any]) -> None:
    answer = ran["cut_off"]
    assert answer.choices[0].finish_reason == "length"
    assert answer.gabarito["validation"] == {"complete": False, "reason": "length"}
    assert answer.usage.completion_tokens == 12
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(answer.choices[0].message.content)


def test_one_that_may_grow_is_complete(ran: dict[str, Any]) -> None:
    answer = ran["grown"]
    value_of(answer)
    assert answer.choices[0].finish_reason == "stop"
    repair = answer.gabarito["repair"]
    budgets = [attempt["max_tokens"] for attempt in repair["rejected"]]
    assert budgets == [12 * 2**i for i in range(repair["attempts"] - 1)]
    assert budgets
    assert {attempt["outcome"] for attempt in repair["rejected"]} == {"truncated"}
    assert answer.usage.completion_tokens > sum(
        attempt["completion_tokens"] for attempt in repair["rejected"]
    )


def test_the_sdks_stream_helper_sees_the_accepted_answer(live_server: str) -> None:
    class City(BaseModel):
        city: str = Field(max_length=20)

    with (
        openai.OpenAI(base_url=f"{live_server}/v1", api_key="unused", max_retries=0) as client,
        client.chat.completions.stream(
            model="default",
            messages=[{"role": "user", "content": "Name a city as JSON."}],
            response_format=City,
            max_tokens=2,
            temperature=0,
            extra_body={"repair": {"max_attempts": 6}},
        ) as stream,
    ):
        events = list(stream)
        parsed = stream.get_final_completion().choices[0].message.parsed
    assert isinstance(parsed, City)
    deltas = [event.delta for event in events if event.type == "content.delta"]
    assert json.loads("".join(deltas)) == {"city": parsed.city}


def test_a_stream_tells_of_the_attempts(ran: dict[str, Any], live_server: str) -> None:
    """The stock SDK reads a stream with repair: content only of the accepted answer."""
    with openai.OpenAI(base_url=f"{live_server}/v1", api_key="unused", max_retries=0) as client:
        schema = {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        }
        stream = client.chat.completions.create(
            model="default",
            messages=[{"role": "user", "content": "Name a city as JSON."}],
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "city", "strict": True, "schema": schema},
            },
            max_tokens=2,
            temperature=0,
            stream=True,
            extra_body={"repair": {"max_attempts": 6}},
        )
        chunks = list(stream)
    attempts: list[Any] = [getattr(chunk, "attempt", None) for chunk in chunks]
    closed = [attempt for attempt in attempts if attempt and attempt["type"] == "attempt_close"]
    outcomes = [attempt["outcome"] for attempt in closed]
    assert outcomes == ["truncated"] * (len(outcomes) - 1) + ["accepted"]
    assert len(outcomes) > 1
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == closed[-1]["content"]
    assert list(json.loads(text)) == ["city"]
