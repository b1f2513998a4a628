"""Subschemas without parts (strings, numbers, enumerations), told by what they say.

Most subschemas of real schemas are such leaves, and most of those say the same: the compiler makes
one rule for all that assert the same, and a workspace keeps what they mean.
"""

from __future__ import annotations

from typing import Any

from grammar.schema import keywords as kw

SCALARS = frozenset({"null", "boolean", "integer", "number", "string"})
_ASSERTIONS = (
    frozenset({"type", "enum", "const", "contentMediaType"})
    | kw.BY_TYPE["string"]
    | kw.BY_TYPE["number"]
) - {"x-extract"}  # which means something else for each source


def signature(schema: Any) -> str | None:
    """A text that is equal for leaves that assert the same; None for what is no leaf.

    Keywords that this compiler does not know make no leaf, nor do types that have parts.
    """
    if not isinstance(schema, dict):
        return None
    said: list[tuple[str, Any]] = []
    for keyword, value in schema.items():
        if keyword in _ASSERTIONS:
            said.append((keyword, value))
        elif keyword not in kw.ANNOTATIONS:
            return None
    types = schema.get("type")
    if isinstance(types, str):
        if types not in SCALARS:
            return None
    elif isinstance(types, list):
        if not all(isinstance(name, str) and name in SCALARS for name in types):
            return None
    elif types is not None or ("enum" not in schema and "const" not in schema):
        return None
    if len(said) > 1:
        said.sort(key=_first)
    return repr(said)


def _first(pair: tuple[str, Any]) -> str:
    return pair[0]
