"""The slots, their cells, and what they share.

A slot is one of the model's sequences together with what its cells hold; a finished request leaves
its tokens there, so that a later prompt with the same beginning need not evaluate it again. A
beginning that any slot holds, busy or idle, is shared and not evaluated; one that an older sequence
is about to evaluate is waited for:

    slot.tokens                the cells [0, len) of the model's sequence `slot.index`
    slot.sequence is None      idle: the tokens are a cache, and give way, the oldest use first
    slot.sequence is not None  busy: they are a beginning of sequence.tokens, never all of it
    used                       ≤ n_ctx; a cell that several slots hold counts once

Invariant: the table of cells (`cells.py`) and the model's cache change together, here and nowhere
else. Read next: `scheduler.py`, which says who sits in a slot and what is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterable

from server.engine.cells import CellTable, Slot, common_prefix
from server.engine.counters import Counters
from server.engine.errors import IntegrityError
from server.engine.model import BatchItem, LanguageModel
from server.engine.sequence import Sequence


class SlotTable:
    """The slots of one model. `counters`: where prompt tokens that need no work are counted."""

    def __init__(self, model: LanguageModel, counters: Counters) -> None:
        self._cells = CellTable(model.n_seq_max)
        self._slots = tuple(Slot(index, tokens) for index, tokens in enumerate(self._cells.tokens))
        self._model = model
        self._counters = counters
        self._shares = True  # until the model turns out not to share a part of a sequence
        self._ticks = 0

    @property
    def all(self) -> tuple[Slot, ...]:
        """Every slot, by its index."""
        return self._slots

    @property
    def busy(self) -> list[Slot]:
        """Slots with a sequence, the longest admitted first."""
        return sorted(
            (slot for slot in self._slots if slot.sequence is not None),
            key=lambda slot: slot.admitted,
        )

    @property
    def idle(self) -> list[Slot]:
        """Slots without a sequence."""
        return [slot for slot in self._slots if slot.sequence is None]

    @property
    def used(self) -> int:
        """Cells held by all slots, idle ones included; shared ones count once."""
        return self._cells.used

    @property
    def promised(self) -> int:
        """Cells that the busy slots hold, will need for what is pending, and one more for each."""
        busy = self.busy
        held = self._cells.held_by(slot.index for slot in busy)
        return held + sum(slot.pending + 1 for slot in busy)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` where slots and the model's cells are not as the table says."""
        for slot in self._slots:
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
        if self.used > self._model.n_ctx:
            raise IntegrityError(f"{self.used} cells of {self._model.n_ctx} are in use")

    # --- who sits where ----------------------------------------------------------------------

    def place(self, sequence: Sequence) -> Slot:
        """Give a sequence an idle slot, with the longest beginning of it that any slot holds."""
        slot = self._choose(sequence, self.idle)
        self._ticks += 1
        slot.sequence, slot.admitted = sequence, self._ticks
        slot.fresh = not sequence.started
        self._count_cached(slot)
        self._share(slot)
        return slot

    def release(self, slot: Slot) -> None:
        """Make a slot idle; its tokens stay as a cache."""
        self._ticks += 1
        slot.sequence, slot.last_used = None, self._ticks

    def evaluated(self, items: Iterable[BatchItem]) -> None:
        """The model has evaluated these."""
        for item in items:
            self._cells.append(item.seq, item.token)

    def make_room(self, wanted: int) -> None:
        """Clear idle slots, the oldest use first, until so many cells are free, or none is left."""
        for slot in sorted(self._slots, key=lambda slot: slot.last_used):
            idle_cache = slot.sequence is None and slot.tokens
            if idle_cache and self.used + wanted > self._model.n_ctx:
                self.clear(slot)

    def clear(self, slot: Slot) -> None:
        """Let go of all cells of a slot."""
        self._model.kv_remove(slot.index, 0, -1)
        self._cells.truncate(slot.index, 0)

    def _truncate(self, slot: Slot, length: int) -> None:
        """Keep the first `length` cells, or none if the model cannot forget a part."""
        if length < len(slot.tokens):
            if length and not self._model.kv_remove(slot.index, length, -1):
                length = 0
            if not length:
                self._model.kv_remove(slot.index, 0, -1)
            self._cells.truncate(slot.index, length)

    def _choose(self, sequence: Sequence, idle: list[Slot]) -> Slot:
        """The idle slot to use, cut to what it has in common with the sequence.

        One that holds most of what there is, and little else, is the same conversation going on.
        Otherwise an empty slot, or the one unused for longest, gives way.
        """
        last = sequence.reusable
        common = [common_prefix(slot.tokens, sequence.tokens, last) for slot in self._slots]

        def kept(slot: Slot) -> int:
            length = common[slot.index]
            return length if 2 * length >= len(slot.tokens) else -1

        slot = max(idle, key=lambda slot: (kept(slot), not slot.tokens, -slot.last_used))
        if kept(slot) < max(common):
            slot = max(idle, key=lambda slot: (not slot.tokens, -slot.last_used))
        self._truncate(slot, common[slot.index])
        return slot

    # --- shared beginnings -------------------------------------------------------------------

    def live_prefix(self, sequence: Sequence) -> int:
        """How many of a waiting sequence's tokens it will share with one that has a slot."""
        if not self._shares:
            return 0
        tokens, last = sequence.tokens, sequence.reusable
        others = (slot.sequence.tokens for slot in self._slots if slot.sequence is not None)
        return max((common_prefix(other, tokens, last) for other in others), default=0)

    def _share(self, slot: Slot) -> None:
        """Let a busy slot hold the longest beginning of its sequence that some slot holds."""
        sequence = slot.sequence
        assert sequence is not None
        last = sequence.reusable
        best, source = len(slot.tokens), slot
        for other in self._slots if self._shares else ():
            if len(other.tokens) > best:
                length = common_prefix(other.tokens, sequence.tokens, last)
                if length > best:
                    best, source = length, other
        if source is slot:
            return
        self.clear(slot)
        self._model.kv_copy(source.index, slot.index, 0, best)
        if self._model.kv_length(slot.index) == best:
            self._cells.share(source.index, slot.index, best)
        else:  # a recurrent model has one state for the whole sequence
            self._shares = False
            self.clear(slot)
        self._count_cached(slot)

    def _count_cached(self, slot: Slot) -> None:
        """What a slot holds now, it did not evaluate."""
        sequence = slot.sequence
        assert sequence is not None
        if slot.fresh:
            cached = min(len(slot.tokens), len(sequence.request.prompt))
            self._counters.cached_tokens += cached - sequence.cached_tokens
            sequence.cached_tokens = cached

    def share_prompts(self) -> list[Slot]:
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
