"""Shared beginnings: any slot's cells, evaluated once, counted once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.engine.cells import CellTable
from server.engine.sequence import REREAD
from server.engine.types import SamplingParams
from tests.scripted_model import ScriptedModel, alone, hash_letter, make, queue, request, run

LONG = [(7 * i + i // 3) % 10 for i in range(40)]


def evaluated(model: ScriptedModel) -> int:
    return sum(map(len, model.batches))


# --- the table ------------------------------------------------------------------------------


def test_a_shared_cell_counts_once_and_is_freed_by_the_last() -> None:
    table = CellTable(3)
    for token in (5, 6, 7):
        table.append(0, token)
    table.share(0, 1, 2)
    table.append(1, 8)
    assert table.tokens == ([5, 6, 7], [5, 6, 8], [])
    assert table.used == 4
    assert [table.held_by([0]), table.held_by([0, 1]), table.held_by([])] == [3, 4, 0]
    table.truncate(0, 0)
    assert (table.used, table.tokens[1]) == (3, [5, 6, 8])
    table.share(1, 2, 3)
    table.truncate(1, 1)
    assert table.used == 3
    table.truncate(2, 0)
    assert table.used == 1
    table.truncate(1, 0)
    assert table.used == 0


# --- copies ---------------------------------------------------------------------------------


def test_several_answers_to_one_prompt_evaluate_it_once() -> None:
    model, scheduler = make(hash_letter, n_seq_max=4, n_ctx=256)
    options = {"max_tokens": 5, "sampling": SamplingParams(temperature=1.5)}
    seeds = [SamplingParams(temperature=1.5, seed=seed) for seed in range(4)]
    outlets = [queue(scheduler, model, request(LONG, max_tokens=5, sampling=s)) for s in seeds]
    run(scheduler)
    for sampling, outlet in zip(seeds, outlets, strict=True):
        assert outlet.ids == alone(LONG, **{**options, "sampling": sampling})
    # Of the prompt each copy evaluates the last tokens; and 4 of 5 new ones.
    shared = 40 - REREAD
    assert evaluated(model) == 40 + 3 * REREAD + 4 * 4
    assert scheduler.cells_used == shared + 4 * (REREAD + 4)
    assert [outlet.finished.usage.cached_tokens for outlet in outlets] == [0, *[shared] * 3]
    assert scheduler.counters.cached_tokens == 3 * shared


def test_a_beginning_is_copied_from_a_slot_that_is_busy() -> None:
    model, scheduler = make(hash_letter, n_ctx=256)
    first = queue(scheduler, model, request(LONG, max_tokens=30))
    for _ in range(8):
        scheduler.step()
    assert len(first.ids) > 0
    before = evaluated(model)
    second = queue(scheduler, model, request([*LONG[:30], 1, 2], max_tokens=1))
    scheduler.step()
    assert second.finished.usage.cached_tokens == 30
    assert evaluated(model) == before + 1 + 2
    run(scheduler)
    assert first.ids == alone(LONG, max_tokens=30)
    assert second.ids == alone([*LONG[:30], 1, 2], max_tokens=1)


def test_a_conversation_keeps_its_slot_when_another_one_begins_alike() -> None:
    model, scheduler = make(hash_letter, n_seq_max=3, n_ctx=256)
    system = LONG[:20]
    cached = []
    histories = [[*system, *[user] * 22] for user in (1, 2)]
    for turn in range(3):
        for history in histories:
            outlet = queue(scheduler, model, request(history, max_tokens=3))
            run(scheduler)
            assert outlet.ids == alone(history, max_tokens=3)
            cached.append(outlet.finished.usage.cached_tokens)
            history += [*outlet.ids, turn]
    assert cached[:2] == [0, 20], "the system prompt is shared"
    # Then each pays for its own turn: the last token of the answer, which was never evaluated,
    # and the new one.
    assert cached[2:] == [44, 44, 48, 48]


def test_a_waiting_copy_goes_on_when_the_original_is_cancelled() -> None:
    model, scheduler = make(hash_letter, n_seq_max=2, n_ctx=256)
    first = queue(scheduler, model, request(LONG, max_tokens=3))
    second = queue(scheduler, model, request(LONG, max_tokens=3))
    scheduler.step()
    assert {item.seq for item in model.batches[0]} == {0}, "the second waits for the first"
    first.cancelled = True
    run(scheduler)
    assert second.ids == alone(LONG, max_tokens=3)
    assert second.finished.usage.cached_tokens == 8
    assert evaluated(model) == 40 + 2, "and takes over what there is"


def test_short_beginnings_are_not_waited_for() -> None:
    model, scheduler = make(hash_letter, n_ctx=256)
    queue(scheduler, model, request([*LONG[:10], 1, 1, 1], max_tokens=1))
    queue(scheduler, model, request([*LONG[:10], 2, 2, 2], max_tokens=1))
    scheduler.step()
    assert {item.seq for item in model.batches[0]} == {0, 1}


def test_a_model_that_cannot_share_a_part_evaluates_it() -> None:
    class Recurrent(ScriptedModel):
        """Has one state per sequence, that of its end."""

        copies = 0

        def kv_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
            self.copies += 1
            super().kv_copy(src, dst, p0, -1)

    from server.engine.scheduler import Scheduler
    from tests.scripted_model import LETTERS

    model = Recurrent(LETTERS, hash_letter, n_ctx=256, n_seq_max=3, forgets_parts=False)
    scheduler = Scheduler(model, n_batch=8)
    outlets = [
        queue(scheduler, model, request([*LONG[:30], user], max_tokens=2)) for user in (1, 2, 3)
    ]
    run(scheduler)
    for user, outlet in zip((1, 2, 3), outlets, strict=True):
        assert outlet.ids == alone([*LONG[:30], user], max_tokens=2)
        assert outlet.finished.usage.cached_tokens == 0
    assert model.copies == 1, "once is enough to know"


def test_copies_fit_where_separate_prompts_would_not() -> None:
    model, scheduler = make(hash_letter, n_seq_max=4, n_ctx=64)
    outlets = [queue(scheduler, model, request(LONG, max_tokens=4)) for _ in range(4)]
    scheduler.step()
    assert len(scheduler.busy) == 4, "they need 40 + 4 x 5 cells"
    run(scheduler)
    assert scheduler.counters.preempted == 0
    assert all(outlet.ids == alone(LONG, max_tokens=4) for outlet in outlets)


@settings(max_examples=60, deadline=None)
@given(
    tails=st.lists(
        st.tuples(st.integers(0, 40), st.lists(st.integers(0, 9), min_size=1, max_size=9)),
        min_size=1,
        max_size=8,
    ),
    pauses=st.lists(st.integers(0, 4), min_size=8, max_size=8),
    cancelled=st.sets(st.integers(0, 7)),
    n_seq_max=st.integers(1, 4),
    n_batch=st.integers(4, 20),
    n_ctx=st.integers(64, 110),
    forgets_parts=st.booleans(),
)
def test_sharing_changes_no_answer(
    tails: list[tuple[int, list[int]]],
    pauses: list[int],
    cancelled: set[int],
    n_seq_max: int,
    n_batch: int,
    n_ctx: int,
    forgets_parts: bool,
) -> None:
    model, scheduler = make(
        hash_letter, n_batch, n_seq_max=n_seq_max, n_ctx=n_ctx, forgets_parts=forgets_parts
    )
    sampling = SamplingParams(seed=9, temperature=2.0)
    prompts = [[*LONG[:length], *tail] for length, tail in tails]
    outlets = []
    for prompt, pause in zip(prompts, pauses, strict=False):
        outlets.append(queue(scheduler, model, request(prompt, max_tokens=8, sampling=sampling)))
        for _ in range(pause):
            scheduler.step()
            scheduler.check_integrity()
    for i in cancelled & set(range(len(outlets))):
        outlets[i].cancelled = True
    run(scheduler)
    for i, (prompt, outlet) in enumerate(zip(prompts, outlets, strict=True)):
        expected = alone(prompt, max_tokens=8, sampling=sampling)
        assert outlet.ids == expected or (
            i in cancelled and outlet.ids == expected[: len(outlet.ids)]
        )
    assert model.n_ctx >= scheduler.cells_used


@pytest.mark.parametrize("copies", [2, 3])
def test_counters_add_up(copies: int) -> None:
    model, scheduler = make(hash_letter, n_seq_max=3, n_ctx=256)
    outlets = [queue(scheduler, model, request(LONG, max_tokens=2)) for _ in range(copies)]
    run(scheduler)
    usages = [outlet.finished.usage for outlet in outlets]
    assert scheduler.counters.cached_tokens == sum(usage.cached_tokens for usage in usages)
    assert scheduler.counters.prompt_tokens == sum(usage.prompt_tokens for usage in usages)
    assert scheduler.counters.completion_tokens == 2 * copies
