"""References and combinators away: a conjunction of subschemas as a list of alternatives.

An *alternative* is a tuple of plain schema objects (their pointers) that must all hold; the
conjunction is satisfied when one of its alternatives is. ``$ref`` and ``allOf`` join, ``anyOf``
branches; ``not``, ``oneOf``, ``if`` and ``dependent…`` are rewritten with complements, which
are pushed down to single keywords (negation normal form). The result is a disjunctive normal form
of one level: the subschemas of properties and items are left alone, so recursive schemas end here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from math import prod
from typing import Any

from grammar.errors import Issue, SchemaBudgetError
from grammar.schema import keywords as kw
from grammar.schema.complement import NoComplementError, complements
from grammar.schema.document import AT, NOT, Document, join
from grammar.schema.facts import Reading
from grammar.schema.glance import Glance
from grammar.schema.places import unevaluated_is_idle
from grammar.schema.search import Search, TooManyError
from grammar.schema.unevaluated import KEYWORDS, broken_rests, evaluates, rests

Alternative = tuple[str, ...]
Alternatives = list[Alternative]
Conjunction = tuple[str, ...]

MAX_ALTERNATIVES = 1024
MAX_SEARCHED = 4096
"""Alternatives of all products of a document: past them each token is followed in thousands."""
MAX_PRODUCT = 16_384
MAX_WORK = 400_000
"""Pairs of alternatives that may be joined in one compilation, and looks at them."""
OF_A_LOOK = 2
"""How many schema objects are looked at for plain contradictions for one unit of that work."""
MANY, FEW = 8, 128
"""From so many alternatives on contradictions are looked for, and up to so many absorbed ones."""
ALL_TYPES = frozenset(kw.TYPES)
REWRITTEN = frozenset(
    {
        "$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if",
        "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties",
        "unevaluatedItems",
    }
)  # fmt: skip
_JOINING = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf"})
BRANCHING = ("oneOf", "anyOf", "if", "not", "dependentSchemas", "dependencies")
"""What makes alternatives, in the order in which it is blamed for too many of them."""
MAX_NESTING = 100
MAX_TOGETHER = 256
"""How many sets of branches of an ``anyOf`` are looked at that may hold, and evaluate, together."""
MAX_DECISIONS = 3


class Flattener:
    """Makes alternatives of conjunctions; memoised by pointer.

    Args:
        document: the schema.
        report: called with every issue met (once an occurrence; the caller removes repeats).
        exclusive: decides whether two conjunctions have no instance in common.
        key_matches: whether a pattern (of the schema object at a pointer) matches a key.
    """

    def __init__(
        self,
        document: Document,
        report: Callable[[Issue], None],
        exclusive: Callable[[Conjunction, Conjunction], bool],
        key_matches: Callable[[str, str, str], bool],
    ) -> None:
        self._document = document
        self._report = report
        self._exclusive = exclusive
        self._glance = Glance(Reading(document, key_matches))
        self._searched = 0
        self._search = Search(self._glance, MAX_ALTERNATIVES, self._spend)
        self._work = 0
        self._pairs: dict[tuple[str, str], bool] = {}
        self._deciding: list[tuple[str, str]] = []
        self._types: dict[str, frozenset[str]] = {}
        self._known: dict[tuple[str, bool, bool], Alternatives] = {}
        self._active: list[tuple[str, bool, bool]] = []
        # Whether an alternative has to name all that holds and evaluates; see ``broken_rests``.
        self._exact = False

    def conjunction(self, pointers: Conjunction) -> Alternatives:
        """The alternatives of several subschemas that must all hold; none if they can't."""
        return self._all(map(self._holds, pointers), pointers[0] if pointers else "")

    def complement(self, pointer: str) -> Alternatives:
        """The alternatives of a subschema's complement.

        Raises:
            NoComplementError: it can't be had exactly.
        """
        return self._fails(pointer)

    # -- algebra --------------------------------------------------------------------------------

    def _spend(self, looks: int) -> None:
        self._work += looks
        if self._work > MAX_WORK:
            raise TooManyError
        self._document.breathe()

    def _all(self, parts: Iterable[Alternatives], pointer: str) -> Alternatives:
        parts = list(parts)
        several = sum(len(part) > 1 for part in parts) > 1
        if several and prod(map(len, parts)) > MANY and self._may_leave_out(parts):
            try:
                found = self._search.product(parts)
            except TooManyError:
                raise self._too_many(pointer) from None
            self._searched += len(found)
            if self._searched <= MAX_SEARCHED:
                return found
            raise self._too_many(pointer, MAX_SEARCHED)
        result: Alternatives | None = None
        for part in parts:
            self._document.breathe()
            if result is None:
                result = part
                continue
            self._work += len(result) * len(part)
            if len(result) * len(part) > MAX_PRODUCT or self._work > MAX_WORK:
                raise self._too_many(pointer)
            joined = (tuple(dict.fromkeys(left + right)) for left in result for right in part)
            result = [a for a in dict.fromkeys(joined) if self._has_type(a)]
            if len(result) > MANY:
                self._work += sum(map(len, result)) // OF_A_LOOK
                result = [a for a in result if not self._glance.empty(a)]
                result = self._absorbed(result) if len(result) <= FEW else result
            if len(result) > MAX_ALTERNATIVES:
                raise self._too_many(pointer)
        return [()] if result is None else result

    def _may_leave_out(self, parts: list[Alternatives]) -> bool:
        """Whether an alternative may be left out where others imply it: not if it evaluates."""
        if not self._document.tracks_evaluation:
            return True
        written = self._document.is_written
        return all(len(part) < 2 or all(map(written, chain(*part))) for part in parts)

    def _absorbed(self, alternatives: Alternatives) -> Alternatives:
        """Without those that ask for all that another one asks for, and more (and, where it is
        asked what is evaluated, evaluate no more)."""
        written = self._document.is_written
        tracks = self._document.tracks_evaluation
        kept: list[frozenset[str]] = []
        for candidate in sorted(map(frozenset, alternatives), key=len):
            if not any(
                other <= candidate and not (tracks and not all(map(written, candidate - other)))
                for other in kept
            ):
                kept.append(candidate)
        left = set(kept)
        return [a for a in alternatives if frozenset(a) in left]

    def _too_many(self, pointer: str, limit: int = MAX_ALTERNATIVES) -> SchemaBudgetError:
        schema = self._document.schema(pointer)
        keywords = schema.keys() if isinstance(schema, dict) else ()
        return SchemaBudgetError(
            f"more than {limit} combinations of alternatives",
            pointer=self._document.origin(pointer),
            keyword=next((k for k in BRANCHING if k in keywords), "allOf"),
        )

    def _has_type(self, alternative: Alternative) -> bool:
        """Whether any type is left; what is contradictory that way need not be multiplied out."""
        left = ALL_TYPES
        for pointer in alternative:
            types = self._types.get(pointer)
            if types is None:
                schema = self._document.schema(pointer)
                assert isinstance(schema, dict)
                types = self._types[pointer] = kw.subtypes(schema, pointer)
            left &= types
        return bool(left)

    @staticmethod
    def _any(parts: Iterable[Alternatives]) -> Alternatives:
        return list(dict.fromkeys(a for part in parts for a in part))

    def _write(self, schema: dict[str, Any], pointer: str) -> Alternatives:
        return [(self._document.add(schema, self._document.origin(pointer)),)]

    def _holds(self, pointer: str) -> Alternatives:
        return self._memo(pointer, True)

    def _fails(self, pointer: str) -> Alternatives:
        """The alternatives of a subschema's complement; raises ``NoComplementError``."""
        return self._memo(pointer, False)

    def _memo(self, pointer: str, positive: bool) -> Alternatives:
        key = (pointer, positive, self._exact)
        found = self._known.get(key)
        if found is None:
            shown = self._document.origin(pointer)
            if key in self._active:
                loop = " -> ".join(self._document.origin(p) or "#" for p, _, _ in self._active)
                raise kw.fault("$ref", shown, f"refers to itself without end: {loop}")
            if len(self._active) > MAX_NESTING:
                raise SchemaBudgetError(
                    f"combinators nested more than {MAX_NESTING} levels", pointer=shown
                )
            self._active.append(key)
            try:
                made = self._positive(pointer) if positive else self._negative(pointer)
                found = self._known[key] = made
            finally:
                self._active.pop()
        return found

    def _branches(self, schema: dict[str, Any], keyword: str, pointer: str) -> list[str]:
        return [join(pointer, keyword, i) for i in range(kw.schemas(schema, keyword, pointer))]

    # -- what holds -----------------------------------------------------------------------------

    def _positive(self, pointer: str) -> Alternatives:
        schema = self._document.schema(pointer)
        if isinstance(schema, bool):
            return [()] if schema else []
        if AT in schema:
            return self._holds(schema[AT])
        if NOT in schema:
            return self._complement(schema[NOT], "not", self._document.origin(pointer))
        if not schema.keys() & REWRITTEN:
            return [(pointer,)]
        made = self._in_place(schema, pointer)
        for keyword in KEYWORDS:
            if not unevaluated_is_idle(schema, keyword):
                found = rests(self._document, keyword, pointer, made)
                made = [(*a, *self._write(rest, pointer)[0]) if rest else a for a, rest in found]
        return made

    def _in_place(self, schema: dict[str, Any], pointer: str) -> Alternatives:
        """What a schema object and its combinators say, but for ``unevaluated…``."""
        parts = [self._holds(target) for target in self._document.references(schema, pointer)]
        if "$ref" in schema and self._document.dialect(pointer).ref_alone:
            return parts[0]
        parts.extend(map(self._holds, self._branches(schema, "allOf", pointer)))
        branches = self._branches(schema, "anyOf", pointer)
        if branches:
            parts.append(self._any_of(branches, pointer))
        branches = self._branches(schema, "oneOf", pointer)
        if branches:
            parts.append(self._one_of(branches, pointer))
        if "not" in schema:
            parts.append(self._complement(join(pointer, "not"), "not", pointer))
        if "if" in schema:
            parts.append(self._conditional(schema, pointer))
        parts.extend(self._dependencies(schema, pointer))
        # Properties come in the order of the text: those of a combinator that stands before
        # ``properties`` come first.
        own = next((i for i, k in enumerate(schema) if k == "properties"), 0)
        before = sum(len(schema[k]) if k == "allOf" else k in _JOINING for k in [*schema][:own])
        parts.insert(before, [(pointer,)])
        return self._all(parts, pointer)

    def _complement(self, inner: str, keyword: str, pointer: str) -> Alternatives:
        try:
            return self._silent(self._fails(inner))
        except NoComplementError as error:
            self._report(Issue(keyword, pointer, str(error)))
            return [()]

    def _silent(self, alternatives: Alternatives) -> Alternatives:
        """The same schema objects, but evaluating nothing: ``not`` yields no annotations."""
        if not self._document.tracks_evaluation:
            return alternatives
        written = self._document.is_written
        return [
            tuple(p if written(p) else self._document.alias(p) for p in alternative)
            for alternative in alternatives
        ]

    def _any_of(self, branches: list[str], pointer: str) -> Alternatives:
        """Some branch; all that hold evaluate, so where that matters sets of them come along."""
        made = [self._holds(branch) for branch in branches]
        if not self._document.tracks_evaluation or len(branches) < 2:
            return self._any(made)
        evaluating = [i for i, part in enumerate(made) if evaluates(self._document, part)]
        if self._exact:
            return self._just_these(branches, made, evaluating, pointer)
        found = self._any(made)
        growing = [(i, made[i]) for i in evaluating]
        looked = len(growing)
        while growing:
            wider: list[tuple[int, Alternatives]] = []
            for last, chosen in growing:
                for i in evaluating:
                    if i <= last:
                        continue
                    looked += 1
                    if looked > MAX_TOGETHER:
                        return found
                    both = self._all([chosen, made[i]], pointer)
                    both = [a for a in both if not self._glance.empty(a)]
                    if both:
                        wider.append((i, both))
            found = self._any([found, *(both for _, both in wider)])
            growing = wider
        return found

    def _just_these(
        self, branches: list[str], made: list[Alternatives], evaluating: list[int], pointer: str
    ) -> Alternatives:
        """Some branch; of those that evaluate it is said which hold and which fail."""
        if 1 << len(evaluating) > MAX_TOGETHER:
            raise NoComplementError(f"{len(evaluating)} branches may evaluate together")
        found: list[Alternatives] = []
        fails = [self._silent(self._fails(branches[i])) for i in evaluating]
        idle = self._any(part for i, part in enumerate(made) if i not in evaluating)
        for bits in range(1 << len(evaluating)):
            parts = [made[i] if bits >> at & 1 else fails[at] for at, i in enumerate(evaluating)]
            found.append(self._all([*parts] if bits else [idle, *parts], pointer))
        return self._any(found)

    def _one_of(self, branches: list[str], pointer: str) -> Alternatives:
        """Each branch without those others that it is not known to exclude."""
        result = []
        for i, branch in enumerate(branches):
            parts = [self._holds(branch)]
            for j, other in enumerate(branches):
                if i != j and not self._are_exclusive(branch, other):
                    try:
                        parts.append(self._silent(self._fails(other)))
                    except NoComplementError as error:
                        first, second = sorted((i, j))
                        reason = f"branches {first} and {second} may both hold: {error}"
                        self._report(Issue("oneOf", pointer, reason))
            result.append(self._all(parts, pointer))
        return self._any(result)

    def _are_exclusive(self, left: str, right: str) -> bool:
        """Whether two branches are known to exclude each other; that looks into their properties,
        so it may come back here, and then says no."""
        pair = (min(left, right), max(left, right))
        known = self._pairs.get(pair)
        if known is None and self._glance.empty(pair):
            known = self._pairs[pair] = True
        if known is None:
            if len(self._deciding) >= MAX_DECISIONS or pair in self._deciding:
                return False
            active, self._active = self._active, []
            self._deciding.append(pair)
            try:
                known = self._pairs[pair] = self._exclusive((left,), (right,))
            finally:
                self._deciding.pop()
                self._active = active
        return known

    def _conditional(self, schema: dict[str, Any], pointer: str) -> Alternatives:
        arms: dict[str, Alternatives] = {
            keyword: self._holds(join(pointer, keyword)) if keyword in schema else [()]
            for keyword in ("then", "else")
        }
        if arms["then"] == arms["else"] == [()] and not self._document.tracks_evaluation:
            return [()]
        condition = join(pointer, "if")
        met = self._all([self._holds(condition), arms["then"]], pointer)
        try:
            unmet = self._silent(self._fails(condition))
            return self._any([met, self._all([unmet, arms["else"]], pointer)])
        except NoComplementError as error:
            self._report(Issue("if", pointer, str(error)))
            return self._any([[()], met])

    def _dependencies(self, schema: dict[str, Any], pointer: str) -> Iterable[Alternatives]:
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needs in kw.mapping(schema, keyword, pointer).items():
                without = self._write({"properties": {name: False}}, pointer)
                if isinstance(needs, list):
                    listed = list(kw.names({keyword: needs}, keyword, pointer))
                    names = {"type": "object", "required": [name, *listed]}
                    yield self._any([without, self._write(names, pointer)])
                else:
                    there = self._write({"type": "object", "required": [name]}, pointer)
                    needed = self._holds(join(pointer, keyword, name))
                    yield self._any([without, self._all([there, needed], pointer)])

    # -- what fails -----------------------------------------------------------------------------

    def _negative(self, pointer: str) -> Alternatives:
        schema = self._document.schema(pointer)
        if isinstance(schema, bool):
            return [] if schema else [()]
        if AT in schema:
            return self._fails(schema[AT])
        if NOT in schema:
            return self._holds(schema[NOT])
        parts = [self._fails(target) for target in self._document.references(schema, pointer)]
        if "$ref" in schema and self._document.dialect(pointer).ref_alone:
            return parts[0]
        parts.extend(map(self._fails, self._branches(schema, "allOf", pointer)))
        branches = self._branches(schema, "anyOf", pointer)
        if branches:
            parts.append(self._all(map(self._fails, branches), pointer))
        branches = self._branches(schema, "oneOf", pointer)
        if branches:
            parts.append(self._all(map(self._fails, branches), pointer))
            parts.extend(
                self._all([self._holds(left), self._holds(right)], pointer)
                for i, left in enumerate(branches)
                for right in branches[:i]
                if not self._glance.empty((left, right))
            )
        if "not" in schema:
            parts.append(self._holds(join(pointer, "not")))
        if "if" in schema:
            condition = join(pointer, "if")
            for arm, met in (("then", self._holds), ("else", self._fails)):
                if arm in schema:
                    broken = self._fails(join(pointer, arm))
                    parts.append(self._all([met(condition), broken], pointer))
        parts.extend(self._broken_dependencies(schema, pointer))
        parts.extend(self._broken_rests(schema, pointer))
        written = complements(self._document, schema, pointer)
        origin = self._document.origin(pointer)
        parts.extend(self._holds(self._document.add(each, origin)) for each in written)
        return self._any(parts)

    def _broken_rests(self, schema: dict[str, Any], pointer: str) -> Iterable[Alternatives]:
        """``unevaluated…`` that fails beside what holds."""
        for keyword in KEYWORDS:
            if unevaluated_is_idle(schema, keyword):
                continue
            before, self._exact = self._exact, True
            try:
                made = self._in_place(schema, pointer)
            finally:
                self._exact = before
            for alternative, broken in broken_rests(self._document, keyword, pointer, made):
                yield [(*alternative, *self._write(broken, pointer)[0])]

    def _broken_dependencies(self, schema: dict[str, Any], pointer: str) -> Iterable[Alternatives]:
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needs in kw.mapping(schema, keyword, pointer).items():
                there = {"type": "object", "required": [name]}
                if isinstance(needs, list):
                    for needed in kw.names({keyword: needs}, keyword, pointer):
                        yield self._write({**there, "properties": {needed: False}}, pointer)
                else:
                    broken = self._fails(join(pointer, keyword, name))
                    yield self._all([self._write(there, pointer), broken], pointer)
