"""`POST /v1/chat/completions`, streaming and not.

    body ─▶ ChatCompletionRequest ─▶ prompt tokens, grammar (both off the event loop)
         ─▶ n generations ─▶ text pieces ─▶ AnswerReader ─▶ one object, or a stream of chunks

Invariants: errors that can be known before the first token are HTTP errors, also for a stream; in a
stream every choice is introduced, in order, before anything else; nothing is generated for a client
that has gone.

Read next: `server/api/running.py` for the generations, `server/deltas.py` for the readers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from parsing import ResponseTemplate
from server.api import shapes, sse
from server.api.answering import respond
from server.api.errors import to_api_error
from server.api.extension import Extension
from server.api.judging import Judge
from server.api.models import ChatCompletionRequest, Message
from server.api.profiles import require_profile
from server.api.requests import max_choices, sampling_of, with_seeds
from server.api.running import Choices
from server.api.runtime import Runtime, Served
from server.api.structured import AnswerFormat
from server.deltas import (
    AnswerReader,
    ContentDelta,
    Output,
    ReasoningDelta,
    RegionEvent,
    StructuredReader,
)
from server.engine.types import Finished, GenerationRequest, TextPiece, TokenRecord
from server.prompt import RenderedPrompt, tokenize_prompt
from server.templates import region_reader


@dataclass(slots=True)
class _Choice:
    """One choice on its way: its reader, and the tokens that no chunk has told of yet."""

    reader: AnswerReader
    tokens: list[TokenRecord] = field(default_factory=list)
    end: Finished | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """Everything that shaping one answer needs."""

    request: ChatCompletionRequest
    envelope: shapes.Envelope
    answer_format: AnswerFormat
    choices: tuple[_Choice, ...]
    extension: Extension
    judge: Judge
    running: Choices
    seconds: float

    @property
    def ends(self) -> list[Finished]:
        return [choice.end for choice in self.choices if choice.end is not None]

    @property
    def extras(self) -> dict[str, Any]:
        """`gabarito`, when every choice is finished."""
        errors = [
            {"choice": index, "message": choice.reader.message.error}
            for index, choice in enumerate(self.choices)
            if choice.end is not None and choice.reader.message.error
        ]
        if errors:
            self.extension.request.response_template = {"errors": errors}
        return self.extension.members()

    def finish(self, index: int, end: Finished) -> None:
        """A choice has ended, and its reader is finished.

        Raises:
            ApiError: 500, the answer is not what the grammar should have made it.
        """
        choice = self.choices[index]
        choice.end = end
        verdict = self.judge.judge(choice.reader.message.content, end)
        if verdict is not None:
            self.extension.choices[index].validation = verdict.as_dict()


async def chat_completions(request: Request, runtime: Runtime) -> Response:
    """Serve one request.

    Raises:
        Exception: anything that `to_api_error` knows.
    """
    return await respond(
        request, runtime, ChatCompletionRequest, begin=_begin, whole=_whole, events=_events
    )


async def _begin(served: Served, wanted: ChatCompletionRequest) -> _Answer:
    """Prepare and submit; from here on the generations run."""
    count = max_choices(wanted.n, served)
    sampling = sampling_of(wanted, served)
    template = served.template_named(wanted.response_template)
    asked = wanted.wanted_format
    asked = None if asked is None else served.formats.resolved(asked)
    require_profile(wanted, asked, served.dialects, default=served.settings.grammar.profile)
    answer_format = await served.formats.compile(asked)
    prompt, tokens = await anyio.to_thread.run_sync(_prompt, served, wanted, abandon_on_cancel=True)
    limit = wanted.token_limit or served.settings.engine.max_tokens_default
    requests = [
        GenerationRequest(
            prompt=tuple(tokens),
            max_tokens=limit,
            sampling=each,
            stop=wanted.stops,
            grammar=answer_format.grammar,
            top_logprobs=(wanted.top_logprobs or 0) if wanted.logprobs else None,
        )
        for each in with_seeds(sampling, count)
    ]
    readers = [_reader(template, answer_format, prompt) for _ in requests]
    kind = "chat.completion.chunk" if wanted.stream else "chat.completion"
    return _Answer(
        request=wanted,
        envelope=shapes.Envelope("chatcmpl", kind, served.name, served.fingerprint),
        answer_format=answer_format,
        choices=tuple(_Choice(reader) for reader in readers),
        extension=Extension(count, schema=answer_format.report),
        judge=Judge(answer_format, served.formats.count_fault),
        running=Choices(served.engine, requests),
        seconds=served.settings.server.request_timeout_seconds,
    )


def _prompt(served: Served, wanted: ChatCompletionRequest) -> tuple[RenderedPrompt, list[int]]:
    kwargs = dict(wanted.chat_template_kwargs or {})
    if wanted.reasoning_effort is not None:
        kwargs.setdefault("reasoning_effort", wanted.reasoning_effort)
    prompt = served.chat_template.render([_turn(m) for m in wanted.messages], kwargs=kwargs)
    info = served.engine.info
    return prompt, tokenize_prompt(
        prompt, served.engine, bos_token=info.bos_token, add_bos=info.add_bos
    )


def _turn(message: Message) -> dict[str, Any]:
    """A message as chat templates expect it: absent what is unset, tool arguments as objects."""
    turn: dict[str, Any] = {"role": message.role, "content": message.text}
    for name in ("name", "tool_call_id", "reasoning_content"):
        if (value := getattr(message, name)) is not None:
            turn[name] = value
    if message.tool_calls:
        turn["tool_calls"] = [call.for_template() for call in message.tool_calls]
    return turn


def _reader(
    template: ResponseTemplate, answer_format: AnswerFormat, prompt: RenderedPrompt
) -> AnswerReader:
    if answer_format.is_structured:
        return StructuredReader(is_json=answer_format.is_json)
    return region_reader(template, prompt.text)


async def _whole(served: Served, wanted: ChatCompletionRequest) -> dict[str, Any]:
    """The complete answer as one object."""
    answer = await _begin(served, wanted)
    for choice in answer.choices:
        choice.reader.start()
    async with aclosing(answer.running.events(seconds=answer.seconds)) as events:
        async for index, event in events:
            choice = answer.choices[index]
            if isinstance(event, TextPiece):
                choice.tokens += event.tokens
                choice.reader.feed(event.text)
            else:
                choice.reader.finish()
                answer.finish(index, event)
    return answer.envelope.wrap(
        [
            {
                "index": index,
                "message": shapes.message(choice.reader.message),
                "logprobs": shapes.chat_logprobs(choice.tokens) if wanted.logprobs else None,
                "finish_reason": choice.end.reason if choice.end else None,
            }
            for index, choice in enumerate(answer.choices)
        ],
        usage=shapes.usage(answer.ends, len(answer.choices)),
        timings=shapes.timings(answer.ends, answer.answer_format),
        **answer.extras,
    )


async def _events(answer: _Answer) -> AsyncIterator[ServerSentEvent]:
    """The answer as a stream. An error that comes after its start is an event, and its end."""
    writer = _ChunkWriter(answer)
    try:
        for chunk in writer.opening():
            yield chunk
        async with aclosing(answer.running.events(seconds=answer.seconds)) as events:
            async for index, event in events:
                for chunk in writer.chunks(index, event):
                    yield chunk
        for chunk in writer.closing():
            yield chunk
    except Exception as error:
        yield sse.event(to_api_error(error).envelope())
        return
    yield sse.DONE


class _ChunkWriter:
    """Events of the choices -> chunks, in OpenAI's order."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        options = answer.request.options
        self._with_usage = bool(options.include_usage)
        self._with_regions = bool(options.include_region_events)
        self._with_logprobs = bool(answer.request.logprobs)

    def opening(self) -> list[ServerSentEvent]:
        """Introduce every choice, then the regions that the prompt has opened."""
        count = range(len(self._answer.choices))
        chunks = [self._delta(index, {"role": "assistant", "content": ""}) for index in count]
        for index in count:
            chunks += self._outputs(index, self._answer.choices[index].reader.start())
        return chunks

    def chunks(self, index: int, event: TextPiece | Finished) -> list[ServerSentEvent]:
        """What one event of one choice says."""
        choice = self._answer.choices[index]
        if isinstance(event, TextPiece):
            choice.tokens += event.tokens
            return self._outputs(index, choice.reader.feed(event.text))
        chunks = self._outputs(index, choice.reader.finish())
        self._answer.finish(index, event)
        return [*chunks, self._finish(index, event)]

    def closing(self) -> list[ServerSentEvent]:
        """The usage chunk, where it was asked for."""
        if not self._with_usage:
            return []
        answer = self._answer
        return [
            sse.event(
                answer.envelope.wrap(
                    [],
                    usage=shapes.usage(answer.ends, len(answer.choices)),
                    timings=shapes.timings(answer.ends, answer.answer_format),
                )
            )
        ]

    def _outputs(self, index: int, outputs: Sequence[Output]) -> list[ServerSentEvent]:
        chunks: list[ServerSentEvent] = []
        for output in outputs:
            match output:
                case ContentDelta():
                    chunks.append(self._delta(index, {"content": output.text}))
                case ReasoningDelta():
                    chunks.append(self._delta(index, {"reasoning_content": output.text}))
                case RegionEvent() if self._with_regions:
                    region = {"choice": index, **output.as_dict()}
                    chunk = self._wrap([], region=region)
                    chunks.append(sse.event(chunk, name=output.type))
        return chunks

    def _delta(self, index: int, delta: dict[str, Any]) -> ServerSentEvent:
        return sse.event(self._wrap([self._choice(index, delta, None)]))

    def _finish(self, index: int, end: Finished) -> ServerSentEvent:
        answer = self._answer
        more: dict[str, Any] = {}
        if len(answer.ends) == len(answer.choices):  # the last one
            more = answer.extras
            if not self._with_usage:
                more["timings"] = shapes.timings(answer.ends, answer.answer_format)
        return sse.event(self._wrap([self._choice(index, {}, end.reason)], **more))

    def _choice(self, index: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        """A chunk's choice; it takes along the tokens that no chunk has told of yet."""
        choice = self._answer.choices[index]
        tokens, choice.tokens = choice.tokens, []
        logprobs = shapes.chat_logprobs(tokens) if self._with_logprobs and tokens else None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _wrap(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        usage = {"usage": None} if self._with_usage else {}
        return self._answer.envelope.wrap(choices, **usage, **more)
