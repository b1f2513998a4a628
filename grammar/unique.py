"""Machines for grammars with arrays whose items must differ (``uniqueItems``).

Whether two items are equal can't be told by stacks and terminals, but by the text. So beside the
state of the grammar, which knows nothing of it, a *tracked* state has a ``Reader`` (``reader.py``)
of what stands since the outermost such array was opened. A thread that completes an item which was
there before ends; a text is *alive* while some thread can go on to the end of its item with a
value that was not there. As long as the item differs from all earlier ones already, that is so at
once; else a search looks for a byte that tells them apart.

A mask is the one of the grammar's state, shared with every other text in that state, without the
few tokens that the items forbid (``unique_masks.py``).

Invariant: a tracked state is alive, and what is alive can be completed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from grammar.arrays import ITEM_DONE, ArrayNode, At
from grammar.automaton import DEAD, NOT_ACCEPTING, TOKENS, Outcome
from grammar.distance import Distance
from grammar.machine import EVERY_BYTE, MAX_STATES, Machine
from grammar.masks import Mask
from grammar.nodes import Leaf, Node, Stack
from grammar.reader import NAME, NUMBER, STRING, VALUE, Reader
from grammar.states import State
from grammar.style import Style
from grammar.unique_ends import UniqueDistance
from grammar.unique_masks import barred_tokens, without_barred
from grammar.vocabulary import Vocabulary
from grammar.workspace import Workspace

MAX_SEARCH = 20_000
"""Bytes tried to find whether an item can still differ; past them it counts as one that can't."""
OPEN_BRACKET = 0x5B
TRACKED_BYTES = 1500
BLANKS = b" \t\r\n"
_CLOSERS = b'"]}'
_PROBES = tuple(
    sorted(range(256), key=lambda b: (b in BLANKS, b in _CLOSERS, b in range(0x21, 0x7F), -b))
)
"""All bytes. What comes last is followed first: after white space what ends values."""
_ORDER = {byte: place for place, byte in enumerate(_PROBES)}
_LETTERS = b"etaoinshrdlucmfwypvbgkjqxz0123456789ETAOINSHRDLU _-.,"


class Tracked(State):
    """A state of the grammar (``plain``), and what was read since the array began."""

    __slots__ = ("plain", "reader")

    def __init__(self, plain: State, reader: Reader) -> None:
        super().__init__(plain.leaves, plain.accepts)
        self.plain = plain
        self.reader = reader
        self.loops = False


class UniqueMachine(Machine):
    """A ``Machine`` for grammars of which some arrays compare their items."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        workspace: Workspace,
        rules: Sequence[Node],
        root: int,
        styles: Sequence[Style],
    ) -> None:
        self._tracked: list[Tracked] = []
        #: Whether some array must have several items.
        self._fills = any(isinstance(n, ArrayNode) and n.compares and n.least > 1 for n in rules)
        self._has_free_gaps = any(style.flexible for style in styles)
        super().__init__(vocabulary, workspace, rules, root, styles)

    def __del__(self) -> None:
        self._drop_tracked()
        super().__del__()

    def memory_bytes(self) -> int:
        return super().memory_bytes() + TRACKED_BYTES * len(self._tracked)

    def _drop_tracked(self) -> None:
        for state in self._tracked:
            state.edges.clear()
            state.bytes.clear()
        self._tracked.clear()

    def _forget(self) -> None:
        self._drop_tracked()
        super()._forget()

    def _state(self, leaves: Iterable[Leaf], accepts: bool, reader: Reader | None) -> State | None:
        """The state, or None where it can't be completed."""
        found = leaves if isinstance(leaves, (list, tuple)) else list(leaves)
        if not found and not accepts:
            return None
        if reader is None:
            return self._intern(found, accepts)
        if not self.is_alive(found, accepts, reader):
            return None
        state = Tracked(self._intern(found, accepts), reader)
        if len(self._tracked) >= MAX_STATES:
            self._forget()
        self._tracked.append(state)
        return state

    @property
    def distance(self) -> Distance:
        if self._distance is None:
            self._distance = UniqueDistance(self)
        return self._distance

    def may_repeat(self, state: State) -> bool:
        """Whether a way to the end that does not look at items may lead to equal ones."""
        return self._fills or (isinstance(state, Tracked) and state.reader.is_near)

    # -- transitions ----------------------------------------------------------------------------

    def step(self, state: State, byte: int) -> State | None:
        if byte in state.bytes:
            return state.bytes[byte]
        found = self.run(state, bytes((byte,)))
        state.bytes[byte] = found
        return found

    def run(self, state: State, text: bytes) -> State | None:
        if not isinstance(state, Tracked) and OPEN_BRACKET not in text:
            return super().run(state, text)
        leaves: Sequence[Leaf] = state.leaves
        accepts = state.accepts
        reader = state.reader if isinstance(state, Tracked) else None
        for byte in text:
            leaves, accepts, reader = self.read_on(leaves, reader, byte)
            if not leaves and not accepts:
                return None
        return self._state(leaves, accepts, reader)

    def advance(self, state: State, token: int) -> State | None:
        takers = [leaf for leaf in state.leaves if leaf[0].takes_tokens]
        text = self.vocabulary.tokens[token]
        after = self.run(state, text) if takers and text else None
        if not isinstance(after, Tracked):
            return super().advance(state, token)
        leaves, accepts = self._move(takers, TOKENS + token)
        if not leaves and not accepts:
            return after
        return self._state([*after.leaves, *leaves], after.accepts or accepts, after.reader)

    def read_on(
        self, leaves: Sequence[Leaf], reader: Reader | None, byte: int
    ) -> tuple[Sequence[Leaf], bool, Reader | None]:
        """What follows one byte: leaves, whether the text may end, and what was read.

        Items that must not be there end their threads.
        """
        out: list[Leaf] = []
        ended: list[tuple[Leaf, Outcome]] = []
        opening: Stack | None = None
        for automaton, at, stack in leaves:
            after = automaton.step(at, byte)
            if after == DEAD:
                continue
            leaf = Leaf(automaton, after, stack)
            out.append(leaf)
            if automaton.opens_compared and byte == OPEN_BRACKET:
                opening = stack
            label = automaton.labels[after]
            if label != NOT_ACCEPTING:
                ended.append((leaf, automaton.outcome(label)))
        if not out:
            return (), False, None
        if reader is not None:
            reader = reader.step(byte, watched=opening is not None)
        elif opening is not None:
            reader = Reader.opened(opening.depth)
        accepts = False
        barred: list[Leaf] = []
        admitted: list[tuple[Stack, Outcome]] = []
        for leaf, outcome in ended:
            if reader is None or self._admits(leaf[2], reader):
                admitted.append((leaf[2], outcome))
            elif not leaf[0].tried(leaf[1]):  # its terminal ends here, so nothing is left of it
                barred.append(leaf)
        if barred:
            out = [leaf for leaf in out if leaf not in barred]
        if len(admitted) > 1 and self._merges:
            out, accepts = self._settled(admitted, out)
        else:
            for stack, outcome in admitted:
                behind = self.after(stack, outcome)
                out += behind.leaves
                accepts |= behind.accepts
        if reader is not None and not any(leaf[2].compared is not None for leaf in out):
            reader = None
        return (out if len(out) < 2 else self._distinct(out)), accepts, reader

    @staticmethod
    def _admits(stack: Stack, reader: Reader) -> bool:
        """Whether what has just ended may be an item there, if it is one."""
        node = stack.node
        if node is None or not node.compares or stack.place[0] != ITEM_DONE:
            return True
        assert isinstance(node, ArrayNode)
        value = reader.whole()
        if value is None:
            return True
        earlier = reader.earlier()
        return value not in earlier and node.can_go_on(stack.place[1], earlier, value)

    # -- whether a text can be completed --------------------------------------------------------

    def is_alive(self, leaves: Sequence[Leaf], accepts: bool, reader: Reader) -> bool:
        """Whether some thread can end its items with values that are allowed there."""
        if accepts or self._has_free_thread(leaves, reader) or self._can_leave(leaves, reader):
            return True
        seen: set[object] = set()
        pending: list[tuple[Sequence[Leaf], Reader]] = [(leaves, reader)]
        steps = 0
        while pending:
            at, read = pending.pop()
            key = (frozenset(at), read.key())
            if key in seen:
                continue
            seen.add(key)
            found = False
            for byte in self._bytes_of(at):
                if found and self.changes_nothing(byte, read):
                    continue  # white space comes last
                steps += 1
                if steps > MAX_SEARCH:
                    return False
                after, ended, more = self.read_on(at, read, byte)
                if ended:
                    return True
                if not after:
                    continue
                if more is None or self._has_free_thread(after, more):
                    return True
                found = True
                pending.append((after, more))
        return False

    def changes_nothing(self, byte: int, reader: Reader) -> bool:
        """Whether what may follow a byte may follow without it, too: white space that is free."""
        return self._has_free_gaps and byte in BLANKS and reader.mode not in (STRING, NAME)

    @staticmethod
    def _bytes_of(leaves: Sequence[Leaf]) -> Iterable[int]:
        """Bytes that may follow some leaves, and others perhaps."""
        narrow: dict[int, None] = {}
        for automaton, at, _ in leaves:
            tried = automaton.tried(at)
            if tried is None:
                return _PROBES
            narrow.update(dict.fromkeys(tried))
        return sorted(narrow, key=_ORDER.__getitem__)

    @staticmethod
    def _has_free_thread(leaves: Sequence[Leaf], reader: Reader) -> bool:
        """Whether some thread surely can end its items with values that are allowed there.

        That is so where the item differs from all earlier ones already (or is not begun, and there
        are plenty of values) and the array needs no others of which there are few.
        """
        return any(_is_free(leaf, reader) for leaf in leaves)

    @staticmethod
    def _can_leave(leaves: Sequence[Leaf], reader: Reader) -> bool:
        """Whether some byte surely tells the item from all earlier ones in such a thread."""
        expected = reader.expected() if reader.mode in (STRING, NUMBER) else None
        if expected is None:
            return False
        for leaf in leaves:
            automaton, at, _ = leaf
            for byte in automaton.tried(at) or _LETTERS:
                if byte not in expected and automaton.step(at, byte) != DEAD:
                    if _is_free(leaf, reader, differs=True):
                        return True
                    break
        return False

    # -- masks ----------------------------------------------------------------------------------

    def fill_mask(self, state: State) -> Mask:
        if not isinstance(state, Tracked):
            return super().fill_mask(state)
        lent = self.context.workspace.lent
        if state.tokens is None:
            plain = state.plain
            mask = super().fill_mask(plain)
            assert plain.tokens is not None
            tokens = plain.tokens
            barred = barred_tokens(self, state, mask)
            if barred:
                tokens = without_barred(tokens, mask, barred)
                self._mask_bytes += tokens.memory_bytes() + 4 * len(mask)
            state.stuck = tokens.is_empty
            state.tokens = tokens
        return lent.mask(state.tokens)

    @staticmethod
    def needs(state: Tracked) -> tuple[bool, bool]:
        """Whether some array's items are scarce, and whether one still needs such."""
        scarce = demanding = False
        for leaf in state.leaves:
            frame = leaf[2].compared
            while frame is not None:
                node = frame.node
                assert isinstance(node, ArrayNode)
                level = state.reader.at(frame.depth)
                if level is not None and level.items is not None:
                    scarce |= node.is_scarce(len(level.items) + 1)
                    place = frame.place[1]
                    demanding |= node.is_demanding(place if isinstance(place, At) else node.start)
                assert frame.tail is not None
                frame = frame.tail.compared
        return scarce, demanding

    def following(self, state: State, among: Sequence[int] = EVERY_BYTE) -> Iterator[int]:
        found = super().following(state, among)
        return (byte for byte in found if self.step(state, byte) is not None)

    def _only_byte(self, state: State) -> int | None:
        found = super()._only_byte(state)
        if found is not None or not isinstance(state, Tracked):
            return found
        if not (state.reader.is_near or any(self.needs(state))):
            return None
        only: int | None = None
        for automaton, at, _ in state.leaves:
            if automaton.is_wide(at) or automaton.tokens(at):
                return None
            for byte in automaton.live(at):
                if byte != only and self.step(state, byte) is not None:
                    if only is not None:
                        return None
                    only = byte
        return only


def _is_free(leaf: Leaf, reader: Reader, *, differs: bool = False) -> bool:
    """Whether nothing keeps a thread from ending its items; ``differs``: as soon as the present
    one is told from all earlier ones."""
    frame = leaf[2].compared
    while frame is not None:
        node = frame.node
        assert isinstance(node, ArrayNode)
        level = reader.at(frame.depth)
        if level is not None:
            if level.near and not differs:
                begun = reader.mode != VALUE or reader.at(frame.depth + 1) is not None
                if begun or node.is_scarce(len(level.near)):
                    return False
            if frame.place[0] == ITEM_DONE and node.is_demanding(frame.place[1]):
                return False
        assert frame.tail is not None
        frame = frame.tail.compared
    return True
