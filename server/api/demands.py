"""What a chat request demands of its answer beyond the shape -> a `Grounding`, a `RepairLoop`.

Invariant: a demand that can't be met (nothing to ground, nothing to repair) is a 400 that names the
field, before anything is generated.

Read next: `server/api/checked.py`, the fields; `server/api/judging.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio.to_thread

from server.api.answerformat import AnswerFormat
from server.api.checked import RepairOptions, joined
from server.api.errors import ApiError
from server.api.judging import Grounding, OnUngrounded
from server.api.models import ChatCompletionRequest
from server.grounding import GroundingError, Rule, Source, rules
from server.repair import RepairLoop

#: Most characters that values are looked for in: reading the numbers and dates of so many takes a
#: second or two.
MAX_SOURCE = 1_000_000


async def grounding_of(
    wanted: ChatCompletionRequest, answer_format: AnswerFormat
) -> Grounding | None:
    """What the answer is to be grounded in; None: in nothing.

    Raises:
        ApiError: 400, a rule can't be read, or there is nothing that could be grounded.
    """
    if answer_format.bound is None:
        for name in ("grounding", "on_ungrounded"):
            if getattr(wanted, name) is not None:
                raise _refusal(name, "only an answer that is JSON ('response_format') has values")
        return None
    if wanted.grounding is None and not answer_format.bound.says_ground:
        if wanted.on_ungrounded is not None:
            raise _refusal(
                "on_ungrounded",
                "nothing is to be grounded: give 'grounding', or 'x-ground' in the schema",
            )
        return None
    found = await anyio.to_thread.run_sync(
        partial(_rules, wanted, answer_format.bound.schema), abandon_on_cancel=True
    )
    if not found:
        return None
    if wanted.offer is not None and wanted.on_ungrounded == "null":
        raise _refusal("on_ungrounded", "answers that may be tool calls are sent as they are")
    source = source_of(wanted)
    if len(source) > MAX_SOURCE:
        raise _refusal(
            "source" if wanted.source is not None else "messages",
            f"at most {MAX_SOURCE:,} characters can be a source of grounding, not {len(source):,}",
        )
    default: OnUngrounded = "report" if wanted.repair is None else "repair"
    return Grounding(found, Source(source), wanted.on_ungrounded or default)


def loops_of(
    wanted: ChatCompletionRequest,
    answer_format: AnswerFormat,
    *,
    count: int,
    max_tokens: int | None,
) -> list[RepairLoop] | None:
    """What decides about further attempts, for each choice; None: there is one attempt.

    Args:
        count: how many choices there are.
        max_tokens: the budget of a first attempt.

    Raises:
        ApiError: 400, this answer can't be repaired.
    """
    options = wanted.repair
    if options is None and wanted.on_ungrounded == "repair":
        options = RepairOptions()
    if options is None:
        return None
    param = "on_ungrounded" if wanted.repair is None else "repair"
    if not answer_format.is_structured and wanted.offer is None:
        raise _refusal(
            param, "only an answer with a 'response_format' or with 'tools' can be repaired"
        )
    most = options.max_tokens
    if most is not None:
        max_tokens = most if max_tokens is None else min(most, max_tokens)
    return [
        RepairLoop(max_attempts=options.max_attempts, max_tokens=max_tokens, most_tokens=most)
        for _ in range(count)
    ]


def _rules(wanted: ChatCompletionRequest, schema: dict[str, Any]) -> tuple[Rule, ...]:
    try:
        return rules(schema, wanted.grounding)
    except GroundingError as error:
        in_request = error.where.startswith("grounding")
        raise ApiError(
            400,
            f"Invalid value for '{'grounding' if in_request else 'response_format'}': {error}.",
            param=error.where if in_request else "response_format",
            code="invalid_value" if in_request else "invalid_schema",
        ) from error


def source_of(wanted: ChatCompletionRequest) -> str:
    """The explicit source, else what the user said."""
    given = joined(wanted.source)
    if given is not None:
        return given
    return "\n\n".join(each.text for each in wanted.messages if each.role == "user")


def _refusal(param: str, reason: str) -> ApiError:
    return ApiError(
        400, f"Invalid value for '{param}': {reason}.", param=param, code="invalid_value"
    )
