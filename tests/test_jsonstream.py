"""JSON as it is written: the events say what a JSON reader says, however the text was cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.jsonstream import MAX_DEPTH, Begun, Done, JsonScanner, ScanEvent
from server.pointers import pointer_of

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # No lone surrogates: they are no characters.
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text("ab/~é", max_size=2), inner, max_size=4)
    ),
    max_leaves=12,
)
WRITTEN = st.builds(
    lambda value, ascii_only, indent: json.dumps(value, ensure_ascii=ascii_only, indent=indent),
    VALUES,
    st.booleans(),
    st.sampled_from([None, 0, 2]),
)


def scan(pieces: list[str]) -> tuple[JsonScanner, list[ScanEvent]]:
    scanner = JsonScanner()
    events = [event for piece in pieces for event in scanner.feed(piece)]
    return scanner, events + scanner.finish()


def cut(text: str, places: list[int]) -> list[str]:
    at = sorted(min(place, len(text)) for place in places)
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


CUTS = st.lists(st.integers(0, 200), max_size=8)


def everything(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[Any, Any]]:
    """All values with their paths, each behind its parts."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        for key, item in value.items():
            found += everything(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += everything(item, (*path, index))
    return [*found, (path, value)]


@given(WRITTEN, CUTS)
def test_every_value_is_told_when_it_is_complete(text: str, places: list[int]) -> None:
    scanner, events = scan(cut(text, places))
    assert not scanner.failed
    assert scanner.complete
    done = [event for event in events if isinstance(event, Done)]
    assert [(event.path, event.value) for event in done] == everything(json.loads(text))
    for event in done:
        assert json.loads(text[event.start : event.end]) == event.value
    begun = {event.path: event for event in events if isinstance(event, Begun)}
    assert {event.path: event.start for event in done} == {p: e.start for p, e in begun.items()}
    assert all(text[event.start] == event.first for event in begun.values())


@given(WRITTEN, st.integers(0, 60), st.sampled_from(list('{}[]",:x1\\ \n')), CUTS)
def test_what_is_no_json_fails_at_the_same_place_however_it_is_cut(
    text: str, at: int, wrong: str, places: list[int]
) -> None:
    spoilt = text[:at] + wrong + text[at:]
    whole, whole_events = scan([spoilt])
    parts, parts_events = scan(cut(spoilt, places))
    assert (whole.failed, whole.offset, whole_events) == (parts.failed, parts.offset, parts_events)
    try:
        value = json.loads(spoilt)
    except ValueError:
        assert whole.failed or not whole.complete
    else:
        assert whole.complete
        last = whole_events[-1]
        assert isinstance(last, Done)
        try:
            json.dumps(value, allow_nan=False)
        except ValueError:  # a digit more of an exponent, and no double holds it
            assert not last.known
        else:
            assert last == Done((), value, *whole_span(whole_events))


def whole_span(events: list[ScanEvent]) -> tuple[int, int]:
    last = events[-1]
    assert isinstance(last, Done)
    return last.start, last.end


@given(WRITTEN, st.integers(0, 200))
def test_the_rest_makes_a_beginning_whole(text: str, at: int) -> None:
    scanner = JsonScanner()
    scanner.feed(text[:at])
    rest = scanner.rest(json.loads(text))
    if rest is not None:
        assert json.loads(text[: scanner.offset] + rest) == json.loads(text)


@pytest.mark.parametrize(
    ("begun", "value", "rest"),
    [
        ("", [1], "[1]"),
        ("[", [], "]"),
        ("[1,", [1, 2], "2]"),
        ("[1,", [1], None),
        ('{"a": [1', {"a": [1, 2]}, None),
        ('{"a": [1 ', {"a": [1, 2], "b": 3}, ', 2], "b": 3}'),
        ('{"a"', {"a": 1}, ": 1}"),
        ('{"a": ', {"a": "é", "b": None}, '"é", "b": null}'),
        ('{"a": {"b": 1}, ', {"a": {"b": 1}, "c": 2}, '"c": 2}'),
        ('{"a": 1, ', {"a": 1}, None),
        ('{"a": "x', {"a": "xy"}, None),
        ("[1]", [1], None),
        ('{"a": ', {"b": 1}, None),
    ],
)
def test_rests(begun: str, value: Any, rest: str | None) -> None:
    scanner = JsonScanner()
    scanner.feed(begun)
    assert scanner.rest(value) == rest


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("[1,]", 3),
        ('{"a",', 4),
        ("[01]", 3),
        ("tru e", 3),
        ("NaN", 0),
        ("'a'", 0),
        ('"a\nb"', 2),
        ('"\\ud83d"', 7),
        ("{}}", 2),
        ("]", 0),
        ("[}", 1),
        ("{a:1}", 1),
    ],
)
def test_where_a_text_stops_being_json(text: str, offset: int) -> None:
    scanner, _ = scan([text])
    assert scanner.failed
    assert scanner.offset == offset


def test_white_space_may_follow_and_nothing_else() -> None:
    scanner, events = scan([" 1 ", "\n"])
    assert (scanner.failed, scanner.complete) == (False, True)
    assert events == [Begun((), 1, "1"), Done((), 1, 1, 2)]


def test_numbers_that_no_float_holds_are_left_out_and_harm_nothing() -> None:
    scanner, events = scan(['{"a": [1e999, 2], "b": ', "1" * 5000, ', "c": 3}'])
    assert not scanner.failed
    assert scanner.complete
    done = [event for event in events if isinstance(event, Done)]
    assert [(event.path, event.value) for event in done if event.known] == [
        (("a", 1), 2),
        (("c",), 3),
    ]
    unknown = [event.path for event in done if not event.known]
    assert unknown == [("a", 0), ("a",), ("b",), ()]


def test_nesting_has_an_end() -> None:
    scanner, _ = scan(["[" * MAX_DEPTH, "]" * MAX_DEPTH])
    assert scanner.complete
    assert scan(["[" * (MAX_DEPTH + 1)])[0].failed


def test_pointers() -> None:
    assert pointer_of(()) == ""
    assert pointer_of(("a/b", 0, "~", "")) == "/a~1b/0/~0/"
