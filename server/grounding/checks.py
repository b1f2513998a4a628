"""Values against their source, by rule."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from server.grounding.places import Path, pointer_of
from server.grounding.rules import Kind, Rule, Selected, select
from server.grounding.source import Source


@dataclass(frozen=True, slots=True)
class Ungrounded:
    """A value that its source does not state.

    pointer  where it stands in the answer (JSON Pointer)
    value    the string or number itself
    kind     how it was looked for
    reason   in words, for whoever is to put it right
    """

    pointer: str
    value: Any
    kind: Kind
    reason: str
    path: Path = ()

    def as_dict(self) -> dict[str, Any]:
        """As plain data, for a response."""
        said = {"pointer": self.pointer, "value": self.value, "kind": self.kind}
        return {**said, "reason": self.reason}


def check(value: Any, rules: tuple[Rule, ...], source: str | Source) -> tuple[Ungrounded, ...]:
    """The values that the source does not state, in the order of the answer.

    Args:
        value: the answer, a JSON value.
        rules: what to check (`rules.rules`).
        source: the text; a `Source` where several answers are checked against one.
    """
    text = Source(source) if isinstance(source, str) else source
    found: dict[Path, Ungrounded] = {}
    for each in select(value, rules):
        kind = _kind(each.rule, each)
        reason = _verbatim(each.value, each.rule, text)
        if reason is not None:
            fault = Ungrounded(pointer_of(each.path), each.value, kind, reason, each.path)
            found.setdefault(each.path, fault)
    return tuple(found.values())


def _kind(rule: Rule, selected: Selected) -> Kind:
    assert rule.kind is not None
    return rule.kind


def _verbatim(value: Any, rule: Rule, source: Source) -> str | None:
    value = value if isinstance(value, str) else json.dumps(value)
    if source.occurs(value, ignore_case=rule.case == "ignore"):
        return None
    spelling = source.spelling(value)
    if spelling is not None:
        return f'the source writes it "{spelling}"; copy it exactly as it stands there'
    return "this text does not occur in the source; copy it exactly as it stands there"
