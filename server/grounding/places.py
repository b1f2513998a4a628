"""Which subschemas apply to which part of a value: the places where `x-ground` may stand.

JSON Schema's annotations (2020-12, Core 7.7) apply where the subschema that carries them holds: of
`anyOf` and `oneOf` only the branches that accept the value, of `if` the arm that was taken. Where
no branch accepts it (the value is not valid, which others say) all of them apply, so that a check
is made rather than missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import jsonschema_rs

from grammar.schema.document import Document, join
from grammar.schema.places import extra_place, item_places

Path: TypeAlias = tuple[str | int, ...]
_ROOT = "urn:gabarito:schema"
_BRANCHES = ("anyOf", "oneOf")


class Place(NamedTuple):
    """A part of a value, and the schema objects that apply to it, by their pointers."""

    path: Path
    value: Any
    schemas: Mapping[str, Mapping[str, Any]]


class SchemaPlaces:
    """Walks values along a schema.

    Args:
        schema: any draft that the grammar compiles; None applies to nothing.

    Raises:
        SchemaError: it is no schema.
    """

    def __init__(self, schema: dict[str, Any] | bool | None) -> None:
        root = {} if schema is None else schema
        self.document = Document(root)
        self._registry = _registry(root)
        self._validators: dict[str, Any] = {}

    def walk(self, value: Any) -> Iterator[Place]:
        """Every part of a value, parents before their children."""
        pending: list[tuple[Path, Any, tuple[str, ...]]] = [((), value, (self.document.start,))]
        while pending:
            path, part, pointers = pending.pop()
            schemas = self._applied(pointers, part)
            yield Place(path, part, schemas)
            if isinstance(part, dict):
                inside = [(key, part[key], self._of_key(schemas, key)) for key in part]
            elif isinstance(part, list):
                inside = [(i, item, self._of_item(schemas, i)) for i, item in enumerate(part)]
            else:
                continue
            pending += [((*path, at), child, where) for at, child, where in reversed(inside)]

    def _applied(self, pointers: tuple[str, ...], value: Any) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        pending = [*reversed(pointers)]
        while pending:
            pointer = pending.pop()
            schema = self.document.schema(pointer)
            if pointer in found or isinstance(schema, bool):
                continue
            found[pointer] = schema
            pending += reversed([*self._in_place(schema, pointer, value)])
        return found

    def _in_place(self, schema: Mapping[str, Any], pointer: str, value: Any) -> Iterator[str]:
        """The subschemas beside a schema object that say something of the same value."""
        yield from self.document.references(schema, pointer)
        for i in range(len(schema.get("allOf", ()))):
            yield join(pointer, "allOf", i)
        for keyword in _BRANCHES:
            branches = [join(pointer, keyword, i) for i in range(len(schema.get(keyword, ())))]
            held = [branch for branch in branches if self._holds(branch, value)]
            yield from held or branches
        if "if" in schema:
            condition = join(pointer, "if")
            held_ = self._holds(condition, value)
            if held_:
                yield condition
            arm = "then" if held_ else "else"
            if arm in schema:
                yield join(pointer, arm)
        if isinstance(value, dict):
            for keyword in ("dependentSchemas", "dependencies"):
                for name, needs in schema.get(keyword, {}).items():
                    if name in value and not isinstance(needs, list):
                        yield join(pointer, keyword, name)

    def _of_key(self, schemas: Mapping[str, Mapping[str, Any]], key: str) -> tuple[str, ...]:
        found: list[str] = []
        for pointer, schema in schemas.items():
            places = []
            if key in schema.get("properties", {}):
                places.append(join(pointer, "properties", key))
            places += [
                join(pointer, "patternProperties", pattern)
                for pattern in schema.get("patternProperties", {})
                if self._holds_pattern(pattern, key)
            ]
            extra = extra_place(schema, pointer)
            if not places and extra is not None:
                places.append(extra)
            found += places
        return tuple(found)

    @staticmethod
    def _of_item(schemas: Mapping[str, Mapping[str, Any]], index: int) -> tuple[str, ...]:
        found: list[str] = []
        for pointer, schema in schemas.items():
            prefix, rest = item_places(schema, pointer)
            place = prefix[index] if index < len(prefix) else rest
            found += [] if place is None else [place]
        return tuple(found)

    # -- validity -------------------------------------------------------------------------------

    def _holds(self, pointer: str, value: Any) -> bool:
        if pointer not in self._validators:
            self._validators[pointer] = self._validator(
                {"$ref": f"{_ROOT}#{_fragment(self.document.origin(pointer))}"}
            )
        validator = self._validators[pointer]
        return validator is None or bool(validator.is_valid(value))

    def _holds_pattern(self, pattern: str, key: str) -> bool:
        name = f"pattern {pattern}"
        if name not in self._validators:
            self._validators[name] = self._validator({"type": "string", "pattern": pattern})
        validator = self._validators[name]
        return validator is None or bool(validator.is_valid(key))

    def _validator(self, schema: dict[str, Any]) -> Any:
        if self._registry is None:
            return None
        root = self.document.root
        dialect = root.get("$schema") if isinstance(root, dict) else None
        if isinstance(dialect, str):
            schema = {"$schema": dialect, **schema}
        try:
            return jsonschema_rs.validator_for(schema, registry=self._registry, offline=True)
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
            return None  # what can't be told apart holds: a check too many beats one too few


def _registry(root: dict[str, Any] | bool) -> jsonschema_rs.Registry | None:
    """None: the schema refers to others, perhaps in a part that nothing uses."""
    try:
        return jsonschema_rs.Registry([(_ROOT, root)])
    except (jsonschema_rs.ReferencingError, ValueError):
        return None


def _fragment(pointer: str) -> str:
    """A pointer as a URI fragment (RFC 6901, section 6)."""
    return quote(pointer, safe="/~!$&'()*+,;=:@")
