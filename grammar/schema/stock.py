"""Which values a rule has, if they are few: for arrays whose items must differ.

Values are listed as far as they are asked for; an endless language says so at once where its parts
do (a string without a length bound, an object with undeclared keys). A rule that leads back to
itself has a value for every level of nesting, so it counts as endless.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from grammar.arrays import ArrayNode, At
from grammar.compared import Number, Value, value_of
from grammar.content import Content
from grammar.distinct import Stock
from grammar.regular import RegexBudgetError, RegexBuilder, Rx
from grammar.schema.merge import NumberSpec, StringSpec, WordsSpec
from grammar.schema.objects import ObjectSpec
from grammar.schema.plan import ArrayRule, ObjectRule, Rule, parts_of

KINDS = ("string", "array", "object")
ENOUGH = 256
MAX_WORK = 200_000
ALPHABET = 0x10FFFF - 0x800


class UncountedError(Exception):
    """How many different values there are takes too long to find out; the message says of what."""


class Sample:
    """Some values of a rule, all different, and the kinds of which there are plenty."""

    def __init__(self, values: Iterable[Value] = (), plenty: Iterable[str] = ()) -> None:
        self.values: dict[Value, None] = dict.fromkeys(values)
        self.plenty = set(plenty)

    def stock(self, need: int) -> Stock:
        """What an array needs to know."""
        counts = dict.fromkeys(self.plenty, need)
        for value in self.values:
            kind = _kind_of(value)
            counts[kind] = counts.get(kind, 0) + 1
        total = sum(counts.values())
        fewest = min([total, *(counts[kind] for kind in KINDS if kind in counts)])
        few = None if self.plenty or len(self.values) >= need else frozenset(self.values)
        return Stock(few, fewest)


def _kind_of(value: Value) -> str:
    if isinstance(value, str):
        return "string"
    if isinstance(value, Number):
        return "number"
    return {"[": "array", "{": "object"}.get(str(value[0]), "literal")


class Sampler:
    """Samples of the rules of one compilation.

    Args:
        builder: of the rules' regular languages.
        rules: the rules.
        good: for each whether anything satisfies it.
        need: from how many values on there are plenty.
    """

    def __init__(
        self, builder: RegexBuilder, rules: Sequence[Rule], good: Sequence[bool], need: int
    ) -> None:
        self._builder = builder
        self._rules = rules
        self._good = good
        self._need = need
        self._known: dict[int, Sample] = {}
        self._active: set[int] = set()
        self._work = 0

    def of(self, number: int) -> Sample:
        """A sample of a rule: all its values, or ``need`` of them, or whose kinds are plenty.

        Raises:
            UncountedError: that is not known.
        """
        found = self._known.get(number)
        if found is None:
            if not self._good[number]:
                return Sample()
            rule = self._rules[number]
            if number in self._active:
                if isinstance(rule, ArrayRule | ObjectRule):
                    return Sample(plenty=("array" if isinstance(rule, ArrayRule) else "object",))
                return Sample(plenty=KINDS)
            self._active.add(number)
            try:
                found = self._make(rule)
            finally:
                self._active.discard(number)
            if not self._active:
                self._known[number] = found
        return found

    def _make(self, rule: Rule) -> Sample:
        if isinstance(rule, tuple):
            union = Sample()
            for part in rule:
                sample = self.of(part)
                union.values.update(sample.values)
                union.plenty |= sample.plenty
            return union
        if isinstance(rule, ArrayRule):
            node = rule.node(self._good)
            if self._has_plenty(node):
                return Sample(plenty=("array",))
            return self._list("array", self._arrays(node))
        if isinstance(rule, ObjectRule):
            return self._objects(rule)
        if isinstance(rule, WordsSpec):
            return Sample(_parsed(text) for text in rule.texts)
        if isinstance(rule, StringSpec):
            return self._strings(rule.content)
        if isinstance(rule, NumberSpec):
            return self._numbers(rule.language)
        raise UncountedError("how many different passages there are is not counted")

    def _numbers(self, language: Rx) -> Sample:
        few = self._need <= 4 * ENOUGH
        if few and all(language.matches(str(number)) for number in range(self._need)):
            return Sample(plenty=("number",))
        return self._list("number", map(Number, self._words(language)))

    def _list(self, kind: str, values: Iterable[Value]) -> Sample:
        """All of the values, or enough of them."""
        result = Sample()
        for value in values:
            self._spend()
            result.values[value] = None
            if len(result.values) >= self._need:
                return Sample(plenty=(kind,))
        return result

    def _spend(self) -> None:
        self._work += 1
        if self._work > MAX_WORK:
            raise UncountedError("how many different items there may be takes too long to find out")

    # -- scalars --------------------------------------------------------------------------------

    def _strings(self, content: Content) -> Sample:
        language, least, most = content
        if not isinstance(language, Rx):
            if most is None or most > 1 or (most == 1 and self._need < ALPHABET):
                return Sample(plenty=("string",))
            return Sample(("",) if language is None or language.nullable else ())
        builder = self._builder
        if least or most is not None:
            language = builder.intersect(language, builder.repeat(builder.any_char, least, most))
        if language.max_length() is None:
            return Sample(plenty=("string",))
        return self._list("string", self._words(language))

    def _words(self, language: Rx) -> Iterator[str]:
        """Words of a language of finitely many."""
        pending = [("", language)]
        while pending:
            text, state = pending.pop()
            if state.nullable:
                yield text
            for low, high, target in reversed(state.transitions()):
                for code in range(min(high, low + self._need), low - 1, -1):
                    if not 0xD800 <= code < 0xE000:
                        self._spend()
                        pending.append((text + chr(code), target))

    # -- containers -----------------------------------------------------------------------------

    def _has_plenty(self, node: ArrayNode) -> bool:
        """Whether an array of any length can be had, or one with an item of plenty of values."""
        if node.contains or node.most == 0:
            return False
        if node.most is None and node.rest and not node.compares:
            return True
        if node.most is not None and node.most <= len(node.prefix):
            return False
        return any(self.of(choice.rule).plenty for choice in node.rest)

    def _arrays(self, node: ArrayNode) -> Iterator[Value]:
        pending: list[tuple[At, tuple[Value, ...]]] = [(node.start, ())]
        while pending:
            at, items = pending.pop()
            if node.may_close(at):
                yield ("[", *items)
            for rule, after in node.next_places(at):
                for value in _some(self.of(rule), self._need):
                    self._spend()
                    if not (node.compares and value in items):
                        pending.append((after, (*items, value)))

    def _objects(self, rule: ObjectRule) -> Sample:
        spec = rule.spec
        names = list(zip(spec.names, rule.values, spec.required, strict=True))
        room = spec.most is None or spec.most > sum(spec.required)
        if room or spec.wanted:
            for extra, value in zip(spec.extras, rule.extras, strict=True):
                if not self._good[value]:
                    continue
                keys = self._strings(extra.content)
                if keys.plenty:
                    return Sample(plenty=("object",))
                if spec.wanted:
                    raise UncountedError("undeclared keys are not counted")
                names.extend((str(key), value, False) for key in keys.values)
        if spec.most is None:  # look at scalars first: that saves to look deeper
            values = sorted((value for _, value, _ in names), key=self._has_parts)
            if any(self.of(value).plenty for value in values):
                return Sample(plenty=("object",))
        samples = [self.of(value) for _, value, _ in names]
        return self._list("object", self._pairs(spec, names, samples))

    def _has_parts(self, number: int) -> bool:
        return isinstance(self._rules[number], tuple | ArrayRule | ObjectRule)

    def _pairs(
        self, spec: ObjectSpec, names: list[tuple[str, int, bool]], samples: list[Sample]
    ) -> Iterator[Value]:
        most = len(names) if spec.most is None else spec.most
        needed = [0] * (len(names) + 1)
        for i in range(len(names) - 1, -1, -1):
            needed[i] = needed[i + 1] + names[i][2]
        pending: list[tuple[int, tuple[tuple[str, Value], ...]]] = [(0, ())]
        while pending:
            index, pairs = pending.pop()
            self._spend()
            left = len(names) - index
            if len(pairs) + left < spec.least or len(pairs) + needed[index] > most:
                continue
            if index == len(names):
                yield ("{", frozenset(pairs))
                continue
            name, _, required = names[index]
            pending.extend(
                (index + 1, (*pairs, (name, value))) for value in _some(samples[index], self._need)
            )
            if not required:
                pending.append((index + 1, pairs))


def stocks_of(
    builder: RegexBuilder, rules: Sequence[Rule], rule: ArrayRule, good: Sequence[bool]
) -> tuple[dict[int, Stock], str]:
    """The values of the items of an array that compares them, by rule.

    Also why they are not known well enough to keep the array from getting stuck; empty if they are.
    """
    needs = rule.least > 1 or bool(rule.contains)
    need = max(ENOUGH, 2 * (rule.least + len(rule.prefix)))
    sampler = Sampler(builder, rules, good, need)
    stocks: dict[int, Stock] = {}
    reason = ""
    for part in dict.fromkeys(parts_of(rule)):
        try:
            stocks[part] = sampler.of(part).stock(need)
        except (UncountedError, RegexBudgetError) as error:
            stocks[part] = Stock(None, 0)
            reason = str(error) if needs else ""
    supply = rule.node(good, stocks).supply
    if supply is not None and supply.is_intricate:
        reason = "few different items are not counted beside contains and prefixItems"
    return stocks, reason


def _some(sample: Sample, need: int) -> Iterable[Value]:
    """The values of a sample; where they are plenty, stand-ins that are equal to nothing else."""
    yield from sample.values
    if sample.plenty:
        yield from ((f"\0{i}", id(sample)) for i in range(need))


def _parsed(text: str) -> Value:
    value: Any = json.loads(text)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return Number(text)
    return value_of(value)
