"""Answers that are looked at before they are sent: repaired, or with null where nothing was stated.

    Choices ─▶ all pieces of an answer are held ─▶ HeldJudge ─┬▶ accepted: the pieces, then its end
                        ▲                                      ├▶ rejected: `AttemptEvent`, again
                        └────── another attempt ◀──────────────┘  given up: `repair_failed`

Each choice is a track of its own: judged, repaired and sent without waiting for the others.

Invariants: no piece of a rejected answer gets out as content; nothing is generated after
`cancel()`; whatever was generated is counted in `ends`.

Read next: `server/repair.py`, which decides; `server/api/running.py`, which this stands in for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

from server.api import shapes
from server.api.errors import ApiError, RequestTimeoutError
from server.api.extension import Extension
from server.api.judging import Judge, Verdict, cut_off_reason, ungrounded_error
from server.api.running import Choices, ClientGoneError
from server.api.toolchecks import CallJudge
from server.deltas import AnswerMessage, AnswerReader
from server.engine.engine import Engine
from server.engine.errors import BudgetTooSmallError, ContextOverflowError
from server.engine.types import Finished, GenerationRequest, TextPiece
from server.repair import Accept, Attempt, GiveUp, Reason, RepairLoop, Step, WrittenCall
from server.thoughts import CountingReader

#: Makes the prompt's tokens of the conversation with further turns behind.
Prompter = Callable[[Sequence[Any]], Awaitable[Sequence[int]]]


@dataclass(frozen=True, slots=True)
class AttemptEvent:
    """An attempt begins (`attempt` None), or is over."""

    number: int
    max_tokens: int | None
    attempt: Attempt | None = None

    @property
    def name(self) -> str:
        """The event's name in a stream."""
        return "attempt_open" if self.attempt is None else "attempt_close"

    def as_dict(self) -> dict[str, Any]:
        """The event's own part of the wire object."""
        if self.attempt is None:
            return {"type": self.name, "attempt": self.number, "max_tokens": self.max_tokens}
        return {"type": self.name, **self.attempt.as_dict()}


Said = TextPiece | Finished | AttemptEvent


@dataclass(frozen=True, slots=True)
class Held:
    """An answer that was looked at. `verdict` is on its content, None where that is free."""

    message: AnswerMessage
    verdict: Verdict | None
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class HeldJudge:
    """Says why an answer is not to be sent. `calls`: None where no tools are offered."""

    content: Judge
    calls: CallJudge | None = None

    async def judge(self, message: AnswerMessage, end: Finished, max_tokens: int | None) -> Held:
        """Look at one answer, its content and its calls.

        Args:
            max_tokens: its budget.

        Raises:
            ApiError: 500, the grammar let something pass that the schema forbids.
        """
        verdict = None
        if message.content or not message.calls:  # else there are calls in place of the content
            verdict = await self.content.judge(message.content, end)
        reasons = () if verdict is None else verdict.reasons(max_tokens=max_tokens)
        if self.calls is not None and not reasons:
            broken = not all(call.complete for call in message.calls)
            missing = self.calls.required and not message.calls
            cut = cut_off_reason(end, max_tokens, is_whole=not (broken or missing))
            reasons = self.calls.reasons(message.calls) if cut is None else (cut,)
        return Held(message, verdict, reasons)


@dataclass(slots=True)
class _Track:
    """One choice on its way. `ends`: of all of its attempts, in turn."""

    index: int
    request: GenerationRequest
    running: Choices
    loop: RepairLoop | None
    ends: list[Finished] = field(default_factory=list)


class HeldChoices:
    """Reads like `Choices`, but an answer comes out only when it has been judged.

    `reasoning_tokens` are those of all attempts so far.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[GenerationRequest],
        *,
        judge: HeldJudge,
        reader: Callable[[], AnswerReader],
        extension: Extension,
        loops: Sequence[RepairLoop] | None = None,
        prompter: Prompter,
        observe: Callable[[Finished], None] = lambda end: None,
    ) -> None:
        """Submit the first attempts; if one is refused, none stays.

        Args:
            reader: makes a reader of one answer.
            extension: is told what becomes known of each choice.
            loops: decide about further attempts, one for each choice; None: there are none.
            observe: is told of the end of every attempt.

        Raises:
            QueueFullError, ContextOverflowError, InvalidRequestError: from the engine.
        """
        assert loops is None or len(loops) == len(requests)
        self._engine = engine
        self._judge = judge
        self._reader = reader
        self._extension = extension
        self._prompter = prompter
        self._cancelled = False
        self._stopping = False
        self._observe = observe
        self._tracks: list[_Track] = []
        self.reasoning_tokens = 0
        try:
            for index, request in enumerate(requests):
                loop = None if loops is None else loops[index]
                self._tracks.append(_Track(index, request, self._submit(request), loop))
        except BaseException:
            self.cancel()
            raise

    @property
    def ends(self) -> list[list[Finished]]:
        """For each choice, the ends of all attempts at it, in turn."""
        return [track.ends for track in self._tracks]

    def cancel(self) -> None:
        """Stop whatever runs, and begin nothing more."""
        self._cancelled = True
        for track in self._tracks:
            track.running.cancel()

    def stop_for_shutdown(self) -> None:
        """Have `events()` raise, because the server is going down."""
        self._stopping = True
        for track in self._tracks:
            track.running.stop_for_shutdown()

    async def events(self, *, seconds: float) -> AsyncGenerator[tuple[int, Said]]:
        """(choice, event) pairs: those of the attempts, then the accepted answers.

        Raises:
            RequestTimeoutError: it took longer than `seconds` altogether.
            ApiError: 422, no attempt at one of the choices was accepted; or what `HeldJudge.judge`
                raises.
            Exception: what a choice failed with.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        queue: asyncio.Queue[tuple[int, Said] | Exception] = asyncio.Queue()

        async def follow(track: _Track) -> None:
            try:
                async with aclosing(self._attempts(track, deadline, seconds)) as events:
                    async for event in events:
                        queue.put_nowait((track.index, event))
            except Exception as error:  # whatever it was, the reader must hear of it
                queue.put_nowait(error)

        tasks = [asyncio.create_task(follow(track)) for track in self._tracks]
        left = len(tasks)
        try:
            while left:
                event = await queue.get()
                if isinstance(event, Exception):
                    raise event
                yield event
                left -= isinstance(event[1], Finished)
        finally:
            self.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _attempts(
        self, track: _Track, deadline: float, seconds: float
    ) -> AsyncGenerator[Said]:
        """Attempts at one choice, until one is accepted."""
        loop = track.loop
        while True:
            if loop is not None:
                yield AttemptEvent(loop.number, loop.budget)
            pieces, end = await self._finished(track, deadline, seconds)
            track.ends.append(end)
            held = await self._held(track, pieces, end)
            accepted = True
            if loop is not None:
                step = self._decide(track, loop, held, end)
                attempt = loop.attempts[-1]
                yield AttemptEvent(attempt.number, attempt.max_tokens, attempt)
                accepted = await self._follow(track, loop, step)
            elif held.verdict is not None and held.verdict.intolerable:
                raise ungrounded_error(held.verdict)
            if accepted:
                self._tell(track, held.verdict)
                for piece in _pieces(pieces, held.verdict):
                    yield piece
                yield end
                return

    async def _finished(
        self, track: _Track, deadline: float, seconds: float
    ) -> tuple[list[TextPiece], Finished]:
        """All of the attempt that runs now."""
        pieces: list[TextPiece] = []
        left = deadline - asyncio.get_running_loop().time()
        try:
            async with aclosing(track.running.events(seconds=left)) as events:
                async for _, event in events:
                    if isinstance(event, Finished):
                        return pieces, event
                    pieces.append(event)
        except RequestTimeoutError:
            raise RequestTimeoutError(seconds) from None
        raise AssertionError("a generation ended without saying how")

    async def _held(self, track: _Track, pieces: Sequence[TextPiece], end: Finished) -> Held:
        reader = self._reader()
        reader.start()
        counting = CountingReader(reader)
        for piece in pieces:
            counting.feed(piece)
        reader.finish()
        self.reasoning_tokens += counting.reasoning_tokens
        return await self._judge.judge(reader.message, end, track.request.max_tokens)

    def _decide(self, track: _Track, loop: RepairLoop, held: Held, end: Finished) -> Step:
        message, verdict = held.message, held.verdict
        return loop.next(
            message.content if verdict is None else verdict.written,
            held.reasons,
            tokens=end.usage.completion_tokens,
            room=self._engine.n_ctx - len(track.request.prompt),
            calls=[WrittenCall(call.id, call.name, call.arguments) for call in message.calls],
        )

    async def _follow(self, track: _Track, loop: RepairLoop, step: Step) -> bool:
        """Whether the answer is accepted; if not, another attempt has begun."""
        if isinstance(step, Accept):
            return True
        if isinstance(step, GiveUp):
            raise self._failed(track, loop, step)
        prompt = tuple(await self._prompter(step.messages))
        if self._cancelled:
            raise ClientGoneError
        track.request = replace(track.request, prompt=prompt, max_tokens=step.max_tokens)
        try:
            track.running = self._submit(track.request)
        except (ContextOverflowError, BudgetTooSmallError) as error:
            raise self._failed(track, loop, GiveUp("context_exhausted")) from error
        if self._stopping:
            track.running.stop_for_shutdown()
        return False

    def _submit(self, request: GenerationRequest) -> Choices:
        return Choices(self._engine, [request], observe=self._observe)

    def _tell(self, track: _Track, verdict: Verdict | None) -> None:
        facts = self._extension.choices[track.index]
        if verdict is not None:
            verdict.tell(facts)
        if track.loop is not None:
            attempts = track.loop.attempts
            facts.repair = {
                "attempts": len(attempts),
                "rejected": [attempt.as_dict() for attempt in attempts[:-1]],
            }

    def _failed(self, track: _Track, loop: RepairLoop, end: GiveUp) -> ApiError:
        attempts = loop.attempts
        last = attempts[-1]
        reasons = "; ".join(
            f"{reason.pointer}: {reason.message}" if reason.pointer else reason.message
            for reason in last.reasons[:3]
        )
        count = f"{len(attempts)} attempt{'s' if len(attempts) > 1 else ''}"
        several = len(self._tracks) > 1
        which = f" for choice {track.index}" if several else ""
        return ApiError(
            422,
            f"No acceptable answer{which} after {count}: {end.message}. The last one: {reasons}.",
            kind="answer_error",
            code="repair_failed",
            extra={
                "reason": end.failure,
                **({"choice": track.index} if several else {}),
                "attempts": [attempt.as_dict() for attempt in attempts],
                "usage": shapes.usage(
                    self.ends, len(self._tracks), reasoning_tokens=self.reasoning_tokens
                ),
            },
        )


def _pieces(held: Sequence[TextPiece], verdict: Verdict | None) -> Sequence[TextPiece]:
    """What is sent: as it came, or in one piece if it had to be changed. What stands around the
    content (reasoning, delimiters) stays."""
    if verdict is None or verdict.with_nulls is None:
        return held
    tokens = tuple(token for piece in held for token in piece.tokens)
    before, _, after = "".join(piece.text for piece in held).rpartition(verdict.written)
    return [TextPiece(before + verdict.with_nulls + after, tokens)]
