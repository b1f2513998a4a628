"""A JSON text being read, from the bracket of the outermost array whose items are compared.

A ``Reader`` is what has been read so far: the containers that are open, the values in them, and a
scalar begun. It says which earlier items of an array the present one may still turn out to be equal
to (``near``), so that ``unique.py`` can see a repetition coming before its last byte. The text is
one that a grammar has admitted: nothing is checked here.

Values are compared as JSON Schema does (Core, 4.2.2): strings by their characters, numbers by their
value, objects whatever the order of their keys; white space and spelling are nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from grammar.compared import Items, Number, Value

TRUE: Final = (True,)
FALSE: Final = (False,)
NULL: Final = (None,)
_LITERALS: Final = {b"true": TRUE, b"false": FALSE, b"null": NULL}
_BLANKS: Final = b" \t\r\n"
_SHORT: Final = {0x62: "\b", 0x66: "\f", 0x6E: "\n", 0x72: "\r", 0x74: "\t"}
_TOLERANCE: Final = 1e-12

# Where a reader stands.
VALUE = "value"  # before a value (or, behind an opening bracket, its closing one)
KEY = "key"  # before a key, or the closing brace
NAME = "name"  # in a key
COLON = "colon"  # behind a key
STRING = "string"
NUMBER = "number"  # in a number, which may be whole already
LITERAL = "literal"
DONE = "done"  # behind a value

_AFTER_NUMBER: Final = frozenset(b".eE+-,]} \t\r\n")
_EXPECTED: Final = {
    KEY: frozenset(b'"} \t\r\n'),
    COLON: frozenset(b": \t\r\n"),
    DONE: frozenset(b",]} \t\r\n"),
    LITERAL: frozenset(b"aelrsu"),
    VALUE: frozenset(b'"[]{}-0123456789tfn \t\r\n'),
}
"""What may follow in JSON where a reader stands."""


class Level:
    """An open array or object. ``near``: the earlier items that the present one may still equal;
    only kept up where the array is ``watched``."""

    __slots__ = ("items", "name", "near", "pairs", "watched")

    def __init__(
        self,
        items: Items | None,
        pairs: frozenset[tuple[str, Value]] = frozenset(),
        name: str = "",
        near: tuple[Value, ...] = (),
        *,
        watched: bool = False,
    ) -> None:
        self.items = items  # None: an object
        self.pairs = pairs
        self.name = name
        self.near = near
        self.watched = watched

    def with_value(self, value: Value) -> Level:
        """With one more item, or a value for the present name."""
        if self.items is None:
            return Level(None, self.pairs | {(self.name, value)})
        return Level(self.items.followed_by(value), watched=self.watched)

    def key(self) -> Value:
        """What the container would be if it ended here, as a dictionary key."""
        return ("{", self.pairs) if self.items is None else self.items.key()


class Reader:
    """What was read; immutable.

    Attributes:
        levels: the open containers, the outermost first.
        mode: where the reader stands (the constants above).
        text: the bytes of the scalar or key begun, without its opening quote.
    """

    __slots__ = ("base", "is_near", "levels", "mode", "text")

    def __init__(self, base: int, levels: tuple[Level, ...], mode: str, text: bytes = b"") -> None:
        self.base = base  # the depth of the outermost array in the whole text
        self.levels = levels
        self.mode = mode
        self.text = text
        self.is_near = False  # whether any level's ``near`` has anything

    @classmethod
    def opened(cls, depth: int) -> Reader:
        """Behind the opening bracket of the outermost array."""
        return cls(depth, (Level(Items(), watched=True),), VALUE)

    def at(self, depth: int) -> Level | None:
        """The container at a depth of the whole text, if it is open."""
        index = depth - self.base
        return self.levels[index] if 0 <= index < len(self.levels) else None

    def key(self) -> object:
        """The same for readers after which the same texts mean the same."""
        levels = tuple((level.key(), level.name, level.watched) for level in self.levels)
        return (levels, self.mode, self.text)

    # -- reading --------------------------------------------------------------------------------

    def step(self, byte: int, *, watched: bool = False) -> Reader | None:
        """After one more byte; None where the outermost array has ended.

        ``watched``: the byte opens an array whose items are compared.
        """
        mode = self.mode
        if mode in (STRING, NAME):
            return self._in_string(byte)
        if mode == NUMBER:
            if byte not in b",]} \t\r\n":
                return self._begun(NUMBER, self.text + bytes((byte,)))
            ended = self._complete(Number(self.text.decode()))
            assert ended is not None
            return ended.step(byte)
        if mode == LITERAL:
            text = self.text + bytes((byte,))
            literal = _LITERALS.get(text)
            return self._begun(LITERAL, text) if literal is None else self._complete(literal)
        if byte in _BLANKS:
            return self
        if byte == 0x2C:
            return self._next_part()
        if byte == 0x5D or byte == 0x7D:
            return self._closed()
        if byte == 0x3A:
            return self._begun(VALUE)
        if byte == 0x22:
            return self._begun(NAME if mode == KEY else STRING)
        if byte == 0x5B:
            opened = Level(Items(), watched=watched)
            return self._near(Reader(self.base, (*self.levels, opened), VALUE))
        if byte == 0x7B:
            return self._near(Reader(self.base, (*self.levels, Level(None)), KEY))
        return self._begun(LITERAL if byte in b"tfn" else NUMBER, bytes((byte,)))

    def _begun(self, mode: str, text: bytes = b"") -> Reader:
        return self._near(Reader(self.base, self.levels, mode, text))

    def _in_string(self, byte: int) -> Reader | None:
        if byte != 0x22 or _is_escaping(self.text):
            return self._begun(self.mode, self.text + bytes((byte,)))
        text: str = json.loads(b'"' + self.text + b'"')
        if self.mode == STRING:
            return self._complete(text)
        last = self.levels[-1]
        named = Level(None, last.pairs, text)
        return self._near(Reader(self.base, (*self.levels[:-1], named), COLON))

    def _complete(self, value: Value) -> Reader | None:
        levels = (*self.levels[:-1], self.levels[-1].with_value(value))
        return self._near(Reader(self.base, levels, DONE))

    def _closed(self) -> Reader | None:
        if len(self.levels) == 1:
            return None
        levels = (*self.levels[:-2], self.levels[-2].with_value(self.levels[-1].key()))
        return self._near(Reader(self.base, levels, DONE))

    def _next_part(self) -> Reader:
        last = self.levels[-1]
        if last.items is None:
            return self._begun(KEY)
        if last.watched:
            last = Level(last.items, near=tuple(last.items), watched=True)
        return self._near(Reader(self.base, (*self.levels[:-1], last), VALUE))

    def whole(self) -> Value | None:
        """The value that is whole here if nothing is added to it: the last item, or a number."""
        if self.mode == NUMBER:
            text = self.text.decode()
            return Number(text) if text[-1].isdecimal() else None
        items = self.levels[-1].items
        if self.mode == DONE and items is not None:
            return items._values[items.count - 1]
        return None

    def earlier(self) -> Items:
        """The items of the innermost array before the one that ``whole`` gives."""
        items = self.levels[-1].items
        assert items is not None
        if self.mode == NUMBER:
            return items
        before = Items.__new__(Items)
        before._values, before._first = items._values, items._first
        before.count, before.repeats = items.count - 1, False
        return before

    def repeats(self) -> bool:
        """Whether some open array has two items that are equal."""
        return any(level.items is not None and level.items.repeats for level in self.levels)

    # -- what the present item may still be equal to --------------------------------------------

    def _near(self, after: Reader) -> Reader:
        """``after``, with what is left of each level's ``near``."""
        for index, level in enumerate(after.levels):
            if level.near:
                left = tuple(x for x in level.near if after._fits(index + 1, x))
                if len(left) < len(level.near):
                    narrowed = Level(level.items, near=left, watched=True)
                    levels = after.levels
                    after.levels = (*levels[:index], narrowed, *levels[index + 1 :])
                after.is_near |= bool(left)
        return after

    def _fits(self, index: int, value: Value) -> bool:
        """Whether what is open from a level on may become ``value``; says True where unsure."""
        if index == len(self.levels):
            return self._scalar_fits(value)
        level = self.levels[index]
        innermost = index + 1 == len(self.levels)
        if not isinstance(value, tuple):
            return False
        if level.items is not None:
            count = level.items.count
            if value[0] != "[" or value[1 : count + 1] != level.items.key()[1:]:  # type: ignore[index]
                return False
            if innermost and (self.mode == DONE or (self.mode == VALUE and count == 0)):
                return True
            return len(value) > count + 1 and self._fits(index + 1, value[count + 1])  # type: ignore[arg-type]
        if value[0] != "{":
            return False
        pairs = value[1]
        assert isinstance(pairs, frozenset)
        if not level.pairs <= pairs:
            return False
        if innermost and self.mode in (DONE, KEY):
            return True
        if innermost and self.mode == NAME:
            return any(_begins(name, self.text) for name, _ in pairs - level.pairs)
        return any(
            name == level.name
            and ((innermost and self.mode in (COLON, VALUE)) or self._fits(index + 1, item))
            for name, item in pairs - level.pairs
        )

    def _scalar_fits(self, value: Value) -> bool:
        if self.mode == STRING:
            return isinstance(value, str) and _begins(value, self.text)
        if self.mode == NUMBER:
            return isinstance(value, Number) and _may_become(self.text.decode(), value.double)
        if self.mode == LITERAL:
            return any(v == value and w.startswith(self.text) for w, v in _LITERALS.items())
        return True

    def expected(self) -> frozenset[int] | None:
        """The bytes that may keep ``near``, or complete an item, and some more; None: not known."""
        if self.mode == STRING or self.mode == NAME:
            begun = self._spelled()
            if begun is None:
                return None
            size = len(begun)
            found = set(b'"\\')
            for value in self._open_parts():
                if isinstance(value, str):
                    found.update(value.encode()[size : size + 1])
            return frozenset(found)
        if self.mode == NUMBER:
            numbers = [v.double for v in self._open_parts() if isinstance(v, Number)]
            text = self.text.decode()
            kept = (
                digit
                for digit in b"0123456789"
                if any(_may_become(text + chr(digit), number) for number in numbers)
            )
            return _AFTER_NUMBER.union(kept)
        return _EXPECTED.get(self.mode)

    def remainders(self) -> list[bytes] | None:
        """Within a string, what would complete each value that keeps ``near``, as UTF-8."""
        begun = self._spelled() if self.mode == STRING else None
        if begun is None:
            return None
        size = len(begun)
        encoded = [v.encode() for v in self._open_parts() if isinstance(v, str)]
        return [value[size:] for value in encoded if value.startswith(begun)]

    def _spelled(self) -> bytes | None:
        """The UTF-8 of a string begun; None within an escape."""
        if b"\\" not in self.text:
            return self.text
        try:
            text: str = json.loads(b'"' + self.text + b'"')
            return text.encode()
        except ValueError:
            return None

    def _open_parts(self) -> Iterator[Value]:
        """What the scalar or name that is being written may become to keep ``near``."""
        for index, level in enumerate(self.levels):
            for value in level.near:
                yield from self._parts_at(index + 1, value)

    def _parts_at(self, index: int, value: Value) -> Iterator[Value]:
        if index == len(self.levels):
            yield value
            return
        level = self.levels[index]
        if not isinstance(value, tuple):
            return
        if level.items is not None:
            if value[0] == "[" and len(value) > level.items.count + 1:
                yield from self._parts_at(index + 1, value[level.items.count + 1])  # type: ignore[arg-type]
        elif value[0] == "{":
            pairs = value[1]
            assert isinstance(pairs, frozenset)
            for name, item in pairs - level.pairs:
                if self.mode == NAME and index + 1 == len(self.levels):
                    yield name
                elif name == level.name:
                    yield from self._parts_at(index + 1, item)


def _is_escaping(text: bytes) -> bool:
    """Whether the next byte belongs to an escape begun by the last one."""
    return (len(text) - len(text.rstrip(b"\\"))) % 2 == 1


def _begins(value: str, text: bytes) -> bool:
    """Whether the inside of a JSON string may go on to mean ``value``."""
    if b"\\" not in text:
        return value.encode().startswith(text)
    return value.startswith(_decoded(text))


def _decoded(text: bytes) -> str:
    """The characters that are whole in the inside of a JSON string begun."""
    end = len(text)
    while end:
        try:
            found: str = json.loads(b'"' + text[:end] + b'"')
        except ValueError:
            end -= 1
            continue
        if found and "\ud800" <= found[-1] <= "\udbff":  # the half of a pair
            return found[:-1]
        return found
    return ""


def _may_become(text: str, value: float) -> bool:
    """Whether a number begun may go on to be ``value``, by its first digits."""
    negative, low, high = _begun_number(text)
    if value == 0:
        return low == 0
    if negative != (value < 0):
        return False
    edges = _mantissas(value)
    return low == 0 or any(low - _TOLERANCE <= edge <= high + _TOLERANCE for edge in edges)


@lru_cache(maxsize=4096)
def _begun_number(text: str) -> tuple[bool, float, float]:
    """Whether a number begun is negative, and the range of 0.d1d2d3… by its digits that count."""
    mantissa = text.lstrip("-").lower().partition("e")[0].replace(".", "").lstrip("0")
    return text.startswith("-"), float(f"0.{mantissa}"), float(f"0.{mantissa}{'9' * 20}")


@lru_cache(maxsize=4096)
def _mantissas(value: float) -> tuple[float, float]:
    """A number as 0.d1d2d3…, and ten times that, since 0.999… rounds to 1."""
    digits = f"{abs(value):.17e}"
    wanted = float(f"0.{digits[0]}{digits[2:19]}")
    return wanted, wanted * 10
