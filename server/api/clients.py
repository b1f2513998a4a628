"""Who a request comes from, so that clients can take turns.

An API key tells clients apart where one is sent (`keys.py` checks it, where the settings name any),
then the request's field `user`, then the address. Invariant: a key is never kept or shown, only a
digest of it.

Read next: `server/engine/waiting.py`, where turns are taken.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar

from starlette.requests import Request

from server.api.keys import bearer

#: The client of the request that is being served.
current_client: ContextVar[str] = ContextVar("current_client", default="")


def client_of(request: Request, user: str | None) -> str:
    """A name for whoever sent the request."""
    key = bearer(request.headers.get("authorization", ""))
    if key is not None:
        return f"key:{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if user:
        return f"user:{user}"
    return f"address:{request.client.host}" if request.client is not None else ""
