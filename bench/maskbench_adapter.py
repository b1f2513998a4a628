"""Our engine as one adapter class for token-mask benchmark runners.

The runner gives ``tok`` (``bytes``: one bytes object per token id, b"" for special ones;
``special``: ids; ``eos``: an id; ``n``: how many) and calls, in order: ``compile(schema)``, which
raises where a schema is refused, ``reset()``, and then per token ``mask()``, ``allowed(t)``,
``commit(t)``; ``accepting()`` at the end. White space is ``flexible``, since the instances come in
several separator styles.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from grammar import Grammar, GrammarCache, Matcher, Vocabulary
from grammar.warm import warm_up


class Tokenizer(Protocol):
    """What the runner knows of a tokenizer."""

    bytes: list[bytes]
    special: set[int]
    eos: int
    n: int


class Gabarito:
    """The adapter; one instance a process, schemas one after another."""

    whitespace = "flexible"
    key_order = "schema"

    def __init__(self, tok: Tokenizer) -> None:
        self.tok = tok
        special = {i: f"<{i}>" for i in tok.special}
        self.vocabulary = Vocabulary(tok.bytes, special, [tok.eos])
        # What a server does once, before its first request; the collector's settings are its too,
        # and so is the cache, in which grammars stay until it is full.
        warm_up(self.vocabulary)
        self.cache = GrammarCache()
        gc.collect()
        gc.freeze()
        gc.set_threshold(10_000, 1_000, 1_000)
        self.grammar: Grammar | None = None
        self.matcher: Matcher | None = None

    def compile(self, schema: dict[str, Any] | bool) -> None:
        """Compile strictly: a keyword that can't be enforced is a refusal."""
        self.matcher = None
        self.grammar = self.cache.get_json_schema(
            schema, self.vocabulary, whitespace=self.whitespace, key_order=self.key_order
        ).grammar

    def reset(self) -> None:
        """Begin a new text."""
        assert self.grammar is not None
        self.matcher = self.grammar.start()

    def mask(self) -> None:
        """Compute the mask."""
        assert self.matcher is not None
        self.matcher.mask()

    def allowed(self, token: int) -> bool:
        """Whether the mask allows a token."""
        assert self.matcher is not None
        return self.matcher.is_allowed(token)

    def commit(self, token: int) -> None:
        """Take a token."""
        assert self.matcher is not None
        self.matcher.advance(token)

    def accepting(self) -> bool:
        """Whether the text may end here."""
        assert self.matcher is not None
        return self.matcher.is_accepting()


class GabaritoFreeOrder(Gabarito):
    """The same with keys in any order, which some of the instances need."""

    key_order = "free"
