"""The numbers that a source states, in digits or in words, with what belongs to them.

- *3 million*, *3,5 mil*, *dos millones*, *R$ 2 bi*, *10k*, *a dozen*: the product; the 3 alone is
  not stated. *3 million 200 thousand*: the sum.
- *two and a half*, *um milhão e meio*, *half a million*, *three quarters*, *one half*.
- *15 %*, *fifteen per cent*, *quinze por cento*: both 15 and 0.15, since fields want either; a ‰ is
  a thousandth.
- *-5*, *minus five*, *menos cinco*: -5, and not 5. At the beginning of a line a hyphen may
  also be a bullet, so that both count.
- *first*, *3rd*, *vigésimo primeiro*: the cardinal number.

Read next: `numerals.py` for digits, `numberwords.py` for words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from server.grounding.numberwords import in_words
from server.grounding.numerals import BLANK, Stated, blanked, in_digits

_K, _M, _G, _T = (Fraction(10**n) for n in (3, 6, 9, 12))
_MULTIPLIERS = {
    **dict.fromkeys(("hundred", "centena", "centenas"), Fraction(100)),
    **dict.fromkeys(("thousand", "mil", "milhar", "milhares", "millar", "millares"), _K),
    **dict.fromkeys(
        ("million", "millions", "milhão", "milhões", "milhao", "milhoes", "millón", "millones",
         "millon", "mi", "mn", "mio"), _M),
    **dict.fromkeys(
        ("billion", "billions", "bilhão", "bilhões", "bilhao", "bilhoes", "bi", "bn"), _G),
    **dict.fromkeys(
        ("trillion", "trillions", "trilhão", "trilhões", "tri", "tn", "billón", "billones",
         "billon", "bilião", "biliões"), _T),
    **dict.fromkeys(("dozen", "dozens", "dúzia", "dúzias", "duzia", "duzias", "docena", "docenas"),
                    Fraction(12)),
}  # fmt: skip
#: Most of them in a row: *a hundred thousand million*.
_MOST_MULTIPLIERS = 4
#: Letters that multiply where they stand at the digits; in lower case only after a currency.
_LETTERS = {"k": _K, "K": _K, "M": _M, "MM": _M, "bn": _G, "B": _G, "mi": _M, "bi": _G, "tn": _T}
_MONEY_LETTERS = {"m": _M, "b": _G, "t": _T}
_WORD_AFTER = re.compile(rf"(?:{BLANK}|\s)?(?:of a )?([^\W\d_]{{1,20}}+)(?![^\W\d_])")
_LETTERS_AFTER = re.compile(r"[^\W\d_]{1,3}+(?![^\W\d_])")
_AND_A_HALF = re.compile(r"\s+(?:and\s+(?:a|one)\s+half|e\s+mei[oa]|y\s+medi[oa])\b", re.IGNORECASE)
_HALF_OF = re.compile(r"\b(?:half|mei[oa]|medi[oa])\s+(?:an?\s+)?([^\W\d_]+)", re.IGNORECASE)
_HALF = re.compile(r"\b(?:half|metade|mitad)\b", re.IGNORECASE)
_DOZEN = re.compile(r"\b(?:dozen|dúzia|duzia|docena)\b", re.IGNORECASE)
_PARTS = re.compile(
    r"\s+(?:(quarters?|quartos?|cuartos?)|(thirds?|terços?|tercios?)|(halves)|(fifths|quintos)"
    r"|(eighths|oitavos|octavos)|(tenths|décimos))\b",
    re.IGNORECASE,
)
_BELOW = (4, 3, 2, 5, 8, 10)
_PERCENT = re.compile(
    rf"(?:{BLANK}|\s)*(?:%|per\s?cent\b|percent\b|pct\b|por\s+c(?:ento|iento|ien)\b|p\.\s?c\.)",
    re.IGNORECASE,
)
_TO = re.compile(rf"{BLANK}?-{BLANK}?\d[\d.,]*")  # the rest of a range
_PERMILLE = re.compile(rf"{BLANK}*‰")
_MINUS_WORD = re.compile(r"\b(?:minus|negative|menos|negativos?)\s+\Z", re.IGNORECASE)
_MINUS = re.compile(
    rf"(?:^|(?<=[\s(\[{{=:;,<>~\"']))[-\u2212](?:(?:[A-Z]{{1,3}})?[$€£¥₹]{BLANK}?)?\Z"
)
_BULLET = re.compile(r"(?:^|\n)[ \t]*-\Z")
_CURRENCY = re.compile(rf"[$€£¥₹]{BLANK}?\Z")
_COMMA = re.compile(r",\s+(?:(?:and|e|y)\s+)?", re.IGNORECASE)
_AND = re.compile(r"\s+(?:(?:and|e|y)\s+)?", re.IGNORECASE)
_DASHES = str.maketrans(
    {**dict.fromkeys("‐‑‒–﹣－", "-"), **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", "")}  # noqa: RUF001
)


def prepared(text: str) -> str:
    """The text in which numbers and dates are looked for: composed, with one kind of hyphen."""
    return unicodedata.normalize("NFC", text).translate(_DASHES)


def stated_numbers(text: str) -> list[Stated]:
    """All numbers of a prepared text, in its order; products, sums and fractions are put together,
    and what they are made of is left out. Signs and per cents are not looked at yet."""
    text = blanked(text)
    found = [*in_digits(text), *in_words(text), *_halves_and_dozens(text)]
    found = _without_inner([_multiplied(text, number) for number in found])
    return _without_inner([*_sums(text, found), *found])


def values_of(
    text: str, numbers: Sequence[Stated] | None = None
) -> Iterator[tuple[Fraction, Stated]]:
    """Every value that a prepared text states, with the number that states it.

    `numbers`: those of the text, where they are known.
    """
    clean = blanked(text)
    previous = -1
    for number in stated_numbers(text) if numbers is None else numbers:
        for value in _signed(clean, number, previous):
            yield value, number
        previous = number.end


def read_number(text: str) -> frozenset[Fraction]:
    """The values that a short text may mean as a whole; empty if it holds no number, or several."""
    numbers: dict[tuple[int, int], set[Fraction]] = {}
    for value, number in values_of(prepared(text.strip())):
        numbers.setdefault((number.start, number.end), set()).add(value)
    return frozenset(next(iter(numbers.values()))) if len(numbers) == 1 else frozenset()


def exact(value: Any) -> Fraction:
    """A JSON number's value as it is written: 0.1 is a tenth."""
    return Fraction(value) if isinstance(value, int) else Fraction(Decimal(repr(value)))


# -- putting together ---------------------------------------------------------------------------


def _multiplied(text: str, number: Stated) -> Stated:
    """The number with the multipliers, halves and parts that follow it."""
    number = _letters(text, number)
    number = _words(text, number)
    half = _AND_A_HALF.match(text, number.end)
    if half and not number.is_ordinal:
        values = tuple(value + number.scale / 2 for value in number.values)
        number = _words(text, number._replace(end=half.end(), values=values))
    parts = _PARTS.match(text, number.end)
    if parts and parts.lastindex and not number.is_ordinal:
        below = _BELOW[parts.lastindex - 1]
        values = tuple(value / below for value in number.values)
        number = number._replace(end=parts.end(), values=values)
    return number


def _letters(text: str, number: Stated) -> Stated:
    letters = None if number.in_words else _LETTERS_AFTER.match(text, number.end)
    if letters is None:
        return number
    factor = _LETTERS.get(letters[0])
    if factor is None and _CURRENCY.search(text, max(0, number.start - 3), number.start):
        factor = _MONEY_LETTERS.get(letters[0])
    return number if factor is None else _times(number, factor, letters.end())


def _words(text: str, number: Stated) -> Stated:
    if number.in_words and not number.is_ordinal:  # the library has read the multipliers it knows
        last = text[number.start : number.end].split()[-1].lower()
        number = number._replace(scale=_MULTIPLIERS.get(last, number.scale))
    for _ in range(_MOST_MULTIPLIERS):
        word = _WORD_AFTER.match(text, number.end)
        factor = _MULTIPLIERS.get(word[1].lower()) if word else None
        if word is None or factor is None or number.is_ordinal:
            break
        if number.in_words and text[number.end] not in " \u00a0":
            break
        number = _times(number, factor, word.end())
    return number


def _times(number: Stated, factor: Fraction, end: int) -> Stated:
    values = tuple(value * factor for value in number.values)
    return number._replace(end=end, values=values, scale=number.scale * factor)


def _halves_and_dozens(text: str) -> Iterator[Stated]:
    for match in _HALF_OF.finditer(text):
        factor = _MULTIPLIERS.get(match[1].lower())
        if factor is not None:
            yield Stated(*match.span(), (factor / 2,), scale=factor, in_words=True, is_ordinal=True)
    for match in _HALF.finditer(text):
        yield Stated(*match.span(), (Fraction(1, 2),), in_words=True, is_ordinal=True)
    for match in _DOZEN.finditer(text):
        yield Stated(*match.span(), (Fraction(12),), Fraction(12), in_words=True)


def _without_inner(numbers: Iterable[Stated]) -> list[Stated]:
    """In the order of the text; what lies within a longer one is left out."""
    result: list[Stated] = []
    end = -1
    for number in sorted(numbers, key=lambda n: (n.start, -n.end)):
        last = result[-1] if result else None
        if last is not None and (number.start, number.end) == (last.start, last.end):
            values = dict.fromkeys((*last.values, *number.values))
            result[-1] = last._replace(values=tuple(values))
        elif number.end > end:
            result.append(number)
            end = number.end
    return result


def _sums(text: str, numbers: list[Stated]) -> Iterator[Stated]:
    """*3 million 200 thousand*, *2 mil 500*, *one thousand, two hundred*: smaller numbers that
    follow a thousand or a million are added. (Words without a comma the library has added.)"""
    at = 0
    while at < len(numbers):
        total, at = numbers[at], at + 1
        scale = total.scale
        joint = _COMMA if total.in_words else _AND
        while at < len(numbers) and scale >= 1000:
            following = numbers[at]
            if following.in_words != total.in_words or following.is_ordinal:
                break
            if max(following.values) >= scale:
                break
            if not joint.fullmatch(text, total.end, following.start):
                break
            values = tuple(a + b for a in total.values for b in following.values)
            scale = following.scale
            total = total._replace(end=following.end, values=values)
            at += 1
        yield total


def _signed(text: str, number: Stated, previous: int) -> tuple[Fraction, ...]:
    """The values with sign and per cent."""
    values = number.values
    before = text[max(0, number.start - 14) : number.start]
    if _MINUS.search(before) and (previous < 0 or text[previous : number.start].strip() != "-"):
        negative = tuple(-value for value in values)
        values = (*values, *negative) if _BULLET.search(before) else negative
    elif _MINUS_WORD.search(before):
        values = tuple(-value for value in values)
    rest = _TO.match(text, number.end)
    if _PERCENT.match(text, rest.end() if rest else number.end):
        values = (*values, *(value / 100 for value in values))
    elif _PERMILLE.match(text, number.end):
        values = (*values, *(value / 1000 for value in values))
    return values
