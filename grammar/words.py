"""Fixed words as terminals: literals, enumerations, declared property names.

All words of a terminal stand in one trie, and a range of indices says which of them may come, so
that hundreds of optional properties cost linear space. Walks go along both tries at once, the
words' and the vocabulary's, without making the automaton's states.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Sequence

from grammar.automaton import DEAD, NOT_ACCEPTING, Automaton, Following
from grammar.trie import Rests, TokenTrie

_CHILDLESS: dict[int, int] = {}
"""The children of all nodes that have none; never changed."""


class WordTrie:
    """A set of byte strings as a trie; word ``j`` is found at the node where it ends.

    ``below[node]`` has the ascending indices of the words at or below the node, so that a range of
    indices can be asked for (the properties from the i-th to the next required one).
    """

    __slots__ = ("below", "children", "end", "words")

    def __init__(self, words: Sequence[bytes], breathe: Callable[[], None] | None = None) -> None:
        self.words = tuple(words)
        self.children: list[dict[int, int]] = [_CHILDLESS]
        self.end: list[int] = [-1]
        self.below: list[list[int]] = [list(range(len(self.words)))]
        for j, word in enumerate(self.words):
            if breathe is not None:
                breathe()
            self._add(j, word)

    def _add(self, j: int, word: bytes) -> None:
        children, end, below = self.children, self.end, self.below
        node = shared = 0
        for byte in word:
            child = children[node].get(byte)
            if child is None:
                break
            node = child
            shared += 1
            known = below[node]
            if len(known) == 1:  # a list that the nodes of one word have together
                below[node] = [known[0], j]
            else:
                known.append(j)
        alone = [j]
        for byte in word[shared:]:
            child = len(children)
            if children[node]:
                children[node][byte] = child
            else:
                children[node] = {byte: child}
            children.append(_CHILDLESS)
            end.append(-1)
            below.append(alone)
            node = child
        assert end[node] < 0, "words must be distinct"
        end[node] = j

    def memory_bytes(self) -> int:
        """An estimate, in bytes."""
        return 500 + 270 * len(self.children) + 150 * len(self.words)

    def any_within(self, node: int, low: int, high: int) -> bool:
        """Whether a word with an index in [low, high] is at or below the node."""
        below = self.below[node]
        at = bisect_left(below, low)
        return at < len(below) and below[at] <= high


class Words(Automaton):
    """``open`` + one word of a trie with an index in a range + ``close``; the label is the index.

    Key: (part, position, low, high), part 0 = in ``open``, 1 = in the trie, 2 + j = in ``close``
    after word j. Used for literals, enumerations and declared property names.
    """

    def __init__(self, trie: WordTrie, opening: bytes = b"", closing: bytes = b"") -> None:
        super().__init__()
        self.trie = trie
        self.opening = opening
        self.closing = closing

    def start(self, low: int = 0, high: int | None = None) -> int:
        """The state before anything was read, for the words with indices in [low, high]."""
        last = len(self.trie.words) - 1 if high is None else high
        assert 0 <= low <= last < len(self.trie.words)
        return self.state((0, 0, low, last) if self.opening else (1, 0, low, last))

    def successor(self, key: tuple[int, int, int, int], byte: int) -> Hashable | None:
        part, position, low, high = key
        if part == 0:
            if self.opening[position] != byte:
                return None
            position += 1
            return (0, position, low, high) if position < len(self.opening) else (1, 0, low, high)
        if part == 1:
            child = self.trie.children[position].get(byte)
            if child is not None and self.trie.any_within(child, low, high):
                return (1, child, low, high)
            word = self._word(position, low, high)
            if word < 0 or not self.closing or self.closing[0] != byte:
                return None
            return (2 + word, 1, 0, 0)
        if position < len(self.closing) and self.closing[position] == byte:
            return (part, position + 1, 0, 0)
        return None

    def _word(self, node: int, low: int, high: int) -> int:
        word = self.trie.end[node]
        return word if low <= word <= high else -1

    def label(self, key: tuple[int, int, int, int]) -> int:
        part, position, low, high = key
        if part == 1 and not self.closing:
            return self._word(position, low, high)
        if part >= 2 and position == len(self.closing):
            return part - 2
        return NOT_ACCEPTING

    def candidates(self, key: tuple[int, int, int, int]) -> Iterable[int]:
        part, position, _, _ = key
        if part == 0:
            return self.opening[position : position + 1]
        if part == 1:
            return [*self.trie.children[position], *self.closing[:1]]
        return self.closing[position : position + 1]

    def advance(self, state: int, text: bytes, at: int) -> tuple[int, int]:
        # as in the base class, without making the states between
        part, position, low, high = self._keys[state]
        opening, closing, words = self.opening, self.closing, self.trie
        count = len(text)
        if part == 0:
            stop = min(len(opening) - position, count - at)
            if opening[position : position + stop] != text[at : at + stop]:
                return DEAD, at
            position += stop
            at += stop
            if position < len(opening):
                return self.state((0, position, low, high)), at
            part, position = 1, 0
            if not closing and self._word(0, low, high) >= 0:
                return self.state((1, 0, low, high)), at
        if part == 1:
            children, end = words.children, words.end
            word = -1
            while at < count:
                child = children[position].get(text[at])
                if child is None:
                    word = end[position]
                    if not closing or word < low or word > high or closing[0] != text[at]:
                        return DEAD, at
                    break
                position = child
                at += 1
                if not closing and low <= end[child] <= high:
                    break
            if word < 0:  # if it is possible here, it was before
                if not words.any_within(position, low, high):
                    return DEAD, at
                return self.state((1, position, low, high)), at
            part, position = 2 + word, 0
        stop = min(len(closing) - position, count - at)
        if not stop or closing[position : position + stop] != text[at : at + stop]:
            return DEAD, at
        return self.state((part, position + stop, 0, 0)), at + stop

    def follow(self, key: tuple[int, int, int, int], trie: TokenTrie, rests: Rests) -> Following:
        part, position, low, high = key
        ids: list[int] = []
        exits: dict[int, list[Rests]] = {}
        if part >= 2:
            self._close(part - 2, position, trie, rests, (ids, exits))
            return ids, exits
        at: Rests | None = rests
        if part == 0:
            at = _along(self.opening[position:], trie, rests, ids)
            position = 0
            if at is not None and not self.closing:
                self._leave(self._word(0, low, high), trie, at, exits)
        if at is None:
            return ids, exits
        if isinstance(at, int):
            self._along_node((position, low, high), trie, at, (ids, exits))
            return ids, exits
        words = self.trie
        ranged = low > 0 or high < len(words.words) - 1
        pending: list[tuple[int, Rests]] = [(position, at)]
        while pending:
            node, here = pending.pop()
            if self.closing and words.end[node] >= 0:
                word = self._word(node, low, high)
                if word >= 0:
                    self._close(word, 0, trie, here, (ids, exits))
            for byte, child in words.children[node].items():
                after = trie.step(here, byte)
                if after is None or (ranged and not words.any_within(child, low, high)):
                    continue
                ids += trie.ids_at(after)
                if trie.is_leaf(after):
                    continue
                if not self.closing:
                    word = self._word(child, low, high)
                    if word >= 0:
                        exits.setdefault(word, []).append(after)
                pending.append((child, after))
        return ids, exits

    def _along_node(
        self, key: tuple[int, int, int], trie: TokenTrie, start: int, out: Following
    ) -> None:
        """The same within the words, from one node of the vocabulary's trie, as most walks are."""
        position, low, high = key
        ids, exits = out
        words, closing, visit = self.trie, self.closing, trie.visit
        children, end = words.children, words.end
        ranged = low > 0 or high < len(words.words) - 1
        pending = [(position, start, visit(start)[0])]
        while pending:
            node, here, after = pending.pop()
            if closing and low <= end[node] <= high:
                self._close(end[node], 0, trie, here, out)
            for byte, child in children[node].items():
                below = after.get(byte)
                if below is None or (ranged and not words.any_within(child, low, high)):
                    continue
                more, ending = visit(below)
                ids += ending
                if more:
                    if not closing and low <= end[child] <= high:
                        exits.setdefault(end[child], []).append(below)
                    pending.append((child, below, more))

    def _close(
        self, word: int, position: int, trie: TokenTrie, rests: Rests, out: Following
    ) -> None:
        """Go along the rest of the closing text."""
        ids, exits = out
        after = _along(self.closing[position:], trie, rests, ids)
        if after is not None:
            self._leave(word, trie, after, exits)

    @staticmethod
    def _leave(word: int, trie: TokenTrie, rests: Rests, exits: dict[int, list[Rests]]) -> None:
        if word >= 0 and not trie.is_leaf(rests):
            exits.setdefault(word, []).append(rests)


def _along(text: bytes, trie: TokenTrie, rests: Rests, ids: list[int]) -> Rests | None:
    """What is left after a text, or None; adds the tokens that end on the way."""
    at = rests
    for byte in text:
        after = trie.step(at, byte)
        if after is None:
            return None
        ids += trie.ids_at(after)
        at = after
    return at
