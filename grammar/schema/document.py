"""A schema document: its subschemas by JSON Pointer, and references resolved within it.

A subschema is named by its canonical JSON Pointer (RFC 6901) from the root, which also is what
errors and reports show. References outside the document are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from grammar.errors import SchemaBudgetError, SchemaError

MAX_DEPTH = 400
MAX_NODES = 400_000
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")
_NO_SCHEMAS = frozenset({"enum", "const", "default", "examples", "example"})


def escape(part: str) -> str:
    """One reference token of a JSON Pointer, escaped."""
    return part.replace("~", "~0").replace("/", "~1")


def join(pointer: str, *parts: str | int) -> str:
    """A pointer extended by some reference tokens."""
    return "".join([pointer, *("/" + escape(str(part)) for part in parts)])


class Document:
    """A JSON Schema document, and where its ids and anchors are.

    Raises:
        SchemaError: the root is no schema.
        SchemaBudgetError: it is nested too deeply, or has too many nodes.
    """

    def __init__(self, root: Any) -> None:
        if not isinstance(root, (dict, bool)):
            raise SchemaError("a schema is an object or a boolean", pointer="")
        self.root = root
        dialect = root.get("$schema", "") if isinstance(root, dict) else ""
        if not isinstance(dialect, str):
            raise SchemaError("must be a string", keyword="$schema")
        #: Up to draft-07 the neighbours of ``$ref`` are ignored.
        self.ref_alone = any(draft in dialect for draft in OLD_DRAFTS)
        self._by_uri: dict[str, str] = {}
        self._bases: dict[str, str] = {}
        self._index()

    def _index(self) -> None:
        """Find every ``$id`` and ``$anchor``, without recursion, and measure the document."""
        pending: list[tuple[Any, str, str, int, bool]] = [(self.root, "", "", 0, True)]
        count = 0
        while pending:
            value, pointer, base, depth, is_schema = pending.pop()
            count += 1
            if depth > MAX_DEPTH:
                raise SchemaBudgetError(f"nested more than {MAX_DEPTH} levels", pointer=pointer)
            if count > MAX_NODES:
                raise SchemaBudgetError(f"more than {MAX_NODES} JSON values", pointer="")
            if isinstance(value, dict):
                if is_schema:
                    base = self._note_names(value, pointer, base)
                for key, child in value.items():
                    if not isinstance(key, str):
                        raise SchemaError("object keys must be strings", pointer=pointer)
                    schema = not (is_schema and key in _NO_SCHEMAS)
                    pending.append((child, join(pointer, key), base, depth + 1, schema))
            elif isinstance(value, list):
                for i, child in enumerate(value):
                    pending.append((child, join(pointer, i), base, depth + 1, is_schema))

    def _note_names(self, schema: dict[str, Any], pointer: str, base: str) -> str:
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
                self._by_uri.setdefault(f"{base}#{anchor}", pointer)
        self._bases[pointer] = base
        return base

    def get(self, pointer: str) -> Any:
        """The value at a canonical pointer; it must exist."""
        found, value = self._look_up(pointer)
        assert found, pointer
        return value

    def schema(self, pointer: str) -> dict[str, Any] | bool:
        """The subschema at a canonical pointer.

        Raises:
            SchemaError: what stands there is no schema.
        """
        value = self.get(pointer)
        if not isinstance(value, (dict, bool)):
            raise SchemaError("a schema is an object or a boolean", pointer=pointer)
        return value

    def _look_up(self, pointer: str) -> tuple[bool, Any]:
        value: Any = self.root
        for part in pointer.split("/")[1:]:
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
        base = next(self._bases[p] for p in _ancestors(pointer) if p in self._bases)
        uri, fragment = urldefrag(urljoin(base, reference))
        if not fragment or fragment.startswith("/"):
            start = "" if uri == "" else self._by_uri.get(uri)
            if start is None:
                raise fault(f"{reference!r} leads outside this schema")
            target = start + unquote(fragment).rstrip()
            found, _ = self._look_up(target)
            if not found:
                raise fault(f"{reference!r} leads nowhere in this schema")
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
