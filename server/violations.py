"""Why a value is not valid: the validator's errors as JSON pointers and words, at a bounded cost.

A validator's yes or no takes time in proportion to the value. Its list of errors may take far
longer: a part that two branches of a recursive schema look at is visited twice, what is below it
four times, and each `anyOf` keeps the errors of all of its branches. So the visits are counted
before they are made; where they are too many, it is only said that the value does not fit.

Invariant: `list_violations` never returns an empty tuple for a value that is not valid.

Read next: `server/validate.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import jsonschema_rs

from server.pointers import pointer_of, value_at

#: Most errors that are listed, and most characters of each one's message.
MAX_VIOLATIONS = 20
_MAX_MESSAGE = 300

#: Most visits of a subschema with a part of the value that listing errors may take, and most of
#: them below an `anyOf` or `oneOf`, whose branches' errors are kept: a tenth of a second at worst.
_MAX_VISITS = 20_000
_MAX_KEPT = 2_000

_IN_PLACE = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE = ("not", "if", "then", "else")
_IN_PLACE_NAMED = ("dependentSchemas", "dependencies")
_ALL_ITEMS = ("items", "contains", "additionalItems", "unevaluatedItems")
_ALL_VALUES = ("additionalProperties", "unevaluatedProperties")

_UNDECIDED = "backtrackLimitExceeded"


@dataclass(frozen=True, slots=True)
class Violation:
    """One reason why a value is not valid.

    pointer         where in the value, as a JSON pointer ("" is the whole)
    keyword         the keyword that it violates
    schema_pointer  where in the schema that keyword stands
    message         in words, about the value at `pointer`
    """

    pointer: str
    keyword: str
    schema_pointer: str
    message: str

    def as_dict(self) -> dict[str, str]:
        """As the API shows it."""
        return {
            "pointer": self.pointer,
            "keyword": self.keyword,
            "schema_pointer": self.schema_pointer,
            "message": self.message,
        }


def list_violations(
    validator: jsonschema_rs.Validator, schema: Any, value: Any
) -> tuple[tuple[Violation, ...], bool]:
    """The first reasons why `value` is not valid, and whether there are more.

    Args:
        validator: of `schema`, which says that `value` is not valid.
    """
    if not _is_cheap(schema, value):
        text = "does not fit the schema (which is too entangled to say where)"
        return (Violation("", "", "", text),), False
    errors = list(islice(validator.iter_errors(value), MAX_VIOLATIONS + 1))
    found = tuple(_violation(error) for error in errors[:MAX_VIOLATIONS])
    return found or (Violation("", "", "", "does not fit the schema"),), len(errors) > len(found)


def is_undecided(violations: Iterable[Violation]) -> bool:
    """Whether one of them is no violation, but a pattern that was given up."""
    return any(violation.keyword == _UNDECIDED for violation in violations)


def _violation(error: jsonschema_rs.ValidationError) -> Violation:
    message = str(error.message)
    if len(message) > _MAX_MESSAGE:
        half = _MAX_MESSAGE // 2
        message = f"{message[:half]} … {message[-half:]}"
    keyword = str(error.schema_path[-1]) if error.schema_path else ""
    return Violation(
        pointer=pointer_of(error.instance_path),
        keyword=_UNDECIDED if _gave_up(error) else keyword,
        schema_pointer=pointer_of(error.schema_path),
        message=message,
    )


def _gave_up(error: jsonschema_rs.ValidationError) -> bool:
    """Whether a pattern's step limit is behind the error, directly or in a branch of it."""
    kinds = jsonschema_rs.ValidationErrorKind
    if isinstance(error.kind, kinds.BacktrackLimitExceeded):
        return True
    if isinstance(error.kind, kinds.AnyOf | kinds.OneOfNotValid | kinds.OneOfMultipleValid):
        return any(_gave_up(inner) for inner in chain.from_iterable(error.kind.context))
    return False


# --- what listing would cost -------------------------------------------------------------------


class _TooManyError(Exception):
    pass


def _is_cheap(schema: Any, value: Any) -> bool:
    try:
        counter = _Counter(schema)
        return (
            counter.visits(schema, value) <= _MAX_VISITS
            and counter.kept(schema, value) <= _MAX_KEPT
        )
    except (_TooManyError, RecursionError):
        return False


class _Counter:
    """Counts the pairs of subschema and value that a plain recursive validator visits.

    Each pair is looked at once, and its count kept, so that a huge result costs little.
    """

    def __init__(self, root: Any) -> None:
        self._root = root
        self._visits: dict[tuple[int, int], int] = {}
        self._kept: dict[tuple[int, int], int] = {}

    def kept(self, schema: Any, value: Any) -> int:
        """The visits below an `anyOf` or `oneOf`: those whose errors are kept."""
        if not isinstance(schema, dict):
            return 0
        key = (id(schema), id(value))
        if key not in self._kept:
            self._enter(self._kept, key)
            branches = [*schema.get("anyOf", ()), *schema.get("oneOf", ())]
            total = sum(self.visits(branch, value) for branch in branches)
            rest = {name: part for name, part in schema.items() if name not in ("anyOf", "oneOf")}
            total += sum(self.kept(part, each) for part, each in self._parts(rest, value))
            self._kept[key] = total
        return self._kept[key]

    def visits(self, schema: Any, value: Any) -> int:
        """All visits, this one included."""
        if not isinstance(schema, dict):
            return 1
        key = (id(schema), id(value))
        if key not in self._visits:
            self._enter(self._visits, key)
            parts = self._parts(schema, value)
            self._visits[key] = 1 + sum(self.visits(part, each) for part, each in parts)
        return self._visits[key]

    def _enter(self, counts: dict[tuple[int, int], int], key: tuple[int, int]) -> None:
        if len(counts) >= _MAX_VISITS:
            raise _TooManyError
        counts[key] = 0  # what a reference back to here adds while it is being counted

    def _parts(self, schema: Mapping[str, Any], value: Any) -> Iterator[tuple[Any, Any]]:
        """The pairs that a schema object leads to, with the same value or a part of it."""
        for name in _IN_PLACE:
            yield from ((part, value) for part in schema.get(name, ()))
        for name in _IN_PLACE_ONE:
            if name in schema:
                yield schema[name], value
        for name in _IN_PLACE_NAMED:
            yield from ((part, value) for part in schema.get(name, {}).values())
        for name in ("$ref", "$dynamicRef", "$recursiveRef"):
            if name in schema:
                yield self._target(schema[name]), value
        if isinstance(value, dict):
            yield from self._members(schema, value)
        elif isinstance(value, list):
            yield from self._items(schema, value)

    def _members(self, schema: Mapping[str, Any], value: dict[str, Any]) -> Iterator[Any]:
        named = schema.get("properties", {})
        others = [*schema.get("patternProperties", {}).values()]
        others += [schema[name] for name in _ALL_VALUES if name in schema]
        for key, each in value.items():
            if key in named:
                yield named[key], each
            yield from ((part, each) for part in others)
            if "propertyNames" in schema:
                yield schema["propertyNames"], key

    def _items(self, schema: Mapping[str, Any], value: list[Any]) -> Iterator[Any]:
        listed = [schema[name] for name in _ALL_ITEMS if name in schema]
        several = [part for part in listed if isinstance(part, list)]  # the older `prefixItems`
        others = [part for part in listed if not isinstance(part, list)]
        for prefix in [*several, schema.get("prefixItems", ())]:
            yield from zip(prefix, value, strict=False)
        for each in value:
            yield from ((part, each) for part in others)

    def _target(self, reference: Any) -> Any:
        """What a reference inside the schema leads to; any other one can't be counted."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _TooManyError
        if reference != "#" and not reference.startswith("#/"):
            raise _TooManyError  # an anchor
        return value_at(self._root, reference[1:].replace("%25", "%"))
