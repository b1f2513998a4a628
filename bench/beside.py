"""Would masks made while the model computes be free? One after a step, or beside it.

    python -m bench.beside MODEL.gguf [--threads 2] [--rounds 60]

A round evaluates one token and fills one mask that no grammar has met before, once one after the
other and once at the same time (llama.cpp is called without the interpreter's lock, the mask is
made by another thread). What is saved is the difference of the medians.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grammar import Matcher, Vocabulary, compile_json_schema
from server.engine.llama import LlamaModel
from server.engine.model import BatchItem

_LETTERS = "abcdefghijkl"


def cold_matcher(vocabulary: Vocabulary, rng: random.Random) -> Matcher:
    """A matcher within a string whose pattern is new."""
    names = ["".join(rng.choices(_LETTERS, k=8)) for _ in range(3)]
    low, high = rng.randint(2, 9), rng.randint(10, 30)
    pattern = f"^[A-Z][a-z]{{{low},{high}}}-[0-9]{{2,}}$"
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "pattern": pattern} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    matcher = compile_json_schema(schema, vocabulary).start()
    for token in (matcher.shortest_end() or ())[:9]:
        matcher.advance(token)
    return matcher


def main() -> None:
    """Measure and print medians, in milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=60)
    arguments = parser.parse_args()
    model = LlamaModel(
        arguments.model, n_ctx=2048, n_threads=arguments.threads, n_seq_max=1, n_batch=64
    )
    model.vocabulary.prepare()
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
        for number in range(arguments.rounds):
            ways = (after, beside) if number % 2 else (beside, after)
            for way in ways:
                way(cold_matcher(model.vocabulary, rng))
    model.close()
    medians = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    print(" ".join(f"{name}={value:.2f}ms" for name, value in medians.items()))


if __name__ == "__main__":
    main()
