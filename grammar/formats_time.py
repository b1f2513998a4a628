"""Dates, times and durations as languages: the whole of RFC 3339, section 5.6 and appendix A.

Leap seconds are told from the local time and its offset: `:60` stands only where UTC is 23:59:60,
and in a `date-time` only where the UTC date is the last one of a month (section 5.7 and appendix D;
ITU-R TF.460 puts leap seconds at the end of a UTC month).

Read next: `grammar.formats`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from grammar.ecma import parse_full
from grammar.regular import RegexBuilder
from grammar.rx import Rx

_HOUR_MINUTE: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
_SECOND: Final = r"[0-5]\d(?:\.\d+)?"
_OFFSET: Final = rf"(?:[Zz]|[+-]{_HOUR_MINUTE})"
#: Years that four divides, less the centuries that four hundred does not divide.
_FOURS: Final = "(?:0[48]|[2468][048]|[13579][26])"
_LEAP_YEAR: Final = rf"(?:\d\d{_FOURS}|(?:00|{_FOURS})00)"
_NO_LEAP_YEAR: Final = (
    r"(?:\d\d(?:\d[13579]|[02468][26]|[13579][048])"
    r"|(?:\d[13579]|[02468][26]|[13579][048])00)"
)
_DAYS: Final = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])"
    r"|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
DATE: Final = rf"\d{{4}}-{_DAYS}|{_LEAP_YEAR}-02-29"
"""RFC 3339 `full-date`, the year 0000 included."""
_DAY: Final = 24 * 60
#: The minutes before a whole quarter of an hour: the second digit by the first.
_BEFORE_QUARTERS: Final = {"1": "4", "2": "9", "4": "4", "5": "9"}


def date(builder: RegexBuilder) -> Rx:
    """RFC 3339 `full-date`: months and leap years exact (appendix C).

    Narrower: years 0001 to 9999, since date types of many languages begin with year 1.
    """
    return _from_year_one(builder, parse_full(builder, DATE))


def time(builder: RegexBuilder) -> Rx:
    """RFC 3339 `full-time`: with its offset, and any number of fraction digits.

    Narrower: leap seconds only at offsets of whole quarters of an hour.
    """
    whole = parse_full(builder, f"{_HOUR_MINUTE}:{_SECOND}{_OFFSET}")
    return builder.union(whole, builder.automaton(_LEAP, ""))


def date_time(builder: RegexBuilder) -> Rx:
    """RFC 3339 `date-time`: T and Z in either case, no blank for the T; narrowed as `time`."""
    last = parse_full(
        builder,
        rf"\d{{4}}-(?:(?:0[13578]|1[02])-31|(?:0[469]|11)-30)"
        rf"|{_LEAP_YEAR}-02-29|{_NO_LEAP_YEAR}-02-28",
    )
    first = parse_full(builder, r"\d{4}-(?:0[1-9]|1[0-2])-01")
    between = parse_full(builder, "[Tt]")
    last, first = _from_year_one(builder, last), _from_year_one(builder, first)
    return builder.union(
        builder.concat(
            date(builder), parse_full(builder, f"[Tt]{_HOUR_MINUTE}:{_SECOND}{_OFFSET}")
        ),
        builder.concat(last, between, builder.automaton(_LEAP_SAME_DAY, "")),
        builder.concat(first, between, builder.automaton(_LEAP_NEXT_DAY, "")),
    )


def _from_year_one(builder: RegexBuilder, dates: Rx) -> Rx:
    """Those that don't begin with 0000."""
    return builder.intersect(dates, builder.complement(parse_full(builder, "0000.*")))


def duration(builder: RegexBuilder) -> Rx:
    """RFC 3339, appendix A: whole numbers, no unit left out between two."""
    n = r"\d+"
    clock = f"T(?:{n}H(?:{n}M(?:{n}S)?)?|{n}M(?:{n}S)?|{n}S)"
    day = f"(?:{n}Y(?:{n}M(?:{n}D)?)?|{n}M(?:{n}D)?|{n}D)"
    return parse_full(builder, f"P(?:{n}W|{day}(?:{clock})?|{clock})")


class LeapSecond:
    """`hh:mm:60`, a fraction, and an offset under which that is 23:59:60 in UTC.

    Offsets are whole quarters of an hour, as all in use are: so few local times need to be told
    apart, and the others share their masks. A state is the text up to `hh:mm:60`; then that with
    `.` or `.0` for a fraction; and then `=` with what is left of the offset.

    Args:
        same_day: offsets that lead to the same date in UTC.
        next_day: offsets that lead to the date before, so that the local one is the next.
    """

    def __init__(self, *, same_day: bool, next_day: bool) -> None:
        self._same_day, self._next_day = same_day, next_day

    def accepts(self, state: Hashable) -> bool:
        return state == "="

    def row(self, state: Hashable) -> Iterable[tuple[int, int, Hashable]]:
        assert isinstance(state, str)
        if state.startswith("="):
            return [(ord(state[1]), ord(state[1]), "=" + state[2:])] if len(state) > 1 else []
        if len(state) < 8:
            return self._clock(state)
        if state.endswith("."):
            return [(ord("0"), ord("9"), state + "0")]
        found: dict[str, str] = {offset[0]: "=" + offset[1:] for offset in self._offsets(state)}
        if len(state) == 8:
            found["."] = state + "."
        rows = [(ord(char), ord(char), target) for char, target in found.items()]
        if len(state) > 8:
            rows.append((ord("0"), ord("9"), state))
        return sorted(rows)

    def shortest(self, state: Hashable) -> int:
        assert isinstance(state, str)
        if state.startswith("="):
            return len(state) - 1
        if len(state) < 8:
            # At 23:59 a letter is offset enough, where the date is the same.
            late = self._same_day and "23:59:60".startswith(state)
            return 8 - len(state) + (1 if late else 6)
        return state.endswith(".") + min(map(len, self._offsets(state)))

    def _clock(self, text: str) -> list[tuple[int, int, Hashable]]:
        at = len(text)
        if at in (2, 5):
            allowed = ":"
        elif at >= 6:
            allowed = "60"[at - 6]
        elif at == 0:
            allowed = "012"
        elif at == 1:
            allowed = "0123" if text == "2" else "0123456789"
        elif at == 3:  # at 23:59 no offset leads to the date before
            allowed = "1245" if text != "23:" or self._same_day else "124"
        else:
            allowed = _BEFORE_QUARTERS[text[3]]
        return [(ord(char), ord(char), text + char) for char in allowed]

    def _offsets(self, text: str) -> list[str]:
        local = int(text[:2]) * 60 + int(text[3:5])
        found = []
        if self._next_day and local < _DAY - 1:
            found.append("+" + _clock_text(local + 1))
        if self._same_day:
            found.append("-" + _clock_text(_DAY - 1 - local))
            if local == _DAY - 1:
                found += ["+00:00", "Z", "z"]
        return found


def _clock_text(minutes: int) -> str:
    return f"{minutes // 60:02}:{minutes % 60:02}"


_LEAP: Final = LeapSecond(same_day=True, next_day=True)
_LEAP_SAME_DAY: Final = LeapSecond(same_day=True, next_day=False)
_LEAP_NEXT_DAY: Final = LeapSecond(same_day=False, next_day=True)
