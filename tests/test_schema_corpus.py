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
from grammar.objects import ObjectNode
from tests.grammar_support import accepts, compiled, feed

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
# Groups that state that formats and content are annotations; the others are about assertions.
ANNOTATING = ("format", "content")
# The valid tests of the official suite that stated bounds leave out, by keyword.
_HOSTS = {
    "a valid host name (example.test in Hangul)",
    "Arabic-Indic digits not mixed with Extended Arabic-Indic digits",
    "Exceptions that are PVALID, left-to-right chars",
    "Exceptions that are PVALID, right-to-left chars",
    "Extended Arabic-Indic digits not mixed with Arabic-Indic digits",
    "Greek KERAIA followed by Greek",
    "Hebrew GERESH preceded by Hebrew",
    "Hebrew GERSHAYIM preceded by Hebrew",
    "KATAKANA MIDDLE DOT with Han",
    "KATAKANA MIDDLE DOT with Hiragana",
    "KATAKANA MIDDLE DOT with Katakana",
    "MIDDLE DOT with surrounding 'l's",
    "ZERO WIDTH JOINER preceded by Virama",
    "ZERO WIDTH NON-JOINER not preceded by Virama but matches regexp",
    "ZERO WIDTH NON-JOINER preceded by Virama",
}
_IDN_HOSTS = {
    "valid Chinese Punycode",
    "label too long if separator ignored (full stop)",
    "label too long if separator ignored (fullwidth full stop)",
    "label too long if separator ignored (halfwidth ideographic full stop)",
    "label too long if separator ignored (ideographic full stop)",
}
_NUMBERS = {"valid if optional overflow handling is implemented"}
LEFT = {
    ("draft2020-12", "optional/format/hostname"): _HOSTS,  # A-labels
    ("draft2020-12", "optional/format/idn-hostname"): _IDN_HOSTS,  # A-labels, labels of 55 letters
    ("draft2020-12", "optional/float-overflow"): _NUMBERS,  # 308 zeros
    ("draft7", "optional/format/hostname"): _HOSTS,
    ("draft7", "optional/format/idn-hostname"): _IDN_HOSTS,
    ("draft7", "optional/float-overflow"): _NUMBERS,
    ("draft4", "optional/float-overflow"): _NUMBERS,
}
# How many schemas are refused at most, by keyword: references to other documents, numbers with more
# digits than are divided, unknown meta-schemas, JSON in strings.
REFUSED = {
    "draft2020-12": {
        "defs": 1, "dynamicRef": 5, "multipleOf": 1, "optional/cross-draft": 1,
        "optional/format-assertion": 2, "ref": 1, "refRemote": 15, "vocabulary": 2,
    },
    "draft7": {
        "definitions": 1, "multipleOf": 1, "optional/content": 2, "optional/cross-draft": 1,
        "ref": 1, "refRemote": 11,
    },
    "draft4": {"definitions": 1, "multipleOf": 1, "ref": 1, "refRemote": 8},
}  # fmt: skip


def lines(path: Path) -> Iterator[Any]:
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    yield from (json.loads(line) for line in text.splitlines() if line.strip())


def in_schema_order(matcher: Matcher, value: Any, fuel: list[int]) -> Iterator[Matcher]:
    """Matchers after the value in compact form, the keys of each object put into an order that one
    of the grammar's objects at that place has."""
    fuel[0] -= 1
    if fuel[0] < 0:
        return
    if isinstance(value, dict):
        after = matcher.copy()
        if feed(after, "{"):
            for order in orders(after):
                names = sorted(value, key=lambda name: order.get(name, len(order)))
                members = [(json.dumps(n, ensure_ascii=False) + ":", value[n]) for n in names]
                yield from _members(after, members, "}", fuel)
    elif isinstance(value, list):
        after = matcher.copy()
        if feed(after, "["):
            yield from _members(after, [("", item) for item in value], "]", fuel)
    else:
        after = matcher.copy()
        if feed(after, json.dumps(value, ensure_ascii=False)):
            yield after


def _members(
    matcher: Matcher, left: list[tuple[str, Any]], before: str, fuel: list[int]
) -> Iterator[Matcher]:
    """After members (a text, then a value) and the bracket ``before``, with commas between."""
    after = matcher.copy()
    if not left:
        if feed(after, before):
            yield after
    elif feed(after, left[0][0]):
        for done in in_schema_order(after, left[0][1], fuel):
            if len(left) == 1 or feed(done, ","):
                yield from _members(done, left[1:], before, fuel)


def orders(matcher: Matcher) -> list[dict[str, int]]:
    """The different orders of names that the objects have which have just been opened."""
    found: dict[tuple[bytes, ...], None] = {}
    for _, _, stack in matcher._path[-1].leaves:
        if isinstance(stack.node, ObjectNode):
            found[stack.node.names] = None
    return [{json.loads(b'"' + name + b'"'): i for i, name in enumerate(names)} for names in found]


def accepted(grammar: Any, value: Any) -> bool:
    """As it stands, or in the order that the schema gives its keys."""
    if accepted_as_is(grammar, value):
        return True
    try:
        return any(m.is_accepting() for m in in_schema_order(grammar.start(), value, [20_000]))
    except UnicodeEncodeError:
        return False  # a lone surrogate is no text


def accepted_as_is(grammar: Any, value: Any) -> bool:
    styles: tuple[dict[str, Any], ...] = ({"separators": (",", ":")}, {}, {"indent": 2})
    try:
        return any(accepts(grammar, json.dumps(value, ensure_ascii=False, **s)) for s in styles)
    except UnicodeEncodeError:
        return False


@pytest.mark.parametrize("draft", DRAFTS)
def test_official_suite(shared_dir: Path, draft: str) -> None:
    """Every test passes, or its schema is refused by name, or it is one of those stated above."""
    left: dict[tuple[str, str], set[str]] = {}
    accepted_invalid = []
    refused: Counter[str] = Counter()
    tests = 0
    for group in lines(shared_dir / "data/json-schema-test-suite" / f"{draft}.jsonl.gz"):
        schema, keyword = group["schema"], group["keyword"].removesuffix(".json")
        if isinstance(schema, dict):
            schema = {"$schema": DRAFTS[draft], **schema}
        formats = "annotate" if keyword in ANNOTATING else "assert"
        grammar = None
        try:
            grammar = compiled(schema, whitespace="flexible", formats=formats)
        except UnsatisfiableSchemaError:
            pass  # every instance is rejected
        except SchemaError as error:
            assert error.keyword, group["id"]
            refused[keyword] += 1
            continue
        for test in group["tests"]:
            tests += 1
            if not test["valid"]:
                if grammar is not None and accepted_as_is(grammar, test["data"]):
                    accepted_invalid.append((group["id"], test["description"]))
            elif grammar is None or not accepted(grammar, test["data"]):
                left.setdefault((draft, keyword), set()).add(test["description"])
    assert accepted_invalid == []
    assert left == {key: names for key, names in LEFT.items() if key[0] == draft}
    assert refused <= Counter(REFUSED[draft])
    assert tests > 700


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
    assert not refused


@pytest.mark.slow
@pytest.mark.parametrize("key_order", ["schema", "free"])
def test_real_world_schemas(shared_dir: Path, key_order: str) -> None:
    """All of them: no invalid instance accepted, no valid one rejected, few refused, none hangs.

    Valid instances with keys in another order than the schema's need ``free``.
    """
    counts: Counter[str] = Counter()
    refused = []
    for case in lines(shared_dir / "data/jsonschemabench/dev.jsonl.gz"):
        counts["schemas"] += 1
        try:
            grammar = compiled(case["schema"], whitespace="flexible", key_order=key_order)
        except UnsatisfiableSchemaError:
            assert not any(test["valid"] for test in case["tests"]), case["id"]
            counts["unsatisfiable"] += 1
            continue
        except UnsupportedSchemaError as error:
            assert all(issue.keyword and issue.reason for issue in error.issues), case["id"]
            refused.append(case["id"])
            continue
        except SchemaBudgetError as error:
            assert error.keyword, case["id"]
            refused.append(case["id"])
            continue
        for test in case["tests"]:
            counts["valid" if test["valid"] else "invalid"] += 1
            as_is = accepted_as_is(grammar, test["data"])
            if not test["valid"]:
                assert not as_is, case["id"]
            elif not as_is:
                assert key_order == "schema", case["id"]
                counts["other order"] += 1
                assert accepted(grammar, test["data"]), case["id"]
    assert counts["schemas"] == 1500
    assert counts["valid"] > 1850
    assert counts["invalid"] > 2900
    assert counts["unsatisfiable"] == 3
    assert counts["other order"] < counts["valid"] / 20
    assert len(refused) <= 1, refused
