"""Which chat template and which response template a loaded model gets.

The chat template is the model file's own, unless the settings name a file. The response template
is the one in `config/response_templates/` that fits the chat template, unless the settings name
one, or a request names another of them.

Invariant: all are loaded once, when the model is, and a bad one keeps the server from becoming
ready, with a message that names the file. A request can name a template, never a file.

Read next: `server/prompt.py`, `parsing/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from parsing import (
    ResponseParser,
    ResponseTemplate,
    TemplateFile,
    choose_template,
    load_template,
    load_template_file,
)
from server.deltas import RegionReader, TextRule
from server.engine.engine import Engine
from server.prompt import ChatTemplate, guarded_spellings
from server.settings import Settings

#: Where the response templates are, inside `config/`.
DIRECTORY = "response_templates"

#: Where a tokenizer's directory has its response template.
TOKENIZER_CONFIG = "tokenizer_config.json"

#: The field of a response template that holds tool calls.
TOOL_CALLS_FIELD = "tool_calls"


class TemplateSettingError(ValueError):
    """A template that the settings name, or that belongs to the configuration, can't be used."""


def chat_template_for(engine: Engine, settings: Settings) -> ChatTemplate:
    """The chat template: of the settings, else of the model's file, else ChatML.

    Raises:
        TemplateSettingError: the settings' file can't be read.
        ChatTemplateSourceError: the template isn't valid jinja2.
    """
    info = engine.info
    source = info.chat_template
    if settings.model.chat_template is not None:
        source = _read(settings.model.chat_template, "model.chat_template")
    special = {*engine.vocabulary.special.values(), info.bos_token, info.eos_token}
    return ChatTemplate(
        source,
        bos_token=info.bos_token,
        eos_token=info.eos_token,
        guarded=guarded_spellings(special, engine),
    )


def response_template_for(chat_template: ChatTemplate, settings: Settings) -> ResponseTemplate:
    """The response template: of the settings (a name or a path), else by the chat template.

    Raises:
        TemplateSettingError: the settings name something that isn't there.
        ResponseTemplateError: a template is malformed, or none fits.
    """
    files = template_files(settings)
    wanted = settings.model.response_template
    if wanted is None:
        return choose_template(chat_template.source, files).template
    return named_template(wanted, files, setting="model.response_template")


def template_files(settings: Settings) -> tuple[TemplateFile, ...]:
    """The templates of the configuration, by name.

    Raises:
        ResponseTemplateError: one is malformed.
    """
    directory = settings.config_file(DIRECTORY)
    return tuple(load_template_file(path) for path in sorted(directory.glob("*.json")))


def named_template(wanted: str, files: Sequence[TemplateFile], *, setting: str) -> ResponseTemplate:
    """The template with a name, or in a file: a template's own, a tokenizer's
    `tokenizer_config.json` with a `response_template`, or a directory with one.

    Args:
        setting: what asks for it, for the message.

    Raises:
        TemplateSettingError: there is no such template, and no file that can be read.
        ResponseTemplateError: the file doesn't hold a template.
    """
    for file in files:
        if file.name == wanted:
            return file.template
    path = Path(wanted).expanduser()
    try:
        return load_template(path / TOKENIZER_CONFIG if path.is_dir() else path)
    except OSError as error:
        names = ", ".join(file.name for file in files)
        raise TemplateSettingError(
            f"{setting}: {wanted!r} is neither a template that there is ({names}) nor a file that "
            f"can be read: {error.strerror}"
        ) from None


def without_tool_calls(template: ResponseTemplate) -> ResponseTemplate:
    """The template for answers to requests that offer no tools.

    What looks like a tool call is then a part of the content, where the template has one field that
    takes all the text between the others; elsewhere the template stays as it is.
    """
    if template.implicit is None or TOOL_CALLS_FIELD not in template.fields:
        return template
    fields = dict(template.source["fields"])
    del fields[TOOL_CALLS_FIELD]
    return load_template({**template.source, "fields": fields})


def region_reader(template: ResponseTemplate, prefix: str) -> RegionReader:
    """A reader of one answer to the prompt `prefix`.

    Where the template's anchor isn't in the prompt, none of it can be told to belong to the answer.
    """
    if template.anchor.whole.search(prefix) is None:
        prefix = ""
    rules = {
        name: TextRule(strip=field.content.strip, join=field.join)
        for name, field in template.fields.items()
    }
    return RegionReader(ResponseParser(template, prefix=prefix), rules)


def _read(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateSettingError(f"{setting}: {path} can't be read: {error}") from None
