"""What the tests of whole turns share: vocabularies of a template's marks, walks, checks."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from grammar import GrammarCache, Matcher, Vocabulary
from grammar.turn_parts import JsonValue
from parsing import ResponseParser, ResponseTemplate, load_template_file
from parsing.inverse import inverse_of
from parsing.shapes import needed
from server.turns import TurnGrammar, turn_grammar
from tests.family_samples import FAMILIES
from tests.grammar_support import MERGES

CONFIG = Path(__file__).resolve().parent.parent / "config" / "response_templates"
TEMPLATES: dict[str, ResponseTemplate] = {
    path.stem: load_template_file(path).template for path in sorted(CONFIG.glob("*.json"))
}
CALLING = [name for name, template in TEMPLATES.items() if "tool_calls" in template.fields]


def _function(name: str, parameters: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    function = {"name": name, **more}
    if parameters is not None:
        function["parameters"] = parameters
    return {"type": "function", "function": function}


TOOLS: list[dict[str, Any]] = [
    _function(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 1, "maxLength": 12},
                "days": {"type": "integer", "minimum": 1, "maximum": 14},
                "unit": {"enum": ["celsius", "kelvin", "it's <b>"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
        strict=True,
    ),
    _function(
        "note-it",
        {
            "$defs": {"tag": {"type": "string", "pattern": "^[a-z]{1,4}$"}},
            "type": "object",
            "properties": {
                "text": {"type": ["string", "null"]},
                "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 3},
                "where": {
                    "type": "object",
                    "properties": {"line": {"type": "integer"}, "on": {"type": "boolean"}},
                    "required": ["line"],
                    "additionalProperties": False,
                },
                "score": {"type": ["number", "boolean"], "maximum": 10},
                "kind": {"enum": [1, "one", None, True]},
            },
            "required": ["text"],
            "additionalProperties": False,
        },
    ),
    _function("now", None),
]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "maxLength": 20},
        "sure": {"type": "boolean"},
        "marks": {"enum": ["</think>", "<tool_call>", "plain"]},
    },
    "required": ["answer", "sure", "marks"],
    "additionalProperties": False,
}
LIMIT = 12


@cache
def vocabulary_of(name: str, *, special: bool) -> Vocabulary:
    """Single bytes, some merges, and the template's marks: as special tokens, or as plain ones.

    With ``special`` the marks that end a turn are the ends of the vocabulary.
    """
    ends = {end for f in FAMILIES.values() if f.template == name for end in f.ends if end.strip()}
    marks: dict[str, None] = {}
    inverse = inverse_of(TEMPLATES[name])
    for region in inverse.regions.values():
        for mark in (*region.opens, *region.closes):
            marks.update(dict.fromkeys(needed(mark.pattern)))
    if name == "harmony":
        marks = dict.fromkeys(
            ("<|channel|>", "<|message|>", "<|start|>", "<|end|>", "<|constrain|>")
        )
    if name.startswith("gemma4"):
        marks['<|"|>'] = None
    if name == "functiongemma":
        marks["<escape>"] = None
    listed = [mark for mark in marks if mark not in ends and mark.strip()]
    tokens = [bytes([b]) for b in range(256)]
    tokens += [m.encode() for m in MERGES]
    names = [tool["function"]["name"] for tool in TOOLS]
    tokens += [text.encode() for text in (*names, "arguments", "parameters", "functions.")]
    specials: dict[int, str] = {}
    for mark in listed:
        if special and re.fullmatch(r"<[^<>]+>|\[[^][]+\]", mark):
            specials[len(tokens)] = mark
        tokens.append(mark.encode())
    eos = []
    for end in sorted(ends) if special and ends else ["<the end>"]:
        specials[len(tokens)] = end
        eos.append(len(tokens))
        tokens.append(b"")
    return Vocabulary(tokens, specials, eos)


_cache = GrammarCache()


def turn(name: str, *, special: bool, content: bool = False, **options: Any) -> TurnGrammar:
    """The grammar of a template's turn on its vocabulary."""
    vocabulary = vocabulary_of(name, special=special)
    value = JsonValue(SCHEMA) if content else None
    return turn_grammar(
        TEMPLATES[name], vocabulary=vocabulary, cache=_cache, content=value, **options
    )


def token_text(vocabulary: Vocabulary, token: int) -> bytes:
    """What a token looks like in the answer."""
    if token in vocabulary.special:
        return vocabulary.special[token].encode()
    return vocabulary.tokens[token]


def walk(matcher: Matcher, rng: random.Random, *, steps: int) -> str:
    """A random legal answer: whole marks are as likely as all else; after some steps the shortest
    way to the end. Asserts that it never gets stuck.
    """
    vocabulary = matcher.vocabulary
    text = b""

    def take(token: int) -> None:
        nonlocal text
        assert matcher.is_allowed(token), (text, token)
        matcher.advance(token)
        text += token_text(vocabulary, token)

    for _ in range(steps):
        bits = np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")
        legal: list[int] = np.flatnonzero(bits).tolist()
        assert legal, (text, matcher.describe())
        ends = [t for t in legal if t in vocabulary.eos]
        assert bool(ends) == matcher.is_accepting()
        others = [t for t in legal if t not in vocabulary.eos]
        if ends and (not others or rng.random() < 0.2):
            return text.decode()
        marks = [t for t in others if not vocabulary.tokens[t] or len(vocabulary.tokens[t]) > 5]
        take(rng.choice(marks if marks and rng.random() < 0.3 else others))
    rest = matcher.shortest_end()
    assert rest is not None, (text, matcher.describe())
    for token in rest:
        take(token)
    assert matcher.is_accepting()
    return text.decode()


def read(name: str, text: str, prefix: str = "", size: int = 0) -> dict[str, Any]:
    """The message that an answer is, parsed in pieces of a size (0: whole).

    Asserts that no region is malformed.
    """
    parser = ResponseParser(TEMPLATES[name], prefix=prefix, tools=TOOLS, deep_types=True)
    pieces = [text[i : i + size] for i in range(0, len(text), size)] if size else [text]
    for piece in pieces:
        parser.feed(piece)
    message, _ = parser.finalize()
    assert not parser.malformed, (text, parser.malformed)
    return message


def check_calls(message: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> int:
    """Whether all calls of a message fit the tools; returns how many there are."""
    parameters = {
        tool["function"]["name"]: tool["function"].get("parameters", {"maxProperties": 0})
        for tool in tools
    }
    calls = message.get("tool_calls", [])
    for call in calls:
        function = call["function"]
        schema = parameters[function["name"]]
        jsonschema.Draft202012Validator(schema).validate(function["arguments"])
        assert isinstance(function["arguments"], dict)
    return len(calls)


def check_content(message: Mapping[str, Any]) -> None:
    """Whether a message's content fits ``SCHEMA``."""
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(message["content"]))


def take_text(matcher: Matcher, text: str) -> str | None:
    """Advance by a text, special tokens as tokens and all else byte by byte, until its end or an
    end token; None if all of it was legal and the turn may end there, else how far it was."""
    vocabulary = matcher.vocabulary
    named = sorted(vocabulary.special.items(), key=lambda pair: len(pair[1]), reverse=True)
    at = 0
    while at < len(text):
        mark = next((pair for pair in named if text.startswith(pair[1], at)), None)
        if mark is not None and mark[0] in vocabulary.eos:
            break
        tokens = [mark[0]] if mark is not None else list(text[at].encode())
        for token in tokens:
            if not matcher.is_allowed(token):
                return text[: at + 1]
            matcher.advance(token)
        at += 1 if mark is None else len(mark[1])
    return None if matcher.is_accepting() else text[:at] + "(end)"
