"""JSON Pointers (RFC 6901): written from a path, and followed.

Read next: whoever names a place in a value or schema: `violations.py`, `lint/`, `grounding/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from grammar.schema.document import join

_INDEX = re.compile(r"0|[1-9][0-9]{0,17}")


def pointer_of(path: Iterable[str | int]) -> str:
    """The JSON pointer of a path; "" is the whole."""
    return join("", *path)


def value_at(value: Any, pointer: str) -> Any:
    """What a JSON pointer leads to; None where it leads nowhere."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping):
            value = value.get(name)
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
