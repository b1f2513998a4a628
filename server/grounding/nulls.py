"""Null in place of what the source does not state, where the schema has room for it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from server.grounding.checks import Ungrounded
from server.validate import AnswerValidator


def nulled(
    value: Any, ungrounded: Sequence[Ungrounded], schema: dict[str, Any] | bool | None
) -> tuple[Any, tuple[Ungrounded, ...]]:
    """A copy of a value with null where it is not grounded, and what could not be replaced.

    A place may become null if the value is then valid, as far as a full validator can tell: where
    it can't, or the value is not valid anyway, nothing is replaced.

    Args:
        value: a JSON value.
        ungrounded: what `check` found in it.
        schema: its JSON Schema; None: it has none, so that everything may be null.
    """
    validator = AnswerValidator(True if schema is None else schema)
    whole = {"": copy.deepcopy(value)}
    paths = [("", *each.path) for each in ungrounded]
    before = [_put(whole, path, None) for path in paths]
    if validator.check(whole[""]).valid:
        return whole[""], ()
    for path, old in zip(reversed(paths), reversed(before), strict=True):
        _put(whole, path, old)
    left: list[Ungrounded] = []
    for each, path in zip(ungrounded, paths, strict=True):
        old = _put(whole, path, None)
        if not validator.check(whole[""]).valid:
            _put(whole, path, old)
            left.append(each)
    return whole[""], tuple(left)


def _put(holder: Any, path: tuple[str | int, ...], value: Any) -> Any:
    """Put a value at a place; returns what stood there."""
    for step in path[:-1]:
        holder = holder[step]
    old, holder[path[-1]] = holder[path[-1]], value
    return old
