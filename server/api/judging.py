"""What is said of a finished answer: whether it is complete, and whether it is valid.

    cut off (token limit, a stop string)        complete: false; nothing more is claimed
    complete, of a pattern, choice or grammar   complete: true; the grammar saw to the rest
    complete JSON                               judged by a full validator of the whole schema

Invariant: an answer to a schema that was enforced whole is never sent if it is complete and not
valid. That would be a fault of this server (the grammar and the validator disagree): it is logged,
counted, and a 500.

Read next: `server/validate.py`; `server/api/extension.py`, where the facts go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from server.api.errors import NO_RETRY, SERVER_ERROR, ApiError
from server.api.structured import AnswerFormat
from server.engine.types import Finished
from server.validate import Validation

LOGGER = logging.getLogger("gabarito.api")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a finished answer.

    cut_off     why it is not complete: `length` or `stop_sequence`; None: it is
    validation  what a full validator found; None: none was asked
    """

    cut_off: str | None
    validation: Validation | None = None

    @property
    def is_invalid(self) -> bool:
        """Whether the answer is complete and does not fit its schema."""
        return self.validation is not None and self.validation.valid is False

    def as_dict(self) -> dict[str, Any]:
        """`gabarito.validation`."""
        if self.cut_off is not None:
            return {"complete": False, "reason": self.cut_off}
        found = {} if self.validation is None else self.validation.as_dict()
        return {"complete": True, **found}


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges the finished answers of one request.

    on_fault  is told of an answer that a right grammar would not have allowed
    """

    answer_format: AnswerFormat
    on_fault: Callable[[], None]

    def judge(self, text: str, end: Finished) -> Verdict | None:
        """The verdict on one answer; None where it was bound to nothing.

        Raises:
            ApiError: 500, the grammar let something pass that the schema forbids.
        """
        if not self.answer_format.is_structured:
            return None
        cut_off = _cut_off(end)
        validator = self.answer_format.validator
        if cut_off is not None or validator is None:
            return Verdict(cut_off)
        verdict = Verdict(None, validator.check_text(text))
        if verdict.is_invalid and self.answer_format.is_enforced:
            raise self._fault(verdict)
        return verdict

    def _fault(self, verdict: Verdict) -> ApiError:
        self.on_fault()
        assert verdict.validation is not None
        errors = [violation.as_dict() for violation in verdict.validation.violations]
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


def _cut_off(end: Finished) -> str | None:
    if end.reason == "length":
        return "length"
    return None if end.stop_sequence is None else "stop_sequence"
