"""Constrained decoding over a vocabulary: schemas in, token masks out.

    vocabulary = Vocabulary(tokens, special, eos)
    grammar = compile_json_schema(schema, vocabulary)
    matcher = grammar.start()
    while not matcher.is_finished():
        matcher.advance(pick(matcher.mask()))

A lazily determinised pushdown automaton over bytes, with interned states and memoised masks. Code
map, in reading order: ``vocabulary`` and ``trie`` (tokens), ``regular`` and ``ecma`` (regular
languages), ``automaton``, ``content`` and ``strings`` (terminals), ``walk`` (terminals over the
vocabulary), ``nodes`` and ``containers`` (the grammar and its stacks), ``machine`` (states and
masks), ``distance`` and ``fewest`` (how far it is to the end), ``matcher`` (the public face),
``schema`` (the JSON Schema front end), ``languages``
(patterns, choices, GBNF, free text, by way of ``text``, ``sequences`` and ``gbnf``), ``cache``.

Not safe to use a ``Matcher`` from two threads at once; everything else is.
"""

from grammar.budget import Budget
from grammar.cache import CacheResult, CacheStats, GrammarCache, schema_key
from grammar.errors import (
    GrammarError,
    GrammarSourceError,
    IllegalToken,
    Issue,
    NoLegalContinuation,
    SchemaBudgetError,
    SchemaError,
    StepBudgetError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from grammar.fewest import Fewest
from grammar.languages import compile_choice, compile_free_text, compile_gbnf, compile_regex
from grammar.marks import Marks
from grammar.matcher import Grammar, Matcher, Report
from grammar.schema.compile import compile_json_schema
from grammar.style import WHITESPACE_MODES
from grammar.turn import compile_turn
from grammar.vocabulary import Vocabulary

__all__ = [
    "WHITESPACE_MODES",
    "Budget",
    "CacheResult",
    "CacheStats",
    "Fewest",
    "Grammar",
    "GrammarCache",
    "GrammarError",
    "GrammarSourceError",
    "IllegalToken",
    "Issue",
    "Marks",
    "Matcher",
    "NoLegalContinuation",
    "Report",
    "SchemaBudgetError",
    "SchemaError",
    "StepBudgetError",
    "UnsatisfiableSchemaError",
    "UnsupportedSchemaError",
    "Vocabulary",
    "compile_choice",
    "compile_free_text",
    "compile_gbnf",
    "compile_json_schema",
    "compile_regex",
    "compile_turn",
    "schema_key",
]
