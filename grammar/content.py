"""What may stand between the quotes of a JSON string, in characters (no encoding here).

``strings.py`` lifts this to bytes. A language is a state of a deterministic automaton over
characters: a regular expression's derivative (``regular.py``), or ``Excluding`` for "any text but
these words", which needs no regular expression and says of itself what others must be searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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

    def firsts(self) -> list[str]:
        """The characters that words begin with, ascending."""
        return sorted(self._children)

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


class Without:
    """A language without some words: a state of both at once. Compared by identity.

    This is a difference that makes no new regular expressions: what lies off the words' trie is the
    language itself.
    """

    __slots__ = ("_behind", "_empty", "_roomy", "language", "nullable", "rest")

    def __init__(self, language: Language, rest: Excluding) -> None:
        self.language = language
        self.rest = rest
        self.nullable = language.nullable and rest.nullable
        self._behind: dict[tuple[Language, str], Without] = {}
        self._empty: bool | None = None
        self._roomy: bool | None = None

    def behind(self, target: Language, char: str) -> Language:
        """What follows a character that leads the language to ``target``."""
        rest = self.rest.behind(char)
        if not rest.words:
            return target
        found = self._behind.get((target, char))
        if found is None:
            found = self._behind[target, char] = Without(target, rest)
        return found

    def _branches(self) -> Iterator[tuple[int, int, Language, str | None]]:
        """The transitions; with a character where they stay on the words' trie."""
        chars = self.rest.firsts()
        at = 0
        for low, high, target in self.language.transitions():
            while at < len(chars) and ord(chars[at]) < low:
                at += 1
            start = low
            while at < len(chars) and ord(chars[at]) <= high:
                code = ord(chars[at])
                if start < code:
                    yield start, code - 1, target, None
                yield code, code, self.behind(target, chars[at]), chars[at]
                start = code + 1
                at += 1
            if start <= high:
                yield start, high, target, None

    def transitions(self) -> tuple[tuple[int, int, Language], ...]:
        """As of the language, but for the words' characters."""
        return tuple(
            (low, high, target)
            for low, high, target, char in self._branches()
            if char is None or not target.is_empty()
        )

    def is_universal(self) -> bool:
        """Never: some word is left out."""
        return False

    def is_empty(self) -> bool:
        """Whether the language has no other words."""
        if self._empty is None:
            self._empty = True
            pending: list[Without] = [self]
            while pending and self._empty:
                state = pending.pop()
                if state.nullable:
                    self._empty = False
                for _, _, target, _ in () if state.nullable else state._branches():
                    if isinstance(target, Without):
                        pending.append(target)
                    else:  # the language leads to no dead ends
                        self._empty = False
                        break
        return self._empty

    def is_roomy(self) -> bool:
        """Whether it comes to no dead end where the language itself goes on: then leaving out the
        words only forbids to end where one of them ends."""
        if self._roomy is None:
            states = [self]
            self._roomy = True
            for state in states:
                if state.is_empty():
                    self._roomy = False
                    break
                targets = (target for _, _, target, _ in state._branches())
                states += [t for t in targets if isinstance(t, Without) and t._roomy is None]
            if self._roomy:
                for state in states:
                    state._roomy = True
        return self._roomy

    def min_length(self) -> int:
        """Characters of the shortest word that is left."""
        best: int | None = None
        level: list[Without] = [self]
        depth = 0
        while level and (best is None or depth < best):
            fresh: list[Without] = []
            for state in level:
                if state.nullable:
                    return depth
                for _, _, target in state.transitions():
                    if isinstance(target, Without):
                        fresh.append(target)
                    else:
                        length = depth + 1 + target.min_length()
                        best = length if best is None else min(best, length)
            level = fresh
            depth += 1
        assert best is not None, "an empty language has no words"
        return best


def _scalars(low: int, high: int) -> Iterable[tuple[int, int]]:
    """[low, high] without the surrogates, which are no characters."""
    for start, stop in ((low, min(high, 0xD7FF)), (max(low, 0xE000), high)):
        if start <= stop:
            yield start, stop
