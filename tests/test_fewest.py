"""The fewest tokens of any answer: against trying them all on a small vocabulary, and with a real
one against what is known of the languages."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import (
    Fewest,
    Grammar,
    Vocabulary,
    compile_choice,
    compile_gbnf,
    compile_json_schema,
    compile_regex,
    fewest,
)
from tests.grammar_support import ids_of
from tests.test_engine_closing import EXACT, LEAVES, MODEL_VOCABULARY, SCHEMAS, TOKENS, schemas


def check(grammar: Grammar, least: int) -> Fewest:
    """What the search says is true; returns it."""
    found = grammar.fewest()
    assert found.at_least <= least
    assert found.tokens is not None
    assert len(found.tokens) >= least
    matcher = grammar.start()
    for token in found.tokens:
        matcher.advance(token)
    assert matcher.is_accepting()
    assert found.is_exact == (len(found.tokens) == found.at_least)
    shortest = grammar.shortest()  # None where it takes longer tokens to spell any answer
    assert shortest is None or len(found.tokens) <= len(shortest)
    return found


def tried(grammar: Grammar, budget: int = 1500) -> int | None:
    """The fewest tokens of any answer, by trying them all; None where that takes too long."""
    start = grammar.start()
    level, seen = [start], {start.state_id}
    count = 0
    while level:
        if any(matcher.is_accepting() for matcher in level):
            return count
        following = []
        for matcher in level:
            budget -= 1
            if budget < 0:
                return None
            for token in ids_of(matcher.mask()):
                after = matcher.copy()
                after.advance(token)
                if after.state_id not in seen:
                    seen.add(after.state_id)
                    following.append(after)
        level, count = following, count + 1
    raise AssertionError("no answer at all")


@pytest.mark.parametrize("whitespace", ["adaptive", "fixed", "pretty", "flexible"])
@pytest.mark.parametrize("schema", [*EXACT, *LEAVES, SCHEMAS["multiples"]], ids=str)
def test_schemas_against_brute_force(schema: Any, whitespace: Any) -> None:
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace=whitespace)
    least = tried(grammar, 10_000)
    assert least is not None
    assert check(grammar, least).is_exact, "small schemas are searched to the end"


@pytest.mark.parametrize(
    ("grammar", "least"),
    [
        # A longer word of fewer tokens, a longer number of letters, a detour over an escape.
        (compile_choice(["qz", "abcabc", "zzz"], MODEL_VOCABULARY), 2),
        (compile_regex("[qz]{2}|abc(abc)?x", MODEL_VOCABULARY), 2),
        (compile_regex("[ab]{3}c?", MODEL_VOCABULARY), 2),
        (compile_gbnf('root ::= "q" root "z" | "abc" "abc"', MODEL_VOCABULARY), 2),
        (compile_json_schema({"enum": ["qx", "abc"]}, MODEL_VOCABULARY), 3),
    ],
)
def test_texts_that_are_longer_and_have_fewer_tokens(grammar: Grammar, least: int) -> None:
    assert tried(grammar) == least
    assert check(grammar, least).is_exact


@settings(max_examples=30, deadline=None)
@given(st.recursive(st.sampled_from(LEAVES), schemas, max_leaves=4), st.booleans())
def test_any_schema_against_brute_force(schema: Any, adaptive: bool) -> None:
    whitespace: Any = "adaptive" if adaptive else "fixed"
    grammar = compile_json_schema(schema, MODEL_VOCABULARY, whitespace=whitespace)
    least = tried(grammar, 120)
    if least is not None:
        check(grammar, least)


@pytest.mark.parametrize("texts", [("abab", "aab"), ("abab", "bb"), ("aab", "bb")])
def test_small_vocabularies(texts: tuple[str, ...]) -> None:
    """Every set of tokens over two letters, and a language with words of several lengths."""
    letters = [b"a", b"b"]
    for size in range(4):
        for extra in itertools.combinations([b"ab", b"ba", b"aab", b"bab", b"abab"], size):
            vocabulary = Vocabulary([*letters, *extra, b""], {2 + size: "<end>"}, {2 + size})
            grammar = compile_choice([text * 3 for text in texts], vocabulary)
            least = min(fewest_cut(text.encode() * 3, [*letters, *extra]) for text in texts)
            assert check(grammar, least) == Fewest(grammar.fewest().tokens, least)


def fewest_cut(text: bytes, tokens: list[bytes]) -> int:
    counts = [0, *[len(text) + 1] * len(text)]
    for end in range(1, len(text) + 1):
        counts[end] = min(
            (counts[end - len(t)] + 1 for t in tokens if text[:end].endswith(t)),
            default=len(text) + 1,
        )
    return counts[-1]


def test_items_that_must_differ() -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"enum": ["abc", "q", 1]}}
    for count in (1, 2, 3):
        grammar = compile_json_schema({**schema, "minItems": count}, MODEL_VOCABULARY)
        least = tried(grammar)
        assert least is not None
        check(grammar, least)


def test_undeclared_keys_that_must_differ() -> None:
    vocabulary = Vocabulary(
        [b"{", b"}", b'"', b":1", b",", b"a", b"ab", b"b", b":", b"1", b"0", b""], {11: "e"}, {11}
    )
    for count, least in ((1, 5), (2, 10), (3, 15)):  # {"":1,"a":1,"b":1}
        schema = {"type": "object", "minProperties": count, "additionalProperties": {"const": 1}}
        grammar = compile_json_schema(schema, vocabulary, whitespace="compact")
        assert check(grammar, least).tokens is not None
        if count == 1:
            assert tried(grammar) == least


def test_whole_tokens() -> None:
    think = len(TOKENS)
    vocabulary = Vocabulary([*TOKENS, b"", b""], {think: "<t>", think + 1: "<end>"}, {think + 1})
    grammar = compile_gbnf('root ::= "qq" "x"* "qqz" | <t> "q" <t>', vocabulary)
    found = check(grammar, 3)
    assert found.is_exact
    assert found.tokens == (think, TOKENS.index(b"q"), think)


def test_enough_is_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("nothing has to be looked for")

    grammar = compile_regex("x{5}", MODEL_VOCABULARY)
    with monkeypatch.context() as patched:
        patched.setattr(fewest.FewestSearch, "__init__", fail)
        assert grammar.fewest(5) == Fewest(grammar.shortest(), 0)
        assert not grammar.fewest(5).is_exact
    assert grammar.fewest(4).at_least == 5
    with monkeypatch.context() as patched:
        patched.setattr(fewest.FewestSearch, "__init__", fail)
        assert grammar.fewest(4).is_exact, "it is known by now"


def test_where_the_bounds_end_the_search_nothing_false_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for schema, work in itertools.product(EXACT[:2], (1, 30, 100, 300)):
        grammar = compile_json_schema(schema, MODEL_VOCABULARY)
        least = tried(grammar, 10_000)
        assert least is not None
        monkeypatch.setattr(fewest, "MAX_WORK", work)
        found = check(grammar, least)
        assert work > 1 or not found.is_exact


def test_a_long_string_is_told_by_its_length() -> None:
    grammar = compile_json_schema({"type": "string", "minLength": 100_000}, MODEL_VOCABULARY)
    found = grammar.fewest()
    assert found.tokens is not None
    longest = max(map(len, TOKENS))
    assert found.at_least >= 100_000 // longest - 50
    assert found.at_least <= len(found.tokens)


# --- a real vocabulary --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(model_path: Path) -> Vocabulary:
    from server.engine.llama import LlamaModel

    model = LlamaModel(model_path, n_ctx=256, n_threads=1)
    vocabulary = model.vocabulary
    model.close()
    return vocabulary


@pytest.mark.model
@pytest.mark.parametrize(
    "words",
    [
        ["ab qx", "hello world", "zzzz qq"],
        ["very negative", "negative", "neutral", "positive"],
        ["日本語", "nihongo", "Straße"],
        ["customer_full_legal_name", "a_b_c_d"],
    ],
)
def test_words_in_real_tokens(real: Vocabulary, words: list[str]) -> None:
    tokens = [text for text in real.tokens if text]
    least = min(fewest_cut(word.encode(), tokens) for word in words)
    found = check(compile_choice(words, real), least)
    assert (found.is_exact, found.at_least) == (True, least)
    texts = [f'"{word}"'.encode() for word in words]
    least = min(fewest_cut(text, tokens) for text in texts)
    found = check(compile_json_schema({"enum": words}, real), least)
    assert (found.is_exact, found.at_least) == (True, least)


@pytest.mark.model
@pytest.mark.parametrize("size", [1, 5, 8, 12])
def test_a_word_of_so_many_letters(real: Vocabulary, size: int) -> None:
    """The quotes and the fewest tokens between them, or tokens that hold a quote and letters."""
    grammar = compile_json_schema({"type": "string", "pattern": f"^[a-z]{{{size}}}$"}, real)
    inside = [
        text
        for text in real.tokens
        if text and all(b in b'abcdefghijklmnopqrstuvwxyz"' for b in text)
    ]
    heads = [b'"'] + [text for text in inside if text[:1] == b'"' and text.count(b'"') == 1]
    tails = [b'"'] + [text for text in inside if text[-1:] == b'"' and text.count(b'"') == 1]
    lengths = {len(text) for text in inside if b'"' not in text}
    between = [0] + [99] * size
    for length in range(1, size + 1):
        between[length] = min((between[length - n] + 1 for n in lengths if n <= length), default=99)
    least = min(
        2 + between[left]
        for head in heads
        for tail in tails
        if (left := size - (len(head) - 1) - (len(tail) - 1)) >= 0
    )
    if b'"' + b"a" * size + b'"' in inside:
        least = 1
    found = check(grammar, least)
    assert (found.is_exact, found.at_least) == (True, least)


@pytest.mark.model
def test_a_record_in_real_tokens(real: Vocabulary) -> None:
    """One text only, in a fixed style: the fewest tokens are those of its best cut."""
    schema = {
        "type": "object",
        "properties": {
            "customer_full_legal_name": {"const": "Ana"},
            "is_registered": {"const": True},
            "items": {"type": "array", "items": {"const": 7}, "minItems": 3, "maxItems": 3},
        },
        "required": ["customer_full_legal_name", "is_registered", "items"],
        "additionalProperties": False,
    }
    text = b'{"customer_full_legal_name": "Ana", "is_registered": true, "items": [7, 7, 7]}'
    tokens = [each for each in real.tokens if each]
    least = fewest_cut(text, tokens)
    found = check(compile_json_schema(schema, real, whitespace="fixed"), least)
    assert (found.is_exact, found.at_least) == (True, least)
    assert b"".join(real.tokens[token] for token in found.tokens or ()) == text
