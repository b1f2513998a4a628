"""Grounding as a whole: kinds by type, quotes, reasons, round trips, and large sources."""

from __future__ import annotations

import time
from datetime import date
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from num2words import num2words

from server.grounding import Source, check, numberwords, rules
from server.grounding.dates import Day, chosen, read_date, stated_dates
from server.grounding.numbers import prepared, read_number, values_of

MONTHS = {
    "en": "January February March April May June July August September October November December",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro "
    "dezembro",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre "
    "diciembre",
}
SENTENCES = {
    "en": "The parties agree that the amount of the {} is due on the day of the delivery.",
    "pt": "As partes convêm que o valor de {} é devido no dia da entrega e não antes.",
    "es": "Las partes convienen en que el importe de {} se debe el día de la entrega y no antes.",
}
LANGUAGES = st.sampled_from(["en", "pt", "es"])


def values(text: str) -> set[Fraction]:
    return {value for value, _ in values_of(prepared(text))}


def kinds(value: Any, option: Any, source: str, schema: Any = None) -> list[tuple[str, str]]:
    return [(each.pointer, each.kind) for each in check(value, rules(schema, option), source)]


def test_auto_goes_by_type_and_format() -> None:
    schema = {
        "properties": {"due": {"type": "string", "format": "date"}, "kind": {"enum": ["invoice"]}}
    }
    value = {
        "due": "2024-03-03",
        "name": "Acme",
        "n": 21,
        "ok": True,
        "no": None,
        "kind": "invoice",
    }
    assert kinds(value, "auto", "Nothing.", schema) == [
        ("/due", "date"), ("/name", "verbatim"), ("/n", "number"),
    ]  # fmt: skip
    source = "Acme owes twenty-one euros on 3 March 2024."
    assert kinds(value, "auto", source, schema) == []


def test_the_order_of_day_and_month_can_be_given() -> None:
    for order, stated in (("dmy", "2024-04-03"), ("mdy", "2024-03-04")):
        rule = rules(None, {"kind": "date", "order": order})
        assert check(["2024-04-03", "2024-03-04"], rule, "On 03/04/2024.")[0].value != stated
        assert len(check(["2024-04-03", "2024-03-04"], rule, "On 03/04/2024.")) == 1
        assert check([stated], rule, "On 13/04/2024, then 03/04/2024.") == ()


QUOTED = {
    "properties": {
        "age": {"type": "integer", "x-ground": {"kind": "quote", "evidence": "why"}},
        "why": {"type": "string"},
    }
}
TOY = "Maria was born in Lisbon. She is twenty-one years old. Her brother is 30."


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"age": 21, "why": "She is twenty-one years old."}, []),
        ({"age": 21, "why": "she  is twenty-one"}, ["/why", "/age"]),
        ({"age": 21, "why": "is  twenty-one\nyears"}, []),
        ({"age": 30, "why": "She is twenty-one years old."}, ["/age"]),
        ({"age": 21, "why": "She is 21 years old."}, ["/why", "/age"]),
        ({"age": 21, "why": ""}, ["/age"]),
        ({"age": 21}, ["/age"]),
        ({"age": 21, "why": None}, ["/age"]),
        ({"age": None, "why": None}, []),
        ({"age": 30, "why": ["She is twenty-one years old.", "Her brother is 30."]}, []),
        ({"age": 30, "why": ["Made up.", "Her brother is 30."]}, ["/why/0"]),
    ],
)
def test_a_quote_must_occur_and_contain_the_value(value: Any, found: list[str]) -> None:
    ungrounded = check(value, rules(QUOTED), TOY)
    assert sorted(each.pointer for each in ungrounded) == sorted(found)
    assert all(each.kind == "quote" for each in ungrounded)


def test_quotes_by_kind_and_by_convention() -> None:
    schema = {
        "properties": {
            "people": {
                "items": {
                    "properties": {
                        "born": {"x-ground": {"kind": "quote", "of": "date"}},
                        "name": {"x-ground": "quote"},
                        "tags": {"items": {"x-ground": "quote"}},
                    }
                }
            }
        }
    }
    person = {
        "born": "1998-05-03",
        "born_evidence": "on 3 May 1998",
        "name": "Ana",
        "evidence": "Ana was born",
        "tags": ["Ana", "was"],
    }
    source = "In Leeds Ana was born on 3 May 1998."
    assert check({"people": [person]}, rules(schema), source) == ()
    wrong = {**person, "born": "1998-05-04", "name": "Leeds", "tags": ["Ana", "Leeds"]}
    found = check({"people": [person, wrong]}, rules(schema), source)
    pointers = ["/people/1/born", "/people/1/name", "/people/1/tags/1"]
    assert [each.pointer for each in found] == pointers
    missing = check({"people": [{"name": "Ana"}]}, rules(schema), source)
    assert "/people/0/name_evidence must quote the source" in missing[0].reason


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("verbatim", "ANA", 'the source writes it "Ana"; copy it exactly as it stands there'),
        ("verbatim", "Eva", "this text does not occur in the source; copy it exactly as it stands "
         "there"),
        ("number", 22, "the source does not state 22, neither in digits nor in words"),
        ("number", "some", "this is not one number"),
        ("number", "2 or 3", "this is not one number"),
        ("date", "1998", "this is no date with its year"),
        ("date", 1998, "this is no date with its year"),
        ("date", "1998-05-03", "the source does not state the date 1998-05-03; a date counts only "
         "where its year is given"),
    ],
)  # fmt: skip
def test_reasons_say_what_to_do(kind: str, value: Any, reason: str) -> None:
    found = check({"a/b": value}, rules(None, kind), "Ana is 21.")
    assert [each.as_dict() for each in found] == [
        {"pointer": "/a~1b", "value": value, "kind": kind, "reason": reason}
    ]


def test_a_number_as_verbatim_text_is_looked_for_as_a_number() -> None:
    assert check(21, rules(None, "verbatim"), "twenty-one") == ()
    assert check(21, rules(None, "verbatim"), "2121")[0].kind == "number"


@pytest.mark.parametrize(
    ("text", "found"),
    [("1.234,56", {Fraction(123456, 100)}), ("15 %", {Fraction(15), Fraction(15, 100)}),
     ("1.234", {Fraction(1234), Fraction(1234, 1000)}), ("R$ 2 mil", {Fraction(2000)}),
     ("3 and 4", set()), ("none", set())],
)  # fmt: skip
def test_a_number_in_a_string(text: str, found: set[Fraction]) -> None:
    assert read_number(text) == found


@settings(max_examples=300, deadline=None)
@given(number=st.integers(0, 999_999_999), language=LANGUAGES)
def test_a_number_written_out_is_found_as_a_whole(number: int, language: str) -> None:
    words = num2words(number, lang={"pt": "pt_BR"}.get(language, language))
    assert values(SENTENCES[language].format(words)) - {Fraction(1)} == {Fraction(number)} - {1}


@settings(max_examples=200, deadline=None)
@given(number=st.integers(1, 99), language=LANGUAGES)
def test_an_ordinal_written_out_is_found(number: int, language: str) -> None:
    assume(language != "es" or number // 10 not in (1, 4))  # which num2words misspells
    words = num2words(number, lang={"pt": "pt_BR"}.get(language, language), to="ordinal")
    assert Fraction(number) in values(SENTENCES[language].format(words))


@settings(max_examples=300, deadline=None)
@given(
    cents=st.integers(0, 10**11),
    marks=st.sampled_from([",.", ".,", " ,", "\u00a0,", "\u202f,", "'.", ".", ","]),
    negative=st.booleans(),
)
def test_digits_in_every_convention(cents: int, marks: str, negative: bool) -> None:
    whole, rest = divmod(cents, 100)
    grouped = f"{whole:,}".replace(",", marks[0]) if len(marks) == 2 else str(whole)
    text = f"{grouped}{marks[-1]}{rest:02}"
    value = Fraction(cents, 100)
    assert values(f"x = {'-' if negative else ''}{text};") == {-value if negative else value}
    assert check(float(value), rules(None, "number"), f"total {text}.") == ()


@settings(max_examples=300, deadline=None)
@given(day=st.dates(date(1900, 1, 1), date(2100, 1, 1)), language=LANGUAGES, form=st.integers(0, 3))
def test_a_date_in_every_language(day: date, language: str, form: int) -> None:
    month = MONTHS[language].split()[day.month - 1]
    of = {"en": " ", "pt": " de ", "es": " de "}[language]
    tongue = {"pt": "pt_BR"}.get(language, language)
    text = [
        f"{day.day}{of}{month}{of}{day.year}",
        f"{month} {day.day}, {day.year}",
        day.isoformat(),
        f"{num2words(day.day, lang=tongue)}{of}{month}{of}{num2words(day.year, lang=tongue)}",
    ][form]
    found = chosen(stated_dates(prepared(SENTENCES[language].format(text))))
    assert {d for d in found if d.day} == {Day(day.year, day.month, day.day)}
    assert read_date(day.isoformat()) == {Day(day.year, day.month, day.day)}


def test_a_day_of_millions_is_none() -> None:
    text = "twenty thousand million of March 2024, three of March 2024"
    assert {day.day for day in stated_dates(prepared(text))} == {None, 3}


PIECES = (
    "twenty five hundred thousand and one . ; ! ( ) ? , minus point vinte e mil y dos 12 nineteen"
)


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(st.sampled_from([*PIECES.split(), "\n"]), max_size=30))
def test_words_are_read_alike_in_parts(pieces: list[str]) -> None:
    text = " ".join(pieces)
    whole = list(numberwords.in_words(text))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numberwords, "_PART", 0)
        assert list(numberwords.in_words(text)) == whole


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=60), value=st.text(max_size=20) | st.integers() | st.floats(-1e9, 1e9))
def test_any_text_can_be_checked(text: str, value: Any) -> None:
    for kind in ("verbatim", "number", "date", "auto"):
        found = check([value], rules(None, kind), text)
        assert len(found) <= 1


@settings(max_examples=200, deadline=None)
@given(text=st.text(min_size=1, max_size=80), data=st.data())
def test_every_word_of_a_source_occurs_in_it(text: str, data: st.DataObject) -> None:
    words = text.split()
    if words:
        first = data.draw(st.integers(0, len(words) - 1))
        last = data.draw(st.integers(first, len(words) - 1))
        assert check(" ".join(words[first : last + 1]), rules(None, "verbatim"), text) == ()


@pytest.mark.parametrize(
    "unit",
    [
        "The contract of 3 March 2024 states twenty-one items at R$ 1.234,56 and 15 % more. ",
        "1 234 567 / 8 1/2 9-10 ",
        "a" * 40 + " ",
        "dois mil e vinte e quatro e ",
        "1,234.",
        "May 3 May 3 ",
        "-5 - 5 ",
    ],
)
def test_a_large_source_is_read_in_time(unit: str) -> None:
    source = Source(unit * (200_000 // len(unit)))
    value = {"a": 22, "b": "2023-01-01", "c": "not there", "d": "1.5"}
    option = {"default": "auto", "fields": {"b": "date", "d": "number"}}
    began = time.thread_time()
    found = check(value, rules(None, option), source)
    assert time.thread_time() - began < 5, "it takes some tenths of a second"
    assert [each.pointer for each in found] == ["/a", "/b", "/c", "/d"]
    began = time.thread_time()
    check(value, rules(None, option), source)
    assert time.thread_time() - began < 0.5, "what was read once is kept"
