"""The HTTP application: which address leads where, and what happens at start and end.

    RequestId ─▶ Counting ─▶ CORS (if set) ─▶ ErrorNet ─▶ routes ─▶ handlers

Invariant: no logic of its own. A handler takes the request and the runtime and gives a response;
whatever it raises becomes an error envelope in `server/api/errors.py`.

Read next: `server/api/runtime.py` (how the model gets there), `server/api/chat.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

import anyio.to_thread
from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from server.api import chat, completions, misc, schemas
from server.api.docs import DESCRIPTION, add_request_bodies, json_body
from server.api.errors import to_api_error
from server.api.keys import RequireKey
from server.api.metrics import Counting
from server.api.middleware import HEADER, ErrorNet, RequestId
from server.api.models import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from server.api.runtime import Runtime, local_runtime
from server.engine.engine import Engine
from server.settings import Settings


def create_app(settings: Settings, *, engine: Engine | None = None) -> FastAPI:
    """The application for `settings`.

    Args:
        engine: an engine that is already there; it is served at once. None: the model of the
            settings is fetched if need be and loaded, in the background, once the application
            starts.

    Either way the engine is closed when the application ends.
    """
    runtime = local_runtime(settings, engine)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if engine is None:
            runtime.start()
        yield
        await anyio.to_thread.run_sync(runtime.close)

    if engine is not None:
        runtime.start(in_background=False)
    app = FastAPI(
        title="Gabarito",
        version=_version(),
        description=DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        middleware=_middleware(settings, runtime),
        exception_handlers={HTTPException: _answer_http_error},
    )
    app.state.runtime = runtime
    _add_openai_routes(app, runtime)
    _add_own_routes(app, runtime)
    add_request_bodies(app)
    return app


def _add_openai_routes(app: FastAPI, runtime: Runtime) -> None:
    @app.post(
        "/v1/chat/completions", tags=["OpenAI"], openapi_extra=json_body(ChatCompletionRequest)
    )
    async def chat_completions(request: Request) -> Response:
        """Answer a conversation, in the shape that `response_format` asks for."""
        return await chat.chat_completions(request, runtime)

    @app.post("/v1/completions", tags=["OpenAI"], openapi_extra=json_body(CompletionRequest))
    async def plain_completions(request: Request) -> Response:
        """Continue a text."""
        return await completions.completions(request, runtime)

    @app.get("/v1/models", tags=["OpenAI"])
    async def models() -> Response:
        """The served model."""
        return await misc.list_models(runtime)

    @app.get("/v1/models/{model_id:path}", tags=["OpenAI"])
    async def model(model_id: str) -> Response:
        """The served model, by name."""
        return await misc.one_model(runtime, model_id)


def _add_own_routes(app: FastAPI, runtime: Runtime) -> None:
    @app.head("/health", include_in_schema=False)
    @app.get("/health", tags=["Server"])
    async def health() -> Response:
        """Whether the process lives, and its figures."""
        return await misc.health(runtime)

    @app.get("/metrics", tags=["Server"])
    async def metrics() -> Response:
        """The server's figures, for Prometheus."""
        return runtime.metrics.response()

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", tags=["Server"])
    async def ready() -> Response:
        """Whether the model is loaded (503 until then)."""
        return await misc.ready(runtime)

    @app.post("/v1/schemas/lint", tags=["Schemas"], openapi_extra=json_body(schemas.LintRequest))
    async def lint(request: Request) -> Response:
        """What a schema invites a model to get wrong, and what other servers make of it."""
        return await schemas.lint(request, runtime)

    @app.post(
        "/v1/schemas/compile", tags=["Schemas"], openapi_extra=json_body(schemas.CompileRequest)
    )
    async def compile_schema(request: Request) -> Response:
        """Make a schema's grammar now; its hash may stand for it in later requests."""
        return await schemas.compile_schema(request, runtime)

    @app.post("/tokenize", tags=["Server"], openapi_extra=json_body(TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        """The token ids of a text."""
        return await misc.tokenize(request, runtime)

    @app.post("/detokenize", tags=["Server"], openapi_extra=json_body(DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        """The text of token ids."""
        return await misc.detokenize(request, runtime)


async def _answer_http_error(_: Request, error: Exception) -> Response:
    return to_api_error(error).response()


def _middleware(settings: Settings, runtime: Runtime) -> list[Middleware]:
    layers = [Middleware(RequestId), Middleware(Counting, metrics=runtime.metrics)]
    if settings.server.cors_origins:
        layers.append(
            Middleware(
                CORSMiddleware,
                allow_origins=list(settings.server.cors_origins),
                allow_methods=["*"],
                allow_headers=["*"],
                expose_headers=[HEADER],
            )
        )
    if settings.server.api_keys:
        layers.append(Middleware(RequireKey, keys=settings.server.api_keys))
    return [*layers, Middleware(ErrorNet)]


def _version() -> str:
    try:
        return version("gabarito")
    except PackageNotFoundError:
        return "0"
