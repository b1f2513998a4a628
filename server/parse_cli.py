"""The command `gabarito parse`: what a response template makes of a text.

Invariant: the regions and the message go to stdout, whatever the text is; a mistake of the user's
(no such template or file) is one line on stderr, exit code 2; a text that lacks a field which the
template requires is one too, after the regions, exit code 1. The libraries are imported when the
command runs, not when the command line is parsed.

Read next: `parsing/README.md`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.options import ConfigOption, failure, read_json, read_text

if TYPE_CHECKING:
    from parsing import ResponseTemplate, TemplateFile
    from server.settings import Settings

#: How much of a text or value a cell of the table shows.
_CELL = 300


@dataclass(frozen=True, slots=True)
class ParsedRegion:
    """One region of the text. `start`, `end`: where its body lies, in characters; negative in the
    prefix. `closed`: its close came. `error`: why it has no value."""

    field: str
    start: int
    end: int
    text: str
    value: Any
    closed: bool
    error: str | None

    @property
    def state(self) -> str:
        """In a word, how the region ended."""
        if self.error is not None:
            return f"malformed: {self.error}"
        return "closed" if self.closed else "not closed"

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: a region has a value, or else an error."""
        outcome = {"value": self.value} if self.error is None else {"error": self.error}
        return {
            "field": self.field,
            "start": self.start,
            "end": self.end,
            "text": self.text,
            "closed": self.closed,
            **outcome,
        }


@dataclass(frozen=True, slots=True)
class Parsed:
    """A text taken apart. `missing`: what the template requires and the text lacks, in a
    sentence."""

    regions: tuple[ParsedRegion, ...]
    message: dict[str, Any]
    missing: str | None = None


def parse_command(
    file: Annotated[
        str, typer.Argument(metavar="[FILE|-]", help="The answer's text; - reads it from stdin.")
    ] = "-",
    template: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            help="Response template: a name (see --list), a template's file, or a "
            "tokenizer_config.json that holds one. [default: the settings']",
        ),
    ] = None,
    chat_template: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A Jinja chat template: take the response template that fits it."
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="The prompt that the answer continues. What follows the template's last start "
            "anchor in it (all of it, where there is no anchor) belongs to the answer.",
            show_default=False,
        ),
    ] = "",
    tools: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A JSON list of tools, as in a request: their parameters give the arguments of "
            "calls their types.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table.")
    ] = False,
    listing: Annotated[
        bool, typer.Option("--list", help="List the templates and what they are for, and stop.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Take a model's answer apart by a response template, and show its regions and the message.

    Per region: its field, where its text lies (in characters, negative within the prefix), the
    text, the value that it gives, and whether its close came or its text was not what the template
    promised.
    """
    from parsing import ResponseParseError, ResponseTemplateError, choose_template
    from server.settings import load_settings
    from server.templates import TemplateSettingError, template_files

    settings = load_settings(config, overrides={"model.response_template": template})
    try:
        files = template_files(settings)
        if listing:
            for known in files:
                typer.echo(f"{known.name:<16} {known.description}")
            return
        if template is None and chat_template is not None:
            chosen = choose_template(read_text(str(chat_template)), files).template
        else:
            chosen = _named(template, settings, files)
        parsed = parse(read_text(file), chosen, prefix=prefix, tools=_read_tools(tools))
    except (TemplateSettingError, ResponseTemplateError) as error:
        raise failure(error, 2) from error
    except ResponseParseError as error:  # a pattern that takes too long
        raise failure(error, 1) from error
    if as_json:
        regions = [region.as_dict() for region in parsed.regions]
        typer.echo(json.dumps({"regions": regions, "message": parsed.message}, ensure_ascii=False))
    else:
        _print(parsed)
    if parsed.missing is not None:
        raise failure(parsed.missing, 1)


def parse(
    text: str,
    template: ResponseTemplate,
    *,
    prefix: str = "",
    tools: Sequence[dict[str, Any]] | None = None,
) -> Parsed:
    """The regions of a text, in order, and the message. A region that the template can't read is
    reported, not raised."""
    from parsing import ResponseParseError, ResponseParser

    parser = ResponseParser(template, prefix=prefix, tools=tools)
    events = [*parser.initial_events, *parser.feed(text)]
    missing: str | None = None
    try:
        message, last = parser.finalize()
    except ResponseParseError as error:
        message, last, missing = dict(error.message or {}), list(error.events), str(error)
    ends = [
        event for event in [*events, *last] if event["type"] not in ("region_open", "region_chunk")
    ]
    whole = prefix + text
    regions = tuple(
        ParsedRegion(
            field=event["field"],
            start=start,
            end=end,
            text=whole[len(prefix) + start : len(prefix) + end],
            value=event.get("value"),
            closed=event.get("closed", True),
            error=event.get("error"),
        )
        for event, (start, end) in zip(ends, parser.spans, strict=True)
    )
    return Parsed(regions, message, missing)


def _named(
    template: str | None, settings: Settings, files: Sequence[TemplateFile]
) -> ResponseTemplate:
    from server.templates import named_template

    wanted = settings.model.response_template
    if wanted is None:
        names = ", ".join(known.name for known in files)
        raise failure(f"--template or --chat-template is needed; there are: {names}", 2)
    setting = "model.response_template" if template is None else "--template"
    return named_template(wanted, files, setting=setting)


def _read_tools(path: Path | None) -> list[dict[str, Any]] | None:
    if path is None:
        return None
    tools = read_json(str(path))
    if not isinstance(tools, list):
        raise failure(f"{path} must hold a JSON list of tools", 2)
    return tools


def _print(parsed: Parsed) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    for title in ("field", "span", "text", "value", "state"):
        table.add_column(title, overflow="fold", no_wrap=title in ("field", "span"))
    for region in parsed.regions:
        value = "" if region.error is not None else json.dumps(region.value, ensure_ascii=False)
        cells = (
            region.field,
            f"{region.start}..{region.end}",
            _short(_visible(region.text)),
            _short(value),
            region.state,
        )
        table.add_row(*map(Text, cells))
    Console().print(table)
    typer.echo(json.dumps(parsed.message, ensure_ascii=False, indent=2))


def _visible(text: str) -> str:
    """The text on one line, control characters as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _short(text: str) -> str:
    half = _CELL // 2
    return text if len(text) <= _CELL else f"{text[:half]} … {text[-half:]}"
