"""Schemas that were compiled beforehand, and can be asked for by their hash.

Invariant: a hash names a schema with everything that it was compiled with; a request that says
something else beside it is refused.

Read next: `server/api/schemas.py`, the endpoint; `server/api/structured.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from server.api.errors import ApiError
from server.api.formats import JsonSchemaFormat, Wanted

#: How many there are; the least recently used one goes.
MOST = 1024


class KeptSchemas:
    """Those of one model, by their hashes. Used on the event loop only."""

    def __init__(self, *, key_order: str, formats: str) -> None:
        """`key_order`, `formats`: the server's, of schemas that say nothing of their own."""
        self._key_order = key_order
        self._formats = formats
        self._kept: OrderedDict[str, JsonSchemaFormat] = OrderedDict()

    def remember(self, key: str, asked: JsonSchemaFormat) -> None:
        """Keep a schema under its hash."""
        self._kept[key] = asked
        self._kept.move_to_end(key)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)

    def resolved(self, wanted: Wanted) -> Wanted:
        """The same with the schema itself where it was asked for by its hash.

        Raises:
            ApiError: 400, there is no such schema (any more), or it was compiled with another
                `strict`.
        """
        asked = wanted.format
        if not isinstance(asked, JsonSchemaFormat) or asked.json_schema.hash is None:
            return wanted
        spec = asked.json_schema
        kept = self._kept.get(spec.hash or "")
        if kept is None:
            raise ApiError(
                400,
                "There is no compiled schema of this hash here (any more); send the schema itself, "
                "or to /v1/schemas/compile first.",
                param=f"{wanted.field}.json_schema.hash",
                code="unknown_schema",
            )
        if spec.strict is not None and spec.strict != kept.json_schema.strict:
            was = str(bool(kept.json_schema.strict)).lower()
            raise ApiError(
                400,
                f"The schema of this hash was compiled with strict {was}; leave 'strict' out.",
                param=f"{wanted.field}.json_schema.strict",
                code="invalid_value",
            )
        for name, set_to in (("key_order", self._key_order), ("formats", self._formats)):
            wish, was = getattr(spec, name), getattr(kept.json_schema, name) or set_to
            if wish is not None and wish != was:
                raise ApiError(
                    400,
                    f"The schema of this hash was compiled with {name} {was!r}; leave it out.",
                    param=f"{wanted.field}.json_schema.{name}",
                    code="invalid_value",
                )
        assert spec.hash is not None
        self._kept.move_to_end(spec.hash)
        schema = kept.json_schema.model_copy(
            update={"name": spec.name, "description": spec.description}
        )
        return replace(wanted, format=asked.model_copy(update={"json_schema": schema}))
