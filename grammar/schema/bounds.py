"""Numeric bounds: the interval and the divisors that several schema objects leave together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import FRACTION, NONE, NOT_MULTIPLE


@dataclass(frozen=True, slots=True)
class Bounds:
    """minimum <= x <= maximum (strictly, where open), x a multiple of every divisor."""

    minimum: Fraction | None = None
    maximum: Fraction | None = None
    open_minimum: bool = False
    open_maximum: bool = False
    divisors: tuple[Fraction, ...] = ()

    def above(self, value: Fraction, strict: bool) -> Bounds:
        """Narrowed by a lower bound."""
        if self.minimum is None or value > self.minimum:
            return replace(self, minimum=value, open_minimum=strict)
        return replace(self, open_minimum=True) if strict and value == self.minimum else self

    def below(self, value: Fraction, strict: bool) -> Bounds:
        """Narrowed by an upper bound."""
        if self.maximum is None or value < self.maximum:
            return replace(self, maximum=value, open_maximum=strict)
        return replace(self, open_maximum=True) if strict and value == self.maximum else self

    def undivided(self) -> Bounds:
        """The same interval without the divisors."""
        return replace(self, divisors=())

    def is_empty(self) -> bool:
        """Whether no number fits, the divisors aside."""
        if self.minimum is None or self.maximum is None:
            return False
        if self.minimum == self.maximum:
            return self.open_minimum or self.open_maximum
        return self.minimum > self.maximum

    def contains(self, value: Fraction) -> bool:
        """Whether a number fits."""
        if self.minimum is not None and (
            value < self.minimum or (self.open_minimum and value == self.minimum)
        ):
            return False
        if self.maximum is not None and (
            value > self.maximum or (self.open_maximum and value == self.maximum)
        ):
            return False
        return all((value / divisor).denominator == 1 for divisor in self.divisors)

    def integers(self) -> tuple[int | None, int | None]:
        """The least and the greatest integer within, None where unbounded."""
        low = high = None
        if self.minimum is not None:
            low = -(-self.minimum.numerator // self.minimum.denominator)
            low += self.open_minimum and low == self.minimum
        if self.maximum is not None:
            high = self.maximum.numerator // self.maximum.denominator
            high -= self.open_maximum and high == self.maximum
        return low, high


@dataclass(frozen=True, slots=True)
class Others:
    """Numbers that are left out: some values, all integers, the multiples of some divisors."""

    values: tuple[Fraction, ...] = ()
    integers: bool = False
    divisors: tuple[Fraction, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.values or self.integers or self.divisors)

    def contains(self, value: Fraction) -> bool:
        """Whether a number is left out."""
        multiple = any((value / divisor).denominator == 1 for divisor in self.divisors)
        return multiple or value in self.values or (self.integers and value.denominator == 1)


def others_of(schema: Mapping[str, Any], others: Others | None = None) -> Others:
    """``others`` and what one schema object (of the compiler's own) leaves out."""
    before = others if others is not None else Others()
    numbers = [
        exact(v)
        for v in schema.get(NONE, ())
        if isinstance(v, (int, float)) and not isinstance(v, bool)
    ]
    divisor = (exact(schema[NOT_MULTIPLE]),) if NOT_MULTIPLE in schema else ()
    return Others(
        (*before.values, *numbers),
        before.integers or FRACTION in schema,
        (*before.divisors, *divisor),
    )


def exact(value: int | float) -> Fraction:
    """The number as it is written in decimal: 0.1 is one tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


def bounds_of(schema: Mapping[str, Any], pointer: str, bounds: Bounds | None = None) -> Bounds:
    """``bounds`` narrowed by one schema object's keywords (draft 4's boolean forms included)."""
    result = bounds if bounds is not None else Bounds()
    for side, narrow in (("minimum", Bounds.above), ("maximum", Bounds.below)):
        exclusive = "exclusive" + side.capitalize()
        flag = schema.get(exclusive)
        value = kw.number(schema, side, pointer)
        if value is not None:
            result = narrow(result, exact(value), flag is True)
        if flag is not None and not isinstance(flag, bool):
            strict_value = kw.number(schema, exclusive, pointer)
            assert strict_value is not None
            result = narrow(result, exact(strict_value), True)
    divisor = kw.number(schema, "multipleOf", pointer)
    if divisor is not None:
        if divisor <= 0:
            raise kw.fault("multipleOf", pointer, "must be greater than 0")
        result = replace(result, divisors=tuple(dict.fromkeys((*result.divisors, exact(divisor)))))
    return result
