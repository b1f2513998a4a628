"""Subschemas without parts (strings, numbers, enumerations), told by what they say.

Most subschemas of real schemas are such leaves, and most of those say the same: the compiler makes
one rule for all that assert the same, and a workspace keeps what they mean.
"""

from __future__ import annotations

from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import INTERNAL

SCALARS = frozenset({"null", "boolean", "integer", "number", "string"})
_ASSERTIONS = (
    frozenset({"type", "enum", "const", "contentMediaType"})
    | kw.BY_TYPE["string"]
    | kw.BY_TYPE["number"]
) - {"x-extract"}  # which means something else for each source
HEEDED = kw.ASSERTING | INTERNAL | {"contentMediaType"}
"""What makes a difference to a rule; any other keyword is noted at most."""


def signature(schema: Any) -> str | None:
    """A text that is equal for leaves that assert the same; None for what is no leaf.

    Types that have parts make no leaf, nor do combinators.
    """
    if not isinstance(schema, dict):
        return None
    said = [pair for pair in schema.items() if pair[0] in HEEDED]
    types = schema.get("type")
    if isinstance(types, str):
        if types not in SCALARS:
            return None
        if len(said) == 1:
            return types
    elif isinstance(types, list):
        if not all(isinstance(name, str) and name in SCALARS for name in types):
            return None
    elif types is not None or ("enum" not in schema and "const" not in schema):
        return None
    for keyword, _ in said:
        if keyword not in _ASSERTIONS:
            return None
    if len(said) > 1:
        said.sort(key=_first)
    return repr(said)


def says_nothing(schema: Any) -> bool:
    """Whether a subschema accepts everything, as far as its keywords tell."""
    return schema is True or (isinstance(schema, dict) and HEEDED.isdisjoint(schema))


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]
