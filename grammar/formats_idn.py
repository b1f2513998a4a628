"""Labels of internationalised host names as languages: RFC 5890 to 5893.

The alphabets are runs of letters of the scripts in widest use that the derived property allows (RFC
5892, section 3), chosen so that no two of them compose (RFC 5891, section 4.1: NFC); a few ranges
each, since every state of the language lists them. The contextual rules (appendix A) and the Bidi
rule (RFC 5893, section 2) are those of the standards.

Narrower: those alphabets; at most `MAX_SIZE` characters, which Punycode (RFC 3492) writes in 59
octets at most, whichever they are (found by dynamic programming over its deltas and biases); no two
hyphens in a row.

Read next: `grammar.formats_host`, names made of such labels.
"""

from __future__ import annotations

from typing import Final

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

#: Most characters of a label that has some beyond ASCII.
MAX_SIZE: Final = 14

#: Latin (with the letters of the larger languages of Europe, Turkish and Vietnamese), Cyrillic,
#: Armenian, Georgian, Hangul, and a Tibetan exception; Persian digits count as European ones.
LETTERS: Final = (
    r"a-z0-9\u00df-\u00f6\u00f8-\u00ff\u0101\u0103\u0105\u0107\u010d\u010f\u0111\u0113\u0117\u0119"
    r"\u011b\u011f\u0123\u012b\u012f\u0131\u0137\u013c\u0142\u0144\u0146\u0148\u0151\u0153\u0155"
    r"\u0159\u015b\u015f\u0161\u0165\u016b\u016f\u0171\u0173\u017a\u017c\u017e\u01a1\u01b0\u0219"
    r"\u021b\u0430-\u045f\u0561-\u0586\u0f0b\u10d0-\u10fa\u06f0-\u06f9\u3005\u3007\u3400-\u4dbf\uac00-\ud7a3"
)
GREEK: Final = r"\u03ac-\u03ce"
#: What the katakana middle dot needs in its label: kana, Han.
KANA: Final = r"\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff"
DEVANAGARI: Final = r"\u0904-\u0939"
THAI: Final = r"\u0e01-\u0e30\u0e32\u0e40-\u0e45"
HEBREW: Final = r"\u05d0-\u05ea"
#: Letters that join on both sides, with the one before only, and others.
DUAL: Final = (
    r"\u0626\u0628\u062a-\u062e\u0633-\u063a\u0641-\u0647\u0649\u064a\u067e\u0686\u06a9\u06af\u06cc"
)
RIGHT: Final = r"\u0622-\u0625\u0627\u0629\u062f-\u0632\u0648\u0698"
OTHER: Final = r"\u0621\u06fd\u06fe"

#: Vowel signs and tones, which compose with nothing: they begin no label.
_SIGNS: Final = r"\u0e31\u0e34-\u0e37\u0e48-\u0e4b"
_ACCENTS: Final = r"\u0300-\u0304\u0306-\u030c"
_VOWELS: Final = r"[\u0901-\u0903\u093e-\u094c]"
_JOINED: Final = r"\u094d[\u200c\u200d]?"
#: A letter with what depends on it: a middle dot stands between two `l`, a Greek numeral sign
#: before Greek, joiners behind a virama, and a katakana middle dot here beside kana or Han.
_UNIT: Final = (
    rf"(?:[{LETTERS}{GREEK}{THAI}]|l(?:\u00b7l)+|\u0375[{GREEK}]"
    rf"|[{DEVANAGARI}]{_VOWELS}*(?:{_JOINED})?|\u30fb?[{KANA}]\u30fb?)"
)


def left_to_right(builder: RegexBuilder, *, composed: bool) -> Rx:
    """Labels without right-to-left letters; those of ASCII letters and digits among them.

    `composed`: none has accents apart from their letters.
    """
    signs = _SIGNS if composed else _SIGNS + _ACCENTS
    return _of_size(builder, rf"{_UNIT}(?:-?{_UNIT}|[{signs}])*")


def right_to_left(builder: RegexBuilder) -> Rx:
    """Labels that begin with a right-to-left letter (RFC 5893, section 2, conditions 1 to 4)."""
    joined = rf"(?:[{DUAL}]\u200c)+[{DUAL}{RIGHT}]"  # RFC 5892, A.1
    unit = rf"(?:[{DUAL}{RIGHT}{OTHER}]|[{HEBREW}][\u05f3\u05f4]?|{joined})"
    numbers = "|".join(
        rf"-?[{digits}](?:-?(?:{unit}|[{digits}]))*"
        for digits in (r"0-9\u06f0-\u06f9", r"\u0660-\u0669")
    )
    return _of_size(builder, rf"{unit}(?:-?{unit})*(?:{numbers})?")


def _of_size(builder: RegexBuilder, pattern: str) -> Rx:
    label = parse_full(builder, pattern)
    return builder.intersect(label, builder.repeat(builder.any_char, 1, MAX_SIZE))
