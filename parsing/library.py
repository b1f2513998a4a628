"""Template files and the choice among them.

A template file is a JSON object {"name", "description", "detect": {"contains": [...], "excludes":
[...]}, "template": {...}}. A model's chat template tells which family the model belongs to: a file
fits if all of its `contains` and none of its `excludes` are substrings of it. `detect` may also be
a list of such rules, of which one has to fit. Where that is stored and which files there are is the
caller's business.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsing.errors import ResponseTemplateError
from parsing.template import ResponseTemplate, load_template

FALLBACK = "plain"


@dataclass(frozen=True, slots=True)
class Detection:
    """Substrings of a chat template that tell a family: all of `contains`, none of `excludes`."""

    contains: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def fits(self, chat_template: str) -> bool:
        """Whether a chat template is of this family. Without `contains`, none is."""
        return (
            bool(self.contains)
            and all(part in chat_template for part in self.contains)
            and not any(part in chat_template for part in self.excludes)
        )


@dataclass(frozen=True, slots=True)
class TemplateFile:
    """A response template with its name, what it is for and how its family is told (any of
    `detect`)."""

    name: str
    description: str
    detect: tuple[Detection, ...]
    template: ResponseTemplate

    def fits(self, chat_template: str) -> bool:
        """Whether a chat template is of this family."""
        return any(rule.fits(chat_template) for rule in self.detect)


def load_template_file(path: str | Path) -> TemplateFile:
    """Load a template file. Raises ResponseTemplateError, which names the file, or OSError."""
    path = Path(path)
    try:
        return _load(json.loads(path.read_text(encoding="utf-8")))
    except ResponseTemplateError as error:
        raise ResponseTemplateError(f"{path}: {error.reason}", error.field) from None
    except ValueError as error:
        raise ResponseTemplateError(f"{path} is not JSON: {error}") from None


def choose_template(chat_template: str, candidates: Sequence[TemplateFile]) -> TemplateFile:
    """The file that fits a model's chat template best: of the rules that fit, the one whose
    `contains` ask for the most text, then for the most pieces, then the first by its file's name;
    the file named "plain" if none fits. Raises ResponseTemplateError if there is none of that name
    either."""
    fitting = [
        (_order(rule, file), file)
        for file in candidates
        for rule in file.detect
        if rule.fits(chat_template)
    ]
    if fitting:
        return min(fitting, key=lambda found: found[0])[1]
    for file in candidates:
        if file.name == FALLBACK:
            return file
    raise ResponseTemplateError(f"no template fits, and none is named {FALLBACK!r}")


def _order(rule: Detection, file: TemplateFile) -> tuple[int, int, str]:
    return (-sum(map(len, rule.contains)), -len(rule.contains), file.name)


def _load(given: Any) -> TemplateFile:
    if not isinstance(given, Mapping):
        raise ResponseTemplateError("a template file holds an object")
    unknown = set(given) - {"name", "description", "detect", "template"}
    if unknown:
        raise ResponseTemplateError(f"unknown key {min(unknown)!r} beside the template")
    for key in ("name", "description"):
        if not isinstance(given.get(key), str):
            raise ResponseTemplateError(f"{key!r} must be a string")
    detect = given.get("detect", {})
    rules = tuple(map(_load_rule, detect if isinstance(detect, list) else [detect]))
    if "template" not in given:
        raise ResponseTemplateError("'template' is missing")
    return TemplateFile(
        name=given["name"],
        description=given["description"],
        detect=rules,
        template=load_template(given["template"]),
    )


def _load_rule(given: Any) -> Detection:
    if not isinstance(given, Mapping) or set(given) - {"contains", "excludes"}:
        raise ResponseTemplateError(
            "'detect' must be an object of 'contains' and 'excludes', or a list of such objects"
        )
    parts = {key: given.get(key, []) for key in ("contains", "excludes")}
    for key, listed in parts.items():
        if not isinstance(listed, list) or not all(isinstance(t, str) and t for t in listed):
            raise ResponseTemplateError(f"'detect.{key}' must be a list of non-empty strings")
    return Detection(tuple(parts["contains"]), tuple(parts["excludes"]))
