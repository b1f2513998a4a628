"""Many plain schema objects into one typed description: what a conjunction means for each type.

The input is an alternative of ``flatten`` (combinators are gone). The output is a list of specs,
one or more a type, whose union is exactly what all the schema objects accept together, except for
what was reported. Specs name the subschemas of their parts as conjunctions, so that recursion is
left to the compiler's table of rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from grammar.arrays import Contains
from grammar.content import Content
from grammar.errors import Issue, SchemaBudgetError
from grammar.extract import Extract
from grammar.reach import TooLargeError
from grammar.regular import RegexBudgetError, Rx
from grammar.schema import keywords as kw
from grammar.schema.bounds import Bounds, Others, bounds_of, others_of
from grammar.schema.complement import NoComplementError
from grammar.schema.document import BEHIND, NONE, NOT, NOT_MULTIPLE, Document, join
from grammar.schema.extraction import KEYWORD, NO_SOURCE
from grammar.schema.flatten import Alternative, Conjunction
from grammar.schema.languages import Languages
from grammar.schema.objects import ObjectSpec, Schemas, merge_objects
from grammar.schema.places import contains_bounds, item_places
from grammar.schema.values import Evaluator, key_of

Way = tuple[Conjunction, tuple[int, ...]]
Sides = tuple[str, str | None]
"""Where a subschema stands, and its complement (None: it can't be had)."""
FEW_CONTAINS = 2
"""Of more than these, combinations that contradict each other are looked for."""
MAX_ITEM_WAYS = 64
MAX_LOOKS = 200
_REGULAR = ("format", "multipleOf", "pattern", "patternProperties", "propertyNames")
"""What costs most of the work on regular languages, the likeliest last."""
ALL_TYPES = ("null", "boolean", "number", "string", "array", "object")


@dataclass(frozen=True, slots=True)
class WordsSpec:
    """One of some fixed JSON texts (scalars)."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StringSpec:
    """A string with this content."""

    content: Content


@dataclass(frozen=True, slots=True)
class ExtractSpec:
    """A string that this terminal reads: a passage of the source.

    ``within`` makes the terminal of the passages that are also words of a language; None: none is.
    """

    terminal: Extract
    within: Callable[[Rx], Extract | None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """A number of this language over its characters."""

    language: Rx


@dataclass(frozen=True, slots=True)
class ConstantSpec:
    """A fixed array or object, in any of the styles."""

    value: list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array: for each of the first items, and for the rest, the ways to write one.

    A way is a conjunction and, for each of ``contains``, whether the item matches it (1) or not.
    ``unique``: the pointer of the schema object that says that items must differ, if one does.
    """

    prefix: tuple[tuple[Way, ...], ...]
    rest: tuple[Way, ...]
    least: int
    most: int | None
    contains: tuple[Contains, ...] = ()
    unique: str | None = None


Spec = WordsSpec | StringSpec | ExtractSpec | NumberSpec | ConstantSpec | ArraySpec | ObjectSpec


class _TooLongError(Exception):
    """Emptiness is not worth more looking."""


class Merger:
    """Makes specs of alternatives.

    Args:
        document, languages: the schema and the regular languages of its strings and numbers.
        report: called with every issue met.
        conjunction: the alternatives of a conjunction (of the flattener).
        fails: the alternatives of a subschema's complement; raises ``NoComplementError``.
    """

    def __init__(
        self,
        document: Document,
        languages: Languages,
        report: Callable[[Issue], None],
        conjunction: Callable[[Conjunction], list[Alternative]],
        fails: Callable[[str], list[Alternative]],
    ) -> None:
        self.document = document
        self.languages = languages
        self.report = report
        self.conjunction = conjunction
        self.fails = fails
        self._looks = 0
        self.evaluator = Evaluator(document, languages.matches, languages.key_matches)

    def specs(self, alternative: Alternative) -> list[Spec]:
        """What all these schema objects accept together; empty if nothing."""
        schemas: list[tuple[str, dict[str, Any]]] = []
        for pointer in alternative:
            schema = self.document.schema(pointer)
            assert isinstance(schema, dict)
            schemas.append((pointer, schema))
        try:
            return self._specs(alternative, schemas)
        except RegexBudgetError as error:
            blamed = [(p, k) for p, s in schemas for k in _REGULAR if k in s]
            pointer, keyword = blamed[-1] if blamed else (alternative[0], "pattern")
            shown = self.document.origin(pointer)
            raise SchemaBudgetError(str(error), pointer=shown, keyword=keyword) from None

    def _specs(self, alternative: Alternative, schemas: Schemas) -> list[Spec]:
        types, integer = self._types(schemas)
        plain = integer and not self.document.float_integers
        for pointer, schema in schemas:
            for listed in kw.listed(schema, pointer):
                return self._constants(alternative, listed, pointer, plain)
        result: list[Spec] = []
        barred = {
            json.dumps(v) for _, s in schemas for v in s.get(NONE, ()) if v in (None, True, False)
        }
        for name, texts in (("null", ("null",)), ("boolean", ("true", "false"))):
            left = tuple(text for text in texts if text not in barred)
            if name in types and left:
                result.append(WordsSpec(left))
        if "number" in types:
            result += self._numbers(schemas, integer)
        if "string" in types:
            result += self._strings(schemas)
        if "array" in types:
            result += self._arrays(schemas)
        if "object" in types:
            result += merge_objects(self, schemas)
        return result

    @staticmethod
    def _types(schemas: list[tuple[str, dict[str, Any]]]) -> tuple[set[str], bool]:
        left = set(ALL_TYPES)
        integer = False
        for pointer, schema in schemas:
            types = kw.types(schema, pointer)
            if types is None:
                continue
            if "integer" in types and "number" not in types:
                integer = True
                types |= {"number"}
            left &= types
        return left, integer

    def _constants(
        self, alternative: Alternative, values: list[Any], pointer: str, plain: bool
    ) -> list[Spec]:
        """``plain``: integers are written without a fraction."""
        texts: dict[str, None] = {}
        result: list[Spec] = []
        seen: set[str] = set()
        for value in values:
            self.languages.builder.breathe()
            if not all(self.evaluator.holds_locally(p, value) for p in alternative):
                continue
            key = key_of(value)
            if key in seen:
                continue
            seen.add(key)
            if isinstance(value, (list, dict)):
                result.append(ConstantSpec(value))
            else:
                spelled = scalar_texts(value, pointer)
                texts.update(dict.fromkeys(t for t in spelled if not (plain and "." in t)))
        return [WordsSpec(tuple(texts)), *result] if texts else result

    def _strings(self, schemas: list[tuple[str, dict[str, Any]]]) -> list[Spec]:
        least, most = kw.limits(schemas, "minLength", "maxLength")
        parts: list[Rx] = []
        for pointer, schema in schemas:
            parts += self.languages.of_string(schema, pointer)
        content = self.languages.content(parts, least, most)
        if content is None:
            return []
        extractions = self.languages.extractions
        asked = extractions.unit(schemas)
        if asked is not None and not extractions.has_source:
            self.report(Issue(KEYWORD, asked[1], NO_SOURCE))
        elif asked is not None:
            return self._extracted(*asked, content, schemas)
        return [StringSpec(content)]

    def _extracted(
        self,
        unit: str,
        pointer: str,
        content: Content,
        schemas: list[tuple[str, dict[str, Any]]],
    ) -> list[Spec]:
        language, least, most = content
        assert language is None or isinstance(language, Rx)
        extractions, builder = self.languages.extractions, self.languages.builder

        def terminal(bound: Rx | None) -> Extract | None:
            try:
                return extractions.terminal(unit, pointer, bound, least, most)
            except RegexBudgetError as error:
                raise SchemaBudgetError(str(error), pointer=pointer, keyword=KEYWORD) from None

        try:
            found = terminal(language)
        except TooLargeError:
            keyword, where = next(
                ((k, p) for k in ("pattern", "format") for p, s in schemas if k in s),
                (KEYWORD, pointer),
            )
            reason = "it has too many states beside x-extract for a source of this length"
            self.report(Issue(keyword, where, reason))
            language = None
            found = terminal(None)
        if found is None:
            return []
        kept = language

        def within(other: Rx) -> Extract | None:
            try:
                return terminal(other if kept is None else builder.intersect(kept, other))
            except TooLargeError:
                reason = "the source is too long for what this string must not hold"
                raise SchemaBudgetError(reason, pointer=pointer, keyword=KEYWORD) from None

        return [ExtractSpec(found, within)]

    def _numbers(self, schemas: list[tuple[str, dict[str, Any]]], integer: bool) -> list[Spec]:
        bounds, others = Bounds(), Others()
        for pointer, schema in schemas:
            bounds = bounds_of(schema, pointer, bounds)
            others = others_of(schema, others)
        divided = next((p for p, s in schemas if "multipleOf" in s or NOT_MULTIPLE in s), "")
        language = self.languages.number(bounds, integer, divided, others)
        return [] if language is None else [NumberSpec(language)]

    def _arrays(self, schemas: list[tuple[str, dict[str, Any]]]) -> list[Spec]:
        least, most = kw.limits(schemas, "minItems", "maxItems")
        places = [item_places(schema, pointer) for pointer, schema in schemas]
        unique = None
        if most is None or most > 1:
            unique = next((p for p, s in schemas if s.get("uniqueItems") is True), None)
        if most is not None and least > most:
            return []
        contains = self._contains(schemas)
        length = max((len(prefix) for prefix, _ in places), default=0)
        length = max([length, *(behind for _, _, behind in contains)])
        items: list[tuple[Way, ...]] = []
        for i in range(length + 1):
            at = (prefix[i] if i < len(prefix) else rest for prefix, rest in places)
            conjunction = tuple(dict.fromkeys(p for p in at if p is not None))
            here = [None if i < behind else pair for pair, _, behind in contains]
            items.append(tuple(self._item_ways(conjunction, here, schemas)))
        bounds = tuple(bound for _, bound, _ in contains)
        return [ArraySpec(tuple(items[:length]), items[length], least, most, bounds, unique)]

    def _contains(
        self, schemas: list[tuple[str, dict[str, Any]]]
    ) -> list[tuple[Sides, Contains, int]]:
        """For each ``contains``: (the subschema's pointer, its complement's or None), the bounds,
        and of how many first items it takes no notice."""
        found: list[tuple[Sides, Contains, int]] = []
        for pointer, schema in schemas:
            if "contains" not in schema:
                continue
            least, most = contains_bounds(schema, pointer)
            if least == 0 and most is None:
                continue
            inner = join(pointer, "contains")
            outside: str | None = self.document.add({NOT: inner}, self.document.origin(pointer))
            try:
                self.fails(inner)
            except NoComplementError as error:
                outside = None  # who only needs enough matches need not know what is none
                if most is not None:
                    self.report(Issue("contains", pointer, str(error)))
                    continue
            found.append(((inner, outside), Contains(least, most), schema.get(BEHIND, 0)))
        return found

    def _item_ways(
        self, conjunction: Conjunction, contains: list[Sides | None], schemas: Schemas
    ) -> list[Way]:
        """An item that matches some of ``contains`` and fails the others, in every combination that
        is possible. (None: that one takes no notice of the item.)"""
        ways: list[Way] = [(conjunction, ())]
        for sides in contains:
            longer: list[Way] = []
            for so_far, matches in ways:
                if sides is None:
                    longer.append((so_far, (*matches, 0)))
                    continue
                for side, match in zip(sides, (1, 0), strict=True):
                    more = so_far if side is None else tuple(dict.fromkeys((*so_far, side)))
                    if len(contains) <= FEW_CONTAINS or not self.exclusive(more, ()):
                        longer.append((more, (*matches, match)))
            ways = longer
            if len(ways) > MAX_ITEM_WAYS:
                pointer = next(p for p, s in schemas if "contains" in s)
                raise SchemaBudgetError(
                    f"items match more than {MAX_ITEM_WAYS} combinations of contains",
                    pointer=self.document.origin(pointer),
                    keyword="contains",
                )
        return ways

    # -- emptiness ------------------------------------------------------------------------------

    def exclusive(self, left: Conjunction, right: Conjunction, depth: int = 4) -> bool:
        """Whether two conjunctions certainly have no instance in common.

        False, too, where finding out would take more than ``MAX_LOOKS`` schema objects.
        """
        before, self._looks = self._looks, 0
        try:
            return self.is_empty(tuple(dict.fromkeys(left + right)), depth)
        except _TooLongError:
            return False
        finally:
            self._looks = before

    def is_empty(self, conjunction: Conjunction, depth: int = 4) -> bool:
        """Whether a conjunction certainly has no instance; False where that takes a longer look."""
        for alternative in self.conjunction(conjunction):
            self._looks += 1
            if self._looks > MAX_LOOKS:
                raise _TooLongError
            if not all(self._is_empty_spec(spec, depth) for spec in self.specs(alternative)):
                return False
        return True

    def _is_empty_spec(self, spec: Spec, depth: int) -> bool:
        if depth == 0:
            return False
        if isinstance(spec, ObjectSpec):
            return any(
                needed and self.is_empty(value, depth - 1)
                for needed, value in zip(spec.required, spec.values, strict=True)
            )
        if isinstance(spec, ArraySpec):
            items = [*spec.prefix, spec.rest][: spec.least]
            return any(all(self.is_empty(c, depth - 1) for c, _ in ways) for ways in items)
        return False


def scalar_texts(value: Any, pointer: str) -> list[str]:
    """How a constant may be written: one spelling; of an integer both ``1`` and ``1.0``."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        raise kw.fault("enum", pointer, f"holds a value that JSON can't carry: {error}") from None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return [text, str(int(value))]
    if isinstance(value, int) and not isinstance(value, bool):
        return [text, f"{text}.0"]
    return [text]
