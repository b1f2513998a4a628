"""Whole turns: what a template's inverse writes is read back by the template as what was asked."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.turn_support import (
    CALLING,
    LIMIT,
    TEMPLATES,
    TOOLS,
    check_calls,
    check_content,
    read,
    turn,
    walk,
)

NAMED = {"type": "function", "function": {"name": "note-it"}}
REQUESTS: dict[str, dict[str, Any]] = {
    "auto": {"tools": TOOLS},
    "required": {"tools": TOOLS, "tool_choice": "required"},
    "one": {"tools": TOOLS, "tool_choice": "required", "parallel": False},
    "named": {"tools": TOOLS, "tool_choice": NAMED},
    "format": {"content": True},
    "format or calls": {"content": True, "tools": TOOLS},
    "none": {"content": True, "tools": TOOLS, "tool_choice": "none"},
}


@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda name: name.replace(" ", "_"))
@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_written_is_read(name: str, request_: str, special: bool) -> None:
    options = REQUESTS[request_]
    made = turn(name, special=special, reasoning_limit=LIMIT, **options)
    wants_calls = "tools" in options and options.get("tool_choice") != "none"
    if wants_calls and name not in CALLING:
        if "tool_choice" in options:
            assert made.grammar is None
            assert "tool_calls" in (made.reason or "")
            return
        wants_calls = False
    assert made.grammar is not None, made.reason
    for seed in range(6):
        rng = random.Random(f"{name} {request_} {special} {seed}")
        text = walk(made.grammar.start(), rng, steps=rng.choice((5, 60, 200)))
        message = read(name, text)
        for size in (1, 3):
            assert read(name, text, size=size) == message
        calls = check_calls(message, TOOLS)
        if options.get("content") and not calls:
            check_content(message)
        if not wants_calls:
            assert not calls
        elif "tool_choice" in options:
            assert calls, text
            assert "content" not in message, text
        if options.get("parallel") is False:
            assert calls <= 1
        if request_ == "named":
            assert {call["function"]["name"] for call in message["tool_calls"]} == {"note-it"}
