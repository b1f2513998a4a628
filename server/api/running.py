"""From a request's generations to one stream of their events, with every way of ending early.

    client goes away ─┐
    request times out ├─▶ all of its generations are cancelled (the engine frees their slots
    a choice fails    │   within one step)
    answer complete  ─┘

Invariant: whoever makes a `Choices` ends it, by reading `events()` to its end or by `cancel()`;
no generation outlives the request that asked for it.

Read next: `server/engine/engine.py`, where a generation comes from.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.types import Receive

from server.api.errors import NotReadyError, RequestTimeoutError
from server.engine.engine import Engine
from server.engine.generation import Generation
from server.engine.types import Failed, Finished, GenerationEvent, GenerationRequest, TextPiece

_T = TypeVar("_T")


class ClientGoneError(Exception):
    """The client closed its connection before the answer was complete; nobody is left to tell."""


class Choices:
    """The generations of one request, read as one stream."""

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[GenerationRequest],
        *,
        observe: Callable[[Finished], None] = lambda end: None,
    ) -> None:
        """Submit all of `requests`; if one is refused, none stays.

        `observe` is told of every regular end.

        Raises:
            QueueFullError, ContextOverflowError, InvalidRequestError: from the engine.
        """
        self._events: asyncio.Queue[tuple[int, GenerationEvent]] = asyncio.Queue()
        self._generations: list[Generation] = []
        self._observe = observe
        try:
            for request in requests:
                self._generations.append(engine.submit(request))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Stop whatever still runs. Safe to call at any time, more than once."""
        for generation in self._generations:
            generation.cancel()

    def stop_for_shutdown(self) -> None:
        """Have `events()` raise, because the server is going down."""
        error = NotReadyError(
            "The server is shutting down.", code="shutting_down", retry_after_seconds=5
        )
        self._events.put_nowait((0, Failed(error)))

    async def events(self, *, seconds: float) -> AsyncGenerator[tuple[int, TextPiece | Finished]]:
        """(choice, event) pairs in the order in which they happen, until every choice finished.

        Raises:
            RequestTimeoutError: it took longer than `seconds`.
            Exception: what a choice failed with.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        pumps = [
            asyncio.create_task(_pump(index, generation, self._events))
            for index, generation in enumerate(self._generations)
        ]
        running = len(pumps)
        try:
            while running:
                try:
                    async with asyncio.timeout_at(deadline):
                        index, event = await self._events.get()
                except TimeoutError:
                    raise RequestTimeoutError(seconds) from None
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Finished):
                    self._observe(event)
                yield index, event
                running -= isinstance(event, Finished)
        finally:
            self.cancel()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)


async def _pump(
    index: int, generation: Generation, queue: asyncio.Queue[tuple[int, GenerationEvent]]
) -> None:
    try:
        async for event in generation:
            await queue.put((index, event))
            if isinstance(event, Finished | Failed):
                return
        error = RuntimeError("a generation ended without saying how")
    except Exception as failure:  # whatever it was, the reader must hear of it
        await queue.put((index, Failed(failure)))
    else:
        await queue.put((index, Failed(error)))


async def until_disconnect(request: Request, work: Callable[[], Awaitable[_T]]) -> _T:
    """The result of `work()`, which is cancelled if the client goes away first.

    The request's body must have been read: a server reports a disconnect only after that.

    Raises:
        ClientGoneError: the client went away.
    """
    task = asyncio.ensure_future(work())
    watcher = asyncio.ensure_future(_disconnect(request.receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGoneError
    finally:
        for unfinished in (task, watcher):
            unfinished.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
