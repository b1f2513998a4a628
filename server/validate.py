"""Finished answers against the whole schema that was asked for, by a full validator.

The grammar makes answers fit what it enforces; this module says of a finished one whether it fits
everything. It is asked about every complete JSON answer, strict or not: building a validator
(jsonschema-rs, once a schema) takes some 50 microseconds for a typical real one, using it some 10.

The schema is read as the grammar reads it: any draft from 4 to 2020-12, `format` asserts, OpenAPI's
`nullable` adds null to `type`, nothing is fetched. Numbers are compared exactly, whatever their
length. Patterns run in linear time where they have no look-around, and else under a limit.

Invariant: an answer counts as invalid only if the validator found it so; where it can't tell, it
says that (`valid` None and the reason). The work is bounded, whatever the schema and the answer.

Read next: `server/violations.py`, how the reasons are found.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

import jsonschema_rs

from grammar.schema.keywords import FORMAT_MODES
from server.pointers import value_at
from server.violations import Violation, is_undecided, list_violations

Schema: TypeAlias = Mapping[str, Any] | bool

#: Where a schema names no draft: the newest that takes it. Spellings that older drafts have
#: (`items` as an array, `exclusiveMinimum` as a flag) lead to these.
_DRAFTS: Mapping[str, type[jsonschema_rs.Validator]] = {
    "json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
    "json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
    "json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
    "json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
    "json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
}

#: Most steps of a pattern that needs backtracking (about a millisecond).
_BACKTRACKS = 10_000

#: Values nested deeper than this are not looked at (a recursive schema would exhaust the stack).
_MAX_DEPTH = 500

#: Keywords of the grammar's reports that a validator takes for annotations.
_ANNOTATIONS = frozenset({"contentEncoding", "$schema"})

#: Keywords whose values are data and no schemas.
_DATA = frozenset({"const", "enum", "default", "examples", "example"})

#: Integers of more digits than this are read as decimals, which takes time in proportion to them;
#: Python's integers take the square of it, and by default refuse 4,300.
_MAX_INTEGER = 4_000

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


@dataclass(frozen=True, slots=True)
class Validation:
    """What a validator found.

    valid       None: it can't tell, for this `reason`
    violations  the first of the reasons why it is not valid
    more        there are more of them
    """

    valid: bool | None
    violations: tuple[Violation, ...] = ()
    more: bool = False
    reason: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """`valid` and, as far as there are any, `errors`, `more_errors` and `reason`."""
        facts: dict[str, Any] = {"valid": self.valid}
        if self.violations:
            facts["errors"] = [violation.as_dict() for violation in self.violations]
        if self.more:
            facts["more_errors"] = True
        if self.reason is not None:
            facts["reason"] = self.reason
        return facts


class AnswerValidator:
    """A full validator of one schema. Safe to use from several threads."""

    def __init__(self, schema: Schema, *, formats: str = "assert") -> None:
        """Never raises: where no validator can be made of the schema, `problem` says why.

        Args:
            formats: `assert` or `annotate`, as of `grammar.compile_json_schema`.
        """
        self._schema = _with_nullable(schema)
        if formats == "annotate":
            self._schema = _without(FORMAT_MODES[formats], self._schema)
        self._validator: jsonschema_rs.Validator | None = None
        self._integers_are_written_so = False
        self._gives_up = False
        self.problem: str | None = None
        self._build()

    def check_text(self, text: str) -> Validation:
        """Judge a JSON text."""
        try:
            value = json.loads(
                text,
                parse_float=self._number,
                parse_int=_integer,
                parse_constant=_no_constant,
            )
        except RecursionError:
            return _undecided("the value is nested too deeply to be checked")
        except json.JSONDecodeError as error:
            return _no_json(f"{error.msg} at line {error.lineno}, column {error.colno}")
        except InvalidOperation:
            return _undecided("a number of the value has an exponent beyond all bounds")
        except ValueError as error:  # NaN
            return _no_json(str(error))
        if _may_be_deep(text) and _depth(text) > _MAX_DEPTH:
            return _undecided("the value is nested too deeply to be checked")
        return self._check(value)

    def check(self, value: Any) -> Validation:
        """Judge a value: None, booleans, numbers, strings, lists, dicts with string keys."""
        try:
            text = json.dumps(value, ensure_ascii=False)
        except RecursionError:
            return _undecided("the value is nested too deeply to be checked")
        return self.check_text(text)

    def checks(self, keyword: str, pointer: str) -> bool:
        """Whether a keyword of the schema, in the schema object at a JSON pointer, is checked."""
        if self._validator is None or keyword in _ANNOTATIONS or keyword.startswith("x-"):
            return False
        if keyword != "format":
            return True
        holder = value_at(self._schema, pointer)
        name = holder.get("format") if isinstance(holder, dict) else None
        return isinstance(name, str) and _is_known_format(name)

    def _check(self, value: Any) -> Validation:
        if self._validator is None:
            return _undecided(f"no validator can be made of the schema: {self.problem}")
        try:
            if self._validator.is_valid(value):
                return Validation(True)
        except UnicodeEncodeError:
            return _undecided("a string of the value has half a surrogate pair")
        except (ValueError, OverflowError) as error:
            return _undecided(f"the value can't be checked: {error}")
        try:
            violations, more = list_violations(self._validator, self._schema, value)
        except (ValueError, OverflowError):  # a number that no Python integer is made of
            if self._gives_up:
                return _undecided("it does not fit, or a pattern takes too many steps to match")
            text = "does not fit the schema (a number in it is too long to say more)"
            return Validation(False, (Violation("", "", "", text),))
        if is_undecided(violations):
            return _undecided("a pattern takes too many steps to match")
        return Validation(False, violations, more)

    def _build(self) -> None:
        schema, drafts = self._schema, list(_DRAFTS.values())
        if isinstance(schema, dict) and (named := schema.get("$schema")) is not None:
            draft = _DRAFTS.get(_bare(named))
            if draft is None:
                schema = {name: part for name, part in schema.items() if name != "$schema"}
            else:
                drafts = [draft, *(other for other in drafts if other is not draft)]
        problems = []
        for draft in drafts:
            for patterns in (
                jsonschema_rs.RegexOptions(),
                jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
            ):
                try:
                    self._validator = draft(
                        schema, validate_formats=True, offline=True, pattern_options=patterns
                    )
                except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
                    problems.append(str(error).partition("\n")[0])
                except ValueError as error:
                    problems.append(str(error))
                else:
                    self._integers_are_written_so = draft is jsonschema_rs.Draft4Validator
                    self._gives_up = isinstance(patterns, jsonschema_rs.FancyRegexOptions)
                    return
        self.problem = problems[1]  # of the draft that comes first, by the engine that takes more

    def _number(self, text: str) -> Decimal | int:
        """A number with a point or an exponent, exactly.

        Only draft 4 takes `1.0` for no integer; the grammar goes by the later ones.
        """
        number = Decimal(text)
        if self._integers_are_written_so and abs(number.adjusted()) < _MAX_DEPTH:
            whole = int(number)
            return whole if whole == number else number
        return number


def _integer(text: str) -> Decimal | int:
    return int(text) if len(text) <= _MAX_INTEGER else Decimal(text)


def _undecided(reason: str) -> Validation:
    return Validation(None, reason=reason)


def _no_json(reason: str) -> Validation:
    return Validation(False, (Violation("", "", "", f"is not JSON: {reason}"),))


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _bare(uri: object) -> str:
    """A draft's address without what its spellings differ in."""
    return re.sub(r"^https?://|#$", "", uri) if isinstance(uri, str) else ""


def _is_known_format(name: str) -> bool:
    try:
        jsonschema_rs.Draft202012Validator(
            {"format": name}, validate_formats=True, ignore_unknown_formats=False
        )
    except jsonschema_rs.ValidationError:
        return False
    return True


def _may_be_deep(text: str) -> bool:
    return text.count("[") + text.count("{") > _MAX_DEPTH


def _depth(text: str) -> int:
    """How deep arrays and objects nest in a JSON text."""
    deepest = depth = 0
    for character in _STRING.sub("", text):
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def _without(keywords: frozenset[str], schema: Any) -> Any:
    """The schema without keywords whose values are texts."""
    if isinstance(schema, list):
        return [_without(keywords, part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: part if name in _DATA else _without(keywords, part)
        for name, part in schema.items()
        if not (name in keywords and isinstance(part, str))
    }


def _with_nullable(schema: Any) -> Any:
    """The schema with null among the types wherever OpenAPI's `nullable` says so."""
    if isinstance(schema, list):
        return [_with_nullable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {
        name: part if name in _DATA else _with_nullable(part) for name, part in schema.items()
    }
    kinds = schema.get("type")
    if schema.get("nullable") is True and isinstance(kinds, str | list):
        listed = [kinds] if isinstance(kinds, str) else kinds
        result["type"] = [*listed, "null"] if "null" not in listed else listed
    return result
