"""Masks made while the model computes: the same answers, faults in their place, no loose ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from grammar import NoLegalContinuation, StepBudgetError, compile_json_schema
from server.engine import engine as engine_module
from server.engine.beside import MaskHelper, PendingMask
from server.engine.engine import LocalEngine
from server.engine.errors import EngineClosedError
from server.engine.model import BatchItem
from server.engine.scheduler import Scheduler
from server.engine.types import EngineDefaults, Failed, Finished, SamplingParams, TextPiece
from tests.scripted_model import (
    EOS,
    LETTERS,
    FakeGrammar,
    FakeMatcher,
    ListOutlet,
    ScriptedModel,
    alone,
    hash_letter,
    queue,
    request,
    run,
)
from tests.test_engine_closing import SCHEMAS, TOKENS, rambling

LEGAL = [3, 4, 5]


class SlowMatcher(FakeMatcher):
    """Its masks are never known beforehand; `make` is called with the tokens so far for each."""

    make: Callable[[list[int]], None]

    def __init__(self, vocab_size: int, legal: Callable[[list[int]], Iterable[int]]) -> None:
        super().__init__(vocab_size, legal, 100)
        self._made: dict[tuple[int, ...], NDArray[np.uint32]] = {}
        self.made_by: list[str] = []

    @property
    def knows_mask(self) -> bool:  # type: ignore[override]
        return tuple(self.advanced) in self._made

    def has_choice(self) -> bool:
        return len(self._legal(self.advanced)) > 1  # type: ignore[arg-type]

    def mask(self) -> NDArray[np.uint32]:
        place = tuple(self.advanced)
        if place not in self._made:
            self.made_by.append(threading.current_thread().name)
            self.make(list(place))
            self._made[place] = super().mask()
        return self._made[place]


class SlowGrammar(FakeGrammar):
    """Starts `SlowMatcher`s."""

    def __init__(
        self,
        make: Callable[[list[int]], None],
        legal: Callable[[list[int]], Iterable[int]] = lambda done: LEGAL,
    ) -> None:
        super().__init__(EOS + 1, legal)
        self._make = make

    def start(self) -> FakeMatcher:
        matcher = SlowMatcher(self._size, self._legal)
        matcher.make = self._make
        self.started.append(matcher)
        return matcher


def made(**options: Any) -> tuple[ScriptedModel, Scheduler]:
    model = ScriptedModel(LETTERS, hash_letter, n_ctx=256, **options)
    return model, Scheduler(model, n_batch=8, masks_beside=True)


def events(outlet: ListOutlet) -> list[object]:
    """What came out, without the times."""
    return [
        (event.reason, event.usage, event.steered, event.is_complete, event.diagnostics)
        if isinstance(event, Finished)
        else event
        for event in outlet.events
    ]


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_answers_are_the_same_with_and_without(name: str) -> None:
    def answers(*, beside: bool) -> list[list[object]]:
        model = ScriptedModel(TOKENS, rambling, n_ctx=400, n_seq_max=3)
        scheduler = Scheduler(model, n_batch=8, masks_beside=beside)
        outlets = [
            queue(scheduler, model, request([65 + number], grammar=grammar, **options))
            for number, options in enumerate(
                (
                    {"max_tokens": 40},
                    {"max_tokens": 60, "closes": True, "diagnostics": True},
                    {"max_tokens": 30, "sampling": SamplingParams(seed=4), "trace": True},
                    {"max_tokens": 30, "top_logprobs": 2, "raw_logprobs": True},
                )
            )
            for grammar in [compile_json_schema(SCHEMAS[name], model.vocabulary)]  # a new one each
        ]
        run(scheduler)
        scheduler.close()
        return [events(outlet) for outlet in outlets]

    assert answers(beside=True) == answers(beside=False)


def test_masks_are_made_while_the_model_computes() -> None:
    model, scheduler = made()
    grammar = SlowGrammar(lambda done: None)
    outlet = queue(scheduler, model, request([0], grammar=grammar.typed(), max_tokens=5))
    seen = []

    def wait(batch: Sequence[BatchItem]) -> None:
        deadline = time.monotonic() + 10
        while not grammar.started[0].knows_mask and time.monotonic() < deadline:
            time.sleep(0.001)
        seen.append(grammar.started[0].knows_mask)

    model.before_decode = wait
    run(scheduler)
    scheduler.close()
    assert seen == [True] * 5
    matcher = grammar.started[0]
    assert isinstance(matcher, SlowMatcher)
    assert matcher.made_by == ["gabarito-masks"] * 5
    assert set(outlet.ids) <= set(LEGAL)


def test_what_the_helper_has_begun_is_waited_for_and_the_rest_is_taken_back() -> None:
    model, scheduler = made(n_seq_max=3)
    begun, may_end = threading.Event(), threading.Event()

    def make(done: list[int]) -> None:
        if threading.current_thread().name == "gabarito-masks":
            begun.set()
            may_end.wait(10)

    grammars = [SlowGrammar(make) for _ in range(3)]
    outlets = [
        queue(scheduler, model, request([n], grammar=grammar.typed(), max_tokens=1))
        for n, grammar in enumerate(grammars)
    ]

    def decode(batch: Sequence[BatchItem]) -> None:
        assert begun.wait(10)
        threading.Timer(0.05, may_end.set).start()

    model.before_decode = decode
    scheduler.step()
    scheduler.close()
    by = [matcher.made_by for grammar in grammars for matcher in grammar.started]  # type: ignore[attr-defined]
    here = threading.current_thread().name
    assert by == [["gabarito-masks"], [here], [here]]
    assert [len(outlet.ids) for outlet in outlets] == [1, 1, 1]
    assert all(outlet.finished for outlet in outlets)


def test_what_is_known_is_not_handed_over() -> None:
    model, scheduler = made()
    free = queue(scheduler, model, request([0], max_tokens=5))
    known = FakeGrammar(EOS + 1, lambda done: LEGAL)
    strict = queue(scheduler, model, request([0], grammar=known.typed(), max_tokens=5))
    run(scheduler)
    assert len(free.ids) == len(strict.ids) == 5
    assert "gabarito-masks" not in {thread.name for thread in threading.enumerate()}


def test_a_warm_grammar_is_not_handed_over() -> None:
    model = ScriptedModel(TOKENS, rambling, n_ctx=400)
    grammar = compile_json_schema(SCHEMAS["nested"], model.vocabulary)
    for number in range(2):
        scheduler = Scheduler(model, n_batch=8, masks_beside=True)
        queue(scheduler, model, request([65], grammar=grammar, max_tokens=50))
        scheduler.reset_cache()
        run(scheduler)
        helper = scheduler._helper
        assert helper is not None
        assert (helper._thread is None) == (number == 1)
        scheduler.reset_cache()
        scheduler.close()


@pytest.mark.parametrize(
    "fault", [StepBudgetError(100_000, "inside a string"), NoLegalContinuation("nowhere")]
)
def test_a_fault_is_its_sequences_and_the_helper_goes_on(fault: Exception) -> None:
    model, scheduler = made(n_seq_max=2)
    calls = []

    def make(done: list[int]) -> None:
        calls.append(done)
        if len(done) == 2:
            raise fault

    def wait(batch: Sequence[BatchItem]) -> None:
        deadline = time.monotonic() + 10
        helper = scheduler._helper
        assert helper is not None
        while (helper._due or helper._is_making) and time.monotonic() < deadline:
            time.sleep(0.001)

    model.before_decode = wait
    broken, sound = SlowGrammar(make), SlowGrammar(lambda done: None)
    outlet = queue(scheduler, model, request([0], grammar=broken.typed(), max_tokens=9))
    other = queue(scheduler, model, request([1], grammar=sound.typed(), max_tokens=9))
    run(scheduler)
    assert outlet.error is fault
    assert len(outlet.ids) == 2, "everything before the fault was delivered"
    assert len(calls) == 3, "what failed is not tried again"
    assert len(other.ids) == 9
    assert set(sound.started[0].made_by) == {"gabarito-masks"}  # type: ignore[attr-defined]
    assert scheduler.counters.failed == 1
    scheduler.close()
    scheduler.check_integrity()


def test_cancelling_and_failing_while_a_mask_is_made() -> None:
    model, scheduler = made(n_seq_max=2)
    grammars = [SlowGrammar(lambda done: time.sleep(0.02)) for _ in range(2)]
    outlets = [
        queue(scheduler, model, request([n], grammar=grammar.typed(), max_tokens=9))
        for n, grammar in enumerate(grammars)
    ]
    scheduler.step()

    def cancel(batch: Sequence[BatchItem]) -> None:
        outlets[0].cancelled = True

    model.before_decode = cancel
    scheduler.step()
    assert [slot.sequence is not None for slot in scheduler.slots] == [False, True]
    scheduler.check_integrity()

    def fail(batch: Sequence[BatchItem]) -> None:
        raise RuntimeError("out of order")

    model.before_decode = fail
    scheduler.step()
    assert isinstance(outlets[1].last, Failed)
    assert len(outlets[1].ids) == 2
    assert not scheduler.busy
    helper = scheduler._helper
    assert helper is not None
    assert not helper._due
    assert not helper._is_making
    scheduler.close()


def test_preempted_while_masks_are_put_off() -> None:
    """A sequence that loses its cells goes on as if nothing had happened."""
    model = ScriptedModel(LETTERS, hash_letter, n_ctx=24, n_seq_max=2)
    scheduler = Scheduler(model, n_batch=8, masks_beside=True)
    outlets = [
        queue(
            scheduler,
            model,
            request([n] * 4, grammar=SlowGrammar(lambda done: None).typed(), max_tokens=16),
        )
        for n in (1, 2)
    ]
    run(scheduler)
    scheduler.close()
    assert scheduler.counters.preempted
    for n, outlet in zip((1, 2), outlets, strict=True):
        plain = FakeGrammar(EOS + 1, lambda done: LEGAL)
        assert outlet.ids == alone([n] * 4, max_tokens=16, grammar=plain.typed())


def test_a_closed_helper_helps_no_more_and_its_thread_is_gone() -> None:
    helper = MaskHelper()
    matcher = SlowMatcher(EOS + 1, lambda done: LEGAL)
    matcher.make = lambda done: None
    helper.ask([PendingMask(matcher)])  # type: ignore[arg-type]
    helper.settle()
    helper.close()
    assert "gabarito-masks" not in {thread.name for thread in threading.enumerate()}
    helper.ask([PendingMask(matcher)])  # type: ignore[arg-type]
    helper.settle()
    helper.close()


def test_closing_the_engine_in_the_middle() -> None:
    model = ScriptedModel(LETTERS, hash_letter, n_ctx=4000)
    model.before_decode = lambda batch: time.sleep(0.01)
    engine = LocalEngine(model, EngineDefaults(n_batch=8, masks_beside_decode=True))
    grammar = SlowGrammar(lambda done: time.sleep(0.01))
    grammar.vocabulary = model.vocabulary
    generation = engine.stream(request([5], grammar=grammar.typed()))
    first = next(iter(generation))
    assert isinstance(first, TextPiece)
    engine.close()
    last = list(generation)[-1]
    assert isinstance(last, Failed)
    assert isinstance(last.error, EngineClosedError)
    assert not {"gabarito-masks", "gabarito-engine"} & {t.name for t in threading.enumerate()}


@pytest.mark.parametrize(
    ("setting", "cpus", "helps"),
    [("auto", 2, True), ("auto", 1, False), (True, 1, True), (False, 2, False)],
)
def test_when_there_is_a_helper(
    monkeypatch: pytest.MonkeyPatch, setting: Any, cpus: int, helps: bool
) -> None:
    monkeypatch.setattr(engine_module, "allowed_cpus", lambda: cpus)
    model = ScriptedModel(LETTERS, hash_letter)  # computes on one thread
    engine = LocalEngine(model, EngineDefaults(n_batch=8, masks_beside_decode=setting))
    assert (engine._scheduler._helper is not None) == helps
    engine.close()
