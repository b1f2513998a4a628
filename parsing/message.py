"""Building the message: where the values of regions go.

Keys come in the order defaults, then first value. A field with `join` is one string, one with
`repeats` a list, any other holds its last value. White space between regions is an implicit region
like any other to the stream of events, but it never replaces or adds to what a field holds: it is
`blank`, and only counts as the field's value while there is no other (where strip is off).
At the end, empty values (None, "", [], {}) of fields without a default are left out.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from parsing.jsonlike import ContentError
from parsing.template import Field, ResponseTemplate


class MessageBuilder:
    """The message of one text. `add` it value by value, then `build`."""

    def __init__(self, template: ResponseTemplate) -> None:
        self._template = template
        self._message: dict[str, Any] = copy.deepcopy(dict(template.defaults))
        self._pieces: dict[str, list[str]] = {}
        self._seen: set[str] = set(self._message)
        self._blank: set[str] = set()
        self._order: dict[str, None] = dict.fromkeys(self._message)

    def add(self, field: Field, value: Any, *, blank: bool = False) -> None:
        """Put the value of one region where it belongs. Raises ContentError where `join` meets
        anything but text."""
        name = field.name
        self._seen.add(name)
        self._order.setdefault(name)
        if blank and (
            field.content.strip or field.content.name != "text" or field.transform is not None
        ):
            return
        if field.join is not None:
            if not isinstance(value, str):
                raise ContentError(f"join needs text, not {type(value).__name__}")
            if name not in self._pieces:
                self._pieces[name] = [self._message[name]] if name in self._message else []
            self._pieces[name].append(value)
        elif field.repeats:
            self._message.setdefault(name, []).append(value)
        elif not blank:
            self._message[name] = value
            self._blank.discard(name)
        elif name not in self._message or name in self._blank:
            self._message[name] = value
            self._blank.add(name)

    def missing(self) -> list[str]:
        """The required fields of which nothing was seen."""
        fields = self._template.fields.values()
        return [
            field.name for field in fields if not field.optional and field.name not in self._seen
        ]

    def build(self) -> dict[str, Any]:
        """The message as it stands."""
        values = dict(self._message)
        for name, pieces in self._pieces.items():
            values[name] = (self._template.fields[name].join or "").join(pieces)
        message = {name: values[name] for name in self._order if name in values}
        return _without_empty(message, self._template.defaults)


def _without_empty(message: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in message.items() if k in defaults or not _empty(v)}


def _empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, dict)) and not value)
