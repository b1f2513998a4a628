"""Format languages against an independent checker, on generated words and on known cases."""

from __future__ import annotations

import datetime
import ipaddress
import json
import random
import re

import jsonschema_rs
import pytest
from jsonschema import Draft202012Validator

from grammar.formats import format_language
from grammar.regular import RegexBuilder, Rx
from tests.grammar_support import compiled, random_walk

CHECKER = Draft202012Validator.FORMAT_CHECKER

VALID = {
    "date": ["2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31", "1999-04-30"],
    "time": ["00:00:00Z", "23:59:59.999+23:59", "12:30:00-08:00"],
    "date-time": ["2024-02-29T23:59:59Z", "1985-04-12T23:20:50.52Z", "1996-12-19T16:39:57-08:00"],
    "duration": ["P1Y", "P1Y2M3D", "P4W", "PT36H", "P1DT12H", "PT1M30S", "P3DT4H5M6S"],
    "email": ["a@b", "joe.bloggs@example.com", "te~st@example.com", "x+y@sub.example.org"],
    "hostname": ["www.example.com", "a", "xn-1.example", "a" * 63, "1host.example", "EXAMPLE.com",
                 "1host"],
    "ipv4": ["0.0.0.0", "255.255.255.255", "192.168.0.1", "10.20.30.249"],
    "ipv6": ["::", "::1", "1::", "1:2:3:4:5:6:7:8", "::ffff:192.0.2.1", "1:2:3:4:5:6:7::",
             "::2:3:4:5:6:7:8", "fe80::a:b", "1:2:3:4:5:6:1.2.3.4", "1::4:1.2.3.4", "::1.2.3.4"],
    "uri": ["http://foo.bar/?baz=qux#quux", "urn:oasis:names:specification:docbook:dtd:xml:4.1.2",
            "mailto:John.Doe@example.com", "ldap://[2001:db8::7]/c=GB?objectClass?one",
            "http://user:pw@host:8080/a/b;c=1/%20?q=[x]"[:-4], "file:///etc/passwd", "tel:+1-816"],
    "uri-reference": ["", "/abc", "//host/x", "a/b", "#frag", "?q", "../x", "http://a/b", "./a:b"],
    "iri": ["http://ƒøø.ßår/?∂éœ=πîx#πîüx", "http://example.com/"],
    "iri-reference": ["/ƒ/é", "#ƒräg", ""],
    "uri-template": ["http://example.com/{term:1}/{term}", "{+path,x}/here", "{?q*,lang}", "/a%20",
                     "{&a.b}", "{;x,y}", ""],
    "uuid": ["2eb8aa08-aa98-11ea-b4aa-73b441d16380", "2EB8AA08-AA98-11EA-B4AA-73B441D16380"],
    "json-pointer": ["", "/", "/foo/0", "/a~1b/~0", "/é/ "],
    "relative-json-pointer": ["0", "1/0", "0#", "10/a", "2/~01"],
    "idn-email": ["실례@실례.테스트", "joe@example.com"],
    "idn-hostname": ["실례.테스트", "例え.jp", "example.com", "bücher.example", "a-b-c.de",
                     "1host", "a" * 63, "x1.y-2.z3"],
}  # fmt: skip

INVALID = {
    "date": ["2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01", "2024-13-01", "24-01-01",
             "2024-1-1", "2024-00-10", "2024-01-00", "2024-02-30"],
    "time": ["24:00:00Z", "12:00:00", "12:60:00Z", "12:00:00+24:00", "08:30:06 PST", "12:00Z"],
    "date-time": ["2024-02-30T00:00:00Z", "2024-01-01 00:00:00Z", "2024-01-01T00:00:00"],
    "duration": ["P", "PT", "P1", "1Y", "P1Y2D", "PT1H1S", "P1W1D", "P1YT"],
    "email": ["", "@", "a@", "@b", "a b@c", ".a@b", "a.@b", "a..b@c", "a@b..c", "a" * 65 + "@b"],
    "hostname": ["", ".", "-a", "a-", "a..b", "a_b", "a" * 64, "a.", "é.com", "1.2.3.4",
                 ".".join(["a" * 62] * 5), "xn--x.com", "a.1", "12", "a.1-2"],
    "ipv4": ["256.0.0.1", "1.2.3", "01.2.3.4", "1.2.3.4.5", "1.2.3.4 ", "1..2.3"],
    "ipv6": [":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "::1::", "12345::", "::1%eth0",
             "1:2:3:4:5:6:7:8::", "::1.2.3", "1:2:3:4:5:6:7:1.2.3.4", "1:2:3:4:5:6::7:8"],
    "uri": ["//foo.bar/", "/abc", "foo", "http:// x", ":// x", "a b:c", "http://a/%zz", "1a:b",
            "http://[::1", "http://é/", "bar,baz:foo"],
    "uri-reference": ["\\\\WINDOWS\\x", "#frag\\ment", "a:b c", "%", "1a:b"],
    "iri": ["http://2001:0db8::7334", "/abc", "é", "http://a b"],
    "iri-reference": ["\\\\x", "#ƒräg\\mênt"],
    "uri-template": ["{", "}", "{}", "{a", "{a:0}", "{a,}", " ", "{!a}", "{a..b}", "a'b", "%2"],
    "uuid": ["2eb8aa08aa9811eab4aa73b441d16380", "2eb8aa08-aa98-11ea-b4aa-73b441d1638", "x"],
    "json-pointer": ["a", "/~", "/~2", "#/a"],
    "relative-json-pointer": ["", "-1", "01", "/a", "0##", "1a"],
    "idn-email": ["@", "a@", "é"],
    "idn-hostname": ["", "-a", "a-", "a" * 64, "1.2", "〮한", "a--b", "xn--x", "É.de", "a b"],
}  # fmt: skip


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
    language = format_language(builder, name)
    assert language is not None
    assert name in CHECKER.checkers, "the checker lacks this format"
    assert not language.is_empty()
    rng = random.Random(name)
    for _ in range(150):
        word = random_word(language, rng, rng.choice((5, 20, 60, 300)))
        assert language.matches(word)
        assert CHECKER.conforms(word, name), word


@pytest.mark.parametrize("name", sorted(VALID))
def test_known_words(builder: RegexBuilder, name: str) -> None:
    language = format_language(builder, name)
    assert language is not None
    for word in VALID[name]:
        assert CHECKER.conforms(word, name), word
        assert language.matches(word), word
    for word in INVALID[name]:
        assert not language.matches(word), word


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
    "^(abc]": False,
    r"^\S(|(.|\n)*\S)\Z": False,
    r"\a": False,
    "a{2,1}": False,
    "[z-a]": False,
    "[]": False,
    "(?=a)*": False,
    "a**": False,
    "(": False,
    "a)": False,
    "[": False,
    "{": False,
    r"\1": False,
}


@pytest.mark.parametrize(("pattern", "wanted"), PATTERNS.items())
def test_regex_is_a_part_of_the_patterns(builder: RegexBuilder, pattern: str, wanted: bool) -> None:
    language = format_language(builder, "regex")
    assert language is not None
    assert language.matches(pattern) == wanted
    if wanted:
        re.compile(pattern)


def test_what_is_written_as_a_regex_compiles_everywhere() -> None:
    grammar = compiled({"type": "string", "format": "regex"}, whitespace="compact")
    validator = jsonschema_rs.Draft202012Validator({"format": "regex"}, validate_formats=True)
    rng = random.Random(5)
    ended = 0
    for _ in range(60):
        text, done, _ = random_walk(grammar, rng, steps=rng.choice([0, 5, 15]), limit=200)
        if done:
            ended += 1
            re.compile(json.loads(text))
            assert validator.is_valid(json.loads(text)), text
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
