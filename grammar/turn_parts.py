"""The parts that a turn of a chat is described with; ``turn.py`` makes a grammar of them.

Regular parts speak of text. ``Marked`` says that special tokens are written as tokens in it;
outside of it a part speaks of characters only, so ``Free`` text holds no special token, and none of
the texts it bars, however their characters are cut into tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from grammar.dialects import Dialect


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of some ranges (first and last code point)."""

    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Exactly this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Seq:
    """Some parts in a row."""

    items: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of some parts; none of none."""

    options: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A part ``low`` to ``high`` times (None = any number)."""

    item: Part
    low: int
    high: int | None


@dataclass(frozen=True, slots=True)
class Look:
    """What follows, to the end of the ``Seq`` around, begins so (``negative``: does not)."""

    item: Part
    negative: bool


@dataclass(frozen=True, slots=True)
class Both:
    """What fits both parts, which are regular."""

    left: Part
    right: Part


@dataclass(frozen=True, slots=True)
class Free:
    """Any text, even none, in which no part of ``bars`` occurs."""

    bars: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Marked:
    """A regular part in which special tokens are written as tokens."""

    item: Part


@dataclass(frozen=True, slots=True)
class Timed:
    """A regular text and its closing delimiter, of which a budget can cut the text short."""

    text: Part
    closing: Part


@dataclass(frozen=True, slots=True)
class Value:
    """One of the values of the turn, by its place in the list of them."""

    index: int


Part: TypeAlias = Chars | Text | Seq | Alt | Repeat | Look | Both | Free | Marked | Timed | Value

TRIMMED = "no text begins or ends with white space, which would be taken off it"
"""The note of a report that a ``trimmed`` value has fewer texts than its language."""

JSON = Dialect()
EMPTY = Seq(())
NOTHING = Alt(())


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A JSON value within a turn.

    Attributes:
        schema: its JSON Schema.
        barred: texts that must not occur in it (see ``writing.GuardedWriter``).
        origins: what the parts of the schema are: of the longest JSON pointer that fits, what
            messages and reports say for it, and whether a keyword that can't be enforced below it
            is an error.
        key_order, formats, source: as of ``compile_json_schema``.
        dialect: how it is written beyond JSON.
    """

    schema: Mapping[str, Any] | bool
    barred: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = (("", "", True),)
    key_order: str = "schema"
    formats: str = "assert"
    source: str | None = None
    dialect: Dialect = JSON


@dataclass(frozen=True, slots=True)
class Member:
    """How one argument is written: ``before`` its value and ``after`` it.

    Attributes:
        name: the property.
        frames: the texts around the value, each with the beginnings and the ends that a value of
            plain text must not have there, since they would be taken for a part of the frame.
        text: whether a value may be plain text: then it is a string, and written as it is.
        null: whether ``null`` may be written for null beside plain text.
        types: JSON types that are written as JSON; None: any value, also strings.
    """

    name: str
    frames: tuple[Frame, ...]
    text: bool
    null: bool
    types: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Frame:
    """Texts before and after a value, and what a plain text between them must not begin and end
    with (None: anything goes)."""

    before: Part
    after: Part
    not_first: Part | None = None
    not_last: Part | None = None


@dataclass(frozen=True, slots=True)
class ArgumentsValue:
    """An object that is written as its members one after the other, in the schema's order.

    Attributes:
        schema, origins, source: as of ``JsonValue``; only values that are written as JSON extract.
        members: how the properties are written; those that are not here can't be.
        between: what stands between two members.
        barred: texts that no value may hold.
        dialect: of the values that are written as JSON.
    """

    schema: Mapping[str, Any] | bool
    members: tuple[Member, ...]
    between: Part
    barred: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = (("", "", True),)
    dialect: Dialect = JSON
    source: str | None = None


@dataclass(frozen=True, slots=True)
class PatternValue:
    """A text that a regular expression (``compile_regex``) matches, without the barred texts.

    ``trimmed``: white space at its ends would be taken off, so it has none there.
    """

    pattern: str
    barred: tuple[str, ...] = ()
    label: str = ""
    trimmed: bool = False


@dataclass(frozen=True, slots=True)
class ChoiceValue:
    """One of some texts; those with a barred text are left out. ``trimmed`` as above."""

    choices: tuple[str, ...]
    barred: tuple[str, ...] = ()
    label: str = ""
    trimmed: bool = False


@dataclass(frozen=True, slots=True)
class GbnfValue:
    """A text of a GBNF grammar that is regular, without the barred texts. ``trimmed`` as above."""

    source: str
    barred: tuple[str, ...] = ()
    label: str = ""
    trimmed: bool = False


Origin: TypeAlias = tuple[str, str, bool]
ValueSource: TypeAlias = JsonValue | ArgumentsValue | PatternValue | ChoiceValue | GbnfValue


@dataclass(frozen=True, slots=True)
class Turn:
    """A whole turn: its parts, and the values that ``Value`` parts refer to."""

    root: Part
    values: tuple[ValueSource, ...] = field(default=())
