"""Undeclared keys of an object: JSON strings that remember what was written, so that none repeats.

RFC 8259 leaves an object with a repeated key undefined, so none may come out. The text of a key is
known when its closing quote comes; the automaton's label is that text's number, and the object's
next key position excludes it. To keep sharing walks, only transitions see real texts: the mask of a
state is that of its *vague* twin, which knows the position in the excluded words' trie but not the
text, and accepts with ``VAGUE``. After a vague key no further undeclared key can be completed. What
that leaves open is which keys may still begin, and which complete: the few tokens that hold the end
of one key and something of the next are tried one by one (``Vocabulary.double_key_tokens``).
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable
from typing import Any

from grammar.automaton import DEAD, NOT_ACCEPTING, Automaton, Outcome
from grammar.content import Content
from grammar.regular import RegexBuilder
from grammar.safe import Even
from grammar.strings import JsonStrings
from grammar.walk import Free, Less

VAGUE = 0
"""The label of a key whose text is not known; real texts are numbered from 1."""

_KNOWN, _VAGUE, _OPEN_ENDED = "known", "vague", "open-ended"


class KeyStrings(JsonStrings):
    """Strings whose label is the number of their text.

    Keys: ``(flavour, inner, raw)``, ``inner`` a key of ``JsonStrings``. ``known`` carries the bytes
    between the quotes; ``vague`` does not; ``open-ended`` does not and is never completed.
    """

    remembers = True

    def __init__(
        self, builder: RegexBuilder, longest_token: int, opening: bytes, closing: bytes
    ) -> None:
        super().__init__(builder, longest_token, opening, closing)
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = [""]  # by label; the first stands for VAGUE

    def begin(self, content: Content, *, completed: bool = True) -> int:
        """The state before the opening; ``completed`` False: the key can't be finished."""
        inner = ("open", 0, self._simplify(content))
        return self.state((_KNOWN if completed else _OPEN_ENDED, inner, b""))

    def advance(self, state: int, text: bytes, at: int) -> tuple[int, int]:
        flavour, inner, raw = self._keys[state]
        after, start, done = self._leap(inner, text, at)
        if after is None:
            return DEAD, at
        if done > at:
            if flavour == _KNOWN:
                raw += text[start:done]
            state = self.state((flavour, after, raw))
            if done == len(text):
                return state, done
        return Automaton.advance(self, state, text, done)

    def successor(self, key: Any, byte: int) -> Hashable | None:
        flavour, inner, raw = key
        after: Any = super().successor(inner, byte)
        if after is None:
            return None
        if flavour == _OPEN_ENDED and after == ("close", len(self._closing)):
            return None
        if flavour == _KNOWN and inner[0] not in ("open", "close") and after[0] != "close":
            raw += bytes((byte,))
        return (flavour, after, raw)

    def label(self, key: Any) -> int:
        flavour, inner, raw = key
        if super().label(inner) == NOT_ACCEPTING:
            return NOT_ACCEPTING
        if flavour == _VAGUE:
            return VAGUE
        text: str = json.loads(b'"' + raw + b'"')
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return number

    def outcome(self, label: int) -> Outcome:
        """The text of a key, or ``VAGUE``."""
        return VAGUE if label == VAGUE else self._texts[label]

    def spans(self, key: Any) -> Iterable[tuple[int, int, Hashable]] | None:
        flavour, inner, _ = key
        spans = super().spans(inner) if flavour != _KNOWN else None
        return spans and [(low, high, (flavour, after, b"")) for low, high, after in spans]

    def is_ascii(self, key: Any) -> bool:
        return super().is_ascii(key[1])

    def even(self, key: Any) -> Even | None:
        return super().even(key[1])

    def safe(self, key: Any) -> tuple[int, int] | None:
        return super().safe(key[1])

    def free(self, key: Any) -> Free | None:
        found = super().free(key[1])
        return found._replace(ended=True) if found and key[0] == _OPEN_ENDED else found

    def less(self, key: Any) -> Less | None:
        flavour, inner, raw = key
        found = super().less(inner)
        return None if found is None else found._replace(key=(flavour, found.key, raw))

    def candidates(self, key: Any) -> Iterable[int] | None:
        return super().candidates(key[1])

    def representative(self, key: Any) -> Hashable:
        flavour, inner, _ = key
        other = super().representative(inner)
        return (flavour if flavour == _OPEN_ENDED else _VAGUE, other, b"")
