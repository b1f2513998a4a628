"""Walks: the quick way for free strings against the automaton, rests, and shared masks."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from grammar import Vocabulary, compile_json_schema
from grammar.automaton import Automaton
from grammar.content import Content, Excluding, Language, Without
from grammar.ecma import parse_search
from grammar.keys import KeyStrings
from grammar.regular import RegexBuilder
from grammar.strings import JsonStrings
from grammar.trie import NodeSet, Rests, TokenTrie
from grammar.walk import Walk, _Walker, walk
from tests.grammar_support import VOCABULARY, feed, ids_of, small_vocabulary

WORDS = ("", "a", "ab", "name", "é", "\n", "b", "ab,")
CONTENTS = [
    Content(None, 0, None),
    Content(None, 1, None),
    Content(None, 0, 0),
    Content(None, 0, 1),
    Content(None, 2, 3),
    Content(None, 3, 100_000),
    Content(None, 70_000, None),
    Content(Excluding(WORDS), 0, None),
    Content(Excluding(["age"]), 0, None),
]
TRIE = VOCABULARY.trie


def below(rests: Rests) -> set[int]:
    """The tokens that go on from some rests."""
    nodes = (rests,) if isinstance(rests, int) else rests.nodes
    return {t for node in nodes for t in TRIE.tokens_below(node).tolist()}


def meaning(found: Walk) -> tuple[list[int], dict[int, set[int]]]:
    """A walk's tokens, and for each label those that leave."""
    stay = set(found.ids.tolist()) | set(ids_of(found.mask) if found.mask is not None else ())
    return sorted(stay), {label: below(rests) for label, rests in found.exits}


def some_rests() -> list[Rests]:
    quote, comma = TRIE.find(b'"'), TRIE.find(b", ")
    assert quote is not None
    assert comma is not None
    return [0, quote, comma, TRIE.union([quote, comma])]


def check(automaton: Automaton, state: int, rests: Rests) -> None:
    same = automaton.representative_of(state)
    assert automaton.free(automaton.key(same)) is not None
    quick = walk(automaton, state, VOCABULARY, rests)
    assert meaning(quick) == meaning(_Walker(automaton, VOCABULARY).run(same, rests))
    assert walk(automaton, state, VOCABULARY, rests) is quick


@pytest.mark.parametrize("content", CONTENTS, ids=str)
@pytest.mark.parametrize(("opening", "closing"), [(b'"', b'"'), (b'{"', b'": ')])
def test_free_strings_walk_as_their_automaton_does(
    content: Content, opening: bytes, closing: bytes
) -> None:
    strings = JsonStrings(RegexBuilder(), VOCABULARY.longest, opening, closing)
    keys = KeyStrings(RegexBuilder(), VOCABULARY.longest, opening, closing)
    for rests in some_rests():
        for key in (("open", 0, content), ("body", content)):
            check(strings, strings.state(key), rests)
        if content.least or content.most is not None:
            continue  # keys are not counted
        for completed in (True, False):
            state = keys.begin(content, completed=completed)
            for byte in opening + b"a":
                check(keys, state, rests)
                state = keys.step(state, byte)
            check(keys, state, rests)


@pytest.mark.parametrize("pattern", ["^[a-z, ]*$", "^(a|ab|name|é)$", "^.*$", "^[^/]+$", "m"])
@pytest.mark.parametrize(("opening", "closing"), [(b'"', b'"'), (b', "', b'": ')])
def test_languages_without_words_walk_as_their_automaton_does(
    pattern: str, opening: bytes, closing: bytes
) -> None:
    builder = RegexBuilder()
    language = parse_search(builder, pattern)
    strings = JsonStrings(builder, VOCABULARY.longest, opening, closing)
    keys = KeyStrings(builder, VOCABULARY.longest, opening, closing)
    quick = 0
    for words in (["a"], ["a", "ab", "name"], list(WORDS)):
        content = Content(Without(language, Excluding(words)), 0, None)
        exact = builder.difference(language, builder.literals(words))
        assert strings.is_possible(content) != exact.is_empty()
        if exact.is_empty():
            continue
        assert content.language is not None
        assert content.language.min_length() == exact.min_length()
        for text in (*WORDS, "m", "ame", "abc", "a,b"):
            kept = exact.matches(text)
            at: Language = content.language
            for char in text:
                rows = [t for low, high, t in at.transitions() if low <= ord(char) <= high]
                assert len(rows) < 2
                if not rows:
                    assert not kept
                    break
                at = rows[0]
            else:
                assert at.nullable == kept
        for automaton, state in (
            (strings, strings.state(("open", 0, content))),
            (keys, keys.representative_of(keys.begin(content))),
            (keys, keys.begin(content, completed=False)),
        ):
            at_key = state
            for byte in opening + b"a":
                quick += automaton.less(automaton.key(at_key)) is not None
                for rests in some_rests():
                    found = walk(automaton, at_key, VOCABULARY, rests)
                    same = automaton.representative_of(at_key)
                    direct = _Walker(automaton, VOCABULARY).run(same, rests)
                    assert meaning(found) == meaning(direct), (words, automaton.key(at_key), rests)
                after = automaton.step(at_key, byte)
                if after < 0:
                    break
                at_key = after
    assert quick or language.max_length() is not None  # of few words none may be left


COUNTED = [
    "^[a-c]{0,60}$",
    "^[a-c]{0,60}b$",
    "^([ab]|ab){20,90}(c|b{2,40})$",
    "^(ab?){40,50}$",
    "^(?=.{0,80}$)[a-c]*b$",
    "^(?=.{0,70}$)(?!ab|abc$)([ab]c?)+$",
]


@pytest.mark.parametrize("pattern", COUNTED)
def test_counters_are_cut_where_no_token_can_tell(pattern: str) -> None:
    builder = RegexBuilder()
    strings = JsonStrings(builder, VOCABULARY.longest, b'"', b'"')
    at = strings.start(Content(parse_search(builder, pattern), 0, None))
    cut = 0
    for byte in b'"abababababab':
        after = strings.step(at, byte)
        at = after if after >= 0 else at
        same = strings.representative_of(at)
        cut += same != at
        direct = _Walker(strings, VOCABULARY).run(at, 0)
        assert meaning(_Walker(strings, VOCABULARY).run(same, 0)) == meaning(direct)
    assert cut > 3


class Unaided(JsonStrings):
    """Strings whose walks run the automaton over every token."""

    def even(self, key: Any) -> None:
        return None

    def safe(self, key: Any) -> None:
        return None

    def is_ascii(self, key: Any) -> bool:
        return False


def tokens_of_many_kinds() -> list[bytes]:
    """Letters, digits, marks, quotes, escapes and characters beyond ASCII in every short mix."""
    parts = [
        "a",
        "b",
        "Z",
        "7",
        "-",
        "/",
        " ",
        '"',
        "\\",
        "\n",
        "é",
        "日",
        "\u2028",
        "\u00a0",
        "😀",
    ]
    texts = ["".join(mix) for size in (1, 2, 3) for mix in product(parts, repeat=size)]
    long = ["ab" * 9, "7" * 20, "Za-" * 6, "ab" * 9 + '"', "é" * 12]
    cut = [text.encode()[:-1] for text in ("aé", "日", "b😀")]
    return [bytes([b]) for b in range(256)] + [t.encode() for t in texts + long if len(t) > 1] + cut


@pytest.mark.parametrize(
    "pattern",
    [
        "^[ab7]*$", "^[ab]{0,9}$", "^[a-zA-Z][ab7-]*$", "^[ab]{3}-[7Z]{2}$", "^.*$",
        "^[^/]+(/[^/]+)*$", "ab", "^[^\\s]*$", "^(?!.*ab)", "^[aé]*$", "^[\\u0080-\\u{10FFFF}]*$",
        "^a?b?7?$", "^(?=.{0,15}$)[ab]*7", "^[ab]*(-[ab]*)?$", "^\\w+\\s\\w+$",
    ],
)  # fmt: skip
@pytest.mark.parametrize(("least", "most"), [(0, None), (0, 12), (2, 30), (40, 2000)])
def test_what_is_told_of_many_tokens_at_once_changes_no_walk(
    pattern: str, least: int, most: int | None
) -> None:
    tokens = tokens_of_many_kinds()
    vocabulary = Vocabulary([*tokens, b""], {len(tokens): "<end>"}, [len(tokens)])
    builder = RegexBuilder()
    content = Content(parse_search(builder, pattern), least, most)
    aided = JsonStrings(builder, vocabulary.longest, b'"', b'"')
    unaided = Unaided(builder, vocabulary.longest, b'"', b'"')
    if not aided.is_possible(content):
        pytest.skip("no text fits")
    below_main = vocabulary.trie.tokens_below
    for text in ("", "a", "ab", "ab7", "aaa-", "é"):
        found = []
        for automaton in (aided, unaided):
            state = automaton.start(content)
            for byte in f'"{text}'.encode():
                state = automaton.step(state, byte) if state >= 0 else state
            if state < 0:
                break
            walked = _Walker(automaton, vocabulary).run(state, 0)
            stay = set(walked.ids.tolist())
            stay |= set(ids_of(walked.mask)) if walked.mask is not None else set()
            left = {
                token
                for _, rests in walked.exits
                for node in ((rests,) if isinstance(rests, int) else rests.nodes)
                for token in below_main(node).tolist()
            }
            found.append((stay, left))
        assert not found or found[0] == found[1], (text, found[0][0] ^ found[1][0])


def test_what_was_forgotten_is_found_again() -> None:
    vocabulary = small_vocabulary()
    strings = JsonStrings(RegexBuilder(), vocabulary.longest, b'"', b'"')
    state = strings.state(("body", Content(None, 1, 5)))
    first = walk(strings, state, vocabulary)
    vocabulary.begin_generation()
    other = JsonStrings(RegexBuilder(), vocabulary.longest, b'"', b'"')
    again = walk(other, other.state(("body", Content(None, 1, 5))), vocabulary)
    assert again is not first
    assert meaning(again) == meaning(first)


@pytest.mark.parametrize("many", [0, 1, 1000])
def test_rests_of_several_nodes_are_their_union(many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grammar.trie.MANY_NODES", many)
    trie = TokenTrie.build(VOCABULARY.tokens, range(VOCABULARY.size))
    nodes = [trie.find(text) for text in (b'"', b", ", b"a", b"\n")]
    rests = trie.union([node for node in nodes if node is not None])
    assert isinstance(rests, NodeSet)
    tails: dict[bytes, set[int]] = {}
    for text in (b'"', b", ", b"a", b"\n"):
        for token, word in enumerate(VOCABULARY.tokens):
            if word.startswith(text):
                tails.setdefault(word[len(text) :], set()).add(token)
    for tail, tokens in tails.items():
        at: Rests | None = rests
        for byte in tail:
            assert at is not None
            assert not trie.is_leaf(at)
            at = trie.step(at, byte)
        assert at is not None
        assert set(trie.ids_at(at)) == tokens
    assert set(trie.children(rests)) == {tail[0] for tail in tails if tail}
    assert trie.step(rests, 0) is None


def test_equal_states_of_different_schemas_share_a_mask() -> None:
    vocabulary = small_vocabulary()
    masks = []
    for name in ("first", "second"):
        schema = {"properties": {name: {"type": "string"}}, "required": [name], "type": "object"}
        matcher = compile_json_schema(schema, vocabulary, whitespace="compact").start()
        assert feed(matcher, f'{{"{name}":"text')
        masks.append(matcher.mask())
    assert masks[0] is masks[1]


def test_nodes_of_a_smaller_trie_are_found_in_the_larger() -> None:
    other = VOCABULARY.other_trie
    found = VOCABULARY.other_nodes
    pending = [(0, 0)]
    seen = 0
    while pending:
        node, main = pending.pop()
        assert found[node] == main
        seen += 1
        pending += [(child, TRIE.visit(main)[0][b]) for b, child in other.visit(node)[0].items()]
    assert seen == len(other) == len(found)


def test_languages_with_few_illegal_characters_are_walked_as_brute_force_says() -> None:
    tokens = [bytes([b]) for b in range(256)]
    tokens += [
        t.encode() for t in ("ab", "a\u2028", "\u2028b", '"}', 'x"', "é\u2029", "日本", "\\n")
    ]
    vocabulary = Vocabulary([*tokens, b""], {len(tokens): "<end>"}, [len(tokens)])
    for pattern in ("^.*$", "^a.*b$", "^.*x"):
        matcher = compile_json_schema({"type": "string", "pattern": pattern}, vocabulary).start()
        for text in ('"', "a", "é"):
            assert feed(matcher, text)
            legal = set(ids_of(matcher.mask()))
            for token, word in enumerate(tokens):
                one_by_one = matcher.copy()
                assert (token in legal) == feed(one_by_one, word), (pattern, word)
    assert np.array_equal(vocabulary.plain.odd, [257, 258, 261])
