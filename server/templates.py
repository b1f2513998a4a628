"""Which chat template and which response template a loaded model gets.

The chat template is the model file's own, unless the settings name a file. The response template
is the one in `config/response_templates/` that fits the chat template, unless the settings name
one, or a request names another of them.

Invariant: all are loaded once, when the model is, and a bad one keeps the server from becoming
ready, with a message that names the file. A request can name a template, never a file.

Of every response template there are two forms: for requests that offer no tools, without the field
of the tool calls (`without_tool_calls`); for those that do, with one, if need be the one that the
fallback prompt describes (`with_tool_calls`; see `server/toolprompt.py`).

Read next: `server/prompt.py`, `parsing/`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from parsing import (
    ResponseParser,
    ResponseTemplate,
    ResponseTemplateError,
    TemplateFile,
    choose_template,
    load_template,
    load_template_file,
)
from parsing.inverse import inverse_of
from parsing.written import written_call
from server.callreaders import CallFormat, tool_typing
from server.calls import ToolCalls
from server.deltas import (
    CONTENT_FIELD,
    REASONING_FIELDS,
    TOOL_CALLS_FIELD,
    CallRules,
    RegionReader,
)
from server.engine.engine import Engine
from server.growing import TextRule
from server.prompt import ChatTemplate, guarded_spellings
from server.settings import Settings

_LOG = logging.getLogger("gabarito.api")

#: Where the response templates are, inside `config/`.
DIRECTORY = "response_templates"

#: Where a tokenizer's directory has its response template.
TOKENIZER_CONFIG = "tokenizer_config.json"

#: How calls are written where neither the chat template nor the response template knows any.
FALLBACK_FORMAT = "tool_format.json"


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


def answer_templates_for(chat_template: ChatTemplate, settings: Settings) -> AnswerTemplates:
    """All response templates that answers may be read by.

    The calls of the model's own are those that its chat template tells it to write; if that knows
    no tools, they are the fallback prompt's, unless the settings name the response template.

    Raises:
        TemplateSettingError, ResponseTemplateError: one of them can't be used.
    """
    own = response_template_for(chat_template, settings)
    for fault in inverse_of(own).faults:
        _LOG.warning("the response template can't be read backwards: %s", fault)
    return AnswerTemplates(
        own=own,
        named={file.name: file.template for file in template_files(settings)},
        fallback=fallback_format(settings),
        native=chat_template.knows_tools or settings.model.response_template is not None,
    )


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


def with_tool_calls(
    template: ResponseTemplate, fallback: Mapping[str, Any], *, own: bool = True
) -> ResponseTemplate:
    """The template for answers to requests that offer tools: where it knows no calls, or not `own`,
    they are written as `fallback` says (a field's description)."""
    if own and TOOL_CALLS_FIELD in template.fields:
        return template
    fields = {**template.source["fields"], TOOL_CALLS_FIELD: dict(fallback)}
    return load_template({**template.source, "fields": fields})


def fallback_format(settings: Settings) -> Mapping[str, Any]:
    """The field of `config/tool_format.json`, checked.

    Raises:
        TemplateSettingError: the file can't be read, or doesn't describe a field.
    """
    path = settings.config_file(FALLBACK_FORMAT)
    try:
        described: Mapping[str, Any] = json.loads(_read(path, "the fallback's tool format"))
        load_template({"start_anchor": "x", "fields": {TOOL_CALLS_FIELD: described}})
    except ResponseTemplateError as error:
        raise TemplateSettingError(f"{path}: {error.reason}") from None
    except ValueError as error:
        raise TemplateSettingError(f"{path} is not JSON: {error}") from None
    return described


@dataclass(frozen=True, slots=True)
class AnswerTemplates:
    """The response templates that answers may be read by: the model's `own`, and all by name.

    fallback  the field of the calls for those that know none
    native    whether `own`'s calls are what the prompt tells the model of; the fallback's otherwise
    """

    own: ResponseTemplate
    named: Mapping[str, ResponseTemplate]
    fallback: Mapping[str, Any]
    native: bool
    _made: dict[tuple[str | None, bool], ResponseTemplate] = field(default_factory=dict)

    def get(self, name: str | None, *, tools: bool) -> ResponseTemplate:
        """The template that a request reads its answer by: its own choice, or the model's.

        Args:
            tools: whether the request offers tools that may be called.

        Raises:
            KeyError: there is none of that name.
        """
        made = self._made.get((name, tools))
        if made is None:
            template = self.own if name is None else self.named[name]
            if tools:
                own = self.native or name is not None
                made = with_tool_calls(template, self.fallback, own=own)
            else:
                made = without_tool_calls(template)
            self._made[name, tools] = made
        return made

    def notation(
        self, name: str | None, tools: Sequence[Mapping[str, Any]]
    ) -> Callable[[str, Mapping[str, Any]], str | None] | None:
        """How calls are written in the template that a request reads its answer by; None: as the
        fallback prompt has them.

        Args:
            tools: those of the request, which give plain-text arguments their types.
        """
        template = self.get(name, tools=True)
        if template.source["fields"].get(TOOL_CALLS_FIELD) == self.fallback:
            return None
        return partial(written_call, template, tools=tools)


def reasons(
    template: ResponseTemplate, chat_template: ChatTemplate, prompt: str, *, asked: bool = False
) -> bool:
    """Whether the model may think before it answers: its response template knows reasoning, and its
    chat template, or the prompt, writes what opens it, or it was `asked` to. (One response template
    serves a family, of which only some models think.)"""
    for name in REASONING_FIELDS & template.fields.keys():
        opener = template.fields[name].open
        if opener is None or asked:
            return True
        needed = [(text,) for text in opener.literals] or opener.needs or [("",)]
        for chain in needed:
            if all(text in chat_template.source or text in prompt for text in chain):
                return True
    return False


def region_reader(
    template: ResponseTemplate,
    prefix: str,
    *,
    tools: Sequence[Mapping[str, Any]] = (),
    json_content: bool = False,
    values: bool = False,
) -> RegionReader:
    """A reader of one answer to the prompt `prefix`.

    Where the template's anchor isn't in the prompt, none of it can be told to belong to the answer.

    Args:
        tools: those that may be called, as the API has them; calls are only looked for if there
            are any.
        json_content: the content is bound to be JSON.
        values: tell of every value that is complete in JSON content and in calls' arguments.
    """
    if template.anchor.whole.search(prefix) is None:
        prefix = ""
    rules = {
        name: TextRule(
            strip=field.content.strip,
            join=field.join,
            is_json=json_content and name == CONTENT_FIELD,
        )
        for name, field in template.fields.items()
    }
    calls, typed = None, False
    if tools and (called := template.fields.get(TOOL_CALLS_FIELD)):
        calls = CallRules(CallFormat.of(called), tool_typing(tools), ToolCalls(values=values))
        # What is written as JSON has its types already, and is passed on as it is written.
        typed = called.content.name != "json"
    parser = ResponseParser(
        template, prefix=prefix, tools=tools if typed else None, deep_types=True
    )
    return RegionReader(parser, rules, calls=calls, values=values and json_content)


def _read(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateSettingError(f"{setting}: {path} can't be read: {error}") from None
