"""Token bytes to text: whole characters, nothing of a stop string, records with their text."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from server.engine.text import TextAssembler
from server.engine.types import TextPiece, TokenRecord


def assemble(
    parts: list[bytes], stop: tuple[str, ...] = ()
) -> tuple[list[TextPiece], TextAssembler]:
    """Push the parts as tokens 0, 1, 2 … until a stop string is found; then finish."""
    assembler = TextAssembler(stop)
    pieces = []
    for number, part in enumerate(parts):
        pieces.append(assembler.push(part, TokenRecord(number, part)))
        if assembler.stop_sequence is not None:
            break
    pieces.append(assembler.finish())
    return [piece for piece in pieces if piece is not None], assembler


def texts(parts: list[bytes], stop: tuple[str, ...] = ()) -> list[str]:
    return [piece.text for piece in assemble(parts, stop)[0]]


def ids(pieces: list[TextPiece]) -> list[int]:
    return [record.id for piece in pieces for record in piece.tokens]


def test_a_character_is_held_until_it_is_whole() -> None:
    euro = "€".encode()
    assert texts([b"a", euro[:1], euro[1:2], euro[2:], b"b"]) == ["a", "€", "b"]


def test_tokens_leave_with_the_text_that_they_complete() -> None:
    euro = "€".encode()
    pieces, _ = assemble([b"a" + euro[:1], euro[1:2], euro[2:] + b"b", b"c"])
    assert [(piece.text, [t.id for t in piece.tokens]) for piece in pieces] == [
        ("a", []),
        ("€b", [0, 1, 2]),
        ("c", [3]),
    ]


def test_bytes_that_can_never_become_whole_are_replaced_at_once() -> None:
    assert texts([b"a", b"\xff", b"b"]) == ["a", "\ufffd", "b"]
    assert texts([b"\xe2\x82", b"x"]) == ["\ufffdx"]


def test_an_unfinished_character_at_the_end_is_replaced() -> None:
    pieces, _ = assemble([b"a", b"\xe2\x82"])
    assert [piece.text for piece in pieces] == ["a", "\ufffd"]
    assert ids(pieces) == [0, 1]


def test_text_that_may_begin_a_stop_string_is_held_back() -> None:
    assert texts([b"one ", b"<", b"end", b"less"], ("<end>",)) == ["one ", "<endless"]


def test_text_ends_before_the_stop_string() -> None:
    pieces, assembler = assemble([b"one ", b"two <e", b"nd> three"], ("<end>",))
    assert "".join(piece.text for piece in pieces) == "one two "
    assert assembler.stop_sequence == "<end>"
    # The token of which "two " came is part of the answer, the one with the rest is not.
    assert ids(pieces) == [0, 1]


def test_the_stop_string_that_is_complete_first_counts() -> None:
    assert texts([b"abcd"], ("bcd", "c")) == ["ab"]
    assert texts([b"a", b"b", b"c", b"d"], ("bcd", "c")) == ["a", "b"]


def test_tokens_without_text_leave_too() -> None:
    pieces, _ = assemble([b"a", b"", b"b", b""])
    assert ids(pieces) == [0, 1, 2, 3]
    assert "".join(piece.text for piece in pieces) == "ab"


def test_held_back_text_comes_out_at_the_end() -> None:
    pieces, assembler = assemble([b"x<en"], ("<end>",))
    assert [piece.text for piece in pieces] == ["x", "<en"]
    assert assembler.stop_sequence is None
    assert ids(pieces) == [0]


def reference(data: bytes, stop: tuple[str, ...]) -> str:
    """The text before the stop string that is complete first, the longest at the same place."""
    text = data.decode("utf-8", "replace")
    for end in range(len(text) + 1):
        found = [s for s in stop if text[:end].endswith(s)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@given(
    data=st.binary(max_size=24)
    | st.text(alphabet="ab€😀<\u00e9", max_size=16).map(lambda text: text.encode()),
    cuts=st.lists(st.integers(0, 24), max_size=8),
    stop=st.lists(st.text(alphabet="ab€<", min_size=1, max_size=3), max_size=3).map(tuple),
)
def test_the_text_does_not_depend_on_the_cuts(
    data: bytes, cuts: list[int], stop: tuple[str, ...]
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut <= len(data)), len(data)]
    parts = [data[a:b] for a, b in pairwise(edges)]
    pieces, assembler = assemble(parts, stop)
    assert "".join(piece.text for piece in pieces) == reference(data, stop)
    numbers = ids(pieces)
    assert numbers == list(range(len(numbers)))
    if assembler.stop_sequence is None:
        assert len(numbers) == len(parts)
