"""References and combinators away: a conjunction of subschemas as a list of alternatives.

An *alternative* is a tuple of plain schema objects (their pointers) that must all hold; the
conjunction is satisfied when one of its alternatives is. ``$ref`` and ``allOf`` join, ``anyOf`` and
provably exclusive ``oneOf`` branch. The result is a disjunctive normal form of one level: the
subschemas of properties and items are left alone, so recursive schemas end here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from grammar.errors import Issue, SchemaBudgetError
from grammar.schema import keywords as kw
from grammar.schema.document import Document, join

Alternative = tuple[str, ...]
Conjunction = tuple[str, ...]

MAX_ALTERNATIVES = 4096
MAX_NESTING = 100


class Flattener:
    """Makes alternatives of conjunctions; memoised by pointer.

    Args:
        document: the schema.
        report: called with every issue met (once an occurrence; the caller removes repeats).
        exclusive: decides whether two conjunctions have no instance in common.
    """

    def __init__(
        self,
        document: Document,
        report: Callable[[Issue], None],
        exclusive: Callable[[Conjunction, Conjunction], bool],
    ) -> None:
        self._document = document
        self._report = report
        self._exclusive = exclusive
        self._known: dict[str, list[Alternative]] = {}
        self._active: list[str] = []

    def conjunction(self, pointers: Conjunction) -> list[Alternative]:
        """The alternatives of several subschemas that must all hold; none if they can't."""
        return self._product([self._pointer(p) for p in pointers], pointers[0] if pointers else "")

    def _product(self, parts: list[list[Alternative]], pointer: str) -> list[Alternative]:
        result: list[Alternative] = [()]
        for part in parts:
            if len(result) * len(part) > MAX_ALTERNATIVES:
                raise SchemaBudgetError(
                    f"more than {MAX_ALTERNATIVES} combinations of alternatives", pointer=pointer
                )
            joined = (tuple(dict.fromkeys(left + right)) for left in result for right in part)
            result = list(dict.fromkeys(joined))
        return result

    def _pointer(self, pointer: str) -> list[Alternative]:
        found = self._known.get(pointer)
        if found is None:
            if pointer in self._active:
                loop = " -> ".join(p or "#" for p in (*self._active, pointer))
                raise kw.fault("$ref", pointer, f"refers to itself without end: {loop}")
            if len(self._active) > MAX_NESTING:
                raise SchemaBudgetError(
                    f"combinators nested more than {MAX_NESTING} levels", pointer=pointer
                )
            self._active.append(pointer)
            try:
                found = self._known[pointer] = self._schema(pointer)
            finally:
                self._active.pop()
        return found

    def _schema(self, pointer: str) -> list[Alternative]:
        schema = self._document.schema(pointer)
        if isinstance(schema, bool):
            return [()] if schema else []
        parts: list[list[Alternative]] = []
        if "$ref" in schema:
            target = self._document.resolve(schema["$ref"], pointer)
            parts.append(self._pointer(target))
            if self._document.ref_alone:
                return parts[0]
        for keyword, reason in kw.UNSUPPORTED.items():
            if keyword in schema and self._asserts(schema, keyword):
                self._report(Issue(keyword, pointer, reason))
        count = kw.schemas(schema, "allOf", pointer)
        parts.extend(self._pointer(join(pointer, "allOf", i)) for i in range(count))
        branches = [join(pointer, "anyOf", i) for i in range(kw.schemas(schema, "anyOf", pointer))]
        if branches:
            parts.append(self._union(branches))
        branches = [join(pointer, "oneOf", i) for i in range(kw.schemas(schema, "oneOf", pointer))]
        if branches:
            parts.append(self._union(branches))
            self._check_exclusive(branches, pointer)
        return self._product([[(pointer,)], *parts], pointer)

    @staticmethod
    def _asserts(schema: dict[str, Any], keyword: str) -> bool:
        if keyword == "if":
            return any(schema.get(k, True) not in (True, {}) for k in ("then", "else"))
        return keyword != "not" or schema["not"] is not False

    def _union(self, pointers: list[str]) -> list[Alternative]:
        return list(dict.fromkeys(a for pointer in pointers for a in self._pointer(pointer)))

    def _check_exclusive(self, branches: list[str], pointer: str) -> None:
        for i, left in enumerate(branches):
            for right in branches[:i]:
                if not self._exclusive((left,), (right,)):
                    first, second = right.rpartition("/")[2], left.rpartition("/")[2]
                    reason = f"branches {first} and {second} are not provably exclusive"
                    self._report(Issue("oneOf", pointer, reason))
                    return
