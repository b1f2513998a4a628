"""A schema document: its subschemas by JSON Pointer, and references resolved within it.

A subschema is named by its canonical JSON Pointer (RFC 6901) from the root, which also is what
errors and reports show. References outside the document are refused by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from grammar.errors import SchemaBudgetError, SchemaError
from grammar.schema.dialect import draft_of, is_known, later_keywords

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
INTERNAL = frozenset(
    {AT, NOT, NONE, NOT_ENCODING, NOT_FORMAT, NOT_PATTERN, NOT_MULTIPLE, FRACTION, SOME_KEY}
)

_CONTAINERS = (dict, list)
MAX_DEPTH = 400
MAX_NODES = 400_000
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
_ROLES = {
    **dict.fromkeys(
        ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas",
         "dependencies"), "schemas"),
    **dict.fromkeys(
        ("allOf", "anyOf", "oneOf", "prefixItems", "items", "additionalItems", "contains", "not",
         "if", "then", "else", "additionalProperties", "propertyNames", "unevaluatedItems",
         "unevaluatedProperties", "contentSchema"), "schema"),
}  # fmt: skip
"""What the value of a keyword holds: one schema (or a list of them), or schemas by name."""


def escape(part: str) -> str:
    """One reference token of a JSON Pointer, escaped."""
    if "~" not in part and "/" not in part:
        return part
    return part.replace("~", "~0").replace("/", "~1")


def join(pointer: str, *parts: str | int) -> str:
    """A pointer extended by some reference tokens."""
    for part in parts:
        pointer += "/" + (escape(part) if isinstance(part, str) else str(part))
    return pointer


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
        dialect = draft_of(root) or ""
        #: From draft-06 on a number without a fraction is an integer, however it is written.
        self.float_integers = not any(draft in dialect for draft in ("draft-03", "draft-04"))
        #: Up to draft-07 the neighbours of ``$ref`` are ignored.
        self.ref_alone = any(draft in dialect for draft in OLD_DRAFTS)
        #: Called now and then by whoever works on the document, to give way to others.
        self.breathe: Callable[[], None] = _go_on
        #: What ``exclusive.py`` found, by pointer.
        self.plain_parts: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        self._written: dict[str, Any] = {}
        self._by_text: dict[str, str] = {}
        self._origins: dict[str, str] = {}
        self._values: dict[str, Any] = {}
        self.dynamic_anchors: Counter[str] = Counter()
        #: Whether any ``unevaluated…`` asks which schemas evaluated what.
        self.tracks_evaluation = False
        self._by_uri: dict[str, str] = {}
        self._bases: dict[str, str] = {}
        #: Keywords that are annotations here.
        self.annotations = annotations
        self._dropped = later_keywords(root) | annotations
        #: Those, and keywords that the schema's own draft does not know: (keyword, pointer).
        self.ignored: list[tuple[str, str]] = []
        self.draft = draft_of(root)
        #: Whether media types of strings are assertions.
        self.asserts_content = self.draft == "draft-07"
        #: Schemas that name a meta-schema of which nothing is known: (its name, pointer).
        self.unknown_dialects: list[tuple[str, str]] = []
        self._index()

    def _index(self) -> None:
        """Find every ``$id`` and ``$anchor``, without recursion, and measure the document.

        Names count only where a schema is expected: not in ``enum``, nor in unknown keywords.
        """
        pending: list[tuple[Any, str, str, int, str]] = [(self.root, "", "", 0, "schema")]
        count, values = 1, self._values
        while pending:
            value, pointer, base, depth, role = pending.pop()
            if role == "schema" and isinstance(value, dict) and value.keys() & self._dropped:
                value = self._without_dropped(value, pointer)
            values[pointer] = value
            if depth > MAX_DEPTH:
                raise SchemaBudgetError(f"nested more than {MAX_DEPTH} levels", pointer=pointer)
            if count > MAX_NODES:
                raise SchemaBudgetError(f"more than {MAX_NODES} JSON values", pointer="")
            if isinstance(value, dict):
                if role == "schema":
                    base = self._note_names(value, pointer, base)
                within, depth = pointer + "/", depth + 1
                inner = "schema" if role == "schemas" else "data"
                for key, child in value.items():
                    if not isinstance(key, str):
                        raise SchemaError("object keys must be strings", pointer=pointer)
                    if role == "schema":
                        inner = _ROLES.get(key, "data")
                    count += 1
                    if isinstance(child, _CONTAINERS):
                        name = escape(key) if "~" in key or "/" in key else key
                        pending.append((child, within + name, base, depth, inner))
            elif isinstance(value, list):
                within, depth = pointer + "/", depth + 1
                inner = "schema" if role in ("schema", "schemas") else "data"
                count += len(value)
                for i, child in enumerate(value):
                    if isinstance(child, _CONTAINERS):
                        pending.append((child, within + str(i), base, depth, inner))

    def _without_dropped(self, schema: dict[str, Any], pointer: str) -> dict[str, Any]:
        self.ignored += [(k, pointer) for k in schema if k in self._dropped]
        return {k: v for k, v in schema.items() if k not in self._dropped}

    def _drop_below(self, start: str) -> None:
        """A reference makes a schema of what stands below no keyword: there, too, keywords go."""
        pending = [(start, "schema")]
        while pending:
            pointer, role = pending.pop()
            value = self.get(pointer)
            if role == "schema" and isinstance(value, dict) and pointer not in self._bases:
                value = self._values[pointer] = self._without_dropped(value, pointer)
                self._bases[pointer] = next(
                    self._bases[p] for p in _ancestors(pointer) if p in self._bases
                )
                pending += [(join(pointer, k), _ROLES[k]) for k in value if k in _ROLES]
            elif role == "schemas" and isinstance(value, dict):
                pending += [(join(pointer, k), "schema") for k in value]
            elif isinstance(value, list):
                pending += [(join(pointer, i), "schema") for i in range(len(value))]

    def _note_names(self, schema: dict[str, Any], pointer: str, base: str) -> str:
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            self.tracks_evaluation = True
        for keyword in INTERNAL & schema.keys():
            raise SchemaError("is no keyword", pointer=pointer, keyword=repr(keyword))
        dialect = schema.get("$schema")
        if isinstance(dialect, str) and not is_known(dialect):
            self.unknown_dialects.append((dialect, pointer))
        identity = schema.get("$id", schema.get("id") if self.ref_alone else None)
        if isinstance(identity, str) and not ("$ref" in schema and self.ref_alone):
            uri, fragment = urldefrag(urljoin(base, identity))
            if fragment and not fragment.startswith("/"):
                self._by_uri.setdefault(f"{uri}#{fragment}", pointer)
            else:
                base = uri
                self._by_uri.setdefault(uri, pointer)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self.dynamic_anchors[anchor] += keyword == "$dynamicAnchor"
                self._by_uri.setdefault(f"{base}#{anchor}", pointer)
        self._bases[pointer] = base
        return base

    def add(self, schema: dict[str, Any], origin: str) -> str:
        """Give a schema of our own a pointer; reports about it name its (first) origin."""
        text = repr(schema)
        if text in self._by_text:
            return self._by_text[text]
        pointer = self._by_text[text] = f"!{len(self._written)}"
        self._written[pointer] = schema
        self._origins[pointer] = origin
        return pointer

    def origin(self, pointer: str) -> str:
        """The pointer to show for a subschema: itself, or where a schema of ours comes from."""
        root = pointer.partition("/")[0]
        return self._origins[root] if root else pointer

    @staticmethod
    def is_written(pointer: str) -> bool:
        """Whether the pointer leads into a schema of our own."""
        return pointer.startswith("!")

    def get(self, pointer: str) -> Any:
        """The value at a canonical pointer; it must exist."""
        if pointer not in self._values:
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

    def _look_up(self, pointer: str) -> tuple[bool, Any]:
        root, *parts = pointer.split("/")
        value: Any = self._written[root] if root else self.root
        for part in parts:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and part in value:
                value = value[part]
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                return False, None
        return True, value

    def resolve(self, reference: Any, pointer: str) -> str:
        """The canonical pointer that a ``$ref`` at ``pointer`` leads to.

        Raises:
            SchemaError: it leads outside the document, or nowhere.
        """

        def fault(message: str) -> SchemaError:
            return SchemaError(message, pointer=pointer, keyword="$ref")

        if not isinstance(reference, str):
            raise fault("must be a string")
        known = _ancestors(self.origin(pointer))
        base = next(self._bases[p] for p in known if p in self._bases)
        uri, fragment = urldefrag(urljoin(base, reference))
        if not fragment or fragment.startswith("/"):
            start = "" if uri == "" else self._by_uri.get(uri)
            if start is None:
                raise fault(f"{reference!r} leads outside this schema")
            target = start + unquote(fragment).rstrip()
            found, _ = self._look_up(target)
            if not found:
                raise fault(f"{reference!r} leads nowhere in this schema")
            if self._dropped and target not in self._bases:
                self._drop_below(target)
            return target
        anchored = self._by_uri.get(f"{uri}#{unquote(fragment)}")
        if anchored is None:
            raise fault(f"{reference!r} leads nowhere in this schema")
        return anchored


def _ancestors(pointer: str) -> Iterator[str]:
    while True:
        yield pointer
        if not pointer:
            return
        pointer = pointer.rpartition("/")[0]
