"""What a server does once, before its first request: make what nearly every schema asks for.

The languages of the formats and of numbers, and the walks of their states, of strings, escapes and
characters half written, are shared by all grammars on a vocabulary; without this the first request
that meets one makes it, some milliseconds each.
"""

from __future__ import annotations

import json
from typing import Any

from grammar.schema.compile import compile_json_schema
from grammar.vocabulary import Vocabulary

FORMATS = {
    "date-time": "2024-02-29T12:30:45.123+01:30",
    "date": "2024-02-29",
    "time": "12:30:45Z",
    "duration": "P1Y2M3DT4H5M6S",
    "email": "first.last@mail.example.org",
    "hostname": "mail.example.org",
    "ipv4": "192.168.0.1",
    "ipv6": "2001:db8::1",
    "uri": "https://user@example.org:80/a/b%20c?q=1#top",
    "uri-reference": "../a/b?q#top",
    "uuid": "123e4567-e89b-42d3-a456-426614174000",
    "json-pointer": "/a/b~1c",
}
SPELLINGS = '"a \\" \\u00e9 \\ud83d\\ude00 \u00e9 \u20ac \U0001f600"'
"""A string with every kind of escape, and characters of two, three and four bytes."""
NUMBERS: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "integer"}, "-120"),
    ({"type": "number"}, "-12.50e+10"),
    ({"type": "integer", "minimum": 0}, "120"),
    ({"type": "integer", "minimum": 1}, "120"),
    ({"type": "number", "minimum": 0}, "12.5"),
    ({"type": "number", "minimum": 0, "maximum": 1}, "0.25"),
    ({"type": "number", "minimum": 0, "maximum": 100}, "12.5"),
    ({"type": "boolean"}, "true"),
)


def warm_up(vocabulary: Vocabulary) -> None:
    """Prepare a vocabulary, and compile and walk what is common; takes about a second."""
    vocabulary.prepare()
    texts = {f"f{i}": (schema, text) for i, (schema, text) in enumerate(NUMBERS)}
    texts |= {
        name: ({"type": "string", "format": name}, json.dumps(text))
        for name, text in FORMATS.items()
    }
    texts["spellings"] = ({"type": "string"}, SPELLINGS)
    schema = {"type": "object", "properties": {name: s for name, (s, _) in texts.items()}}
    compact = "{" + ",".join(f'"{name}":{text}' for name, (_, text) in texts.items()) + "}"
    for whitespace in ("adaptive", "flexible"):
        _walk(compact, schema, vocabulary, whitespace)
    anything = {"type": "object", "additionalProperties": True}
    _walk('{"a": ["b", {"c": null}]}', anything, vocabulary, "adaptive")
    different = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    _walk('["a", "b"]', different, vocabulary, "adaptive")
    assert len(vocabulary.short_first)


def _walk(text: str, schema: dict[str, Any], vocabulary: Vocabulary, whitespace: str) -> None:
    """Fill the mask at every byte of a text."""
    grammar = compile_json_schema(schema, vocabulary, whitespace=whitespace)
    machine, lock = grammar.machine, vocabulary.workspace.lock
    state = machine.start
    for byte in text.encode():
        with lock:
            machine.fill_mask(state)
            after = machine.step(state, byte)
        assert after is not None, text
        state = after
