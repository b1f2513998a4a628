"""Who is compared by the engine's benchmark.

Servers in processes of their own, asked over HTTP, and llama-cpp-python's own grammar in a process
of its own, asked over a pipe.

Every contender answers one question at a time per client: `ask(question) -> Answer`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import httpx

REPO = Path(__file__).resolve().parent.parent

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

# One JSON line in, one out. The grammar is made anew for each question, as its users do.
_BINDINGS = """
import json, sys, time
import llama_cpp
from llama_cpp import llama_cpp as low
defaults = low.llama_model_default_params
def without_repacking():
    params = defaults()
    params.use_extra_bufts = False  # its AMX kernels crash on some quantisations
    return params
low.llama_model_default_params = without_repacking
path, context, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model = llama_cpp.Llama(
    path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False
)
print("ready", flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    begin = time.perf_counter()
    first, text, tokens = 0.0, "", 0
    for chunk in model.create_chat_completion(
        messages=asked["messages"], temperature=asked["temperature"], seed=asked["seed"],
        max_tokens=asked["max_tokens"], stream=True,
        response_format={"type": "json_object", "schema": asked["schema"]},
    ):
        said = chunk["choices"][0]["delta"].get("content") or ""
        if said and not text:
            first = time.perf_counter() - begin
        text += said
        tokens += bool(said)
    total = time.perf_counter() - begin
    print(json.dumps([first, total, tokens, text]), flush=True)
"""

_ADDRESS = re.compile(r"serving \S+ on (http://127\.0\.0\.1:\d+)/v1")
MAX_TOKENS = 320


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: a schema (None: free text), the words, and how the answer is sampled."""

    schema: dict[str, Any] | None
    words: str
    temperature: float = 0.0
    seed: int = 0

    @property
    def messages(self) -> list[dict[str, str]]:
        """The conversation."""
        return [{"role": "user", "content": self.words}]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer: seconds to its first text and to its end, and its size.

    forced        tokens that took no step of their own
    outside       seconds spent in the grammar and the sampler, where the server tells
    compile_ms    the grammar's compilation, likewise
    """

    first: float
    total: float
    tokens: int
    characters: int
    forced: int = 0
    outside: float = 0.0
    compile_ms: float = 0.0


class Contender(Protocol):
    """Whoever answers."""

    name: str
    constrained: bool
    concurrent: bool

    def ask(self, question: Question) -> Answer:
        """The answer to one question. Raises RuntimeError if there is none."""


@dataclass(frozen=True, slots=True)
class HttpContender:
    """A server, and whether it is asked for a schema."""

    name: str
    url: str
    constrained: bool = True
    concurrent: bool = True

    def ask(self, question: Question) -> Answer:
        """Stream one answer."""
        body: dict[str, Any] = {
            "model": "default",
            "messages": question.messages,
            "temperature": question.temperature,
            "seed": question.seed,
            "max_tokens": MAX_TOKENS if self.constrained else 60,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self.constrained:
            shape = {"name": "answer", "strict": True, "schema": question.schema}
            body["response_format"] = {"type": "json_schema", "json_schema": shape}
        begin = time.perf_counter()
        first, text, usage, timings = 0.0, "", {}, {}
        url = f"{self.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=600) as response:
            if response.status_code != 200:
                response.read()
                raise RuntimeError(f"{self.name}: {response.status_code} {response.text[:300]}")
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
        return Answer(
            first,
            total,
            usage["completion_tokens"],
            len(text),
            forced=timings.get("forced_tokens", 0),
            outside=(timings.get("mask_ms", 0.0) + timings.get("sample_ms", 0.0)) / 1e3,
            compile_ms=(timings.get("grammar") or {}).get("compile_ms") or 0.0,
        )


class BindingsContender:
    """llama-cpp-python's own grammar, behind a pipe; one question at a time."""

    name = "llama-cpp-python"
    constrained = True
    concurrent = False

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def ask(self, question: Question) -> Answer:
        """Hand one question to the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "messages": question.messages,
            "schema": question.schema,
            "temperature": question.temperature,
            "seed": question.seed,
            "max_tokens": MAX_TOKENS,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with code {self._process.wait()}")
        first, total, tokens, text = json.loads(line)
        return Answer(first, total, tokens, len(text))


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
        ready = httpx.get(f"{url}/ready", timeout=5)
        if ready.status_code == 404:  # llama-server says it under another name
            ready = httpx.get(f"{url}/health", timeout=5)
    except httpx.HTTPError:
        return False
    return ready.status_code == 200


@contextmanager
def bindings(options: argparse.Namespace) -> Iterator[BindingsContender]:
    """The bindings' own grammar in a process of its own. Raises RuntimeError if it can't start."""
    command = [sys.executable, "-c", _BINDINGS, str(options.model)]
    command += [str(options.context), str(options.threads)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=REPO,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"llama-cpp-python ended with code {process.wait()}")
        yield BindingsContender(process)
    finally:
        process.kill()
        process.wait()


def contenders(stack: ExitStack, options: argparse.Namespace) -> list[Contender]:
    """Start what is to be compared."""
    own = [sys.executable, "-m", "server.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    own += ["--model", str(options.model), "--threads", str(options.threads)]
    own += ["--slots", str(options.slots), "--n-ctx", str(options.context)]
    ours = stack.enter_context(running("gabarito", own))
    found: list[Contender] = [
        HttpContender("gabarito", ours),
        HttpContender("gabarito, free text", ours, constrained=False),
    ]
    if options.stepwise:
        stepwise = [*own, "--set", "engine.forced_runs=false"]
        url = stack.enter_context(running("gabarito", stepwise))
        found.insert(1, HttpContender("gabarito, no forced runs", url))
    if options.bindings:
        found.append(stack.enter_context(bindings(options)))
    peer = options.peer_url
    if options.peer_python:
        sizes = [str(options.slots), str(options.context), str(options.threads)]
        command = [str(options.peer_python), "-c", _PEER, str(options.model), *sizes]
        try:
            peer = stack.enter_context(running("llama-server", command))
        except (OSError, RuntimeError) as error:
            print(f"llama-server is left out: {error}", file=sys.stderr)
    if peer:
        found.append(HttpContender("llama-server", peer))
    else:
        print("llama-server is left out (see --peer-python)", file=sys.stderr)
    return found
