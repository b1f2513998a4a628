"""JSON numbers within exact bounds, as languages over ASCII characters.

Bounds are taken as exact rationals (a float stands for the decimal that it prints as), so
`minimum: 0.1` means one tenth. Numbers of at most `f` fraction digits are integers on the grid
`10**-f`, where exclusive bounds become inclusive ones; every language here is a comparison of digit
strings on that grid.

Chosen limits, so that a number can't run to the token limit: an integer part has at most
`MAX_INTEGER_DIGITS` digits on an unbounded side (more if the other bound has more), a fraction at
most `MAX_FRACTION_DIGITS` (more if a bound has more), and an exponent is written only where there
is no bound at all, and so that the value stays finite in a double. Integers are canonical: no
fraction, no exponent, no `-0`. Numbers may be `-0` or `-0.0` where zero is allowed.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, TypeAlias

from grammar.charset import DIGITS, CharSet
from grammar.regular import RegexBuilder
from grammar.rx import Rx

Bound: TypeAlias = int | float | Decimal | Fraction

MAX_INTEGER_DIGITS: Final = 64
MAX_FRACTION_DIGITS: Final = 32
#: Fraction digits that a bound or a divisor may need; beyond, `ValueError`.
MAX_SCALE: Final = 1100
#: The greatest modulus of a divisibility automaton.
MAX_MODULUS: Final = 10_000
#: The greatest exponent beside `MAX_INTEGER_DIGITS` digits that can't overflow a double.
_MAX_EXPONENT: Final = sys.float_info.max_10_exp - MAX_INTEGER_DIGITS


def exact(bound: Bound) -> Fraction:
    """A bound as a rational; a float means its shortest decimal form.

    Raises:
        ValueError: not a finite number.
    """
    if isinstance(bound, float):
        bound = Decimal(repr(bound))
    if isinstance(bound, Decimal) and not bound.is_finite():
        raise ValueError(f"a bound must be finite: {bound}")
    return Fraction(bound)


def integer_language(builder: RegexBuilder, minimum: int | None, maximum: int | None) -> Rx:
    """Canonical decimal integers in `[minimum, maximum]` (None: unbounded).

    An unbounded side has at most `MAX_INTEGER_DIGITS` digits, or as many as the other bound. The
    language is empty when `minimum` is greater than `maximum`.
    """
    low = 0 if minimum is None else max(minimum, 0)
    found = [_naturals(builder, low, maximum)] if maximum is None or maximum >= 0 else []
    if minimum is None or minimum < 0:
        nearest = 1 if maximum is None else max(1, -maximum)
        farthest = None if minimum is None else -minimum
        found.append(builder.concat(_char(builder, "-"), _naturals(builder, nearest, farthest)))
    return builder.union(*found)


def number_language(
    builder: RegexBuilder,
    minimum: Bound | None = None,
    maximum: Bound | None = None,
    exclusive_minimum: Bound | None = None,
    exclusive_maximum: Bound | None = None,
) -> Rx:
    """JSON numbers within all the bounds given, in the limits that the module states.

    Raises:
        ValueError: a bound is not finite, or has more than `MAX_SCALE` fraction digits.
    """
    bounds = (minimum, maximum, exclusive_minimum, exclusive_maximum)
    given = [exact(bound) for bound in bounds if bound is not None]
    if not given:
        return _unbounded(builder)
    scale = max(MAX_FRACTION_DIGITS, *(_fraction_digits(bound) + 1 for bound in given))
    grid = 10**scale
    lows = [] if minimum is None else [_ceil(exact(minimum) * grid)]
    if exclusive_minimum is not None:
        lows.append(_floor(exact(exclusive_minimum) * grid) + 1)
    highs = [] if maximum is None else [_floor(exact(maximum) * grid)]
    if exclusive_maximum is not None:
        highs.append(_ceil(exact(exclusive_maximum) * grid) - 1)
    low, high = max(lows, default=None), min(highs, default=None)
    found: list[Rx] = []
    if high is None or high >= 0:
        found.append(_magnitudes(builder, max(low or 0, 0), high, scale))
    if low is None or low <= 0:
        nearest = 0 if high is None else max(0, -high)
        farthest = None if low is None else -low
        negative = _magnitudes(builder, nearest, farthest, scale)
        found.append(builder.concat(_char(builder, "-"), negative))
    return builder.union(*found)


def multiple_of_number(builder: RegexBuilder, divisor: Bound) -> Rx:
    """Decimals that are multiples of a positive terminating decimal such as 0.01.

    They are written with at most as many fraction digits as the divisor needs, without exponent and
    without a negative zero. The length is limited like that of an integer with such a fraction.

    Raises:
        ValueError: the divisor isn't a positive terminating decimal of at most `MAX_SCALE`
            fraction digits, or its digits, read as an integer, exceed `MAX_MODULUS`.
    """
    value = exact(divisor)
    scale = _fraction_digits(value)
    if value * 10**scale != int(value * 10**scale):
        raise ValueError(f"a divisor must be a terminating decimal: {divisor}")
    machine = _Divisibility(_checked_modulus(int(value * 10**scale)), scale)
    # The automaton sees to the shape; a limit on the length alone is cheap to decide.
    longest = 1 + MAX_INTEGER_DIGITS + (1 + scale if scale else 0)
    limit = builder.repeat(builder.any_char, 1, longest)
    return builder.intersect(builder.automaton(machine, "start"), limit)


def _checked_modulus(divisor: int) -> int:
    if not 1 <= divisor <= MAX_MODULUS:
        raise ValueError(f"a divisor must have 1 to {MAX_MODULUS} as its digits: {divisor}")
    return divisor


@dataclass(frozen=True)
class _Divisibility:
    """Decimals that are multiples of `modulus / 10**scale`.

    States: "start", "minus", "zero" (a leading 0), ("int", remainder), and ("frac", remainder,
    digits), where the remainder is that of all digits so far, read as an integer. After "-0" only a
    fraction that is not zero follows, kept apart as ("negative zero", digits).
    """

    modulus: int
    scale: int

    def accepts(self, state: Hashable) -> bool:
        match state:
            case "zero":
                return True
            case ("int", int(remainder)):
                return self._divides(remainder, self.scale)
            case ("frac", int(remainder), int(digits)) if digits > 0:
                return self._divides(remainder, self.scale - digits)
            case _:
                return False

    def _divides(self, remainder: int, places: int) -> bool:
        return remainder * int(10**places) % self.modulus == 0

    def row(self, state: Hashable) -> Iterable[tuple[int, int, Hashable]]:
        rows = [
            (ord(character), ord(character), target)
            for character, target in self._steps(state)
            if self._is_alive(target)
        ]
        return sorted(rows, key=lambda row: row[0])

    def _steps(self, state: Hashable) -> Iterable[tuple[str, Hashable]]:
        match state:
            case "start" | "minus":
                if state == "start":
                    yield "-", "minus"
                    yield "0", "zero"
                elif self.scale:
                    yield "0", ("negative zero", -1)
                yield from ((str(d), ("int", d % self.modulus)) for d in range(1, 10))
            case "zero":
                yield ".", ("frac", 0, 0)
            case ("negative zero", int(digits)):
                if digits < 0:
                    yield ".", ("negative zero", 0)
                elif digits < self.scale:
                    yield "0", ("negative zero", digits + 1)
                    for d in range(1, 10):
                        yield str(d), ("frac", d % self.modulus, digits + 1)
            case ("int", int(remainder)):
                yield ".", ("frac", remainder, 0)
                for d in range(10):
                    yield str(d), ("int", (remainder * 10 + d) % self.modulus)
            case ("frac", int(remainder), int(digits)) if digits < self.scale:
                for d in range(10):
                    yield str(d), ("frac", (remainder * 10 + d) % self.modulus, digits + 1)

    def _is_alive(self, state: Hashable) -> bool:
        """Whether the digits left can make a multiple."""
        match state:
            case ("frac", int(remainder), int(digits)):
                room = int(10 ** (self.scale - digits))
                return self.scale > 0 and -(remainder * room) % self.modulus < room
            case ("negative zero", int(digits)):
                return self.modulus < int(10 ** (self.scale - max(digits, 0)))
            case _:
                return True


def _unbounded(builder: RegexBuilder) -> Rx:
    """Any number: sign, integer, fraction, exponent, in the module's limits and finite."""
    sign = builder.optional(_char(builder, "-"))
    whole = _naturals(builder, 0, None)
    fraction = builder.concat(_char(builder, "."), _any_digits(builder, 1, MAX_FRACTION_DIGITS))
    greatest = str(_MAX_EXPONENT)
    upward = builder.union(_any_digits(builder, 1, len(greatest) - 1), _at_most(builder, greatest))
    downward = builder.concat(_char(builder, "-"), _any_digits(builder, 1, 3))
    exponent = builder.concat(
        builder.chars(CharSet.of("eE")),
        builder.union(builder.concat(builder.optional(_char(builder, "+")), upward), downward),
    )
    return builder.concat(sign, whole, builder.optional(fraction), builder.optional(exponent))


def _naturals(builder: RegexBuilder, low: int, high: int | None) -> Rx:
    """Canonical decimals from `low >= 0` on, up to `high` if given."""
    if high is not None and high < low:
        return builder.empty
    first = str(low)
    widest = max(MAX_INTEGER_DIGITS, len(first)) if high is None else len(str(high))
    last = "9" * widest if high is None else str(high)
    if len(first) == widest:
        return _between(builder, first, last)
    found = [_between(builder, first, "9" * len(first))]
    if len(first) + 1 < widest:
        lead = builder.chars(CharSet.span("1", "9"))
        found.append(builder.concat(lead, _any_digits(builder, len(first), widest - 2)))
    found.append(_between(builder, "1" + "0" * (widest - 1), last))
    return builder.union(*found)


def _between(builder: RegexBuilder, first: str, last: str) -> Rx:
    """Digit strings of one width from `first` to `last`."""
    width, same = len(first), 0
    while same < width and first[same] == last[same]:
        same += 1
    if same == width:
        return builder.literal(first)
    left = width - same - 1
    inside = builder.concat(
        _digit_range(builder, int(first[same]) + 1, int(last[same]) - 1),
        _any_digits(builder, left, left),
    )
    lower = builder.concat(_char(builder, first[same]), _at_least(builder, first[same + 1 :]))
    upper = builder.concat(_char(builder, last[same]), _at_most(builder, last[same + 1 :]))
    return builder.concat(builder.literal(first[:same]), builder.union(inside, lower, upper))


def _at_least(builder: RegexBuilder, digits: str) -> Rx:
    """Digit strings of the same width that are not less."""
    node = builder.epsilon
    for left, digit in enumerate(reversed(digits)):
        more = _digit_range(builder, int(digit) + 1, 9)
        node = builder.union(
            builder.concat(_char(builder, digit), node),
            builder.concat(more, _any_digits(builder, left, left)),
        )
    return node


def _at_most(builder: RegexBuilder, digits: str) -> Rx:
    """Digit strings of the same width that are not greater."""
    node = builder.epsilon
    for left, digit in enumerate(reversed(digits)):
        less = _digit_range(builder, 0, int(digit) - 1)
        node = builder.union(
            builder.concat(_char(builder, digit), node),
            builder.concat(less, _any_digits(builder, left, left)),
        )
    return node


def _magnitudes(builder: RegexBuilder, low: int, high: int | None, scale: int) -> Rx:
    """Unsigned decimals from `low` to `high`, both counted in units of `10**-scale`."""
    if high is None and low >= 10 ** (scale + sys.float_info.max_10_exp):
        high = int(sys.float_info.max) * 10**scale  # no more digits: they might overflow a double
    if high is not None and high < low:
        return builder.empty
    whole_low, part_low = divmod(low, 10**scale)
    low_digits = str(part_low).zfill(scale)
    if high is None:
        first = builder.concat(
            builder.literal(str(whole_low)), _fraction(builder, low_digits, "9" * scale)
        )
        return builder.union(first, _plain(builder, whole_low + 1, None, scale))
    whole_high, part_high = divmod(high, 10**scale)
    high_digits = str(part_high).zfill(scale)
    if whole_low == whole_high:
        return builder.concat(
            builder.literal(str(whole_low)), _fraction(builder, low_digits, high_digits)
        )
    return builder.union(
        builder.concat(
            builder.literal(str(whole_low)), _fraction(builder, low_digits, "9" * scale)
        ),
        _plain(builder, whole_low + 1, whole_high - 1, scale),
        builder.concat(
            builder.literal(str(whole_high)), _fraction(builder, "0" * scale, high_digits)
        ),
    )


def _plain(builder: RegexBuilder, low: int, high: int | None, scale: int) -> Rx:
    """Decimals with any fraction whose integer part lies in `[low, high]`."""
    return builder.concat(
        _naturals(builder, low, high), _fraction(builder, "0" * scale, "9" * scale)
    )


def _fraction(builder: RegexBuilder, low: str, high: str) -> Rx:
    """An optional "." with digits that, padded with zeros, lie between two strings of digits."""
    scale, same = len(low), 0
    while same < scale and low[same] == high[same]:
        same += 1
    if same == scale:
        node = builder.epsilon
    else:
        left = scale - same - 1
        node = builder.union(
            builder.concat(
                _digit_range(builder, int(low[same]) + 1, int(high[same]) - 1),
                _any_digits(builder, 0, left),
            ),
            builder.concat(_char(builder, low[same]), _tail(builder, low[same + 1 :], True)),
            builder.concat(_char(builder, high[same]), _tail(builder, high[same + 1 :], False)),
        )
        if same > 0 and not low[same:].strip("0"):
            node = builder.optional(node)
    for index in range(same - 1, -1, -1):
        node = builder.concat(_char(builder, low[index]), node)
        if index > 0 and not low[index:].strip("0"):
            node = builder.optional(node)
    pointed = builder.concat(_char(builder, "."), node)
    return pointed if low.strip("0") else builder.optional(pointed)


def _tail(builder: RegexBuilder, digits: str, at_least: bool) -> Rx:
    """Up to as many digits that, padded with zeros, are not less (or not greater) than `digits`."""
    node, zeros = builder.epsilon, True
    for left, digit in enumerate(reversed(digits)):
        value = int(digit)
        others = (
            _digit_range(builder, value + 1, 9)
            if at_least
            else (_digit_range(builder, 0, value - 1))
        )
        node = builder.union(
            builder.concat(_char(builder, digit), node),
            builder.concat(others, _any_digits(builder, 0, left)),
        )
        zeros = zeros and value == 0
        if zeros or not at_least:
            node = builder.optional(node)
    return node


def _fraction_digits(value: Fraction) -> int:
    """Fraction digits of a terminating decimal; enough to tell others apart from their bounds."""
    denominator = value.denominator
    twos = (denominator & -denominator).bit_length() - 1
    odd, fives = denominator >> twos, 0
    while odd % 5 == 0:
        odd, fives = odd // 5, fives + 1
    digits = max(twos, fives)
    if digits > MAX_SCALE:
        raise ValueError(f"a bound with more than {MAX_SCALE} fraction digits")
    return digits


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)


def _floor(value: Fraction) -> int:
    return value.numerator // value.denominator


def _char(builder: RegexBuilder, character: str) -> Rx:
    return builder.chars(CharSet.of(character))


def _digit_range(builder: RegexBuilder, low: int, high: int) -> Rx:
    """One digit from `low` to `high`; nothing when there is none."""
    return builder.chars(CharSet.of("0123456789"[low : high + 1])) if low <= high else builder.empty


def _any_digits(builder: RegexBuilder, low: int, high: int) -> Rx:
    return builder.repeat(builder.chars(DIGITS), low, high) if low <= high else builder.empty
