"""Building blocks of the request models: field types, and what is refused by name.

Three kinds of fields make up OpenAI's API, and all of them are known here:

- supported ones have a type of their own;
- harmless ones (`Accepted…`) are checked for their shape, and change nothing;
- unsupported ones (`unsupported(...)`) may be absent, null, or one of the values that ask for
  nothing; any other value is an error that names the field.

Invariant: no field is ignored without a word in its description. Unions carry a discriminator whose
tags begin with `#`, so that complaints name the field and not pydantic's branch.

Read next: `server/api/models.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
)
from pydantic_core import PydanticCustomError

MAX_STOPS = 4
MAX_TOP_LOGPROBS = 20
#: The least tokens that a guard against repetition can be set to.
MIN_REPETITION = 16
_INT64 = 2**63


class RequestModel(BaseModel):
    """Base of all request models: exact types, no unknown fields, immutable."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )


def refuse(code: str, message: str, param: str = "") -> PydanticCustomError:
    """An error of our own.

    Args:
        code: the API's code.
        param: the field at fault, where the check sits on the object that holds it.
    """
    escaped = message.replace("{", "{{").replace("}", "}}")
    return PydanticCustomError(code, escaped, {"param": param})


def unsupported(name: str, *neutral: object, hint: str = "") -> Any:
    """The type of a field that this server knows and can't serve.

    Args:
        neutral: values besides null that ask for nothing and are therefore fine.
    """

    def check(value: object) -> object:
        if value is None or any(type(value) is type(n) and value == n for n in neutral):
            return value
        raise refuse(
            "unsupported_parameter",
            f"Unsupported parameter: '{name}' is not supported by this server{hint and '; ' + hint}"
            ". Leave it out or send null.",
        )

    allowed = ", ".join(["null", *(repr(value) for value in neutral)])
    return Annotated[
        Any, AfterValidator(check), Field(description=f"Not supported: only {allowed} is accepted.")
    ]


def _not_empty(stops: str | list[str] | None) -> str | list[str] | None:
    for stop in [stops] if isinstance(stops, str) else stops or []:
        if not stop:
            raise refuse("invalid_value", "Invalid value for 'stop': a stop string can't be empty.")
    return stops


def _long_enough(value: int | None) -> int | None:
    if value is not None and 0 < value < MIN_REPETITION:
        raise refuse(
            "invalid_value",
            f"Invalid value for 'repetition_guard': {value} tokens are no runaway repetition; it "
            f"must be 0 or at least {MIN_REPETITION}.",
        )
    return value


def by_type(names: dict[type, str]) -> Discriminator:
    """Chooses a union's branch by the value's own type."""

    def choose(value: object) -> str | None:
        return names.get(type(value))

    words = {str: "a string", list: "an array", dict: "an object", type(None): "null"}
    expected = " or ".join(words[kind] for kind in names)
    return Discriminator(
        choose,
        custom_error_type="union_type",
        custom_error_message=f"Input should be {expected}",
    )


Temperature = Annotated[
    float | None, Field(ge=0, le=2, description="0 is greedy. Default: the server's setting.")
]
TopP = Annotated[
    float | None,
    Field(
        ge=0,
        le=1,
        description="Nucleus sampling; 0 keeps the likeliest token only. Default: the server's "
        "setting.",
    ),
]
TopK = Annotated[
    int | None,
    Field(ge=-1, lt=2**31, description="Keep the k likeliest tokens; 0 or -1: all. An extension."),
]
MinP = Annotated[
    float | None,
    Field(ge=0, le=1, description="Keep tokens at least so likely as the likeliest. An extension."),
]
RepeatPenalty = Annotated[
    float | None,
    Field(gt=0, le=10, description="Above 1 discourages tokens already written. An extension."),
]
Penalty = Annotated[float | None, Field(ge=-2, le=2, description="As in OpenAI's API.")]
LogitBias = Annotated[
    dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Annotated[float, Field(ge=-100, le=100)]]
    | None,
    Field(
        description="Token id (of this model's vocabulary, see /tokenize) -> -100..100, added to "
        "the token's score. It never makes a token legal that a response_format forbids."
    ),
]
Seed = Annotated[
    int | None,
    Field(ge=-_INT64, lt=_INT64, description="The same seed and request give the same answer."),
]
Truncation = Annotated[
    Literal["cut", "close"] | None,
    Field(
        description="What to do with a structured answer whose tokens run out: `cut` it where it is"
        " (the default), or `close` it: its last tokens are led to a valid end within the limit. "
        "`finish_reason` is `length` either way. An extension."
    ),
]
RepetitionGuard = Annotated[
    int | None,
    Field(
        ge=0,
        le=1024,
        description="So many tokens that only repeat themselves end the string, number or array of "
        "a structured answer that they stand in; 0 is off, else at least 16. Default: the server's "
        "setting. An extension.",
    ),
    AfterValidator(_long_enough),
]
Timeout = Annotated[
    float | None,
    Field(gt=0, description="Seconds after which the request is given up. An extension."),
]
Diagnostics = Annotated[
    bool | None,
    Field(
        description="Report in `gabarito.diagnostics` what the grammar did to the model, token by "
        "token. An extension."
    ),
]
RawLogprobs = Annotated[
    bool | None,
    Field(
        description="Log-probabilities of the model's own distribution over all tokens, instead of "
        "over the allowed ones. Needs `logprobs`. An extension."
    ),
]


def _limit(value: object) -> object:
    """Clients of other servers send -1 where they mean no limit of theirs."""
    return None if value == -1 and type(value) is int else value


TokenLimit = Annotated[Annotated[int, Field(ge=1, lt=2**31)] | None, BeforeValidator(_limit)]
Count = Annotated[
    int | None, Field(ge=1, description="How many choices. At most 8, or one a slot if more.")
]
Stop = Annotated[
    Annotated[None, Tag("#null")]
    | Annotated[str, Tag("#text")]
    | Annotated[list[str], Field(max_length=MAX_STOPS), Tag("#list")],
    by_type({str: "#text", list: "#list", type(None): "#null"}),
    AfterValidator(_not_empty),
    Field(description="One or up to four strings; the answer ends before the first to appear."),
]
AcceptedText = Annotated[str | None, Field(description="Accepted, and without effect here.")]
AcceptedFlag = Annotated[bool | None, Field(description="Accepted, and without effect here.")]
Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None,
    Field(max_length=16, description="Accepted, and without effect: nothing is stored here."),
]


class StreamOptions(RequestModel):
    """What a stream carries besides the answer."""

    include_usage: bool | None = Field(
        default=None, description="End with a chunk that holds `usage` and no choices."
    )
    include_obfuscation: bool | None = Field(
        default=None, description="Accepted, and without effect: nothing is padded here."
    )
    include_region_events: bool | None = Field(
        default=None,
        description="An extension, chat only: add the named events `region_open`, `region_chunk` "
        "and `region_close` where a region (content, reasoning, …) begins, goes on and ends.",
    )
    include_value_events: bool | None = Field(
        default=None,
        description="An extension, chat only: add the named event `value` for every value that is "
        "complete inside the JSON of a structured answer or of a tool call's arguments.",
    )
