"""The small endpoints: models, health, readiness, tokenize and detokenize.

Invariant: `/health` answers as long as the process lives, `/ready` says whether a request would be
served now; both cost nothing.

Read next: `server/api/app.py`, which hangs them in.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.api.binding import prompt_again
from server.api.models import ChatCompletionRequest, DetokenizeRequest, TokenizeRequest
from server.api.runtime import ALIAS, Runtime, Served, State
from server.api.validation import read_json, validated


async def health(runtime: Runtime) -> Response:
    """200 while the process lives; what it is doing, its figures and its faults."""
    body: dict[str, Any] = {"status": "ok", "state": runtime.state.value}
    if runtime.state is State.READY:
        served = runtime.served
        body["model"] = served.name
        body["engine"] = asdict(served.engine.stats())
        body["grammar_cache"] = served.formats.stats()
        body["answers"] = {"withheld": served.formats.faults}
    return JSONResponse(body)


async def ready(runtime: Runtime) -> Response:
    """200 once the model is loaded, else 503 with the reason.

    Raises:
        NotReadyError: the 503.
    """
    return JSONResponse({"status": "ready", "model": runtime.served.name})


async def list_models(runtime: Runtime) -> Response:
    """The served model, in OpenAI's list."""
    return JSONResponse({"object": "list", "data": [_model(runtime.served)]})


async def one_model(runtime: Runtime, name: str) -> Response:
    """The served model, by its name or the alias."""
    served = runtime.served
    served.require_model(name)
    return JSONResponse(_model(served))


def _model(served: Served) -> dict[str, Any]:
    info = served.engine.info
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "gabarito",
        "aliases": [ALIAS],
        "meta": {
            "architecture": info.architecture,
            "n_ctx": served.engine.n_ctx,
            "n_ctx_train": info.n_ctx_train,
            "n_params": info.n_params,
            "n_vocab": served.engine.vocabulary.size,
            "size_bytes": info.size_bytes,
        },
    }


async def tokenize(request: Request, runtime: Runtime) -> Response:
    """The token ids of a text, or of a conversation's prompt; with `with_pieces`, each with its
    text or, where it has none, bytes.

    Raises:
        ApiError: 400, as for a chat request with these messages and tools.
    """
    body = await read_json(request, max_bytes=runtime.max_body_bytes)
    wanted = validated(TokenizeRequest, body)
    served = _asked(runtime, wanted.model)
    engine = served.engine

    def split() -> list[int]:
        return engine.tokenize(
            wanted.words, add_special=wanted.add_special, parse_special=wanted.parse_special
        )

    if wanted.messages is None:
        tokens = await anyio.to_thread.run_sync(split, abandon_on_cancel=True)
    else:
        chat = {"model": ALIAS, "messages": wanted.messages, "tools": wanted.tools}
        tokens = list(await prompt_again(served, validated(ChatCompletionRequest, chat), ()))
    if not wanted.with_pieces:
        return JSONResponse({"tokens": tokens, "count": len(tokens)})
    vocabulary = engine.vocabulary
    pieces = [
        {"id": token, "piece": vocabulary.special.get(token) or _piece(vocabulary.tokens[token])}
        for token in tokens
    ]
    return JSONResponse({"tokens": pieces, "count": len(tokens)})


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)


async def detokenize(request: Request, runtime: Runtime) -> Response:
    """The text of token ids, special tokens included.

    Raises:
        InvalidRequestError: an id that the vocabulary doesn't have.
    """
    body = await read_json(request, max_bytes=runtime.max_body_bytes)
    wanted = validated(DetokenizeRequest, body)
    engine = _asked(runtime, wanted.model).engine
    return JSONResponse({"content": engine.detokenize(wanted.tokens)})


def _asked(runtime: Runtime, name: str | None) -> Served:
    served = runtime.served
    if name is not None:
        served.require_model(name)
    return served
