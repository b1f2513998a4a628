"""The step: endings, grammars, batches, slots, prefixes. One thread, scripted models."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import NoLegalContinuation, StepBudgetError
from server.engine.scheduler import Scheduler
from server.engine.sequence import REREAD
from server.engine.types import SamplingParams, TextPiece
from tests.scripted_model import (
    EOS,
    GREEDY,
    LETTERS,
    FakeGrammar,
    ScriptedModel,
    alone,
    hash_letter,
    make,
    next_letter,
    queue,
    request,
    run,
)

# --- one sequence ---------------------------------------------------------------------------


def test_until_the_end_token() -> None:
    model, scheduler = make()
    outlet = queue(scheduler, model, request([0]))
    run(scheduler)
    assert outlet.text == "bcdefghij"
    assert outlet.finished.reason == "stop"
    assert outlet.finished.stop_sequence is None
    usage = outlet.finished.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens) == (1, 9, 0)
    assert outlet.finished.timings.tokens == 10
    assert sum(isinstance(event, TextPiece) for event in outlet.events) == 9


def test_until_max_tokens() -> None:
    model, scheduler = make()
    outlet = queue(scheduler, model, request([0], max_tokens=3))
    run(scheduler)
    assert (outlet.text, outlet.finished.reason) == ("bcd", "length")
    assert len(model.batches) == 3, "no step after the last token"


def test_until_a_stop_string() -> None:
    model, scheduler = make()
    outlet = queue(scheduler, model, request([0], stop=("zz", "ef")))
    run(scheduler)
    assert (outlet.text, outlet.finished.reason) == ("bcd", "stop")
    assert outlet.finished.stop_sequence == "ef"


def test_until_the_context_ends() -> None:
    model, scheduler = make(hash_letter, n_ctx=12)
    outlet = queue(scheduler, model, request([0, 1]))
    run(scheduler)
    assert outlet.finished.reason == "length"
    assert outlet.finished.usage.completion_tokens == 10


def test_a_long_prompt_is_evaluated_in_chunks() -> None:
    model, scheduler = make(n_batch=4)
    outlet = queue(scheduler, model, request([1, 2, 3, 4, 5, 6, 0, 1, 0, 6], max_tokens=2))
    run(scheduler)
    assert outlet.text == "hi"
    assert [len(batch) for batch in model.batches] == [4, 4, 2, 1]
    wanted = [[item.logits for item in batch] for batch in model.batches]
    assert wanted == [[False] * 4, [False] * 4, [False, True], [True]]


def test_special_tokens_are_given_out_as_text_but_the_end_token_is_not() -> None:
    model = ScriptedModel(LETTERS, next_letter, special={3: "<think>"})
    scheduler = Scheduler(model, n_batch=4)
    outlet = queue(scheduler, model, request([0], trace=True))
    run(scheduler)
    assert outlet.text == "bc<think>efghij"
    assert outlet.ids == [*range(1, 10), EOS], "a trace has the end token, too"


def test_traces_and_logprobs_come_with_the_tokens() -> None:
    model, scheduler = make()
    outlet = queue(scheduler, model, request([0], max_tokens=1, trace=True, top_logprobs=2))
    run(scheduler)
    piece = outlet.events[0]
    assert isinstance(piece, TextPiece)
    record = piece.tokens[0]
    total = math.log(math.exp(5) + 10)
    assert record.logprob == pytest.approx(5 - total)
    assert record.top == ((1, b"b", pytest.approx(5 - total)), (0, b"a", pytest.approx(-total)))
    assert record.diagnostics is not None
    assert record.diagnostics.legal_count == EOS + 1


# --- grammars -------------------------------------------------------------------------------


def test_only_legal_tokens_and_the_matcher_follows_them() -> None:
    model, scheduler = make()
    grammar = FakeGrammar(EOS + 1, lambda done: [7, 8] if len(done) < 3 else [EOS])
    outlet = queue(scheduler, model, request([0], grammar=grammar.typed(), trace=True))
    run(scheduler)
    assert outlet.ids == [7, 8, 7]
    assert grammar.started[0].advanced == outlet.ids
    assert outlet.finished.reason == "stop"
    assert len(model.batches) == 3, "where only the end is legal, nothing is evaluated any more"
    records = [t for e in outlet.events if isinstance(e, TextPiece) for t in e.tokens]
    assert [t.diagnostics.overruled for t in records if t.diagnostics] == [True, False, True]


def test_a_grammar_that_allows_only_the_end_needs_no_step() -> None:
    model, scheduler = make()
    grammar = FakeGrammar(EOS + 1, lambda done: [EOS])
    outlet = queue(scheduler, model, request([0], grammar=grammar.typed()))
    run(scheduler)
    assert outlet.events == [outlet.finished]
    assert outlet.finished.reason == "stop"
    assert not model.batches


@pytest.mark.parametrize("few", [0, 100])
@pytest.mark.parametrize(
    "sampling", [GREEDY, SamplingParams(seed=3), SamplingParams(seed=3, top_p=0.8, top_k=4)]
)
def test_a_grammar_that_allows_everything_changes_nothing(
    few: int, sampling: SamplingParams
) -> None:
    grammar = FakeGrammar(EOS + 1, lambda done: range(EOS + 1), few=few)
    free = alone([1, 2], sampling=sampling, max_tokens=40)
    assert alone([1, 2], sampling=sampling, max_tokens=40, grammar=grammar.typed()) == free
    assert len(free) == 40


def test_a_mask_that_costs_too_much_fails_its_sequence_alone() -> None:
    def legal(done: list[int]) -> list[int]:
        if len(done) == 2:
            raise StepBudgetError(100_000, "inside a string")
        return [3, 4]

    model, scheduler = make(n_seq_max=2)
    outlet = queue(scheduler, model, request([0], grammar=FakeGrammar(EOS + 1, legal).typed()))
    other = queue(scheduler, model, request([0]))
    run(scheduler)
    assert isinstance(outlet.error, StepBudgetError)
    assert len(outlet.ids) == 2, "what was written before it"
    assert other.text == "bcdefghij", "the other one goes on"


def test_nothing_legal_fails_the_sequence_and_frees_its_slot() -> None:
    model, scheduler = make(n_seq_max=2)
    stuck = FakeGrammar(EOS + 1, lambda done: [3] if len(done) < 2 else [])
    outlet = queue(scheduler, model, request([0], grammar=stuck.typed()))
    other = queue(scheduler, model, request([0]))
    run(scheduler)
    assert isinstance(outlet.error, NoLegalContinuation)
    assert outlet.error.state == "after [3, 3]"
    assert outlet.ids == [3, 3]
    assert other.text == "bcdefghij", "the other one goes on"
    assert not scheduler.busy
    assert (scheduler.counters.failed, scheduler.counters.finished) == (1, 1)


def test_a_grammar_that_cannot_start_fails_its_request_alone() -> None:
    class Broken(FakeGrammar):
        def start(self) -> None:  # type: ignore[override]
            raise RuntimeError("cannot start")

    model, scheduler = make()
    outlet = queue(scheduler, model, request([0], grammar=Broken(1, lambda done: []).typed()))
    other = queue(scheduler, model, request([0], max_tokens=1))
    run(scheduler)
    assert str(outlet.error) == "cannot start"
    assert other.text == "b"


# --- many sequences -------------------------------------------------------------------------


def test_sequences_share_every_batch() -> None:
    model, scheduler = make(n_seq_max=3)
    outlets = [queue(scheduler, model, request([start])) for start in (0, 2, 4)]
    run(scheduler)
    assert [outlet.text for outlet in outlets] == ["bcdefghij", "defghij", "fghij"]
    assert [len(batch) for batch in model.batches] == [3] * 6 + [2] * 2 + [1] * 2


def test_a_long_prompt_does_not_stall_the_others() -> None:
    model, scheduler = make(hash_letter, n_batch=4)
    first = queue(scheduler, model, request([0], max_tokens=6))
    scheduler.step()
    queue(scheduler, model, request([1] * 12, max_tokens=1))
    for _ in range(4):
        before = len(first.ids)
        scheduler.step()
        assert len(first.ids) == before + 1
        assert len(model.batches[-1]) == 4


def test_first_come_first_served() -> None:
    model, scheduler = make(n_seq_max=1)
    starts = [7, 3, 6, 5]
    outlets = [queue(scheduler, model, request([start])) for start in starts]
    run(scheduler)
    assert [outlet.text for outlet in outlets] == ["ij", "efghij", "hij", "ghij"]
    first_tokens = [item.token for batch in model.batches for item in batch if item.pos == 0]
    assert first_tokens == starts


@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=14), min_size=1, max_size=7),
    n_seq_max=st.integers(1, 4),
    n_batch=st.integers(4, 9),
    n_ctx=st.integers(32, 60),
    forgets_parts=st.booleans(),
)
def test_company_changes_no_answer(
    prompts: list[list[int]], n_seq_max: int, n_batch: int, n_ctx: int, forgets_parts: bool
) -> None:
    """Whatever shares the batch, the cache or the cells, everybody gets what it gets alone."""
    model, scheduler = make(
        hash_letter, n_batch, n_seq_max=n_seq_max, n_ctx=n_ctx, forgets_parts=forgets_parts
    )
    sampling = SamplingParams(seed=4, temperature=2.0)
    options = {"sampling": sampling, "max_tokens": 12}
    outlets = [queue(scheduler, model, request(prompt, **options)) for prompt in prompts]
    run(scheduler)
    for prompt, outlet in zip(prompts, outlets, strict=True):
        assert outlet.ids == alone(prompt, **options)
        assert len(outlet.ids) == 12
    assert all(len(batch) <= n_batch for batch in model.batches)
    assert scheduler.counters.finished == len(prompts)


def test_the_youngest_is_preempted_and_goes_on_where_it_was() -> None:
    model, scheduler = make(hash_letter, n_ctx=24, n_seq_max=2)
    prompts = [[1, 2, 3], [4, 5, 6]]
    options = {"max_tokens": 15, "sampling": SamplingParams(seed=8)}
    outlets = [queue(scheduler, model, request(prompt, **options)) for prompt in prompts]
    run(scheduler)
    assert scheduler.counters.preempted == 1
    assert [outlet.ids for outlet in outlets] == [alone(prompt, **options) for prompt in prompts]
    assert [outlet.finished.usage.prompt_tokens for outlet in outlets] == [3, 3]


def test_a_request_waits_until_its_prompt_fits() -> None:
    model, scheduler = make(hash_letter, n_ctx=24, n_seq_max=2)
    first = queue(scheduler, model, request([1] * 12, max_tokens=5))
    second = queue(scheduler, model, request([2] * 12, max_tokens=5))
    scheduler.step()
    scheduler.step()
    assert len(scheduler.busy) == 1
    run(scheduler)
    assert scheduler.counters.preempted == 0
    assert (len(first.ids), len(second.ids)) == (5, 5)


# --- prefix reuse ---------------------------------------------------------------------------


def test_the_common_beginning_is_not_evaluated_again() -> None:
    model, scheduler = make(hash_letter)
    first = queue(scheduler, model, request([1, 2, 3, 4], max_tokens=3))
    run(scheduler)
    history = [1, 2, 3, 4, *first.ids[:2], 9]
    model.batches.clear()
    second = queue(scheduler, model, request(history, max_tokens=3))
    run(scheduler)
    assert second.finished.usage.cached_tokens == 7 - REREAD
    assert sum(map(len, model.batches)) == REREAD + 2
    assert second.ids == alone(history, max_tokens=3)


def test_the_last_prompt_tokens_are_always_evaluated() -> None:
    model, scheduler = make(hash_letter)
    for expected in (0, 4 - REREAD):
        outlet = queue(scheduler, model, request([1, 2, 3, 4], max_tokens=2))
        run(scheduler)
        assert outlet.finished.usage.cached_tokens == expected
        assert outlet.ids == alone([1, 2, 3, 4], max_tokens=2)


def test_the_slot_that_matches_best_is_used_then_an_empty_one_then_the_oldest() -> None:
    model, scheduler = make(hash_letter, n_seq_max=3)

    def used(prompt: list[int]) -> int:
        queue(scheduler, model, request(prompt, max_tokens=1))
        run(scheduler)
        return model.batches[-1][0].seq

    assert [used([1, 1, 1]), used([2, 2, 2, 2]), used([2, 2, 3, 3])] == [0, 1, 1]
    assert used([4, 4]) == 2, "empty"
    assert used([5, 5]) == 0, "the longest unused"
    assert used([4, 4, 4]) == 2


def test_idle_caches_give_way_when_the_cells_run_out() -> None:
    model, scheduler = make(hash_letter, n_ctx=16, n_seq_max=2)
    queue(scheduler, model, request([1] * 8, max_tokens=2))
    run(scheduler)
    assert scheduler.cells_used == 9
    outlet = queue(scheduler, model, request([2] * 12, max_tokens=2))
    run(scheduler)
    assert outlet.finished.reason == "length"
    assert scheduler.cells_used == 13
