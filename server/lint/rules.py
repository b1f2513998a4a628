"""What goes wrong with a schema although it is valid: the shape invites a wrong answer.

    answer-before-evidence   the model must decide before it has written down why
    closed-enum              every value names something; nothing is left for the rest
    no-way-out               a required value that may not be there, and no null to say so
    unbounded-string         may run until the token limit cuts the answer off
    unbounded-array          likewise
    many-enum-values         an enumeration that looks like data: every change is another grammar
    vague-name               a name that tells the model nothing, and no description

Constrained decoding makes each of these *valid* and wrong: what the schema leaves no room for, the
model can't say (Tam et al., "Let Me Speak Freely?", 2024, on the order of keys).

Read next: `report.py`, which runs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from server.lint.places import (
    Place,
    Schema,
    allows_null,
    branches,
    constants,
    has_type,
    places,
    resolved,
    types,
)
from server.lint.words import EVIDENCE, is_answer, is_evidence, is_vague, is_way_out, words

Severity = Literal["error", "warning", "note"]

#: From how many values on an enumeration looks like data.
MANY_VALUES = 100

#: Keywords under which a schema says what is *not* to be generated, or what only conditions ask.
_NOT_GENERATED = frozenset({"not", "if", "contains", "propertyNames"})

_BOUNDED_FORMATS = ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "duration")
_REPEATS = re.compile(r"(?<!\\)(?:\\\\)*(?:[*+]|\{\d+,\})")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to look at.

    rule      its name; for another server's view `refused`, `ignored` or `different`
    severity  error: this server refuses the schema; warning: answers may be wrong or cut off, or
              another server refuses or ignores something; note: worth a thought
    pointer   the JSON Pointer of the schema object
    message   what is so; `advice` what to do about it
    target    the other server whose view it is; None for Gabarito's own
    """

    rule: str
    severity: Severity
    pointer: str
    message: str
    advice: str
    target: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """As the API and `gabarito lint --json` show it."""
        return {
            "rule": self.rule,
            "severity": self.severity,
            "pointer": self.pointer,
            "message": self.message,
            "advice": self.advice,
            **({} if self.target is None else {"target": self.target}),
        }


def rule_findings(root: Schema) -> Iterator[Finding]:
    """What all rules find in a schema, in the document's order."""
    for place in places(root):
        if is_generated(place):
            for rule in _RULES:
                yield from rule(place, root)


def is_generated(place: Place) -> bool:
    """Whether values of this subschema are written by the model."""
    at: Place | None = place
    while at is not None:
        if at.keyword in _NOT_GENERATED:
            return False
        at = at.parent
    return True


def _order(place: Place, _: Schema) -> Iterator[Finding]:
    properties = place.schema.get("properties")
    if not isinstance(properties, dict):
        return
    names = list(properties)
    for index, name in enumerate(names):
        if not is_evidence(name):
            continue
        subject = set(words(name)) - EVIDENCE
        early = [
            before
            for before in names[:index]
            if not is_evidence(before)
            and (is_answer(before) or (subject and subject <= set(words(before))))
        ]
        if early:
            yield Finding(
                "answer-before-evidence",
                "warning",
                place.pointer,
                f"{_quoted(early)} is written before {name!r}: the model decides first and finds "
                "its reasons afterwards.",
                f"Put {name!r} before {_quoted(early)}: keys are written in the schema's order.",
            )


def _closed(place: Place, root: Schema) -> Iterator[Finding]:
    values = place.schema.get("enum")
    if not isinstance(values, list) or len(values) < 2:
        return
    texts = [value for value in values if isinstance(value, str)]
    if len(texts) < 2 or any(map(is_way_out, values)) or _nullable(place, root):
        return
    yield Finding(
        "closed-enum",
        "warning",
        place.pointer,
        f"None of the {len(values)} values means 'none of these', so the model must pick a wrong "
        "one when nothing fits.",
        "Add a value such as 'other' or 'unknown', or allow null.",
    )


def _no_way_out(place: Place, root: Schema) -> Iterator[Finding]:
    if not place.is_required or _nullable(place, root):
        return
    options = branches(place.schema, root)
    if any(constants(option) is not None for option in options):
        return  # a constant needs no way out, and enumerations have a rule of their own
    allowed = frozenset().union(*map(types, options))
    empty_array = "array" in allowed and not any(
        isinstance(least := option.get("minItems"), int) and least > 0 for option in options
    )
    if "object" in allowed or empty_array:
        return
    is_free = "string" in allowed and not any(
        key in option for option in options for key in ("pattern", "format", "minLength")
    )
    kind = "text" if allowed == {"string"} else "value"
    yield Finding(
        "no-way-out",
        "note" if is_free else "warning",
        place.pointer,
        f"{place.name!r} is required and can't be null: where the source doesn't say, the model "
        f"must make up a {kind}.",
        "Allow null as well (type: [..., 'null']), and tell the model to use it.",
    )


def _unbounded_string(place: Place, root: Schema) -> Iterator[Finding]:
    schema = place.schema
    if "string" not in types(schema) or not _names_type(schema, "string"):
        return
    bounded = (
        "maxLength" in schema
        or constants(schema) is not None
        or "x-extract" in schema
        or schema.get("format") in _BOUNDED_FORMATS
        or _is_bounded(schema.get("pattern"))
    )
    if not bounded:
        yield Finding(
            "unbounded-string",
            "warning",
            place.pointer,
            "The string has no maxLength: a model that rambles or repeats itself is only stopped "
            "by the token limit, and the answer is cut off.",
            "Set maxLength (a large one costs nothing).",
        )


def _unbounded_array(place: Place, root: Schema) -> Iterator[Finding]:
    schema = place.schema
    if "array" not in types(schema) or not _names_type(schema, "array"):
        return
    ends = (
        "maxItems" in schema
        or constants(schema) is not None
        or ("prefixItems" in schema and schema.get("items") is False)
        or (isinstance(schema.get("items"), list) and schema.get("additionalItems") is False)
    )
    if not ends:
        yield Finding(
            "unbounded-array",
            "warning",
            place.pointer,
            "The array has no maxItems: a model that repeats itself is only stopped by the token "
            "limit, and the answer is cut off.",
            "Set maxItems.",
        )


def _many_values(place: Place, _: Schema) -> Iterator[Finding]:
    values = place.schema.get("enum")
    if isinstance(values, list) and len(values) > MANY_VALUES:
        yield Finding(
            "many-enum-values",
            "warning",
            place.pointer,
            f"The enumeration has {len(values)} values. If they come from data, every change of "
            "the data is another grammar, which no cache holds; and a model picks worse from many.",
            "Let the model write a string and look it up afterwards, or ask in two steps.",
        )


def _vague(place: Place, root: Schema) -> Iterator[Finding]:
    if place.is_property and is_vague(place.name):
        here = resolved(place.schema, root)
        if not (here.get("description") or here.get("title")):
            yield Finding(
                "vague-name",
                "note",
                place.pointer,
                f"The name {place.name!r} doesn't tell the model what belongs there.",
                "Give it a name that says so, or a description.",
            )


_RULES: tuple[Callable[[Place, Schema], Iterator[Finding]], ...] = (
    _order,
    _closed,
    _no_way_out,
    _unbounded_string,
    _unbounded_array,
    _many_values,
    _vague,
)


def _nullable(place: Place, root: Schema) -> bool:
    """Whether the value may be null: by the schema, or by a sibling alternative."""
    if allows_null(place.schema, root) and (
        has_type(place.schema, root, "null") or place.schema.get("nullable") is True
    ):
        return True
    around = place.parent
    if around is None or place.keyword not in ("anyOf", "oneOf"):
        return False
    return has_type(around.schema, root, "null")


def _names_type(schema: Schema, wanted: str) -> bool:
    """Whether the schema itself, and not only a reference or an alternative, allows the type."""
    named = schema.get("type")
    return named == wanted or (isinstance(named, list) and wanted in named)


def _is_bounded(pattern: object) -> bool:
    """Whether a pattern clearly bounds the text: anchored, and nothing repeats without a limit."""
    return (
        isinstance(pattern, str)
        and pattern.startswith("^")
        and pattern.endswith("$")
        and "|" not in pattern
        and _REPEATS.search(pattern) is None
    )


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names))
