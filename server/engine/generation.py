"""The reader's end of a generation: an asynchronous iterator, or a plain one.

Both are outlets (see `sequence.py`): the engine's thread delivers lists of events, the reader takes
them one by one. Invariant: the iterator ends after `Finished` or `Failed`, or as soon as it was
cancelled; nothing is ever handed to a reader after `cancel()`, and a reader whose event loop is
gone counts as cancelled. Read next: `engine.py`.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable

from server.engine.types import Failed, Finished, GenerationEvent, GenerationRequest


class Generation:
    """Events of one request for a coroutine: `async for event in generation`.

    Made by `Engine.submit()` on the loop's thread. `wake` tells the engine of a cancellation.
    """

    def __init__(
        self,
        request: GenerationRequest,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
    ) -> None:
        self.request = request
        self._loop = loop
        self._wake = wake
        self._events: asyncio.Queue[GenerationEvent | None] = asyncio.Queue()
        self._cancelled = False
        self._ended = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel()` was called, or the loop has been closed."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop within one step and free the slot. From any thread, any number of times.

        After the regular end it does nothing.
        """
        if self._cancelled:
            return
        self._cancelled = True
        self._post([None])
        self._wake()

    def deliver(self, events: list[GenerationEvent]) -> None:
        """Called by the engine's thread."""
        self._post(list(events))

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> GenerationEvent:
        if self._ended or self._cancelled:
            raise StopAsyncIteration
        event = await self._events.get()
        if event is None or self._cancelled:
            raise StopAsyncIteration
        self._ended = isinstance(event, Finished | Failed)
        return event

    def _post(self, events: list[GenerationEvent | None]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._receive, events)
        except RuntimeError:  # the loop is closed: nobody will ever read
            self._cancelled = True

    def _receive(self, events: list[GenerationEvent | None]) -> None:
        for event in events:
            self._events.put_nowait(event)


class BlockingGeneration:
    """The same for a plain thread: `for event in generation`. Made by `LocalEngine.stream()`."""

    def __init__(self, request: GenerationRequest, wake: Callable[[], None]) -> None:
        self.request = request
        self._wake = wake
        self._events: queue.SimpleQueue[GenerationEvent | None] = queue.SimpleQueue()
        self._cancelled = False
        self._ended = False

    @property
    def cancelled(self) -> bool:
        """Whether `cancel()` was called."""
        return self._cancelled

    def cancel(self) -> None:
        """Stop within one step and free the slot. From any thread, any number of times."""
        self._cancelled = True
        self._events.put(None)
        self._wake()

    def deliver(self, events: list[GenerationEvent]) -> None:
        """Called by the engine's thread."""
        for event in events:
            self._events.put(event)

    def __iter__(self) -> BlockingGeneration:
        return self

    def __next__(self) -> GenerationEvent:
        if self._ended or self._cancelled:
            raise StopIteration
        event = self._events.get()
        if event is None or self._cancelled:
            raise StopIteration
        self._ended = isinstance(event, Finished | Failed)
        return event
