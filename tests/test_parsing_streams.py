"""The streaming promises, tested over random templates, texts and cuts.

Invariants: what comes out never depends on how the text was cut; it is what a parser that waits for
the whole text would say; nothing but the documented errors is ever raised; the work is linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import regex
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import parsing.delimiters
from parsing import (
    ResponseParseError,
    ResponseParser,
    ResponseTemplate,
    ResponseTemplateError,
    load_template,
    load_template_file,
    parse_response,
)
from parsing.machine import Machine
from parsing.syntax import NotUnderstood

TEMPLATES = Path(__file__).resolve().parent.parent / "config" / "response_templates"
SHIPPED = {path.stem: load_template_file(path).template for path in TEMPLATES.glob("*.json")}
QUICK = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))

Outcome = tuple[dict[str, Any] | None, list[dict[str, Any]], str | None]


def joined(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events with neighbouring chunks of a region joined: where they are cut is up to the feeds."""
    out: list[dict[str, Any]] = []
    for event in events:
        if event["type"] == "region_chunk" and out and out[-1]["type"] == "region_chunk":
            out[-1] = {**out[-1], "text": out[-1]["text"] + event["text"]}
        else:
            out.append(event)
    return out


def stream(template: ResponseTemplate, chunks: list[str], prefix: str = "") -> Outcome:
    parser = ResponseParser(template, prefix=prefix)
    events = list(parser.initial_events)
    for chunk in chunks:
        events += parser.feed(chunk)
    try:
        message, last = parser.finalize()
    except ResponseParseError as error:
        return dict(error.message or {}), joined(events + list(error.events)), str(error)
    return message, joined(events + last), None


def cut(text: str, sizes: list[int]) -> Iterator[str]:
    at = 0
    for size in sizes:
        yield text[at : at + size]
        at += size
    yield text[at:]


# --- random templates ------------------------------------------------------------------------

ATOMS = st.sampled_from(
    ["a", "b", "<", "x", ".", "[ab]", "[^a]", r"\w", r"\s", r"\S", "\\n", "ab<"]
)
TESTS = st.sampled_from([r"\b", r"\B", "^", "$", r"\Z", r"\A", "(?<=a)", "(?<!b)", r"(?<=\sa|x)"])


def _compose(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,2}", "{2,}"])
    modes = st.sampled_from(["", "", "?", "+"])
    return st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
        st.tuples(inner, quantifiers, modes).map(lambda p: f"(?:{p[0]}){p[1]}{p[2]}"),
        st.tuples(ATOMS.filter(lambda a: a != "ab<"), quantifiers, modes).map("".join),
        inner.map(lambda part: f"(?={part})"),
        inner.map(lambda part: f"(?!{part})"),
        inner.map(lambda part: f"(?>{part})"),
        inner.map(lambda part: f"({part})"),
    )


PATTERNS = st.recursive(st.one_of(ATOMS, ATOMS, TESTS), _compose, max_leaves=6)
LITERALS = st.lists(st.text("ab<>", min_size=1, max_size=4), min_size=1, max_size=3)


@st.composite
def delimiters(draw: st.DrawFn, key: str) -> dict[str, Any]:
    if draw(st.booleans()):
        return {key: draw(LITERALS)}
    return {f"{key}_pattern": draw(PATTERNS)}


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in draw(st.sampled_from([("p",), ("p", "q")])):
        fields[name] = {**draw(delimiters("open")), "repeats": True}
        if draw(st.integers(0, 5)):
            fields[name] |= draw(delimiters("close"))
    if draw(st.booleans()):
        fields["rest"] = {"repeats": True, "content_args": {"strip": False}}
        if draw(st.booleans()):
            fields["rest"] |= draw(delimiters("close"))
    return {"start_anchor": "@", "fields": fields}


TEXTS = st.text("ab<>x \n", max_size=24)
SIZES = st.lists(st.integers(0, 5), max_size=12)


def waiting_for_the_whole(description: dict[str, Any]) -> ResponseTemplate:
    """The same template, decided only when the text is complete, by the patterns as written."""
    fields = {name: dict(field) for name, field in description["fields"].items()}
    for field in fields.values():
        for key in ("open", "close"):
            if key in field:
                longest_first = sorted(field.pop(key), key=len, reverse=True)
                field[f"{key}_pattern"] = "|".join(map(re.escape, longest_first))
    refuse = mock.Mock(side_effect=NotUnderstood)
    with mock.patch.object(parsing.delimiters, "parse", refuse):
        return load_template({**description, "fields": fields})


@QUICK
@given(descriptions(), TEXTS, SIZES)
@example({"start_anchor": "@", "fields": {"p": {"open_pattern": "<(?!ab)"}}}, "<ab", [1, 1])
@example({"start_anchor": "@", "fields": {"p": {"open_pattern": r"a\b.*?b"}}}, "a  b", [1])
@example(
    {"start_anchor": "@", "fields": {"p": {"open": ["<ba>", "b"], "close": ["x"]}}}, "<ba>x", [2]
)
@example(
    {"start_anchor": "@", "fields": {"p": {"open_pattern": r"\s*<", "close": ["b"]}}}, "a   <b", [2]
)
def test_streamed_is_whole(description: dict[str, Any], text: str, sizes: list[int]) -> None:
    template = load_template(description)
    wanted = stream(waiting_for_the_whole(description), [text])
    assert stream(template, [text]) == wanted
    assert stream(template, list(text)) == wanted
    assert stream(template, list(cut(text, sizes))) == wanted


@QUICK
@given(descriptions(), TEXTS, TEXTS, st.integers(0, 8))
def test_a_prefix_is_a_cut_like_any_other(
    description: dict[str, Any], before: str, text: str, size: int
) -> None:
    template = load_template(description)
    message, events, error = stream(template, list(cut(text, [size])), prefix="@" + before)
    wanted = stream(template, [before + text])
    assert (message, error) == (wanted[0], wanted[2])
    assert events == wanted[1]


# --- shipped templates -----------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *(
            "<think>",
            "</think>",
            "<tool_call>",
            "</tool_call>",
            "<|im_end|>",
            "<|eot_id|>",
            "\n",
            " ",
        ),
        *(
            "<|channel|>",
            "<|message|>",
            "<|end|>",
            "final",
            "analysis",
            "commentary to=functions.f ",
        ),
        *(
            "[TOOL_CALLS]",
            "[ARGS]",
            "[THINK]",
            "</s>",
            "<function=f>",
            "<parameter=a>",
            "</function>",
        ),
        *(
            '{"name": "f", ',
            '"parameters": {}}',
            '"arguments": {"a": [1]}}',
            "[]",
            "NaN",
            "text",
            "<",
        ),
    ]
)
ANSWERS = st.one_of(st.lists(PIECES, max_size=14).map("".join), st.text(max_size=40))


def whole_message(text: str, template: ResponseTemplate) -> dict[str, Any] | None:
    """What parse_response says, or what it could make of the text in spite of its error."""
    try:
        return parse_response(text, template, prefix="")
    except ResponseParseError as error:
        return None if error.message is None else dict(error.message)


@QUICK
@given(st.sampled_from(sorted(SHIPPED)), ANSWERS, SIZES)
def test_any_text_with_any_shipped_template(name: str, text: str, sizes: list[int]) -> None:
    """The invariant: no exception but the documented ones, whatever a model writes."""
    template = SHIPPED[name]
    wanted = stream(template, [text])
    assert stream(template, list(cut(text, sizes))) == wanted
    assert whole_message(text, template) == wanted[0]


@QUICK
@given(descriptions(), TEXTS)
def test_regions_are_well_formed(description: dict[str, Any], text: str) -> None:
    _, events, _ = stream(load_template(description), list(text))
    current = None
    for event in events:
        if event["type"] == "region_open":
            assert current is None
            current = event["field"]
        else:
            assert event["field"] == current
            if event["type"] in ("region_close", "region_malformed"):
                current = None
    assert current is None


@QUICK
@given(
    st.recursive(
        st.none() | st.booleans() | st.text("ab<(", max_size=4),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "fields",
                        "start_anchor",
                        "open",
                        "open_pattern",
                        "close",
                        "content",
                        "content_args",
                        "repeats",
                        "join",
                        "transform",
                        "transform_each",
                        "defaults",
                        "a",
                    ]
                ),
                inner,
                max_size=3,
            )
        ),
    )
)
def test_any_description_loads_or_is_refused(description: Any) -> None:
    for wrapped in (description, {"start_anchor": "@", "fields": {"a": description}}):
        if isinstance(wrapped, str):
            continue
        try:
            template = load_template(wrapped)
        except ResponseTemplateError:
            continue
        stream(template, ["ab<(a"])


# --- cost ------------------------------------------------------------------------------------

PROSE = "The quick brown fox jumps over the lazy dog; 1 < 2 and 3 > 2.\n"
CALL = '\n<tool_call>\n{"name": "f", "arguments": {"a": "<b>"}}\n</tool_call>'
LOOK_AHEAD = {
    "start_anchor": "@",
    "fields": {
        "r": {"open_pattern": r"(?=[\s\S]*?</think>)", "close": "</think>"},
        "c": {"close": "<e>"},
    },
}
LAZY = {"start_anchor": "@", "fields": {"x": {"open_pattern": "<h.*?>", "close": "</h>"}, "c": {}}}
COSTS: dict[str, tuple[Any, str]] = {
    **{f"{name}, prose": (template, PROSE) for name, template in SHIPPED.items()},
    "many calls": (SHIPPED["qwen3"], CALL),
    "only spaces": (SHIPPED["qwen3"], " "),
    "only openings": (SHIPPED["qwen3"], "<"),
    "runs of spaces": (SHIPPED["qwen3"], " " * 500 + "x"),
    "held to the end": (load_template(LOOK_AHEAD), PROSE),
    "lazy and never closed": (load_template(LAZY), "<h"),
}


def work(template: ResponseTemplate, text: str, size: int) -> int:
    """Characters that the searches of one parse went over, and searches made."""
    machine = Machine(template)
    for at in range(0, len(text), size):
        machine.feed(text[at : at + size])
    machine.finish(lambda region: None)
    return machine.characters_searched + machine.searches


@pytest.mark.parametrize("size", [4, 10**9], ids=["in pieces", "at once"])
@pytest.mark.parametrize("name", sorted(COSTS))
def test_work_is_linear(name: str, size: int) -> None:
    template, unit = COSTS[name]
    for length in (4_000, 16_000):
        text = (unit * (length // len(unit) + 1))[:length]
        # A search that starts over at every piece would cost some length / 8 for each character.
        assert work(template, text, size) <= 25 * length


def test_long_answers_are_parsed_at_once() -> None:
    """A very generous bound on time for what took hours where searches were quadratic or cubic."""
    import time

    started = time.thread_time()
    for name in ("held to the end", "lazy and never closed", "runs of spaces", "qwen3, prose"):
        template, unit = COSTS[name]
        text = (unit * (100_000 // len(unit) + 1))[:100_000]
        parser = ResponseParser(template, prefix="")
        for at in range(0, len(text), 4):
            parser.feed(text[at : at + 4])
        parser.finalize()
    assert time.thread_time() - started < 20


# --- holding back ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("delimiter", "text", "released"),
    [
        ({"open": "<think>"}, "a<thi", "a"),
        ({"open": "<think>"}, "a<tho", "a<tho"),
        ({"open": "<think>"}, "<<<", "<<"),
        ({"open": ["END", "ENDXY"]}, "aENDX", "a"),
        ({"open_pattern": r"\s*<t>"}, "a \n ", "a"),
        ({"open_pattern": r"\s*<t>"}, "a \n b", "a \n b"),
        ({"open_pattern": r"<a\b[^>]*>"}, "x<a ", "x"),
        ({"open_pattern": r"<a\b[^>]*>"}, "x<ab", "x<ab"),
        ({"open_pattern": "END(?!bc)"}, "xENDb", "x"),
        ({"open_pattern": "END(?!bc)"}, "xENDbc", "xENDbc"),
        ({"open_pattern": "<e>|$"}, "x<e", "x"),
        ({"open_pattern": r"(a)b\1"}, "xyz", ""),  # not modelled: everything waits for the end
    ],
)
def test_held_exactly_as_long_as_needed(
    delimiter: dict[str, Any], text: str, released: str
) -> None:
    template = load_template({"start_anchor": "@", "fields": {"x": delimiter, "c": {}}})
    for chunks in ([text], list(text)):
        parser = ResponseParser(template, prefix="")
        events = [event for chunk in chunks for event in parser.feed(chunk)]
        shown = "".join(
            e["text"] for e in events if e["type"] == "region_chunk" and e["field"] == "c"
        )
        assert shown == released


def test_the_text_at_hand_stays_small() -> None:
    machine = Machine(SHIPPED["qwen3"])
    for _ in range(2_000):
        machine.feed(PROSE)
    assert len(machine._text) < 10_000


@pytest.mark.parametrize(
    ("pattern", "before", "text", "opened"),
    [
        ("(?<=ab)<", "ab", "<", True),
        ("(?<=cab)<", "ab", "<", False),
        ("(?<!ab)<", "ab", "<", False),
        ("(?<=^ab)<", "ab", "<", False),
        (r"\B<", " ", "<", True),
        ("^<", "x", "<", False),
        (r"\s*<", "   ", "<", True),
    ],
)
def test_dropped_text_is_not_missed(pattern: str, before: str, text: str, opened: bool) -> None:
    """Text that is dealt with goes, but for what a delimiter may still look back at."""
    template = load_template({"start_anchor": "@", "fields": {"x": {"open_pattern": pattern}}})
    for length in range(1010, 1040):  # some of these are long enough to be dropped
        _, events, _ = stream(template, ["x" * length + before, text])
        assert bool(events) is opened


def test_an_endless_search_ends_in_an_error() -> None:
    """A pattern that backtracks without end is stopped; the error names the field."""
    fields = {"x": {"open_pattern": "(?:a|a)*(?:a|aa)*c"}, "c": {}}
    parser = ResponseParser({"start_anchor": "@", "fields": fields}, prefix="")
    with (
        mock.patch.object(parsing.delimiters, "_PATIENCE_SECONDS", 0.05),
        pytest.raises(ResponseParseError, match="open_pattern"),
    ):
        parser.feed("a" * 5000 + "bc")


def test_empty_matches_at_one_place_end() -> None:
    description = {
        "start_anchor": "@",
        "fields": {
            "x": {"open_pattern": "(?=x)", "close_pattern": "(?=x)", "repeats": True},
            "c": {},
        },
    }
    message, _, _ = stream(load_template(description), ["axb"])
    assert message == {"c": "xb", "x": [""]}
    assert regex.compile("(?=x)").search("axb") is not None


def test_the_reader_refuses_what_it_does_not_know() -> None:
    from parsing.syntax import parse

    for pattern in (
        r"(a)\1",
        r"(?R)",
        r"(?:a){e<=1}",
        r"\X",
        r"(?|a|b)",
        r"\K",
        r"(?m)^a",
        "(?(1)a|b)",
    ):
        with pytest.raises(NotUnderstood):
            parse(pattern)
    reading: Callable[[str], Any] = parse
    for pattern in (
        r"(?i)<go>",
        r"a{,2}b{3}?",
        r"[]a]",
        r"[[:alpha:]x]",
        r"\p{Lu}",
        "a{b",
        "(?#x)a",
    ):
        reading(pattern)
