"""The fuzz targets on a fixed set of random bytes, so that they can't rot."""

from __future__ import annotations

import random

import pytest

from tests.fuzz_grammar import TARGETS


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_fuzz_targets_hold(name: str) -> None:
    rng = random.Random(name)
    runs = [TARGETS[name](rng.randbytes(rng.randrange(1, 40))) for _ in range(150)]
    assert 10 < sum(runs) < len(runs), "the target must meet both verdicts"


@pytest.mark.parametrize(
    ("name", "data"),
    [("schema", b"\x98Qyz")],  # {"if": {"$ref": "#", …}, …}: the validator goes round
)
def test_what_fuzzing_found(name: str, data: bytes) -> None:
    assert TARGETS[name](data)
