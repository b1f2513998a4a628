"""What the mask did, token by token: exact figures, and nothing changed by looking."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grammar import Grammar, compile_json_schema, compile_regex
from server.engine.forced import Splitter
from server.engine.scheduler import Scheduler
from server.engine.types import AnswerDiagnostics, SamplingParams, StepDiagnostics
from tests.scripted_model import ListOutlet, ScriptedModel, queue, request, run
from tests.test_engine_closing import MODEL_VOCABULARY, PROMPT, TOKENS, prefers, rambling

SIZE = len(TOKENS) + 1


def answers(
    grammar: Grammar | None, script: Any, count: int = 1, **options: Any
) -> list[ListOutlet]:
    model = ScriptedModel(TOKENS, script, n_ctx=600, n_seq_max=2)
    scheduler = Scheduler(model, n_batch=options.pop("n_batch", 8))
    options.setdefault("max_tokens", 40)
    outlets = [
        queue(scheduler, model, request(PROMPT, grammar=grammar, **options)) for _ in range(count)
    ]
    run(scheduler)
    return outlets


def diagnostics(grammar: Grammar | None, script: Any, **options: Any) -> AnswerDiagnostics:
    (outlet,) = answers(grammar, script, diagnostics=True, **options)
    found = outlet.finished.diagnostics
    assert found is not None
    assert [token.token for token in found.tokens] == outlet.ids
    return found


def expected(scores: list[float], legal: list[int]) -> StepDiagnostics:
    weights = np.exp(np.array(scores, dtype=np.float64))
    mass = weights[legal].sum() / weights.sum()
    wanted = int(np.argmax(scores))
    return StepDiagnostics(
        legal_count=len(legal),
        legal_mass=pytest.approx(mass, rel=1e-5),  # type: ignore[arg-type]
        kl=pytest.approx(-math.log(mass), rel=1e-5),  # type: ignore[arg-type]
        wanted=wanted,
        overruled=wanted not in legal,
        forced=len(legal) == 1,
    )


def test_figures_of_sampled_and_of_forced_tokens() -> None:
    grammar = compile_regex("name: (q|z)!", MODEL_VOCABULARY)
    script = prefers("z", "q")
    found = diagnostics(grammar, script)
    text = b"".join(token.data for token in found.tokens)
    assert text == b"name: z!"
    matcher = grammar.start()
    for token in found.tokens:
        mask = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        legal = np.flatnonzero(mask).tolist()
        assert token.step == expected(list(script([])), legal)
        assert token.wanted == b"z"
        matcher.advance(token.token)
    forced = [token.forced for token in found.tokens]
    assert forced[0]
    assert not forced[[token.data for token in found.tokens].index(b"z")]
    assert forced[-1]
    total = sum(token.step.kl for token in found.tokens)
    assert found.total_kl == pytest.approx(total)
    assert found.forced_share == pytest.approx(sum(forced) / len(forced))
    overruled = [token.step.overruled for token in found.tokens]
    assert found.overruled_share == pytest.approx(sum(overruled) / len(overruled))


def test_an_answer_that_is_forced_as_a_whole_is_evaluated_for_its_figures() -> None:
    grammar = compile_regex("name: 12", MODEL_VOCABULARY)
    found = diagnostics(grammar, prefers("z"))
    assert b"".join(token.data for token in found.tokens) == b"name: 12"
    assert all(token.forced for token in found.tokens)
    assert found.overruled_share == 1.0


def test_free_text_has_a_kl_of_0() -> None:
    found = diagnostics(None, prefers("abc"), max_tokens=3)
    assert [token.step.kl for token in found.tokens] == [0.0] * 3
    assert (found.forced_share, found.overruled_share) == (0.0, 0.0)
    assert found.tokens[0].step.legal_count == SIZE


def test_canonical_or_not() -> None:
    model = ScriptedModel(TOKENS, rambling)
    splitter = Splitter(model)
    whole = TOKENS.index(b"abc")
    parts = [TOKENS.index(b"a"), TOKENS.index(b"b"), TOKENS.index(b"c")]
    assert splitter.is_canonical([whole]) is True
    assert splitter.is_canonical(parts) is False
    assert splitter.is_canonical([whole, model.eos, whole]) is True
    assert splitter.is_canonical([TOKENS.index(b"\xe6\x97")]) is None
    assert splitter.is_canonical([]) is True
    assert diagnostics(None, prefers("abc"), max_tokens=2).canonical is True
    assert diagnostics(None, prefers("1", "2"), max_tokens=2).canonical is True
    letters = compile_regex("a(b|d)c", MODEL_VOCABULARY)
    assert diagnostics(letters, prefers("a", "b", "c"), forced_runs=False).canonical is False


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0]), st.integers(1, 40), st.integers(1, 9))
def test_looking_changes_nothing(seed: int, temperature: float, most: int, batch: int) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["abc", "x, y"]}, "items": {"type": "array"}},
        "required": ["name", "items"],
    }
    grammar = compile_json_schema(schema, MODEL_VOCABULARY)
    options = {
        "max_tokens": most,
        "n_batch": max(2, batch),
        "sampling": SamplingParams(temperature=temperature, seed=seed),
    }
    (plain,) = answers(grammar, rambling, **options)
    watched = answers(grammar, rambling, 3, diagnostics=True, **options)
    for outlet in watched:
        assert outlet.ids == plain.ids
        assert outlet.text == plain.text
        assert outlet.finished.reason == plain.finished.reason
        found = outlet.finished.diagnostics
        assert found is not None
        assert [token.token for token in found.tokens] == outlet.ids
        assert found == watched[0].finished.diagnostics


def test_off_it_costs_no_logits() -> None:
    grammar = compile_regex("name: 12", MODEL_VOCABULARY)
    model = ScriptedModel(TOKENS, rambling)
    scheduler = Scheduler(model, n_batch=8)
    outlet = queue(scheduler, model, request(PROMPT, grammar=grammar))
    run(scheduler)
    assert (outlet.text, model.batches) == ("name: 12", [])
    assert outlet.finished.diagnostics is None


# --- log-probabilities ---------------------------------------------------------------------------


def test_raw_log_probabilities_are_the_models_own() -> None:
    grammar = compile_regex("(q|z){2}", MODEL_VOCABULARY)
    script = prefers("abc", "z", "q")
    (raw,) = answers(grammar, script, top_logprobs=2, raw_logprobs=True)
    (masked,) = answers(grammar, script, top_logprobs=2)
    scores = np.array(script([]), dtype=np.float64)
    q, z, abc = (TOKENS.index(text) for text in (b"q", b"z", b"abc"))
    log_all = math.log(np.exp(scores).sum())
    log_legal = math.log(np.exp(scores[[q, z]]).sum())
    for outlet, total, best in ((raw, log_all, (abc, z)), (masked, log_legal, (z, q))):
        records = [token for event in outlet.events[:-1] for token in event.tokens]  # type: ignore[union-attr]
        assert [record.id for record in records] == [z, z]
        for record in records:
            assert record.logprob == pytest.approx(scores[z] - total, abs=1e-5)
            assert [token for token, _, _ in record.top] == list(best)
            for token, _, logprob in record.top:
                assert logprob == pytest.approx(scores[token] - total, abs=1e-5)


def test_raw_log_probabilities_of_what_would_be_forced() -> None:
    grammar = compile_regex("12", MODEL_VOCABULARY)
    script = prefers("z")
    (outlet,) = answers(grammar, script, top_logprobs=0, raw_logprobs=True)
    records = [token for event in outlet.events[:-1] for token in event.tokens]  # type: ignore[union-attr]
    scores = np.array(script([]), dtype=np.float64)
    total = math.log(np.exp(scores).sum())
    assert [r.logprob for r in records] == [
        pytest.approx(scores[record.id] - total, abs=1e-5) for record in records
    ]
    assert not any(record.forced for record in records)
