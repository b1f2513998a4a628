"""Typing of tool arguments: text from formats without types becomes what the tool's schema says.

Formats such as XML parameters give every argument as text. Where a called tool is known, its JSON
Schema decides: "3" for an integer becomes 3. The rules:
- only text is cast, never a value that has a type already, and a cast that fails keeps the text;
- text that the schema takes as it is (type `string`, a member of an `enum`) stays, but for `null`
  and `None` where null is allowed as well: formats without types have no other way to say it;
- otherwise the schema's types are tried in the order it gives them;
- `$ref` (within the parameters), `anyOf`, `oneOf` and `nullable` are followed, and with `deep` also
  `allOf`, `enum`, `const`, nested `properties`, `additionalProperties`, `items`, `prefixItems`.
An integer never passes through a float; a number is one, as JSON readers have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any

from parsing.jsonlike import ContentError, loads

_MAX_DEPTH = 32
_MAX_DIGITS = 4000


class ToolTyping:
    """Types the arguments of calls by the parameters of their tools.

    tools: {"function": {...}} or flat, with a "name"; anything else is passed over, and of two with
    one name the last counts.
    deep: follow the whole schema; otherwise only the types a parameter names itself (`type`,
    `anyOf`, `oneOf`, `nullable`, through `$ref`), and nothing inside objects and arrays.
    """

    def __init__(self, tools: Iterable[Any] | None, *, deep: bool = False) -> None:
        self._deep = deep
        self._parameters: dict[str, Mapping[str, Any]] = {}
        for tool in tools or ():
            function = tool.get("function", tool) if isinstance(tool, Mapping) else None
            if isinstance(function, Mapping) and isinstance(function.get("name"), str):
                schema = function.get("parameters")
                self._parameters[function["name"]] = schema if isinstance(schema, Mapping) else {}

    def apply(self, value: Any) -> Any:
        """`value` with the arguments of every call in it typed. A call is {"function": {"name": a
        known tool's, "arguments": an object}}, by itself or in lists."""
        if not self._parameters:
            return value
        if isinstance(value, list):
            return [self.apply(item) for item in value]
        if not isinstance(value, dict) or not isinstance(value.get("function"), dict):
            return value
        function = value["function"]
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or name not in self._parameters:
            return value
        if not isinstance(arguments, dict):
            return value
        schema = self._parameters[name]
        caster = _Caster(schema, deep=self._deep)
        return {**value, "function": {**function, "arguments": caster.cast(arguments, schema, 0)}}


@dataclass(frozen=True, slots=True)
class TextTypes:
    """What text becomes as the value of one argument.

    keeps: whether text is kept as it is, and then is a string.
    null: whether `null` (and `None`) is not kept, but becomes null.
    types: the types that text is tried as otherwise, in order.
    values: whether text that says a value of the argument's `enum` becomes that value.
    """

    keeps: bool
    null: bool = False
    types: tuple[str, ...] = ()
    values: bool = False


def text_types(parameters: Mapping[str, Any]) -> dict[str, TextTypes | None]:
    """For each of a tool's parameters, what its text becomes with `deep` typing; None where several
    schemas speak of it, so that this can't be said in short."""
    caster = _Caster(parameters, deep=True)
    found: dict[str, TextTypes | None] = {}
    for name, schemas in caster.shape(parameters).properties.items():
        shapes = [caster.shape(s) for s in schemas if isinstance(s, Mapping)]
        if len(shapes) != len(schemas) or not shapes:
            found[name] = TextTypes(keeps=True) if not shapes else None
            continue
        kinds = [_text_types_of(shape) for shape in shapes]
        found[name] = kinds[0] if all(kind == kinds[0] for kind in kinds) else None
    return found


def _text_types_of(shape: _Shape) -> TextTypes:
    types = tuple(name for name in shape.types or () if name in _CASTS or name == "string")
    if shape.values is not None:
        return TextTypes(keeps=True, values=True)
    if not types:
        return TextTypes(keeps=True)
    if "string" in types:
        return TextTypes(keeps=True, null="null" in types)
    return TextTypes(keeps=False, types=types)


@dataclass(slots=True)
class _Shape:
    """What a schema says about the value: types in order (None: any), the values of an enum, and
    the sub-schemas that could apply to members or items."""

    types: list[str] | None = None
    values: list[Any] | None = None
    properties: dict[str, list[Any]] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)
    items: list[Any] = field(default_factory=list)
    prefix: list[Any] = field(default_factory=list)

    def take_parts(self, other: _Shape) -> None:
        for name, schemas in other.properties.items():
            self.properties.setdefault(name, []).extend(schemas)
        self.others.extend(other.others)
        self.items.extend(other.items)
        self.prefix.extend(other.prefix)


class _Caster:
    def __init__(self, root: Mapping[str, Any], *, deep: bool) -> None:
        self._root = root
        self._deep = deep

    def cast(self, value: Any, schema: Any, depth: int) -> Any:
        """The value, typed as far as the schema says how; in a new object where that matters."""
        if depth > _MAX_DEPTH or not isinstance(schema, Mapping):
            return value
        if not isinstance(value, (str, dict, list)):
            return value
        shape = self._shape(schema, 0)
        if isinstance(value, str):
            return _cast_text(value, shape)
        if not self._deep and (depth > 1 or (depth == 1 and isinstance(value, dict))):
            return value
        if isinstance(value, dict):
            return {
                key: self._first(item, shape.properties.get(key) or shape.others, depth)
                for key, item in value.items()
            }
        if shape.types is not None and "array" not in shape.types:
            # Several values where one was expected (repeated parameters): each by the one's schema.
            return [self.cast(item, schema, depth + 1) for item in value]
        if not self._deep:
            return value
        prefixed = shape.prefix[: len(value)]
        pairs = zip(value, prefixed, strict=False)
        head = [self.cast(item, part, depth + 1) for item, part in pairs]
        return head + [self._first(item, shape.items, depth) for item in value[len(prefixed) :]]

    def shape(self, schema: Mapping[str, Any]) -> _Shape:
        """What a schema says about a value."""
        return self._shape(schema, 0)

    def _first(self, value: Any, schemas: Sequence[Any], depth: int) -> Any:
        """Typed by the first schema that does something with it."""
        for schema in schemas:
            typed = self.cast(value, schema, depth + 1)
            if typed is not value and (typed != value or type(typed) is not type(value)):
                return typed
        return value

    def _shape(self, schema: Any, depth: int) -> _Shape:
        shape = _Shape()
        if depth > _MAX_DEPTH or not isinstance(schema, Mapping):
            return shape
        if isinstance(schema.get("$ref"), str):
            shape = self._shape(self._resolve(schema["$ref"]), depth + 1)
        _read_types(schema, shape, values=self._deep)
        _read_parts(schema, shape)
        for keyword in ("anyOf", "oneOf"):
            options = schema.get(keyword)
            if isinstance(options, list):
                self._unite(shape, [self._shape(option, depth + 1) for option in options])
        whole = schema.get("allOf")
        for part in whole if self._deep and isinstance(whole, list) else ():
            self._intersect(shape, self._shape(part, depth + 1))
        if schema.get("nullable") and shape.types is not None and "null" not in shape.types:
            shape.types.append("null")
        return shape

    def _unite(self, shape: _Shape, options: list[_Shape]) -> None:
        types: list[str] = [] if shape.types is None else shape.types
        for option in options:
            shape.take_parts(option)
            known = option.types if option.types is not None else _types_of(option.values)
            types.extend(name for name in known if name not in types)
        if types:
            shape.types = types
        if options and all(option.values is not None for option in options):
            shape.values = [value for option in options for value in option.values or ()]

    def _intersect(self, shape: _Shape, part: _Shape) -> None:
        shape.take_parts(part)
        if part.types is not None:
            narrowed = [name for name in shape.types or part.types if _allowed(name, part.types)]
            shape.types = narrowed or part.types
        if part.values is not None:
            shape.values = part.values

    def _resolve(self, reference: str) -> Any:
        if not reference.startswith("#"):
            return {}
        node: Any = self._root
        for part in reference[1:].split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(node, Mapping) or key not in node:
                return {}
            node = node[key]
        return node


def _read_types(schema: Mapping[str, Any], shape: _Shape, *, values: bool) -> None:
    types = schema.get("type")
    if isinstance(types, str):
        shape.types = [types]
    elif isinstance(types, list):
        shape.types = [name for name in types if isinstance(name, str)]
    if not values:
        return
    if isinstance(schema.get("enum"), list):
        shape.values = list(schema["enum"])
    elif "const" in schema:
        shape.values = [schema["const"]]


def _read_parts(schema: Mapping[str, Any], shape: _Shape) -> None:
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        shape.properties.setdefault(name, []).append(part)
    for keyword, parts in (("additionalProperties", shape.others), ("items", shape.items)):
        if isinstance(schema.get(keyword), Mapping):
            parts.append(schema[keyword])
    if isinstance(schema.get("prefixItems"), list):
        shape.prefix.extend(schema["prefixItems"])


def _allowed(name: str, types: Sequence[str]) -> bool:
    return name in types or (name == "integer" and "number" in types)


def _types_of(values: list[Any] | None) -> list[str]:
    """The types of an enum's values."""
    kinds = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
    return list(dict.fromkeys(kinds[type(value)] for value in values or () if type(value) in kinds))


def _cast_text(text: str, shape: _Shape) -> Any:
    if shape.values is not None:
        if text in shape.values:
            return text
        for value in shape.values:
            if not isinstance(value, str) and _reads_as(text, value):
                return value
    types = shape.types or ()
    if "string" in types:
        return None if "null" in types and text.strip() in ("null", "None") else text
    for name in types:
        try:
            return _CASTS[name](text) if name in _CASTS else text
        except (ValueError, ArithmeticError):
            continue
    return text


def _reads_as(text: str, value: Any) -> bool:
    kind = _types_of([value])
    try:
        return bool(kind) and type(value) is type(cast := _CASTS[kind[0]](text)) and cast == value
    except (ValueError, ArithmeticError):
        return False


def _to_integer(text: str) -> int:
    stripped = text.strip()
    try:
        return int(stripped)
    except ValueError:
        number = _to_decimal(stripped)
        if number != number.to_integral_value():
            raise ContentError("not whole") from None
        return int(number)


def _to_number(text: str) -> int | float:
    stripped = text.strip()
    value = float(stripped)
    if not math.isfinite(value):
        raise ContentError("not finite")
    return int(value) if value.is_integer() and "." not in stripped else value


def _to_decimal(text: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ContentError("not a number") from None
    if not number.is_finite() or abs(number.adjusted()) > _MAX_DIGITS:
        raise ContentError("not a finite number of sensible size")
    return number


def _to_boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "1"):
        return True
    if lowered in ("false", "0"):
        return False
    raise ContentError("not a boolean")


def _to_null(text: str) -> None:
    if text.strip() not in ("null", "None"):
        raise ContentError("not null")


def _to_json(kind: type) -> Any:
    def cast(text: str) -> Any:
        value = loads(text)
        if not isinstance(value, kind):
            raise ContentError(f"not a JSON {kind.__name__}")
        return value

    return cast


_CASTS: Mapping[str, Any] = {
    "integer": _to_integer,
    "number": _to_number,
    "boolean": _to_boolean,
    "null": _to_null,
    "object": _to_json(dict),
    "array": _to_json(list),
}
