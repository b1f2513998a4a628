"""Sets of word lengths as unions of a few arithmetic progressions.

A regular language's set of word lengths is eventually periodic. Most patterns have one that is a
handful of progressions (`[a-z]{3,1000000000}` is one), and those are computed by arithmetic on the
expression, without unrolling a counter. Where an exact answer would take more than
`MAX_PROGRESSIONS` pieces the functions return None, and `grammar.decide` walks the states.

Invariant: a `Lengths` value is exact. A progression is `(first, last, step)` with `last` None for
"without end"; `step` divides `last - first`, and a single number has step 1.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

Progression: TypeAlias = tuple[int, int | None, int]
Lengths: TypeAlias = tuple[Progression, ...]

MAX_PROGRESSIONS: Final = 24

NONE: Final[Lengths] = ()
ZERO: Final[Lengths] = ((0, 0, 1),)
ONE: Final[Lengths] = ((1, 1, 1),)


def union(sets: Iterable[Lengths]) -> Lengths | None:
    """The union of several sets, or None when it needs too many pieces."""
    pieces = sorted({p for s in sets for p in s}, key=lambda p: (p[0], p[2]))
    out: list[Progression] = []
    for piece in pieces:
        for at in range(len(out) - 1, -1, -1):
            joined = _join(out[at], piece)
            if joined is not None:
                out[at] = joined
                break
        else:
            out.append(piece)
    if len(out) == 2 and out[0][0] == out[0][1] and out[1][0] == out[1][1]:
        return ((out[0][0], out[1][0], out[1][0] - out[0][0]),)
    return tuple(out) if len(out) <= MAX_PROGRESSIONS else None


def add(left: Lengths, right: Lengths) -> Lengths | None:
    """All sums of one length from each set (the lengths of a concatenation)."""
    if len(left) == 1 and len(right) == 1:
        one = _add_pair(left[0], right[0])
        return one if one is None or len(one) == 1 else union((one,))
    sums: list[Lengths] = []
    for x in left:
        for y in right:
            pair = _add_pair(x, y)
            if pair is None:
                return None
            sums.append(pair)
    return union(sums)


def repeat(body: Lengths, lo: int, hi: int | None) -> Lengths | None:
    """All sums of `lo` to `hi` (None: any number of) lengths of `body`."""
    if hi == 0:
        return ZERO
    if not body:
        return ZERO if lo == 0 else NONE
    if lo == 0:
        rest = repeat(body, 1, hi)
        return None if rest is None else union((ZERO, rest))
    if len(body) == 1:
        return _repeat_progression(body[0], lo, hi)
    if lo > MAX_PROGRESSIONS:
        return None
    total: Lengths | None = ZERO
    if hi is None:
        # The sums of any number of lengths are the multiples of the least when it divides all.
        least = min(p[0] for p in body)
        if least == 0 or any(p[0] % least or (p[2] % least and p[1] != p[0]) for p in body):
            return None
        total = ((0, None, least),)
    for _ in range(lo):
        total = None if total is None else add(total, body)
    if hi is None or total is None:
        return total
    if hi > MAX_PROGRESSIONS:
        return None
    found, layer = [total], total
    for _ in range(hi - lo):
        step = add(layer, body)
        if step is None:
            return None
        layer = step
        found.append(layer)
    return union(found)


def meets(lengths: Lengths, lo: int, hi: int | None) -> bool:
    """Whether some length lies within `[lo, hi]`."""
    return bool(clip(lengths, lo, hi))


def clip(lengths: Lengths, lo: int, hi: int | None) -> Lengths:
    """The lengths within `[lo, hi]`."""
    out: list[Progression] = []
    for first, last, step in lengths:
        low = first if first >= lo else first + -(-(lo - first) // step) * step
        high = last if hi is None else hi if last is None else min(last, hi)
        if high is not None:
            if low > high:
                continue
            high -= (high - low) % step
        out.append((low, high, 1 if low == high else step))
    return tuple(out)


def _join(x: Progression, y: Progression) -> Progression | None:
    """The union of two progressions (x starts first) when it is one progression itself."""
    (a, b, s), (c, d, t) = x, y
    if c == d and (b is None or c <= b) and (c - a) % s == 0:
        return x
    if a == b and c == a + t:
        return (a, d, t)
    if c == d and b is not None and a != b and c == b + s:
        return (a, c, s)
    if a == b or c == d:
        return None
    if s == t and (c - a) % s == 0 and (b is None or c <= b + s):
        return (a, None if b is None or d is None else max(b, d), s)
    if t % s == 0 and (c - a) % s == 0 and (b is None or (d is not None and d <= b)):
        return x
    return None


def _add_pair(x: Progression, y: Progression) -> Lengths | None:
    (a, b, s), (c, d, t) = x, y
    end = None if b is None or d is None else b + d
    if a == b:
        return ((a + c, end, t),)
    if c == d or s == t:
        return ((a + c, end, s),)
    if s > t:
        (a, b, s), (c, d, t) = y, x
    # s is the finer step: its run must bridge the gaps of the coarser one.
    if t % s == 0 and (b is None or b - a + s >= t):
        return ((a + c, end, s),)
    if d is not None and (d - c) // t < MAX_PROGRESSIONS:
        return tuple((a + k, None if b is None else b + k, s) for k in range(c, d + 1, t))
    return None


def _repeat_progression(body: Progression, lo: int, hi: int | None) -> Lengths | None:
    """Sums of k terms of one progression, for k from lo >= 1 to hi."""
    a, b, s = body
    if a == b:
        if a == 0:
            return ZERO
        last = None if hi is None else hi * a
        return ((lo * a, last, 1 if lo == hi else a),)
    if lo == hi:
        return ((lo * a, None if b is None else lo * b, s),)
    if a % s:
        # The k-term sums lie on different lattices; only a short list can be written out.
        if hi is None or hi - lo >= MAX_PROGRESSIONS:
            return None
        return union([((k * a, None if b is None else k * b, s),) for k in range(lo, hi + 1)])
    joined_from = lo if b is None else max(lo, -(-(a - s) // (b - a)))
    if hi is not None:
        joined_from = min(joined_from, hi)
    if joined_from - lo >= MAX_PROGRESSIONS:
        return None
    out: list[Progression] = [
        (k * a, None if b is None else k * b, s) for k in range(lo, joined_from)
    ]
    end = None if b is None or hi is None else hi * b
    return (*out, (joined_from * a, end, s))
