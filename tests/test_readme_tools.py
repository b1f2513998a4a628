"""The README's examples of tool calling and of models that think, run as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

README = Path(__file__).resolve().parent.parent / "README.md"


def examples() -> list[str]:
    text = README.read_text(encoding="utf-8")
    sections = text.split("\n## Tool calling\n")[1].split("\n## What a schema enforces")[0]
    return re.findall(r"```python\n(.*?)```", sections, re.DOTALL)


@pytest.fixture(scope="module")
def ran(live_server: str) -> list[dict[str, Any]]:
    """The variables after each example, once they have all run against a server of ours."""
    names: dict[str, Any] = {}
    after = []
    for example in examples():
        source = example.replace("http://127.0.0.1:8000", live_server)
        exec(compile(source, str(README), "exec"), names)
        after.append(dict(names))
    names["client"].close()
    return after


def test_the_agent_calls_tools_and_answers_in_words(ran: list[dict[str, Any]]) -> None:
    messages = ran[0]["messages"]
    called = [m for m in messages if not isinstance(m, dict) and m.tool_calls]
    results = [m for m in messages if isinstance(m, dict) and m["role"] == "tool"]
    assert len(called) == 2
    assert len(results) == sum(len(m.tool_calls) for m in called)
    assert messages[-1].tool_calls is None
    assert messages[-1].content


def test_the_form_is_filled_in(ran: list[dict[str, Any]]) -> None:
    form = ran[1]["form"]
    assert list(form) == ["/city", "/days", ""]
    assert form[""] == {"city": form["/city"], "days": form["/days"]}
    assert form["/city"] in ("Oslo", "Rome")


def test_reasoning_comes_before_strict_content(ran: list[dict[str, Any]]) -> None:
    answer = ran[2]["answer"]
    assert set(json.loads(ran[2]["message"].content)) == {"answer"}
    assert answer.gabarito["validation"] == {"complete": True, "valid": True}
    assert answer.choices[0].finish_reason == "stop"
