"""Second thoughts about a region whose close never came.

Inside an explicit region only its own close counts, so that a tag that is merely named in a text
opens nothing. The price: a model that forgets a close (`<think>..<tool_call>{..}</tool_call>`,
or a call that only the end-of-turn mark ends) would have everything after it swallowed. When the
text is over and the close did not come, the region is looked at again, and ends at the first of
- an implicit field's close in it: the end-of-turn mark is no part of any region, and
- another field's opener whose region is closed in its turn and has a good value.
A region that reads well as it stands (a whole JSON value, say) is left alone. Only whole texts are
looked at, so how the text was cut plays no part.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from parsing.delimiters import Watch, captures, look
from parsing.machine import Region
from parsing.template import Field, ResponseTemplate

_MAX_TRIALS = 16

Readable = Callable[[Field, str, Mapping[str, str]], bool]


def find_cut(template: ResponseTemplate, region: Region, readable: Readable) -> int | None:
    """Where in its body an unclosed region ends after all; None to leave it as it is.

    `readable(field, body, captures)` says whether a body has a good value.
    """
    body = region.body
    if region.field.content.dirty and readable(region.field, body, region.captures):
        return None
    places = []
    for watch in template.outside.watches:
        if not watch.opens:
            place = _first(watch, body)
        elif watch.field != region.field.name:
            place = _first_whole(template, watch, body, readable)
        else:
            place = None
        if place is not None:
            places.append(place)
    return min(places, default=None)


def _first(watch: Watch, body: str) -> int | None:
    match = look(watch, body, 0, complete=True).match
    return match.start() if match is not None and match.end() > match.start() else None


def _first_whole(
    template: ResponseTemplate, watch: Watch, body: str, readable: Readable
) -> int | None:
    field = template.fields[watch.field]
    if not field.inside.watches:
        return None
    closer = field.inside.watches[0]
    since = 0
    for _ in range(_MAX_TRIALS):
        opener = look(watch, body, since, complete=True).match
        if opener is None or opener.end() == opener.start():
            return None
        closed = look(closer, body, opener.end(), complete=True).match
        if closed is None:
            return None
        groups = {**captures(opener), **captures(closed)}
        if readable(field, body[opener.end() : closed.start()], groups):
            return opener.start()
        since = opener.end()
    return None
