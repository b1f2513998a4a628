"""The node of a hash-consed regular expression, and the errors of regular-language work.

Invariant: nodes are made by one `grammar.regular.RegexBuilder` only, which interns them, so equal
normal forms are the same object and identity is equality. Everything but the memo slots (leading
underscore) is fixed at birth.

Read next: `grammar.regular` (the constructors), `grammar.derivatives` (the steps),
`grammar.decide` (emptiness and lengths).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from grammar.charset import MAX_SCALAR, CharSet

if TYPE_CHECKING:
    from grammar.decide import Layers
    from grammar.lengths import Lengths
    from grammar.regular import RegexBuilder

#: Characters `lo..hi` lead to a node.
Transition: TypeAlias = "tuple[int, int, Rx]"


class RegexBudgetError(ValueError):
    """A construction or a question about a language cost more steps than its fuel allowed."""


class Kind(IntEnum):
    EMPTY = 0  # no word at all
    EPSILON = 1  # the empty word only
    CHARS = 2  # one character of a non-empty set
    CONCAT = 3  # parts = (head, tail); the head is no CONCAT: a right-leaning list
    UNION = 4  # parts sorted by ident, at least two
    INTERSECT = 5  # parts sorted by ident, at least two
    COMPLEMENT = 6  # parts = (body,)
    REPEAT = 7  # parts = (body,), lo..hi times; lo is 0 when the body is nullable
    BRANCH = 8  # a node of a trie of literals: disjoint character ranges to parts
    AUTOMATON = 9  # a state of a user's automaton
    EQUATION = 10  # parts = (right side,), once it is defined; the right side may mention the node


class Automaton(Protocol):
    """A finite deterministic automaton that serves as a leaf; every state reaches acceptance."""

    def __hash__(self) -> int: ...

    def accepts(self, state: Hashable) -> bool: ...

    def row(self, state: Hashable) -> Iterable[tuple[int, int, Hashable]]:
        """Disjoint ascending character ranges and the states they lead to."""
        ...


@runtime_checkable
class MeasuredAutomaton(Automaton, Protocol):
    """One that knows how far it is to the end."""

    def shortest(self, state: Hashable) -> int:
        """The length of a shortest word of a state."""
        ...


class Rx:
    """A regular language over Unicode scalar values. Compare with `is`."""

    __slots__ = (
        "_empty", "_layers", "_max", "_min", "_raw", "_transitions", "_universal",
        "builder", "chars", "clean", "hi", "hi_length", "ident", "kind", "lengths", "literal",
        "lo", "lo_length", "nullable", "parts", "payload",
    )  # fmt: skip

    builder: RegexBuilder
    ident: int
    kind: Kind
    parts: tuple[Rx, ...]
    chars: CharSet | None
    lo: int
    hi: int | None
    #: BRANCH: its transitions; AUTOMATON: (automaton, state); EQUATION: (name,).
    payload: tuple[Hashable, ...] | None
    #: Whether the empty word is accepted.
    nullable: bool
    #: No intersection, complement or automaton inside: never empty, and the bounds are exact.
    clean: bool
    #: A single word, written as characters in a row.
    literal: bool
    #: Bounds on word lengths (None: unbounded); the exact answers when `clean`.
    lo_length: int
    hi_length: int | None
    #: The exact set of word lengths where arithmetic gives it, else None.
    lengths: Lengths | None
    _raw: tuple[Transition, ...] | None
    _transitions: tuple[Transition, ...] | None
    _empty: bool | None
    _universal: bool | None
    _min: int | None
    _max: tuple[int | None] | None
    _layers: Layers | None

    def transitions(self) -> tuple[Transition, ...]:
        """Disjoint ascending ranges `(lo, hi, target)`, exactly the characters that lead on.

        A character from which no accepted word can be reached is not covered; neighbours with the
        same target are one range. Memoised.

        Raises:
            RegexBudgetError: the fuel ran out while dead targets were looked for.
        """
        found = self._transitions
        return found if found is not None else self.builder.transitions(self)

    def step(self, character: int) -> Rx | None:
        """The language of what may follow `character`, or None when nothing may."""
        rows = self.transitions()
        at = bisect_right(rows, character, key=_first) - 1
        if at >= 0 and rows[at][1] >= character:
            return rows[at][2]
        return None

    def matches(self, text: str) -> bool:
        """Whether the whole text is a word of the language."""
        state = self
        for character in text:
            following = state.step(ord(character))
            if following is None:
                return False
            state = following
        return state.nullable

    def is_empty(self) -> bool:
        """Whether no word is accepted; exact.

        Raises:
            RegexBudgetError: the fuel ran out first.
        """
        return self.builder.is_empty(self)

    def is_universal(self) -> bool:
        """Whether every word is accepted; may say False for a universal language of many states."""
        return self.builder.is_universal(self)

    def min_length(self) -> int:
        """The length in characters of a shortest word.

        Raises:
            ValueError: the language is empty.
            RegexBudgetError: the fuel ran out first.
        """
        return self.builder.min_length(self)

    def max_length(self) -> int | None:
        """The length in characters of a longest word, None when there is none.

        Raises:
            ValueError: the language is empty.
            RegexBudgetError: the fuel ran out first.
        """
        return self.builder.max_length(self)

    def __repr__(self) -> str:
        return f"<Rx {self.ident} {self.describe()}>"

    def describe(self, depth: int = 4) -> str:
        """A short pattern-like rendering for messages and debugging."""
        kind = self.kind
        if depth == 0:
            return "..."
        if kind is Kind.CHARS:
            assert self.chars is not None
            return _describe_chars(self.chars)
        inner = [part.describe(depth - 1) for part in self.parts[:4]]
        if len(self.parts) > 4:
            inner.append("...")
        if kind is Kind.CONCAT:
            return "".join(inner)
        if kind is Kind.REPEAT:
            return f"({inner[0]}){{{self.lo},{'' if self.hi is None else self.hi}}}"
        if kind is Kind.UNION:
            return f"({'|'.join(inner)})"
        if kind is Kind.INTERSECT:
            return f"({'&'.join(inner)})"
        if kind is Kind.COMPLEMENT:
            return f"~({inner[0]})"
        rest = {
            Kind.EMPTY: "[]",
            Kind.EPSILON: "()",
            Kind.BRANCH: "<trie>",
            Kind.EQUATION: "<equation>",
        }
        return rest.get(kind, "<automaton>")


def _first(row: Transition) -> int:
    return row[0]


def _describe_chars(chars: CharSet) -> str:
    if chars.ranges[-1][1] == MAX_SCALAR:
        rest = ~chars
        return "." if not rest else f"[^{_describe_ranges(rest)}]"
    return f"[{_describe_ranges(chars)}]"


def _describe_ranges(chars: CharSet) -> str:
    shown = [chr(lo) if lo == hi else f"{chr(lo)}-{chr(hi)}" for lo, hi in chars.ranges[:6]]
    return "".join(shown).encode("unicode_escape").decode() + "..." * (len(chars.ranges) > 6)
