"""Host names as languages: RFC 1123, and internationalised ones (RFC 5890 to 5893).

Read next: `grammar.formats`.
"""

from __future__ import annotations

from typing import Final

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

#: Most characters of a host name without its final dot.
MAX_HOST: Final = 253

_ANY_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: Without hyphens in third and fourth place, which are reserved for encoded names (RFC 5890,
#: section 2.3.1).
_LABEL: Final = (
    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9]"
    "|[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])?"
)
#: Labels without two hyphens in a row, which internationalised names reserve in one place.
_PLAIN_LABEL: Final = "[a-z0-9](?:-?[a-z0-9])*"
#: Letters that every version of IDNA allows anywhere in a left-to-right label.
_IDN: Final = "a-zß-öø-ÿα-ωа-яぁ-ゖァ-ヺ一-龥가-힣"


def hostname(builder: RegexBuilder) -> Rx:
    """RFC 1123: labels of 1 to 63 letters, digits and inner hyphens, 253 characters in all.

    Narrower: no trailing dot, no label with hyphens in third and fourth place, and the last label
    holds a letter, so that the name is no IPv4 address (section 2.1).
    """
    return _bounded(builder, names(builder))


def plain_hostname(builder: RegexBuilder) -> Rx:
    """RFC 1123 alone, as drafts up to 4 say: hyphens anywhere within, encoded names unread."""
    return _bounded(builder, _names(builder, _ANY_LABEL))


def names(builder: RegexBuilder) -> Rx:
    """As `hostname`, without the bound on the whole."""
    return _names(builder, _LABEL)


def _names(builder: RegexBuilder, label: str) -> Rx:
    return parse_full(builder, rf"(?:{label}\.)*(?=[0-9-]*[A-Za-z])(?:{label})")


def _bounded(builder: RegexBuilder, language: Rx) -> Rx:
    return builder.intersect(language, builder.repeat(builder.any_char, 1, MAX_HOST))


def idn_hostname(builder: RegexBuilder) -> Rx:
    """Conservative RFC 5890 names.

    Plain host names in lower case, without two hyphens in a row; or one to three labels of up to 12
    lower-case Latin, Greek, Cyrillic, kana, Han or Hangul letters, that no rule of bidirectional
    text, context or normalisation restricts.
    """
    size = builder.repeat(builder.any_char, 1, 63)
    label = builder.intersect(parse_full(builder, _PLAIN_LABEL), size)
    last = builder.intersect(parse_full(builder, f"(?=[0-9-]*[a-z]){_PLAIN_LABEL}"), size)
    plain = builder.intersect(
        builder.concat(builder.star(builder.concat(label, builder.literal("."))), last),
        builder.repeat(builder.any_char, 1, MAX_HOST),
    )
    wide = parse_full(builder, rf"[{_IDN}]{{1,12}}(?:\.[{_IDN}]{{1,12}}){{0,2}}")
    return builder.union(plain, wide)
