"""Masks beside the decode: a thread that makes the next masks while the model computes.

The model is called without the interpreter's lock, so on a machine with a core to spare the masks
that the coming logits need cost no time of their own. Only masks that are not known yet are asked
for: with a warm grammar nothing is handed over.

    engine's thread   ask(masks) │ decode ……………………………………… │ settle() │ sample
    helper            ·          │ make, make, …                │

Invariants: the helper works only between `ask` and `settle`, so whatever else the engine's thread
does, cancelling and preempting and shutting down included, it does alone; what the helper did not
begin is made by whoever needs it; an error stays with its mask and is raised there, as if it had
been made in place. So the answers are the same with a helper and without. Read next:
`sequence.py`, which needs the masks, and `scheduler.py`, which asks for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grammar import Matcher


class PendingMask:
    """The mask of a place in a grammar, to be known before the place's logits are looked at."""

    __slots__ = ("_error", "_matcher")

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._error: Exception | None = None

    @property
    def is_known(self) -> bool:
        """Whether nothing is to be done for it any more."""
        return self._error is not None or self._matcher.knows_mask

    def make(self) -> None:
        """Have the matcher make its mask; keeps what goes wrong."""
        try:
            self._matcher.mask()
        except Exception as error:
            self._error = error

    def require(self) -> None:
        """Raise what went wrong, if something did."""
        if self._error is not None:
            raise self._error


class MaskHelper:
    """The helping thread; begun when there is something to do for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: deque[PendingMask] = deque()
        self._is_making = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def ask(self, masks: Iterable[PendingMask]) -> None:
        """Make these, in order, until `settle` is called. Without any it costs nothing."""
        wanted = [mask for mask in masks if not mask.is_known]
        if not wanted:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="gabarito-masks", daemon=True)
            self._thread.start()
        with self._changed:
            self._due.extend(wanted)
            self._changed.notify()

    def settle(self) -> None:
        """Take back what has not been begun, and wait for what has."""
        if not self._due and not self._is_making:
            return
        with self._changed:
            self._due.clear()
            while self._is_making:
                self._changed.wait()

    def close(self) -> None:
        """End the thread; whoever asks after that gets no help."""
        with self._changed:
            self._closing = True
            self._due.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._is_making = False
                self._changed.notify_all()
                while not self._due and not self._closing:
                    self._changed.wait()
                if self._closing:
                    return
                mask = self._due.popleft()
                self._is_making = True
            mask.make()
