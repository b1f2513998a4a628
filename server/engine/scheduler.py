"""Which tokens are evaluated next, and in which cells.

`Scheduler.step()` is the engine: drop what was cancelled → admit → build one batch → decode →
let every sequence take its logits. A slot is one of the model's sequences together with what its
cells hold; a finished request leaves its tokens there, so that a later prompt with the same
beginning need not evaluate it again:

    slot.tokens                the cells [0, len) of the model's sequence `slot.index`
    slot.sequence is None      idle: the tokens are a cache, and give way, the oldest use first
    slot.sequence is not None  busy: they are a beginning of sequence.tokens, never all of it
    sum of len(slot.tokens)    ≤ n_ctx, the cells that all slots share

When the cells run out, the youngest sequence is preempted: it loses its cells, waits at the head of
the queue, and is evaluated again later; its tokens, matcher and random numbers are kept, so its
answer goes on as if nothing had happened. The oldest sequence always gets its cells, hence every
sequence ends. Invariant: one thread only; a failing sequence never takes another one with it, and a
failing decode only those of its batch. Read next: `engine.py`, which owns the thread.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from server.engine.errors import DecodeError, EngineError, IntegrityError
from server.engine.model import BatchItem, LanguageModel, Logits
from server.engine.sampling import Workspace
from server.engine.sequence import Sequence
from server.engine.types import Failed, GenerationEvent

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Slot:
    """One of the model's sequences; see the module's table."""

    index: int
    tokens: list[int] = field(default_factory=list)
    sequence: Sequence | None = None
    last_used: int = 0
    admitted: int = 0

    @property
    def pending(self) -> int:
        """How many of the sequence's tokens are not in the cache yet."""
        assert self.sequence is not None
        return len(self.sequence.tokens) - len(self.tokens)


@dataclass(slots=True)
class Counters:
    """Totals since the start; written by the scheduler, read by anybody."""

    steps: int = 0
    requests: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    preempted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Scheduler:
    """Slots, admission and batches over one model. Not thread-safe.

    `seed` makes the requests without a seed of their own repeatable.
    """

    def __init__(self, model: LanguageModel, *, n_batch: int, seed: int | None = None) -> None:
        assert n_batch >= model.n_seq_max, "a step must hold a token of every sequence"
        self.waiting: deque[Sequence] = deque()
        self.slots = tuple(Slot(index) for index in range(model.n_seq_max))
        self.counters = Counters()
        self._model = model
        self._n_batch = n_batch
        self._seed = seed
        self._workspace = Workspace(model.vocab_size)
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
        """Cells held by all slots, idle ones included."""
        return sum(len(slot.tokens) for slot in self.slots)

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence, behind all that wait."""
        self.waiting.append(sequence)

    def step(self) -> None:
        """Evaluate one batch and let its sequences take a token each."""
        self._drop_cancelled()
        self._admit()
        self._reclaim_cells()
        items, sampling = self._build_batch()
        if not items:
            return
        logits = self._decode(items)
        if logits is None:
            return
        for slot, row in zip(sampling, logits, strict=True):
            self._advance(slot, row)

    def fail_all(self, error: Exception) -> None:
        """End everything, in slots and in the queue, with an error."""
        for slot in self.busy:
            self._fail(slot, error)
        while self.waiting:
            self.waiting.popleft().outlet.deliver([Failed(error)])
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
        kept = [sequence for sequence in self.waiting if not sequence.outlet.cancelled]
        if len(kept) < len(self.waiting):
            self.counters.cancelled += len(self.waiting) - len(kept)
            self.waiting = deque(kept)

    def _admit(self) -> None:
        """Move waiting sequences into idle slots, in order, while their tokens fit the cells."""
        promised = sum(len(slot.sequence.tokens) + 1 for slot in self.busy if slot.sequence)
        while self.waiting:
            sequence = self.waiting[0]
            idle = [slot for slot in self.slots if slot.sequence is None]
            promised += len(sequence.tokens) + 1
            # Alone, a sequence always fits: it ends before it outgrows the context.
            if not idle or (promised > self._model.n_ctx and len(idle) < len(self.slots)):
                return
            self.waiting.popleft()
            self._place(sequence, idle)

    def _place(self, sequence: Sequence, idle: list[Slot]) -> None:
        """Give a sequence the idle slot whose tokens have most in common with its own."""
        last = len(sequence.tokens) - 1  # its logits are needed, so it is evaluated in any case
        common = {slot.index: _common_prefix(slot.tokens, sequence.tokens, last) for slot in idle}
        slot = max(idle, key=lambda slot: (common[slot.index], not slot.tokens, -slot.last_used))
        self._truncate(slot, common[slot.index])
        self._ticks += 1
        slot.sequence, slot.admitted = sequence, self._ticks
        if sequence.started:
            return
        sequence.cached_tokens = len(slot.tokens)
        counters = self.counters
        entropy = None
        if self._seed is not None:
            entropy = np.random.SeedSequence(self._seed, spawn_key=(counters.requests,))
        counters.requests += 1
        counters.prompt_tokens += len(sequence.tokens)
        counters.cached_tokens += len(slot.tokens)
        try:
            events = sequence.start(self._workspace, entropy)
        except Exception as error:
            self._fail(slot, error)
        else:
            self._emit(slot, events)

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

    def _build_batch(self) -> tuple[list[BatchItem], list[Slot]]:
        """One token of every decoding sequence, then chunks of prompts; oldest first.

        Returns the batch and, in its order, the slots whose last pending token is in it.
        """
        items: list[BatchItem] = []
        sampling: list[Slot] = []
        busy = sorted(self.busy, key=lambda slot: slot.pending > 1)
        cells = self._model.n_ctx - self.cells_used
        for after, slot in enumerate(busy, start=1):
            sequence = slot.sequence
            assert sequence is not None
            held = len(slot.tokens)
            # Each of the others keeps at least one place in the batch and one cell.
            room = min(self._n_batch, cells) - len(items) - (len(busy) - after)
            end = min(len(sequence.tokens), held + room)
            complete = end == len(sequence.tokens)
            items += [
                BatchItem(sequence.tokens[pos], pos, slot.index, complete and pos == end - 1)
                for pos in range(held, end)
            ]
            if complete:
                sampling.append(slot)
        return items, sampling

    def _decode(self, items: list[BatchItem]) -> Logits | None:
        """Evaluate the batch; None if that failed, and its sequences with it."""
        self.counters.steps += 1
        try:
            logits = self._model.decode(items)
        except Exception as error:
            _log.exception("a batch of %d tokens could not be evaluated", len(items))
            failure = error if isinstance(error, EngineError) else DecodeError(str(error))
            for index in {item.seq for item in items}:
                self._clear(self.slots[index])
                self._fail(self.slots[index], failure)
            return None
        for item in items:
            self.slots[item.seq].tokens.append(item.token)
        return logits

    def _advance(self, slot: Slot, logits: Logits) -> None:
        """Let a sequence take its next token."""
        sequence = slot.sequence
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
        self.waiting.appendleft(slot.sequence)
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
            del slot.tokens[length:]

    def _clear(self, slot: Slot) -> None:
        self._model.kv_remove(slot.index, 0, -1)
        slot.tokens.clear()


def _common_prefix(left: list[int], right: list[int], most: int) -> int:
    """Length of the longest common beginning, at most `most`."""
    length = min(len(left), len(right), most)
    if left[:length] == right[:length]:
        return length
    return next(i for i in range(length) if left[i] != right[i])
