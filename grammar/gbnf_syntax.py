"""The syntax of GBNF, llama.cpp's grammar notation: text in, a small tree for each rule out.

    root   ::= "yes" | list           # a comment
    list   ::= "[" item ("," item){0,9} "]"
    item   ::= [^,\\]\\n]+ | "\\u00e9" | <think> | !<[42]>

As llama.cpp reads it: a rule ends with its line, except inside parentheses and behind ``::=`` and
``|``; names consist of letters, digits, ``-`` and ``_``; escapes are ``\\x`` (2 digits), ``\\u``
(4), ``\\U`` (8) and ``\\t \\r \\n \\\\ \\" \\[ \\]``; ``.`` is any character, line breaks too.
Stricter than llama.cpp: a rule defined twice, an empty character class and a range that runs
backwards are errors.

Read next: ``gbnf.py``, which gives the rules their language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from grammar.charset import EVERYTHING, MAX_SCALAR, CharSet, Interval
from grammar.errors import GrammarSourceError

MAX_NESTING: Final = 100
MAX_REPEAT: Final = 1_000_000_000

_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_ESCAPES: Final = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]"}
_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")
_DIGITS: Final = frozenset("0123456789")
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_TIMES: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text, which may be empty."""

    text: str


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set that is not empty."""

    chars: CharSet


@dataclass(frozen=True, slots=True)
class Name:
    """A rule; ``at`` is the offset of the reference in the text."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Token:
    """A token by id or by text (``but``: any token except that one)."""

    token: int | str
    but: bool
    at: int


@dataclass(frozen=True, slots=True)
class Sequence:
    items: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    body: Term
    lo: int
    hi: int | None


Term: TypeAlias = Text | Chars | Name | Token | Sequence | Choice | Repeat


def source_error(text: str, at: int, message: str, problem: str = "invalid") -> GrammarSourceError:
    """An error at an offset of a text."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return GrammarSourceError(message, problem=problem, line=line, column=column)


def parse(text: str) -> dict[str, tuple[Term, int]]:
    """Rule name -> (what it stands for, the offset of its definition), in the text's order.

    Raises:
        GrammarSourceError: the text is no GBNF.
    """
    return _Parser(text).rules()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def _fail(self, message: str, at: int | None = None) -> NoReturn:
        raise source_error(self._text, self._at if at is None else at, message)

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def _space(self, *, lines: bool) -> None:
        """Skip blanks and comments, and line breaks too if ``lines``."""
        skipped = " \t\r\n" if lines else " \t"
        while (char := self._peek()) and (char in skipped or char == "#"):
            if char == "#":
                while self._peek() not in ("", "\r", "\n"):
                    self._at += 1
            else:
                self._at += 1

    # -- rules ----------------------------------------------------------------------------------

    def rules(self) -> dict[str, tuple[Term, int]]:
        found: dict[str, tuple[Term, int]] = {}
        self._space(lines=True)
        while self._peek():
            at = self._at
            if self._peek() == "|":
                self._fail("'|' can't begin a line; put it at the end of the line before")
            name = self._name()
            if name in found:
                self._fail(f"the rule {name!r} is defined twice", at)
            self._space(lines=False)
            if not self._take("::="):
                self._fail(f"'::=' is missing after {name!r}")
            self._space(lines=True)
            found[name] = (self._choice(nested=False), at)
            if self._peek() and not (self._take("\r\n") or self._take("\n") or self._take("\r")):
                self._fail(f"{self._peek()!r} is not expected here")
            self._space(lines=True)
        return found

    def _name(self) -> str:
        start = self._at
        while self._peek() in _NAME and self._peek():
            self._at += 1
        if self._at == start:
            what = repr(self._peek()) if self._peek() else "the end"
            self._fail(f"the name of a rule is expected here, not {what}")
        return self._text[start : self._at]

    def _choice(self, *, nested: bool) -> Term:
        options = [self._sequence(nested=nested)]
        while self._take("|"):
            self._space(lines=True)
            options.append(self._sequence(nested=nested))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self, *, nested: bool) -> Term:
        items: list[Term] = []
        while char := self._peek():
            if char in _TIMES or char == "{":
                at = self._at
                lo, hi = self._times(nested=nested)
                if not items:
                    self._fail(f"there is nothing before {char!r} that could be repeated", at)
                items[-1] = Repeat(items[-1], lo, hi)
            else:
                item = self._item(char)
                if item is None:
                    break
                items.append(item)
            self._space(lines=nested)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _item(self, char: str) -> Term | None:
        if char == '"':
            return self._literal()
        if char == "[":
            return self._class()
        if char == ".":
            self._at += 1
            return Chars(EVERYTHING)
        if char in "<!":
            return self._token()
        if char == "(":
            return self._group()
        at = self._at
        return Name(self._name(), at) if char in _NAME else None

    def _group(self) -> Term:
        at = self._at
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._fail(f"parentheses nest more than {MAX_NESTING} deep")
        self._at += 1
        self._space(lines=True)
        found = self._choice(nested=True)
        if not self._peek():
            self._fail("this parenthesis is never closed", at)
        if not self._take(")"):
            self._fail(f"{self._peek()!r} is not expected here; ')' is missing")
        self._depth -= 1
        return found

    def _times(self, *, nested: bool) -> tuple[int, int | None]:
        char = self._peek()
        self._at += 1
        if char != "{":
            return _TIMES[char]
        self._space(lines=nested)
        lo = self._number()
        hi: int | None = lo
        self._space(lines=nested)
        if self._take(","):
            self._space(lines=nested)
            hi = self._number() if self._peek() in _DIGITS and self._peek() else None
            self._space(lines=nested)
        if not self._take("}"):
            self._fail("'}' is missing")
        if hi is not None and hi < lo:
            self._fail(f"{{{lo},{hi}}}: the upper bound is below the lower one")
        return lo, hi

    def _number(self) -> int:
        start = self._at
        while self._peek() in _DIGITS and self._peek():
            self._at += 1
        digits = self._text[start : self._at]
        if not digits:
            self._fail("a number is expected here")
        if len(digits) > 10 or int(digits) > MAX_REPEAT:
            self._fail(f"numbers go up to {MAX_REPEAT}", start)
        return int(digits)

    # -- characters -----------------------------------------------------------------------------

    def _literal(self) -> Term:
        at = self._at
        self._at += 1
        found: list[str] = []
        while not self._take('"'):
            if not self._peek():
                self._fail("this quote is never closed", at)
            found.append(chr(self._char()))
        return Text("".join(found))

    def _class(self) -> Term:
        at = self._at
        self._at += 1
        negated = self._take("^")
        intervals: list[Interval] = []
        while not self._take("]"):
            if not self._peek():
                self._fail("this bracket is never closed", at)
            start = self._at
            low = high = self._char()
            if self._peek() == "-" and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._char()
            if high < low:
                self._fail("this range runs backwards", start)
            intervals.append((low, high))
        chars = CharSet(intervals)
        if not intervals:
            self._fail("an empty character class", at)
        if negated:
            chars = ~chars
        if not chars:
            self._fail("no character is in this class", at)
        return Chars(chars)

    def _char(self) -> int:
        """One character of a literal or class, as a code point."""
        start = self._at
        char = self._peek()
        if not char:
            self._fail("the text ends here too early")
        self._at += 1
        code = ord(char)
        if char == "\\":
            escape = self._peek()
            self._at += 1
            if escape in _HEX_DIGITS:
                code = self._hexadecimal(_HEX_DIGITS[escape], start)
            elif escape in _ESCAPES:
                code = ord(_ESCAPES[escape])
            else:
                self._fail(f"unknown escape '\\{escape}'", start)
        if code > MAX_SCALAR or 0xD800 <= code <= 0xDFFF:
            self._fail(f"U+{code:04X} is no character", start)
        return code

    def _hexadecimal(self, width: int, start: int) -> int:
        digits = self._text[self._at : self._at + width]
        if len(digits) < width or not _HEX.issuperset(digits):
            self._fail(f"this escape needs {width} hexadecimal digits", start)
        self._at += width
        return int(digits, 16)

    # -- tokens ---------------------------------------------------------------------------------

    def _token(self) -> Term:
        at = self._at
        but = self._take("!")
        if not self._take("<"):
            self._fail("'<' and a token are expected here")
        end = self._text.find(">", self._at)
        inner = self._text[self._at : end]
        if end < 0 or "\n" in inner:
            self._fail("this '<' is never closed", at)
        self._at = end + 1
        if inner.startswith("["):
            digits = inner[1:-1]
            if not inner.endswith("]") or not digits or not _DIGITS.issuperset(digits):
                self._fail("a token is written <text> or <[id]>", at)
            return Token(int(digits) if len(digits) < 10 else 10**10, but, at)
        return Token(f"<{inner}>", but, at)
