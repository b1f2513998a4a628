"""The error tree of the grammar package.

::

    GrammarError
    ├── SchemaError (also ValueError)      the schema itself is at fault
    │   ├── UnsupportedSchemaError         valid, but something in it can't be enforced
    │   ├── UnsatisfiableSchemaError       no value can satisfy it
    │   └── SchemaBudgetError              compiling it would cost more than the budget
    ├── GrammarSourceError (also ValueError)   a pattern, choices or a GBNF text is at fault
    ├── NoLegalContinuation                no token may follow: a bug, or a proof
    ├── StepBudgetError                    a mask would take more work than one step may
    └── IllegalToken                       a token was advanced that the mask forbids

Anything else that leaves this package is a bug.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One keyword that can't be enforced exactly: its name, where it stands, and why.

    ``pointer`` is the JSON Pointer (RFC 6901) of the schema object that holds the keyword.
    """

    keyword: str
    pointer: str
    reason: str

    def __str__(self) -> str:
        return f"{self.keyword} at {self.pointer or '(root)'}: {self.reason}"


class GrammarError(Exception):
    """Base class of everything this package raises on purpose."""


class SchemaError(GrammarError, ValueError):
    """The schema is not a valid JSON Schema, or not one that can be compiled.

    ``pointer`` is a JSON Pointer into the schema, ``keyword`` the keyword at fault (may be empty).
    """

    def __init__(self, message: str, *, pointer: str = "", keyword: str = "") -> None:
        where = f"{keyword} at {pointer or '(root)'}" if keyword else f"at {pointer or '(root)'}"
        super().__init__(f"{where}: {message}")
        self.message = message
        self.pointer = pointer
        self.keyword = keyword


class UnsupportedSchemaError(SchemaError):
    """Strict compilation met keywords that can't be enforced; all of them are in ``issues``."""

    def __init__(self, issues: Sequence[Issue]) -> None:
        assert issues
        first = issues[0]
        super().__init__(first.reason, pointer=first.pointer, keyword=first.keyword)
        self.issues = tuple(issues)

    def __str__(self) -> str:
        return "can't be enforced: " + "; ".join(str(issue) for issue in self.issues)


class UnsatisfiableSchemaError(SchemaError):
    """No JSON value satisfies the schema, so nothing could ever be generated."""


class SchemaBudgetError(SchemaError):
    """Compiling the schema would cost more than the compile budget allows."""


class GrammarSourceError(GrammarError, ValueError):
    """A regular expression, a list of choices or a GBNF text can't be compiled.

    Attributes:
        message: what is wrong, without the place.
        problem: ``invalid`` (no such text), ``unsupported`` (refused by name), ``unsatisfiable``
            (nothing could ever be generated) or ``too complex`` (over the compile budget).
        line, column: where, from 1; None where it is nowhere in particular.
    """

    def __init__(
        self,
        message: str,
        *,
        problem: str = "invalid",
        line: int | None = None,
        column: int | None = None,
    ) -> None:
        assert problem in ("invalid", "unsupported", "unsatisfiable", "too complex")
        where = "" if line is None else f"line {line}, column {column}: "
        super().__init__(where + message)
        self.message = message
        self.problem = problem
        self.line = line
        self.column = column


class NoLegalContinuation(GrammarError):
    """No token of the vocabulary may follow. ``state`` describes where the grammar stands."""

    def __init__(self, state: str) -> None:
        super().__init__(f"no token of the vocabulary can continue: {state}")
        self.state = state


class StepBudgetError(GrammarError):
    """A mask, or taking a token, would take more work than one step may; the matcher is unchanged.

    ``limit`` is the number of steps of regular-language work; ``state`` describes where the grammar
    stands.
    """

    def __init__(self, limit: int, state: str) -> None:
        super().__init__(f"one step would take more than {limit} steps of pattern work: {state}")
        self.limit = limit
        self.state = state


class IllegalToken(GrammarError):
    """A token was advanced that the current mask forbids; the matcher is unchanged."""
