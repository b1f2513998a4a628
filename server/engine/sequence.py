"""One request on its way: its tokens, its matcher, its sampler, its text.

`Sequence.take(logits)` is one step of the masked loop: mask → sample → advance → text → end? What
the grammar forces after that is appended at once and evaluated together with the sampled token.
What has been computed for a sequence follows from its tokens and the slot it sits in:

    tokens                        the prompt, then what was generated
    tokens[0 : len(slot.tokens)]  is in the model's cache
    tokens[len(slot.tokens) :]    is pending; at least one token while the sequence lives

so a sequence in prefill, one that decodes, and one that was preempted and starts over are the same
thing. Invariant: only the engine's thread touches a sequence; the outlet's `cancelled` flag is all
that other threads may set. Read next: `scheduler.py`.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

import numpy as np

from grammar import NoLegalContinuation
from server.engine.clock import Clock
from server.engine.forced import WINDOW, Splitter
from server.engine.model import LanguageModel, Logits
from server.engine.sampling import Choice, Ids, Mask, Sampler, Workspace, without
from server.engine.steering import Steering
from server.engine.text import TextAssembler
from server.engine.types import (
    Finished,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    SteeringCause,
    TextPiece,
    TokenRecord,
    Usage,
)
from server.engine.watching import Watch

if TYPE_CHECKING:
    from grammar import Matcher


REREAD = 2
"""How many of a prompt's last tokens are evaluated even if a slot holds them: one for its logits,
and one more since a batch of one token goes through other kernels than a larger one and comes out a
little different, so that a prompt asked again would not get the same answer."""

_PROPOSALS = 8  # so many tokens are judged in one step before the way to the end is taken


class Outlet(Protocol):
    """Where a sequence's events go."""

    @property
    def cancelled(self) -> bool:
        """Whether the reader has gone; may become true at any time, on any thread."""

    def deliver(self, events: list[GenerationEvent]) -> None:
        """Hand events over, in order. Must not block and must not raise."""


class Sequence:
    """One request in flight. `limit` is the most tokens that prompt and answer may have."""

    def __init__(
        self, request: GenerationRequest, outlet: Outlet, model: LanguageModel, limit: int
    ) -> None:
        self.request = request
        self.outlet = outlet
        self.tokens: list[int] = list(request.prompt)
        self.cached_tokens = 0
        self.end: FinishReason | None = None
        self._model = model
        self._limit = limit
        self._text = TextAssembler(request.stop)
        self._sampled = 0
        self._forced = 0
        self._sampler: Sampler | None = None
        self._splitter: Splitter | None = None  # for forced runs
        self._canon: Splitter | None = None  # to ask whether the answer's split is canonical
        self._matcher: Matcher | None = None
        self._steering: Steering | None = None
        self._mask: Mask | None = None
        self._ids: Ids | None = None
        self._clock = Clock()
        self._watch = Watch(len(request.prompt)) if request.diagnostics else None
        self._held_end: FinishReason | None = None  # the end, while something is to be observed

    @property
    def submitted(self) -> float:
        """When it was made, by `time.perf_counter`."""
        return self._clock.submitted

    @property
    def reusable(self) -> int:
        """How many of its tokens need not be evaluated if another sequence holds them."""
        return min((len(self.tokens) - REREAD, *self.unseen))

    @property
    def unseen(self) -> Collection[int]:
        """The positions of tokens whose logits are wanted, besides the last one's."""
        return self._watch.unseen if self._watch is not None else ()

    @property
    def started(self) -> bool:
        """Whether it has had a slot before."""
        return self._sampler is not None

    @property
    def completion_tokens(self) -> int:
        """Generated tokens, the end token not counted."""
        return len(self.tokens) - len(self.request.prompt)

    def start(
        self,
        workspace: Workspace,
        entropy: np.random.SeedSequence | None,
        splitter: Splitter | None = None,
        *,
        forces: bool = True,
    ) -> list[GenerationEvent]:
        """Prepare for sampling; returns the events of what the grammar forces at the beginning.

        Nothing is forced without a splitter or unless the engine `forces` at all. Ends at once if
        the grammar allows one text only.
        """
        request = self.request
        self._clock.placed = time.perf_counter()
        self._sampler = Sampler(
            request.sampling,
            workspace,
            top_logprobs=request.top_logprobs,
            raw_logprobs=request.raw_logprobs,
            diagnostics=request.trace or request.diagnostics,
            entropy=entropy,
        )
        self._canon = splitter
        if request.grammar is None:
            return []
        self._matcher = request.grammar.start()
        if forces and request.forced_runs and not request.trace and not request.raw_logprobs:
            self._splitter = splitter
        if request.closes or request.repetition_guard:
            self._steering = Steering(
                self._matcher, closes=request.closes, repetition=request.repetition_guard
            )
        return self._events(self._go_on())

    def take(self, logits: Logits) -> list[GenerationEvent]:
        """One step with the logits that follow `tokens`; returns the events it gives rise to.

        Raises:
            NoLegalContinuation: the grammar allows no token here.
            BadLogitsError: the logits are not finite.
        """
        assert self.end is None, "the sequence has ended"
        if self._held_end is not None:
            self.end = self._held_end
            return self._events([])
        choice = self._sample(logits)
        if choice is None:
            self.end = "length"
            return self._events([])
        record = self._record(choice)
        if choice.token in self._model.info.eos_ids:
            self.end = "stop"
            return self._events([self._text.push(b"", record)] if self.request.trace else [])
        if self._watch is not None and choice.diagnostics is not None:
            self._watch.sampled(len(self.tokens), choice.diagnostics)
        return self._events([self._append(record), *self._go_on()])

    def observe(self, pos: int, logits: Logits) -> None:
        """The logits of one of the positions in `unseen`.

        Raises:
            BadLogitsError: the logits are not finite.
        """
        assert self._sampler is not None, "start() comes first"
        assert self._watch is not None, "nothing is unseen"
        sampler = self._sampler
        self._watch.observe(pos, lambda mask, ids: sampler.observe(logits, mask, ids))

    # --- the parts of a step ---------------------------------------------------------------

    def _sample(self, logits: Logits) -> Choice | None:
        """Pick a token; None where steering ends the answer instead, which is complete."""
        assert self._sampler is not None, "start() comes first"
        begin = time.perf_counter()
        if not self._sampled:
            self._clock.first_logits = begin
        try:
            choice = self._sampler.sample(logits, self._mask, self._ids)
        except NoLegalContinuation as error:
            assert self._matcher is not None, "without a grammar everything is legal"
            raise NoLegalContinuation(self._matcher.describe()) from error
        steered: Choice | None = choice
        if self._steering is not None and self._steering.watches:
            steered = self._steer(self._steering, choice, logits)
        if steered is not None:
            self._sampler.accept(steered.token)
            self._sampled += 1
        self._clock.sample += time.perf_counter() - begin
        return steered

    def _steer(self, steering: Steering, first: Choice, logits: Logits) -> Choice | None:
        """The choice, or another where steering doesn't admit it; None: the answer ends here."""
        assert self._sampler is not None
        choice, mask, ids = first, self._mask, self._ids
        for _ in range(_PROPOSALS):
            if choice.token in self._model.info.eos_ids:
                return choice._replace(diagnostics=first.diagnostics)
            if steering.admits(choice.token, self._room - 1):
                return choice._replace(diagnostics=first.diagnostics)
            steering.mark(self.completion_tokens, self._limiting)
            mask, ids = without(choice.token, mask, ids, self._model.vocab_size)
            if not mask.any():
                break
            choice = self._sampler.sample(logits, mask, ids)
        token = steering.planned()
        if token is None:
            assert self._matcher is not None
            if self._matcher.is_accepting():
                return None
            steering.give_up()
            return first
        only = np.array([token], dtype=np.int32)
        choice = self._sampler.sample(logits, None, only)
        return choice._replace(diagnostics=first.diagnostics)

    def _append(self, record: TokenRecord) -> TextPiece | None:
        """Make a token part of the answer, which ends if that completes a stop string."""
        self.tokens.append(record.id)
        piece = self._text.push(record.data, record)
        if self._text.stop_sequence is not None:
            self.end = "stop"
        elif self._matcher is not None:
            begin = time.perf_counter()
            self._matcher.advance(record.id)
            if self._steering is not None:
                self._steering.took(record.id)
            self._clock.mask += time.perf_counter() - begin
        return piece

    def _go_on(self) -> list[TextPiece | None]:
        """Append what is forced, up to a choice or the end, and get the mask of the choice."""
        pieces: list[TextPiece | None] = []
        while self.end is None:
            begin = time.perf_counter()
            run = self._forced_run()
            if not run and self._matcher is not None and self._look_ahead():
                self.end = "stop"
            elif self._is_full():
                self.end = "length"
            elif not run:
                run = self._only_token()
            self._clock.mask += time.perf_counter() - begin
            if not run:
                break
            for token in run:
                if self.end is None and self._is_full():
                    self.end = "length"
                if self.end is not None:
                    break
                pieces.append(self._append(self._forced_record(token)))
        return pieces

    def _forced_run(self) -> list[int]:
        if self._splitter is None:
            return []
        assert self._matcher is not None
        begin = max(len(self.request.prompt), len(self.tokens) - WINDOW)
        run = self._splitter.plan(self._matcher, self.tokens[begin:])
        if self._steering is not None and not self._steering.admits_run(run, self._room):
            return []  # the model finds a shorter way to spell it
        return run

    def _only_token(self) -> list[int]:
        """The token that alone is legal; the mask is up to date."""
        if self._splitter is None or self._ids is None or self._ids.size != 1:
            return []
        return [int(self._ids[0])]

    @property
    def _room(self) -> int:
        """How many tokens the answer may still have."""
        room = self._limit - len(self.tokens)
        most = self.request.max_tokens
        return room if most is None else min(room, most - self.completion_tokens)

    @property
    def _limiting(self) -> SteeringCause:
        """Which limit the answer will meet first."""
        most = self.request.max_tokens
        rest = self._limit - len(self.request.prompt)
        return "context" if most is None or rest < most else "max_tokens"

    def _is_full(self) -> bool:
        return self._room <= 0

    def _look_ahead(self) -> bool:
        """Get the next step's mask; whether the end tokens are all it allows."""
        assert self._matcher is not None
        self._mask = self._matcher.mask()
        ids = self._ids = self._matcher.legal_ids()
        eos_ids = self._model.info.eos_ids
        return (
            ids is not None
            and 0 < ids.size <= len(eos_ids)
            and all(token in eos_ids for token in ids.tolist())
        )

    def _record(self, choice: Choice) -> TokenRecord:
        text = self._model.token_text
        return TokenRecord(
            id=choice.token,
            data=text(choice.token),
            logprob=choice.logprob,
            top=tuple((token, text(token), logprob) for token, logprob in choice.top),
            diagnostics=choice.diagnostics,
        )

    def _forced_record(self, token: int) -> TokenRecord:
        """Count a forced token, for the penalties too; see `TokenRecord` for what it reports."""
        assert self._sampler is not None
        if self._watch is not None:
            assert self._matcher is not None
            self._watch.forced(len(self.tokens), self._matcher.mask(), self._matcher.legal_ids())
        self._sampler.accept(token)
        self._forced += 1
        data = self._model.token_text(token)
        most = self.request.top_logprobs
        return TokenRecord(
            id=token,
            data=data,
            logprob=None if most is None else 0.0,
            top=((token, data, 0.0),) if most else (),
            forced=True,
        )

    def _events(self, pieces: list[TextPiece | None]) -> list[GenerationEvent]:
        """The pieces that there are, and the end if it has come.

        It is held back while logits of forced tokens are to be observed.
        """
        if self.end is not None and self.unseen:
            self._held_end, self.end = self.end, None
        if self.end is not None:
            pieces.append(self._text.finish())
        events: list[GenerationEvent] = [piece for piece in pieces if piece is not None]
        return [*events, self._finished()] if self.end is not None else events

    def _finished(self) -> Finished:
        assert self.end is not None
        stop_sequence = self._text.stop_sequence
        steering = self._steering
        if steering is not None and steering.closes and self.end == "length":
            steering.mark(self.completion_tokens, self._limiting)
        steered = None if steering is None else steering.steered
        reason = self.end if steered is None else "length"
        matcher = self._matcher
        is_complete = steered is not None and matcher is not None and matcher.is_accepting()
        return Finished(
            reason=reason if stop_sequence is None else "stop",
            stop_sequence=stop_sequence,
            usage=Usage(len(self.request.prompt), self.completion_tokens, self.cached_tokens),
            timings=self._clock.timings(self._sampled + self._forced, self._forced),
            steered=steered,
            is_complete=is_complete,
            diagnostics=None
            if self._watch is None
            else self._watch.result(
                self.tokens[len(self.request.prompt) :], self._model, self._canon
            ),
        )
