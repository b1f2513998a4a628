"""API keys: who may ask, where the settings name any.

Invariants: without a valid key nothing is read of a request and nothing said but 401; a key is
compared in constant time and never logged. `/health` and `/ready` need none, since they are asked
by what watches over the server.

Read next: `server/api/middleware.py`, between whose layers this one lies.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from server.api.errors import ApiError

#: Addresses that need no key.
OPEN = frozenset({"/health", "/ready"})


class RequireKey:
    """ASGI middleware: 401 for requests without one of the keys (`Authorization: Bearer …`)."""

    def __init__(self, app: ASGIApp, *, keys: Sequence[str]) -> None:
        self._app = app
        self._digests = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            key = bearer(Headers(scope=scope).get("authorization", ""))
            if not self._is_known(key):
                await _refusal(given=key is not None).response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_known(self, key: str | None) -> bool:
        if key is None:
            return False
        digest = _digest(key)
        found = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(found)


def bearer(header: str) -> str | None:
    """The key of an `Authorization` header; None: it has none."""
    scheme, _, key = header.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _refusal(*, given: bool) -> ApiError:
    text = "This API key is not one of this server's." if given else "An API key is needed"
    more = "" if given else ", as the header Authorization: Bearer KEY."
    return ApiError(
        401, text + more, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"}
    )
