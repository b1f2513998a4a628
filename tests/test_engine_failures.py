"""What goes wrong in a step: cancellations, failures, broken books. And that nothing leaks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.errors import BadLogitsError, DecodeError, IntegrityError
from server.engine.model import BatchItem
from server.engine.scheduler import Scheduler
from server.engine.types import Failed, Finished, SamplingParams
from tests.scripted_model import (
    EOS,
    LETTERS,
    FakeGrammar,
    ListOutlet,
    ScriptedModel,
    alone,
    hash_letter,
    make,
    queue,
    request,
    run,
)

# --- cancellation ---------------------------------------------------------------------------


def test_a_cancelled_sequence_is_gone_before_the_next_step() -> None:
    model, scheduler = make(hash_letter)
    outlet = queue(scheduler, model, request([0]))
    scheduler.step()
    scheduler.step()
    events = list(outlet.events)
    outlet.cancelled = True
    scheduler.step()
    assert not scheduler.busy
    assert outlet.events == events
    assert len(model.batches) == 2
    scheduler.check_integrity()


def test_cancelled_in_prefill_and_in_the_queue() -> None:
    model, scheduler = make(hash_letter, n_batch=4, n_seq_max=1)
    outlets = [queue(scheduler, model, request([n] * 10, max_tokens=1)) for n in (1, 2, 3)]
    scheduler.step()
    outlets[0].cancelled = outlets[1].cancelled = True
    run(scheduler)
    assert [len(outlet.events) for outlet in outlets] == [0, 0, 2]
    assert scheduler.counters.cancelled == 2


def test_cancelled_while_the_model_computes() -> None:
    model, scheduler = make(hash_letter)
    outlet = queue(scheduler, model, request([0]))

    def cancel(batch: Sequence[BatchItem]) -> None:
        outlet.cancelled = True

    model.before_decode = cancel
    scheduler.step()
    assert not outlet.events
    assert not scheduler.busy
    scheduler.check_integrity()


# --- failures -------------------------------------------------------------------------------


def test_a_failing_decode_fails_its_batch_and_the_engine_goes_on() -> None:
    model, scheduler = make(hash_letter)
    outlets = [queue(scheduler, model, request([n], max_tokens=5)) for n in (1, 2)]
    scheduler.step()

    def fail(batch: Sequence[BatchItem]) -> None:
        raise RuntimeError("out of order")

    model.before_decode = fail
    scheduler.step()
    assert [type(outlet.error) for outlet in outlets] == [DecodeError, DecodeError]
    assert scheduler.cells_used == 0
    scheduler.check_integrity()
    model.before_decode = lambda batch: None
    again = queue(scheduler, model, request([1], max_tokens=5))
    run(scheduler)
    assert again.ids == alone([1], max_tokens=5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_logits_fail_one_sequence(bad: float) -> None:
    def script(tokens: list[int]) -> list[float]:
        return [bad] * (EOS + 1) if tokens[0] == 5 and len(tokens) > 2 else hash_letter(tokens)

    model, scheduler = make(script)
    outlets = [queue(scheduler, model, request([n], max_tokens=6)) for n in (5, 6)]
    run(scheduler)
    assert isinstance(outlets[0].error, BadLogitsError)
    assert len(outlets[0].ids) == 2
    assert len(outlets[1].ids) == 6


def test_integrity_check_sees_a_cell_too_many() -> None:
    model, scheduler = make(hash_letter)
    queue(scheduler, model, request([1, 2], max_tokens=1))
    run(scheduler)
    model.cells[0].append(3)
    with pytest.raises(IntegrityError, match="slot 0: 3 cells, 2 known"):
        scheduler.check_integrity()


def test_integrity_check_sees_a_cell_that_nobody_owns() -> None:
    model, scheduler = make()
    queue(scheduler, model, request([0], max_tokens=3))
    run(scheduler)
    scheduler._table._cells._holders[999] = 1
    with pytest.raises(IntegrityError, match="owned and cells free"):
        scheduler.check_integrity()
    del scheduler._table._cells._holders[999]
    scheduler.check_integrity()
    scheduler._table._cells._holders[next(iter(scheduler._table._cells._holders))] += 1
    with pytest.raises(IntegrityError, match="owned and cells free"):
        scheduler.check_integrity()


def test_integrity_check_sees_foreign_tokens() -> None:
    model, scheduler = make(hash_letter)
    outlet = queue(scheduler, model, request([1, 2]))
    scheduler.step()
    assert isinstance(outlet, ListOutlet)
    scheduler.slots[0].tokens[0] = 9
    with pytest.raises(IntegrityError, match="another sequence"):
        scheduler.check_integrity()


# --- seeds ----------------------------------------------------------------------------------


def test_an_engine_seed_makes_unseeded_requests_repeatable_and_different() -> None:
    def answers(seed: int | None) -> list[list[int]]:
        model = ScriptedModel(LETTERS, lambda tokens: [0.0] * EOS + [-50.0], n_ctx=256)
        scheduler = Scheduler(model, n_batch=8, seed=seed)
        plain = SamplingParams()
        outlets = [
            queue(scheduler, model, request([1], max_tokens=30, sampling=plain)) for _ in range(3)
        ]
        run(scheduler)
        return [outlet.ids for outlet in outlets]

    seeded = answers(1)
    assert answers(1) == seeded
    assert answers(2) != seeded
    assert answers(None) != answers(None)
    assert len({tuple(ids) for ids in seeded}) == 3


# --- everything at once -----------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    actions=st.lists(
        st.one_of(
            st.tuples(st.just("submit"), st.integers(1, 20), st.integers(1, 15)),
            st.tuples(st.just("cancel"), st.integers(0, 9), st.just(0)),
            st.tuples(st.just("fail"), st.just(0), st.just(0)),
            st.tuples(st.just("stuck"), st.integers(1, 9), st.integers(0, 4)),
            st.tuples(st.just("step"), st.just(0), st.just(0)),
        ),
        max_size=40,
    ),
    n_ctx=st.integers(24, 60),
)
def test_nothing_leaks_whatever_happens(actions: list[tuple[str, int, int]], n_ctx: int) -> None:
    """Random requests, cancellations and failures: every slot comes back, every request ends."""
    model, scheduler = make(hash_letter, 5, n_seq_max=3, n_ctx=n_ctx)
    outlets: list[ListOutlet] = []

    def fail_once(batch: Sequence[BatchItem]) -> None:
        model.before_decode = lambda batch: None
        raise DecodeError("once")

    for action, first, second in actions:
        if action == "submit":
            prompt = [(first * i) % 10 for i in range(first)]
            outlets.append(queue(scheduler, model, request(prompt, max_tokens=second)))
        elif action == "stuck":
            grammar = FakeGrammar(EOS + 1, lambda done, most=second: [1] * (len(done) < most))
            stuck = request([first], grammar=grammar.typed())
            outlets.append(queue(scheduler, model, stuck))
        elif action == "cancel" and outlets:
            outlets[first % len(outlets)].cancelled = True
        elif action == "fail":
            model.before_decode = fail_once
        else:
            scheduler.step()
        scheduler.check_integrity()
    run(scheduler)
    assert not scheduler.busy
    for outlet in outlets:
        ends = [event for event in outlet.events if isinstance(event, Finished | Failed)]
        assert len(ends) == 1 or (outlet.cancelled and not ends)
    counters = scheduler.counters
    assert counters.finished + counters.failed + counters.cancelled == len(outlets)
