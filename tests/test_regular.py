"""The expression algebra against a membership oracle that knows nothing of derivatives."""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import lengths
from grammar.charset import EVERYTHING, CharSet
from grammar.regular import RegexBudgetError, RegexBuilder, Rx

# `z` stands for every character that the expressions do not name.
ALPHABET = "abz"
WORDS = ["".join(w) for n in range(6) for w in itertools.product(ALPHABET, repeat=n)]

LEAVES = st.sampled_from(
    [("set", "a"), ("set", "b"), ("set", "ab"), ("any",), ("eps",), ("none",), ("not", ("none",)),
     ("words", ("ab", "abb", "ba", "a", "")), ("words", ("aa", "ab", "ba", "bb", "b"))]
)  # fmt: skip


def _compose(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None), (0, 2)])
    return st.one_of(
        st.tuples(st.just("cat"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("rep"), inner, bounds),
    )


TREES = st.recursive(LEAVES, _compose, max_leaves=9)


def build(b: RegexBuilder, tree: Any) -> Rx:
    match tree:
        case ("set", chars):
            return b.chars(CharSet.of(chars))
        case ("any",):
            return b.any_char
        case ("eps",):
            return b.epsilon
        case ("none",):
            return b.empty
        case ("words", words):
            return b.literals(words)
        case ("cat", x, y):
            return b.concat(build(b, x), build(b, y))
        case ("or", x, y):
            return b.union(build(b, x), build(b, y))
        case ("and", x, y):
            return b.intersect(build(b, x), build(b, y))
        case ("not", x):
            return b.complement(build(b, x))
        case ("rep", x, (lo, hi)):
            return b.repeat(build(b, x), lo, hi)
    raise AssertionError(tree)


def ends(tree: Any, text: str, at: int) -> set[int]:
    """All ends of words of the language that start at a place in the text."""
    match tree:
        case ("set", chars):
            return {at + 1} if at < len(text) and text[at] in chars else set()
        case ("any",):
            return {at + 1} if at < len(text) else set()
        case ("eps",):
            return {at}
        case ("none",):
            return set()
        case ("words", words):
            return {at + len(w) for w in words if text.startswith(w, at)}
        case ("cat", x, y):
            return {e for m in ends(x, text, at) for e in ends(y, text, m)}
        case ("or", x, y):
            return ends(x, text, at) | ends(y, text, at)
        case ("and", x, y):
            return ends(x, text, at) & ends(y, text, at)
        case ("not", x):
            return set(range(at, len(text) + 1)) - ends(x, text, at)
        case ("rep", x, (lo, hi)):
            reached, found = {at}, {at} if lo == 0 else set()
            # Enough rounds to close: no more than one useful non-empty step per character.
            for count in range(1, (lo + len(text) + 1 if hi is None else hi) + 1):
                reached = {e for m in reached for e in ends(x, text, m)}
                found |= reached if count >= lo else set()
            return found
    raise AssertionError(tree)


def accepts(tree: Any, text: str) -> bool:
    return len(text) in ends(tree, text, 0)


def shortest_word(language: Rx) -> str:
    text = ""
    while not language.nullable:
        least = language.min_length()
        lo, _, language = next(
            row for row in language.transitions() if row[2].min_length() == least - 1
        )
        text += chr(lo) if chr(lo) in ALPHABET else "z"
    return text


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_membership_emptiness_and_lengths(tree: Any) -> None:
    builder = RegexBuilder()
    language = build(builder, tree)
    accepted = [w for w in WORDS if accepts(tree, w)]
    assert [w for w in WORDS if language.matches(w)] == accepted
    if language.is_empty():
        assert not accepted
        assert language.transitions() == ()
        with pytest.raises(ValueError, match="empty"):
            language.min_length()
        return
    witness = shortest_word(language)
    assert len(witness) == language.min_length()
    assert accepts(tree, witness)
    assert language.min_length() == min(map(len, accepted), default=len(witness))
    for lo, hi in [(0, 0), (1, 1), (2, 3), (4, 4), (3, 5)]:
        wanted = any(lo <= len(w) <= hi for w in accepted)
        assert builder.length_window_nonempty(language, lo, hi) == wanted, (lo, hi)
    longest = language.max_length()
    assert builder.length_window_nonempty(language, 60, None) == (longest is None)
    if longest is not None:
        assert max(map(len, accepted), default=0) == min(longest, 5) or longest > 5
        assert builder.length_window_nonempty(language, longest, longest)
        assert not builder.length_window_nonempty(language, longest + 1, None)
    assert not language.is_universal() or len(accepted) == len(WORDS)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_transitions_are_ordered_disjoint_live_and_merged(tree: Any) -> None:
    builder = RegexBuilder()
    seen = {build(builder, tree)}
    queue = list(seen)
    while queue and len(seen) < 60:
        state = queue.pop()
        rows = state.transitions()
        assert rows is state.transitions()
        for lo, hi, target in rows:
            assert 0 <= lo <= hi <= 0x10FFFF
            assert not target.is_empty()
            if target not in seen:
                seen.add(target)
                queue.append(target)
        for (_, end, left), (start, _, right) in itertools.pairwise(rows):
            assert start > end
            assert not (start == end + 1 and left is right)


@settings(max_examples=200, deadline=None)
@given(TREES)
def test_complement_and_intersection_laws(tree: Any) -> None:
    builder = RegexBuilder()
    language = build(builder, tree)
    other = builder.complement(language)
    assert builder.intersect(language, other).is_empty()
    assert builder.union(language, other).is_universal()
    assert builder.difference(language, language).is_empty()
    assert build(builder, tree) is language


def test_universality_is_found_by_exploration() -> None:
    b = RegexBuilder()
    first = b.concat(b.chars(CharSet.of("a")), b.universe)
    rest = b.concat(b.chars(~CharSet.of("a")), b.universe)
    assert b.union(first, rest, b.epsilon).is_universal()
    assert not b.union(first, rest).is_universal()
    assert not b.star(b.chars(EVERYTHING - CharSet.of("\U0010ffff"))).is_universal()


def test_normal_forms_meet() -> None:
    b = RegexBuilder()
    a, x = b.literal("a"), b.chars(CharSet.of("xy"))
    assert b.union(b.literal("x"), b.literal("y")) is x
    assert b.repeat(b.repeat(a, 0, 3), 0, 4) is b.repeat(a, 0, 12)
    assert b.repeat(b.repeat(a, 1, 1000), 1, 1000) is b.repeat(a, 1, 1_000_000)
    assert b.repeat(b.repeat(a, 2, 2), 0, 5) is not b.repeat(a, 0, 10)
    assert b.concat(b.universe, b.star(a), b.universe) is b.universe
    assert b.concat(a, b.repeat(a, 2, 3)) is b.repeat(a, 3, 4)
    assert b.union(b.repeat(a, 1, 5), b.repeat(a, 4, 9), b.epsilon) is b.repeat(a, 0, 9)
    assert b.union(b.concat(b.universe, a), a) is b.concat(b.universe, a)
    assert b.intersect(b.repeat(x, 2, None), b.repeat(a, 0, 9)) is b.empty
    assert b.complement(b.complement(a)) is a
    with pytest.raises(ValueError, match="repetition"):
        b.repeat(a, 3, 2)


def test_huge_counters_are_not_unrolled() -> None:
    b = RegexBuilder(budget=20_000)
    lower = b.chars(CharSet.span("a", "z"))
    huge = b.repeat(lower, 3, 10**9)
    assert (huge.min_length(), huge.max_length()) == (3, 10**9)
    assert not b.length_window_nonempty(huge, 10**9 + 1, None)
    assert b.length_window_nonempty(huge, 10**9, None)
    ab = b.repeat(b.repeat(b.literal("ab"), 1, 1000), 1, 1000)
    assert ab.max_length() == 2_000_000
    assert ab.matches("ab" * 30)
    assert not b.length_window_nonempty(ab, 1001, 1001)
    no_foo = b.complement(b.concat(b.universe, b.literal("foo"), b.universe))
    both = b.intersect(no_foo, huge)
    assert not both.is_empty()
    assert (both.min_length(), both.max_length()) == (3, 10**9)
    assert b.length_window_nonempty(both, 10**8, 10**9)
    assert not b.length_window_nonempty(both, 10**9 + 1, 10**10)
    assert both.matches("fofo" * 20)
    assert not both.matches("xfoox")
    only_foo = b.intersect(b.literal("foo"), b.repeat(b.any_char, 4, 10**9))
    assert only_foo.is_empty()


def test_length_windows_use_the_period() -> None:
    b = RegexBuilder()
    sixes = b.intersect(b.star(b.literal("aa")), b.star(b.literal("aaa")))
    assert b.length_window_nonempty(sixes, 6 * 10**8, 6 * 10**8)
    assert not b.length_window_nonempty(sixes, 6 * 10**8 + 1, 6 * 10**8 + 5)
    assert b.length_window_nonempty(sixes, 6 * 10**8 + 1, 6 * 10**8 + 6)
    limited = b.intersect(sixes, b.repeat(b.any_char, 7, 10**9))
    assert (limited.min_length(), limited.max_length()) == (12, 10**9 - 10**9 % 6)
    assert b.intersect(sixes, b.repeat(b.any_char, 7, 11)).is_empty()


def test_many_literals_in_linear_time() -> None:
    b = RegexBuilder()
    words = [f"w{i * 7919 % 100003}k{i}" for i in range(10_000)]
    start = time.thread_time()
    language = b.union(*map(b.literal, words))
    steps = b.fuel
    assert all(language.matches(word) for word in words[::7])
    assert not language.matches("w1")
    assert not language.matches(words[0] + "0" * 9)
    assert time.thread_time() - start < 10
    assert steps > 1_000_000 - 2 * sum(map(len, words))
    assert (language.min_length(), language.max_length()) == (
        min(map(len, words)),
        max(map(len, words)),
    )


def test_literals_without_surrogates() -> None:
    b = RegexBuilder()
    assert b.literal("a\ud800") is b.empty
    language = b.literals(["ab", "a\ud800c", "", "abd"])
    assert language.matches("")
    assert language.matches("ab")
    assert language.matches("abd")
    assert not language.matches("a")
    assert b.literals(["\ud800"]) is b.empty


def test_fuel_stops_work_and_leaves_no_trace() -> None:
    b = RegexBuilder(budget=150)
    a, x = b.literal("a"), b.chars(CharSet.of("ab"))
    # The classical exponential: the n-th character from the end is an `a`, twice over.
    one = b.concat(b.star(x), a, b.repeat(x, 7, 7))
    other = b.concat(b.star(x), b.literal("b"), b.repeat(x, 7, 7))
    both = b.intersect(one, other)
    with pytest.raises(RegexBudgetError, match="budget"):
        both.is_empty()
    b.refuel(3_000_000)
    assert both.is_empty()


class Modulo:
    """Binary numbers that a number divides."""

    def __init__(self, modulus: int) -> None:
        self.modulus = modulus

    def accepts(self, state: Hashable) -> bool:
        return state == 0

    def row(self, state: Hashable) -> Iterable[tuple[int, int, Hashable]]:
        assert isinstance(state, int)
        return [(48 + bit, 48 + bit, (2 * state + bit) % self.modulus) for bit in (0, 1)]


def test_automata_join_the_algebra() -> None:
    b = RegexBuilder()
    three, five = (b.automaton(Modulo(n), 0) for n in (3, 5))
    both = b.intersect(three, five, b.concat(b.literal("1"), b.universe))
    for number in range(1, 200):
        assert both.matches(f"{number:b}") == (number % 15 == 0)
    assert both.min_length() == 4
    assert both.max_length() is None
    some = b.intersect(both, b.repeat(b.any_char, 0, 7))
    assert some.max_length() == 7
    with pytest.raises(ValueError, match="empty"):
        b.intersect(both, b.repeat(b.any_char, 0, 3)).min_length()


def small(found: lengths.Lengths, limit: int) -> set[int]:
    return {n for n in range(limit) if lengths.meets(found, n, n)}


PROGRESSIONS = st.builds(
    lambda a, s, n: (a, None, s) if n is None else (a, a + n * s, s if n else 1),
    st.integers(0, 6), st.integers(1, 4), st.none() | st.integers(0, 5),
)  # fmt: skip
LENGTHS = st.lists(PROGRESSIONS, max_size=3).map(lambda ps: lengths.union([(p,) for p in ps]))


@settings(max_examples=300, deadline=None)
@given(LENGTHS, LENGTHS, st.integers(0, 3), st.none() | st.integers(0, 4))
def test_length_arithmetic(
    x: lengths.Lengths, y: lengths.Lengths, lo: int, more: int | None
) -> None:
    limit = 40
    a, b = small(x, limit), small(y, limit)
    both = lengths.union([x, y])
    assert both is None or small(both, limit) == a | b
    total = lengths.add(x, y)
    assert total is None or small(total, limit) == {i + j for i in a for j in b if i + j < limit}
    hi = None if more is None else lo + more
    repeated = lengths.repeat(x, lo, hi)
    layer, wanted = {0}, {0} if lo == 0 else set()
    for count in range(1, (limit + lo if hi is None else hi) + 1):
        layer = {i + j for i in layer for j in a if i + j < limit}
        wanted |= layer if count >= lo else set()
    assert repeated is None or small(repeated, limit) == wanted
    assert small(lengths.clip(x, 3, 17), limit) == {n for n in a if 3 <= n <= 17}
