"""Rewriting rules that bring expressions into the builder's normal form, and facts read off them.

Invariant: each rule keeps the language exactly, and its result has no more parts than its input, so
rewriting ends. `grammar.regular` calls these; they call its constructors back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from grammar import lengths as spans
from grammar.charset import EVERYTHING, CharSet
from grammar.rx import Automaton, Kind, MeasuredAutomaton, Rx, Transition

if TYPE_CHECKING:
    from grammar.regular import RegexBuilder

#: From this many plain words on, a union puts them into a trie.
_TRIE_FROM: Final = 4


def merge_union(builder: RegexBuilder, pool: list[Rx]) -> list[Rx]:
    """Put together the alternatives that one node can stand for."""
    words = [part for part in pool if part.literal]
    if len(words) >= _TRIE_FROM:
        pool = [part for part in pool if not part.literal]
        pool.append(builder.literals(spell(word) for word in words))
    singles = [part for part in pool if part.kind is Kind.CHARS]
    if len(singles) > 1:
        merged = CharSet(
            interval for part in singles if part.chars for interval in part.chars.ranges
        )
        pool = [part for part in pool if part.kind is not Kind.CHARS]
        pool.append(builder.chars(merged))
    pool = _merge_counters(builder, pool)
    pool = _merge_tails(builder, pool)
    if builder.epsilon in pool and any(p.nullable and p is not builder.epsilon for p in pool):
        pool.remove(builder.epsilon)
    return pool


def _merge_counters(builder: RegexBuilder, pool: list[Rx]) -> list[Rx]:
    """Join `r{a,b} | r{c,d}` (the empty word is `r{0}`, `r` is `r{1}`) that touch."""
    counters = [part for part in pool if part.kind is Kind.REPEAT]
    if not counters:
        return pool
    gone: set[Rx] = set()
    made: list[Rx] = []
    for body in dict.fromkeys(part.parts[0] for part in counters):
        bounds = sorted(
            ((p.lo, p.hi, p) for p in counters if p.parts[0] is body),
            key=lambda bound: bound[0],
        )
        extra = [(0, 0, builder.epsilon)] if builder.epsilon in pool else []
        extra += [(1, 1, body)] if body in pool else []
        bounds = sorted([*extra, *bounds], key=lambda bound: bound[0])
        runs: list[tuple[int, int | None, list[Rx]]] = []
        for lo, hi, part in bounds:
            if runs and (runs[-1][1] is None or lo <= runs[-1][1] + 1):
                low, high, parts = runs[-1]
                most = None if high is None or hi is None else max(high, hi)
                runs[-1] = (low, most, [*parts, part])
            else:
                runs.append((lo, hi, [part]))
        for low, high, parts in runs:
            if len(parts) > 1:
                gone.update(parts)
                made.append(builder.repeat(body, low, high))
    return [*(part for part in pool if part not in gone), *made] if gone else pool


def _merge_tails(builder: RegexBuilder, pool: list[Rx]) -> list[Rx]:
    """Rewrite `xt | yt | t` as `(x|y|)t`."""
    groups: dict[Rx, list[Rx]] = {}
    for part in pool:
        if part.kind is Kind.CONCAT:
            groups.setdefault(part.parts[1], []).append(part)
    gone: set[Rx] = set()
    made: list[Rx] = []
    for tail, parts in groups.items():
        alone = tail in pool
        if len(parts) + alone > 1 and not gone.intersection(parts) and tail not in gone:
            heads = [part.parts[0] for part in parts]
            if alone:
                heads.append(builder.epsilon)
                gone.add(tail)
            gone.update(parts)
            made.append(builder.concat(builder.union(*heads), tail))
    return [*(part for part in pool if part not in gone), *made] if gone else pool


def merge_intersect(builder: RegexBuilder, pool: list[Rx]) -> list[Rx] | None:
    """Merge classes, counters of classes and complements; None when nothing is left."""
    rest: list[Rx] = []
    barred: list[Rx] = []
    chars, lo, hi, counted = EVERYTHING, 0, None, 0
    present = set(pool)
    for part in pool:
        body, low, high = as_repeat(part)
        if part.kind is Kind.COMPLEMENT:
            if part.parts[0] in present:
                return None
            barred.append(part.parts[0])
        elif body.chars is not None:
            chars, lo = chars & body.chars, max(lo, low)
            hi = high if hi is None else hi if high is None else min(hi, high)
            counted += 1
        else:
            rest.append(part)
    if counted:
        if hi is not None and hi < lo:
            return None
        window = builder.repeat(builder.chars(chars), lo, hi)
        if window is builder.empty:
            return None
        if window is builder.epsilon:
            return [window] if all(part.nullable for part in pool) else None
        if (rest or barred) and chars != EVERYTHING and (lo, hi) not in ((0, None), (1, 1)):
            # The class and the count apart: `grammar.decide` need not step through the count.
            rest += [builder.star(builder.chars(chars)), builder.repeat(builder.any_char, lo, hi)]
        elif window is not builder.universe:
            rest.append(window)
    if len(barred) > 1:
        other = builder.complement(builder.union(*barred))
        if other is builder.empty:
            return None
        barred = [other]
    elif barred:
        barred = [builder.complement(barred[0])]
    return rest + barred


def loosen(builder: RegexBuilder, node: Rx, hi: int | None) -> Rx:
    """A simpler body for `node{0,hi}`: without the empty word, in a star without counters."""
    parts: list[Rx] = []
    for part in node.parts:
        if part is builder.epsilon:
            continue
        if hi is None and part.kind is Kind.REPEAT and part.lo <= 1:
            parts.append(part.parts[0])
        else:
            parts.append(part)
    return node if tuple(parts) == node.parts else builder.union(*parts)


def as_repeat(node: Rx) -> tuple[Rx, int, int | None]:
    """A node as body, least and greatest count; one that is no counter counts once."""
    return (node.parts[0], node.lo, node.hi) if node.kind is Kind.REPEAT else (node, 1, 1)


def repeat_of_repeat(
    inner_lo: int, inner_hi: int | None, lo: int, hi: int | None
) -> tuple[int, int | None] | None:
    """The bounds of `(r{a,b}){lo,hi}` as one counter of `r`, when its counts leave no gap."""
    least = lo * inner_lo
    most = None if hi is None or inner_hi is None else hi * inner_hi
    if lo == hi or inner_hi is None:
        # Without an upper bound inside, one word reaches every greater count; none gives only 0.
        gapless = lo > 0 or lo == hi or inner_lo <= 1
    else:
        # The runs [k*a, k*b] and [(k+1)*a, (k+1)*b] touch for all k >= lo if they do for k = lo.
        gapless = (lo + 1) * inner_lo <= lo * inner_hi + 1
    return (least, most) if gapless else None


def spell(word: Rx) -> str:
    """The text of a `literal` node."""
    out: list[str] = []
    while word.kind is Kind.CONCAT:
        head, word = word.parts
        assert head.chars is not None
        out.append(chr(head.chars.ranges[0][0]))
    assert word.chars is not None
    out.append(chr(word.chars.ranges[0][0]))
    return "".join(out)


def join_neighbours(rows: Iterable[Transition]) -> tuple[Transition, ...]:
    """Make one range of touching ranges that lead to the same target."""
    out: list[Transition] = []
    for lo, hi, target in rows:
        if out and out[-1][2] is target and out[-1][1] + 1 == lo:
            out[-1] = (out[-1][0], hi, target)
        else:
            out.append((lo, hi, target))
    return tuple(out)


def derive_facts(node: Rx) -> None:
    """Fill in what follows from a new node's parts; see the slots of `Rx`."""
    kind, parts = node.kind, node.parts
    node.clean = all(part.clean for part in parts)
    node.literal = False
    if kind is Kind.CONCAT:
        head, tail = parts
        _set_lengths(
            node,
            head.nullable and tail.nullable,
            head.lo_length + tail.lo_length,
            _plus(head.hi_length, tail.hi_length),
            None
            if head.lengths is None or tail.lengths is None
            else spans.add(head.lengths, tail.lengths),
        )
        node.literal = head.literal and tail.literal
    elif kind is Kind.UNION:
        _union_facts(node, parts, 0, False)
    elif kind is Kind.REPEAT:
        body, lo, hi = parts[0], node.lo, node.hi
        _set_lengths(
            node,
            lo == 0,
            lo * body.lo_length,
            None if hi is None or body.hi_length is None else hi * body.hi_length,
            None if body.lengths is None else spans.repeat(body.lengths, lo, hi),
        )
    elif kind is Kind.CHARS:
        assert node.chars is not None
        _set_lengths(node, False, 1, 1, spans.ONE)
        only = node.chars.ranges
        node.literal = len(only) == 1 and only[0][0] == only[0][1]
    elif kind is Kind.BRANCH:
        children = tuple(dict.fromkeys(row[2] for row in _branch_rows(node)))
        _union_facts(node, children, 1, bool(node.lo))
    elif kind is Kind.INTERSECT:
        _intersect_facts(node)
    else:
        _leaf_facts(node)


def _leaf_facts(node: Rx) -> None:
    """Facts of nothing, the empty word, complements, automata and equations."""
    if node.kind is Kind.EMPTY:
        _set_lengths(node, False, 0, 0, spans.NONE)
    elif node.kind is Kind.EPSILON:
        _set_lengths(node, True, 0, 0, spans.ZERO)
    else:
        node.clean = False
        if node.kind is Kind.COMPLEMENT:
            nullable = not node.parts[0].nullable
        else:
            assert node.payload is not None
            machine: Automaton
            if node.kind is Kind.AUTOMATON:
                machine, state = node.payload  # type: ignore[assignment]
                nullable = machine.accepts(state)
            else:
                nullable = bool(node.lo)
        least = 0 if nullable else 1
        if node.kind is Kind.AUTOMATON and isinstance(machine, MeasuredAutomaton):
            least = machine.shortest(state)
        _set_lengths(node, nullable, least, None, None)


def _intersect_facts(node: Rx) -> None:
    """Lengths are known exactly when one part limits the length only."""
    parts = node.parts
    node.clean = False
    limits = [part.hi_length for part in parts if part.hi_length is not None]
    counters = [part for part in parts if as_repeat(part)[0].chars == EVERYTHING]
    known: spans.Lengths | None = None
    if len(parts) == 2 and counters:
        other = parts[0] if parts[1] is counters[0] else parts[1]
        if other.lengths is not None:
            known = spans.clip(other.lengths, counters[0].lo_length, counters[0].hi_length)
    _set_lengths(
        node,
        all(part.nullable for part in parts),
        max(part.lo_length for part in parts),
        min(limits, default=None),
        known,
    )


def _union_facts(node: Rx, parts: tuple[Rx, ...], shift: int, accepting: bool) -> None:
    """Facts of a choice of parts, each after `shift` characters."""
    highs = [part.hi_length for part in parts]
    known: list[spans.Lengths] = [spans.ZERO] if accepting else []
    distinct = {part.lengths for part in parts}
    lengths: spans.Lengths | None = None
    if None not in distinct:
        lengths = spans.union([*known, *(found for found in distinct if found is not None)])
        if shift and lengths is not None:
            moved = spans.union([found for found in distinct if found is not None])
            shifted = None if moved is None else spans.add(moved, spans.ONE)
            lengths = None if shifted is None else spans.union([*known, shifted])
    least = shift + min(part.lo_length for part in parts)
    finite = [high for high in highs if high is not None]
    _set_lengths(
        node,
        accepting if shift else any(part.nullable for part in parts),
        0 if accepting else least,
        shift + max(finite) if len(finite) == len(highs) else None,
        lengths,
    )
    node.clean = all(part.clean for part in parts)


def _branch_rows(node: Rx) -> tuple[Transition, ...]:
    assert node.payload is not None
    return node.payload  # type: ignore[return-value]


def _plus(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _set_lengths(
    node: Rx, nullable: bool, lo: int, hi: int | None, lengths: spans.Lengths | None
) -> None:
    node.nullable, node.lo_length, node.hi_length, node.lengths = nullable, lo, hi, lengths
