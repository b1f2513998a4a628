"""Null in place of what the source does not state, where the schema has room for it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import jsonschema_rs

from server.grounding.checks import Ungrounded


def nulled(
    value: Any, ungrounded: Sequence[Ungrounded], schema: dict[str, Any] | bool | None
) -> tuple[Any, tuple[Ungrounded, ...]]:
    """A copy of a value with null where it is not grounded, and what could not be replaced.

    A place may become null if the value breaks the schema in no way in which it did not before.

    Args:
        value: a JSON value.
        ungrounded: what `check` found in it.
        schema: its JSON Schema; None: it has none, so that everything may be null.

    Raises:
        jsonschema_rs.ValidationError: the schema is not valid.
    """
    validator = jsonschema_rs.validator_for(True if schema is None else schema)
    result = copy.deepcopy(value)
    whole = _faults(validator, result)
    at_once = copy.deepcopy(result)
    for each in ungrounded:
        at_once = _with_null(at_once, each.path)
    if _faults(validator, at_once) <= whole:
        return at_once, ()
    left: list[Ungrounded] = []
    for each in ungrounded:
        changed = _with_null(copy.deepcopy(result), each.path)
        if _faults(validator, changed) <= whole:
            result = changed
        else:
            left.append(each)
    return result, tuple(left)


def _faults(validator: Any, value: Any) -> set[tuple[str, str]]:
    """Where a value breaks which keyword of the schema."""
    return {
        ("/".join(map(str, error.instance_path)), "/".join(map(str, error.schema_path)))
        for error in validator.iter_errors(value)
    }


def _with_null(value: Any, path: tuple[str | int, ...]) -> Any:
    if not path:
        return None
    holder = value
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = None
    return value
