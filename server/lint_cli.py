"""The command `gabarito lint`: what a JSON Schema invites a model to get wrong.

Invariant: findings go to stdout; a user's mistake (no such file, no JSON) is one line on stderr and
exit code 2. Exit code 1: there is a finding of the severity that `--fail-on` names, or of a worse
one.

Read next: `server/lint/rules.py`, `config/dialects.toml`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.options import failure, read_json

if TYPE_CHECKING:
    from server.lint import Dialect, LintReport

_SEVERITIES = ("note", "warning", "error")


def lint_command(
    file: Annotated[
        str,
        typer.Argument(
            metavar="SCHEMA|-",
            help="A JSON file: a schema, a list of tools, or a request's response_format; - reads "
            "stdin.",
        ),
    ],
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="Another server whose view is wanted, such as openai; may be repeated. `none`: "
            "only this server's own. [default: all]",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    fail_on: Annotated[
        str,
        typer.Option(
            metavar="SEVERITY", help="Exit code 1 from this severity on: note, warning or error."
        ),
    ] = "error",
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings file; the dialects are looked for beside it first."
        ),
    ] = None,
) -> None:
    """Say what a schema invites a model to get wrong, what this server can't enforce in it, and
    what other servers would refuse or ignore."""
    from server.lint import DIALECTS_FILE, lint_schema, lint_tools, load_dialects
    from server.settings import load_settings

    if fail_on not in _SEVERITIES:
        raise failure(f"--fail-on must be one of {', '.join(_SEVERITIES)}, not {fail_on!r}")
    known = load_dialects(load_settings(config).config_file(DIALECTS_FILE))
    dialects = _chosen(known, targets)
    schema = _schema_of(read_json(file))
    report = (
        lint_tools(schema, dialects) if isinstance(schema, list) else lint_schema(schema, dialects)
    )
    if as_json:
        typer.echo(json.dumps(report.as_dict(), ensure_ascii=False, indent=2))
    else:
        _print(report, known)
    worst = _SEVERITIES.index(fail_on)
    if any(_SEVERITIES.index(finding.severity) >= worst for finding in report.findings):
        raise typer.Exit(1)


def _chosen(known: dict[str, Dialect], targets: list[str] | None) -> list[Dialect]:
    if targets is None:
        return list(known.values())
    names = [name for name in targets if name != "none"]
    for name in names:
        if name not in known:
            raise failure(f"--target {name}: there are {', '.join(known)}, and none")
    return [known[name] for name in names]


def _schema_of(value: Any) -> dict[str, Any] | list[Any]:
    """The schema in a file that may hold a whole response_format around it, or a list of tools."""
    if isinstance(value, list):
        if not all(isinstance(item, dict) for item in value):
            raise failure("a list must be one of tools, as in a request")
        return value
    if not isinstance(value, dict):
        raise failure("the file must hold a JSON object: a schema")
    inner = value.get("json_schema")
    if value.get("type") == "json_schema" and isinstance(inner, dict):
        value = inner
    inner = value.get("schema")
    wrapped = isinstance(inner, dict) and isinstance(value.get("name"), str)
    schema: dict[str, Any] = inner if wrapped else value
    return schema


def _print(report: LintReport, known: dict[str, Dialect]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    for title in ("severity", "rule", "where", "what"):
        table.add_column(title, overflow="fold", no_wrap=title in ("severity", "rule"))
    for finding in report.findings:
        rule = finding.rule if finding.target is None else f"{finding.rule} by {finding.target}"
        what = f"{finding.message} {finding.advice}"
        cells = (finding.severity, rule, finding.pointer or "(root)", what)
        table.add_row(*map(Text, cells))
    console = Console()
    if report.findings:
        console.print(table)
    for kind, count in report.omitted.items():
        typer.echo(f"{count} more of {kind}")
    for bound in report.bounds:
        typer.echo(f"enforced under a bound: {bound}")
    for name in sorted({finding.target for finding in report.findings if finding.target}):
        typer.echo(f"{name}: {known[name].title}, {known[name].source} ({known[name].date})")
    typer.echo(_summary(report))


def _summary(report: LintReport) -> str:
    parts = []
    for severity in reversed(_SEVERITIES):
        count = sum(finding.severity == severity for finding in report.findings)
        if count:
            parts.append(f"{count} {severity}{'s' if count > 1 else ''}")
    verdict = "enforced whole" if report.is_enforced else "not enforced whole"
    return f"{', '.join(parts) or 'nothing found'}; {verdict} by this server"
