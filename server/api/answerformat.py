"""What an answer is bound to, as everything behind the compilation knows it.

    AnswerFormat ─┬─ Grammar              what was enforced while generating
                  └─ Bound                of JSON: the schema, the report on it, its validator

Read next: `server/api/structured.py`, which makes them; `server/api/judging.py`, which asks them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from grammar import Grammar
from grammar.cache import extracts
from server.api.errors import ApiError, issue_dict
from server.api.formats import AnyFormat, JsonObjectFormat, JsonSchemaFormat
from server.grounding.rules import KEYWORD
from server.validate import AnswerValidator

ANY_OBJECT: dict[str, Any] = {"type": "object"}

#: Extensions of the schema language are no keywords of JSON Schema, and need no note.
_OWN_KEYWORDS = "x-"


@dataclass(frozen=True, slots=True)
class Bound:
    """The JSON Schema that an answer is bound to, and what is made of it once.

    schema       as it was sent
    report       what of it is enforced (`gabarito.schema`)
    validator    of all of it
    says_ground  whether `x-ground` stands in it
    """

    schema: dict[str, Any]
    report: dict[str, Any]
    validator: AnswerValidator
    says_ground: bool

    @classmethod
    def of(cls, grammar: Grammar, schema: dict[str, Any], formats: str) -> Bound:
        """What is made of a schema whose grammar this is; `formats` as of its compilation."""
        validator = AnswerValidator(schema, formats=formats)
        return cls(schema, _report(grammar, validator), validator, says_ground(schema))


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """What an answer is bound to. `grammar` is None for free text.

    compile_ms  how long the grammar's compilation took, or the wait for it; None for free text
    bound       the JSON Schema, None where there is none
    """

    grammar: Grammar | None = None
    compile_ms: float | None = None
    cache: Literal["hit", "miss"] | None = None
    bound: Bound | None = None

    @property
    def is_structured(self) -> bool:
        """Whether the answer is bound to a grammar, and is content from end to end."""
        return self.grammar is not None

    @property
    def is_json(self) -> bool:
        """Whether a structured answer is one JSON text."""
        return self.bound is not None

    @property
    def report(self) -> dict[str, Any] | None:
        """`gabarito.schema`."""
        return None if self.bound is None else self.bound.report

    @property
    def is_enforced(self) -> bool:
        """Whether the grammar enforces all that was asked for."""
        return self.grammar is not None and not self.grammar.report.unenforced


FREE_TEXT = AnswerFormat()


def schema_of(asked: AnyFormat) -> dict[str, Any] | None:
    """The JSON Schema that an answer must fit, where the format is JSON."""
    match asked:
        case JsonSchemaFormat():
            return asked.json_schema.schema_ or {}
        case JsonObjectFormat():
            return ANY_OBJECT
        case _:
            return None


def says_ground(schema: dict[str, Any]) -> bool:
    """Whether `x-ground` stands in a schema."""
    return f'"{KEYWORD}"' in json.dumps(schema)


def require_source(source: str | None, schema: dict[str, Any]) -> None:
    """Check that there is something in a source that a schema extracts from. (Of no source at all
    the compilation says where it is missed.)

    Raises:
        ApiError: 400, there is nothing.
    """
    if source is not None and not source.strip() and extracts(schema):
        raise ApiError(
            400,
            "The schema extracts from a source ('x-extract'), and there is none: give 'source',"
            " or a user message.",
            param="source",
            code="missing_required_parameter",
        )


def _report(grammar: Grammar, validator: AnswerValidator) -> dict[str, Any]:
    """What was enforced while generating, and what of the rest is checked afterwards."""
    report = grammar.report
    unenforced = [
        {**issue_dict(issue), "checked": validator.checks(issue.keyword, issue.pointer)}
        for issue in report.unenforced
    ]
    facts: dict[str, Any] = {
        "enforced": not unenforced,
        "keywords": list(report.enforced),
        "unenforced": unenforced,
    }
    notes = [note for note in report.bounds if not note.startswith(_OWN_KEYWORDS)]
    return {**facts, "notes": notes} if notes else facts
