"""All of the linter over one schema, or over the tools of a request.

Invariant: a report says as much about a schema that can't be compiled as about one that can.

Read next: `server/lint_cli.py` and `server/api/schemas.py`, which show it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from grammar import (
    Issue,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
    Vocabulary,
    compile_json_schema,
)
from grammar.schema.extraction import NO_SOURCE
from server.lint.dialects import Dialect, dialect_findings, tools_over_limit
from server.lint.measures import counts
from server.lint.places import Schema
from server.lint.rules import Finding, rule_findings
from server.pointers import pointer_of

#: Most findings of one rule (and target) in a report; the rest is counted.
MAX_OF_A_KIND = 100


@dataclass(frozen=True, slots=True)
class LintReport:
    """What was found.

    omitted   how many findings of a kind (`rule`, or `target:rule`) were left out as too many
    counts    the figures that servers limit: properties, depth, enum_values, ...
    bounds    where this server enforces something narrower than the schema says, and why
    """

    findings: tuple[Finding, ...]
    omitted: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    bounds: tuple[str, ...] = ()

    @property
    def is_enforced(self) -> bool:
        """Whether this server takes the schema with strict: true."""
        return not any(finding.severity == "error" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """As the API and `gabarito lint --json` show it."""
        return {
            "enforced": self.is_enforced,
            "findings": [finding.as_dict() for finding in self.findings],
            "omitted": dict(self.omitted),
            "counts": dict(self.counts),
            "bounds": list(self.bounds),
        }


def lint_schema(schema: Schema, dialects: Iterable[Dialect] = ()) -> LintReport:
    """Everything that is to be said of a schema.

    Args:
        schema: a JSON Schema.
        dialects: the other servers whose view is wanted.

    Never raises for a wrong schema: that is a finding of severity `error`.
    """
    compiled, bounds = _compiled(schema)
    found = [*compiled, *rule_findings(schema)]
    for dialect in dialects:
        found.extend(dialect_findings(schema, dialect))
    kept, omitted = _kept(found)
    have = counts(schema)
    figures = {name: getattr(have, name) for name in have.__slots__}
    return LintReport(kept, omitted, figures, bounds)


def lint_tools(tools: Sequence[Mapping[str, Any]], dialects: Iterable[Dialect] = ()) -> LintReport:
    """The same for the function tools of a request; pointers are into the list of tools.

    Tools of the form `{"type": "function", "function": {"name": ..., "parameters": ...}}`; what has
    no parameters has nothing to be found in.
    """
    targets = tuple(dialects)
    found: list[Finding] = []
    bounds: list[str] = []
    total: Counter[str] = Counter()
    strict = 0
    for index, tool in enumerate(tools):
        function = tool.get("function")
        parameters = function.get("parameters") if isinstance(function, dict) else None
        if not isinstance(function, dict) or not isinstance(parameters, dict):
            continue
        strict += function.get("strict") is True
        report = lint_schema(parameters, targets)
        place = pointer_of((index, "function", "parameters"))
        found.extend(replace(item, pointer=place + item.pointer) for item in report.findings)
        bounds.extend(report.bounds)
        total.update(report.counts)
    for target in targets:
        found.extend(tools_over_limit(strict, target))
        found.extend(_sums(total, target))
    kept, omitted = _kept(found)
    return LintReport(kept, omitted, dict(total), tuple(bounds))


def _sums(total: Mapping[str, int], dialect: Dialect) -> Iterator[Finding]:
    """Limits that count over all tools of a request together."""
    for name, what in (("optional", "optional parameters"), ("unions", "union parameters")):
        limit = getattr(dialect.limits, name)
        if limit is not None and total.get(name, 0) > limit:
            yield Finding(
                "refused",
                "warning",
                "",
                f"{total[name]} {what} in all tools together; at most {limit} are allowed.",
                "Take tools or parameters out, or make parameters required.",
                dialect.name,
            )


def _compiled(schema: Schema) -> tuple[list[Finding], tuple[str, ...]]:
    """What compiling says: what isn't enforced, or why there is no grammar."""
    try:
        grammar = compile_json_schema(dict(schema), byte_vocabulary(), strict=False)
    except SchemaError as error:
        rule, advice = _refusal(error)
        issue = Issue(error.keyword, error.pointer, error.message)
        return [Finding(rule, "error", issue.pointer, _said(issue), advice)], ()
    except RecursionError:
        text = "It is nested too deeply."
        return [Finding("too-complex", "error", "", text, "Make it flatter.")], ()
    return [
        Finding(
            "not-enforced",
            "error",
            issue.pointer,
            f"{_said(issue)} With strict: true the schema is refused for it; without, answers are "
            "checked for it afterwards.",
            "Take it out, or send strict: false.",
        )
        for issue in grammar.report.unenforced
        if issue.reason != NO_SOURCE  # which requests bring along
    ], tuple(grammar.report.bounds)


def _refusal(error: SchemaError) -> tuple[str, str]:
    if isinstance(error, UnsatisfiableSchemaError):
        return "unsatisfiable", "Make the constraints agree: no value satisfies them."
    if isinstance(error, SchemaBudgetError):
        return "too-complex", "Simplify it, or raise the server's compile budget."
    return "invalid-schema", "Correct it: it isn't a valid JSON Schema, or can't be compiled."


def _said(issue: Issue) -> str:
    text = f"{issue.keyword}: {issue.reason}" if issue.keyword else issue.reason
    return text if text.endswith(".") else text + "."


def _kept(found: Iterable[Finding]) -> tuple[tuple[Finding, ...], dict[str, int]]:
    kept: list[Finding] = []
    seen: Counter[str] = Counter()
    for finding in found:
        kind = finding.rule if finding.target is None else f"{finding.target}:{finding.rule}"
        seen[kind] += 1
        if seen[kind] <= MAX_OF_A_KIND:
            kept.append(finding)
    return tuple(kept), {
        kind: count - MAX_OF_A_KIND for kind, count in seen.items() if count > MAX_OF_A_KIND
    }


@cache
def byte_vocabulary() -> Vocabulary:
    """A vocabulary of the 256 bytes: enough to compile a schema without a model."""
    return Vocabulary([bytes([value]) for value in range(256)] + [b""], {256: "<eos>"}, [256])
