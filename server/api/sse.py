"""Server-sent events, as the openai SDK needs them.

Invariants: keep-alives are comments (`: ping`), never events; the body ends right after `[DONE]`;
an event is one line of data, also for readers that take U+2028 for the end of a line; and however a
stream ends, `on_end` is called, so that nothing goes on generating for nobody.

Read next: `server/api/chat.py`, which writes the events.
"""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

_SEPARATOR = "\n"

#: How long a running stream may go on when the server is told to stop; how much longer it may then
#: take to say so, before it is cut.
SHUTDOWN_SECONDS = 5.0
_CUT_SECONDS = 1.0

#: Characters that JSON leaves as they are and some readers break lines at.
_LINE_BREAKS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})

DONE = ServerSentEvent(data="[DONE]", sep=_SEPARATOR)


def event(data: dict[str, Any], name: str | None = None) -> ServerSentEvent:
    """One event whose data is `data` as JSON; without a name it is an ordinary chunk."""
    try:
        text = _json(data)
    except ValueError:  # a number that the model wrote is beyond what a double holds
        text = _json(_finite(data))
    return ServerSentEvent(data=text.translate(_LINE_BREAKS), event=name, sep=_SEPARATOR)


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _finite(data: Any) -> Any:
    """The same with null for numbers that are not finite."""
    if isinstance(data, dict):
        return {name: _finite(value) for name, value in data.items()}
    if isinstance(data, list):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not math.isfinite(data) else data


def _ping() -> ServerSentEvent:
    return ServerSentEvent(comment="ping", sep=_SEPARATOR)


class EventStream(EventSourceResponse):
    """An SSE answer.

    on_end       runs when it is over, was cut off, or never began
    on_shutdown  runs when the server has been told to stop and the stream's time to end by itself
                 is over; it should make the events end
    """

    def __init__(
        self,
        events: AsyncIterator[ServerSentEvent],
        *,
        ping_seconds: float,
        on_end: Callable[[], None],
        on_shutdown: Callable[[], None],
    ) -> None:
        self._shutdown = anyio.Event()
        super().__init__(
            events,
            ping=ping_seconds,
            sep=_SEPARATOR,
            ping_message_factory=_ping,
            data_sender_callable=self._end_after_shutdown,
            shutdown_event=self._shutdown,
            shutdown_grace_period=SHUTDOWN_SECONDS + _CUT_SECONDS,
        )
        self._on_end = on_end
        self._on_shutdown = on_shutdown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream, as an ASGI application."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_end()

    async def _end_after_shutdown(self) -> None:
        await self._shutdown.wait()
        await anyio.sleep(SHUTDOWN_SECONDS)
        self._on_shutdown()
