"""Chat messages -> the prompt's text and tokens, by the model's own chat template.

The template is the jinja2 source that a GGUF carries in its metadata. It is run in a sandbox
(`server/sandbox.py`).

Invariant: only the template writes special tokens. A client's text that spells one, such as
`<|im_end|>`, reaches the model as ordinary characters. For that, every place in the client's
strings where a special token is spelled is marked by one private character before rendering; the
rendered text is cut at the marks, and the spelling behind each mark is tokenised as plain text.
Everything else is tokenised in one go, so that ordinary conversations get exactly the tokens that
the whole rendered text has.

Read next: `server/deltas.py`, which reads the answer that the prompt brings forth.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any, Protocol

from jinja2 import TemplateError, TemplateSyntaxError

from server.sandbox import environment, to_json

#: Used for a model whose file has no chat template: ChatML, the commonest turn format.
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

#: Variables that the server sets itself; a request's `chat_template_kwargs` can't.
RESERVED = frozenset(
    {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt", "raise_exception"}
)

#: What templates are tried out with.
_PROBE = "probe_call"
_PROBE_ARGUMENT = "probe_argument"
_PROBE_RESULT = "probe_result"

#: Mistral's templates refuse ids of calls that are not nine letters and digits.
_SHORT_IDS = re.compile(r"\|\s*length\s*!=\s*9\b")
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")

#: Where marks are looked for: characters that Unicode keeps for private use.
_MARKS = range(0xE000, 0xF900)


class ChatTemplateError(ValueError):
    """These messages, or these template arguments, can't be rendered by the model's template."""

    def __init__(self, message: str, *, param: str = "messages") -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ChatTemplateSourceError(ValueError):
    """The template itself isn't valid jinja2."""


@dataclass(frozen=True, slots=True)
class PromptPiece:
    """A stretch of the prompt; `plain` means that special tokens in it are just text."""

    text: str
    plain: bool


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as pieces whose texts, joined, are what the template wrote."""

    pieces: tuple[PromptPiece, ...]

    @property
    def text(self) -> str:
        """The whole prompt: also the prefix that the response template looks at."""
        return "".join(piece.text for piece in self.pieces)


class Tokenizer(Protocol):
    """The one method of an engine that this module needs."""

    def tokenize(
        self, text: str, *, add_special: bool = False, parse_special: bool = True
    ) -> list[int]:
        """Token ids of `text`; `add_special` adds what the model wants in front (a BOS)."""


class ChatTemplate:
    """A compiled chat template. Rendering is a pure function of its arguments and the clock."""

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str = "",
        eos_token: str = "",
        guarded: Iterable[str] = (),
    ) -> None:
        """Compile `source` (None: ChatML).

        Args:
            guarded: the spellings of special tokens that a client's text must not turn into tokens.

        Raises:
            ChatTemplateSourceError: `source` isn't valid jinja2.
        """
        self.source = CHATML if source is None else source
        self.is_fallback = source is None
        self._bos_token = bos_token
        self._eos_token = eos_token
        self._guarded = frozenset(text for text in guarded if text)
        self._lengths = sorted({len(text) for text in self._guarded}, reverse=True)
        self._first = _any_of({text[0] for text in self._guarded})
        try:
            self._template = environment().from_string(self.source)
        except TemplateSyntaxError as error:
            raise ChatTemplateSourceError(
                f"the chat template isn't valid jinja2: line {error.lineno}: {error.message}"
            ) from None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        kwargs: Mapping[str, Any] | None = None,
    ) -> RenderedPrompt:
        """The prompt that asks for the next assistant message.

        Args:
            messages: dicts with `role` (one of the API's own words), `content` (a string), and what
                else the template reads. Arguments of calls are objects; a template that can only
                join texts gets them as JSON text.
            tools: those that may be called, as the API has them; the template's `tools`.
            kwargs: further template variables (`chat_template_kwargs` of a request).

        Raises:
            ChatTemplateError: the template refused the messages, or `kwargs` sets a reserved name.
        """
        variables = dict(kwargs or {})
        for name in RESERVED & variables.keys():
            raise ChatTemplateError(
                f"chat_template_kwargs can't set {name!r}: the server sets it itself",
                param="chat_template_kwargs",
            )
        turns = [dict(message) for message in messages]
        if "developer" not in self.source:
            turns = [_without_developer(turn) for turn in turns]
        if _SHORT_IDS.search(self.source):
            turns = [_with_short_ids(turn) for turn in turns]
        try:
            return self._render(turns, tools, variables)
        except ChatTemplateError:
            textual = [_with_text_arguments(turn) for turn in turns]
            if textual != turns:
                with suppress(ChatTemplateError):
                    return self._render(textual, tools, variables)
            raise

    @cached_property
    def knows_tools(self) -> bool:
        """Whether the template tells the model of `tools`: tried out."""
        return _PROBE in self._tried([{"role": "user", "content": "x"}])

    @cached_property
    def knows_calls(self) -> bool:
        """Whether the template shows earlier calls, and what they came to: tried out."""
        call = {"name": _PROBE, "arguments": {"x": _PROBE_ARGUMENT}}
        text = self._tried(
            [
                {"role": "user", "content": "x"},
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": "call00000", "type": "function", "function": call}],
                },
                {
                    "role": "tool",
                    "content": _PROBE_RESULT,
                    "name": _PROBE,
                    "tool_call_id": "call00000",
                },
            ],
            name="other",
        )
        # Kimi's templates write a call's id in place of its name.
        return _PROBE_ARGUMENT in text and _PROBE_RESULT in text

    def _tried(self, turns: Sequence[Mapping[str, Any]], *, name: str = _PROBE) -> str:
        schema = {"type": "object", "properties": {"x": {"type": "string", "description": "x"}}}
        function = {"name": name, "description": "x", "parameters": schema}
        try:
            return self.render(turns, tools=[{"type": "function", "function": function}]).text
        except ChatTemplateError:
            return ""

    def _render(
        self,
        turns: Sequence[dict[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        variables: Mapping[str, Any],
    ) -> RenderedPrompt:
        mark = _free_mark((self.source, turns, tools, variables))
        text = self._run(
            mark,
            messages=[{**self._marked(turn, mark), "role": turn["role"]} for turn in turns],
            tools=self._marked(tools, mark),
            **self._marked(variables, mark),
        )
        return RenderedPrompt(tuple(self._pieces(text, mark)))

    def _run(self, mark: str, **variables: Any) -> str:
        try:
            return self._template.render(
                add_generation_prompt=True,
                bos_token=self._bos_token,
                eos_token=self._eos_token,
                **variables,
            )
        except TemplateError as error:
            reason = (error.message or type(error).__name__).replace(mark, "")
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
            reason = f"{type(error).__name__}: {error}".replace(mark, "")
        raise ChatTemplateError(f"The model's chat template refused these messages: {reason}")

    def _marked(self, value: Any, mark: str) -> Any:
        """`value` with a mark before every spelling of a guarded token in its strings."""
        if not self._guarded:
            return value
        if isinstance(value, str):
            return self._mark_text(value, mark)
        if isinstance(value, Mapping):
            return {
                self._mark_text(str(name), mark): self._marked(item, mark)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._marked(item, mark) for item in value]
        return value

    def _mark_text(self, text: str, mark: str) -> str:
        starts = [
            match.start()
            for match in self._first.finditer(text)
            if self._guarded_at(text, match.start())
        ]
        if not starts:
            return text
        cuts = [0, *starts, len(text)]
        return mark.join(text[a:b] for a, b in pairwise(cuts))

    def _guarded_at(self, text: str, start: int) -> str:
        """The longest guarded spelling that begins at `start`, or ''."""
        for length in self._lengths:
            if text[start : start + length] in self._guarded:
                return text[start : start + length]
        return ""

    def _pieces(self, text: str, mark: str) -> Iterator[PromptPiece]:
        """Cut at the marks. A mark inside another spelling has already broken that one."""
        head, *rest = text.split(mark)
        if head:
            yield PromptPiece(head, plain=False)
        for part in rest:
            spelling = self._guarded_at(part, 0)
            if spelling:
                yield PromptPiece(spelling, plain=True)
            if len(part) > len(spelling):
                yield PromptPiece(part[len(spelling) :], plain=False)


def tokenize_prompt(
    prompt: RenderedPrompt, tokenizer: Tokenizer, *, bos_token: str, add_bos: bool
) -> list[int]:
    """The prompt's tokens, with exactly one BOS where the model wants one.

    A template that writes the BOS itself is left alone; otherwise the tokenizer adds it.
    """
    written = bool(bos_token) and prompt.text.startswith(bos_token)
    tokens: list[int] = []
    for position, piece in enumerate(prompt.pieces):
        tokens += tokenizer.tokenize(
            piece.text,
            add_special=position == 0 and add_bos and not written,
            parse_special=not piece.plain,
        )
    return tokens


def guarded_spellings(special: Iterable[str], tokenizer: Tokenizer) -> frozenset[str]:
    """Those texts of special tokens that turn into tokens only where special tokens are parsed.

    Added tokens that the tokenizer finds in any text are left out: they can't be kept out.
    """
    return frozenset(
        text
        for text in set(special)
        if text
        and tokenizer.tokenize(text, parse_special=True)
        != tokenizer.tokenize(text, parse_special=False)
    )


def _without_developer(turn: dict[str, Any]) -> dict[str, Any]:
    return {**turn, "role": "system"} if turn.get("role") == "developer" else turn


def _with_text_arguments(turn: dict[str, Any]) -> dict[str, Any]:
    """The turn with its calls' arguments as JSON text."""
    if not turn.get("tool_calls"):
        return turn
    calls = []
    for call in turn["tool_calls"]:
        arguments = call["function"]["arguments"]
        text = arguments if isinstance(arguments, str) else to_json(arguments)
        calls.append({**call, "function": {**call["function"], "arguments": text}})
    return {**turn, "tool_calls": calls}


def _with_short_ids(turn: dict[str, Any]) -> dict[str, Any]:
    turn = dict(turn)
    if turn.get("tool_calls"):
        turn["tool_calls"] = [{**call, "id": _short_id(call["id"])} for call in turn["tool_calls"]]
    if turn.get("tool_call_id"):
        turn["tool_call_id"] = _short_id(turn["tool_call_id"])
    return turn


def _short_id(call_id: str) -> str:
    if _SHORT_ID.fullmatch(call_id):
        return call_id
    return sha256(call_id.encode()).hexdigest()[:9]


def _any_of(characters: Iterable[str]) -> re.Pattern[str]:
    """A pattern for one of `characters`; for none at all, one that never matches."""
    joined = "".join(re.escape(character) for character in sorted(characters))
    return re.compile(f"[{joined}]" if joined else r"(?!)")


def _free_mark(values: object) -> str:
    """A private character that occurs nowhere in `values`."""
    used: set[str] = set()
    for text in _strings(values):
        if not text.isascii():
            used.update(text)
    for code in _MARKS:
        if chr(code) not in used:
            return chr(code)
    raise ChatTemplateError("the messages use every private-use character of Unicode")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield str(name)
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)
