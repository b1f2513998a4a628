"""Sets of Unicode scalar values, the alphabet that every regular language here is written over.

Invariant: a `CharSet` holds disjoint, sorted, non-adjacent closed intervals of *scalar values*
(0..0x10FFFF without the surrogates D800..DFFF), so two equal sets are equal tuples and a lone
surrogate can never come out of a generated string.

`UnicodeProperties` derives the `\\p{...}` classes from `unicodedata`; it is an object because the
table of general categories takes a moment to build and is kept for reuse.

Read next: `grammar.regular`.
"""

from __future__ import annotations

import functools
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

Interval: TypeAlias = tuple[int, int]

MAX_SCALAR: Final = 0x10FFFF
#: Every scalar value, as the two closed intervals on either side of the surrogates.
SCALAR_RANGES: Final[tuple[Interval, Interval]] = ((0, 0xD7FF), (0xE000, MAX_SCALAR))


class CharSet:
    """An immutable set of scalar values; hashable, compared by value."""

    __slots__ = ("_hash", "ranges")

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        """Build from closed intervals in any order; overlaps merge, surrogates are dropped.

        Raises:
            ValueError: an interval runs backwards or leaves 0..0x10FFFF.
        """
        self.ranges: tuple[Interval, ...] = _normalise(intervals)
        self._hash = hash(self.ranges)

    @classmethod
    def _from_sorted(cls, ranges: tuple[Interval, ...]) -> CharSet:
        """Wrap intervals that are known to be in normal form."""
        made = cls.__new__(cls)
        made.ranges = ranges
        made._hash = hash(ranges)
        return made

    @classmethod
    def of(cls, characters: str) -> CharSet:
        """The set of the characters of a string."""
        return cls((ord(c), ord(c)) for c in characters)

    @classmethod
    def span(cls, first: str | int, last: str | int) -> CharSet:
        """The closed interval between two characters or code points."""
        lo = ord(first) if isinstance(first, str) else first
        hi = ord(last) if isinstance(last, str) else last
        return cls(((lo, hi),))

    def is_empty(self) -> bool:
        return not self.ranges

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        """How many scalar values the set holds."""
        return sum(hi - lo + 1 for lo, hi in self.ranges)

    def __contains__(self, character: object) -> bool:
        if isinstance(character, str):
            character = ord(character)
        if not isinstance(character, int):
            return False
        at = bisect_right(self.ranges, (character, MAX_SCALAR)) - 1
        return at >= 0 and self.ranges[at][0] <= character <= self.ranges[at][1]

    def __iter__(self) -> Iterator[int]:
        """The scalar values in ascending order."""
        for lo, hi in self.ranges:
            yield from range(lo, hi + 1)

    def __or__(self, other: CharSet) -> CharSet:
        if not other.ranges:
            return self
        if not self.ranges:
            return other
        return CharSet((*self.ranges, *other.ranges))

    def __and__(self, other: CharSet) -> CharSet:
        out: list[Interval] = []
        left, right = self.ranges, other.ranges
        i = j = 0
        while i < len(left) and j < len(right):
            lo = max(left[i][0], right[j][0])
            hi = min(left[i][1], right[j][1])
            if lo <= hi:
                out.append((lo, hi))
            if left[i][1] < right[j][1]:
                i += 1
            else:
                j += 1
        return CharSet._from_sorted(tuple(out))

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other

    def __invert__(self) -> CharSet:
        """All scalar values that are not in this set."""
        out: list[Interval] = []
        for first, last in SCALAR_RANGES:
            at = first
            for lo, hi in self.ranges:
                if hi < first or lo > last:
                    continue
                if lo > at:
                    out.append((at, lo - 1))
                at = hi + 1
            if at <= last:
                out.append((at, last))
        return CharSet._from_sorted(tuple(out))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CharSet) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        shown = ", ".join(f"{lo:#x}..{hi:#x}" for lo, hi in self.ranges[:6])
        return f"CharSet({shown}{', ...' if len(self.ranges) > 6 else ''})"


def _normalise(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Sort, clip away surrogates and merge what touches (within one side of the surrogates)."""
    pieces: list[Interval] = []
    for lo, hi in intervals:
        if not 0 <= lo <= hi <= MAX_SCALAR:
            raise ValueError(f"not an interval of code points: {lo:#x}..{hi:#x}")
        for first, last in SCALAR_RANGES:
            if lo <= last and hi >= first:
                pieces.append((max(lo, first), min(hi, last)))
    pieces.sort()
    out: list[Interval] = []
    for lo, hi in pieces:
        if out and lo <= out[-1][1] + 1:
            if hi > out[-1][1]:
                out[-1] = (out[-1][0], hi)
        else:
            out.append((lo, hi))
    return tuple(out)


EVERYTHING: Final = CharSet(SCALAR_RANGES)
ASCII: Final = CharSet(((0, 0x7F),))
#: ECMA-262 `\d`: ASCII only, in Unicode mode too.
DIGITS: Final = CharSet.span("0", "9")
#: ECMA-262 `\w`.
WORD: Final = CharSet((*DIGITS.ranges, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
#: The Unicode property White_Space, a list that the standard keeps stable.
WHITE_SPACE: Final = CharSet.of("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | (
    CharSet.span(0x2000, 0x200A)
)
#: ECMA-262 `\s`: WhiteSpace and LineTerminator; NEL is not in it, the byte order mark is.
SPACE: Final = (WHITE_SPACE - CharSet.of("\x85")) | CharSet.of("\ufeff")
#: ECMA-262 line terminators: what `.` does not match.
LINE_TERMINATORS: Final = CharSet.of("\n\r\u2028\u2029")
DOT: Final = ~LINE_TERMINATORS

#: General categories by long name; groups list their members' short names (UAX #44, table 12).
_CATEGORY_NAMES: Final[dict[str, str]] = {
    "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Cased_Letter": "LC", "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Letter": "L",
    "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me", "Mark": "M",
    "Combining_Mark": "M", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Number": "N", "Connector_Punctuation": "Pc", "Dash_Punctuation": "Pd",
    "Open_Punctuation": "Ps", "Close_Punctuation": "Pe", "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Punctuation": "P", "punct": "P",
    "Math_Symbol": "Sm", "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So",
    "Symbol": "S", "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp",
    "Separator": "Z", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Surrogate": "Cs",
    "Private_Use": "Co", "Unassigned": "Cn", "Other": "C",
}  # fmt: skip
_SHORT_CATEGORIES: Final = frozenset(_CATEGORY_NAMES.values())


class UnknownPropertyError(ValueError):
    """A `\\p{...}` name that does not exist or can't be derived from `unicodedata`."""


class UnicodeProperties:
    """`\\p{...}` classes, computed on first use and kept on this object."""

    __slots__ = ("_categories", "_memo")

    def __init__(self) -> None:
        self._categories: dict[str, CharSet] | None = None
        self._memo: dict[str, CharSet] = {}

    def lookup(self, expression: str) -> CharSet:
        """The set named between the braces of `\\p{...}`.

        General_Category values (`Lu`, `Letter`, `gc=Lu`, `General_Category=Letter`) and the binary
        properties ASCII, ASCII_Hex_Digit, Any, Assigned, Lowercase, Uppercase, White_Space,
        XID_Start and XID_Continue are exact for the Unicode version of `unicodedata`.

        Raises:
            UnknownPropertyError: a script (`unicodedata` has no scripts), a property that can't be
                derived (Alphabetic, emoji properties), or an unknown name.
        """
        found = self._memo.get(expression)
        if found is None:
            found = self._memo[expression] = self._compute(expression)
        return found

    def _compute(self, expression: str) -> CharSet:
        name, equals, value = expression.partition("=")
        if equals:
            if name in ("gc", "General_Category"):
                return self._category(value, expression)
            if name in ("Script", "sc", "Script_Extensions", "scx"):
                raise UnknownPropertyError(f"script properties are not supported: {expression}")
            raise UnknownPropertyError(f"unknown Unicode property {expression!r}")
        if name in _CATEGORY_NAMES or name in _SHORT_CATEGORIES:
            return self._category(name, expression)
        return self._binary(name)

    def _category(self, value: str, expression: str) -> CharSet:
        short = _CATEGORY_NAMES.get(value, value)
        if short not in _SHORT_CATEGORIES:
            raise UnknownPropertyError(f"unknown general category in {expression!r}")
        members = ("Lu", "Ll", "Lt") if short == "LC" else (short,)
        if self._categories is None:
            self._categories = general_categories()
        return CharSet(
            interval
            for name, chars in self._categories.items()
            if name.startswith(members)
            for interval in chars.ranges
        )

    def _binary(self, name: str) -> CharSet:
        if name == "Any":
            return EVERYTHING
        if name == "ASCII":
            return ASCII
        if name in ("White_Space", "space"):
            return WHITE_SPACE
        if name in ("ASCII_Hex_Digit", "AHex"):
            return CharSet.of("0123456789abcdefABCDEF")
        if name == "Assigned":
            return ~self._category("Cn", name)
        # CPython builds isupper/islower of one character from the Unicode properties Uppercase
        # and Lowercase, and isidentifier from XID_Start and XID_Continue (plus the underscore).
        if name in ("Uppercase", "Upper"):
            return _where(str.isupper)
        if name in ("Lowercase", "Lower"):
            return _where(str.islower)
        if name in ("XID_Start", "XIDS"):
            return _where(str.isidentifier) - CharSet.of("_")
        if name in ("XID_Continue", "XIDC"):
            return _where(lambda c: f"a{c}".isidentifier())
        raise UnknownPropertyError(f"Unicode property {name!r} is unknown or not supported")


@functools.cache
def general_categories() -> dict[str, CharSet]:
    """One pass over the code space: short category name -> its scalar values."""
    runs: dict[str, list[Interval]] = {}
    category = unicodedata.category
    for first, last in SCALAR_RANGES:
        start, current = first, category(chr(first))
        for code in range(first + 1, last + 1):
            name = category(chr(code))
            if name != current:
                runs.setdefault(current, []).append((start, code - 1))
                start, current = code, name
        runs.setdefault(current, []).append((start, last))
    return {name: CharSet(intervals) for name, intervals in runs.items()}


def _where(holds: Callable[[str], bool]) -> CharSet:
    """The scalar values for which a predicate of one character holds."""
    codes = (code for first, last in SCALAR_RANGES for code in range(first, last + 1))
    return CharSet((code, code) for code in codes if holds(chr(code)))
