"""Totals since the engine's start.

Written by the engine's thread, read by anybody: figures may be a step apart from one another.
Read next: `scheduler.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Steps, requests and tokens; times in seconds, of all steps together.

    step_seconds    in steps
    decode_seconds  of these inside the model
    """

    steps: int = 0
    requests: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    preempted: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    step_seconds: float = 0.0
    decode_seconds: float = 0.0
