"""The masked sampler. The order of its steps is fixed, and the mask comes first:

    mask         illegal tokens get -inf (or, when few are legal, only those are looked at)
    bias         logit bias, then repeat, frequency and presence penalty over generated tokens
    temperature  scores / T; at T = 0 the highest score wins, the lowest id among equals
    top-k        the k highest scores (lowest ids among equals)
    min-p        tokens at least min_p times as likely as the likeliest
    top-p        the likeliest that together reach top_p of what min-p left
    pick         one uniform number against the cumulative distribution

Filters that ran before the mask could leave nothing legal; after it they always keep the best
legal token. Invariants: an illegal token is never returned, whatever logits and bias are; nothing
legal raises `NoLegalContinuation` before any arithmetic; a single legal token is returned without
arithmetic and without using up randomness; a mask that allows everything takes the same path as
no mask at all, so the tokens are bit-identical.

Log-probabilities are of the masked distribution (or, on request, of the model's own), diagnostics
of the model's own, at temperature 1, before bias and penalties. Read next: `scheduler.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grammar import NoLegalContinuation
from server.engine.errors import BadLogitsError
from server.engine.layout import Ids, Mask, Workspace
from server.engine.model import Logits
from server.engine.selection import draw, highest, log_sum_exp, nucleus
from server.engine.types import SamplingParams, StepDiagnostics

_HUGE = np.float32(1e30)
_COLDEST = 1e-30  # a positive temperature below it would be 0 in float32


class Choice(NamedTuple):
    """The token picked, with its log-probability and the likeliest (id, logprob) if asked for."""

    token: int
    logprob: float | None
    top: tuple[tuple[int, float], ...]
    diagnostics: StepDiagnostics | None


class Sampler:
    """Picks the tokens of one answer; holds its random numbers and its penalty counts.

    Args:
        params: see `SamplingParams`.
        workspace: of the thread that calls `sample`.
        top_logprobs: None for no log-probabilities, else how many alternatives to report.
        raw_logprobs: whether they are of the model's own distribution, illegal tokens included.
        diagnostics: whether to report `StepDiagnostics`.
        entropy: seeds the generator where `params.seed` is None; None draws fresh entropy.
    """

    def __init__(
        self,
        params: SamplingParams,
        workspace: Workspace,
        *,
        top_logprobs: int | None = None,
        raw_logprobs: bool = False,
        diagnostics: bool = False,
        entropy: np.random.SeedSequence | None = None,
    ) -> None:
        self._params = params
        self._work = workspace
        self._top_logprobs = top_logprobs
        self._raw_logprobs = raw_logprobs
        self._diagnostics = diagnostics
        seed = entropy if params.seed is None else params.seed & (2**64 - 1)
        self._random = np.random.Generator(np.random.PCG64(seed))
        self._counts: Counter[int] = Counter()
        self._penalised = (
            params.frequency_penalty != 0
            or params.presence_penalty != 0
            or params.repeat_penalty != 1
        )
        bias = sorted(
            (token, value)
            for token, value in params.logit_bias.items()
            if 0 <= token < workspace.vocab_size
        )
        self._bias_ids = np.array([token for token, _ in bias], dtype=np.int64)
        self._bias = np.array([value for _, value in bias], dtype=np.float32)

    def accept(self, token: int) -> None:
        """Count a generated token for the penalties."""
        if self._penalised:
            self._counts[token] += 1

    def sample(self, logits: Logits, mask: Mask | None = None, ids: Ids | None = None) -> Choice:
        """Pick a token.

        Args:
            logits: float32[V], not modified.
            mask: packed uint32[ceil(V/32)], or None if everything is legal.
            ids: the legal ids, where they are few and known; must agree with `mask`.

        Raises:
            NoLegalContinuation: the mask is empty (its `state` is empty; the caller knows it).
            BadLogitsError: the logits are not all finite.
        """
        with np.errstate(over="ignore", under="ignore"):  # exp of far-off scores is 0, as it should
            _require_finite(logits)
            ids, count, barrier = self._legal(mask, ids)
            if count == 0:
                raise NoLegalContinuation("")
            if count == 1:
                assert ids is not None, "a vocabulary has more than one token"
                token = int(ids[0])
            else:
                token = self._pick(logits, ids, barrier)
            if self._top_logprobs is None and not self._diagnostics:
                return Choice(token, None, (), None)
            return self._describe(logits, _listed(ids, barrier), count, token)

    def observe(self, logits: Logits, mask: Mask, ids: Ids | None) -> StepDiagnostics:
        """What a mask does to some logits, where nothing is to be picked.

        Raises:
            BadLogitsError: the logits are not all finite.
        """
        with np.errstate(over="ignore", under="ignore"):
            _require_finite(logits)
            ids, count, barrier = self._legal(mask, ids)
            return _diagnose(logits, _listed(ids, barrier), count)

    def _legal(self, mask: Mask | None, ids: Ids | None) -> tuple[Ids | None, int, Logits | None]:
        """(the legal ids if they are few, how many there are, the barrier of a mask of many)"""
        everything = self._work.vocab_size
        if ids is not None:
            ids = _ascending(ids)
            return (None if ids.size == everything else ids), int(ids.size), None
        if mask is None:
            return None, everything, None
        found = self._work.lay_out(mask)
        if found.legal == everything:
            return None, everything, None
        return found.ids, found.legal, None if found.ids is not None else found.barrier

    # --- the steps, in order ---------------------------------------------------------------

    def _pick(self, logits: Logits, ids: Ids | None, barrier: Logits | None) -> int:
        params, scratch = self._params, self._work.scratch
        if params.temperature == 0 and not self._counts and not self._bias_ids.size:
            wanted = int(logits.argmax())  # mostly legal already
            if ids is None and (barrier is None or not barrier[wanted]) and logits[wanted] < _HUGE:
                return wanted
        scores = self._masked_scores(logits, ids, barrier)
        self._add_bias(scores, ids)
        self._penalise(scores, ids)
        if params.temperature == 0:
            return _id_at(ids, int(scores.argmax()))
        # Subtracting the maximum first keeps tiny temperatures from overflowing.
        scores -= scores.max()
        scores /= np.float32(max(params.temperature, _COLDEST))
        if 0 < params.top_k < scores.size:
            best = highest(scores, params.top_k, scratch)
            scores, ids = scores[best], best if ids is None else ids[best]
        weights = np.exp(scores, out=scores)
        if params.min_p > 0:
            scratch.zero_below(weights, np.float32(params.min_p * weights.max()))
        if params.top_p < 1:
            kept = nucleus(weights, params.top_p, scratch)
            weights, ids = weights[kept], kept if ids is None else ids[kept]
        return _id_at(ids, draw(weights, self._random.random()))

    def _masked_scores(self, logits: Logits, ids: Ids | None, barrier: Logits | None) -> Logits:
        """The legal tokens' logits, to be written to: a selection, or all with -inf for illegal.

        They are cut off at ±1e30, so that no bias or penalty can turn a legal one into infinity.
        """
        if ids is not None:
            return logits[ids].clip(-_HUGE, _HUGE)
        scores = np.clip(logits, -_HUGE, _HUGE, out=self._work.scores)
        if barrier is not None:
            scores += barrier
        return scores

    def _add_bias(self, scores: Logits, ids: Ids | None) -> None:
        if self._bias_ids.size:
            at, known = _positions(self._bias_ids, ids)
            scores[at] += self._bias[known]

    def _penalise(self, scores: Logits, ids: Ids | None) -> None:
        if not self._counts:
            return
        params = self._params
        tokens = np.fromiter(self._counts.keys(), dtype=np.int64, count=len(self._counts))
        counts = np.fromiter(self._counts.values(), dtype=np.float32, count=len(self._counts))
        at, known = _positions(tokens, ids)
        affected = scores[at]
        repeat = np.float32(params.repeat_penalty)
        affected = np.where(affected > 0, affected / repeat, affected * repeat)
        affected -= np.float32(params.frequency_penalty) * counts[known]
        affected -= np.float32(params.presence_penalty)
        scores[at] = affected

    # --- what is reported ------------------------------------------------------------------

    def _describe(self, logits: Logits, ids: Ids | None, count: int, token: int) -> Choice:
        diagnostics = _diagnose(logits, ids, count) if self._diagnostics else None
        if self._top_logprobs is None:
            return Choice(token, None, (), diagnostics)
        if self._raw_logprobs:
            ids = None
        told = logits if ids is None else logits[ids]
        total = log_sum_exp(told)
        top: tuple[tuple[int, float], ...] = ()
        if self._top_logprobs:
            best = highest(told, min(self._top_logprobs, told.size), self._work.scratch)
            best = best[np.argsort(-told[best], kind="stable")]
            top = tuple((_id_at(ids, int(i)), float(told[i]) - total) for i in best)
        return Choice(token, float(logits[token]) - total, top, diagnostics)


def _listed(ids: Ids | None, barrier: Logits | None) -> Ids | None:
    """The legal ids, however many; None if everything is legal."""
    return np.flatnonzero(barrier == 0) if ids is None and barrier is not None else ids


def _diagnose(logits: Logits, ids: Ids | None, count: int) -> StepDiagnostics:
    """`ids`: all that are legal, None for everything."""
    kl, overruled = 0.0, False
    wanted = int(logits.argmax())
    if ids is not None:
        kl = max(0.0, log_sum_exp(logits) - log_sum_exp(logits[ids]))
        overruled = not bool(np.any(ids == wanted))
    return StepDiagnostics(
        legal_count=count,
        legal_mass=float(np.exp(-kl)),
        kl=kl,
        wanted=wanted,
        overruled=overruled,
        forced=count == 1,
    )


def _require_finite(logits: Logits) -> None:
    # A sum is finite only if every term is; the second look is for sums that overflow.
    with np.errstate(invalid="ignore"):
        total = np.add.reduce(logits)
    if not np.isfinite(total) and not np.isfinite(logits).all():
        bad = int(np.count_nonzero(~np.isfinite(logits)))
        raise BadLogitsError(f"{bad} of the model's {logits.size} logits are not finite")


def _id_at(ids: Ids | None, index: int) -> int:
    return index if ids is None else int(ids[index])


def _ascending(ids: Ids) -> Ids:
    """The ids in ascending order (as they usually are), so that ties go to the lowest."""
    if ids.size > 1 and bool(np.any(ids[1:] <= ids[:-1])):
        return np.unique(ids)
    return ids


def _positions(tokens: NDArray[np.int64], ids: Ids | None) -> tuple[Ids, NDArray[np.bool_]]:
    """Where in `ids` the tokens stand, and which of the tokens stand there at all."""
    if ids is None:
        return tokens, np.ones(tokens.size, dtype=np.bool_)
    at = np.minimum(np.searchsorted(ids, tokens), ids.size - 1)
    known = ids[at] == tokens
    return at[known], known
