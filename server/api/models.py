"""The request bodies, with a description of every field (they are what `/docs` shows).

Invariant: every field of the current OpenAI API is known here: supported, accepted without effect,
or refused by name (see `server/api/fields.py`). Anything else is an unknown parameter.

Read next: `server/api/chat.py`, which serves the first of them.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, Tag, model_validator

from server.api.checked import CheckedRequest
from server.api.fields import (
    MAX_TOP_LOGPROBS,
    AcceptedFlag,
    AcceptedText,
    Count,
    LogitBias,
    Metadata,
    MinP,
    Penalty,
    RepeatPenalty,
    RequestModel,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    TokenLimit,
    TopK,
    TopP,
    by_type,
    refuse,
    unsupported,
)
from server.api.formats import FormattedRequest

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

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    name: str | None = Field(default=None, description="Passed on to the chat template.")
    tool_calls: list[ToolCall] | None = Field(
        default=None, description="Of an assistant message: passed on to the chat template."
    )
    tool_call_id: str | None = Field(default=None, description="Of a tool message: likewise.")
    reasoning_content: str | None = Field(
        default=None, description="Of an assistant message: passed on to the chat template."
    )
    refusal: AcceptedText = None
    annotations: Annotated[Any, Field(description="Accepted, and without effect here.")] = None
    parsed: Annotated[
        Any, Field(description="The SDK's parsed form of an answer: accepted, without effect.")
    ] = None
    audio: unsupported("audio") = None  # type: ignore[valid-type]
    function_call: unsupported("function_call") = None  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        if self.role != "assistant":
            if self.content is None:
                raise refuse(
                    "missing_required_parameter",
                    f"Missing required parameter: a message of role {self.role!r} needs 'content'.",
                    "content",
                )
            for name in ("tool_calls", "reasoning_content", "refusal"):
                if getattr(self, name):
                    raise refuse(
                        "invalid_value", f"Only an assistant message can have '{name}'.", name
                    )
        return self

    @property
    def text(self) -> str:
        """The content as one string."""
        if isinstance(self.content, list):
            return "\n".join(part.words for part in self.content)
        return self.content or ""


class SampledRequest(FormattedRequest):
    """What chat and plain completions have in common."""

    model: str = Field(min_length=1, description="The served model's name, or `default`.")
    temperature: Temperature = None
    top_p: TopP = None
    top_k: TopK = None
    min_p: MinP = None
    seed: Seed = None
    stop: Stop = None
    frequency_penalty: Penalty = None
    presence_penalty: Penalty = None
    repeat_penalty: RepeatPenalty = None
    logit_bias: LogitBias = None
    n: Count = None
    stream: bool | None = Field(default=None, description="Answer with server-sent events.")
    stream_options: StreamOptions | None = Field(
        default=None, description="What the stream carries besides the answer."
    )
    user: AcceptedText = None
    max_tokens: TokenLimit = Field(default=None, description="Most tokens of the answer.")

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise refuse(
                "invalid_value",
                "'stream_options' is only allowed when 'stream' is true.",
                "stream_options",
            )
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def options(self) -> StreamOptions:
        """The stream's options, all off where none were given."""
        return self.stream_options or StreamOptions()


class ChatCompletionRequest(SampledRequest, CheckedRequest):
    """`POST /v1/chat/completions`."""

    messages: list[Message] = Field(min_length=1, description="The conversation so far.")
    max_completion_tokens: TokenLimit = Field(
        default=None,
        description="Most tokens of the answer; default: until the context ends. `max_tokens` is "
        "its older name; both together must agree.",
    )
    logprobs: bool | None = Field(
        default=None,
        description="Report each token's log-probability among the tokens that were allowed.",
    )
    top_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=MAX_TOP_LOGPROBS,
        description="Report so many likeliest tokens at each step, too. Needs `logprobs`.",
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        default=None,
        description="Further variables of the chat template, such as `enable_thinking`. An "
        "extension.",
    )
    response_template: str | None = Field(
        default=None,
        description="Read the answer by this one of the server's response templates instead of the "
        "model's own: the name of a family, such as `qwen3`, or `plain`. An extension.",
    )
    profile: Literal["none", "openai"] | None = Field(
        default=None,
        description="openai: refuse what the hosted API would refuse in the shape of the answer, "
        "with the same 400. Default: the server's setting. An extension.",
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        Field(default=None, description="Passed on to the chat template as a variable.")
    )

    metadata: Metadata = None
    store: AcceptedFlag = None
    safety_identifier: AcceptedText = None
    prompt_cache_key: AcceptedText = None
    prompt_cache_retention: AcceptedText = None
    prompt_cache_options: Annotated[
        dict[str, Any] | None, Field(description="Accepted: the prompt cache is always on.")
    ] = None
    service_tier: AcceptedText = None
    verbosity: AcceptedText = None
    parallel_tool_calls: AcceptedFlag = None

    tools: unsupported("tools", []) = None  # type: ignore[valid-type]
    tool_choice: unsupported("tool_choice", "none", "auto") = None  # type: ignore[valid-type]
    functions: unsupported("functions", []) = None  # type: ignore[valid-type]
    function_call: unsupported("function_call", "none", "auto") = None  # type: ignore[valid-type]
    audio: unsupported("audio") = None  # type: ignore[valid-type]
    modalities: unsupported("modalities", ["text"]) = None  # type: ignore[valid-type]
    prediction: unsupported("prediction") = None  # type: ignore[valid-type]
    web_search_options: unsupported("web_search_options") = None  # type: ignore[valid-type]
    moderation: unsupported("moderation") = None  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise refuse(
                "invalid_value", "'top_logprobs' needs 'logprobs' to be true.", "top_logprobs"
            )
        both = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(both) > 1:
            raise refuse(
                "invalid_value",
                "'max_tokens' and 'max_completion_tokens' are two names of one limit, and differ.",
                "max_tokens",
            )
        return self

    @property
    def token_limit(self) -> int | None:
        """Most tokens of the answer."""
        return self.max_completion_tokens or self.max_tokens


def _has_prompt(value: str | list[Any]) -> str | list[Any]:
    if not isinstance(value, str):
        kinds = {type(item) for item in value}
        if len(kinds) != 1 or not kinds <= {str, int, list}:
            raise refuse(
                "invalid_value",
                "Invalid value for 'prompt': it must be a string, an array of strings, an array of "
                "token ids, or an array of arrays of token ids.",
            )
        if kinds == {list} and not all(
            ids and all(type(token) is int for token in ids) for ids in value
        ):
            raise refuse("invalid_value", "Invalid value for 'prompt': token ids must be integers.")
    return value


class CompletionRequest(SampledRequest):
    """`POST /v1/completions`: the prompt goes to the model as it is, without a chat template."""

    prompt: Annotated[
        Annotated[str, Tag("#text")] | Annotated[list[Any], Tag("#list")],
        by_type({str: "#text", list: "#list"}),
        AfterValidator(_has_prompt),
        Field(
            description="A string, token ids, or an array of either (each gives `n` choices). "
            "Special tokens may be written by their text."
        ),
    ]
    echo: bool | None = Field(default=None, description="Begin the text with the prompt.")
    logprobs: int | None = Field(
        default=None, ge=0, le=5, description="Report so many likeliest tokens at each step."
    )
    best_of: int | None = Field(default=None, ge=1, description="Only the value of `n`.")
    suffix: unsupported("suffix", "") = None  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.best_of is not None and self.best_of != (self.n or 1):
            raise refuse(
                "unsupported_value",
                "Unsupported value: 'best_of' must equal 'n'; this server doesn't rank choices.",
                "best_of",
            )
        if self.echo and self.logprobs is not None:
            raise refuse(
                "unsupported_value",
                "Unsupported value: 'echo' with 'logprobs' would need the prompt's "
                "log-probabilities, which this server doesn't compute.",
                "logprobs",
            )
        if self.options.include_region_events:
            raise refuse(
                "unsupported_value",
                "Unsupported value: 'stream_options.include_region_events' is for chat only.",
                "stream_options.include_region_events",
            )
        return self


class TokenizeRequest(RequestModel):
    """`POST /tokenize`."""

    content: str | None = Field(default=None, description="The text; `text` is another name.")
    text: str | None = None
    model: AcceptedText = None
    add_special: bool = Field(default=False, description="Add what the model wants in front (BOS).")
    parse_special: bool = Field(default=True, description="Read special tokens by their text.")
    with_pieces: bool = Field(default=False, description="Give each token's text or bytes, too.")

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        if (self.content is None) == (self.text is None):
            raise refuse(
                "invalid_value",
                "Give the text as 'content' (or as 'text', not as both).",
                "content",
            )
        return self

    @property
    def words(self) -> str:
        """The text, under whichever name it came."""
        return self.text if self.content is None else self.content  # type: ignore[return-value]


class DetokenizeRequest(RequestModel):
    """`POST /detokenize`."""

    tokens: list[int]
    model: AcceptedText = None
