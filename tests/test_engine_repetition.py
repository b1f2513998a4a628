"""Runaway repetition: noticed where it is, ended where it may be, left alone where it is none."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import Grammar, compile_gbnf, compile_json_schema, compile_regex
from server.engine.scheduler import Scheduler
from server.engine.steering import Repetition
from server.engine.types import Steered
from tests.scripted_model import ListOutlet, Script, ScriptedModel, queue, request, run
from tests.test_engine_closing import (
    ADVERSARIES,
    MODEL_VOCABULARY,
    PROMPT,
    SCHEMAS,
    TOKENS,
    least,
    prefers,
)

GUARD = 12


def answer(grammar: Grammar, script: Script, limit: int = 200, **options: Any) -> ListOutlet:
    model = ScriptedModel(TOKENS, script, n_ctx=600)
    scheduler = Scheduler(model, n_batch=8)
    options.setdefault("repetition_guard", GUARD)
    outlet = queue(scheduler, model, request(PROMPT, grammar=grammar, max_tokens=limit, **options))
    run(scheduler)
    return outlet


def steps(wants: str, otherwise: str = "") -> Script:
    """Wants a text over and over, byte by byte, from wherever it stands in it."""
    order = [TOKENS.index(bytes([byte])) for byte in wants.encode()]
    last = dict(zip(order, order[1:] + order[:1], strict=True))
    others = [TOKENS.index(text.encode()) for text in otherwise.split()]

    def script(tokens: list[int]) -> list[float]:
        scores = [0.0] * len(TOKENS) + [-50.0]
        for rank, token in enumerate(others):
            scores[token] = 9.0 - rank
        scores[last.get(tokens[-1], order[0])] = 20.0
        return scores

    return script


@pytest.mark.parametrize(
    ("tokens", "noticed"),
    [
        ([1] * 12, 12),
        ([1] * 11, None),
        ([1, 2, 3] * 4, 12),
        ([9, 8, 7] + [1, 2, 3, 4] * 3, 15),
        ([1, 2, 3, 4, 5] * 6, None),  # fewer than three times within the length
        ([1, 2] * 5 + [3] + [1, 2] * 5, None),
    ],
)
def test_what_counts_as_repetition(tokens: list[int], noticed: int | None) -> None:
    repetition = Repetition(GUARD)
    found = [at for at, token in enumerate(tokens, start=1) if repetition.push(token)]
    assert found[:1] == ([] if noticed is None else [noticed])


def test_a_string_is_closed() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "maxItems": 1}
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace="compact")
    outlet = answer(grammar, prefers("b"), forced_runs=False)
    assert outlet.text == '["' + "b" * GUARD + '"]'
    assert outlet.finished.reason == "length"
    assert outlet.finished.steered == Steered(GUARD + 1, "repetition")  # after `["` and the letters


def test_a_number_is_closed_and_the_answer_goes_on() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "yy"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace="compact")
    outlet = answer(grammar, prefers("1", "y"))
    assert outlet.text == '{"a":' + "1" * GUARD + ',"b":"yy"}'
    assert outlet.finished.steered is not None
    assert outlet.finished.steered.cause == "repetition"


def test_an_array_is_closed_not_its_last_item() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "null"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace="compact")
    outlet = answer(grammar, steps("1,"))
    value = json.loads(outlet.text)
    assert value == {"a": [1] * len(value["a"]), "b": None}
    assert len(value["a"]) in (GUARD // 2, GUARD // 2 + 1)


def test_an_array_that_is_too_short_is_filled_first() -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 20}
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace="compact")
    assert json.loads(answer(grammar, steps("1,")).text) == [1] * 20


def test_a_text_that_nothing_holds_ends() -> None:
    outlet = answer(compile_regex("a*", MODEL_VOCABULARY), prefers("a"))
    assert outlet.text == "a" * GUARD
    assert (outlet.finished.reason, outlet.finished.steered) == (
        "length",
        Steered(GUARD, "repetition"),
    )


def test_a_rule_that_repeats_itself() -> None:
    grammar = compile_gbnf(
        'root ::= "<" list ">"\nlist ::= item list | item\nitem ::= "(" [a-z]* ")" | "-" list "+"',
        MODEL_VOCABULARY,
    )
    outlet = answer(grammar, steps("(a)"))
    assert outlet.text.startswith("<(a)(a)(a)(a)")
    assert outlet.text.endswith(">")
    assert outlet.finished.usage.completion_tokens < 20


@pytest.mark.parametrize("guard", [0, 40])
def test_off_or_out_of_reach_it_changes_nothing(guard: int) -> None:
    grammar = compile_json_schema({"type": "string", "pattern": "^b{0,30}$"}, MODEL_VOCABULARY)
    outlet = answer(grammar, prefers("b"), repetition_guard=guard)
    assert outlet.text == '"' + "b" * 30 + '"'
    assert (outlet.finished.reason, outlet.finished.steered) == ("stop", None)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(sorted(SCHEMAS)),
    st.sampled_from(sorted(ADVERSARIES)),
    st.integers(0, 60),
    st.integers(6, 30),
)
def test_with_closing_every_answer_is_valid(
    name: str, adversary: str, spare: int, guard: int
) -> None:
    grammar = compile_json_schema(SCHEMAS[name], MODEL_VOCABULARY)
    limit = least(grammar) + spare
    outlet = answer(grammar, ADVERSARIES[adversary], limit, repetition_guard=guard, closes=True)
    assert outlet.finished.usage.completion_tokens <= limit
    jsonschema.validate(json.loads(outlet.text), SCHEMAS[name])
