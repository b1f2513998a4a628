"""The engine's front: asyncio, threads, queue, cancellation, the death of the thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from server.engine.engine import LocalEngine
from server.engine.errors import (
    ContextOverflowError,
    DecodeError,
    EngineClosedError,
    InvalidRequestError,
    QueueFullError,
)
from server.engine.model import BatchItem
from server.engine.types import (
    EngineDefaults,
    Failed,
    Finished,
    GenerationEvent,
    GenerationRequest,
    SamplingParams,
    TextPiece,
)
from tests.scripted_model import FakeGrammar, ScriptedModel

LETTERS = [bytes([code]) for code in b"abcdefghij"]
EOS = len(LETTERS)
GREEDY = SamplingParams(temperature=0)


def always_a(tokens: list[int]) -> list[float]:
    return [1.0] + [0.0] * EOS


class Gate:
    """Holds the model before a decode, so that a test can act in the middle of a step."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()
        self.open.set()
        self.calls = 0
        self.close_at: int | None = None  # the decode before which the gate closes by itself

    def __call__(self, batch: Sequence[BatchItem]) -> None:
        self.calls += 1
        if self.calls == self.close_at:
            self.open.clear()
        self.entered.set()
        assert self.open.wait(10)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def model(gate: Gate) -> ScriptedModel:
    model = ScriptedModel(LETTERS, always_a, n_ctx=200, n_seq_max=2)
    model.before_decode = gate
    return model


@pytest.fixture
def engine(model: ScriptedModel, gate: Gate) -> Iterator[LocalEngine]:
    engine = LocalEngine(model, EngineDefaults(n_batch=8, max_queue=2))
    yield engine
    gate.open.set()
    if engine.ready:
        engine.check_integrity()
    engine.close()
    assert model.closed == 1


def request(max_tokens: int | None = 5, prompt: Sequence[int] = (1,)) -> GenerationRequest:
    return GenerationRequest(tuple(prompt), max_tokens=max_tokens, sampling=GREEDY)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the engine's thread to get somewhere."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never happened")


def text_of(events: Sequence[GenerationEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextPiece))


async def test_events_arrive_in_order(engine: LocalEngine) -> None:
    events = [event async for event in engine.submit(request())]
    assert [type(event) for event in events] == [TextPiece] * 5 + [Finished]
    assert text_of(events) == "aaaaa"
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.timings.tokens) == ("length", 5)
    assert last.timings.queue_ms >= 0
    assert last.timings.decode_ms >= 0


async def test_an_iterator_that_has_ended_stays_ended(engine: LocalEngine) -> None:
    generation = engine.submit(request(1))
    assert len([event async for event in generation]) == 2
    assert [event async for event in generation] == []


async def test_many_at_once(engine: LocalEngine) -> None:
    generations = [engine.submit(request(n)) for n in (3, 9, 4, 2)]
    answers = await asyncio.gather(*(_collect(generation) for generation in generations))
    assert [text_of(answer) for answer in answers] == ["aaa", "a" * 9, "aaaa", "aa"]
    stats = engine.stats()
    assert (stats.finished, stats.slots_used, stats.queued) == (4, 0, 0)
    assert stats.completion_tokens == 18


async def _collect(generation: object) -> list[GenerationEvent]:
    return [event async for event in generation]  # type: ignore[attr-defined]


def test_the_blocking_reader(engine: LocalEngine) -> None:
    assert text_of(list(engine.stream(request(4)))) == "aaaa"


# --- what submit refuses --------------------------------------------------------------------


async def test_a_prompt_that_leaves_no_room(engine: LocalEngine) -> None:
    with pytest.raises(ContextOverflowError) as caught:
        engine.submit(request(prompt=[1] * 200))
    assert (caught.value.prompt_tokens, caught.value.n_ctx) == (200, 200)
    events = await _collect(engine.submit(request(None, prompt=[1] * 199)))
    assert isinstance(events[-1], Finished)
    assert (text_of(events), events[-1].reason) == ("a", "length")


async def test_tokens_that_do_not_exist(engine: LocalEngine) -> None:
    for token in (-1, EOS + 1):
        with pytest.raises(InvalidRequestError, match="not in the vocabulary"):
            engine.submit(request(prompt=[1, token]))
    with pytest.raises(InvalidRequestError, match="not in the vocabulary"):
        engine.detokenize([EOS + 1])
    biased = SamplingParams(logit_bias={EOS: 1.0, EOS + 1: 1.0})
    with pytest.raises(InvalidRequestError, match="logit_bias: token 11 is not in"):
        engine.submit(GenerationRequest((1,), sampling=biased))


async def test_a_grammar_for_another_vocabulary(engine: LocalEngine) -> None:
    other = ScriptedModel(LETTERS[:4], always_a).vocabulary
    grammar = FakeGrammar(5, lambda done: [0], vocabulary=other)
    with pytest.raises(InvalidRequestError, match="another vocabulary"):
        engine.submit(GenerationRequest((1,), grammar=grammar.typed()))


@pytest.mark.parametrize(
    "wrong", [{"prompt": ()}, {"max_tokens": 0}, {"stop": ("a", "")}, {"top_logprobs": -1}]
)
def test_requests_out_of_range(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match=next(iter(wrong))):
        GenerationRequest(**{"prompt": (1,), **wrong})  # type: ignore[arg-type]


async def test_the_queue_is_bounded(engine: LocalEngine, gate: Gate) -> None:
    gate.open.clear()
    running = [engine.submit(request()) for _ in range(2)]
    await until(gate.entered.is_set)
    waiting = [engine.submit(request()) for _ in range(2)]
    with pytest.raises(QueueFullError) as caught:
        engine.submit(request())
    assert 1 <= caught.value.retry_after_seconds <= 60
    assert engine.stats().queued == 2
    gate.open.set()
    for generation in running + waiting:
        assert text_of(await _collect(generation)) == "aaaaa"
    assert text_of(await _collect(engine.submit(request()))) == "aaaaa"


# --- cancellation ---------------------------------------------------------------------------


async def test_cancel_stops_within_a_step(engine: LocalEngine, gate: Gate) -> None:
    gate.close_at = 3
    generation = engine.submit(request(None))
    async for _ in generation:
        break
    await until(lambda: gate.calls == 3)
    steps = engine.stats().steps
    generation.cancel()
    generation.cancel()
    gate.open.set()
    assert await _collect(generation) == []
    await until(lambda: engine.stats().slots_used == 0)
    assert engine.stats().steps <= steps + 1
    assert engine.stats().cancelled == 1


async def test_cancel_wakes_a_reader_that_waits(engine: LocalEngine, gate: Gate) -> None:
    gate.open.clear()
    generation = engine.submit(request())
    reader = asyncio.create_task(_collect(generation))
    await until(gate.entered.is_set)
    await asyncio.get_running_loop().run_in_executor(None, generation.cancel)
    assert await asyncio.wait_for(reader, 5) == []


async def test_cancel_in_the_queue(engine: LocalEngine, model: ScriptedModel, gate: Gate) -> None:
    gate.open.clear()
    running = [engine.submit(request()) for _ in range(2)]
    await until(gate.entered.is_set)
    waiting = engine.submit(request(prompt=[7]))
    waiting.cancel()
    gate.open.set()
    for generation in running:
        await _collect(generation)
    await until(lambda: engine.stats().cancelled == 1)
    assert all(item.token != 7 for batch in model.batches for item in batch)


async def test_cancel_after_the_end_does_nothing(engine: LocalEngine) -> None:
    generation = engine.submit(request(1))
    await _collect(generation)
    generation.cancel()
    assert await _collect(generation) == []
    engine.check_integrity()
    assert engine.stats().cancelled == 0


def test_a_reader_whose_loop_is_gone_is_dropped(engine: LocalEngine, gate: Gate) -> None:
    async def leave() -> None:
        engine.submit(request(None))
        await until(gate.entered.is_set)

    gate.open.clear()
    asyncio.run(leave())
    gate.open.set()
    deadline = time.monotonic() + 10
    while engine.stats().cancelled < 1:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert text_of(list(engine.stream(request(2)))) == "aa"


async def test_random_cancellations_leak_nothing(engine: LocalEngine, model: ScriptedModel) -> None:
    model.before_decode = lambda batch: time.sleep(0.0005)
    accepted = 0

    async def client(number: int) -> None:
        nonlocal accepted
        for turn in range(8):
            try:
                generation = engine.submit(request(100, prompt=[number, turn % 5, 2]))
            except QueueFullError:
                await asyncio.sleep(0.01)
                continue
            accepted += 1
            count = 0
            async for _ in generation:
                count += 1
                if count == (number + turn) % 5:
                    generation.cancel()

    await asyncio.gather(*(client(number) for number in range(6)))
    await until(lambda: engine.stats().slots_used == 0)
    engine.check_integrity()
    stats = engine.stats()
    assert stats.finished + stats.cancelled == accepted
    assert stats.cancelled > 0
    assert stats.finished > 0
    assert stats.queued == 0


# --- failures and the end -------------------------------------------------------------------


async def test_a_failing_decode_leaves_the_engine_serving(
    engine: LocalEngine, model: ScriptedModel, gate: Gate
) -> None:
    def fail(batch: Sequence[BatchItem]) -> None:
        model.before_decode = gate
        raise DecodeError("no", status=1)

    model.before_decode = fail
    events = await _collect(engine.submit(request()))
    assert [type(event) for event in events] == [Failed]
    assert engine.ready
    assert text_of(await _collect(engine.submit(request()))) == "aaaaa"


async def test_a_dying_thread_fails_everything_and_is_not_ready(
    engine: LocalEngine, model: ScriptedModel, gate: Gate
) -> None:
    class DeathError(BaseException):
        pass

    def die(batch: Sequence[BatchItem]) -> None:
        gate(batch)
        raise DeathError

    gate.open.clear()
    model.before_decode = die
    generations = [engine.submit(request()) for _ in range(3)]
    await until(gate.entered.is_set)
    gate.open.set()
    for generation in generations:
        (event,) = await _collect(generation)
        assert isinstance(event, Failed)
        assert isinstance(event.error, EngineClosedError)
        assert isinstance(event.error.__cause__, DeathError)
    assert not engine.ready
    with pytest.raises(EngineClosedError):
        engine.submit(request())


async def test_close_fails_what_is_pending(
    engine: LocalEngine, model: ScriptedModel, gate: Gate
) -> None:
    gate.open.clear()
    generations = [engine.submit(request(None)) for _ in range(3)]
    await until(gate.entered.is_set)
    closing = asyncio.get_running_loop().run_in_executor(None, engine.close)
    await until(lambda: not engine.ready)
    gate.open.set()
    await closing
    for generation in generations:
        event = (await _collect(generation))[-1]
        assert isinstance(event, Failed)
        assert isinstance(event.error, EngineClosedError)
    engine.close()
    assert model.closed == 1
    with pytest.raises(EngineClosedError):
        engine.check_integrity()


async def test_a_broken_cache_is_emptied_when_idle(
    engine: LocalEngine, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    await _collect(engine.submit(request(3)))
    engine.check_integrity()
    model.cells[0].append(3)  # behind the engine's back
    await _collect(engine.submit(request(3)))
    await until(lambda: "the cache is not what it should be" in caplog.text)
    engine.check_integrity()
    assert text_of(await _collect(engine.submit(request(3)))) == "aaa"


async def test_forgetting_prefixes(engine: LocalEngine) -> None:
    for forget, cached in ((False, 0), (False, 1), (True, 0)):
        if forget:
            engine.forget_prefixes()
        events = await _collect(engine.submit(request(2, prompt=[3, 4, 5])))
        assert isinstance(events[-1], Finished)
        assert events[-1].usage.cached_tokens == cached


def test_text_and_tokens(engine: LocalEngine) -> None:
    assert engine.tokenize("cab") == [2, 0, 1]
    assert engine.detokenize([2, 0, 1, EOS]) == "cab<eos>"
    assert engine.vocabulary.size == EOS + 1
    assert engine.info.name == "scripted"
    assert engine.n_ctx == 200
