"""How the cost grows with the schema: 10 to 3,000 properties, and nesting 1 to 60.

    python bench/growth.py [--plot bench/growth.png]

Prints a table: milliseconds to compile and to the first mask, and microseconds a token (mask and
advance, first walk) over one instance. With matplotlib there, ``--plot`` also draws it. The
vocabulary is made up (all bytes, and common words and pieces of JSON), so that nothing is fetched.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from grammar import Vocabulary, compile_json_schema

PROPERTIES = (10, 30, 100, 300, 1000, 3000)
NESTING = (1, 2, 5, 10, 20, 40, 60)
PIECES = ('{"', '"}', '":', '": ', '": "', '",', '", "', '"]', '["', "{}", "[]", "},", "]}", "}}")


class Row(NamedTuple):
    """One measurement: milliseconds, milliseconds, microseconds."""

    name: str
    size: int
    compile_ms: float
    first_mask_ms: float
    token_us: float


def vocabulary() -> Vocabulary:
    """All bytes, JSON's punctuation, short words and numbers: about 19,000 tokens."""
    letters = "etaoinshrdlu"
    words = [a + b + c for a in letters for b in letters for c in letters]
    words += [" " + word for word in words] + [word.capitalize() for word in words]
    words += [a + word for a in letters[:6] for word in words[: len(letters) ** 3]]
    tokens = [bytes([b]) for b in range(256)]
    tokens += [text.encode() for text in (*PIECES, *words, *map(str, range(10, 1000)))]
    tokens.append(b"")
    return Vocabulary(tokens, {len(tokens) - 1: "<end>"}, [len(tokens) - 1])


def flat(count: int, required: str) -> tuple[dict[str, Any], Any]:
    """An object of ``count`` properties, and an instance of it."""
    kinds = ({"type": "string"}, {"type": "integer"}, {"type": "boolean"})
    values = ("text", 12, True)
    names = [f"prop{i:04d}" for i in range(count)]
    listed = {"all": names, "none": [], "mixed": names[::2]}[required]
    schema = {
        "type": "object",
        "properties": {name: kinds[i % 3] for i, name in enumerate(names)},
        "required": listed,
        "additionalProperties": False,
    }
    present = names if required == "all" else names[:: 2 if required == "mixed" else 5]
    return schema, {name: values[names.index(name) % 3] for name in present}


def nested(depth: int) -> tuple[dict[str, Any], Any]:
    """Objects within objects, and an instance."""
    schema: dict[str, Any] = {"type": "string"}
    value: Any = "text"
    for _ in range(depth):
        schema = {"type": "object", "properties": {"inner": schema, "n": {"type": "integer"}}}
        value = {"inner": value, "n": 1}
    return schema, value


def encode(vocabulary: Vocabulary, text: bytes) -> list[int]:
    """The longest tokens, from left to right."""
    trie, ids = vocabulary.trie, []
    at = 0
    while at < len(text):
        node, best, stop = 0, -1, at
        for end in range(at, len(text)):
            child = trie.visit(node)[0].get(text[end])
            if child is None:
                break
            node = child
            ending = trie.visit(node)[1]
            if ending:
                best, stop = ending[0], end + 1
        ids.append(best)
        at = stop
    return ids


def measure(name: str, size: int, case: tuple[dict[str, Any], Any], words: Vocabulary) -> Row:
    """Compile and walk one case, in CPU time."""
    schema, value = case
    began = time.process_time()
    grammar = compile_json_schema(schema, words, whitespace="flexible")
    compiled = time.process_time()
    matcher = grammar.start()
    matcher.mask()
    first = time.process_time()
    ids = encode(words, json.dumps(value, separators=(",", ":")).encode())
    walk = time.process_time()
    for token in ids:
        matcher.mask()
        matcher.advance(token)
    done = time.process_time()
    assert matcher.is_accepting()
    per_token = (done - walk) / len(ids) * 1e6
    return Row(name, size, (compiled - began) * 1e3, (first - compiled) * 1e3, per_token)


def rows() -> list[Row]:
    """All measurements."""
    words = vocabulary()
    words.prepare()
    measure("warm-up", 3, flat(3, "mixed"), words)
    gc.freeze()  # as a server does after its start
    names = {"all": "all required", "none": "all optional", "mixed": "half required"}
    cases = [
        (f"properties, {label}", count, flat(count, required))
        for required, label in names.items()
        for count in PROPERTIES
    ]
    cases += [("nesting", depth, nested(depth)) for depth in NESTING]
    return [measure(name, size, case, words) for name, size, case in cases]


def plot(found: list[Row], path: Path) -> None:
    """Draw the table, log-log, so that linear growth is a line of slope one."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in dict.fromkeys(row.name for row in found):
        mine = [row for row in found if row.name == name]
        sizes = [row.size for row in mine]
        left.plot(sizes, [row.compile_ms for row in mine], "o-", label=name)
        right.plot(sizes, [row.token_us for row in mine], "o-", label=name)
    for axes, title in ((left, "compile, ms"), (right, "mask + advance, µs a token")):
        axes.set(xscale="log", yscale="log", xlabel="properties, or levels", title=title)
        axes.grid(True, alpha=0.3)
    right.set_ylim(bottom=1)
    left.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Measure, print, and draw if asked to."""
    parser = argparse.ArgumentParser(description="cost over schema size")
    parser.add_argument("--plot", type=Path, help="where to write a PNG (needs matplotlib)")
    options = parser.parse_args()
    found = rows()
    print("| schema | size | compile ms | first mask ms | mask + advance µs/token |")
    print("|---|--:|--:|--:|--:|")
    for row in found:
        print(
            f"| {row.name} | {row.size} | {row.compile_ms:.2f} | {row.first_mask_ms:.2f} "
            f"| {row.token_us:.1f} |"
        )
    if options.plot is not None:
        try:
            plot(found, options.plot)
        except ImportError:
            print("matplotlib is not installed: no plot")


if __name__ == "__main__":
    main()
