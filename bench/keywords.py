"""The official JSON-Schema-Test-Suite, keyword by keyword, for our engine and others beside it.

    PEER/bin/python bench/keywords.py DIRECTORY [--engine gabarito --engine llguidance ...]

DIRECTORY holds ``draft2020-12.jsonl.gz``, ``draft7.jsonl.gz`` and ``draft4.jsonl.gz``: a group of
the suite a line, with ``keyword``, ``schema`` and ``tests`` (``data``, ``valid``). The engines that
can be imported take part: ours (numpy), llguidance and xgrammar, each in a process of its own that
is begun anew when it dies or takes longer than ``--limit`` seconds for a group.

Every engine reads bytes, one a token, so that only what it accepts counts. A valid instance counts
as accepted in any of these texts: compact or with spaces, its keys as they stand, in the order in
which the schema declares them, or in another order (up to four keys). An invalid one counts as
accepted in any of them, too. A schema is refused when compiling it fails; where it fails because
nothing satisfies it, that is an answer, and every instance is rejected.

The suite's ``format.json`` and ``content.json`` say that formats and content are annotations, its
``optional/format`` and the ``optional/content`` of draft 7 that they are assertions. Ours is set to
the one for the former groups and to the other for all else; the peers have one reading.
"""

from __future__ import annotations

import argparse
import gzip
import json
import select
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
#: Groups of the suite for which formats and content are annotations.
ANNOTATING = ("format.json", "content.json", "format", "content")
ENGINES = ("gabarito", "llguidance", "xgrammar")
MAX_KEYS = 4
Accepts = Callable[[bytes], bool]
"""Whether a compiled schema accepts a text, whole."""
Compiler = Callable[[Any, bool], Accepts]
"""From a schema, and whether its formats are annotations (for who can be told)."""


class UnsatisfiableError(Exception):
    """Nothing satisfies the schema."""


# -- engines ------------------------------------------------------------------------------------


def gabarito() -> Compiler:
    """Our engine, strict."""
    from grammar import UnsatisfiableSchemaError, Vocabulary, compile_json_schema

    tokens = [bytes((byte,)) for byte in range(256)]
    vocabulary = Vocabulary([*tokens, b""], {256: "<end>"}, [256])

    def compiled(schema: Any, annotates: bool = False) -> Accepts:
        formats = "annotate" if annotates else "assert"
        try:
            grammar = compile_json_schema(
                schema, vocabulary, whitespace="flexible", formats=formats
            )
        except UnsatisfiableSchemaError as error:
            raise UnsatisfiableError from error

        def accepts(text: bytes) -> bool:
            matcher = grammar.start()
            for byte in text:
                if not matcher.is_allowed(byte):
                    return False
                matcher.advance(byte)
            return matcher.is_accepting()

        return accepts

    return compiled


def llguidance() -> Compiler:
    """llguidance with its defaults."""
    import llguidance as library

    tokenizer = library.LLTokenizer("byte")

    def compiled(schema: Any, annotates: bool = False) -> Accepts:
        source = library.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        first = library.LLMatcher(tokenizer, source, log_level=0)
        if first.is_error():
            if "unsatisfiable" in first.get_error().lower():
                raise UnsatisfiableError
            raise ValueError(first.get_error())

        def accepts(text: bytes) -> bool:
            matcher = first.deep_copy()
            taken = matcher.try_consume_tokens(list(text))
            return bool(taken == len(text) and matcher.is_accepting())

        return accepts

    return compiled


def xgrammar() -> Compiler:
    """xgrammar without its strict mode, which closes objects that the schema leaves open."""
    import xgrammar as library

    tokens = [bytes((byte,)) for byte in range(256)]
    info = library.TokenizerInfo(
        [*tokens, b"</s>"], vocab_type=library.VocabType.RAW, stop_token_ids=[256]
    )
    compiler = library.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compiled(schema: Any, annotates: bool = False) -> Accepts:
        grammar = compiler.compile_json_schema(
            json.dumps(schema), any_whitespace=True, strict_mode=False
        )

        def accepts(text: bytes) -> bool:
            matcher = library.GrammarMatcher(grammar)
            return all(map(matcher.accept_token, text)) and bool(matcher.accept_token(256))

        return accepts

    return compiled


# -- texts of an instance -----------------------------------------------------------------------


def declared(schema: Any) -> dict[str, int]:
    """Property names in the order in which the schema's text declares them first."""
    names: dict[str, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            properties = value.get("properties")
            for name in properties if isinstance(properties, dict) else ():
                names.setdefault(name, len(names))
        for child in value.values() if isinstance(value, dict) else value:
            if isinstance(child, (dict, list)):
                visit(child)

    if isinstance(schema, dict):
        visit(schema)
    return names


def reordered(value: Any, order: dict[str, int]) -> Any:
    """The value with all keys in the order declared."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: order.get(name, len(order)))
        return {name: reordered(value[name], order) for name in names}
    return [reordered(item, order) for item in value] if isinstance(value, list) else value


def texts(value: Any, order: dict[str, int]) -> Iterator[bytes]:
    """The texts that an instance may be written as."""
    values = [value, reordered(value, order)]
    if isinstance(value, dict) and 1 < len(value) <= MAX_KEYS:
        values += [{name: values[1][name] for name in names} for names in permutations(value)]
    found: dict[bytes, None] = {}
    for each in values:
        for separators in ((",", ":"), (", ", ": ")):
            text = json.dumps(each, ensure_ascii=False, separators=separators)
            found[text.encode(errors="surrogatepass")] = None
    yield from found


# -- one engine, in a process of its own --------------------------------------------------------


def work(engine: str) -> None:
    """Answer groups from standard input: refused, or for each test whether it is accepted."""
    compile_schema = {"gabarito": gabarito, "llguidance": llguidance, "xgrammar": xgrammar}[
        engine
    ]()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        group = json.loads(line)
        answer: Any
        try:
            accepts = compile_schema(group["schema"], group["keyword"] in ANNOTATING)
        except UnsatisfiableError:
            answer = [False] * len(group["tests"])
        except Exception as error:
            answer = str(error)[:200]
        else:
            order = declared(group["schema"])
            answer = [any(map(accepts, texts(t["data"], order))) for t in group["tests"]]
        print(json.dumps(answer), flush=True)


class Worker:
    """A process that answers, begun anew where it fails."""

    def __init__(self, engine: str, limit: float) -> None:
        self.engine, self.limit = engine, limit
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> bool:
        """Whether the engine is there."""
        command = [sys.executable, __file__, "--worker", self.engine]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        return self._read(60) == "ready"

    def _read(self, limit: float) -> Any:
        assert self.process is not None
        assert self.process.stdout is not None
        if select.select([self.process.stdout], [], [], limit)[0]:
            line = self.process.stdout.readline()
            if line:
                return json.loads(line)
        self.stop()
        return None

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def ask(self, group: dict[str, Any]) -> Any:
        """A list of answers, why the schema was refused, or None: it died or took too long."""
        if self.process is None and not self.start():
            return None
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(group) + "\n")
        self.process.stdin.flush()
        return self._read(self.limit)


# -- the table ----------------------------------------------------------------------------------


def groups(path: Path, dialect: str) -> Iterator[dict[str, Any]]:
    """The groups of one draft, each schema with its dialect named."""
    for line in gzip.decompress(path.read_bytes()).splitlines():
        group = json.loads(line)
        if isinstance(group["schema"], dict):
            group["schema"] = {"$schema": dialect, **group["schema"]}
        yield group


def count(tests: list[dict[str, Any]], answer: Any) -> Counter[str]:
    """What an engine made of a group."""
    found: Counter[str] = Counter()
    if not isinstance(answer, list):
        found["refused"] += len(tests)
        return found
    for test, accepted in zip(tests, answer, strict=True):
        if test["valid"] == accepted:
            found["right"] += 1
        else:
            found["wrongly accepted" if accepted else "wrongly rejected"] += 1
    return found


def cell(found: Counter[str]) -> str:
    """One engine's figures: right / wrongly accepted / wrongly rejected / refused."""
    wrong = found["wrongly accepted"]
    shown = f"**{wrong}**" if wrong else "0"
    return f"{found['right']} / {shown} / {found['wrongly rejected']} / {found['refused']}"


def main() -> None:
    """Run and print Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--limit", type=float, default=30, help="seconds a group")
    parser.add_argument("--worker", choices=ENGINES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.worker)
        return
    if arguments.directory is None:
        parser.error("the suite's directory is needed")
    workers = [Worker(engine, arguments.limit) for engine in arguments.engine or ENGINES]
    workers = [worker for worker in workers if worker.start()]
    names = [worker.engine for worker in workers]
    for draft, dialect in DRAFTS.items():
        table: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
        sizes: Counter[str] = Counter()
        for group in groups(arguments.directory / f"{draft}.jsonl.gz", dialect):
            keyword = group["keyword"].removesuffix(".json")
            if keyword.startswith("optional/") and not keyword.startswith("optional/format"):
                keyword = "optional"
            for row in (keyword, "all"):
                sizes[row] += len(group["tests"])
            for worker in workers:
                found = count(group["tests"], worker.ask(group))
                table[keyword][worker.engine] += found
                table["all"][worker.engine] += found
        print(f"\n### {draft}\n\n| keyword | tests | {' | '.join(names)} |")
        print(f"|---|--:|{'--:|' * len(names)}")
        for row in sorted(table, key=lambda name: (name != "all", "/" in name, name)):
            cells = " | ".join(cell(table[row][name]) for name in names)
            print(f"| {row} | {sizes[row]} | {cells} |", flush=True)
    for worker in workers:
        worker.stop()


if __name__ == "__main__":
    main()
