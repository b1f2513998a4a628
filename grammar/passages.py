"""The passages of a source: which of its substrings may be extracted, and how JSON writes them.

The source is one byte string, as it would stand between the quotes of a JSON string: UTF-8 with the
short escapes, and ``\\u00XX`` for the other control characters. That is the one spelling in which
passages are written. Where a passage may begin and end is the unit's affair:

- ``characters``: anywhere between two characters (code points).
- ``words``: not within a word or number, and not beside white space. Letters, digits, marks and
  the underscore make words; so do an apostrophe between letters, and one of ``.,:/-`` between
  digits. Scripts without spaces (East Asia, Thai, Khmer, ...) have a border at every character.
- ``sentences``: whole sentences, one or several in a row. A sentence ends with ``.``, ``!``, ``?``
  or ``…`` (and closing quotes or brackets) before white space that no small letter follows, with
  their full-width forms anywhere, and at a line break that no small letter follows. Full stops of
  common abbreviations, initials and list numbers in English, Portuguese and Spanish end none.

No passage is empty. Every passage of sentences is one of words, and every one of words is one of
characters. Read next: ``extract.py``, the terminal that admits passages only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

UNITS: Final = ("characters", "words", "sentences")
"""From the finest to the coarsest."""
UNSPACED: Final = (
    (0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x2E80, 0xD7FF), (0xF900, 0xFAFF),
    (0xFF66, 0xFFDC), (0x20000, 0x3FFFF),
)  # fmt: skip
"""Scripts without spaces between words: Thai to Lao, Myanmar, Khmer, and East Asia."""

_SHORT = {0x22: b'\\"', 0x5C: b"\\\\", 8: b"\\b", 12: b"\\f", 10: b"\\n", 13: b"\\r", 9: b"\\t"}
_ESCAPES = {c: (_SHORT.get(c) or b"\\u%04x" % c).decode() for c in (*range(0x20), 0x22, 0x5C)}
_STOPS = re.compile(
    "[.!?\u2026]+[\"'\u201d\u2019\u00bb)\\]]*(?=\\s|\\Z)"
    "|[\u3002\uff01\uff1f]+[\"'\u201d\u2019\u300d\u300f\uff09]*"
    "|(?=\\n)"
)
_ABBREVIATIONS = frozenset(
    {
        "mr", "mrs", "ms", "dr", "prof", "st", "jr", "sr", "vs", "etc", "no", "nos", "art", "arts",
        "inc", "ltd", "co", "corp", "fig", "cap", "cf", "ed", "eds", "e.g", "i.e", "p", "pp", "vol",
        "al", "approx", "dept", "gen", "gov", "sen", "rep", "rev", "hon", "sra", "srta", "dra",
        "drs", "exmo", "exma", "ex", "lda", "ltda", "cia", "av", "n", "núm", "num", "nº", "pág",
        "págs", "pag", "tel", "ud", "uds", "vd", "p.ex", "p.e", "d", "jan", "feb", "mar", "apr",
        "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "fev", "abr", "mai", "ago", "set",
        "out", "dez", "ene",
    }
)  # fmt: skip


class Passages:
    """A source and where its passages begin and end.

    Arrays over the E encoded bytes and N characters:

    - ``encoded`` bytes[E]; ``bytes`` uint8[E], the same.
    - ``after`` int32[E+1]: the number of characters that are begun before byte ``p``: where a byte
      string that ends at ``p`` has got to, a character that is only begun counted.
    - ``between`` bool[E+1]: whether ``p`` is a border between two characters.
    - ``starts`` int32[S]: the bytes where passages may begin.
    - ``is_end`` bool[N+1]: whether one may end before character ``i``.
    - ``may_end`` bool[E+1]: whether one may end before byte ``p``.
    - ``last_end``, ``next_end`` int32[N+1]: the last end at ``i`` or before it, or -1; the next one
      at ``i`` or behind it, or N+1.
    - ``borders`` int32[N+1]: the byte before which character ``i`` begins.
    - ``codes`` int32[N]: the characters.

    Args:
        source: the text.
        unit: one of ``UNITS``.

    Raises:
        ValueError: the text holds a lone surrogate, which no UTF-8 can carry.
    """

    def __init__(self, source: str, unit: str) -> None:
        self.source = source
        self.unit = unit
        self.encoded = source.translate(_ESCAPES).encode()
        self.bytes = np.frombuffer(self.encoded, dtype=np.uint8)
        codes = np.frombuffer(source.encode("utf-32-le"), dtype="<u4").astype(np.int32)
        self.codes: Ints = codes
        widths = 1 + (codes >= 0x80).astype(np.int32) + (codes >= 0x800) + (codes >= 0x10000)
        for code, text in _ESCAPES.items():
            widths[codes == code] = len(text)
        borders: Ints = np.zeros(len(codes) + 1, dtype=np.int32)
        np.cumsum(widths, out=borders[1:])
        self.borders = borders
        self.after: Ints = np.zeros(len(self.encoded) + 1, dtype=np.int32)
        self.after[1:] = np.repeat(np.arange(1, len(codes) + 1, dtype=np.int32), widths)
        self.between: Flags = np.zeros(len(self.encoded) + 1, dtype=bool)
        self.between[borders] = True
        begins, self.is_end = _BORDERS[unit](source, codes)
        self.may_end: Flags = self.between & self.is_end[self.after]
        index = np.arange(len(codes) + 1, dtype=np.int32)
        self.last_end: Ints = np.maximum.accumulate(np.where(self.is_end, index, np.int32(-1)))
        following = np.where(self.is_end, index, np.int32(len(codes) + 1))
        self.next_end: Ints = np.minimum.accumulate(following[::-1])[::-1]
        self._begins = begins
        self.starts: Ints = borders[:-1][begins]

    def __contains__(self, text: str) -> bool:
        """Whether the text is a passage."""
        at = self.source.find(text) if text else -1
        while at >= 0:
            if self._begins[at] and self.is_end[at + len(text)]:
                return True
            at = self.source.find(text, at + 1)
        return False

    def ahead(self, places: Ints) -> npt.NDArray[np.uint64]:
        """The eight bytes that follow each place, as a number: uint64[n]; zeros behind the end."""
        padded = np.frombuffer(self.encoded + bytes(8), dtype=np.uint8)
        found = np.zeros(len(places), dtype=np.uint64)
        for step in range(8):
            found = found << np.uint64(8) | padded[places + step]
        return found

    def memory_bytes(self) -> int:
        """An estimate, in bytes."""
        ends = (self.last_end, self.next_end)
        arrays = (self.after, self.starts, self.borders, self.codes, *ends)
        texts = 4 * len(self.encoded) + 6 * len(self.source)
        return sum(array.nbytes for array in arrays) + texts


# -- units --------------------------------------------------------------------------------------


def _by_character(source: str, codes: Ints) -> tuple[Flags, Flags]:
    ends = np.ones(len(codes) + 1, dtype=bool)
    ends[0] = False
    return np.ones(len(codes), dtype=bool), ends


def _by_word(source: str, codes: Ints) -> tuple[Flags, Flags]:
    count = len(codes)
    blank = _of_each(codes, str.isspace)
    word = _of_each(codes, _is_word)
    digit = _of_each(codes, str.isdigit)
    joiner = np.isin(codes, [ord(char) for char in "'\u2019"])
    point = np.isin(codes, [ord(char) for char in ".,:/-"])
    joined = np.zeros(count + 1, dtype=bool)  # whether i - 1 and i belong together
    if count > 1:
        joined[1:count] = word[:-1] & word[1:]
    if count > 2:
        inner = joiner[1:-1] & word[:-2] & word[2:] | point[1:-1] & digit[:-2] & digit[2:]
        joined[1 : count - 1] |= inner
        joined[2:count] |= inner
    begins = ~joined[:count] & ~blank
    ends = ~joined
    ends[0] = False
    ends[1:] &= ~blank
    return begins, ends


def _is_word(char: str) -> bool:
    if not (char.isalnum() or char == "_" or unicodedata.category(char).startswith("M")):
        return False
    return not is_unspaced(char)


def is_unspaced(char: str) -> bool:
    """Whether the character's script is written without spaces between words."""
    return any(low <= ord(char) <= high for low, high in UNSPACED)


def _of_each(codes: Ints, holds: Callable[[str], bool]) -> Flags:
    """A property of the characters, asked once for each that occurs."""
    different, where = np.unique(codes, return_inverse=True)
    flags = np.fromiter((holds(chr(code)) for code in different.tolist()), bool, len(different))
    return flags[where]


def _by_sentence(source: str, codes: Ints) -> tuple[Flags, Flags]:
    begins = np.zeros(len(codes), dtype=bool)
    ends = np.zeros(len(codes) + 1, dtype=bool)
    at = 0
    for end in (*_stops(source, codes), len(source)):
        while at < end and source[at].isspace():
            at += 1
        last = end
        while last > at and source[last - 1].isspace():
            last -= 1
        if at < last:
            begins[at] = ends[last] = True
            at = last
    return begins, ends


def _stops(source: str, codes: Ints) -> Iterator[int]:
    """Where sentences end."""
    index = np.arange(len(codes) + 1, dtype=np.int32)
    index[:-1][_of_each(codes, str.isspace)] = len(codes)
    visible = np.minimum.accumulate(index[::-1])[::-1]  # the next character that is no blank
    for match in _STOPS.finditer(source):
        end = match.end()
        if match[0] and match[0][0] in "\u3002\uff01\uff1f":
            yield end
            continue
        follows = int(visible[end])
        if source[follows : follows + 1].islower():
            continue
        if match[0] != "." or not _is_short(source, match.start()):
            yield end


def _is_short(source: str, stop: int) -> bool:
    """Whether the full stop at ``stop`` belongs to an abbreviation, an initial or a list number."""
    start = stop
    while start and stop - start < 8 and not source[start - 1].isspace():
        start -= 1
    word = source[start:stop].lstrip("([\"'")
    if word.lower() in _ABBREVIATIONS or (len(word) == 1 and word.isupper()):
        return True
    return word.isdigit() and len(word) < 4 and (start == 0 or source[start - 1] == "\n")


_BORDERS: dict[str, Callable[[str, Ints], tuple[Flags, Flags]]] = {
    "characters": _by_character,
    "words": _by_word,
    "sentences": _by_sentence,
}
