"""`POST /v1/completions`: the prompt as it is, the text as it comes.

`response_format` works here, too (an extension). Several prompts give several answers in one:
choice `p * n + k` is the k-th answer to prompt p.

Invariant: the same as in `chat.py`, without roles and regions.

Read next: `server/api/chat.py`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from sse_starlette import ServerSentEvent
from starlette.requests import Request
from starlette.responses import Response

from server.api import shapes, sse
from server.api.answerformat import AnswerFormat
from server.api.answering import respond
from server.api.errors import ApiError, to_api_error
from server.api.extension import Extension
from server.api.judging import Judge
from server.api.models import CompletionRequest
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
from server.engine.errors import ContextOverflowError
from server.engine.types import Finished, TextPiece, TokenRecord

#: Most tokens of an answer whose request sets no limit, as in OpenAI's API.
DEFAULT_MAX_TOKENS = 16

#: Most choices of one request over all of its prompts.
MAX_ALL_CHOICES = 64


@dataclass(slots=True)
class _Choice:
    """One choice on its way. `length` counts the characters sent, for `text_offset`."""

    echo: str
    parts: list[str] = field(default_factory=list)
    tokens: list[TokenRecord] = field(default_factory=list)
    length: int = 0
    end: Finished | None = None

    def take(self, piece: TextPiece) -> None:
        """The next piece of the choice has come."""
        self.parts.append(piece.text)
        self.tokens += piece.tokens


@dataclass(frozen=True, slots=True)
class _Answer:
    request: CompletionRequest
    envelope: shapes.Envelope
    answer_format: AnswerFormat
    choices: tuple[_Choice, ...]
    per_prompt: int
    extension: Extension
    judge: Judge
    running: Choices
    seconds: float

    @property
    def ends(self) -> list[list[Finished]]:
        return [[choice.end] for choice in self.choices if choice.end is not None]

    def usage(self) -> dict[str, Any]:
        return shapes.usage(self.ends, self.per_prompt)

    async def finish(self, index: int, end: Finished) -> None:
        """A choice has ended.

        Raises:
            ApiError: 500, the answer is not what the grammar should have made it.
        """
        choice = self.choices[index]
        choice.end = end
        tell_end(self.extension, index, end)
        verdict = await self.judge.judge("".join(choice.parts), end)
        if verdict is not None:
            verdict.tell(self.extension.choices[index])

    def timings(self) -> dict[str, Any]:
        return shapes.timings(self.ends, self.answer_format)


async def completions(request: Request, runtime: Runtime) -> Response:
    """Serve one request.

    Raises:
        Exception: anything that `to_api_error` knows.
    """
    return await respond(
        request, runtime, CompletionRequest, begin=_begin, whole=_whole, events=_events
    )


async def _begin(served: Served, wanted: CompletionRequest) -> _Answer:
    """Prepare and submit; from here on the generations run."""
    count = max_choices(wanted.n, served)
    require_tokens(wanted, served)
    limit = wanted.max_tokens or DEFAULT_MAX_TOKENS
    answer_format = await served.formats.compile(wanted.wanted_format, source=wanted.source_text)
    prompts = await anyio.to_thread.run_sync(_prompts, served, wanted, abandon_on_cancel=True)
    if len(prompts) * count > MAX_ALL_CHOICES:
        raise ApiError(
            400,
            f"Invalid value for 'prompt': with 'n' it asks for {len(prompts) * count} choices; "
            f"this server gives at most {MAX_ALL_CHOICES}.",
            param="prompt",
            code="invalid_value",
        )
    room = served.engine.n_ctx - max(len(prompt) for prompt, _ in prompts)
    await require_room(wanted, answer_format.grammar, limit, context=room)
    requests = generations_of(
        wanted,
        served,
        [prompt for prompt, _ in prompts],
        count=count,
        grammar=answer_format.grammar,
        max_tokens=limit,
        top_logprobs=wanted.logprobs,
    )
    try:
        running = Choices(served.engine, requests, observe=served.observe)
    except ContextOverflowError as error:
        overflow = to_api_error(error)
        overflow.param = "prompt"
        raise overflow from error
    extension = Extension(len(requests), schema=answer_format.report)
    if answer_format.bound is not None and answer_format.bound.says_ground:
        extension.warn("x-ground is not checked in plain completions, only in chat.")
    return _Answer(
        request=wanted,
        envelope=shapes.Envelope("cmpl", "text_completion", served.name, served.fingerprint),
        answer_format=answer_format,
        choices=tuple(_Choice(echo) for _, echo in prompts for _ in range(count)),
        per_prompt=count,
        extension=extension,
        judge=Judge(answer_format, served.formats.count_fault),
        running=running,
        seconds=seconds_of(wanted, served),
    )


def _prompts(served: Served, wanted: CompletionRequest) -> list[tuple[tuple[int, ...], str]]:
    """(tokens, text to be echoed) of each prompt."""
    prompt = wanted.prompt
    is_one = isinstance(prompt, str) or isinstance(prompt[0], int)
    each: list[str | list[int]] = [prompt] if is_one else list(prompt)
    result: list[tuple[tuple[int, ...], str]] = []
    for one in each:
        tokens = _tokens(served, one) if isinstance(one, str) else tuple(one)
        if not tokens:
            raise ApiError(
                400,
                "Invalid value for 'prompt': a prompt can't be empty for this model.",
                param="prompt",
                code="invalid_value",
            )
        if isinstance(one, str) or not wanted.echo:
            result.append((tokens, one if wanted.echo and isinstance(one, str) else ""))
        else:
            result.append((tokens, served.engine.detokenize(tokens)))
    return result


def _tokens(served: Served, text: str) -> tuple[int, ...]:
    info = served.engine.info
    written = bool(info.bos_token) and text.startswith(info.bos_token)
    return tuple(
        served.engine.tokenize(text, add_special=info.add_bos and not written, parse_special=True)
    )


async def _whole(served: Served, wanted: CompletionRequest) -> dict[str, Any]:
    """The complete answer as one object."""
    answer = await _begin(served, wanted)
    async with aclosing(answer.running.events(seconds=answer.seconds)) as events:
        async for index, event in events:
            choice = answer.choices[index]
            if isinstance(event, TextPiece):
                choice.take(event)
            else:
                await answer.finish(index, event)
    return answer.envelope.wrap(
        [
            {
                "index": index,
                "text": choice.echo + "".join(choice.parts),
                "logprobs": _logprobs(answer, choice),
                "finish_reason": choice.end.reason if choice.end else None,
            }
            for index, choice in enumerate(answer.choices)
        ],
        usage=answer.usage(),
        timings=answer.timings(),
        **answer.extension.members(),
    )


def _logprobs(answer: _Answer, choice: _Choice) -> dict[str, Any] | None:
    """Of the tokens that nothing has told of yet."""
    tokens, choice.tokens = choice.tokens, []
    if answer.request.logprobs is None:
        return None
    shape = shapes.completion_logprobs(tokens, choice.length)
    choice.length += sum(len(text) for text in shape["tokens"])
    return shape


async def _events(answer: _Answer) -> AsyncGenerator[ServerSentEvent]:
    """The answer as a stream."""
    for index, choice in enumerate(answer.choices):
        if choice.echo:
            yield _chunk(answer, index, choice.echo)
    async with aclosing(answer.running.events(seconds=answer.seconds)) as events:
        async for index, event in events:
            choice = answer.choices[index]
            if isinstance(event, TextPiece):
                choice.take(event)
                yield _chunk(answer, index, event.text)
            else:
                await answer.finish(index, event)
                yield _finish(answer, index, event)
    if answer.request.options.include_usage:
        usage = answer.envelope.wrap([], usage=answer.usage(), timings=answer.timings())
        yield sse.event(usage)


def _finish(answer: _Answer, index: int, end: Finished) -> ServerSentEvent:
    more: dict[str, Any] = {}
    if len(answer.ends) == len(answer.choices):  # the last one
        more = answer.extension.members()
        if not answer.request.options.include_usage:
            more["timings"] = answer.timings()
    return _chunk(answer, index, "", end.reason, **more)


def _chunk(
    answer: _Answer, index: int, text: str, reason: str | None = None, **more: Any
) -> ServerSentEvent:
    if answer.request.options.include_usage:
        more["usage"] = None
    choice = answer.choices[index]
    logprobs = _logprobs(answer, choice) if choice.tokens else None
    body = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
    return sse.event(answer.envelope.wrap([body], **more))
