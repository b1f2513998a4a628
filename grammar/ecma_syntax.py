"""The syntax of ECMA-262 regular expressions: text in, a small tree out.

Unicode mode (a pattern is a sequence of code points) with the leniency of Annex B that patterns in
the wild rely on: identity escapes of punctuation, `]`, `{` and `}` as themselves where they can't
mean anything else. What is not ECMA-262, or not regular, is refused by name: back-references,
inline flags, atomic groups, possessive quantifiers, unknown letter escapes.

Invariant: groups nest at most `MAX_NESTING` deep, so every walk over a tree may recurse.

Read next: `grammar.ecma`, which gives a tree its language.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from grammar import charset
from grammar.charset import CharSet, UnicodeProperties, UnknownPropertyError

MAX_NESTING: Final = 60


class RegexSyntaxError(ValueError):
    """Text that is no ECMA-262 pattern. `position` counts code points from 0."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"{message} at position {position}")
        self.position = position
        self.message = message


class RegexUnsupportedError(ValueError):
    """A construct that can't be turned into a language here, by name."""

    def __init__(self, construct: str, position: int) -> None:
        super().__init__(f"{construct} is not supported (position {position})")
        self.construct = construct
        self.position = position


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    chars: CharSet


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
    position: int


@dataclass(frozen=True, slots=True)
class Assertion:
    """`^`, `$`, `b` (word boundary) or `B`."""

    symbol: str


@dataclass(frozen=True, slots=True)
class Look:
    """Look-around: `(?=`, `(?!` ahead, `(?<=`, `(?<!` behind."""

    body: Term
    ahead: bool
    negative: bool
    position: int


Term: TypeAlias = Chars | Sequence | Choice | Repeat | Assertion | Look

_CLASS_ESCAPES: Final = {
    "d": charset.DIGITS, "D": ~charset.DIGITS, "w": charset.WORD, "W": ~charset.WORD,
    "s": charset.SPACE, "S": ~charset.SPACE,
}  # fmt: skip
_CONTROLS: Final = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_DIGITS: Final = frozenset("0123456789")


def parse(pattern: str, properties: UnicodeProperties) -> Term:
    """The tree of a pattern.

    Raises:
        RegexSyntaxError: it is not a pattern.
        RegexUnsupportedError: it uses a construct that is refused by name.
    """
    return _Parser(pattern, properties).parse()


class _Parser:
    def __init__(self, pattern: str, properties: UnicodeProperties) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._properties = properties

    def parse(self) -> Term:
        tree = self._choice()
        if self._at < len(self._text):
            self._fail("unmatched ')'")
        return tree

    def _fail(self, message: str, position: int | None = None) -> NoReturn:
        raise RegexSyntaxError(self._at if position is None else position, message)

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self, prefix: str) -> bool:
        if self._text.startswith(prefix, self._at):
            self._at += len(prefix)
            return True
        return False

    def _choice(self) -> Term:
        options = [self._sequence()]
        while self._take("|"):
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Term:
        items: list[Term] = []
        while self._peek() not in ("", "|", ")"):
            start = self._at
            items.append(self._quantified(self._atom(), start))
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _quantified(self, atom: Term, start: int) -> Term:
        bounds = self._quantifier()
        if bounds is None:
            return atom
        lo, hi = bounds
        bare = isinstance(atom, Assertion) and self._text[start] != "("
        if bare or self._text.startswith(("(?<=", "(?<!"), start):
            self._fail("an assertion can't be repeated", start)
        self._take("?")
        position = self._at
        if self._take("+"):
            raise RegexUnsupportedError("a possessive quantifier", position)
        if self._quantifier() is not None:
            self._fail("nothing to repeat", position)
        return Repeat(atom, lo, hi, start)

    def _quantifier(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        start = self._at
        if not self._take("{"):
            return None
        lo, hi = self._number(), None
        if lo is not None:
            if self._take(","):
                hi = self._number()
                if self._take("}"):
                    if hi is not None and hi < lo:
                        self._fail("numbers out of order in a quantifier", start)
                    return lo, hi
            elif self._take("}"):
                return lo, lo
        self._at = start  # an ordinary brace
        return None

    def _number(self) -> int | None:
        start = self._at
        while self._peek() in _DIGITS:
            self._at += 1
        digits = self._text[start : self._at]
        if len(digits) > 1000:
            self._fail("a number of more than 1000 digits in a quantifier", start)
        return int(digits) if digits else None

    def _atom(self) -> Term:
        character, start = self._peek(), self._at
        if character == "\\":
            return self._escape_atom()
        self._at += 1
        if character == "(":
            return self._group(start)
        if character == "[":
            return Chars(self._class(start))
        if character == ".":
            return Chars(charset.DOT)
        if character in "^$":
            return Assertion(character)
        if character in "*+?":
            self._fail("nothing to repeat", start)
        if character == "{":
            self._at = start
            if self._quantifier() is not None:
                self._fail("nothing to repeat", start)
            self._at = start + 1
        return Chars(CharSet.of(character))

    def _group(self, start: int) -> Term:
        look: tuple[bool, bool] | None = None  # ahead, negative
        if self._take("?"):
            for prefix, found in (
                ("=", (True, False)), ("!", (True, True)),
                ("<=", (False, False)), ("<!", (False, True)),
            ):  # fmt: skip
                if self._take(prefix):
                    look = found
                    break
            else:
                if not self._take(":"):
                    self._group_name(start)
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise RegexUnsupportedError(f"a group nested more than {MAX_NESTING} deep", start)
        body = self._choice()
        self._depth -= 1
        if not self._take(")"):
            self._fail("unclosed group", start)
        return body if look is None else Look(body, *look, start)

    def _group_name(self, start: int) -> None:
        if self._take("<"):
            end = self._text.find(">", self._at)
            name = self._text[self._at : max(end, self._at)]
            if not name.replace("$", "_").isidentifier():
                self._fail("not a group name", start)
            self._at = end + 1
            return
        if self._take("P"):
            raise RegexUnsupportedError("a group of the form (?P...), not ECMA-262,", start)
        if self._take(">"):
            raise RegexUnsupportedError("an atomic group (?>...)", start)
        if self._take("#"):
            raise RegexUnsupportedError("a comment group (?#...)", start)
        if self._peek().isalpha() or self._peek() == "-":
            raise RegexUnsupportedError("an inline flag (?i), (?m), (?s) ...", start)
        self._fail("unknown kind of group", start)

    def _escape_atom(self) -> Term:
        start = self._at
        following = self._text[start + 1 : start + 2]
        if following in ("b", "B"):
            self._at += 2
            return Assertion(following)
        if following in _DIGITS and following != "0":
            raise RegexUnsupportedError("a back-reference", start)
        if following == "k":
            raise RegexUnsupportedError("a named back-reference", start)
        found = self._escape()
        return Chars(found if isinstance(found, CharSet) else _one(found))

    def _escape(self) -> int | CharSet:
        """An escape outside or inside a class: a code point (a surrogate maybe) or a set."""
        start = self._at
        self._at += 1
        character = self._peek()
        if not character:
            self._fail("a pattern can't end with a backslash", start)
        self._at += 1
        if character in _CLASS_ESCAPES:
            return _CLASS_ESCAPES[character]
        if character in "pP":
            return self._property(start, character == "P")
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "0":
            if self._peek() in _DIGITS:
                raise RegexUnsupportedError("a legacy octal escape", start)
            return 0
        if character == "c":
            letter = self._peek()
            if not (letter.isascii() and letter.isalpha()):
                self._fail("\\c needs a letter", start)
            self._at += 1
            return ord(letter) % 32
        if character == "x":
            return self._hexadecimal(2, start)
        if character == "u":
            return self._unicode_escape(start)
        if character.isascii() and character.isalnum():
            raise RegexUnsupportedError(f"the escape \\{character}, not ECMA-262,", start)
        return ord(character)

    def _property(self, start: int, negated: bool) -> CharSet:
        end = self._text.find("}", self._at)
        if not self._take("{") or end < 0:
            self._fail("\\p needs a property name in braces", start)
        name = self._text[self._at : end]
        self._at = end + 1
        try:
            found = self._properties.lookup(name)
        except UnknownPropertyError as error:
            raise RegexUnsupportedError(f"\\p{{{name}}} ({error})", start) from error
        return ~found if negated else found

    def _hexadecimal(self, width: int, start: int) -> int:
        digits = self._text[self._at : self._at + width]
        if len(digits) < width or not _HEX.issuperset(digits):
            self._fail("an escape lacks hexadecimal digits", start)
        self._at += width
        return int(digits, 16)

    def _unicode_escape(self, start: int) -> int:
        if self._take("{"):
            end = self._text.find("}", self._at)
            digits = self._text[self._at : max(end, self._at)]
            if not digits or not _HEX.issuperset(digits) or int(digits, 16) > 0x10FFFF:
                self._fail("not a code point in \\u{...}", start)
            self._at = end + 1
            return int(digits, 16)
        lead = self._hexadecimal(4, start)
        if 0xD800 <= lead <= 0xDBFF and self._text.startswith("\\u", self._at):
            tail = self._text[self._at + 2 : self._at + 6]
            if len(tail) == 4 and _HEX.issuperset(tail) and 0xDC00 <= int(tail, 16) <= 0xDFFF:
                self._at += 6
                return 0x10000 + ((lead - 0xD800) << 10) + int(tail, 16) - 0xDC00
        return lead

    def _class(self, start: int) -> CharSet:
        negated = self._take("^")
        pieces: list[charset.Interval] = []
        while not self._take("]"):
            if not self._peek():
                self._fail("unclosed character class", start)
            position = self._at
            first = self._class_atom()
            following = self._text[self._at : self._at + 2]
            if len(following) == 2 and following[0] == "-" and following[1] != "]":
                self._at += 1
                second = self._class_atom()
                if isinstance(first, int) and isinstance(second, int):
                    if first > second:
                        self._fail("range out of order in a character class", position)
                    pieces.append((first, second))
                    continue
                # Annex B: a range with a class at one end is the hyphen and both ends.
                pieces += [(0x2D, 0x2D), *_ranges(second)]
            pieces += _ranges(first)
        found = CharSet(pieces)
        return ~found if negated else found

    def _class_atom(self) -> int | CharSet:
        character = self._peek()
        if character == "\\":
            following = self._text[self._at + 1 : self._at + 2]
            if following == "b":
                self._at += 2
                return 8
            if following in _DIGITS and following != "0":
                raise RegexUnsupportedError("a legacy octal escape", self._at)
            return self._escape()
        if not character:
            self._fail("unclosed character class")
        self._at += 1
        return ord(character)


def _one(code: int) -> CharSet:
    """The set of one code point; of a lone surrogate, nothing, as no string holds one."""
    return CharSet(((code, code),))


def _ranges(found: int | CharSet) -> tuple[charset.Interval, ...]:
    return found.ranges if isinstance(found, CharSet) else ((found, found),)
