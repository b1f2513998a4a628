"""``x-extract``: strings that are passages of a source which the compilation is given.

    "x-extract": "source"
    "x-extract": {"from": "source", "unit": "words"}

The unit is one of ``characters`` (the default), ``words`` and ``sentences`` (``passages.py``).
Like every keyword for strings it says nothing of other types. Where several apply, the coarsest
unit counts, since its passages are passages of the finer ones, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grammar.errors import SchemaBudgetError
from grammar.extract import Extract
from grammar.passages import UNITS, Passages
from grammar.reach import Reach, longer
from grammar.regular import RegexBuilder, Rx
from grammar.schema import keywords as kw

KEYWORD = "x-extract"
NO_SOURCE = "there is no source to extract from"
MAX_SOURCE = 1_000_000
"""Characters of the longest source."""


def unit_of(schema: Mapping[str, Any], pointer: str) -> str | None:
    """The unit that a schema object asks for; None: it does not extract.

    Raises:
        SchemaError: it can't be read.
    """
    if KEYWORD not in schema:
        return None
    said = schema[KEYWORD]
    if isinstance(said, str):
        said = {"from": said}
    if not isinstance(said, dict) or said.get("from") != "source" or said.keys() - {"from", "unit"}:
        raise kw.fault(KEYWORD, pointer, 'must be "source" or {"from": "source", "unit": ...}')
    unit = said.get("unit", UNITS[0])
    if unit not in UNITS:
        raise kw.fault(
            KEYWORD, pointer, f"unit must be one of {', '.join(UNITS)}, not {unit!r:.80}"
        )
    return str(unit)


class Extractions:
    """The terminals of one compilation; equal ones are made once.

    Args:
        source: the text; None: there is none.
        builder: the workspace's.
    """

    def __init__(self, source: str | None, builder: RegexBuilder) -> None:
        self._source = source
        self._builder = builder
        self._passages: dict[str, Passages] = {}
        self._made: dict[tuple[str, Rx | None, int, int | None], Extract] = {}

    @property
    def has_source(self) -> bool:
        """Whether there is anything to extract from."""
        return self._source is not None

    def unit(self, schemas: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, str] | None:
        """The coarsest unit that schema objects ask for, and the pointer of the one that does."""
        asked = [(unit_of(schema, pointer), pointer) for pointer, schema in schemas]
        units = [(UNITS.index(unit), pointer) for unit, pointer in asked if unit is not None]
        if not units:
            return None
        index, pointer = max(units, key=lambda each: each[0])
        return UNITS[index], pointer

    def passages(self, unit: str, pointer: str) -> Passages:
        """The source's passages.

        Raises:
            SchemaError: nothing stands in the source, it is no Unicode text, or it is too long.
        """
        found = self._passages.get(unit)
        if found is None:
            assert self._source is not None
            if not self._source.strip():
                raise kw.fault(KEYWORD, pointer, "the source to extract from is empty")
            if len(self._source) > MAX_SOURCE:
                raise SchemaBudgetError(
                    f"the source has {len(self._source)} characters; at most {MAX_SOURCE} are "
                    "extracted from",
                    pointer=pointer,
                    keyword=KEYWORD,
                )
            try:
                found = self._passages[unit] = Passages(self._source, unit)
            except UnicodeEncodeError:
                message = "the source to extract from holds half a surrogate pair"
                raise kw.fault(KEYWORD, pointer, message) from None
        return found

    def terminal(
        self, unit: str, pointer: str, language: Rx | None, least: int, most: int | None
    ) -> Extract | None:
        """The terminal of the passages under a pattern and bounds; None if there are none.

        Raises:
            SchemaError: as ``passages``.
            TooLargeError: the pattern has too many states for a source of this length.
        """
        key = (unit, language, max(least, 1), most)
        found = self._made.get(key)
        if found is None:
            passages = self.passages(unit, pointer)
            reach = None
            if language is not None:
                reach = Reach(passages, longer(self._builder, language, key[2]))
            found = self._made[key] = Extract(passages, least, most, reach)
        return found if found.is_possible() else None

    def holds(self, schema: Mapping[str, Any], pointer: str, text: str) -> bool:
        """Whether a constant is a passage that one schema object admits."""
        unit = unit_of(schema, pointer)
        return unit is None or not self.has_source or text in self.passages(unit, pointer)
