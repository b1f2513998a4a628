"""Patterns against Python's `re`, translated with care, on every short string; and by hand."""

from __future__ import annotations

import itertools
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from grammar.charset import CharSet
from grammar.ecma import RegexSyntaxError, RegexUnsupportedError, parse_full, parse_search
from grammar.regular import RegexBudgetError, RegexBuilder

ALPHABET = "ab-"
WORDS = ["".join(w) for n in range(5) for w in itertools.product(ALPHABET, repeat=n)]

ATOMS = st.sampled_from(["a", "b", "-", "[ab]", "[^a]", ".", r"\w", r"\W", r"\d", "(?:)", "[a-]"])
ZERO_WIDTH = st.sampled_from(
    ["^", "$", r"\b", r"\B", "(?<=a)", "(?<!a)", "(?<=^|b)", "(?<![a-])", "(?=b)", "(?!ab)"]
)


def _compose(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda p: f"(?:{p})")
    return st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda ps: f"(?:{'|'.join(ps)})"),
        st.tuples(group, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            "".join
        ),
        st.tuples(st.sampled_from(["(?=", "(?!"]), inner).map(lambda t: f"{t[0]}{t[1]})"),
    )


# Python's `$` allows a final newline, its `\\B` denies the empty string (until 3.14), and its
# look-behinds have one width.
TRANSLATION = {
    ".": r"[^\n\r\u2028\u2029]",
    "$": r"\Z",
    r"\b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))",
    r"\B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
    "(?<=^|b)": "(?:^|(?<=b))",
}


def _is_tame(pattern: str) -> bool:
    """Whether the oracle's backtracking stays bounded: few repetitions, hence few nested ones."""
    return sum(pattern.count(quantifier) for quantifier in ("*", "+", "{")) <= 2


PATTERNS = st.recursive(st.one_of(ATOMS, ATOMS, ZERO_WIDTH), _compose, max_leaves=9).filter(
    _is_tame
)


def _python(pattern: str) -> re.Pattern[str]:
    for ours, theirs in TRANSLATION.items():
        pattern = pattern.replace(ours, theirs)
    return re.compile(pattern, re.ASCII)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(PATTERNS)
def test_search_agrees_with_python_on_all_short_words(pattern: str) -> None:
    builder = RegexBuilder()
    language = parse_search(builder, pattern)
    oracle = _python(pattern)
    wrong = [w for w in WORDS if language.matches(w) != bool(oracle.search(w))]
    assert not wrong, (pattern, wrong)
    accepted = [w for w in WORDS if oracle.search(w)]
    assert not (accepted and language.is_empty())
    if language.is_empty():
        assert not language.transitions()
        return
    # A letter outside the alphabet behaves like one of these.
    wider = ["".join(w) for n in range(4) for w in itertools.product("ab-0!\n", repeat=n)]
    lengths = {len(w) for w in wider if oracle.search(w)}
    for length in range(4):
        assert builder.length_window_nonempty(language, length, length) == (length in lengths)
    assert language.min_length() == min(lengths, default=language.min_length())
    longest = language.max_length()
    assert longest is None or longest >= max(lengths, default=0)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(PATTERNS)
def test_full_agrees_with_python(pattern: str) -> None:
    language = parse_full(RegexBuilder(), pattern)
    oracle = _python(pattern)
    assert not [w for w in WORDS if language.matches(w) != bool(oracle.fullmatch(w))]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("^a|b$", ["a", "ax", "b", "xb"], ["", "xa", "bx"]),
        ("(^a|b)c", ["ac", "acx", "xbc", "bcx"], ["xac", "a"]),
        ("a^b|c$d", [], ["", "ab", "cd", "a^b"]),
        ("^(?:a|^b|c$)+$", ["a", "ba", "aac", "bc", "b"], ["ab", "ca", ""]),
        ("^((?!foo).)*$", ["", "fo", "barfo"], ["foo", "xfoox", "a\nb"]),
        (r"^(?=.*[A-Z])(?=.*\d).{3,5}$", ["A12", "aB3", "1bcdE"], ["abc", "A1", "aB3456"]),
        (r"\bfoo\b", ["foo", "a foo b", "-foo-"], ["afoo", "foo1", "fo"]),
        (r"^(?:\bfoo\b\W*)+$", ["foo", "foo foo ", "foo--foo"], ["foofoo", "fo"]),
        (r"(?<!\\)\"", ['"', 'a"', '\\\\x"'], ['\\"', ""]),
        ("(?<=abc)d", ["abcd", "xabcdx"], ["abd", "d", "abc"]),
        ("(?<!abc)d", ["d", "abd", "xd", "abcdd"], ["abcd", "abc"]),
        ("^(?!(?:a|b)$).+$", ["ab", "c", "aa"], ["a", "b", ""]),
        (r"^(\d+(,|$))*$", ["", "1", "1,2", "1,"], ["1,,2", ",", "a"]),
        ("^[^]$", ["\n", "é", "\U0001f600"], ["", "ab"]),
        ("[]", [], ["", "[]", "a"]),
        (r"^\u{1F600}\uD83D\uDE01[\uD83D\uDE02-\u{1F610}]$", ["😀😁😃"], ["😀😁😁"]),
        (r"^[\w.-]+$", ["a.b-c", "_"], ["", "a b", "é"]),
        (r"^\!\-\_\"\@\/\#\%\:\,$", ['!-_"@/#%:,'], ["\\!"]),
        (r"^\x41\u0042\cJ\0\t$", ["AB\n\0\t"], ["AB"]),
        ("^a{,2}]}{$", ["a{,2}]}{"], ["a", "aa"]),
        (r"^[\d-x]+[a\-z][\b]$", ["1-xa\b", "---\b"], ["yz\b"]),
        (r"^\p{Lu}\P{L}\s$", ["É1\ufeff", "A-\n"], ["é1 ", "AA "]),
        ("^(?<year>[0-9]{4})(?:-)(x)??$", ["2024-", "2024-x"], ["2024", "24-"]),
        ("^.$", ["a", "\x85"], ["\n", "\r", "\u2028", "\u2029"]),
        ("^(?:(?=a)*b|(?=b)+c)$", ["b"], ["c", "a"]),
        ("^(?:a(?!b)){2,3}c?$", ["aa", "aaa", "aac"], ["a", "aab", "aaaa"]),
        (r"^-(?:a?){2}\B-$", ["--"], ["-a-", "-aa-", "-"]),
        ("", ["", "anything"], []),
    ],
)
def test_by_hand(pattern: str, yes: list[str], no: list[str]) -> None:
    language = parse_search(RegexBuilder(), pattern)
    assert [word for word in yes if not language.matches(word)] == []
    assert [word for word in no if language.matches(word)] == []
    assert language.is_empty() == (not yes)


@pytest.mark.parametrize(
    ("pattern", "position"),
    [
        ("a)", 1), ("(a", 0), ("[a", 0), ("*a", 0), ("a**", 2), ("a{2,1}", 1), ("{1}", 0),
        ("[z-a]", 1), ("\\", 0), (r"\u{110000}", 0), (r"\x4", 0), (r"\u12", 0), (r"\c1", 0),
        ("^*", 0), ("(?<=a)+", 0), ("(?<>a)", 0), (r"\p", 0), ("(?)", 0), ("x(?", 1),
    ],
)  # fmt: skip
def test_syntax_errors(pattern: str, position: int) -> None:
    with pytest.raises(RegexSyntaxError) as caught:
        parse_search(RegexBuilder(), pattern)
    assert caught.value.position == position
    assert caught.value.message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"(a)\1", "back-reference"), (r"(?<n>a)\k<n>", "back-reference"), ("(?i)a", "flag"),
        ("(?i:a)", "flag"), ("(?P<n>a)", "(?P"), ("(?>a)", "atomic"), ("a++", "possessive"),
        (r"\Aa\Z", r"\A"), (r"\p{Script=Greek}", "script"), (r"\p{Nonsense}", "Nonsense"),
        ("a(?<=bc)", "look-behind"), ("((?=a)b){1000}", "repetition"), (r"\01", "octal"),
        ("(" * 5000 + ")" * 5000, "nested"), ("(?#x)", "comment"),
    ],
)  # fmt: skip
def test_constructs_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(RegexUnsupportedError) as caught:
        parse_search(RegexBuilder(), pattern)
    assert construct in caught.value.construct
    assert caught.value.position >= 0


def test_anchored_patterns_have_few_states() -> None:
    builder = RegexBuilder()
    language = parse_search(builder, "^[a-z]+$")
    letters = builder.chars(CharSet.span("a", "z"))
    assert language is builder.repeat(letters, 1, None)
    assert [target for _, _, target in language.transitions()] == [builder.star(letters)]
    assert parse_search(builder, ".*") is builder.universe
    assert parse_search(builder, "^(?:abc)?") is builder.universe
    assert parse_search(builder, "x{0,1000000000}") is builder.universe


@pytest.mark.parametrize(
    "pattern",
    [
        "(a|a)*b", "(.*a){20}", "(x+x+)+y", "^(a{1,1000}){1,1000}$", "^(a?){50}a{50}$",
        "((a{0,50}){0,50}){0,50}$", "(?:a|b)*c(?:a|b){18}", "(?=(.*a){9})(?=(.*b){9})(.*c){9}",
        "(a|ab|abc|abcd)*(d|cd|bcd)*$", "^((?!a)(?!b)(?!ab).)*(?!c)x{0,1000000000}$",
        "^" + "(" * 50 + "a" + ")*" * 50 + "$", "a?" * 300 + "a" * 300, "(?=a)" * 200,
        "|".join(f"word{i}" for i in range(3000)), "^" + "(a|b?)" * 200 + "$",
    ],
)  # fmt: skip
def test_nasty_patterns_end_within_their_fuel(pattern: str) -> None:
    builder = RegexBuilder(budget=60_000)
    start = time.thread_time()
    try:
        language = parse_search(builder, pattern)
        assert not language.is_empty()
        for character in "abcabdxword1" * 20:
            following = language.step(ord(character))
            if following is None:
                break
            language = following
        language.min_length()
    except RegexBudgetError:
        assert builder.fuel < 0
    assert time.thread_time() - start < 10


def test_unlucky_fuel_leaves_a_usable_builder() -> None:
    pattern = r"^(?:(?!foo|bar$).)*(?<!x)\b[a-z]{2,5}$"
    wanted = parse_search(RegexBuilder(), pattern)
    builder = RegexBuilder()
    words = ["", "ab", "fooab", "xab", " ab", "bar", "-barx", "ab foo", "12 abcde"]
    for budget in range(1, 400, 7):
        builder.refuel(budget)
        try:
            parse_search(builder, pattern).matches("12 abcde")
        except RegexBudgetError:
            continue
    builder.refuel(100_000)
    language = parse_search(builder, pattern)
    assert [language.matches(w) for w in words] == [wanted.matches(w) for w in words]
