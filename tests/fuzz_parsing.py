"""A fuzz target for the response-template parser.

    python -m tests.fuzz parsing [libFuzzer's options] [corpus directory]

`test_parsing_fuzz` calls it with random bytes.

Invariant: whatever the template and the text, parsing raises `ResponseParseError` at most, at the
end; every region that opens ends, before the next one opens; chunks and spans are the text's own;
and neither the events nor the message depend on how the text was cut.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from parsing import ResponseParseError, ResponseParser, ResponseTemplate, load_template_file

_DIRECTORY = Path(__file__).resolve().parent.parent / "config" / "response_templates"

#: Text that bytes above ASCII stand for, besides the template's own marks.
_WORDS = ("é", "🙂", '{"name": "f", "arguments": {}}', '"a": 1', "[f(a='b')]", "name\n", "\u2028")


def TestOneInput(data: bytes) -> None:  # noqa: N802 - the name that fuzzers look for
    """One input: a template, the way of cutting (two numbers), whether a prompt opened it, text."""
    if len(data) < 4:
        return
    name, template, marks = _templates()[data[0] % len(_templates())]
    text = _text(data[4:], marks)
    prefix = marks[data[3] % len(marks)] if data[3] >= 128 else ""
    whole = _parse(template, [text], prefix, text)
    sizes = (data[1] % 7 + 1, data[2] % 5 + 1)
    pieces, at = [], 0
    while at < len(text):
        size = sizes[len(pieces) % 2]
        pieces.append(text[at : at + size])
        at += size
    assert _parse(template, pieces, prefix, text) == whole, f"{name}: the cuts matter"


Outcome = tuple[dict[str, Any], list[dict[str, Any]], tuple[tuple[int, int], ...], str]


def _parse(template: ResponseTemplate, pieces: list[str], prefix: str, text: str) -> Outcome:
    parser = ResponseParser(template, prefix=prefix)
    events = list(parser.initial_events)
    for piece in pieces:
        events += parser.feed(piece)
    error = ""
    try:
        message, last = parser.finalize()
    except ResponseParseError as caught:
        message, last, error = dict(caught.message or {}), list(caught.events), str(caught)
    events += last
    _check_order(events)
    for start, end in parser.spans:
        assert -len(prefix) <= start <= end <= len(text)
    return message, _joined(events), tuple(parser.spans), error


def _check_order(events: list[dict[str, Any]]) -> None:
    current: str | None = None
    for event in events:
        if event["type"] == "region_open":
            assert current is None, "regions don't nest"
            current = event["field"]
            continue
        assert event["field"] == current, "a region's events follow its opening"
        if event["type"] != "region_chunk":
            current = None
    assert current is None, "every region ends"


def _joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for event in events:
        if out and event["type"] == out[-1]["type"] == "region_chunk":
            out[-1] = {**out[-1], "text": out[-1]["text"] + event["text"]}
        else:
            out.append(event)
    return out


def _text(data: bytes, marks: tuple[str, ...]) -> str:
    """Bytes below 128 are characters; the others stand for marks and words, or parts of them."""
    parts = []
    for byte in data:
        if byte < 128:
            parts.append(chr(byte))
            continue
        word = marks[(byte - 128) % len(marks)]
        parts.append(word if byte < 240 else word[: len(word) // 2])
    return "".join(parts)


@cache
def _templates() -> tuple[tuple[str, ResponseTemplate, tuple[str, ...]], ...]:
    """The shipped templates, each with the literal text of its delimiters."""
    found = []
    for path in sorted(_DIRECTORY.glob("*.json")):
        template = load_template_file(path).template
        watches = [*template.outside.watches]
        for field in template.fields.values():
            watches += field.inside.watches
        marks: dict[str, None] = {}
        for watch in watches:
            marks |= dict.fromkeys(watch.delimiter.literals)
            marks |= dict.fromkeys(part for chain in watch.delimiter.needs for part in chain)
        found.append((path.stem, template, (*marks, *_WORDS)))
    return tuple(found)
