"""JSON values as they are compared where items must differ (``uniqueItems``).

As JSON Schema does (Core, 4.2.2): strings by their characters, numbers by their value, objects
whatever the order of their keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

Value: TypeAlias = "str | Number | tuple[object, ...]"
"""A JSON value as a dictionary key: arrays are ("[", items…), objects ("{", the set of pairs)."""


class Number:
    """A number as a dictionary key.

    Whole numbers without fraction and exponent are equal when they are the same; where one is
    written otherwise, when both are the same double, as most readers take them. So numbers that
    are equal are never told apart, and some that differ in the 17th digit aren't either.
    """

    __slots__ = ("double", "whole")

    def __init__(self, text: str) -> None:
        self.whole: int | None = None
        if text.lstrip("-").isdecimal():
            self.whole = int(text)
        self.double = float(text)

    def __hash__(self) -> int:
        return hash(self.double)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number):
            return NotImplemented
        if self.whole is not None and other.whole is not None:
            return self.whole == other.whole
        return self.double == other.double

    def __repr__(self) -> str:
        return repr(self.double if self.whole is None else self.whole)


def value_of(value: object) -> Value:
    """A parsed JSON value (with ints and floats) as a dictionary key."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return (value,)
    if isinstance(value, (int, float)):
        return Number(repr(value))
    if isinstance(value, dict):
        return ("{", frozenset((key, value_of(item)) for key, item in value.items()))
    assert isinstance(value, list)
    return ("[", *map(value_of, value))


class Items:
    """The items of an array so far. Longer ones share what they have in common."""

    __slots__ = ("_first", "_values", "count", "repeats")

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._first: dict[Value, int] = {}  # the first place of each value
        self.count = 0
        self.repeats = False  # whether some two items are equal

    def __iter__(self) -> Iterator[Value]:
        return iter(self._values[: self.count])

    def __len__(self) -> int:
        return self.count

    def __contains__(self, value: Value) -> bool:
        return self._first.get(value, self.count) < self.count

    def followed_by(self, value: Value) -> Items:
        """These items and one more."""
        result = Items.__new__(Items)
        result._values, result._first = self._values, self._first
        if self.count < len(self._values):  # another text went on from here
            result._values = self._values[: self.count]
            result._first = {v: i for v, i in self._first.items() if i < self.count}
        result.repeats = self.repeats or value in self
        result._first.setdefault(value, self.count)
        result._values.append(value)
        result.count = self.count + 1
        return result

    def key(self) -> Value:
        """The array that these items make, as a dictionary key."""
        return ("[", *self._values[: self.count])
