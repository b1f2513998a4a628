"""One step of a regular expression: Brzozowski derivatives for all characters at once.

The derivative of a language by a character is the language of what may follow that character
(Brzozowski, "Derivatives of Regular Expressions", JACM 1964). Instead of one derivative a
character, a node's *raw transitions* are computed: ascending disjoint ranges of characters with the
derivative they share, as Owens, Reppy & Turon ("Regular-expression derivatives re-examined", JFP
2009) do with derivative classes. The engines derivre and llguidance step expressions this way too.

Invariant: raw transitions are complete, but may lead to a node whose language is empty where an
intersection or a complement hides that; only the node EMPTY itself is left out. Nothing here
recurses over the expression, so deep nests and long optional runs are safe.

Read next: `grammar.decide`, which prunes the dead targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from grammar.charset import SCALAR_RANGES
from grammar.rx import Automaton, Kind, Rx, Transition

if TYPE_CHECKING:
    from grammar.regular import RegexBuilder


def raw_transitions(builder: RegexBuilder, node: Rx) -> tuple[Transition, ...]:
    """The complete transitions of a node, memoised; costs fuel by the ranges produced."""
    if node._raw is not None:
        return node._raw
    stack = [node]
    while stack:
        top = stack[-1]
        if top._raw is not None:
            stack.pop()
            continue
        missing = [need for need in _needs(top) if need._raw is None]
        if missing:
            stack.extend(missing)
            continue
        rows = _compute(builder, top)
        builder.spend(1 + len(rows))
        top._raw = rows
        stack.pop()
    assert node._raw is not None
    return node._raw


def _needs(node: Rx) -> Sequence[Rx]:
    """The nodes whose raw transitions those of `node` are made from."""
    if node.kind is Kind.CONCAT:
        heads: list[Rx] = []
        at = node
        while at.kind is Kind.CONCAT:
            heads.append(at.parts[0])
            if not at.parts[0].nullable:
                return heads
            at = at.parts[1]
        heads.append(at)
        return heads
    if node.kind in (Kind.UNION, Kind.INTERSECT, Kind.COMPLEMENT, Kind.REPEAT, Kind.EQUATION):
        assert node.parts, "an equation is stepped only after it was defined"
        return node.parts
    return ()


def _compute(builder: RegexBuilder, node: Rx) -> tuple[Transition, ...]:
    kind = node.kind
    if kind is Kind.CHARS:
        assert node.chars is not None
        return tuple((lo, hi, builder.epsilon) for lo, hi in node.chars.ranges)
    if kind is Kind.CONCAT:
        return _concat_rows(builder, node)
    if kind is Kind.REPEAT:
        body = node.parts[0]
        less = builder.repeat(body, max(node.lo - 1, 0), None if node.hi is None else node.hi - 1)
        return _followed_by(builder, _rows(body), less)
    if kind is Kind.UNION:
        return _merge(builder, [_rows(part) for part in node.parts])
    if kind is Kind.INTERSECT:
        return _meet(builder, [_rows(part) for part in node.parts])
    if kind is Kind.COMPLEMENT:
        return _complement_rows(builder, _rows(node.parts[0]))
    if kind is Kind.BRANCH:
        rows = node.payload
        assert rows is not None
        return rows  # type: ignore[return-value]
    if kind is Kind.EQUATION:
        return _rows(node.parts[0])
    if kind is Kind.AUTOMATON:
        return _automaton_rows(builder, node)
    return ()


def _rows(node: Rx) -> tuple[Transition, ...]:
    assert node._raw is not None
    return node._raw


def _followed_by(
    builder: RegexBuilder, rows: tuple[Transition, ...], tail: Rx
) -> tuple[Transition, ...]:
    """Every target followed by `tail`."""
    if tail is builder.epsilon:
        return rows
    made: dict[Rx, Rx] = {}
    out: list[Transition] = []
    for lo, hi, target in rows:
        joined = made.get(target)
        if joined is None:
            joined = made[target] = builder.concat(target, tail)
        if joined is not builder.empty:
            out.append((lo, hi, joined))
    return tuple(out)


def _concat_rows(builder: RegexBuilder, node: Rx) -> tuple[Transition, ...]:
    """Steps of the head, and of each later part as long as all before it are nullable."""
    sources: list[tuple[Transition, ...]] = []
    at = node
    while at.kind is Kind.CONCAT:
        head, tail = at.parts
        sources.append(_followed_by(builder, _rows(head), tail))
        if not head.nullable:
            break
        at = tail
    else:
        sources.append(_rows(at))
    return sources[0] if len(sources) == 1 else _merge(builder, sources)


def _merge(builder: RegexBuilder, sources: list[tuple[Transition, ...]]) -> tuple[Transition, ...]:
    """Overlay several transition lists; where some overlap, their targets are united."""
    sources = [rows for rows in sources if rows]
    if len(sources) <= 1:
        return sources[0] if sources else ()
    cuts = sorted({edge for rows in sources for lo, hi, _ in rows for edge in (lo, hi + 1)})
    builder.spend(len(cuts) * len(sources) // 16)
    at = [0] * len(sources)
    memo: dict[tuple[Rx, ...], Rx] = {}
    out: list[Transition] = []
    for start, stop in pairwise(cuts):
        active: list[Rx] = []
        for index, rows in enumerate(sources):
            here = at[index]
            while here < len(rows) and rows[here][1] < start:
                here += 1
            at[index] = here
            if here < len(rows) and rows[here][0] <= start:
                active.append(rows[here][2])
        if not active:
            continue
        key = tuple(active)
        target = memo.get(key)
        if target is None:
            target = memo[key] = active[0] if len(active) == 1 else builder.union(*active)
        _append(out, start, stop - 1, target)
    return tuple(out)


def _meet(builder: RegexBuilder, sources: list[tuple[Transition, ...]]) -> tuple[Transition, ...]:
    """The ranges that all lists share, with their targets intersected."""
    memo: dict[tuple[Rx, ...], Rx] = {}
    segments: list[tuple[int, int, tuple[Rx, ...]]] = [(lo, hi, (t,)) for lo, hi, t in sources[0]]
    for rows in sources[1:]:
        met: list[tuple[int, int, tuple[Rx, ...]]] = []
        i = j = 0
        while i < len(segments) and j < len(rows):
            left, right = segments[i], rows[j]
            lo, hi = max(left[0], right[0]), min(left[1], right[1])
            if lo <= hi:
                met.append((lo, hi, (*left[2], right[2])))
            if left[1] < right[1]:
                i += 1
            else:
                j += 1
        segments = met
    out: list[Transition] = []
    for lo, hi, key in segments:
        target = memo.get(key)
        if target is None:
            target = memo[key] = builder.intersect(*key)
        if target is not builder.empty:
            _append(out, lo, hi, target)
    return tuple(out)


def _complement_rows(builder: RegexBuilder, rows: tuple[Transition, ...]) -> tuple[Transition, ...]:
    """Complemented targets; what the body does not cover leads to every word."""
    out: list[Transition] = []
    index = 0
    for first, last in SCALAR_RANGES:
        at = first
        while index < len(rows) and rows[index][0] <= last:
            lo, hi, target = rows[index]
            index += 1
            if lo > at:
                _append(out, at, lo - 1, builder.universe)
            other = builder.complement(target)
            if other is not builder.empty:
                _append(out, lo, hi, other)
            at = hi + 1
        if at <= last:
            _append(out, at, last, builder.universe)
    return tuple(out)


def _automaton_rows(builder: RegexBuilder, node: Rx) -> tuple[Transition, ...]:
    assert node.payload is not None
    machine: Automaton
    machine, state = node.payload  # type: ignore[assignment]
    return tuple((lo, hi, builder.automaton(machine, to)) for lo, hi, to in machine.row(state))


def _append(out: list[Transition], lo: int, hi: int, target: Rx) -> None:
    """Add a range, joined to the one before when they touch and agree."""
    if out and out[-1][2] is target and out[-1][1] + 1 == lo:
        out[-1] = (out[-1][0], hi, target)
    else:
        out.append((lo, hi, target))
