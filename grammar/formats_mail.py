"""E-mail addresses as languages: RFC 5321 mailboxes and, with `wide`, those of RFC 6531.

Read next: `grammar.formats_host`, `grammar.formats_uri`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from grammar import formats_host
from grammar.charset import SCALAR_RANGES
from grammar.ecma import parse_full
from grammar.formats_uri import address_literal
from grammar.regular import RegexBuilder
from grammar.rx import Rx

#: RFC 5321, section 4.5.3.1.1, in octets.
MAX_LOCAL: Final = 64
#: A path's 256 (section 4.5.3.1.3) without its brackets; so the domain has at most 252.
MAX_ADDRESS: Final = 254
_ATEXT: Final = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_QTEXT: Final = r"\x20\x21\x23-\x5b\x5d-\x7e"
_BEYOND: Final = r"\u0080-\ud7ff\ue000-\u{10ffff}"


def email(builder: RegexBuilder, *, wide: bool) -> Rx:
    """RFC 5321 `Mailbox` (with `wide` of RFC 6531): a dot-string or quoted string of at most 64
    octets, and a host name or an address literal; 254 characters in all.

    Labels of wide hosts need not be in NFC: who sends mail normalises them (RFC 6532, section 3.1).

    Narrower: no blank behind a backslash, which a common validator rejects; host names as
    `formats_host` says.
    """
    beyond = _BEYOND if wide else ""
    atoms = rf"[{beyond}{_ATEXT}]+(?:\.[{beyond}{_ATEXT}]+)*"
    quoted = rf'"(?:[{beyond}{_QTEXT}]|\\[\x21-\x7e])*"'
    local = parse_full(builder, f"{atoms}|{quoted}")
    limit = builder.automaton(_OCTETS, MAX_LOCAL) if wide else None
    local = builder.intersect(local, limit or builder.repeat(builder.any_char, 1, MAX_LOCAL))
    hosts = formats_host.idn_names(builder, composed=False) if wide else formats_host.names(builder)
    domain = builder.union(hosts, address_literal(builder))
    address = builder.concat(local, builder.literal("@"), domain)
    return builder.intersect(address, builder.repeat(builder.any_char, 1, MAX_ADDRESS))


class _Octets:
    """Words of at most so many octets in UTF-8; the states are the numbers left."""

    def accepts(self, state: Hashable) -> bool:
        return True

    def row(self, state: Hashable) -> Iterable[tuple[int, int, Hashable]]:
        assert isinstance(state, int)
        before, after = SCALAR_RANGES
        spans = ((0, 0x7F, 1), (0x80, 0x7FF, 2), (0x800, before[1], 3), (after[0], 0xFFFF, 3),
                 (0x10000, after[1], 4))  # fmt: skip
        return [(lo, hi, state - size) for lo, hi, size in spans if size <= state]


_OCTETS: Final = _Octets()
