"""Which rules some finite text satisfies, and where the contradiction lies if the root is not one.

A least fixed point: a rule is productive if the rules that it needs are. Numbers of parts are
mostly greater than those of their users, so one look at all rules, the last ones first, finds
nearly all of them; only what is left after it is worked out in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from grammar.errors import Issue
from grammar.regular import RegexBuilder
from grammar.schema.flatten import Conjunction
from grammar.schema.plan import ArrayRule, ObjectRule, Rule, is_productive, parts_of
from grammar.schema.stock import stocks_of


def comparing(rules: Sequence[Rule]) -> list[int]:
    """The arrays whose items must differ."""
    return [
        number
        for number, rule in enumerate(rules)
        if isinstance(rule, ArrayRule) and rule.unique is not None
    ]


def productive(builder: RegexBuilder, rules: Sequence[Rule]) -> list[bool]:
    """For each rule, whether some finite text satisfies it."""
    good = [False] * len(rules)
    compared = comparing(rules)
    left: list[int] = []
    for number in range(len(rules) - 1, -1, -1):
        rule = rules[number]
        # What most rules are is told here; a comparing array needs its items' stocks.
        if not compared and is_productive(rule, good):
            good[number] = True
        else:
            left.append(number)
    if not left:
        return good
    users: list[list[int]] = [[] for _ in rules]
    for number in left:
        for part in parts_of(rules[number]):
            users[part].append(number)
    left.reverse()
    while left:
        number = left.pop()
        if not good[number] and _is_productive(builder, rules, number, good):
            good[number] = True
            left += users[number]
            # How many different items there are may depend on rules far below.
            left += [] if left else compared
    return good


def _is_productive(
    builder: RegexBuilder, rules: Sequence[Rule], number: int, good: list[bool]
) -> bool:
    rule = rules[number]
    if not is_productive(rule, good):
        return False
    if not isinstance(rule, ArrayRule) or rule.unique is None:
        return True
    if rule.least < 2 and not rule.contains:
        return True
    stocks, reason = stocks_of(builder, rules, rule, good)
    return bool(reason) or rule.node(good, stocks).is_possible()


def blame(
    rules: Sequence[Rule], root: int, good: list[bool], by_rule: Mapping[int, Conjunction]
) -> tuple[str, str]:
    """Where the contradiction lies: the deepest unsatisfiable subschema that is required.

    Args:
        by_rule: the conjunctions that rules were made for.
    """
    number, seen = root, {root}
    while True:
        rule = rules[number]
        needed: Sequence[int] = ()
        if isinstance(rule, ObjectRule):
            needed = [v for v, r in zip(rule.values, rule.spec.required, strict=True) if r]
        elif isinstance(rule, ArrayRule):
            choices = [*rule.prefix, rule.rest][: rule.least]
            needed = [c[0].rule for c in choices if len(c) == 1]
        bad = [n for n in needed if not good[n] and n not in seen and n in by_rule]
        if not bad:
            conjunction = by_rule[number]
            keyword = ""
            if isinstance(rule, ArrayRule) and rule.unique is not None:
                alike = is_productive(replace(rule, unique=None), good)
                keyword = "uniqueItems" if alike else ""
            return (conjunction[-1] if conjunction else ""), keyword
        number = bad[0]
        seen.add(number)


def settled(
    builder: RegexBuilder, rules: list[Rule], compares: bool, report: Callable[[Issue], None]
) -> list[Rule]:
    """The rules, in which items are compared only where they can be; the others are reported.

    Args:
        compares: whether items are compared in this notation at all.
    """
    compared = comparing(rules)
    good = productive(builder, rules) if compared else []
    for number in compared:
        rule = rules[number]
        if not isinstance(rule, ArrayRule) or rule.unique is None:
            continue  # the same rule stood at another number, too
        reason = "" if compares else "items are not compared in this notation"
        if not reason and good[number]:
            reason = stocks_of(builder, rules, rule, good)[1]
        if reason:
            report(Issue("uniqueItems", rule.unique, reason))
            plain = replace(rule, unique=None)
            rules = [plain if each is rule else each for each in rules]
    return rules
