"""When two texts are the same: what `verbatim` and `quote` forgive, and nothing else.

- Unicode's composed and decomposed forms are one (NFC); soft hyphens, zero-width spaces and joiners
  and byte-order marks do not count.
- A run of white space of any kind (line breaks, no-break spaces) is one space; at the ends of a
  value it does not count.
- Typographic quotes and primes are straight ones, hyphens, dashes and the minus sign are ``-``, and
  the ellipsis is three dots.

Upper and lower case, accents, words and punctuation must be the same (case only unless the rule
says ``ignore``). A value must not begin or end within a word or a number of the source: *Ann* does
not occur in *Annex*, nor 12 in 2012. Scripts that are written without spaces have no such borders.
"""

from __future__ import annotations

import re
import unicodedata

from grammar.passages import is_unspaced

_SAME = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′ʼ‹›", "'"),  # noqa: RUF001
        **dict.fromkeys("“”„‟″«»", '"'),
        **dict.fromkeys("‐‑‒–—―−⁃﹣－", "-"),  # noqa: RUF001
        **dict.fromkeys("\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
        "…": "...",
    }
)
_BLANKS = re.compile(r"\s+")


def normal(text: str) -> str:
    """The text in the form in which texts are compared."""
    return _BLANKS.sub(" ", unicodedata.normalize("NFC", text).translate(_SAME))


def find(value: str, source: str) -> int:
    """Where a normal value occurs in a normal source as a whole, or -1."""
    at = source.find(value)
    while at >= 0:
        end = at + len(value)
        begins = at == 0 or not _joined(source[at - 1], source[at])
        if begins and (end == len(source) or not _joined(source[end - 1], source[end])):
            return at
        at = source.find(value, at + 1)
    return -1


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours belong to one word or number."""
    return _is_word(left) and _is_word(right)


def _is_word(char: str) -> bool:
    if not (char.isalnum() or char == "_" or unicodedata.combining(char)):
        return False
    return not is_unspaced(char)
