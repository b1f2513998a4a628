"""A matcher or a model that fails in the middle of a step: what was legal before it is delivered,
then the fault is reported, and the slot is free."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from grammar import Matcher, StepBudgetError, compile_json_schema
from server.engine.engine import LocalEngine
from server.engine.errors import BadLogitsError, DecodeError, EngineClosedError
from server.engine.model import BatchItem
from server.engine.scheduler import Scheduler
from server.engine.types import EngineDefaults, Failed, TextPiece
from tests.api_support import client_of, events_of
from tests.scripted_model import (
    EOS,
    LETTERS,
    FakeGrammar,
    FakeMatcher,
    ListOutlet,
    ScriptedModel,
    make,
    queue,
    request,
    run,
)
from tests.test_api_closing import app_over, body
from tests.test_engine_closing import TOKENS, prefers

FAULT = StepBudgetError(100_000, "inside a string")


def forcing(texts: Sequence[Sequence[int]]) -> Callable[[list[int]], list[int]]:
    """Legal are one choice and then runs of single tokens; after them all, nothing works."""

    def legal(done: list[int]) -> list[int]:
        left = len(done)
        for text in texts:
            if left < len(text):
                return [text[left]] if left else sorted({text[0], 9})
            left -= len(text)
        raise FAULT

    return legal


def flat(tokens: list[int]) -> list[float]:
    """Wants nothing in particular: the lowest legal token is taken."""
    return [0.0] * (EOS + 1)


def outcome(legal: Any, script: Any = flat, **options: Any) -> Any:
    """Run a request beside another one that must go on."""
    model, scheduler = make(script, n_seq_max=2, n_ctx=200)
    grammar = legal if isinstance(legal, FakeGrammar) else FakeGrammar(EOS + 1, legal)
    outlet = queue(scheduler, model, request([0], grammar=grammar.typed(), **options))
    other = queue(scheduler, model, request([1], max_tokens=12))
    run(scheduler)
    assert len(other.ids) == 12, "the other one goes on"
    assert not scheduler.busy
    assert (scheduler.counters.failed, scheduler.counters.finished) == (1, 1)
    assert scheduler.counters.completion_tokens == 12 + len(outlet.ids)
    return outlet


def test_a_run_at_the_beginning_is_not_lost() -> None:
    outlet = outcome(lambda done: forcing([[3] * 5])([9, *done][1:]) if done else [3])
    assert outlet.text == "ddddd"
    assert outlet.error is FAULT


def test_a_run_after_a_sampled_token_is_not_lost() -> None:
    outlet = outcome(forcing([[2, 4, 4, 4], [1, 5, 6]]))
    assert outlet.text == "ceeebfg"
    assert outlet.error is FAULT
    assert [type(event) for event in outlet.events] == [TextPiece] * 7 + [Failed]


def test_a_token_that_cannot_be_advanced_was_legal_nevertheless() -> None:
    class Stubborn(FakeMatcher):
        def advance(self, token: int) -> None:
            if len(self.advanced) == 2:
                raise FAULT
            super().advance(token)

    class Grammar(FakeGrammar):
        def start(self) -> FakeMatcher:
            return Stubborn(EOS + 1, lambda done: [3], 99)

    outlet = outcome(Grammar(EOS + 1, lambda done: []))
    assert outlet.text == "ddd"
    assert outlet.error is FAULT


def test_text_that_may_begin_a_stop_string_is_given_out_before_the_fault() -> None:
    outlet = outcome(forcing([[2, 4, 4]]), stop=("eez",))
    assert outlet.text == "cee"
    assert outlet.error is FAULT


def test_what_was_held_back_is_given_out_when_the_model_fails() -> None:
    def script(tokens: list[int]) -> list[float]:
        bad = tokens[0] == 0 and len(tokens) == 3
        return [math.nan] * (EOS + 1) if bad else flat(tokens)

    outlet = outcome(lambda done: [4, 5], script, stop=("eeee",))
    assert outlet.text == "ee"
    assert isinstance(outlet.error, BadLogitsError)


def test_what_was_held_back_is_given_out_when_a_decode_fails_or_the_engine_closes() -> None:
    model, scheduler = make(flat, n_ctx=200)
    grammar = FakeGrammar(EOS + 1, lambda done: [4])
    held = {"grammar": grammar.typed(), "stop": ("e" * 99,), "forced_runs": False}
    outlet = queue(scheduler, model, request([0], **held))
    for _ in range(3):
        scheduler.step()
    assert outlet.events == []

    def fail(batch: Sequence[BatchItem]) -> None:
        raise DecodeError("out of order")

    model.before_decode = fail
    scheduler.step()
    assert outlet.text == "eee"
    assert isinstance(outlet.error, DecodeError)
    model.before_decode = lambda batch: None
    running, waiting = (queue(scheduler, model, request([n], **held)) for n in (0, 1))
    for _ in range(4):
        scheduler.step()
    assert (running.events, waiting.events) == ([], [])
    closed = EngineClosedError("closed")
    scheduler.fail_all(closed)
    assert (running.text, waiting.text) == ("eeee", "eeee")
    assert (running.error, waiting.error) == (closed, closed)


def test_bad_logits_behind_a_forced_token_fail_one_sequence() -> None:
    """Diagnostics want the logits of forced tokens, too."""
    model = ScriptedModel(TOKENS, prefers("abc"), n_ctx=300)
    wanted = model._script

    def script(tokens: list[int]) -> Any:
        wild = tokens[0] == 65 and len(tokens) == 3
        return [math.nan] * model.vocab_size if wild else wanted(tokens)

    model._script = script
    schema = {"type": "array", "items": {"enum": ["abcabc"]}, "minItems": 2, "maxItems": 2}
    grammar = compile_json_schema(schema, model.vocabulary, whitespace="compact")
    scheduler = Scheduler(model, n_batch=8)
    outlet = queue(scheduler, model, request([65], grammar=grammar, diagnostics=True))
    other = queue(scheduler, model, request([66], grammar=grammar, diagnostics=True))
    run(scheduler)
    assert isinstance(outlet.error, BadLogitsError)
    assert '["abcabc","abcabc"]'.startswith(outlet.text)
    assert len(outlet.text) > 2
    assert other.text == '["abcabc","abcabc"]'
    assert other.finished.reason == "stop"


def test_every_fault_of_an_engine_leaves_its_slot_free() -> None:
    model = ScriptedModel(LETTERS, flat, n_ctx=200, n_seq_max=2)
    engine = LocalEngine(model, EngineDefaults(n_batch=8))
    for _ in range(5):
        grammar = FakeGrammar(EOS + 1, forcing([[2, 4, 4, 4]]), vocabulary=model.vocabulary)
        found = list(engine.stream(request([0], grammar=grammar.typed())))
        assert "".join(event.text for event in found if isinstance(event, TextPiece)) == "ceee"
        assert isinstance(found[-1], Failed)
    stats = engine.stats()
    assert (stats.slots_used, stats.failed, stats.finished) == (0, 5, 0)
    engine.check_integrity()
    engine.close()


@pytest.mark.parametrize("count", [1, 3, 5])
async def test_a_stream_is_complete_up_to_the_fault(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Over HTTP, with a real grammar: planning a forced run fails in the middle of a step."""
    schema = {"type": "array", "items": {"enum": ["abc", "q"]}, "minItems": 3, "maxItems": 3}
    planned: list[int] = []
    forced_bytes = Matcher.forced_bytes

    def failing(self: Matcher) -> bytes:
        planned.append(len(self._path) - 1)
        if len(planned) == count:
            raise FAULT
        return forced_bytes(self)

    app = app_over(prefers('["', "abc", '", "', '"]'))
    async with client_of(app) as client:
        asked = body(schema, logprobs=1)
        whole = (await client.post("/v1/completions", json=asked)).json()["choices"][0]
        monkeypatch.setattr(Matcher, "forced_bytes", failing)
        response = await client.post("/v1/completions", json={**asked, "stream": True})
        monkeypatch.undo()
        chunks = [event.data for event in events_of(response.text) if event.data != "[DONE]"]
        said = [chunk["choices"][0] for chunk in chunks if chunk.get("choices")]
        errors = [chunk["error"] for chunk in chunks if "error" in chunk]
        health = (await client.get("/health")).json()
        after = (await client.post("/v1/completions", json=asked)).json()["choices"][0]
    app.state.runtime.close()
    assert [error["code"] for error in errors] == ["step_too_costly"]
    tokens = [token for each in said if each["logprobs"] for token in each["logprobs"]["tokens"]]
    assert tokens == whole["logprobs"]["tokens"][: planned[-1]]
    assert "".join(each["text"] for each in said) == "".join(tokens)
    assert bool(tokens) == (count > 1)
    assert health["engine"]["slots_used"] == 0
    assert after["text"] == whole["text"]


def test_outlets_get_nothing_after_the_end() -> None:
    outlet: ListOutlet = outcome(forcing([[2, 4, 4, 4]]))
    assert sum(isinstance(event, Failed) for event in outlet.events) == 1
    assert isinstance(outlet.last, Failed)
