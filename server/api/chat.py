"""`POST /v1/chat/completions`, streaming and not.

    body ─▶ ChatCompletionRequest ─▶ prompt tokens, grammar (both off the event loop)
         ─▶ n generations ─▶ text pieces ─▶ AnswerReader ─▶ one object, or a stream of chunks

Invariants: errors that can be known before the first token are HTTP errors, also for a stream; in a
stream every choice is introduced, in order, before anything else; nothing is generated for a client
that has gone.

Read next: `server/api/running.py` for the generations, `server/deltas.py` for the readers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from server.api import shapes, sse
from server.api.answerformat import AnswerFormat
from server.api.answering import respond
from server.api.binding import Binding, bind, prompt_again
from server.api.demands import grounding_of, loops_of
from server.api.extension import Extension
from server.api.judging import Judge
from server.api.models import ChatCompletionRequest
from server.api.profiles import require_profile
from server.api.repairing import AttemptEvent, HeldChoices, HeldJudge
from server.api.requests import (
    generations_of,
    max_choices,
    require_room,
    require_tokens,
    seconds_of,
)
from server.api.running import Choices
from server.api.runtime import Runtime, Served
from server.api.telling import tell_end
from server.api.toolchecks import CallJudge
from server.calls import ToolCallDelta, ValueEvent
from server.deltas import AnswerReader, ContentDelta, Output, ReasoningDelta, RegionEvent
from server.engine.types import Finished, TextPiece, TokenRecord
from server.thoughts import CountingReader


@dataclass(slots=True)
class _Choice:
    """One choice on its way: its reader, and the tokens that no chunk has told of yet."""

    reader: AnswerReader
    counting: CountingReader
    tokens: list[TokenRecord] = field(default_factory=list)
    end: Finished | None = None

    @classmethod
    def of(cls, reader: AnswerReader) -> _Choice:
        return cls(reader, CountingReader(reader))


@dataclass(frozen=True, slots=True)
class _Answer:
    """Everything that shaping one answer needs."""

    request: ChatCompletionRequest
    envelope: shapes.Envelope
    binding: Binding
    choices: tuple[_Choice, ...]
    extension: Extension
    judge: Judge
    call_judge: CallJudge | None
    running: Choices | HeldChoices
    seconds: float

    @property
    def answer_format(self) -> AnswerFormat:
        return self.binding.answer_format

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
        facts = {
            **(self.binding.facts or {}),
            **(self.call_judge.facts() if self.call_judge else {}),
        }
        self.extension.request.tools = shapes.tool_facts(
            facts, [choice.reader.message for choice in self.choices]
        )
        return self.extension.members()

    @property
    def spent(self) -> list[list[Finished]]:
        """For each choice, the ends of all attempts at it."""
        if isinstance(self.running, HeldChoices):
            return self.running.ends
        return [[end] for end in self.ends]

    @property
    def usage(self) -> dict[str, Any]:
        """`usage` of all attempts."""
        thought = sum(choice.counting.reasoning_tokens for choice in self.choices)
        if isinstance(self.running, HeldChoices):
            thought = self.running.reasoning_tokens
        return shapes.usage(self.spent, len(self.choices), reasoning_tokens=thought)

    @property
    def timings(self) -> dict[str, Any]:
        """`timings` of all attempts."""
        return shapes.timings(self.spent, self.answer_format)

    def finish_reason(self, index: int) -> str | None:
        """Of a choice; None: it has not ended."""
        choice = self.choices[index]
        if choice.end is None:
            return None
        return shapes.finish_reason(choice.end, choice.reader.message, self.binding.offer)

    async def finish(self, index: int, end: Finished) -> None:
        """A choice has ended, and its reader is finished.

        Raises:
            ApiError: 500, the answer is not what the grammar should have made it; 422, it holds a
                call that a strict function doesn't take.
        """
        choice = self.choices[index]
        choice.end = end
        tell_end(self.extension, index, end)
        message = choice.reader.message
        if self.call_judge is not None:
            self.call_judge.judge(index, message.calls)
            if len(message.calls) > 1 and self.call_judge.legacy:
                self.extension.warn("The model made several calls; function_call is the first.")
        if isinstance(self.running, HeldChoices):
            return  # its content has been judged
        if message.calls and not message.content:
            return  # calls instead of the content that a format is asked of
        verdict = await self.judge.judge(message.content, end)
        if verdict is not None:
            verdict.tell(self.extension.choices[index])


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
    require_tokens(wanted, served)
    asked = wanted.wanted_format
    asked = None if asked is None else served.formats.resolved(asked)
    require_profile(wanted, asked, served.dialects, default=served.settings.grammar.profile)
    binding = await bind(served, wanted, asked)
    grounding = await grounding_of(wanted, binding.answer_format)
    limit = wanted.token_limit or served.settings.engine.max_tokens_default
    loops = loops_of(wanted, binding.answer_format, count=count, max_tokens=limit)
    if loops is not None:
        limit = loops[0].budget
    room = served.engine.n_ctx - len(binding.tokens)
    await require_room(wanted, binding.grammar, limit, context=room)
    requests = generations_of(
        wanted,
        served,
        [binding.tokens],
        count=count,
        grammar=binding.grammar,
        max_tokens=limit,
        top_logprobs=(wanted.top_logprobs or 0) if wanted.logprobs else None,
    )
    judge = Judge(binding.answer_format, served.formats.count_fault, grounding)
    call_judge = None
    if binding.offer is not None:
        call_judge = CallJudge(binding.offer, binding.facts, served.formats.count_fault)
    extension = Extension(count, schema=binding.answer_format.report)
    for warning in binding.warnings:
        extension.warn(warning)
    running: Choices | HeldChoices
    if loops is None and (grounding is None or grounding.on_ungrounded != "null"):
        running = Choices(served.engine, requests, observe=served.observe)
    else:
        running = HeldChoices(
            served.engine,
            requests,
            judge=HeldJudge(judge, call_judge),
            reader=binding.reader,
            extension=extension,
            loops=loops,
            prompter=partial(prompt_again, served, wanted),
            observe=served.observe,
        )
    kind = "chat.completion.chunk" if wanted.stream else "chat.completion"
    return _Answer(
        request=wanted,
        envelope=shapes.Envelope("chatcmpl", kind, served.name, served.fingerprint),
        binding=binding,
        choices=tuple(_Choice.of(binding.reader()) for _ in requests),
        extension=extension,
        judge=judge,
        call_judge=call_judge,
        running=running,
        seconds=seconds_of(wanted, served),
    )


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
                choice.counting.feed(event)
            elif isinstance(event, Finished):
                choice.reader.finish()
                await answer.finish(index, event)
    return answer.envelope.wrap(
        [
            {
                "index": index,
                "message": shapes.message(choice.reader.message, answer.binding.offer),
                "logprobs": shapes.chat_logprobs(choice.tokens) if wanted.logprobs else None,
                "finish_reason": answer.finish_reason(index),
            }
            for index, choice in enumerate(answer.choices)
        ],
        usage=answer.usage,
        timings=answer.timings,
        **answer.extras,
    )


async def _events(answer: _Answer) -> AsyncGenerator[ServerSentEvent]:
    """The answer as a stream."""
    writer = _ChunkWriter(answer)
    for chunk in writer.opening():
        yield chunk
    async with aclosing(answer.running.events(seconds=answer.seconds)) as events:
        async for index, event in events:
            for chunk in writer.chunks(index, event):
                yield chunk
            if isinstance(event, Finished):
                await answer.finish(index, event)
                yield writer.finish(index)
    for chunk in writer.closing():
        yield chunk


class _ChunkWriter:
    """Events of the choices -> chunks, in OpenAI's order."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        options = answer.request.options
        self._with_usage = bool(options.include_usage)
        self._with_regions = bool(options.include_region_events)
        self._with_values = bool(options.include_value_events)
        self._with_logprobs = bool(answer.request.logprobs)

    def opening(self) -> list[ServerSentEvent]:
        """Introduce every choice, then the regions that the prompt has opened."""
        count = range(len(self._answer.choices))
        # With tools there may be no content: null, until some comes.
        content = "" if self._answer.binding.offer is None else None
        chunks = [self._delta(index, {"role": "assistant", "content": content}) for index in count]
        for index in count:
            chunks += self._outputs(index, self._answer.choices[index].reader.start())
        return chunks

    def chunks(
        self, index: int, event: TextPiece | Finished | AttemptEvent
    ) -> list[ServerSentEvent]:
        """What one event of one choice says."""
        choice = self._answer.choices[index]
        match event:
            case TextPiece():
                choice.tokens += event.tokens
                return self._outputs(index, choice.counting.feed(event))
            case AttemptEvent():
                attempt = {"choice": index, **event.as_dict()}
                return [sse.event(self._wrap([], attempt=attempt), name=event.name)]
            case _:
                return self._outputs(index, choice.reader.finish())

    def closing(self) -> list[ServerSentEvent]:
        """The usage chunk, where it was asked for."""
        if not self._with_usage:
            return []
        answer = self._answer
        return [
            sse.event(
                answer.envelope.wrap(
                    [],
                    usage=answer.usage,
                    timings=answer.timings,
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
                case ToolCallDelta():
                    delta = shapes.tool_call_delta(output, self._answer.binding.offer)
                    if delta is not None:
                        chunks.append(self._delta(index, delta))
                case RegionEvent() if self._with_regions:
                    region = {"choice": index, **output.as_dict()}
                    chunk = self._wrap([], region=region)
                    chunks.append(sse.event(chunk, name=output.type))
                case ValueEvent() if self._with_values:
                    value = {"choice": index, **output.as_dict()}
                    chunks.append(sse.event(self._wrap([], value=value), name="value"))
        return chunks

    def _delta(self, index: int, delta: dict[str, Any]) -> ServerSentEvent:
        return sse.event(self._wrap([self._choice(index, delta, None)]))

    def finish(self, index: int) -> ServerSentEvent:
        """The choice's last chunk, once the answer knows of its end."""
        answer = self._answer
        more: dict[str, Any] = {}
        if len(answer.ends) == len(answer.choices):  # the last one
            more = answer.extras
            if not self._with_usage:
                more["timings"] = answer.timings
        choice = self._choice(index, {}, answer.finish_reason(index))
        return sse.event(self._wrap([choice], **more))

    def _choice(self, index: int, delta: dict[str, Any], reason: str | None) -> dict[str, Any]:
        """A chunk's choice; it takes along the tokens that no chunk has told of yet."""
        choice = self._answer.choices[index]
        tokens, choice.tokens = choice.tokens, []
        logprobs = shapes.chat_logprobs(tokens) if self._with_logprobs and tokens else None
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _wrap(self, choices: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
        usage = {"usage": None} if self._with_usage else {}
        return self._answer.envelope.wrap(choices, **usage, **more)
