"""The request bodies, with a description of every field (they are what `/docs` shows).

Invariant: every field of the current OpenAI API is known here: supported, accepted without effect,
or refused by name (see `server/api/fields.py`). Anything else is an unknown parameter.

Read next: `server/api/chat.py`, which serves the first of them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, Tag, model_validator

from server.api.checked import CheckedRequest, Source, joined
from server.api.fields import (
    MAX_TOP_LOGPROBS,
    AcceptedFlag,
    AcceptedText,
    Count,
    Diagnostics,
    LogitBias,
    Metadata,
    MinP,
    Penalty,
    RawLogprobs,
    RepeatPenalty,
    RepetitionGuard,
    RequestModel,
    Seed,
    Stop,
    StreamOptions,
    Temperature,
    Timeout,
    TokenLimit,
    TopK,
    TopP,
    Truncation,
    by_type,
    refuse,
    unsupported,
)
from server.api.formats import FormattedRequest
from server.api.messages import Message, check_history
from server.api.tools import ToolRequest


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
    repetition_penalty: RepeatPenalty = None
    logit_bias: LogitBias = None
    n: Count = None
    stream: bool | None = Field(default=None, description="Answer with server-sent events.")
    stream_options: StreamOptions | None = Field(
        default=None, description="What the stream carries besides the answer."
    )
    user: str | None = Field(
        default=None,
        description="Who asks, where no API key tells: clients take turns in the queue.",
    )
    max_tokens: TokenLimit = Field(default=None, description="Most tokens of the answer.")
    truncation: Truncation = None
    repetition_guard: RepetitionGuard = None
    timeout: Timeout = None
    diagnostics: Diagnostics = None
    logprobs_raw: RawLogprobs = None

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise refuse(
                "invalid_value",
                "'stream_options' is only allowed when 'stream' is true.",
                "stream_options",
            )
        return self

    @model_validator(mode="after")
    def _one_repeat_penalty(self) -> Self:
        if self.repeat_penalty is not None and self.repetition_penalty is not None:
            raise refuse(
                "invalid_value",
                "'repeat_penalty' and 'repetition_penalty' are two names of the same; give only "
                "one of them.",
                "repetition_penalty",
            )
        return self

    @property
    def repetition(self) -> float | None:
        """The penalty on tokens already written, under whichever name it came."""
        return self.repetition_penalty if self.repeat_penalty is None else self.repeat_penalty

    @model_validator(mode="after")
    def _raw_logprobs_are_logprobs(self) -> Self:
        asked = getattr(self, "logprobs", None)
        if self.logprobs_raw and (asked is None or asked is False):
            raise refuse("invalid_value", "'logprobs_raw' needs 'logprobs'.", "logprobs_raw")
        return self

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def options(self) -> StreamOptions:
        """The stream's options, all off where none were given."""
        return self.stream_options or StreamOptions()


class ChatCompletionRequest(SampledRequest, CheckedRequest, ToolRequest):
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
        Field(
            default=None,
            description="Passed on to the chat template as a variable. `none`: no reasoning, also "
            "of models whose chat template knows no such variable.",
        )
    )
    max_reasoning_tokens: int | None = Field(
        default=None,
        ge=0,
        lt=2**31,
        description="Most tokens of reasoning, which is then closed; 0: none. An extension.",
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

    audio: unsupported("audio") = None  # type: ignore[valid-type]
    modalities: unsupported("modalities", ["text"]) = None  # type: ignore[valid-type]
    prediction: unsupported("prediction") = None  # type: ignore[valid-type]
    web_search_options: unsupported("web_search_options") = None  # type: ignore[valid-type]
    moderation: unsupported("moderation") = None  # type: ignore[valid-type]

    @model_validator(mode="after")
    def _calls_have_results(self) -> Self:
        check_history(self.messages)
        return self

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
    def reasoning_limit(self) -> int | None:
        """Most tokens of reasoning; None: any number."""
        if self.max_reasoning_tokens is None and self.reasoning_effort == "none":
            return 0
        return self.max_reasoning_tokens

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
    source: Source = Field(
        default=None,
        description="The text (or texts) that `x-extract` in the schema extracts from. Default: "
        "the prompt, if it is one text. An extension.",
    )
    echo: bool | None = Field(default=None, description="Begin the text with the prompt.")
    logprobs: int | None = Field(
        default=None, ge=0, le=5, description="Report so many likeliest tokens at each step."
    )
    best_of: int | None = Field(default=None, ge=1, description="Only the value of `n`.")
    suffix: unsupported("suffix", "") = None  # type: ignore[valid-type]

    @property
    def source_text(self) -> str | None:
        """What `x-extract` extracts from; None: nothing is known."""
        one = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if self.source is None and len(one) == 1 and isinstance(one[0], str):
            return one[0]
        return joined(self.source)

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
        for name in ("include_region_events", "include_value_events"):
            if getattr(self.options, name):
                raise refuse(
                    "unsupported_value",
                    f"Unsupported value: 'stream_options.{name}' is for chat only.",
                    f"stream_options.{name}",
                )
        return self


class TokenizeRequest(RequestModel):
    """`POST /tokenize`."""

    content: str | None = Field(
        default=None, description="The text; `text` and `prompt` are other names."
    )
    text: str | None = None
    prompt: str | None = None
    messages: list[Any] | None = Field(
        default=None,
        description="In place of a text: a conversation, as in a chat request, whose prompt is "
        "split as it would be for an answer.",
    )
    tools: list[Any] | None = Field(default=None, description="Those of the conversation.")
    model: AcceptedText = None
    add_special: bool = Field(default=False, description="Add what the model wants in front (BOS).")
    parse_special: bool = Field(default=True, description="Read special tokens by their text.")
    with_pieces: bool = Field(default=False, description="Give each token's text or bytes, too.")

    @model_validator(mode="after")
    def _one_text(self) -> Self:
        given = [self.content, self.text, self.prompt, self.messages]
        if sum(each is not None for each in given) != 1:
            raise refuse(
                "invalid_value",
                "Give the text as one of 'content', 'text' and 'prompt', or a conversation as "
                "'messages'.",
                "content",
            )
        if self.tools is not None and self.messages is None:
            raise refuse("invalid_value", "'tools' are told of with 'messages' only.", "tools")
        return self

    @property
    def words(self) -> str:
        """The text, under whichever name it came."""
        return self.content or self.text or self.prompt or ""


class DetokenizeRequest(RequestModel):
    """`POST /detokenize`."""

    tokens: list[int]
    model: AcceptedText = None
