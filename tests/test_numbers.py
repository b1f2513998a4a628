"""Number languages against rational arithmetic on the texts themselves."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar.numbers import (
    MAX_INTEGER_DIGITS,
    integer_language,
    multiple_of_number,
    number_language,
)
from grammar.regular import RegexBuilder, Rx

CANONICAL = re.compile(r"0|-?[1-9][0-9]*")
PLAIN = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")

SMALL = st.integers(-1300, 1300)
BOUNDS = st.one_of(
    SMALL,
    st.decimals(-20, 20, places=3),
    st.floats(-1e3, 1e3).map(lambda x: round(x, 4)),
    st.sampled_from([0.1, -0.1, 1e-9, -1e-9, 0, -0.0, 1e20, -1e20, 0.30000000000000004, 1e300]),
)
TEXTS = st.one_of(
    st.from_regex(r"-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,6})?", fullmatch=True),
    st.from_regex(r"[-0-9.eE+]{0,8}", fullmatch=True),
    st.decimals(-20, 20, places=3).map(str),
)


def value(bound: int | float | Decimal) -> Fraction:
    return Fraction(Decimal(repr(bound)) if isinstance(bound, float) else bound)


@settings(max_examples=80, deadline=None)
@given(SMALL | st.none(), SMALL | st.none(), st.lists(st.integers(-1400, 1400), max_size=40))
def test_integers_lie_within_their_bounds(
    low: int | None, high: int | None, samples: list[int]
) -> None:
    language = integer_language(RegexBuilder(), low, high)
    edges = [n + d for n in (low, high) if n is not None for d in (-1, 0, 1)]
    for number in [*samples, *edges]:
        wanted = (low is None or low <= number) and (high is None or number <= high)
        assert language.matches(str(number)) == wanted, number
        assert not language.matches(f"0{number}")
    assert language.is_empty() == (low is not None and high is not None and low > high)
    assert not language.matches("-0")
    assert not language.matches("1.0")


@pytest.mark.parametrize(("low", "high"), [(-12, 107), (0, 0), (-1, 1), (99, 1001), (-1000, -9)])
def test_integers_exhaustively(low: int, high: int) -> None:
    language = integer_language(RegexBuilder(), low, high)
    for number in range(-1100, 1101):
        assert language.matches(str(number)) == (low <= number <= high)


def test_unbounded_integers_end() -> None:
    language = integer_language(RegexBuilder(), None, None)
    assert language.max_length() == MAX_INTEGER_DIGITS + 1
    assert language.matches("-" + "9" * MAX_INTEGER_DIGITS)
    assert not language.matches("9" * (MAX_INTEGER_DIGITS + 1))
    large = integer_language(RegexBuilder(), 10**100, None)
    assert large.matches(str(10**100))
    assert not large.matches(str(10**100 - 1))
    assert not large.matches(str(10**101))


@settings(max_examples=120, deadline=None)
@given(st.tuples(*[st.none() | BOUNDS] * 4), st.lists(TEXTS, min_size=1, max_size=30))
def test_numbers_lie_within_their_bounds(
    bounds: tuple[int | float | Decimal | None, ...], texts: list[str]
) -> None:
    low, high, above, below = bounds
    if bounds == (None,) * 4:
        return
    language = number_language(RegexBuilder(), low, high, above, below)
    edges = [format(Decimal(str(bound)), "f") for bound in bounds if bound is not None]
    longer = [text + ("0" if "." in text else ".0") for text in edges]
    beyond = [text + ("1" if "." in text else ".0001") for text in edges]
    for text in [*texts, *edges, *longer, *beyond, "0", "-0", "-0.0", "0.0"]:
        wanted = False
        if PLAIN.fullmatch(text):
            number = Fraction(text)
            wanted = (
                (low is None or number >= value(low))
                and (high is None or number <= value(high))
                and (above is None or number > value(above))
                and (below is None or number < value(below))
            )
        assert language.matches(text) == wanted, text


@cache
def decimal_multiples(divisor: str) -> Rx:
    return multiple_of_number(RegexBuilder(), Decimal(divisor))


def words(language: Rx, limit: int) -> list[str]:
    """Some words of the language, by walking each range at both ends."""
    found: list[str] = []
    queue: list[tuple[str, Rx]] = [("", language)]
    while queue and len(found) < limit:
        text, state = queue.pop(0)
        if state.nullable:
            found.append(text)
        for lo, hi, target in state.transitions():
            queue += [(text + chr(code), target) for code in sorted({lo, hi})]
    return found


def test_unbounded_numbers_are_json_and_finite() -> None:
    language = number_language(RegexBuilder())
    for text in words(language, 3000):
        assert math.isfinite(json.loads(text))
    longest = "9" * MAX_INTEGER_DIGITS
    for text in ["1e5", "1E+05", "-2.50e-300", "0", "-0.0", longest + "." + "9" * 32 + "e244"]:
        assert language.matches(text)
        assert math.isfinite(json.loads(text))
    for text in ["1e245", "1e+999", "01", "1.", ".5", "+1", "1e", "", "-"]:
        assert not language.matches(text)
    assert language.max_length() == 1 + 64 + 33 + 5


def test_half_bounded_numbers_stay_finite() -> None:
    language = number_language(RegexBuilder(), minimum=1e308)
    assert language.matches(str(10**308))
    assert not language.matches(str(2 * 10**308))
    assert language.max_length() == 309 + 33


def test_bounds_that_allow_nothing() -> None:
    builder = RegexBuilder()
    assert number_language(builder, 1, 0.5).is_empty()
    assert number_language(builder, 1, None, None, 1).is_empty()
    assert not number_language(builder, exclusive_minimum=0, exclusive_maximum=1e-40).is_empty()
    assert number_language(builder, 0, 0).matches("-0.000")
    third = number_language(builder, minimum=Fraction(1, 3), maximum=Fraction(2, 3))
    assert third.matches("0.34")
    assert third.matches("0.66")
    assert not third.matches("0.33")
    assert not third.matches("0.67")
    third = number_language(
        builder, exclusive_minimum=Fraction(1, 3), exclusive_maximum=Fraction(2, 3)
    )
    assert third.matches("0." + "3" * 31 + "4")
    assert third.matches("0." + "6" * 32)
    assert not third.matches("0." + "3" * 32)
    assert not third.matches("0." + "6" * 31 + "7")
    with pytest.raises(ValueError, match="finite"):
        number_language(builder, minimum=float("inf"))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 400), st.lists(st.integers(-5000, 5000), max_size=60))
def test_multiples_of_an_integer(divisor: int, samples: list[int]) -> None:
    language = multiple_of_number(RegexBuilder(), divisor)
    for number in [*samples, *(divisor * k for k in range(-5, 6))]:
        assert language.matches(str(number)) == (number % divisor == 0)
    for text in ["-0", "00", "1.0", "-", "", "0.0"]:
        assert not language.matches(text)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["0.01", "0.25", "0.5", "0.07", "1.5", "0.125", "3", "0.1", "1.23", "0.003"]),
    st.lists(TEXTS, min_size=1, max_size=40),
)
def test_multiples_of_a_decimal(divisor: str, texts: list[str]) -> None:
    language = decimal_multiples(divisor)
    places = len(divisor.partition(".")[2])
    for text in [*texts, divisor, f"-{divisor}", "0", "-0", "-0.0", "0.0"]:
        wanted = bool(PLAIN.fullmatch(text)) and len(text.partition(".")[2]) <= places
        wanted = wanted and Fraction(text) % Fraction(divisor) == 0
        wanted = wanted and not (text.startswith("-") and Fraction(text) == 0)
        assert language.matches(text) == wanted, text
    for text in words(language, 40):
        assert Fraction(text) % Fraction(divisor) == 0


def test_multiples_within_bounds() -> None:
    builder = RegexBuilder()
    language = builder.intersect(
        multiple_of_number(builder, 37), integer_language(builder, 38, 110)
    )
    assert words(language, 10) == ["74"]
    nothing = builder.intersect(multiple_of_number(builder, 37), integer_language(builder, 38, 73))
    assert nothing.is_empty()
    with pytest.raises(ValueError, match="divisor"):
        multiple_of_number(builder, 0)
