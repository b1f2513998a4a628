"""Tools of a request: which may be called, and the schema of a region that holds a call.

The forms of `tools` and `tool_choice` are OpenAI's. Everything here is about one call's JSON; what
stands around it is `turn_plan`'s.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from grammar.schema.dialect import is_known
from grammar.turn_parts import JsonValue, Origin
from parsing.inverse import Call, Member
from parsing.shapes import Mark, needed

Mode = Literal["none", "auto", "required"]


class ToolChoiceError(ValueError):
    """`tool_choice` names a tool that isn't there, or is none of the forms there are."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool of the request; `place` is its place in the list."""

    name: str
    parameters: Mapping[str, Any]
    strict: bool
    place: int

    @property
    def pointer(self) -> str:
        """Where its parameters stand in the request."""
        return f"/tools/{self.place}/function/parameters"


def read_tools(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """The functions among a request's tools, nested as in chat completions or flat."""
    found = []
    for place, tool in enumerate(tools):
        function = tool.get("function", tool)
        parameters = function.get("parameters")
        if parameters is None:
            parameters = {"type": "object", "properties": {}, "additionalProperties": False}
        found.append(Tool(function["name"], parameters, bool(function.get("strict")), place))
    return tuple(found)


def choose(
    tools: Sequence[Tool], choice: str | Mapping[str, Any] | None
) -> tuple[Mode, tuple[Tool, ...]]:
    """Whether tools may or must be called, and which: `tool_choice` in any of its forms.

    Raises:
        ToolChoiceError: it names a tool that isn't there, or is no such form.
    """
    if choice is None:
        return ("auto" if tools else "none"), tuple(tools)
    if choice in ("none", "auto", "required"):
        if choice == "required" and not tools:
            raise ToolChoiceError("tool_choice is 'required', but there are no tools")
        mode: Mode = choice  # type: ignore[assignment]  # one of the three
        return (mode if tools else "none"), tuple(tools)
    if isinstance(choice, Mapping):
        kind = choice.get("type")
        if kind == "function":
            return "required", _named(tools, [choice.get("function", choice)])
        if kind == "allowed_tools":
            allowed = choice.get("allowed_tools", choice)
            listed = [tool.get("function", tool) for tool in allowed.get("tools", ())]
            if allowed.get("mode") not in ("auto", "required") or not listed:
                raise ToolChoiceError("allowed_tools needs a mode (auto, required) and tools")
            return allowed["mode"], _named(tools, listed)
    raise ToolChoiceError(f"tool_choice is no form that is known: {choice!r:.200}")


def _named(tools: Sequence[Tool], wanted: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    by_name = {tool.name: tool for tool in tools}
    names = [each.get("name") for each in wanted]
    for name in names:
        if name not in by_name:
            raise ToolChoiceError(f"tool_choice names {name!r}, which is not among the tools")
    return tuple(by_name[name] for name in dict.fromkeys(names) if isinstance(name, str))


# --- schemas -------------------------------------------------------------------------------------


def arguments_schema(tool: Tool) -> tuple[dict[str, Any], tuple[Origin, ...]]:
    """The schema of a tool's arguments by themselves, and where its parts come from."""
    schema = {"$defs": {"a": _parameters(tool)}, **_object("#/$defs/a")}
    return _draft(schema, [tool]), (("/$defs/a", tool.pointer, tool.strict),)


def calls_schema(call: Call, tools: Sequence[Tool]) -> tuple[dict[str, Any], tuple[Origin, ...]]:
    """The schema of an object that is a call of one of the tools, its name in it."""
    options = [_call_schema(order, i, t) for order in call.orders for i, t in enumerate(tools)]
    schema = {"$defs": {f"a{i}": _parameters(t) for i, t in enumerate(tools)}, "anyOf": options}
    origins = ((f"/$defs/a{i}", tool.pointer, tool.strict) for i, tool in enumerate(tools))
    return _draft(schema, tools), tuple(origins)


def never_a_call(value: JsonValue, mark: Mark) -> JsonValue:
    """The value without the objects that a call's opener takes for a call.

    Where nothing but its keys tells that an object is a call (`"name"` and `"parameters"`), content
    must not have all of them.
    """
    texts = [] if mark.ahead is None or mark.needle else needed(mark.ahead)
    keys = [key for text in texts for key in _KEY.findall(text)]
    if not keys:
        return value
    base = {"$id": "http://content.invalid/"}
    schema = value.schema
    if isinstance(schema, Mapping) and "$id" not in schema:
        schema = {**base, **schema}
    origins = tuple((f"/$defs/content{at}", shown, strict) for at, shown, strict in value.origins)
    both = {"type": "object", "required": keys}
    whole = {"$defs": {"content": schema}, "allOf": [{"$ref": "#/$defs/content"}, {"not": both}]}
    dialect = schema.get("$schema") if isinstance(schema, Mapping) else None
    if isinstance(dialect, str) and is_known(dialect):
        whole = {"$schema": dialect, **whole}
    return replace(value, schema=whole, origins=origins)


_KEY = re.compile(r'"(\w+)"')


def _call_schema(order: Sequence[Member], at: int, tool: Tool) -> dict[str, Any]:
    shapes: dict[str, Any] = {
        "name": {"const": tool.name},
        "arguments": _object(f"#/$defs/a{at}"),
        "type": {"const": "function"},
        "extra": {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,12}$"},
    }
    return {
        "type": "object",
        "properties": {member.key: shapes[member.kind] for member in order},
        "required": [member.key for member in order if not member.optional],
        "additionalProperties": False,
    }


def _object(reference: str) -> dict[str, Any]:
    return {"allOf": [{"$ref": reference}, {"type": "object"}]}


def _parameters(tool: Tool) -> Mapping[str, Any]:
    """A tool's schema, with a base of its own for its references."""
    if "$id" in tool.parameters:
        return tool.parameters
    return {"$id": f"http://tool-{tool.place}.invalid/", **tool.parameters}


def _draft(schema: dict[str, Any], tools: Sequence[Tool]) -> dict[str, Any]:
    """With the dialect that all tools name, if they do."""
    named = {tool.parameters.get("$schema") for tool in tools}
    draft = next(iter(named), None) if len(named) == 1 else None
    if isinstance(draft, str) and is_known(draft):  # else the tool's own place is what is reported
        return {"$schema": draft, **schema}
    return schema
