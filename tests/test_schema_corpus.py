"""Real schemas and the official suites, where that optional data is there.

Never an invalid instance accepted. A valid one is accepted when its keys stand in schema order;
where they don't, some order of its keys must be. What can't be enforced is refused by name.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from grammar import (
    Matcher,
    SchemaBudgetError,
    SchemaError,
    UnsatisfiableSchemaError,
    UnsupportedSchemaError,
)
from tests.grammar_support import accepts, compiled, feed

# Where a language is narrower than the suite by a stated bound: the digits of numbers, formats
# (leap seconds, quoted e-mail names, A-labels, lower-case "t" and "z", ...), spellings of constants
# (1.0 for 1 in an array), base64 where the suite has an annotation.
NARROWER = (
    "format", "optional/format", "optional/float-overflow", "const", "enum", "type", "vocabulary",
    "content",
)  # fmt: skip


def lines(path: Path) -> Iterator[Any]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    yield from (json.loads(line) for line in text.splitlines() if line.strip())


def in_some_order(matcher: Matcher, value: Any, fuel: list[int]) -> Iterator[Matcher]:
    """Matchers after the value in compact form, for every order of object keys that is legal."""
    fuel[0] -= 1
    if fuel[0] < 0:
        return
    if isinstance(value, dict):
        yield from _object(matcher, value, "{", fuel)
    elif isinstance(value, list):
        yield from _array(matcher, value, "[", fuel)
    else:
        after = matcher.copy()
        if feed(after, json.dumps(value, ensure_ascii=False)):
            yield after


def _object(matcher: Matcher, left: dict[str, Any], before: str, fuel: list[int]) -> Iterator[Any]:
    if not left:
        after = matcher.copy()
        if feed(after, "{}" if before == "{" else "}"):
            yield after
        return
    for name in left:
        after = matcher.copy()
        if feed(after, before + json.dumps(name, ensure_ascii=False) + ":"):
            rest = {k: v for k, v in left.items() if k != name}
            for done in in_some_order(after, left[name], fuel):
                yield from _object(done, rest, ",", fuel)


def _array(matcher: Matcher, left: list[Any], before: str, fuel: list[int]) -> Iterator[Any]:
    after = matcher.copy()
    if not left:
        if feed(after, "[]" if before == "[" else "]"):
            yield after
    elif feed(after, before):
        for done in in_some_order(after, left[0], fuel):
            yield from _array(done, left[1:], ",", fuel)


def declared_order(schema: Any) -> dict[str, int]:
    """Every property name, in the order in which the schema's text declares it first."""
    names: dict[str, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, dict):
            for name in value.get("properties", {}):
                names.setdefault(name, len(names))
        for child in value.values() if isinstance(value, dict) else value:
            if isinstance(child, (dict, list)):
                visit(child)

    if isinstance(schema, dict):
        visit(schema)
    return names


def reordered(value: Any, order: dict[str, int]) -> Any:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: order.get(name, len(order)))
        return {name: reordered(value[name], order) for name in names}
    return [reordered(v, order) for v in value] if isinstance(value, list) else value


def accepted(grammar: Any, value: Any, schema: Any) -> bool:
    """As it stands, in the order of the schema's text, or in some order of its keys."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        if accepts(grammar, text):
            return True
    except UnicodeEncodeError:
        return False  # a lone surrogate is no text
    other = reordered(value, declared_order(schema))
    return accepted_as_is(grammar, other) or any(
        m.is_accepting() for v in (value, other) for m in in_some_order(grammar.start(), v, [3000])
    )


def accepted_as_is(grammar: Any, value: Any) -> bool:
    styles: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {}, {"indent": 2})
    try:
        return any(accepts(grammar, json.dumps(value, ensure_ascii=False, **s)) for s in styles)
    except UnicodeEncodeError:
        return False


@pytest.mark.parametrize(
    ("draft", "dialect"),
    [
        ("draft2020-12", "https://json-schema.org/draft/2020-12/schema"),
        ("draft7", "http://json-schema.org/draft-07/schema#"),
        ("draft4", "http://json-schema.org/draft-04/schema#"),
    ],
)
def test_official_suite(shared_dir: Path, draft: str, dialect: str) -> None:
    counts: Counter[str] = Counter()
    wrong = []
    for group in lines(shared_dir / "data/json-schema-test-suite" / f"{draft}.jsonl.gz"):
        schema = group["schema"]
        if isinstance(schema, dict):
            schema = {"$schema": dialect, **schema}
        keyword = group["keyword"]
        try:
            grammar = compiled(schema, whitespace="flexible")
        except UnsatisfiableSchemaError:
            wrong += [(group["id"], t) for t in group["tests"] if t["valid"]]
            counts["unsatisfiable"] += 1
            continue
        except SchemaError as error:
            assert error.keyword, group["id"]
            counts["refused"] += 1
            continue
        for test in group["tests"]:
            counts["tests"] += 1
            if not test["valid"]:
                # Content keywords are annotations since draft 2019-09, and are so here.
                content = keyword == "optional/content"
                if accepted_as_is(grammar, test["data"]) and not content:
                    wrong.append((group["id"], test))
            elif not keyword.startswith(NARROWER) and not accepted(grammar, test["data"], schema):
                wrong.append((group["id"], test))
    assert not wrong
    assert counts["tests"] > 700
    assert counts["refused"] < counts["tests"] / 8, counts


def test_bug_reports(shared_dir: Path) -> None:
    refused = set()
    for case in lines(shared_dir / "data/bug_reports/cases.jsonl"):
        if case["kind"] != "schema":
            continue
        try:
            grammar = compiled(case["schema"], whitespace="flexible")
        except UnsupportedSchemaError as error:
            refused |= {issue.keyword for issue in error.issues}
            continue
        except SchemaError as error:
            assert not case["valid_instances"], case["id"]
            assert error.keyword, case["id"]
            continue
        for value in case["valid_instances"]:
            assert accepted_as_is(grammar, value), (case["id"], value)
        for value in case["invalid_instances"]:
            assert not accepted_as_is(grammar, value), (case["id"], value)
        for text in case["valid_texts"]:
            assert accepts(grammar, text), (case["id"], text)
        for text in case["invalid_texts"]:
            assert not accepts(grammar, text), (case["id"], text)
    assert refused == {"uniqueItems"}


@pytest.mark.slow
def test_real_world_schemas(shared_dir: Path) -> None:
    """The stratified sample; the other schemas are for the benchmark runner."""
    folder = shared_dir / "data/jsonschemabench"
    chosen = set(json.loads((folder / "sample300.json").read_text()))
    counts: Counter[str] = Counter()
    for case in lines(folder / "dev.jsonl.gz"):
        if case["id"] not in chosen:
            continue
        try:
            grammar = compiled(case["schema"], whitespace="flexible")
        except UnsupportedSchemaError as error:
            assert all(issue.keyword and issue.reason for issue in error.issues)
            counts["refused"] += 1
            continue
        except SchemaBudgetError:
            counts["refused"] += 1
            continue
        for test in case["tests"]:
            counts["valid" if test["valid"] else "invalid"] += 1
            if test["valid"]:
                assert accepted(grammar, test["data"], case["schema"]), case["id"]
            else:
                assert not accepted_as_is(grammar, test["data"]), case["id"]
    assert counts["valid"] > 300
    assert counts["invalid"] > 500
    assert counts["refused"] < 20, counts
