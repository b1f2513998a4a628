"""Content types: what a region's text becomes.

| type             | value                     | arguments                                         |
|------------------|---------------------------|---------------------------------------------------|
| text             | str                       | strip                                             |
| int, float, bool | int, float, bool          | strip                                             |
| json             | any JSON value            | unquoted_keys, string_delims, allow_non_json, ... |
| xml-inline       | dict, one key a match     | tag_pattern, merge_duplicates, value_parser       |
| kv-lines         | dict, one key a line      | line_sep, kv_sep, strip, value_parser             |
| python-call-list | list of {name, arguments} |                                                   |

A `value_parser` is {"name", "args"}, any content type again. `load_content` checks all of that when
a template is loaded; `parse_content` raises ContentError and nothing else, whatever the text. A
float may be "nan" or "inf", as the format says; JSON knows neither, nor half a surrogate pair.
Next: `jsonlike`, `pycalls`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import regex

from parsing.delimiters import Delimiter
from parsing.jsonlike import ContentError, JsonDialect, parse_json
from parsing.pycalls import parse_calls

MAX_NESTING = 16
_PLAIN_JSON = JsonDialect()
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, eq=False)
class Content:
    """A content type with its arguments, checked and compiled."""

    name: str
    args: Mapping[str, Any]
    strip: bool = True
    dialect: JsonDialect = _PLAIN_JSON
    tag: Delimiter | None = None
    value: Content | None = None

    @property
    def dirty(self) -> bool:
        """Whether the raw text is so far from the value that it should not be shown as it comes."""
        return self.name not in ("text", "int", "float", "bool")


def load_content(name: object, args: Any, depth: int = 0) -> Content:
    """Check a content type and its arguments. Raises ContentError saying what is wrong."""
    if not isinstance(name, str) or name not in _PARSERS:
        raise ContentError(
            f"unknown content type {name!r}; known are {', '.join(sorted(_PARSERS))}"
        )
    if not isinstance(args, dict):
        raise ContentError(f"the arguments of content {name!r} must be an object, not {args!r}")
    if depth > MAX_NESTING:
        raise ContentError("value parsers nest too deeply")
    known = _ARGUMENTS[name]
    for key, given in args.items():
        if key not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ContentError(f"content {name!r} has no argument {key!r} (it takes: {listed})")
        problem = _CHECKS[key](given)
        if problem:
            raise ContentError(f"argument {key!r} of content {name!r} {problem}, not {given!r}")
    if name == "xml-inline" and "tag_pattern" not in args:
        raise ContentError("content 'xml-inline' needs a tag_pattern")
    return Content(
        name=name,
        args=MappingProxyType(dict(args)),
        strip=bool(args.get("strip", True)),
        dialect=JsonDialect(
            unquoted_keys=bool(args.get("unquoted_keys", False)),
            string_delims=tuple((a, b) for a, b in args.get("string_delims", ())),
        ),
        tag=_tag(args["tag_pattern"]) if "tag_pattern" in args else None,
        value=_load_value(args.get("value_parser"), depth),
    )


def parse_content(content: Content, text: str, *, whole: bool = True) -> Any:
    """The value of a region's text. `whole`: its close came; a text that was cut off is looked at
    more strictly where a missing end would go unnoticed. Raises ContentError."""
    return _PARSERS[content.name](content, text, whole)


# --- loading ---------------------------------------------------------------------------------


def _load_value(given: Any, depth: int) -> Content | None:
    if given is None:
        return None
    unknown = set(given) - {"name", "args"}
    if unknown:
        raise ContentError(f"value_parser has no key {min(map(str, unknown))!r}")
    return load_content(given.get("name", "text"), given.get("args", {}), depth + 1)


def _tag(pattern: str) -> Delimiter:
    try:
        tag = Delimiter.of_pattern(pattern)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ContentError(f"tag_pattern {pattern!r} does not compile: {error}") from None
    if "key" not in tag.groups:
        raise ContentError(f"tag_pattern {pattern!r} has no group named 'key'")
    return tag


def _is(kind: type, text: str) -> Callable[[object], str]:
    return lambda given: "" if isinstance(given, kind) else f"must be {text}"


def _check_delims(given: Any) -> str:
    pairs: list[Any] = list(given) if isinstance(given, (list, tuple)) else [None]
    for pair in pairs:
        good = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not good or not all(isinstance(text, str) and text for text in pair):
            return "must be a list of [open, close] pairs of non-empty strings"
    return ""


def _check_text(given: object) -> str:
    return "" if isinstance(given, str) and given else "must be a non-empty string"


_CHECKS: Mapping[str, Callable[[object], str]] = MappingProxyType(
    {
        "strip": lambda given: "" if given is None or given in (0, 1) else "must be true or false",
        "unquoted_keys": _is(bool, "true or false"),
        "allow_non_json": _is(bool, "true or false"),
        "merge_duplicates": _is(bool, "true or false"),
        "string_delims": _check_delims,
        "tag_pattern": _is(str, "a string"),
        "value_parser": _is(dict, "an object"),
        "line_sep": _check_text,
        "kv_sep": _check_text,
    }
)

_ARGUMENTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "text": frozenset({"strip"}),
        "int": frozenset({"strip"}),
        "float": frozenset({"strip"}),
        "bool": frozenset({"strip"}),
        "json": frozenset({"unquoted_keys", "string_delims", "allow_non_json", "strip"}),
        "xml-inline": frozenset({"tag_pattern", "merge_duplicates", "value_parser"}),
        "kv-lines": frozenset({"line_sep", "kv_sep", "strip", "value_parser"}),
        "python-call-list": frozenset(),
    }
)


# --- parsing ---------------------------------------------------------------------------------


def _text(content: Content, text: str, whole: bool) -> str:
    return text.strip() if content.strip else text


def _int(content: Content, text: str, whole: bool) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise ContentError(f"not a whole number: {_shown(text)}") from None


def _float(content: Content, text: str, whole: bool) -> float:
    try:
        return float(text.strip())
    except ValueError:
        raise ContentError(f"not a number: {_shown(text)}") from None


def _bool(content: Content, text: str, whole: bool) -> bool:
    return _text(content, text, whole).lower() in ("true", "1")


def _json(content: Content, text: str, whole: bool) -> Any:
    try:
        return parse_json(text, content.dialect)
    except ContentError:
        if content.args.get("allow_non_json"):
            return _text(content, text, whole)
        raise


def _xml_inline(content: Content, text: str, whole: bool) -> dict[str, Any]:
    assert content.tag is not None
    values: dict[str, Any] = {}
    repeated: set[str] = set()
    end = 0
    try:
        for match in _tags(content.tag, text):
            key, value = parse_tag(content, match, whole=whole)
            if key in values and content.args.get("merge_duplicates"):
                if key not in repeated:
                    repeated.add(key)
                    values[key] = [values[key]]
                values[key].append(value)
            else:
                values[key] = value
            end = match.end()
    except TimeoutError:
        raise ContentError(f"tag_pattern needs more than {_PATIENCE_SECONDS:.0f} s") from None
    if not whole and text[end:].strip():
        # What is cut off would go unnoticed: the unfinished tag simply would not match.
        raise ContentError(f"cut off after {len(values)} of its values: {_shown(text[end:])}")
    return values


def _tags(tag: Delimiter, text: str) -> Iterator[regex.Match[str]]:
    """All matches, as `finditer` gives them, but without a search that can't succeed: an opening
    that is repeated and never closed would make that quadratic."""
    since = 0
    while since <= len(text) and not tag.lacks(text, since):
        match = tag.whole.search(text, since, timeout=_PATIENCE_SECONDS)
        if match is None:
            return
        yield match
        since = match.end() + (match.end() == match.start())


def parse_tag(content: Content, match: regex.Match[str], *, whole: bool) -> tuple[str, Any]:
    """Key and value of one match of an xml-inline content's tag. Raises ContentError."""
    groups = match.groupdict()
    key = groups["key"]
    if key is None:
        raise ContentError(f"tag_pattern matched without a key: {_shown(match.group())}")
    value = groups.get("value", "")
    if content.value is None:
        return key, value
    if value is None:
        raise ContentError(f"tag_pattern matched without a value: {_shown(match.group())}")
    return key, parse_content(content.value, value, whole=whole)


def _kv_lines(content: Content, text: str, whole: bool) -> dict[str, Any]:
    lines = text.split(content.args.get("line_sep", "\n"))
    pairs = (parse_line(content, line, whole=whole) for line in lines)
    return dict(pair for pair in pairs if pair is not None)


def parse_line(content: Content, line: str, *, whole: bool) -> tuple[str, Any] | None:
    """Key and value of one line of a kv-lines content; None if it has none. Raises ContentError."""
    kv_sep = content.args.get("kv_sep", ":")
    if kv_sep not in line or not line.strip():
        return None
    key, _, value = line.partition(kv_sep)
    if content.strip:
        key, value = key.strip(), value.strip()
    return key, value if content.value is None else parse_content(content.value, value, whole=whole)


def _python_calls(content: Content, text: str, whole: bool) -> list[dict[str, Any]]:
    return parse_calls(text)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:60]}...{text[-15:]}")


_PARSERS: Mapping[str, Callable[[Content, str, bool], Any]] = MappingProxyType(
    {
        "text": _text,
        "int": _int,
        "float": _float,
        "bool": _bool,
        "json": _json,
        "xml-inline": _xml_inline,
        "kv-lines": _kv_lines,
        "python-call-list": _python_calls,
    }
)
