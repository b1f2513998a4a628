"""Objects whose keys come in any order (``key_order="free"``): required ones there, none twice.

How far such an object has come is a set: ``Progress.done`` has a bit for each declared property
that was written, so the orders that lead to the same set share their states, and states are made
only of the sets that are met. The terminal of the next key is a trie of all names with a *barred*
set, which is cut to what lies below wherever it stands in the trie: deeper states, most of a
terminal, are shared by all sets that agree on the few names left.

Invariant: as in ``objects.py``, a progress that can be reached can be completed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence

from grammar.automaton import NOT_ACCEPTING, Automaton
from grammar.objects import Extra, ObjectNode, Progress
from grammar.words import WordTrie
from grammar.workspace import Workspace


class FreeWords(Automaton):
    """``opening`` + one word of a trie that is not barred + ``closing``; the label is its index.

    Key: (part, position, barred), part 0 = in ``opening``, 1 = in the trie, 2 + j = in ``closing``
    after word j. Bit i of ``barred`` stands for the i-th of the words at or below the trie's node.

    Args:
        trie: of words in ascending order, so that the words below a node are neighbours.
    """

    def __init__(self, trie: WordTrie, opening: bytes, closing: bytes) -> None:
        super().__init__()
        assert opening
        assert closing
        assert list(trie.words) == sorted(trie.words)
        self.trie = trie
        self.opening = opening
        self.closing = closing

    def start(self, barred: int) -> int:
        """The state before anything was read; some word must not be barred."""
        assert self._any(0, barred)
        return self.state((0, 0, barred))

    def _any(self, node: int, barred: int) -> bool:
        return barred != (1 << len(self.trie.below[node])) - 1

    def successor(self, key: tuple[int, int, int], byte: int) -> Hashable | None:
        part, position, barred = key
        if part == 0:
            if self.opening[position] != byte:
                return None
            position += 1
            return (0, position, barred) if position < len(self.opening) else (1, 0, barred)
        trie = self.trie
        if part == 1:
            child = trie.children[position].get(byte)
            if child is not None:
                skipped = trie.below[child][0] - trie.below[position][0]
                left = barred >> skipped & (1 << len(trie.below[child])) - 1
                if self._any(child, left):
                    return (1, child, left)
            word = trie.end[position]  # the first of those below, since prefixes come first
            if word < 0 or barred & 1 or self.closing[0] != byte:
                return None
            return (2 + word, 1, 0)
        if position < len(self.closing) and self.closing[position] == byte:
            return (part, position + 1, 0)
        return None

    def label(self, key: tuple[int, int, int]) -> int:
        part, position, _ = key
        return part - 2 if part >= 2 and position == len(self.closing) else NOT_ACCEPTING

    def candidates(self, key: tuple[int, int, int]) -> Iterable[int]:
        part, position, _ = key
        if part == 0:
            return self.opening[position : position + 1]
        if part == 1:
            return [*self.trie.children[position], *self.closing[:1]]
        return self.closing[position : position + 1]


class AnyOrderObjectNode(ObjectNode):
    """An object whose properties, declared and undeclared, come in any order."""

    def __init__(
        self,
        names: Sequence[bytes],
        values: Sequence[int],
        required: Sequence[bool],
        extras: Sequence[Extra],
        least: int = 0,
        most: int | None = None,
        wanted: int = 0,
    ) -> None:
        order = sorted(range(len(names)), key=names.__getitem__)
        super().__init__(
            [names[i] for i in order],
            [values[i] for i in order],
            [required[i] for i in order],
            extras,
            least,
            most,
            wanted,
        )
        self._required = sum(1 << place for place, i in enumerate(order) if required[i])
        self._every = (1 << len(order)) - 1

    def _owed(self, at: Progress) -> int:
        return (self._required & ~at.done).bit_count()

    def _barred(self, at: Progress) -> int:
        """The declared properties that can't come next: written, or no room but for required."""
        if self._slack(at) > 0:
            return at.done
        return at.done | self._every & ~self._required

    def _declared_next(self, at: Progress) -> bool:
        return self._barred(at) != self._every

    def _key(
        self, workspace: Workspace, at: Progress, opening: bytes, closing: bytes
    ) -> tuple[Automaton, int]:
        trie = workspace.trie(self.names)
        words = workspace.shared(
            ("free words", id(trie), opening, closing), lambda: FreeWords(trie, opening, closing)
        )
        return words, words.start(self._barred(at))

    def _owed_next(self, at: Progress) -> Collection[int]:
        left = self._required & ~at.done
        return [i for i in range(len(self.names)) if left >> i & 1]

    def _extras_fit(self, at: Progress) -> bool:
        return True

    def _after_key(self, at: Progress, index: int) -> Progress:
        return self._then(at, at.done | 1 << index)

    def _done_at_extra(self, at: Progress) -> int:
        return at.done
