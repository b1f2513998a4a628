"""What the commands have in common: their options, reading files, and how they fail.

Invariant: a mistake of the user's is one line on stderr and exit code 2.

Read next: `server/cli.py`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

MODEL_HELP = (
    "The model: a catalogue name (see `gabarito models`), a GGUF file's path, "
    "hf:owner/repo/file.gguf, or an https URL. [default: the settings', which is the catalogue's]"
)

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file, or a directory with a gabarito.toml. [default: $GABARITO_CONFIG, "
        "else ./config/gabarito.toml, else the one that came with the program]",
    ),
]
ModelOption = Annotated[str | None, typer.Option("--model", metavar="MODEL", help=MODEL_HELP)]
CacheOption = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Where fetched models are kept. [default: the user's cache directory]",
    ),
]


def failure(error: Exception | str, code: int = 2) -> typer.Exit:
    """To be raised: says on stderr what went wrong."""
    typer.echo(f"gabarito: {error}", err=True)
    return typer.Exit(code)


def read_text(file: str) -> str:
    """The text of a file; of stdin for `-`."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise failure(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise failure(f"{file} is not UTF-8 text: {error}") from error


def read_json(file: str) -> Any:
    """The JSON value in a file; in stdin for `-`."""
    text = read_text(file)
    try:
        return json.loads(text)
    except RecursionError as error:
        raise failure(f"{file} is nested too deeply") from error
    except ValueError as error:
        raise failure(f"{file} is not JSON: {error}") from error


def read_script(path: Path, what: str) -> dict[str, Any]:
    """A script of the toy model. `what` it is, for the message."""
    try:
        script: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot read the {what} {path}: {error}") from None
    return script
