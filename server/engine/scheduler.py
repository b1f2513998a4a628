"""Which tokens are evaluated next, and for whom.

`Scheduler.step()` is the engine: drop what was cancelled → admit → build one batch → decode →
let every sequence take its logits. While the model computes, a helping thread may make the masks
that the logits will need (`beside.py`). Which cells the sequences sit in, and what they share, is
the slots' affair (`slots.py`).

When the cells run out, the youngest sequence is preempted: it loses its cells, waits at the head of
the queue, and is evaluated again later; its tokens, matcher and random numbers are kept, so its
answer goes on as if nothing had happened. The oldest sequence always gets its cells, hence every
sequence ends. Invariant: one thread only; a failing sequence never takes another one with it, and a
failing decode only those of its batch. Read next: `engine.py`, which owns the thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from server.engine.beside import MaskHelper
from server.engine.cells import Slot
from server.engine.counters import Counters
from server.engine.errors import DecodeError, EngineError, QueueTimeoutError
from server.engine.forced import Splitter
from server.engine.layout import Workspace
from server.engine.model import BatchItem, LanguageModel, Logits
from server.engine.sequence import Sequence
from server.engine.slots import SlotTable
from server.engine.types import Failed, GenerationEvent
from server.engine.waiting import WaitingLine

_log = logging.getLogger(__name__)


class Scheduler:
    """Slots, admission and batches over one model. Not thread-safe.

    `seed` makes the requests without a seed of their own repeatable; `forced_runs` lets sequences
    take what their grammars force without a step for each token; `masks_beside` makes masks while
    the model computes, in a thread that `close` ends; a sequence that waits for a slot longer than
    `queue_timeout` seconds, by the `clock`, fails.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        n_batch: int,
        seed: int | None = None,
        forced_runs: bool = True,
        masks_beside: bool = False,
        queue_timeout: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert n_batch >= model.n_seq_max, "a step must hold a token of every sequence"
        self.waiting = WaitingLine()
        self.counters = Counters()
        self._table = SlotTable(model, self.counters)
        self._helper = MaskHelper() if masks_beside else None
        self._model = model
        self._n_batch = n_batch
        self._seed = seed
        self._workspace = Workspace(model.vocab_size)
        self._splitter = Splitter(model)
        self._forced_runs = forced_runs
        self._queue_timeout = queue_timeout
        self._clock = clock

    @property
    def slots(self) -> tuple[Slot, ...]:
        """Every slot, by its index."""
        return self._table.all

    @property
    def busy(self) -> list[Slot]:
        """Slots with a sequence, the longest admitted first."""
        return self._table.busy

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting) or any(slot.sequence is not None for slot in self.slots)

    @property
    def cells_used(self) -> int:
        """Cells held by all slots, idle ones included; shared ones count once."""
        return self._table.used

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, behind its client's others."""
        self.waiting.add(sequence)

    def step(self) -> None:
        """Evaluate one batch and let its sequences take a token each, and what is forced then."""
        self._drop_cancelled()
        self._drop_late()
        self._admit()
        self._reclaim_cells()
        items, rows = self._build_batch()
        if not items:
            return
        logits = self._decode(items, rows)
        if logits is None:
            return
        for (slot, pos), row in zip(rows, logits, strict=True):
            sequence = slot.sequence
            if sequence is None:
                continue  # it ended with an earlier row
            if pos < len(sequence.tokens) - 1:
                self._emit(slot, sequence.observe(pos, row))
            else:
                self._advance(slot, row)

    def fail_all(self, error: Exception) -> None:
        """End everything, in slots and in the queue, with an error."""
        for slot in self.busy:
            self._fail(slot, error)
        while self.waiting:
            sequence = self.waiting.pop()
            sequence.outlet.deliver([*sequence.give_rest(), Failed(error)])
            self.counters.failed += 1

    def check_integrity(self) -> None:
        """Raise `IntegrityError` where slots and the model's cells are not as the table says."""
        self._table.check_integrity()

    def reset_cache(self) -> None:
        """Forget what idle slots hold."""
        for slot in self._table.idle:
            self._table.clear(slot)

    def close(self) -> None:
        """End the helping thread. Further steps go without it."""
        if self._helper is not None:
            self._helper.close()

    # --- the parts of a step, in order -----------------------------------------------------

    def _drop_cancelled(self) -> None:
        for slot in self.busy:
            if slot.sequence is not None and slot.sequence.outlet.cancelled:
                self._cancel(slot)
        dropped = self.waiting.drop(lambda sequence: sequence.outlet.cancelled)
        self.counters.cancelled += len(dropped)

    def _drop_late(self) -> None:
        """Fail what has waited for its first slot too long."""
        if self._queue_timeout is None or not self.waiting:
            return
        oldest = self._clock() - self._queue_timeout
        late = self.waiting.drop(lambda one: not one.started and one.submitted < oldest)
        for sequence in late:
            self.counters.failed += 1
            sequence.outlet.deliver([Failed(QueueTimeoutError(self._queue_timeout))])

    def _admit(self) -> None:
        """Move waiting sequences into idle slots, in order, while their tokens fit the cells."""
        if not self.waiting or not self._table.idle:
            return
        promised = self._table.promised
        while self.waiting and (idle := self._table.idle):
            sequence = self.waiting.next
            promised += len(sequence.tokens) + 1 - self._table.live_prefix(sequence)
            # Alone, a sequence always fits: it ends before it outgrows the context.
            if promised > self._model.n_ctx and len(idle) < len(self.slots):
                return
            slot = self._table.place(self.waiting.pop())
            if slot.fresh:
                self._start(slot)

    def _start(self, slot: Slot) -> None:
        """Begin a sequence that has its first slot."""
        sequence, counters = slot.sequence, self.counters
        assert sequence is not None
        entropy = None
        if self._seed is not None:
            entropy = np.random.SeedSequence(self._seed, spawn_key=(counters.requests,))
        counters.requests += 1
        counters.prompt_tokens += len(sequence.request.prompt)
        events = sequence.start(self._workspace, entropy, self._splitter, forces=self._forced_runs)
        counters.completion_tokens += sequence.completion_tokens
        self._emit(slot, events)

    def _reclaim_cells(self) -> None:
        """Make room for the coming batch: first idle caches, then the youngest sequences."""
        busy = self.busy
        self._table.make_room(min(self._n_batch, sum(slot.pending for slot in busy)))
        while len(busy) > 1 and self.cells_used + len(busy) > self._model.n_ctx:
            self._preempt(busy.pop())

    def _build_batch(self) -> tuple[list[BatchItem], list[tuple[Slot, int]]]:
        """What decoding sequences have new, then chunks of prompts; oldest first.

        Returns the batch and, in its order, whose logits at which position are wanted.
        """
        items: list[BatchItem] = []
        rows: list[tuple[Slot, int]] = []
        busy = sorted(self._table.share_prompts(), key=lambda slot: slot.is_reading)
        cells = self._model.n_ctx - self.cells_used
        for after, slot in enumerate(busy, start=1):
            sequence = slot.sequence
            assert sequence is not None
            held = len(slot.tokens)
            # Each of the others keeps at least one place in the batch and one cell.
            room = min(self._n_batch, cells) - len(items) - (len(busy) - after)
            end = min(len(sequence.tokens), held + room)
            if slot.is_reading and len(sequence.tokens) - end == 1 and end - held > 1:
                end -= 1  # the last batch of a prompt has ``REREAD`` tokens, too
            complete = end == len(sequence.tokens)
            tokens, unseen = sequence.tokens, sequence.unseen
            last = end - 1 if complete else -1
            for pos in range(held, end):
                wanted = pos == last or pos in unseen
                items.append(BatchItem(tokens[pos], pos, slot.index, wanted))
                if wanted:
                    rows.append((slot, pos))
        return items, rows

    def _decode(self, items: list[BatchItem], rows: list[tuple[Slot, int]]) -> Logits | None:
        """Evaluate the batch; None if that failed, and its sequences with it.

        The masks that its logits need are made beside it, as far as they are not known.
        """
        self.counters.steps += 1
        if self._helper is not None:
            sequences = (slot.sequence for slot, _ in rows)
            masks = (one.pending_mask for one in sequences if one is not None)
            self._helper.ask(mask for mask in masks if mask is not None)
        begin = time.perf_counter()
        try:
            logits = self._model.decode(items)
        except Exception as error:
            _log.exception("a batch of %d tokens could not be evaluated", len(items))
            failure = error if isinstance(error, EngineError) else DecodeError(str(error))
            for index in {item.seq for item in items}:
                self._table.clear(self.slots[index])
                self._fail(self.slots[index], failure)
            return None
        finally:
            self.counters.decode_seconds += time.perf_counter() - begin
            if self._helper is not None:
                self._helper.settle()
        self._table.evaluated(items)
        return logits

    def _advance(self, slot: Slot, logits: Logits) -> None:
        """Let a sequence take its next token."""
        sequence, slot.fresh = slot.sequence, False
        assert sequence is not None
        if sequence.outlet.cancelled:
            self._cancel(slot)
            return
        before = sequence.completion_tokens
        events = sequence.take(logits)
        self.counters.completion_tokens += sequence.completion_tokens - before
        self._emit(slot, events)

    # --- slots -----------------------------------------------------------------------------

    def _emit(self, slot: Slot, events: list[GenerationEvent]) -> None:
        """Hand a sequence's events over, and free its slot if they end it."""
        sequence = slot.sequence
        assert sequence is not None
        if sequence.fault is not None:
            if not isinstance(sequence.fault, EngineError):
                _log.warning("a sequence failed: %s", sequence.fault)
            self._table.release(slot)
            self.counters.failed += 1
            sequence.outlet.deliver([*events, Failed(sequence.fault)])
            return
        if sequence.end is not None:
            self._table.release(slot)
            self.counters.finished += 1
        if events:
            sequence.outlet.deliver(events)

    def _fail(self, slot: Slot, error: Exception) -> None:
        sequence = slot.sequence
        assert sequence is not None
        self._table.release(slot)
        self.counters.failed += 1
        sequence.outlet.deliver([*sequence.give_rest(), Failed(error)])

    def _cancel(self, slot: Slot) -> None:
        self._table.release(slot)
        self.counters.cancelled += 1

    def _preempt(self, slot: Slot) -> None:
        assert slot.sequence is not None
        self.waiting.put_back(slot.sequence)
        self.counters.preempted += 1
        self._table.release(slot)
        self._table.clear(slot)
