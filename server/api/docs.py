"""The OpenAPI documentation of bodies that FastAPI doesn't parse itself.

The handlers read their bodies themselves (limits, strict JSON, OpenAI's error envelope), so their
models are added to the OpenAPI document here.

Read next: `server/api/models.py`, where the descriptions are.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from server.api.models import (
    ChatCompletionRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from server.api.schemas import CompileRequest, LintRequest

DESCRIPTION = """\
OpenAI-compatible inference for a local GGUF model whose answers fit the shape they were asked for.

Every answer carries `x-request-id`. Errors come in OpenAI's envelope:
`{"error": {"message", "type", "param", "code"}}`. Every field of OpenAI's API is known: supported,
accepted without effect, or refused with a 400 that names it.
"""

_MODELS = (
    ChatCompletionRequest,
    CompletionRequest,
    TokenizeRequest,
    DetokenizeRequest,
    LintRequest,
    CompileRequest,
)
_REF = "#/components/schemas/{model}"


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is `model`."""
    schema = {"$ref": _REF.format(model=model.__name__)}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def add_request_bodies(app: FastAPI) -> None:
    """Put the request models into the application's OpenAPI document."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = original()
            _, definitions = models_json_schema(
                [(model, "validation") for model in _MODELS], ref_template=_REF
            )
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(definitions["$defs"])
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
