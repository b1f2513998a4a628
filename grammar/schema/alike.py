"""Which subschemas say the same, wherever they stand.

Two subschemas have the same key only if they assert the same of every instance: they are built
alike, and their references lead to subschemas with the same key. (Recursive ones may say the same
and have different keys.)
"""

from __future__ import annotations

import json
from typing import Any

from grammar.schema import keywords as kw
from grammar.schema.document import AT, NOT, ROLES, SOME_KEY, Document, join

MAX_LEVELS = 60
REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class Alike:
    """Keys of the subschemas of one document; each is read once."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._keys: dict[str, str] = {}
        self._numbers: dict[str, int] = {}
        self._level = 0

    def key(self, pointer: str) -> str:
        """The key of the subschema at a pointer."""
        found = self._keys.get(pointer)
        if found is not None:
            return found
        self._keys[pointer] = pointer  # what it says of itself, should it lead back here
        if self._level < MAX_LEVELS:
            self._level += 1
            try:
                found = self._made(pointer)
            finally:
                self._level -= 1
            if found is not None:
                self._keys[pointer] = found
        return self._keys[pointer]

    def _number(self, said: str) -> str:
        return f"#{self._numbers.setdefault(said, len(self._numbers))}"

    def _made(self, pointer: str) -> str | None:
        schema = self._document.get(pointer)
        if isinstance(schema, bool):
            return self._number(repr(schema))
        if not isinstance(schema, dict):
            return None
        if AT in schema:
            return self.key(schema[AT])
        if NOT in schema:
            return self._number("not " + self.key(schema[NOT]))
        targets = [self.key(p) for p in self._document.references(schema, pointer)]
        if "$ref" in schema and self._document.dialect(pointer).ref_alone:
            return targets[0]
        said = [("$ref", target) for target in targets]
        for keyword, value in schema.items():
            if keyword not in REFERENCES and keyword not in kw.ANNOTATIONS:
                said.append((keyword, self._value(keyword, value, join(pointer, keyword))))
        if len(said) == len(targets) == 1:
            return targets[0]
        return self._number(repr(sorted(said)) if said else repr(True))

    def _value(self, keyword: str, value: Any, pointer: str) -> str:
        if keyword == SOME_KEY:
            rest = {k: v for k, v in value.items() if k != "value"}
            return _text(rest) + self.key(join(pointer, "value"))
        role = ROLES.get(keyword)
        if role == "schema" and isinstance(value, (dict, bool)):
            return self.key(pointer)
        if role == "schema" and isinstance(value, list):
            return repr([self.key(join(pointer, i)) for i in range(len(value))])
        if role == "schemas" and isinstance(value, dict):
            return repr(
                sorted(
                    (n, self.key(join(pointer, n)) if isinstance(v, (dict, bool)) else _text(v))
                    for n, v in value.items()
                )
            )
        return _text(value)


def _text(value: Any) -> str:
    return json.dumps(value, default=repr)
