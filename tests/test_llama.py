"""llama.cpp behind the protocol, on the real default model.

One thread each: on a busy machine, two that wait for one another are slower by far.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from grammar import compile_json_schema
from server.engine.engine import LocalEngine
from server.engine.errors import DecodeError, EngineClosedError, ModelLoadError
from server.engine.llama import LlamaModel
from server.engine.loading import load_engine
from server.engine.model import BatchItem, Logits
from server.engine.sequence import REREAD
from server.engine.types import (
    EngineDefaults,
    Finished,
    GenerationEvent,
    GenerationRequest,
    SamplingParams,
    TextPiece,
)
from server.settings import EngineSettings

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0)
PARIS = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
SEA = "<|im_start|>user\nName three animals of the sea.<|im_end|>\n<|im_start|>assistant\n"
TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    '{"name": "Zoë", "größe": 1.85, "emoji": "😀👩\u200d🚀", "tab": "\\t"}\n\n\n',
    "日本語のテキスト と العربية \u0000 \u00a0end",
    "   leading and trailing   ",
    "<|im_start|>",
    "",
]


@pytest.fixture(scope="module")
def model(model_path: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(model_path, n_ctx=256, n_seq_max=3, n_batch=32, n_threads=1)
    yield model
    model.close()
    model.close()


@pytest.fixture
def empty(model: LlamaModel) -> LlamaModel:
    """The model with no cells in use."""
    for seq in range(model.n_seq_max):
        model.kv_remove(seq, 0, -1)
    return model


@pytest.fixture(scope="module")
def engine(model_path: Path) -> Iterator[LocalEngine]:
    engine = LocalEngine(
        LlamaModel(model_path, n_ctx=512, n_seq_max=3, n_batch=48, n_threads=1),
        EngineDefaults(n_batch=48),
    )
    yield engine
    engine.check_integrity()
    engine.close()


def prompt_of(source: LlamaModel | LocalEngine, text: str) -> tuple[int, ...]:
    if isinstance(source, LlamaModel):
        return tuple(source.tokenize(text.encode(), add_special=False, parse_special=True))
    return tuple(source.tokenize(text))


def request(engine: LocalEngine, text: str, **options: object) -> GenerationRequest:
    options = {"sampling": GREEDY, "max_tokens": 16, **options}
    return GenerationRequest(prompt_of(engine, text), **options)  # type: ignore[arg-type]


def text_of(events: list[GenerationEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextPiece))


def ids_of(events: list[GenerationEvent]) -> list[int]:
    pieces = [event for event in events if isinstance(event, TextPiece)]
    return [token.id for piece in pieces for token in piece.tokens]


def finished(events: list[GenerationEvent]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def items(tokens: tuple[int, ...], seq: int, start: int = 0, wanted: int = 1) -> list[BatchItem]:
    """A batch of one sequence that wants the last rows."""
    return [
        BatchItem(token, start + i, seq, i >= len(tokens) - wanted)
        for i, token in enumerate(tokens)
    ]


# --- the vocabulary -------------------------------------------------------------------------


def test_the_model_describes_itself(model: LlamaModel) -> None:
    info = model.info
    assert info.architecture == "llama"
    assert info.n_ctx_train == 8192
    assert 130e6 < info.n_params < 140e6
    assert (info.bos_token, info.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert "<|im_start|>" in (info.chat_template or "")
    assert info.metadata["general.architecture"] == "llama"
    assert model.n_ctx == 256


def test_special_tokens_have_text_but_no_bytes(model: LlamaModel) -> None:
    vocabulary = model.vocabulary
    assert vocabulary.size == model.vocab_size == 49152
    assert vocabulary.special[2] == "<|im_end|>"
    assert {0, 2} <= vocabulary.eos == model.info.eos_ids
    assert all(vocabulary.tokens[token] == b"" for token in vocabulary.special)
    assert model.token_text(2) == b"<|im_end|>"
    assert model.token_text(2, special=False) == b""


def test_every_single_byte_is_a_token(model: LlamaModel) -> None:
    single = {token for token in model.vocabulary.tokens if len(token) == 1}
    assert len(single) >= 200  # byte-level BPE; some bytes never occur in UTF-8
    assert {bytes([code]) for code in range(0x20, 0x7F)} <= single


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("parse_special", [False, True])
def test_the_bytes_of_the_tokens_are_the_text(
    model: LlamaModel, text: str, parse_special: bool
) -> None:
    tokens = model.tokenize(text.encode(), add_special=False, parse_special=parse_special)
    assert b"".join(map(model.token_text, tokens)) == text.encode()
    if not parse_special:
        plain = b"".join(model.vocabulary.tokens[token] for token in tokens)
        assert plain == text.encode()


def test_special_tokens_are_parsed_only_on_request(model: LlamaModel) -> None:
    text = b"a<|im_end|>"
    assert 2 in model.tokenize(text, add_special=False, parse_special=True)
    assert 2 not in model.tokenize(text, add_special=False, parse_special=False)


def test_the_engine_speaks_text(engine: LocalEngine) -> None:
    for text in TEXTS:
        assert engine.detokenize(engine.tokenize(text)) == text


# --- decoding -------------------------------------------------------------------------------


def close(left: Logits, right: Logits) -> bool:
    return bool(np.allclose(left, right, atol=0.01))


def test_chunks_and_company_change_nothing(empty: LlamaModel) -> None:
    paris, sea = prompt_of(empty, PARIS), prompt_of(empty, SEA)
    whole = empty.decode(items(paris, 0))[0].copy()
    empty.kv_remove(0, 0, -1)
    empty.decode(items(paris[:5], 0, wanted=0))
    chunked = empty.decode(items(paris[5:], 0, 5))[0].copy()
    empty.kv_remove(0, 0, -1)
    together = empty.decode(items(paris, 0) + items(sea, 1)).copy()
    for other in (chunked, together[0]):
        assert close(whole, other)
        assert whole.argmax() == other.argmax()
    assert not close(together[0], together[1])


def test_batches_that_are_too_large_for_one_call(empty: LlamaModel) -> None:
    """More tokens than n_batch, and more wanted rows than there are sequences."""
    tokens = (prompt_of(empty, PARIS) * 3)[:40]
    rows = empty.decode(items(tokens, 0, wanted=8)).copy()
    assert rows.shape == (8, empty.vocab_size)
    empty.kv_remove(0, 0, -1)
    for n in (33, 40):
        empty.kv_remove(1, 0, -1)
        assert close(empty.decode(items(tokens[:n], 1))[0], rows[n - 33])


def test_a_batch_that_wants_nothing(empty: LlamaModel) -> None:
    assert empty.decode(items((1, 2, 3), 0, wanted=0)).shape == (0, empty.vocab_size)
    assert empty.kv_length(0) == 3


def test_cells_are_removed_and_shared(empty: LlamaModel) -> None:
    tokens = prompt_of(empty, PARIS)
    whole = empty.decode(items(tokens, 0))[0].copy()
    empty.kv_copy(0, 1, 0, len(tokens) - 1)
    assert (empty.kv_length(0), empty.kv_length(1)) == (len(tokens), len(tokens) - 1)
    assert close(whole, empty.decode(items(tokens[-1:], 1, len(tokens) - 1))[0])
    assert empty.kv_remove(0, 4, -1)
    assert empty.kv_length(0) == 4
    assert close(whole, empty.decode(items(tokens[4:], 0, 4))[0])
    assert empty.kv_remove(0, 0, -1)
    assert empty.kv_length(0) == 0


def test_a_context_that_is_full_is_an_error_not_a_crash(empty: LlamaModel) -> None:
    empty.decode(items((5,) * empty.n_ctx, 0))
    with pytest.raises(DecodeError, match="no room"):
        empty.decode(items((5,), 1))
    empty.kv_remove(0, 0, -1)
    empty.kv_remove(1, 0, -1)
    assert empty.decode(items((5,), 1)).shape[0] == 1


# --- the engine on it -----------------------------------------------------------------------


def test_a_greedy_answer(engine: LocalEngine) -> None:
    events = list(engine.stream(request(engine, PARIS)))
    assert "Paris" in text_of(events)
    assert finished(events).reason == "stop"
    assert finished(events).timings.decode_ms > 0


def test_sequences_in_one_batch_get_what_they_get_alone(engine: LocalEngine) -> None:
    requests = [request(engine, text) for text in (PARIS, SEA, PARIS + "The")]
    alone = [ids_of(list(engine.stream(one))) for one in requests]
    engine.forget_prefixes()
    running = [engine.stream(one) for one in requests]
    assert [ids_of(list(one)) for one in running] == alone


def test_prefix_reuse_gives_the_same_tokens(engine: LocalEngine) -> None:
    engine.forget_prefixes()
    first = list(engine.stream(request(engine, SEA)))
    again = list(engine.stream(request(engine, SEA)))
    assert ids_of(again) == ids_of(first)
    assert finished(first).usage.cached_tokens == 0
    assert finished(again).usage.cached_tokens == len(prompt_of(engine, SEA)) - REREAD
    longer = SEA + text_of(first) + "<|im_end|>\n<|im_start|>user\nAnd of the land?<|im_end|>\n"
    warm = list(engine.stream(request(engine, longer)))
    engine.forget_prefixes()
    cold = list(engine.stream(request(engine, longer)))
    assert ids_of(warm) == ids_of(cold)
    assert finished(warm).usage.cached_tokens > len(prompt_of(engine, SEA))
    assert finished(cold).usage.cached_tokens == 0


def test_seeded_runs_repeat(engine: LocalEngine) -> None:
    sampling = SamplingParams(seed=42, temperature=1.0)
    runs = []
    for _ in range(2):
        engine.forget_prefixes()  # the same history: where cells lie shows in the last digits
        events = engine.stream(request(engine, SEA, sampling=sampling, max_tokens=20))
        runs.append(ids_of(list(events)))
    assert runs[0] == runs[1]
    other = SamplingParams(seed=43, temperature=1.0)
    events = list(engine.stream(request(engine, SEA, sampling=other, max_tokens=20)))
    assert ids_of(events) != runs[0]


def test_answers_under_a_grammar_fit_it_in_company_too(engine: LocalEngine) -> None:
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "size": {"enum": ["small", "large"]},
        },
        "required": ["city", "size"],
        "additionalProperties": False,
    }
    grammar = compile_json_schema(schema, engine.vocabulary)
    requests = [
        request(engine, PARIS, grammar=grammar, max_tokens=40, sampling=SamplingParams(seed=seed))
        for seed in range(3)
    ]
    alone = [text_of(list(engine.stream(one))) for one in requests]
    engine.forget_prefixes()
    running = [engine.stream(one) for one in requests]
    # Not necessarily the same answers: in company the products are summed up in another order.
    for text in alone + [text_of(list(one)) for one in running]:
        answer = json.loads(text)
        assert list(answer) == ["city", "size"]
        assert answer["size"] in ("small", "large")
        assert len(answer["city"]) <= 12


def test_cancelling_leaves_the_cache_in_order(engine: LocalEngine) -> None:
    for count in range(4):
        generation = engine.stream(request(engine, SEA, max_tokens=None))
        for _ in range(count):
            next(generation)
        generation.cancel()
        assert list(generation) == []
        engine.check_integrity()
    assert ids_of(list(engine.stream(request(engine, PARIS)))) != []


def test_logprobs_add_up(engine: LocalEngine) -> None:
    events = list(engine.stream(request(engine, PARIS, max_tokens=3, top_logprobs=5)))
    for event in events[:-1]:
        assert isinstance(event, TextPiece)
        for token in event.tokens:
            assert token.logprob is not None
            assert token.top[0][:2] == (token.id, token.data), "greedy takes the likeliest"
            values = [logprob for _, _, logprob in token.top]
            assert values == sorted(values, reverse=True)
            assert sum(np.exp(values)) <= 1.0001


def test_loading_with_the_settings(model_path: Path, tmp_path: Path) -> None:
    sizes = EngineSettings(n_ctx=256, n_seq=2, n_threads=1, n_batch=1, max_queue=3, seed=None)
    engine = load_engine(model_path, sizes, trie_dir=tmp_path)
    try:
        stats = engine.stats()
        assert (stats.slots, stats.kv_cells, stats.kv_cells_used) == (2, 256, 0)
        assert len(ids_of(list(engine.stream(request(engine, PARIS, max_tokens=2))))) == 2
    finally:
        engine.close()


# --- files that are no models ---------------------------------------------------------------


def test_the_memory_is_stated_at_the_start(
    model_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="server.engine.llama"):
        model = LlamaModel(model_path, n_ctx=512, n_seq_max=3, n_threads=1)
    info, cells = model.info, model.cache_bytes
    assert cells == 2 * 512 * 30 * 3 * 2 * 64, "30 layers, 3 heads of keys and values of 64 numbers"
    model.close()
    (line,) = [record.getMessage() for record in caplog.records if "weights" in record.message]
    assert f"weights {info.size_bytes / 2**20:.0f} MiB" in line
    assert f"cache of 512 cells about {cells / 2**20:.0f} MiB, 3 slots, 1 threads" in line


def test_a_missing_file() -> None:
    with pytest.raises(ModelLoadError, match="no such file"):
        LlamaModel("/nowhere/model.gguf")


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + b"\0" * 100)
    with pytest.raises(ModelLoadError, match="does not accept"):
        LlamaModel(path)


def test_a_closed_model(model_path: Path) -> None:
    model = LlamaModel(model_path, n_ctx=64, n_seq_max=1)
    model.close()
    model.close()
    with pytest.raises(EngineClosedError):
        model.tokenize(b"x", add_special=False, parse_special=False)
    with pytest.raises(EngineClosedError):
        model.decode(items((1,), 0))
