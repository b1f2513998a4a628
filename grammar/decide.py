"""Questions about a language: emptiness, universality, shortest and longest words, length windows.

Structure answers for expressions without intersection, complement and automata (`Rx.clean`): they
are never empty, and their lengths follow by arithmetic. For the rest the states are explored
breadth first, on fuel. Every answer is memoised on the nodes it was found for.

Invariant: an answer is recorded only when it is proved; running out of fuel leaves no trace.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING, Final

from grammar import lengths as spans
from grammar.derivatives import raw_transitions
from grammar.rx import Kind, MeasuredAutomaton, Rx

if TYPE_CHECKING:
    from grammar.regular import RegexBuilder

_STRUCTURED = (Kind.CONCAT, Kind.UNION, Kind.REPEAT)
#: Steps of a walk that is tried before all states are looked at.
_MAX_WALK: Final = 40
#: Lengths up to which one walk is tried before all states of a length are looked at.
_MAX_TRIED: Final = 400
#: Length questions about parts of a language that may be open at once.
_MAX_DECIDING: Final = 20


def is_empty(builder: RegexBuilder, node: Rx) -> bool:
    """Exact emptiness by search for an accepting state."""
    if node._empty is not None:
        return node._empty
    if _has_near_word(builder, node):
        return False
    parents: dict[Rx, Rx | None] = {node: None}
    queue: deque[Rx] = deque((node,))
    while queue:
        state = queue.popleft()
        verdict = _empty_at_once(builder, state)
        if verdict is False:
            at: Rx | None = state
            while at is not None:
                at._empty = False
                at = parents[at]
            return False
        if verdict is None:
            for target in _leads(builder, state):
                if target not in parents:
                    parents[target] = state
                    queue.append(target)
    # The search is closed and met no accepting state.
    for state in parents:
        state._empty = True
    return True


def _has_near_word(builder: RegexBuilder, node: Rx) -> bool:
    """Whether one walk, to where a word may end soonest, finds one; noted for all states on it."""
    path: dict[Rx, None] = {node: None}
    for _ in range(_MAX_WALK):
        verdict = _empty_at_once(builder, node)
        if verdict is not None:
            if not verdict:
                for state in path:
                    state._empty = False
            return not verdict
        fresh = [target for target in _leads(builder, node) if target not in path]
        if not fresh:
            return False
        node = min(fresh, key=lambda each: each.lo_length)
        path[node] = None
    return False


def _empty_at_once(builder: RegexBuilder, node: Rx) -> bool | None:
    """What is known about emptiness without steps; None when they have to be followed."""
    if node._empty is not None:
        return node._empty
    if node.nullable:
        return False
    # A length limit is decided on the rest alone. Equations can lead back here; then, and when the
    # questions pile up, the steps are followed instead.
    deciding = builder.deciding
    if node in deciding or len(deciding) >= _MAX_DECIDING:
        return None
    window = length_part(builder, node)
    if window is None:
        return None
    deciding.add(node)
    try:
        return not length_window_nonempty(builder, *window)
    finally:
        deciding.discard(node)


def _leads(builder: RegexBuilder, node: Rx) -> Iterable[Rx]:
    """Nodes of which one at least is non-empty exactly when `node`, not nullable, is."""
    if node.kind is Kind.UNION:
        return node.parts
    at = node
    while at.kind is Kind.CONCAT and at.parts[0].clean:
        at = at.parts[1]
    if at is not node:
        return (at,)
    return (target for _, _, target in raw_transitions(builder, node))


def length_part(builder: RegexBuilder, node: Rx) -> tuple[Rx, int, int | None] | None:
    """Split an intersection with `any{lo,hi}` into the rest and the bounds."""
    if node.kind is not Kind.INTERSECT:
        return None
    for part in node.parts:
        if part is builder.any_char or (
            part.kind is Kind.REPEAT and part.parts[0] is builder.any_char
        ):
            rest = builder.intersect(*(other for other in node.parts if other is not part))
            return rest, part.lo_length, part.hi_length
    return None


def is_universal(builder: RegexBuilder, node: Rx, limit: int) -> bool:
    """Whether all words are accepted, exploring at most `limit` transitions (False beyond).

    They are counted by ranges of characters, so wide classes count for what they cost: a mask asks
    this of every new state.
    """
    if node is builder.universe:
        return True
    if not node.nullable or (node.clean and node.hi_length is not None):
        return False
    if node._universal is not None:
        return node._universal
    seen = {node}
    queue = deque((node,))
    looked = 0
    while queue:
        state = queue.popleft()
        rows = raw_transitions(builder, state)
        looked += len(rows)
        verdict = state.nullable and _covers_everything(rows) and looked <= limit
        if not verdict or state._universal is False:
            node._universal = False
            return False
        for _, _, target in rows:
            if target not in seen and target._universal is not True:
                seen.add(target)
                queue.append(target)
    for state in seen:
        state._universal = True
    return True


def _covers_everything(rows: tuple[tuple[int, int, Rx], ...]) -> bool:
    return sum(hi - lo + 1 for lo, hi, _ in rows) == 0x110000 - 0x800


def min_length(builder: RegexBuilder, node: Rx) -> int:
    """The length of a shortest word of a non-empty language."""
    if node.clean:
        return node.lo_length
    if node.nullable:
        return 0
    if node._min is None:
        if is_empty(builder, node):
            raise ValueError("the empty language has no shortest word")
        if node.kind is Kind.CONCAT:
            node._min = sum(min_length(builder, part) for part in _row_of_parts(node))
        elif node.kind is Kind.UNION:
            alive = [part for part in node.parts if not is_empty(builder, part)]
            node._min = min(min_length(builder, part) for part in alive)
        elif node.kind is Kind.REPEAT:
            node._min = node.lo * min_length(builder, node.parts[0])
        elif node.kind is Kind.AUTOMATON:
            machine, state = node.payload or (None, None)
            if isinstance(machine, MeasuredAutomaton):
                node._min = machine.shortest(state)
            else:
                _settle_automaton(builder, node)
        else:
            window = length_part(builder, node)
            if window is None:
                _search_shortest(builder, node)
            else:
                rest, lo, hi = window
                least = min_length(builder, rest)
                node._min = least if least >= lo else layers(builder, rest).first(lo, hi)
    assert node._min is not None
    return node._min


def _search_shortest(builder: RegexBuilder, node: Rx) -> None:
    """Breadth first to the nearest end, taking known distances as they come; notes the path."""
    if _is_as_short_as_can_be(node):
        return
    parents: dict[Rx, Rx | None] = {node: None}
    layer, best, last = [node], None, node
    for depth in count():
        if not layer or (best is not None and depth >= best):
            break
        following: list[Rx] = []
        for state in layer:
            left = _known_shortest(state)
            if left is not None and (best is None or depth + left < best):
                best, last = depth + left, state
            if left is None:
                for _, _, target in state.transitions():
                    if target not in parents:
                        parents[target] = state
                        following.append(target)
        builder.spend(len(layer))
        layer = following
    assert best is not None, "a non-empty language has a shortest word"
    left = _known_shortest(last)
    assert left is not None
    at: Rx | None = last
    while at is not None:
        at._min = left
        left += 1
        at = parents[at]


def _is_as_short_as_can_be(node: Rx) -> bool:
    """Whether a walk finds a word of the least length that the state's parts allow; notes it."""
    path = [node]
    while not node.nullable and len(path) <= _MAX_WALK:
        targets = (target for _, _, target in node.transitions())
        nearer = next((t for t in targets if t.lo_length < node.lo_length), None)
        if nearer is None:
            return False
        node = nearer
        path.append(node)
    if not node.nullable or len(path) - 1 != path[0].lo_length:
        return False
    for left, state in enumerate(reversed(path)):
        state._min = left
    return True


def _settle_automaton(builder: RegexBuilder, node: Rx) -> None:
    """The shortest words of all states of an automaton at once, from its accepting states back."""
    sources: dict[Rx, list[Rx]] = {node: []}
    queue = deque((node,))
    while queue:
        builder.breathe()
        state = queue.popleft()
        for _, _, target in raw_transitions(builder, state):
            if target not in sources:
                sources[target] = []
                queue.append(target)
            sources[target].append(state)
    layer = [state for state in sources if state.nullable]
    distances = dict.fromkeys(layer, 0)
    for distance in count(1):
        builder.breathe()
        layer = [source for state in layer for source in sources[state]]
        layer = [state for state in dict.fromkeys(layer) if state not in distances]
        if not layer:
            break
        distances.update(dict.fromkeys(layer, distance))
    assert len(distances) == len(sources), "every state of an automaton reaches acceptance"
    for state, distance in distances.items():
        state._min = distance


def _known_shortest(node: Rx) -> int | None:
    if node.clean:
        return node.lo_length
    return 0 if node.nullable else node._min


def max_length(builder: RegexBuilder, node: Rx) -> int | None:
    """The length of a longest word of a non-empty language; None when unbounded."""
    if node.clean:
        return node.hi_length
    if node._max is None:
        if is_empty(builder, node):
            raise ValueError("the empty language has no longest word")
        node._max = (_longest(builder, node),)
    return node._max[0]


def _longest(builder: RegexBuilder, node: Rx) -> int | None:
    if node.kind in _STRUCTURED:
        if node.kind is Kind.REPEAT:
            if is_empty(builder, node.parts[0]):
                return 0
            most = max_length(builder, node.parts[0])
            if most == 0:
                return 0
            return None if most is None or node.hi is None else most * node.hi
        parts = _row_of_parts(node) if node.kind is Kind.CONCAT else node.parts
        found = [max_length(builder, part) for part in parts if not is_empty(builder, part)]
        known = [most for most in found if most is not None]
        if len(known) < len(found):
            return None
        return sum(known) if node.kind is Kind.CONCAT else max(known)
    if node.lengths is not None:
        ends = [last for _, last, _ in node.lengths]
        known = [last for last in ends if last is not None]
        return max(known) if len(known) == len(ends) else None
    window = length_part(builder, node)
    if window is not None and window[2] is not None:
        return layers(builder, window[0]).last(window[2])
    return _search_longest(builder, node)


def _search_longest(builder: RegexBuilder, node: Rx) -> int | None:
    """Depth first over live states: a cycle means no longest word."""
    done: dict[Rx, int] = {}
    open_states: set[Rx] = {node}
    stack = [(node, iter(node.transitions()))]
    while stack:
        state, rows = stack[-1]
        for _, _, target in rows:
            if target in open_states:
                return None
            if target not in done:
                if target.clean and target.hi_length is not None:
                    done[target] = target.hi_length
                    continue
                if target.clean:
                    return None
                builder.spend(1)
                open_states.add(target)
                stack.append((target, iter(target.transitions())))
                break
        else:
            stack.pop()
            open_states.discard(state)
            done[state] = max((1 + done[t] for _, _, t in state.transitions()), default=0)
    return done[node]


def length_window_nonempty(builder: RegexBuilder, node: Rx, lo: int, hi: int | None) -> bool:
    """Whether some word's length lies within `[lo, hi]` (None: no upper bound); exact."""
    lo = max(lo, node.lo_length)
    if node.hi_length is not None:
        hi = node.hi_length if hi is None else min(hi, node.hi_length)
    if (hi is not None and hi < lo) or node is builder.empty:
        return False
    if node is builder.universe:
        return True
    if node.lengths is not None:
        return spans.meets(node.lengths, lo, hi)
    window = length_part(builder, node)
    if window is not None:
        return length_window_nonempty(builder, window[0], lo, hi)
    if is_empty(builder, node):
        return False
    least = min_length(builder, node)
    if least >= lo:
        return hi is None or least <= hi
    if lo <= _MAX_TRIED and _has_long_word(node, lo, hi):
        return True
    return layers(builder, node).first(lo, hi) is not None


def _has_long_word(node: Rx, lo: int, hi: int | None) -> bool:
    """Whether one walk, to where words may be longest, finds a word of such a length."""
    for _ in range(lo):
        targets = [target for _, _, target in node.transitions()]
        if not targets:
            return False
        node = next((t for t in targets if t.hi_length is None), None) or max(
            targets, key=_known_longest
        )
    return hi is None or lo + node.min_length() <= hi


def _known_longest(node: Rx) -> int:
    return node.hi_length or 0


def layers(builder: RegexBuilder, node: Rx) -> Layers:
    """The layer sequence of a node, kept on it."""
    if node._layers is None:
        node._layers = Layers(builder, node)
    return node._layers


class Layers:
    """The sets of states after 0, 1, 2, ... characters: a sequence that ends up in a cycle."""

    __slots__ = ("_accepts", "_builder", "_last", "_loop", "_seen")

    def __init__(self, builder: RegexBuilder, node: Rx) -> None:
        self._builder = builder
        self._last = frozenset((node,))
        self._seen: dict[frozenset[Rx], int] = {self._last: 0}
        self._accepts = [node.nullable]
        #: Index at which the sequence starts over, once that is known.
        self._loop: int | None = None

    def first(self, lo: int, hi: int | None) -> int | None:
        """The first layer in `[lo, hi]` with an accepting state."""
        for index in count(lo):
            if hi is not None and index > hi:
                return None
            if self._loop is not None:
                period = len(self._accepts) - self._loop
                if index >= max(lo, self._loop) + period:
                    return None
            if self._accepts[self._place(index)]:
                return index
        raise AssertionError("unreachable")

    def last(self, hi: int) -> int | None:
        """The last layer up to `hi` with an accepting state."""
        self._place(hi)
        looped = self._loop if self._loop is not None and hi >= len(self._accepts) else None
        if looped is not None:
            for index in range(hi, hi - (len(self._accepts) - looped), -1):
                if self._accepts[self._place(index)]:
                    return index
        top = min(hi, len(self._accepts) - 1)
        return next((index for index in range(top, -1, -1) if self._accepts[index]), None)

    def _place(self, index: int) -> int:
        """The stored layer that equals layer `index`, made on demand."""
        while self._loop is None and index >= len(self._accepts):
            last = self._last
            following = frozenset(target for state in last for _, _, target in state.transitions())
            self._builder.spend(1 + len(following))
            if self._last is not last:
                continue  # somebody else went on with it in between
            if following in self._seen:
                self._loop = self._seen[following]
            else:
                self._seen[following] = len(self._accepts)
                self._accepts.append(any(state.nullable for state in following))
                self._last = following
        if index < len(self._accepts):
            return index
        assert self._loop is not None
        return self._loop + (index - self._loop) % (len(self._accepts) - self._loop)


def _row_of_parts(node: Rx) -> list[Rx]:
    """The factors of a concatenation."""
    parts: list[Rx] = []
    while node.kind is Kind.CONCAT:
        parts.append(node.parts[0])
        node = node.parts[1]
    parts.append(node)
    return parts
