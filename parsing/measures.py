"""What a pattern's tree alone tells about it: widths, names, literals it can't do without.

All of it errs on the safe side: a width may be too large, a literal may be missed. Next: `edges`.
"""

from __future__ import annotations

import re

from parsing.syntax import Ahead, Alt, Assertion, Atom, Behind, Group, Node, Repeat, Seq


def max_width(node: Node) -> int | None:
    """The most characters a node can eat; None where there is no limit."""
    match node:
        case Atom():
            return 1
        case Seq() | Alt():
            parts = [max_width(n) for n in (node.items if isinstance(node, Seq) else node.options)]
            widths = [width for width in parts if width is not None]
            if len(widths) < len(parts):
                return None
            return sum(widths) if isinstance(node, Seq) else max(widths, default=0)
        case Group():
            return max_width(node.item)
        case Repeat():
            width = max_width(node.item)
            if width == 0 or node.high == 0:
                return 0
            return None if width is None or node.high is None else width * node.high
        case _:
            return 0


def look_back(node: Node) -> int | None:
    """How many characters before a match its tests may read; None where there is no limit."""
    match node:
        case Behind():
            return max_width(node.item)
        case Assertion():
            return 1 if node.kind in ("word", "start") else 0
        case Seq() | Alt():
            parts = [look_back(n) for n in (node.items if isinstance(node, Seq) else node.options)]
            widths = [width for width in parts if width is not None]
            return max(widths, default=0) if len(widths) == len(parts) else None
        case Group() | Repeat() | Ahead():
            return look_back(node.item)
        case _:
            return 0


def group_names(node: Node) -> frozenset[str]:
    """The names of the groups inside a node."""
    match node:
        case Group():
            own = frozenset() if node.name is None else frozenset((node.name,))
            return own | group_names(node.item)
        case Repeat() | Ahead():
            return group_names(node.item)
        case Seq():
            return frozenset().union(*(group_names(item) for item in node.items))
        case Alt():
            return frozenset().union(*(group_names(option) for option in node.options))
        case _:
            return frozenset()


def literal(text: str) -> Node:
    """The tree that matches exactly `text`."""
    return Seq(tuple(Atom(re.escape(char), char) for char in text))


Chain = tuple[str, ...]


def required(node: Node) -> tuple[Chain, ...]:
    """Chains of literals without which there is no match: each must stand, one after the other,
    somewhere from the start of the match on. The first chain is of what the match itself eats."""
    own, ahead = _chains(node)
    return tuple(chain for chain in (own, *ahead) if chain)


def _chains(node: Node) -> tuple[Chain, list[Chain]]:
    """The chain of what a node eats, and those of its look-aheads (they overlap what follows)."""
    match node:
        case Atom():
            return ((node.char,) if node.char is not None else ()), []
        case Seq():
            return _sequence_chains(node.items)
        case Group():
            # A scoped flag may make a letter match another one.
            exact = node.opening in ("(?:", "(?>") or node.name is not None
            return _chains(node.item) if exact else ((), [])
        case Repeat():
            return _chains(node.item) if node.low else ((), [])
        case Ahead(negative=False):
            own, ahead = _chains(node.item)
            return (), [own, *ahead]
        case _:
            return (), []


def _sequence_chains(items: tuple[Node, ...]) -> tuple[Chain, list[Chain]]:
    chain: list[str] = []
    others: list[Chain] = []
    adjacent = False
    for item in items:
        own, ahead = _chains(item)
        others.extend(ahead)
        single = isinstance(item, Atom) and item.char is not None
        if single and adjacent:
            chain[-1] += own[0]
        else:
            chain.extend(own)
        adjacent = single
    return tuple(chain), others
