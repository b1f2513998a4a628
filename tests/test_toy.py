"""The scripted toy model: its script, and what a grammar makes of it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from server.engine.engine import LocalEngine
from server.engine.errors import DecodeError
from server.engine.model import BatchItem
from server.engine.toy import ToyModel, ToySpecError
from server.trace import TraceRow, TraceSummary, trace

OWN_SPEC = Path(__file__).resolve().parent.parent / "config" / "toy.json"
TINY: dict[str, Any] = {
    "multi_character_tokens": ["ab", "abc"],
    "model": {"answer": "abcd", "habits": ["abx"]},
}


def load(path: Path) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return spec


@pytest.fixture
def shared_spec(shared_dir: Path) -> dict[str, Any]:
    return load(shared_dir / "data" / "toy" / "toy.json")


@pytest.fixture
def tiny() -> ToyModel:
    return ToyModel.from_spec(TINY)


def scores(model: ToyModel, text: str) -> dict[str, float]:
    """What the model scores after a text, by the tokens' texts."""
    model.kv_remove(0, 0, -1)
    tokens = [
        model.vocab_size - 1,
        *model.tokenize(text.encode(), add_special=False, parse_special=False),
    ]
    items = [BatchItem(token, i, 0, i == len(tokens) - 1) for i, token in enumerate(tokens)]
    row = model.decode(items)[0]
    return {model.token_text(i).decode(): float(score) for i, score in enumerate(row)}


def run(
    spec: dict[str, Any], constrained: bool, prompt: str = "?"
) -> tuple[list[TraceRow], TraceSummary]:
    from grammar import compile_json_schema

    engine = LocalEngine(ToyModel.from_spec(spec))
    try:
        compiled = compile_json_schema(spec["schema"], engine.vocabulary) if constrained else None
        *rows, summary = trace(engine, engine.tokenize(prompt, add_special=True), compiled)
    finally:
        engine.close()
    assert isinstance(summary, TraceSummary)
    return [row for row in rows if isinstance(row, TraceRow)], summary


# --- the script -----------------------------------------------------------------------------


def test_the_vocabulary(tiny: ToyModel) -> None:
    assert tiny.vocab_size == 2 + 95 + 1 + 1
    assert tiny.vocabulary.tokens[0] == b"ab"
    assert tiny.vocabulary.tokens[2] == b" "
    assert tiny.vocabulary.tokens[-2:] == (b"\n", b"")
    assert tiny.vocabulary.eos == {tiny.vocab_size - 1}


def test_greedy_longest_match(tiny: ToyModel) -> None:
    def split(text: str, **options: bool) -> list[str]:
        options = {"add_special": False, "parse_special": False, **options}
        return [
            tiny.token_text(token).decode() for token in tiny.tokenize(text.encode(), **options)
        ]

    assert split("xabcab!") == ["x", "abc", "ab", "!"]
    assert split("a\u00e9b") == ["a", "?", "b"]
    assert split("a<eos>b", parse_special=True) == ["a", "<eos>", "b"]
    assert split("a<eos>") == ["a", *"<eos>"]
    assert split("a", add_special=True) == ["a", "<eos>"]


def test_the_scores_of_the_beginning(tiny: ToyModel) -> None:
    found = scores(tiny, "")
    # The documents are split into abc d, ab x: four tokens, 99 in the vocabulary.
    assert found["abc"] == pytest.approx(12.3)
    assert found["ab"] == pytest.approx(12.2), "the answer's bonus is above the habit's"
    assert found["a"] == pytest.approx(12.1)
    assert found["d"] == pytest.approx(math.log(2 / 103))
    assert found["q"] == pytest.approx(math.log(1 / 103))


def test_the_longest_known_end_of_the_text_decides(tiny: ToyModel) -> None:
    found = scores(tiny, "zzab")
    assert found["c"] == pytest.approx(12.1)
    assert found["x"] == pytest.approx(8.1)
    assert scores(tiny, "ab") == found


def test_where_a_document_ends_the_end_token_scores(tiny: ToyModel) -> None:
    assert scores(tiny, "abx")["<eos>"] == pytest.approx(8)
    assert scores(tiny, "abcd")["<eos>"] == pytest.approx(12)


def test_text_that_is_in_no_document_counts_as_none(tiny: ToyModel) -> None:
    assert scores(tiny, "qq") == scores(tiny, "")


def test_the_prompt_is_ignored(tiny: ToyModel) -> None:
    free = {prompt: run({**TINY, "schema": True}, False, prompt)[1].text for prompt in ("", "abx")}
    assert set(free.values()) == {"abcd"}


def test_the_context_is_finite() -> None:
    model = ToyModel.from_spec(TINY, n_ctx=2)
    with pytest.raises(DecodeError, match="full"):
        model.decode([BatchItem(0, i, 0, False) for i in range(3)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": {}}, "answer"),
        ({"multi_character_tokens": ["", "a"]}, "not empty"),
        ({"vocabulary_size": 7}, "vocabulary_size is 7, the tokens are 99"),
    ],
)
def test_descriptions_that_are_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ToySpecError, match=message):
        ToyModel.from_spec({**TINY, **change})


# --- the story ------------------------------------------------------------------------------


def check_story(spec: dict[str, Any], rows: list[TraceRow], summary: TraceSummary) -> None:
    expected = spec["expected"]["constrained_greedy"]
    assert summary.text == expected["text"]
    assert summary.finish_reason == expected["finish"]
    assert [row.text for row in rows] == [t for t in expected["tokens"] if t != "<eos>"]
    overruled = [{"step": row.step, "wanted": row.wanted} for row in rows if row.wanted is not None]
    assert overruled == expected["overruled"]
    assert summary.is_canonical is False
    first = expected["canonical_first_tokens"]
    assert list((summary.canonical or ())[: len(first)]) == first


def test_unconstrained_it_writes_the_age_in_words(shared_spec: dict[str, Any]) -> None:
    _, summary = run(shared_spec, constrained=False, prompt=shared_spec["source"])
    expected = shared_spec["expected"]["unconstrained"]
    assert (summary.text, summary.finish_reason) == (expected["text"], expected["finish"])
    assert summary.is_canonical is True
    assert summary.total_kl == 0


def test_constrained_it_writes_digits(shared_spec: dict[str, Any]) -> None:
    rows, summary = run(shared_spec, constrained=True, prompt=shared_spec["source"])
    check_story(shared_spec, rows, summary)
    assert [row.legal_mass for row in rows] == pytest.approx([math.exp(-row.kl) for row in rows])
    assert rows[9].kl > 3, "digits are against its habit"


@pytest.fixture
def own_spec() -> dict[str, Any]:
    return load(OWN_SPEC)


def test_our_own_toy_tells_the_same_story(own_spec: dict[str, Any]) -> None:
    _, free = run(own_spec, constrained=False, prompt=own_spec["prompt"])
    assert free.text == own_spec["model"]["answer"]
    rows, summary = run(own_spec, constrained=True, prompt=own_spec["prompt"])
    tokens = ["{", '"', "name", '": "', "Marie", " Curie", '", "', "age", '": ', "77", "}"]
    expected = {
        "text": '{"name": "Marie Curie", "age": 77}',
        "finish": "stop",
        "tokens": tokens,
        "overruled": [
            {"step": 0, "wanted": "Of"},
            {"step": 8, "wanted": '": "'},
            {"step": 9, "wanted": '"'},
        ],
        "canonical_first_tokens": ['{"', "name", '": "', "Marie"],
    }
    check_story({"expected": {"constrained_greedy": expected}}, rows, summary)
