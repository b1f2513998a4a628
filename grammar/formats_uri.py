"""Internet addresses as languages: IPv4, IPv6, URI and IRI with their references.

The productions are those of RFC 3986 (and RFC 3987 for IRIs), by their names.
"""

from __future__ import annotations

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

_OCTET = r"(?:\d|[1-9]\d|1\d\d|2[0-4]\d|25[0-5])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"
_H16 = "[0-9a-fA-F]{1,4}"
#: RFC 3987, section 2.2, for classes of characters.
UCSCHAR = "\u00a0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef" + "".join(
    f"{chr((plane << 16) + (0x1000 if plane == 14 else 0))}-{chr((plane << 16) + 0xFFFD)}"
    for plane in range(1, 15)
)
IPRIVATE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"


def ipv4(builder: RegexBuilder) -> Rx:
    """Four decimal octets without leading zeros."""
    return parse_full(builder, _IPV4)


def ipv6(builder: RegexBuilder) -> Rx:
    """RFC 4291 text forms: eight groups, `::` once for one group or more, an IPv4 tail; no zone."""
    return parse_full(builder, _ipv6_pattern())


def address_literal(builder: RegexBuilder) -> Rx:
    """RFC 5321 `address-literal`: `[1.2.3.4]` or `[IPv6:...]`, there `::` for two groups or more.

    Narrower: IPv4 numbers without leading zeros; no other tags, since none is registered.
    """
    return parse_full(builder, rf"\[(?:{_IPV4}|[Ii][Pp][Vv]6:{_ipv6_pattern(2)})\]")


def _ipv6_pattern(least: int = 1) -> str:
    """IPv6 addresses in which `::` stands for that many groups at least."""
    whole = f"(?:{_H16}:){{7}}{_H16}|(?:{_H16}:){{6}}{_IPV4}"
    forms = [whole]
    for left in range(9 - least):
        before = f"{_H16}(?::{_H16}){{{left - 1}}}" if left else ""
        room = 8 - least - left
        after = []
        if room:
            after.append(f"{_H16}(?::{_H16}){{0,{room - 1}}}")
        if room >= 2:
            after.append(f"(?:{_H16}:){{0,{room - 2}}}{_IPV4}")
        forms.append(f"{before}::(?:{'|'.join(after)})?" if after else f"{before}::")
    return f"(?:{'|'.join(forms)})"


def uri(builder: RegexBuilder, *, wide: bool) -> Rx:
    """RFC 3986 `URI` (with `wide` RFC 3987 `IRI`), whole."""
    return parse_full(builder, _uri_pattern(wide))


def uri_reference(builder: RegexBuilder, *, wide: bool) -> Rx:
    """RFC 3986 `URI-reference` (with `wide` RFC 3987 `IRI-reference`), whole."""
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
        letters = f"A-Za-z0-9._~!$&'()*+,;={UCSCHAR if wide else ''}-"
        self.pchar = f"(?:[:@{letters}]|{escaped})"
        self.pchar_without_colon = f"(?:[@{letters}]|{escaped})"
        userinfo = f"(?:[:{letters}]|{escaped})*@"
        future = r"[Vv][0-9A-Fa-f]+\.[:A-Za-z0-9._~!$&'()*+,;=-]+"
        host = rf"(?:\[(?:{_ipv6_pattern()}|{future})\]|(?:[{letters}]|{escaped})*)"
        self.authority = rf"(?:{userinfo})?{host}(?::\d*)?"
        self.abempty = f"(?:/{self.pchar}*)*"
        self.absolute = f"/(?:{self.pchar}+(?:/{self.pchar}*)*)?"
        fragment = f"(?:[:@/?{letters}]|{escaped})*"
        query = f"(?:[:@/?{IPRIVATE}{letters}]|{escaped})*" if wide else fragment
        self.tail = rf"(?:\?{query})?(?:#{fragment})?"
