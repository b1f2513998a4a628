"""Whole turns closed in time: reasoning, calls and content, with a limit of reasoning or none."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from grammar import GrammarCache, compile_json_schema
from grammar.turn_parts import JsonValue
from parsing import parse_response
from server.engine.scheduler import Scheduler
from server.settings import Settings
from server.templates import template_files
from server.turns import turn_grammar
from tests.scripted_model import ListOutlet, Script, ScriptedModel, queue, request, run
from tests.test_engine_closing import ADVERSARIES, MODEL_VOCABULARY, TOKENS, budgets, least

MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
TEXTS = [*TOKENS, *(mark.encode() for mark in MARKS)]
SPECIAL = {len(TOKENS) + at: mark for at, mark in enumerate(MARKS)}
TEMPLATES = {file.name: file.template for file in template_files(Settings())}
TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
            "required": ["name", "age"],
            "additionalProperties": False,
        },
    },
}


def padded(script: Script) -> Script:
    """The same wishes over the larger vocabulary; the marks are liked a little."""
    return lambda tokens: [*list(script(tokens))[:-1], *[3.0] * len(MARKS), -50.0]


def model_of(script: Script) -> ScriptedModel:
    return ScriptedModel(TEXTS, padded(script), n_ctx=600, special=SPECIAL)


def answer(grammar: Any, script: Script, limit: int) -> ListOutlet:
    model = model_of(script)
    scheduler = Scheduler(model, n_batch=16)
    outlet = queue(scheduler, model, request([65], grammar=grammar, max_tokens=limit, closes=True))
    run(scheduler)
    return outlet


@pytest.mark.parametrize("limit", [None, 0, 1, 4])
@pytest.mark.parametrize("wanted", ["call", "content", "either"])
def test_turns_are_closed(wanted: str, limit: int | None) -> None:
    content = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    options: dict[str, Any] = {
        "call": {"tools": [TOOL], "tool_choice": "required"},
        "content": {"content": JsonValue(content)},
        "either": {"tools": [TOOL], "content": JsonValue(content)},
    }[wanted]
    vocabulary = model_of(ADVERSARIES["letters"]).vocabulary
    made = turn_grammar(
        TEMPLATES["qwen3"],
        vocabulary=vocabulary,
        cache=GrammarCache(max_bytes=1 << 24),
        reasoning_limit=limit,
        **options,
    )
    assert made.grammar is not None, made.reason
    for name, script in ADVERSARIES.items():
        for most in budgets(least(made.grammar)):
            outlet = answer(made.grammar, script, most)
            assert outlet.finished.usage.completion_tokens <= most
            matcher = made.grammar.start()
            for token in outlet.ids:
                matcher.advance(token)
            assert matcher.is_accepting(), (name, most, outlet.text)
            message = parse_response(outlet.text, TEMPLATES["qwen3"], prefix="")
            if wanted == "call":
                for call in message["tool_calls"]:
                    assert set(call["function"]["arguments"]) == {"name", "age"}


def test_objects_in_any_order_take_only_what_is_owed() -> None:
    names = [f"k{i}" for i in range(40)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in names},
        "required": names[::2],
        "additionalProperties": False,
    }
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, key_order="free", whitespace="compact")
    shortest = grammar.shortest()
    assert shortest is not None
    text = b"".join(TOKENS[token] for token in shortest)
    assert set(json.loads(text)) == set(names[::2])


def shortest_text(schema: Any) -> str:
    shortest = compile_json_schema(schema, MODEL_VOCABULARY, whitespace="compact").shortest()
    assert shortest is not None
    return b"".join(TOKENS[token] for token in shortest).decode()


def test_keys_that_lead_nowhere_are_not_added_without_end() -> None:
    begun = time.thread_time()
    wanted: dict[str, Any] = {
        "patternProperties": {"^z": True},
        "additionalProperties": False,
        "properties": {"y": {"type": "integer"}, "b": True},
        "not": {"additionalProperties": {"type": "string"}},
    }
    assert shortest_text({"type": "object", **wanted}) == '{"b":0}'
    assert time.thread_time() - begun < 5, "it was minutes"
    many = json.loads(shortest_text({"type": "object", "minProperties": 40}))
    assert len(many) == 40, "a long chain of keys is found, too"
