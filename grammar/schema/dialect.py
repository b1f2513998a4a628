"""Which draft a schema says it is of, and so which keywords it knows.

Where `$schema` is absent the newest draft is meant. Where it names a meta-schema that nobody here
knows, the schema is read as of the newest draft, but what its keywords mean can't be known (Core
8.1.2: a vocabulary may be missing, or be there that must be understood): that is an issue.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), "draft-06"),
    **dict.fromkeys(("if", "then", "else"), "draft-07"),
    **dict.fromkeys(
        ("dependentRequired", "dependentSchemas", "minContains", "maxContains",
         "unevaluatedItems", "unevaluatedProperties", "$recursiveRef", "$recursiveAnchor"),
        "2019-09"),
    **dict.fromkeys(("prefixItems", "$dynamicRef", "$dynamicAnchor"), "2020-12"),
}  # fmt: skip
"""The draft that each keyword came with, as far as that is later than draft-04."""
UNTIL = dict.fromkeys(("$recursiveRef", "$recursiveAnchor"), "2019-09")
"""The last draft that knows a keyword, as far as what came later means something else."""

_KNOWN = re.compile(
    r"(?:(?:https?:)?//)?(?:www\.)?(?:json-schema\.org/.*|spec\.openapis\.org/oas/3\.\d.*)|"
)
"""The drafts themselves in all spellings, those of their parts, and OpenAPI's dialects, which add
keywords that assert nothing (OpenAPI 3.1, section 4.8.24.1). An empty text names none."""


def draft_of(root: Any) -> str | None:
    """The draft that ``$schema`` names, None where it names none of ours."""
    dialect = root.get("$schema") if isinstance(root, dict) else None
    if not isinstance(dialect, str) or not is_known(dialect):
        return None
    return next((draft for draft in DRAFTS if draft in dialect), None)


def is_known(dialect: str) -> bool:
    """Whether the keywords of schemas that name this meta-schema are known."""
    return _KNOWN.fullmatch(dialect) is not None


@dataclass(frozen=True, slots=True)
class Dialect:
    """What a draft makes of schemas.

    Attributes:
        draft: its name, None where ``$schema`` names none of ours.
        unknown: keywords that it ignores: those of other drafts, and those that are annotations.
        ref_alone: whether the neighbours of ``$ref`` are ignored (up to draft-07).
        float_integers: whether a number without a fraction is an integer, however it is written
            (from draft-06 on).
    """

    draft: str | None
    unknown: frozenset[str]
    ref_alone: bool
    float_integers: bool

    @classmethod
    def of(cls, root: Any, annotations: frozenset[str] = frozenset()) -> Dialect:
        """The dialect that a schema resource's ``$schema`` names; without one all is known.

        ``annotations`` are keywords that assert nothing, whatever the draft says.
        """
        return cls._of_draft(draft_of(root), annotations)

    @classmethod
    @cache
    def _of_draft(cls, draft: str | None, annotations: frozenset[str]) -> Dialect:
        if draft is None:
            return cls(None, annotations, False, True)
        at = DRAFTS.index(draft)
        later = {k for k, since in SINCE.items() if DRAFTS.index(since) > at}
        gone = {k for k, until in UNTIL.items() if DRAFTS.index(until) < at}
        early = draft in ("draft-03", "draft-04")
        return cls(draft, annotations | later | gone, draft in OLD_DRAFTS, not early)
