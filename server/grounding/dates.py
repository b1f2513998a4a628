"""The dates that a source states, in English, Portuguese and Spanish, in digits or in words.

- Numeric: `2024-03-03` (also with a time), `2024/3/3`, `20240303`, `03/03/2024`, `3.3.24`,
  `3-3-2024`. Where day and month may both be meant (`03/04/2024`), either reading counts, unless
  the rule gives the order (`dmy`, `mdy`). Years of two digits are those from 1969 to 2068 (POSIX).
- With the month's name or its abbreviation: *3 March 2024*, *March 3rd, 2024*, *2024 March 3*,
  *3 de março de 2024*, *3 de marzo del 2024*, *Mar. 3, '24*, *3-Mar-2024*; a weekday may precede.
- In words: *the third of May two thousand twenty-four*, *três de março de dois mil e vinte*.
- Of *from 3 to 5 March 2024*, *3-5 March 2024* and *3 and 5 March 2024* both ends.

A date whose year is missing is not stated: *on 3 March* may be any year's. A month with its year
(*March 2024*, `03/2024`) states the month, which is the value `2024-03`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Literal, NamedTuple, TypeAlias

from server.grounding.numbers import prepared, stated_numbers
from server.grounding.numerals import Stated

Order: TypeAlias = Literal["any", "dmy", "mdy"]

_MONTHS = (
    "january jan janeiro enero ene",
    "february feb fevereiro fev febrero",
    "march mar março marco marzo",
    "april apr abril abr",
    "may maio mai mayo",
    "june jun junho junio",
    "july jul julho julio",
    "august aug agosto ago",
    "september sept sep setembro set septiembre setiembre",
    "october oct outubro out octubre",
    "november nov novembro noviembre",
    "december dec dezembro dez diciembre dic",
)
_NUMBERS = {name: month for month, names in enumerate(_MONTHS, 1) for name in names.split()}
_NAMES = "|".join(sorted(_NUMBERS, key=len, reverse=True))
_ISO = re.compile(
    r"(?<![\w./-])(\d{4})([-/.])(\d{1,2})\2(\d{1,2})(?![\w/-]|\.\d)(?!:)"
    r"|(?<![\w.-])(\d{4})-(\d\d)-(\d\d)(?=T\d\d|/\d{4}-|(?![\w/:-]|\.\d))"  # also of an interval
)
_COMPACT = re.compile(r"(?<![\w./-])((?:19|20)\d\d)(\d\d)(\d\d)(?=T\d|(?![\w/-]|\.\d))")
_NUMERIC = re.compile(r"(?<![\w./-])(\d{1,2})([-/.])(\d{1,2})\2(\d{4}|\d\d)(?![\w/-]|\.\d)")
_MONTH_YEAR = re.compile(r"(?<![\w./-])(?:(\d{1,2})[/-](\d{4})|(\d{4})[/-](\d{1,2}))(?![\w/-])")
_MONTH = re.compile(rf"\b({_NAMES})\b\.?", re.IGNORECASE)
_DAY_SUFFIX = r"(?:st|nd|rd|th|º|°|\.º|er|o)?"
_DAY_BEFORE = re.compile(
    rf"(?<![\w.,/:])(\d{{1,2}}){_DAY_SUFFIX}(?:[\s-]+|\s*\.\s*|\s+(?:of|de|del)\s+|\s+day\s+of\s+"
    rf"|\s+dias?\s+(?:do\s+m[eê]s\s+)?de\s+)\Z",
    re.IGNORECASE,
)
_FIRST_DAY = re.compile(
    rf"(?<![\w.,/:-])(\d{{1,2}}){_DAY_SUFFIX}\s*(?:-|to|and|until|through|a|al|e|y|até|hasta|&)\s*\Z",
    re.IGNORECASE,
)
_DAY_AFTER = re.compile(
    rf"[\s-]+(?:the\s+)?(\d{{1,2}}){_DAY_SUFFIX}(?![\w:/]|[.,]\d)"
    rf"(?:\s*(?:-|to|and)\s*(\d{{1,2}}){_DAY_SUFFIX}(?![\w:/]))?",
    re.IGNORECASE,
)
_YEAR_AFTER = re.compile(
    r"(?:\s*,\s*|[\s-]+)(?:(?:of|de|del|do\s+ano\s+de|del\s+año|in\s+the\s+year)\s+)?"
    r"(?:(\d{4})(?![\w/]|[.,-]\d)|['’](\d\d)\b|(?<=-)(\d\d)\b)",  # noqa: RUF001
    re.IGNORECASE,
)
_YEAR_BEFORE = re.compile(r"(?<![\w.,/:-])(\d{4})(?:[\s,-]+|\s+de\s+)\Z")
_OF = re.compile(
    r"\s+(?:(?:day\s+)?of|de|del|dias?\s+de|dias?\s+do\s+m[eê]s\s+de)\s+\Z|\s+\Z", re.IGNORECASE
)
_YEAR_JOINT = re.compile(
    r"(?:\s*,\s*|\s+)(?:(?:of|de|del|do\s+ano\s+de|del\s+año|in\s+the\s+year)\s+)?", re.IGNORECASE
)
_DAY_JOINT = re.compile(r"\s+(?:the\s+)?")
#: How far before a month's name its day may begin.
_REACH = 60


class Day(NamedTuple):
    """A stated date; `day` is None where only the month is stated. `order`: how a numeric date was
    read, None where there is one way only."""

    year: int
    month: int
    day: int | None
    order: Literal["dmy", "mdy"] | None = None


def stated_dates(text: str, numbers: Sequence[Stated] | None = None) -> Iterator[Day]:
    """Every date and month that a prepared text states (see `numbers.prepared`).

    `numbers`: those of the text, where they are known.
    """
    for found in _candidates(text, numbers):
        if _exists(found):
            yield found


def chosen(days: Iterable[Day], order: Order = "any") -> frozenset[Day]:
    """The dates that are so stated under an order, and the months of all of them."""
    found = {
        day._replace(order=None) for day in days if order == "any" or day.order in (None, order)
    }
    return frozenset(found | {Day(day.year, day.month, None) for day in found})


def read_date(text: str, order: Order = "any") -> frozenset[Day]:
    """The dates that a value may mean, or its month where it gives no day; empty if it has none."""
    found = chosen(stated_dates(prepared(text)), order)
    return frozenset(day for day in found if day.day is not None) or found


def _exists(found: Day) -> bool:
    try:
        date(found.year, found.month, 1 if found.day is None else found.day)
    except (ValueError, OverflowError):  # a day of thousands of millions, in words
        return False
    return True


def _candidates(text: str, numbers: Sequence[Stated] | None) -> Iterator[Day]:
    for match in _ISO.finditer(text):
        iso = [int(match[i] or match[j]) for i, j in ((1, 5), (3, 6), (4, 7))]
        yield Day(iso[0], iso[1], iso[2])
    for match in _COMPACT.finditer(text):
        yield Day(int(match[1]), int(match[2]), int(match[3]))
    for match in _NUMERIC.finditer(text):
        first, _, second, digits = match.groups()
        year, left, right = _year(digits), int(first), int(second)
        if left == right or right > 12 or left > 12:
            yield Day(year, right, left)
            yield Day(year, left, right)  # of these two at most one exists, or they are the same
        else:
            yield Day(year, right, left, "dmy")
            yield Day(year, left, right, "mdy")
    for match in _MONTH_YEAR.finditer(text):
        yield Day(int(match[2] or match[3]), int(match[1] or match[4]), None)
    yield from _named(text, numbers)


def _year(digits: str) -> int:
    year = int(digits)
    if len(digits) == 4:
        return year
    return 1900 + year if year >= 69 else 2000 + year


# -- months by name -----------------------------------------------------------------------------


class _Spelled(NamedTuple):
    """Numbers in words by where they begin and end."""

    starts: dict[int, Stated]
    ends: dict[int, Stated]


def _named(text: str, numbers: Sequence[Stated] | None) -> Iterator[Day]:
    months = [match for match in _MONTH.finditer(text)]  # noqa: C416  # lets others run, too
    if not months:
        return
    words = [n for n in (stated_numbers(text) if numbers is None else numbers) if n.in_words]
    spelled = _Spelled({n.start: n for n in words}, {n.end: n for n in words})
    for match in months:
        month = _NUMBERS[match[1].lower()]
        year = _year_after(text, match.end(), spelled)
        if year is not None:
            yield Day(year, month, None)
            yield from (Day(year, month, day) for day in _days_before(text, match.start(), spelled))
        days, at = _days_after(text, match.end(), spelled)
        if days:
            year = _year_after(text, at, spelled)
            if year is None:
                earlier = _YEAR_BEFORE.search(text[max(0, match.start() - 16) : match.start()])
                year = int(earlier[1]) if earlier else None
        if year is not None:
            yield from (Day(year, month, day) for day in days)


def _days_before(text: str, start: int, spelled: _Spelled) -> Iterator[int]:
    """The 3 of *3 March*, and the 1 and the 3 of *1 to 3 March*."""
    before = text[max(0, start - _REACH) : start]
    digits = _DAY_BEFORE.search(before)
    if digits:
        yield int(digits[1])
        other = _FIRST_DAY.search(before[: digits.start()])
        if other:
            yield int(other[1])
        return
    joint = _OF.search(before)
    number = spelled.ends.get(start - len(before) + joint.start()) if joint else None
    if number is not None:
        yield int(number.values[0])


def _days_after(text: str, end: int, spelled: _Spelled) -> tuple[list[int], int]:
    """The 3 of *March 3rd*, and where it ends."""
    digits = _DAY_AFTER.match(text, end)
    if digits:
        return [int(part) for part in digits.groups() if part is not None], digits.end()
    joint = _DAY_JOINT.match(text, end)
    number = spelled.starts.get(joint.end()) if joint else None
    if number is not None and number.values[0] <= 31:
        return [int(number.values[0])], number.end
    return [], end


def _year_after(text: str, end: int, spelled: _Spelled) -> int | None:
    digits = _YEAR_AFTER.match(text, end)
    if digits:
        return _year(next(part for part in digits.groups() if part))
    joint = _YEAR_JOINT.match(text, end)
    number = spelled.starts.get(joint.end()) if joint else None
    if number is not None and 1000 <= number.values[0] < 3000 and not number.is_ordinal:
        return int(number.values[0])
    return None
