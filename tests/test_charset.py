"""Character sets against Python's own sets, and the named classes against `unicodedata`."""

from __future__ import annotations

import random
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grammar import charset
from grammar.charset import EVERYTHING, MAX_SCALAR, CharSet, UnicodeProperties, UnknownPropertyError

# Code points around the edges that matter: the surrogates and both ends.
EDGES = [*range(8), *range(0xD7FC, 0xE004), *range(MAX_SCALAR - 4, MAX_SCALAR + 1)]
INTERVALS = st.lists(
    st.tuples(st.sampled_from(EDGES), st.sampled_from(EDGES)).map(lambda p: (min(p), max(p))),
    max_size=5,
)


def members(intervals: list[tuple[int, int]]) -> set[int]:
    scalars = [code for code in EDGES if not 0xD800 <= code <= 0xDFFF]
    return {code for code in scalars if any(lo <= code <= hi for lo, hi in intervals)}


def sampled(chars: CharSet) -> set[int]:
    return {code for code in EDGES if code in chars}


@given(INTERVALS, INTERVALS)
def test_boolean_operations(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    x, y = CharSet(left), CharSet(right)
    scalars = {code for code in EDGES if not 0xD800 <= code <= 0xDFFF}
    assert sampled(x) == members(left)
    assert sampled(x | y) == members(left) | members(right)
    assert sampled(x & y) == members(left) & members(right)
    assert sampled(x - y) == members(left) - members(right)
    assert sampled(~x) == scalars - members(left)
    assert ~~x == x
    assert (x == y) == (not ((x - y) or (y - x)))
    assert len(x) + len(~x) == 0x110000 - 0x800


@example([(2, 3), (0, 1)])
@example([(0xD000, 0xD7FF), (0xE000, 0xE001)])
@given(INTERVALS)
def test_normal_form(intervals: list[tuple[int, int]]) -> None:
    ranges = CharSet(intervals).ranges
    for (_, hi), (lo, _) in pairwise(ranges):
        assert lo > hi + 1
    assert all(not (lo <= 0xDFFF and hi >= 0xD800) for lo, hi in ranges)
    assert CharSet(reversed(intervals)) == CharSet(intervals)
    assert hash(CharSet(reversed(intervals))) == hash(CharSet(intervals))


def test_small_things() -> None:
    assert list(CharSet.of("cab") | CharSet.span("b", "d")) == [97, 98, 99, 100]
    assert CharSet().is_empty()
    assert not CharSet()
    assert CharSet.span(0xD800, 0xDFFF).is_empty()
    assert "x" not in CharSet.of("y")
    assert None not in EVERYTHING
    assert (~EVERYTHING).is_empty()
    with pytest.raises(ValueError, match="interval"):
        CharSet(((5, 4),))
    with pytest.raises(ValueError, match="interval"):
        CharSet(((0, MAX_SCALAR + 1),))


def test_ecma_classes() -> None:
    assert "".join(map(chr, charset.DIGITS)) == "0123456789"
    assert len(charset.WORD) == 63
    assert "_" in charset.WORD
    assert "é" not in charset.WORD
    ecma_space = "\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff"
    assert set(map(chr, charset.SPACE)) == {*ecma_space, *map(chr, range(0x2000, 0x200B))}
    assert "\x85" in charset.WHITE_SPACE
    assert "\ufeff" not in charset.WHITE_SPACE
    assert set(map(chr, ~charset.DOT)) == set("\n\r\u2028\u2029")


@pytest.fixture(scope="module")
def properties() -> UnicodeProperties:
    return UnicodeProperties()


@pytest.mark.parametrize(
    ("name", "prefixes"),
    [
        ("L", ("L",)), ("Letter", ("L",)), ("gc=Lu", ("Lu",)), ("Nd", ("Nd",)),
        ("General_Category=Decimal_Number", ("Nd",)), ("Punctuation", ("P",)),
        ("LC", ("Lu", "Ll", "Lt")), ("Cn", ("Cn",)), ("M", ("M",)), ("Sc", ("Sc",)),
    ],
)  # fmt: skip
def test_general_categories(
    properties: UnicodeProperties, name: str, prefixes: tuple[str, ...]
) -> None:
    chars = properties.lookup(name)
    assert properties.lookup(name) is chars
    rng = random.Random(name)
    codes = [*range(0x500), *(rng.randrange(0x30000) for _ in range(4000)), MAX_SCALAR]
    for code in codes:
        if not 0xD800 <= code <= 0xDFFF:
            wanted = unicodedata.category(chr(code)).startswith(prefixes)
            assert (code in chars) == wanted, hex(code)


def test_binary_properties(properties: UnicodeProperties) -> None:
    assert properties.lookup("Any") == EVERYTHING
    assert properties.lookup("ASCII") == CharSet.span(0, 127)
    upper, lower = properties.lookup("Uppercase"), properties.lookup("Lowercase")
    assert "Ⅷ" in upper  # a letter number: Other_Uppercase
    assert "ª" in lower  # a feminine ordinal: Other_Lowercase
    assert (upper & lower).is_empty()
    assert properties.lookup("Assigned") == ~properties.lookup("Cn")
    assert "_" not in properties.lookup("XID_Start")
    assert "_" in properties.lookup("XID_Continue")
    assert properties.lookup("Surrogate").is_empty()


@pytest.mark.parametrize(
    "name", ["Script=Greek", "sc=Grek", "Alphabetic", "letter", "gc=Zz", "Foo=Bar", "", "Emoji"]
)
def test_refused_properties(properties: UnicodeProperties, name: str) -> None:
    with pytest.raises(UnknownPropertyError, match=r"not supported|unknown"):
        properties.lookup(name)
