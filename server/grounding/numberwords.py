"""Numbers in words, in English, Portuguese and Spanish.

Cardinals and ordinals are found by the library text2num. Added here, because it does not know
them: missing accents and the Spanish apocope *veintiún*; what only looks like a number (*segunda-
feira* is Monday, *por cento* is no hundred, *a second* is a time); and years in pairs (*nineteen
ninety-eight*). What is built from several of them (*two and a half million*) is in `numbers.py`.

*One*, *um*, *uma*, *un*, *una* count as 1, although they are articles, too: the number 1 is stated
by nearly every text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from text_to_num import find_numbers  # type: ignore[import-untyped]

from server.grounding.numerals import Stated

LANGUAGES = ("en", "pt", "es")
_TOKEN = re.compile(r"[^\W\d_]+|\d+|\W|_")
#: The library looks at some so many tokens at a time, up to one that ends a sentence.
_PART = 4_000
_ENDS = frozenset(";!?()")
#: Words that no other of the three languages uses so often.
_TELLTALES = {
    "en": "the of and is to in for with was are on by at from",
    "pt": "o os do da dos das não em um uma com ao à no na pelo pela é são",
    "es": "el los las del y en con un una lo al por es son su sus más",
}
_ALIASES = {
    "es": {
        "veintiún": "veintiuno", "veintiun": "veintiuno", "veintidos": "veintidós",
        "veintitres": "veintitrés", "veintiseis": "veintiséis", "dieciseis": "dieciséis",
        "millon": "millón", "decimo": "décimo", "septimo": "séptimo",
        "primer": "primero", "tercer": "tercero",
    },
    "pt": {"tres": "três", "milhao": "milhão", "milhoes": "milhões", "decimo": "décimo"},
    "en": {"sixtieth": "sixty", "o": "-", "oh": "-"},  # the latter it takes for zeros
}  # fmt: skip
#: What is hidden from the library: the words are a name, a part of "per cent", or a time.
_HIDDEN = re.compile(
    r"\b(?:segunda|terça|terca|quarta|quinta|sexta)(?=-feira)"
    r"|\bpor\s+c(?:ento|iento|ien)\b|\bper\s+cent\b"
    r"|\b(?:hundreds|thousands|millions|billions|milhões|bilhões|millones|miles)\s+(?:of|de)\b"
    r"|\b(?:per|a|each|every)\s+second\b"
    r"|\bsegund[oa](?=\s+(?:[oa]s?|el|l[ao]s?)\b)",
    re.IGNORECASE,
)


class _Token:
    """A word as text2num wants it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def text(self) -> str:
        return self._text

    def nt_separated(self, previous: object) -> bool:
        return False

    def not_a_number_part(self) -> bool:
        return False


def languages_of(words: Iterable[str]) -> Sequence[str]:
    """The languages that a text is in; all of them where that is not clear."""
    found = Counter(words)
    counts = {
        language: sum(found[word] for word in telltales.split())
        for language, telltales in _TELLTALES.items()
    }
    most = max(counts.values())
    if most < 3:
        return LANGUAGES
    return [language for language, count in counts.items() if 5 * count >= most]


def in_words(text: str) -> Iterator[Stated]:
    """The numbers that a text states in words, in no particular order; some may contain others."""
    hidden = _HIDDEN.sub(lambda match: "\n" * len(match[0]), text)
    matches = [match for match in _TOKEN.finditer(hidden)]  # noqa: C416  # lets others run, too
    words = [match[0].lower() for match in matches]
    different = set(words)
    for language in languages_of(words):
        aliases = _ALIASES[language]
        kinds = {word: _Token(aliases.get(word, word)) for word in different}
        tokens = [kinds[word] for word in words]
        found = [
            Stated(
                matches[first + occurrence.start].start(),
                matches[first + occurrence.end - 1].end(),
                (_value(occurrence.text, occurrence.value),),
                in_words=True,
                is_ordinal=occurrence.is_ordinal,
            )
            for first, part in _parts(tokens)
            for occurrence in find_numbers(part, language, -1.0)
        ]
        yield from _years(found, text) if language == "en" else found


def _parts(tokens: Sequence[_Token]) -> Iterator[tuple[int, Sequence[_Token]]]:
    """The tokens in parts that no number crosses, and where each begins: the library holds on to
    Python's lock while it looks, and everybody else in the process would wait."""
    start = 0
    for at, token in enumerate(tokens):
        if at - start >= _PART and token.text() in _ENDS:
            yield start, tokens[start : at + 1]
            start = at + 1
    yield start, tokens[start:]


def _value(text: str, value: float) -> Fraction:
    """The exact value: the library's float holds no more than 15 digits."""
    digits = re.match(r"\d+(?:[.,]\d+)?", text)
    return Fraction(digits[0].replace(",", ".")) if digits else Fraction(value)


def _years(found: list[Stated], text: str) -> Iterator[Stated]:
    """*Nineteen ninety-eight*: two numbers of two digits as one."""
    skip = False
    for i, number in enumerate(found):
        if skip:
            skip = False
            continue
        after = found[i + 1] if i + 1 < len(found) else None
        if after is not None and text[number.end : after.start] == " ":
            high, low = number.values[0], after.values[0]
            plain = not number.is_ordinal and not after.is_ordinal
            if plain and 11 <= high <= 99 and 10 <= low <= 99:
                skip = True
                yield Stated(number.start, after.end, (100 * high + low,), in_words=True)
                continue
        yield number
