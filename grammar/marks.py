"""Special tokens within regular languages, and text regions that a budget can end.

A delimiter such as ``<|channel|>analysis<|message|>`` is text to whoever reads the answer, but its
marks are whole tokens where the vocabulary has them as special ones. To let one regular language
speak of both, every special token has a character that stands for it: one of plane 16, which is for
private use and which no text of ours holds. ``MarkedText`` steps such a character by the token, and
by nothing else: the token's text in ordinary tokens is not a way to write it, nor can the private
character be written.

``TimedText`` is such a text whose end can be called for: ``hurried`` gives the state from which
only the closing delimiter can be written, after the rest of a character that is begun.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from grammar.automaton import NOT_ACCEPTING, TOKENS
from grammar.characters import Range
from grammar.charset import CharSet
from grammar.content import MAX_SCALAR, Content
from grammar.regular import RegexBuilder, Rx
from grammar.text import PlainText

if TYPE_CHECKING:
    from grammar.vocabulary import Vocabulary

FIRST = 0x100000
"""The first character that stands for a token."""
MAX_MARKS = MAX_SCALAR - FIRST
TEXT = CharSet(((0, FIRST - 1),))
"""The characters of texts."""


class Marks:
    """The special tokens of a vocabulary as characters."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        listed = sorted(vocabulary.special)[:MAX_MARKS]
        self.ids: Mapping[int, int] = {
            FIRST + at: token for at, token in enumerate(listed) if token not in vocabulary.eos
        }
        self._char = {vocabulary.special[token]: char for char, token in self.ids.items()}
        self._ends = {vocabulary.special[t] for t in vocabulary.eos if t in vocabulary.special}
        self._by_first: dict[str, list[str]] = {}
        for text in sorted({*self._char, *self._ends}, key=len, reverse=True):
            if text:
                self._by_first.setdefault(text[0], []).append(text)

    def language(self, builder: RegexBuilder, text: str) -> Rx:
        """A text, with special tokens for their texts; empty where that would end the turn."""
        parts: list[Rx] = []
        plain = at = 0
        while at < len(text):
            near = self._by_first.get(text[at], ())
            found = next((mark for mark in near if text.startswith(mark, at)), None)
            if found is None:
                at += 1
                continue
            if found in self._ends:
                return builder.empty
            parts += (builder.literal(text[plain:at]), builder.literal(chr(self._char[found])))
            plain = at = at + len(found)
        return builder.concat(*parts, builder.literal(text[plain:]))

    def is_special(self, text: str) -> bool:
        """Whether a special token that does not end the turn is written so."""
        return text in self._char

    def ends_turn(self, text: str) -> bool:
        """Whether an end-of-sequence token is written so."""
        return text in self._ends


class MarkedText(PlainText):
    """A language over characters as UTF-8, with tokens for the characters from ``FIRST`` on."""

    takes_tokens = True

    def __init__(
        self, builder: RegexBuilder, longest_token: int, marks: Mapping[int, int], *, last: bool
    ) -> None:
        super().__init__(builder, longest_token, last=last)
        self._marks = marks
        self._taken: dict[Content, dict[int, Content]] = {}

    @property
    def marks(self) -> Mapping[int, int]:
        """The characters that stand for tokens, and which."""
        return self._marks

    def _make_ranges(self, content: Content) -> Iterable[Range]:
        taken = self._taken[content] = {}
        for low, high, target in super()._make_ranges(content):
            if low < FIRST:
                yield low, min(high, FIRST - 1), target
            if high >= FIRST:
                for char in range(max(low, FIRST), high + 1):
                    if char in self._marks:
                        taken[self._marks[char]] = target

    def _takes(self, content: Content) -> Mapping[int, Content]:
        self._transitions(content)
        return self._taken[content]

    def successor(self, key: Any, byte: int) -> Hashable | None:
        if byte < TOKENS:
            return super().successor(key, byte)
        target = self._takes(key[1]).get(byte - TOKENS) if key[0] == "body" else None
        return None if target is None else ("body", target)

    def tokens(self, state: int) -> Collection[int]:
        key = self.key(state)
        return self._takes(key[1]).keys() if key[0] == "body" else ()


class TimedText(MarkedText):
    """A text and its closing delimiter, of which the text can be cut short.

    Args:
        closing: the delimiter's language.
        after: the automaton to go on with when the text is cut short.
    """

    is_timed = True

    def __init__(
        self,
        builder: RegexBuilder,
        longest_token: int,
        marks: Mapping[int, int],
        closing: Rx,
        after: MarkedText,
    ) -> None:
        super().__init__(builder, longest_token, marks, last=False)
        self._builder = builder
        self._character = Content(builder.concat(builder.chars(TEXT), closing), 0, None)
        self._endings = _endings_of(builder, closing)
        self._after = after

    def runs(self, state: int) -> bool:
        return self.labels[state] == NOT_ACCEPTING

    def hurried(self, state: int) -> tuple[MarkedText, int]:
        """The state from which only the delimiter can come, or the rest of one that is begun.

        Where the text can't end yet, since it must begin in a certain way, that is the same state.
        """
        kind, content, *rest = self.key(state)
        if kind == "utf8":
            content = self._character
        else:
            assert isinstance(content.language, Rx)
            language = self._builder.intersect(content.language, self._endings)
            if language.is_empty():
                return self, state
            content = Content(language, 0, None)
        return self._after, self._after.state((kind, content, *rest))


def _endings_of(builder: RegexBuilder, language: Rx) -> Rx:
    """All that words of a language end with, themselves included, the empty text not."""
    states = [language]
    for state in states:
        states += {target for _, _, target in state.transitions()} - set(states)
    return builder.union(*(state for state in states if not state.nullable))
