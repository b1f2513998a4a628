"""Random templates: one whose inverse is given reads back what it writes, however odd it is."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from grammar import GrammarCache, GrammarError
from grammar.turn_parts import JsonValue
from parsing import ResponseParser, ResponseTemplate, ResponseTemplateError, load_template
from server.turns import turn_grammar
from tests.grammar_support import VOCABULARY
from tests.turn_support import SCHEMA, TOOLS, check_calls, walk

LITERALS = [
    "<a>", "</a>", "<b>", "<ab>", "aa", "ab", "<<", ">>", "<a", "a>", "[x]", "\n\n", "##", "#",
    "END", "ENDX", "</a></b>", "--", "->", "<c>", "</c>", "@@", ":", '"', "{", "}", "]",
]  # fmt: skip
PATTERNS = [
    r"\s*<a>", r"</a>\s*", r"<a(?: x)?>", r"<[ab]>", r"^\s*<a>", r"<a>(?=\s*\{)", r"(?:<a>|<b>)",
    r"<a>\d*", r"\s*<c>\s*", r"</c>|</d>", r"^#+", r"(?<=</a>)<b>", r"<a>[^<]*<b>", r"\n+", r"<a>$",
]  # fmt: skip
BATCH = 40


def delimiter(rng: random.Random, kind: str) -> dict[str, Any]:
    chance = rng.random()
    if chance < 0.45:
        return {kind: rng.choice(LITERALS)}
    if chance < 0.6:
        return {kind: rng.sample(LITERALS, 2)}
    return {f"{kind}_pattern": rng.choice(PATTERNS)}


def random_template(rng: random.Random) -> ResponseTemplate | None:
    fields: dict[str, Any] = {}
    if rng.random() < 0.8:
        fields["reasoning_content"] = {**delimiter(rng, "open"), **delimiter(rng, "close")}
    if rng.random() < 0.8:
        fields["tool_calls"] = {
            **delimiter(rng, "open"),
            **delimiter(rng, "close"),
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": "{content}"},
        }
    content = {} if rng.random() < 0.7 else delimiter(rng, "open")
    if rng.random() < 0.6:
        content |= delimiter(rng, "close")
    fields["content"] = {**content, "repeats": True, "join": "\n\n"}
    try:
        return load_template({"start_anchor": "@@@", "fields": fields})
    except ResponseTemplateError:
        return None


def check(template: ResponseTemplate, rng: random.Random) -> bool:
    """Whether the template has an inverse; asserts that it reads what that writes."""
    has_calls = "tool_calls" in template.fields
    mode = rng.choice(["auto", "required", "none"]) if has_calls else None
    content = JsonValue(SCHEMA) if rng.random() < 0.5 else None
    try:
        made = turn_grammar(
            template,
            vocabulary=VOCABULARY,
            cache=GrammarCache(),
            content=content,
            tools=TOOLS if has_calls else (),
            tool_choice=mode,
            reasoning_limit=10,
        )
    except GrammarError:
        return False
    if made.grammar is None:
        return False
    for _ in range(3):
        text = walk(made.grammar.start(), rng, steps=rng.choice((3, 25)))
        parser = ResponseParser(template, prefix="", tools=TOOLS, deep_types=True)
        parser.feed(text)
        message, _ = parser.finalize()
        shown = (dict(template.source), text)
        assert not parser.malformed, shown
        calls = check_calls(message, TOOLS)
        assert calls or mode != "required", shown
        assert not calls or mode != "none", shown
        if content is not None and not calls:
            jsonschema.validate(json.loads(message["content"]), SCHEMA)
    return True


@pytest.mark.parametrize("batch", range(4))
def test_random_templates_read_what_they_write(batch: int) -> None:
    inverted = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        rng = random.Random(seed)
        template = random_template(rng)
        if template is not None:
            inverted += check(template, rng)
    assert inverted >= 3
