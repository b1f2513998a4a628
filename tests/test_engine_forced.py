"""Forced runs: they change no answer, keep the tokenizer's split, and obey every limit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import Grammar, compile_json_schema
from server.engine.engine import LocalEngine
from server.engine.forced import Splitter
from server.engine.llama import LlamaModel
from server.engine.scheduler import Scheduler
from server.engine.types import (
    EngineDefaults,
    Finished,
    GenerationRequest,
    SamplingParams,
    TextPiece,
    TokenRecord,
)
from tests.scripted_model import GREEDY, ListOutlet, ScriptedModel, queue, run

BYTES = [bytes([byte]) for byte in range(256)]
PROMPT = (ord("?"),)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "role": {"enum": ["user", "users", "admin"]},
        "home": {
            "type": "object",
            "properties": {"city_name": {"enum": ["Rome", "Roma"]}, "zip": {"type": "integer"}},
            "required": ["city_name", "zip"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "role", "home"],
    "additionalProperties": False,
}
ANA = {"name": "Ana", "role": "users", "home": {"city_name": "Roma", "zip": 12}}
MERGES = ['{"', '":', '": ', '": "', '", "', '"}', '"}}', "name", "user", "users", "ho", "home"]
MERGES += ["city", "_name", "me", "Ro", "ma", "zip", ' "', "ole", '",', "}}", "12"]


class Knowing(ScriptedModel):
    """Knows a text by heart and writes it in the split of its own tokenizer."""

    def __init__(self, target: str, merges: Sequence[str] = MERGES, **options: Any) -> None:
        self.target = target.encode()
        tokens = [*BYTES, *dict.fromkeys(merge.encode() for merge in merges)]
        super().__init__(tokens, self._wants, **options)

    def _wants(self, tokens: list[int]) -> list[float]:
        done = b"".join(self.token_text(token) for token in tokens[len(PROMPT) :])
        rest = self.target[len(done) :] if self.target.startswith(done) else b""
        scores = [0.0] * self.vocab_size
        scores[self.split(rest[: self._longest])[0] if rest else self.eos] = 5.0
        return scores

    def split(self, text: bytes) -> list[int]:
        return self.tokenize(text, add_special=False, parse_special=False)

    def plan(self, grammar: Grammar, written: str = "") -> list[str]:
        """What is forced behind a text, as strings."""
        matcher, tokens = grammar.start(), self.split(written.encode())
        for token in tokens:
            matcher.advance(token)
        before = matcher.describe()
        planned = Splitter(self).plan(matcher, tokens)
        assert matcher.describe() == before, "the matcher stays where it was"
        return [self.token_text(token).decode() for token in planned]


def answer(
    model: Knowing, schema: object, *, forced: bool = True, **options: Any
) -> tuple[ListOutlet, list[TokenRecord]]:
    """Run one request over the target's schema; (its outlet, its tokens)."""
    grammar = compile_json_schema(schema, model.vocabulary, whitespace="fixed")  # type: ignore[arg-type]
    request = GenerationRequest(PROMPT, grammar=grammar, **{"sampling": GREEDY, **options})
    for seq in range(model.n_seq_max):
        model.kv_remove(seq, 0, -1)
    scheduler = Scheduler(model, n_batch=8, forced_runs=forced)
    outlet = queue(scheduler, model, request)
    run(scheduler)
    assert isinstance(outlet.last, Finished), outlet.last
    assert scheduler.counters.completion_tokens == outlet.finished.usage.completion_tokens
    return outlet, records_of(outlet.events)


def records_of(events: Sequence[object]) -> list[TokenRecord]:
    return [token for event in events if isinstance(event, TextPiece) for token in event.tokens]


def ids_of(records: list[TokenRecord]) -> list[int]:
    return [record.id for record in records]


# --- the same answer, sooner ------------------------------------------------------------------


def test_the_answer_is_the_same_with_fewer_steps() -> None:
    slow, fast = (Knowing(json.dumps(ANA), n_ctx=256) for _ in range(2))
    plain, all_sampled = answer(slow, PERSON, forced=False)
    outlet, records = answer(fast, PERSON)
    assert outlet.text == plain.text == json.dumps(ANA)
    assert ids_of(records) == ids_of(all_sampled) == fast.split(fast.target)
    assert outlet.finished.usage == plain.finished.usage
    assert not any(record.forced for record in all_sampled)
    timings = outlet.finished.timings
    assert timings.forced_tokens == sum(record.forced for record in records) > len(records) // 2
    assert timings.tokens == plain.finished.timings.tokens == len(records)
    assert plain.finished.timings.forced_tokens == 0
    assert len(fast.batches) == len(records) - timings.forced_tokens
    assert len(slow.batches) == len(records)


def test_nothing_is_evaluated_twice() -> None:
    model = Knowing(json.dumps(ANA), n_ctx=256)
    _, records = answer(model, PERSON)
    evaluated = [item.token for batch in model.batches for item in batch]
    # What is forced at the very end need not be evaluated at all.
    assert evaluated == [*PROMPT, *ids_of(records)][: len(evaluated)]
    assert [item.pos for batch in model.batches for item in batch] == list(range(len(evaluated)))


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.tuples(st.integers(0, 70), st.integers(2, 9)), max_size=25),
    name=st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8),
    role=st.sampled_from(["user", "users", "admin"]),
    city=st.sampled_from(["Rome", "Roma"]),
    code=st.integers(0, 10**6),
)
def test_forcing_changes_no_answer_of_a_canonical_model(
    cuts: list[tuple[int, int]], name: str, role: str, city: str, code: int
) -> None:
    """Whatever the vocabulary: tokens within and across the parts of the text."""
    value = {"name": name, "role": role, "home": {"city_name": city, "zip": code}}
    text = json.dumps(value, ensure_ascii=False)
    texts = (text, json.dumps(ANA))
    merges = [source[at : at + size] for source in texts for at, size in cuts]
    model = Knowing(text, [merge for merge in merges if len(merge.encode()) > 1], n_ctx=512)
    outlet, records = answer(model, PERSON)
    assert outlet.text == text
    assert ids_of(records) == model.split(text.encode())
    assert ids_of(answer(model, PERSON, forced=False)[1]) == ids_of(records)


def test_an_answer_that_is_forced_as_a_whole_needs_no_step() -> None:
    model = Knowing("")
    outlet, records = answer(model, {"const": {"name": ["home", None]}})
    assert outlet.text == '{"name": ["home", null]}'
    assert (outlet.finished.reason, len(model.batches)) == ("stop", 0)
    assert all(record.forced for record in records)


def test_a_sampled_token_that_the_tokenizer_would_not_use_stays() -> None:
    model = Knowing("")
    schema = {"const": {"name": True}}
    grammar = compile_json_schema(schema, model.vocabulary, whitespace="fixed")
    assert model.plan(grammar) == ['{"', "name", '": ', *"true", "}"]
    matcher = grammar.start()
    written = [ord("{")]
    matcher.advance(written[0])
    plan = Splitter(model).plan(matcher, written)
    assert [model.token_text(token) for token in plan] == [
        b'"',
        b"name",
        b'": ',
        b"t",
        b"r",
        b"u",
        b"e",
        b"}",
    ]


# --- the seam behind --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("merges", "values", "forced"),
    [
        ([], ["xy", "xz"], ['"']),  # x is a word that goes on
        ([], ["x-y", "x-z"], ['"', "x", "-"]),
        (["-y"], ["x-y", "x-z"], ['"', "x"]),  # -y is one token
        (["-yes"], ["x-y", "x-z"], ['"', "x", "-"]),  # no longer one: not legal here
        (['"x-y'], ["x-y", "x-z"], []),
        ([], ["a b", "a c"], ['"', "a"]),  # a space belongs to what follows
        ([], ["a?", "a!"], ['"', "a"]),
        ([], ["a?", "a?!"], ['"', "a"]),
        ([], ["\u00e9t", "\u00e8t"], ['"']),  # they share their first byte, half a character
    ],
)
def test_what_may_still_become_another_token_is_kept_back(
    merges: list[str], values: list[str], forced: list[str]
) -> None:
    model = Knowing("", merges)
    grammar = compile_json_schema({"enum": values}, model.vocabulary, whitespace="fixed")
    assert model.plan(grammar) == forced


def test_a_choice_is_never_forced() -> None:
    model = Knowing("")
    for schema in (True, {"type": "string"}, {"type": "integer"}, {"enum": [1, "a"]}):
        grammar = compile_json_schema(schema, model.vocabulary, whitespace="fixed")
        assert model.plan(grammar) == []
    grammar = compile_json_schema(True, model.vocabulary, whitespace="fixed")
    assert model.plan(grammar, "[1, 2]") == []


def test_a_tokenizer_that_puts_a_space_before_a_text() -> None:
    class Spaced(Knowing):
        def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
            spaced = b" " + text if text else text
            return super().tokenize(spaced, add_special=add_special, parse_special=parse_special)

    model = Spaced("")
    grammar = compile_json_schema({"const": {"name": True}}, model.vocabulary, whitespace="fixed")
    assert model.plan(grammar) == ['{"', "name", '": ', *"true", "}"]


# --- limits and options -------------------------------------------------------------------------


def test_max_tokens_and_the_context_cut_within_a_run() -> None:
    whole = Knowing(json.dumps(ANA)).split(json.dumps(ANA).encode())
    for most in range(1, len(whole) + 2):
        for options in ({"max_tokens": most}, {"n_ctx": most + len(PROMPT)}):
            n_ctx = options.pop("n_ctx", 256)
            outlets = []
            for forced in (True, False):
                model = Knowing(json.dumps(ANA), n_ctx=n_ctx)
                outlet, records = answer(model, PERSON, forced=forced, **options)
                assert ids_of(records) == whole[:most]
                outlets.append((outlet.text, outlet.finished.reason))
            assert outlets[0] == outlets[1]
            assert outlets[0][1] == ("length" if most < len(whole) else "stop")


@pytest.mark.parametrize("stop", ['", "ro', "ame", "}}", "{", "Roma"])
def test_stop_strings_end_within_a_run(stop: str) -> None:
    seen = []
    for forced in (True, False):
        model = Knowing(json.dumps(ANA), n_ctx=256)
        outlet, records = answer(model, PERSON, forced=forced, stop=(stop,))
        seen.append((outlet.text, ids_of(records), outlet.finished.stop_sequence))
    assert seen[0] == seen[1]
    assert seen[0][0] == json.dumps(ANA).split(stop)[0]
    assert seen[0][2] == stop


@pytest.mark.parametrize("most", [0, 3])
def test_log_probabilities_of_forced_tokens(most: int) -> None:
    _, records = answer(Knowing(json.dumps(ANA), n_ctx=256), PERSON, top_logprobs=most)
    for record in records:
        assert record.logprob is not None
        if record.forced:
            assert record.logprob == 0
            assert record.top == ((record.id, record.data, 0.0),)[:most]
        else:
            assert record.logprob < 0
            assert len(record.top) <= most
    assert {record.forced for record in records} == {True, False}


def test_penalties_count_forced_tokens() -> None:
    schema = {"type": "array", "prefixItems": [{"const": "x"}, {"enum": ["x", "y"]}], "minItems": 2}
    schema |= {"items": False, "maxItems": 2}
    texts = []
    for penalty in (0.0, 100.0):
        sampling = SamplingParams(temperature=0, presence_penalty=penalty)
        outlet, records = answer(Knowing('["x", "x"]', []), schema, sampling=sampling)
        assert records[2].forced
        texts.append(outlet.text)
    assert texts == ['["x", "x"]', '["x", "y"]']


@pytest.mark.parametrize("how", ["request", "trace", "engine"])
def test_switched_off(how: str) -> None:
    model = Knowing(json.dumps(ANA), n_ctx=256)
    options = {"request": {"forced_runs": False}, "trace": {"trace": True}}.get(how, {})
    outlet, records = answer(model, PERSON, forced=how != "engine", **options)
    assert outlet.finished.timings.forced_tokens == 0
    assert not any(record.forced for record in records)
    assert len(model.batches) >= len(records) - 1
    if how == "trace":
        assert all(record.diagnostics is not None for record in records)


def test_company_and_preemption_change_nothing() -> None:
    values = [{**ANA, "name": name, "role": role} for name in "ab" for role in ("user", "admin")]
    model = Knowing("", n_ctx=36, n_seq_max=3)
    grammar = compile_json_schema(PERSON, model.vocabulary, whitespace="fixed")
    targets = {code: json.dumps(value).encode() for code, value in enumerate(values)}

    def wants(tokens: list[int]) -> list[float]:
        model.target = targets[tokens[0]]
        return model._wants(tokens)

    model._script = wants
    scheduler = Scheduler(model, n_batch=6)
    outlets = [
        queue(scheduler, model, GenerationRequest((code,), sampling=GREEDY, grammar=grammar))
        for code in targets
    ]
    run(scheduler)
    assert [outlet.text for outlet in outlets] == [json.dumps(value) for value in values]
    assert scheduler.counters.preempted > 0
    assert all(len(batch) <= 6 for batch in model.batches)


# --- a real tokenizer, a real model -------------------------------------------------------------

ADDRESS = {
    "type": "object",
    "properties": {"street_and_number": {"type": "string", "maxLength": 30}, "city": {"enum": [
        "Lisbon", "Lissabon", "London", "New York", "Newcastle"]}},
    "required": ["street_and_number", "city"],
    "additionalProperties": False,
}  # fmt: skip


def record(**properties: object) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMAS: list[tuple[dict[str, object], object]] = [
    (PERSON, ANA),
    (record(answer={"type": "boolean"}), {"answer": True}),
    (record(sentiment={"enum": ["positive", "negative", "neutral"]}), {"sentiment": "neutral"}),
    (ADDRESS, {"street_and_number": "Rua Augusta 7", "city": "Lissabon"}),
    (
        record(shippingAddress=ADDRESS, giftWrapping={"type": "boolean"}),
        {
            "shippingAddress": {"street_and_number": "1 Quay St", "city": "Newcastle"},
            "giftWrapping": False,
        },
    ),
    (
        {"type": "array", "items": {"enum": ["alpha", "alphabet", "beta"]}, "maxItems": 4},
        ["alphabet", "alpha", "beta"],
    ),
    (record(values={"type": "array", "items": {"type": "integer"}, "maxItems": 3}),
     {"values": [1, -20, 300]}),
    (record(kind={"const": "temperature_measurement"}, celsius={"type": "number"}),
     {"kind": "temperature_measurement", "celsius": -12.5}),
    (
        {"anyOf": [record(kind={"const": "cat"}, lives={"type": "integer"}),
                   record(kind={"const": "caterpillar"}, legs={"type": "integer"})]},
        {"kind": "caterpillar", "legs": 16},
    ),
    (record(strasse={"enum": ["H\u00f6he", "H\u00f6lle", "\u65e5\u672c", "\u65e5\u66dc"]}),
     {"strasse": "\u65e5\u672c"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def llama(model_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(model_path, n_ctx=512, n_seq_max=2, n_batch=64, n_threads=1)
    yield model
    model.close()


@pytest.fixture(scope="module")
def engine(llama: LlamaModel) -> Iterator[LocalEngine]:
    engine = LocalEngine(llama, EngineDefaults(n_batch=64))
    yield engine
    engine.close()


@pytest.mark.model
@pytest.mark.parametrize("style", ["fixed", "compact", "pretty"])
def test_runs_are_what_the_tokenizer_makes_of_the_whole_text(llama: LlamaModel, style: str) -> None:
    """Behind every canonical beginning of a text, what is forced goes on with its split."""
    writing: dict[str, Any] = {"compact": {"separators": (",", ":")}, "pretty": {"indent": 2}}
    splitter, total = Splitter(llama), 0
    for schema, value in SCHEMAS:
        grammar = compile_json_schema(schema, llama.vocabulary, whitespace="adaptive")
        text = json.dumps(value, ensure_ascii=False, **writing.get(style, {}))
        tokens = llama.tokenize(text.encode(), add_special=False, parse_special=False)
        matcher = grammar.start()
        for at, token in enumerate(tokens):
            plan = splitter.plan(matcher, tokens[:at])
            assert plan == tokens[at : at + len(plan)]
            total += len(plan)
            matcher.advance(token)
        assert matcher.is_accepting()
    assert total > 100


@pytest.mark.model
@pytest.mark.slow
def test_the_real_model_answers_the_same(engine: LocalEngine) -> None:
    """Up to where the unforced model leaves the canonical split; forced parts never do so first."""
    agreed = forced_total = 0
    for schema, value in SCHEMAS:
        text = json.dumps(value, ensure_ascii=False) + "\n"
        prompt = tuple(engine.tokenize(text * 2))  # it goes on copying, also the split
        grammar = compile_json_schema(schema, engine.vocabulary, whitespace="fixed")
        answers = []
        for forced in (True, False):
            request = GenerationRequest(prompt, 28, GREEDY, (), grammar, forced_runs=forced)
            answers.append(records_of(list(engine.stream(request))))
        on, off = answers
        canonical = _canonical_prefix(engine, off)
        assert ids_of(on)[:canonical] == ids_of(off)[:canonical]
        agreed += canonical
        begin = _canonical_prefix(engine, on)
        assert begin == len(on) or not on[begin].forced, "a sampled token left the split first"
        forced_total += sum(record.forced for record in on)
    assert agreed > 80
    assert forced_total > 50


def _canonical_prefix(engine: LocalEngine, records: list[TokenRecord]) -> int:
    """How many tokens are as the tokenizer would split the whole text, from the beginning on."""
    ids = ids_of(records)
    split = engine.tokenize(b"".join(record.data for record in records).decode("utf-8", "ignore"))
    pairs = zip(ids, split, strict=False)
    return next((i for i, (left, right) in enumerate(pairs) if left != right), len(ids))
