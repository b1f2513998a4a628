"""The lock of a workspace: long work is done in slices, so that nobody waits for all of it.

A compilation holds the lock while it works on what all grammars share, and may take seconds where a
schema is hostile. At places where everything shared is whole it calls ``give_way``: if anybody
waits, and it had the lock for ``SLICE`` seconds, it lets one of them in and goes on after that. So
a mask waits for a compilation no longer than a slice and the piece of work up to the next such
place (a few milliseconds), whatever the schema.

At the same places a compilation looks at its clock (``budget.py``).
"""

from __future__ import annotations

import threading
import time
from types import TracebackType

SLICE = 0.002
"""Seconds that a holder may go on while others wait."""
_POLL = 0.0002


class WorkLock:
    """A re-entrant lock whose holder can give way; a context manager."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._count = threading.Lock()  # of ``_waiting``
        self._waiting = 0
        # The holder's alone:
        self._depth = 0
        self._turns = 0  # how often somebody who had to wait got in
        self._since = 0.0

    def __enter__(self) -> WorkLock:
        self._acquire()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        self._lock.release()

    def _acquire(self) -> None:
        if not self._lock.acquire(blocking=False):
            with self._count:
                self._waiting += 1
            try:
                self._lock.acquire()
            finally:
                with self._count:
                    self._waiting -= 1
            self._turns += 1
        if not self._depth:
            self._since = time.monotonic()

    def is_wanted(self) -> bool:
        """Whether the holder should give way: others wait, and it has had its time."""
        return self._waiting > 0 and time.monotonic() - self._since >= SLICE

    def give_way(self) -> None:
        """Let one of those who wait have the lock, and take it back; only the holder calls this."""
        depth, turns = self._depth, self._turns
        assert depth, "the lock is not held"
        self._depth = 0
        for _ in range(depth):
            self._lock.release()
        # The lock itself is not fair: without this the one who gives way might win it again.
        while self._waiting and self._turns == turns:
            time.sleep(_POLL)
        self._acquire()
        for _ in range(depth - 1):
            self._lock.acquire()
        self._depth = depth
