"""Parts that are settled before their region ends are the beginning of the region's value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsing.content import load_content, parse_content
from parsing.jsonlike import ContentError
from parsing.settled import Ended, Named, Pair, Part, PartReader

XML = load_content(
    "xml-inline",
    {"tag_pattern": r"<p=(?P<key>[^>\n]+)>\n?(?P<value>.*?)\n?</p>"},
)
TYPED = load_content(
    "xml-inline",
    {
        "tag_pattern": "<(?P<key>[a-z]+)>(?P<value>.*?)</(?:[a-z]+)>",
        "value_parser": {"name": "json", "args": {"allow_non_json": True}},
    },
)
LINES = load_content("kv-lines", {"line_sep": ";;", "kv_sep": "="})
CALLS = load_content("python-call-list", {})

TEXTS = {
    "xml": (XML, "\n<p=a>\n1\n</p><p=b></p>\n<p=c d>x\n\n</p> "),
    "typed": (TYPED, "<a>1</a><b>[1, 2]</b> <c>so</c>"),
    "lines": (LINES, "a=1;;b = two ; ;;;;c;;d==;;"),
    "calls": (CALLS, ' [f(), g.h( a = \'x, (y)\', b=[1, {"k": \'v)\'}] ),k(c="\\"]", d=None)] '),
}
ALPHABET = {
    "xml": "<p=a>\n</p>b ",
    "typed": '<a></a>1[]"',
    "lines": "a=;; b",
    "calls": "[]()f,=1'\"\\ a",
}


def settled(content: Any, pieces: list[str]) -> list[Part]:
    reader = PartReader(content)
    return [part for piece in pieces for part in reader.feed(piece)]


def cut(text: str, places: list[int]) -> list[str]:
    at = sorted(min(place, len(text)) for place in places)
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


def as_value(kind: str, parts: list[Part]) -> Any:
    """What the parts say, in the shape of the content's value."""
    if kind != "calls":
        return {part.key: part.value for part in parts if isinstance(part, Pair)}
    calls: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Named():
                calls.append({"name": part.name, "arguments": {}})
            case Pair():
                calls[-1]["arguments"][part.key] = part.value
    return calls


CUTS = st.lists(st.integers(0, 100), max_size=10)


@pytest.mark.parametrize("kind", TEXTS)
def test_every_part_is_settled_in_time(kind: str) -> None:
    """All of them are, but for a last line, before the region ends."""
    content, text = TEXTS[kind]
    assert as_value(kind, settled(content, [text])) == parse_content(content, text)


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
def test_parts_do_not_depend_on_the_cuts_and_are_in_the_value(kind: str, data: Any) -> None:
    content, text = TEXTS[kind]
    spoilt = data.draw(st.booleans())
    if spoilt:
        text = data.draw(st.text(ALPHABET[kind], max_size=30))
    places = data.draw(CUTS)
    parts = settled(content, cut(text, places))
    assert parts == settled(content, [text])
    assert parts == settled(content, list(text))
    try:
        value = parse_content(content, text)
    except ContentError:
        return
    so_far = as_value(kind, parts)
    if kind == "calls":
        assert value[: len(so_far)] == so_far
        assert sum(isinstance(part, Ended) for part in parts) == len(value)
    else:
        assert so_far.items() <= value.items() or len(so_far) < len(parts)


def test_a_part_is_settled_as_soon_as_it_can_be() -> None:
    reader = PartReader(XML)
    assert reader.feed("<p=a>1</p") == []
    assert reader.feed(">") == [Pair("a", "1")]
    calls = PartReader(CALLS)
    assert calls.feed("[f(") == [Named("f")]
    assert calls.feed("a=1") == []
    assert calls.feed(",") == [Pair("a", 1)]
    assert calls.feed("b=2)") == [Pair("b", 2), Ended()]


@pytest.mark.parametrize("text", ["x[f()]", "[f(1)]", "[f(a=1 b=2), g()]", "[1f()]", "[f(a=1,)]"])
def test_nothing_comes_behind_a_fault(text: str) -> None:
    parts = settled(CALLS, [text])
    assert not any(isinstance(part, Named) and part.name == "g" for part in parts)
    assert settled(CALLS, list(text)) == parts


def test_merged_pairs_and_other_contents_are_settled_by_the_end_alone() -> None:
    merged = load_content("xml-inline", {**XML.args, "merge_duplicates": True})
    assert settled(merged, ["<p=a>1</p><p=a>2</p>"]) == []
    assert settled(load_content("json", {}), ['{"a": 1}']) == []
