"""The command `gabarito toy`: form is not truth, shown by a scripted model.

Invariant: scenes go to stdout; a mistake of the user's (no such file, no story) is one line on
stderr, exit code 2.

Read next: `server/story.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from server.options import ConfigOption, read_script

if TYPE_CHECKING:
    from server.story import Scene

_TOY_FILE = "toy.json"

_TITLES = {
    "alone": "Left alone, the model answers:",
    "bound": "Bound to the schema, it answers:",
    "checked": "Held against the source, and asked for again:",
    "willing": "The same of a model that likes digits:",
}


def toy_command(
    story: Annotated[
        Path | None,
        typer.Argument(metavar="[STORY]", help="A story file. [default: config/toy.json]"),
    ] = None,
    willing: Annotated[
        str | None,
        typer.Option(
            "--willing",
            metavar="TEXT",
            help="What the model of the last scene has learnt. [default: the story's]",
        ),
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Budget of a first attempt.", show_default=True)
    ] = 8,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per scene: request and response.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Tell what a schema can't do: no download, the same every time.

    A model that wants to write an age in words is made to write digits, and writes wrong ones.
    Only the source tells; asked again, the model says the same, so there is no answer. A model
    that likes digits passes, once its budget is large enough.
    """
    from server.engine.toy import ToySpecError
    from server.settings import load_settings
    from server.story import scenes

    settings = load_settings(config)
    path = story or settings.config_file(_TOY_FILE)
    spec = read_script(path, "story")
    if willing is not None:
        spec["willing_answer"] = willing
    try:
        if not as_json:
            typer.echo(f"The source:\n    {spec.get('source')}")
        for number, scene in enumerate(scenes(spec, settings, max_tokens=max_tokens), 1):
            if as_json:
                typer.echo(json.dumps(asdict(scene), ensure_ascii=False))
            else:
                typer.echo(f"\n{number}. {_TITLES[scene.name]}")
                for line in _lines(scene):
                    typer.echo(f"    {line}")
    except ToySpecError as error:
        raise typer.BadParameter(f"{path} is no story: {error}") from None


def _lines(scene: Scene) -> Iterator[str]:
    for attempt in scene.attempts:
        yield f"attempt {attempt['attempt']}, {attempt['max_tokens']} tokens: {attempt['content']}"
        yield f"    {attempt['outcome']}: {_why(attempt)}"
    if scene.text is None:
        error = scene.response["error"]
        yield f"{scene.status} {error['code']}: {error.get('reason', error['message'])}"
        return
    yield from scene.text.splitlines()
    facts = scene.response.get("gabarito", {})
    said = [f"valid: {str(facts['validation'].get('valid')).lower()}"] if facts else []
    said += ["grounded: true"] if facts.get("grounding") == {"ungrounded": []} else []
    if said:
        yield f"    {', '.join(said)}"


def _why(attempt: dict[str, Any]) -> str:
    reasons = [
        f"{reason['pointer']}: {reason['message']}" if "pointer" in reason else reason["message"]
        for reason in attempt["reasons"]
    ]
    again = f"the same as attempt {attempt['repeats']}" if "repeats" in attempt else None
    return again or "; ".join(reasons)
