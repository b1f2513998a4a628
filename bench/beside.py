"""Masks made while the model computes: what do they save, and what do they cost others?

    python -m bench.beside MODEL.gguf --threads 1 2 --clients 1 8 --rounds 12

The engine in this process answers requests whose schemas nobody has seen before, with the helper
thread and without, by turns. Two kinds of schema: `record` (new names, free strings, numbers, an
enumeration) and `patterns` (every field a string with a pattern of its own, whose masks are the
dearest). Greedy, white space fixed, answers of at most `--tokens`. For each number of threads and
clients:

    answer     milliseconds from the request to the end of the answer, median
    step       milliseconds a step, and of these outside the model
    loop late  how late an event loop in the same process wakes from 5 ms of sleep: median and p99

A first part measures one step and one cold mask, one after the other and side by side, without an
engine. Figures are medians or totals over all rounds; run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from grammar import Grammar, Matcher, Vocabulary, compile_json_schema
from server.engine.engine import LocalEngine
from server.engine.llama import LlamaModel
from server.engine.model import BatchItem
from server.engine.types import EngineDefaults, Failed, GenerationRequest, SamplingParams

_LETTERS = "abcdefghijkl"
_PROMPT = (
    "Fill in the record as JSON: Maria Lopez, 34, a nurse from Lisbon, order AB-1234 of May 2024.\n"
)


def _names(rng: random.Random, count: int) -> list[str]:
    return ["".join(rng.choices(_LETTERS, k=8)) for _ in range(count)]


def _pattern(rng: random.Random) -> dict[str, Any]:
    low, high = rng.randint(2, 9), rng.randint(10, 30)
    return {"type": "string", "pattern": f"^[A-Z][a-z]{{{low},{high}}}-[0-9]{{2,}}$"}


def new_schema(kind: str, rng: random.Random) -> dict[str, Any]:
    """A schema of a kind that was never seen before."""
    names = _names(rng, 5)
    if kind == "patterns":
        parts: list[dict[str, Any]] = [_pattern(rng) for _ in names]
    else:
        parts = [
            {"type": "string", "maxLength": rng.randint(12, 40)},
            {"type": "integer", "minimum": 0, "maximum": rng.randint(90, 9000)},
            {"enum": _names(rng, 4)},
            {"type": "boolean"},
            {"type": "string", "maxLength": rng.randint(12, 40)},
        ]
    return {
        "type": "object",
        "properties": dict(zip(names, parts, strict=True)),
        "required": names,
        "additionalProperties": False,
    }


def cold_matcher(vocabulary: Vocabulary, rng: random.Random) -> Matcher:
    """A matcher within a string whose pattern is new."""
    matcher = compile_json_schema(new_schema("patterns", rng), vocabulary).start()
    for token in (matcher.shortest_end() or ())[:9]:
        matcher.advance(token)
    return matcher


def one_step(model: LlamaModel, rounds: int) -> dict[str, float]:
    """Medians, in milliseconds, of a step and a cold mask, apart and together."""
    rng = random.Random(1)
    times: dict[str, list[float]] = {"step": [], "mask": [], "after": [], "beside": []}
    position = 0

    def step() -> None:
        nonlocal position
        model.decode([BatchItem(100 + position % 50, position, 0, logits=True)])
        position += 1

    def after(matcher: Matcher) -> None:
        begin = time.perf_counter()
        step()
        middle = time.perf_counter()
        matcher.mask()
        end = time.perf_counter()
        times["step"].append(middle - begin)
        times["mask"].append(end - middle)
        times["after"].append(end - begin)

    def beside(matcher: Matcher) -> None:
        begin = time.perf_counter()
        mask = helper.submit(matcher.mask)
        step()
        mask.result()
        times["beside"].append(time.perf_counter() - begin)

    with ThreadPoolExecutor(1) as helper:
        step()
        for number in range(rounds):
            ways = (after, beside) if number % 2 else (beside, after)
            for way in ways:
                way(cold_matcher(model.vocabulary, rng))
    model.kv_remove(0, 0, -1)
    return {name: statistics.median(values) * 1e3 for name, values in times.items()}


class Lateness:
    """An event loop in a thread of its own that sleeps 5 ms over and over."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._sleep(),))
        self._thread.start()

    async def _sleep(self) -> None:
        while not self._stopped.is_set():
            begin = time.perf_counter()
            await asyncio.sleep(0.005)
            self.late.append(time.perf_counter() - begin - 0.005)

    def stop(self) -> list[float]:
        """End it; how late it was each time, in seconds."""
        self._stopped.set()
        self._thread.join()
        return self.late


class Figures:
    """What was measured of one way."""

    def __init__(self) -> None:
        self.answers: list[float] = []
        self.late: list[float] = []
        self.steps = 0
        self.step_seconds = 0.0
        self.decode_seconds = 0.0
        self.tokens = 0

    def summary(self) -> dict[str, float]:
        """The figures that are printed."""
        late = sorted(self.late)
        return {
            "answer_ms": 1e3 * statistics.median(self.answers),
            "answers": len(self.answers),
            "tokens": self.tokens,
            "step_ms": 1e3 * self.step_seconds / self.steps,
            "outside_ms": 1e3 * (self.step_seconds - self.decode_seconds) / self.steps,
            "late_ms": 1e3 * statistics.median(late),
            "late_p99_ms": 1e3 * late[int(0.99 * (len(late) - 1))],
        }


def ask(
    engine: LocalEngine, prompt: tuple[int, ...], grammar: Grammar, most: int
) -> tuple[float, int]:
    """(seconds, tokens) of one answer."""
    sampling = SamplingParams(temperature=0)
    begin = time.perf_counter()
    tokens = 0
    for event in engine.stream(
        GenerationRequest(prompt, max_tokens=most, sampling=sampling, grammar=grammar)
    ):
        if isinstance(event, Failed):
            raise event.error
        tokens += len(getattr(event, "tokens", ()))
    return time.perf_counter() - begin, tokens


def measure(
    engine: LocalEngine, kind: str, clients: int, options: argparse.Namespace, rng: random.Random
) -> Figures:
    """Some clients at once, each with `--answers` answers over new schemas."""
    found = Figures()
    vocabulary = engine.vocabulary
    prompt = tuple(engine.tokenize(_PROMPT))
    grammars = [
        [
            compile_json_schema(new_schema(kind, rng), vocabulary, whitespace="fixed")
            for _ in range(options.answers)
        ]
        for _ in range(clients)
    ]
    before = engine.stats()
    clock = Lateness()

    def client(mine: list[Grammar]) -> list[tuple[float, int]]:
        return [ask(engine, prompt, grammar, options.tokens) for grammar in mine]

    with ThreadPoolExecutor(clients) as pool:
        for answers in pool.map(client, grammars):
            found.answers += [seconds for seconds, _ in answers]
            found.tokens += sum(tokens for _, tokens in answers)
    found.late = clock.stop()
    after = engine.stats()
    found.steps = after.steps - before.steps
    found.step_seconds = after.step_seconds - before.step_seconds
    found.decode_seconds = after.decode_seconds - before.decode_seconds
    return found


def add(total: Figures, more: Figures) -> None:
    """Add one measurement to others."""
    total.answers += more.answers
    total.late += more.late
    total.steps += more.steps
    total.step_seconds += more.step_seconds
    total.decode_seconds += more.decode_seconds
    total.tokens += more.tokens


def by_turns(
    engine: LocalEngine, kind: str, clients: int, options: argparse.Namespace
) -> dict[str, Figures]:
    """Rounds with the helper and without, in turns."""
    scheduler = engine._scheduler
    helper = scheduler._helper
    assert helper is not None
    rng = random.Random(f"{kind} {clients} {options.seed}")
    found = {"after": Figures(), "beside": Figures()}
    for number in range(options.rounds + 1):
        for way in ("after", "beside") if number % 2 else ("beside", "after"):
            scheduler._helper = helper if way == "beside" else None  # nothing is being generated
            figures = measure(engine, kind, clients, options, rng)
            if number:  # the first round warms up what all schemas share
                add(found[way], figures)
    scheduler._helper = helper
    return found


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--kinds", nargs="*", default=["record", "patterns"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--answers", type=int, default=2, help="of each client in a round")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--steps", type=int, default=60, help="rounds of the first part")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where to write all figures")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for threads in options.threads:
        model = LlamaModel(
            options.model,
            n_ctx=4096,
            n_threads=threads,
            n_seq_max=max(options.clients),
            n_batch=256,
        )
        model.vocabulary.prepare()
        if options.steps:
            medians = one_step(model, options.steps)
            told = " ".join(f"{name} {value:.2f}" for name, value in medians.items())
            print(f"threads {threads}, one step and one cold mask, ms: {told}", flush=True)
        engine = LocalEngine(model, EngineDefaults(masks_beside_decode=True))
        for kind in options.kinds:
            for clients in options.clients:
                for way, figures in by_turns(engine, kind, clients, options).items():
                    row = figures.summary()
                    rows.append(
                        {"threads": threads, "kind": kind, "clients": clients, "way": way, **row}
                    )
                    print(
                        f"threads {threads} | {kind:8} | {clients} clients | {way:6} | "
                        f"answer {row['answer_ms']:.0f} ms | step {row['step_ms']:.2f} ms, "
                        f"outside {row['outside_ms']:.2f} | "
                        f"loop late {row['late_ms']:.2f}, p99 {row['late_p99_ms']:.2f} ms | "
                        f"{row['answers']} answers, {row['tokens']} tokens",
                        flush=True,
                    )
        engine.close()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
