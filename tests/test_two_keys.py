"""Tokens that hold the end of one key and something of the next."""

from __future__ import annotations

from typing import Any

import pytest

from grammar import Vocabulary, compile_json_schema
from tests.grammar_support import feed, ids_of

TWO_KEYS = [
    *(b'":1,"', b'":1,"a', b'":1,"b', b'":1,"b":', b'":1,"a":', b'":1}', b'1,"', b'1,"a', b'1,"b'),
    *(b'1,"a":1', b'{"a":1,"', b'{"a":1,"b":1,"', b'{"a":1,"b":1}', b',"', b'a":1,"'),
    *(b'a":1,"b":1,"', b'":1,"b":1,"', b'":1,"b":1}', b'" : 1 , "a'),
]


@pytest.mark.parametrize("key_order", ["schema", "free"])
@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize(
    "keywords",
    [
        {"patternProperties": {"^[ab]$": {}}},
        {"patternProperties": {"^(ab?|b|cd)$": {"type": "integer"}}, "minProperties": 0},
        {"patternProperties": {"^[ab]$": {}}, "properties": {"c": {}}},
        {"patternProperties": {"^a?$": {}}},
        {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"type": "integer"}},
    ],
)
def test_tokens_across_two_keys_of_which_there_are_few(
    keywords: Any, whitespace: str, key_order: str
) -> None:
    """A token may end one key and begin the next: the mask knows which keys are left to begin."""
    texts = [*(bytes([b]) for b in range(256)), *TWO_KEYS, b""]
    vocabulary = Vocabulary(texts, {}, [len(texts) - 1])
    schema = {"type": "object", "additionalProperties": False, **keywords}
    grammar = compile_json_schema(schema, vocabulary, whitespace=whitespace, key_order=key_order)
    places = ["", "{", '{"', '{"a', '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,"', '{"b":1,"a']
    places += ['{"b":1,"a"', '{"b":1,"a":', '{"b":1,"a":1', '{"b":1', '{"":1,"', '{"c":1,"a']
    checked = 0
    for place in places:
        matcher = grammar.start()
        if not feed(matcher, place):
            continue
        legal = set(ids_of(matcher.mask()))
        for token, text in enumerate(texts[:-1]):
            after = grammar.start()
            assert feed(after, place)
            assert (token in legal) == feed(after, text), (place, text)
        checked += 1
    assert checked > 8


def test_a_token_with_two_keys() -> None:
    """Such tokens exist; the mask knows whether both keys are new."""
    texts = [bytes([b]) for b in range(256)]
    texts += [b'":1,"b":', b'a":1,"a":', b'{"a":1,"b":2}', b'{"a":1,"a":2}', b'":1,"ab', b""]
    vocabulary = Vocabulary(texts, {}, [len(texts) - 1])
    grammar = compile_json_schema({"type": "object"}, vocabulary, whitespace="compact")
    start = ids_of(grammar.start().mask())
    assert 258 in start
    assert 259 not in start
    for key, legal in (("a", {256, 257, 260}), ("b", {257, 260}), ("", {256, 260})):
        matcher = grammar.start()
        assert feed(matcher, '{"' + key)
        assert {t for t in ids_of(matcher.mask()) if t >= 256} == legal, key
        for token in range(256, 261):
            assert matcher.is_allowed(token) == (token in legal)
