"""What is to be grounded: `x-ground` in the schema, `grounding` in the request.

`x-ground` stands on a property (or any subschema) and is a kind's name or an object:

    "x-ground": "verbatim"
    "x-ground": {"kind": "date", "order": "dmy"}
    "x-ground": {"kind": "quote", "evidence": "price_quote"}

On an array or object it is meant for every string and number inside. Members beside `kind`:

    case      of verbatim: `exact` (the default) or `ignore`
    order     of date: how 03/04/2024 is read: `dmy`, `mdy` or `any` (the default: either)
    evidence  of quote: the sibling property that holds the quote; the default is the property's
              own name with `_evidence`, else `evidence`
    of        of quote: the kind by which the quote contains the value; the default is by its type

The request's option is a kind (the default for all values that the schema says nothing about),
`"off"` (nothing is checked, whatever the schema says), or an object:

    {"default": "auto", "fields": {"/items/*/price": "number", "customer.name": "verbatim"}}

A field that begins with a slash is a JSON Pointer in which `*` stands for one step and `**` for any
number of them; any other is a path of property names that may begin anywhere and passes over array
indices. Its value is what `x-ground` may be, or null: not checked. Of several fields that fit a
value the last one counts; fields count before the schema, the schema before the default. The kind
`auto` is `number` for numbers, `date` for strings whose format is `date` or `date-time`, `verbatim`
for others. The default leaves alone what `enum` or `const` allows: such values are the schema's
words and not the source's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from grammar.schema.document import join
from server.grounding.places import Path, Place, SchemaPlaces

Kind: TypeAlias = Literal["verbatim", "number", "date", "quote", "auto"]
KINDS: tuple[Kind, ...] = ("verbatim", "number", "date", "quote", "auto")
KEYWORD = "x-ground"
_MEMBERS = {
    "kind": KINDS,
    "case": ("exact", "ignore"),
    "order": ("any", "dmy", "mdy"),
    "of": ("verbatim", "number", "date"),
}
_ONLY_FOR = {"evidence": ("quote",), "of": ("quote",)}


class GroundingError(ValueError):
    """A rule that can't be read. `where`: the schema's pointer or the option's member."""

    def __init__(self, message: str, where: str) -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.message = message
        self.where = where


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to check.

    kind, case, order, evidence, of   as the module says
    source                            who says so: a `field` of the request, the `schema`, or the
                                      request's `default`
    at                                the field, or the subschema's JSON Pointer; of a default ""
    """

    kind: Kind | None
    source: Literal["field", "schema", "default"]
    at: str = ""
    case: Literal["exact", "ignore"] = "exact"
    order: Literal["any", "dmy", "mdy"] = "any"
    evidence: str | None = None
    of: Kind | None = None
    places: SchemaPlaces = field(
        default_factory=lambda: SchemaPlaces(None), compare=False, repr=False
    )


def rules(schema: dict[str, Any] | bool | None, option: Any = None) -> tuple[Rule, ...]:
    """The rules of a schema and a request.

    Args:
        schema: the answer's JSON Schema; None: it has none.
        option: the request's `grounding`; None: what the schema says.

    Raises:
        GroundingError: a rule can't be read.
        SchemaError: the schema can't.
    """
    if option == "off":
        return ()
    places = SchemaPlaces(schema)
    found = [*_of_option(option, places)]
    found += [
        _rule(subschema[KEYWORD], "schema", pointer, join(pointer, KEYWORD), places)
        for pointer, subschema in _subschemas(places, schema)
        if KEYWORD in subschema
    ]
    return tuple(found)


def _of_option(option: Any, places: SchemaPlaces) -> Iterator[Rule]:
    if option is None:
        return
    if not isinstance(option, Mapping) or "kind" in option:
        option = {"default": option}
    unknown = option.keys() - {"default", "fields"}
    if unknown:
        raise GroundingError("is none of 'default' and 'fields'", f"grounding.{min(unknown)}")
    fields = option.get("fields")
    if fields is not None and not isinstance(fields, Mapping):
        raise GroundingError("must be an object of fields and kinds", "grounding.fields")
    for name, said in (fields or {}).items():
        where = f"grounding.fields[{name!r}]"
        if not name or name.strip("./") == "":
            raise GroundingError("is no field", where)
        if said is None:
            yield Rule(None, "field", name, places=places)
        else:
            yield _rule(said, "field", name, where, places)
    if option.get("default") is not None:
        yield _rule(option["default"], "default", "", "grounding", places)


def _rule(
    said: Any,
    source: Literal["field", "schema", "default"],
    at: str,
    where: str,
    places: SchemaPlaces,
) -> Rule:
    members = {"kind": said} if isinstance(said, str) else said
    if not isinstance(members, Mapping):
        raise GroundingError(f"must be a kind ({', '.join(KINDS)}) or an object", where)
    for name, value in members.items():
        if name == "evidence":
            if not isinstance(value, str) or not value:
                raise GroundingError("evidence must be the name of a property", where)
        elif name not in _MEMBERS:
            raise GroundingError(f"{name!r} is none of kind, case, order, evidence, of", where)
        elif value not in _MEMBERS[name]:
            listed = ", ".join(_MEMBERS[name])
            raise GroundingError(f"{name} must be one of {listed}, not {value!r:.80}", where)
    if "kind" not in members:
        raise GroundingError(f"kind is missing: one of {', '.join(KINDS)}", where)
    kind = members["kind"]
    for name, kinds in _ONLY_FOR.items():
        if name in members and kind not in kinds:
            raise GroundingError(f"{name} is only for {', '.join(kinds)}", where)
    if kind == "quote" and source == "default":
        raise GroundingError("quote can't be the default: name the fields", where)
    return Rule(source=source, at=at, places=places, **cast(Any, members))


def _subschemas(
    places: SchemaPlaces, schema: dict[str, Any] | bool | None
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object in the schema's text that may be a subschema, in the text's order.

    A property of the name `x-ground` is no keyword; what stands in constants is none either.
    """
    pending: list[tuple[str, Any, bool]] = [("", schema, True)]
    while pending:
        pointer, value, is_schema = pending.pop()
        inside: list[tuple[str, Any, bool]] = []
        if isinstance(value, Mapping):
            if is_schema:
                yield pointer, value
            for key, child in value.items():
                if is_schema and key in ("const", "enum", "default", "examples", KEYWORD):
                    continue
                named = is_schema and key in _NAMED
                inside.append((join(pointer, key), child, not named))
        elif isinstance(value, list):
            inside = [(join(pointer, i), child, True) for i, child in enumerate(value)]
        pending += reversed(inside)


_NAMED = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)  # fmt: skip


# -- where rules apply --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Selected:
    """A string or number to check. `at` is where the rule stands: the value itself, or the array
    or object that it lies in."""

    path: Path
    value: Any
    rule: Rule
    at: Path
    is_date: bool


def select(value: Any, rules: tuple[Rule, ...]) -> Iterator[Selected]:
    """The strings and numbers that rules are about, in the order of the value."""
    if not rules:
        return
    fields = [(rule, _pattern(rule.at)) for rule in rules if rule.source == "field"]
    by_schema = {rule.at: rule for rule in rules if rule.source == "schema"}
    default = next((rule for rule in rules if rule.source == "default"), None)
    nothing = (-1, None, None)
    inherited: dict[Path, tuple[int, tuple[Rule, Path] | None, tuple[Rule, Path] | None]] = {}
    for place in rules[0].places.walk(value):
        last, asked, said = inherited[place.path[:-1]] if place.path else nothing
        for i, (rule, pattern) in enumerate(fields[max(last, 0) :], max(last, 0)):
            if pattern(place.path):
                last, asked = i, (rule, place.path)
        for pointer in place.schemas:
            if pointer in by_schema:
                said = (by_schema[pointer], place.path)
        if isinstance(place.value, (dict, list)):
            inherited[place.path] = (last, asked, said)
        elif isinstance(place.value, (str, int, float)) and not isinstance(place.value, bool):
            chosen = asked or said
            if chosen is None and default is not None and not _is_closed(place):
                chosen = (default, place.path)
            if chosen is not None and chosen[0].kind is not None:
                yield Selected(place.path, place.value, *chosen, is_date=_is_date(place))


def _is_closed(place: Place) -> bool:
    return any("enum" in schema or "const" in schema for schema in place.schemas.values())


def _is_date(place: Place) -> bool:
    return any(s.get("format") in ("date", "date-time") for s in place.schemas.values())


class _Pointer:
    """A JSON Pointer with `*` and `**`."""

    def __init__(self, text: str) -> None:
        self._steps = [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]

    def __call__(self, path: Path) -> bool:
        steps, fits = self._steps, {0}
        for at in (None, *map(str, path)):
            if at is not None:
                fits = {
                    i + (steps[i] != "**")
                    for i in fits
                    if i < len(steps) and steps[i] in ("*", "**", at)
                }
            for i in sorted(fits):  # `**` may also stand for nothing
                while i < len(steps) and steps[i] == "**":
                    i += 1
                    fits.add(i)
        return len(steps) in fits


class _Names:
    """A path of property names, from anywhere; array indices are passed over."""

    def __init__(self, text: str) -> None:
        self._names = tuple(text.split("."))

    def __call__(self, path: Path) -> bool:
        if not path or isinstance(path[-1], int):
            return False  # the items of an array inherit what is said of the array
        names = tuple(step for step in path if isinstance(step, str))
        return names[-len(self._names) :] == self._names


def _pattern(text: str) -> _Pointer | _Names:
    return _Pointer(text) if text.startswith("/") else _Names(text)
