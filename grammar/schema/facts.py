"""What is in plain sight of a conjunction of subschemas, nothing multiplied out.

Types, constants, required names and where the subschemas of a property stand, through ``$ref`` and
``allOf``; which subschemas must not hold, and unions of which some branch must. What is not
understood is left out: facts may be weaker than the conjunction, and are never stronger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.alike import Alike
from grammar.schema.document import AT, NONE, NOT, Document, join
from grammar.schema.values import key_of, type_of

MAX_PARTS = 64
EVERYTHING = frozenset(kw.TYPES)
_LISTS: tuple[set[str], ...] = ({"const"}, {"enum"}, {"type", "const"}, {"type", "enum"})
Listed = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What holds wherever some subschemas do.

    Attributes:
        schemas: schema objects by pointer, whose own keywords hold (combinators apart).
        barred: subschemas that don't hold (lists of values apart).
        others: values that the instance does not equal, by ``key_of``.
        unions: some branch of each of these holds.
        keys: what is said, as ``Alike`` tells it.
        types: the types that are left.
        required: names that are there if the instance is an object.
        listed: the values that all ``enum`` and ``const`` share, by ``key_of``; None: no list.
        sides: what these facts were put together from.
        values: the facts of properties' values, as far as somebody asked.
    """

    schemas: dict[str, dict[str, Any]]
    barred: frozenset[str]
    others: frozenset[str]
    unions: frozenset[tuple[str, ...]]
    keys: frozenset[str]
    types: frozenset[str] = EVERYTHING
    required: frozenset[str] = frozenset()
    listed: Listed | None = None
    sides: tuple[Facts, Facts] | None = field(default=None, repr=False, compare=False)
    values: dict[str, Facts] = field(default_factory=dict, repr=False, compare=False)

    def plus(self, other: Facts) -> Facts:
        """These facts and others."""
        if other.keys <= self.keys:
            return self
        listed = self.listed
        if listed is None:
            listed = other.listed
        elif other.listed is not None:
            listed = {k: v for k, v in listed.items() if k in other.listed}
        return Facts(
            {**self.schemas, **other.schemas},
            self.barred | other.barred,
            self.others | other.others,
            self.unions | other.unions,
            self.keys | other.keys,
            self.types & other.types,
            self.required | other.required,
            listed,
            (self, other),
        )


NOTHING_KNOWN = Facts({}, frozenset(), frozenset(), frozenset(), frozenset())


class Reading:
    """Reads the facts of a document's subschemas, each once.

    ``key_matches(pattern, pointer, name)`` decides the patterns of ``patternProperties``.
    """

    def __init__(self, document: Document, key_matches: Callable[[str, str, str], bool]) -> None:
        self.document = document
        self.alike = Alike(document)
        self.key_matches = key_matches
        self._facts: dict[str, Facts] = {}

    def all(self, pointers: Iterable[str]) -> Facts:
        """The facts of some subschemas together."""
        facts = NOTHING_KNOWN
        for pointer in pointers:
            facts = facts.plus(self.one(pointer))
        return facts

    def one(self, pointer: str) -> Facts:
        """The facts of one subschema."""
        found = self._facts.get(pointer)
        if found is None:
            found = self._facts[pointer] = self._read(pointer)
        return found

    def _read(self, pointer: str) -> Facts:
        document = self.document
        schemas: dict[str, dict[str, Any]] = {}
        barred: set[str] = set()
        others: set[str] = set()
        unions: set[tuple[str, ...]] = set()
        keys = {self.alike.key(pointer)}
        types = EVERYTHING
        listed: Listed | None = None
        required: set[str] = set()
        pending, seen = [pointer], {pointer}
        while pending and len(schemas) < MAX_PARTS:
            at = pending.pop()
            schema = document.schema(at)
            keys.add(self.alike.key(at))
            more: list[str] = []
            if isinstance(schema, bool):
                if not schema:
                    types = frozenset()
                continue
            if AT in schema:
                more = [schema[AT]]
            elif NOT in schema:
                self._bar(schema[NOT], barred, others)
            elif "$ref" in schema and document.dialect(at).ref_alone:
                more = document.references(schema, at)[:1]
            else:
                schemas[at] = schema
                types &= kw.subtypes(schema, at)
                required.update(kw.names(schema, "required", at))
                for values in kw.listed(schema, at):
                    own = {key_of(v): v for v in values}
                    listed = own if listed is None else {k: own[k] for k in own if k in listed}
                more = document.references(schema, at)
                more += [join(at, "allOf", i) for i in range(kw.schemas(schema, "allOf", at))]
                if "not" in schema:
                    self._bar(join(at, "not"), barred, others)
                others.update(map(key_of, schema.get(NONE, ())))
                for keyword in ("anyOf", "oneOf"):
                    count = kw.schemas(schema, keyword, at)
                    if count:
                        unions.add(tuple(join(at, keyword, i) for i in range(count)))
            pending += [p for p in more if p not in seen]
            seen.update(more)
        return Facts(
            schemas,
            frozenset(barred),
            frozenset(others),
            frozenset(unions),
            frozenset(keys),
            types,
            frozenset(required),
            listed,
        )

    def _bar(self, pointer: str, barred: set[str], others: set[str]) -> None:
        """A subschema that does not hold; where it only lists values, those are told apart."""
        schema = self.document.schema(pointer)
        said = schema.keys() - kw.ANNOTATIONS if isinstance(schema, dict) else set()
        if said not in _LISTS:
            barred.add(pointer)
            return
        assert isinstance(schema, dict)
        types = kw.subtypes(schema, pointer)
        for value in kw.listed(schema, pointer)[0]:
            if isinstance(value, float) and value.is_integer() and "number" not in types:
                barred.add(pointer)  # an integer, or none: that depends on the draft
            elif type_of(value) & types:
                others.add(key_of(value))

    # -- objects --------------------------------------------------------------------------------

    def value(self, facts: Facts, name: str) -> Facts:
        """The facts of a property's value."""
        pending: list[Facts] = []
        left = facts
        while name not in left.values and left.sides is not None:
            pending.append(left)
            left = left.sides[0]
        if name not in left.values:
            left.values[name] = self.all(self._places(left, name))
        found = left.values[name]
        for each in reversed(pending):
            assert each.sides is not None
            found = each.values[name] = found.plus(self.value(each.sides[1], name))
        return found

    def _places(self, facts: Facts, name: str) -> Iterator[str]:
        """Where the subschemas stand that the value of a property must satisfy."""
        for pointer, schema in facts.schemas.items():
            here = False
            if name in kw.mapping(schema, "properties", pointer):
                yield join(pointer, "properties", name)
                here = True
            for pattern in kw.mapping(schema, "patternProperties", pointer):
                if self.key_matches(pattern, pointer, name):
                    yield join(pointer, "patternProperties", pattern)
                    here = True
            if not here and "additionalProperties" in schema:
                yield join(pointer, "additionalProperties")

    def possible_names(self, facts: Facts) -> frozenset[str] | None:
        """The names that some schema object closes the instance to; None: there is no such list."""
        found: frozenset[str] | None = None
        for pointer, schema in facts.schemas.items():
            if schema.get("additionalProperties") is False and "patternProperties" not in schema:
                own = frozenset(kw.mapping(schema, "properties", pointer))
                found = own if found is None else found & own
        return found
