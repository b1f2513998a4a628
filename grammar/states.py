"""What a machine is made of: states, and what lies behind a terminal. See ``machine.py``."""

from __future__ import annotations

from typing import NamedTuple

from grammar.masks import TokenSet
from grammar.nodes import Leaf


class State:
    """A set of leaves, and whether the text may end here. Compared by identity."""

    __slots__ = (
        "accepts",
        "bytes",
        "edges",
        "leaves",
        "loops",
        "runs",
        "stuck",
        "tokens",
    )

    def __init__(self, leaves: tuple[Leaf, ...], accepts: bool) -> None:
        self.leaves = leaves
        self.accepts = accepts
        self.edges: dict[int, State] = {}
        self.bytes: dict[int, State | None] = {}
        self.tokens: TokenSet | None = None  # those of its mask
        self.stuck = False  # whether there are none
        # whether every plain token leads back here
        self.loops = len(leaves) == 1 and leaves[0][0].loops(leaves[0][1])
        # whether it stands in a text that a budget can end
        self.runs = False
        for automaton, at, _ in leaves:
            if automaton.is_timed and automaton.runs(at):
                self.runs = True


class Behind(NamedTuple):
    """What lies behind a terminal: the leaves that follow, and whether the text may end there."""

    leaves: tuple[Leaf, ...]
    accepts: bool
