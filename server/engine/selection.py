"""Choosing among weights: the highest, the fewest that hold most of the mass, one at random.

Whole vocabularies come through here at every step, so nothing sorts or adds up more of them than
it has to, and where they are many the arrays of their size are lent (`Scratch`). Weights are
float32 and not negative. Read next: `sampling.py`, which makes the weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from server.engine.model import Logits

_FIRST_GUESS = 256  # how many candidates top-p sorts before it looks further
_BIN_SHIFT = 20  # of a float32's bits, leaves the exponent and three bits of the mantissa
_CLEAR = np.float32(2**-10)  # tokens so much less likely than the likeliest are seldom in a nucleus
_BLOCK = 256  # weights added up at once when a token is drawn from many


class Scratch(NamedTuple):
    """Arrays to work in, of a vocabulary's size."""

    numbers: Logits
    flags: NDArray[np.bool_]

    @classmethod
    def of(cls, size: int) -> Scratch:
        """New ones."""
        return cls(np.empty(size, dtype=np.float32), np.empty(size, dtype=np.bool_))

    def above(self, values: Logits, threshold: np.float32) -> NDArray[np.int64]:
        """Positions of the values above a threshold, ascending."""
        return np.flatnonzero(np.greater(values, threshold, out=self.flags[: values.size]))

    def zero_below(self, values: Logits, threshold: np.float32) -> None:
        """Make values below a threshold 0."""
        np.copyto(values, 0, where=np.less(values, threshold, out=self.flags[: values.size]))


def highest(scores: Logits, k: int, scratch: Scratch) -> NDArray[np.int64]:
    """Positions of the k highest scores, ascending; among equals the first ones."""
    if k >= scores.size:
        return np.arange(scores.size)
    parted = scratch.numbers[: scores.size]
    np.copyto(parted, scores)
    parted.partition(scores.size - k)
    threshold = parted[scores.size - k]
    above = scratch.above(scores, threshold)
    equal = np.flatnonzero(np.equal(scores, threshold, out=scratch.flags[: scores.size]))
    equal = equal[: k - above.size]
    return np.sort(np.concatenate((above, equal)))


def nucleus(weights: Logits, top_p: float, scratch: Scratch) -> NDArray[np.int64]:
    """Positions, ascending, of the fewest heaviest weights that reach `top_p` of the total."""
    goal = top_p * float(weights.sum(dtype=np.float64))
    clear = scratch.above(weights, _CLEAR * weights.max())
    if clear.size <= _FIRST_GUESS and weights[clear].sum(dtype=np.float64) >= goal:
        return np.sort(_heaviest(weights, clear, goal))
    best = highest(weights, _FIRST_GUESS, scratch)
    if best.size < weights.size and weights[best].sum(dtype=np.float64) < goal:
        return _wide_nucleus(weights, goal)
    return np.sort(_heaviest(weights, best, goal))


def _wide_nucleus(weights: Logits, goal: float) -> NDArray[np.int64]:
    """The same without sorting them all: only those in the bin where the goal is reached.

    The bit patterns of positive floats order as the floats do, so their high bits are bins.
    """
    bins = weights.view(np.int32) >> _BIN_SHIFT
    masses = np.bincount(bins, weights=weights)
    from_top = np.cumsum(masses[::-1])
    steps = min(int(np.searchsorted(from_top, goal)), masses.size - 1)
    edge = masses.size - 1 - steps
    before = float(from_top[steps - 1]) if steps else 0.0
    keep = bins > edge
    keep[_heaviest(weights, np.flatnonzero(bins == edge), goal - before)] = True
    return np.flatnonzero(keep)


def _heaviest(weights: Logits, among: NDArray[np.int64], goal: float) -> NDArray[np.int64]:
    """The fewest of some positions whose weights reach the goal, heaviest first."""
    order = among[np.argsort(-weights[among], kind="stable")]
    cumulative = np.cumsum(weights[order], dtype=np.float64)
    return order[: int(np.searchsorted(cumulative, goal)) + 1]


def draw(weights: Logits, point: float) -> int:
    """Index of a weight, with probability in proportion; `point` is uniform in [0, 1).

    A weight of 0 is never drawn. Two levels, blocks and then the weights of one block, since a
    running sum over a whole vocabulary costs more than all the other steps together.
    """
    begin, end = 0, weights.size
    if weights.size > 2 * _BLOCK:
        blocks = np.add.reduceat(weights, np.arange(0, weights.size, _BLOCK))
        block, point = _fall(blocks, point)
        begin, end = block * _BLOCK, (block + 1) * _BLOCK
    index, _ = _fall(weights[begin:end], point)
    return begin + index


def _fall(weights: Logits, point: float) -> tuple[int, float]:
    """The weight in which a point of [0, 1) falls, and how far into it, again in [0, 1]."""
    cumulative = np.cumsum(weights, dtype=np.float64)
    target = point * cumulative[-1]
    index = int(np.searchsorted(cumulative, target, side="right"))
    if index >= weights.size:  # the product was rounded up to the total
        index = int(np.flatnonzero(weights)[-1])
    width = float(weights[index])
    return index, min(max(0.0, (target - (cumulative[index] - width)) / width), 1.0)


def log_sum_exp(values: Logits) -> float:
    """ln of the sum of exp, in float64 where it is added up."""
    highest = float(values.max())
    return highest + float(np.log(np.exp(values - np.float32(highest)).sum(dtype=np.float64)))
