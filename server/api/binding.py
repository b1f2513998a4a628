"""What the answers to a chat request are bound to, and how they are read.

    messages, tools ─▶ prompt
    response_format, tools, response template, prompt ─▶ grammar of the answer
    response template ─▶ readers

An answer is *plain* where all of it is content: a `response_format` alone binds the whole text of
a model that neither thinks nor marks its content. Everything else is a turn of regions, which the
response template tells apart; its inverse (`server/turns.py`) binds them, each to its own language:
a model can think first and still give strict content, or call tools with strict arguments.

Where a template can't be inverted, calls are read from free text, and `facts` says so. A
`response_format` is a promise that isn't given then: with tools it is an error, and alone it binds
the whole answer, without reasoning.

Invariant: the template that reads an answer is the one whose inverse bound it.

Read next: `server/toolprompt.py`, `server/templates.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio.to_thread

from grammar import Grammar
from grammar.turn_parts import TRIMMED
from parsing import ResponseTemplate
from server.api.answerformat import AnswerFormat, says_ground
from server.api.demands import source_of
from server.api.errors import ApiError
from server.api.formats import TextFormat, Wanted
from server.api.messages import turns_of
from server.api.models import ChatCompletionRequest
from server.api.runtime import Served
from server.api.tools import Offer
from server.api.toolschemas import tool_issues
from server.deltas import AnswerReader, StructuredReader
from server.prompt import RenderedPrompt, tokenize_prompt
from server.templates import reasons, region_reader
from server.toolprompt import render_conversation
from server.turns import TurnGrammar


@dataclass(frozen=True, slots=True)
class Binding:
    """One request's prompt, grammar and reading.

    answer_format  what the content is bound to
    grammar        what the whole answer is bound to; None: nothing
    plain          all of the answer is content
    values         whether readers tell of every value that is complete
    facts          how the calls are bound; None where no tools are offered
    warnings       what was asked for and can't be done
    """

    prompt: RenderedPrompt
    tokens: tuple[int, ...]
    answer_format: AnswerFormat
    grammar: Grammar | None
    template: ResponseTemplate
    offer: Offer | None
    plain: bool
    values: bool
    facts: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()

    def reader(self) -> AnswerReader:
        """A reader of one of the answers."""
        is_json = self.answer_format.is_structured and self.answer_format.is_json
        if self.plain:
            return StructuredReader(is_json=is_json, values=self.values)
        return region_reader(
            self.template,
            self.prompt.text,
            tools=self.offer.for_template() if self.offer is not None else (),
            json_content=is_json,
            values=self.values,
        )


async def bind(served: Served, wanted: ChatCompletionRequest, asked: Wanted | None) -> Binding:
    """Render, tokenise and compile, all off the event loop.

    Raises:
        ApiError: a schema is invalid or can't be enforced; there is no such response template.
        ChatTemplateError: the chat template refused the messages.
    """
    offer = wanted.offer
    template = served.template_named(wanted.response_template, tools=offer is not None)
    source = source_of(wanted)
    answer_format = await served.formats.compile(asked, source=source)
    prompt, tokens = await anyio.to_thread.run_sync(_prompt, served, wanted, abandon_on_cancel=True)
    binding = Binding(
        prompt=prompt,
        tokens=tokens,
        answer_format=answer_format,
        grammar=answer_format.grammar,
        template=template,
        offer=offer,
        plain=answer_format.is_structured,
        values=bool(wanted.options.include_value_events),
        warnings=_not_grounded(offer),
    )
    limit = wanted.reasoning_limit
    thinks = reasons(template, served.chat_template, prompt.text, asked=bool(limit))
    formatted = answer_format.is_structured and (thinks or template.implicit is None)
    if offer is None and not formatted and not (thinks and limit is not None):
        return binding
    if not thinks:
        limit = 0  # a model that was never taught to think must not be led into it
    if isinstance(asked, Wanted) and isinstance(asked.format, TextFormat):
        asked = None
    turn = await served.formats.turn(
        template,
        prompt.text,
        content=asked,
        source=source,
        offer=offer,
        reasoning_limit=limit,
    )
    return _with_turn(binding, turn, bounded=thinks and wanted.reasoning_limit is not None)


def _with_turn(binding: Binding, turn: TurnGrammar, *, bounded: bool) -> Binding:
    """The binding of an answer that is a turn of regions.

    Args:
        bounded: the reasoning is to be.

    Raises:
        ApiError: 400, its content can't be bound beside calls.
    """
    offer, answer_format = binding.offer, binding.answer_format
    facts: dict[str, Any] | None
    if turn.grammar is None:
        if offer is not None and answer_format.is_structured:
            raise ApiError(
                400,
                "Unsupported value: 'response_format' can't be enforced together with 'tools' "
                f"here, since the response template can't be read backwards: {turn.reason}.",
                param="response_format",
                code="unsupported_value",
            )
        warnings = [*binding.warnings]
        if bounded:
            warnings.append(f"reasoning is not bounded: {turn.reason}")
        facts = None if offer is None else {"enforced": False, "reason": turn.reason}
        return replace(binding, facts=facts, warnings=tuple(warnings))
    if TRIMMED in turn.grammar.report.bounds:
        binding = replace(
            binding,
            warnings=(
                *binding.warnings,
                "Of what the content may be, the texts with white space at their ends are left "
                "out: the response template takes it off.",
            ),
        )
    facts = None
    if offer is not None:
        told = tool_issues(turn.issues, offer.tools)
        facts = {"enforced": "unenforced" not in told, **told}
    hit = turn.hit and answer_format.cache != "miss"
    return replace(
        binding,
        grammar=turn.grammar,
        plain=False,
        facts=facts,
        answer_format=replace(
            answer_format,
            compile_ms=(answer_format.compile_ms or 0.0) + (turn.compile_ms or 0.0),
            cache="hit" if hit else "miss",
        ),
    )


def _not_grounded(offer: Offer | None) -> tuple[str, ...]:
    tools = offer.allowed if offer is not None else ()
    if not any(says_ground(tool.schema_) for tool in tools):
        return ()
    return ("x-ground is not checked in the arguments of calls, only in a response_format.",)


async def prompt_again(
    served: Served, wanted: ChatCompletionRequest, more: Sequence[Mapping[str, Any]]
) -> tuple[int, ...]:
    """The prompt's tokens with further turns behind the conversation."""
    work = partial(_prompt, served, wanted, more)
    _, tokens = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    return tokens


def _prompt(
    served: Served, wanted: ChatCompletionRequest, more: Sequence[Mapping[str, Any]] = ()
) -> tuple[RenderedPrompt, tuple[int, ...]]:
    """The prompt and its tokens; `more` are turns behind the conversation."""
    kwargs = dict(wanted.chat_template_kwargs or {})
    if wanted.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", wanted.reasoning_effort)
    offer = wanted.offer
    tools = offer.for_template() if offer is not None else []
    prompt = render_conversation(
        served.chat_template,
        served.tool_prompt,
        [*turns_of(wanted.messages), *more],
        tools=tools,
        choice=offer.choice if offer is not None else "auto",
        kwargs=kwargs,
        notation=served.templates.notation(wanted.response_template, tools),
    )
    info = served.engine.info
    tokens = tokenize_prompt(prompt, served.engine, bos_token=info.bos_token, add_bos=info.add_bos)
    return prompt, tuple(tokens)
