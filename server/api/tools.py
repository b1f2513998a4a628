"""What a request says about tools: which there are, and which may or must be called.

    tools, tool_choice, parallel_tool_calls     OpenAI's
    functions, function_call                    their predecessors, other spellings of the same:
                                                one call at most, and an answer in their shape

Invariant: what passes is consistent (names are unique, a choice names tools that there are), so
that nothing behind this has to ask again.

Read next: `server/api/messages.py` for calls and results in the conversation, `server/turns.py` for
how a choice is enforced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from server.api.fields import RequestModel, by_type, refuse

MAX_TOOLS = 128

#: The names that a function may have.
NAME = r"^[a-zA-Z0-9_-]{1,64}$"

#: A function without `parameters` takes no arguments.
NO_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


def _only_functions(value: object) -> object:
    """Refuse the other types of tool by name."""
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind != "function":
        raise refuse(
            "unsupported_value",
            f"Unsupported value: a tool of type {kind!r} is not supported by this server; only "
            "tools of type 'function' are.",
            "type",
        )
    return value


class FunctionDefinition(RequestModel):
    """A function that the model may call."""

    name: str = Field(pattern=NAME)
    description: str | None = Field(default=None, description="Told to the model.")
    parameters: dict[str, Any] | None = Field(
        default=None,
        description="A JSON Schema of the arguments, which are an object. Absent: no arguments.",
    )
    strict: bool | None = Field(
        default=None,
        description="true: a keyword of `parameters` that can't be enforced is an error that names "
        "it. false or null: the rest is enforced, and the answer lists what was not.",
    )


class FunctionTool(RequestModel):
    """A tool: a function."""

    type: Literal["function"]
    function: FunctionDefinition

    @property
    def name(self) -> str:
        """The function's."""
        return self.function.name

    @property
    def schema_(self) -> dict[str, Any]:
        """The schema of its arguments."""
        given = self.function.parameters
        return NO_PARAMETERS if given is None else given

    def for_template(self) -> dict[str, Any]:
        """As chat templates expect it: with parameters, and without what is not for the model."""
        function = {
            "name": self.name,
            "description": self.function.description or "",
            "parameters": self.schema_,
        }
        return {"type": self.type, "function": function}


Tool = Annotated[FunctionTool, BeforeValidator(_only_functions)]


class FunctionName(RequestModel):
    """A function, by its name."""

    name: str


class NamedTool(RequestModel):
    """A tool, by its name."""

    type: Literal["function"]
    function: FunctionName


AnyNamedTool = Annotated[NamedTool, BeforeValidator(_only_functions)]


class AllowedTools(RequestModel):
    """Some of the tools, and whether one of them must be called."""

    mode: Literal["auto", "required"]
    tools: list[AnyNamedTool] = Field(min_length=1)


class AllowedToolsChoice(RequestModel):
    """Only some of the tools may be called."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _choice_tag(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return "#word"
    if not isinstance(value, dict):
        return None
    return "#allowed" if value.get("type") == "allowed_tools" else "#named"


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"] | None, Tag("#word")]
    | Annotated[AnyNamedTool, Tag("#named")]
    | Annotated[AllowedToolsChoice, Tag("#allowed")],
    Discriminator(
        _choice_tag,
        custom_error_type="union_tag",
        custom_error_message="Input should be 'none', 'auto', 'required', or an object whose type "
        "is 'function' or 'allowed_tools'",
    ),
    Field(
        description="`none`: no calls. `auto` (the default with tools): the model decides. "
        "`required`: at least one call. A named function: a call of it and nothing else. "
        "`allowed_tools`: some of the tools, `auto` or `required`."
    ),
]


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools that an answer may call.

    tools     all that the request has: what the model is told of
    positions of the allowed ones among them
    required  whether one must be called
    only      the one function that is to be called, where the request names it
    parallel  whether there may be several calls
    legacy    whether they came as `functions`, and the answer has a `function_call`
    """

    tools: tuple[FunctionTool, ...]
    positions: tuple[int, ...]
    required: bool
    only: str | None
    parallel: bool
    legacy: bool = False

    def where(self, position: int, member: str) -> str:
        """What errors call a member of one of the functions."""
        return _where(position, member, legacy=self.legacy)

    @property
    def allowed(self) -> tuple[FunctionTool, ...]:
        """Those that may be called."""
        return tuple(self.tools[position] for position in self.positions)

    @property
    def choice(self) -> str:
        """In the fallback prompt's words."""
        return self.only or ("required" if self.required else "auto")

    def as_choice(self) -> dict[str, Any]:
        """As OpenAI's `tool_choice` of some tools."""
        named = [{"type": "function", "function": {"name": tool.name}} for tool in self.allowed]
        mode = "required" if self.required else "auto"
        return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": named}}

    def for_template(self) -> list[dict[str, Any]]:
        """All of the tools, for chat templates."""
        return [tool.for_template() for tool in self.tools]


def _where(position: int, member: str, *, legacy: bool) -> str:
    return f"functions[{position}].{member}" if legacy else f"tools[{position}].function.{member}"


FunctionChoice = Annotated[
    Annotated[Literal["none", "auto"] | None, Tag("#word")] | Annotated[FunctionName, Tag("#name")],
    by_type({str: "#word", type(None): "#word", dict: "#name"}),
]


class ToolRequest(RequestModel):
    """The fields of a request that are about tools."""

    tools: list[Tool] | None = Field(
        default=None,
        max_length=MAX_TOOLS,
        description="The functions that the model may call. Their names are unique.",
    )
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = Field(
        default=None, description="false: at most one call. Default: true."
    )
    functions: list[FunctionDefinition] | None = Field(
        default=None,
        max_length=MAX_TOOLS,
        description="Deprecated in favour of `tools`: the answer then has one `function_call` at "
        "most in place of `tool_calls`.",
    )
    function_call: FunctionChoice = Field(
        default=None, description="Deprecated: `tool_choice` of `functions`."
    )

    @model_validator(mode="after")
    def _tools_agree(self) -> Self:
        if self.tools and self.functions:
            raise refuse(
                "invalid_value",
                "'tools' and 'functions' are two spellings of the same; give only one of them.",
                "functions",
            )
        legacy = bool(self.functions)
        names = [tool.name for tool in self.offered]
        for position, name in enumerate(names):
            if name in names[:position]:
                field = "functions" if legacy else "tools"
                raise refuse(
                    "invalid_value",
                    f"Invalid value for '{field}': there are two functions of the name {name!r}.",
                    _where(position, "name", legacy=legacy),
                )
        _check_parameters(self.offered, legacy=legacy)
        self._choices_agree()
        if legacy or not names:
            if self.tool_choice not in (None, "none", "auto"):
                raise refuse(
                    "invalid_value",
                    "Invalid value for 'tool_choice': it is only allowed when 'tools' are given.",
                    "tool_choice",
                )
            return self
        for name, where in self._chosen():
            if name not in names:
                raise refuse(
                    "invalid_value",
                    f"Invalid value for 'tool_choice': there is no function {name!r} in 'tools'.",
                    where,
                )
        return self

    def _choices_agree(self) -> None:
        """The choice is of the same spelling as what there is to choose from."""
        if self.tools and self.function_call is not None:
            raise refuse(
                "invalid_value",
                "Invalid value for 'function_call': with 'tools' it is 'tool_choice' that says "
                "what may be called.",
                "function_call",
            )
        choice = self.function_call
        names = [function.name for function in self.functions or ()]
        if isinstance(choice, FunctionName) and choice.name not in names:
            raise refuse(
                "invalid_value",
                "Invalid value for 'function_call.name': there is no function "
                f"{choice.name!r} in 'functions'.",
                "function_call.name",
            )

    @property
    def offered(self) -> tuple[FunctionTool, ...]:
        """The functions, under whichever name they came."""
        given = [FunctionTool(type="function", function=each) for each in self.functions or ()]
        return tuple(self.tools or given)

    def _chosen(self) -> list[tuple[str, str]]:
        """The functions that `tool_choice` names, and where."""
        match self.tool_choice:
            case NamedTool():
                return [(self.tool_choice.function.name, "tool_choice.function.name")]
            case AllowedToolsChoice():
                return [
                    (tool.function.name, f"tool_choice.allowed_tools.tools[{i}].function.name")
                    for i, tool in enumerate(self.tool_choice.allowed_tools.tools)
                ]
            case _:
                return []

    @property
    def offer(self) -> Offer | None:
        """What may be called; None: nothing."""
        if self.functions:
            return self._legacy_offer(self.offered)
        choice = self.tool_choice
        if not self.tools or choice == "none":
            return None
        chosen = {name for name, _ in self._chosen()}
        positions = [i for i, tool in enumerate(self.tools) if not chosen or tool.name in chosen]
        only = choice.function.name if isinstance(choice, NamedTool) else None
        mode = choice.allowed_tools.mode if isinstance(choice, AllowedToolsChoice) else choice
        return Offer(
            tools=tuple(self.tools),
            positions=tuple(positions),
            required=only is not None or mode == "required",
            only=only,
            parallel=self.parallel_tool_calls is not False and only is None,
        )

    def _legacy_offer(self, tools: tuple[FunctionTool, ...]) -> Offer | None:
        choice = self.function_call
        if choice == "none":
            return None
        only = choice.name if isinstance(choice, FunctionName) else None
        positions = [i for i, tool in enumerate(tools) if only in (None, tool.name)]
        return Offer(tools, tuple(positions), only is not None, only, parallel=False, legacy=True)


def _check_parameters(tools: Sequence[FunctionTool], *, legacy: bool) -> None:
    """Arguments are an object: a schema that says otherwise is a mistake."""
    for position, tool in enumerate(tools):
        kind = tool.schema_.get("type", "object")
        if kind != "object" and not (isinstance(kind, list) and "object" in kind):
            raise refuse(
                "invalid_function_parameters",
                f"Invalid schema for function {tool.name!r}: the arguments are an object, so the "
                f"schema's type must be 'object', not {kind!r}.",
                _where(position, "parameters", legacy=legacy),
            )
