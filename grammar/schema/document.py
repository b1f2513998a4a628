"""A schema document: its subschemas by JSON Pointer, and references resolved within it.

A subschema is named by its canonical JSON Pointer (RFC 6901) from the root, which also is what
errors and reports show. References outside the document are refused by name. Where a dynamic
reference may depend on the way to it, the pointer has a scope in front (``references.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from grammar.errors import SchemaBudgetError, SchemaError
from grammar.schema.dialect import Dialect, draft_of, is_known
from grammar.schema.references import RECURSIVE, Anchor, Scopes, defrag, resolve_uri

# Keywords of the schemas that this compiler writes for itself (``Document.add``).
AT = "\0at"  # the pointer of a subschema that must hold
NOT = "\0not"  # the pointer of a subschema that must not hold
NONE = "\0none"  # values that the instance must not equal
NOT_PATTERN = "\0not-pattern"
NOT_FORMAT = "\0not-format"
NOT_ENCODING = "\0not-encoding"
NOT_MULTIPLE = "\0not-multiple"
FRACTION = "\0fraction"  # a number must not be an integer
SOME_KEY = "\0some-key"  # some key of a class must be there, with a value; see ``objects.py``
BEHIND = "\0behind"  # of how many first items ``contains`` takes no notice
INTERNAL = frozenset(
    {AT, NOT, NONE, BEHIND, NOT_ENCODING, NOT_FORMAT, NOT_PATTERN, NOT_MULTIPLE, FRACTION, SOME_KEY}
)
_NAMING = INTERNAL | {
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor",
    "unevaluatedProperties", "unevaluatedItems",
}  # fmt: skip

_CONTAINERS = (dict, list)
_SCALARS = frozenset({str, bool, int, float, type(None)})
MAX_DEPTH = 400
MAX_NODES = 400_000
ROLES = {
    **dict.fromkeys(
        ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
         "dependencies"), "schemas"),
    **dict.fromkeys(
        ("allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalItems", "contains", "not",
         "if", "then", "else", "additionalProperties", "propertyNames", "unevaluatedItems",
         "unevaluatedProperties", "contentSchema"), "schema"),
}  # fmt: skip
"""What the value of a keyword holds: one schema (or a list of them), or schemas by name."""


_NAMING = INTERNAL | {
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor",
    "unevaluatedProperties", "unevaluatedItems",
}  # fmt: skip
"""What makes a schema object of interest to ``Document._note_names``."""


def escape(part: str) -> str:
    """One reference token of a JSON Pointer, escaped."""
    if "~" not in part and "/" not in part:
        return part
    return part.replace("~", "~0").replace("/", "~1")


def join(pointer: str, *parts: str | int) -> str:
    """A pointer extended by some reference tokens."""
    tokens = (escape(part) if isinstance(part, str) else str(part) for part in parts)
    return pointer + "".join(["/" + token for token in tokens])


def _go_on() -> None:
    """Nobody to give way to."""


class Document:
    """A JSON Schema document, and where its ids and anchors are.

    Args:
        root: the schema.
        annotations: keywords that assert nothing here, whatever the draft says.

    Schemas that the compiler writes (complements, say) live beside it, at pointers that begin with
    ``!`` and a number; inside them ``AT`` and ``NOT`` lead back to subschemas of the document.

    Raises:
        SchemaError: the root is no schema.
        SchemaBudgetError: it is nested too deeply, or has too many nodes.
    """

    def __init__(self, root: Any, annotations: frozenset[str] = frozenset()) -> None:
        if not isinstance(root, (dict, bool)):
            raise SchemaError("a schema is an object or a boolean", pointer="")
        self.root = root
        dialect = root.get("$schema", "") if isinstance(root, dict) else ""
        if not isinstance(dialect, str):
            raise SchemaError("must be a string", keyword="$schema")
        self._dialect = Dialect.of(root, annotations)
        # Of embedded resources that have another, by base URI.
        self._dialects: dict[str, Dialect] = {}
        #: Called now and then by whoever works on the document, to give way to others.
        self.breathe: Callable[[], None] = _go_on
        self._written: dict[str, Any] = {}
        self._by_text: dict[str, str] = {}
        self._origins: dict[str, str] = {}
        self._aliases: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self._anchors: list[Anchor] = []
        self._ambiguous: set[str] = set()
        self._has_ids = False
        #: Whether any ``unevaluated…`` asks which schemas evaluated what.
        self.tracks_evaluation = False
        self._by_uri: dict[str, str] = {"": ""}
        self._bases: dict[str, str] = {}
        #: Keywords that are annotations here.
        self.annotations = annotations
        #: Those, and keywords that the schema's own draft does not know: (keyword, pointer).
        self.ignored: list[tuple[str, str]] = []
        #: Whether media types of strings are assertions.
        self.asserts_content = self._dialect.draft == "draft-07"
        #: Schemas that name a meta-schema of which nothing is known: (its name, pointer).
        self.unknown_dialects: list[tuple[str, str]] = []
        self._index()
        #: From draft-06 on a number without a fraction is an integer, however it is written. (Where
        #: drafts are mixed all integers are written as the oldest wants it.)
        self.float_integers = self._dialect.float_integers and all(
            d.float_integers for d in self._dialects.values()
        )
        names = {anchor.name for anchor in self._anchors}
        self._scopes: Scopes | None = None
        #: The root's pointer.
        self.start = ""
        if len(names) < len(self._anchors):  # else a name has one meaning, whatever the way
            schemas = {p: self._values[p] for p in self._bases}
            self._scopes = Scopes(self._anchors, self._owner, schemas, self._static)
            self.start = self._scopes.arrive({}, "")

    def _index(self) -> None:
        """Find every ``$id`` and ``$anchor``, without recursion, and measure the document.

        Names count only where a schema is expected: not in ``enum``, nor in unknown keywords.
        """
        pending: list[tuple[Any, str, str, int, str]] = [(self.root, "", "", 0, "schema")]
        count, values, bases = 1, self._values, self._bases
        while pending:
            value, pointer, base, depth, role = pending.pop()
            is_object = isinstance(value, dict)
            if is_object and role == "schema":
                unknown = self._dialect.unknown
                if pointer and "$schema" in value:
                    unknown = self._embedded(value, base).unknown
                elif self._dialects:
                    unknown = self._dialects.get(base, self._dialect).unknown
                if not unknown.isdisjoint(value):
                    value = self._without(unknown, value, pointer)
                if _NAMING.isdisjoint(value):
                    bases[pointer] = base
                else:
                    base = self._note_names(value, pointer, base)
            values[pointer] = value
            count += len(value) if is_object or isinstance(value, list) else 0
            if depth > MAX_DEPTH:
                raise SchemaBudgetError(f"nested more than {MAX_DEPTH} levels", pointer=pointer)
            if count > MAX_NODES:
                raise SchemaBudgetError(f"more than {MAX_NODES} JSON values", pointer="")
            within, depth = pointer + "/", depth + 1
            if is_object:
                try:
                    "".join(value)
                except TypeError:
                    raise SchemaError("object keys must be strings", pointer=pointer) from None
                inner = "schema" if role == "schemas" else "data"
                for key, child in value.items():
                    if type(child) not in _SCALARS and isinstance(child, _CONTAINERS):
                        if role == "schema":
                            inner = ROLES.get(key, "data")
                        name = escape(key) if "~" in key or "/" in key else key
                        pending.append((child, within + name, base, depth, inner))
            elif isinstance(value, list):
                inner = "schema" if role in ("schema", "schemas") else "data"
                for i, child in enumerate(value):
                    if type(child) not in _SCALARS and isinstance(child, _CONTAINERS):
                        pending.append((child, within + str(i), base, depth, inner))

    def _without(
        self, unknown: frozenset[str], schema: dict[str, Any], pointer: str
    ) -> dict[str, Any]:
        self.ignored += [(k, pointer) for k in schema if k in unknown]
        return {k: v for k, v in schema.items() if k not in unknown}

    def _drop_below(self, start: str) -> None:
        """A reference makes a schema of what stands below no keyword: there, too, keywords go."""
        pending = [(start, "schema")]
        while pending:
            pointer, role = pending.pop()
            value = self.get(pointer)
            if role == "schema" and isinstance(value, dict) and pointer not in self._bases:
                unknown = self.dialect(pointer).unknown
                if value.keys() & unknown:
                    value = self._values[pointer] = self._without(unknown, value, pointer)
                self._bases[pointer] = self._base(pointer)
                pending += [(join(pointer, k), ROLES[k]) for k in value if k in ROLES]
            elif role == "schemas" and isinstance(value, dict):
                pending += [(join(pointer, k), "schema") for k in value]
            elif isinstance(value, list):
                pending += [(join(pointer, i), "schema") for i in range(len(value))]

    def _note_names(self, schema: dict[str, Any], pointer: str, base: str) -> str:
        if _NAMING.isdisjoint(schema):
            self._bases[pointer] = base
            return base
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            self.tracks_evaluation = True
        for keyword in INTERNAL & schema.keys():
            raise SchemaError("is no keyword", pointer=pointer, keyword=repr(keyword))
        if "$schema" in schema and not is_known(str(schema["$schema"])):
            self.unknown_dialects.append((str(schema["$schema"]), pointer))
        dialect = self._dialects.get(base, self._dialect) if self._dialects else self._dialect
        if pointer and "$schema" in schema:
            dialect = self._embedded(schema, base)
        identity = schema.get("$id", schema.get("id") if dialect.ref_alone else None)
        if isinstance(identity, str) and not ("$ref" in schema and dialect.ref_alone):
            uri, fragment = defrag(resolve_uri(base, identity))
            if fragment and not fragment.startswith("/"):
                self._by_uri.setdefault(f"{uri}#{fragment}", pointer)
            else:
                base = uri
                self._by_uri.setdefault(uri, pointer)
                self._has_ids |= bool(pointer)
                if dialect is not self._dialect:
                    self._dialects[uri] = dialect
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                at = self._by_uri.setdefault(f"{base}#{anchor}", pointer)
                if at != pointer:
                    self._ambiguous.add(f"{base}#{anchor}")
                elif keyword == "$dynamicAnchor":
                    self._anchors.append(Anchor(self._by_uri.get(base, ""), anchor, pointer))
        if schema.get("$recursiveAnchor") is True and pointer == self._by_uri.get(base, ""):
            self._anchors.append(Anchor(pointer, RECURSIVE, pointer))
        self._bases[pointer] = base
        return base

    def _embedded(self, schema: dict[str, Any], base: str) -> Dialect:
        """The dialect of a schema within the document that has a ``$schema``: its own if it is a
        resource of its own (Core, 8.1.1), else its surroundings'."""
        around = self._dialects.get(base, self._dialect)
        if draft_of(schema) is None:
            return around
        own = Dialect.of(schema, self.annotations)
        identity = schema.get("$id", schema.get("id") if own.ref_alone else None)
        is_resource = isinstance(identity, str) and not identity.startswith("#")
        return own if is_resource and own != around else around

    def dialect(self, pointer: str) -> Dialect:
        """The dialect of the resource that a subschema lies in."""
        if not self._dialects:
            return self._dialect
        return self._dialects.get(self._base(pointer), self._dialect)

    def _base(self, pointer: str) -> str:
        return next(self._bases[p] for p in _ancestors(self.origin(pointer)) if p in self._bases)

    def _owner(self, pointer: str) -> str:
        """The root of the schema resource that a pointer of the document lies in."""
        return self._by_uri.get(self._base(pointer), "") if self._has_ids else ""

    def add(self, schema: dict[str, Any], origin: str) -> str:
        """Give a schema of our own a pointer; reports about it name its (first) origin."""
        text = repr(schema)
        if text in self._by_text:
            return self._by_text[text]
        pointer = self._by_text[text] = f"!{len(self._written)}"
        self._written[pointer] = schema
        self._origins[pointer] = origin
        return pointer

    def alias(self, pointer: str) -> str:
        """A pointer of our own for a subschema of the document, whose references mean the same."""
        found = self._aliases.get(pointer)
        if found is None:
            found = self._aliases[pointer] = f"!{len(self._written)}"
            self._written[found] = self.get(pointer)
            self._origins[found] = pointer
        return found

    def origin(self, pointer: str) -> str:
        """The pointer to show for a subschema: itself, or where a schema of ours comes from."""
        root, slash, rest = pointer.partition("/")
        if not root:
            return pointer
        return slash + rest if root[0] == "@" else self.origin(self._origins[root])

    @staticmethod
    def is_written(pointer: str) -> bool:
        """Whether the pointer is the one of a schema of our own, which evaluates nothing."""
        return pointer.startswith("!") and "/" not in pointer

    def get(self, pointer: str) -> Any:
        """The value at a canonical pointer; it must exist."""
        if pointer not in self._values:
            if pointer.startswith("@"):
                value = self.get(self.origin(pointer))
            else:
                found, value = self._look_up(pointer)
                assert found, pointer
            self._values[pointer] = value
        return self._values[pointer]

    def schema(self, pointer: str) -> dict[str, Any] | bool:
        """The subschema at a canonical pointer.

        Raises:
            SchemaError: what stands there is no schema.
        """
        self.breathe()
        value = self.get(pointer)
        if not isinstance(value, (dict, bool)):
            raise SchemaError("a schema is an object or a boolean", pointer=pointer)
        return value

    def is_true(self, pointer: str) -> bool:
        """Whether a subschema is seen to accept anything."""
        schema = self.schema(pointer)
        if isinstance(schema, dict) and NOT in schema:
            return self.schema(schema[NOT]) is False
        return schema is True or schema == {}

    def _look_up(self, pointer: str) -> tuple[bool, Any]:
        root, *parts = pointer.split("/")
        value: Any = self._written[root] if root else self.root
        for part in parts:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, list) and _is_index(part) and int(part) < len(value):
                value = value[int(part)]
            else:
                return False, None
        return True, value

    # -- references -----------------------------------------------------------------------------

    def references(self, schema: Mapping[str, Any], pointer: str) -> list[str]:
        """Where the references of the schema object at ``pointer`` lead: all of that holds, too.

        Raises:
            SchemaError: one leads outside the document, or nowhere.
        """
        return [
            self._follow(keyword, schema[keyword], pointer)
            for keyword in ("$ref", "$dynamicRef", "$recursiveRef")
            if keyword in schema
        ]

    def _follow(self, keyword: str, reference: Any, pointer: str) -> str:
        while pointer.startswith("!"):  # a name of ours for a schema of the document
            root, slash, rest = pointer.partition("/")
            pointer = self._origins[root] + slash + rest
        target = self._resolve(keyword, reference, pointer)
        if self._scopes is None:
            return target
        anchors = self._scopes.anchors_at(pointer)
        if keyword != "$ref":
            name = RECURSIVE if keyword == "$recursiveRef" else defrag(reference)[1]
            if any(a.name == name and a.pointer == target for a in self._anchors):
                target = anchors.get(name, target)
        return self._scopes.arrive(anchors, target)

    def resolve(self, reference: Any, pointer: str) -> str:
        """The canonical pointer that a ``$ref`` at ``pointer`` leads to.

        Raises:
            SchemaError: it leads outside the document, or nowhere.
        """
        return self._follow("$ref", reference, pointer)

    def _static(self, keyword: str, reference: Any, pointer: str) -> str | None:
        try:
            return self._resolve(keyword, reference, pointer)
        except SchemaError:
            return None

    def _resolve(self, keyword: str, reference: Any, pointer: str) -> str:
        """Where a reference leads, whatever the dynamic scope."""

        def fault(message: str) -> SchemaError:
            return SchemaError(message, pointer=self.origin(pointer), keyword=keyword)

        if not isinstance(reference, str):
            raise fault("must be a string")
        if keyword == "$recursiveRef" and reference != "#":
            raise fault('must be "#"')
        uri, fragment = defrag(resolve_uri(self._base(pointer), reference))
        start = self._by_uri.get(uri, "" if uri == "" else None)
        if start is None:
            raise fault(f"{reference!r} leads outside this schema")
        if not fragment or fragment.startswith("/"):
            inner = unquote(fragment)
            # Schemas that were pasted together mean the document where the resource has no such
            # place.
            for target in (start + inner, start + inner.rstrip(), inner):
                if self._look_up(target)[0]:
                    if target not in self._bases and (self._dialect.unknown or self._dialects):
                        self._drop_below(target)
                    return target
            raise fault(f"{reference!r} leads nowhere in this schema")
        anchored = self._by_uri.get(f"{uri}#{unquote(fragment)}")
        if anchored is None:
            raise fault(f"{reference!r} leads nowhere in this schema")
        if f"{uri}#{unquote(fragment)}" in self._ambiguous:
            raise fault(f"{reference!r} is the name of several subschemas")
        return anchored


def _is_index(part: str) -> bool:
    return part.isascii() and part.isdecimal() and (part == "0" or part[0] != "0")


def _ancestors(pointer: str) -> Iterator[str]:
    while True:
        yield pointer
        if not pointer:
            return
        pointer = pointer.rpartition("/")[0]
