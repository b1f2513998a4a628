"""GBNF: the notation, the languages, masks, token references, and what is refused."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import Budget, GrammarError, GrammarSourceError, Matcher, Vocabulary, compile_gbnf
from grammar import machine as machine_module
from tests.grammar_support import (
    VOCABULARY,
    accepts,
    brute_force,
    feed,
    ids_of,
    random_walk,
    small_vocabulary,
)
from tests.language_support import (
    Alt,
    Cls,
    Lit,
    Recogniser,
    Ref,
    Rep,
    Seq,
    Term,
    all_texts,
    as_gbnf,
    check_masks,
)

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,3})? ws
# at most some blanks, so that no model pads forever
ws ::= | " " | "\n" [ \t]{0,20}
"""

CASES: list[tuple[str, list[str], list[str]]] = [
    ('root ::= "a" | "b" "c"', ["a", "bc"], ["", "b", "ab", "abc", "acc"]),
    ("root ::= [a-cx-] [^a-c\\n]", ["ad", "x ", "-é", "b😀"], ["aa", "d", "a\n", "a"]),
    ('root ::= "\\x41\\u00e9\\U0001F600\\t\\"\\\\"', ['Aé😀\t"\\'], ["A", "Aé😀\t"]),
    ('root ::= [\\x41-\\x43\\]\\[]+', ["ABC", "[]"], ["", "D"]),
    ("root ::= . .", ["ab", "\n\0", "日本"], ["", "a", "abc"]),
    ('root ::= ("ab"){2} "c"{0} "d"{1,2} "e"{2,}', ["ababdee", "ababddeeee"], ["ababde", "abdee"]),
    ('root ::= "a"+ "b"* "c"?', ["a", "aab", "abbc"], ["", "b", "acc"]),
    ('root ::= a{2}\na ::= "x" | ', ["", "x", "xx"], ["xxx"]),
    ('# a comment\n\nroot ::=   # another\n  "a" | # here\n  "b"\n# end', ["a", "b"], ["ab"]),
    ('root ::= (\n "a"\n | "b" # c\n)\r\nx ::= "y"', ["a", "b"], ["y"]),
    ('root::="a"root_2-X\nroot_2-X::="b"', ["ab"], ["a"]),
    ('root ::= ""', [""], ["a"]),
    ('root ::= "(" root ")" | "x"?', ["", "()", "((x))"], ["((x)", "x)", "xx"]),
    ('root ::= "a" root "b" | "a" root "c" | "a"', ["a", "aab", "aaabc"], ["", "aa", "aaab"]),
    ('root ::= "a" root root | "a"', ["a", "aaa", "aaaaa"], ["", "aa", "aaaa"]),
    ('root ::= (p? q?)* "."\np ::= "(" p ")" | "()"\nq ::= "[" q? "]"',
     [".", "(()).", "(())[[]]()."], ["(()", "([])."]),
    ('root ::= e{2,3}\ne ::= "(" e* ")"', ["()()", "(())()(()())"], ["()", "()()()()"]),
    ('root ::= e{3,1000000000}\ne ::= "(" e* ")"', ["()()()", "()" * 9], ["()()"]),
    ('root ::= e{3,}\ne ::= ("(" e ")")?', ["", "()(())", "()()()()"], ["(", ")("]),
    ('root ::= e{1,2}\ne ::= ("(" e ")")? "x"?', ["", "(x)x()", "xx"], ["xxx", "()()()"]),
    ('root ::= a\na ::= "x" b\nb ::= "y" a | "z"', ["xz", "xyxz"], ["x", "xy", "xyz"]),
    ('root ::= a "!"\na ::= b b\nb ::= "x"? ("(" a ")")?',
     ["!", "x(x)x!", "(())!"], ["xxx!", "(!"]),
    (JSON, ["{}", '{"a": [1, -2.5e3, {"b": "\\u00e9\\""}], "c":null}', "{\n\t}"],
     ["", "[]", '{"a":}', '{"a": 1,}', '{"a": 01}', '{"a": "\n"}']),
]  # fmt: skip


@pytest.mark.parametrize(("source", "good", "bad"), CASES, ids=range(len(CASES)))
def test_what_fits_and_what_does_not(source: str, good: list[str], bad: list[str]) -> None:
    grammar = compile_gbnf(source, VOCABULARY)
    for text in good:
        assert accepts(grammar, text), text
    for text in bad:
        assert not accepts(grammar, text), text


@pytest.mark.parametrize("source", [case[0] for case in CASES], ids=range(len(CASES)))
def test_masks_are_brute_force(source: str) -> None:
    check_masks(compile_gbnf(source, VOCABULARY), seed=1, walks=2, steps=6)


def test_random_json_is_json() -> None:
    grammar = compile_gbnf(JSON, VOCABULARY)
    rng = random.Random(5)
    ended = 0
    for _ in range(60):
        text, done, _ = random_walk(grammar, rng, steps=25)
        if done:
            ended += 1
            json.loads(text)
    assert ended > 20


def test_forced_text_runs_over_characters_of_several_bytes() -> None:
    grammar = compile_gbnf('root ::= "<über>" root? "</über>"', VOCABULARY)
    matcher = grammar.start()
    assert matcher.forced_bytes() == "<über>".encode()[:-1] + b">" + b"<"
    feed(matcher, "<über></")
    assert matcher.forced_bytes() == "über>".encode()


def test_ambiguity_within_a_long_token_is_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = [*VOCABULARY.tokens[:256], b"a" * 60, b"a" * 59 + b"z", b"ab" * 30, b"ac" * 30, b""]
    vocabulary = Vocabulary(tokens, {}, [260])
    grammar = compile_gbnf('root ::= "a" root "x" | [ab] root "y" | "z"', vocabulary)
    began = time.thread_time()
    matcher = grammar.start()
    assert ids_of(matcher.mask()) == [ord("a"), ord("b"), ord("z"), 256, 257, 258]
    matcher.advance(257)
    assert ids_of(matcher.mask()) == [ord("x"), ord("y")]
    assert time.thread_time() - began < 5
    # Either way of finding a mask finds the same one.
    monkeypatch.setattr(machine_module, "MANY_EXITS", 0)
    for source in (JSON, 'root ::= [^<]* item*\nitem ::= "<b>" [^<]* item? "</b>" .*'):
        check_masks(compile_gbnf(source, VOCABULARY), seed=6, walks=2)


def test_a_rule_that_may_end_anywhere_before_another() -> None:
    source = 'root ::= [^<]* item*\nitem ::= "<b>" [^<]* item? "</b>" .*'
    grammar = compile_gbnf(source, small_vocabulary())
    check_masks(grammar, seed=2, walks=4)
    matcher = grammar.start()
    assert feed(matcher, "x<b>y, ")
    assert ids_of(matcher.mask()) == brute_force(grammar, list(b"x<b>y, "))


# -- against a recogniser that works by definition ------------------------------------------------

NAMES = ("root", "a", "b", "c")


def terms(depth: int, refs: tuple[str, ...]) -> st.SearchStrategy[Term]:
    """Terms; ``refs`` are the rules that may be begun here."""
    leaves: st.SearchStrategy[Term] = st.one_of(
        st.sampled_from(["", "x", "y", "xy", "(", ")"]).map(Lit),
        st.builds(Cls, st.sampled_from(["x", "xy", "()"]), st.booleans()),
    )
    if refs:
        leaves = st.one_of(leaves, st.sampled_from(refs).map(Ref))
    if not depth:
        return leaves
    inner = terms(depth - 1, refs)
    # Behind a character any rule may be called, whatever it begins with.
    guarded = st.builds(
        lambda first, rest: Seq((Lit(first), *rest)),
        st.sampled_from("xy("),
        st.lists(terms(depth - 1, NAMES), min_size=1, max_size=2),
    )
    bounds = st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3), (2, None), (0, 0)])
    return st.one_of(
        leaves,
        guarded,
        st.lists(inner, max_size=3).map(lambda items: Seq(tuple(items))),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: Alt(tuple(items))),
        st.builds(lambda body, times: Rep(body, *times), inner, bounds),
    )


grammars = st.tuples(*(terms(3, NAMES[i + 1 :]) for i in range(len(NAMES)))).map(
    lambda bodies: dict(zip(NAMES, bodies, strict=True))
)
TEXTS = all_texts("xy()", 4)


def accepted(matcher: Matcher, alphabet: str, length: int) -> set[str]:
    """All accepted texts of up to so many characters, depth first."""
    found = set()

    def visit(text: str) -> None:
        if matcher.is_accepting():
            found.add(text)
        if len(text) == length:
            return
        for char in alphabet:
            if matcher.is_allowed(ord(char)):
                matcher.advance(ord(char))
                visit(text + char)
                matcher.rollback(1)

    visit("")
    return found


@settings(max_examples=150, deadline=None)
@given(grammars)
def test_the_language_is_that_of_the_definition(rules: dict[str, Term]) -> None:
    expected = {text for text in TEXTS if Recogniser(rules, text).fits()}
    try:
        grammar = compile_gbnf(as_gbnf(rules), VOCABULARY)
    except GrammarSourceError as error:
        assert error.problem == "unsatisfiable"
        assert not expected
        return
    assert accepted(grammar.start(), "xy()", 4) == expected


@settings(max_examples=25, deadline=None)
@given(grammars, st.integers(0, 1000))
def test_masks_of_any_grammar_are_brute_force(rules: dict[str, Term], seed: int) -> None:
    try:
        grammar = compile_gbnf(as_gbnf(rules), VOCABULARY)
    except GrammarSourceError:
        return
    for text in check_masks(grammar, seed, walks=1, steps=4):
        try:
            characters = text.decode()
        except UnicodeDecodeError:
            pytest.fail(f"no text: {text!r}")
        assert Recogniser(rules, characters).fits()


# -- tokens ---------------------------------------------------------------------------------------

THINK = next(token for token, text in VOCABULARY.special.items() if text == "<think>")
AB = [i for i, data in enumerate(VOCABULARY.tokens) if data == b"ab"]


def test_a_special_token_is_named_by_text_or_id() -> None:
    for source in ("root ::= <think> [a-z]*", f"root ::= <[{THINK}]> [a-z]*"):
        matcher = compile_gbnf(source, VOCABULARY).start()
        assert ids_of(matcher.mask()) == [THINK]
        assert matcher.forced_bytes() == b""
        assert not matcher.is_allowed(ord("<"))
        matcher.advance(THINK)
        assert matcher.is_accepting()
        assert not matcher.is_allowed(THINK)
        assert feed(matcher, "abc")
        matcher.rollback(4)
        assert ids_of(matcher.mask()) == [THINK]


def test_an_ordinary_token_is_only_itself_as_a_whole() -> None:
    matcher = compile_gbnf(f'root ::= <[{AB[1]}]> "c"', VOCABULARY).start()
    assert ids_of(matcher.mask()) == [AB[1]]
    assert not matcher.is_allowed(AB[0])
    assert not matcher.is_allowed(ord("a"))
    matcher.advance(AB[1])
    assert matcher.forced_bytes() == b"c"


def test_a_token_by_bytes_and_as_a_whole_at_once() -> None:
    grammar = compile_gbnf(f'root ::= <[{AB[0]}]> "1" | "ab" "2"', VOCABULARY)
    whole, apart = grammar.start(), grammar.start()
    whole.advance(AB[0])
    assert {VOCABULARY.tokens[t][:1] for t in ids_of(whole.mask())} == {b"1", b"2"}
    assert feed(apart, "ab")
    assert {VOCABULARY.tokens[t][:1] for t in ids_of(apart.mask())} == {b"2"}


def test_any_token_but_one() -> None:
    matcher = compile_gbnf("root ::= !<think>* <think>", VOCABULARY).start()
    everything = set(range(VOCABULARY.size)) - VOCABULARY.eos
    assert set(ids_of(matcher.mask())) == everything
    for token in (0, 255, AB[0]):
        matcher.advance(token)
        assert not matcher.is_accepting()
    matcher.advance(THINK)
    assert set(ids_of(matcher.mask())) == VOCABULARY.eos


# -- refusals -------------------------------------------------------------------------------------

REFUSED: list[tuple[str, str, str, tuple[int, int] | None]] = [
    ("", "invalid", "no rule named 'root'", None),
    ('a ::= "x"', "invalid", "no rule named 'root'", None),
    ("root ::= a", "invalid", "'a' is not defined", (1, 10)),
    ('root ::= "x"\nb ::= "y" cd', "invalid", "'cd' is not defined", (2, 11)),
    ('root ::= "x"\nroot ::= "y"', "invalid", "defined twice", (2, 1)),
    ('root := "x"', "invalid", "'::=' is missing", (1, 6)),
    ('root ::= "x"\n | "y"', "invalid", "can't begin a line", (2, 2)),
    ('root ::= "x" )', "invalid", "')' is not expected", (1, 14)),
    ('root ::= ("x"', "invalid", "never closed", (1, 10)),
    ('root ::= ("x" ]', "invalid", "']' is not expected here; ')'", (1, 15)),
    ('root ::= "x', "invalid", "quote is never closed", (1, 10)),
    ("root ::= [a", "invalid", "bracket is never closed", (1, 10)),
    ("root ::= []", "invalid", "empty character class", (1, 10)),
    ("root ::= [^\\x00-\\U0010FFFF]", "invalid", "no character", (1, 10)),
    ("root ::= [z-a]", "invalid", "runs backwards", (1, 11)),
    ('root ::= "\\q"', "invalid", "unknown escape", (1, 11)),
    ('root ::= "\\x4"', "invalid", "needs 2 hexadecimal digits", (1, 11)),
    ('root ::= "\\ud800"', "invalid", "no character", (1, 11)),
    ('root ::= "\\UFFFFFFFF"', "invalid", "no character", (1, 11)),
    ("root ::= *", "invalid", "nothing before '*'", (1, 10)),
    ('root ::= "a"{', "invalid", "a number is expected", (1, 14)),
    ('root ::= "a"{2', "invalid", "'}' is missing", (1, 15)),
    ('root ::= "a"{3,2}', "invalid", "below the lower one", (1, 18)),
    ('root ::= "a"{1000000001}', "invalid", "numbers go up to", (1, 14)),
    ("root ::= " + "(" * 101, "invalid", "nest more than 100", (1, 110)),
    ("root ::= <think", "invalid", "never closed", (1, 10)),
    ("root ::= <[x]>", "invalid", "<[id]>", (1, 10)),
    ("root ::= <nope>", "invalid", "no token '<nope>'", (1, 10)),
    ("root ::= <[99999999999]>", "invalid", "no token", (1, 10)),
    ("root ::= <|end|>", "unsupported", "ends the text", (1, 10)),
    ('root ::= root "x" | "y"', "unsupported", "root -> root", (1, 1)),
    ('root ::= a\na ::= b "x"\nb ::= "y"? a', "unsupported", "a -> b -> a", (2, 1)),
    ('root ::= "x" a\na ::= e* (a | "y")\ne ::= | "z"', "unsupported", "a -> a", (2, 1)),
    ('root ::= "a" root', "unsatisfiable", "root can never be completed", None),
    ('root ::= "a" b\nb ::= "c" d\nd ::= b', "unsatisfiable", "b, d, root", None),
]  # fmt: skip


@pytest.mark.parametrize(("source", "problem", "words", "place"), REFUSED)
def test_refusals_say_what_and_where(
    source: str, problem: str, words: str, place: tuple[int, int] | None
) -> None:
    with pytest.raises(GrammarSourceError) as caught:
        compile_gbnf(source, VOCABULARY)
    error = caught.value
    assert error.problem == problem
    assert words in str(error)
    assert (None if error.line is None else (error.line, error.column)) == place


def test_a_rule_that_can_never_be_completed_is_left_out_and_noted() -> None:
    grammar = compile_gbnf('root ::= "x" | a root\na ::= "y" a', VOCABULARY)
    assert accepts(grammar, "x")
    assert not feed(grammar.start(), "y")
    assert grammar.report.bounds == ("the rule 'a' can never be completed",)


# -- nasty ones -----------------------------------------------------------------------------------


def chain(count: int, link: str, end: str) -> str:
    rules = [f"r{i} ::= {link} r{i + 1}" for i in range(count)]
    return "\n".join(["root ::= r0", *rules, f"r{count} ::= {end}"])


NASTY = {
    "ambiguous returns": ('root ::= "a" root "b" | "a" root "c" | "a"', "a" * 60 + "b" * 30),
    "ambiguous calls": ('root ::= "a" root root root | "a" root root | "a" root | "a"', "a" * 60),
    "doubling": (
        "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60))])
        + '\nr60 ::= "ab" | "c" root "d"',
        "ab" * 20,
    ),
    "nullable doubling": (
        "\n".join(["root ::= r0", *(f"r{i} ::= r{i + 1}? r{i + 1}?" for i in range(40))])
        + '\nr40 ::= "ab" | "c" root "d"',
        "ab" * 20,
    ),
    "stars on stars": ("root ::= " + "(" * 100 + '"a" root?' + ")*" * 100, "aaa"),
    "a long chain": (chain(3000, '"a"', '"b" root?'), "a" * 20),
    "a long chain of beginnings": (chain(3000, "", '"b" root?'), "bbb"),
    "many optional calls": ("root ::= " + "r? " * 2000 + '\nr ::= "(" root ")"', "((()))"),
    "many optional calls, again": (
        "root ::= (" + "r? " * 3000 + ')* "."\nr ::= "(" root ")"',
        "()",
    ),
    "large counts": ('root ::= (("a" root? "b"){0,1000000000} "c"){999999999}', "abc"),
    "large regular counts": ('root ::= ("ab"{0,1000000000} "c"){999999999}', "abc"),
    "many words": ("root ::= " + " | ".join(f'"w{i}x"' for i in range(20_000)), "w123x"),
    "deep": ('root ::= "(" root ")" | "x"', "(" * 2000 + "x" + ")" * 2000),
}


@pytest.mark.parametrize("name", NASTY)
def test_nasty_grammars_work_or_are_refused_in_time(name: str) -> None:
    source, text = NASTY[name]
    began = time.thread_time()
    try:
        grammar = compile_gbnf(source, VOCABULARY)
    except GrammarSourceError as error:
        assert error.problem == "too complex"
    else:
        matcher = grammar.start()
        for byte in text.encode():
            assert matcher.is_allowed(byte)
            matcher.advance(byte)
        matcher.mask()
        assert len(grammar.start().describe()) < 2000
    assert time.thread_time() - began < 10


def test_the_budget_bounds_rules_and_bytes() -> None:
    source = chain(100, '"a"', '"hello over there" root?')
    for budget in (Budget(rules=50), Budget(schema_bytes=100), Budget(regex_steps=10)):
        with pytest.raises(GrammarSourceError) as caught:
            compile_gbnf(source, small_vocabulary(), budget=budget)
        assert caught.value.problem == "too complex"


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='root :=|()[]{}*+?"\\x<!>,09a-\n#.^', max_size=40))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    for source in (text, "root ::= " + text):
        try:
            compile_gbnf(source, VOCABULARY).start().mask()
        except GrammarError as error:
            assert isinstance(error, GrammarSourceError)
