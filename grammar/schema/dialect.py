"""What a schema's own draft does not know: keywords that came later, where ``$schema`` names one.

A keyword that a dialect does not define asserts nothing (2020-12: Core 4.3.1; draft-04: Core 5.1;
draft-07: Core 6.4), so ``if`` in a schema that says it is draft-04 is ignored, as validators do.
Schemas that name no draft may use every keyword.
"""

from __future__ import annotations

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


def draft_of(root: Any) -> str | None:
    """The draft that ``$schema`` names, None where it names none of ours."""
    dialect = root.get("$schema") if isinstance(root, dict) else None
    if not isinstance(dialect, str):
        return None
    return next((draft for draft in DRAFTS if draft in dialect), None)


def later_keywords(root: Any) -> frozenset[str]:
    """The keywords that the schema's draft does not know."""
    draft = draft_of(root)
    if draft is None:
        return frozenset()
    at = DRAFTS.index(draft)
    return frozenset(k for k, since in SINCE.items() if DRAFTS.index(since) > at)
