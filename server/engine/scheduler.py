"""Which tokens are evaluated next, and in which cells.

`Scheduler.step()` is the engine: drop what was cancelled → admit → build one batch → decode →
let every sequence take its logits. A slot is one of the model's sequences together with what its
cells hold; a finished request leaves its tokens there, so that a later prompt with the same
beginning need not evaluate it again. A beginning that any slot holds, busy or idle, is shared and
not evaluated; one that an older sequence is about to evaluate is waited for:

    slot.tokens                the cells [0, len) of the model's sequence `slot.index`
    slot.sequence is None      idle: the tokens are a cache, and give way, the oldest use first
    slot.sequence is not None  busy: they are a beginning of sequence.tokens, never all of it
    cells.used                 ≤ n_ctx; a cell that several slots hold counts once

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

from server.engine.cells import CellTable, Slot, common_prefix
from server.engine.counters import Counters
from server.engine.errors import (
    DecodeError,
    EngineError,
    IntegrityError,
    QueueTimeoutError,
)
from server.engine.forced import Splitter
from server.engine.model import BatchItem, LanguageModel, Logits
from server.engine.sampling import Workspace
from server.engine.sequence import Sequence
from server.engine.types import Failed, GenerationEvent
from server.engine.waiting import WaitingLine

_log = logging.getLogger(__name__)


class Scheduler:
    """Slots, admission and batches over one model. Not thread-safe.

    `seed` makes the requests without a seed of their own repeatable; `forced_runs` lets sequences
    take what their grammars force without a step for each token; one that waits for a slot longer
    than `queue_timeout` seconds, by the `clock`, fails.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        n_batch: int,
        seed: int | None = None,
        forced_runs: bool = True,
        queue_timeout: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        assert n_batch >= model.n_seq_max, "a step must hold a token of every sequence"
        self.waiting = WaitingLine()
        self._cells = CellTable(model.n_seq_max)
        self.slots = tuple(Slot(index, tokens) for index, tokens in enumerate(self._cells.tokens))
        self.counters = Counters()
        self._model = model
        self._n_batch = n_batch
        self._seed = seed
        self._workspace = Workspace(model.vocab_size)
        self._splitter = Splitter(model)
        self._forced_runs = forced_runs
        self._queue_timeout = queue_timeout
        self._clock = clock
        self._shares = True  # until the model turns out not to share a part of a sequence
        self._ticks = 0

    @property
    def busy(self) -> list[Slot]:
        """Slots with a sequence, the longest admitted first."""
        return sorted(
            (slot for slot in self.slots if slot.sequence is not None),
            key=lambda slot: slot.admitted,
        )

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting) or any(slot.sequence is not None for slot in self.slots)

    @property
    def cells_used(self) -> int:
        """Cells held by all slots, idle ones included; shared ones count once."""
        return self._cells.used

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
        logits = self._decode(items)
        if logits is None:
            return
        for (slot, pos), row in zip(rows, logits, strict=True):
            sequence = slot.sequence
            if sequence is None:
                continue  # it ended with an earlier row
            if pos < len(sequence.tokens) - 1:
                sequence.observe(pos, row)
            else:
                self._advance(slot, row)

    def fail_all(self, error: Exception) -> None:
        """End everything, in slots and in the queue, with an error."""
        for slot in self.busy:
            self._fail(slot, error)
        while self.waiting:
            self.waiting.pop().outlet.deliver([Failed(error)])
            self.counters.failed += 1

    def check_integrity(self) -> None:
        """Raise `IntegrityError` where slots and the model's cells are not as the table says."""
        for slot in self.slots:
            held = self._model.kv_length(slot.index)
            if held != len(slot.tokens):
                raise IntegrityError(f"slot {slot.index}: {held} cells, {len(slot.tokens)} known")
            sequence = slot.sequence
            if sequence is not None and sequence.tokens[: len(slot.tokens)] != slot.tokens:
                raise IntegrityError(f"slot {slot.index} holds tokens of another sequence")
            if sequence is not None and slot.pending < 1:
                raise IntegrityError(f"slot {slot.index} has nothing left to evaluate")
        if not self._cells.is_sound():
            raise IntegrityError("cells owned and cells free are not all cells")
        if self.cells_used > self._model.n_ctx:
            raise IntegrityError(f"{self.cells_used} cells of {self._model.n_ctx} are in use")

    def reset_cache(self) -> None:
        """Forget what idle slots hold."""
        for slot in self.slots:
            if slot.sequence is None:
                self._clear(slot)

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
        idle = [slot for slot in self.slots if slot.sequence is None]
        if not self.waiting or not idle:
            return
        busy = self.busy
        promised = self._cells.held_by(slot.index for slot in busy)
        promised += sum(slot.pending + 1 for slot in busy)
        while self.waiting and idle:
            sequence = self.waiting.next
            promised += len(sequence.tokens) + 1 - self._live_prefix(sequence)
            # Alone, a sequence always fits: it ends before it outgrows the context.
            if promised > self._model.n_ctx and len(idle) < len(self.slots):
                return
            self.waiting.pop()
            self._place(sequence, idle)
            idle = [slot for slot in self.slots if slot.sequence is None]

    def _live_prefix(self, sequence: Sequence) -> int:
        """How many of a waiting sequence's tokens it will share with one that has a slot."""
        if not self._shares:
            return 0
        tokens, last = sequence.tokens, sequence.reusable
        others = (slot.sequence.tokens for slot in self.slots if slot.sequence is not None)
        return max((common_prefix(other, tokens, last) for other in others), default=0)

    def _place(self, sequence: Sequence, idle: list[Slot]) -> None:
        """Give a sequence an idle slot, with the longest beginning of it that any slot holds."""
        slot = self._choose(sequence, idle)
        self._ticks += 1
        slot.sequence, slot.admitted = sequence, self._ticks
        slot.fresh = not sequence.started
        self._count_cached(slot)
        self._share(slot)
        if not slot.fresh:
            return
        counters = self.counters
        entropy = None
        if self._seed is not None:
            entropy = np.random.SeedSequence(self._seed, spawn_key=(counters.requests,))
        counters.requests += 1
        counters.prompt_tokens += len(sequence.request.prompt)
        try:
            events = sequence.start(
                self._workspace, entropy, self._splitter, forces=self._forced_runs
            )
        except Exception as error:
            self._fail(slot, error)
        else:
            counters.completion_tokens += sequence.completion_tokens
            self._emit(slot, events)

    def _choose(self, sequence: Sequence, idle: list[Slot]) -> Slot:
        """The idle slot to use, cut to what it has in common with the sequence.

        One that holds most of what there is, and little else, is the same conversation going on.
        Otherwise an empty slot, or the one unused for longest, gives way.
        """
        last = sequence.reusable
        common = [common_prefix(slot.tokens, sequence.tokens, last) for slot in self.slots]

        def kept(slot: Slot) -> int:
            length = common[slot.index]
            return length if 2 * length >= len(slot.tokens) else -1

        slot = max(idle, key=lambda slot: (kept(slot), not slot.tokens, -slot.last_used))
        if kept(slot) < max(common):
            slot = max(idle, key=lambda slot: (not slot.tokens, -slot.last_used))
        self._truncate(slot, common[slot.index])
        return slot

    # --- shared beginnings -----------------------------------------------------------------

    def _share(self, slot: Slot) -> None:
        """Let a busy slot hold the longest beginning of its sequence that some slot holds."""
        sequence = slot.sequence
        assert sequence is not None
        last = sequence.reusable
        best, source = len(slot.tokens), slot
        for other in self.slots if self._shares else ():
            if len(other.tokens) > best:
                length = common_prefix(other.tokens, sequence.tokens, last)
                if length > best:
                    best, source = length, other
        if source is slot:
            return
        self._clear(slot)
        self._model.kv_copy(source.index, slot.index, 0, best)
        if self._model.kv_length(slot.index) == best:
            self._cells.share(source.index, slot.index, best)
        else:  # a recurrent model has one state for the whole sequence
            self._shares = False
            self._clear(slot)
        self._count_cached(slot)

    def _count_cached(self, slot: Slot) -> None:
        """What a slot holds now, it did not evaluate."""
        sequence = slot.sequence
        assert sequence is not None
        if slot.fresh:
            cached = min(len(slot.tokens), len(sequence.request.prompt))
            self.counters.cached_tokens += cached - sequence.cached_tokens
            sequence.cached_tokens = cached

    def _share_prompts(self) -> list[Slot]:
        """Share what has been evaluated since; returns the busy slots that need not wait for more.

        A slot waits while an older one is evaluating a longer beginning of its sequence.
        """
        active: list[Slot] = []
        busy = self.busy
        for i, slot in enumerate(busy):
            if self._shares and slot.is_reading:
                if any(other.is_ahead_of(slot) for other in busy[:i]):
                    continue
                self._share(slot)
            active.append(slot)
        return active

    def _reclaim_cells(self) -> None:
        """Make room for the coming batch: first idle caches, then the youngest sequences."""
        busy = self.busy
        wanted = min(self._n_batch, sum(slot.pending for slot in busy))
        for slot in sorted(self.slots, key=lambda slot: slot.last_used):
            idle_cache = slot.sequence is None and slot.tokens
            if idle_cache and self.cells_used + wanted > self._model.n_ctx:
                self._clear(slot)
        while len(busy) > 1 and self.cells_used + len(busy) > self._model.n_ctx:
            self._preempt(busy.pop())

    def _build_batch(self) -> tuple[list[BatchItem], list[tuple[Slot, int]]]:
        """What decoding sequences have new, then chunks of prompts; oldest first.

        Returns the batch and, in its order, whose logits at which position are wanted.
        """
        items: list[BatchItem] = []
        rows: list[tuple[Slot, int]] = []
        busy = sorted(self._share_prompts(), key=lambda slot: slot.is_reading)
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

    def _decode(self, items: list[BatchItem]) -> Logits | None:
        """Evaluate the batch; None if that failed, and its sequences with it."""
        self.counters.steps += 1
        begin = time.perf_counter()
        try:
            logits = self._model.decode(items)
        except Exception as error:
            _log.exception("a batch of %d tokens could not be evaluated", len(items))
            failure = error if isinstance(error, EngineError) else DecodeError(str(error))
            for index in {item.seq for item in items}:
                self._clear(self.slots[index])
                self._fail(self.slots[index], failure)
            return None
        finally:
            self.counters.decode_seconds += time.perf_counter() - begin
        for item in items:
            self._cells.append(item.seq, item.token)
        return logits

    def _advance(self, slot: Slot, logits: Logits) -> None:
        """Let a sequence take its next token."""
        sequence, slot.fresh = slot.sequence, False
        assert sequence is not None
        if sequence.outlet.cancelled:
            self._cancel(slot)
            return
        before = sequence.completion_tokens
        try:
            events = sequence.take(logits)
        except Exception as error:
            if not isinstance(error, EngineError):
                _log.warning("a sequence failed: %s", error)
            self._fail(slot, error)
        else:
            self.counters.completion_tokens += sequence.completion_tokens - before
            self._emit(slot, events)

    # --- slots -----------------------------------------------------------------------------

    def _emit(self, slot: Slot, events: list[GenerationEvent]) -> None:
        """Hand a sequence's events over, and free its slot if they end it."""
        sequence = slot.sequence
        assert sequence is not None
        if sequence.end is not None:
            self._release(slot)
            self.counters.finished += 1
        if events:
            sequence.outlet.deliver(events)

    def _fail(self, slot: Slot, error: Exception) -> None:
        sequence = slot.sequence
        assert sequence is not None
        self._release(slot)
        self.counters.failed += 1
        sequence.outlet.deliver([Failed(error)])

    def _cancel(self, slot: Slot) -> None:
        self._release(slot)
        self.counters.cancelled += 1

    def _release(self, slot: Slot) -> None:
        """Make a slot idle; its tokens stay as a cache."""
        self._ticks += 1
        slot.sequence, slot.last_used = None, self._ticks

    def _preempt(self, slot: Slot) -> None:
        assert slot.sequence is not None
        self.waiting.put_back(slot.sequence)
        self.counters.preempted += 1
        self._release(slot)
        self._clear(slot)

    def _truncate(self, slot: Slot, length: int) -> None:
        """Keep the first `length` cells, or none if the model cannot forget a part."""
        if length < len(slot.tokens):
            if length and not self._model.kv_remove(slot.index, length, -1):
                length = 0
            if not length:
                self._model.kv_remove(slot.index, 0, -1)
            self._cells.truncate(slot.index, length)

    def _clear(self, slot: Slot) -> None:
        self._model.kv_remove(slot.index, 0, -1)
        self._cells.truncate(slot.index, 0)
