"""What a mask costs: a token index by brute force beside ours, on a GGUF's own vocabulary.

    python bench/mask_index.py MODEL.gguf

For a two-field schema (name: string, age: integer; one-line style) it walks every state that can
be reached at a token boundary and prints: how many states there are, how many (state, token)
entries an index of all of them would hold, what a naive mask costs (every token of the vocabulary
walked through the automaton, byte by byte), what ours costs cold (first visit in a process that
has seen no schema) and warm (a state seen before), and the smallest and largest legal set.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from grammar import Matcher, Vocabulary, compile_json_schema
from server.engine.llama import LlamaModel

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "maximum": 999}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ids_of(matcher: Matcher) -> list[int]:
    """The legal token ids."""
    flags = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
    return np.flatnonzero(flags).tolist()


def states(start: Matcher, vocabulary: Vocabulary) -> tuple[list[Matcher], list[int]]:
    """One matcher for each state at a token boundary, and the size of each one's legal set."""
    found, sizes = {start.state_id: start}, []
    pending = deque([start])
    while pending:
        matcher = pending.popleft()
        legal = ids_of(matcher)
        sizes.append(len(legal))
        for token in legal:
            if token in vocabulary.eos:
                continue
            after = matcher.copy()
            after.advance(token)
            if after.state_id not in found:
                found[after.state_id] = after
                pending.append(after)
    return list(found.values()), sizes


def naive_mask(matcher: Matcher, vocabulary: Vocabulary, by_byte: dict[int, int]) -> list[int]:
    """Every token walked alone, with the single-byte tokens as steps."""
    legal = []
    for token, text in enumerate(vocabulary.tokens):
        if not text:
            continue
        at = matcher.copy()
        for byte in text:
            step = by_byte[byte]
            if not at.is_allowed(step):
                break
            at.advance(step)
        else:
            legal.append(token)
    return legal


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--naive-states", type=int, default=3, help="states to time naively")
    options = parser.parse_args()
    model = LlamaModel(options.model, n_ctx=256, n_seq_max=1)
    vocabulary = model.vocabulary
    began = time.perf_counter()
    vocabulary.prepare()
    prepared = time.perf_counter() - began

    began = time.perf_counter()
    grammar = compile_json_schema(SCHEMA, vocabulary, whitespace="fixed")
    compiled = time.perf_counter() - began
    path = b'{"name": "Ada Lovelace", "age": 36}'
    by_byte = {t[0]: i for i, t in enumerate(vocabulary.tokens) if len(t) == 1}
    cold, warm, visited = [], [], []
    matcher = grammar.start()
    for token in model.tokenize(path, add_special=False, parse_special=False):
        began = time.perf_counter()
        matcher.mask()
        cold.append(time.perf_counter() - began)
        visited.append(matcher.copy())
        matcher.advance(token)
    for at in visited:
        began = time.perf_counter()
        at.mask()
        warm.append(time.perf_counter() - began)

    everything, sizes = states(grammar.start(), vocabulary)
    naive = []
    for at in visited[: options.naive_states]:
        began = time.perf_counter()
        legal = naive_mask(at, vocabulary, by_byte)
        naive.append(time.perf_counter() - began)
        assert set(legal) | (vocabulary.eos if at.is_accepting() else set()) == set(ids_of(at))

    rows = [
        ("vocabulary", f"{vocabulary.size:,} tokens, {len(vocabulary.trie):,} trie nodes"),
        ("trie and token classes", f"{prepared * 1e3:.0f} ms, once a process"),
        ("compiling the schema", f"{compiled * 1e3:.2f} ms"),
        ("states at token boundaries", f"{len(everything):,}"),
        ("index entries", f"{sum(sizes):,}"),
        ("naive mask, median", f"{statistics.median(naive) * 1e3:.0f} ms"),
        ("our mask, cold: median / worst", f"{statistics.median(cold) * 1e6:.0f} / "
                                            f"{max(cold) * 1e6:.0f} us"),
        ("our mask, warm: median", f"{statistics.median(warm) * 1e6:.2f} us"),
        ("smallest / largest legal set", f"{min(sizes):,} / {max(sizes):,}"),
    ]  # fmt: skip
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    model.close()


if __name__ == "__main__":
    main()
