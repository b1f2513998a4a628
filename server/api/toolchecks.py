"""The calls of an answer against what was offered: is there such a function, do its arguments fit?

Calls are checked whether or not a grammar bound them; each complete one takes microseconds. Where
a grammar bound all of it, a call that doesn't fit is a fault of this server (500). Where it didn't
(the template can't be inverted, a keyword can't be enforced), such a call is sent and said to be
invalid in `gabarito.tools`, unless its function is `strict`: then there is no answer (422).

Invariant: no complete call of a strict function is sent with arguments that don't fit its schema.

Read next: `server/validate.py`; `server/api/judging.py`, the same for content.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from server.api.errors import NO_RETRY, SERVER_ERROR, ApiError
from server.api.tools import FunctionTool, Offer
from server.calls import AnswerCall
from server.repair import Reason
from server.validate import AnswerValidator, Validation
from server.violations import Violation

LOGGER = logging.getLogger("gabarito.api")


class CallJudge:
    """Judges the calls of one request's answers."""

    def __init__(
        self, offer: Offer, bound: Mapping[str, Any] | None, on_fault: Callable[[], None]
    ) -> None:
        """
        Args:
            bound: how calls are bound (`gabarito.tools`, its `enforced`).
            on_fault: is told of a call that a right grammar would not have allowed.
        """
        self.legacy = offer.legacy
        self._required = offer.required
        self._tools = {tool.name: tool for tool in offer.allowed}
        self._enforced = bool((bound or {}).get("enforced"))
        self._on_fault = on_fault
        self._validators: dict[str, AnswerValidator] = {}
        self._invalid: list[dict[str, Any]] = []
        self._undecided: list[dict[str, Any]] = []
        self._checked = False

    def judge(self, choice: int, calls: Sequence[AnswerCall]) -> None:
        """Check the complete calls of one answer, when it has ended.

        Raises:
            ApiError: 500 or 422, a call that must fit doesn't.
        """
        for number, call in enumerate(calls):
            if not call.complete:
                continue
            self._checked = True
            found = self._validation(call)
            if found.valid:
                continue
            if found.valid is False:
                self._require_fit(call, found)
            place = {"choice": choice, "call": number, "id": call.id, "name": call.name}
            told = {name: fact for name, fact in found.as_dict().items() if name != "valid"}
            listed = self._undecided if found.valid is None else self._invalid
            listed.append({**place, **told})

    def reasons(self, calls: Sequence[AnswerCall]) -> tuple[Reason, ...]:
        """Why an answer with these calls is to be asked for again; none: it is not.

        Raises:
            ApiError: 500, the grammar let something pass that a schema forbids.
        """
        found: list[Reason] = []
        if self._required and not calls:
            found.append(Reason("invalid", "it calls no function, and one must be called"))
        for number, call in enumerate(calls):
            at = f"/tool_calls/{number}/function"
            if not call.complete:
                text = "this is not a whole call in the format that was explained"
                found.append(Reason("invalid", text, at))
                continue
            judged = self._validation(call)
            if judged.valid is not False:
                continue
            self._require_no_fault(call, judged)
            at += "/arguments" if call.name in self._tools else "/name"
            found += [
                Reason(
                    "invalid",
                    violation.message,
                    at + violation.pointer,
                    {"keyword": violation.keyword, "schema_pointer": violation.schema_pointer},
                )
                for violation in judged.violations
            ]
        return tuple(found)

    @property
    def required(self) -> bool:
        """Whether there must be a call."""
        return self._required

    def facts(self) -> dict[str, Any]:
        """What it adds to `gabarito.tools`; nothing, where there was no complete call."""
        if not self._checked:
            return {}
        facts: dict[str, Any] = {"valid": not self._invalid}
        if self._invalid:
            facts["invalid"] = self._invalid
        if self._undecided:
            facts["undecided"] = self._undecided
        return facts

    def _validation(self, call: AnswerCall) -> Validation:
        tool = self._tools.get(call.name)
        if tool is None:
            text = f"there is no function {call.name!r} that may be called"
            return Validation(False, (Violation("", "", "", text),))
        if call.name not in self._validators:
            self._validators[call.name] = AnswerValidator(tool.schema_)
        return self._validators[call.name].check_text(call.arguments)

    def _require_no_fault(self, call: AnswerCall, found: Validation) -> None:
        errors = [violation.as_dict() for violation in found.violations]
        if self._enforced:
            self._on_fault()
            LOGGER.error("a call does not fit a schema that was enforced whole: %s", errors)
            raise ApiError(
                500,
                f"A call of {call.name!r} does not fit the function's schema, although all of it "
                "was enforced. This is a fault of the server, and the answer is withheld.",
                kind=SERVER_ERROR,
                code="invalid_answer",
                headers=NO_RETRY,
                extra={"errors": errors},
            )

    def _require_fit(self, call: AnswerCall, found: Validation) -> None:
        self._require_no_fault(call, found)
        tool: FunctionTool | None = self._tools.get(call.name)
        if tool is not None and tool.function.strict:
            raise ApiError(
                422,
                f"The model's call of {call.name!r} does not fit the schema of this strict "
                "function, which could not be enforced while it was written.",
                kind="answer_error",
                param="tools",
                code="invalid_tool_call",
                extra={
                    "call": {"name": call.name, "arguments": call.arguments},
                    "errors": [violation.as_dict() for violation in found.violations],
                },
            )
