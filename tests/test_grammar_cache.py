"""The grammar cache: keys, single flight, eviction, and failures."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from grammar import Grammar, GrammarCache, UnsatisfiableSchemaError, Vocabulary, schema_key
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
