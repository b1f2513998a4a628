"""Numbers in digits: which values does a piece of text state, and which digits state none.

Read as numbers: `15`, `1,234.56`, `1.234,56`, `1 234,56`, `1'234.56`, `12,34,567`, `.5`, `1.5e6`,
`1/2`, `1 1/2`, `2½`, `3rd`, `3.º`, `12kg`, `5-year-old`, `05`, and both ends of `10-20`. One
separator before exactly three digits (`1.234`, `1,234`) may group or divide: both readings count,
unless the source writes money or long numbers in one way only, which then settles it.

Read as no number, since the digits belong to something else: dates (`2024-03-03`, `03/03/2024`),
times, versions, codes (`A12`, `COVID-19`, `12.A7`, `007`), telephone numbers, addresses of the web
and of mail. Roman numerals are no numbers either: *Annex II* does not state 2.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

BLANK = "[ \u00a0\u2009\u202f]"
_CLUSTER = re.compile(r"(?<!\d)[.,]?\d+(?:[.,:/'’_-]\d+)*(?:[eE][+-]?\d{1,3}(?![\w.]))?")  # noqa: RUF001
_SPACED = re.compile(
    rf"(?<!\d)(?<!\d[.,:/'-])\d{{1,3}}(?:{BLANK}\d{{3}})+(?:[.,]\d+)?(?!\d)(?![.,:/'-]\d)"
)
_NO_NUMBERS = re.compile(
    r"https?://\S+|www\.\S+|(?<![\w.+-])[\w.+-]++@[\w-]++\.[\w.-]+"  # web, mail
    r"|\+\d[\d ().-]{6,}\d|\(\d{2,4}\) ?\d{3,5}[ -]\d{3,4}"  # telephones
)
_GROUPED = re.compile(r"\d{1,3}(?:([.,'’])\d{3})(?:\1\d{3})*(?:([.,])(\d+))?")  # noqa: RUF001
_LAKH = re.compile(r"\d{1,2}(?:,\d{2})+,\d{3}(?:\.\d+)?")
_DECIMAL = re.compile(r"(\d*)([.,])(\d+)")
_EXPONENT = re.compile(r"(\d+(?:\.\d+)?)[eE]([+-]?\d+)")
_RANGE = re.compile(r"([\d.,'’]+)-([\d.,'’]+)")  # noqa: RUF001
_CURRENCY = re.compile(
    rf"(?:\b(?:EUR|USD|GBP|BRL|MXN|ARS|CLP|COP|PEN|UYU|CHF|JPY|CNY|INR|Rs)|[$€£¥₹¢]){BLANK}?\Z"
)
_MONEY_AFTER = re.compile(rf"{BLANK}?(?:[€£¥₹¢%]|(?:EUR|USD|GBP|BRL)\b)")
_ORDINAL = "st|nd|rd|th|er|ro|do|to|mo|vo|no|ra|da|ta|ma|va|na|º|ª|o|a"
_UNITS = (
    "kg|g|mg|µg|ug|t|lb|lbs|oz|km|m|cm|mm|nm|ft|in|mi|yd|ha|l|L|ml|mL|cl|dl|h|hr|hrs|min|s|sec|ms|ns|"
    "d|y|yr|yrs|W|kW|MW|GW|kWh|MWh|GWh|V|kV|A|mA|Hz|kHz|MHz|GHz|B|kB|KB|MB|GB|TB|K|k|M|MM|m|bn|tn|mn|"
    "C|F|x|px|pt|dpi|fps|mph|bps|pp|pc|p|cal|kcal|J|kJ|Pa|kPa|hPa|bar|mol|bi|tri|mil|million|billion"
)
_SUFFIX = re.compile(rf"(?:{_ORDINAL}|{_UNITS})(?!\w)|[º°ª]")
_DOTTED_ORDINAL = re.compile(rf"\.(?:{_ORDINAL})(?!\w)")
_LETTERS_BEFORE = re.compile(r"[^\W\d_]+\Z")
_CODE_BEFORE = re.compile(r"(?:\w-|[^\W\d_]/|[\\@_%])\Z")
_CODE_AFTER = re.compile(r"[-/.](?:[^\W\d_]{1,2}(?![^\W_])|[^\W\d_]*\d)|[_@\\]")
_VULGAR = {
    "½": Fraction(1, 2), "¼": Fraction(1, 4), "¾": Fraction(3, 4), "⅓": Fraction(1, 3),
    "⅔": Fraction(2, 3), "⅛": Fraction(1, 8), "⅜": Fraction(3, 8), "⅝": Fraction(5, 8),
    "⅞": Fraction(7, 8), "⅕": Fraction(1, 5), "⅖": Fraction(2, 5), "⅗": Fraction(3, 5),
    "⅘": Fraction(4, 5),
}  # fmt: skip
_VULGAR_ONLY = re.compile(rf"(?<!\d)[{''.join(_VULGAR)}]")
_MIXED = re.compile(rf"(?<![\d.,/])(\d+){BLANK}(\d{{1,2}})/(\d{{1,2}})(?![\d/])")


class Stated(NamedTuple):
    """A stated number: its readings, where it stands, and what a fraction of it is a fraction of
    (`scale`: a million, of *two million*)."""

    start: int
    end: int
    values: tuple[Fraction, ...]
    scale: Fraction = Fraction(1)
    in_words: bool = False
    is_ordinal: bool = False


#: More characters than this are no number that anybody states.
_MOST = 100
_ENDLESS = re.compile(rf"\d{{{_MOST},}}")


def blanked(text: str) -> str:
    """The text without what looks like numbers but is addresses, or endless; positions stay."""
    text = _NO_NUMBERS.sub(lambda match: "\n" * len(match[0]), text)
    return _ENDLESS.sub(lambda match: "\n" * len(match[0]), text)


def in_digits(text: str) -> Iterator[Stated]:
    """The numbers that a (blanked) text states in digits, in no particular order."""
    style = _style(text)
    taken: list[tuple[int, int]] = []
    for match in _MIXED.finditer(text):
        whole, above, below = (int(part) for part in match.groups())
        if 0 < above < below and _stands_alone(text, match.start(), match.end()):
            taken.append(match.span())
            yield Stated(*match.span(), (whole + Fraction(above, below),))
    mixed = [*taken]
    for match in _SPACED.finditer(text):
        at = bisect_right(mixed, match.span())
        if (at and mixed[at - 1][1] > match.start()) or not _stands_alone(text, *match.span()):
            continue
        if len(match[0]) > _MOST:
            continue  # a row of numbers
        taken.append(match.span())
        joined = re.sub(BLANK, "", match[0])
        yield Stated(*match.span(), (_plain(joined),))
    taken.sort()
    at = 0
    for match in _CLUSTER.finditer(text):
        start, end = match.span()
        while at < len(taken) and taken[at][1] <= start:
            at += 1
        if (at < len(taken) and taken[at][0] < end) or not _stands_alone(text, start, end):
            continue
        yield from _cluster(text, start, end, style)
    for match in _VULGAR_ONLY.finditer(text):
        yield Stated(*match.span(), (_VULGAR[match[0]],))


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether the digits are no part of a code."""
    before = text[max(0, start - 8) : start]
    letters = _LETTERS_BEFORE.search(before)
    if (letters or before[-1:] == "_") and not _CURRENCY.search(before):
        return False
    if _CODE_BEFORE.search(before):
        return False
    after = text[end : end + 12]
    if after[:1].isalpha() or after[:1] == "°":
        return bool(_SUFFIX.match(after))
    return bool(_DOTTED_ORDINAL.match(after)) or not _CODE_AFTER.match(after)


def _cluster(text: str, start: int, end: int, style: str | None) -> Iterator[Stated]:
    body = text[start:end]
    if body[0] in ".,":
        if start and (text[start - 1].isalnum() or text[start - 1] in ")]"):
            body, start = body[1:], start + 1  # the end of a sentence without a space
        elif "." in body[1:] or "," in body[1:]:
            return
    if end < len(text) and text[end] in _VULGAR and body.isdigit():
        yield Stated(start, end + 1, (int(body) + _VULGAR[text[end]],))
        return
    span = _RANGE.fullmatch(body)
    if span:
        yield from _range(span, start, style)
        return
    if body.count("/") == 1 and body.replace("/", "").isdigit():
        above, below = (int(part) for part in body.split("/"))
        if above <= 100 and 0 < below <= 100:
            yield Stated(start, end, (Fraction(above, below),))
        return
    if "," in body and re.fullmatch(r"\d{1,2}(?:,\d{1,2}){2,}", body):
        at = start
        for part in body.split(","):  # 1,2,3: a list
            yield Stated(at, at + len(part), (Fraction(int(part)),))
            at += len(part) + 1
        return
    values = readings(body, style)
    if values:
        yield Stated(start, end, values)


def _range(span: re.Match[str], start: int, style: str | None) -> Iterator[Stated]:
    low, high = readings(span[1], style), readings(span[2], style)
    shape = (len(span[1]), len(span[2]))
    is_plain = span[0].replace("-", "").isdigit()
    if (
        not low
        or not high
        or max(low) >= max(high)
        or (is_plain and (max(shape) > 4 or shape == (3, 4)))
    ):
        return
    for part, values in ((1, low), (2, high)):
        yield Stated(start + span.start(part), start + span.end(part), values)


@lru_cache(4096)
def readings(body: str, style: str | None = None) -> tuple[Fraction, ...]:
    """The values that digits with separators may have; none if they are no number.

    `style`: the decimal separator that the source settles on, or None.
    """
    if len(body) > _MOST:
        return ()
    if body.isdigit():
        return (Fraction(int(body)),) if len(body) < 3 or body[0] != "0" else ()
    exponent = _EXPONENT.fullmatch(body)
    if exponent:
        return (Fraction(exponent[1]) * Fraction(10) ** int(exponent[2]),)
    if _LAKH.fullmatch(body):
        return (Fraction(body.replace(",", "")),)
    grouped = _GROUPED.fullmatch(body)
    decimal = _DECIMAL.fullmatch(body)
    found: list[Fraction] = []
    if grouped and body[0] != "0":
        mark, point = grouped[1], grouped[2]
        if point != mark:
            digits = body if point is None else body[: grouped.start(2)]
            whole = "".join(char for char in digits if char.isdigit())
            value = Fraction(f"{whole}.{grouped[3] or 0}")
            if point is not None or decimal is None or style != mark:
                found.append(value)
    if decimal:
        value = Fraction(f"{decimal[1] or 0}.{decimal[3]}")
        if not found or style is None or style == decimal[2]:
            found.append(value)
    return tuple(dict.fromkeys(found))


def _plain(body: str) -> Fraction:
    return Fraction(body.replace(",", "."))


def _style(text: str) -> str | None:
    """The decimal separator that the source's long numbers and its money agree upon, or None."""
    found: set[str] = set()
    for match in re.finditer(r"(?<![\w.,:/-])\d+(?:[.,]\d+)+(?![\w:/-]|[.,]\d)", text):
        body = match[0]
        marks = [char for char in body if char in ".,"]
        if len(marks) > 1 and _GROUPED.fullmatch(body):
            if marks[-1] == marks[0]:
                found.add("," if marks[0] == "." else ".")
            else:
                found.add(marks[-1])
        elif len(marks) == 1 and re.fullmatch(r"\d+[.,]\d\d", body):
            before = text[max(0, match.start() - 6) : match.start()]
            if _CURRENCY.search(before) or _MONEY_AFTER.match(text, match.end()):
                found.add(marks[0])
    return found.pop() if len(found) == 1 else None
