"""One request on its way: its tokens, its matcher, its sampler, its text.

`Sequence.take(logits)` is one step of the masked loop: mask → sample → advance → text → end? What
the grammar forces after that is appended at once and evaluated together with the sampled token.
What has been computed for a sequence follows from its tokens and the slot it sits in:

    tokens                        the prompt, then what was generated
    tokens[0 : len(slot.tokens)]  is in the model's cache
    tokens[len(slot.tokens) :]    is pending; at least one token while the sequence lives

so a sequence in prefill, one that decodes, and one that was preempted and starts over are the same
thing. Nothing legal is lost: where a step fails, the text that came before is given out first.
Invariant: only the engine's thread touches a sequence, but for the mask that it may let another one
make (`beside.py`); the outlet's `cancelled` flag is all that other threads may set. Read next:
`scheduler.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from server.engine.clock import Clock
from server.engine.forced import WINDOW, Splitter
from server.engine.guide import Guide
from server.engine.layout import Workspace
from server.engine.model import LanguageModel, Logits
from server.engine.sampling import Choice, Sampler
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
    from server.engine.beside import PendingMask

REREAD = 2
"""How many of a prompt's last tokens are evaluated even if a slot holds them: one for its logits,
and one more since a batch of one token goes through other kernels than a larger one and comes out a
little different, so that a prompt asked again would not get the same answer."""

_Pieces: TypeAlias = "list[TextPiece | None]"


class Outlet(Protocol):
    """Where a sequence's events go."""

    @property
    def cancelled(self) -> bool:
        """Whether the reader has gone; may become true at any time, on any thread."""

    def deliver(self, events: list[GenerationEvent]) -> None:
        """Hand events over, in order. Must not block and must not raise."""


class Sequence:
    """One request in flight; it is over when `end` or `fault` is set.

    `limit` is the most tokens that prompt and answer may have.
    """

    def __init__(
        self, request: GenerationRequest, outlet: Outlet, model: LanguageModel, limit: int
    ) -> None:
        self.request = request
        self.outlet = outlet
        self.tokens: list[int] = list(request.prompt)
        self.cached_tokens = 0
        self.end: FinishReason | None = None
        self.fault: Exception | None = None
        self.plan: tuple[int, ...] | None = None  # an answer that fits, where it is to be closed
        self._model = model
        self._limit = limit
        self._text = TextAssembler(request.stop)
        self._sampled = 0
        self._forced = 0
        self._sampler: Sampler | None = None
        self._guide: Guide | None = None
        self._canon: Splitter | None = None  # to ask whether the answer's split is canonical
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
    def pending_mask(self) -> PendingMask | None:
        """The mask that the next logits need, where it has not been looked up yet."""
        return None if self._guide is None else self._guide.pending

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
        the grammar allows one text only; what goes wrong is `fault`, as in `take`.
        """
        self._canon = splitter
        return self._events(lambda pieces: self._begin(workspace, entropy, pieces, forces=forces))

    def take(self, logits: Logits) -> list[GenerationEvent]:
        """One step with the logits that follow `tokens`; returns the events it gives rise to.

        Where something goes wrong (`NoLegalContinuation`, `StepBudgetError`, `BadLogitsError`, …)
        the events are those of what was legal before it, and `fault` says what: it has ended.
        """
        assert self.end is None, "the sequence has ended"
        return self._events(lambda pieces: self._step(logits, pieces))

    def give_rest(self) -> list[GenerationEvent]:
        """The text that was held back so far; for a sequence that something else ends."""
        rest = self._text.finish()
        return [] if rest is None else [rest]

    def observe(self, pos: int, logits: Logits) -> list[GenerationEvent]:
        """The logits of one of the positions in `unseen`; no events, but in case of a `fault`."""
        assert self._sampler is not None, "start() comes first"
        assert self._watch is not None, "nothing is unseen"
        sampler, watch = self._sampler, self._watch
        try:
            watch.observe(pos, lambda mask, ids: sampler.observe(logits, mask, ids))
        except Exception as error:
            self.fault = error
            return self.give_rest()
        return []

    # --- the parts of a step ---------------------------------------------------------------

    def _begin(
        self,
        workspace: Workspace,
        entropy: np.random.SeedSequence | None,
        pieces: _Pieces,
        *,
        forces: bool,
    ) -> None:
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
        if request.grammar is None:
            return
        forces = forces and request.forced_runs and not request.trace and not request.raw_logprobs
        self._guide = Guide(
            request, self._canon if forces else None, self._model, self._limiting, self.plan
        )
        self._go_on(pieces)

    def _step(self, logits: Logits, pieces: _Pieces) -> None:
        if self._held_end is not None:
            self.end = self._held_end
            return
        if not self._sampled:
            self._clock.first_logits = time.perf_counter()
        choice = self._pick(logits)
        if choice is None:
            self.end = "length"
            return
        record = self._record(choice)
        if choice.token in self._model.info.eos_ids:
            self.end = "stop"
            if self.request.trace:
                pieces.append(self._text.push(b"", record))
            return
        if self._watch is not None and choice.diagnostics is not None:
            self._watch.sampled(len(self.tokens), choice.diagnostics)
        self._append(record, pieces)
        self._go_on(pieces)

    def _pick(self, logits: Logits) -> Choice | None:
        """Pick a token; None where steering ends the answer instead, which is complete."""
        assert self._sampler is not None, "start() comes first"
        begin = time.perf_counter()
        if self._guide is None:
            choice: Choice | None = self._sampler.sample(logits)
        else:
            self._guide.settle()
            settled = time.perf_counter()
            self._clock.mask += settled - begin
            begin = settled
            written = self.completion_tokens
            choice = self._guide.pick(self._sampler, logits, written, self._room)
        if choice is not None:
            self._sampler.accept(choice.token)
            self._sampled += 1
        self._clock.sample += time.perf_counter() - begin
        return choice

    def _append(self, record: TokenRecord, pieces: _Pieces) -> None:
        """Make a token part of the answer, which ends if that completes a stop string."""
        self.tokens.append(record.id)
        pieces.append(self._text.push(record.data, record))
        if self._text.stop_sequence is not None:
            self.end = "stop"
        elif self._guide is not None:
            begin = time.perf_counter()
            self._guide.advance(record.id)
            self._clock.mask += time.perf_counter() - begin

    def _go_on(self, pieces: _Pieces) -> None:
        """Append what is forced, up to a choice or the end, and look ahead to the choice."""
        while self.end is None:
            begin = time.perf_counter()
            run: list[int] = []
            guide = self._guide
            if guide is not None:
                tail = self.tokens[max(len(self.request.prompt), len(self.tokens) - WINDOW) :]
                run = guide.forced_run(tail, self._room)
            if not run and guide is not None and guide.look_ahead():
                self.end = "stop"
            elif self._room <= 0:
                self.end = "length"
            elif not run and guide is not None:
                run = guide.only_token()
            self._clock.mask += time.perf_counter() - begin
            if not run:
                break
            for token in run:
                if self.end is None and self._room <= 0:
                    self.end = "length"
                if self.end is not None:
                    break
                self._append(self._forced_record(token), pieces)

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
            assert self._guide is not None
            matcher = self._guide.matcher
            self._watch.forced(len(self.tokens), matcher.mask(), matcher.legal_ids())
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

    def _events(self, work: Callable[[_Pieces], None]) -> list[GenerationEvent]:
        """Do some work; the pieces that it adds, and the end if it has come.

        It is held back while logits of forced tokens are to be observed. A fault ends the text, of
        which nothing is held back then.
        """
        pieces: _Pieces = []
        end: list[GenerationEvent] = []
        try:
            work(pieces)
            if self.end is not None and self.unseen:
                self._held_end, self.end = self.end, None
            if self.end is not None:
                pieces.append(self._text.finish())
                end.append(self._finished())
        except Exception as error:
            self.fault = error
            pieces.append(self._text.finish())
        return [*(piece for piece in pieces if piece is not None), *end]

    def _finished(self) -> Finished:
        assert self.end is not None
        stop_sequence = self._text.stop_sequence
        guide = self._guide
        steering = None if guide is None else guide.steering
        if steering is not None and steering.closes and self.end == "length":
            steering.mark(self.completion_tokens, self._limiting)
        steered = None if steering is None else steering.steered
        reason = self.end if steered is None else "length"
        is_complete = steered is not None and guide is not None and guide.matcher.is_accepting()
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
