"""The errors of this package. Everything a caller may see is one of these two.

    ValueError
     ├─ ResponseTemplateError   a template can't be used; raised while it is loaded
     └─ ResponseParseError      a text can't be parsed by a (good) template, or a parser was misused

Any other exception that comes out of this package is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ResponseTemplateError(ValueError):
    """A response template is not valid.

    `field` is the name of the field at fault, or None where the fault lies outside the fields;
    `reason` says what is wrong without naming the field again.
    """

    def __init__(self, reason: str, field: str | None = None) -> None:
        self.field = field
        self.reason = reason
        where = "response template" if field is None else f"response template, field {field!r}"
        super().__init__(f"{where}: {reason}")


class ResponseParseError(ValueError):
    """A region's text could not be turned into a value, or a required field never came.

    `field` is the field at fault (None where no field is); `position` is where that region's body
    starts, in characters from the start of the output (negative inside the prefix; None where it
    does not apply); `reason` says what is wrong.

    When raised at the end of a text, `message` and `events` carry what could be parsed all the
    same, and `malformed` every malformed region, the first of which this error describes.
    """

    def __init__(
        self,
        reason: str,
        *,
        field: str | None = None,
        position: int | None = None,
        message: Mapping[str, Any] | None = None,
        events: Sequence[dict[str, Any]] = (),
        malformed: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.field = field
        self.position = position
        self.reason = reason
        self.message = message
        self.events = tuple(events)
        self.malformed = tuple(malformed)
        where = "" if field is None else f"field {field!r}"
        if position is not None:
            where += f"{' ' if where else ''}at character {position}"
        super().__init__(f"{where}: {reason}" if where else reason)
