"""Which draft a schema says it is of, and so which keywords it knows.

Where `$schema` is absent the newest draft is meant. Where it names a meta-schema that nobody here
knows, the schema is read as of the newest draft, but what its keywords mean can't be known (Core
8.1.2: a vocabulary may be missing, or be there that must be understood): that is an issue.
"""

from __future__ import annotations

import re
from typing import Any

DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), "draft-06"),
    **dict.fromkeys(("if", "then", "else"), "draft-07"),
    **dict.fromkeys(
        ("dependentRequired", "dependentSchemas", "minContains", "maxContains",
         "unevaluatedItems", "unevaluatedProperties"), "2019-09"),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), "2020-12"),
}  # fmt: skip
"""The draft that each keyword came with, as far as that is later than draft-04."""

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


def later_keywords(root: Any) -> frozenset[str]:
    """The keywords that the schema's draft does not know."""
    draft = draft_of(root)
    if draft is None:
        return frozenset()
    at = DRAFTS.index(draft)
    return frozenset(k for k, since in SINCE.items() if DRAFTS.index(since) > at)
