"""Fields of a chat request that ask more of an answer than its shape: sources, and repair.

Invariant: none of them changes what the model is asked at first; what they cost, they cost only
where they are given (or the schema says `x-ground`).

Read next: `server/api/judging.py`, `server/api/repairing.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, Tag

from server.api.fields import RequestModel, TokenLimit, by_type

#: Most attempts of one answer, and how many there are where the request doesn't say.
MAX_ATTEMPTS = 16
DEFAULT_ATTEMPTS = 4


class RepairOptions(RequestModel):
    """How often an answer may be asked for again, and how long it may become."""

    max_attempts: int = Field(
        default=DEFAULT_ATTEMPTS, ge=1, le=MAX_ATTEMPTS, description="The first one included."
    )
    max_tokens: TokenLimit = Field(
        default=None,
        description="Most tokens of any attempt. `max_tokens` of the request is the first one's "
        "budget, which doubles after an attempt that it cut off. Default: the context's room.",
    )


_Grounding = Annotated[
    Annotated[None, Tag("#null")]
    | Annotated[str, Tag("#kind")]
    | Annotated[dict[str, Any], Tag("#object")],
    by_type({str: "#kind", dict: "#object", type(None): "#null"}),
]
Source = Annotated[
    Annotated[None, Tag("#null")]
    | Annotated[str, Tag("#text")]
    | Annotated[list[str], Tag("#list")],
    by_type({str: "#text", list: "#list", type(None): "#null"}),
]


def joined(source: str | list[str] | None) -> str | None:
    """A source of several texts as one."""
    return "\n\n".join(source) if isinstance(source, list) else source


class CheckedRequest(RequestModel):
    """What is checked of the finished answer, and what becomes of one that doesn't pass."""

    repair: RepairOptions | None = Field(
        default=None,
        description="Ask again for an answer that was cut off, is not valid or not grounded, and "
        "tell the model why. The end is an accepted answer, or a 422 `repair_failed` with all "
        "attempts. A stream holds the answer back until it is accepted. An extension.",
    )
    grounding: _Grounding = Field(
        default=None,
        description="Which values must be stated in the source: a kind for all of them "
        "(`verbatim`, `number`, `date`, `auto`; `off`: none, whatever the schema says), or "
        "{`default`: kind, `fields`: {field: kind}}. Default: what the schema's `x-ground` says. "
        "An extension.",
    )
    source: Source = Field(
        default=None,
        description="The text (or texts) that the answer is grounded in, and that `x-extract` in "
        "the schema extracts from, tools' schemas included. Default: the user's messages. An "
        "extension.",
    )
    on_ungrounded: Literal["report", "repair", "null"] | None = Field(
        default=None,
        description="What becomes of a value that the source does not state: it is reported in "
        "`gabarito.grounding`; the answer is repaired; or the value is replaced by null (422 "
        "`ungrounded` where the schema doesn't allow that). Default: `repair` if `repair` is "
        "given, else `report`. An extension.",
    )
