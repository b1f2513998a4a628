"""The one place where an exception becomes OpenAI's error envelope.

    {"error": {"message": …, "type": …, "param": …, "code": …}}

    ApiError                      what a handler raises itself: status, type, param, code, headers
    grammar.SchemaError & co.     400, param `response_format`, the keywords in the message
    grammar.GrammarSourceError    400, param `response_format` (a pattern, choices, a grammar)
    grammar.NoLegalContinuation   500 with the grammar's state
    grammar.StepBudgetError       500, likewise
    server.prompt.ChatTemplateError, server.engine.errors.*, pydantic's ValidationError, HTTP errors
    anything else                 500 that says nothing of the inside; the log has it

Invariant: every answer that isn't a success goes through `to_api_error`, and the openai SDK maps
its status to the class that it has for it (400 BadRequestError, 404 NotFoundError, 429
RateLimitError, 5xx InternalServerError, …).

Read next: `server/api/validation.py`, which names the field that a request got wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from grammar import (
    GrammarError,
    GrammarSourceError,
    Issue,
    NoLegalContinuation,
    SchemaBudgetError,
    SchemaError,
    StepBudgetError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from server.engine.errors import (
    BudgetTooSmallError,
    ContextOverflowError,
    EngineClosedError,
    InvalidRequestError,
    QueueFullError,
    QueueTimeoutError,
)
from server.prompt import ChatTemplateError

LOGGER = logging.getLogger("gabarito.api")

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
RATE_LIMIT = "rate_limit_error"

#: Tells the openai SDK that a second try would end the same way.
NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}

_MAX_ISSUES_IN_MESSAGE = 20

#: What `Retry-After` says to a request that has waited in vain, in seconds.
_RETRY_BUSY = 5


class ApiError(Exception):
    """An answer other than a success: HTTP status, and the members of OpenAI's error object.

    `extra` adds members of our own to that object; a client that doesn't know them ignores them.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def envelope(self) -> dict[str, Any]:
        """The JSON body, and the data of an error event in a stream."""
        return {
            "error": {
                "message": self.message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
                **self.extra,
            }
        }

    def response(self) -> JSONResponse:
        """The HTTP answer."""
        return JSONResponse(self.envelope(), status_code=self.status, headers=self.headers)


class NotReadyError(ApiError):
    """The model isn't loaded (yet): 503, and when to ask again."""

    def __init__(self, message: str, *, code: str, retry_after_seconds: int) -> None:
        super().__init__(
            503,
            message,
            kind=SERVER_ERROR,
            code=code,
            headers={"Retry-After": str(retry_after_seconds)},
        )


class RequestTimeoutError(ApiError):
    """The answer took longer than the server allows: 504, not worth a second try."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            504,
            f"The request took longer than this server allows ({seconds:g} s).",
            kind=SERVER_ERROR,
            code="request_timeout",
            headers=NO_RETRY,
        )


def to_api_error(
    error: BaseException, *, schema_name: str | None = None, field: str = "response_format"
) -> ApiError:
    """What a client is told of `error`. Unknown errors are logged here, and only here.

    Args:
        schema_name: the name that the request gave its schema, for the message.
        field: the field that the schema or grammar came in.
    """
    match error:
        case ApiError():
            return error
        case NoLegalContinuation():
            return ApiError(
                500,
                f"The grammar allows no token here, so the answer can't go on: {error.state}",
                kind=SERVER_ERROR,
                code="no_legal_continuation",
                headers=NO_RETRY,
            )
        case StepBudgetError():
            return ApiError(
                500,
                "A pattern of this request's grammar needs more work for one token than the server "
                f"allows ({error.limit} steps), so the answer can't go on: {error.state}",
                kind=SERVER_ERROR,
                code="step_too_costly",
                headers=NO_RETRY,
            )
        case SchemaError():
            return _schema_error(error, schema_name, field)
        case GrammarSourceError():
            return _source_error(error, field)
        case ChatTemplateError():
            return ApiError(400, error.message, param=error.param, code="invalid_prompt")
        case ContextOverflowError():
            return _context_overflow(error)
        case BudgetTooSmallError():
            return ApiError(
                400,
                f"With 'truncation' set to 'close', {error}.",
                param="max_tokens",
                code="max_tokens_too_small",
                extra={"min_tokens": error.needed, "max_tokens": error.allowed},
            )
        case QueueTimeoutError():
            return ApiError(
                503,
                f"The request has waited for its turn for more than {error.seconds:g} s.",
                kind=SERVER_ERROR,
                code="queue_timeout",
                headers={"Retry-After": str(_RETRY_BUSY)},
            )
        case InvalidRequestError():
            return ApiError(400, str(error), param=error.field, code="invalid_value")
        case QueueFullError():
            return ApiError(
                429,
                "Too many requests of this client are waiting."
                if error.of_client
                else "Too many requests are waiting for this server.",
                kind=RATE_LIMIT,
                code="rate_limit_exceeded",
                headers={"Retry-After": str(error.retry_after_seconds)},
            )
        case EngineClosedError():
            return NotReadyError(
                "The engine has stopped.", code="engine_stopped", retry_after_seconds=5
            )
        case HTTPException():
            return _http_error(error)
        case GrammarError():
            return _internal(error, "The grammar failed.", "grammar_error")
        case _:
            return _internal(error, "The server had an internal error.", "internal_error")


def _schema_error(error: SchemaError, name: str | None, field: str) -> ApiError:
    subject = f"{field} {name!r}" if name else field
    where = f"schema for {subject}" if field != "schema" else "schema"
    issues: tuple[Issue, ...] = (Issue(error.keyword, error.pointer, error.message),)
    match error:
        case UnsupportedSchemaError():
            code = "unsupported_schema"
            issues = error.issues
            text = (
                f"Invalid {where}: strict is true, and these keywords can't be "
                f"enforced: {_list(issues)}. Take them out, or set strict to false to have the "
                "rest enforced."
            )
        case UnsatisfiableSchemaError():
            code = "unsatisfiable_schema"
            text = f"Invalid {where}: nothing satisfies it: {_list(issues)}"
        case SchemaBudgetError():
            code = "schema_too_complex"
            text = f"Invalid {where}: it is too complex: {_list(issues)}"
        case _:
            code = "invalid_schema"
            text = f"Invalid {where}: {_list(issues)}"
    return ApiError(
        400,
        text,
        param=field,
        code=code,
        extra={"issues": [issue_dict(issue) for issue in issues]},
    )


_SOURCE_CODES = {
    "invalid": "invalid_grammar",
    "unsupported": "unsupported_grammar",
    "unsatisfiable": "unsatisfiable_grammar",
    "too complex": "grammar_too_complex",
}


def _source_error(error: GrammarSourceError, field: str) -> ApiError:
    return ApiError(
        400,
        f"Invalid value for '{field}': {error}.",
        param=field,
        code=_SOURCE_CODES[error.problem],
        extra={} if error.line is None else {"line": error.line, "column": error.column},
    )


def issue_dict(issue: Issue) -> dict[str, str]:
    """One keyword that isn't enforced, as the API shows it."""
    return {"keyword": issue.keyword, "pointer": issue.pointer, "reason": issue.reason}


def _list(issues: Iterable[Issue]) -> str:
    texts = [
        f"{issue.keyword + ' ' if issue.keyword else ''}at {issue.pointer or '(root)'}"
        f" ({issue.reason})"
        for issue in issues
    ]
    shown, hidden = texts[:_MAX_ISSUES_IN_MESSAGE], len(texts) - _MAX_ISSUES_IN_MESSAGE
    return ", ".join(shown) + (f", and {hidden} more" if hidden > 0 else "")


def _context_overflow(error: ContextOverflowError) -> ApiError:
    return ApiError(
        400,
        f"This model's maximum context length is {error.n_ctx} tokens. However, the prompt has "
        f"{error.prompt_tokens} tokens, and at least one must be left for the answer.",
        param="messages",
        code="context_length_exceeded",
        extra={"prompt_tokens": error.prompt_tokens, "n_ctx": error.n_ctx},
    )


def _http_error(error: HTTPException) -> ApiError:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return ApiError(404, "There is nothing at this address.", code="unknown_url")
    if error.status_code == 405:
        return ApiError(
            405,
            "This address doesn't take this HTTP method.",
            code="method_not_allowed",
            headers=headers,
        )
    kind = SERVER_ERROR if error.status_code >= 500 else INVALID_REQUEST
    return ApiError(error.status_code, str(error.detail), kind=kind, headers=headers)


def _internal(error: BaseException, message: str, code: str) -> ApiError:
    LOGGER.error("%s", message, exc_info=error)
    return ApiError(500, message, kind=SERVER_ERROR, code=code)
