"""The command `gabarito`: serve, fetch, models, lint, parse, toy, trace, version.

Invariant: a user's mistake is one line on stderr and exit code 2 (a wrong setting or name) or 1
(something that failed), never a traceback; results go to stdout, everything else to stderr.

Read next: `server/run.py` for what `serve` does, `server/trace_cli.py` for `trace`,
`server/parse_cli.py` for `parse`, `server/lint_cli.py` for `lint`.
"""

from __future__ import annotations

import importlib.metadata
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from server import __version__
from server.catalogue import CATALOGUE_FILE, Catalogue, CatalogueError, load_catalogue
from server.fetch import cache_dir, is_verified, resolve_model
from server.fetch_errors import FetchError
from server.lint_cli import lint_command
from server.options import MODEL_HELP, CacheOption, ConfigOption, ModelOption
from server.parse_cli import parse_command
from server.progress import terminal_progress
from server.run import ServeError, run_server
from server.settings import Settings, SettingsError, load_settings, parse_assignment
from server.toy_cli import toy_command
from server.trace_cli import trace_command

app = typer.Typer(
    name="gabarito",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="OpenAI-compatible server for local GGUF models whose answers fit the requested shape.",
)


@app.command()
def serve(
    config: ConfigOption = None,
    host: Annotated[
        str | None,
        typer.Option(help="Address to listen on; 0.0.0.0 is every interface. [default: 127.0.0.1]"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="TCP port; 0 takes a free one. [default: 8000]")
    ] = None,
    model: ModelOption = None,
    served_name: Annotated[
        str | None,
        typer.Option(help="The model's name in the API. [default: catalogue or file name]"),
    ] = None,
    cache: CacheOption = None,
    n_ctx: Annotated[
        int | None,
        typer.Option("--n-ctx", help="Context in tokens, shared by all slots. [default: 8192]"),
    ] = None,
    slots: Annotated[
        int | None,
        typer.Option(help="Requests generated at the same time; others wait. [default: 4]"),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(help="Threads for the model; 0 is one per physical core. [default: 0]"),
    ] = None,
    whitespace: Annotated[
        str | None,
        typer.Option(
            help="White space in JSON answers: fixed, compact, pretty, adaptive or flexible. "
            "[default: adaptive]"
        ),
    ] = None,
    chat_template: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Jinja chat template to use instead of the model's."),
    ] = None,
    response_template: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Response template, by name or path. [default: chosen by the chat template]",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(help="critical, error, warning, info, debug or trace. [default: info]"),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="SECTION.KEY=VALUE",
            help="Any other setting of gabarito.toml, for example --set engine.n_batch=256. "
            "May be repeated.",
        ),
    ] = None,
) -> None:
    """Serve a model on the OpenAI API, fetching it first if need be.

    Flags win over GABARITO_* environment variables, these over the settings file. The defaults
    shown are those of a settings file that was not changed.
    """
    flags: dict[str, object] = {
        "server.host": host,
        "server.port": port,
        "server.served_name": served_name,
        "server.log_level": log_level,
        "model.name": model,
        "model.cache_dir": cache,
        "model.chat_template": chat_template,
        "model.response_template": response_template,
        "engine.n_ctx": n_ctx,
        "engine.n_seq": slots,
        "engine.n_threads": threads,
        "grammar.whitespace": whitespace,
    }
    run_server(_settings(config, flags, assignments))


@app.command()
def fetch(
    model: Annotated[str | None, typer.Argument(metavar="[MODEL]", help=MODEL_HELP)] = None,
    config: ConfigOption = None,
    cache: CacheOption = None,
) -> None:
    """Fetch a model and check it; a model that is there is not fetched again.

    Progress goes to stderr. The last line of stdout is the file's path.
    """
    settings = _settings(config, {"model.name": model, "model.cache_dir": cache})
    with terminal_progress() as progress:
        path = resolve_model(settings, progress)
    typer.echo(path)


@app.command()
def models(config: ConfigOption = None, cache: CacheOption = None) -> None:
    """List the model catalogue: name, licence, source, and whether it is fetched."""
    settings = _settings(config, {"model.cache_dir": cache})
    catalogue = load_catalogue(settings.config_file(CATALOGUE_FILE))
    for line in _catalogue_lines(catalogue, cache_dir(settings)):
        typer.echo(line)


@app.command()
def version() -> None:
    """Print the versions of Gabarito, Python and the llama.cpp bindings."""
    try:
        bindings = importlib.metadata.version("llama-cpp-python")
    except importlib.metadata.PackageNotFoundError:
        bindings = "not installed"
    python = platform.python_version()
    typer.echo(f"gabarito {__version__} (Python {python}, llama-cpp-python {bindings})")


app.command("lint")(lint_command)
app.command("parse")(parse_command)
app.command("toy")(toy_command)
app.command("trace")(trace_command)


def main() -> None:
    """Entry point of the console command."""
    # SIGTERM leaves through the `finally` blocks, so that a pip started for a download ends too.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(128 + signal.SIGTERM))
    try:
        app()
    except (SettingsError, CatalogueError) as error:
        typer.echo(f"gabarito: {error}", err=True)
        sys.exit(2)
    except (FetchError, ServeError) as error:
        typer.echo(f"gabarito: {error}", err=True)
        sys.exit(1)


def _settings(
    config: Path | None, flags: dict[str, object], assignments: list[str] | None = None
) -> Settings:
    """Named flags win over `--set`, whatever their order."""
    extra = dict(parse_assignment(text) for text in assignments or [])
    given = {key: value for key, value in flags.items() if value is not None}
    return load_settings(config, overrides={**extra, **given})


def _catalogue_lines(catalogue: Catalogue, cache: Path) -> Iterator[str]:
    for name, entry in catalogue.models.items():
        marks = ["default"] if name == catalogue.default else []
        marks += ["fetched"] if is_verified(entry, cache) else []
        yield name + (f"  [{', '.join(marks)}]" if marks else "")
        if entry.about:
            yield f"    {entry.about}"
        size = f"{entry.size / 1e6:.0f} MB, " if entry.size else ""
        yield f"    {size}licence: {entry.licence}"
        yield from (f"    {source}" for source in entry.sources)


if __name__ == "__main__":
    main()
