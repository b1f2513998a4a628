"""The soak's own check: a sound engine passes, and each kind of leak is found."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from bench import soak as bench
from grammar import GrammarCache
from server.engine.engine import LocalEngine
from server.engine.scheduler import Scheduler
from server.engine.sequence import Sequence
from server.engine.slots import SlotTable
from server.engine.types import EngineDefaults
from tests.scripted_model import ScriptedModel
from tests.test_engine_closing import TOKENS, rambling

OPTIONS = argparse.Namespace(
    minutes=0.04, check=0.4, clients=3, growth=16.0, cache=1, workspace=40, words=5, warm_up=5
)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    monkeypatch.setattr(bench, "_BATCH", 5)
    monkeypatch.setattr(bench, "_MOST_BATCHES", 3)
    model = ScriptedModel(TOKENS, rambling, n_ctx=2000, n_seq_max=3)
    made = LocalEngine(model, EngineDefaults(n_batch=256, masks_beside_decode=True))
    yield made
    made.close()


def test_an_engine_that_leaks_nothing_passes(engine: LocalEngine) -> None:
    figures, wrong = bench.soak(engine, OPTIONS)
    assert wrong == []
    assert figures["finished"] > 0
    assert figures["cancelled"] > 0
    assert "growth_mib" in figures, "the memory was compared"


@pytest.mark.slow
def test_memory_that_every_request_leaves_behind_is_found(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[np.ndarray] = []
    finish = Sequence._finished

    def leaking(self: Sequence) -> object:
        kept.append(np.ones(1 << 20, dtype=np.uint8))  # a mebibyte
        return finish(self)

    monkeypatch.setattr(Sequence, "_finished", leaking)
    longer = argparse.Namespace(**{**vars(OPTIONS), "minutes": 0.4})
    _, wrong = bench.soak(engine, longer)
    assert len(wrong) == 1
    assert wrong[0].startswith("the memory has grown by ")


def leaks_a_cell(patch: pytest.MonkeyPatch) -> None:
    evaluated = SlotTable.evaluated

    def one_more(self: SlotTable, items: list[object]) -> None:
        evaluated(self, items)  # type: ignore[arg-type]
        self._cells._holders.setdefault(10**9, 1)

    patch.setattr(SlotTable, "evaluated", one_more)
    patch.setattr(SlotTable, "check_integrity", lambda self: None)  # not seen there


def fails_once(patch: pytest.MonkeyPatch) -> None:
    emit = Scheduler._emit

    def failing(self: Scheduler, slot: object, events: list[object]) -> None:
        if self.counters.finished == 3 and not self.counters.failed:
            slot.sequence.fault = RuntimeError("seeded")  # type: ignore[attr-defined]
        emit(self, slot, events)  # type: ignore[arg-type]

    patch.setattr(Scheduler, "_emit", failing)


def loses_a_request(patch: pytest.MonkeyPatch) -> None:
    emit = Scheduler._emit

    def uncounted(self: Scheduler, slot: object, events: list[object]) -> None:
        before = self.counters.finished
        emit(self, slot, events)  # type: ignore[arg-type]
        self.counters.finished = min(self.counters.finished, before + 1, 2)

    patch.setattr(Scheduler, "_emit", uncounted)


def leaks_threads(patch: pytest.MonkeyPatch) -> None:
    check = bench.check

    def one_more(*arguments: object) -> object:
        threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
        return check(*arguments)  # type: ignore[arg-type]

    patch.setattr(bench, "check", one_more)


@pytest.mark.parametrize(
    ("seed", "said"),
    [
        (leaks_a_cell, "cells are held by nobody"),
        (fails_once, "failed: "),
        (loses_a_request, "have neither ended nor been cancelled"),
        (leaks_threads, "threads, "),
    ],
)
def test_other_leaks_are_found(
    engine: LocalEngine,
    monkeypatch: pytest.MonkeyPatch,
    seed: Callable[[pytest.MonkeyPatch], None],
    said: str,
) -> None:
    seed(monkeypatch)
    _, wrong = bench.soak(engine, OPTIONS)
    assert any(said in each for each in wrong), wrong


def test_a_slot_that_does_not_come_back_is_found(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_PATIENCE", 0.5)
    held = engine.stream(bench.request(bench.random.Random(2), engine, GrammarCache(), "me", 5))
    model = engine._model
    assert isinstance(model, ScriptedModel)
    model.before_decode = lambda batch: time.sleep(0.2)
    assert held is not None
    figures, wrong = bench.check(engine, bench.Tally())
    assert any("slots and" in each for each in wrong)
    held.cancel()
    assert figures["threads"] >= 1


def test_the_caches_are_filled_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = iter([10.0, 20.0, 30.0, 31.0, 31.5, 31.9, 60.0])
    monkeypatch.setattr(bench, "_BATCH", 2)
    monkeypatch.setattr(bench, "resident_mib", lambda: next(sizes))
    vocabulary = ScriptedModel(TOKENS, rambling).vocabulary
    assert bench.saturate(vocabulary, GrammarCache()) == 12, "four sizes within two MiB"
    assert capsys.readouterr().out.count("rss_mib") == 6
