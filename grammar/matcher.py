"""Grammar and Matcher: the public face of a compiled grammar.

A ``Grammar`` is immutable to its users and shared by any number of requests; a ``Matcher`` is one
request's place in it. Several threads may use matchers of one grammar at once: what is memoised is
read without a lock, what is new is made under the workspace's lock.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from grammar.errors import IllegalToken, Issue, NoLegalContinuation, StepBudgetError
from grammar.fewest import Fewest, FewestSearch
from grammar.machine import Machine
from grammar.masks import Mask
from grammar.nodes import Node, Terminal
from grammar.regular import UNLIMITED, RegexBudgetError
from grammar.states import State
from grammar.style import Style
from grammar.unique import UniqueMachine
from grammar.values import Value, enclosing, is_inside
from grammar.vocabulary import Vocabulary
from grammar.workspace import Workspace

MAX_STEPS = 100_000
"""Steps of regular-language work (some microseconds each) that one mask or token may take."""

MAX_OWN_STATES = 100_000
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Report:
    """What a grammar enforces.

    ``enforced``: keywords met and enforced exactly, or under a bound stated in ``bounds``.
    ``unenforced``: what was left out (only when compiled with ``strict=False``).
    ``bounds``: narrower than the schema, each with its reason; never wider.
    """

    enforced: tuple[str, ...] = ()
    unenforced: tuple[Issue, ...] = ()
    bounds: tuple[str, ...] = ()


class Grammar:
    """A compiled grammar on one vocabulary."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        rules: Sequence[Node],
        root: int,
        styles: Sequence[Style],
        report: Report,
        *,
        workspace: Workspace | None = None,
        own_bytes: int = 0,
    ) -> None:
        """``workspace``: where the rules' terminals are from, if not from the vocabulary's present
        one; ``own_bytes``: an estimate of what terminals hold that no other grammar shares."""
        self.vocabulary = vocabulary
        self.report = report
        self.region_limit: int | None = None
        self._fewest: Fewest | None = None
        self._own_bytes = own_bytes
        terminals = (node.automaton for node in rules if isinstance(node, Terminal))
        self._own = tuple(dict.fromkeys(each for each in terminals if each.private))
        workspace = vocabulary.workspace if workspace is None else workspace
        with workspace.lock:
            kind = UniqueMachine if any(node.compares for node in rules) else Machine
            self._machine = kind(vocabulary, workspace, rules, root, styles)

    def start(self) -> Matcher:
        """A matcher before the first token."""
        return Matcher(self._machine, [self._machine.start], limit=self.region_limit)

    def limited(self, tokens: int | None) -> Grammar:
        """The same grammar with a budget for the texts that one can end (reasoning).

        Args:
            tokens: how many tokens they may have together, closing delimiters not counted; then
                the delimiter is all that can come. A character that the last of them began is
                finished first. None: any number.
        """
        other = copy.copy(self)
        other.region_limit = tokens
        other._fewest = None
        return other

    def shortest(self) -> tuple[int, ...] | None:
        """The tokens of the shortest answer known; see ``Matcher.shortest_end``."""
        return self.start().shortest_end()

    def fewest(self, enough: int | None = None) -> Fewest:
        """How few tokens an answer can have; see ``fewest.py``.

        May take a second or two once, in slices between which other threads get the lock.

        Args:
            enough: so many tokens will do. Where an answer of no more is known, nothing is looked
                for, and nothing is said about how few there could be.
        """
        known = self.shortest()
        if known is not None and enough is not None and len(known) <= enough:
            return Fewest(known, 0)
        if self._fewest is None:
            self._fewest = self._find_fewest(known)
        return self._fewest

    def _find_fewest(self, known: tuple[int, ...] | None) -> Fewest:
        matcher = self.start()
        try:
            search = matcher.search(None if known is None else len(known))
            path = search.path()
            for token in path or ():
                matcher.advance(token)
        except StepBudgetError:
            return Fewest(known, 0)
        except IllegalToken:  # the search knows less than the grammar
            return Fewest(known, search.at_least)
        return Fewest(known if path is None else path, search.at_least)

    @property
    def machine(self) -> Machine:
        """The automaton; whoever uses it holds the workspace's lock."""
        return self._machine

    def memory_bytes(self) -> int:
        """An estimate of the memory this grammar holds by itself, in bytes."""
        rules = 350 * len(self._machine.context.rules)
        own = self._own_bytes + sum(terminal.memory_bytes() for terminal in self._own)
        return self._machine.memory_bytes() + rules + own

    @property
    def is_outgrown(self) -> bool:
        """Whether it had better be made anew: its own terminals have met very many states, or it
        holds on to a generation of terminals that new grammars do not share."""
        if self._machine.context.workspace is not self.vocabulary.workspace:
            return True
        return any(len(terminal) > MAX_OWN_STATES for terminal in self._own)

    @property
    def states(self) -> int:
        """States met so far."""
        return len(self._machine)


class Matcher:
    """One request's place in a grammar: mask, advance, roll back."""

    __slots__ = ("_finished", "_limit", "_machine", "_path", "_spent", "_vocabulary")

    def __init__(
        self,
        machine: Machine,
        path: list[State],
        finished: int = 0,
        *,
        limit: int | None = None,
        spent: Sequence[int] = (0,),
    ) -> None:
        self._machine = machine
        self._vocabulary = machine.vocabulary
        self._path = path  # the state after each advanced token; the first is the start
        self._finished = finished  # how many end-of-sequence tokens were advanced, at the end
        self._limit = limit
        self._spent = list(spent)  # of the limit, after each token of the path; only with a limit
        if limit is not None and len(path) == 1:
            path[0] = self._within_limit(path[0], 0)

    @property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary that token ids refer to."""
        return self._vocabulary

    def _working(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do one piece of work, under the workspace's lock and with fuel for it."""
        workspace = self._machine.context.workspace
        with workspace.lock:
            builder = workspace.builder
            builder.refuel(MAX_STEPS)
            try:
                return work(*args, **kwargs)
            except RegexBudgetError:
                raise StepBudgetError(MAX_STEPS, self.describe()) from None
            finally:
                builder.refuel(UNLIMITED)

    def mask(self) -> Mask:
        """The legal tokens: uint32[ceil(V/32)], bit ``i`` of word ``w`` is token ``32*w + i``.

        The array is shared and read-only. After the end nothing is legal and the mask is empty.

        Raises:
            NoLegalContinuation: nothing may follow although the text is not complete, because the
                vocabulary lacks a byte that the grammar needs.
            StepBudgetError: finding out would take more than ``MAX_STEPS`` (as in ``advance``,
                ``is_allowed`` and ``forced_bytes``); the matcher is unchanged.
        """
        state = self._path[-1]
        if self._finished:
            empty = np.zeros(self._vocabulary.mask_words, dtype=np.uint32)
            empty.flags.writeable = False
            return empty
        tokens = state.tokens
        mask = None if tokens is None else tokens.mask
        if mask is None:
            mask = self._working(self._machine.fill_mask, state)
        if state.stuck:
            raise NoLegalContinuation(self.describe())
        return mask

    def legal_ids(self) -> npt.NDArray[np.int32] | None:
        """The legal token ids, ascending, if they are few (up to some hundreds), else None."""
        if self._finished:
            return np.zeros(0, dtype=np.int32)
        self.mask()
        tokens = self._path[-1].tokens
        return tokens.ids if tokens is not None and tokens.is_few else None

    @property
    def knows_mask(self) -> bool:
        """Whether ``mask`` and ``legal_ids`` cost a look-up here."""
        state = self._path[-1]
        return bool(self._finished) or state.tokens is not None

    def has_choice(self) -> bool:
        """Whether several tokens are legal for sure, not all of them end tokens, told without a
        mask. False where there is one, or none, or that can't be told so."""
        if self._finished:
            return False
        return self._working(self._machine.has_choice, self._path[-1])

    def may_follow(self, among: Sequence[int]) -> bool:
        """Whether one of some bytes may come next, as far as the grammar goes."""
        if self._finished:
            return False
        state = self._path[-1]
        return self._working(lambda: any(True for _ in self._machine.following(state, among)))

    def may_outgrow(self, text: bytes) -> bool:
        """Whether a legal token begins with a text, which is legal here, and is longer."""
        state = self._path[-1]
        trie = self._vocabulary.trie
        node = 0
        for byte in text:
            node = trie.visit(node)[0].get(byte, -1)
            if node < 0:
                return False
        if self._finished or not trie.visit(node)[0]:
            return False
        return self._working(self._goes_on, state, text, node)

    def _goes_on(self, state: State, text: bytes, node: int) -> bool:
        after = self._machine.run(state, text)
        return after is not None and self._machine.goes_on(after, node)

    def is_allowed(self, token: int) -> bool:
        """Whether the token is legal now; ids outside the vocabulary are not."""
        if not 0 <= token < len(self._vocabulary.tokens) or self._finished:
            return False
        state = self._path[-1]
        tokens = state.tokens
        mask = None if tokens is None else tokens.mask
        if mask is not None:
            return bool(int(mask[token >> 5]) >> (token & 31) & 1)
        return self._next(state, token) is not None

    def _next(self, state: State, token: int) -> State | None:
        if token in self._vocabulary.eos:
            return state if state.accepts else None
        return self._working(self._machine.advance, state, token)

    def advance(self, token: int) -> None:
        """Take one token.

        Raises:
            IllegalToken: it is not legal here; the matcher is unchanged.
        """
        state = self._path[-1]
        after = None if self._finished else state.edges.get(token)
        if after is None:
            tokens = state.tokens
            mask = None if tokens is None else tokens.mask
            if self._finished or not 0 <= token < len(self._vocabulary.tokens):
                pass
            elif mask is None or int(mask[token >> 5]) >> (token & 31) & 1:
                after = self._next(state, token)
            if after is None:
                raise IllegalToken(f"token {token} is not legal: {self.describe()}")
            if token in self._vocabulary.eos:
                self._finished = 1
                self._path.append(after)
                if self._limit is not None:
                    self._spent.append(self._spent[-1])
                return
            state.edges[token] = after
        if self._limit is not None:
            spent = self._spent[-1] + (state.runs and after.runs)
            self._spent.append(spent)
            after = self._within_limit(after, spent)
        self._path.append(after)

    def _within_limit(self, state: State, spent: int) -> State:
        """The state, or its end where the budget of a text is used up."""
        assert self._limit is not None
        if not state.runs or spent < self._limit:
            return state
        with self._vocabulary.workspace.lock:
            return self._machine.hurry(state)

    def is_accepting(self) -> bool:
        """Whether the text so far is complete; exactly then end-of-sequence tokens are legal."""
        return not self._finished and self._path[-1].accepts

    def is_finished(self) -> bool:
        """Whether an end-of-sequence token was advanced."""
        return bool(self._finished)

    def forced_bytes(self) -> bytes:
        """The bytes that every legal continuation begins with; empty if there is a choice."""
        if self._finished:
            return b""
        return self._working(self._machine.forced, self._path[-1])

    def distance(self) -> int | None:
        """Bytes of a text that completes the answer, the shortest one known (see ``distance.py``).

        None where none is known, or looking for it takes too much work.
        """
        if self._finished:
            return 0
        with suppress(StepBudgetError):
            return self._working(lambda: self._machine.distance.size(self._hurried()))
        return None

    def shortest_end(self) -> tuple[int, ...] | None:
        """Tokens that complete the answer, as few as are known to; without the end token.

        None where no end is known, or the vocabulary can't spell it.
        """
        if self._finished:
            return ()
        with suppress(StepBudgetError):
            return self._working(lambda: self._machine.distance.tokens(self._hurried()))
        return None

    def search(self, most: int | None) -> FewestSearch:
        """A search for the fewest tokens that complete the answer, done as far as it goes.

        ``most``: an answer of so many tokens is known. Raises ``StepBudgetError`` where not even
        the beginning can be told.
        """
        found = self._working(FewestSearch, self._machine, self._path[-1], most)
        while not found.is_over:
            self._working(found.go_on)
        return found

    def hurry(self) -> None:
        """End the text with a budget that is being written, if there is one, as if that were used
        up: what ``distance`` and ``shortest_end`` say of a matcher with a limit is said of this."""
        with self._vocabulary.workspace.lock:
            self._path[-1] = self._hurried()

    def _hurried(self) -> State:
        state = self._path[-1]
        limited = self._limit is not None and state.runs
        return self._machine.hurry(state) if limited else state

    def value_of(self, tokens: Sequence[int]) -> Value | None:
        """The innermost value within which the last tokens advanced, ``tokens``, were written.

        None where they were not all ordinary ones, or more than were advanced.
        """
        if self._finished or len(tokens) >= len(self._path):
            return None
        with suppress(StepBudgetError):
            return self._working(enclosing, self._machine, self._path[-1 - len(tokens)], tokens)
        return None

    def is_inside(self, value: Value) -> bool:
        """Whether the answer may still be within a value that ``value_of`` gave."""
        return not self._finished and is_inside(self._path[-1], value)

    def rollback(self, count: int) -> None:
        """Undo the last ``count`` tokens.

        Raises:
            ValueError: fewer tokens were advanced.
        """
        if not 0 <= count < len(self._path):
            raise ValueError(f"can't undo {count} of {len(self._path) - 1} tokens")
        if count:
            del self._path[-count:]
            if self._limit is not None:
                del self._spent[-count:]
            self._finished = 0

    def copy(self) -> Matcher:
        """An independent matcher at the same place."""
        return Matcher(
            self._machine,
            list(self._path),
            self._finished,
            limit=self._limit,
            spent=self._spent,
        )

    @property
    def state_id(self) -> int:
        """A number that is the same for matchers in the same state of one grammar.

        Valid while the grammar's memos live; for statistics, not for storing.
        """
        return id(self._path[-1])

    def describe(self) -> str:
        """Where the grammar stands, in words, for error messages."""
        if self._finished:
            return "the text has ended"
        return self._machine.describe(self._path[-1])
