"""What a machine is made of: states, and what lies behind a terminal. See ``machine.py``."""

from __future__ import annotations

from typing import NamedTuple

from grammar.masks import FewTokens, Mask
from grammar.nodes import Leaf


class State:
    """A set of leaves, and whether the text may end here. Compared by identity."""

    __slots__ = (
        "accepts",
        "bytes",
        "edges",
        "few",
        "leaves",
        "loops",
        "mask",
        "runs",
        "stuck",
    )

    def __init__(self, leaves: tuple[Leaf, ...], accepts: bool) -> None:
        self.leaves = leaves
        self.accepts = accepts
        self.edges: dict[int, State] = {}
        self.bytes: dict[int, State | None] = {}
        self.mask: Mask | None = None
        # whether every plain token leads back here
        self.loops = len(leaves) == 1 and leaves[0].automaton.loops(leaves[0].state)
        # whether it stands in a text that a budget can end
        self.runs = any(leaf[0].is_timed and leaf[0].runs(leaf[1]) for leaf in leaves)
        self.few: FewTokens | None = None  # instead of ``mask``, where it has few tokens
        self.stuck = False  # whether it has none


class Behind(NamedTuple):
    """What lies behind a terminal: the leaves that follow, and whether the text may end there."""

    leaves: tuple[Leaf, ...]
    accepts: bool
