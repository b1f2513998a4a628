"""How far a download is, for people: a bar on a terminal, a line now and then elsewhere.

Invariant: everything goes to stderr; stdout belongs to results.

Read next: `server/download.py`, which reports through `Progress`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.progress import Progress as RichBar

_LINE_SECONDS = 5.0


class Progress(Protocol):
    """Takes reports of a download; `done` and `total` are bytes, `total` None is unknown."""

    def update(self, label: str, done: int, total: int | None) -> None:
        """Report that `done` bytes of the part called `label` are there."""

    def message(self, text: str) -> None:
        """Say something that is not a number."""


class SilentProgress:
    """Reports nothing."""

    def update(self, label: str, done: int, total: int | None) -> None:
        """Ignore the report."""

    def message(self, text: str) -> None:
        """Ignore the text."""


class _LineProgress:
    """One line at the start and then every few seconds, for logs."""

    def __init__(self) -> None:
        self._label = ""
        self._next = 0.0

    def update(self, label: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        finished = total is not None and done >= total
        if label == self._label and now < self._next and not finished:
            return
        if label == self._label and finished and self._next == float("inf"):
            return
        self._label = label
        self._next = float("inf") if finished else now + _LINE_SECONDS
        share = f" of {total / 1e6:.1f} MB ({done * 100 // total} %)" if total else " MB"
        self.message(f"{label}: {done / 1e6:.1f}{share}")

    def message(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


class _BarProgress:
    """A live bar for each part."""

    def __init__(self, bar: RichBar) -> None:
        self._bar = bar
        self._tasks = {task.description: task.id for task in bar.tasks}

    def update(self, label: str, done: int, total: int | None) -> None:
        if label not in self._tasks:
            self._tasks[label] = self._bar.add_task(label, total=total)
        self._bar.update(self._tasks[label], completed=done, total=total)

    def message(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)


@contextmanager
def terminal_progress() -> Iterator[Progress]:
    """Progress for the command line: a bar if stderr is a terminal, else plain lines."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LineProgress()
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with RichBar(*columns, console=console) as bar:
        yield _BarProgress(bar)
