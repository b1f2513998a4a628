"""`response_format` and its other spellings -> a compiled grammar, off the event loop.

Invariant: a grammar is compiled once for a source however many requests wait for it (the cache sees
to that), never on the event loop, and what a non-strict schema asks for in vain is reported.

Read next: `grammar/` for how a schema becomes a grammar; `server/api/chat.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import anyio
import anyio.to_thread

from grammar import CacheResult, Grammar, GrammarCache, GrammarError, SchemaBudgetError, Vocabulary
from server.api.errors import issue_dict, to_api_error
from server.api.formats import (
    AnyFormat,
    ChoiceFormat,
    GrammarFormat,
    JsonObjectFormat,
    JsonSchemaFormat,
    RegexFormat,
    TextFormat,
    Wanted,
)

#: How many grammars are compiled at a time; the rest wait without holding a worker thread.
_COMPILERS = 2

_ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What an answer is bound to. `grammar` is None for free text.

    compile_ms  how long the grammar's compilation took, or the wait for it; None for free text
    report      what of the schema is enforced (`gabarito.schema`), None where there is no schema
    is_json     whether a structured answer is one JSON text
    """

    grammar: Grammar | None = None
    compile_ms: float | None = None
    cache: Literal["hit", "miss"] | None = None
    report: dict[str, Any] | None = None
    is_json: bool = True

    @property
    def is_structured(self) -> bool:
        """Whether the answer is bound to a grammar, and is content from end to end."""
        return self.grammar is not None


FREE_TEXT = AnswerFormat()


class FormatCompiler:
    """Compiles the formats of one model's requests; shared by all of them."""

    def __init__(self, cache: GrammarCache, vocabulary: Vocabulary, whitespace: str) -> None:
        self._cache = cache
        self._vocabulary = vocabulary
        self._whitespace = whitespace
        self._limiter: anyio.CapacityLimiter | None = None

    async def compile(self, wanted: Wanted | None) -> AnswerFormat:
        """The grammar of what a request wants.

        Raises:
            ApiError: the schema (pattern, grammar, ...) is invalid, can't be enforced, or is too
                complex.
        """
        if wanted is None or isinstance(wanted.format, TextFormat):
            return FREE_TEXT
        asked = wanted.format
        name = asked.json_schema.name if isinstance(asked, JsonSchemaFormat) else None
        shown = name if wanted.field == "response_format" else None
        try:
            result = await self._run(partial(self._get, asked))
        except GrammarError as error:
            raise to_api_error(error, schema_name=shown, field=wanted.field) from error
        except RecursionError as error:
            too_deep = SchemaBudgetError("it is nested too deeply")
            raise to_api_error(too_deep, schema_name=shown, field=wanted.field) from error
        return AnswerFormat(
            grammar=result.grammar,
            compile_ms=result.compile_ms,
            cache="hit" if result.hit else "miss",
            report=_report(result.grammar) if isinstance(asked, JsonSchemaFormat) else None,
            is_json=isinstance(asked, JsonObjectFormat | JsonSchemaFormat),
        )

    def warm_up(self) -> None:
        """Build what every grammar of this vocabulary shares (its byte trie, the string masks)."""
        result = self._cache.get_json_schema(
            _ANY_OBJECT, self._vocabulary, strict=True, whitespace=self._whitespace
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

    def _get(self, asked: AnyFormat) -> CacheResult:
        cache, vocabulary = self._cache, self._vocabulary
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
            case _:
                schema, strict = _ANY_OBJECT, True
        return cache.get_json_schema(schema, vocabulary, strict=strict, whitespace=self._whitespace)

    async def _run(self, work: Callable[[], CacheResult]) -> CacheResult:
        if self._limiter is None:  # belongs to the event loop, so it is made inside it
            self._limiter = anyio.CapacityLimiter(_COMPILERS)
        # A client that goes away doesn't stop the compilation: the next one will want it.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)


def _report(grammar: Grammar) -> dict[str, Any]:
    unenforced = [issue_dict(issue) for issue in grammar.report.unenforced]
    return {"enforced": not unenforced, "unenforced": unenforced}
