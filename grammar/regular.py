"""Regular languages over characters: hash-consed expressions closed under all Boolean operations.

`RegexBuilder` makes and owns the nodes (`Rx`). Its constructors bring expressions into a normal
form (flat sorted unions and intersections, merged character classes, joined counters, the laws
of the empty word, of nothing and of everything), so that the derivatives of an expression are few
and two ways of writing a state usually meet in one object. Counters are never unrolled.

The method is Brzozowski's (JACM 1964) in the form of Owens, Reppy & Turon (JFP 2009); see
`grammar.derivatives`.

Invariant: every rewriting keeps the language, exactly. Work is metered: `budget` steps are granted
at birth and by `refuel`, and `RegexBudgetError` stops whoever needs more. Nodes live as long as
their builder, and they refer to each other in cycles. A builder is not locked: its caller makes
sure that one thread at a time uses it. Long work can give way (`working`, `breathe`) between one
node and the next: memo slots hold proved answers only, so it does no harm if they are filled by
somebody else meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from grammar import decide, normal_forms
from grammar.budget import Clock
from grammar.charset import EVERYTHING, CharSet, UnicodeProperties
from grammar.derivatives import raw_transitions
from grammar.normal_forms import as_repeat, derive_facts, join_neighbours
from grammar.rx import Automaton, Kind, RegexBudgetError, Rx, Transition
from grammar.worklock import WorkLock

__all__ = ["Automaton", "Kind", "RegexBudgetError", "RegexBuilder", "Rx", "Transition"]

DEFAULT_BUDGET: Final = 1_000_000
#: Fuel for whom nobody counts.
UNLIMITED: Final = 1 << 60
#: Ranges of characters that `is_universal` looks at before it says "not known to be".
UNIVERSAL_LIMIT: Final = 1000


Account: TypeAlias = "tuple[int, set[Rx], WorkLock | None, Clock | None]"


class RegexBuilder:
    """Makes, interns and steps regular expressions; see the module's docstring."""

    def __init__(self, budget: int = DEFAULT_BUDGET) -> None:
        self._fuel = budget
        self._lock: WorkLock | None = None
        self._clock: Clock | None = None
        self._interned: dict[tuple[Hashable, ...], Rx] = {}
        #: Nodes whose emptiness is being decided by way of their lengths; see `grammar.decide`.
        self.deciding: set[Rx] = set()
        self.properties: Final = UnicodeProperties()
        self.empty: Final = self._make(Kind.EMPTY)
        self.epsilon: Final = self._make(Kind.EPSILON)
        self.any_char: Final = self._make(Kind.CHARS, chars=EVERYTHING)
        #: Every word.
        self.universe: Final = self._make(Kind.REPEAT, (self.any_char,), hi=None)

    # -- fuel ----------------------------------------------------------------------------------

    @property
    def fuel(self) -> int:
        """The steps left."""
        return self._fuel

    @property
    def node_count(self) -> int:
        """How many distinct expressions this builder holds."""
        return len(self._interned)

    def refuel(self, budget: int) -> None:
        """Grant a fresh number of steps (for one compilation, say)."""
        self._fuel = budget

    def release(self) -> None:
        """Let go of all expressions, which refer to each other in circles; nobody uses them now."""
        for node in self._interned.values():
            node._raw = node._transitions = node._layers = None
            node.parts = ()
        self._interned.clear()

    def spend(self, steps: int) -> None:
        """Use up fuel.

        Raises:
            RegexBudgetError: there is not enough left.
        """
        self._use(steps)
        self.breathe()

    def _use(self, steps: int) -> None:
        self._fuel -= steps
        if self._fuel < 0:
            raise RegexBudgetError("the regular expression needs more steps than its budget allows")

    @contextmanager
    def working(
        self, steps: int, lock: WorkLock | None = None, clock: Clock | None = None
    ) -> Iterator[None]:
        """Work on an account of its own: steps, who is given way to at safe points, and the time.

        Whoever works on the builder in between has another account; what both make is shared.
        """
        before = self._account()
        self._set_account((steps, set(), lock, clock))
        try:
            yield
        finally:
            self._set_account(before)

    def _account(self) -> Account:
        return self._fuel, self.deciding, self._lock, self._clock

    def _set_account(self, account: Account) -> None:
        self._fuel, self.deciding, self._lock, self._clock = account

    def breathe(self) -> None:
        """A safe point: everything shared is whole, and others may work on it now if they wait.

        Raises:
            OutOfTimeError: there is a clock, and the time is up.
        """
        lock = self._lock
        if lock is not None and lock.is_wanted():
            mine = self._account()
            self._set_account((UNLIMITED, set(), None, None))
            lock.give_way()
            self._set_account(mine)
        if self._clock is not None:
            self._clock.look()

    # -- constructors --------------------------------------------------------------------------

    def chars(self, chars: CharSet) -> Rx:
        """One character of the set."""
        return self._make(Kind.CHARS, chars=chars) if chars else self.empty

    def literal(self, text: str) -> Rx:
        """Exactly this text (which holds no lone surrogates)."""
        node = self.epsilon
        for character in reversed(text):
            self.breathe()
            single = self.chars(CharSet.of(character))
            if single is self.empty:
                return self.empty
            node = single if node is self.epsilon else self._make(Kind.CONCAT, (single, node))
        return node

    def literals(self, texts: Iterable[str]) -> Rx:
        """Any one of the texts, as a minimal trie; linear in their total length after a sort."""
        words = sorted(set(texts))
        # Open trie nodes along the current word: [accepting, [(character, finished child)]].
        spine: list[tuple[list[bool], list[tuple[int, Rx]]]] = [([False], [])]
        previous = ""

        def close(depth: int) -> None:
            while len(spine) > depth + 1:
                self.breathe()
                accepting, children = spine.pop()
                child = self._branch(accepting[0], children)
                if child is not self.empty:
                    spine[-1][1].append((ord(previous[len(spine) - 1]), child))

        for word in words:
            shared = 0
            while shared < min(len(word), len(previous)) and word[shared] == previous[shared]:
                shared += 1
            close(shared)
            if any("\ud800" <= character <= "\udfff" for character in word):
                previous = word[:shared]
                continue
            self._use((len(word) - shared) // 2)
            spine.extend(([False], []) for _ in range(len(word) - shared))
            spine[-1][0][0] = True
            previous = word
        close(0)
        return self._branch(spine[0][0][0], spine[0][1])

    def concat(self, *parts: Rx) -> Rx:
        """The parts one after the other."""
        factors: list[Rx] = []  # the last part stays whole: it may be a long list already
        for index, part in enumerate(parts):
            at = part
            if at is self.empty:
                return self.empty
            while at.kind is Kind.CONCAT and index + 1 < len(parts):
                factors.append(at.parts[0])
                at = at.parts[1]
            factors.append(at)
        node = self.epsilon
        for factor in reversed(factors):
            node = self._cons(factor, node)
        return node

    def union(self, *parts: Rx) -> Rx:
        """Any one of the parts."""
        pool: dict[Rx, None] = {}
        for part in parts:
            if part.kind is Kind.UNION:
                pool.update(dict.fromkeys(part.parts))
            elif part is not self.empty:
                pool[part] = None
        if len(pool) <= 1:
            return next(iter(pool), self.empty)
        if self.universe in pool or any(
            part.kind is Kind.COMPLEMENT and part.parts[0] in pool for part in pool
        ):
            return self.universe
        self.spend(len(pool) // 8)
        merged = normal_forms.merge_union(self, sorted(pool, key=_by_ident))
        if len(merged) <= 1:
            return merged[0] if merged else self.empty
        if any(part.kind is Kind.UNION or part is self.universe for part in merged):
            return self.union(*merged)
        return self._make(Kind.UNION, tuple(sorted(merged, key=_by_ident)))

    def intersect(self, *parts: Rx) -> Rx:
        """What all parts accept; with no parts, everything."""
        pool: dict[Rx, None] = {}
        for part in parts:
            if part.kind is Kind.INTERSECT:
                pool.update(dict.fromkeys(part.parts))
            elif part is self.empty:
                return self.empty
            elif part is not self.universe:
                pool[part] = None
        if self.epsilon in pool:
            return self.epsilon if all(part.nullable for part in pool) else self.empty
        merged = normal_forms.merge_intersect(self, sorted(pool, key=_by_ident))
        if merged is None:
            return self.empty
        if len(merged) <= 1:
            return merged[0] if merged else self.universe
        shortest = max(part.lo_length for part in merged)
        if any(part.hi_length is not None and part.hi_length < shortest for part in merged):
            return self.empty
        return self._make(Kind.INTERSECT, tuple(sorted(merged, key=_by_ident)))

    def complement(self, node: Rx) -> Rx:
        """Every word that `node` does not accept."""
        if node.kind is Kind.COMPLEMENT:
            return node.parts[0]
        if node is self.empty:
            return self.universe
        if node is self.universe:
            return self.empty
        return self._make(Kind.COMPLEMENT, (node,))

    def difference(self, node: Rx, without: Rx) -> Rx:
        """The words of `node` that `without` does not accept."""
        return self.intersect(node, self.complement(without))

    def repeat(self, node: Rx, lo: int, hi: int | None) -> Rx:
        """`lo` to `hi` words of `node` in a row (`hi` None: any number from `lo` on).

        Raises:
            ValueError: `lo` is negative or greater than `hi`.
        """
        if lo < 0 or (hi is not None and hi < lo):
            raise ValueError(f"not a repetition: {lo}..{hi}")
        if hi == 0 or node is self.epsilon or (node is self.empty and lo == 0):
            return self.epsilon
        if node is self.empty or (lo == 1 and hi == 1):
            return node
        if node.kind is Kind.REPEAT:
            joined = normal_forms.repeat_of_repeat(node.lo, node.hi, lo, hi)
            if joined is not None:
                return self.repeat(node.parts[0], *joined)
        if node.nullable:
            lo = 0
        if node.kind is Kind.UNION and lo == 0:
            simpler = normal_forms.loosen(self, node, hi)
            if simpler is not node:
                return self.repeat(simpler, 0, hi)
        return self._make(Kind.REPEAT, (node,), lo=lo, hi=hi)

    def star(self, node: Rx) -> Rx:
        """Any number of words of `node` in a row."""
        return self.repeat(node, 0, None)

    def optional(self, node: Rx) -> Rx:
        """A word of `node` or the empty word."""
        return self.union(self.epsilon, node)

    def automaton(self, machine: Automaton, state: Hashable) -> Rx:
        """A state of a deterministic automaton as a leaf; see `Automaton` for its duties."""
        return self._make(Kind.AUTOMATON, payload=(machine, state))

    def equation(self, name: Hashable, nullable: bool) -> Rx:
        """A language that is defined by an equation over itself; `define` gives its right side.

        `name` identifies the equation: the same name gives the same node again, defined or not.
        """
        return self._make(Kind.EQUATION, lo=int(nullable), payload=(name,))

    def define(self, variable: Rx, definition: Rx) -> None:
        """State that the language of `variable` is that of `definition`.

        In `definition` the variable stands only behind at least one character, so the equation has
        exactly one solution (Arden's rule for one variable, and its extension to Boolean systems).
        """
        assert variable.kind is Kind.EQUATION
        assert not variable.parts
        assert definition.nullable == variable.nullable
        variable.parts = (definition,)

    # -- questions (memoised on the node) --------------------------------------------------------

    def transitions(self, node: Rx) -> tuple[Transition, ...]:
        """See `Rx.transitions`."""
        if node._transitions is None:
            rows = raw_transitions(self, node)
            if not node.clean:
                rows = tuple(row for row in rows if not decide.is_empty(self, row[2]))
            node._transitions = join_neighbours(rows)
        return node._transitions

    def is_empty(self, node: Rx) -> bool:
        """See `Rx.is_empty`."""
        return decide.is_empty(self, node)

    def is_universal(self, node: Rx) -> bool:
        """See `Rx.is_universal`."""
        return decide.is_universal(self, node, UNIVERSAL_LIMIT)

    def min_length(self, node: Rx) -> int:
        """See `Rx.min_length`."""
        if node is self.empty:
            raise ValueError("the empty language has no shortest word")
        return decide.min_length(self, node)

    def max_length(self, node: Rx) -> int | None:
        """See `Rx.max_length`."""
        if node is self.empty:
            raise ValueError("the empty language has no longest word")
        return decide.max_length(self, node)

    def length_window_nonempty(self, node: Rx, lo: int, hi: int | None) -> bool:
        """Whether some word has between `lo` and `hi` characters (`hi` None: no upper bound).

        Raises:
            RegexBudgetError: the fuel ran out first.
        """
        return decide.length_window_nonempty(self, node, lo, hi)

    # -- normal forms ----------------------------------------------------------------------------

    def _cons(self, head: Rx, tail: Rx) -> Rx:
        """`head` then `tail`, where `head` is no concatenation (or `tail` is empty-word)."""
        if tail is self.epsilon:
            return head
        if head is self.epsilon:
            return tail
        first, rest = tail.parts if tail.kind is Kind.CONCAT else (tail, self.epsilon)
        if first is self.universe and head.nullable:
            return tail
        if head is self.universe and first.nullable:
            return self._cons(head, rest)
        if head.kind is Kind.REPEAT or first.kind is Kind.REPEAT:
            body, lo, hi = as_repeat(head)
            other, low, high = as_repeat(first)
            if first is body:
                other, low, high = first, 1, 1
            elif head is other:
                body, lo, hi = head, 1, 1
            if body is other:
                most = None if hi is None or high is None else hi + high
                return self._cons(self.repeat(body, lo + low, most), rest)
        return self._make(Kind.CONCAT, (head, tail))

    def _branch(self, accepting: bool, children: Sequence[tuple[int, Rx]]) -> Rx:
        """A trie node; children come in ascending order of their characters."""
        rows = join_neighbours([(code, code, child) for code, child in children])
        if not rows:
            return self.epsilon if accepting else self.empty
        if len({target for _, _, target in rows}) == 1:
            chars = self.chars(CharSet((lo, hi) for lo, hi, _ in rows))
            only = self._cons(chars, rows[0][2])
            return self.union(self.epsilon, only) if accepting else only
        return self._make(Kind.BRANCH, lo=int(accepting), payload=rows)

    # -- interning -------------------------------------------------------------------------------

    def _make(
        self,
        kind: Kind,
        parts: tuple[Rx, ...] = (),
        *,
        chars: CharSet | None = None,
        lo: int = 0,
        hi: int | None = 0,
        payload: tuple[Hashable, ...] | None = None,
    ) -> Rx:
        key = (kind, parts, chars, lo, hi, payload)
        node = self._interned.get(key)
        if node is not None:
            return node
        self._use(1)
        node = Rx()
        node.builder, node.ident, node.kind = self, len(self._interned), kind
        node.parts, node.chars, node.lo, node.hi, node.payload = parts, chars, lo, hi, payload
        node._raw = node._transitions = node._empty = node._universal = None
        node._min = node._max = node._layers = None
        derive_facts(node)
        if node.clean or kind is Kind.AUTOMATON:
            node._empty = kind is Kind.EMPTY
        self._interned[key] = node
        return node


def _by_ident(node: Rx) -> int:
    return node.ident
