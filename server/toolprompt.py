"""Tools for models whose chat template knows none: the conversation, told in words.

`config/tool_prompt.jinja` says how: what a system message explains, how an earlier answer's calls
read, and what they came to. The result is a conversation of ordinary messages, which any chat
template can render.

Invariants: a conversation without tools, calls and results stays as it is; the roles alternate
afterwards where they did before (results of one answer, and what the user says next, become one
user message); calls are told in the notation that the answer will be read by; special tokens in
what clients sent are still only text (the chat template's affair, since this comes before it).

Read next: `server/prompt.py`, which renders the messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from server.prompt import ChatTemplate, ChatTemplateError, RenderedPrompt
from server.sandbox import environment

#: The file's name, inside `config/`.
FILE = "tool_prompt.jinja"

_MACROS = ("instructions", "calls", "result")

#: Stand for a function and its argument where the model is told how to write a call.
_EXAMPLE_NAME = "function_name"
_EXAMPLE_ARGUMENTS = {"argument": "value"}

Turns = Sequence[Mapping[str, Any]]

#: A call's text, from the function's name and arguments, in the notation of the template in use;
#: None: it has none for that call. Without a notation calls are told as the file has them.
Notation = Callable[[str, Mapping[str, Any]], str | None]


class ToolPromptError(ValueError):
    """The file of the fallback prompt can't be used."""


class ToolPrompt:
    """The macros of the file, compiled once."""

    def __init__(self, source: str, *, name: str = FILE) -> None:
        """
        Raises:
            ToolPromptError: `source` isn't valid jinja2, or lacks a macro.
        """
        try:
            module = environment().from_string(source).module
        except TemplateSyntaxError as error:
            raise ToolPromptError(f"{name}: line {error.lineno}: {error.message}") from None
        except TemplateError as error:
            raise ToolPromptError(f"{name}: {error}") from None
        for macro in _MACROS:
            if not hasattr(module, macro):
                raise ToolPromptError(f"{name}: there is no macro {macro!r}")
        self._module: Any = module

    @classmethod
    def of_file(cls, path: Path) -> ToolPrompt:
        """The prompt of a file.

        Raises:
            ToolPromptError: it can't be read or used.
        """
        try:
            return cls(path.read_text(encoding="utf-8"), name=str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise ToolPromptError(f"{path} can't be read: {error}") from None

    def explain(
        self,
        turns: Turns,
        tools: Sequence[Mapping[str, Any]],
        choice: str,
        *,
        role: str = "system",
        notation: Notation | None = None,
    ) -> list[dict[str, Any]]:
        """The conversation with the tools explained in its first system message.

        Args:
            choice: "auto", "required", or the one function that must be called.
            role: "user" for chat templates that take no system message: the first user message.
        """
        example = None if notation is None else notation(_EXAMPLE_NAME, _EXAMPLE_ARGUMENTS)
        takes_it = len(self._module.instructions.arguments) > len((tools, choice))
        shown = [example] if example is not None and takes_it else []
        text = self._call("instructions", tools, choice, *shown)
        roles = ("system", "developer") if role == "system" else (role,)
        if not turns or turns[0].get("role") not in roles:
            return [{"role": role, "content": text}, *map(dict, turns)]
        first, *rest = turns
        parts = [str(first["content"]), text] if role == "system" else [text, str(first["content"])]
        return [{**first, "content": "\n\n".join(filter(None, parts))}, *map(dict, rest)]

    def retell(self, turns: Turns, notation: Notation | None = None) -> list[dict[str, Any]]:
        """The conversation with calls and results as ordinary text."""
        told: list[dict[str, Any]] = []
        names: dict[str, str] = {}
        after_result = False
        for turn in turns:
            calls = turn.get("tool_calls")
            if calls:
                names |= {call["id"]: call["function"]["name"] for call in calls}
                text = self._call("calls", [_written(call, notation) for call in calls])
                parts = [part for part in (str(turn["content"]), text) if part]
                kept = {key: value for key, value in turn.items() if key != "tool_calls"}
                told.append({**kept, "content": "\n".join(parts)})
                after_result = False
            elif turn["role"] == "tool":
                name = turn.get("name") or names.get(str(turn.get("tool_call_id")), "")
                text = self._call("result", name, turn["content"])
                self._say(told, text, joined=after_result, by="\n")
                after_result = True
            elif after_result and turn["role"] == "user":
                self._say(told, str(turn["content"]), joined=True, by="\n\n")
                after_result = False
            else:
                told.append(dict(turn))
                after_result = False
        return told

    @staticmethod
    def _say(told: list[dict[str, Any]], text: str, *, joined: bool, by: str) -> None:
        if joined:
            told[-1]["content"] += by + text
        else:
            told.append({"role": "user", "content": text})

    def _call(self, macro: str, *arguments: Any) -> str:
        try:
            return str(getattr(self._module, macro)(*arguments)).strip("\n")
        except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise ChatTemplateError(f"The fallback prompt for tools failed: {error}") from None


def _written(call: Mapping[str, Any], notation: Notation | None) -> Mapping[str, Any]:
    """A call with its `text` in the notation, if that has one for it."""
    function = call["function"]
    if notation is None or not isinstance(function["arguments"], Mapping):
        return call
    text = notation(function["name"], function["arguments"])
    return call if text is None else {**call, "text": text}


def render_conversation(
    chat_template: ChatTemplate,
    tool_prompt: ToolPrompt,
    turns: Turns,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    choice: str = "auto",
    kwargs: Mapping[str, Any] | None = None,
    notation: Notation | None = None,
) -> RenderedPrompt:
    """The prompt of a conversation with tools: by the chat template where it knows them, else with
    the fallback's words, and calls in `notation`. See `ChatTemplate.render` and
    `ToolPrompt.explain` for the parameters.

    Raises:
        ChatTemplateError: the chat template refused the messages.
    """
    with_calls = any(turn.get("tool_calls") or turn["role"] == "tool" for turn in turns)
    native = chat_template.knows_tools or not tools
    if with_calls and not (native and chat_template.knows_calls):
        turns = tool_prompt.retell(turns, notation)
    if native:
        return chat_template.render(turns, tools=tools or None, kwargs=kwargs)
    try:
        told = tool_prompt.explain(turns, tools, choice, notation=notation)
        return chat_template.render(told, kwargs=kwargs)
    except ChatTemplateError:
        # Some templates refuse system messages.
        told = tool_prompt.explain(turns, tools, choice, role="user", notation=notation)
        with suppress(ChatTemplateError):
            return chat_template.render(told, kwargs=kwargs)
        raise
