"""Internet addresses as languages: IPv4, IPv6, URI and IRI with their references.

The productions are those of RFC 3986 (and RFC 3987 for IRIs), by their names, with the narrowing
that each function states.
"""

from __future__ import annotations

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

_OCTET = r"(?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = "[0-9a-fA-F]{1,4}"
#: RFC 3987 `ucschar` without the private use area.
_UCSCHAR = (
    "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef"
    "\U00010000-\U0001fffd\U00020000-\U0002fffd\U00030000-\U0003fffd"
)


def ipv4(builder: RegexBuilder) -> Rx:
    """Four decimal octets without leading zeros."""
    return parse_full(builder, _IPV4)


def ipv6(builder: RegexBuilder) -> Rx:
    """RFC 4291 text forms: eight groups, `::` once for one group or more, an IPv4 tail; no zone."""
    return parse_full(builder, _ipv6_pattern())


def _ipv6_pattern() -> str:
    whole = f"(?:{_H16}:){{7}}{_H16}|(?:{_H16}:){{6}}{_IPV4}"
    forms = [whole]
    for left in range(8):
        before = f"{_H16}(?::{_H16}){{{left - 1}}}" if left else ""
        room = 7 - left
        after = []
        if room:
            after.append(f"{_H16}(?::{_H16}){{0,{room - 1}}}")
        if room >= 2:
            after.append(f"(?:{_H16}:){{0,{room - 2}}}{_IPV4}")
        forms.append(f"{before}::(?:{'|'.join(after)})?" if after else f"{before}::")
    return f"(?:{'|'.join(forms)})"


def uri(builder: RegexBuilder, *, wide: bool) -> Rx:
    """RFC 3986 `URI` (with `wide` RFC 3987 `IRI`, planes 0 to 3, no private use).

    Narrower: the host is a registered name, an IPv4 or an IPv6 address (no future address forms),
    and a port has at most five digits.
    """
    return parse_full(builder, _uri_pattern(wide))


def uri_reference(builder: RegexBuilder, *, wide: bool) -> Rx:
    """RFC 3986 `URI-reference` (with `wide` RFC 3987 `IRI-reference`), narrowed as `uri`."""
    p = _Parts(wide)
    noscheme = f"{p.pchar_without_colon}+(?:/{p.pchar}*)*"
    relative = f"(?://{p.authority}{p.abempty}|{p.absolute}|{noscheme}|){p.tail}"
    return builder.union(parse_full(builder, _uri_pattern(wide)), parse_full(builder, relative))


def _uri_pattern(wide: bool) -> str:
    p = _Parts(wide)
    rootless = f"{p.pchar}+(?:/{p.pchar}*)*"
    hierarchy = f"(?://{p.authority}{p.abempty}|{p.absolute}|{rootless}|)"
    return f"[A-Za-z][A-Za-z0-9+.-]*:{hierarchy}{p.tail}"


class _Parts:
    """The productions that both forms share, as patterns."""

    def __init__(self, wide: bool) -> None:
        escaped = "%[0-9A-Fa-f]{2}"
        letters = f"A-Za-z0-9._~!$&'()*+,;={_UCSCHAR if wide else ''}-"
        self.pchar = f"(?:[:@{letters}]|{escaped})"
        self.pchar_without_colon = f"(?:[@{letters}]|{escaped})"
        userinfo = f"(?:[:{letters}]|{escaped})*@"
        host = rf"(?:\[{_ipv6_pattern()}\]|(?:[{letters}]|{escaped})*)"
        self.authority = rf"(?:{userinfo})?{host}(?::\d{{0,5}})?"
        self.abempty = f"(?:/{self.pchar}*)*"
        self.absolute = f"/(?:{self.pchar}+(?:/{self.pchar}*)*)?"
        query = f"(?:[:@/?{letters}]|{escaped})*"
        self.tail = rf"(?:\?{query})?(?:#{query})?"
