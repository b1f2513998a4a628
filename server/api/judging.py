"""What is said of a finished answer: is it complete, is it valid, is it grounded?

    cut off (token limit, a stop string)        complete: false; nothing more is claimed
    closed by the engine for want of tokens     complete, and judged; but one to be repaired
    complete, of a pattern, choice or grammar   complete: true; the grammar saw to the rest
    complete JSON                               judged by a full validator of the whole schema, and,
                                                where that is asked for, against its source

Invariant: an answer to a schema that was enforced whole is never sent if it is complete and not
valid. That would be a fault of this server (the grammar and the validator disagree): it is logged,
counted, and a 500.

Read next: `server/validate.py`, `server/grounding/`; `server/api/extension.py`, where the facts go.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import anyio.to_thread

from server.api.answerformat import AnswerFormat
from server.api.errors import NO_RETRY, SERVER_ERROR, ApiError
from server.api.extension import ChoiceFacts
from server.engine.types import Finished
from server.grounding import Rule, Source, Ungrounded, check, nulled
from server.jsonstream import Done, JsonScanner, Path
from server.repair import Reason
from server.validate import Validation

OnUngrounded: TypeAlias = Literal["report", "repair", "null"]

#: Most characters of a value in a reason that is put into words.
_MAX_VALUE = 200

#: Integers of more digits are not stated anywhere, and too large to be read.
_MAX_INTEGER = 400

LOGGER = logging.getLogger("gabarito.api")


@dataclass(frozen=True, slots=True)
class Grounding:
    """What an answer is to be grounded in.

    rules          which values, and how
    source         the text
    on_ungrounded  a value that is not grounded is reported only; makes the answer one to be
                   repaired; or becomes null
    """

    rules: tuple[Rule, ...]
    source: Source
    on_ungrounded: OnUngrounded = "report"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a finished answer.

    written      the answer as the model wrote it
    cut_off      why it is not complete: `length` or `stop_sequence`; None: it is
    closed       complete, but only because the engine closed it when its tokens ran out
    validation   what a full validator found; None: none was asked
    ungrounded   values that the source does not state; None: nobody looked
    intolerable  those of them that may not be sent
    with_nulls   the answer with null in their place, as far as the schema allows; None: unchanged
    """

    written: str
    cut_off: str | None = None
    closed: bool = False
    validation: Validation | None = None
    ungrounded: tuple[Ungrounded, ...] | None = None
    intolerable: tuple[Ungrounded, ...] = ()
    with_nulls: str | None = None

    @property
    def is_invalid(self) -> bool:
        """Whether the answer is complete and does not fit its schema."""
        return self.validation is not None and self.validation.valid is False

    def tell(self, facts: ChoiceFacts) -> None:
        """Enter what is known into the answer's `gabarito` object."""
        if self.cut_off is not None:
            facts.validation = {"complete": False, "reason": self.cut_off}
            return
        found = {} if self.validation is None else self.validation.as_dict()
        facts.validation = {"complete": True, **found}
        if self.ungrounded is not None:
            facts.grounding = {
                "ungrounded": [each.as_dict() for each in self.ungrounded],
                **({} if self.with_nulls is None else {"nulled": True}),
            }

    def reasons(self, *, max_tokens: int | None = None) -> tuple[Reason, ...]:
        """Why the answer is not good enough; none: nothing is wrong with it."""
        cut = _cut_off_reason(self.cut_off, self.closed, max_tokens)
        if cut is not None:
            return (cut,)
        if self.is_invalid:
            assert self.validation is not None
            return tuple(
                Reason(
                    "invalid",
                    violation.message,
                    violation.pointer,
                    {"keyword": violation.keyword, "schema_pointer": violation.schema_pointer},
                )
                for violation in self.validation.violations
            )
        return tuple(
            Reason("ungrounded", _stated(each), each.pointer, _shown(each))
            for each in self.intolerable
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the finished answers of one request.

    on_fault   is told of an answer that a right grammar would not have allowed
    grounding  what they are to be grounded in, where that was asked for
    """

    answer_format: AnswerFormat
    on_fault: Callable[[], None]
    grounding: Grounding | None = None

    async def judge(self, content: str, end: Finished) -> Verdict | None:
        """The verdict on one answer; None where it was bound to nothing.

        Raises:
            ApiError: 500, the grammar let something pass that the schema forbids.
        """
        if not self.answer_format.is_structured:
            return None
        cut_off, closed = _cut_off(end), _is_closed(end)
        bound = self.answer_format.bound
        if cut_off is not None or bound is None:
            return Verdict(content, cut_off, closed)
        validation = bound.validator.check_text(content)
        if validation.valid is False and self.answer_format.is_enforced:
            raise self._fault(validation)
        verdict = Verdict(content, closed=closed, validation=validation)
        if self.grounding is None or validation.valid is False:
            return verdict
        work = partial(_grounded, verdict, self.grounding, bound.schema)
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)

    def _fault(self, validation: Validation) -> ApiError:
        self.on_fault()
        errors = [violation.as_dict() for violation in validation.violations]
        LOGGER.error("an answer does not fit a schema that was enforced whole: %s", errors)
        return ApiError(
            500,
            "The answer does not fit its schema, although all of it was enforced. This is a fault "
            "of the server, and the answer is withheld.",
            kind=SERVER_ERROR,
            code="invalid_answer",
            headers=NO_RETRY,
            extra={"errors": errors},
        )


def cut_off_reason(end: Finished, max_tokens: int | None, *, is_whole: bool) -> Reason | None:
    """Why tool calls are not complete; None: their end is the model's own.

    Args:
        is_whole: all calls that must be there are, and are complete.
    """
    cut_off = None
    if not is_whole:
        cut_off = "length" if end.reason == "length" else _cut_off(end)
    return _cut_off_reason(cut_off, _is_closed(end), max_tokens)


def _cut_off_reason(cut_off: str | None, closed: bool, max_tokens: int | None) -> Reason | None:
    if cut_off == "length" or closed:
        where = "where the context ends" if max_tokens is None else f"at {max_tokens} tokens"
        return Reason("truncated", f"the answer was {'closed' if closed else 'cut off'} {where}")
    if cut_off is not None:
        text = "the answer broke off before it was complete, at a stop string"
        return Reason(cut_off, text)
    return None


def ungrounded_error(verdict: Verdict) -> ApiError:
    """What a client is told that wanted null for values that can't be null."""
    places = ", ".join(each.pointer or "(root)" for each in verdict.intolerable)
    return ApiError(
        422,
        f"The source does not state these values of the answer: {places}. They can't become null, "
        "as 'on_ungrounded' says: the schema doesn't allow null there.",
        kind="answer_error",
        param="on_ungrounded",
        code="ungrounded",
        extra={
            "content": verdict.written,
            "ungrounded": [each.as_dict() for each in verdict.intolerable],
        },
    )


def _cut_off(end: Finished) -> str | None:
    if end.stop_sequence is not None:
        return "stop_sequence"
    return "length" if end.reason == "length" and not end.is_complete else None


def _is_closed(end: Finished) -> bool:
    return end.steered is not None and end.steered.cause != "repetition"


def _grounded(verdict: Verdict, grounding: Grounding, schema: dict[str, Any]) -> Verdict:
    try:
        value = json.loads(verdict.written, parse_int=_integer)
    except RecursionError:
        return verdict
    found = check(value, grounding.rules, grounding.source)
    verdict = replace(verdict, ungrounded=found)
    if not found or grounding.on_ungrounded == "report":
        return verdict
    if grounding.on_ungrounded == "repair":
        return replace(verdict, intolerable=found)
    _, left = nulled(value, found, schema)
    kept = {each.path for each in left}
    text = _with_nulls(verdict.written, {each.path for each in found} - kept)
    if text is None:
        return replace(verdict, intolerable=found)
    return replace(verdict, intolerable=left, with_nulls=text)


def _integer(text: str) -> int | float:
    """An integer; of more digits than anything states, as a double."""
    return int(text) if len(text) <= _MAX_INTEGER else float(text)


def _with_nulls(text: str, paths: Set[Path]) -> str | None:
    """A JSON text with null at some places, and the rest as it was written; None: it is nested too
    deeply for that."""
    scanner = JsonScanner()
    spans = [
        (event.start, event.end)
        for event in [*scanner.feed(text), *scanner.finish()]
        if isinstance(event, Done) and event.path in paths
    ]
    if scanner.failed:
        return None
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + "null" + text[end:]
    return text


def _stated(each: Ungrounded) -> str:
    """The reason, with the value in it."""
    value = json.dumps(each.value, ensure_ascii=False)
    if value in each.reason:
        return each.reason
    return f"{value if len(value) <= _MAX_VALUE else value[:_MAX_VALUE] + '…'}: {each.reason}"


def _shown(each: Ungrounded) -> dict[str, Any]:
    return {"value": each.as_dict()["value"], "kind": each.kind}
