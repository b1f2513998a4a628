"""Host names as languages: RFC 1123, and internationalised ones (RFC 5890 to 5893).

Read next: `grammar.formats`.
"""

from __future__ import annotations

from typing import Final

from grammar import formats_idn
from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

#: Most characters of a host name without its final dot.
MAX_HOST: Final = 253
#: Most labels of a name beyond ASCII; encoded, each has 63 octets at most.
MAX_WIDE_LABELS: Final = 3

_ANY_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: Without hyphens in third and fourth place, which are reserved for encoded names (RFC 5890,
#: section 2.3.1).
_LABEL: Final = (
    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,2}[A-Za-z0-9]"
    "|[A-Za-z0-9-](?:[A-Za-z0-9][A-Za-z0-9-]|-[A-Za-z0-9])[A-Za-z0-9-]{0,58}[A-Za-z0-9])?"
)


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
    """RFC 5890 to 5893: plain names; or up to three labels of `formats_idn`, with plain ones among
    them only where the first is right-to-left."""
    return _bounded(builder, idn_names(builder))


def idn_names(builder: RegexBuilder, *, composed: bool = True) -> Rx:
    """As `idn_hostname`, without the bound on the whole.

    Args:
        builder: makes it.
        composed: labels are in NFC, as RFC 5891, section 4.1, says.
    """
    dot = parse_full(builder, r"[.\u3002\uff0e\uff61]")  # RFC 3490, section 3.1
    left = formats_idn.left_to_right(builder, composed=composed)
    last = builder.intersect(left, parse_full(builder, "[0-9-]*[^0-9-][^]*"))
    right = formats_idn.right_to_left(builder)
    # The Bidi rule holds for all labels of a name that has a right-to-left one.
    strict = builder.intersect(
        parse_full(builder, _LABEL), parse_full(builder, "[A-Za-z][A-Za-z0-9-]*")
    )
    more = MAX_WIDE_LABELS - 1
    after = builder.concat(dot, builder.union(right, strict))
    return builder.union(
        names(builder),
        builder.concat(builder.repeat(builder.concat(left, dot), 0, more), last),
        builder.concat(right, builder.repeat(after, 0, more)),
    )
