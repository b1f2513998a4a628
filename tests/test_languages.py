"""Patterns, choices and free text as grammars of whole texts, and how the cache keeps them."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import (
    Budget,
    GrammarCache,
    GrammarError,
    GrammarSourceError,
    Vocabulary,
    compile_choice,
    compile_free_text,
    compile_gbnf,
    compile_regex,
)
from tests.grammar_support import VOCABULARY, accepts, feed, ids_of, random_walk, small_vocabulary
from tests.language_support import all_texts, check_masks

# -- regular expressions --------------------------------------------------------------------------

PATTERNS: list[tuple[str, list[str], list[str]]] = [
    ("[0-9]+", ["0", "123"], ["", "a", "1a", " 1"]),
    ("^[0-9]+$", ["0", "123"], ["", "1\n"]),
    ("ab|cd", ["ab", "cd"], ["abd", "acd", "ab|cd"]),
    ("^ab|cd$", ["ab", "cd"], ["abx", "xcd"]),
    ("a{2,3}b{2}c{1,}", ["aabbc", "aaabbccc"], ["abbc", "aabc", "aaaabbc"]),
    (r"\d{4}-\d\d-\d\d", ["2024-01-31"], ["2024-1-31", "٢٠٢٤-01-31"]),
    (r"\w+@\w+\.(?:com|org)", ["ada@example.com"], ["ada@example.net", "@example.com"]),
    ("[^x]{0,3}", ["", "é日😀", '"\\\n'], ["x", "axb", "abcd"]),
    (".{2}", ["ab", "日本"], ["a", "a\n", "abc"]),
    (".{0,100000}", ["", "a" * 300], ["\n"]),
    (r"[\s\S]*", ["", "a\nb\0", "\U0010ffff"], []),
    ("(?!no).*", ["yes", "n", ""], ["no", "nope"]),
    ("(?=.*[0-9])[a-z0-9]{3}", ["ab1", "123"], ["abc", "ab12"]),
    (r"\bfoo\b.*", ["foo", "foo bar"], ["food"]),
    ("é+ü", ["éü", "ééü"], ["ü", "e\u0301ü"]),
    (r"\u{1F600}|\x41", ["😀", "A"], ["B"]),
    ("", [""], ["a"]),
    ("a*?b+?", ["b", "aab", "abb"], ["a"]),
]


@pytest.mark.parametrize(("pattern", "good", "bad"), PATTERNS)
def test_a_pattern_matches_the_whole_text(pattern: str, good: list[str], bad: list[str]) -> None:
    grammar = compile_regex(pattern, VOCABULARY)
    for text in good:
        assert accepts(grammar, text), text
    for text in bad:
        assert not accepts(grammar, text), text


@pytest.mark.parametrize("pattern", [case[0] for case in PATTERNS])
def test_masks_of_patterns_are_brute_force(pattern: str) -> None:
    check_masks(compile_regex(pattern, VOCABULARY), seed=3)


atoms = st.sampled_from(["a", "b", "é", "0", "[ab]", "[^a]", "[a-c0]", ".", r"\d", r"\w"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{2,}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)
TEXTS = all_texts("ab0é", 4)


@settings(max_examples=80, deadline=None)
@given(patterns)
def test_the_language_is_that_of_pythons_engine(pattern: str) -> None:
    # For this alphabet the two syntaxes mean the same (\w and \d are ASCII in ECMA-262).
    expected = re.compile(pattern.replace(r"\w", "[A-Za-z0-9_]"))
    grammar = compile_regex(pattern, VOCABULARY)
    for text in TEXTS:
        assert accepts(grammar, text) == bool(expected.fullmatch(text)), text


@settings(max_examples=20, deadline=None)
@given(patterns, st.integers(0, 1000))
def test_masks_of_any_pattern_are_brute_force(pattern: str, seed: int) -> None:
    expected = re.compile(pattern.replace(r"\w", "[A-Za-z0-9_]"))
    for text in check_masks(compile_regex(pattern, VOCABULARY), seed, walks=1, steps=4):
        # ``.`` leaves out more line breaks in ECMA-262, so what it allows is allowed here, too.
        assert expected.fullmatch(text.decode()), text


def test_literal_parts_are_forced() -> None:
    matcher = compile_regex("user-[0-9]{2}-日本語!", VOCABULARY).start()
    assert matcher.forced_bytes() == b"user-"
    feed(matcher, "user-07")
    assert matcher.forced_bytes() == "-日本語!".encode()


def test_walks_of_patterns_end_in_matches() -> None:
    pattern = r"(\{[a-c]{1,3}: -?\d+(\.\d\d)?\}|é{2,5})"
    grammar, rng = compile_regex(pattern, VOCABULARY), random.Random(1)
    for _ in range(40):
        text, done, _ = random_walk(grammar, rng, steps=6)
        assert done
        assert re.fullmatch(pattern, text.decode())


@pytest.mark.parametrize(
    ("pattern", "problem", "column"),
    [
        ("(a", "invalid", 1),
        ("a)", "invalid", 2),
        ("a{2,1}", "invalid", 2),
        ("[b-a]", "invalid", 2),
        (r"(a)\1", "unsupported", 4),
        (r"(?i)a", "unsupported", 1),
        (r"[^\s\S]", "unsatisfiable", None),
        ("a(?!.*)", "unsatisfiable", None),
        ("a$b", "unsatisfiable", None),
        ("a" * 100_001, "too complex", None),
        ("\ud800", "invalid", None),
    ],
)
def test_refused_patterns_say_what_and_where(
    pattern: str, problem: str, column: int | None
) -> None:
    with pytest.raises(GrammarSourceError) as caught:
        compile_regex(pattern, VOCABULARY)
    assert caught.value.problem == problem
    assert caught.value.column == column
    assert caught.value.line == (None if column is None else 1)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+b", "a" * 60 + "b"),
        ("((a|b)*){0,50}(a|b)*c", "ab" * 30 + "c"),
        ("(a|b)*a(a|b){30}", "ab" * 40),
        ("(a{1000000}b{1000000}){1000000}", "aaa"),
        ("abc" * 10_000, "abcabc"),
        ("|".join(f"w{i}x" for i in range(5000)), "w123x"),
        ("(" * 1000 + "a" + ")" * 1000, "a"),
    ],
)
def test_nasty_patterns_work_or_are_refused_in_time(pattern: str, text: str) -> None:
    began = time.thread_time()
    try:
        matcher = compile_regex(pattern, VOCABULARY).start()
        assert feed(matcher, text)
        matcher.mask()
    except GrammarSourceError as error:
        assert error.problem in ("too complex", "unsupported")
    assert time.thread_time() - began < 10


def test_the_budget_bounds_the_work() -> None:
    with pytest.raises(GrammarSourceError, match="budget") as caught:
        compile_regex("(ab|cd)*x{3,9}", small_vocabulary(), budget=Budget(regex_steps=5))
    assert caught.value.problem == "too complex"


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab()[]{}*+?|\\^$.,-19dwsbBpkuxU<>=!:", max_size=25))
def test_any_pattern_compiles_or_is_refused(pattern: str) -> None:
    try:
        compile_regex(pattern, VOCABULARY).start().mask()
    except GrammarError as error:
        assert isinstance(error, GrammarSourceError)


# -- choices --------------------------------------------------------------------------------------


def test_exactly_one_of_the_choices() -> None:
    choices = ["yes", "no", "yesterday", "日本", "日曜", ' "\n']
    grammar = compile_choice(choices, VOCABULARY)
    for text in choices:
        assert accepts(grammar, text)
    for text in ("", "y", "yest", "yesno", "yesterdayx", "日", "日月", "YES"):
        assert not accepts(grammar, text)
    check_masks(grammar, seed=1, walks=12)


def test_what_the_choices_share_is_forced() -> None:
    matcher = compile_choice(["abc-x", "abc-y1", "abc-y2"], VOCABULARY).start()
    assert matcher.forced_bytes() == b"abc-"
    feed(matcher, "abc-y")
    assert matcher.forced_bytes() == b""
    matcher.rollback(5)
    assert compile_choice(["only"], VOCABULARY).start().forced_bytes() == b"only"
    # A choice that another one continues may end, so nothing is forced there.
    matcher = compile_choice(["ab", "abab"], VOCABULARY).start()
    assert matcher.forced_bytes() == b"ab"
    feed(matcher, "ab")
    assert matcher.forced_bytes() == b""


@settings(max_examples=40, deadline=None)
@given(st.sets(st.text(alphabet='ab"é日', min_size=1, max_size=4), min_size=1, max_size=12))
def test_any_set_of_choices(choices: set[str]) -> None:
    grammar = compile_choice(sorted(choices, reverse=True), VOCABULARY)
    for text in all_texts("ab", 4):
        assert accepts(grammar, text) == (text in choices)
    assert all(accepts(grammar, text) for text in choices)
    assert {t.decode() for t in check_masks(grammar, seed=1, walks=2, steps=3)} <= choices


def test_a_hundred_thousand_choices() -> None:
    rng = random.Random(1)
    choices = [f"{rng.choice('abcdefgh')}{rng.random()}-{i}" for i in range(100_000)]
    began = time.thread_time()
    grammar = compile_choice(choices, VOCABULARY)
    matcher = grammar.start()
    for byte in choices[777].encode():
        matcher.mask()
        assert matcher.is_allowed(byte)
        matcher.advance(byte)
    assert matcher.is_accepting()
    assert grammar.memory_bytes() > sum(map(len, choices))
    assert time.thread_time() - began < 10


@pytest.mark.parametrize("choices", [[], [""], ["a", ""], ["a", "b", "a"], ["\udc00"]])
def test_choices_that_are_none(choices: list[str]) -> None:
    with pytest.raises(GrammarSourceError) as caught:
        compile_choice(choices, VOCABULARY)
    assert caught.value.problem == "invalid"


# -- free text ------------------------------------------------------------------------------------


def test_free_text_is_any_text_and_may_end_anywhere() -> None:
    grammar = compile_free_text(VOCABULARY)
    matcher = grammar.start()
    for text in ("", 'a"\\', "\n\0é", "日本😀"):
        assert accepts(grammar, text)
    for text in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80"):
        assert not feed(grammar.start(), text)
    assert not matcher.is_allowed(len(VOCABULARY.tokens) - 2)  # a special token is no text
    matcher.advance(0xC3)
    assert not matcher.is_accepting()
    check_masks(grammar, seed=4, walks=5)


def test_free_text_without_its_delimiters() -> None:
    grammar = compile_free_text(VOCABULARY, excluding=["</a>", "日本", "}}"])
    for text in ("", "</a", "</a }", "日", "本", "}x}", "<</a"):
        assert accepts(grammar, text), text
    for text in ("</a>", "x</a>y", "<</a>", "日本", "a}}"):
        assert not accepts(grammar, text), text
    assert check_masks(grammar, seed=4, walks=8)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.text(alphabet="ab0", min_size=1, max_size=3), max_size=3))
def test_any_delimiters(delimiters: list[str]) -> None:
    grammar = compile_free_text(VOCABULARY, excluding=delimiters)
    for text in TEXTS:
        assert accepts(grammar, text) == (not any(d in text for d in delimiters)), text


def test_an_empty_delimiter_is_refused() -> None:
    with pytest.raises(GrammarSourceError):
        compile_free_text(VOCABULARY, excluding=["a", ""])


# -- the cache ------------------------------------------------------------------------------------


def test_every_kind_is_kept_under_its_own_key() -> None:
    cache = GrammarCache()
    source = 'root ::= "a"'
    first = [
        cache.get_regex(source, VOCABULARY),
        cache.get_gbnf(source, VOCABULARY),
        cache.get_choice([source], VOCABULARY),
        cache.get_choice([source, "b"], VOCABULARY),
        cache.get_regex("b", VOCABULARY),
        cache.get_json_schema({"const": source}, VOCABULARY),
    ]
    again = [
        cache.get_regex(source, VOCABULARY),
        cache.get_gbnf(source, VOCABULARY),
        cache.get_choice([source], VOCABULARY),
        cache.get_choice(["b", source], VOCABULARY),
    ]
    assert len({result.key for result in first}) == len(first)
    assert not any(result.hit for result in first)
    assert all(result.hit for result in again)
    for one, other in zip(first, again, strict=False):
        assert one.grammar is other.grammar
    other_vocabulary = Vocabulary([*VOCABULARY.tokens, b"x"], VOCABULARY.special, VOCABULARY.eos)
    assert not cache.get_gbnf(source, other_vocabulary).hit
    assert accepts(first[1].grammar, "a")
    assert accepts(first[2].grammar, source)
    stats = cache.stats()
    assert (stats.misses, stats.hits) == (7, 4)


@pytest.mark.parametrize("kind", ["regex", "gbnf", "choice"])
def test_refusals_are_not_kept(kind: str) -> None:
    cache = GrammarCache(budget=Budget(schema_bytes=50))
    asked: dict[str, Callable[[], object]] = {
        "regex": lambda: cache.get_regex("(" * 60, VOCABULARY),
        "gbnf": lambda: cache.get_gbnf("root ::= " + "x" * 60, VOCABULARY),
        "choice": lambda: cache.get_choice(["a", "a"], VOCABULARY),
    }
    for _ in range(2):
        with pytest.raises(GrammarSourceError):
            asked[kind]()
    assert cache.stats().entries == 0
    assert cache.stats().misses == 2


def test_grammars_of_all_kinds_share_one_vocabulary() -> None:
    """Masks don't depend on what was compiled before on the same vocabulary."""
    fresh = small_vocabulary()
    for make in (
        lambda v: compile_regex("[a-z ]*", v),
        lambda v: compile_free_text(v, excluding=["ab"]),
        lambda v: compile_gbnf('root ::= [a-z ]* | "(" root ")" [a-z ]*', v),
    ):
        used, new = make(VOCABULARY), make(fresh)
        for text in ("", "a", "xy", "é"):
            one, other = used.start(), new.start()
            assert feed(one, text) == feed(other, text)
            assert ids_of(one.mask()) == ids_of(other.mask())
