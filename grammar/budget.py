"""What a compilation may cost: rules, steps and bytes that are counted, and processor time.

The counts come first: they end the same schemas everywhere. They don't measure all that takes time,
so there is a ``Clock``, at which the work looks at the places where it also gives way to others
(``RegexBuilder.breathe``): everything that is shared is whole there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

_LOOKS = 8
"""How many safe points there are to a look at the clock, which takes as long as some of them."""


class OutOfTimeError(Exception):
    """A compilation took more processor time than it may. It leaves what is shared whole."""


class Clock:
    """What one compilation may take of its thread's own processor time, from now on.

    Time in which the thread waits, for the lock or for a processor, does not count.

    Args:
        seconds: the budget; None: any time.
    """

    __slots__ = ("_end", "_seconds", "_skipped")

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._end = float("inf") if seconds is None else time.thread_time() + seconds
        self._skipped = 0

    def look(self) -> None:
        """Pass a safe point, in the thread that made the clock.

        Raises:
            OutOfTimeError: the time is up.
        """
        self._skipped += 1
        if self._skipped >= _LOOKS:
            self.check()

    def check(self) -> None:
        """As ``look``, and look without fail: after a piece of work that may have been long.

        Raises:
            OutOfTimeError: the time is up.
        """
        self._skipped = 0
        if time.thread_time() > self._end:
            raise OutOfTimeError(f"compiling takes more than {self._seconds:g} s of processor time")


@dataclass(frozen=True, slots=True)
class Budget:
    """What one compilation may cost.

    Attributes:
        rules: distinct combinations of subschemas.
        regex_steps: steps of regular-language work (some microseconds each).
        schema_bytes: length of the schema as compact JSON.
        seconds: of the compiling thread's own processor time; None: any. What was begun is ended
            first, some tenths of a second at worst.
    """

    rules: int = 20_000
    regex_steps: int = 300_000
    schema_bytes: int = 4_000_000
    seconds: float | None = 10.0
