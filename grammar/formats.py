"""The `format` keyword's string formats as languages.

Each is a sub-language of what the standard behind the format allows, and of what the common
validators accept: nothing invalid is ever generated, and the usual spellings are all there. Where a
format is narrower than its standard, its function says so.

Read next: `grammar.formats_uri` for the URI family, `grammar.formats_regex` for `regex`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from grammar import formats_regex, formats_uri
from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

_LABEL: Final = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#: Labels without two hyphens in a row, which internationalised names reserve in one place.
_PLAIN_LABEL: Final = "[a-z0-9](?:-?[a-z0-9])*"
#: Letters that every version of IDNA allows anywhere in a left-to-right label.
_IDN: Final = "a-zß-öø-ÿα-ωа-яぁ-ゖァ-ヺ一-龥가-힣"
_ATEXT: Final = "A-Za-z0-9!#$%&'*+/=?^_`{|}~-"
_TIME: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,18})?"
_OFFSET: Final = r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"

#: Most characters of a host name without its final dot.
MAX_HOST: Final = 253


def format_language(builder: RegexBuilder, name: str) -> Rx | None:
    """The language of a format, or None for a name that is unknown.

    Raises:
        RegexBudgetError: the builder's fuel ran out.
    """
    make = _FORMATS.get(name)
    return None if make is None else make(builder)


def may_be_of_format(builder: RegexBuilder, name: str) -> Rx | None:
    """Every string that anybody might take for one of the format, and more; None for no such bound.

    What is outside is certainly not of the format, also for lenient validators.
    """
    pattern = _AT_MOST.get(name)
    return None if pattern is None else parse_full(builder, pattern)


def date(builder: RegexBuilder) -> Rx:
    """RFC 3339 full-date: years 0001 to 9999, month lengths and leap years exact."""
    days = (
        r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
        r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
    )
    fours = "(?:0[48]|[2468][048]|[13579][26])"
    leap = rf"(?:\d\d{fours}|{fours}00)-02-29"
    return parse_full(builder, rf"(?!0000)(?:\d{{4}}-{days}|{leap})")


def time(builder: RegexBuilder) -> Rx:
    """RFC 3339 full-time with its offset; up to 18 fraction digits, no leap second (:60)."""
    return parse_full(builder, _TIME + _OFFSET)


def date_time(builder: RegexBuilder) -> Rx:
    """RFC 3339 date-time: `date`, a capital T, `time`."""
    return builder.concat(date(builder), builder.literal("T"), time(builder))


def duration(builder: RegexBuilder) -> Rx:
    """RFC 3339, appendix A: whole numbers of up to nine digits, no unit left out between two."""
    n = r"\d{1,9}"
    clock = f"T(?:{n}H(?:{n}M(?:{n}S)?)?|{n}M(?:{n}S)?|{n}S)"
    day = f"(?:{n}Y(?:{n}M(?:{n}D)?)?|{n}M(?:{n}D)?|{n}D)"
    return parse_full(builder, f"P(?:{n}W|{day}(?:{clock})?|{clock})")


def hostname(builder: RegexBuilder) -> Rx:
    """RFC 1123: labels of 1 to 63 letters, digits and inner hyphens, 253 characters in all.

    Narrower: no trailing dot, no label with hyphens in third and fourth place (those are reserved
    for encoded names), and the last label holds a letter, so that the name is no IPv4 address.
    """
    names = parse_full(builder, rf"(?:(?!..--){_LABEL}\.)*(?!..--)(?=[0-9-]*[A-Za-z]){_LABEL}")
    return builder.intersect(names, builder.repeat(builder.any_char, 1, MAX_HOST))


def email(builder: RegexBuilder) -> Rx:
    """RFC 5321 with a dot-atom of up to 64 characters and a host name; no quoted local part."""
    local = builder.intersect(
        parse_full(builder, rf"[{_ATEXT}]+(?:\.[{_ATEXT}]+)*"),
        builder.repeat(builder.any_char, 1, 64),
    )
    return builder.concat(local, builder.literal("@"), hostname(builder))


def idn_email(builder: RegexBuilder) -> Rx:
    """RFC 6531: as `email`, with an `idn_hostname`, and in the local part all characters from
    U+00A1 on too (the RFC's are those from U+0080 on, controls and the no-break space included)."""
    atext = f"[\u00a1-\ud7ff\ue000-\U0010ffff{_ATEXT}]"
    local = builder.intersect(
        parse_full(builder, rf"{atext}+(?:\.{atext}+)*"), builder.repeat(builder.any_char, 1, 64)
    )
    hosts = builder.union(hostname(builder), idn_hostname(builder))
    return builder.concat(local, builder.literal("@"), hosts)


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


def ipv4(builder: RegexBuilder) -> Rx:
    """Four decimal octets without leading zeros."""
    return formats_uri.ipv4(builder)


def ipv6(builder: RegexBuilder) -> Rx:
    """RFC 4291 text forms: `::` at most once, an IPv4 tail allowed; no zone."""
    return formats_uri.ipv6(builder)


def uuid(builder: RegexBuilder) -> Rx:
    """RFC 4122: 8-4-4-4-12 hexadecimal digits in either case."""
    h = "[0-9a-fA-F]"
    return parse_full(builder, f"{h}{{8}}-{h}{{4}}-{h}{{4}}-{h}{{4}}-{h}{{12}}")


def json_pointer(builder: RegexBuilder) -> Rx:
    """RFC 6901, whole."""
    return parse_full(builder, r"(?:/(?:[^~/]|~[01])*)*")


def relative_json_pointer(builder: RegexBuilder) -> Rx:
    """A count of levels, then `#` or a JSON pointer.

    Narrower: the count has a zero at its end only, as a common validator rejects others.
    """
    return parse_full(builder, r"(?:0|[1-9]{1,8}0?)(?:#|(?:/(?:[^~/]|~[01])*)*)")


def uri_template(builder: RegexBuilder) -> Rx:
    """RFC 6570 to level 4, over ASCII; variable names of letters, digits and underscores.

    Narrower: a prefix length has at most three digits, as a common validator rejects four."""
    name = "[A-Za-z0-9_]+(?:\\.[A-Za-z0-9_]+)*"
    variable = f"{name}(?::[1-9]\\d{{0,2}}|\\*)?"
    expression = rf"\{{[+#./;?&]?{variable}(?:,{variable})*\}}"
    literal = r"[!#$&(-;=?-\[\]_a-z~]|%[0-9A-Fa-f]{2}"
    return parse_full(builder, f"(?:{literal}|{expression})*")


_FORMATS: Final[dict[str, Callable[[RegexBuilder], Rx]]] = {
    "regex": formats_regex.regex,
    "date": date,
    "time": time,
    "date-time": date_time,
    "duration": duration,
    "email": email,
    "idn-email": idn_email,
    "hostname": hostname,
    "idn-hostname": idn_hostname,
    "ipv4": ipv4,
    "ipv6": ipv6,
    "uri": partial(formats_uri.uri, wide=False),
    "uri-reference": partial(formats_uri.uri_reference, wide=False),
    "iri": partial(formats_uri.uri, wide=True),
    "iri-reference": partial(formats_uri.uri_reference, wide=True),
    "uri-template": uri_template,
    "uuid": uuid,
    "json-pointer": json_pointer,
    "relative-json-pointer": relative_json_pointer,
}

_AT_MOST: Final[dict[str, str]] = {
    "date": r"\d{4}-?(?:\d\d-?\d\d|W\d\d(?:-?\d)?)",
    "time": r"\d[^]*",
    "date-time": r"\d[^]*",
    "duration": r"[+-]?[Pp][^]*",
    "email": r"[^]*@[^]*",
    "idn-email": r"[^]*@[^]*",
    "hostname": r"[A-Za-z0-9_.-]*",
    "ipv4": r"[0-9A-Fa-fXx.]*",
    "ipv6": r"[^]*:[^]*",
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[^]*",
    "iri": r"[A-Za-z][A-Za-z0-9+.-]*:[^]*",
    "uuid": r"[0-9A-Fa-f-]*",
    "json-pointer": r"(?:/[^]*)?",
    "relative-json-pointer": r"\d[^]*",
}
"""Patterns that the strings of a format match from end to end, and perhaps others."""
NEGATABLE: Final = frozenset(_AT_MOST)
"""The formats for which ``may_be_of_format`` has a bound."""
