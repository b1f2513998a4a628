"""Many plain schema objects into one typed description: what a conjunction means for each type.

The input is an alternative of ``flatten`` (combinators are gone). The output is a list of specs,
one or more a type, whose union is exactly what all the schema objects accept together, except for
what was reported. Specs name the subschemas of their parts as conjunctions, so that recursion is
left to the compiler's table of rules.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from grammar.content import Content
from grammar.errors import Issue
from grammar.regular import Rx
from grammar.schema import keywords as kw
from grammar.schema.bounds import Bounds, bounds_of
from grammar.schema.document import Document, join
from grammar.schema.flatten import Alternative, Conjunction
from grammar.schema.languages import Languages
from grammar.schema.objects import ObjectSpec, merge_objects
from grammar.schema.places import is_local, item_places
from grammar.schema.values import Evaluator, key_of

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
class NumberSpec:
    """A number of this language over its characters."""

    language: Rx


@dataclass(frozen=True, slots=True)
class ConstantSpec:
    """A fixed array or object, in any of the styles."""

    value: list[Any] | dict[str, Any]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array: conjunctions of the first items and of the rest (None = no more items)."""

    prefix: tuple[Conjunction, ...]
    rest: Conjunction | None
    least: int
    most: int | None


Spec = WordsSpec | StringSpec | NumberSpec | ConstantSpec | ArraySpec | ObjectSpec


class Merger:
    """Makes specs of alternatives.

    Args:
        document, languages: the schema and the regular languages of its strings and numbers.
        report: called with every issue met.
        conjunction: the alternatives of a conjunction (of the flattener).
    """

    def __init__(
        self,
        document: Document,
        languages: Languages,
        report: Callable[[Issue], None],
        conjunction: Callable[[Conjunction], list[Alternative]],
    ) -> None:
        self.document = document
        self.languages = languages
        self.report = report
        self.conjunction = conjunction
        self.evaluator = Evaluator(document, languages.matches, languages.key_matches)

    def specs(self, alternative: Alternative) -> list[Spec]:
        """What all these schema objects accept together; empty if nothing."""
        schemas: list[tuple[str, dict[str, Any]]] = []
        for pointer in alternative:
            schema = self.document.schema(pointer)
            assert isinstance(schema, dict)
            schemas.append((pointer, schema))
            if "enum" in schema and not isinstance(schema["enum"], list):
                raise kw.fault("enum", pointer, "must be a list of values")
        for pointer, schema in schemas:
            if "const" in schema or "enum" in schema:
                listed = [schema["const"]] if "const" in schema else schema["enum"]
                return self._constants(alternative, listed, pointer)
        types, integer = self._types(schemas)
        result: list[Spec] = []
        for name, text in (("null", ("null",)), ("boolean", ("true", "false"))):
            if name in types:
                result.append(WordsSpec(text))
        if "number" in types:
            result += self._numbers(schemas, integer)
        if "string" in types:
            result += self._strings(schemas)
        if "array" in types:
            result += self._arrays(schemas)
        if "object" in types:
            spec = merge_objects(self, schemas)
            result += [spec] if spec is not None else []
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

    def _constants(self, alternative: Alternative, values: list[Any], pointer: str) -> list[Spec]:
        texts: dict[str, None] = {}
        result: list[Spec] = []
        seen: set[str] = set()
        for value in values:
            if not all(self.evaluator.holds_locally(p, value) for p in alternative):
                continue
            key = key_of(value)
            if key in seen:
                continue
            seen.add(key)
            if isinstance(value, (list, dict)):
                result.append(ConstantSpec(value))
            else:
                texts.update(dict.fromkeys(scalar_texts(value, pointer)))
        return [WordsSpec(tuple(texts)), *result] if texts else result

    def report_unsupported(self, kind: str, pointer: str, schema: dict[str, Any]) -> None:
        """Report the keywords for instances of a type that can't be enforced."""
        for keyword, reason in kw.UNSUPPORTED_BY_TYPE[kind].items():
            if keyword in schema and not is_idle(keyword, schema, pointer):
                self.report(Issue(keyword, pointer, reason))

    def _strings(self, schemas: list[tuple[str, dict[str, Any]]]) -> list[Spec]:
        least, most = 0, None
        parts: list[Rx] = []
        for pointer, schema in schemas:
            self.report_unsupported("string", pointer, schema)
            least = max(least, kw.count(schema, "minLength", pointer) or 0)
            bound = kw.count(schema, "maxLength", pointer)
            most = bound if most is None else most if bound is None else min(most, bound)
            parts += self.languages.of_string(schema, pointer)
        content = self.languages.content(parts, least, most)
        return [] if content is None else [StringSpec(content)]

    def _numbers(self, schemas: list[tuple[str, dict[str, Any]]], integer: bool) -> list[Spec]:
        bounds = Bounds()
        for pointer, schema in schemas:
            bounds = bounds_of(schema, pointer, bounds)
        divided = next((p for p, s in schemas if "multipleOf" in s), "")
        language = self.languages.number(bounds, integer, divided)
        return [] if language is None else [NumberSpec(language)]

    def _arrays(self, schemas: list[tuple[str, dict[str, Any]]]) -> list[Spec]:
        least, most = 0, None
        places = []
        for pointer, schema in schemas:
            self.report_unsupported("array", pointer, schema)
            least = max(least, kw.count(schema, "minItems", pointer) or 0)
            bound = kw.count(schema, "maxItems", pointer)
            most = bound if most is None else most if bound is None else min(most, bound)
            places.append(item_places(schema, pointer))
        if most is not None and least > most:
            return []
        length = max((len(prefix) for prefix, _ in places), default=0)
        items: list[Conjunction] = []
        for i in range(length + 1):
            at = (prefix[i] if i < len(prefix) else rest for prefix, rest in places)
            items.append(tuple(dict.fromkeys(p for p in at if p is not None)))
        return [ArraySpec(tuple(items[:length]), items[length], least, most)]

    # -- emptiness ------------------------------------------------------------------------------

    def exclusive(self, left: Conjunction, right: Conjunction, depth: int = 4) -> bool:
        """Whether two conjunctions certainly have no instance in common."""
        return self.is_empty(tuple(dict.fromkeys(left + right)), depth)

    def is_empty(self, conjunction: Conjunction, depth: int = 4) -> bool:
        """Whether a conjunction certainly has no instance; False where that takes a longer look."""
        return all(
            self._is_empty_spec(spec, depth)
            for alternative in self.conjunction(conjunction)
            for spec in self.specs(alternative)
        )

    def _is_empty_spec(self, spec: Spec, depth: int) -> bool:
        if depth == 0:
            return False
        if isinstance(spec, ObjectSpec):
            return any(
                needed and self.is_empty(value, depth - 1)
                for needed, value in zip(spec.required, spec.values, strict=True)
            )
        if isinstance(spec, ArraySpec):
            items = [*spec.prefix, *([] if spec.rest is None else [spec.rest])]
            return any(self.is_empty(item, depth - 1) for item in items[: spec.least])
        return False


def is_idle(keyword: str, schema: dict[str, Any], pointer: str) -> bool:
    """Whether a keyword asserts nothing as it stands here, or says the same as an enforced one."""
    value = schema[keyword]
    if keyword == "uniqueItems":
        most = kw.count(schema, "maxItems", pointer)
        return value is False or (most is not None and most <= 1)
    if keyword == "minProperties":
        return (kw.count(schema, keyword, pointer) or 0) <= len(
            kw.names(schema, "required", pointer)
        )
    if keyword == "maxProperties":
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        declared = len(kw.mapping(schema, "properties", pointer))
        return closed and (kw.count(schema, keyword, pointer) or 0) >= declared
    if keyword in ("minContains", "maxContains"):
        return True  # they only mean something beside contains, which is reported
    if keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
        return bool(value == {})
    if keyword == "unevaluatedProperties":
        return bool(value in (True, {})) or is_local(schema) or "additionalProperties" in schema
    if keyword == "unevaluatedItems":
        return bool(value in (True, {})) or is_local(schema, "contains") or "items" in schema
    return False


def scalar_texts(value: Any, pointer: str) -> list[str]:
    """How a constant may be written: one spelling, and ``1`` beside ``1.0``."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        raise kw.fault("enum", pointer, f"holds a value that JSON can't carry: {error}") from None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return [text, str(int(value))]
    return [text]


def key_conjunction(pointer: str) -> Conjunction:
    """The conjunction of a schema object's ``propertyNames``."""
    return (join(pointer, "propertyNames"),)
