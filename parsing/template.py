"""Response templates, checked and compiled: what `load_template` makes of a description.

A template is a JSON object:

    {"start_anchor": "<|im_start|>assistant\\n",            or start_anchor_pattern
     "fields": {"reasoning_content": {"open": "<think>", "close": "</think>"},
                "content": {"close": "<|im_end|>"}},         no opener: the implicit field
     "defaults": {"role": "assistant"}}

All that can be wrong with a template by itself is found here, as a ResponseTemplateError with the
field's name. A loaded template is immutable and may be shared between parsers and threads.
Read `machine` for what the delimiters do, `content` and `transform` for what becomes of the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import regex

from parsing.content import Content, load_content
from parsing.delimiters import Delimiter, Duty, Watch
from parsing.errors import ResponseTemplateError
from parsing.jsonlike import ContentError
from parsing.transform import check_transform

_TEMPLATE_KEYS = frozenset(
    {"version", "defaults", "fields", "start_anchor", "start_anchor_pattern"}
)
_FIELD_KEYS = frozenset({"open", "open_pattern", "close", "close_pattern"}) | {
    "content",
    "content_args",
    "repeats",
    "join",
    "optional",
    "transform",
    "transform_each",
}


@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """One field of a template. `open` is None for the implicit field; `close` is None where only
    the end of the text (or, for the implicit field, another opener) ends the region. `inside` is
    what is watched within such a region."""

    name: str
    open: Delimiter | None
    close: Delimiter | None
    inside: Duty
    content: Content
    repeats: bool
    join: str | None
    optional: bool
    transform: Any
    transform_each: bool


@dataclass(frozen=True, slots=True, eq=False)
class ResponseTemplate:
    """A template ready for use. `fields` keeps the template's order; `outside` is what is watched
    between explicit regions; `look_back` is how much text before a match its delimiters may read
    (None: all of it); `source` is the description it was loaded from."""

    fields: Mapping[str, Field]
    implicit: Field | None
    defaults: Mapping[str, Any]
    anchor: Delimiter
    outside: Duty
    look_back: int | None
    source: Mapping[str, Any]


def load_template(source: object) -> ResponseTemplate:
    """Load a template from a description, or from a JSON file.

    source: the description itself (a mapping); or the path (str or Path) of a file that holds one,
    alone, under "template" (the files of `library`) or under "response_template" (a
    `tokenizer_config.json`); or a loaded template, which is returned as it is.
    Raises ResponseTemplateError for all that is wrong with it; OSError if the file can't be read.
    """
    if isinstance(source, ResponseTemplate):
        return source
    if isinstance(source, (str, Path)):
        path = Path(source)
        try:
            return load_template(_read_file(path))
        except ResponseTemplateError as error:
            raise ResponseTemplateError(f"{path}: {error.reason}", error.field) from None
    try:
        return _load(source)
    except RecursionError:
        raise ResponseTemplateError("nests too deeply") from None


def _load(source: Any) -> ResponseTemplate:
    if not isinstance(source, Mapping):
        raise ResponseTemplateError(f"must be an object, not {type(source).__name__}")
    version = source.get("version", 1)
    if version != 1:
        raise ResponseTemplateError(f"version {version!r} is not supported; it must be 1")
    unknown = set(source) - _TEMPLATE_KEYS
    if unknown:
        raise ResponseTemplateError(f"unknown key {min(map(str, unknown))!r}")
    defaults = source.get("defaults", {})
    if not isinstance(defaults, Mapping):
        raise ResponseTemplateError(f"defaults must be an object, not {defaults!r}")
    described = source.get("fields")
    if not isinstance(described, Mapping) or not described:
        raise ResponseTemplateError("fields must be an object with at least one field")
    fields = {name: _load_field(name, given) for name, given in described.items()}
    implicit = [field for field in fields.values() if field.open is None]
    if len(implicit) > 1:
        names = ", ".join(repr(field.name) for field in implicit)
        raise ResponseTemplateError(f"only one field may do without an opener, not {names}")
    for field in fields.values():
        _check_default(field, defaults)
    return _assemble(fields, implicit[0] if implicit else None, defaults, source)


def _assemble(
    fields: dict[str, Field],
    implicit: Field | None,
    defaults: Mapping[str, Any],
    source: Mapping[str, Any],
) -> ResponseTemplate:
    outside = [Watch(f.name, True, f.open) for f in fields.values() if f.open is not None]
    if implicit is not None:
        outside.extend(implicit.inside.watches)
    watches = [*outside, *(watch for field in fields.values() for watch in field.inside.watches)]
    reach = [watch.delimiter.look_back for watch in watches]
    known = [width for width in reach if width is not None]
    return ResponseTemplate(
        fields=MappingProxyType(fields),
        implicit=implicit,
        defaults=MappingProxyType(dict(defaults)),
        anchor=_load_anchor(source),
        outside=Duty.of(outside),
        look_back=max(known, default=0) if len(known) == len(reach) else None,
        source=MappingProxyType(dict(source)),
    )


def _read_file(path: Path) -> Any:
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResponseTemplateError(f"not JSON: {error}") from None
    if isinstance(given, dict) and "fields" not in given:
        for key in ("template", "response_template"):
            if isinstance(given.get(key), Mapping):
                return given[key]
        raise ResponseTemplateError("holds no response template")
    if not isinstance(given, dict):
        raise ResponseTemplateError(f"must hold an object, not {type(given).__name__}")
    return given


def _load_anchor(source: Mapping[str, Any]) -> Delimiter:
    anchor = _load_delimiter(source, "start_anchor", None)
    if anchor is None:
        raise ResponseTemplateError("needs a start_anchor or a start_anchor_pattern")
    return anchor


def _load_field(name: Any, given: Any) -> Field:
    if not isinstance(name, str):
        raise ResponseTemplateError(f"a field's name must be a string, not {name!r}")
    if not isinstance(given, Mapping):
        raise ResponseTemplateError(f"must be an object, not {given!r}", name)
    unknown = set(given) - _FIELD_KEYS
    if unknown:
        raise ResponseTemplateError(f"unknown key {min(map(str, unknown))!r}", name)
    try:
        content = load_content(given.get("content", "text"), given.get("content_args", {}))
    except ContentError as error:
        raise ResponseTemplateError(str(error), name) from None
    opening = _load_delimiter(given, "open", name)
    closing = _load_delimiter(given, "close", name)
    repeats = _flag(given, "repeats", False, name)
    join = given.get("join")
    if "join" in given and not isinstance(join, str):
        raise ResponseTemplateError(f"join must be a string, not {join!r}", name)
    if join is not None and not repeats:
        raise ResponseTemplateError("join needs repeats: true", name)
    field = Field(
        name=name,
        open=opening,
        close=closing,
        inside=Duty.of(() if closing is None else (Watch(name, False, closing),)),
        content=content,
        repeats=repeats,
        join=join,
        optional=_flag(given, "optional", True, name),
        transform=given.get("transform"),
        transform_each=_flag(given, "transform_each", False, name),
    )
    _check_transforms(field)
    return field


def _check_transforms(field: Field) -> None:
    delimiters = [d for d in (field.open, field.close) if d is not None]
    groups = frozenset().union(*(delimiter.groups for delimiter in delimiters))
    if field.transform is None:
        if field.transform_each:
            raise ResponseTemplateError("transform_each needs a transform", field.name)
        if groups:
            listed = ", ".join(sorted(groups))
            raise ResponseTemplateError(f"named groups ({listed}) need a transform", field.name)
        return
    try:
        check_transform(field.transform, None if field.transform_each else groups | {"content"})
    except ContentError as error:
        raise ResponseTemplateError(str(error), field.name) from None
    if field.join is not None and isinstance(field.transform, Mapping):
        raise ResponseTemplateError("join joins text, not what the transform gives", field.name)


def _check_default(field: Field, defaults: Mapping[str, Any]) -> None:
    if field.name not in defaults or not field.repeats:
        return
    wanted = list if field.join is None else str
    if not isinstance(defaults[field.name], wanted):
        kind = "a list" if wanted is list else "a string"
        raise ResponseTemplateError(f"the default of a repeated field must be {kind}", field.name)


def _flag(given: Mapping[str, Any], key: str, default: bool, name: str) -> bool:
    value = given.get(key, default)
    if not isinstance(value, bool):
        raise ResponseTemplateError(f"{key} must be true or false, not {value!r}", name)
    return value


def _load_delimiter(given: Mapping[str, Any], key: str, name: str | None) -> Delimiter | None:
    pattern_key = f"{key}_pattern"
    if key in given and pattern_key in given:
        raise ResponseTemplateError(f"{key} and {pattern_key} exclude each other", name)
    if key in given:
        return Delimiter.of_literals(_literals(given[key], key, name))
    if pattern_key not in given:
        return None
    pattern = given[pattern_key]
    if not isinstance(pattern, str):
        raise ResponseTemplateError(f"{pattern_key} must be a string, not {pattern!r}", name)
    try:
        return Delimiter.of_pattern(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ResponseTemplateError(f"{pattern_key} does not compile: {error}", name) from None


def _literals(given: object, key: str, name: str | None) -> Sequence[str]:
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not listed:
        raise ResponseTemplateError(f"{key} must be a string or a list of strings", name)
    for literal in listed:
        if not isinstance(literal, str) or not literal:
            raise ResponseTemplateError(f"{key} must hold non-empty strings, not {literal!r}", name)
    return listed
