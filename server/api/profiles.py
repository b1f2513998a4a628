"""`profile`: refuse what another server would refuse, so that what works here works there.

With the profile `openai` (of a request, or of the settings) a chat request is held to the hosted
API's rules for the shape of an answer, and gets its 400 in its words: a strict schema outside the
supported subset or over its limits, strict tools likewise, `json_object` without the word JSON in
the messages, and formats that only this server has.

Invariant: a profile only ever refuses; what passes is answered as without it.

Read next: `server/lint/profile.py`, `config/dialects.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from server.api.errors import ApiError
from server.api.formats import JsonObjectFormat, JsonSchemaFormat, Wanted
from server.api.models import ChatCompletionRequest
from server.lint import Dialect
from server.lint.dialects import tools_over_limit
from server.lint.profile import refusal

OPENAI = "openai"

_THEIRS = ("text", "json_object", "json_schema")


def require_profile(
    request: ChatCompletionRequest,
    wanted: Wanted | None,
    dialects: Mapping[str, Dialect],
    *,
    default: str | None,
) -> None:
    """Hold a request to the profile that it, or else the settings, ask for.

    Args:
        wanted: what the answer must be, a schema that was named by its hash resolved.
        default: the settings' profile.

    Raises:
        ApiError: 400, as the hosted API would answer; or the dialects' file lacks the profile.
    """
    name = request.profile or default
    if name is None or name == "none":
        return
    if name not in dialects:
        raise ApiError(
            400,
            f"Invalid value for 'profile': this server's dialects have no {name!r}.",
            param="profile",
            code="invalid_value",
        )
    _require_format(request, wanted, dialects[name])
    require_tools(
        (
            (index, tool.name, tool.schema_)
            for index, tool in enumerate(request.tools or ())
            if tool.function.strict
        ),
        dialects[name],
    )


def _require_format(
    request: ChatCompletionRequest, wanted: Wanted | None, dialect: Dialect
) -> None:
    if wanted is None:
        return
    field = wanted.field.partition(".")[0]
    if field != "response_format":
        raise ApiError(400, f"Unrecognized request argument supplied: {field}")
    if wanted.field == "response_format.schema":
        raise ApiError(
            400,
            f"Unknown parameter: '{wanted.field}'.",
            param=wanted.field,
            code="unknown_parameter",
        )
    asked = wanted.format
    if asked.type not in _THEIRS:
        raise ApiError(
            400,
            f"Invalid value: '{asked.type}'. Supported values are: 'json_schema', 'json_object', "
            "and 'text'.",
            param="response_format.type",
            code="invalid_value",
        )
    if isinstance(asked, JsonObjectFormat) and not _mentions_json(request):
        raise ApiError(
            400,
            "'messages' must contain the word 'json' in some form, to use 'response_format' of "
            "type 'json_object'.",
            param="messages",
        )
    if isinstance(asked, JsonSchemaFormat) and asked.json_schema.strict:
        require_schema(
            asked.json_schema.schema_ or {},
            dialect,
            subject=f"response_format '{asked.json_schema.name}'",
            param="response_format",
        )


def _mentions_json(request: ChatCompletionRequest) -> bool:
    return any("json" in message.text.lower() for message in request.messages)


def require_tools(tools: Iterable[tuple[int, str, Mapping[str, Any]]], dialect: Dialect) -> None:
    """Hold a request's strict tools, as (place in the list, name, parameters), to a dialect.

    Raises:
        ApiError: 400, as the hosted API would answer.
    """
    given = list(tools)
    for index, name, parameters in given:
        require_schema(
            parameters,
            dialect,
            subject=f"function '{name}'",
            param=f"tools[{index}].function.parameters",
            code="invalid_function_parameters",
        )
    for finding in tools_over_limit(len(given), dialect):
        raise ApiError(400, finding.message, param="tools", code="invalid_value")


def require_schema(
    schema: Mapping[str, Any],
    dialect: Dialect,
    *,
    subject: str,
    param: str,
    code: str | None = None,
) -> None:
    """Hold one strict schema to a dialect.

    Args:
        subject: what the schema is of, for the message: `response_format 'name'`.

    Raises:
        ApiError: 400, as the hosted API would answer.
    """
    complaint = refusal(schema, dialect)
    if complaint is not None:
        raise ApiError(400, f"Invalid schema for {subject}: {complaint}", param=param, code=code)
