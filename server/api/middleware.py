"""The outermost layers of the application, in plain ASGI (so that a disconnect gets through).

    RequestId ─▶ Counting ─▶ (CORS) ─▶ (RequireKey) ─▶ ErrorNet ─▶ routes

`RequestId` puts an id on every answer, `ErrorNet` turns every exception into an error envelope.

Invariant: an exception gets past `ErrorNet` only when the answer has already begun.

Read next: `server/api/errors.py`.
"""

from __future__ import annotations

import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.api.errors import to_api_error
from server.api.running import ClientGoneError

HEADER = "x-request-id"

_SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestId:
    """ASGI middleware: `x-request-id` on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get(HEADER))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        await self._app(scope, receive, send_with_id)


class ErrorNet:
    """ASGI middleware: exceptions become error envelopes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        started = False

        async def watching_send(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watching_send)
        except (ClientGoneError, ClientDisconnect):
            return  # nobody is left to answer
        except Exception as error:
            if started or scope["type"] != "http":
                raise
            await to_api_error(error).response()(scope, receive, send)


def _request_id(offered: str | None) -> str:
    """The client's own id if it is a sane one, else a new one."""
    if offered is not None and _SANE_ID.fullmatch(offered):
        return offered
    return f"req_{uuid.uuid4().hex}"
