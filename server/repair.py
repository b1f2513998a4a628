"""When an answer is not good enough: what the next attempt is told, and when to stop.

    cut off by its budget        again with twice the budget, as far as the context has room
    invalid, or not grounded     again with the rejected answer and the reasons in the prompt: a
                                 user's message, or, of tool calls, as what the calls came to
    the same as a rejected one   the end: asking again would only bring it a third time
    no attempts left             the end

Pure policy: no model, no I/O. Invariants: every further attempt differs from the one before in an
input that matters (its budget or its prompt); the end is an answer that passed every check, or a
failure with all attempts and their reasons.

Read next: `server/api/repairing.py`, which makes the attempts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

#: How much larger the budget of an attempt is after one that was cut off.
GROWTH = 2

#: Reasons that the next attempt is told of one rejected answer.
_TOLD = 10

Outcome: TypeAlias = Literal["accepted", "truncated", "invalid", "ungrounded", "repeated"]
Failure: TypeAlias = Literal[
    "attempts_exhausted", "repeated_answer", "budget_exhausted", "context_exhausted"
]

_FAILURES: Mapping[Failure, str] = {
    "attempts_exhausted": "no attempt was good enough",
    "repeated_answer": "the model gave an answer again that had been rejected",
    "budget_exhausted": "the answer was cut off, and it can't have a larger budget",
    "context_exhausted": "the context has no room for another attempt",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer was rejected.

    kind     `truncated`, `stop_sequence`, `invalid`, or `ungrounded`
    message  in words, about the value at `pointer`
    pointer  where in the answer, as a JSON pointer; None: it is about the whole
    details  more members for whoever reads it by program (`keyword`, `value`, ...)
    """

    kind: str
    message: str
    pointer: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As the API shows it."""
        place = {} if self.pointer is None else {"pointer": self.pointer}
        return {"type": self.kind, **place, **self.details, "message": self.message}


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A tool call of an attempt; the arguments are what there is of their JSON text."""

    id: str
    name: str
    arguments: str

    @property
    def shape(self) -> dict[str, Any]:
        """As the API shows it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    @property
    def turn(self) -> dict[str, Any]:
        """As chat templates expect it: the arguments as an object, where they are one."""
        arguments: Any = self.arguments
        with suppress(ValueError, RecursionError):
            value = json.loads(arguments)
            arguments = value if isinstance(value, dict) else arguments
        shape = self.shape
        return {**shape, "function": {"name": self.name, "arguments": arguments}}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt, once it is over.

    number      from 1
    max_tokens  its budget; None: until the context ended
    tokens      how many it took
    content     what the model wrote
    calls       the tool calls that it made
    reasons     why it was rejected; empty if it was accepted
    repeats     the number of the earlier attempt whose rejected answer it repeats
    """

    number: int
    max_tokens: int | None
    tokens: int
    content: str
    outcome: Outcome
    reasons: tuple[Reason, ...] = ()
    repeats: int | None = None
    calls: tuple[WrittenCall, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As the API shows it."""
        shape: dict[str, Any] = {
            "attempt": self.number,
            "outcome": self.outcome,
            "max_tokens": self.max_tokens,
            "completion_tokens": self.tokens,
            "content": self.content,
            "reasons": [reason.as_dict() for reason in self.reasons],
        }
        if self.calls:
            shape["tool_calls"] = [call.shape for call in self.calls]
        return shape if self.repeats is None else {**shape, "repeats": self.repeats}


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer passed."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Another attempt. `messages` go behind the conversation: role and content each, and where the
    attempt made tool calls, those of an answer with calls and of their results."""

    max_tokens: int | None
    messages: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class GiveUp:
    """No further attempt. `failure` says why, `message` in words."""

    failure: Failure

    @property
    def message(self) -> str:
        """The failure in words, to go on a sentence."""
        return _FAILURES[self.failure]


Step: TypeAlias = Accept | Retry | GiveUp


class RepairLoop:
    """Decides, attempt by attempt, for one answer."""

    def __init__(
        self, *, max_attempts: int, max_tokens: int | None, most_tokens: int | None = None
    ) -> None:
        """
        Args:
            max_attempts: how many there may be, at least 1.
            max_tokens: the budget of the first; None: until the context ends.
            most_tokens: no attempt's budget becomes larger; None: the context is the limit.
        """
        self._max_attempts = max_attempts
        self._most_tokens = most_tokens
        self._budget = max_tokens
        self._attempts: list[Attempt] = []
        self._rejected: dict[str, int] = {}
        self._messages: tuple[Mapping[str, Any], ...] = ()

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Those that are over."""
        return tuple(self._attempts)

    @property
    def number(self) -> int:
        """The attempt that is being made, from 1."""
        return len(self._attempts) + 1

    @property
    def budget(self) -> int | None:
        """Its `max_tokens`."""
        return self._budget

    def next(
        self,
        content: str,
        reasons: Sequence[Reason],
        *,
        tokens: int,
        room: int,
        calls: Sequence[WrittenCall] = (),
    ) -> Step:
        """The attempt that is being made is over; what now.

        Args:
            content: what the model wrote.
            reasons: why it is not good enough; none: it is. A `truncated` one stands alone.
            tokens: how many it took.
            room: the tokens that the context had for the answer.
            calls: the tool calls that it made. Reasons with a pointer into `/tool_calls` are about
                them.
        """
        step, outcome, repeats = self._decide(content, tuple(calls), reasons, room)
        self._attempts.append(
            Attempt(
                number=self.number,
                max_tokens=self._budget,
                tokens=tokens,
                content=content,
                outcome=outcome,
                reasons=tuple(reasons),
                repeats=repeats,
                calls=tuple(calls),
            )
        )
        if isinstance(step, Retry):
            self._budget, self._messages = step.max_tokens, step.messages
        return step

    def _decide(
        self, content: str, calls: tuple[WrittenCall, ...], reasons: Sequence[Reason], room: int
    ) -> tuple[Step, Outcome, int | None]:
        if not reasons:
            return Accept(), "accepted", None
        if reasons[0].kind == "truncated":
            return self._with_more_tokens(room), "truncated", None
        same = canonical(content)
        if calls:
            made = [[call.name, canonical(call.arguments)] for call in calls]
            same = json.dumps([same, made])
        if same in self._rejected:
            return GiveUp("repeated_answer"), "repeated", self._rejected[same]
        self._rejected[same] = self.number
        outcome: Outcome = "ungrounded" if reasons[0].kind == "ungrounded" else "invalid"
        messages = (*self._messages, *_retold(content, calls, reasons))
        return self._unless_over(Retry(self._budget, messages)), outcome, None

    def _with_more_tokens(self, room: int) -> Step:
        most = room if self._most_tokens is None else min(room, self._most_tokens)
        budget = most if self._budget is None else min(self._budget * GROWTH, most)
        if self._budget is None or budget <= self._budget:
            return GiveUp("budget_exhausted")
        return self._unless_over(Retry(budget, self._messages))

    def _unless_over(self, step: Retry) -> Step:
        return step if self.number < self._max_attempts else GiveUp("attempts_exhausted")


def _retold(
    content: str, calls: Sequence[WrittenCall], reasons: Sequence[Reason]
) -> Iterator[Mapping[str, Any]]:
    """A rejected answer and what is wrong with it, as turns of the conversation."""
    answer: dict[str, Any] = {"role": "assistant", "content": content}
    if not calls:
        yield answer
        yield {"role": "user", "content": feedback(reasons)}
        return
    yield {**answer, "tool_calls": [call.turn for call in calls]}
    left = list(reasons)
    for number, call in enumerate(calls):
        at = f"/tool_calls/{number}/function"
        own = [reason for reason in left if f"{reason.pointer}/".startswith(f"{at}/")]
        left = [reason for reason in left if reason not in own]
        own = [replace(reason, pointer=(reason.pointer or "").removeprefix(at)) for reason in own]
        text = feedback(own, "This call was rejected:") if own else _NOT_MADE
        yield {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text}
    if left:
        yield {"role": "user", "content": feedback(left)}


_NOT_MADE = "This call was not made, since another part of the answer was rejected."


def feedback(reasons: Sequence[Reason], opening: str = "This answer was rejected:") -> str:
    """What the model is told of a rejected answer."""
    lines = [
        f"- {reason.message}" if not reason.pointer else f"- {reason.pointer}: {reason.message}"
        for reason in reasons[:_TOLD]
    ]
    if len(reasons) > _TOLD:
        lines.append(f"- and {len(reasons) - _TOLD} more")
    return "\n".join([opening, *lines, "Answer again, with what is wrong put right."])


def canonical(text: str) -> str:
    """Equal for equal JSON values, however they are written; what is no JSON is its own text."""
    try:
        value = json.loads(text, parse_float=_number)
        return json.dumps(value, sort_keys=True, separators=(",", ":"))
    except (ValueError, RecursionError):
        return text


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number
