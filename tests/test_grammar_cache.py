"""The grammar cache: keys, single flight, eviction, and failures."""

from __future__ import annotations

import gc
import random
import threading
import time
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from grammar import (
    Grammar,
    GrammarCache,
    SchemaError,
    UnsatisfiableSchemaError,
    Vocabulary,
    schema_key,
)
from tests.grammar_support import VOCABULARY

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}}


def test_second_request_is_a_hit() -> None:
    cache = GrammarCache()
    first = cache.get_json_schema(SCHEMA, VOCABULARY)
    second = cache.get_json_schema(SCHEMA, VOCABULARY)
    assert not first.hit
    assert first.compile_ms > 0
    assert second.hit
    assert second.grammar is first.grammar
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (1, 1, 1)
    assert stats.bytes > 0


def test_the_key_names_everything_that_matters() -> None:
    def key(schema: Any = SCHEMA, vocabulary: Vocabulary = VOCABULARY, **options: Any) -> str:
        return schema_key(schema, vocabulary, **{"strict": True, "whitespace": "fixed", **options})

    reordered = {"type": "object", "properties": {"b": {}, "a": {"type": "integer"}}}
    other = Vocabulary([b"a", b""], {}, [1])
    keys = {
        key(),
        key(reordered),
        key(strict=False),
        key(whitespace="compact"),
        key(key_order="free"),
        key(formats="annotate"),
        key(vocabulary=other),
    }
    assert len(keys) == 7
    assert key(dict(SCHEMA)) in keys


def test_one_compilation_however_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    from grammar import cache as module

    calls = []
    original = module.compile_json_schema

    def slow(*args: Any, **kwargs: Any) -> Grammar:
        calls.append(threading.get_ident())
        time.sleep(0.05)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, "compile_json_schema", slow)
    cache = GrammarCache()
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: cache.get_json_schema(SCHEMA, VOCABULARY), range(8)))
    assert len(calls) == 1
    assert len({id(r.grammar) for r in results}) == 1
    assert sum(not r.hit for r in results) == 1


def test_failures_reach_everyone_and_are_not_kept() -> None:
    cache = GrammarCache()
    bad = {"type": "string", "minLength": 3, "maxLength": 2}

    def attempt(_: int) -> str:
        with pytest.raises(UnsatisfiableSchemaError) as error:
            cache.get_json_schema(bad, VOCABULARY)
        return str(error.value)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(attempt, range(4)))) == 1
    assert cache.stats().entries == 0
    assert cache.get_json_schema(SCHEMA, VOCABULARY).hit is False


def test_the_least_recently_used_goes_first() -> None:
    def schema(name: str) -> dict[str, Any]:
        return {"type": "object", "properties": {name: {"type": "null"}}, "required": [name]}

    cache = GrammarCache()
    size = cache.get_json_schema(schema("a"), VOCABULARY).grammar.memory_bytes()
    cache.max_bytes = int(size * 2.5)
    cache.get_json_schema(schema("b"), VOCABULARY)
    assert cache.get_json_schema(schema("a"), VOCABULARY).hit
    cache.get_json_schema(schema("c"), VOCABULARY)  # b goes
    assert cache.stats().evictions == 1
    assert cache.get_json_schema(schema("a"), VOCABULARY).hit
    assert not cache.get_json_schema(schema("b"), VOCABULARY).hit
    cache.max_bytes = 1
    cache.get_json_schema(schema("d"), VOCABULARY)
    assert cache.stats().entries == 1


def _wordy(rng: random.Random) -> dict[str, Any]:
    """A schema that no other is like."""
    names = ["".join(rng.choices("abcdefghij", k=6)) for _ in range(5)]
    kinds = ({"type": "string"}, {"type": "integer"}, {"enum": names[:3]}, {"type": "boolean"})
    parts: dict[str, Any] = {name: rng.choice(kinds) for name in names}
    return {"type": "object", "properties": parts, "required": names[:3]}


def _wander(grammar: Grammar, rng: random.Random) -> None:
    """Write some tokens, a mask each."""
    matcher = grammar.start()
    for _ in range(40):
        mask = matcher.mask()
        legal = [t for t in range(VOCABULARY.size) if int(mask[t >> 5]) >> (t & 31) & 1]
        token = rng.choice(legal)
        if token in VOCABULARY.eos:
            return
        matcher.advance(token)


def test_the_bound_is_true() -> None:
    """What a cache says that its grammars take is what is freed when they go, to a quarter."""
    rng = random.Random(5)
    cache = GrammarCache()
    _wander(cache.get_json_schema(_wordy(rng), VOCABULARY).grammar, rng)
    tracemalloc.start()
    try:
        for _ in range(150):
            _wander(cache.get_json_schema(_wordy(rng), VOCABULARY).grammar, rng)
        gc.collect()
        told, before = cache.stats().bytes, tracemalloc.get_traced_memory()[0]
        cache.max_bytes = 1
        cache.get_json_schema({"type": "null"}, VOCABULARY)  # it alone stays
        gc.collect()
        freed = before - tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert cache.stats().entries == 1
    assert 0.75 * freed < told < 1.25 * freed


def test_grammars_go_with_their_generation_of_terminals() -> None:
    vocabulary = Vocabulary(VOCABULARY.tokens, VOCABULARY.special, list(VOCABULARY.eos))
    cache = GrammarCache()
    first = cache.get_json_schema(SCHEMA, vocabulary).grammar
    old = weakref.ref(vocabulary.workspace)
    broken = {"type": "object", "properties": {"a": {"type": "integer", "minimum": "x"}}}
    gc.disable()
    try:
        with pytest.raises(SchemaError):
            cache.get_json_schema(broken, vocabulary)
        vocabulary.begin_generation()
        assert first.is_outgrown
        del first
        cache.get_json_schema({"type": "null"}, vocabulary)
        assert cache.stats().entries == 1
        assert old() is None  # nothing waits for the collector, not even the failure
    finally:
        gc.enable()
    again = cache.get_json_schema(SCHEMA, vocabulary)
    assert not again.hit
    assert cache.get_json_schema(SCHEMA, vocabulary).grammar is again.grammar
