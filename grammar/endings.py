"""How a terminal can be completed from one of its states: short texts, one for each label.

A terminal's own distance to its end. Where the kind of terminal is known the text follows from what
the state means: words from their trie, numbers and patterns character by character along the
shortest word of what remains, free strings as a number of characters that may be anything
(``Fill``), so that ``minLength: 100000`` costs no more than ``minLength: 1``. Other terminals are
searched breadth first within a bound.

Invariant: a text that is given leads from the state to an accepting one with that outcome. It is a
shortest one in characters; in bytes it may be longer where a longer word has cheaper characters.
No text is given where none was found within the bounds. Read next: ``distance.py``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from grammar.any_order import FreeWords
from grammar.automaton import DEAD, NOT_ACCEPTING, TOKENS, Automaton, Outcome, RegularAscii
from grammar.characters import Characters
from grammar.content import Content, Excluding, Language, Without
from grammar.keys import KeyStrings
from grammar.marks import FIRST, MarkedText, TimedText
from grammar.regular import Rx
from grammar.rx import RegexBudgetError
from grammar.strings import JsonStrings
from grammar.text import OneOf, OneToken, PlainText
from grammar.words import Words, WordTrie

MAX_LABELS = 8
"""So many words of a terminal are looked at; the shortest and the last ones."""
MAX_SPELLED = 4096
"""Longer texts are not spelled out, except as ``Fill``."""
MAX_SEARCHED = 2000
MAX_ENDINGS = 20_000
_OPEN_ENDED = "open-ended"
_LIKED = b"a0 -"  # what is written where much may be
_SHORT = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 0x22: b'\\"', 0x5C: b"\\\\"}


Marks: TypeAlias = "Mapping[int, int]"
"""Characters that stand for tokens (``marks.py``)."""
_NO_MARKS: Marks = MappingProxyType({})


class Fill(NamedTuple):
    """So many characters that may be any."""

    size: int


Piece: TypeAlias = "bytes | Fill | int"
"""A part of a text: bytes, free characters, or one token as a whole by its id."""


class Ending(NamedTuple):
    """A way to complete a terminal: ``size`` is its length in bytes, a whole token counting 1."""

    size: int
    pieces: tuple[Piece, ...]
    outcome: Outcome


def word_ending(automaton: Automaton, state: int, labels: Iterable[int]) -> Ending | None:
    """The way to complete a terminal of words by the first of some labels that fits, if any."""
    if isinstance(automaton, Words):
        part, position, low, high = automaton.key(state)
        barred = 0
    elif isinstance(automaton, FreeWords):
        part, position, barred = automaton.key(state)
        low, high = 0, len(automaton.trie.words)
    else:
        return None
    if part >= 2:
        return None
    trie, node = automaton.trie, position if part == 1 else 0
    below = trie.below[node]
    for label in labels:
        at = bisect_left(below, label)
        found = at < len(below) and below[at] == label
        if found and low <= label <= high and not barred >> at & 1:
            opening = automaton.opening[position:] if part == 0 else b""
            return _word(automaton, opening, node, label)
    return None


def endings(automaton: Automaton, state: int) -> tuple[Ending, ...]:
    """Ways to complete a terminal, the shortest first; none where none was found. Memoised."""
    found: tuple[Ending, ...] | None = automaton.endings.get(state)
    if found is None:
        if len(automaton.endings) >= MAX_ENDINGS:
            automaton.endings.clear()
        try:
            made = list(_endings(automaton, state))
        except RegexBudgetError:
            made = []
        made.sort(key=lambda ending: ending.size)
        found = automaton.endings[state] = tuple(made)
    return found


def _endings(automaton: Automaton, state: int) -> Iterable[Ending]:
    own = automaton.completion(state)
    if own is not None:
        return (_ending((own,), 0),)
    key = automaton.key(state)
    kind = type(automaton)
    if isinstance(automaton, Words | FreeWords):
        return _words(automaton, key)
    if kind is RegularAscii:
        pieces = _along(key, key.min_length(), json=False)
        return () if pieces is None else (_ending(pieces, 0),)
    if kind is KeyStrings:
        return _key(automaton, state)  # type: ignore[arg-type]  # the kind was looked at
    if kind in (JsonStrings, PlainText, MarkedText, TimedText):
        pieces = _characters(automaton, state, key)  # type: ignore[arg-type]
        return () if pieces is None else (_ending(pieces, 0),)
    if isinstance(automaton, OneOf):
        low, high, position = key
        word = min(automaton.words[low:high], key=len)
        return (Ending(len(word) - position, (word[position:],), 0),)
    if isinstance(automaton, OneToken):
        if automaton.labels[state] != NOT_ACCEPTING:
            return (Ending(0, (), 0),)
        return (Ending(1, (min(automaton.tokens(state)),), 0),)
    return _search(automaton, state)


def _ending(pieces: Iterable[Piece], outcome: Outcome) -> Ending:
    whole = tuple(piece for piece in pieces if piece != b"" and piece != Fill(0))
    return Ending(sum(map(_size, whole)), whole, outcome)


def _size(piece: Piece) -> int:
    if isinstance(piece, bytes):
        return len(piece)
    return piece.size if isinstance(piece, Fill) else 1


# -- words -----------------------------------------------------------------------------------------


def _words(automaton: Words | FreeWords, key: tuple[int, ...]) -> Iterable[Ending]:
    part, position = key[:2]
    closing = automaton.closing
    if part >= 2:
        rest = closing[position:]
        return (Ending(len(rest), (rest,) if rest else (), part - 2),)
    trie = automaton.trie
    node = position if part == 1 else 0
    below = trie.below[node]
    if isinstance(automaton, Words):
        chosen = below[bisect_left(below, key[2]) : bisect_left(below, key[3] + 1)]
    else:
        chosen = [word for at, word in enumerate(below) if not key[2] >> at & 1]
    opening = automaton.opening[position:] if part == 0 else b""
    if len(chosen) > MAX_LABELS:
        last = chosen[-2:]
        chosen = sorted(chosen, key=lambda j: len(trie.words[j]))[: MAX_LABELS - 2]
        chosen += [j for j in last if j not in chosen]
    return [_word(automaton, opening, node, j) for j in chosen]


def _word(automaton: Words | FreeWords, opening: bytes, node: int, index: int) -> Ending:
    """The rest of a word below a node, with what stands around it."""
    word = automaton.trie.words[index]
    depth = 0 if node == 0 else _depth(automaton.trie, node, word)
    text = opening + word[depth:] + automaton.closing
    return Ending(len(text), (text,) if text else (), index)


def _depth(trie: WordTrie, node: int, word: bytes) -> int:
    """How many bytes lead to a node above a word's end."""
    at = 0
    for depth, byte in enumerate(word):
        if at == node:
            return depth
        at = trie.children[at][byte]
    return len(word)


# -- characters ------------------------------------------------------------------------------------


def _key(automaton: KeyStrings, state: int) -> Iterable[Ending]:
    """An undeclared key is spelled out, since its text is its outcome."""
    flavour, inner, _ = automaton.key(state)
    pieces = None if flavour == _OPEN_ENDED else _characters(automaton, state, inner)
    if pieces is None or any(isinstance(p, Fill) and p.size > MAX_SPELLED for p in pieces):
        return ()
    text = b"".join(
        piece if isinstance(piece, bytes) else b"a" * piece.size
        for piece in pieces
        if not isinstance(piece, int)
    )
    after = state
    for byte in text:
        after = automaton.step(after, byte)
    assert after != DEAD
    outcome = automaton.outcome(automaton.labels[after])
    return (Ending(len(text), (text,) if text else (), outcome),)


def _characters(automaton: Characters, state: int, key: Any) -> list[Piece] | None:
    """What completes a string or a plain text; ``key`` is that of ``strings.py`` or ``text.py``."""
    json = isinstance(automaton, JsonStrings)
    opening, closing = automaton.around() if isinstance(automaton, JsonStrings) else (b"", b"")
    if key[0] == "close":
        return [closing[key[1] :]]
    marks = automaton.marks if isinstance(automaton, MarkedText) else {}
    if key[0] == "open":
        body = _body(key[2], json=json)
        return None if body is None else [opening[key[1] :], *body, closing]
    begun = bytearray()
    while key[0] != "body":  # within a character: any way to end it will do
        byte = automaton.live(state)[0]
        begun.append(byte)
        state = automaton.step(state, byte)
        key = automaton.key(state)
        key = key[1] if isinstance(automaton, KeyStrings) else key
    body = _body(key[1], json=json, marks=marks)
    return None if body is None else [bytes(begun), *body, closing]


def _body(content: Content, *, json: bool, marks: Marks = _NO_MARKS) -> list[Piece] | None:
    """A shortest text that fits a content."""
    language, least, most = content
    if language is None:
        return [Fill(least)]
    if isinstance(language, Excluding | Without):
        return _along(language, language.min_length(), json=json, marks=marks)
    assert isinstance(language, Rx)
    length = language.min_length()
    if length < least:
        found = _first_length(language, least, most)
        if found is None:
            return None
        length = found
    if length > MAX_SPELLED:
        return None
    return _along(language, length, json=json, marks=marks)


def _first_length(language: Rx, least: int, most: int | None) -> int | None:
    """The least length of at least ``least`` that some word of the language has."""
    possible = language.builder.length_window_nonempty
    limit = MAX_SPELLED if most is None else min(most, MAX_SPELLED)
    if least > limit or not possible(language, least, limit):
        return None
    low, high = least, limit
    while low < high:
        middle = (low + high) // 2
        if possible(language, least, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _along(
    language: Language, length: int, *, json: bool, marks: Marks = _NO_MARKS
) -> list[Piece] | None:
    """A word of that length, which the language must have; None where it is too long to spell."""
    if length > MAX_SPELLED:
        return None
    pieces: list[Piece] = []
    text = bytearray()
    for left in range(length - 1, -1, -1):
        best: tuple[int, bytes | int, Language] | None = None
        for low, high, target in language.transitions():
            written = _written(low, high, json=json, marks=marks)
            size = len(written) if isinstance(written, bytes) else 1
            if written is None or (best is not None and size >= best[0]):
                continue
            if _has_length(target, left):
                best = (size, written, target)
                if size == 1:
                    break
        if best is None:
            return None
        _, written, language = best
        if isinstance(written, int):
            pieces += [bytes(text), written]
            text.clear()
        else:
            text += written
    return [*pieces, bytes(text)]


def _has_length(language: Language, length: int) -> bool:
    if isinstance(language, Rx):
        if language.is_empty():
            return False
        least = language.min_length()
        return least == length or (
            least < length and language.builder.length_window_nonempty(language, length, length)
        )
    return not language.is_empty() and language.min_length() <= length


def _written(low: int, high: int, *, json: bool, marks: Marks) -> bytes | int | None:
    """A character of the range in as few bytes as possible, within a JSON string or as it is; or
    the token that one of them stands for."""
    if marks:
        if low >= FIRST:
            return next((marks[char] for char in range(low, high + 1) if char in marks), None)
        high = min(high, FIRST - 1)
    for char in _LIKED:
        if low <= char <= high:
            return bytes((char,))
    first, last = (max(low, 0x20), min(high, 0x7F)) if json else (low, min(high, 0x7F))
    for char in range(first, last + 1):
        if not json or char not in _SHORT:
            return bytes((char,))
    for char, escape in _SHORT.items():
        if low <= char <= high:
            return escape
    for char in (max(low, 0x80), max(low, 0xE000)):
        if char <= high and not 0xD800 <= char <= 0xDFFF:
            return chr(char).encode()
    return b"\\u%04x" % low if low < 0x20 else None


# -- any other terminal ----------------------------------------------------------------------------


def _search(automaton: Automaton, state: int) -> Iterable[Ending]:
    """Breadth first over bytes and whole tokens, within ``MAX_SEARCHED`` states."""
    found: dict[int, Ending] = {}
    parents: dict[int, tuple[int, int]] = {state: (-1, 0)}
    queue = deque((state,))
    while queue and len(found) < MAX_LABELS:
        at = queue.popleft()
        label = automaton.labels[at]
        if label != NOT_ACCEPTING and label not in found:
            found[label] = _ending(_back(parents, at), automaton.outcome(label))
        if len(parents) > MAX_SEARCHED:
            continue
        whole = [TOKENS + min(tokens)] if (tokens := automaton.tokens(at)) else []
        for step in (*automaton.live(at), *whole):
            after = automaton.step(at, step)
            if after != DEAD and after not in parents:
                parents[after] = (at, step)
                queue.append(after)
    return found.values()


def _back(parents: dict[int, tuple[int, int]], at: int) -> list[Piece]:
    steps: list[int] = []
    while parents[at][0] >= 0:
        at, step = parents[at]
        steps.append(step)
    pieces: list[Piece] = []
    text = bytearray()
    for step in reversed(steps):
        if step < TOKENS:
            text.append(step)
        else:
            pieces += [bytes(text), step - TOKENS]
            text.clear()
    return [*pieces, bytes(text)]
