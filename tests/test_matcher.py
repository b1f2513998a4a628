"""The matcher: mask layout, ends, rolling back, forced bytes, and independence of cache state."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from typing import Any

import numpy as np
import pytest

from grammar import IllegalToken, NoLegalContinuation, Vocabulary, compile_json_schema
from tests.grammar_support import (
    VOCABULARY,
    brute_force,
    compiled,
    feed,
    ids_of,
    random_walk,
)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SCHEMAS: list[Any] = [
    PERSON,
    {"type": "object"},
    {},
    {"type": "array", "items": {"anyOf": [{"type": "string", "pattern": "^a+b?$"}, {"$ref": "#"}]}},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "maxLength": 100_000},
    {"type": "string", "pattern": "[0-9]"},
    {"type": "string", "pattern": "^(abc|é|日本)$", "maxLength": 9},
    {"type": "number", "minimum": -1.5, "exclusiveMaximum": 12},
    {"type": "object", "patternProperties": {"^a": {"type": "integer"}}, "required": ["name"]},
    {"enum": ["ab", "abc", 12, None, {"name": [1, 2]}, "é\n"]},
    {"type": "array", "prefixItems": [{"type": "null"}, {"type": "boolean"}], "maxItems": 3},
    {"type": "object", "properties": {"ab": {}, "abc": {}, "b": {}}, "additionalProperties": True},
]
END = next(iter(VOCABULARY.eos))


@pytest.mark.parametrize("whitespace", ["fixed", "compact", "pretty", "adaptive", "flexible"])
@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_mask_is_brute_force_over_every_token(number: int, whitespace: str) -> None:
    grammar = compiled(SCHEMAS[number], whitespace=whitespace)
    fresh = compiled(SCHEMAS[number], whitespace=whitespace)
    rng = random.Random(number)
    for _ in range(3):
        _, _, path = random_walk(grammar, rng, steps=12, limit=30)
        cuts = sorted({0, len(path), *(rng.randrange(len(path) + 1) for _ in range(4))})
        for cut in cuts:
            matcher = grammar.start()
            for token in path[:cut]:
                matcher.advance(token)
            assert ids_of(matcher.mask()) == brute_force(fresh, path[:cut])


def test_mask_layout_and_sharing() -> None:
    matcher = compiled(PERSON, whitespace="fixed").start()
    mask = matcher.mask()
    assert mask.dtype == np.uint32
    assert mask.shape == ((VOCABULARY.size + 31) // 32,)
    brace = ord("{")
    assert mask[brace // 32] >> (brace % 32) & 1
    assert matcher.mask() is mask
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = 1
    assert matcher.legal_ids().tolist() == ids_of(mask)


def test_end_of_sequence_is_legal_exactly_at_the_end() -> None:
    matcher = compiled(PERSON, whitespace="fixed").start()
    text = '{"name": "x", "age": 12}'
    for i, byte in enumerate(text.encode()):
        assert matcher.is_allowed(END) == matcher.is_accepting() == (END in ids_of(matcher.mask()))
        assert not matcher.is_accepting(), text[:i]
        matcher.advance(byte)
    assert ids_of(matcher.mask()) == [END]
    matcher.advance(END)
    assert matcher.is_finished()
    assert ids_of(matcher.mask()) == []
    assert not matcher.is_allowed(END)
    with pytest.raises(IllegalToken):
        matcher.advance(END)
    matcher.rollback(1)
    assert not matcher.is_finished()
    assert matcher.is_accepting()


def test_an_illegal_token_leaves_the_matcher_unchanged() -> None:
    matcher = compiled(PERSON, whitespace="fixed").start()
    assert feed(matcher, '{"name": "')
    before = matcher.mask()
    for token in (ord("\n"), END, VOCABULARY.size - 2, VOCABULARY.size, -1):
        with pytest.raises(IllegalToken):
            matcher.advance(token)
    assert matcher.mask() is before
    assert feed(matcher, 'x", "age": 1}')


def test_rollback_is_a_fresh_replay_and_copies_are_independent() -> None:
    grammar = compiled({"type": "array", "items": {}, "minItems": 9})
    rng = random.Random(5)
    _, _, path = random_walk(grammar, rng, steps=25, limit=25)
    assert len(path) == 25
    matcher = grammar.start()
    for token in path:
        matcher.advance(token)
    for back in (1, 3, 7):
        other = matcher.copy()
        other.rollback(back)
        replay = grammar.start()
        for token in path[: len(path) - back]:
            replay.advance(token)
        assert np.array_equal(other.mask(), replay.mask())
        for token in path[len(path) - back :]:
            other.advance(token)
        assert np.array_equal(other.mask(), matcher.mask())
    with pytest.raises(ValueError, match="can't undo"):
        matcher.rollback(len(path) + 1)


def test_forced_bytes_are_shared_by_every_continuation() -> None:
    matcher = compiled(PERSON, whitespace="fixed").start()
    assert matcher.forced_bytes() == b'{"name": "'
    assert feed(matcher, matcher.forced_bytes())
    assert matcher.forced_bytes() == b""
    assert feed(matcher, 'Ada"')
    assert matcher.forced_bytes() == b', "age": '
    assert feed(matcher, ', "age": 3')
    assert matcher.forced_bytes() == b""  # another digit, or the end of the object
    assert feed(matcher, "}")
    assert matcher.forced_bytes() == b""  # complete
    optional = compiled({"type": "object", "properties": {"a": {}}}).start()
    assert optional.forced_bytes() == b"{"


def test_what_was_dropped_is_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = compiled(SCHEMAS[1])
    _, _, path = random_walk(reference, random.Random(2), steps=60, limit=60)
    expected = []
    matcher = reference.start()
    for token in path:
        expected.append(matcher.mask())
        matcher.advance(token)
    monkeypatch.setattr("grammar.machine.MAX_STATES", 5)
    grammar = compiled(SCHEMAS[1])
    for _ in range(2):
        matcher = grammar.start()
        for token, mask in zip(path, expected, strict=True):
            assert np.array_equal(matcher.mask(), mask)
            matcher.advance(token)
        assert grammar.states <= 6


def test_grammars_of_a_past_generation_go_on_working() -> None:
    vocabulary = Vocabulary(VOCABULARY.tokens, VOCABULARY.special, VOCABULARY.eos)
    schema = {**PERSON, "patternProperties": {"^k[0-9]$": {"type": "string", "pattern": "^a+$"}}}
    old = compile_json_schema(schema, vocabulary)
    matcher = old.start()
    assert feed(matcher, '{"name": "ab')
    workspace = vocabulary.workspace
    vocabulary.begin_generation()
    assert vocabulary.workspace is not workspace
    assert vocabulary.workspace.lock is workspace.lock
    compile_json_schema({"type": "string", "pattern": "^(x|yz)*[a-z]{3}$"}, vocabulary)
    new = compile_json_schema(schema, vocabulary).start()
    assert feed(new, '{"name": "ab')
    for text in ('", "age": 1, "', "k1", '": "a', 'a", "k', '2": "a"', "}"):
        assert np.array_equal(new.mask(), matcher.mask()), text
        assert feed(matcher, text), text
        assert feed(new, text), text
    assert matcher.is_accepting()


def test_a_full_workspace_is_followed_by_a_new_one() -> None:
    vocabulary = Vocabulary(VOCABULARY.tokens, VOCABULARY.special, VOCABULARY.eos)
    first = vocabulary.workspace
    first.limit_bytes = 1
    for i in range(20):
        compile_json_schema({"const": i}, vocabulary).start().mask()
    assert vocabulary.workspace is not first


def test_a_vocabulary_without_a_needed_byte_is_told_not_guessed() -> None:
    vocabulary = Vocabulary([b"{", b"a", b""], {2: "<e>"}, [2])
    matcher = compile_json_schema({"type": "object"}, vocabulary).start()
    matcher.advance(0)
    for _ in range(2):
        with pytest.raises(NoLegalContinuation) as error:
            matcher.mask()
        assert "expecting" in error.value.state


def test_a_dropped_grammar_dies_by_count() -> None:
    gc.disable()
    try:
        grammar = compiled({"type": "object", "properties": {"q": {"type": "string"}}})
        random_walk(grammar, random.Random(1))
        dead = weakref.ref(grammar._machine)
        states = [weakref.ref(grammar._machine.context)]
        del grammar
        assert dead() is None
        assert states[0]() is None
    finally:
        gc.enable()


def test_threads_share_a_grammar() -> None:
    grammar = compiled(SCHEMAS[1])
    reference = compiled(SCHEMAS[1])
    failures: list[BaseException] = []

    def run(seed: int) -> None:
        try:
            for _ in range(5):
                _, _, path = random_walk(grammar, random.Random(seed), steps=30, limit=40)
                matcher = reference.start()
                for token in path:
                    assert matcher.is_allowed(token)
                    matcher.advance(token)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
