"""Terminals: lazily determinised automata over bytes, trimmed so that no state is a dead end.

A state is an int; what it means is its *key*, a hashable value that the subclass chooses. Keys are
interned, so equal situations are one state, whichever schema or request reached them. Invariant:
from every state that exists some accepting state can be reached (``successor`` returns None
otherwise), so a token that keeps all automata alive can always be continued.

An accepting state carries a *label* (an int >= 0), which tells the grammar which of several
continuations follows: which property a key named, for instance.

Read next: ``words.py`` for fixed words, ``strings.py`` for JSON strings, ``walk.py`` for how a mask
comes out of an automaton.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from grammar.table import StepTable

if TYPE_CHECKING:
    from grammar.endings import Ending
    from grammar.regular import Rx
    from grammar.safe import Even
    from grammar.trie import Rests, TokenTrie
    from grammar.vocabulary import Vocabulary
    from grammar.walk import Free, Less, Walk

Outcome = int | str
DEAD = -1
NOT_ACCEPTING = -1
_UNASKED = (-1,)
TOKENS = 256
"""A step beyond the bytes: ``TOKENS + id`` is one whole token (see ``text.OneToken``)."""


#: The tokens that stay, and label -> what is left where they leave (see ``walk.py``).
Following: TypeAlias = "tuple[list[int], dict[int, list[Rests]]]"


class Automaton:
    """Base class: interning, memoised stepping, and the transition table for wide walks.

    Subclasses give ``successor``, ``label`` and ``candidates``; ``representative``
    where states share their masks, ``even`` and ``safe`` where much can be told at once.
    """

    def __init__(self) -> None:
        self._index: dict[Hashable, int] = {}
        self._keys: list[Any] = []
        #: What is known of ``step``, by state.
        self.rows: list[dict[int, int]] = []
        self.labels: list[int] = []
        self._representatives: list[int] = []
        self._live: dict[int, tuple[int, ...]] = {}
        self._tried: dict[int, tuple[int, ...] | None] = {}
        #: The walks that are known, by state and rests (see ``walk.py``).
        self.walks: dict[tuple[int, Rests], Walk] = {}
        self._walk_bytes = 0
        #: The steps of wide walks.
        self.table = StepTable()
        #: How states can be completed, as far as that is known (see ``endings.py``).
        self.endings: dict[int, tuple[Ending, ...]] = {}

    #: Whether labels tell texts apart that walks do not (see ``keys.py``).
    remembers = False
    #: Whether nothing can follow, so that walks need not look for exits.
    is_last = False
    #: Whether it begins an array whose items are compared (see ``unique.py``).
    opens_compared = False
    #: Whether some steps are whole tokens; ``tokens`` tells which.
    takes_tokens = False
    #: Whether a budget can end the text; see ``marks.TimedText``.
    is_timed = False
    #: Whether it belongs to one grammar only, so that nothing shared may keep its walks.
    private = False

    def outcome(self, label: int) -> Outcome:
        """What a label tells the node that pushed the frame below."""
        return label

    # -- what a subclass says -------------------------------------------------------------------

    def successor(self, key: Any, byte: int) -> Hashable | None:
        """The key after ``byte``, or None where nothing accepted could follow."""
        raise NotImplementedError

    def label(self, key: Any) -> int:
        """The label if the key's state accepts, else ``NOT_ACCEPTING``."""
        raise NotImplementedError

    def candidates(self, key: Any) -> Iterable[int] | None:
        """A superset of the bytes that may follow, or None where it is wide (most bytes)."""
        raise NotImplementedError

    def representative(self, key: Any) -> Hashable:
        """A key whose state has the same mask (counters saturated, for instance)."""
        return key  # type: ignore[no-any-return]

    def even(self, key: Any) -> Even | None:
        """What tells at once which plain tokens stay inside, where that can be said."""
        return None

    def safe(self, key: Any) -> tuple[int, int] | None:
        """A set of characters (see ``safe.py``) and N: up to N of them in a row stay inside, and
        no part of them leaves; None where nothing is known."""
        return None

    #: ASCII bytes that ``spans`` says nothing about.
    exceptions: Sequence[int] = ()

    def spans(self, key: Any) -> Iterable[tuple[int, int, Hashable]] | None:
        """(first, last, the key after any of these bytes) for all ASCII bytes that may follow but
        the ``exceptions``; None where that is not known at once."""
        return None

    def is_ascii(self, key: Any) -> bool:
        """Whether no byte from 0x80 on may follow; asked where ``spans`` says something."""
        return False

    def loops(self, state: int) -> bool:
        """Whether every plain token leads from the state to itself."""
        return False

    def is_roomy(self, state: int) -> bool:
        """Whether a state is within a string to which any piece of a token may be added, and still
        more, whatever it is."""
        return False

    def free(self, key: Any) -> Free | None:
        """What is free text from here on, if that is all there is (see ``bodies.py``)."""
        return None

    def follow(self, key: Any, trie: TokenTrie, rests: Rests) -> Following | None:
        """The walk over some rests, where there is a shorter way than over single states."""
        return None

    def completion(self, state: int) -> bytes | None:
        """The shortest text that completes the terminal, where it knows that by itself."""
        return None

    def own_walk(self, state: int, vocabulary: Vocabulary, rests: Rests) -> Walk | None:
        """The walk from a state, where the terminal has a way of its own to make it."""
        return None

    def less(self, key: Any) -> Less | None:
        """The state whose walks these are, but for some words (see ``bodies.py``)."""
        return None

    def tokens(self, state: int) -> Collection[int]:
        """The tokens that may be taken as a whole, whatever their bytes."""
        return ()

    def runs(self, state: int) -> bool:
        """Whether the text goes on that a budget can end."""
        return False

    def hurried(self, state: int) -> tuple[Automaton, int]:
        """An automaton and its state that lead to the end of the text, and nowhere else."""
        raise AssertionError(f"{type(self).__name__} is not timed")

    # -- states ---------------------------------------------------------------------------------

    def state(self, key: Hashable) -> int:
        """The state of a key."""
        found = self._index.get(key)
        if found is None:
            found = len(self._keys)
            self._index[key] = found
            self._keys.append(key)
            self.rows.append({})
            self.labels.append(self.label(key))
            self._representatives.append(-1)
        return found

    def key(self, state: int) -> Any:
        """The key of a state."""
        return self._keys[state]

    def __len__(self) -> int:
        return len(self._keys)

    def step(self, state: int, byte: int) -> int:
        """The state after ``byte``, or ``DEAD``."""
        row = self.rows[state]
        found = row.get(byte)
        if found is None:
            key = self.successor(self._keys[state], byte)
            found = DEAD if key is None else self.state(key)
            row[byte] = found
        return found

    def advance(self, state: int, text: bytes, at: int) -> tuple[int, int]:
        """From ``state`` on along ``text[at:]``, which is not empty, up to where the terminal may
        end: (the state there or at the end of the text, bytes of the text up to there), or
        ``DEAD`` and anything."""
        rows, labels = self.rows, self.labels
        count = len(text)
        while at < count:
            after = rows[state].get(text[at])
            if after is None:
                after = self.step(state, text[at])
            if after == DEAD:
                return DEAD, at
            at += 1
            if labels[after] != NOT_ACCEPTING:
                return after, at
            state = after
        return state, at

    def live(self, state: int) -> tuple[int, ...]:
        """The bytes that may follow, ascending."""
        found = self._live.get(state)
        if found is None:
            tried = self.tried(state)
            found = tuple(
                b
                for b in (range(256) if tried is None else sorted(tried))
                if self.step(state, b) != DEAD
            )
            self._live[state] = found
        return found

    def is_wide(self, state: int) -> bool:
        """Whether most bytes may follow, so that a vectorised walk pays."""
        return self.tried(state) is None

    def tried(self, state: int) -> tuple[int, ...] | None:
        """The distinct ``candidates``, or None where most bytes may follow."""
        found = self._tried.get(state, _UNASKED)
        if found is _UNASKED:
            candidates = self.candidates(self._keys[state])
            found = None if candidates is None else tuple(dict.fromkeys(candidates))
            self._tried[state] = found
        return found

    def representative_of(self, state: int) -> int:
        """The state whose mask this state shares."""
        found = self._representatives[state]
        if found < 0:
            key = self._keys[state]
            other = self.representative(key)
            found = state if other == key else self.state(other)
            self._representatives[state] = found
        return found

    def memory_bytes(self) -> int:
        """An estimate of what the automaton and its walks hold, in bytes."""
        return self._walk_bytes + self.table.nbytes + 400 * len(self._keys)

    def keep_walk(self, state: int, rests: Rests, walk: Walk, size: int) -> None:
        """Memoise a walk, which takes ``size`` bytes beside its entry."""
        self.walks[state, rests] = walk
        self._walk_bytes += 200 + size


class RegularAscii(Automaton):
    """Regular languages over ASCII characters, one byte each: numbers and white space.

    The key is the derivative that remains, so all languages of one builder share this automaton.
    """

    def start(self, language: Rx) -> int:
        """The state before anything was read. The language must not be empty."""
        return self.state(language)

    def successor(self, key: Rx, byte: int) -> Rx | None:
        for low, high, target in key.transitions():
            if low <= byte <= high:
                return target
        return None

    def label(self, key: Rx) -> int:
        return 0 if key.nullable else NOT_ACCEPTING

    def candidates(self, key: Rx) -> Iterable[int]:
        return [b for low, high, _ in key.transitions() for b in range(low, min(high, 127) + 1)]
