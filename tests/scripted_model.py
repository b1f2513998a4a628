"""Doubles for exact engine tests: a model that is a function, grammars that are functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from grammar import Vocabulary
from server.engine.model import BatchItem, Logits, ModelInfo
from server.engine.scheduler import Scheduler
from server.engine.sequence import Sequence as EngineSequence
from server.engine.types import (
    Failed,
    Finished,
    GenerationEvent,
    GenerationRequest,
    SamplingParams,
    TextPiece,
)

if TYPE_CHECKING:
    from grammar import Grammar

Script = Callable[[list[int]], Sequence[float] | NDArray[np.float32]]


class ScriptedModel:
    """`script(tokens of the sequence so far)` gives the logits of what follows.

    The last token of the vocabulary is the end token; `special` adds more special ones.
    `before_decode` may raise; every batch is kept in `batches`.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        script: Script,
        *,
        n_ctx: int = 64,
        n_seq_max: int = 2,
        special: dict[int, str] | None = None,
        forgets_parts: bool = True,
    ) -> None:
        self.eos = len(tokens)
        self.batches: list[list[BatchItem]] = []
        self.before_decode: Callable[[Sequence[BatchItem]], None] = lambda batch: None
        self.closed = 0
        self.n_ctx = n_ctx
        self.n_seq_max = n_seq_max
        self.n_threads = 1
        self.vocab_size = len(tokens) + 1
        specials = {self.eos: "<eos>", **(special or {})}
        self.vocabulary = Vocabulary([*tokens, b""], specials, {self.eos})
        self.info = ModelInfo(
            name="scripted",
            path="",
            architecture="scripted",
            n_ctx_train=0,
            n_params=0,
            size_bytes=0,
            chat_template=None,
            bos_token="",
            eos_token="<eos>",
            add_bos=False,
            eos_ids=frozenset({self.eos}),
        )
        self._script = script
        self._forgets_parts = forgets_parts
        self._texts = [*tokens, b"<eos>"]
        self._ids = {text: token for token, text in reversed(list(enumerate(tokens)))}
        self._longest = max(map(len, tokens))
        for token, text in specials.items():
            self._texts[token] = text.encode()
        self.cells: list[list[int]] = [[] for _ in range(n_seq_max)]
        self._owned: list[list[object]] = [[] for _ in range(n_seq_max)]  # shared cells are equal

    def tokenize(self, text: bytes, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = []
        while text:
            size = next(n for n in range(self._longest, 0, -1) if text[:n] in self._ids)
            tokens.append(self._ids[text[:size]])
            text = text[size:]
        return tokens

    def token_text(self, token: int, *, special: bool = True) -> bytes:
        return self._texts[token] if special else self.vocabulary.tokens[token]

    def decode(self, batch: Sequence[BatchItem]) -> Logits:
        self.batches.append(list(batch))
        self.before_decode(batch)
        rows = []
        for token, pos, seq, wanted in batch:
            assert pos == len(self.cells[seq]), "positions must be contiguous"
            self.cells[seq].append(token)
            self._owned[seq].append(object())
            if wanted:
                rows.append(np.asarray(self._script(list(self.cells[seq])), dtype=np.float32))
        assert len(set().union(*self._owned)) <= self.n_ctx, "more cells than there are"
        return np.array(rows, dtype=np.float32).reshape(len(rows), self.vocab_size)

    def kv_remove(self, seq: int, p0: int, p1: int) -> bool:
        if p0 > 0 and not self._forgets_parts:
            return False
        assert p1 == -1
        del self.cells[seq][p0:], self._owned[seq][p0:]
        return True

    def kv_copy(self, src: int, dst: int, p0: int, p1: int) -> None:
        assert p0 == 0
        assert not self.cells[dst]
        end = p1 if p1 >= 0 else None
        self.cells[dst], self._owned[dst] = self.cells[src][:end], self._owned[src][:end]

    def kv_length(self, seq: int) -> int:
        return len(self.cells[seq])

    def close(self) -> None:
        self.closed += 1


class FakeMatcher:
    """A matcher whose legal tokens are a function of the tokens advanced so far."""

    def __init__(self, vocab_size: int, legal: Callable[[list[int]], Iterable[int]], few: int):
        self._size, self._legal, self._few = vocab_size, legal, few
        self.advanced: list[int] = []

    def legal(self) -> list[int]:
        return sorted(self._legal(self.advanced))

    def mask(self) -> NDArray[np.uint32]:
        return pack(self.legal(), self._size)

    knows_mask = True  # it is a function call

    def has_choice(self) -> bool:
        return False

    def legal_ids(self) -> NDArray[np.int32] | None:
        ids = self.legal()
        return np.array(ids, dtype=np.int32) if len(ids) <= self._few else None

    def advance(self, token: int) -> None:
        assert token in self.legal(), "the sampler chose an illegal token"
        self.advanced.append(token)

    def forced_bytes(self) -> bytes:
        return b""

    def describe(self) -> str:
        return f"after {self.advanced}"


class FakeGrammar:
    """Starts `FakeMatcher`s; `few`: up to how many legal ids are listed."""

    def __init__(
        self,
        vocab_size: int,
        legal: Callable[[list[int]], Iterable[int]],
        *,
        few: int = 1_000_000,
        vocabulary: Vocabulary | None = None,
    ) -> None:
        self._size, self._legal, self._few = vocab_size, legal, few
        self.vocabulary = vocabulary
        self.started: list[FakeMatcher] = []

    def start(self) -> FakeMatcher:
        self.started.append(FakeMatcher(self._size, self._legal, self._few))
        return self.started[-1]

    def typed(self) -> Grammar:
        return cast("Grammar", cast("Any", self))


def pack(ids: Iterable[int], vocab_size: int) -> NDArray[np.uint32]:
    """A packed mask: bit i of word w is token 32*w + i."""
    words = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)
    for token in ids:
        words[token // 32] |= np.uint32(1 << (token % 32))
    return words


class ListOutlet:
    """Keeps a sequence's events; `cancelled` is set by hand."""

    def __init__(self) -> None:
        self.cancelled = False
        self.events: list[GenerationEvent] = []

    def deliver(self, events: list[GenerationEvent]) -> None:
        self.events += events

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextPiece))

    @property
    def ids(self) -> list[int]:
        return [
            token.id
            for event in self.events
            if isinstance(event, TextPiece)
            for token in event.tokens
        ]

    @property
    def last(self) -> GenerationEvent:
        return self.events[-1]

    @property
    def finished(self) -> Finished:
        assert isinstance(self.last, Finished), self.last
        return self.last

    @property
    def error(self) -> Exception:
        assert isinstance(self.last, Failed), self.last
        return self.last.error


def queue(scheduler: Scheduler, model: ScriptedModel, request: GenerationRequest) -> ListOutlet:
    """Add a request to a scheduler; returns where its events will be."""
    outlet = ListOutlet()
    scheduler.add(EngineSequence(request, outlet, model, model.n_ctx))
    return outlet


def run(scheduler: Scheduler, most: int = 1000) -> None:
    """Step until there is no work, checking the bookkeeping after every step."""
    for _ in range(most):
        if not scheduler.has_work:
            return
        scheduler.step()
        scheduler.check_integrity()
    raise AssertionError(f"still at work after {most} steps")


# --- the alphabet that most tests speak ---------------------------------------------------------

LETTERS = [bytes([code]) for code in b"abcdefghij"]
EOS = len(LETTERS)
GREEDY = SamplingParams(temperature=0)


def next_letter(tokens: list[int]) -> list[float]:
    """Wants the letter after the last one; after j, the end."""
    return [5.0 * (token == tokens[-1] + 1) for token in range(EOS + 1)]


def hash_letter(tokens: list[int]) -> list[float]:
    """Never wants the end; what it wants depends on every token so far, in order."""
    state = 7
    for token in tokens:
        state = (state * 31 + token + 1) % 1009
    return [float((state * (token + 3)) % 11) for token in range(EOS)] + [-50.0]


def request(prompt: Sequence[int], **options: object) -> GenerationRequest:
    options.setdefault("sampling", GREEDY)
    return GenerationRequest(tuple(prompt), **options)  # type: ignore[arg-type]


def make(
    script: object = next_letter, n_batch: int = 8, **options: object
) -> tuple[ScriptedModel, Scheduler]:
    model = ScriptedModel(LETTERS, script, **options)  # type: ignore[arg-type]
    return model, Scheduler(model, n_batch=n_batch)


def alone(prompt: Sequence[int], script: object = hash_letter, **options: object) -> list[int]:
    """The tokens a request gets when it is the only one, in a context that is large enough."""
    _, scheduler = (made := make(script, n_ctx=512))
    outlet = queue(scheduler, made[0], request(prompt, **options))
    run(scheduler)
    return outlet.ids
