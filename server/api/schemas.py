"""`POST /v1/schemas/lint` and `POST /v1/schemas/compile`: a schema before it is used.

    lint      what the schema invites a model to get wrong, and what other servers make of it
    compile   make its grammar now, and give it a name: a request may then say
              `json_schema: {"name": ..., "hash": ...}` instead of sending the schema again

Invariant: a hash names exactly what was compiled (schema, `strict`, options, model); one that this
server doesn't know (any more) is a 400, never another schema.

Read next: `server/lint/`, `server/api/structured.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, Self

import anyio.to_thread
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.api.checked import Source, joined
from server.api.errors import ApiError
from server.api.fields import RequestModel, refuse
from server.api.formats import JsonSchema, JsonSchemaFormat, Wanted
from server.api.runtime import Runtime, Served
from server.api.validation import read_json, validated
from server.lint import Dialect, LintReport, lint_schema, lint_tools


class LintRequest(RequestModel):
    """`POST /v1/schemas/lint`: a schema, or a request's list of tools."""

    schema_: dict[str, Any] | None = Field(default=None, alias="schema", description="The schema.")
    tools: list[dict[str, Any]] | None = Field(
        default=None, description="Or tools, as in a chat request; pointers are into this list."
    )
    targets: list[str] | None = Field(
        default=None,
        description="Other servers whose view is wanted (openai, anthropic, gemini, llama_cpp, "
        "vllm); default: all, []: none.",
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.schema_ is None) == (self.tools is None):
            raise refuse("invalid_value", "Give either 'schema' or 'tools'.", "schema")
        return self


class CompileRequest(RequestModel):
    """`POST /v1/schemas/compile`: `json_schema` as in a chat request; `strict` is true here."""

    schema_: dict[str, Any] = Field(alias="schema", description="The schema.")
    name: str = Field(default="schema", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    strict: bool = Field(
        default=True,
        description="false: what can't be enforced is left out, and listed in the answer.",
    )
    key_order: Literal["schema", "free"] | None = Field(
        default=None, description="As in a request; a request that names the hash has this one."
    )
    formats: Literal["assert", "annotate"] | None = Field(
        default=None, description="As in a request; a request that names the hash has this one."
    )
    source: Source = Field(
        default=None,
        description="The text (or texts) that `x-extract` extracts from: the grammar of this "
        "source is made. A request brings its source again.",
    )


async def lint(request: Request, runtime: Runtime) -> Response:
    """The report on a schema or on tools; needs no model.

    Raises:
        ApiError: 400, an unknown target or a wrong body. A wrong *schema* is a finding.
    """
    body = await read_json(request, max_bytes=runtime.max_body_bytes)
    wanted = validated(LintRequest, body)
    dialects = _targets(runtime.dialects, wanted.targets)
    report = await anyio.to_thread.run_sync(
        partial(_report, wanted, dialects), abandon_on_cancel=True
    )
    sources = {
        target.name: {"title": target.title, "source": target.source, "date": target.date}
        for target in dialects
    }
    return JSONResponse({"object": "schema.lint", **report.as_dict(), "targets": sources})


def _report(wanted: LintRequest, dialects: Sequence[Dialect]) -> LintReport:
    if wanted.tools is not None:
        return lint_tools(wanted.tools, dialects)
    assert wanted.schema_ is not None
    return lint_schema(wanted.schema_, dialects)


def _targets(known: dict[str, Dialect], names: list[str] | None) -> list[Dialect]:
    if names is None:
        return list(known.values())
    for index, name in enumerate(names):
        if name not in known:
            raise ApiError(
                400,
                f"Invalid value for 'targets': there is no target {name!r}; there are: "
                f"{', '.join(known)}.",
                param=f"targets[{index}]",
                code="invalid_value",
            )
    return [known[name] for name in dict.fromkeys(names)]


async def compile_schema(request: Request, runtime: Runtime) -> Response:
    """Make a schema's grammar and its first mask, and name it.

    Raises:
        ApiError: 400, as for a chat request with this schema.
    """
    served: Served = runtime.served
    body = await read_json(request, max_bytes=runtime.max_body_bytes)
    wanted = validated(CompileRequest, body)
    named = JsonSchema(
        name=wanted.name,
        schema=wanted.schema_,
        strict=wanted.strict,
        key_order=wanted.key_order,
        formats=wanted.formats,
    )
    asked = Wanted(JsonSchemaFormat(type="json_schema", json_schema=named), "schema")
    compiled = await served.formats.keep(asked, source=joined(wanted.source))
    return JSONResponse({"object": "schema.compiled", "name": wanted.name, **compiled})
