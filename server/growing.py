"""A text of the message as it grows: what of it can be passed on, and what has to wait. Pure.

Invariants: what was passed on, joined, is the text; it begins and ends without white space where a
rule says so; and of JSON nothing ends inside an escape, nor between the two halves of a surrogate
pair, so that whoever parses it as it grows never meets half a character.

Read next: `server/deltas.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextRule:
    """How the regions of a field become one text.

    strip    white space at a region's two ends isn't part of it
    join     stands between two regions of the field; None: they follow one another as they are
    is_json  escapes are passed on whole
    """

    strip: bool = True
    join: str | None = None
    is_json: bool = False


class GrowingText:
    """A message's text, over all regions of its fields."""

    def __init__(self, rule: TextRule) -> None:
        self._rule = rule
        self._parts: list[str] = []
        self._escape = ""
        self._space: list[str] = []
        self._at_start = True
        self._separator = ""

    def open_region(self) -> None:
        """Another region of the field begins."""
        if self._parts and self._rule.join is not None:
            self._space.clear()
            self._at_start = True
            self._separator = self._rule.join

    def feed(self, text: str) -> str:
        """What can be passed on now: white space waits until something follows it, an escape until
        it is whole."""
        if self._rule.is_json:
            text = self._escape + text
            ready = whole_escapes(text)
            text, self._escape = text[:ready], text[ready:]
        return self._pass_on(text)

    def finish(self) -> str:
        """The text is over: half an escape is passed on as it is."""
        text, self._escape = self._escape, ""
        return self._pass_on(text)

    def _pass_on(self, text: str) -> str:
        if self._rule.strip:
            ready = text.rstrip()
            if not ready:
                self._space.append(text)
                return ""
            before = "" if self._at_start else "".join(self._space)
            self._space[:] = [text[len(ready) :]]
            text = before + (ready.lstrip() if self._at_start else ready)
        if not text:
            return ""
        text = self._separator + text
        self._separator = ""
        self._at_start = False
        self._parts.append(text)
        return text

    def __str__(self) -> str:
        return "".join(self._parts)


_HIGH = r"[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"[dD][c-fC-F][0-9a-fA-F]{2}"
_WHOLE = re.compile(
    rf"(?:[^\\]+|\\[^u]|\\u{_HIGH}\\u{_LOW}|\\u(?!{_HIGH})[0-9a-fA-F]{{4}})*", re.DOTALL
)
_BEGUN = re.compile(
    rf"\\(?:u(?:[0-9a-fA-F]{{0,3}}|{_HIGH}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?))?"
)


def whole_escapes(text: str) -> int:
    """How much of `text`, JSON from a point outside an escape, ends outside an escape again.

    Half a surrogate pair counts as a part of an escape. At most 11 characters are left over; what
    can't become an escape any more (broken JSON) counts as whole.
    """
    match = _WHOLE.match(text)
    assert match is not None
    return match.end() if _BEGUN.fullmatch(text, match.end()) else len(text)
