"""Clients take turns: exact orders of admission, limits of the queue, time in it."""

from __future__ import annotations

import time

import pytest

from server.engine.engine import LocalEngine
from server.engine.errors import QueueFullError, QueueTimeoutError
from server.engine.scheduler import Scheduler
from server.engine.sequence import Sequence
from server.engine.types import EngineDefaults, Failed
from server.engine.waiting import WaitingLine
from tests.scripted_model import (
    LETTERS,
    ListOutlet,
    ScriptedModel,
    hash_letter,
    queue,
    request,
    run,
)


def sequence(client: str, name: int) -> Sequence:
    model = ScriptedModel(LETTERS, hash_letter)
    return Sequence(request([name], client=client), ListOutlet(), model, 64)


def names(line: WaitingLine) -> list[int]:
    found = []
    while line:
        following = line.next
        assert line.pop() is following
        found.append(following.tokens[0])
    return found


def test_one_of_each_client_in_turn() -> None:
    line = WaitingLine()
    for client, name in [("a", 0), ("a", 1), ("a", 2), ("b", 3), ("c", 4), ("b", 5)]:
        line.add(sequence(client, name))
    assert (len(line), line.of_client("a"), line.of_client("z")) == (6, 3, 0)
    assert names(line) == [0, 3, 4, 1, 5, 2]
    assert (len(line), line.of_client("a")) == (0, 0)


def test_one_client_alone_is_served_in_order() -> None:
    line = WaitingLine()
    for name in range(5):
        line.add(sequence("a", name))
    assert names(line) == [0, 1, 2, 3, 4]


def test_who_has_had_a_turn_goes_behind_who_came_meanwhile() -> None:
    line = WaitingLine()
    for name in (0, 1, 2):
        line.add(sequence("a", name))
    assert line.pop().tokens == [0]
    line.add(sequence("b", 3))
    assert line.pop().tokens == [1]
    line.add(sequence("c", 4))
    assert names(line) == [3, 2, 4]


def test_what_was_put_back_comes_first() -> None:
    line = WaitingLine()
    line.add(sequence("a", 0))
    line.put_back(sequence("b", 1))
    line.put_back(sequence("b", 2))
    assert names(line) == [2, 1, 0]


def test_dropping_changes_no_turns() -> None:
    line = WaitingLine()
    for client, name in [("a", 0), ("a", 1), ("b", 2), ("b", 3), ("c", 4)]:
        line.add(sequence(client, name))
    assert [one.tokens[0] for one in line.drop(lambda one: one.tokens[0] in (0, 4))] == [0, 4]
    assert (len(line), line.of_client("c")) == (3, 0)
    assert names(line) == [1, 2, 3]


def test_a_flood_does_not_starve_another_client() -> None:
    model = ScriptedModel(LETTERS, hash_letter, n_seq_max=1, n_ctx=64)
    scheduler = Scheduler(model, n_batch=8)
    order: list[str] = []

    class Named(ListOutlet):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def deliver(self, events: list[object]) -> None:  # type: ignore[override]
            if not self.events:
                order.append(self.name)
            super().deliver(events)  # type: ignore[arg-type]

    def ask(client: str, name: str) -> None:
        asked = request([1, 2], max_tokens=2, client=client)
        scheduler.add(Sequence(asked, Named(name), model, model.n_ctx))

    for number in range(6):
        ask("flood", f"flood {number}")
    scheduler.step()
    ask("other", "other 0")
    ask("other", "other 1")
    ask("third", "third 0")
    run(scheduler)
    assert order == [
        "flood 0", "flood 1", "other 0", "third 0", "flood 2", "other 1", "flood 3", "flood 4",
        "flood 5",
    ]  # fmt: skip


def test_a_client_may_have_a_limit_of_its_own() -> None:
    model = ScriptedModel(LETTERS, hash_letter, n_seq_max=1)
    engine = LocalEngine(model, EngineDefaults(n_batch=8, max_queue=9, max_queue_per_client=2))
    held: list[object] = []

    def hold(batch: object) -> None:
        held.append(batch)
        while engine.stats().queued < 3:
            time.sleep(0.001)

    model.before_decode = hold
    try:
        asked = [engine.stream(request([1], max_tokens=1, client="a"))]
        while not held:
            time.sleep(0.001)
        asked += [engine.stream(request([1], max_tokens=1, client="a")) for _ in range(2)]
        with pytest.raises(QueueFullError) as caught:
            engine.stream(request([1], client="a"))
        assert caught.value.of_client
        asked.append(engine.stream(request([1], max_tokens=1, client="b")))
        model.before_decode = lambda batch: None
        assert [len(list(generation)) for generation in asked] == [2, 2, 2, 2]
    finally:
        model.before_decode = lambda batch: None
        engine.close()


def test_waiting_too_long_fails_and_frees_the_place() -> None:
    now = 0.0
    model = ScriptedModel(LETTERS, hash_letter, n_seq_max=1)
    scheduler = Scheduler(model, n_batch=8, queue_timeout=5.0, clock=lambda: now)
    busy = queue(scheduler, model, request([1], max_tokens=3))
    scheduler.step()
    late = queue(scheduler, model, request([2], max_tokens=1))
    now = late_at = next(iter(scheduler.waiting)).submitted
    now = late_at + 4.9
    scheduler.step()
    assert late.events == []
    now = late_at + 5.1
    scheduler.step()
    assert isinstance(late.last, Failed)
    assert isinstance(late.error, QueueTimeoutError)
    assert late.error.seconds == 5.0
    run(scheduler)
    assert busy.finished.usage.completion_tokens == 3, "who has a slot is not timed"
    assert (scheduler.counters.failed, scheduler.counters.finished) == (1, 1)


@pytest.mark.parametrize("chunks", [1, 2])
def test_cancelled_while_its_prompt_is_read_the_slot_is_free_at_the_next_step(chunks: int) -> None:
    model = ScriptedModel(LETTERS, hash_letter, n_seq_max=1)
    scheduler = Scheduler(model, n_batch=4)
    reading = queue(scheduler, model, request([1] * 20))
    waiting = queue(scheduler, model, request([2, 3], max_tokens=1))
    for _ in range(chunks):
        scheduler.step()
    assert [len(batch) for batch in model.batches] == [4] * chunks
    reading.cancelled = True
    scheduler.step()
    assert waiting.finished.usage.completion_tokens == 1, "it had the slot in that very step"
    assert reading.events == []
    scheduler.check_integrity()
