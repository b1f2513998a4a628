"""GrammarCache: one compilation however many requests ask, kept under the schema's hash.

The key is SHA-256 over the schema's canonical text (key order kept: it is the output's order), the
options, the compiler's version and the vocabulary's fingerprint. Entries are bounded in bytes and
dropped least recently used first. Failures are told to everyone who waited and are not kept.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from grammar.matcher import Grammar
from grammar.schema.compile import Budget, compile_json_schema
from grammar.vocabulary import Vocabulary

COMPILER_VERSION = 1
DEFAULT_MAX_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class CacheResult:
    """A grammar, its key (hex SHA-256), whether it was there, and the milliseconds it took."""

    grammar: Grammar
    key: str
    hit: bool
    compile_ms: float


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was made; ``bytes`` and ``entries`` are of now."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int


def schema_key(
    schema: dict[str, Any] | bool, vocabulary: Vocabulary, *, strict: bool, whitespace: str
) -> str:
    """The key under which a grammar is kept: SHA-256 in hex."""
    options = {
        "compiler": COMPILER_VERSION,
        "strict": strict,
        "whitespace": whitespace,
        "vocabulary": vocabulary.fingerprint,
    }
    text = json.dumps([schema, options], separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


class GrammarCache:
    """A thread-safe cache of grammars, bounded in (estimated) bytes.

    Args:
        max_bytes: the least recently used entries go when their sum exceeds this; the newest
            always stays.
        budget: the compile budget of every entry.
    """

    def __init__(self, max_bytes: int = DEFAULT_MAX_BYTES, budget: Budget | None = None) -> None:
        self.max_bytes = max_bytes
        self._budget = budget
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, Grammar] = OrderedDict()
        self._compiling: dict[str, Future[Grammar]] = {}
        self._hits = self._misses = self._evictions = 0

    def get_json_schema(
        self,
        schema: dict[str, Any] | bool,
        vocabulary: Vocabulary,
        *,
        strict: bool = True,
        whitespace: str = "adaptive",
    ) -> CacheResult:
        """The grammar of a schema, compiled if it is not there. Blocks; call it off an event loop.

        Raises:
            SchemaError: as ``compile_json_schema``, for every caller that waited.
        """
        began = time.perf_counter()
        key = schema_key(schema, vocabulary, strict=strict, whitespace=whitespace)
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                self._hits += 1
                return CacheResult(found, key, True, 0.0)
            future = self._compiling.get(key)
            first = future is None
            if future is None:
                future = self._compiling[key] = Future()
                self._misses += 1
            else:
                self._hits += 1
        if first:
            try:
                grammar = compile_json_schema(
                    schema, vocabulary, strict=strict, whitespace=whitespace, budget=self._budget
                )
            except BaseException as error:
                with self._lock:
                    del self._compiling[key]
                future.set_exception(error)
                raise
            with self._lock:
                del self._compiling[key]
                self._entries[key] = grammar
                self._evict()
            future.set_result(grammar)
        grammar = future.result()
        return CacheResult(grammar, key, not first, (time.perf_counter() - began) * 1000)

    def _evict(self) -> None:
        sizes = {key: grammar.memory_bytes() for key, grammar in self._entries.items()}
        total = sum(sizes.values())
        while total > self.max_bytes and len(self._entries) > 1:
            key, _ = self._entries.popitem(last=False)
            total -= sizes[key]
            self._evictions += 1

    def stats(self) -> CacheStats:
        """Counts and sizes."""
        with self._lock:
            size = sum(grammar.memory_bytes() for grammar in self._entries.values())
            return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), size)
