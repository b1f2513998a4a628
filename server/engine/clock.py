"""Where the time of one answer goes.

Read next: `sequence.py`, which owns one.
"""

from __future__ import annotations

import time

from server.engine.types import Timings


class Clock:
    """The moments and sums, in seconds, that `Timings` are made of."""

    def __init__(self) -> None:
        self.submitted = time.perf_counter()
        self.placed = self.submitted
        self.first_logits: float | None = None
        self.mask = 0.0
        self.sample = 0.0

    def timings(self, tokens: int, forced: int) -> Timings:
        """The figures of an answer that ends now, with so many tokens."""
        now = time.perf_counter()
        first_logits = now if self.first_logits is None else self.first_logits
        return Timings(
            queue_ms=(self.placed - self.submitted) * 1e3,
            prompt_ms=(first_logits - self.placed) * 1e3,
            decode_ms=(now - first_logits) * 1e3,
            mask_ms=self.mask * 1e3,
            sample_ms=self.sample * 1e3,
            tokens=tokens,
            forced_tokens=forced,
        )
