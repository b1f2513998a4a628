"""Constants against schemas: does a value from ``enum`` or ``const`` satisfy the rest?

A small exact evaluator for the keywords that this compiler enforces (Validation, 2020-12), used
to filter the finite values of a conjunction, and to compare values as JSON Schema does (1 = 1.0,
but 1 != true). Keywords that are reported as not enforced count as satisfied.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.bounds import bounds_of, exact, others_of
from grammar.schema.document import AT, BEHIND, NONE, NOT, SOME_KEY, Document, join
from grammar.schema.places import contains_bounds, extra_place, item_places

_LISTING = frozenset({"const", "enum", NONE})


def key_of(value: Any) -> str:
    """A text that is the same for values that JSON Schema calls equal, and for no others.

    Numbers are compared by value, booleans are no numbers (Core, 4.2.2).
    """
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    """Numbers that are equal in one form."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def type_of(value: Any) -> frozenset[str]:
    """The JSON Schema types that a value has (1.0 is an integer too)."""
    if value is None:
        return frozenset({"null"})
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return frozenset({"integer", "number"})
    if isinstance(value, float):
        return frozenset({"number"})
    if isinstance(value, str):
        return frozenset({"string"})
    return frozenset({"array" if isinstance(value, list) else "object"})


class Evaluator:
    """Evaluates values against subschemas of a document.

    ``string_matches(pointer, text)`` decides ``pattern`` and ``format`` of one schema object, and
    ``key_matches(pattern, pointer, key)`` the patterns of ``patternProperties``.
    """

    def __init__(
        self,
        document: Document,
        string_matches: Callable[[str, str], bool],
        key_matches: Callable[[str, str, str], bool],
    ) -> None:
        self._document = document
        self._string_matches = string_matches
        self._key_matches = key_matches
        self._lists: dict[str, tuple[list[frozenset[str]], frozenset[str]]] = {}

    def holds(self, pointer: str, value: Any) -> bool:
        """Whether the subschema accepts the value, combinators included."""
        schema = self._document.schema(pointer)
        if isinstance(schema, bool):
            return schema
        if AT in schema:
            return self.holds(schema[AT], value)
        if NOT in schema:
            return not self.holds(schema[NOT], value)
        targets = self._document.references(schema, pointer)
        if not all(self.holds(target, value) for target in targets):
            return False
        if "$ref" in schema and self._document.dialect(pointer).ref_alone:
            return True
        branches = {
            keyword: [
                self.holds(join(pointer, keyword, i), value)
                for i in range(kw.schemas(schema, keyword, pointer))
            ]
            for keyword in ("allOf", "anyOf", "oneOf")
            if keyword in schema
        }
        if not all(branches.get("allOf", [True])) or not any(branches.get("anyOf", [True])):
            return False
        if "oneOf" in branches and sum(branches["oneOf"]) != 1:
            return False
        if "not" in schema and self.holds(join(pointer, "not"), value):
            return False
        if "if" in schema:
            arm = "then" if self.holds(join(pointer, "if"), value) else "else"
            if arm in schema and not self.holds(join(pointer, arm), value):
                return False
        if not self._depends(schema, pointer, value) or not self.holds_locally(pointer, value):
            return False
        return not self._document.tracks_evaluation or self._rest_holds(schema, pointer, value)

    def _rest_holds(self, schema: dict[str, Any], pointer: str, value: Any) -> bool:
        """Whether the parts that nothing evaluates fit ``unevaluated…`` (Core, 11)."""
        for keyword, kind in (("unevaluatedProperties", dict), ("unevaluatedItems", list)):
            if keyword in schema and isinstance(value, kind):
                others = {k: v for k, v in schema.items() if k != keyword}
                seen = self._evaluated(others, pointer, value)
                parts = value.items() if isinstance(value, dict) else enumerate(value)
                place = join(pointer, keyword)
                if not all(part in seen or self.holds(place, item) for part, item in parts):
                    return False
        return True

    def _evaluated(self, schema: dict[str, Any] | bool, pointer: str, value: Any) -> set[str | int]:
        """The keys, or the places of the items, that a subschema that holds evaluates."""
        if isinstance(schema, bool) or NOT in schema:
            return set()
        document = self._document
        places = [schema[AT]] if AT in schema else document.references(schema, pointer)
        dialect = document.dialect(pointer)
        alone = "$ref" in schema and dialect.ref_alone
        if not alone:
            for keyword in ("allOf", "anyOf", "oneOf"):
                count = kw.schemas(schema, keyword, pointer)
                places += [join(pointer, keyword, i) for i in range(count)]
            if "if" in schema:
                met = self.holds(join(pointer, "if"), value)
                arms = ("if", "then") if met else ("else",)
                places += [join(pointer, arm) for arm in arms if arm in schema]
            for keyword in ("dependentSchemas", "dependencies"):
                needs = kw.mapping(schema, keyword, pointer)
                places += [
                    join(pointer, keyword, name)
                    for name in needs
                    if name in value and not isinstance(needs[name], list)
                ]
        found: set[str | int] = set()
        for place in dict.fromkeys(places):
            if self.holds(place, value):
                found |= self._evaluated(document.schema(place), place, value)
        if alone:
            return found
        if isinstance(value, dict):
            return found | self._evaluated_keys(schema, pointer, value)
        return found | self._evaluated_items(schema, pointer, value, dialect.draft)

    def _evaluated_keys(
        self, schema: dict[str, Any], pointer: str, value: dict[str, Any]
    ) -> set[str | int]:
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            return set(value)
        declared = kw.mapping(schema, "properties", pointer)
        patterns = kw.mapping(schema, "patternProperties", pointer)
        return {
            name
            for name in value
            if name in declared or any(self._key_matches(p, pointer, name) for p in patterns)
        }

    def _evaluated_items(
        self, schema: dict[str, Any], pointer: str, value: list[Any], draft: str | None
    ) -> set[str | int]:
        prefix, _ = item_places(schema, pointer)
        tail = "additionalItems" if isinstance(schema.get("items"), list) else "items"
        if tail in schema or "unevaluatedItems" in schema:
            return set(range(len(value)))
        found: set[str | int] = set(range(min(len(prefix), len(value))))
        if "contains" in schema and draft != "2019-09":
            place = join(pointer, "contains")
            found |= {i for i, item in enumerate(value) if self.holds(place, item)}
        return found

    def _keys(self, values: Iterable[Any]) -> Iterator[str]:
        for value in values:
            self._document.breathe()
            yield key_of(value)

    def _listed(
        self, schema: dict[str, Any], pointer: str
    ) -> tuple[list[frozenset[str]], frozenset[str]]:
        """The keys of the values that are allowed, in each listing, and of those that are not.

        Lists may be long and are asked for each of their values, so they are read once.
        """
        found = self._lists.get(pointer)
        if found is None:
            allowed = [frozenset(self._keys(listed)) for listed in kw.listed(schema, pointer)]
            found = self._lists[pointer] = allowed, frozenset(self._keys(schema.get(NONE, ())))
        return found

    def _depends(self, schema: dict[str, Any], pointer: str, value: Any) -> bool:
        if not isinstance(value, dict):
            return True
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needs in kw.mapping(schema, keyword, pointer).items():
                if name not in value:
                    continue
                if isinstance(needs, list):
                    if any(needed not in value for needed in needs):
                        return False
                elif not self.holds(join(pointer, keyword, name), value):
                    return False
        return True

    def holds_locally(self, pointer: str, value: Any) -> bool:
        """The same without the combinators of this schema object itself."""
        schema = self._document.schema(pointer)
        if isinstance(schema, bool):
            return schema
        types = kw.types(schema, pointer)
        if types is not None and not types & type_of(value):
            return False
        if not schema.keys().isdisjoint(_LISTING):
            key = key_of(value)
            allowed, barred = self._listed(schema, pointer)
            if key in barred or not all(key in keys for keys in allowed):
                return False
        if isinstance(value, str):
            return self._string(schema, pointer, value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return self._number(schema, pointer, exact(value))
        if isinstance(value, list):
            return self._array(schema, pointer, value)
        return not isinstance(value, dict) or self._object(schema, pointer, value)

    def _string(self, schema: dict[str, Any], pointer: str, value: str) -> bool:
        least, most = kw.limits([(pointer, schema)], "minLength", "maxLength")
        if len(value) < least or (most is not None and len(value) > most):
            return False
        return self._string_matches(pointer, value)

    @staticmethod
    def _number(schema: dict[str, Any], pointer: str, value: Fraction) -> bool:
        return bounds_of(schema, pointer).contains(value) and not others_of(schema).contains(value)

    def _array(self, schema: dict[str, Any], pointer: str, value: list[Any]) -> bool:
        least, most = kw.limits([(pointer, schema)], "minItems", "maxItems")
        if len(value) < least or (most is not None and len(value) > most):
            return False
        if schema.get("uniqueItems") is True and len({key_of(v) for v in value}) < len(value):
            return False
        if "contains" in schema:
            seen = value[schema.get(BEHIND, 0) :]
            hits = sum(self.holds(join(pointer, "contains"), v) for v in seen)
            low, high = contains_bounds(schema, pointer)
            if hits < low or (high is not None and hits > high):
                return False
        prefix, rest = item_places(schema, pointer)
        places = [*prefix, *([rest] * len(value))]
        return all(p is None or self.holds(p, v) for p, v in zip(places, value, strict=False))

    def _object(self, schema: dict[str, Any], pointer: str, value: dict[str, Any]) -> bool:
        if any(name not in value for name in kw.names(schema, "required", pointer)):
            return False
        least, most = kw.limits([(pointer, schema)], "minProperties", "maxProperties")
        if len(value) < least or (most is not None and len(value) > most):
            return False
        if SOME_KEY in schema and not self._some_key(schema[SOME_KEY], pointer, value):
            return False
        declared = kw.mapping(schema, "properties", pointer)
        patterns = kw.mapping(schema, "patternProperties", pointer)
        for name, item in value.items():
            places = [join(pointer, "properties", name)] if name in declared else []
            places += [
                join(pointer, "patternProperties", pattern)
                for pattern in patterns
                if self._key_matches(pattern, pointer, name)
            ]
            extra = extra_place(schema, pointer)
            if not places and extra is not None:
                places = [extra]
            named = "propertyNames" not in schema or self.holds(
                join(pointer, "propertyNames"), name
            )
            if not named:
                return False
            if not all(self.holds(place, item) for place in places):
                return False
        return True

    def _some_key(self, rule: dict[str, Any], pointer: str, value: dict[str, Any]) -> bool:
        place = join(pointer, SOME_KEY, "value")
        for name, item in value.items():
            if "matching" in rule:
                inside = self._key_matches(rule["matching"], pointer, name)
            elif "failing" in rule:
                inside = not self.holds(rule["failing"], name)
            else:
                inside = name not in rule["names"] and not any(
                    self._key_matches(pattern, pointer, name) for pattern in rule["patterns"]
                )
            if inside and self.holds(place, item):
                return True
        return False
