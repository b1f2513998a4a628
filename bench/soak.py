"""A soak: many clients at once, of which many go away in the middle; does anything leak?

    python -m bench.soak MODEL.gguf --minutes 15 --clients 8

Runs the engine in this process. First grammars are compiled and walked without the model, one after
the other, until the caches, which have little room, are full and the resident size stands still.
Then each client asks for one answer after the other: free text, strict schemas (each with a schema
of its own), closed in time, with diagnostics, greedy and sampled, prompts that share beginnings; a
part of them is cancelled at a random moment, in the queue, in prefill or while decoding. Every
`--check` seconds in a pause, and at the end, these must hold:

    slots      none in use
    cells      what the slots hold is what the model holds (the engine's own integrity check), and
               none are held once idle prefixes are forgotten
    requests   begun = finished + failed + cancelled, and nothing failed
    threads    as many as at the first check
    memory     since the first check after `--warm-up` requests the resident size has grown by no
               more than `--growth` MiB beyond what the caches say that they hold more, and they
               hold no more than they may (`caches_mib`: compiled grammars, and what these share)

Exit status 1 where one doesn't. The figures go to stdout, one line a check, the last one as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from grammar import Grammar, GrammarCache, Vocabulary
from server.engine.engine import LocalEngine
from server.engine.errors import EngineError, QueueFullError
from server.engine.loading import load_engine
from server.engine.types import Failed, Finished, GenerationRequest, SamplingParams
from server.settings import EngineSettings

_WORDS = [
    *("river", "stone", "lantern", "harbour", "winter"),
    *("engine", "garden", "paper", "signal", "cloud"),
]
_WARM_UP_CHECKS = 2  # so many checks pass before the memory counts,
_WARM_UP = 60  # and so many requests: the model's buffers are made, and the masks in use laid out
_PATIENCE = 30.0  # seconds that the last cancellations may take
_BATCH = 100  # so many grammars are walked before the memory is looked at
_STILL = 3  # so many batches in a row must leave it where it is,
_STILL_MIB = 2.0  # within so much
_MOST_BATCHES = 60
_SLACK_MIB = 8.0  # they are looked at now and then, and may have grown meanwhile
_MOST_STEPS = 80  # of one walk


@dataclass(slots=True)
class Tally:
    """What the clients have seen; guarded by `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked: int = 0
    finished: int = 0
    cancelled: int = 0
    refused: int = 0
    tokens: int = 0
    errors: list[str] = field(default_factory=list)

    def add(self, **counts: int) -> None:
        """Count something."""
        with self.lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    def fail(self, error: Exception) -> None:
        """Something failed that should not have."""
        with self.lock:
            self.errors.append(f"{type(error).__name__}: {error}")


def schema(rng: random.Random) -> dict[str, Any]:
    """One of very many schemas, so that grammars come and go."""
    names = rng.sample(_WORDS, 4)
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": rng.choice([20, 60])},
        {"type": "integer"},
        {"enum": rng.sample(_WORDS, 3)},
        {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    ]
    return {
        "type": "object",
        "properties": dict(zip(names, kinds, strict=True)),
        "required": names[:3],
        "additionalProperties": False,
    }


def request(
    rng: random.Random, engine: LocalEngine, cache: GrammarCache, client: str, most_words: int
) -> GenerationRequest:
    """A random request, whose prompt may have so many words."""
    topic = " ".join(rng.choices(_WORDS, k=rng.choice([3, 3, 40, most_words])))
    prompt = engine.tokenize(f"Write a JSON record about this: {topic}\n")
    grammar: Grammar | None = None
    if rng.random() < 0.75:
        vocabulary: Vocabulary = engine.vocabulary
        grammar = cache.get_json_schema(schema(rng), vocabulary, strict=True).grammar
    return GenerationRequest(
        prompt=tuple(prompt),
        max_tokens=rng.choice([60, 90, 160]),
        sampling=SamplingParams(temperature=rng.choice([0.0, 0.8]), top_p=0.95),
        grammar=grammar,
        closes=rng.random() < 0.5,
        repetition_guard=rng.choice([0, 48]),
        diagnostics=rng.random() < 0.1,
        client=client,
    )


def ask(rng: random.Random, engine: LocalEngine, asked: GenerationRequest, tally: Tally) -> None:
    """Send one request and read it, or a part of it."""
    generation = engine.stream(asked)
    tally.add(asked=1)
    patience = rng.choice([None, None, 0, 1, rng.randrange(2, 40)])
    timer = threading.Timer(rng.uniform(0, 2), generation.cancel) if patience == 0 else None
    if timer is not None:
        timer.start()
    for count, event in enumerate(generation, start=1):
        if isinstance(event, Failed):
            tally.fail(event.error)
        elif isinstance(event, Finished):
            tally.add(finished=1, tokens=event.usage.completion_tokens)
            break
        if patience and count >= patience:
            generation.cancel()
    else:
        tally.add(cancelled=1)
    if timer is not None:
        timer.join()


def walk(grammar: Grammar, rng: random.Random) -> None:
    """Write a random answer, or its beginning."""
    grammar.shortest()
    matcher = grammar.start()
    for step in range(_MOST_STEPS):
        if step % 8 == 0:
            matcher.shortest_end()
        mask = matcher.mask()
        legal = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        token = int(rng.choice(legal))
        if token in grammar.vocabulary.eos:
            return
        matcher.advance(token)


def saturate(vocabulary: Vocabulary, cache: GrammarCache, still_mib: float = _STILL_MIB) -> int:
    """Fill the caches: new grammars until the memory stands still; returns how many."""
    rng = random.Random(0)
    sizes: list[float] = []
    for count in range(1, _MOST_BATCHES + 1):
        for _ in range(_BATCH):
            walk(cache.get_json_schema(schema(rng), vocabulary, strict=True).grammar, rng)
        sizes.append(resident_mib())
        print(f"grammars={count * _BATCH} rss_mib={sizes[-1]:.1f}", flush=True)
        last = sizes[-_STILL - 1 :]
        if len(last) > _STILL and max(last) - min(last) <= still_mib:
            break
    return count * _BATCH


def run_client(
    number: int,
    engine: LocalEngine,
    cache: GrammarCache,
    tally: Tally,
    until: float,
    most_words: int,
) -> None:
    """One client: one request after the other until the time is over."""
    rng = random.Random(number)
    while time.monotonic() < until:
        try:
            asked = request(rng, engine, cache, f"client {number % 3}", most_words)
            ask(rng, engine, asked, tally)
        except QueueFullError as error:
            tally.add(refused=1)
            time.sleep(min(0.2, error.retry_after_seconds))
        except EngineError as error:
            tally.fail(error)


def resident_mib() -> float:
    """The process's resident memory, without what waits for the collector."""
    gc.collect()
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status doesn't tell the resident size")


def cached_mib(vocabulary: Vocabulary, cache: GrammarCache) -> float:
    """What the caches say that they hold."""
    held = vocabulary.workspace.memory_bytes() + cache.stats().bytes
    return round(held / (1 << 20), 1)


def check(engine: LocalEngine, tally: Tally) -> tuple[dict[str, Any], list[str]]:
    """(figures, what is wrong) of an engine that nobody is asking anything."""
    deadline = time.monotonic() + _PATIENCE
    while (engine.stats().slots_used or engine.stats().queued) and time.monotonic() < deadline:
        time.sleep(0.05)  # the last cancellations take a step
    wrong: list[str] = []
    engine.check_integrity()
    held = engine.stats().kv_cells_used
    engine.forget_prefixes()
    engine.check_integrity()
    stats = engine.stats()
    if stats.slots_used or stats.queued:
        wrong.append(f"{stats.slots_used} slots and {stats.queued} places are still taken")
    if stats.kv_cells_used:
        wrong.append(f"{stats.kv_cells_used} cells are held by nobody")
    over = stats.requests - stats.finished - stats.failed - stats.cancelled
    if over > 0:
        wrong.append(f"{over} requests have neither ended nor been cancelled")
    if stats.failed or tally.errors:
        wrong.append(f"{stats.failed} failed: {tally.errors[:3]}")
    figures = {
        "asked": tally.asked,
        "finished": tally.finished,
        "cancelled": tally.cancelled,
        "refused": tally.refused,
        "tokens": tally.tokens,
        "steps": stats.steps,
        "preempted": stats.preempted,
        "cached_tokens": stats.cached_tokens,
        "cells_before_forgetting": held,
        "cells": stats.kv_cells_used,
        "threads": threading.active_count(),
        "rss_mib": round(resident_mib(), 1),
    }
    return figures, wrong


def soak(engine: LocalEngine, arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run and check until the time is over; returns the last figures and all that was wrong."""
    tally, cache, wrong = Tally(), GrammarCache(max_bytes=arguments.cache << 20), list[str]()
    engine.vocabulary.workspace.limit_bytes = arguments.workspace << 20
    saturate(engine.vocabulary, cache)
    end = time.monotonic() + 60 * arguments.minutes
    base: tuple[float, float] | None = None
    checks = threads = 0
    figures: dict[str, Any] = {}
    while not wrong and (checks <= _WARM_UP_CHECKS or time.monotonic() < end):
        until = time.monotonic() + arguments.check
        clients = [
            threading.Thread(
                target=run_client,
                args=(n + 100 * checks, engine, cache, tally, until, arguments.words),
            )
            for n in range(arguments.clients)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        figures, found = check(engine, tally)
        wrong += found
        checks += 1
        if checks == 1:
            threads = figures["threads"]
        elif figures["threads"] > threads:
            wrong.append(f"there are {figures['threads']} threads, {threads} before")
        caches = figures["caches_mib"] = cached_mib(engine.vocabulary, cache)
        if base is None and checks >= _WARM_UP_CHECKS and tally.asked >= arguments.warm_up:
            base = figures["rss_mib"], caches
        if base is not None:
            filled = max(0.0, caches - base[1])
            figures["growth_mib"] = round(figures["rss_mib"] - base[0], 1)
            figures["unexplained_mib"] = round(figures["growth_mib"] - filled, 1)
            if figures["unexplained_mib"] > arguments.growth:
                wrong.append(f"the memory has grown by {figures['unexplained_mib']} MiB")
        if caches > arguments.cache + arguments.workspace + _SLACK_MIB:
            wrong.append(f"the caches hold {caches:.1f} MiB")
        print(" ".join(f"{name}={value}" for name, value in figures.items()), flush=True)
    return figures, wrong


def main() -> int:
    """Parse the command line, soak, report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--n-ctx", type=int, default=2048)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--check", type=float, default=60.0, help="seconds between two checks")
    parser.add_argument("--growth", type=float, default=16.0, help="MiB allowed after the warm-up")
    parser.add_argument("--cache", type=int, default=4, help="MiB of compiled grammars to keep")
    parser.add_argument(
        "--workspace", type=int, default=40, help="MiB of what grammars share, before it is renewed"
    )
    parser.add_argument(
        "--warm-up", type=int, default=_WARM_UP, help="requests before the memory counts"
    )
    parser.add_argument("--words", type=int, default=400, help="of the longest prompts")
    arguments = parser.parse_args()
    settings = EngineSettings(
        n_ctx=arguments.n_ctx, n_seq=arguments.slots, n_threads=arguments.threads, max_queue=16
    )
    engine = load_engine(arguments.model, settings)
    try:
        figures, wrong = soak(engine, arguments)
    finally:
        engine.close()
    print(json.dumps({"ok": not wrong, "wrong": wrong, **figures}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
