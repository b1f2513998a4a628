"""``unevaluatedProperties`` and ``unevaluatedItems`` beside combinators (2020-12: Core, 11).

Which schema objects evaluate what is known of each alternative of a conjunction: all of them hold.
So "unevaluated" becomes "additional" to these, in a schema more that each alternative gets. Schemas
of the compiler's own, and what stands within ``not``, evaluate nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import AT, BEHIND, NOT, SOME_KEY, Document, join
from grammar.schema.places import item_places

KEYWORDS = ("unevaluatedProperties", "unevaluatedItems")
_EVALUATING = frozenset(
    {
        "properties", "patternProperties", "additionalProperties", "unevaluatedProperties",
        "prefixItems", "items", "additionalItems", "contains", "unevaluatedItems",
    }
)  # fmt: skip
Alternative = tuple[str, ...]
Bases = Sequence[tuple[str, Mapping[str, Any]]]


def evaluates(document: Document, alternatives: Iterable[Alternative]) -> bool:
    """Whether some schema object in some alternatives evaluates parts of an instance."""
    return any(
        _EVALUATING & schema.keys()
        for alternative in alternatives
        for _, schema in _bases(document, alternative, "")
    )


def rests(
    document: Document, keyword: str, pointer: str, alternatives: Iterable[Alternative]
) -> Iterator[tuple[Alternative, dict[str, Any]]]:
    """Each alternative, and the schema that the keyword at ``pointer`` comes to beside it.

    Empty if there is nothing that the alternative does not evaluate.
    """
    for alternative in alternatives:
        bases = _bases(document, alternative, pointer)
        inner = {AT: join(pointer, keyword)}
        if keyword == "unevaluatedProperties":
            found = _properties(bases, pointer)
            yield alternative, {} if found is None else {**found, "additionalProperties": inner}
            continue
        length = _length(bases, pointer)
        if length is None:
            yield alternative, {}
            continue
        counted = _contained(bases, AT)
        rest: dict[str, Any] = {"items": {"anyOf": [inner, *counted]} if counted else inner}
        yield alternative, {"prefixItems": [True] * length, **rest} if length else rest


def broken_rests(
    document: Document, keyword: str, pointer: str, alternatives: Iterable[Alternative]
) -> Iterator[tuple[Alternative, dict[str, Any]]]:
    """Each alternative that may break the keyword, and a schema of what breaks it.

    The alternatives must be exact: what they don't name does not hold, if it evaluates anything.
    """
    for alternative in alternatives:
        bases = _bases(document, alternative, pointer)
        outside = {NOT: join(pointer, keyword)}
        if keyword == "unevaluatedProperties":
            found = _properties(bases, pointer)
            if found is not None:
                some = {"names": list(found["properties"]), "value": outside}
                some["patterns"] = list(found["patternProperties"])
                yield alternative, {"type": "object", SOME_KEY: some}
            continue
        length = _length(bases, pointer)
        if length is not None:
            wrong = {"allOf": [outside, *_contained(bases, NOT)]}
            yield alternative, {"type": "array", "contains": wrong, BEHIND: length}


def _bases(document: Document, alternative: Alternative, pointer: str) -> Bases:
    """The user's schema objects in an alternative: those that evaluate."""
    found = []
    for place in alternative:
        schema = document.schema(place)
        if document.is_written(place) or not isinstance(schema, dict):
            continue
        if document.dialect(pointer).draft == "2019-09":  # contains evaluates nothing there
            schema = {k: v for k, v in schema.items() if k != "contains"}
        found.append((place, schema))
    return found


def _properties(bases: Bases, pointer: str) -> dict[str, Any] | None:
    """A schema that declares what the schema objects evaluate; None if that is everything."""
    for base, schema in bases:
        own = base == pointer
        if "additionalProperties" in schema or (not own and "unevaluatedProperties" in schema):
            return None
    return {
        "properties": {n: True for b, s in bases for n in kw.mapping(s, "properties", b)},
        "patternProperties": {
            p: True for b, s in bases for p in kw.mapping(s, "patternProperties", b)
        },
    }


def _length(bases: Bases, pointer: str) -> int | None:
    """How many of the first items are evaluated, whatever they are; None if all are."""
    longest = 0
    for base, schema in bases:
        prefix, _ = item_places(schema, base)
        tail = "additionalItems" if isinstance(schema.get("items"), list) else "items"
        if tail in schema or (base != pointer and "unevaluatedItems" in schema):
            return None
        longest = max(longest, len(prefix))
    return longest


def _contained(bases: Bases, how: str) -> list[dict[str, Any]]:
    """Items that match a ``contains`` are evaluated, too."""
    return [{how: join(base, "contains")} for base, schema in bases if "contains" in schema]
