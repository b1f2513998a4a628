"""Hostile schemas, patterns, choices and GBNF texts, and a runner that measures what they cost.

    python -m tests.nasty_sources [name ...]     -: names are read from the standard input

compiles each in a process of its own under hard limits, walks a little through what came of it, and
writes a line of JSON about it: ``name``, ``error`` (the class; empty where a grammar works),
``message``, ``seconds`` (processor time of the compilation), ``megabytes`` (how much the process
grew), ``walked`` (tokens), ``longest`` (processor seconds of the most costly mask or token).
"""

from __future__ import annotations

import gc
import json
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from grammar import (
    Grammar,
    GrammarError,
    Vocabulary,
    compile_choice,
    compile_gbnf,
    compile_json_schema,
    compile_regex,
)
from tests.grammar_support import VOCABULARY

HOSTILE = "".join(f"(?=.*{c}.{{5}})" for c in "abcdefghij")
"""Needs hundreds of thousands of steps before its budget ends it."""
MANY = 100_000
BIG = 10**9
TOKENS = 30
Case = tuple[Callable[[], Any], str]


def wrapped(levels: int, wrap: Callable[[int, Any], Any], inside: Any) -> Any:
    """Something wrapped again and again."""
    for level in range(levels):
        inside = wrap(level, inside)
    return inside


def nested(levels: int) -> Any:
    return wrapped(levels, lambda _, s: {"type": "array", "items": s}, {"type": "integer"})


def one_ofs(levels: int, width: int) -> Any:
    def wrap(i: int, schema: Any) -> Any:
        return {
            "oneOf": [
                {"properties": {f"p{i}{j}": schema}, "required": [f"r{i}{j}"]} for j in range(width)
            ]
        }

    return wrapped(levels, wrap, {"type": "string"})


def not_nest(levels: int) -> Any:
    def wrap(_: int, schema: Any) -> Any:
        return {"not": {"anyOf": [schema, {"properties": {"a": schema}, "required": ["b"]}]}}

    return wrapped(levels, wrap, {"type": "string"})


def chained(levels: int, link: Callable[[int, Any], Any]) -> Any:
    """Definitions, each of which refers to the one before, maybe several times."""
    parts = {"d0": {"type": "string"}}
    for i in range(1, levels):
        parts[f"d{i}"] = link(i, {"$ref": f"#/$defs/d{i - 1}"})
    return {"$ref": f"#/$defs/d{levels - 1}", "$defs": parts}


def tangle(*, alternatives: bool) -> Any:
    """Objects whose one property has to fit two others of them, which go round."""

    def one(i: int) -> Any:
        both = [{"$ref": f"#/$defs/d{at % 12}"} for at in (i * 7 + 1, i * 5 + 3)]
        part = {"properties": {"a": {"allOf": both}}}
        return {"anyOf": [part, {"type": "string", "minLength": i}]} if alternatives else part

    return {"$ref": "#/$defs/d0", "$defs": {f"d{i}": one(i) for i in range(12)}}


def text(pattern: str, **more: Any) -> Any:
    return {"type": "string", "pattern": pattern, **more}


BUDGET, BAD, NEVER, UNABLE = (
    "SchemaBudgetError", "SchemaError", "UnsatisfiableSchemaError", "UnsupportedSchemaError",
)  # fmt: skip
SCHEMAS: dict[str, Case] = {
    # long lists
    "enum": (lambda: {"enum": [f"value {i * 7919 % 1_000_003}" for i in range(MANY)]}, ""),
    "enum of long strings": (lambda: {"enum": ["x" * 30 + str(i) for i in range(MANY)]}, ""),
    "enum of integers": (lambda: {"enum": list(range(MANY))}, ""),
    "enum of arrays": (lambda: {"enum": [[i] for i in range(9_900)]}, ""),
    "enum of objects": (lambda: {"enum": [{"a": i, "b": [i]} for i in range(10_000)]}, BUDGET),
    "not enum": (lambda: {"type": "string", "not": {"enum": [f"v{i}" for i in range(MANY)]}}, ""),
    "not enum of integers": (
        lambda: {"type": "integer", "not": {"enum": list(range(20_000))}},
        "",
    ),
    "names": (lambda: {"propertyNames": {"enum": [f"k{i}" for i in range(50_000)]}}, ""),
    "required": (lambda: {"required": [f"k{i}" for i in range(50_000)]}, ""),
    "properties": (
        lambda: {"properties": {f"p{i}": {"minProperties": 1} for i in range(MANY)}},
        BUDGET,
    ),
    "properties alike": (
        lambda: {"properties": {f"p{i}": {} for i in range(20_000)}},
        "",
    ),
    "giant string": (lambda: {"const": "x" * 1_000_000}, ""),
    "giant string, not": (lambda: {"not": {"const": "x" * 100_000}}, ""),
    "giant strings, not": (lambda: {"not": {"enum": ["x" * 1_000_000, "y" * 999_999]}}, BUDGET),
    "giant object": (
        lambda: {"const": {f"k{i}": [i, str(i), {"a": None}] for i in range(30_000)}},
        BUDGET,
    ),
    "giant text": (lambda: {"enum": ["é" * MANY + str(i) for i in range(8)]}, BUDGET),
    # bounds
    "all bounds": (
        lambda: {
            "properties": {
                "a": {"type": "array", "minItems": BIG, "items": {"minLength": BIG}},
                "n": {"type": "integer", "minimum": -BIG, "maximum": BIG**9},
            },
            "minProperties": BIG,
        },
        "",
    ),
    "minLength": (lambda: text("^(ab|c)*$", minLength=BIG), ""),
    "exact length": (
        lambda: text("^(a{6}|b{10}|c{15})*$", minLength=BIG + 1, maxLength=BIG + 1),
        "",
    ),
    "minItems": (lambda: {"type": "array", "minItems": BIG, "maxItems": BIG + 5}, ""),
    "minimum": (lambda: {"type": "integer", "minimum": 10**300, "maximum": 10**301}, ""),
    "no length": (lambda: {"type": "string", "minLength": 5, "maxLength": 2}, NEVER),
    "no length, optional": (lambda: {"properties": {"a": {"minLength": 5, "maxLength": 2}}}, ""),
    "contains": (lambda: {"contains": {"multipleOf": 7}, "minContains": 10**6}, BUDGET),
    "contains, five": (
        lambda: {"allOf": [{"contains": {"minimum": i}, "minContains": 20} for i in range(5)]},
        BUDGET,
    ),
    "multipleOf": (lambda: {"type": "integer", "multipleOf": 9973}, BUDGET),
    "multipleOf, huge": (lambda: {"type": "integer", "multipleOf": 10**50 + 7}, UNABLE),
    "multipleOf, tiny": (lambda: {"type": "number", "multipleOf": 1e-30}, ""),
    "multipleOf, many": (
        lambda: {"type": "integer", "allOf": [{"multipleOf": i} for i in range(1, 500)]},
        BUDGET,
    ),
    "unique": (
        lambda: {"uniqueItems": True, "minItems": 300, "items": {"enum": list(range(300))}},
        "",
    ),
    # patterns
    "counters": (lambda: text("^((a{1,100}){1,100}){1,100}$"), ""),
    "counters anywhere": (lambda: text("((a{1,100}){1,100}){1,100}"), ""),
    "counters of four": (lambda: text("^((((a|b){1,100}c?){1,100}d?){1,100}e?){1,100}$"), ""),
    "thirty gaps": (lambda: text("(.*a){30}", minLength=100, maxLength=200), ""),
    "repeat": (lambda: text("^((a{1000}){1000}b){1000}$"), ""),
    "star of star": (lambda: text("^((a*)*)*b$"), ""),
    "twice": (lambda: text("(x+x+)+y"), ""),
    "optional": (lambda: text("^" + "a?" * 500 + "a" * 500 + "$"), ""),
    "words": (lambda: text("^(" + "|".join(f"w{i}[a-z]*{i % 7}" for i in range(2000)) + ")$"), ""),
    "window": (lambda: text("a.{30}$"), ""),
    "window of two": (lambda: text("^(a|b)*a(a|b){25}$", minLength=40), ""),
    "windows": (lambda: {"allOf": [{"pattern": f"{c}.{{12}}$"} for c in "abcdef"]}, BUDGET),
    "look-aheads": (lambda: text(HOSTILE), BUDGET),
    "not window": (lambda: {"type": "string", "not": {"pattern": "a.{20}$"}}, ""),
    "unary": (
        lambda: {"allOf": [{"pattern": f"^(a{{{p}}})+$"} for p in (101, 103, 107, 109)]},
        BUDGET,
    ),
    "counters together": (
        lambda: {"allOf": [{"pattern": f"^(a{{{p}}}|b)*$"} for p in (997, 991, 983)]},
        "StepBudgetError",
    ),
    "classes": (
        lambda: text(
            "^"
            + "".join(f"[\\u{256 + i:04x}-\\u{512 + i * 3:04x}]?" for i in range(1000))
            + "$"
        ),
        "StepBudgetError",
    ),
    "lengths": (
        lambda: {"allOf": [{"pattern": f"[a-z]{{{i}}}"} for i in range(500)]},
        BUDGET,
    ),
    # keys
    "key classes": (
        lambda: {"patternProperties": {f"[{chr(97 + i)}].*{i}": {} for i in range(20)}},
        BUDGET,
    ),
    "many patterns": (
        lambda: {"patternProperties": {f"^k{i}$": {} for i in range(3000)}},
        BUDGET,
    ),
    "many loose patterns": (
        lambda: {"patternProperties": {f"k{i}.*x{i}": {} for i in range(3000)}},
        BUDGET,
    ),
    # nests
    "nested": (lambda: nested(390), ""),
    "nested deeper": (lambda: nested(3000), BUDGET),
    "allOf nested": (lambda: wrapped(390, lambda _, s: {"allOf": [s]}, True), BUDGET),
    "not nested": (lambda: wrapped(390, lambda _, s: {"not": s}, {"type": "null"}), BUDGET),
    "not nest": (lambda: not_nest(10), ""),
    "oneOf nest": (lambda: one_ofs(12, 4), BUDGET),
    "oneOf of the same": (
        lambda: wrapped(
            20,
            lambda i, s: {"oneOf": [s, {"allOf": [s, {"minimum": i}]}, {"minLength": i}]},
            {"type": "integer"},
        ),
        BUDGET,
    ),
    "anyOf of references": (
        lambda: chained(30, lambda i, ref: {"anyOf": [ref, {"properties": {f"k{i}": ref}}, ref]}),
        BUDGET,
    ),
    "oneOf of references": (
        lambda: chained(30, lambda i, ref: {"oneOf": [ref, {"required": [f"k{i}"]}]}),
        BUDGET,
    ),
    "allOf of references": (lambda: chained(60, lambda _, ref: {"allOf": [ref, ref, ref]}), BUDGET),
    "chain": (lambda: chained(5000, lambda _, ref: ref), BUDGET),
    "chain of objects": (lambda: chained(5000, lambda _, ref: {"properties": {"a": ref}}), BUDGET),
    "if nested": (
        lambda: wrapped(
            12,
            lambda i, s: {"if": {"required": [f"a{i}"]}, "then": s, "else": {"required": ["b"]}},
            {"type": "object"},
        ),
        "",
    ),
    # wide combinations
    "allOf": (lambda: {"allOf": [{"required": [f"p{i}"]} for i in range(500)]}, ""),
    "allOf of anyOf": (
        lambda: {
            "allOf": [
                {"anyOf": [{"required": [f"p{i}"]}, {"required": [f"q{i}"]}]} for i in range(500)
            ]
        },
        BUDGET,
    ),
    "allOf of not": (lambda: {"allOf": [{"not": {"const": f"v{i}"}} for i in range(500)]}, ""),
    "anyOf": (lambda: {"anyOf": [{"properties": {"a": {"const": i}}} for i in range(900)]}, ""),
    "oneOf of strings": (
        lambda: {"oneOf": [text(f"^[a-z]{{{i},{i + 5}}}$") for i in range(200)]},
        "",
    ),
    # itself
    "itself": (lambda: {"$ref": "#"}, BAD),
    "not itself": (lambda: {"not": {"$ref": "#"}}, BAD),
    "itself or more": (lambda: {"anyOf": [{"$ref": "#"}, {"type": "string"}]}, BAD),
    "itself within": (lambda: {"properties": {"a": {"$ref": "#"}}, "required": ["a"]}, ""),
    "itself within, always": (
        lambda: {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        NEVER,
    ),
    "tangle": (lambda: tangle(alternatives=False), ""),
    "tangle of alternatives": (lambda: tangle(alternatives=True), ""),
}  # fmt: skip
SOURCE = "GrammarSourceError"
PATTERNS: dict[str, Case] = {
    "pattern: look-aheads": (lambda: HOSTILE + ".*", SOURCE),
    "pattern: counters": (lambda: "((a{1,100}){1,100}){1,100}", ""),
    "pattern: thirty gaps": (lambda: "(.*a){30}", ""),
    "pattern: any number": (lambda: "(ab|c){1000000000}", ""),
    "pattern: parentheses": (lambda: "(" * 20_000 + "a" + ")" * 20_000, SOURCE),
    "pattern: long": (lambda: "ab" * 50_000, ""),
    "pattern: too long": (lambda: "ab" * 60_000, SOURCE),
    "pattern: words": (lambda: "|".join(f"w{i}x*" for i in range(10_000)), ""),
    "pattern: windows": (lambda: "(?=.*a.{14}$)(?=.*b.{15}$)(?=.*c.{16}$).*", "StepBudgetError"),
}
CHOICES: dict[str, Case] = {
    "choice: many": (lambda: [f"choice {i * 7919 % 1_000_003}" for i in range(MANY)], ""),
    "choice: alike": (lambda: ["x" * 2000 + str(i) for i in range(1000)], ""),
    "choice: prefixes": (lambda: ["a" * i for i in range(1, 2000)], ""),
}
TEXTS: dict[str, Case] = {
    "gbnf: chain": (
        lambda: (
            "\n".join(f'r{i} ::= "a" r{i + 1} "b" | "c"' for i in range(5000))
            + '\nr5000 ::= "d"\nroot ::= r0'
        ),
        "",
    ),
    "gbnf: doubling": (
        lambda: (
            "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40))
            + '\nr40 ::= "a" | r0 "b"\nroot ::= r0'
        ),
        SOURCE,
    ),
    "gbnf: doubling, regular": (
        lambda: (
            "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(40))
            + '\nr40 ::= "a" | "b"\nroot ::= r0'
        ),
        "",
    ),
    "gbnf: ambiguous": (lambda: 'root ::= "(" root root root ")" | "a" | "aa" | ""', ""),
    "gbnf: bounds": (lambda: 'root ::= ("a" "b"?){1000000000,} [c-d]{5,999999999}', ""),
    "gbnf: parentheses": (lambda: "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000, SOURCE),
    "gbnf: alternatives": (
        lambda: "root ::= " + " | ".join(f'"w{i}" root' for i in range(20_000)) + ' | "x"',
        "",
    ),
    "gbnf: too many rules": (
        lambda: (
            "\n".join(f'r{i} ::= "(" r{i + 1} ")"' for i in range(30_000))
            + '\nr30000 ::= "d" | "(" r0 ")"\nroot ::= r0'
        ),
        SOURCE,
    ),
    "gbnf: itself": (lambda: 'root ::= root "a" | "b"', SOURCE),
}
COMPILERS: tuple[tuple[dict[str, Case], Callable[[Any, Vocabulary], Grammar]], ...] = (
    (SCHEMAS, compile_json_schema),
    (PATTERNS, compile_regex),
    (CHOICES, compile_choice),
    (TEXTS, compile_gbnf),
)
CASES = {name: case for cases, _ in COMPILERS for name, case in cases.items()}


def measure(name: str) -> dict[str, Any]:
    """Compile a case and walk a little, in this process."""
    cases, compile_one = next(pair for pair in COMPILERS if name in pair[0])
    source = cases[name][0]()
    vocabulary = Vocabulary(VOCABULARY.tokens, VOCABULARY.special, VOCABULARY.eos)
    vocabulary.prepare()
    gc.collect()
    before = _peak()
    error = message = ""
    seconds = longest = 0.0
    walked = 0
    began = time.thread_time()
    try:
        grammar = compile_one(source, vocabulary)
        seconds = time.thread_time() - began
        matcher, rng = grammar.start(), random.Random(name)
        for walked in range(TOKENS):  # noqa: B007
            began = time.thread_time()
            bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
            longest = max(longest, time.thread_time() - began)
            legal = [t for t in np.flatnonzero(bits).tolist() if t not in vocabulary.eos]
            if not legal:
                break
            began = time.thread_time()
            matcher.advance(rng.choice(legal))
            longest = max(longest, time.thread_time() - began)
    except GrammarError as caught:
        error, message = type(caught).__name__, str(caught)
        if not seconds:
            seconds = time.thread_time() - began
        else:
            longest = max(longest, time.thread_time() - began)
    return {
        "name": name,
        "error": error,
        "message": message[:300],
        "seconds": round(seconds, 3),
        "megabytes": (_peak() - before) >> 10,
        "walked": walked,
        "longest": round(longest, 3),
    }


def _peak() -> int:
    """The most memory that the process ever held, in KB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Measure the cases named, or all, each in a fork."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    listed: Iterable[str] = sys.argv[1:] or CASES
    for name in (line.strip() for line in sys.stdin) if listed == ["-"] else listed:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            print(json.dumps(measure(name)), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
