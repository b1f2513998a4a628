"""The values that go into the engine and the events that come out of it.

Invariant: everything here is immutable and knows no thread, no loop and no model. A generation
is the event sequence `TextPiece* (Finished | Failed)`; after a cancellation nothing follows.
Read next: `engine.py`, which turns a `GenerationRequest` into these events.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, Protocol

from server.engine.errors import InvalidRequestError

if TYPE_CHECKING:
    from grammar import Grammar

FinishReason = Literal["stop", "length"]
SteeringCause = Literal["max_tokens", "context", "repetition"]

_NO_BIAS: Mapping[int, float] = MappingProxyType({})


class EngineSettings(Protocol):
    """What the engine reads of the settings' `[engine]` section (any object with these will do)."""

    @property
    def n_batch(self) -> int:
        """Most tokens evaluated in one step."""

    @property
    def max_queue(self) -> int:
        """Most requests that may wait for a slot."""

    @property
    def max_queue_per_client(self) -> int | None:
        """Most requests of one client that may wait; None: no other limit than `max_queue`."""

    @property
    def queue_timeout_seconds(self) -> float | None:
        """How long a request may wait for a slot; None: without limit."""

    @property
    def seed(self) -> int | None:
        """Makes the requests without a seed of their own repeatable, in their order of arrival."""

    @property
    def forced_runs(self) -> bool:
        """Whether text that the grammar forces is taken without a step for each token."""

    @property
    def masks_beside_decode(self) -> bool | Literal["auto"]:
        """Whether masks are made by another thread while the model computes; "auto": where the
        process may run on more cores than the model computes on."""


@dataclass(frozen=True, slots=True)
class EngineDefaults:
    """The default `EngineSettings`, for tests and tools."""

    n_batch: int = 256
    max_queue: int = 64
    max_queue_per_client: int | None = None
    queue_timeout_seconds: float | None = None
    seed: int | None = None
    forced_runs: bool = True
    masks_beside_decode: bool | Literal["auto"] = "auto"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is picked from the legal ones; see `sampling.py` for the order of the steps.

    temperature       0 is greedy; otherwise the scores are divided by it
    top_p             keep the likeliest tokens that together reach this probability (1 = all)
    top_k             keep the k likeliest tokens (0 = all)
    min_p             keep tokens at least this fraction as likely as the likeliest (0 = all)
    seed              None draws fresh entropy (or, if set, the engine's own seed)
    frequency_penalty, presence_penalty
                      subtracted per occurrence, and once, of a token already generated
    repeat_penalty    divides positive and multiplies negative scores of tokens already generated
    logit_bias        token id -> amount added to its score, -100..100; never makes a token legal
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=lambda: _NO_BIAS)

    def __post_init__(self) -> None:
        _require(self.temperature >= 0 and math.isfinite(self.temperature), "temperature", "≥ 0")
        _require(0 < self.top_p <= 1, "top_p", "in (0, 1]")
        _require(self.top_k >= 0, "top_k", "≥ 0")
        _require(0 <= self.min_p <= 1, "min_p", "in [0, 1]")
        _require(abs(self.frequency_penalty) <= 100, "frequency_penalty", "in [-100, 100]")
        _require(abs(self.presence_penalty) <= 100, "presence_penalty", "in [-100, 100]")
        _require(0 < self.repeat_penalty <= 100, "repeat_penalty", "in (0, 100]")
        _require(
            all(abs(bias) <= 100 for bias in self.logit_bias.values()),
            "logit_bias",
            "in [-100, 100]",
        )


def _require(condition: bool, name: str, expected: str) -> None:
    if not condition:
        raise InvalidRequestError(name, f"must be {expected}")


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One answer to be generated.

    prompt        token ids, at least one
    max_tokens    most tokens of the answer, ≥ 1; None = until the context ends
    stop          the answer ends before the first of these strings; they are not part of it
    grammar       what the answer must match; None = anything
    top_logprobs  None = no log-probabilities, n ≥ 0 = those of the token and of the n likeliest
    raw_logprobs  log-probabilities of the model's own distribution over all tokens instead of the
                  legal ones'; nothing is taken without a step then
    diagnostics   collect `AnswerDiagnostics`
    client        who asks; clients take turns in the queue
    trace         attach `StepDiagnostics` to every token, and report a sampled end token too
    forced_runs   take text that the grammar forces without a step for each token, where the engine
                  does so at all; a trace never does, since it shows what every step would be
    closes        bring the answer to a legal end within its tokens (see `steering.py`); without a
                  grammar every end is one
    repetition_guard
                  so many tokens that repeat themselves end the value they stand in; 0 = off, and
                  without a grammar there are no values
    """

    prompt: tuple[int, ...]
    max_tokens: int | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop: tuple[str, ...] = ()
    grammar: Grammar | None = None
    top_logprobs: int | None = None
    raw_logprobs: bool = False
    diagnostics: bool = False
    trace: bool = False
    forced_runs: bool = True
    closes: bool = False
    repetition_guard: int = 0
    client: str = ""

    def __post_init__(self) -> None:
        _require(self.repetition_guard >= 0, "repetition_guard", "≥ 0")
        _require(bool(self.prompt), "prompt", "at least one token long")
        _require(self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "≥ 1")
        _require(all(self.stop), "stop", "made of strings that are not empty")
        _require(self.top_logprobs is None or self.top_logprobs >= 0, "top_logprobs", "≥ 0")


@dataclass(frozen=True, slots=True)
class StepDiagnostics:
    """What the mask did in one step. All of it is about the model's raw softmax at temperature 1.

    legal_count  how many tokens the grammar allowed (the vocabulary's size without a grammar)
    legal_mass   Z, the probability that the model itself gave to the legal tokens, 0..1
    kl           -ln Z, in nats: the divergence of the masked from the raw distribution
    wanted       the token that the model liked best (lowest id among equals)
    overruled    whether `wanted` was illegal
    forced       whether exactly one token was legal
    """

    legal_count: int
    legal_mass: float
    kl: float
    wanted: int
    overruled: bool
    forced: bool


@dataclass(frozen=True, slots=True)
class TokenDiagnostics:
    """A token of an answer and what the mask did in its step; `forced`: taken without a choice, in
    a forced run or as the only legal token; `data`, `wanted`: its bytes, and those of the token
    that the model liked best."""

    token: int
    step: StepDiagnostics
    forced: bool
    data: bytes = b""
    wanted: bytes = b""


@dataclass(frozen=True, slots=True)
class AnswerDiagnostics:
    """What the grammar did to an answer, token by token; the end token is none of them.

    `canonical`: whether the tokens are the tokenizer's own split of the answer; None where its
    bytes are no whole text.
    """

    tokens: tuple[TokenDiagnostics, ...]
    canonical: bool | None

    @property
    def total_kl(self) -> float:
        """Sum of the steps' KL, in nats: -ln of the share of texts that the grammar left over."""
        return sum(token.step.kl for token in self.tokens)

    @property
    def forced_share(self) -> float:
        """The part of the tokens that were forced; 0 of an empty answer."""
        return sum(token.forced for token in self.tokens) / max(1, len(self.tokens))

    @property
    def overruled_share(self) -> float:
        """The part of the steps where the model's favourite was illegal; 0 of an empty answer."""
        return sum(token.step.overruled for token in self.tokens) / max(1, len(self.tokens))


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One generated token.

    data     the token's bytes (a special token's text, encoded)
    logprob  natural logarithm of its probability among the legal tokens (all tokens, for a request
             with `raw_logprobs`) at temperature 1, before bias and penalties; None where the
             request asked for none
    top      (id, bytes, logprob) of the likeliest of these tokens, best first
    forced   taken without a step, as a part of a forced run. Its logprob is 0 and it is the only
             one in `top`: no other text was possible (though the same text in other tokens may
             have been)
    """

    id: int
    data: bytes
    logprob: float | None = None
    top: tuple[tuple[int, bytes, float], ...] = ()
    diagnostics: StepDiagnostics | None = None
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. `cached_tokens` of the prompt were not evaluated again (prefix reuse).

    `completion_tokens` does not count the end-of-sequence token.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time went, in milliseconds.

    queue_ms   from submit to a slot
    prompt_ms  from the slot to the first logits
    decode_ms  from the first logits to the end (wall time, shared with the batch's other sequences)
    mask_ms    spent in the grammar (mask, advance, planning forced runs)
    sample_ms  spent in the sampler
    tokens     how many were generated, an end token included
    forced_tokens  how many of them were forced, so that they took no step of their own
    """

    queue_ms: float
    prompt_ms: float
    decode_ms: float
    mask_ms: float
    sample_ms: float
    tokens: int
    forced_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TextPiece:
    """More text: whole characters only, stop strings held back and removed.

    `tokens` are those whose text this piece completes, in order; concatenated over all pieces
    they are the answer's tokens (without those that lie wholly inside a stop string).
    """

    text: str
    tokens: tuple[TokenRecord, ...]


@dataclass(frozen=True, slots=True)
class Steered:
    """Where an answer was first led towards an end: the index of the first token that was not free
    (the number of tokens, if the answer was only cut where it was complete), and why."""

    token: int
    cause: SteeringCause


@dataclass(frozen=True, slots=True)
class Finished:
    """The regular end. `stop_sequence` is the stop string that ended it, if one did.

    The end of an answer that was `steered` is not the model's own, so its reason is "length";
    `is_complete` says whether the grammar's text was complete nevertheless.
    """

    reason: FinishReason
    stop_sequence: str | None
    usage: Usage
    timings: Timings
    steered: Steered | None = None
    is_complete: bool = False
    diagnostics: AnswerDiagnostics | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The irregular end: `grammar.NoLegalContinuation` or an `EngineError`."""

    error: Exception


GenerationEvent = TextPiece | Finished | Failed


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot for `/health` and metrics; totals count since the engine started.

    step_seconds, decode_seconds  spent in steps, and of these inside the model
    """

    slots: int
    slots_used: int
    queued: int
    kv_cells: int
    kv_cells_used: int
    steps: int
    requests: int
    finished: int
    failed: int
    cancelled: int
    preempted: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    step_seconds: float = 0.0
    decode_seconds: float = 0.0
