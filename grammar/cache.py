"""GrammarCache: one compilation however many requests ask, kept under the source's hash.

The key is SHA-256 over the kind of source (schema, regex, ...), its canonical text (a schema's key
order kept: it is the output's order), the options, the compiler's version and the vocabulary's
fingerprint. Entries are bounded in bytes and dropped least recently used first. Failures are told
to everyone who waited and are not kept.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from grammar.budget import Budget
from grammar.languages import compile_choice, compile_gbnf, compile_regex
from grammar.matcher import Grammar
from grammar.schema.compile import compile_json_schema
from grammar.vocabulary import Vocabulary
from grammar.workspace import Workspace

COMPILER_VERSION = 4
DEFAULT_MAX_BYTES = 256 << 20
ENTRIES_BETWEEN_SUMS = 64
_encode = json.JSONEncoder(separators=(",", ":")).encode


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
    schema: dict[str, Any] | bool,
    vocabulary: Vocabulary,
    *,
    strict: bool,
    whitespace: str,
    key_order: str = "schema",
    formats: str = "assert",
    source: str | None = None,
) -> str:
    """The key under which a schema's grammar is kept: SHA-256 in hex."""
    options = {
        "strict": strict,
        "whitespace": whitespace,
        "key_order": key_order,
        "formats": formats,
    }
    if source is not None and extracts(schema):
        text = source.encode("utf-8", "surrogatepass")
        options["source"] = hashlib.sha256(text).hexdigest()
    return _key("json_schema", schema, vocabulary, options)


def extracts(schema: dict[str, Any] | bool) -> bool:
    """Whether ``x-extract`` is a name anywhere in the schema, be it a keyword there or not."""
    pending: list[Any] = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            if "x-extract" in value:
                return True
            pending += value.values()
        elif isinstance(value, list):
            pending += value
    return False


def _key(kind: str, source: Any, vocabulary: Vocabulary, options: dict[str, Any]) -> str:
    """The key of a grammar: everything that could make it another one."""
    whole = {
        "kind": kind,
        "compiler": COMPILER_VERSION,
        **options,
        "vocabulary": vocabulary.fingerprint,
    }
    return hashlib.sha256(_encode([source, whole]).encode()).hexdigest()


class GrammarCache:
    """A thread-safe cache of grammars, bounded in bytes (an estimate, right to about a quarter).

    The bound is for what grammars hold by themselves: nodes, stacks, states. The terminals that
    they share have one of their own (``workspace.DEFAULT_LIMIT``); when those are begun anew, the
    grammars that hold the old ones go.

    All ``get_...`` methods block while a grammar is compiled (call them off an event loop), and
    raise what its compiler raises, for every caller that waited.

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
        self._roughly = self._since_sum = 0
        self._shared: Callable[[], Workspace | None] = lambda: None

    @property
    def budget(self) -> Budget | None:
        """The compile budget of every entry; None for the default."""
        return self._budget

    def get_json_schema(
        self,
        schema: dict[str, Any] | bool,
        vocabulary: Vocabulary,
        *,
        strict: bool = True,
        whitespace: str = "adaptive",
        key_order: str = "schema",
        formats: str = "assert",
        source: str | None = None,
    ) -> CacheResult:
        """The grammar of a schema, compiled if it is not there.

        A source counts only where the schema may have ``x-extract`` (``extracts``).

        Raises:
            SchemaError: as ``compile_json_schema``.
        """
        options: dict[str, Any] = {
            "strict": strict,
            "whitespace": whitespace,
            "key_order": key_order,
            "formats": formats,
            "source": source,
        }
        return self._get(
            schema_key(schema, vocabulary, **options),
            lambda: compile_json_schema(schema, vocabulary, budget=self._budget, **options),
        )

    def get_regex(self, pattern: str, vocabulary: Vocabulary) -> CacheResult:
        """The grammar of a pattern, compiled if it is not there.

        Raises:
            GrammarSourceError: as ``compile_regex``.
        """
        return self._get(
            _key("regex", pattern, vocabulary, {}),
            lambda: compile_regex(pattern, vocabulary, budget=self._budget),
        )

    def get_choice(self, choices: Sequence[str], vocabulary: Vocabulary) -> CacheResult:
        """The grammar of a list of choices (in any order), compiled if it is not there.

        Raises:
            GrammarSourceError: as ``compile_choice``.
        """
        return self._get(
            _key("choice", sorted(choices), vocabulary, {}),
            lambda: compile_choice(choices, vocabulary),
        )

    def get_gbnf(self, text: str, vocabulary: Vocabulary) -> CacheResult:
        """The grammar of a GBNF text, compiled if it is not there.

        Raises:
            GrammarSourceError: as ``compile_gbnf``.
        """
        return self._get(
            _key("gbnf", text, vocabulary, {}),
            lambda: compile_gbnf(text, vocabulary, budget=self._budget),
        )

    def get_made(
        self, kind: str, source: Any, vocabulary: Vocabulary, make: Callable[[], Grammar]
    ) -> CacheResult:
        """A grammar that somebody else makes, for a turn of a chat, say.

        Args:
            kind, source: all that it is made of, as JSON; ``kind`` tells it from other sources.
            make: makes it; called once, however many ask for the same meanwhile.

        Raises:
            Exception: as ``make``.
        """
        return self._get(_key(kind, source, vocabulary, {}), make)

    def _get(self, key: str, make: Callable[[], Grammar]) -> CacheResult:
        """What is kept under a key, or what ``make`` makes, once for all who ask meanwhile."""
        began = time.perf_counter()
        with self._lock:
            found = self._entries.get(key)
            if found is not None and found.is_outgrown:
                del self._entries[key]
                self._evictions += 1
                found = None
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
        try:
            if first:
                self._make(key, make, future)
            grammar = future.result()
        finally:
            del future  # a failure knows this frame, and its future knows the failure: no circle
        return CacheResult(grammar, key, not first, (time.perf_counter() - began) * 1000)

    def _make(self, key: str, make: Callable[[], Grammar], future: Future[Grammar]) -> None:
        """Tell a future what ``make`` makes, and keep it; or how it failed."""
        try:
            grammar = make()
        except BaseException as error:
            with self._lock:
                del self._compiling[key]
            future.set_exception(error)
        else:
            with self._lock:
                del self._compiling[key]
                self._entries[key] = grammar
                self._evict()
            future.set_result(grammar)
        finally:
            del future

    def _evict(self) -> None:
        """Drop what is too much. Grammars grow while they are used, so their sizes are added up
        anew, but while there is room not for every new entry."""
        newest = next(reversed(self._entries.values()))
        self._roughly += newest.memory_bytes()
        self._since_sum += 1
        shared = newest.machine.context.workspace
        if self._shared() is not shared:  # a generation is over: nobody else should hold it
            self._shared = weakref.ref(shared)
            for key in [key for key, entry in self._entries.items() if entry.is_outgrown]:
                if self._entries[key] is not newest:
                    del self._entries[key]
                    self._evictions += 1
        used = self._roughly / max(1, self.max_bytes)
        often = ENTRIES_BETWEEN_SUMS if used < 0.5 else ENTRIES_BETWEEN_SUMS // 8
        if used <= 1 and self._since_sum < (often if used < 0.9 else 1):
            return
        sizes = {key: grammar.memory_bytes() for key, grammar in self._entries.items()}
        total = sum(sizes.values())
        self._since_sum = 0
        while total > self.max_bytes and len(self._entries) > 1:
            key, _ = self._entries.popitem(last=False)
            total -= sizes[key]
            self._evictions += 1
        self._roughly = total

    def stats(self) -> CacheStats:
        """Counts and sizes."""
        with self._lock:
            size = sum(grammar.memory_bytes() for grammar in self._entries.values())
            return CacheStats(self._hits, self._misses, self._evictions, len(self._entries), size)
