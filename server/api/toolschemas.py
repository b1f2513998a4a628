"""The schemas of tools: which can't be used, and what of the others is not enforced.

    strict       a keyword that can't be enforced is an error
    not strict   the rest is enforced; a schema that can't be compiled at all takes any object

A schema that is no schema is an error either way. Errors are OpenAI's: `param` is
`tools[i].function.parameters`, `code` is `invalid_function_parameters`; `issues` has pointers into
the parameters.

Read next: `server/turns.py`, where the schemas become a grammar.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grammar import (
    GrammarCache,
    Issue,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    Vocabulary,
)
from server.api.errors import ApiError, issue_dict, to_api_error
from server.api.tools import FunctionTool
from server.validate import AnswerValidator

CODE = "invalid_function_parameters"


def check_schemas(
    tools: Sequence[FunctionTool], vocabulary: Vocabulary, cache: GrammarCache
) -> None:
    """Compile each tool's schema by itself, to say which of them is at fault. Blocks.

    Raises:
        ApiError: 400, one of them can't be used.
    """
    for place, tool in enumerate(tools):
        strict = bool(tool.function.strict)
        try:
            cache.get_json_schema(tool.schema_, vocabulary, strict=strict)
        except (UnsupportedSchemaError, UnsatisfiableSchemaError, SchemaBudgetError) as error:
            if strict:
                raise schema_error(error, place, tool.name) from error
        except SchemaError as error:
            raise schema_error(error, place, tool.name) from error
        except RecursionError:
            too_deep = SchemaBudgetError("it is nested too deeply")
            raise schema_error(too_deep, place, tool.name) from None


def schema_error(error: SchemaError, place: int, name: str) -> ApiError:
    """What a client is told of a tool's schema. `place`: of the tool in the request."""
    told = to_api_error(error, schema_name=name, field="function")
    return ApiError(
        told.status,
        told.message,
        param=f"tools[{place}].function.parameters",
        code=CODE,
        extra=told.extra,
    )


def unenforced(issues: Iterable[Issue], tools: Sequence[FunctionTool]) -> list[dict[str, Any]]:
    """The issues that are about tools, by tool, with pointers into its parameters; `checked`: the
    finished arguments are checked against the keyword. A tool whose name the model's format can't
    write is never called: an issue of the keyword `name`."""
    listed = []
    for issue in issues:
        for place, tool in enumerate(tools):
            function = f"/tools/{place}/function"
            parameters = f"{function}/parameters"
            if issue.pointer == function:
                listed.append({"tool": tool.name, **issue_dict(issue), "checked": True})
            elif issue.pointer == parameters or issue.pointer.startswith(parameters + "/"):
                pointer = issue.pointer.removeprefix(parameters)
                told = issue_dict(Issue(issue.keyword, pointer, issue.reason))
                checked = AnswerValidator(tool.schema_).checks(issue.keyword, pointer)
                listed.append({"tool": tool.name, **told, "checked": checked})
    return listed
