"""Ends in time and diagnostics on a real model, whose vocabulary lacks some bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from grammar import compile_json_schema
from server.engine.engine import LocalEngine
from server.engine.llama import LlamaModel
from server.engine.types import (
    EngineDefaults,
    Finished,
    GenerationRequest,
    SamplingParams,
    TextPiece,
)

pytestmark = pytest.mark.model

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3},
        "story": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
        "year": {"type": "integer", "minimum": 1000},
    },
    "required": ["title", "story", "tags", "year"],
    "additionalProperties": False,
}
PROMPT = "<|im_start|>user\nTell a long story as JSON.<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def engine(model_path: Path) -> Iterator[LocalEngine]:
    model = LlamaModel(model_path, n_ctx=512, n_threads=1, n_seq_max=4, n_batch=128)
    engine = LocalEngine(model, EngineDefaults(n_batch=128))
    yield engine
    engine.close()


def test_every_budget_gives_a_valid_answer(engine: LocalEngine) -> None:
    grammar = compile_json_schema(SCHEMA, engine.vocabulary)
    shortest = grammar.shortest()
    assert shortest is not None
    prompt = tuple(engine.tokenize(PROMPT))
    asked = [
        GenerationRequest(
            prompt,
            max_tokens=len(shortest) + spare,
            sampling=SamplingParams(temperature=temperature, seed=spare),
            grammar=grammar,
            closes=True,
            diagnostics=spare == 9,
        )
        for spare in (0, 1, 9, 30)
        for temperature in (0.0, 1.0)
    ]
    for request, events in zip(asked, map(engine.stream, asked), strict=True):
        pieces = list(events)
        last = pieces[-1]
        assert isinstance(last, Finished), last
        text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
        jsonschema.validate(json.loads(text), SCHEMA)
        assert request.max_tokens is not None
        assert last.usage.completion_tokens <= request.max_tokens
        assert last.reason == "length"
        assert last.is_complete
        if request.diagnostics:
            assert last.diagnostics is not None
            assert len(last.diagnostics.tokens) == last.usage.completion_tokens
            assert last.diagnostics.total_kl > 0
    engine.check_integrity()
