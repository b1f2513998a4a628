"""A request's body -> a validated request model, or an `ApiError` that names the field.

`read_json` reads the bytes (with a limit that doesn't trust Content-Length) and parses them more
strictly than Python's parser does by itself; `validated` runs a pydantic model and turns its first
complaint into OpenAI's words.

Invariant: what passes is finite JSON without duplicate keys, lone surrogates or deep nesting, with
its objects in the order in which they were written (a schema's order of keys matters).

Read next: `server/api/models.py`, the request models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import anyio
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from server.api.errors import ApiError

#: How deep arrays and objects may nest in a body.
MAX_DEPTH = 200

#: Most digits of an integer in a body.
_MAX_INTEGER = 4_000

#: Of a body that is too large, so much more is read and thrown away, so that a client that is
#: still sending gets to read the answer. Past that, or after so many seconds, the line is cut.
_DRAIN_BYTES = 64_000_000
_DRAIN_SECONDS = 10.0

_Model = TypeVar("_Model", bound=BaseModel)

#: pydantic's error types -> OpenAI's codes. Types of our own are codes already.
_CODES = {
    "extra_forbidden": "unknown_parameter",
    "missing": "missing_required_parameter",
}
_OWN_CODES = frozenset(
    {
        "invalid_function_parameters",
        "invalid_value",
        "missing_required_parameter",
        "unknown_parameter",
        "unsupported_parameter",
        "unsupported_value",
    }
)


async def read_json(request: Request, *, max_bytes: int) -> dict[str, Any]:
    """The JSON object in the request's body.

    Raises:
        ApiError: 413 too large, 415 another content type, 400 not a proper JSON object.
        ClientDisconnect: the client went away in the middle of its body.
    """
    kind = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(
            415,
            f"The body must be JSON, with the header Content-Type: application/json (not {kind}).",
            code="unsupported_content_type",
        )
    return parse_json(await _read_body(request, max_bytes))


async def _read_body(request: Request, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    stream = request.stream()
    async for part in stream:
        size += len(part)
        if size > max_bytes:
            parts.clear()
            with anyio.move_on_after(_DRAIN_SECONDS):
                async for more in stream:
                    size += len(more)
                    if size > max_bytes + _DRAIN_BYTES:
                        break
            raise ApiError(
                413,
                f"The body is larger than this server takes ({max_bytes} bytes).",
                code="request_too_large",
                headers={"Connection": "close"},
            )
        parts.append(part)
    return b"".join(parts)


def parse_json(body: bytes) -> dict[str, Any]:
    """Parse a body strictly.

    Raises:
        ApiError: 400, with where and why.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        _refuse(f"it isn't valid UTF-8 (byte {error.start})")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_constant,
            parse_float=_float,
            parse_int=_integer,
        )
    except json.JSONDecodeError as error:
        _refuse(f"{error.msg} (line {error.lineno}, column {error.colno})")
    except RecursionError:
        _refuse("it is nested too deeply")
    except ValueError as error:
        _refuse(str(error))
    if not isinstance(value, dict):
        _refuse("it must be an object")
    for text in _checked_strings(value):
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            _refuse("a string holds half of a surrogate pair, which isn't a character")
    return value


def validated(model: type[_Model], body: dict[str, Any]) -> _Model:
    """`body` as `model`.

    Raises:
        ApiError: 400 with `param` and `code` of the first complaint.
    """
    try:
        return model.model_validate(body)
    except ValidationError as error:
        complaints = error.errors(include_url=False, include_context=True)
    # An unknown field is often a misspelt one, and explains why another is missing.
    complaints.sort(key=lambda complaint: complaint["type"] != "extra_forbidden")
    raise _complaint(complaints[0])


def _complaint(complaint: ErrorDetails) -> ApiError:
    own = str(complaint.get("ctx", {}).get("param", ""))
    param = path((*complaint["loc"], *([own] if own else [])))
    kind = complaint["type"]
    message = complaint["msg"]
    if kind == "extra_forbidden":
        return ApiError(400, f"Unknown parameter: '{param}'.", param=param, code=_CODES[kind])
    if kind == "missing":
        text = f"Missing required parameter: '{param}'."
        return ApiError(400, text, param=param, code=_CODES[kind])
    if kind in _OWN_CODES:
        return ApiError(400, message, param=param or None, code=kind)
    message = _in_plain_words(kind, message, complaint)
    code = "invalid_type" if kind.endswith("_type") or kind == "is_instance_of" else "invalid_value"
    text = f"Invalid value for '{param}': {message[:1].lower() + message[1:]}."
    return ApiError(400, text, param=param or None, code=code)


def _in_plain_words(kind: str, message: str, complaint: ErrorDetails) -> str:
    """pydantic's message, without what only a Python programmer would say."""
    context = complaint.get("ctx", {})
    match kind:
        case "list_type" | "tuple_type":
            return "input should be an array"
        case "dict_type" | "model_type" | "model_attributes_type":
            return "input should be an object"
        case "too_short":
            return f"it must have at least {context['min_length']}, not {context['actual_length']}"
        case "too_long":
            return f"it must have at most {context['max_length']}, not {context['actual_length']}"
        case _:
            return message


def path(location: tuple[int | str, ...]) -> str:
    """A pydantic location in the API's words: `messages[0].content`.

    Parts that begin with `#` name a branch of a union in `models.py`, not a key.
    """
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not part.startswith("#") and part != "[key]":
            text += f".{part}" if text else part
    return text


def _refuse(reason: str) -> NoReturn:
    raise ApiError(400, f"The body isn't a JSON request: {reason}.", code="invalid_json")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"the key {name!r} stands twice in one object")
            seen.add(name)
    return value


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} isn't a JSON value")


def _integer(text: str) -> int:
    if len(text) > _MAX_INTEGER:
        raise ValueError(f"a number in it has more than {_MAX_INTEGER} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


def _checked_strings(value: object) -> Iterator[str]:
    """All strings of a JSON value, keys too; refuses deep nesting on the way."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        below: list[object] = []
        for item in level:
            if isinstance(item, str):
                yield item
            elif isinstance(item, list):
                below += item
            elif isinstance(item, dict):
                below += item
                below += item.values()
        if not below:
            return
        level = below
    _refuse(f"it is nested more than {MAX_DEPTH} levels deep")
