"""The way of a generating request: read, check, generate, answer whole or as a stream.

`chat` and `completions` give the parts that differ. Invariant: a client that goes away while the
answer is prepared, generated whole or streamed stops its generations.

Read next: `server/api/chat.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol, TypeVar

from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.api import sse
from server.api.clients import client_of, current_client
from server.api.errors import to_api_error
from server.api.models import ChatCompletionRequest, CompletionRequest
from server.api.repairing import HeldChoices
from server.api.running import Choices, until_disconnect
from server.api.runtime import Runtime, Served
from server.api.validation import read_json, validated


class Answer(Protocol):
    """An answer that is being generated."""

    @property
    def running(self) -> Choices | HeldChoices:
        """Its generations."""


_Wanted = TypeVar("_Wanted", ChatCompletionRequest, CompletionRequest)
_Answer = TypeVar("_Answer", bound=Answer)


async def respond(
    request: Request,
    runtime: Runtime,
    kind: type[_Wanted],
    *,
    begin: Callable[[Served, _Wanted], Awaitable[_Answer]],
    whole: Callable[[Served, _Wanted], Awaitable[dict[str, Any]]],
    events: Callable[[_Answer], AsyncGenerator[ServerSentEvent]],
) -> Response:
    """Serve one request of a kind.

    Raises:
        Exception: anything that `to_api_error` knows.
    """
    body = await read_json(request, max_bytes=runtime.max_body_bytes)
    wanted = validated(kind, body)
    served = runtime.served
    served.require_model(wanted.model)
    current_client.set(client_of(request, wanted.user))
    if not wanted.stream:
        return JSONResponse(await until_disconnect(request, lambda: whole(served, wanted)))
    answer = await until_disconnect(request, lambda: begin(served, wanted))
    return sse.EventStream(
        _ended(events(answer)),
        ping_seconds=served.settings.server.ping_seconds,
        on_end=answer.running.cancel,
        on_shutdown=answer.running.stop_for_shutdown,
    )


async def _ended(events: AsyncGenerator[ServerSentEvent]) -> AsyncGenerator[ServerSentEvent]:
    """The events, and how the stream ends: with `[DONE]`, or with an error that came after its
    start, which is an event, too."""
    async with aclosing(events) as each:
        try:
            async for event in each:
                yield event
        except Exception as error:  # whatever it was, the client must hear of it
            yield sse.event(to_api_error(error).envelope())
            return
    yield sse.DONE
