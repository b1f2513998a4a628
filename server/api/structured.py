"""`response_format` -> a compiled grammar, off the event loop.

Invariant: a grammar is compiled once for a schema however many requests wait for it (the cache sees
to that), never on the event loop, and what a non-strict schema asks for in vain is reported.

Read next: `grammar/` for how a schema becomes a grammar; `server/api/chat.py` for who asks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import anyio
import anyio.to_thread

from grammar import CacheResult, Grammar, GrammarCache, GrammarError, SchemaBudgetError, Vocabulary
from server.api.errors import issue_dict, to_api_error
from server.api.fields import JsonObjectFormat, JsonSchemaFormat, TextFormat

#: How many schemas are compiled at a time; the rest wait without holding a worker thread.
_COMPILERS = 2

_ANY_OBJECT: dict[str, Any] = {"type": "object"}

Format = TextFormat | JsonObjectFormat | JsonSchemaFormat | None


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What an answer is bound to. `grammar` is None for free text.

    compile_ms  how long the grammar's compilation took, or the wait for it; None for free text
    report      the `gabarito` object of the answer, None where there is nothing to report
    """

    grammar: Grammar | None = None
    compile_ms: float | None = None
    cache: Literal["hit", "miss"] | None = None
    report: dict[str, Any] | None = None

    @property
    def is_structured(self) -> bool:
        """Whether the answer is one JSON text."""
        return self.grammar is not None


FREE_TEXT = AnswerFormat()


class FormatCompiler:
    """Compiles the formats of one model's requests; shared by all of them."""

    def __init__(self, cache: GrammarCache, vocabulary: Vocabulary, whitespace: str) -> None:
        self._cache = cache
        self._vocabulary = vocabulary
        self._whitespace = whitespace
        self._limiter: anyio.CapacityLimiter | None = None

    async def compile(self, wanted: Format) -> AnswerFormat:
        """The grammar of a `response_format`.

        Raises:
            ApiError: the schema is invalid, can't be enforced, or is too complex.
        """
        match wanted:
            case JsonObjectFormat():
                return _answer_format(await self._get(_ANY_OBJECT, strict=True))
            case JsonSchemaFormat():
                asked = wanted.json_schema
                schema = {} if asked.schema_ is None else asked.schema_
                try:
                    result = await self._get(schema, strict=bool(asked.strict))
                except GrammarError as error:
                    raise to_api_error(error, schema_name=asked.name) from error
                except RecursionError as error:
                    too_deep = SchemaBudgetError("it is nested too deeply")
                    raise to_api_error(too_deep, schema_name=asked.name) from error
                return _answer_format(result, _report(result.grammar))
            case _:
                return FREE_TEXT

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

    async def _get(self, schema: dict[str, Any], *, strict: bool) -> CacheResult:
        if self._limiter is None:  # belongs to the event loop, so it is made inside it
            self._limiter = anyio.CapacityLimiter(_COMPILERS)
        work = partial(
            self._cache.get_json_schema,
            schema,
            self._vocabulary,
            strict=strict,
            whitespace=self._whitespace,
        )
        # A client that goes away doesn't stop the compilation: the next one will want it.
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._limiter)


def _answer_format(result: CacheResult, report: dict[str, Any] | None = None) -> AnswerFormat:
    return AnswerFormat(
        grammar=result.grammar,
        compile_ms=result.compile_ms,
        cache="hit" if result.hit else "miss",
        report=report,
    )


def _report(grammar: Grammar) -> dict[str, Any]:
    unenforced = [issue_dict(issue) for issue in grammar.report.unenforced]
    return {"schema": {"enforced": not unenforced, "unenforced": unenforced}}
