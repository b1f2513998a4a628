"""Whether subschemas have no instance in common, at a glance.

Looks only at what stands in plain sight: types, constants, and the same for properties that one
side requires, through ``$ref`` and ``allOf``. That settles nearly all unions that people write (a
tag property with a constant in each branch) without multiplying anything out. Says True only where
it is certain.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import INTERNAL, Document, join
from grammar.schema.values import key_of, type_of

MAX_LOOK = 3
MAX_PARTS = 32


def plainly_empty(document: Document, pointers: Iterable[str], depth: int = MAX_LOOK) -> bool:
    """Whether the subschemas at some pointers certainly can't hold together."""
    parts = [part for pointer in pointers for part in _plain_parts(document, pointer)]
    types = frozenset(kw.TYPES).intersection(*(kw.subtypes(s, p) for p, s in parts))
    if not types:
        return True
    values = _values(parts)
    if values is not None:
        return not any(type_of(v) & types for v in values)
    if types != {"object"} or depth == 0:
        return False
    required = {n for p, s in parts for n in kw.names(s, "required", p)}
    for name in required:
        places = [join(p, "properties", name) for p, s in parts if name in s.get("properties", {})]
        closed = any(
            s.get("additionalProperties") is False
            and name not in s.get("properties", {})
            and "patternProperties" not in s
            for _, s in parts
        )
        if closed or (places and plainly_empty(document, places, depth - 1)):
            return True
    return False


def _plain_parts(document: Document, pointer: str) -> list[tuple[str, dict[str, Any]]]:
    """The schema objects that hold wherever the subschema does."""
    known = document.plain_parts.get(pointer)
    if known is not None:
        return known
    found: list[tuple[str, dict[str, Any]]] = []
    pending, seen = [pointer], {pointer}
    while pending and len(found) < MAX_PARTS:
        at = pending.pop()
        schema = document.schema(at)
        if isinstance(schema, bool):
            if not schema:
                found.append((at, {"enum": []}))
            continue
        if schema.keys() & INTERNAL:
            continue
        more = [join(at, "allOf", i) for i in range(kw.schemas(schema, "allOf", at))]
        targets = document.references(schema, at)
        if "$ref" in schema and document.dialect(at).ref_alone:
            more = targets[:1]
        else:
            more += targets
            found.append((at, schema))
        pending += [p for p in more if p not in seen]
        seen.update(more)
    document.plain_parts[pointer] = found
    return found


def _values(parts: list[tuple[str, dict[str, Any]]]) -> list[Any] | None:
    """The values that all ``enum`` and ``const`` share; None where nothing lists any."""
    common: dict[str, Any] | None = None
    for pointer, schema in parts:
        for listed in kw.listed(schema, pointer):
            keys = {key_of(value): value for value in listed}
            common = keys if common is None else {k: common[k] for k in common.keys() & keys}
    return None if common is None else list(common.values())
