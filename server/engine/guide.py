"""What the grammar says in one answer: what is forced, what is legal, what may be taken.

A sequence asks its guide in this order, step by step:

    forced_run   text that leaves no choice, as tokens; after each of them `advance`
    look_ahead   what is legal for the next choice. A mask that is not known yet, of a place that
                 surely leaves a choice, is put off (`pending`): it is made while the model computes
                 (`beside.py`), or by `settle` when the logits are there
    pick         the token: sampled among the legal ones, judged by steering where the answer is to
                 end in time or out of a runaway value

Invariant: what comes out of a step does not depend on whether masks were known, put off or made by
somebody else. Read next: `sequence.py`, which owns one where the request has a grammar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from grammar import NoLegalContinuation
from server.engine.beside import PendingMask
from server.engine.forced import Splitter
from server.engine.layout import Ids, Mask, without
from server.engine.sampling import Choice, Sampler
from server.engine.steering import Steering

if TYPE_CHECKING:
    from server.engine.model import LanguageModel, Logits
    from server.engine.types import GenerationRequest, SteeringCause

_PROPOSALS = 8  # so many tokens are judged in one step before the way to the end is taken


class Guide:
    """The grammar of one answer, and where the answer stands in it.

    `splitter`: None where nothing is to be forced; `limiting`: which limit the answer meets first;
    `plan`: a whole answer that meets none, where one is known.
    """

    def __init__(
        self,
        request: GenerationRequest,
        splitter: Splitter | None,
        model: LanguageModel,
        limiting: SteeringCause,
        plan: tuple[int, ...] | None,
    ) -> None:
        assert request.grammar is not None
        self.matcher = request.grammar.start()
        self.mask: Mask | None = None
        self.ids: Ids | None = None
        self.pending: PendingMask | None = None  # instead of these two
        self.steering: Steering | None = None
        if request.closes or request.repetition_guard:
            self.steering = Steering(
                self.matcher,
                closes=request.closes,
                repetition=request.repetition_guard,
                plan=plan,
            )
        self._splitter = splitter
        self._eos_ids = model.info.eos_ids
        self._limiting = limiting
        self._vocab_size = model.vocab_size

    def forced_run(self, written: list[int], room: int) -> list[int]:
        """The tokens that must come now. `written`: the answer's last ones (see `Splitter.plan`);
        `room`: how many more there may be."""
        if self._splitter is None:
            return []
        run = self._splitter.plan(self.matcher, written)
        if self.steering is not None and not self.steering.admits_run(run, room):
            return []  # the model finds a shorter way to spell it
        return run

    def look_ahead(self) -> bool:
        """Get the next step's mask, or put it off; whether the end tokens are all it allows."""
        if not self.matcher.knows_mask and self.matcher.has_choice():
            self.pending = PendingMask(self.matcher)
            return False
        self.pending = None
        self.mask = self.matcher.mask()
        ids = self.ids = self.matcher.legal_ids()
        return (
            ids is not None
            and 0 < ids.size <= len(self._eos_ids)
            and all(token in self._eos_ids for token in ids.tolist())
        )

    def settle(self) -> None:
        """Get the mask if it was put off; raises what went wrong when it was made."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.require()
            self.mask, self.ids = self.matcher.mask(), self.matcher.legal_ids()

    def only_token(self) -> list[int]:
        """The token that alone is legal, if it is to be taken without a step."""
        if self._splitter is None or self.pending is not None:
            return []
        return [int(self.ids[0])] if self.ids is not None and self.ids.size == 1 else []

    def advance(self, token: int) -> None:
        """A token was taken."""
        self.matcher.advance(token)
        if self.steering is not None:
            self.steering.took(token)

    def pick(self, sampler: Sampler, logits: Logits, written: int, room: int) -> Choice | None:
        """Pick the answer's token of index `written`, one of `room` that there may still be.

        None where steering ends the answer instead, which is complete.

        Raises:
            NoLegalContinuation: the grammar allows no token here.
            BadLogitsError: the logits are not finite.
        """
        try:
            choice = sampler.sample(logits, self.mask, self.ids)
        except NoLegalContinuation as error:
            raise NoLegalContinuation(self.matcher.describe()) from error
        if self.steering is None or not self.steering.watches:
            return choice
        return self._steer(self.steering, sampler, choice, logits, written, room)

    def _steer(
        self,
        steering: Steering,
        sampler: Sampler,
        first: Choice,
        logits: Logits,
        written: int,
        room: int,
    ) -> Choice | None:
        """The choice, or another where steering doesn't admit it; None: the answer ends here."""
        choice, mask, ids = first, self.mask, self.ids
        for _ in range(_PROPOSALS):
            if choice.token in self._eos_ids or steering.admits(choice.token, room - 1):
                return choice._replace(diagnostics=first.diagnostics)
            steering.mark(written, self._limiting)
            mask, ids = without(choice.token, mask, ids, self._vocab_size)
            if not mask.any():
                break
            choice = sampler.sample(logits, mask, ids)
        token = steering.planned()
        if token is None:
            if self.matcher.is_accepting():
                return None
            steering.give_up()
            return first
        choice = sampler.sample(logits, None, np.array([token], dtype=np.int32))
        return choice._replace(diagnostics=first.diagnostics)
