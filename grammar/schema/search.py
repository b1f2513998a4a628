"""The product of unions as few alternatives, by search instead of multiplication.

A conjunction of unions is satisfied by choosing from each. Choices are made one after the other,
the narrowest first (as DPLL does: Davis, Logemann and Loveland, CACM 1962). What contradicts the
choices so far is dropped, a union that they imply is done, and one with a single branch left is no
choice. What an earlier sibling covers is left out behind the later ones, so alternatives hardly
overlap: where branches are told apart by a tag, choosing the tag settles all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from grammar.schema import keywords as kw
from grammar.schema.document import SOME_KEY, Document
from grammar.schema.facts import NOTHING_KNOWN, Facts
from grammar.schema.glance import Glance

Alternative = tuple[str, ...]
Chosen = tuple[tuple[int, Alternative], ...]
Union = tuple[int, list[Alternative]]
_NAMING = kw.ANNOTATIONS | {"type", "required", "properties"}
_UNKNOWN = object()
MAX_SPREAD = 64
"""So many names a closed object may have for "some key" to become a choice among them."""


class TooManyError(Exception):
    """More alternatives or more looks than the search may take."""


@dataclass(frozen=True, slots=True)
class News:
    """What is new: properties of which more is known (None: anything), alternatives covered."""

    touched: set[str] | None
    covered: list[Alternative]

    def __bool__(self) -> bool:
        return self.touched is None or bool(self.touched or self.covered)


class Search:
    """Products of unions over one document.

    Args:
        limit: how many alternatives a product may have.
        spend: called with a number of looks; raises ``TooManyError`` when there were too many.
    """

    def __init__(self, glance: Glance, limit: int, spend: Callable[[int], None]) -> None:
        self._glance = glance
        self._document: Document = glance.reading.document
        self._limit = limit
        self._spend = spend
        self._found: dict[frozenset[str], Alternative] = {}
        self._spoken: dict[Alternative, object] = {}

    def product(self, parts: list[list[Alternative]]) -> list[Alternative]:
        """Alternatives of which one holds just where one of each part does.

        Raises:
            TooManyError: past the limits.
        """
        before, self._found = self._found, {}
        try:
            self._choose(NOTHING_KNOWN, (), list(enumerate(parts)), (), None)
            return list(self._found.values())
        finally:
            self._found = before

    def _choose(
        self,
        facts: Facts,
        chosen: Chosen,
        unions: list[Union],
        covered: tuple[Alternative, ...],
        news: News | None,
    ) -> None:
        """All ways to choose from some unions. ``news``: what changed since each was looked at."""
        while news is None or news:
            if any(self._all_hold(facts, other) for other in covered):
                return
            narrowed = self._narrowed(facts, chosen, unions, news)
            if narrowed is None:
                return
            facts, chosen, unions, news = narrowed
        if not unions:
            pointers = [p for _, alternative in sorted(chosen) for p in alternative]
            self._found.setdefault(frozenset(pointers), tuple(dict.fromkeys(pointers)))
            if len(self._found) > self._limit:
                raise TooManyError
            return
        narrowest = min(unions, key=lambda union: len(union[1]))
        others = [union for union in unions if union is not narrowest]
        index, alternatives = narrowest
        for i, alternative in enumerate(alternatives):
            after = self._with(facts, alternative)
            self._choose(
                after,
                (*chosen, (index, alternative)),
                others,
                (*covered, *alternatives[:i]),
                News(self._touched(facts, after, alternative), alternatives[:i]),
            )

    def _narrowed(
        self, facts: Facts, chosen: Chosen, unions: list[Union], news: News | None
    ) -> tuple[Facts, Chosen, list[Union], News] | None:
        """One look at what the news concern; None if some union has no branch left."""
        left: list[Union] = []
        touched: set[str] | None = set()
        for index, alternatives in unions:
            kept: list[Alternative] = []
            done = False
            for alternative in self._spread(facts, alternatives):
                before = self._glance.looks
                verdict = self._look(facts, alternative, news)
                self._spend(1 + self._glance.looks - before)
                if verdict is True:
                    done = True
                    if not all(map(self._document.is_written, alternative)):
                        chosen = (*chosen, (index, alternative))  # its properties have an order
                    break
                if verdict is None:
                    kept.append(alternative)
            if done:
                continue
            if not kept:
                return None
            if len(kept) == 1:
                after = self._with(facts, kept[0])
                also = self._touched(facts, after, kept[0])
                touched = None if touched is None or also is None else touched | also
                facts = after
                chosen = (*chosen, (index, kept[0]))
            else:
                left.append((index, kept))
        return facts, chosen, left, News(touched, [])

    def _look(self, facts: Facts, alternative: Alternative, news: News | None) -> bool | None:
        """True: it holds already; False: it can be left out; None: neither."""
        here = self._names(alternative)
        if news is None or news.touched is None or here is None or here & news.touched:
            if self._all_hold(facts, alternative):
                return True
            if self._glance.is_empty(self._with(facts, alternative)):
                return False
        if news is not None and news.covered:
            joined = self._with(facts, alternative)
            if any(self._all_hold(joined, other) for other in news.covered):
                return False
        return None

    def _names(self, alternative: Alternative) -> frozenset[str] | None:
        """The only properties that an alternative speaks of; None if it says more."""
        found = self._spoken.get(alternative, _UNKNOWN)
        if found is _UNKNOWN:
            names: set[str] | None = set()
            for pointer in alternative:
                schema = self._document.schema(pointer)
                if names is None or isinstance(schema, bool) or schema.keys() - _NAMING:
                    names = None
                else:
                    names |= {*schema.get("properties", ()), *schema.get("required", ())}
            found = self._spoken[alternative] = None if names is None else frozenset(names)
        assert found is None or isinstance(found, frozenset)
        return found

    def _touched(self, before: Facts, after: Facts, alternative: Alternative) -> set[str] | None:
        """The properties of which more is known with an alternative; None if more than those."""
        names = self._names(alternative)
        return None if names is None or before.types != after.types else set(names)

    def _with(self, facts: Facts, alternative: Alternative) -> Facts:
        for pointer in alternative:
            facts = facts.plus(self._glance.reading.one(pointer))
        return facts

    def _all_hold(self, facts: Facts, alternative: Alternative) -> bool:
        return all(self._glance.implies(facts, pointer) for pointer in alternative)

    def _spread(self, facts: Facts, alternatives: list[Alternative]) -> Iterator[Alternative]:
        """The alternatives, "some key" as one for each name that a closed object may have."""
        for alternative in alternatives:
            schema = self._document.schema(alternative[0]) if len(alternative) == 1 else False
            if isinstance(schema, bool) or SOME_KEY not in schema:
                yield alternative
                continue
            rule = schema[SOME_KEY]
            possible = self._glance.reading.possible_names(facts)
            if possible is None or "failing" in rule or len(possible) > MAX_SPREAD:
                yield alternative
                continue
            origin = self._document.origin(alternative[0])
            for name in sorted(possible):
                if self._glance.in_class(rule, alternative[0], name):
                    inner = {"required": [name], "properties": {name: rule["value"]}}
                    yield (self._document.add({"type": "object", **inner}, origin),)
