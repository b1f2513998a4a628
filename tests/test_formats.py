"""Format languages against an independent checker, on generated words and on known cases."""

from __future__ import annotations

import datetime
import ipaddress
import json
import random
import re
import unicodedata
from collections.abc import Callable, Hashable

import jsonschema_rs
import pytest

from grammar import formats_idn as idn
from grammar import formats_time
from grammar.ecma import parse_full
from grammar.formats import format_language
from grammar.regular import RegexBuilder, Rx
from tests.grammar_support import accepts, compiled, random_walk

# RFC 5892, appendices A.1 to A.9 and section 2.6; RFC 5893, section 2; RFC 3490, section 3.1.
IDN_VALID = [
    "실례.테스트",
    "\u4f8b\u3048.jp",
    "example.com",
    "bücher.example",
    "a-b-c.de",
    "1host",
    "a" * 63,
    "x1.y-2.z3",
    "EXAMPLE.Com",
    "a--b",
    "\u0915\u093e\u094d\u200d\u0937.\u092d\u093e\u0930\u0924",
    "\u092a\u0924\u094d\u200c\u0928\u0940",
    "\u0646\u0627\u0645\u0647\u200c\u0627\u06cc.\u0627\u06cc\u0631\u0627\u0646",
    "col\u00b7lecci\u00f3.cat",
    "\u03b1\u0375\u03b1",
    "\u05d1\u05f3\u05d2.\u05d3\u05f4\u05d4",
    "\u30a2\u30fb\u30a4",
    "\u30fb\u4e01",
    "\u0645\u0663\u0645",
    "\u0645\u06f4\u0645",
    "\u06f1\u06f2a",
    "fuß.gr",
    "\u03c3\u03af\u03b3\u03bc\u03b1\u03c2",
    "\u0f0b\u3007",
    "\u06fd\u06fe",
    "\u043f\u0440\u0438\u043c\u0435\u0440.\u0440\u0444",
    "\u0e15\u0e31\u0e27\u0e2d\u0e22\u0e48\u0e32\u0e07.\u0e44\u0e17\u0e22",
    "a\uff0eb\uff61c",
    "\u05e9\u05dc\u05d5\u05dd.example.ab1",
]
IDN_INVALID = [
    "",
    "-a",
    "a-",
    "a" * 64,
    "1.2",
    "ä.1",
    "\u302e한",
    "xn--x",
    "a b",
    "ä-",
    "-ä",
    "a\u3002",
    "\u3002a",
    "a\u00b7l",
    "l\u00b7a",
    "l\u00b7",
    "\u00b7l",
    "\u03b1\u0375a",
    "\u03b1\u0375",
    "\u05f3\u05d0",
    "a\u05f3",
    "\u30fb",
    "a\u30fbb",
    "\u0645\u0663\u06f4",
    "\u0645\u06634",
    "\u0627\u200d\u0628",
    "\u0915\u200c\u0937",
    "\u0627\u200c",
    "\u093e",
    "É.de",
    "a\u0301",
    "ä" * 15,
    "0a.\u05d0\u05d1",
    "1.\u05d0\u05d1",
    "a\u05d0",
    "\u05d0a",
    "\u05d11.1a",
    "\ufb01",
    "\uff41",
    "ab--ä",
    "\u0640\u0645",
    "\u093c",
    "\u05d0\u05d1.-a",
]

VALID = {
    "date": ["2024-02-29", "2000-02-29", "0004-02-29", "0001-01-01", "9999-12-31", "1999-04-30"],
    # RFC 3339, 5.6 and 5.7: the second 60 where UTC is 23:59:60, T and Z in either case.
    "time": ["00:00:00Z", "23:59:59.999+23:59", "12:30:00-08:00", "00:00:00-00:00", "01:02:03z",
             "12:00:00." + "5" * 40 + "Z", "23:59:60Z", "23:59:60.25z", "23:59:60-00:00",
             "23:59:60+00:00", "05:29:60+05:30", "00:44:60+00:45", "00:14:60-23:45",
             "23:44:60+23:45", "14:59:60.999-09:00"],
    "date-time": ["2024-02-29T23:59:59Z", "1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00",
                  "1990-12-31T23:59:60Z", "1990-12-31T15:59:60-08:00", "1997-06-30t23:59:60z",
                  "1997-07-01T02:29:60.5+02:30", "1999-01-01T00:59:60+01:00",
                  "2024-02-29T23:59:60Z", "2023-02-28T23:59:60Z", "2023-03-01T00:14:60+00:15"],
    "duration": ["P1Y", "P1Y2M3D", "P4W", "PT36H", "P1DT12H", "PT1M30S", "P3DT4H5M6S",
                 "PT" + "9" * 60 + "S"],
    # RFC 5321, 4.1.2 and 4.1.3.
    "email": ["a@b", "joe.bloggs@example.com", "te~st@example.com", "x+y@sub.example.org",
              '"a b"@c.org', '"a..b@c,"@d', '"\\"\\\\"@d.e', '""@d.e', "a@[10.0.0.255]",
              "a@[IPv6:2001:db8::1]", "a@[ipv6:::]", "a@[IPv6:1:2:3:4:5:6:7:8]",
              "a@[IPv6:::ffff:1.2.3.4]", "a" * 64 + "@b"],
    "hostname": ["www.example.com", "a", "xn-1.example", "a" * 63, "1host.example", "EXAMPLE.com",
                 "1host", "a--b", "a-b--c.d", "ab-c"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.0.1", "10.20.30.249"],
    "ipv6": ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1", "1:2:3:4:5:6:7::",
             "::2:3:4:5:6:7:8", "fe80::a:b", "1:2:3:4:5:6:1.2.3.4", "1::4:1.2.3.4", "::1.2.3.4"],
    # RFC 3986, 3.2.2 (IPvFuture) and 3.2.3 (ports).
    "uri": ["http://foo.bar/?baz=qux#quux", "urn:oasis:names:specification:docbook:dtd:xml:4.1.2",
            "mailto:John.Doe@example.com", "ldap://[2001:db8::7]/c=GB?objectClass?one",
            "http://user:pw@host:8080/a/b;c=1/%20?q=x", "file:///etc/passwd", "tel:+1-816",
            "http://[v1F.a:b+c]:/", "http://[VA.~]", "http://h:0123456789/"],
    "uri-reference": ["", "/abc", "//host/x", "a/b", "#frag", "?q", "../x", "http://a/b", "./a:b",
                      "//[v1.x]"],
    # RFC 3987, 2.2: ucschar to plane 14, iprivate in queries.
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://example.com/", "x:/\U000e1000\U000efffd",
            "x:?\ue000\U00100000", "http://[v1.a]/é"],
    "iri-reference": ["/ƒ/é", "#ƒräg", "", "?\uf8ff"],
    # RFC 6570, 2.1 to 2.4.
    "uri-template": ["http://example.com/{term:1}/{term}", "{+path,x}/here", "{?q*,lang}",
                     "/a%20", "{&a.b}", "{;x,y}", "", "é\U0001f600\ue000", "{a:9999}",
                     "{%C3%A9.b_1}", "a'b"],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
    "json-pointer": ["", "/", "/foo/0", "/a~1b/~0", "/é/ "],
    "relative-json-pointer": ["0", "1/0", "0#", "10/a", "2/~01", "100", "1203/a"],
    # RFC 6531, 3.3.
    "idn-email": ["실례@실례.테스트", "joe@example.com", '"δοκιμή x"@a.b', "\u0085@a",
                  "é@[1.2.3.4]", "a@cafe\u0301.org", "\uffff\U0010ffff@a", "é" * 32 + "@a",
                  "\U0001f600" * 16 + "@a"],
    "idn-hostname": IDN_VALID,
}  # fmt: skip

INVALID = {
    "date": ["2023-02-29", "1900-02-29", "2024-04-31", "2024-13-01", "24-01-01",
             "0000-02-29", "2024-1-1", "2024-00-10", "2024-01-00", "2024-02-30"],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z", "12:00:00+24:00", "08:30:06 PST", "12:00Z",
             "12:00:00.Z", "22:59:60Z", "23:58:60Z", "23:59:60+01:00", "23:59:60-01:00",
             "23:59:61Z", "00:59:60-01:00", "23:59:60", "23:59:60.Z", "T12:00:00Z"],
    "date-time": ["2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00",
                  "1990-12-30T23:59:60Z", "2024-02-28T23:59:60Z", "2023-02-29T23:59:60Z",
                  "1990-12-31T00:59:60+01:00", "1991-01-01T23:59:60Z", "1991-01-02T00:59:60+01:00",
                  "0000-12-31T23:59:60Z", "0000-01-01T00:00:00Z",
                  "1990-12-31T15:59:60Z", "1900-02-29T23:59:60Z"],
    "duration": ["P", "PT", "P1", "1Y", "P1Y2D", "PT1H1S", "P1W1D", "P1YT", "p1y", "PT1.5S"],
    "email": ["", "@", "a@", "@b", "a b@c", ".a@b", "a.@b", "a..b@c", "a@b..c", "a" * 65 + "@b",
              '"a@b', 'a"b@c', '"a"b"@c', '"\\"@c', "a@[1.2.3]", "a@[1.2.3.256]", "a@[::1]",
              "a@[IPv6:1:2:3:4:5:6:7::]", "a@[IPv6:1]", "a@[x:y]", '"é"@a', "é@a", '"\t"@a',
              "a@" + ".".join(["b" * 50] * 5)],
    "hostname": ["", ".", "-a", "a-", "a..b", "a_b", "a" * 64, "a.", "é.com", "1.2.3.4",
                 ".".join(["a" * 62] * 5), "xn--x.com", "a.1", "12", "a.1-2", "ab--c",
                 "ab--", "a1--b.c", "a.bc--d"],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "1.2.3.4 ", "1..2.3"],
    "ipv6": [":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1::", "12345::", "::1%eth0",
             "1:2:3:4:5:6:7:8::", "::1.2.3", "1:2:3:4:5:6:7:1.2.3.4", "1:2:3:4:5:6::7:8"],
    "uri": ["//foo.bar/", "/abc", "foo", "http:// x", ":// x", "a b:c", "http://a/%zz", "1a:b",
            "http://[::1", "http://é/", "bar,baz:foo", "http://[v.a]", "http://[v1.]",
            "http://[fe80::1%25en1]", "http://a:1a/"],
    "uri-reference": ["\\\\WINDOWS\\x", "#frag\\ment", "a:b c", "%", "1a:b"],
    "iri": ["http://2001:0db8::7334", "/abc", "é", "http://a b", "x:\ue000", "x:#\ue000",
            "x:\ufdd0", "x:\U000e0fff", "x:\U0001ffff"],
    "iri-reference": ["\\\\x", "#ƒräg\\mênt", "\ue000"],
    "uri-template": ["{", "}", "{}", "{a", "{a:0}", "{a,}", " ", "{!a}", "{a..b}", "%2",
                     "{a:12345}", "{%4}", "{é}", "\x7f", "\ufdd0", '"', "{.a.}"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638", "x"],
    "json-pointer": ["a", "/~", "/~2", "#/a"],
    "relative-json-pointer": ["", "-1", "01", "/a", "0##", "1a", "00", "1+1"],
    "idn-email": ["@", "a@", "é", "é" * 33 + "@a", "\U0001f600" * 17 + "@a", "a@é-", "\x7f@a"],
    "idn-hostname": IDN_INVALID,
}  # fmt: skip


def checker(name: str) -> Callable[[str], bool]:
    """The format as another implementation has it (one that follows the RFCs to the letter)."""
    validator = jsonschema_rs.Draft202012Validator({"format": name}, validate_formats=True)
    return validator.is_valid


@pytest.fixture(scope="module")
def builder() -> RegexBuilder:
    return RegexBuilder(budget=20_000_000)


def random_word(language: Rx, rng: random.Random, patience: int) -> str:
    """A random walk that ends at random, or soon after `patience` steps."""
    text, state = "", language
    while True:
        rows = state.transitions()
        if state.nullable and (not rows or rng.random() < 0.08 or len(text) > patience):
            return text
        if len(text) > patience:
            # Head for the end: the target from which it is nearest.
            lo, hi, state = min(rows, key=lambda row: row[2].min_length())
        else:
            lo, hi, state = rng.choice(rows)
        text += chr(rng.choice((lo, hi, rng.randint(lo, hi))))


@pytest.mark.parametrize("name", sorted(VALID))
def test_generated_words_satisfy_the_checker(builder: RegexBuilder, name: str) -> None:
    language, is_valid = format_language(builder, name), checker(name)
    assert language is not None
    assert not language.is_empty()
    rng = random.Random(name)
    for _ in range(300):
        word = random_word(language, rng, rng.choice((3, 5, 20, 60, 300)))
        assert language.matches(word)
        assert is_valid(word), word


@pytest.mark.parametrize("name", sorted(VALID))
def test_known_words(builder: RegexBuilder, name: str) -> None:
    language, is_valid = format_language(builder, name), checker(name)
    assert language is not None
    for word in VALID[name]:
        assert is_valid(word), word
        assert language.matches(word), word
    for word in INVALID[name]:
        assert not language.matches(word), word


def test_letters_of_host_names_are_what_the_standard_allows() -> None:
    """RFC 5892, section 3, by `unicodedata`; and no two of them compose (RFC 5891, section 4.1)."""
    pattern = "".join(
        (idn.LETTERS, idn.GREEK, idn.KANA, idn.DEVANAGARI, idn.THAI, idn.HEBREW, idn.DUAL,
         idn.RIGHT, idn.OTHER)
    )  # fmt: skip
    letters = parse_full(RegexBuilder(), f"[{pattern}]")
    found = [chr(code) for lo, hi, _ in letters.transitions() for code in range(lo, hi + 1)]
    assert len(found) > 39_000
    normal = unicodedata.normalize
    for char in found:
        assert char in "\u00df\u03c2\u06fd\u06fe\u0f0b\u3007" or (
            unicodedata.category(char) in ("Ll", "Lo", "Lm", "Nd")
            and normal("NFKC", normal("NFKC", char).casefold()) == char
        ), ascii(char)
        assert unicodedata.combining(char) == 0
        assert normal("NFC", "\u0928" + char) == "\u0928" + char
        for sign in "\u093e\u094c\u094d\u0e31\u0e48":
            assert normal("NFC", char + sign) == char + sign
    right = parse_full(RegexBuilder(), f"[{idn.HEBREW}{idn.DUAL}{idn.RIGHT}{idn.OTHER}]")
    for char in found:
        assert (unicodedata.bidirectional(char) in ("R", "AL")) == right.matches(char)
        if not right.matches(char):
            assert unicodedata.bidirectional(char) in ("L", "EN")


def test_encoded_labels_are_short_enough(builder: RegexBuilder) -> None:
    language = format_language(builder, "idn-hostname")
    assert language is not None
    rng = random.Random(14)
    longest = 0
    for _ in range(600):
        for label in re.split("[.\u3002\uff0e\uff61]", random_word(language, rng, 30)):
            if not label.isascii():
                encoded = label.encode("punycode")
                assert encoded.decode("punycode") == label
                longest = max(longest, 4 + len(encoded))
    assert 40 < longest <= 63


def test_leap_seconds_agree_with_the_clock(builder: RegexBuilder) -> None:
    """Every local time and offset of whole quarters: `:60` exactly where UTC is 23:59:60."""
    language, whole = format_language(builder, "time"), format_language(builder, "date-time")
    assert language is not None
    assert whole is not None
    for local in range(24 * 60):
        for quarter in range(0, 24 * 60, 15):
            for sign in (1, -1):
                offset = f"{'+-'[sign < 0]}{quarter // 60:02}:{quarter % 60:02}"
                utc = local - sign * quarter
                text = f"{local // 60:02}:{local % 60:02}:60{offset}"
                wanted = utc % (24 * 60) == 24 * 60 - 1
                assert language.matches(text) == wanted, text
                if wanted:  # the day before where the offset leads there
                    right, wrong = ("2016-12-31", "2017-01-01")[:: 1 if utc >= 0 else -1]
                    assert whole.matches(f"{right}T{text}"), text
                    assert not whole.matches(f"{wrong}T{text}"), text


def test_hostname_of_early_drafts(builder: RegexBuilder) -> None:
    """Drafts up to 4 refer to RFC 1034 alone, to which `xn--` is nothing special."""
    now, early = (format_language(builder, "hostname", early=flag) for flag in (False, True))
    assert now is not None
    assert early is not None
    for word in ("ab--c.d", "xn--4", "a.b-c"):
        assert early.matches(word)
    for word in ("", "a-", "-a", "a_b", "a.", "1.2.3.4", "a" * 64):
        assert not early.matches(word)
    assert format_language(builder, "date", early=True) is format_language(builder, "date")


def test_every_day_of_some_years(builder: RegexBuilder) -> None:
    language = format_language(builder, "date")
    assert language is not None
    for year in (1, 4, 8, 100, 400, 800, 1900, 1996, 2000, 2008, 2023, 2024, 2096, 9912):
        for month in range(14):
            for day in range(33):
                try:
                    datetime.date(year, month, day)
                    wanted = True
                except ValueError:
                    wanted = False
                assert language.matches(f"{year:04}-{month:02}-{day:02}") == wanted


def test_ipv6_agrees_on_random_arrangements(builder: RegexBuilder) -> None:
    language = format_language(builder, "ipv6")
    assert language is not None
    rng = random.Random(6)
    verdicts = set()
    for _ in range(4000):
        pieces = [
            rng.choice(["1", "ab", "FFFF", ":", ":", "::"]) for _ in range(rng.randint(1, 15))
        ]
        word = "".join(pieces) + rng.choice(["", "", "", ":1.2.3.4"])
        try:
            ipaddress.IPv6Address(word)
            wanted = True
        except ValueError:
            wanted = False
        verdicts.add(wanted)
        assert language.matches(word) == wanted, word
    assert verdicts == {True, False}


PATTERNS = {
    r"([abc])+\s+$": True,
    r"^[a-z0-9]+(?:-[a-z0-9]+)*$": True,
    r"^\d{4}-\d{2}-\d{2}$": True,
    r"(a|b(c|(d)))?e{1,3}|": True,
    r"^(?=.*[0-9])(?!x)[^\-\]]+\.$": True,
    r"\u00e9\/é": True,
    "": True,
    "[]": True,
    "[^]": True,
    "[-a-f_-]": True,
    r"\cA\B\p{Lu}\P{L}": True,
    r"(?<=a+)b(?<!c|d)": True,
    "(?<name>x)y": True,
    r"(?<q>a|b)+\k<q>*c": True,
    "^(abc]": False,
    r"^\S(|(.|\n)*\S)\Z": False,
    r"\a": False,
    "a{2,1}": False,
    "[z-a]": False,
    "(?=a)*": False,
    "a**": False,
    "(": False,
    "a)": False,
    "[": False,
    "{": False,
    r"\1": False,
    r"\k<q>": False,
    r"(?<q>a)\k<r>": False,
    "(?<q>a)(?<q>b)": False,
    "(?P<q>a)": False,
    "(?i)a": False,
    "(?#a)": False,
    "(?<1>a)": False,
    r"\p{Nope}": False,
    r"\ud800": False,
}


@pytest.mark.parametrize(("pattern", "wanted"), PATTERNS.items())
def test_regex_is_a_part_of_the_patterns(builder: RegexBuilder, pattern: str, wanted: bool) -> None:
    language = format_language(builder, "regex")
    assert language is not None
    assert language.matches(pattern) == wanted
    if wanted:
        assert checker("regex")(pattern)


def test_what_is_written_as_a_regex_is_one() -> None:
    grammar = compiled({"type": "string", "format": "regex"}, whitespace="compact")
    is_valid = checker("regex")
    rng = random.Random(5)
    ended = 0
    for _ in range(60):
        text, done, _ = random_walk(grammar, rng, steps=rng.choice([0, 5, 15]), limit=200)
        if done:
            ended += 1
            assert is_valid(json.loads(text)), text
    assert ended > 40


def test_unknown_formats(builder: RegexBuilder) -> None:
    assert format_language(builder, "no-such-format") is None


def test_hostname_length_limit(builder: RegexBuilder) -> None:
    language = format_language(builder, "hostname")
    assert language is not None
    longest = ".".join(["a" * 63] * 3 + ["a" * 61])
    assert len(longest) == 253
    assert language.matches(longest)
    assert not language.matches(longest + "a")
    assert language.max_length() == 253
    assert language.min_length() == 1


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"format": "regex", "pattern": r"^\^", "minLength": 20}, "^" + "a" * 19, "^" + "a" * 18),
        ({"format": "email", "minLength": 100}, "a@" + "b.c" * 33, "a@" + "b.c" * 32),
        ({"format": "hostname", "minLength": 200}, "a" + ".b" * 100, "a" + ".b" * 99),
        ({"format": "idn-hostname", "minLength": 40}, "a" + ".b" * 20, "a" + ".b" * 19),
        ({"format": "date-time", "pattern": "Z$", "maxLength": 20}, "2024-01-01T00:00:00Z",
         "2024-01-01T00:00:00.0Z"),
    ],
)  # fmt: skip
def test_formats_beside_patterns_and_lengths(
    schema: dict[str, object], right: str, wrong: str
) -> None:
    grammar = compiled({"type": "string", **schema})
    assert accepts(grammar, json.dumps(right))
    assert not accepts(grammar, json.dumps(wrong))


@pytest.mark.parametrize(("same_day", "next_day"), [(True, True), (True, False), (False, True)])
def test_how_far_a_leap_second_is_from_its_end(same_day: bool, next_day: bool) -> None:
    machine = formats_time.LeapSecond(same_day=same_day, next_day=next_day)
    states: dict[Hashable, list[Hashable]] = {}
    pending: list[Hashable] = [""]
    while pending:
        state = pending.pop()
        states[state] = [target for _, _, target in machine.row(state)]
        pending += [target for target in states[state] if target not in states]
    assert len(states) > 500
    for state, targets in states.items():
        ends = 0 if machine.accepts(state) else 1 + min(map(machine.shortest, targets))
        assert machine.shortest(state) == ends, state
