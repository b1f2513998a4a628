"""A source, prepared once for any number of checks (and attempts)."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from server.grounding.dates import Day, Order, chosen, stated_dates
from server.grounding.numbers import prepared, stated_numbers, values_of
from server.grounding.numerals import Stated
from server.grounding.text import find, normal


class Source:
    """The text that answers must be grounded in.

    Args:
        text: the whole of it.
    """

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def normal(self) -> str:
        """The text as it is compared (see `text.py`)."""
        return normal(self.text)

    @cached_property
    def folded(self) -> str:
        """The same without differences of case."""
        return self.normal.casefold()

    @cached_property
    def _prepared(self) -> str:
        return prepared(self.text)

    @cached_property
    def _numbers(self) -> list[Stated]:
        return stated_numbers(self._prepared)

    @cached_property
    def _days(self) -> tuple[Day, ...]:
        return tuple(dict.fromkeys(stated_dates(self._prepared, self._numbers)))

    @cached_property
    def numbers(self) -> frozenset[Fraction]:
        """The values of all numbers that the text states (see `numbers.py`)."""
        return frozenset(value for value, _ in values_of(self._prepared, self._numbers))

    def dates(self, order: Order = "any") -> frozenset[Day]:
        """The dates and months that the text states (see `dates.py`)."""
        return chosen(self._days, order)

    def occurs(self, value: str, *, ignore_case: bool = False) -> bool:
        """Whether a text occurs as a whole; an empty one states nothing, and does."""
        wanted = normal(value).strip()
        if ignore_case:
            return not wanted or find(wanted.casefold(), self.folded) >= 0
        return not wanted or find(wanted, self.normal) >= 0

    def spelling(self, value: str) -> str | None:
        """How the source writes a text that it only has in other cases, or None."""
        wanted = normal(value).strip().casefold()
        if len(self.folded) != len(self.normal) or not wanted:
            return None  # folding moved the positions
        at = find(wanted, self.folded)
        return None if at < 0 else self.normal[at : at + len(wanted)]
