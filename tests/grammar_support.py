"""What the grammar tests share: a small vocabulary, acceptance of texts, brute force, walks."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np

from grammar import Grammar, Matcher, Vocabulary, compile_json_schema

MERGES = [
    '{"', '"}', '":', '": ', '", "', '","', '"]', '["', "{}", "[]", "},", "],", "}}", "]]", ", ",
    "\n", "\n  ", "\n    ", "  ", "    ", '"\n', "true", "false", "null", "tr", "ue", "name", "age",
    "items", "ab", "abc", "12", "123", "00", "-1", "1.", ".5", "e1", "E+", "\\n", "\\u", "\\u00",
    "\\ud83d", "\\\\", '\\"', "é", "日", "日本", "😀",
    ' "', ': "', "a\"", 'b":', "x, y", "\t", "\r\n",
    '": "', '": [', '": {"', "}]", "]}", "0}", "e\": ",
]  # fmt: skip
PARTIAL = [b"\xe6\x97", b"\xa5", b"\xf0\x9f", b"\x98\x80", b"a\xc3", b'\xa9"']
END = "<|end|>"


def small_vocabulary() -> Vocabulary:
    """All single bytes, some merges within and across JSON tokens, split UTF-8, two specials."""
    tokens = [bytes([b]) for b in range(256)]
    tokens += [m.encode() for m in MERGES] + PARTIAL
    tokens += [b"ab", b"<think>", END.encode()]  # the first has the same bytes as another token
    size = len(tokens)
    return Vocabulary(tokens, {size - 2: "<think>", size - 1: END}, [size - 1])


VOCABULARY = small_vocabulary()


def ids_of(mask: np.ndarray) -> list[int]:
    """The token ids of a packed mask."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()


def feed(matcher: Matcher, text: str | bytes) -> bool:
    """Advance byte by byte (ids 0..255 are the bytes); False at the first illegal one."""
    for byte in text.encode() if isinstance(text, str) else text:
        if not matcher.is_allowed(byte):
            return False
        matcher.advance(byte)
    return True


def accepts(grammar: Grammar, text: str | bytes) -> bool:
    """Whether the grammar accepts exactly this text."""
    matcher = grammar.start()
    return feed(matcher, text) and matcher.is_accepting()


def compiled(schema: Any, **options: Any) -> Grammar:
    """The schema's grammar on the small vocabulary."""
    return compile_json_schema(schema, VOCABULARY, **options)


def brute_force(grammar: Grammar, path: list[int]) -> list[int]:
    """The legal tokens, each one tried alone on a fresh matcher of single bytes."""
    legal = []
    for token in range(VOCABULARY.size):
        matcher = grammar.start()
        for taken in path:
            assert feed(matcher, VOCABULARY.tokens[taken])
        if token in VOCABULARY.eos:
            ok = matcher.is_accepting()
        else:
            ok = bool(VOCABULARY.tokens[token]) and feed(matcher, VOCABULARY.tokens[token])
        if ok:
            legal.append(token)
    return legal


CLOSERS = [b'"', b"}", b"]", b"0", b"1", b"a", b":", b",", b" "]


def random_walk(
    grammar: Grammar,
    rng: random.Random,
    steps: int = 40,
    limit: int = 600,
    end_chance: float = 0.2,
) -> tuple[bytes, bool, list[int]]:
    """(text, whether it came to an end, path): random legal tokens, then ones that tend to close.

    Asserts that a place that may not end always has a legal token.
    """
    matcher = grammar.start()
    text, path = b"", []
    for step in range(limit):
        legal = ids_of(matcher.mask())
        assert legal, (text, matcher.describe())
        ended = [t for t in legal if t in VOCABULARY.eos]
        assert bool(ended) == matcher.is_accepting()
        if ended and (step >= steps or len(ended) == len(legal) or rng.random() < end_chance):
            matcher.advance(ended[0])
            return text, True, path
        if step >= steps and rng.random() < 0.9:
            closing = [t for c in CLOSERS for t in legal if VOCABULARY.tokens[t] == c]
            token = closing[0] if closing else rng.choice(legal)
        else:
            token = rng.choice([t for t in legal if t not in VOCABULARY.eos] or legal)
        matcher.advance(token)
        path.append(token)
        text += VOCABULARY.tokens[token]
    return text, False, path


def dumps(value: Any, style: str) -> str:
    """JSON text of a value in one of the white-space styles."""
    options: dict[str, Any] = {
        "fixed": {},
        "compact": {"separators": (",", ":")},
        "pretty": {"indent": 2},
    }[style]
    return json.dumps(value, ensure_ascii=False, **options)
