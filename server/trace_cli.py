"""The command `gabarito trace`: what a schema does to a model, step by step.

Invariant: rows go to stdout; a mistake of the user's (no such file, a schema that cannot be
compiled) is one line on stderr, exit code 2; a generation that fails is one too, exit code 1. The
libraries are imported when the command runs, not when the command line is parsed.
Read next: `server/trace.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.options import ConfigOption, ModelOption, failure, read_script

if TYPE_CHECKING:
    from grammar import Grammar
    from server.engine.engine import LocalEngine
    from server.settings import Settings

_TOY_FILE = "toy.json"


def trace_command(
    schema: Annotated[
        str | None,
        typer.Argument(
            metavar="SCHEMA",
            help="A JSON Schema: a file's path, or the JSON itself. With --toy it may be left out.",
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="The user's message. With --toy it may be left out."),
    ] = None,
    toy: Annotated[
        bool,
        typer.Option("--toy", help="Use the scripted toy model: no download, same every time."),
    ] = False,
    model: ModelOption = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Most tokens to generate.", show_default=True)
    ] = 256,
    temperature: Annotated[
        float, typer.Option(min=0, help="0 takes the likeliest legal token.", show_default=True)
    ] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="Makes a run at a temperature above 0 repeatable.")
    ] = None,
    free: Annotated[
        bool, typer.Option("--free", help="Do not constrain: show what the model does by itself.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line instead of a table.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Show, token by token, what a schema allows and what the model would have preferred.

    Per step: the token, how many were legal, what the model wanted where it was overruled, the
    probability Z that it gave to the legal tokens, and KL = -ln Z. At the end: whether the
    tokenizer would have split the answer in the same way.
    """
    from rich.console import Console

    from grammar import GrammarError
    from server.engine.errors import EngineError
    from server.engine.types import SamplingParams
    from server.settings import load_settings
    from server.trace import print_trace, trace, trace_lines

    settings = load_settings(config, overrides={"model.name": model})
    script = read_script(settings.config_file(_TOY_FILE), "toy model") if toy else {}
    schema_value = _read_schema(schema) if schema is not None else script.get("schema")
    message = prompt if prompt is not None else script.get("prompt")
    if message is None or schema_value is None:
        raise typer.BadParameter("SCHEMA and PROMPT are needed (only --toy has its own)")
    try:
        engine = _open_engine(settings, script)
    except EngineError as error:
        raise failure(error, 1) from error
    try:
        compiled = None if free else _compile(schema_value, engine, settings)
        steps = trace(
            engine,
            _prompt_tokens(engine, str(message), settings),
            compiled,
            max_tokens=max_tokens,
            sampling=SamplingParams(temperature=temperature, seed=seed),
        )
        if as_json:
            for line in trace_lines(steps):
                typer.echo(line)
        else:
            print_trace(steps, Console())
    except (EngineError, GrammarError) as error:
        raise failure(error, 1) from error
    finally:
        engine.close()


def _read_schema(argument: str) -> object:
    """The schema itself, or the contents of the file that the argument names."""
    text = argument
    if not argument.lstrip().startswith("{") and argument.strip() not in ("true", "false"):
        try:
            text = Path(argument).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise typer.BadParameter(f"cannot read the schema {argument}: {error}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"the schema is not JSON: {error}") from None


def _open_engine(settings: Settings, toy_spec: dict[str, Any]) -> LocalEngine:
    from server.engine.engine import LocalEngine
    from server.engine.loading import load_engine
    from server.engine.toy import ToyModel
    from server.fetch import resolve_model
    from server.progress import terminal_progress

    if toy_spec:
        return LocalEngine(ToyModel.from_spec(toy_spec))
    with terminal_progress() as progress:
        path = resolve_model(settings, progress)
    return load_engine(path, settings.engine)


def _compile(schema: object, engine: LocalEngine, settings: Settings) -> Grammar:
    from grammar import SchemaError, compile_json_schema

    if not isinstance(schema, dict | bool):
        raise typer.BadParameter("a JSON Schema is an object, true or false")
    try:
        return compile_json_schema(
            schema,
            engine.vocabulary,
            whitespace=settings.grammar.whitespace,
            key_order=settings.grammar.key_order,
            formats=settings.grammar.formats,
        )
    except SchemaError as error:
        raise failure(error, 2) from error


def _prompt_tokens(engine: LocalEngine, message: str, settings: Settings) -> list[int]:
    """The message as the model's chat template puts it."""
    from server.prompt import tokenize_prompt
    from server.templates import chat_template_for

    info = engine.info
    rendered = chat_template_for(engine, settings).render([{"role": "user", "content": message}])
    return tokenize_prompt(rendered, engine, bos_token=info.bos_token, add_bos=info.add_bos)
