"""`transform` and `transform_each`: a value is put into a shape given by the template.

A string that is exactly `{name}` or `{name.key.key}` is a placeholder; it is replaced by the value,
whose type is kept. All other strings, numbers and so on stand for themselves; keys of objects are
never replaced. `name` is `content` or a named group of the field's patterns, with `transform_each`
a named group or a key of the list's items (which wins).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from parsing.jsonlike import ContentError

_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")


def check_transform(transform: Any, names: Collection[str] | None) -> None:
    """Check a transform when its template is loaded. `names` are the roots that placeholders may
    use, None where the text decides. Raises ContentError."""
    for text in _strings(transform):
        found = _PLACEHOLDER.search(text)
        if found is None:
            continue
        if found.group() != text:
            raise ContentError(f"transform string {text!r} mixes a placeholder with other text")
        root = found[1].partition(".")[0]
        if names is not None and root not in names:
            known = ", ".join(sorted(names))
            raise ContentError(f"transform placeholder {text!r} is unknown (there are: {known})")


def apply_transform(transform: Any, captures: Mapping[str, Any], content: Any) -> Any:
    """The transform with `content` and the captures filled in. Raises ContentError."""
    return _fill(transform, {**captures, "content": content})


def apply_transform_each(transform: Any, captures: Mapping[str, Any], content: Any) -> list[Any]:
    """One filled-in transform for every item of a list of objects. Raises ContentError."""
    if not isinstance(content, list):
        raise ContentError(f"transform_each needs a list, not {type(content).__name__}")
    for item in content:
        if not isinstance(item, dict):
            raise ContentError(f"transform_each needs a list of objects, not {type(item).__name__}")
    return [_fill(transform, {**captures, **item}) for item in content]


def _strings(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _strings(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _strings(value)


def _fill(node: Any, scope: Mapping[str, Any]) -> Any:
    if isinstance(node, str):
        match = _PLACEHOLDER.fullmatch(node)
        return node if match is None else _resolve(match[1], scope)
    if isinstance(node, Mapping):
        return {key: _fill(value, scope) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [_fill(value, scope) for value in node]
    return node


def _resolve(path: str, scope: Mapping[str, Any]) -> Any:
    root, *keys = path.split(".")
    if root not in scope:
        raise ContentError(f"transform placeholder '{{{path}}}' has no value here")
    value = scope[root]
    for key in keys:
        if not isinstance(value, dict):
            kind = type(value).__name__
            raise ContentError(f"transform placeholder '{{{path}}}': {key!r} of a {kind}")
        if key not in value:
            raise ContentError(f"transform placeholder '{{{path}}}': there is no {key!r}")
        value = value[key]
    return value
