"""The messages of a conversation: their fields, and which result belongs to which call.

Invariant: what passes is a conversation in which every tool call of an earlier answer has its
result, so that no chat template has to cope with half of one.

Read next: `server/api/models.py`, whose requests hold them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, Tag, model_validator

from server.api.fields import AcceptedText, RequestModel, by_type, refuse, unsupported

#: What a text or refusal part may hold besides its text.
_PART_EXTRAS = frozenset({"refusal", "prompt_cache_breakpoint"})


class ContentPart(RequestModel):
    """One part of a message's content; only text is supported."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None

    @model_validator(mode="after")
    def _only_text(self) -> Self:
        if self.type not in {"text", "refusal"}:
            raise refuse(
                "unsupported_value",
                f"Unsupported content: a part of type {self.type!r} can't be read by this model; "
                "only parts of type 'text' are supported.",
                "type",
            )
        for name in (self.model_extra or {}).keys() - _PART_EXTRAS:
            raise refuse("unknown_parameter", f"Unknown parameter: '{name}'.", name)
        if self.type == "text" and self.text is None:
            raise refuse(
                "missing_required_parameter",
                "Missing required parameter: a part of type 'text' needs 'text'.",
                "text",
            )
        return self

    @property
    def words(self) -> str:
        """The part's text (a refusal's, for a part of that type)."""
        return self.text or str((self.model_extra or {}).get("refusal") or "")


class FunctionCall(RequestModel):
    """The function of a tool call in an earlier assistant message."""

    name: str
    arguments: str = Field(description="JSON, as text.")


class ToolCall(RequestModel):
    """A tool call in an earlier assistant message."""

    id: str
    type: Literal["function"]
    function: FunctionCall

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it: the arguments as an object, where they are one."""
        arguments: Any = self.function.arguments
        with suppress(ValueError, RecursionError):
            value = json.loads(arguments)
            arguments = value if isinstance(value, dict) else arguments
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}


Content = Annotated[
    Annotated[None, Tag("#null")]
    | Annotated[str, Tag("#text")]
    | Annotated[list[ContentPart], Tag("#parts")],
    by_type({str: "#text", list: "#parts", type(None): "#null"}),
]


class Message(RequestModel):
    """One message of the conversation. Content parts are joined by line breaks."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content = None
    name: str | None = Field(
        default=None,
        description="Passed on to the chat template. Of a function message: the function's.",
    )
    tool_calls: list[ToolCall] | None = Field(
        default=None,
        description="Of an assistant message: the calls it made. Tool messages with their results "
        "follow it, one for each.",
    )
    tool_call_id: str | None = Field(
        default=None, description="Of a tool message: the id of the call whose result it is."
    )
    reasoning_content: str | None = Field(
        default=None, description="Of an assistant message: passed on to the chat template."
    )
    refusal: AcceptedText = None
    annotations: Annotated[Any, Field(description="Accepted, and without effect here.")] = None
    parsed: Annotated[
        Any, Field(description="The SDK's parsed form of an answer: accepted, without effect.")
    ] = None
    audio: unsupported("audio") = None  # type: ignore[valid-type]
    function_call: FunctionCall | None = Field(
        default=None,
        description="Of an assistant message, deprecated in favour of `tool_calls`: the call it "
        "made. A message of role `function` with its result follows it.",
    )

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.role != "assistant":
            if self.content is None:
                raise refuse(
                    "missing_required_parameter",
                    f"Missing required parameter: a message of role {self.role!r} needs 'content'.",
                    "content",
                )
            for name in ("tool_calls", "function_call", "reasoning_content", "refusal"):
                if getattr(self, name):
                    raise refuse(
                        "invalid_value", f"Only an assistant message can have '{name}'.", name
                    )
        for role, needed in (("tool", "tool_call_id"), ("function", "name")):
            if self.role == role and getattr(self, needed) is None:
                raise refuse(
                    "missing_required_parameter",
                    f"Missing required parameter: a message of role {role!r} needs '{needed}'.",
                    needed,
                )
        if self.tool_calls and self.function_call:
            raise refuse(
                "invalid_value",
                "'tool_calls' and 'function_call' are two spellings of the same; give only one.",
                "function_call",
            )
        return self

    def modern(self, position: int) -> Message:
        """The same with `tool_calls` in place of a `function_call`, and with the role of a tool in
        place of a function's. `position`: of the message, or, for a result, of its call."""
        if self.function_call is not None:
            call = ToolCall(id=_id_of(position), type="function", function=self.function_call)
            return self.model_copy(update={"tool_calls": [call], "function_call": None})
        if self.role == "function":
            return self.model_copy(update={"role": "tool", "tool_call_id": _id_of(position)})
        return self

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, list):
            return "\n".join(part.words for part in self.content)
        return self.content or ""

    def for_template(self, names: Mapping[str, str]) -> dict[str, Any]:
        """As chat templates expect it: absent what is unset, and a result with its function's name.

        Args:
            names: the functions' names by the ids of their calls.
        """
        turn: dict[str, Any] = {"role": self.role, "content": self.text}
        for name in ("name", "tool_call_id", "reasoning_content"):
            if (value := getattr(self, name)) is not None:
                turn[name] = value
        if self.tool_calls:
            turn["tool_calls"] = [call.for_template() for call in self.tool_calls]
        if (name_of_result := names.get(self.tool_call_id or "")) is not None:
            turn.setdefault("name", name_of_result)
        return turn


def _id_of(position: int) -> str:
    """The id of a call that had none: of the message at this position."""
    return f"call_{position}"


def turns_of(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The conversation as chat templates expect it."""
    names: dict[str, str] = {}
    turns: list[dict[str, Any]] = []
    for position, each in enumerate(messages):
        message = each.modern(position - 1 if each.role == "function" else position)
        names |= {call.id: call.function.name for call in message.tool_calls or ()}
        turns.append(message.for_template(names))
    return turns


def check_history(messages: Sequence[Message]) -> None:
    """Every call in the conversation has exactly one result, right behind it, and every result its
    call.

    Raises:
        PydanticCustomError: they don't belong together.
    """
    open_calls: list[str] = []
    answered: set[str] = set()
    asked = 0
    for position, message in enumerate(messages):
        if message.role == "function":
            called = messages[position - 1].function_call if position else None
            if called is None or called.name != message.name:
                raise refuse(
                    "invalid_value",
                    "Invalid parameter: a message with role 'function' must follow a message with "
                    f"a 'function_call' of the same name ({message.name!r}).",
                    f"messages[{position}].name",
                )
            continue
        if position and messages[position - 1].function_call is not None:
            raise _no_result(position - 1)
        if message.role == "tool":
            call_id = str(message.tool_call_id)
            if call_id in open_calls:
                open_calls.remove(call_id)
                answered.add(call_id)
                continue
            why = (
                f"the call {call_id!r} has a result already."
                if call_id in answered
                else "messages with role 'tool' must be a response to a preceding message with "
                f"'tool_calls', and there is no call {call_id!r}."
            )
            where = f"messages[{position}].tool_call_id"
            raise refuse("invalid_value", f"Invalid parameter: {why}", where)
        _check_answered(open_calls, asked)
        open_calls = [call.id for call in message.tool_calls or ()]
        answered, asked = set(), position
        if len(set(open_calls)) < len(open_calls):
            where = f"messages[{position}].tool_calls"
            raise refuse("invalid_value", "Invalid parameter: two calls have the same id.", where)
    _check_answered(open_calls, asked)
    if messages and messages[-1].function_call is not None:
        raise _no_result(len(messages) - 1)


def _no_result(position: int) -> Exception:
    return refuse(
        "invalid_value",
        "An assistant message with 'function_call' must be followed by a message with role "
        "'function' and the result.",
        f"messages[{position}].function_call",
    )


def _check_answered(open_calls: Sequence[str], asked: int) -> None:
    if open_calls:
        raise refuse(
            "invalid_value",
            "An assistant message with 'tool_calls' must be followed by tool messages responding "
            "to each 'tool_call_id'. The following tool_call_ids did not have response messages: "
            f"{', '.join(open_calls)}",
            f"messages[{asked}].tool_calls",
        )
