"""The text of a region with tool calls -> the calls in it, as early as they can be known. Pure.

A response template says where in a region a call's name and arguments stand (`transform`):

    reader       where they stand                                the arguments are passed on
    JsonCalls    in JSON; the name there, or in the opener       as they are written
    Pairs        in pairs (XML tags, lines); the name in the     pair by pair, as JSON
                 opener
    PythonCalls  in a list of calls in Python's spelling         argument by argument, as JSON
    AtEnd        anywhere else                                   when the region ends

Invariants: what was passed on is never taken back; when the region has ended well, a call's
arguments are JSON of the value that the response template gives them. Of a region that did not end
well, the calls that were announced keep what there was of their arguments, and are not complete; if
none was announced, the region holds no call.

Read next: `server/callregions.py`, `server/calljson.py`, the readers; `server/deltas.py`, which
feeds them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from parsing.settled import PartReader
from parsing.template import Field
from parsing.tools import ToolTyping
from server.calljson import JsonCalls
from server.callregions import AtEnd, Opened, Pairs, PythonCalls, RegionCalls, Typing
from server.calls import ToolCalls

_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_CONTENT = "content"


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a part of a call comes from: a group of the opener, or a place in the content."""

    group: str | None = None
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFormat:
    """How the field of a response template that holds the calls says them."""

    field: Field
    name: _Source | None
    arguments: _Source | None
    id: _Source | None

    @classmethod
    def of(cls, field: Field) -> CallFormat:
        """Read it off the field's `transform`."""
        groups = field.open.groups if field.open is not None else frozenset()
        return cls(
            field=field,
            name=_locate(field, groups, ("function", "name")),
            arguments=_locate(field, groups, ("function", "arguments")),
            id=_locate(field, groups, ("id",)),
        )

    def reader(self, captures: Mapping[str, str], calls: ToolCalls, typing: Typing) -> RegionCalls:
        """A reader of one region, whose opener captured this."""
        opened = Opened(
            calls,
            name=self._captured(self.name, captures),
            id=self._captured(self.id, captures),
        )
        content, arguments, each = (
            self.field.content.name,
            self.arguments,
            self.field.transform_each,
        )
        in_content = arguments is not None and arguments.group is None
        if content == "json" and in_content and self.name is not None:
            assert arguments is not None
            name = None if self.name.group is not None else self.name.path
            plain = self.field.content.dialect.plain
            return JsonCalls(opened, name, arguments.path, each=each, plain=plain)
        parts = PartReader(self.field.content)
        if content in ("xml-inline", "kv-lines") and opened.name and arguments == _Source():
            return Pairs(opened, parts, typing)
        if content == "python-call-list" and each and arguments == _Source(path=("arguments",)):
            return PythonCalls(opened, parts, typing)
        return AtEnd(opened)

    @staticmethod
    def _captured(source: _Source | None, captures: Mapping[str, str]) -> str | None:
        return captures.get(source.group) if source is not None and source.group else None


def _locate(field: Field, groups: frozenset[str], path: tuple[str, ...]) -> _Source | None:
    """What the transform fills in at `path` of a call; None where it can't be told."""
    node: Any = field.transform
    if isinstance(node, list) and len(node) == 1:  # one call, as a list
        node = node[0]
    rest = list(path)
    while rest and isinstance(node, Mapping):
        node = node.get(rest.pop(0))
    match = _PLACEHOLDER.fullmatch(node) if isinstance(node, str) else None
    if match is None:
        return None
    root, *keys = match[1].split(".")
    if root in groups:
        return None if rest or keys else _Source(group=root)
    if field.transform_each:
        return _Source(path=(root, *keys, *rest))
    return _Source(path=(*keys, *rest)) if root == _CONTENT else None


def tool_typing(tools: Iterable[Mapping[str, Any]]) -> Typing:
    """What the schemas of `tools` make of the text of formats that know no types."""
    typing = ToolTyping(tools, deep=True)

    def typed(tool: str, argument: str, value: Any) -> Any:
        call = {"function": {"name": tool, "arguments": {argument: value}}}
        return typing.apply(call)["function"]["arguments"][argument]

    return typed
