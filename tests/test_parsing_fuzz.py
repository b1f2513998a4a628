"""The fuzz target runs, on random inputs and on ones that reach into the regions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from parsing import ResponseParser
from tests import fuzz_parsing

QUICK = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@QUICK
@given(st.binary(max_size=60))
@example(b"")
@example(bytes(range(256)))
def test_random_bytes(data: bytes) -> None:
    fuzz_parsing.TestOneInput(data)


@QUICK
@given(st.integers(0, 255), st.lists(st.integers(120, 255), max_size=30).map(bytes))
def test_marks_of_every_template(template: int, data: bytes) -> None:
    fuzz_parsing.TestOneInput(bytes([template, 0, 2, 200]) + data)


def test_it_would_find_a_parser_that_looks_at_the_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    class Careless(ResponseParser):
        def feed(self, text: str) -> list[dict[str, Any]]:
            return super().feed(text.strip())

    monkeypatch.setattr(fuzz_parsing, "ResponseParser", Careless)
    with pytest.raises(AssertionError, match="the cuts matter"):
        fuzz_parsing.TestOneInput(bytes([0, 0, 0, 0]) + b"a b c")
