"""The masked sampler: its order, its identities, its distributions."""

from __future__ import annotations

import math
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from grammar import NoLegalContinuation
from server.engine.errors import BadLogitsError, InvalidRequestError
from server.engine.layout import Workspace
from server.engine.sampling import Sampler
from server.engine.selection import Scratch, nucleus
from server.engine.types import SamplingParams
from tests.scripted_model import pack

V = 1000  # more than the sampler looks at one by one
GREEDY = SamplingParams(temperature=0)
Logits = NDArray[np.float32]


def logits_of(seed: int, size: int = V) -> Logits:
    return np.random.default_rng(seed).normal(0, 4, size).astype(np.float32)


def sampler(params: SamplingParams, size: int = V, **options: object) -> Sampler:
    return Sampler(params, Workspace(size), **options)  # type: ignore[arg-type]


PARAMETERS = [
    GREEDY,
    SamplingParams(seed=1),
    SamplingParams(seed=1, temperature=0.3, top_k=40),
    SamplingParams(seed=1, top_p=0.8, min_p=0.02),
    SamplingParams(seed=1, top_k=900, top_p=0.9999),
    SamplingParams(
        seed=1,
        frequency_penalty=0.5,
        presence_penalty=0.3,
        repeat_penalty=1.3,
        logit_bias={3: 5, 999: -100},
    ),
]


def draw(params: SamplingParams, steps: int = 60, **legal: object) -> list[int]:
    """A run of tokens over changing logits."""
    one = sampler(params)
    tokens = []
    for step in range(steps):
        tokens.append(one.sample(logits_of(step % 7), **legal).token)  # type: ignore[arg-type]
        one.accept(tokens[-1])
    return tokens


@pytest.mark.parametrize("params", PARAMETERS)
def test_a_mask_that_allows_everything_changes_nothing(params: SamplingParams) -> None:
    without = draw(params)
    assert draw(params, mask=pack(range(V), V)) == without
    assert draw(params, mask=pack(range(V), V), ids=np.arange(V, dtype=np.int32)) == without


@pytest.mark.parametrize("params", PARAMETERS)
def test_seeded_runs_repeat_exactly(params: SamplingParams) -> None:
    assert draw(params) == draw(params)


@pytest.mark.parametrize("params", PARAMETERS)
def test_a_mask_and_the_list_of_its_ids_are_the_same(params: SamplingParams) -> None:
    for step, ids in enumerate((range(0, V, 3), range(5, 90), [7, 8, 999])):
        listed = np.array(ids, dtype=np.int32)
        by_mask = draw(params, steps=20 + step, mask=pack(ids, V))
        assert by_mask == draw(params, steps=20 + step, mask=pack(ids, V), ids=listed)
        assert set(by_mask) <= set(ids)


def test_different_seeds_and_fresh_entropy_differ() -> None:
    assert draw(SamplingParams(seed=1)) != draw(SamplingParams(seed=2))
    assert draw(SamplingParams()) != draw(SamplingParams())


@given(token=st.integers(0, V - 1), seed=st.integers(0, 99), listed=st.booleans())
def test_a_single_legal_token_is_returned_whatever_the_logits(
    token: int, seed: int, listed: bool
) -> None:
    logits = logits_of(seed)
    logits[token] = -1e30
    params = SamplingParams(seed=seed, logit_bias={token: -100}, top_p=0.1, min_p=0.5, top_k=1)
    ids = np.array([token], dtype=np.int32) if listed else None
    choice = sampler(params, diagnostics=True).sample(logits, pack([token], V), ids)
    assert choice.token == token
    assert choice.diagnostics is not None
    assert choice.diagnostics.forced


def test_no_illegal_token_in_ten_thousand_draws_over_adversarial_logits() -> None:
    rng = np.random.default_rng(11)
    huge = np.float32(3e38)
    pools = [np.array([0, huge, -huge, 88, -104], np.float32), np.zeros(1, np.float32)]
    for draw_number in range(10_000):
        size = int(rng.integers(2, 600))
        legal = np.flatnonzero(rng.random(size) < rng.choice([0.01, 0.5, 0.99]))
        if not legal.size:
            legal = np.array([int(rng.integers(size))])
        logits = rng.choice(pools[draw_number % 2], size).astype(np.float32)
        params = SamplingParams(
            temperature=float(rng.choice([0, 1e-45, 1e-6, 0.7, 50])),
            top_p=float(rng.choice([1e-9, 0.5, 1])),
            top_k=int(rng.choice([0, 1, 5])),
            min_p=float(rng.choice([0, 0.9])),
            seed=draw_number,
            repeat_penalty=float(rng.choice([1, 100])),
            presence_penalty=float(rng.choice([0, -2])),
            logit_bias={int(rng.integers(size)): 100.0},
        )
        one = sampler(params, size, top_logprobs=2, diagnostics=True)
        one.accept(int(rng.integers(size)))
        ids = legal if draw_number % 3 == 0 else None
        assert one.sample(logits, pack(legal, size), ids).token in legal


def test_nothing_legal_raises_before_any_arithmetic() -> None:
    for ids in (None, np.array([], dtype=np.int32)):
        with pytest.raises(NoLegalContinuation):
            sampler(SamplingParams(seed=1)).sample(logits_of(1), pack([], V), ids)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_are_an_error(bad: float) -> None:
    logits = logits_of(1)
    logits[500] = bad
    with pytest.raises(BadLogitsError, match="1 of the model's 1000 logits"):
        sampler(GREEDY).sample(logits, pack([1, 2], V))


def test_a_sum_that_overflows_is_not_mistaken_for_infinity() -> None:
    assert sampler(GREEDY).sample(np.full(V, 3e38, np.float32)).token == 0


def test_greedy_takes_the_lowest_id_among_equals() -> None:
    logits = np.zeros(V, np.float32)
    logits[[700, 30, 31]] = 5
    assert sampler(GREEDY).sample(logits).token == 30
    assert sampler(GREEDY).sample(logits, pack([31, 700], V)).token == 31
    unsorted = np.array([700, 31], dtype=np.int32)
    assert sampler(GREEDY).sample(logits, pack([31, 700], V), unsorted).token == 31


def test_the_logits_are_left_alone() -> None:
    logits = logits_of(3)
    before = logits.copy()
    params = SamplingParams(seed=1, top_k=5, logit_bias={3: 9})
    for ids in (None, np.arange(20)):
        sampler(params, top_logprobs=3, diagnostics=True).sample(logits, pack(range(20), V), ids)
    assert (logits == before).all()


# --- distributions --------------------------------------------------------------------------

DRAWS = 20_000


def chi_square(expected: dict[int, float], params: SamplingParams, logits: Logits) -> float:
    """The statistic of DRAWS seeded draws against exact probabilities."""
    one = sampler(params, logits.size)
    counts = Counter(one.sample(logits).token for _ in range(DRAWS))
    assert set(counts) <= set(expected)
    return sum((counts[t] - DRAWS * p) ** 2 / (DRAWS * p) for t, p in expected.items())


def softmax(scores: dict[int, float]) -> dict[int, float]:
    total = sum(math.exp(score) for score in scores.values())
    return {token: math.exp(score) / total for token, score in scores.items()}


SIX = np.array([1.0, 2.0, 0.0, -1.0, 1.5, 0.5], np.float32)
# With 5 or fewer degrees of freedom a correct sampler stays below this in 99.99 % of the seeds.
CRITICAL = 25.7


def test_draws_follow_the_softmax() -> None:
    expected = softmax(dict(enumerate(SIX.tolist())))
    assert chi_square(expected, SamplingParams(seed=5), SIX) < CRITICAL


def test_draws_from_a_large_vocabulary_follow_the_softmax() -> None:
    logits = np.full(V, -50, np.float32)
    places = [0, 255, 256, 511, 800, V - 1]
    logits[places] = SIX
    expected = softmax(dict(zip(places, SIX.tolist(), strict=True)))
    assert chi_square(expected, SamplingParams(seed=13), logits) < CRITICAL


def test_draws_follow_the_temperature() -> None:
    expected = softmax({token: score / 0.5 for token, score in enumerate(SIX.tolist())})
    assert chi_square(expected, SamplingParams(seed=6, temperature=0.5), SIX) < CRITICAL


def test_draws_follow_top_k() -> None:
    expected = softmax({1: 2.0, 4: 1.5, 0: 1.0})
    assert chi_square(expected, SamplingParams(seed=7, top_k=3), SIX) < CRITICAL


def test_draws_follow_top_p() -> None:
    # The softmax is .43, .26, .16, .09 … in the order 1, 4, 0, 5: two tokens reach 0.68, not 0.7.
    expected = softmax({1: 2.0, 4: 1.5, 0: 1.0})
    assert chi_square(expected, SamplingParams(seed=8, top_p=0.7), SIX) < CRITICAL


def test_draws_follow_min_p() -> None:
    expected = softmax({1: 2.0, 4: 1.5})  # exp(-0.5) = 0.61 of the likeliest, exp(-1) = 0.37
    assert chi_square(expected, SamplingParams(seed=9, min_p=0.5), SIX) < CRITICAL


def test_top_p_counts_what_min_p_left() -> None:
    # Of the two that min-p leaves, the first alone has 0.62 of the mass.
    params = SamplingParams(seed=10, min_p=0.5, top_p=0.6)
    assert chi_square({1: 1.0}, params, SIX) == 0


def test_the_mask_comes_before_the_filters() -> None:
    """The two likeliest are illegal: filters that ran first would keep only them."""
    params = SamplingParams(seed=11, top_k=2, top_p=0.9)
    one = sampler(params, 6)
    assert {one.sample(SIX, pack([0, 5, 3], 6)).token for _ in range(200)} == {0, 5}


def test_top_p_over_a_flat_vocabulary_keeps_the_lowest_ids() -> None:
    one = sampler(SamplingParams(seed=1, top_p=0.5))
    tokens = {one.sample(np.zeros(V, np.float32)).token for _ in range(5000)}
    assert max(tokens) < V // 2
    assert len(tokens) > 450


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=0),
        SamplingParams(seed=1),
        SamplingParams(seed=1, top_p=0.95),
        SamplingParams(seed=1, top_k=40, min_p=0.05),
        SamplingParams(seed=1, min_p=0.1, top_p=0.9, repeat_penalty=1.3),
        SamplingParams(temperature=0, logit_bias={7: 2.0}, presence_penalty=1.0),
    ],
)
@pytest.mark.parametrize("masked", [False, True])
def test_a_step_allocates_nothing_of_the_vocabularys_size(
    params: SamplingParams, masked: bool
) -> None:
    """Of 50,000 tokens, nearly all legal: what is allocated at any time is less than half a row of
    scores, and depends on how many are likely."""
    size = 50_000
    logits = np.random.default_rng(0).normal(0, 4, size).astype(np.float32)
    one = Sampler(params, Workspace(size))
    mask = None
    if masked:
        mask = pack(range(9, size), size)
        mask.flags.writeable = False
    for _ in range(3):  # masks are laid out once
        one.accept(one.sample(logits, mask).token)
    tracemalloc.start()
    try:
        for _ in range(5):
            one.accept(one.sample(logits, mask).token)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * size / 2


@settings(deadline=None)
@given(
    size=st.integers(2, 3000),
    seed=st.integers(0, 2**32 - 1),
    spread=st.floats(0, 6),
    top_p=st.floats(0.01, 0.999),
)
def test_top_p_keeps_what_a_full_sort_would(
    size: int, seed: int, spread: float, top_p: float
) -> None:
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.normal(0, spread, size)).astype(np.float32)
    weights[rng.random(size) < 0.2] = 0
    weights[0] = 1
    order = np.argsort(-weights, kind="stable")
    total = np.cumsum(weights[order], dtype=np.float64)
    needed = int(np.count_nonzero(total < top_p * total[-1])) + 1
    kept = nucleus(weights, top_p, Scratch.of(size))
    assert kept.tolist() == sorted(kept.tolist())
    # Where the sum is within rounding of the goal, one token more or less is as good.
    assert abs(kept.size - needed) <= 1
    expected, found = set(order[:needed].tolist()), set(kept.tolist())
    assert expected <= found or found <= expected


def test_top_k_breaks_ties_by_id() -> None:
    one = sampler(SamplingParams(seed=1, top_k=3))
    assert {one.sample(np.zeros(V, np.float32)).token for _ in range(200)} == {0, 1, 2}


# --- bias and penalties ---------------------------------------------------------------------


def test_bias_moves_scores_but_makes_nothing_legal() -> None:
    assert sampler(SamplingParams(temperature=0, logit_bias={3: 10}), 6).sample(SIX).token == 3
    params = SamplingParams(temperature=0, logit_bias={3: 100, 77: 100})
    assert sampler(params, 6).sample(SIX, pack([0, 2], 6)).token == 0
    ids = np.array([0, 2])
    assert sampler(params, 6).sample(SIX, pack([0, 2], 6), ids).token == 0


def after(params: SamplingParams, tokens: list[int], legal: list[int]) -> int:
    one = sampler(params, 6)
    for token in tokens:
        one.accept(token)
    by_ids = one.sample(SIX, pack(legal, 6), np.array(legal)).token
    assert one.sample(SIX, pack(legal, 6)).token == by_ids
    return by_ids


def test_frequency_penalty_counts_presence_penalty_does_not() -> None:
    everything = list(range(6))
    frequency = SamplingParams(temperature=0, frequency_penalty=0.3)
    assert after(frequency, [1], everything) == 1  # 2.0 - 0.3 > 1.5
    assert after(frequency, [1, 1], everything) == 4  # 2.0 - 0.6 < 1.5
    presence = SamplingParams(temperature=0, presence_penalty=0.4)
    assert after(presence, [1, 1, 1], everything) == 1  # 2.0 - 0.4 > 1.5
    assert after(SamplingParams(temperature=0, presence_penalty=0.6), [1], everything) == 4


def test_repeat_penalty_divides_positive_and_multiplies_negative_scores() -> None:
    params = SamplingParams(temperature=0, repeat_penalty=3)
    assert after(params, [1], [1, 5]) == 1  # 2.0 / 3 > 0.5
    assert after(params, [1], [1, 0]) == 0  # 2.0 / 3 < 1.0
    biased = SamplingParams(temperature=0, repeat_penalty=3, logit_bias={2: -2})
    assert after(biased, [3], [3, 2]) == 2  # -1.0 * 3 < 0.0 - 2


def test_bias_comes_before_the_repeat_penalty() -> None:
    # Token 3: (-1 + 4) / 3 = 1.0 is above token 5's 0.5; -1 * 3 + 4 = 1.0 would be, too, so
    # compare with token 0's 1.0 as well: equal scores go to the lower id.
    params = SamplingParams(temperature=0, repeat_penalty=2, logit_bias={3: 3})
    assert after(params, [3], [3, 0]) == 0  # (-1 + 3) / 2 = 1.0, a tie; -1 * 2 + 3 = 1.0
    params = SamplingParams(temperature=0, repeat_penalty=4, logit_bias={3: 3})
    assert after(params, [3], [3, 2]) == 3  # (-1 + 3) / 4 = 0.5 > 0; the other order: -1 < 0


def test_penalties_come_before_the_temperature() -> None:
    """Scores are (s - penalty) / T; were it s / T - penalty, the odds would differ."""
    params = SamplingParams(seed=12, temperature=2.0, presence_penalty=1.0)
    one = sampler(params, 2)
    one.accept(0)
    logits = np.array([2.0, 0.0], np.float32)
    share = sum(one.sample(logits).token == 0 for _ in range(DRAWS)) / DRAWS
    assert share == pytest.approx(1 / (1 + math.exp(-0.5)), abs=0.015)


# --- reports --------------------------------------------------------------------------------


def test_logprobs_are_of_the_masked_distribution_at_temperature_1() -> None:
    params = SamplingParams(temperature=0, logit_bias={5: 50})
    choice = sampler(params, 6, top_logprobs=2).sample(SIX, pack([0, 4, 5], 6))
    exact = {t: math.log(p) for t, p in softmax({0: 1.0, 4: 1.5, 5: 0.5}).items()}
    assert choice.token == 5
    assert choice.logprob == pytest.approx(exact[5])
    assert [token for token, _ in choice.top] == [4, 0]
    assert [value for _, value in choice.top] == pytest.approx([exact[4], exact[0]])


def test_top_logprobs_never_name_an_illegal_token() -> None:
    choice = sampler(GREEDY, 6, top_logprobs=5).sample(SIX, pack([2, 3], 6))
    assert [token for token, _ in choice.top] == [2, 3]
    assert sampler(GREEDY, 6, top_logprobs=0).sample(SIX).top == ()
    assert sampler(GREEDY, 6).sample(SIX).logprob is None


def test_a_single_legal_token_has_logprob_0() -> None:
    choice = sampler(GREEDY, top_logprobs=3).sample(logits_of(1), pack([9], V))
    assert choice.logprob == 0
    assert choice.top == ((9, 0.0),)


@pytest.mark.parametrize("listed", [False, True])
def test_diagnostics(listed: bool) -> None:
    ids = np.array([0, 4]) if listed else None
    found = sampler(GREEDY, 6, diagnostics=True).sample(SIX, pack([0, 4], 6), ids).diagnostics
    raw = softmax(dict(enumerate(SIX.tolist())))
    assert found is not None
    assert found.legal_count == 2
    assert found.legal_mass == pytest.approx(raw[0] + raw[4])
    assert found.kl == pytest.approx(-math.log(raw[0] + raw[4]))
    assert (found.wanted, found.overruled, found.forced) == (1, True, False)


def test_diagnostics_without_a_mask() -> None:
    found = sampler(GREEDY, 6, diagnostics=True).sample(SIX).diagnostics
    assert found is not None
    assert (found.legal_count, found.legal_mass, found.kl) == (6, 1.0, 0.0)
    assert (found.wanted, found.overruled, found.forced) == (1, False, False)


def test_a_hopeless_mask_has_a_large_but_finite_kl() -> None:
    logits = np.array([0, 2000, 1999], np.float32)
    found = sampler(GREEDY, 3, diagnostics=True).sample(logits, pack([0], 3)).diagnostics
    assert found is not None
    assert found.kl == pytest.approx(2000.31, abs=0.01)
    assert found.legal_mass == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 2.0),
        ("repeat_penalty", 0.0),
        ("frequency_penalty", math.nan),
        ("presence_penalty", math.inf),
        ("logit_bias", {1: 101.0}),
        ("logit_bias", {1: math.nan}),
    ],
)
def test_parameters_out_of_range_are_named(field: str, value: object) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert caught.value.field == field


@settings(deadline=None)
@given(
    size=st.integers(2, 900),
    seed=st.integers(0, 2**32 - 1),
    density=st.floats(0, 1),
    top_k=st.integers(0, 20),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 1),
)
def test_any_parameters_give_a_legal_token_that_the_filters_keep(
    size: int, seed: int, density: float, top_k: int, top_p: float, min_p: float
) -> None:
    rng = np.random.default_rng(seed)
    legal = np.union1d(np.flatnonzero(rng.random(size) < density), [int(rng.integers(size))])
    logits = rng.normal(0, 3, size).astype(np.float32)
    params = SamplingParams(seed=seed, top_k=top_k, top_p=top_p, min_p=min_p)
    token = sampler(params, size).sample(logits, pack(legal, size)).token
    assert token in legal
    better = int(np.count_nonzero(logits[legal] > logits[token]))
    assert not top_k or better < top_k
    assert logits[token] - logits[legal].max() >= math.log(min_p or 1e-300) - 1e-4
