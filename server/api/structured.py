"""`response_format` and its other spellings -> a compiled grammar, off the event loop.

Invariant: a grammar is compiled once for a source however many requests wait for it (the cache sees
to that), never on the event loop, and what a non-strict schema asks for in vain is reported.

Read next: `grammar/` for how a schema becomes a grammar; `server/api/chat.py` for who asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

from grammar import (
    CacheResult,
    Grammar,
    GrammarCache,
    GrammarError,
    GrammarSourceError,
    SchemaBudgetError,
    Vocabulary,
)
from grammar.cache import extracts
from grammar.turn_parts import ChoiceValue, GbnfValue, JsonValue, PatternValue, ValueSource
from parsing import ResponseTemplate
from server.api.answerformat import (
    ANY_OBJECT,
    FREE_TEXT,
    AnswerFormat,
    Bound,
    require_source,
    schema_of,
)
from server.api.errors import to_api_error
from server.api.formats import (
    AnyFormat,
    ChoiceFormat,
    GrammarFormat,
    JsonSchemaFormat,
    RegexFormat,
    TextFormat,
    Wanted,
)
from server.api.kept import KeptSchemas
from server.api.tools import Offer
from server.api.toolschemas import check_schemas, turn_error
from server.turns import TurnGrammar, turn_grammar

#: How many grammars are compiled at a time; the rest wait without holding a worker thread.
_COMPILERS = 2

_T = TypeVar("_T")


class FormatCompiler:
    """Compiles the formats of one model's requests; shared by all of them."""

    def __init__(
        self,
        cache: GrammarCache,
        vocabulary: Vocabulary,
        whitespace: str,
        key_order: str = "schema",
        formats: str = "assert",
    ) -> None:
        self._cache = cache
        self._vocabulary = vocabulary
        self._whitespace = whitespace
        self._key_order = key_order
        self._formats = formats
        self._limiter: anyio.CapacityLimiter | None = None
        self._kept = KeptSchemas(key_order=key_order, formats=formats)
        self._bounds: WeakKeyDictionary[Grammar, Bound] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._faults = 0

    async def compile(self, wanted: Wanted | None, *, source: str | None = None) -> AnswerFormat:
        """The grammar of what a request wants.

        Args:
            source: what `x-extract` extracts from; None: nothing is known.

        Raises:
            ApiError: the schema (pattern, grammar, ...) is invalid, can't be enforced, or is too
                complex; or it extracts, and nothing stands in the source.
        """
        if wanted is None or isinstance(wanted.format, TextFormat):
            return FREE_TEXT
        wanted = self.resolved(wanted)
        require_source(source, schema_of(wanted.format) or {})
        result, bound = await self._compiled(wanted, source)
        return AnswerFormat(
            grammar=result.grammar,
            compile_ms=result.compile_ms,
            cache="hit" if result.hit else "miss",
            bound=bound,
        )

    async def turn(
        self,
        template: ResponseTemplate,
        prompt: str,
        *,
        content: Wanted | None,
        source: str | None = None,
        offer: Offer | None,
        reasoning_limit: int | None,
    ) -> TurnGrammar:
        """The grammar of a whole turn that answers `prompt` and is read by `template`.

        Args:
            content: what the content must be, compiled by itself before.
            source: what `x-extract` in it, and in the schemas of the tools, extracts from.
            offer: the tools that may be called.

        Raises:
            ApiError: a tool's schema can't be used; the whole is too complex.
        """
        for tool in () if offer is None else offer.tools:
            require_source(source, tool.schema_)
        field = "response_format" if content is None else content.field
        make = partial(
            turn_grammar,
            template,
            vocabulary=self._vocabulary,
            cache=self._cache,
            content=None if content is None else self._source(content.format, source),
            tools=[] if offer is None else [tool.model_dump() for tool in offer.tools],
            tool_choice=None if offer is None else offer.as_choice(),
            parallel=offer is None or offer.parallel,
            reasoning_limit=reasoning_limit,
            prefix=prompt,
            source=source,
            whitespace=self._whitespace,
            budget=self._cache.budget,
        )

        def checked() -> TurnGrammar:
            if offer is not None:
                check_schemas(offer, self._vocabulary, self._cache, source)
            return make()

        try:
            return await self._run(checked)
        except GrammarError as error:
            of_content = (
                content is not None
                and isinstance(error, GrammarSourceError)
                and error.problem != "too complex"
            )
            if offer is not None and not of_content:
                raise turn_error(error, offer) from error
            raise to_api_error(error, field=field) from error
        except RecursionError as error:
            raise to_api_error(SchemaBudgetError("it is nested too deeply"), field=field) from error

    async def keep(self, wanted: Wanted, *, source: str | None = None) -> dict[str, Any]:
        """Compile a schema, fill in its first mask, and remember it under its hash.

        Args:
            source: what `x-extract` extracts from, of the grammar that is made now. Whoever asks
                for the schema by its hash brings a source again.

        Returns:
            hash, what is enforced (`schema`), `bounds`, `size_bytes`, `states` (met so far; they
            are made as answers need them), `compile_ms` and whether it was `cached`.

        Raises:
            ApiError: as `compile`.
        """
        asked = wanted.format
        assert isinstance(asked, JsonSchemaFormat)
        require_source(source, asked.json_schema.schema_ or {})
        result, bound = await self._compiled(wanted, source)
        assert bound is not None
        matcher = result.grammar.start()
        await anyio.to_thread.run_sync(matcher.mask, abandon_on_cancel=True)
        self._kept.remember(result.key, asked)
        return {
            "hash": result.key,
            "schema": bound.report,
            "bounds": list(result.grammar.report.bounds),
            "size_bytes": result.grammar.memory_bytes(),
            "states": result.grammar.states,
            "compile_ms": round(result.compile_ms, 3),
            "cached": result.hit,
        }

    def resolved(self, wanted: Wanted) -> Wanted:
        """The same with the schema itself where it was asked for by its hash.

        Raises:
            ApiError: 400, as `KeptSchemas.resolved`.
        """
        return self._kept.resolved(wanted)

    async def _compiled(
        self, wanted: Wanted, source: str | None = None
    ) -> tuple[CacheResult, Bound | None]:
        asked = wanted.format
        name = asked.json_schema.name if isinstance(asked, JsonSchemaFormat) else None
        shown = name if wanted.field == "response_format" else None
        try:
            return await self._run(partial(self._make, asked, source))
        except GrammarError as error:
            raise to_api_error(error, schema_name=shown, field=wanted.field) from error
        except RecursionError as error:
            too_deep = SchemaBudgetError("it is nested too deeply")
            raise to_api_error(too_deep, schema_name=shown, field=wanted.field) from error

    def warm_up(self) -> None:
        """Build what every grammar of this vocabulary shares (its byte trie, the string masks)."""
        result = self._cache.get_json_schema(
            ANY_OBJECT,
            self._vocabulary,
            strict=True,
            whitespace=self._whitespace,
            key_order=self._key_order,
        )
        matcher = result.grammar.start()
        for token in self._opening_tokens():
            matcher.mask()
            if matcher.is_allowed(token):
                matcher.advance(token)
        matcher.mask()

    def _opening_tokens(self) -> list[int]:
        """The tokens `{` and `"`, as far as the vocabulary has them: they lead into a string."""
        tokens = self._vocabulary.tokens
        return [tokens.index(text) for text in (b"{", b'"') if text in tokens]

    def stats(self) -> dict[str, Any]:
        """The figures of the grammar cache."""
        return asdict(self._cache.stats())

    @property
    def faults(self) -> int:
        """How many complete answers did not fit a schema that was enforced whole."""
        return self._faults

    def count_fault(self) -> None:
        """There was another of them."""
        self._faults += 1

    def _make(self, asked: AnyFormat, source: str | None) -> tuple[CacheResult, Bound | None]:
        result, schema = self._get(asked, source), schema_of(asked)
        if schema is None:
            return result, None
        return result, self._bound(result.grammar, schema, self._formats_of(asked))

    def _formats_of(self, asked: AnyFormat) -> str:
        own = asked.json_schema.formats if isinstance(asked, JsonSchemaFormat) else None
        return own or self._formats

    def _bound(self, grammar: Grammar, schema: dict[str, Any], formats: str) -> Bound:
        """One for a grammar, as long as it lives: the same schema has the same."""
        with self._lock:
            found = self._bounds.get(grammar)
        if found is None:
            found = Bound.of(grammar, schema, formats)
            with self._lock:
                self._bounds[grammar] = found
        return found

    def _get(self, asked: AnyFormat, source: str | None) -> CacheResult:
        cache, vocabulary = self._cache, self._vocabulary
        key_order = self._key_order
        match asked:
            case RegexFormat():
                return cache.get_regex(asked.pattern, vocabulary)
            case ChoiceFormat():
                return cache.get_choice(asked.choices, vocabulary)
            case GrammarFormat():
                return cache.get_gbnf(asked.grammar, vocabulary)
            case JsonSchemaFormat():
                schema = asked.json_schema.schema_
                strict = bool(asked.json_schema.strict)
                schema = {} if schema is None else schema
                key_order = asked.json_schema.key_order or key_order
            case _:
                schema, strict = ANY_OBJECT, True
        return cache.get_json_schema(
            schema,
            vocabulary,
            strict=strict,
            whitespace=self._whitespace,
            key_order=key_order,
            formats=self._formats_of(asked),
            source=source,
        )

    def _source(self, asked: AnyFormat, source: str | None) -> ValueSource:
        """The same as a part of a turn."""
        match asked:
            case RegexFormat():
                return PatternValue(asked.pattern)
            case ChoiceFormat():
                return ChoiceValue(tuple(asked.choices))
            case GrammarFormat():
                return GbnfValue(asked.grammar)
            case JsonSchemaFormat():
                spec = asked.json_schema
                schema = {} if spec.schema_ is None else spec.schema_
                strict, order = bool(spec.strict), spec.key_order or self._key_order
            case _:
                schema, strict, order = ANY_OBJECT, True, self._key_order
        source = source if extracts(schema) else None
        return JsonValue(
            schema,
            origins=(("", "", strict),),
            key_order=order,
            formats=self._formats_of(asked),
            source=source,
        )

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._limiter is None:  # belongs to the event loop, so it is made inside it
            self._limiter = anyio.CapacityLimiter(_COMPILERS)
        # A client that goes away doesn't stop the compilation: the next one will want it.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)
