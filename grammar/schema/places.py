"""Where the subschemas of an object's or array's contents stand, in any draft's spelling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import join

_IN_PLACE = frozenset(
    {
        "$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "dependencies",
        "$dynamicRef", "$recursiveRef",
    }
)  # fmt: skip


def item_places(schema: Mapping[str, Any], pointer: str) -> tuple[tuple[str, ...], str | None]:
    """(pointers of the first items' schemas, pointer of the later ones' or None = anything).

    ``prefixItems``/``items`` (2020-12), or a list in ``items`` with ``additionalItems`` (before).
    """
    items = schema.get("items")
    if isinstance(items, list):
        prefix = tuple(join(pointer, "items", i) for i in range(len(items)))
        rest = join(pointer, "additionalItems") if "additionalItems" in schema else None
        return prefix, rest or _unevaluated(schema, pointer, "unevaluatedItems", "contains")
    count = kw.schemas(schema, "prefixItems", pointer)
    prefix = tuple(join(pointer, "prefixItems", i) for i in range(count))
    if "items" in schema:
        return prefix, join(pointer, "items")
    return prefix, _unevaluated(schema, pointer, "unevaluatedItems", "contains")


def contains_bounds(schema: Mapping[str, Any], pointer: str) -> tuple[int, int | None]:
    """How many items must and may match ``contains`` (one or more, if nothing else is said)."""
    least, most = (kw.count(schema, k, pointer) for k in ("minContains", "maxContains"))
    return 1 if least is None else least, most


def extra_place(schema: Mapping[str, Any], pointer: str) -> str | None:
    """The pointer of the schema of undeclared properties' values, or None = anything."""
    if "additionalProperties" in schema:
        return join(pointer, "additionalProperties")
    return _unevaluated(schema, pointer, "unevaluatedProperties")


def _unevaluated(schema: Mapping[str, Any], pointer: str, keyword: str, *also: str) -> str | None:
    """Where nothing else evaluates in place, "unevaluated" is "additional" (Core, 11)."""
    if keyword in schema and is_local(schema, *also):
        return join(pointer, keyword)
    return None


def is_local(schema: Mapping[str, Any], *also: str) -> bool:
    """Whether the schema object has no subschemas that evaluate the same instance."""
    return not (_IN_PLACE | set(also)) & schema.keys()


def unevaluated_is_idle(schema: Mapping[str, Any], keyword: str) -> bool:
    """Whether ``unevaluated…`` is absent, asserts nothing, or is handled as ``additional…``."""
    if keyword not in schema or schema[keyword] is True or schema[keyword] == {}:
        return True
    if keyword == "unevaluatedProperties":
        return is_local(schema) or "additionalProperties" in schema
    tail = "additionalItems" if isinstance(schema.get("items"), list) else "items"
    return is_local(schema, "contains") or tail in schema
