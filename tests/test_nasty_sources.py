"""Hostile sources end within the budgets: a working grammar or a clear error, in bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grammar import Budget
from tests.nasty_sources import CASES, SOURCE

REPO = Path(__file__).resolve().parent.parent
MOST_SECONDS = 11.0
"""Of processor time: the budget's 10, and the piece of work that was begun."""
MOST_MEGABYTES = 320
MOST_SECONDS_OF_A_STEP = 4.0


@pytest.fixture(scope="module")
def runner() -> Iterator[subprocess.Popen[str]]:
    """A process that measures the cases whose names it is told."""
    command = [sys.executable, "-m", "tests.nasty_sources", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=REPO, stdin=pipe, stdout=pipe, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_nasty_sources_end_in_a_grammar_or_a_clear_error(
    name: str, runner: subprocess.Popen[str]
) -> None:
    assert Budget().seconds == 10
    assert runner.stdin is not None
    assert runner.stdout is not None
    runner.stdin.write(name + "\n")
    runner.stdin.flush()
    found = json.loads(runner.stdout.readline())
    expected = CASES[name][1]
    assert (found["name"], found["error"]) == (name, expected), found
    assert found["seconds"] < MOST_SECONDS
    assert found["megabytes"] < MOST_MEGABYTES
    assert found["longest"] < MOST_SECONDS_OF_A_STEP
    if expected:
        assert len(found["message"]) > (8 if expected == SOURCE else 20)
    else:
        assert found["walked"] > 0
