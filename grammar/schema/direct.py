"""Plain subschemas straight to rules: most of what people write needs no conjunctions.

An object that only declares, requires and says what else may be there, an array of one kind of
items, a reference with nothing beside it, an enumeration of strings: each is read where it stands,
without the detour over alternatives and specs (``flatten``, ``merge``), and becomes the same rule.
Whatever is not exactly of such a form, or is wrong in any way, is left to that detour, which also
is where all errors come from. Compilation costs what it costs because of these forms, so the code
here is written for speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any

from grammar.arrays import ItemChoice
from grammar.content import ANYTHING, Content, Excluding
from grammar.schema import keywords as kw
from grammar.schema.document import INTERNAL, escape
from grammar.schema.flatten import REWRITTEN
from grammar.schema.leaves import HEEDED
from grammar.schema.merge import Spec, WordsSpec
from grammar.schema.objects import ExtraSpec, ObjectSpec
from grammar.schema.plan import ArrayRule, ObjectRule, Rule

if TYPE_CHECKING:
    from grammar.schema.compiler import SchemaCompiler

# What must not stand in a schema object for it to be of the form.
_NO_OBJECT = HEEDED - {"type", "properties", "required", "additionalProperties"}
_NO_ARRAY = HEEDED - {"type", "items", "minItems", "maxItems", "uniqueItems"}
_NO_REFERENCE = HEEDED - {"$ref"}
_COMBINED = REWRITTEN | INTERNAL
_NO_UNION = HEEDED - {"anyOf", "oneOf"}
MANY = 500
"""Reading more properties or values gives way to others in between."""
_NOTHING: Mapping[str, Any] = {}
_UNDECLARED = ExtraSpec(Content(ANYTHING, 0, None), ())


def plain_rule(compiler: SchemaCompiler, pointer: str, schema: dict[str, Any]) -> Rule | None:
    """The rule of a plain object, array or union; None for anything else. Its parts are queued."""
    kind = schema.get("type")
    if kind == "object":
        if _NO_OBJECT.isdisjoint(schema):
            return _object(compiler, pointer, schema)
    elif kind == "array":
        if _NO_ARRAY.isdisjoint(schema):
            return _array(compiler, pointer, schema)
    elif ("anyOf" in schema or "oneOf" in schema) and _NO_UNION.isdisjoint(schema):
        return _union(compiler, pointer, schema)
    return None


def _object(compiler: SchemaCompiler, pointer: str, schema: dict[str, Any]) -> Rule | None:
    declared = schema.get("properties", _NOTHING)
    required = schema.get("required", ())
    more = schema.get("additionalProperties", True)
    if not isinstance(declared, dict) and declared is not _NOTHING:
        return None
    if not isinstance(required, list) and required != ():
        return None
    if not isinstance(more, (bool, dict)):
        return None
    try:
        "".join(declared).encode()
        "".join(required).encode()
    except (TypeError, UnicodeEncodeError):
        return None
    needed = set(required)
    names = tuple(declared)
    if not needed <= declared.keys():
        if more is False:
            return None  # and nothing fits
        names = tuple(dict.fromkeys((*names, *required)))
    compiler.visited[pointer] = schema
    part = compiler.part
    within = pointer + "/properties/"
    values = []
    many = len(declared) > MANY
    for name, child in declared.items():
        if many:
            compiler.document.breathe()
        values.append(part(within + (escape(name) if "~" in name or "/" in name else name), child))
    extras: tuple[ExtraSpec, ...] = ()
    places: tuple[int, ...] = ()
    if more is not False:
        other = compiler.rule(()) if more is True else part(pointer + "/additionalProperties", more)
        places = (other,)
        values += [other] * (len(names) - len(values))
        extras = (ExtraSpec(Content(Excluding(names), 0, None), ()),) if names else (_UNDECLARED,)
    spec = ObjectSpec(names, (), tuple([name in needed for name in names]), extras)
    return ObjectRule(spec, tuple(values), places, compiler.object_node)


def _array(compiler: SchemaCompiler, pointer: str, schema: dict[str, Any]) -> Rule | None:
    items = schema.get("items", True)
    if items is not True and not isinstance(items, dict):
        return None
    least, most = 0, None
    if "minItems" in schema or "maxItems" in schema:
        least, most = kw.limits([(pointer, schema)], "minItems", "maxItems")
        if most is not None and least > most:
            return None  # and nothing fits
    unique = schema.get("uniqueItems") is True and (most is None or most > 1)
    compiler.visited[pointer] = schema
    rule = compiler.rule(()) if items is True else compiler.part(pointer + "/items", items)
    return ArrayRule((), (ItemChoice(rule),), least, most, (), pointer if unique else None)


def _union(compiler: SchemaCompiler, pointer: str, schema: dict[str, Any]) -> Rule | None:
    """Branches without combinators, of which any may hold; those of ``oneOf`` have a type each."""
    keyword = "anyOf" if "anyOf" in schema else "oneOf"
    branches = schema[keyword]
    document = compiler.document
    if ("oneOf" in schema and keyword == "anyOf") or document.tracks_evaluation:
        return None
    if not isinstance(branches, list) or len(branches) < 2:
        return None
    found: list[tuple[str, dict[str, Any]]] = []
    within = f"{pointer}/{keyword}/"
    for i, branch in enumerate(branches):
        if not isinstance(branch, dict):
            return None
        at = within + str(i)
        if "$ref" in branch:
            if not _NO_REFERENCE.isdisjoint(branch):
                return None
            target = document.resolve(branch["$ref"], at)
            there = document.get(target)
            if not isinstance(there, dict) or not _COMBINED.isdisjoint(there):
                return None
            found.append((target, there))
        elif _COMBINED.isdisjoint(branch):
            found.append((at, branch))
        else:
            return None
    if keyword == "oneOf":
        kinds = [kind for _, there in found if isinstance(kind := there.get("type"), str)]
        if len(set(kinds)) < len(found) or {"integer", "number"} <= set(kinds):
            return None
        if any("nullable" in there for _, there in found):
            return None
    compiler.visited[pointer] = schema
    ref_alone = document.dialect(pointer).ref_alone
    for i, branch in enumerate(branches):
        if "$ref" in branch and not ref_alone:
            compiler.visited[within + str(i)] = branch
    return tuple(dict.fromkeys(compiler.part(at, there) for at, there in found))


def plain_target(compiler: SchemaCompiler, pointer: str, schema: dict[str, Any]) -> str | None:
    """Where a reference leads that stands by itself, to something that is no reference.

    Raises:
        SchemaError: it leads nowhere.
    """
    document = compiler.document
    ref_alone = document.dialect(pointer).ref_alone
    if not ref_alone and not _NO_REFERENCE.isdisjoint(schema):
        return None
    target = document.resolve(schema["$ref"], pointer)
    there = document.get(target)
    if not isinstance(there, dict) or "$ref" in there:
        return None
    if not ref_alone:
        compiler.visited[pointer] = schema
    return target


def listed_strings(compiler: SchemaCompiler, schema: dict[str, Any]) -> list[Spec] | None:
    """The specs of a leaf that lists strings and asserts no more; None if it is none."""
    values = schema.get("enum")
    if values is None:
        values = [schema["const"]] if "const" in schema else None
    elif "const" in schema:
        return None
    if not isinstance(values, list) or not values:
        return None
    if schema.get("type", "string") != "string":
        return None
    many = len(values) > MANY
    for value in values:
        if many:
            compiler.document.breathe()
        if type(value) is not str:
            return None
    texts = tuple(dict.fromkeys(map(encode_basestring, values)))
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return None
    return [WordsSpec(texts)]
