"""How soon structured answers come: this engine, llama-server, and llama-cpp-python's own grammar.

    python bench/engine.py MODEL.gguf --peer-python PEER/bin/python --clients 1 4 8
    python bench/engine.py MODEL.gguf --whitespace

All contenders are started here, on 127.0.0.1, with the same model, threads, slots and context, and
are asked in turns: every round asks each of them each question, so that whatever else the machine
does falls on all of them. Figures are medians over the rounds; ratios of medians within one run are
what can be compared. llama-server comes from the PyPI package `xllamacpp`, which is not a
dependency of this project: install it in an environment of its own and name its interpreter, or
give the address of a running server with `--peer-url`; without either the peer is left out.
`--json` keeps the figures, from which `bench/plots.py` draws. `--whitespace` compares white-space
modes by the model's own probabilities instead.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "bench")]

from contenders import MAX_TOKENS, Answer, Contender, Question, contenders  # noqa: E402
from work import WORK  # noqa: E402

PEER = "llama-server"

#: One row of a table, and of the file that `--json` writes.
Row = dict[str, Any]


def ask_together(
    contender: Contender, name: str, clients: int, temperature: float, seed: int
) -> tuple[list[Answer], float]:
    """One answer for each of several clients at the same time, each with its own question; and the
    seconds until the last one had its own."""
    schema, words = WORK[name]
    answers: list[Answer] = []
    failures: list[Exception] = []

    def client(number: int) -> None:
        try:
            suffix = f" (Request {number + 1}.)" if number else ""
            asked = Question(schema, words + suffix, temperature, seed + number)
            answers.append(contender.ask(asked))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return answers, time.perf_counter() - begin


def compare(
    found: list[Contender], clients: int, options: argparse.Namespace, temperature: float
) -> list[Row]:
    """Ask everybody in turns, print the medians and return them."""
    how = "greedy" if temperature == 0 else f"temperature {temperature:g}"
    print(f"\n{clients} client(s), {options.rounds} rounds, warm grammars, {how}; medians")
    print(f"{'schema':14} {'who':25} {'ms':>6} {'first':>6} {'tokens':>6} {'chars':>5} ", end="")
    print(f"{'tok/s':>6} {'chars/s':>7} {'forced':>6} {'outside':>7} {'vs peer':>7} {'rate':>5}")
    rows: list[Row] = []
    for name in options.work or WORK:
        asked = [c for c in found if c.concurrent or clients == 1]
        answers: dict[str, list[Answer]] = {contender.name: [] for contender in asked}
        spans: dict[str, list[float]] = {contender.name: [] for contender in asked}
        for round_ in range(options.rounds + 1):
            for contender in asked:
                batch, span = ask_together(contender, name, clients, temperature, 1000 * round_)
                if round_:  # the first one warms up
                    answers[contender.name] += batch
                    spans[contender.name].append(span)
        mine = [
            _figures(name, who, clients, temperature, answers[who.name], spans[who.name])
            for who in asked
        ]
        peer = next((row for row in mine if row["who"] == PEER), None)
        for row in mine:
            _print(row, peer)
        rows += mine
    _print_totals(rows)
    return rows


def _figures(
    name: str,
    who: Contender,
    clients: int,
    temperature: float,
    answers: list[Answer],
    spans: list[float],
) -> Row:
    span = sum(spans)
    tokens, characters = sum(a.tokens for a in answers), sum(a.characters for a in answers)
    return {
        "schema": name,
        "who": who.name,
        "constrained": who.constrained,
        "clients": clients,
        "temperature": temperature,
        "total_ms": statistics.median(a.total for a in answers) * 1e3,
        "first_ms": statistics.median(a.first for a in answers) * 1e3,
        "tokens": statistics.median(a.tokens for a in answers),
        "characters": statistics.median(a.characters for a in answers),
        "tokens_per_second": tokens / span,
        "characters_per_second": characters / span,
        "forced": sum(a.forced for a in answers) / max(1, tokens),
        "outside": sum(a.outside for a in answers) / span,
        "answers_per_second": len(answers) / span,
    }


def _print(row: Row, peer: Row | None) -> None:
    ratio = rate = ""
    if peer is not None and row["constrained"]:
        ratio = f"{row['total_ms'] / peer['total_ms']:.2f}"
        rate = f"{row['answers_per_second'] / peer['answers_per_second']:.2f}"
    print(
        f"{row['schema']:14} {row['who']:25} {row['total_ms']:6.0f} {row['first_ms']:6.0f} "
        f"{row['tokens']:6.0f} {row['characters']:5.0f} {row['tokens_per_second']:6.0f} "
        f"{row['characters_per_second']:7.0f} {row['forced']:6.0%} {row['outside']:7.1%} "
        f"{ratio:>7} {rate:>5}",
        flush=True,
    )


def _print_totals(rows: list[Row]) -> None:
    """Over all schemas: answers a second (the harmonic mean, as if they came in turn)."""
    names = dict.fromkeys(row["who"] for row in rows if row["constrained"])
    for name in names:
        mine = [row for row in rows if row["who"] == name]
        rate = len(mine) / sum(1 / row["answers_per_second"] for row in mine)
        characters = statistics.mean(row["characters_per_second"] for row in mine)
        print(f"{'all schemas':14} {name:25} {rate:.2f} answers/s, {characters:.0f} chars/s")


def cold(found: list[Contender], options: argparse.Namespace) -> None:
    """What a schema that was never seen costs: each time one key has another name."""
    print(f"\n1 client, {options.rounds} rounds, every schema new to the server; medians")
    for name in options.work or WORK:
        schema, words = WORK[name]
        for contender in found:
            if not contender.constrained:
                continue
            answers = []
            for round_ in range(options.rounds):
                new = {**schema, "properties": {**schema["properties"]}}
                key = f"note_{os.getpid()}_{round_}"
                new["properties"][key] = {"type": "boolean"}
                new["required"] = [*schema["required"], key]
                answers.append(contender.ask(Question(new, words)))
            total = statistics.median(answer.total for answer in answers)
            first = statistics.median(answer.first for answer in answers)
            compile_ms = statistics.median(answer.compile_ms for answer in answers)
            print(
                f"{name:14} {contender.name:25} {total * 1e3:6.0f} ms, first {first * 1e3:5.0f}, "
                f"compilation {compile_ms:5.1f}",
                flush=True,
            )


def compare_whitespace(options: argparse.Namespace) -> None:
    """How much each mode goes against the model (total KL), its tokens and its time."""
    from grammar import compile_json_schema
    from server.engine.loading import load_engine
    from server.engine.types import GenerationRequest, SamplingParams
    from server.prompt import tokenize_prompt
    from server.settings import EngineSettings, Settings
    from server.templates import chat_template_for
    from server.trace import TraceSummary, trace

    sizes = EngineSettings(n_ctx=options.context, n_seq=2, n_threads=options.threads)
    engine = load_engine(options.model, sizes)
    template = chat_template_for(engine, Settings())
    greedy = SamplingParams(temperature=0)
    print(f"{'schema':14} {'mode':9} {'KL':>7} {'tokens':>6} {'chars':>5} {'ms':>6} {'forced':>6}")
    try:
        for name in options.work or WORK:
            schema, words = WORK[name]
            rendered = template.render([{"role": "user", "content": words}])
            info = engine.info
            tokens = tokenize_prompt(
                rendered, engine, bos_token=info.bos_token, add_bos=info.add_bos
            )
            prompt = tuple(tokens)
            for mode in ("adaptive", "fixed", "compact", "pretty"):
                grammar = compile_json_schema(schema, engine.vocabulary, whitespace=mode)
                *_, summary = trace(engine, prompt, grammar, max_tokens=MAX_TOKENS)
                assert isinstance(summary, TraceSummary)
                request = GenerationRequest(prompt, MAX_TOKENS, greedy, (), grammar)
                times = []
                for _ in range(options.rounds):
                    begin = time.perf_counter()
                    end = list(engine.stream(request))[-1]
                    times.append(time.perf_counter() - begin)
                timings = end.timings  # type: ignore[union-attr]
                print(
                    f"{name:14} {mode:9} {summary.total_kl:7.1f} {timings.tokens:6} "
                    f"{len(summary.text):5} {statistics.median(times) * 1e3:6.0f} "
                    f"{timings.forced_tokens / timings.tokens:6.0%}",
                    flush=True,
                )
    finally:
        engine.close()


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--peer-python", type=Path, help="an interpreter that has xllamacpp")
    parser.add_argument(
        "--peer-url", help="a running llama-server, for example http://127.0.0.1:80"
    )
    parser.add_argument("--bindings", action="store_true", help="llama-cpp-python's grammar, too")
    parser.add_argument("--stepwise", action="store_true", help="ours without forced runs, too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 4, 8])
    parser.add_argument("--temperature", type=float, nargs="*", default=[0.0])
    parser.add_argument("--work", nargs="*", choices=list(WORK), help="only these schemas")
    parser.add_argument("--cold", action="store_true", help="also schemas not seen before")
    parser.add_argument("--whitespace", action="store_true", help="compare white-space modes")
    parser.add_argument("--json", type=Path, help="where to keep the figures")
    options = parser.parse_args()
    options.model = options.model.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended, too
    load = os.getloadavg()[0]
    print(f"{options.model.name}, {options.threads} thread(s); load before the run {load:.1f}")
    if options.whitespace:
        compare_whitespace(options)
        return
    rows: list[Row] = []
    with ExitStack() as stack:
        found = contenders(stack, options)
        if options.cold:
            cold(found, options)
        for clients in options.clients:
            for temperature in options.temperature:
                rows += compare(found, clients, options, temperature)
                if options.json:
                    options.json.write_text(json.dumps(rows, indent=1))
    print(f"load after the run {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
