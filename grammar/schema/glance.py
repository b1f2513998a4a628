"""What is certain of subschemas at a glance: that nothing fits them all, that they imply another.

Looks at what stands in plain sight (``facts.py``) and into properties that must be there. That
settles nearly all unions that people write (a tag property with a constant in each branch) without
multiplying anything out, and cancels a subschema against its complement. Says True only where it
is certain; a look is bounded in depth and in the subschemas that it visits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from grammar.errors import SchemaBudgetError
from grammar.regular import RegexBudgetError
from grammar.schema import keywords as kw
from grammar.schema.alike import REFERENCES
from grammar.schema.bounds import bounds_of
from grammar.schema.document import (
    AT,
    FRACTION,
    NONE,
    NOT,
    NOT_FORMAT,
    NOT_MULTIPLE,
    NOT_PATTERN,
    SOME_KEY,
    join,
)
from grammar.schema.facts import Facts, Reading
from grammar.schema.places import item_places
from grammar.schema.values import key_of, type_of

MAX_DEPTH = 4
MAX_LOOKS = 400
MAX_BRANCHES = 16
_APPLIES = {
    keyword: frozenset({"integer", "number"}) if name == "number" else frozenset({name})
    for name, keywords in kw.BY_TYPE.items()
    for keyword in keywords
}
_APPLIES.update(
    {
        NOT_FORMAT: _APPLIES["pattern"],
        NOT_PATTERN: _APPLIES["pattern"],
        NOT_MULTIPLE: _APPLIES["multipleOf"],
        FRACTION: _APPLIES["multipleOf"],
        SOME_KEY: _APPLIES["properties"],
    }
)
_ASSERTING = ((kw.KNOWN - kw.ANNOTATIONS) | _APPLIES.keys() | {NONE}) - REFERENCES
_SAME_SUFFICES = frozenset(
    {"pattern", "format", "multipleOf", "propertyNames", NOT_FORMAT, NOT_PATTERN, NOT_MULTIPLE,
     FRACTION, "contentEncoding", "x-extract"}
)  # fmt: skip
"""Keywords that are taken to be implied only by the same one with the same value."""
_COUNTS = {
    "minLength": "maxLength",
    "minItems": "maxItems",
    "minProperties": "maxProperties",
}
_UPPER = {high: low for low, high in _COUNTS.items()}
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})


class Glance:
    """Certain answers about conjunctions of a document's subschemas.

    Raises (anywhere):
        SchemaError: a subschema is not well formed.
    """

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._document = reading.document
        self._empty: dict[frozenset[str], bool] = {}
        self._implied: dict[tuple[frozenset[str], str], bool] = {}
        self._looks = 0
        #: How many subschemas and conjunctions were looked at in all.
        self.looks = 0

    # -- questions ------------------------------------------------------------------------------

    def empty(self, pointers: Iterable[str]) -> bool:
        """Whether the subschemas at some pointers certainly can't hold together."""
        return self.is_empty(self.reading.all(pointers))

    def is_empty(self, facts: Facts) -> bool:
        """Whether some facts certainly contradict each other."""
        return self._ask(lambda: self._is_empty(facts, MAX_DEPTH))

    def implies(self, facts: Facts, pointer: str) -> bool:
        """Whether all that has these facts certainly satisfies a subschema."""
        return self._ask(lambda: self._implies(facts, pointer, MAX_DEPTH))

    def _ask(self, question: Any) -> bool:
        self._looks = 0
        try:
            return bool(question())
        except RegexBudgetError as error:
            raise SchemaBudgetError(str(error), keyword="patternProperties") from None

    def _give_up(self) -> bool:
        self._looks += 1
        self.looks += 1
        return self._looks > MAX_LOOKS

    # -- contradictions -------------------------------------------------------------------------

    def _is_empty(self, facts: Facts, depth: int) -> bool:
        if not facts.types:
            return True
        known = self._empty.get(facts.keys)
        if known is not None:
            return known
        if self._give_up():
            return False
        self._empty[facts.keys] = False  # while it is looked at
        found = self._contradicts(facts, depth)
        if found or (depth == MAX_DEPTH and self._looks <= MAX_LOOKS):
            self._empty[facts.keys] = found
        else:
            del self._empty[facts.keys]
        return found

    def _contradicts(self, facts: Facts, depth: int) -> bool:
        if facts.listed is not None and not self.values(facts):
            return True
        types = self._types(facts)
        if depth > 0:
            if types == {"object"} and self._no_object(facts, depth):
                return True
            if types == {"array"} and self._no_array(facts, depth):
                return True
            if any(self._implies(facts, pointer, depth - 1) for pointer in facts.barred):
                return True
        if types == {"string"}:
            least, most = kw.limits(facts.schemas.items(), "minLength", "maxLength")
            if most is not None and least > most:
                return True
        if types and types <= {"integer", "number"} and self._bounds(facts).is_empty():
            return True
        if depth > 0:
            for branches in facts.unions:
                if len(branches) <= MAX_BRANCHES and all(
                    self._is_empty(facts.plus(self.reading.one(b)), depth - 1) for b in branches
                ):
                    return True
        return False

    def values(self, facts: Facts) -> list[Any]:
        """The listed values that types and complements of lists leave."""
        listed = (facts.listed or {}).items()
        return [v for k, v in listed if k not in facts.others and type_of(v) & facts.types]

    def _types(self, facts: Facts) -> frozenset[str]:
        if facts.listed is None:
            return facts.types
        return facts.types & frozenset().union(*(type_of(v) for v in facts.listed.values()))

    @staticmethod
    def _bounds(facts: Facts) -> Any:
        bounds = None
        for pointer, schema in facts.schemas.items():
            bounds = bounds_of(schema, pointer, bounds)
        return bounds_of({}, "") if bounds is None else bounds

    def _no_object(self, facts: Facts, depth: int) -> bool:
        least, most = kw.limits(facts.schemas.items(), "minProperties", "maxProperties")
        possible = self.reading.possible_names(facts)
        if possible is not None and not facts.required <= possible:
            return True
        least = max(least, len(facts.required))
        if most is not None and least > most:
            return True
        if possible is not None and least > len(possible):
            return True
        for name in facts.required:
            if self.is_barred(facts, name, depth):
                return True
        for pointer, schema in facts.schemas.items():
            if SOME_KEY in schema and possible is not None:
                rule, value = schema[SOME_KEY], join(pointer, SOME_KEY, "value")
                if all(
                    self.in_class(rule, pointer, name) is False
                    or self._value_is_empty(facts, name, value, depth)
                    for name in possible
                ):
                    return True
        return False

    def is_barred(self, facts: Facts, name: str, depth: int = MAX_DEPTH) -> bool:
        """Whether a property certainly can't be there."""
        if depth <= 0:
            return False
        return self._is_empty(self.reading.value(facts, name), depth - 1)

    def _value_is_empty(self, facts: Facts, name: str, value: str, depth: int) -> bool:
        there = self.reading.value(facts, name).plus(self.reading.one(value))
        return self._is_empty(there, depth - 1)

    def in_class(self, rule: dict[str, Any], pointer: str, name: str) -> bool | None:
        """Whether a name is in the class of a ``SOME_KEY``; None if that is not known."""
        if "matching" in rule:
            return self.reading.key_matches(rule["matching"], pointer, name)
        if "failing" in rule:
            return None
        return name not in rule["names"] and not any(
            self.reading.key_matches(pattern, pointer, name) for pattern in rule["patterns"]
        )

    def _no_array(self, facts: Facts, depth: int) -> bool:
        least, most = kw.limits(facts.schemas.items(), "minItems", "maxItems")
        if most is not None and least > most:
            return True
        places = self._item_places(facts, 0)
        return least > 0 and bool(places) and self._is_empty(self.reading.all(places), depth - 1)

    def _item_places(self, facts: Facts, index: int) -> tuple[str, ...]:
        found = []
        for pointer, schema in facts.schemas.items():
            prefix, rest = item_places(schema, pointer)
            place = prefix[index] if index < len(prefix) else rest
            found += [] if place is None else [place]
        return tuple(found)

    # -- implications ---------------------------------------------------------------------------

    def _implies(self, facts: Facts, pointer: str, depth: int) -> bool:
        said = self.reading.alike.key(pointer)
        if said in facts.keys:
            return True
        question = (facts.keys, said)
        known = self._implied.get(question)
        if known is not None:
            return known
        if depth < 0 or self._give_up():
            return False
        self._implied[question] = False  # while it is looked at
        found = self._follows(facts, pointer, depth)
        if found or (depth >= MAX_DEPTH - 1 and self._looks <= MAX_LOOKS):
            self._implied[question] = found
        else:
            del self._implied[question]
        return found

    def _follows(self, facts: Facts, pointer: str, depth: int) -> bool:
        schema = self._document.schema(pointer)
        if schema is True or schema == {}:
            return True
        if self._is_empty(facts, depth):
            return True
        if schema is False:
            return False
        assert isinstance(schema, dict)
        if AT in schema:
            return self._implies(facts, schema[AT], depth)
        if NOT in schema:
            return self._excludes(facts, schema[NOT], depth)
        targets = self._document.references(schema, pointer)
        if not all(self._implies(facts, target, depth) for target in targets):
            return False
        if "$ref" in schema and self._document.dialect(pointer).ref_alone:
            return True
        types = self._types(facts)
        return all(
            keyword not in _ASSERTING
            or types.isdisjoint(_APPLIES.get(keyword, types))
            or self._keyword(facts, schema, keyword, pointer, depth)
            for keyword in schema
        )

    def _excludes(self, facts: Facts, pointer: str, depth: int) -> bool:
        return self._is_empty(facts.plus(self.reading.one(pointer)), depth)

    def _keyword(
        self, facts: Facts, schema: dict[str, Any], keyword: str, pointer: str, depth: int
    ) -> bool:
        """Whether one keyword, which applies to some type that is left, certainly holds."""
        value = schema[keyword]
        if keyword in ("type", "nullable"):
            return "type" not in schema or self._types(facts) <= kw.subtypes(schema, pointer)
        if keyword in ("enum", "const"):
            if facts.listed is None:
                return False
            keys = [{key_of(v) for v in listed} for listed in kw.listed(schema, pointer)]
            return all(key_of(v) in each for v in self.values(facts) for each in keys)
        if keyword == NONE:
            return self._none_of(facts, value)
        if keyword in _SAME_SUFFICES:
            return any(s.get(keyword, _ABSENT) == value for s in facts.schemas.values())
        if keyword in _COUNTS or keyword in _UPPER:
            return self._counted(facts, keyword, kw.count(schema, keyword, pointer) or 0)
        if keyword in _BOUNDS:
            return self._bounded(facts, schema, pointer)
        if keyword == "required":
            return facts.required.issuperset(kw.names(schema, keyword, pointer))
        if keyword == "properties":
            return all(
                self._value(facts, name, join(pointer, "properties", name), depth)
                for name in kw.mapping(schema, keyword, pointer)
            )
        if keyword in ("additionalProperties", "patternProperties"):
            return self._others(facts, schema, keyword, pointer, depth)
        if keyword == SOME_KEY:
            return any(
                self.in_class(value, pointer, name)
                and self._value(facts, name, join(pointer, SOME_KEY, "value"), depth)
                for name in facts.required
            )
        if keyword in ("items", "prefixItems", "additionalItems"):
            return self._items(facts, schema, pointer, depth)
        if keyword in ("allOf", "anyOf", "oneOf"):
            return self._branches(facts, keyword, self._places(schema, keyword, pointer), depth - 1)
        if keyword == "not":
            return self._excludes(facts, join(pointer, keyword), depth - 1)
        if keyword in ("then", "else") and "if" not in schema:
            return True
        if keyword == "uniqueItems":
            same = any(s.get(keyword) is True for s in facts.schemas.values())
            return value is not True or same
        return False

    @staticmethod
    def _places(schema: dict[str, Any], keyword: str, pointer: str) -> list[str]:
        return [join(pointer, keyword, i) for i in range(kw.schemas(schema, keyword, pointer))]

    def _branches(self, facts: Facts, keyword: str, places: list[str], depth: int) -> bool:
        met = (i for i, place in enumerate(places) if self._implies(facts, place, depth))
        if keyword == "allOf":
            return sum(1 for _ in met) == len(places)
        first = next(met, None)
        if first is None or keyword == "anyOf":
            return first is not None
        others = places[:first] + places[first + 1 :]
        return all(self._excludes(facts, place, depth) for place in others)

    def _none_of(self, facts: Facts, barred: list[Any]) -> bool:
        if facts.listed is not None:
            keys = {key_of(v) for v in barred}
            return not any(key_of(v) in keys for v in self.values(facts))
        return all(key_of(v) in facts.others or not type_of(v) & facts.types for v in barred)

    @staticmethod
    def _counted(facts: Facts, keyword: str, value: int) -> bool:
        low = _UPPER.get(keyword, keyword)
        least, most = kw.limits(facts.schemas.items(), low, _COUNTS[low])
        if keyword == low:
            least = max(least, len(facts.required)) if low == "minProperties" else least
            return least >= value
        return most is not None and most <= value

    def _bounded(self, facts: Facts, schema: dict[str, Any], pointer: str) -> bool:
        own = bounds_of(schema, pointer).undivided()
        given = self._bounds(facts).undivided()
        if own.minimum is not None:
            narrowed = given.above(own.minimum, own.open_minimum)
            if narrowed != given:
                return False
        if own.maximum is not None:
            narrowed = given.below(own.maximum, own.open_maximum)
            if narrowed != given:
                return False
        return True

    def _value(self, facts: Facts, name: str, place: str, depth: int) -> bool:
        """Whether the value of a property, if it is there, certainly satisfies a subschema."""
        return self._implies(self.reading.value(facts, name), place, depth - 1)

    def _others(
        self, facts: Facts, schema: dict[str, Any], keyword: str, pointer: str, depth: int
    ) -> bool:
        """``additionalProperties`` and ``patternProperties`` of a schema object that closes
        nothing else than what the facts close, too."""
        possible = self.reading.possible_names(facts)
        if possible is None:
            return False
        declared = kw.mapping(schema, "properties", pointer)
        patterns = kw.mapping(schema, "patternProperties", pointer)
        matches = self.reading.key_matches
        for name in possible:
            hit = [p for p in patterns if matches(p, pointer, name)]
            if keyword == "patternProperties":
                places = [join(pointer, keyword, p) for p in hit]
            elif name in declared or hit:
                places = []
            else:
                places = [join(pointer, keyword)]
            if not all(self._value(facts, name, place, depth) for place in places):
                return False
        return True

    def _items(self, facts: Facts, schema: dict[str, Any], pointer: str, depth: int) -> bool:
        prefix, rest = item_places(schema, pointer)
        longest = len(prefix)
        for other, given in facts.schemas.items():
            longest = max(longest, len(item_places(given, other)[0]))
        for index in range(longest + 1):
            place = prefix[index] if index < len(prefix) else rest
            if place is None:
                continue
            given_here = self.reading.all(self._item_places(facts, index))
            if not self._implies(given_here, place, depth - 1):
                return False
        return True


_ABSENT = object()
