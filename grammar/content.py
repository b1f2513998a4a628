"""What may stand between the quotes of a JSON string, in characters (no encoding here).

``strings.py`` lifts this to bytes. A language is a state of a deterministic automaton over
characters: a regular expression's derivative (``regular.py``), or ``Excluding`` for "any text but
these words", which needs no regular expression and says of itself what others must be searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

MAX_SCALAR = 0x10FFFF
MAX_DETOUR_STATES = 256


class Language(Protocol):
    """A state of a character automaton; states are compared by identity or by structure."""

    @property
    def nullable(self) -> bool: ...
    def transitions(self) -> Sequence[tuple[int, int, Language]]: ...
    def is_universal(self) -> bool: ...
    def is_empty(self) -> bool: ...
    def min_length(self) -> int: ...


class Content(NamedTuple):
    """What may still stand between the quotes; lengths are in characters (code points)."""

    language: Language | None
    least: int
    most: int | None


class Detours:
    """How many characters lead to a word of a language from the worst of its states."""

    def __init__(self) -> None:
        self._found: dict[Language, int | None] = {}

    def of(self, language: Language) -> int | None:
        """Found once, by looking at all states; None if those are too many."""
        if isinstance(language, Excluding):
            return 1  # no character is ever illegal, and one more always suffices
        if language not in self._found:
            states: list[Language] = [language]
            seen = {language}
            for state in states:
                if len(states) > MAX_DETOUR_STATES:
                    break
                fresh = {target for _, _, target in state.transitions()} - seen
                seen |= fresh
                states.extend(fresh)
            few = len(states) <= MAX_DETOUR_STATES
            found = max(state.min_length() for state in states) if few else None
            for state in states:
                self._found.setdefault(state, found)
        return self._found[language]


class Excluding:
    """All strings but some words: the undeclared keys of an object. One node of the words' trie."""

    __slots__ = ("_made", "nullable", "words")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self.nullable = "" not in self.words
        self._made: dict[str, list[str] | Excluding] | None = None

    @property
    def _children(self) -> dict[str, list[str] | Excluding]:
        # Deep tries of long names are made without recursion on the way down: children on touch.
        if self._made is None:
            self._made = {}
            for word in self.words:
                if word:
                    self._made.setdefault(word[0], []).append(word[1:])  # type: ignore[union-attr]
        return self._made

    def _child(self, char: str) -> Excluding:
        children = self._children
        child = children[char]
        if isinstance(child, list):
            child = children[char] = Excluding(child)
        return child

    def behind(self, char: str) -> Excluding:
        """The strings that may follow a character."""
        return self._child(char) if char in self._children else ANYTHING

    def transitions(self) -> tuple[tuple[int, int, Language], ...]:
        """Every character may follow; only a declared name's next one is still of interest."""
        result: list[tuple[int, int, Language]] = []
        at = 0
        for char in sorted(self._children):
            code = ord(char)
            result.extend((low, high, ANYTHING) for low, high in _scalars(at, code - 1))
            result.append((code, code, self._child(char)))
            at = code + 1
        result.extend((low, high, ANYTHING) for low, high in _scalars(at, MAX_SCALAR))
        return tuple(result)

    def is_universal(self) -> bool:
        """Whether no word is left to exclude."""
        return self.nullable and not self._children

    def is_empty(self) -> bool:
        """Never: some string is always left."""
        return False

    def min_length(self) -> int:
        """Characters of the shortest string."""
        return 0 if self.nullable else 1


ANYTHING = Excluding(())


def _scalars(low: int, high: int) -> Iterable[tuple[int, int]]:
    """[low, high] without the surrogates, which are no characters."""
    for start, stop in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
        if start <= stop:
            yield start, stop
