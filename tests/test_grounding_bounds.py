"""Grounding in sources that were made to take long: the time grows with the length, no faster."""

from __future__ import annotations

import time
from typing import Any

import pytest

from server.grounding import Source, check, rules

RULES = rules({"type": "object", "properties": {"c": {"format": "date"}}}, "auto")
HOSTILE = (
    "x", "1", "1 ", "1,", "1.", "12,", "123 ", "1/", "a1", "½", "½½", ".", " ", "\n", " -", "@",
    "x@",
    "one ", "one-", "hundred ", "hundred thousand ", "mil ", "and ", "e meio ", "3 million ",
    "May ",
    "3 de março ", "http://", "+1 ", "%", "€1", "1e5 ", "2024-",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
@pytest.mark.parametrize("value", [{"a": 77}, {"c": "2024-05-05"}, {"b": "Nobody"}])
def test_a_source_that_repeats_itself(unit: str, value: dict[str, Any]) -> None:
    source = Source((unit * 20_000)[:20_000])
    begun = time.thread_time()
    assert len(check(value, RULES, source)) == 1
    assert time.thread_time() - begun < 8, "on a loaded machine; it was minutes"


@pytest.mark.parametrize(
    "value", [{"a": 1e400}, {"a": -1e400}, {"a": "9" * 5000}, {"c": "9" * 5000}]
)
def test_values_that_are_no_numbers_of_anybody(value: dict[str, Any]) -> None:
    assert len(check(value, RULES, "1 2 3")) == 1


def test_a_row_of_numbers_states_each() -> None:
    row = " ".join(str(number) for number in range(100, 400))
    assert check({"a": 217, "b": 399}, RULES, row) == ()
    listed = ",".join(str(number) for number in range(10, 99))
    assert check({"a": 57}, RULES, listed) == ()
