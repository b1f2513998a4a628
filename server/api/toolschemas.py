"""The schemas of tools: which can't be used, and what of the others is not enforced.

    strict       a keyword that can't be enforced is an error
    not strict   the rest is enforced; a schema that can't be compiled at all takes any object, and
                 a function whose schema nothing satisfies is never called, which is an error where
                 a call is required and there is no other

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
    GrammarError,
    Issue,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
    Vocabulary,
)
from server.api.errors import ApiError, issue_dict, to_api_error
from server.api.tools import FunctionTool, Offer
from server.turns import UNCALLABLE
from server.validate import AnswerValidator

CODE = "invalid_function_parameters"


def check_schemas(
    offer: Offer, vocabulary: Vocabulary, cache: GrammarCache, source: str | None
) -> None:
    """Compile each tool's schema by itself, to say which of them is at fault. Blocks.

    Args:
        source: what `x-extract` extracts from.

    Raises:
        ApiError: 400, one of them can't be used; or a call is required, and nothing satisfies the
            schemas of those that may be called.
    """
    unsatisfiable: dict[int, SchemaError] = {}
    for place, tool in enumerate(offer.tools):
        strict = bool(tool.function.strict)
        try:
            cache.get_json_schema(tool.schema_, vocabulary, strict=strict, source=source)
        except (UnsupportedSchemaError, UnsatisfiableSchemaError, SchemaBudgetError) as error:
            if strict:
                raise schema_error(error, offer, place) from error
            if isinstance(error, UnsatisfiableSchemaError):
                unsatisfiable[place] = error
        except SchemaError as error:
            raise schema_error(error, offer, place) from error
        except RecursionError:
            too_deep = SchemaBudgetError("it is nested too deeply")
            raise schema_error(too_deep, offer, place) from None
    if offer.required and all(place in unsatisfiable for place in offer.positions):
        place = offer.positions[0]
        raise schema_error(unsatisfiable[place], offer, place)


def schema_error(error: SchemaError, offer: Offer, place: int) -> ApiError:
    """What a client is told of a tool's schema. `place`: of the tool in the request."""
    told = to_api_error(error, schema_name=offer.tools[place].name, field="function")
    return ApiError(
        told.status,
        told.message,
        param=offer.where(place, "parameters"),
        code=CODE,
        extra=told.extra,
    )


def turn_error(error: GrammarError, offer: Offer) -> ApiError:
    """What a client is told of an error of a turn with these tools."""
    if isinstance(error, UnsupportedSchemaError):
        for place in range(len(offer.tools)):
            at = f"/tools/{place}/function/parameters"
            own = [i for i in error.issues if i.pointer == at or i.pointer.startswith(at + "/")]
            if own:
                issues = [Issue(i.keyword, i.pointer.removeprefix(at), i.reason) for i in own]
                return schema_error(UnsupportedSchemaError(issues), offer, place)
    return to_api_error(error, field="functions" if offer.legacy else "tools")


def tool_issues(issues: Iterable[Issue], tools: Sequence[FunctionTool]) -> dict[str, Any]:
    """The issues that are about tools, by tool, with pointers into its parameters.

    Returns:
        `unenforced`, with `checked`: the finished arguments are checked against the keyword; and
        `uncallable`, the tools that are never called. What is empty is absent.
    """
    facts: dict[str, list[dict[str, Any]]] = {"unenforced": [], "uncallable": []}
    for issue in issues:
        for place, tool in enumerate(tools):
            function = f"/tools/{place}/function"
            parameters = f"{function}/parameters"
            if issue.pointer not in (function, parameters) and not issue.pointer.startswith(
                parameters + "/"
            ):
                continue
            pointer = issue.pointer.removeprefix(function).removeprefix("/parameters")
            if issue.keyword in UNCALLABLE:
                told = {"tool": tool.name, "pointer": pointer, "reason": issue.reason}
                facts["uncallable"].append(told)
                continue
            told = issue_dict(Issue(issue.keyword, pointer, issue.reason))
            checked = AnswerValidator(tool.schema_).checks(issue.keyword, pointer)
            facts["unenforced"].append({"tool": tool.name, **told, "checked": checked})
    return {name: listed for name, listed in facts.items() if listed}
