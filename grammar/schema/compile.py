"""JSON Schema to grammar: the door. What happens behind it is ``compiler.py``."""

from __future__ import annotations

import json
from typing import Any

from grammar.any_order import AnyOrderObjectNode
from grammar.budget import Budget, Clock, OutOfTimeError
from grammar.errors import (
    SchemaBudgetError,
    SchemaError,
    UnsupportedSchemaError,
)
from grammar.matcher import Grammar
from grammar.objects import ObjectNode
from grammar.schema import keywords as kw
from grammar.schema.compiler import SchemaCompiler
from grammar.schema.document import Document
from grammar.style import WHITESPACE_MODES
from grammar.vocabulary import Vocabulary

KEY_ORDERS: dict[str, type[ObjectNode]] = {"schema": ObjectNode, "free": AnyOrderObjectNode}
_encode = json.JSONEncoder(allow_nan=False).encode


def compile_json_schema(
    schema: dict[str, Any] | bool,
    vocabulary: Vocabulary,
    *,
    strict: bool = True,
    whitespace: str = "adaptive",
    key_order: str = "schema",
    formats: str = "assert",
    source: str | None = None,
    budget: Budget | None = None,
) -> Grammar:
    """Compile a JSON Schema to a grammar of the JSON texts that are valid under it.

    Args:
        schema: the schema, any draft from 4 to 2020-12; the order of its keys is the order of
            properties in the output.
        strict: with True, a keyword that can't be enforced is an error; with False it is left out
            and listed in ``Grammar.report.unenforced``.
        whitespace: one of ``fixed``, ``compact``, ``pretty``, ``adaptive``, ``flexible``.
        key_order: ``schema``: declared properties in the schema's order, undeclared ones last;
            ``free``: all in any order.
        formats: ``assert``: strings are of the ``format`` and ``contentEncoding`` that are asked
            for; ``annotate``: these assert nothing, and the report says so.
        source: the text that ``x-extract`` extracts from; None: there is none.
        budget: what the compilation may cost; None for the default.

    Raises:
        SchemaError: the schema is not valid; or, as one of its subclasses, it is unsupported,
            unsatisfiable, or too costly.
        ValueError: an unknown white-space mode, key order or reading of formats.
    """
    if whitespace not in WHITESPACE_MODES:
        raise ValueError(f"whitespace must be one of {', '.join(WHITESPACE_MODES)}")
    if key_order not in KEY_ORDERS:
        raise ValueError(f"key_order must be one of {', '.join(KEY_ORDERS)}")
    if formats not in kw.FORMAT_MODES:
        raise ValueError(f"formats must be one of {', '.join(kw.FORMAT_MODES)}")
    limit = budget if budget is not None else Budget()
    clock = Clock(limit.seconds)
    document = Document(schema, kw.FORMAT_MODES[formats])
    try:
        size = len(_encode(schema))
    except (TypeError, ValueError) as error:
        raise SchemaError(f"is no JSON: {error}") from None
    if size > limit.schema_bytes:
        raise SchemaBudgetError(f"{size} bytes; at most {limit.schema_bytes} are compiled")
    try:
        with vocabulary.compiling(limit.regex_steps, clock) as workspace:
            order = KEY_ORDERS[key_order]
            compiler = SchemaCompiler(document, workspace, limit, order, source=source)
            try:
                compiler.run()
                if strict and compiler.issues:
                    raise UnsupportedSchemaError(tuple(compiler.issues))
                nodes = compiler.nodes()
                report = compiler.report()
            finally:
                compiler.release()
            styles = WHITESPACE_MODES[whitespace]
            return Grammar(vocabulary, nodes, 0, styles, report, workspace=workspace)
    except OutOfTimeError as error:
        raise SchemaBudgetError(str(error)) from None
