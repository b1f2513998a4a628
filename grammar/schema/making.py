"""Rules to nodes, one by one: a grammar's nodes are made when they are first begun."""

from __future__ import annotations

from collections.abc import Sequence

from grammar.nodes import Choice, Node
from grammar.schema.merge import ExtractSpec, StringSpec
from grammar.schema.plan import ArrayRule, ObjectRule, Rule
from grammar.schema.stock import stocks_of
from grammar.workspace import Workspace
from grammar.writing import Writer


class NodeMaker:
    """Makes the nodes of one compilation's rules; called with a rule's number.

    Args:
        workspace: of the rules' languages; its lock is held by whoever calls.
        rules: the rules, by number.
        good: for each, whether anything satisfies it.
        writer: how values are written.
    """

    __slots__ = ("_good", "_made", "_rules", "_workspace", "_writer")

    def __init__(
        self, workspace: Workspace, rules: Sequence[Rule], good: Sequence[bool], writer: Writer
    ) -> None:
        self._workspace = workspace
        self._rules = rules
        self._good = good
        self._writer = writer
        self._made: dict[int, Node] = {}

    def __call__(self, number: int) -> Node:
        """The node of a rule; a rule that stands at several numbers has one."""
        rule = self._rules[number]
        node = self._made.get(id(rule))
        if node is None:
            node = self._node(rule) if self._good[number] else Choice(())
            self._made[id(rule)] = node
        return node

    def _node(self, rule: Rule) -> Node:
        self._workspace.builder.breathe()
        good = self._good
        if isinstance(rule, ObjectRule):
            return rule.node(good, self._writer.key)
        if isinstance(rule, tuple):
            return Choice([part for part in rule if good[part]])
        if not isinstance(rule, ArrayRule):
            return self._writer.scalar(rule)
        if rule.unique is None:
            return rule.node(good)
        stocks, _ = stocks_of(self._workspace.builder, self._rules, rule, good)
        return rule.node(good, stocks)


def may_wait(rule: Rule) -> bool:
    """Whether a node may be made later: it costs little, can't fail, and nothing asks for it before
    it is begun."""
    if isinstance(rule, StringSpec):
        return rule.content.language is None
    if isinstance(rule, ArrayRule):
        return rule.unique is None and not rule.contains
    return not isinstance(rule, ExtractSpec)
