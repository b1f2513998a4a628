"""How soon structured answers come: this engine, with and without forced runs, and llama-server.

    python bench/engine.py MODEL.gguf --peer-python PEER/bin/python
    python bench/engine.py MODEL.gguf --whitespace

All servers are started here, on 127.0.0.1, with the same model, threads, slots and context, and are
asked over HTTP in turns: every round asks each server each question, so that whatever else the
machine does falls on all of them. Figures are medians over the rounds; ratios of medians within one
run are what can be compared. llama-server comes from the PyPI package `xllamacpp`, which is not a
dependency of this project: install it in an environment of its own and name its interpreter, or
give the address of a running server with `--peer-url`; without either the peer is left out.
`--whitespace` compares white-space modes by the model's own probabilities instead.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

_PEER = """
import sys, time, xllamacpp
path, slots, context, threads = sys.argv[1], *map(int, sys.argv[2:5])
params = xllamacpp.CommonParams()
params.model.path = path
params.n_parallel, params.n_ctx, params.use_jinja = slots, context, True
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
params.no_extra_bufts = True  # its AMX kernels crash on some quantisations
server = xllamacpp.Server(params)
print("serving peer on", server.listening_address + "/v1", flush=True)
while True:
    time.sleep(1)
"""
_ADDRESS = re.compile(r"serving \S+ on (http://127\.0\.0\.1:\d+)/v1")
_MAX_TOKENS = 320


def _object(**properties: object) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _text(length: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": length}


def _number(most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": most}


_PERSON = "Maria Lopez, 34, a nurse from Lisbon (Rua Augusta 7, 1100 Lisbon, Portugal)"
#: name -> (schema, what is asked), from flat to nested.
WORK: Mapping[str, tuple[dict[str, Any], str]] = {
    "flat": (
        _object(name=_text(24), age=_number(120), city=_text(24)),
        f"Give name, age and city as JSON: {_PERSON}.",
    ),
    "enums": (
        _object(
            sentiment={"enum": ["very negative", "negative", "neutral", "positive"]},
            category={"enum": ["billing", "delivery", "product quality", "other"]},
            needs_reply={"type": "boolean"},
            urgency={"enum": ["low", "medium", "high"]},
        ),
        "Classify as JSON: 'My parcel came two weeks late and nobody answers my mails.'",
    ),
    "long keys": (
        _object(
            customer_full_legal_name=_text(24),
            customer_age_in_completed_years=_number(120),
            is_currently_registered_member={"type": "boolean"},
            preferred_contact_channel={"enum": ["telephone", "electronic mail", "letter"]},
            number_of_orders_in_last_year=_number(99),
        ),
        f"Fill in the customer record as JSON for {_PERSON}.",
    ),
    "list": (
        _object(
            title=_text(24),
            items={
                "type": "array",
                "minItems": 3,
                "maxItems": 3,
                "items": _object(name=_text(16), quantity=_number(99), unit={"enum": ["g", "ml"]}),
            },
        ),
        "A shopping list for pancakes as JSON: flour, milk and sugar, with amounts.",
    ),
    "nested record": (
        _object(
            patient_identification=_object(
                full_name=_text(24),
                year_of_birth=_number(2030),
                administrative_gender={"enum": ["female", "male", "other", "unknown"]},
            ),
            contact_information=_object(
                street_and_house_number=_text(24),
                postal_code=_text(8),
                country_of_residence={"enum": ["Portugal", "Spain", "France", "Germany"]},
            ),
            admission=_object(
                department={"enum": ["cardiology", "neurology", "general medicine"]},
                admission_type={"enum": ["emergency", "scheduled", "transfer"]},
                insurance_verified={"type": "boolean"},
                number_of_previous_admissions=_number(50),
                priority_level={"enum": ["routine", "urgent", "critical"]},
            ),
        ),
        f"Fill in the admission record as JSON for {_PERSON}, brought in with chest pain.",
    ),
}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: seconds to its first text and to its end, and its size."""

    first: float
    total: float
    tokens: int
    characters: int
    forced: int = 0
    compile_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Contender:
    """A server, and whether it is asked for a schema."""

    name: str
    url: str
    constrained: bool = True


# --- servers ------------------------------------------------------------------------------------


@contextmanager
def running(name: str, command: list[str]) -> Iterator[str]:
    """A server in its own process; yields its address. Raises RuntimeError if it ends early."""
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GABARITO_")}
        process = subprocess.Popen(
            command, cwd=REPO, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        try:
            yield _address(name, process, Path(log.name))
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(name: str, process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        said = log.read_text(errors="replace")
        found = _ADDRESS.search(said)
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with code {process.returncode}:\n{said[-800:]}")
        if found and _is_ready(found[1]):
            return found[1]
        time.sleep(0.2)
    raise RuntimeError(f"{name} was not ready in time:\n{said[-800:]}")


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def contenders(stack: ExitStack, options: argparse.Namespace) -> list[Contender]:
    """Start what is to be compared."""
    own = [sys.executable, "-m", "server.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    own += ["--model", str(options.model), "--threads", str(options.threads)]
    own += ["--slots", str(options.slots), "--n-ctx", str(options.context)]
    ours = stack.enter_context(running("gabarito", own))
    stepwise = [*own, "--set", "engine.forced_runs=false"]
    found = [
        Contender("gabarito", ours),
        Contender("gabarito, no forced runs", stack.enter_context(running("gabarito", stepwise))),
        Contender("gabarito, free text", ours, constrained=False),
    ]
    peer = options.peer_url
    if options.peer_python:
        sizes = [str(options.slots), str(options.context), str(options.threads)]
        command = [str(options.peer_python), "-c", _PEER, str(options.model), *sizes]
        try:
            peer = stack.enter_context(running("llama-server", command))
        except (OSError, RuntimeError) as error:
            print(f"llama-server is left out: {error}", file=sys.stderr)
    if peer:
        found.append(Contender("llama-server", peer))
    else:
        print("llama-server is left out (see --peer-python)", file=sys.stderr)
    return found


# --- asking -------------------------------------------------------------------------------------


def ask(contender: Contender, schema: dict[str, Any], question: str) -> Answer:
    """Stream one greedy answer."""
    body: dict[str, Any] = {
        "model": "default",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": _MAX_TOKENS if contender.constrained else 60,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if contender.constrained:
        shape = {"name": "answer", "strict": True, "schema": schema}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    begin = time.perf_counter()
    first, text, usage, timings = 0.0, "", {}, {}
    url = f"{contender.url}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=300) as response:
        if response.status_code != 200:
            response.read()
            raise RuntimeError(f"{contender.name}: {response.status_code} {response.text[:300]}")
        for line in response.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            chunk = json.loads(line[6:])
            delta = chunk["choices"][0]["delta"].get("content") if chunk["choices"] else None
            if delta and not text:
                first = time.perf_counter() - begin
            text += delta or ""
            usage, timings = chunk.get("usage") or usage, chunk.get("timings") or timings
    total = time.perf_counter() - begin
    if contender.constrained:
        json.loads(text)
    forced = timings.get("forced_tokens", 0)
    compile_ms = (timings.get("grammar") or {}).get("compile_ms") or 0.0
    return Answer(first, total, usage["completion_tokens"], len(text), forced, compile_ms)


def ask_together(contender: Contender, name: str, clients: int) -> list[Answer]:
    """One answer for each of several clients at the same time, each with its own question."""
    schema, question = WORK[name]
    answers: list[Answer] = []
    failures: list[Exception] = []

    def client(number: int) -> None:
        try:
            suffix = f" (Request {number + 1}.)" if number else ""
            answers.append(ask(contender, schema, question + suffix))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return answers


def compare(found: list[Contender], clients: int, rounds: int) -> None:
    """Ask everybody in turns and print the medians."""
    print(f"\n{clients} client(s), {rounds} rounds, warm grammars; medians")
    print(f"{'schema':14} {'who':25} {'ms':>6} {'first':>6} {'tokens':>6} {'chars':>5} ", end="")
    print(f"{'tok/s':>6} {'chars/s':>7} {'forced':>6} {'vs peer':>7}")
    for name in WORK:
        answers: dict[str, list[Answer]] = {contender.name: [] for contender in found}
        for round_ in range(rounds + 1):
            for contender in found:
                batch = ask_together(contender, name, clients)
                answers[contender.name] += batch if round_ else []  # the first one warms up
        peer = answers.get("llama-server")
        for contender in found:
            _row(name, contender, answers[contender.name], peer, clients)


def _row(
    name: str, who: Contender, answers: list[Answer], peer: list[Answer] | None, clients: int
) -> None:
    total = statistics.median(answer.total for answer in answers)
    tokens = statistics.median(answer.tokens for answer in answers)
    characters = statistics.median(answer.characters for answer in answers)
    forced = sum(a.forced for a in answers) / max(1, sum(a.tokens for a in answers))
    ratio = ""
    if peer and who.constrained:
        ratio = f"{total / statistics.median(answer.total for answer in peer):.2f}"
    first = statistics.median(answer.first for answer in answers)
    print(
        f"{name:14} {who.name:25} {total * 1e3:6.0f} {first * 1e3:6.0f} {tokens:6.0f} "
        f"{characters:5.0f} {clients * tokens / total:6.0f} {clients * characters / total:7.0f} "
        f"{forced:6.0%} {ratio:>7}",
        flush=True,
    )


def cold(found: list[Contender], rounds: int) -> None:
    """What a schema that was never seen costs: each time one key has another name."""
    print(f"\n1 client, {rounds} rounds, every schema new to the server; medians")
    for name, (schema, question) in WORK.items():
        for contender in found:
            if not contender.constrained:
                continue
            answers = []
            for round_ in range(rounds):
                new = {**schema, "properties": {**schema["properties"]}}
                key = f"note_{os.getpid()}_{round_}"
                new["properties"][key] = {"type": "boolean"}
                new["required"] = [*schema["required"], key]
                answers.append(ask(contender, new, question))
            total = statistics.median(answer.total for answer in answers)
            first = statistics.median(answer.first for answer in answers)
            compile_ms = statistics.median(answer.compile_ms for answer in answers)
            print(
                f"{name:14} {contender.name:25} {total * 1e3:6.0f} ms, first {first * 1e3:5.0f}, "
                f"compilation {compile_ms:5.1f}",
                flush=True,
            )


# --- white space ----------------------------------------------------------------------------------


def compare_whitespace(options: argparse.Namespace) -> None:
    """How much each mode goes against the model (total KL), its tokens and its time."""
    from grammar import compile_json_schema
    from server.engine.loading import load_engine
    from server.engine.types import GenerationRequest, SamplingParams
    from server.settings import EngineSettings
    from server.trace import TraceSummary, trace

    sizes = EngineSettings(n_ctx=options.context, n_seq=2, n_threads=options.threads)
    engine = load_engine(options.model, sizes)
    greedy = SamplingParams(temperature=0)
    print(f"{'schema':14} {'mode':9} {'KL':>7} {'tokens':>6} {'chars':>5} {'ms':>6} {'forced':>6}")
    try:
        for name, (schema, question) in WORK.items():
            text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            prompt = tuple(engine.tokenize(text))
            for mode in ("adaptive", "fixed", "compact", "pretty"):
                grammar = compile_json_schema(schema, engine.vocabulary, whitespace=mode)
                *_, summary = trace(engine, prompt, grammar, max_tokens=_MAX_TOKENS)
                assert isinstance(summary, TraceSummary)
                request = GenerationRequest(prompt, _MAX_TOKENS, greedy, (), grammar)
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
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--context", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 4])
    parser.add_argument("--cold", action="store_true", help="also schemas not seen before")
    parser.add_argument("--whitespace", action="store_true", help="compare white-space modes")
    options = parser.parse_args()
    options.model = options.model.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers are ended, too
    load = os.getloadavg()[0]
    print(f"{options.model.name}, {options.threads} thread(s); load before the run {load:.1f}")
    if options.whitespace:
        compare_whitespace(options)
        return
    with ExitStack() as stack:
        found = contenders(stack, options)
        if options.cold:
            cold(found, options.rounds)
        for clients in options.clients:
            compare(found, clients, options.rounds)
    print(f"load after the run {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
