"""JSON as models write it: strict JSON, or one of the dialects a template may name.

A dialect is rewritten to JSON in one pass from left to right, so what stands inside a string is
never touched: strings with delimiters of their own (`string_delims`) become JSON strings of their
literal text, bare object keys (`unquoted_keys`) get quotes. The result is read by the standard
library, but strictly: NaN and the infinities are no JSON, and half a surrogate pair is refused,
since no UTF-8 writer could send it on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

MAX_DEPTH = 200  # what copies and writers of the value can still follow


class ContentError(ValueError):
    """A text does not fit its content type, or a content type is not described rightly.

    Callers turn it into a ResponseParseError or ResponseTemplateError that names the field.
    """


@dataclass(frozen=True, slots=True)
class JsonDialect:
    """What a template allows beyond JSON. `string_delims`: pairs of opening and closing marks."""

    unquoted_keys: bool = False
    string_delims: tuple[tuple[str, str], ...] = ()

    @property
    def plain(self) -> bool:
        """Whether it is JSON as it is."""
        return not self.unquoted_keys and not self.string_delims


def parse_json(text: str, dialect: JsonDialect) -> Any:
    """The value of a text in a dialect of JSON. Raises ContentError."""
    if dialect.plain:
        return loads(text)
    return loads(_Rewriter(text, dialect).run())


def loads(text: str) -> Any:
    """Strict JSON. Raises ContentError, also where it nests deeper than MAX_DEPTH."""
    try:
        value = json.loads(text, parse_constant=_no_constant)
        if text.count("[") + text.count("{") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
            raise RecursionError
        if "\\u" in text and _LONE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ContentError("JSON with half a surrogate pair") from None
    except RecursionError:
        raise ContentError("JSON that nests too deeply") from None
    except ValueError as error:
        raise ContentError(f"not JSON: {error}") from None
    return value


def _depth(value: Any) -> int:
    """How deep a value nests. Level by level: it may be deeper than Python's own stack."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (list, dict)) and item]:
        depth += 1
        level = [
            part for item in level for part in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


_LONE = re.compile(r"\\u[dD][89a-fA-F]")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^'\\\n]++|\\.)*+)'")
_BARE_KEY = re.compile(r"(\w+)(\s*):")
_PLAIN_RUN = re.compile(r"[\s\w.+-]+")


class _Rewriter:
    """One pass over a text. `last` is the last structural character seen outside strings."""

    def __init__(self, text: str, dialect: JsonDialect) -> None:
        self.text = text
        self.dialect = dialect
        self.out: list[str] = []
        self.at = 0
        self.last = ""
        self.unclosed: set[str] = set()
        self.loose: set[str] = set()

    def run(self) -> str:
        while self.at < len(self.text):
            if not (self.delimited() or self.quoted() or self.bare_key()):
                self.copy()
        return "".join(self.out)

    def delimited(self) -> bool:
        for opening, closing in self.dialect.string_delims:
            if opening in self.unclosed or not self.text.startswith(opening, self.at):
                continue
            start = self.at + len(opening)
            holds_quote = opening == closing and '"' in opening
            end = self.closing(closing, start) if holds_quote else self.text.find(closing, start)
            if end < 0:
                self.unclosed.add(opening)
                continue
            body = self.text[start:end]
            if holds_quote:
                body = body.replace(opening, '"')
            self.put(json.dumps(body, ensure_ascii=False), end + len(closing))
            return True
        return False

    def closing(self, mark: str, start: int) -> int:
        """Where a string ends whose mark is a dressed-up quote, such as `<|"|>`. Models write that
        for a quote inside the string too, so it ends at the first mark that something structural
        follows, or else at the first."""
        first = at = self.text.find(mark, start)
        while at >= 0 and mark not in self.loose:
            if _structural(self.text, at + len(mark)):
                return at
            at = self.text.find(mark, at + 1)
        self.loose.add(mark)  # none from here on, so there is no need to look again
        return first

    def quoted(self) -> bool:
        match = _STRING.match(self.text, self.at)
        if match:
            self.put(match.group(), match.end())
            return True
        # Models that mark strings in their own way fall back to either kind of quotes.
        match = _SINGLE.match(self.text, self.at) if self.dialect.string_delims else None
        if match:
            body = re.sub(r"\\(['\"])", r"\1", match[1])
            self.put(json.dumps(body, ensure_ascii=False), match.end())
            return True
        return False

    def bare_key(self) -> bool:
        if not self.dialect.unquoted_keys or self.last not in ("{", ","):
            return False
        match = _BARE_KEY.match(self.text, self.at)
        if match is None:
            return False
        self.put(f"{json.dumps(match[1], ensure_ascii=False)}{match[2]}", match.end() - 1)
        return True

    def copy(self) -> None:
        """Copy one structural character, or a run of others."""
        if self.text[self.at].isspace():
            stop = self.at + 1
            self.out.append(self.text[self.at : stop])
            self.at = stop
            return
        match = _PLAIN_RUN.match(self.text, self.at)
        stop = match.end() if match else self.at + 1
        self.last = self.text[self.at]
        self.out.append(self.text[self.at : stop])
        self.at = stop

    def put(self, written: str, stop: int) -> None:
        self.out.append(written)
        self.last = '"'
        self.at = stop


_AFTER_STRING = re.compile(r"\s*(?:[,\]}:]|\Z)")


def _structural(text: str, at: int) -> bool:
    return _AFTER_STRING.match(text, at) is not None
