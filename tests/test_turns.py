"""Whole turns: what a template's inverse writes is read back by the template as what was asked."""

from __future__ import annotations

import random
from typing import Any

import pytest

from grammar import GrammarCache
from server.turns import turn_grammar
from tests.family_samples import FAMILIES, SAMPLES, Sample
from tests.family_samples import TOOLS as SAMPLE_TOOLS
from tests.turn_support import (
    CALLING,
    LIMIT,
    TEMPLATES,
    TOOLS,
    check_calls,
    check_content,
    read,
    take_text,
    turn,
    vocabulary_of,
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
    for seed in range(3):
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


#: A mark inside a string that is a dressed-up quote: read, but never written.
QUIRKS = ('q(<|"|>',)


@pytest.mark.parametrize("special", [True, False], ids=["tokens", "text"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.template)
def test_what_models_write_can_be_written(sample: Sample, special: bool) -> None:
    vocabulary = vocabulary_of(sample.template, special=special)
    made = turn_grammar(
        TEMPLATES[sample.template],
        vocabulary=vocabulary,
        cache=GrammarCache(),
        tools=SAMPLE_TOOLS,
        prefix=sample.prefix,
        reasoning_limit=1000,
    )
    assert made.grammar is not None
    text = sample.text
    if not special and sample.template != "harmony":  # an end that is no text is left out
        ends = [e for f in FAMILIES.values() if f.template == sample.template for e in f.ends]
        ends += ["<|eom_id|>", "<|observation|>", "<|endoftext|>", "<start_function_response>"]
        text = text[: min((text.find(end) for end in ends if end.strip() in text), default=None)]
    stopped = take_text(made.grammar.start(), text)
    assert (stopped is None) is not any(quirk in text for quirk in QUIRKS), stopped
