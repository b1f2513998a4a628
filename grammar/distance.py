"""How far it is to the end: the shortest text known that completes an answer, and its tokens.

What completes a state is what completes one of its terminals (``endings.py``) and then each frame
below it. A frame's own part depends on its node, its place and what is handed to it, not on what
lies below, so it is found once and shared by all stacks: the frame is resumed on an empty stack and
taken to that stack's end. This is Knuth's generalisation of shortest paths to grammars ("A
generalization of Dijkstra's algorithm", IPL 6, 1977), explored lazily and depth first: the first
way found settles a frame, others are tried while they begin with less than the best.

Invariants: every size given is that of a real text that the vocabulary can spell, so there is an
end of at most so many tokens; it is the shortest one where the work did not reach ``MAX_FRAMES`` or
``MAX_TRIED``, but for indentation (a frame is never looked for inside itself). None where no end
was found within the bounds.

Callers hold ``workspace.lock``. Read next: ``machine.py``, which owns one of these.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from grammar.automaton import Outcome
from grammar.endings import Ending, Piece, endings, word_ending
from grammar.nodes import Closure, Context, Either, Leaf, Node, Place, Stack
from grammar.spelling import Speller
from grammar.style import Style

if TYPE_CHECKING:
    from grammar.states import State
    from grammar.vocabulary import Vocabulary

NEVER = 1 << 60
MAX_FRAMES = 8000
"""So many frames are looked at for one answer to one question, and of them"""
MAX_TRIED = 1500
"""so many for other ways than the first that was found."""
CHAINS = (32, 512)
"""So many keys that a schema does not declare are written one after the other: the first bound
under which an end is found. Each makes the next one's language larger, and the object may want
something else."""
MAX_KEPT = 100_000
MAX_STATES = 8192
MAX_PIECES = 1 << 17
SPELLED = 8
"""Of a state's ways to its end so many are cut into tokens, the shortest in bytes."""

_FrameKey: TypeAlias = "tuple[int, Place, Outcome, str, int]"


class _Frame:
    """A frame on an empty stack. ``size``: bytes of what completes it, ``NEVER`` where nothing
    does, None where that is not known; ``best``: the ending and the stack behind it, None where
    the frame is passed through; ``final``: what is handed to the frame below."""

    __slots__ = ("best", "final", "node", "outcome", "place", "size")

    def __init__(self, node: Node, place: Place, outcome: Outcome) -> None:
        self.node = node
        self.place = place
        self.outcome = outcome
        self.size: int | None = None
        self.final: Outcome = outcome
        self.best: tuple[Ending, Stack] | None = None


_Need: TypeAlias = "tuple[_Frame, Style, int]"
_Search: TypeAlias = "Generator[_Need, None, tuple[int, Outcome]]"


class Distance:
    """Distances to the end in one grammar."""

    def __init__(self, context: Context, vocabulary: Vocabulary) -> None:
        self._context = context
        self._speller = Speller(vocabulary)
        self._frames: dict[_FrameKey, _Frame] = {}
        self._open: set[tuple[int, Place, Outcome, str]] = set()
        self._bottoms: dict[tuple[str, int], Stack] = {}
        self._sizes: dict[State, int] = {}
        self._tokens: dict[State, tuple[int, ...] | None] = {}
        self._left = self._tries_left = 0
        self._trying = 0
        self._chain = 0
        self._chained: dict[int, int] = {}  # open frames that undeclared keys led to, by node
        self._cuts = 0  # how often the search turned back before it had seen everything

    def size(self, state: State) -> int | None:
        """Bytes of the shortest text that completes the state (a whole token counts 1)."""
        if state.accepts:
            return 0
        found = self._sizes.get(state)
        if found is None:
            ways = self._ways(state)
            found = ways[0][0] if ways else NEVER
            if len(self._sizes) >= MAX_STATES:
                self._sizes.clear()
            self._sizes[state] = found
        return None if found == NEVER else found

    def tokens(self, state: State) -> tuple[int, ...] | None:
        """Tokens that complete the state: the fewest that the shortest texts known can be cut into.

        None where no end was found, or the vocabulary can't spell it.
        """
        if state.accepts:
            return ()
        if state not in self._tokens:
            if len(self._tokens) >= MAX_STATES:
                self._tokens.clear()
            best: list[int] | None = None
            for _, ending, stack in self._ways(state)[:SPELLED]:
                pieces = self._spell(ending, stack)
                cut = None if pieces is None else self._speller.cut(pieces)
                if cut is not None and (best is None or len(cut) < len(best)):
                    best = cut
            self._tokens[state] = None if best is None else tuple(best)
        return self._tokens[state]

    # -- the search -----------------------------------------------------------------------------

    def _ways(self, state: State) -> list[tuple[int, Ending, Stack]]:
        """(bytes, ending, the stack behind it) of a state's ways to the end, the shortest first."""
        if len(self._frames) >= MAX_KEPT:
            self._frames.clear()
        for chain in CHAINS:
            cuts, self._chain = self._cuts, chain
            found = self._ways_within(state)
            if found or cuts == self._cuts:
                break
        return found

    def _ways_within(self, state: State) -> list[tuple[int, Ending, Stack]]:
        self._left, self._tries_left, self._trying = MAX_FRAMES, MAX_TRIED, 0
        self._open.clear()
        self._chained.clear()
        found: list[tuple[int, Ending, Stack]] = []
        for ending, stack in self._options(state.leaves):
            if len(found) >= SPELLED and ending.size >= found[0][0]:
                continue
            size, _ = self._run(self._below(stack, ending.outcome))
            if size < NEVER:
                found.append((ending.size + size, ending, stack))
                found.sort(key=lambda way: way[0])
        return found

    def _run(self, first: _Search) -> tuple[int, Outcome]:
        """Run a search and those it needs, on a stack of our own: chains of frames are long."""
        running: list[tuple[_Search, _Need | None]] = [(first, None)]
        result: tuple[int, Outcome] = (NEVER, 0)
        while running:
            search, need = running[-1]
            try:
                wanted = next(search)
            except StopIteration as end:
                running.pop()
                result = end.value
                if need is not None:
                    self._close(need)
                continue
            if self._may_open(wanted):
                running.append((self._solve(*wanted), wanted))
        return result

    def _may_open(self, need: _Need) -> bool:
        frame, style, _ = need
        name = (id(frame.node), frame.place, frame.outcome, style.name)
        spent = self._left <= 0 or (self._trying and self._tries_left <= 0)
        chained = 0 if isinstance(frame.outcome, int) else self._chained.get(id(frame.node), 0) + 1
        if name in self._open or spent or chained > self._chain:
            self._cuts += 1
            return False
        if chained:
            self._chained[id(frame.node)] = chained
        self._open.add(name)
        self._left -= 1
        self._tries_left -= self._trying > 0
        return True

    def _close(self, need: _Need) -> None:
        frame, style, _ = need
        self._open.remove((id(frame.node), frame.place, frame.outcome, style.name))
        if not isinstance(frame.outcome, int):
            self._chained[id(frame.node)] -= 1

    def _solve(self, frame: _Frame, style: Style, depth: int) -> _Search:
        """Find what completes a frame."""
        cuts = self._cuts
        closure = Closure()
        bottom = self._bottom(style, depth)
        frame.node.resume(self._context, frame.place, bottom, frame.outcome, closure)
        self._context.settle(closure)
        if closure.accepts:
            frame.size = 0
            return 0, frame.outcome
        best, final, way = NEVER, frame.outcome, None
        for ending, stack in self._options(closure.leaves):
            if ending.size >= best:
                continue
            self._trying += best < NEVER
            size, outcome = yield from self._below(stack, ending.outcome)
            self._trying -= best < NEVER
            if ending.size + size < best:
                best, final, way = ending.size + size, outcome, (ending, stack)
        if best < NEVER or cuts == self._cuts:
            frame.size, frame.final, frame.best = best, final, way
        return best, final

    def _below(self, stack: Stack, outcome: Outcome) -> _Search:
        """(bytes that complete all frames of a stack, what is handed on at its end)."""
        total = 0
        at: Stack | None = stack
        while at is not None and at.node is not None:
            if isinstance(at.node, Either):
                best = (NEVER, outcome)
                for member in at.place:
                    size, final = yield from self._below(member, outcome)
                    best = min(best, (size, final), key=lambda found: found[0])
                return min(total + best[0], NEVER), best[1]
            frame = self._frame(at, outcome)
            if frame.size is None:
                yield frame, at.style, self._depth(at)
            if frame.size is None or frame.size == NEVER:
                return NEVER, outcome
            total += frame.size
            outcome, at = frame.final, at.tail
        return total, outcome

    def _options(self, leaves: Iterable[Leaf]) -> list[tuple[Ending, Stack]]:
        """The ways to complete some terminals, with what lies behind them, the shortest first.

        Where that is one of several words, the last of them comes before it: of an object's keys
        that is the one that must be there, from which the shortest ones may lead away.
        """
        found: list[tuple[Ending, Stack]] = []
        last: dict[Ending, tuple[Ending, Stack]] = {}
        for automaton, state, stack in leaves:
            owed = stack.node.owed(stack.place) if stack.node is not None else ()
            word = word_ending(automaton, state, owed) if owed else None
            known = endings(automaton, state) if word is None else (word,)
            ways = [way for way in known if self._speller.spells(way.pieces)]
            found += [(ending, stack) for ending in ways]
            if len(ways) > 1:
                last[ways[0]] = (max(ways, key=_rank), stack)
        found.sort(key=lambda option: option[0].size)
        if found and found[0][0] in last:
            found.insert(0, last[found[0][0]])
        return found

    def _frame(self, stack: Stack, outcome: Outcome) -> _Frame:
        node = stack.node
        assert node is not None
        key = (id(node), stack.place, outcome, stack.style.name, self._depth(stack))
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = _Frame(node, stack.place, outcome)
        return found

    @staticmethod
    def _depth(stack: Stack) -> int:
        """The nesting depth below the frame, where it matters."""
        assert stack.tail is not None
        return 0 if stack.style.indent is None else stack.tail.depth

    def _bottom(self, style: Style, depth: int) -> Stack:
        found = self._bottoms.get((style.name, depth))
        if found is None:
            found = self._bottoms[style.name, depth] = self._context.bottom(style)
            found.depth = depth
        return found

    # -- spelling -------------------------------------------------------------------------------

    def _spell(self, ending: Ending, stack: Stack) -> Sequence[Piece] | None:
        """The parts of the text that a way stands for; None where it is too long."""
        pieces: list[Piece] = list(ending.pieces)
        outcome = ending.outcome
        agenda = [stack]
        while agenda:
            at = agenda.pop()
            if at.node is None:
                continue
            if isinstance(at.node, Either):
                agenda.append(min(at.place, key=lambda member: self._known(member, outcome)))
                continue
            assert at.tail is not None
            frame = self._frame(at, outcome)
            if frame.size is None or frame.size == NEVER or len(pieces) > MAX_PIECES:
                return None
            agenda.append(at.tail)
            if frame.best is None:
                outcome = frame.final
            else:
                part, below = frame.best
                pieces += part.pieces
                outcome = part.outcome
                agenda.append(below)
        return pieces

    def _known(self, stack: Stack, outcome: Outcome) -> int:
        """Bytes that complete a stack, as far as its frames have been looked at."""
        try:
            next(search := self._below(stack, outcome))
        except StopIteration as end:
            return int(end.value[0])
        search.close()
        return NEVER


def _rank(ending: Ending) -> int:
    return ending.outcome if isinstance(ending.outcome, int) else 0
