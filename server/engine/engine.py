"""The engine as the rest of the server sees it, and its local form.

`Engine` is the protocol that the API is written against: a model on this machine (`LocalEngine`),
a scripted one in a test (`LocalEngine` over `ToyModel`), or a handle to another process.
`LocalEngine` owns one daemon thread, which owns the model. The front (any thread) and that thread
share exactly four things, all under `_wakeup`: the incoming requests, the calls to be made between
steps, the closing flag, and the failure that ended the thread.

    submit ──▶ _incoming ──▶ Scheduler.step(), until there is no work ──▶ Generation

Invariant: every accepted request gets exactly one of a regular end, a `Failed`, or the
cancellation it asked for, whatever happens to the thread. Read next: `scheduler.py`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from server.engine.cpus import allowed_cpus
from server.engine.errors import (
    BudgetTooSmallError,
    ContextOverflowError,
    EngineClosedError,
    IntegrityError,
    InvalidRequestError,
    QueueFullError,
)
from server.engine.generation import BlockingGeneration, Generation
from server.engine.model import LanguageModel, ModelInfo
from server.engine.scheduler import Scheduler
from server.engine.sequence import Sequence
from server.engine.types import (
    EngineDefaults,
    EngineSettings,
    EngineStats,
    Failed,
    GenerationRequest,
)

if TYPE_CHECKING:
    from grammar import Grammar, Vocabulary

_log = logging.getLogger(__name__)


class Engine(Protocol):
    """Generates answers to many requests at once."""

    @property
    def info(self) -> ModelInfo:
        """What the model says about itself."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that grammars for this engine are compiled for."""

    @property
    def n_ctx(self) -> int:
        """Most tokens that a prompt and its answer may have together."""

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """The model's split of a text; `parse_special` recognises special tokens by their text."""

    def detokenize(self, ids: Iterable[int]) -> str:
        """The text of tokens, special ones included; U+FFFD where the bytes are not UTF-8."""

    def submit(self, request: GenerationRequest) -> Generation:
        """Queue a request; its events arrive on the running asyncio loop.

        Raises:
            ContextOverflowError: the prompt does not fit.
            BudgetTooSmallError: the answer is to be closed in fewer tokens than it can be.
            QueueFullError: too many requests wait.
            InvalidRequestError: a token id is not in the vocabulary, or the grammar is for
                another vocabulary.
            EngineClosedError: the engine takes no more requests.
        """

    def stats(self) -> EngineStats:
        """A snapshot of slots, cells and totals."""

    def close(self) -> None:
        """Fail what is pending, free the model. Further calls do nothing."""


class LocalEngine:
    """An `Engine` over a `LanguageModel` in this process; takes the model over and closes it."""

    def __init__(self, model: LanguageModel, settings: EngineSettings | None = None) -> None:
        settings = settings or EngineDefaults()
        self._model = model
        self._max_pending = model.n_seq_max + settings.max_queue
        beside = settings.masks_beside_decode
        trained = model.info.n_ctx_train
        self._limit = min(model.n_ctx, trained) if trained > 0 else model.n_ctx
        self._scheduler = Scheduler(
            model,
            n_batch=max(settings.n_batch, model.n_seq_max),
            seed=settings.seed,
            forced_runs=settings.forced_runs,
            masks_beside=allowed_cpus() > model.n_threads if beside == "auto" else beside,
            queue_timeout=settings.queue_timeout_seconds,
        )
        self._max_of_client = settings.max_queue_per_client
        self._wakeup = threading.Condition()
        self._incoming: deque[Sequence] = deque()
        self._calls: deque[tuple[Callable[[], None], Future[None]]] = deque()
        self._closing = False
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="gabarito-engine", daemon=True)
        self._thread.start()

    # --- the front: any thread -------------------------------------------------------------

    @property
    def info(self) -> ModelInfo:
        """What the model says about itself."""
        return self._model.info

    @property
    def vocabulary(self) -> Vocabulary:
        """The model's vocabulary."""
        return self._model.vocabulary

    @property
    def n_ctx(self) -> int:
        """Most tokens of a prompt and its answer: the cells, or what the model was trained on."""
        return self._limit

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return not self._closing and self._failure is None

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """See `Engine.tokenize`. Lone surrogates become question marks."""
        data = text.encode("utf-8", "replace")
        return self._model.tokenize(data, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Iterable[int]) -> str:
        """See `Engine.detokenize`."""
        tokens = list(ids)
        self._require_known(tokens, "tokens")
        return b"".join(map(self._model.token_text, tokens)).decode("utf-8", "replace")

    def submit(self, request: GenerationRequest) -> Generation:
        """See `Engine.submit`. Must be called on an event loop's thread."""
        generation = Generation(request, asyncio.get_running_loop(), self._wake)
        self._enqueue(Sequence(request, generation, self._model, self._limit))
        return generation

    def stream(self, request: GenerationRequest) -> BlockingGeneration:
        """Like `submit()`, for a plain thread: the events are read by blocking."""
        generation = BlockingGeneration(request, self._wake)
        self._enqueue(Sequence(request, generation, self._model, self._limit))
        return generation

    def stats(self) -> EngineStats:
        """See `Engine.stats`. The figures may be a step apart from one another."""
        scheduler, counters = self._scheduler, self._scheduler.counters
        return EngineStats(
            slots=len(scheduler.slots),
            slots_used=sum(slot.sequence is not None for slot in scheduler.slots),
            queued=len(self._incoming) + len(scheduler.waiting),
            kv_cells=self._model.n_ctx,
            kv_cells_used=scheduler.cells_used,
            steps=counters.steps,
            requests=counters.requests,
            finished=counters.finished,
            failed=counters.failed,
            cancelled=counters.cancelled,
            preempted=counters.preempted,
            prompt_tokens=counters.prompt_tokens,
            cached_tokens=counters.cached_tokens,
            completion_tokens=counters.completion_tokens,
            step_seconds=counters.step_seconds,
            decode_seconds=counters.decode_seconds,
        )

    def check_integrity(self, timeout: float = 30.0) -> None:
        """Compare the bookkeeping with the model between two steps; raises `IntegrityError`."""
        self._call(self._scheduler.check_integrity, timeout)

    def forget_prefixes(self, timeout: float = 30.0) -> None:
        """Empty the cache of idle slots, so that the next prompt is evaluated as a whole."""
        self._call(self._scheduler.reset_cache, timeout)

    def close(self) -> None:
        """See `Engine.close`. Waits for the step in progress."""
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _enqueue(self, sequence: Sequence) -> None:
        request = sequence.request
        if len(request.prompt) >= self._limit:
            raise ContextOverflowError(len(request.prompt), self._limit)
        self._require_known(request.prompt, "prompt")
        self._require_known(request.sampling.logit_bias, "logit_bias")
        grammar, ours = request.grammar, self._model.vocabulary
        if grammar is not None and grammar.vocabulary.fingerprint != ours.fingerprint:
            raise InvalidRequestError("grammar", "was compiled for another vocabulary")
        if grammar is not None and request.closes:
            sequence.plan = self._find_end(request, grammar)
        with self._wakeup:
            self._require_open()
            slots = self._scheduler.slots
            pending = len(self._incoming) + len(self._scheduler.waiting)
            pending += sum(slot.sequence is not None for slot in slots)
            if pending >= self._max_pending:
                raise QueueFullError(self._retry_after())
            if self._max_of_client is not None:
                client = request.client
                waiting = sum(other.request.client == client for other in self._incoming)
                waiting += self._scheduler.waiting.of_client(client)
                if waiting >= self._max_of_client:
                    raise QueueFullError(self._retry_after(), of_client=True)
            self._incoming.append(sequence)
            self._wakeup.notify()

    def _require_known(self, tokens: Iterable[int], field: str) -> None:
        size = self._model.vocab_size
        unknown = next((token for token in tokens if not 0 <= token < size), None)
        if unknown is not None:
            raise InvalidRequestError(field, f"token {unknown} is not in the vocabulary of {size}")

    def _find_end(self, request: GenerationRequest, grammar: Grammar) -> tuple[int, ...] | None:
        """An answer of as few tokens as the request and the context leave; None where it can't be
        told whether there is one: then the answer is closed if a way is found.

        Raises:
            BudgetTooSmallError: every answer has more tokens.
            InvalidRequestError: no end of any answer is known, however long.
        """
        context = self._limit - len(request.prompt)
        most = context if request.max_tokens is None else min(request.max_tokens, context)
        found = grammar.fewest(most)
        if found.at_least > most:
            is_context = request.max_tokens is None or context < request.max_tokens
            raise BudgetTooSmallError(found, most, is_context=is_context)
        if found.tokens is None:
            raise InvalidRequestError(
                "truncation", "no end of this grammar's answers can be planned"
            )
        return found.tokens if len(found.tokens) <= most else None

    def _require_open(self) -> None:
        if not self.ready:
            raise EngineClosedError("the engine is closed") from self._failure

    def _retry_after(self) -> int:
        """Seconds until a place may be free, 1..60: the mean work that a request has taken."""
        counters = self._scheduler.counters
        done = counters.finished + counters.cancelled + counters.failed
        return max(1, min(60, math.ceil(counters.step_seconds / max(1, done))))

    def _wake(self) -> None:
        with self._wakeup:
            self._wakeup.notify()

    def _call(self, function: Callable[[], None], timeout: float) -> None:
        done: Future[None] = Future()
        with self._wakeup:
            self._require_open()
            self._calls.append((function, done))
            self._wakeup.notify()
        done.result(timeout)

    # --- the engine's thread ---------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                if self._scheduler.has_work:
                    begin = time.perf_counter()
                    self._scheduler.step()
                    self._scheduler.counters.step_seconds += time.perf_counter() - begin
                    if not self._scheduler.has_work:
                        self._check_when_idle()
        except BaseException as error:
            _log.critical("the engine's thread ends", exc_info=error)
            self._failure = error
        finally:
            self._shut_down()

    def _wait_for_work(self) -> bool:
        """Take over what has come in; sleep while there is nothing to do. False: closing."""
        with self._wakeup:
            while not (self._closing or self._incoming or self._calls or self._scheduler.has_work):
                self._wakeup.wait()
            while self._incoming:
                self._scheduler.add(self._incoming.popleft())
            calls = list(self._calls)
            self._calls.clear()
        for function, done in calls:
            try:
                function()
            except Exception as error:
                done.set_exception(error)
            else:
                done.set_result(None)
        return not self._closing

    def _check_when_idle(self) -> None:
        try:
            self._scheduler.check_integrity()
        except IntegrityError:
            _log.exception("the cache is not what it should be; it is emptied")
            self._scheduler.reset_cache()

    def _shut_down(self) -> None:
        error = EngineClosedError("the engine is closed")
        error.__cause__ = self._failure
        with self._wakeup:
            self._closing = True
            incoming, calls = list(self._incoming), list(self._calls)
            self._incoming.clear()
            self._calls.clear()
        for sequence in incoming:
            sequence.outlet.deliver([Failed(error)])
        for _, done in calls:
            done.set_exception(error)
        try:
            self._scheduler.fail_all(error)
            self._scheduler.close()
        finally:
            self._model.close()
