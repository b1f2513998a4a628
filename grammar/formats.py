"""The `format` keyword's string formats as languages.

Each is a sub-language of what the standard behind the format allows, and of what the common
validators accept: nothing invalid is ever generated, and the usual spellings are all there. Where a
format is narrower than its standard, its function says so.

Read next: `grammar.formats_time`, `grammar.formats_host`, `grammar.formats_mail`,
`grammar.formats_uri` for the URI family, `grammar.formats_regex` for `regex`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from grammar import formats_host, formats_mail, formats_regex, formats_time, formats_uri
from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx


def format_language(builder: RegexBuilder, name: str, *, early: bool = False) -> Rx | None:
    """The language of a format, or None for a name that is unknown.

    Args:
        builder: makes it.
        name: the format.
        early: as drafts up to 4 mean it.

    Raises:
        RegexBudgetError: the builder's fuel ran out.
    """
    make = _EARLY.get(name) if early else None
    make = make or _FORMATS.get(name)
    return None if make is None else make(builder)


def may_be_of_format(builder: RegexBuilder, name: str) -> Rx:
    """Every string of the format as its standard has it; and more, if the format is not `WHOLE`.

    What is outside is certainly not of the format.
    """
    return _FORMATS[name](builder) if name in WHOLE else parse_full(builder, _AT_MOST[name])


def uuid(builder: RegexBuilder) -> Rx:
    """RFC 4122: 8-4-4-4-12 hexadecimal digits in either case."""
    h = "[0-9a-fA-F]"
    return parse_full(builder, f"{h}{{8}}-{h}{{4}}-{h}{{4}}-{h}{{4}}-{h}{{12}}")


def json_pointer(builder: RegexBuilder) -> Rx:
    """RFC 6901, whole."""
    return parse_full(builder, r"(?:/(?:[^~/]|~[01])*)*")


def relative_json_pointer(builder: RegexBuilder) -> Rx:
    """A count of levels, then `#` or a JSON pointer (draft-handrews-relative-json-pointer-01)."""
    return parse_full(builder, r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)")


def uri_template(builder: RegexBuilder) -> Rx:
    """RFC 6570 to level 4, and apostrophes in literals (erratum 6937).

    Narrower: no operators that are reserved for extensions (section 2.2).
    """
    character = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})"
    name = f"{character}+(?:\\.{character}+)*"
    variable = f"{name}(?::[1-9]\\d{{0,3}}|\\*)?"
    expression = rf"\{{[+#./;?&]?{variable}(?:,{variable})*\}}"
    beyond = formats_uri.UCSCHAR + formats_uri.IPRIVATE
    literal = rf"[!#$&-;=?-\[\]_a-z~{beyond}]|%[0-9A-Fa-f]{{2}}"
    return parse_full(builder, f"(?:{literal}|{expression})*")


_FORMATS: Final[dict[str, Callable[[RegexBuilder], Rx]]] = {
    "regex": formats_regex.regex,
    "date": formats_time.date,
    "time": formats_time.time,
    "date-time": formats_time.date_time,
    "duration": formats_time.duration,
    "email": partial(formats_mail.email, wide=False),
    "idn-email": partial(formats_mail.email, wide=True),
    "hostname": formats_host.hostname,
    "idn-hostname": formats_host.idn_hostname,
    "ipv4": formats_uri.ipv4,
    "ipv6": formats_uri.ipv6,
    "uri": partial(formats_uri.uri, wide=False),
    "uri-reference": partial(formats_uri.uri_reference, wide=False),
    "iri": partial(formats_uri.uri, wide=True),
    "iri-reference": partial(formats_uri.uri_reference, wide=True),
    "uri-template": uri_template,
    "uuid": uuid,
    "json-pointer": json_pointer,
    "relative-json-pointer": relative_json_pointer,
}
_EARLY: Final[dict[str, Callable[[RegexBuilder], Rx]]] = {
    "hostname": formats_host.plain_hostname,
}
"""What drafts up to 4 mean by a name: they know no encoded host names."""

WHOLE: Final = frozenset(
    {
        "duration", "ipv4", "ipv6", "uri", "uri-reference", "iri", "iri-reference", "uuid",
        "json-pointer",
    }
)  # fmt: skip
"""The formats whose language is all that their standard allows."""

_CLOCK: Final = (
    r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
)
_AT_MOST: Final[dict[str, str]] = {
    "date": formats_time.DATE,
    "time": _CLOCK,
    "date-time": rf"\d{{4}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])[Tt]{_CLOCK}",
    "email": r"[^]*@[^]*",
    "idn-email": r"[^]*@[^]*",
    "hostname": r"[A-Za-z0-9_.-]*",
    "idn-hostname": r"[A-Za-z0-9_.\u0080-\u{10ffff}-]*",
    "uri-template": (
        r"(?:[^\x00-\x20\x22<>\\^`{|}\x7f]|\{[+#./;?&=,!@|]?[^\x00-\x20\x22<>\\^`{|}\x7f]+\})*"
    ),
    "relative-json-pointer": r"(?:0|[1-9]\d*)(?:[+-][1-9]\d*)?(?:#|(?:/(?:[^~/]|~[01])*)*)",
    "regex": r"(?![*+?)])[^]*",
}
"""Patterns that the strings of the other formats match from end to end, and perhaps more."""
