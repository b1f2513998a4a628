"""Answers that end in time: models that never want to, budgets from the least to ample."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import Grammar, compile_choice, compile_gbnf, compile_json_schema, compile_regex
from grammar import fewest as fewest_module
from server.engine.engine import LocalEngine
from server.engine.errors import BudgetTooSmallError
from server.engine.scheduler import Scheduler
from server.engine.types import EngineDefaults, Finished, SamplingParams, Steered, TextPiece
from tests.grammar_support import VOCABULARY
from tests.scripted_model import ListOutlet, Script, ScriptedModel, queue, request, run

TOKENS = list(VOCABULARY.tokens[:-2])
SIZE = len(TOKENS) + 1
PROMPT = [65]


def prefers(*texts: str) -> Script:
    """Wants these above all, in this order, then the longest token; never the end."""

    def script(_: list[int]) -> list[float]:
        return scores

    scores = [0.1 * len(token) for token in TOKENS] + [-50.0]
    for rank, text in enumerate(texts):
        scores[TOKENS.index(text.encode())] = 20.0 - rank
    return script


def rambling(tokens: list[int]) -> list[float]:
    """Something else each time, and never the end."""
    rng = random.Random(hash(tuple(tokens[-4:])))
    return [rng.uniform(0, 9) for _ in TOKENS] + [-50.0]


ADVERSARIES: dict[str, Script] = {
    "letters": prefers("abc", "é"),
    "escapes": prefers("\\u", "\\", "d", "8", "3"),
    "openers": prefers('{"', "[", "{", '": [', "-", "1"),
    "numbers": prefers("123", "12", "E+", ".5", ",", ", "),
    "commas": prefers('", "', '","', ",", '"'),
    "gaps": prefers("    ", "  ", "\n", " "),
    "rambling": rambling,
}


def answer(
    grammar: Grammar, script: Script, limit: int | None, n_ctx: int = 400, **options: Any
) -> ListOutlet:
    model = ScriptedModel(TOKENS, script, n_ctx=n_ctx)
    scheduler = Scheduler(model, n_batch=8)
    asked = request(PROMPT, grammar=grammar, max_tokens=limit, closes=True, **options)
    outlet = queue(scheduler, model, asked)
    run(scheduler)
    return outlet


MODEL_VOCABULARY = ScriptedModel(TOKENS, rambling).vocabulary


def least(grammar: Grammar) -> int:
    shortest = grammar.shortest()
    assert shortest is not None
    return len(shortest)


def budgets(smallest: int) -> list[int]:
    return [*range(smallest, smallest + 8), smallest + 13, smallest + 30, smallest + 70]


SCHEMAS: dict[str, Any] = {
    "anything": True,
    "required keys": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "x": True},
        "required": ["name", "age"],
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "minItems": 2,
                "items": {
                    "type": "object",
                    "properties": {"ab": {"enum": ["abc", "a", "日本"]}, "b": {"type": "number"}},
                    "required": ["ab", "b"],
                },
            }
        },
        "required": ["items"],
    },
    "recursive": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "v": {"type": "integer"},
                    "more": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["v", "more"],
                "additionalProperties": False,
            }
        },
    },
    "extra keys": {
        "type": "object",
        "minProperties": 3,
        "maxProperties": 5,
        "properties": {"name": {"type": "boolean"}},
        "required": ["name"],
        "additionalProperties": {"type": "string", "maxLength": 4},
    },
    "strings": {
        "type": "array",
        "items": {"type": "string", "minLength": 7, "maxLength": 40},
        "minItems": 1,
    },
    "long string": {"type": "string", "minLength": 90},
    "pattern": {"type": "string", "pattern": "^(ab|c){3,}-[0-9]{4}é?$"},
    "pattern and length": {"type": "string", "pattern": "^[a-c]*$", "minLength": 11},
    "date": {"type": "string", "format": "date-time"},
    "numbers": {"type": "array", "items": {"type": "number", "minimum": 1000}, "minItems": 3},
    "multiples": {"type": "integer", "multipleOf": 7, "minimum": 100},
    "contains": {"type": "array", "contains": {"const": "name"}, "minContains": 2},
    "choice": {"anyOf": [{"const": "a long constant"}, {"type": "object", "required": ["q"]}]},
}


@pytest.mark.parametrize("adversary", ADVERSARIES)
@pytest.mark.parametrize("name", SCHEMAS)
def test_every_budget_from_the_least_gives_a_valid_answer(name: str, adversary: str) -> None:
    schema = SCHEMAS[name]
    grammar = compile_json_schema(schema, MODEL_VOCABULARY)
    for limit in budgets(least(grammar)):
        outlet = answer(grammar, ADVERSARIES[adversary], limit)
        context = (name, adversary, limit, outlet.text)
        assert outlet.finished.usage.completion_tokens <= limit, context
        jsonschema.validate(
            json.loads(outlet.text), schema, format_checker=jsonschema.FormatChecker()
        )
        assert outlet.finished.reason == ("stop" if outlet.finished.steered is None else "length")


@pytest.mark.parametrize("whitespace", ["fixed", "compact", "pretty", "flexible"])
def test_in_every_style_of_white_space(whitespace: str) -> None:
    for schema in (SCHEMAS["nested"], SCHEMAS["recursive"], SCHEMAS["extra keys"]):
        grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace=whitespace)
        for adversary in ("openers", "gaps", "rambling"):
            for limit in budgets(least(grammar)):
                outlet = answer(grammar, ADVERSARIES[adversary], limit)
                assert outlet.finished.usage.completion_tokens <= limit
                jsonschema.validate(json.loads(outlet.text), schema)


TEXTS: dict[str, Callable[[], Grammar]] = {
    "pattern": lambda: compile_regex("(ab|cd)+x{3}", MODEL_VOCABULARY),
    "free tail": lambda: compile_regex("name: .*", MODEL_VOCABULARY),
    "choice": lambda: compile_choice(["abcabcabc", "abc", "12"], MODEL_VOCABULARY),
    "regular GBNF": lambda: compile_gbnf('root ::= ("ab" | "cd"){2,} "!"', MODEL_VOCABULARY),
    "nested GBNF": lambda: compile_gbnf(
        'root ::= list\nlist ::= "[" (item ("," item)*)? "]"\nitem ::= list | [0-9]{2} | word\n'
        'word ::= "a" word "b" | "c"',
        MODEL_VOCABULARY,
    ),
    "ambiguous GBNF": lambda: compile_gbnf(
        'root ::= "(" x* ")"\nx ::= "a" x "b" | "a" x | "a" | "ab"', MODEL_VOCABULARY
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_patterns_choices_and_gbnf(name: str) -> None:
    grammar = TEXTS[name]()
    for adversary, script in ADVERSARIES.items():
        for limit in budgets(least(grammar)):
            outlet = answer(grammar, script, limit)
            assert outlet.finished.usage.completion_tokens <= limit
            ended = grammar.start()
            for token in outlet.ids:
                ended.advance(token)
            assert ended.is_accepting(), (name, adversary, limit, outlet.text)


def test_whole_tokens_count_as_one() -> None:
    think = len(TOKENS)
    model = ScriptedModel(
        [*TOKENS, b"<think>"], lambda _: np.zeros(think + 2), special={think: "<think>"}
    )
    grammar = compile_gbnf('root ::= <think> [a-z]* <think> "true" root?', model.vocabulary)
    shortest = [think, think, TOKENS.index(b"true")]
    assert grammar.shortest() == tuple(shortest)
    scheduler = Scheduler(model, n_batch=8)
    outlet = queue(scheduler, model, request(PROMPT, grammar=grammar, max_tokens=8, closes=True))
    run(scheduler)
    assert (outlet.ids[0], outlet.ids[-2:]) == (think, shortest[1:])


# --- exact figures -----------------------------------------------------------------------------


def true_least(grammar: Grammar, most: int) -> int:
    """The fewest tokens of any answer, by trying them all, states met once."""
    start = grammar.start()
    level = {start.state_id: start}
    seen = set(level)
    for count in range(most + 1):
        if any(matcher.is_accepting() for matcher in level.values()):
            return count
        following = {}
        for matcher in level.values():
            mask = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
            for token in np.flatnonzero(mask).tolist():
                after = matcher.copy()
                after.advance(token)
                if after.state_id not in seen:
                    seen.add(after.state_id)
                    following[after.state_id] = after
        level = following
    raise AssertionError(f"no answer of up to {most} tokens")


EXACT = [
    {"type": "object", "properties": {"name": {"type": "boolean"}}, "required": ["name"]},
    {"type": "array", "items": {"enum": ["abc", "x"]}, "minItems": 2},
    {"enum": ["zz", "true", "name"]},
    {"type": "integer"},
    {"type": "null"},
]


@pytest.mark.parametrize("schema", EXACT, ids=str)
def test_the_least_is_the_fewest_tokens_of_any_answer(schema: Any) -> None:
    grammar = compile_json_schema(schema, MODEL_VOCABULARY)
    assert least(grammar) == true_least(grammar, 12)


def test_the_least_may_be_more_where_longer_or_other_texts_have_fewer_tokens() -> None:
    grammar = compile_json_schema({"type": "integer", "minimum": 100}, MODEL_VOCABULARY)
    assert (least(grammar), true_least(grammar, 3)) == (2, 1), "100 is no token, 123 is one"


def test_where_steering_began_and_why() -> None:
    grammar = compile_regex('"q*"', MODEL_VOCABULARY)
    quote, letter = TOKENS.index(b'"'), TOKENS.index(b"q")
    model_wants = prefers("q")
    outlet = answer(grammar, model_wants, 6, forced_runs=False)
    assert outlet.ids == [quote, letter, letter, letter, letter, quote]
    assert outlet.finished.steered == Steered(5, "max_tokens")
    assert outlet.finished.reason == "length"
    outlet = answer(grammar, model_wants, None, n_ctx=5)
    assert outlet.text == '"qq"'
    assert outlet.finished.steered == Steered(3, "context")


def test_an_answer_that_ends_by_itself_is_not_touched() -> None:
    grammar = compile_regex('"a{0,5}"', MODEL_VOCABULARY)
    outlet = answer(grammar, prefers("a"), 7)
    assert outlet.text == '"aaaaa"'
    assert (outlet.finished.reason, outlet.finished.steered) == ("stop", None)


def test_an_answer_that_is_complete_may_be_cut() -> None:
    grammar = compile_regex("a*", MODEL_VOCABULARY)
    outlet = answer(grammar, prefers("a"), 3)
    assert outlet.text == "aaa"
    assert outlet.finished.reason == "length"
    assert outlet.finished.steered == Steered(3, "max_tokens")


def test_what_the_model_wants_is_kept_where_there_is_room() -> None:
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2}
    grammar = compile_json_schema(schema, MODEL_VOCABULARY)
    outlet = answer(grammar, prefers(", ", ",", "2"), 8)
    assert json.loads(outlet.text) == [2, 2, 2]


def test_free_text_needs_no_steering() -> None:
    model = ScriptedModel(TOKENS, prefers("a"))
    scheduler = Scheduler(model, n_batch=8)
    outlet = queue(scheduler, model, request(PROMPT, max_tokens=4, closes=True))
    run(scheduler)
    assert (outlet.text, outlet.finished.reason) == ("aaaa", "length")
    assert outlet.finished.steered is None


def test_without_it_the_answer_is_cut() -> None:
    grammar = compile_regex('"a*"', MODEL_VOCABULARY)
    model = ScriptedModel(TOKENS, prefers("a"))
    scheduler = Scheduler(model, n_batch=8)
    outlet = queue(scheduler, model, request(PROMPT, grammar=grammar, max_tokens=4))
    run(scheduler)
    assert (outlet.text, outlet.finished.steered) == ('"aaa', None)


@pytest.mark.parametrize(
    ("limit", "n_ctx", "error"),
    [(4, 100, (5, 4, False)), (None, 5, (5, 4, True)), (9, 5, (5, 4, True))],
)
def test_a_budget_below_the_least_is_refused_before_any_work(
    limit: int | None, n_ctx: int, error: tuple[int, int, bool]
) -> None:
    model = ScriptedModel(TOKENS, prefers("a"), n_ctx=n_ctx)
    engine = LocalEngine(model, EngineDefaults(n_batch=8))
    grammar = compile_regex("x{5}", model.vocabulary)
    try:
        with pytest.raises(BudgetTooSmallError) as caught:
            engine.stream(request(PROMPT, grammar=grammar, max_tokens=limit, closes=True))
        found = caught.value
        assert (found.needed, found.allowed, found.is_context) == error
        assert model.batches == []
        if limit == 4:
            events = list(
                engine.stream(request(PROMPT, grammar=grammar, max_tokens=5, closes=True))
            )
            assert isinstance(events[-1], Finished)
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "integer", "minimum": 100}, "123"),  # 100 is no token
        ({"type": "array", "items": {"enum": ["qx", "abc"]}, "minItems": 1}, '["abc"]'),
        ({"type": "array", "items": {"enum": ["qx", "abc"]}, "minItems": 2}, None),
    ],
)
@pytest.mark.parametrize("adversary", ADVERSARIES)
def test_an_answer_that_just_fits_is_not_refused_and_is_closed(
    schema: Any, text: str | None, adversary: str
) -> None:
    model = ScriptedModel(TOKENS, ADVERSARIES[adversary], n_ctx=100)
    engine = LocalEngine(model, EngineDefaults(n_batch=8))
    grammar = compile_json_schema(schema, model.vocabulary)
    fewest = true_least(grammar, 12)
    assert fewest < least(grammar), "the shortest text in bytes has more tokens"
    if fewest > 1:
        with pytest.raises(BudgetTooSmallError, match=f"needs {fewest} tokens") as caught:
            engine.stream(request(PROMPT, grammar=grammar, max_tokens=fewest - 1, closes=True))
        assert (caught.value.needed, caught.value.is_exact) == (fewest, True)
    for limit in range(fewest, fewest + 3):
        events = list(
            engine.stream(request(PROMPT, grammar=grammar, max_tokens=limit, closes=True))
        )
        end = events[-1]
        assert isinstance(end, Finished)
        assert end.usage.completion_tokens <= limit
        found = "".join(event.text for event in events if isinstance(event, TextPiece))
        jsonschema.validate(json.loads(found), schema)
        assert limit > fewest or text in (None, found)
    engine.close()


def test_what_cannot_be_told_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fewest_module, "MAX_WORK", 0)
    model = ScriptedModel(TOKENS, prefers("q"), n_ctx=100)
    engine = LocalEngine(model, EngineDefaults(n_batch=8))
    grammar = compile_json_schema({"type": "integer", "minimum": 100}, model.vocabulary)
    shortest = least(grammar)
    found = grammar.fewest(shortest - 1)
    assert found.at_least < shortest
    events = list(
        engine.stream(request(PROMPT, grammar=grammar, max_tokens=shortest - 1, closes=True))
    )
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.reason == "length"
    assert end.usage.completion_tokens < shortest
    found_text = "".join(event.text for event in events if isinstance(event, TextPiece))
    assert end.is_complete == (len(found_text) == 3), "closed only if a way was found"
    assert end.steered is not None
    engine.close()


# --- any schema, any budget, any model ---------------------------------------------------------

LEAVES: list[Any] = [
    {"type": "string"},
    {"type": "string", "minLength": 3, "maxLength": 9},
    {"type": "string", "pattern": "^[ab]{2,5}$"},
    {"type": "integer", "minimum": 10},
    {"type": "number"},
    {"enum": ["abc", 1, None, "日本語"]},
    {"const": "x, y"},
    {"type": ["boolean", "null"]},
    True,
]


def schemas(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.lists(st.sampled_from(["name", "age", "b", "é"]), max_size=3, unique=True)
    arrays = st.fixed_dictionaries(
        {"type": st.just("array"), "items": inner, "minItems": st.integers(0, 3)}
    )
    objects = names.flatmap(
        lambda keys: st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.fixed_dictionaries(dict.fromkeys(keys, inner)),
                "required": st.sets(st.sampled_from(keys)).map(sorted) if keys else st.just([]),
                "additionalProperties": st.booleans(),
                "minProperties": st.integers(0, len(keys)),
            }
        )
    )
    unions = st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts})
    return arrays | objects | unions


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(st.sampled_from(LEAVES), schemas, max_leaves=6),
    st.sampled_from(sorted(ADVERSARIES)),
    st.integers(0, 25),
    st.sampled_from([0.0, 1.0]),
)
def test_any_schema_in_any_budget(
    schema: Any, adversary: str, spare: int, temperature: float
) -> None:
    grammar = compile_json_schema(schema, MODEL_VOCABULARY)
    limit = least(grammar) + spare
    outlet = answer(
        grammar,
        ADVERSARIES[adversary],
        limit,
        sampling=SamplingParams(temperature=temperature, seed=spare),
    )
    assert outlet.finished.usage.completion_tokens <= limit
    jsonschema.validate(json.loads(outlet.text), schema)
