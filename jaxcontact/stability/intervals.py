"""Arrays of intervals: floats rounded outward after every operation, so that the bounds are proved.

Owns `Interval`; entry functions `outward`, `of_fraction`. One step of `nextafter` beyond a correctly rounded
result bounds the exact one.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np


@dataclasses.dataclass(frozen=True)
class Interval:
    """All numbers between lo and hi, both included, entry by entry; intervals broadcast as arrays do."""

    lo: np.ndarray
    hi: np.ndarray

    def __add__(self, other: Interval) -> Interval:
        is_exact = [(x == 0) | (y == 0) for x, y in ((self.lo, other.lo), (self.hi, other.hi))]
        return outward(self.lo + other.lo, self.hi + other.hi, *is_exact)

    def __neg__(self) -> Interval:
        return Interval(-self.hi, -self.lo)

    def __sub__(self, other: Interval) -> Interval:
        return self + -other

    def __mul__(self, other: Interval) -> Interval:
        pairs = [(x, y) for x in (self.lo, self.hi) for y in (other.lo, other.hi)]
        ends = [outward(x * y, x * y, (x == 0) | (y == 0), (x == 0) | (y == 0)) for x, y in pairs]
        return _hull(ends)

    def over(self, other: Interval) -> Interval:
        """Divide by numbers > 0."""
        pairs = [(x, y) for x in (self.lo, self.hi) for y in (other.lo, other.hi)]
        return _hull([outward(x / y, x / y, x == 0, x == 0) for x, y in pairs])

    def root(self) -> Interval:
        """Take square roots, of the non-negative part."""
        inside = self.clipped(0.0, np.inf)
        return outward(np.sqrt(inside.lo), np.sqrt(inside.hi)).clipped(0.0, np.inf)

    def size(self) -> Interval:
        """Take absolute values."""
        lowest = np.maximum(np.maximum(self.lo, -self.hi), 0.0)
        return Interval(lowest, np.maximum(-self.lo, self.hi))

    def clipped(self, low: np.ndarray | float, high: np.ndarray | float) -> Interval:
        """Clip to two floats; an interval outside of them becomes the nearer one."""
        return Interval(np.clip(self.lo, low, high), np.clip(self.hi, low, high))

    def meet(self, other: Interval) -> Interval:
        """Intersect two intervals that enclose the same numbers."""
        lo, hi = np.maximum(self.lo, other.lo), np.minimum(self.hi, other.hi)
        return Interval(np.minimum(lo, hi), hi)


def outward(
    lo: np.ndarray,
    hi: np.ndarray,
    low_known: np.ndarray | bool = False,
    high_known: np.ndarray | bool = False,
) -> Interval:
    """Make an interval from rounded ends, each widened by one float unless it is known to be exact."""
    low = np.where(low_known, lo, np.nextafter(lo, -np.inf))
    return Interval(low, np.where(high_known, hi, np.nextafter(hi, np.inf)))


def _hull(parts: list[Interval]) -> Interval:
    return Interval(
        np.minimum.reduce([part.lo for part in parts]), np.maximum.reduce([part.hi for part in parts])
    )


def of_fraction(x: Fraction) -> Interval:
    """Enclose a rational number; the interval is exact if the number is a float."""
    near = float(x)
    ends = [near if x == Fraction(near) else np.nextafter(near, side) for side in (-np.inf, np.inf)]
    return Interval(np.array(ends[0]), np.array(ends[1]))
