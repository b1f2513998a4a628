"""How many words a language of keys has, and which: there may be few to choose from."""

from __future__ import annotations

from grammar.content import Excluding, Language, Without
from grammar.regular import Rx


def words_of(language: Language | None, limit: int) -> list[str] | None:
    """All words of a language; None if it has more than ``limit``, or endlessly many."""
    if _is_endless(language):
        return None
    assert language is not None
    found: list[str] = []
    pending: list[tuple[Language, str]] = [(language, "")]
    while pending:
        state, text = pending.pop()
        if state.nullable:
            found.append(text)
        for low, high, target in state.transitions():
            if len(found) + len(pending) + high - low >= limit + 1:
                return None  # each state leads to a word at least
            pending.extend((target, text + chr(code)) for code in range(low, high + 1))
    return sorted(found) if len(found) <= limit else None


def _is_endless(language: Language | None) -> bool:
    if isinstance(language, Without):
        language = language.language
    if isinstance(language, Excluding) or language is None:
        return True
    return not isinstance(language, Rx) or language.max_length() is None
