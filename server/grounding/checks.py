"""Values against their source, by rule."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from server.grounding.dates import read_date
from server.grounding.numbers import exact, read_number
from server.grounding.places import Path
from server.grounding.rules import Kind, Rule, Selected, select
from server.grounding.source import Source
from server.pointers import pointer_of


@dataclass(frozen=True, slots=True)
class Ungrounded:
    """A value that its source does not state.

    pointer  where it stands in the answer (JSON Pointer)
    value    the string or number itself
    kind     how it was looked for
    reason   in words, for whoever is to put it right: a person or a model
    path     the pointer's steps
    """

    pointer: str
    value: Any
    kind: Kind
    reason: str
    path: Path = ()

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for a response; a number that no double holds is null."""
        held = not isinstance(self.value, float) or math.isfinite(self.value)
        value = self.value if held else None
        said = {"pointer": self.pointer, "value": value, "kind": self.kind}
        return {**said, "reason": self.reason}


def check(value: Any, rules: tuple[Rule, ...], source: str | Source) -> tuple[Ungrounded, ...]:
    """The values that the source does not state, in the order of the answer.

    A long source takes some tenths of a second (200 kB), so keep this off an event loop.

    Args:
        value: the answer, a JSON value.
        rules: what to check (`rules.rules`).
        source: the text; a `Source` where several answers are checked against one.
    """
    text = Source(source) if isinstance(source, str) else source
    found: dict[Path, Ungrounded] = {}
    for each in select(value, rules):
        if each.rule.kind == "quote":
            faults = _quote(value, each, text)
        else:
            kind, reason = _states(text, each)
            faults = iter(() if reason is None else ((each.path, each.value, kind, reason),))
        for path, shown, kind, reason in faults:
            found.setdefault(path, Ungrounded(pointer_of(path), shown, kind, reason, path))
    return tuple(found.values())


def _states(source: Source, selected: Selected) -> tuple[Kind, str | None]:
    """How a value was looked for, and why it is not grounded; None: it is."""
    rule, value = selected.rule, selected.value
    kind = rule.of if rule.kind == "quote" else rule.kind
    if kind is None or kind == "auto":
        kind = "date" if selected.is_date else "verbatim"
    if kind == "verbatim" and not isinstance(value, str):
        kind = "number"
    if kind == "number":
        return kind, _number(value, source)
    if kind == "date":
        return kind, _date(value, rule, source)
    return kind, _verbatim(value, rule, source)


def _verbatim(value: str, rule: Rule, source: Source) -> str | None:
    if source.occurs(value, ignore_case=rule.case == "ignore"):
        return None
    spelling = source.spelling(value)
    if spelling is not None:
        return f'the source writes it "{spelling}"; copy it exactly as it stands there'
    return "this text does not occur in the source; copy it exactly as it stands there"


def _number(value: Any, source: Source) -> str | None:
    if isinstance(value, str):
        wanted = read_number(value)
        if not wanted:
            return "this is not one number"
    elif value - value != 0:
        return "this number is too large to be read"
    else:
        wanted = frozenset({exact(value)})
    if wanted & source.numbers:
        return None
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"the source does not state {shown}, neither in digits nor in words"


def _date(value: Any, rule: Rule, source: Source) -> str | None:
    wanted = read_date(value, rule.order) if isinstance(value, str) else frozenset()
    if not wanted:
        return "this is no date with its year"
    if wanted & source.dates(rule.order):
        return None
    return f"the source does not state the date {value}; a date counts only where its year is given"


# -- quotes -------------------------------------------------------------------------------------


def _quote(
    answer: Any, selected: Selected, source: Source
) -> Iterator[tuple[Path, Any, Kind, str]]:
    """What is wrong with a value and the sibling that is to quote the source for it."""
    path, quotes = _evidence(answer, selected)
    shown = pointer_of(path)
    texts = [(path, quotes)] if isinstance(quotes, str) else []
    if isinstance(quotes, list):
        texts = [((*path, i), text) for i, text in enumerate(quotes) if isinstance(text, str)]
    texts = [(at, text) for at, text in texts if text.strip()]
    if not texts:
        reason = f"it has no evidence: {shown} must quote the source for it"
        yield selected.path, selected.value, "quote", reason
        return
    invented = [(at, text) for at, text in texts if not source.occurs(text)]
    for at, text in invented:
        reason = "this quote does not occur in the source; copy it exactly as it stands there"
        yield at, text, "quote", reason
    genuine = [text for at, text in texts if (at, text) not in invented]
    if not genuine:
        reason = f"its evidence at {shown} does not occur in the source"
        yield selected.path, selected.value, "quote", reason
    elif not any(_states(Source(text), selected)[1] is None for text in genuine):
        reason = f"its evidence at {shown} is in the source, but does not state it"
        yield selected.path, selected.value, "quote", reason


def _evidence(answer: Any, selected: Selected) -> tuple[Path, Any]:
    """Where the evidence is, or should be, and what stands there (None: nothing)."""
    at = selected.at
    while at and isinstance(at[-1], int):  # the items of an array have a quote in common
        at = at[:-1]
    holder = answer
    for step in at[:-1]:
        holder = holder[step]
    own = str(at[-1]) if at else ""
    rule = selected.rule
    names = [rule.evidence] if rule.evidence is not None else [f"{own}_evidence", "evidence"]
    members = holder if at and isinstance(holder, dict) else {}
    name = next((name for name in names if name in members), names[0])
    return (*at[:-1], name), members.get(name)
