"""Answers that are looked at before they are sent: repaired, or with null where nothing was stated.

    Choices ─▶ all pieces of an answer are held ─▶ Judge ─┬▶ accepted: the pieces, then its end
                        ▲                                 ├▶ rejected: `AttemptEvent`, once more
                        └────── another attempt ◀─────────┘  given up: `repair_failed`

Invariants: no piece of a rejected answer gets out as content; nothing is generated after
`cancel()`; whatever was generated is counted in `spent`.

Read next: `server/repair.py`, which decides; `server/api/running.py`, which this stands in for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from server.api import shapes
from server.api.errors import ApiError, RequestTimeoutError
from server.api.extension import Extension
from server.api.judging import Judge, Verdict, ungrounded_error
from server.api.running import Choices, ClientGoneError
from server.deltas import AnswerReader
from server.engine.engine import Engine
from server.engine.errors import BudgetTooSmallError, ContextOverflowError
from server.engine.types import Finished, GenerationRequest, TextPiece
from server.repair import Accept, Attempt, GiveUp, RepairLoop, Step

#: Makes the prompt's tokens of the conversation with further messages (role and content) behind.
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


class HeldChoices:
    """Reads like `Choices`, but an answer comes out only when it has been judged."""

    def __init__(
        self,
        engine: Engine,
        requests: Sequence[GenerationRequest],
        *,
        judge: Judge,
        reader: Callable[[], AnswerReader],
        extension: Extension,
        loop: RepairLoop | None = None,
        prompter: Prompter,
        observe: Callable[[Finished], None] = lambda end: None,
    ) -> None:
        """Submit the first attempts.

        Args:
            reader: makes a reader of one answer.
            extension: is told what becomes known of each choice.
            observe: is told of the end of every attempt.
            loop: decides about further attempts, of a single choice; None: there are none.

        Raises:
            QueueFullError, ContextOverflowError, InvalidRequestError: from the engine.
        """
        assert loop is None or len(requests) == 1
        self.spent: list[Finished] = []
        self._engine = engine
        self._requests = list(requests)
        self._judge = judge
        self._reader = reader
        self._extension = extension
        self._loop = loop
        self._prompter = prompter
        self._cancelled = False
        self._stopping = False
        self._observe = observe
        self._running = Choices(engine, requests, observe=observe)

    def cancel(self) -> None:
        """Stop whatever runs, and begin nothing more."""
        self._cancelled = True
        self._running.cancel()

    def stop_for_shutdown(self) -> None:
        """Have `events()` raise, because the server is going down."""
        self._stopping = True
        self._running.stop_for_shutdown()

    async def events(
        self, *, seconds: float
    ) -> AsyncGenerator[tuple[int, TextPiece | Finished | AttemptEvent]]:
        """(choice, event) pairs: those of the attempts, then the accepted answers.

        Raises:
            RequestTimeoutError: it took longer than `seconds` altogether.
            ApiError: 422, no attempt was accepted; or what `Judge.judge` raises.
            Exception: what a choice failed with.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            while True:
                accepted = True
                if self._loop is not None:
                    yield 0, AttemptEvent(self._loop.number, self._loop.budget)
                held: list[list[TextPiece]] = [[] for _ in self._requests]
                async with aclosing(self._until(deadline, seconds)) as events:
                    async for index, event in events:
                        if isinstance(event, TextPiece):
                            held[index].append(event)
                            continue
                        verdict = await self._verdict(held[index], event)
                        if self._loop is not None:
                            step = self._decide(self._loop, verdict, event)
                            attempt = self._loop.attempts[-1]
                            yield 0, AttemptEvent(attempt.number, attempt.max_tokens, attempt)
                            accepted = await self._follow(self._loop, step, event)
                        elif verdict.intolerable:
                            raise ungrounded_error(verdict)
                        if accepted:
                            self._tell(index, verdict)
                            for piece in _pieces(held[index], verdict):
                                yield index, piece
                            yield index, event
                if accepted:
                    return
        finally:
            self.cancel()

    async def _until(
        self, deadline: float, seconds: float
    ) -> AsyncGenerator[tuple[int, TextPiece | Finished]]:
        """The events of the attempts that run now."""
        left = deadline - asyncio.get_running_loop().time()
        try:
            async with aclosing(self._running.events(seconds=left)) as events:
                async for event in events:
                    yield event
        except RequestTimeoutError:
            raise RequestTimeoutError(seconds) from None

    async def _verdict(self, pieces: Sequence[TextPiece], end: Finished) -> Verdict:
        reader = self._reader()
        reader.start()
        for piece in pieces:
            reader.feed(piece.text)
        reader.finish()
        verdict = await self._judge.judge(reader.message.content, end)
        assert verdict is not None, "only what is bound to something is held"
        return verdict

    def _decide(self, loop: RepairLoop, verdict: Verdict, end: Finished) -> Step:
        request = self._requests[0]
        return loop.next(
            verdict.written,
            verdict.reasons(max_tokens=request.max_tokens),
            tokens=end.usage.completion_tokens,
            room=self._engine.n_ctx - len(request.prompt),
        )

    async def _follow(self, loop: RepairLoop, step: Step, end: Finished) -> bool:
        """Whether the answer is accepted; if not, another attempt has begun."""
        if isinstance(step, Accept):
            return True
        self.spent.append(end)
        if isinstance(step, GiveUp):
            raise _failed(loop, step, self.spent)
        prompt = tuple(await self._prompter(step.messages))
        if self._cancelled:
            raise ClientGoneError
        self._requests[0] = replace(self._requests[0], prompt=prompt, max_tokens=step.max_tokens)
        try:
            self._running = Choices(self._engine, self._requests, observe=self._observe)
        except (ContextOverflowError, BudgetTooSmallError) as error:
            raise _failed(loop, GiveUp("context_exhausted"), self.spent) from error
        if self._stopping:
            self._running.stop_for_shutdown()
        return False

    def _tell(self, index: int, verdict: Verdict) -> None:
        facts = self._extension.choices[index]
        verdict.tell(facts)
        if self._loop is not None:
            attempts = self._loop.attempts
            facts.repair = {
                "attempts": len(attempts),
                "rejected": [attempt.as_dict() for attempt in attempts[:-1]],
            }


def _pieces(held: Sequence[TextPiece], verdict: Verdict) -> Sequence[TextPiece]:
    """What is sent: as it came, or in one piece if it had to be changed. What stands around the
    content (reasoning, delimiters) stays."""
    if verdict.with_nulls is None:
        return held
    tokens = tuple(token for piece in held for token in piece.tokens)
    before, _, after = "".join(piece.text for piece in held).rpartition(verdict.written)
    return [TextPiece(before + verdict.with_nulls + after, tokens)]


def _failed(loop: RepairLoop, end: GiveUp, spent: Sequence[Finished]) -> ApiError:
    attempts = loop.attempts
    last = attempts[-1]
    reasons = "; ".join(
        f"{reason.pointer}: {reason.message}" if reason.pointer else reason.message
        for reason in last.reasons[:3]
    )
    count = f"{len(attempts)} attempt{'s' if len(attempts) > 1 else ''}"
    return ApiError(
        422,
        f"No acceptable answer after {count}: {end.message}. The last one: {reasons}.",
        kind="answer_error",
        code="repair_failed",
        extra={
            "reason": end.failure,
            "attempts": [attempt.as_dict() for attempt in attempts],
            "usage": shapes.usage(spent),
        },
    )
