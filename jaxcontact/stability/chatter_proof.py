"""Proof of stability by the return map: entry functions `find` and `proves`.

V(w, s) = U max(w, |s|), U per cell of directions (w, s) and foot, falls by a fraction at each landing, so
sizes, times and displacements fall geometrically. Only when both feet slide with w -> 0 it cannot: there
V = U (|s| + C w), a C per foot, falls by a multiple of w; times and displacements still have finite sums.
`chatter_map` encloses the images of a cell; U comes from longest paths. Page: docs/methods/stability.md.
"""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import numpy as np

from jaxcontact.stability.chatter_map import ChatterMap, chatter_map, flights, images
from jaxcontact.stability.intervals import Interval, of_fraction, outward
from jaxcontact.stability.rational_modes import Exact, Unprovable

CELLS = 400, 1600, 6400  # of directions over either foot; the next number is tried if no U is found with one
MIN_FALL = 1e-6  # minimum fraction of V lost at every landing but those of joint sliding
LARGE, ROUNDS = 1e6, 4000  # largest U, and number of passes over all cells: the search stops at either
WIDER = 1e-13  # largest change of the coordinate of a direction through rounding
SLACK = Fraction(1, 100)  # fall of |s| + C w per w at a landing of joint sliding


@dataclasses.dataclass(frozen=True)
class End:
    """Landings as w -> 0, both feet sliding one way: per foot, (w, |s|) becomes (grow w, |s| + turn w).

    `weights` are the C.
    """

    grow: tuple[Fraction, Fraction]
    turn: tuple[Fraction, Fraction]
    weights: tuple[Fraction, Fraction]


@dataclasses.dataclass(frozen=True)
class Graph:
    """Edges: V at node `target` is at most `growth` of V at node `source`, for U = 1."""

    size: int
    source: np.ndarray
    target: np.ndarray
    growth: np.ndarray


def find(body: Exact) -> np.ndarray | None:
    """Find U of every cell; return None if the search fails for all numbers of cells.

    Raises:
        Unprovable: a body that the return map does not cover.
    """
    chatter = chatter_map(body)
    for cells in CELLS:
        values = _longest(graph(chatter, cells))
        if values is not None:
            return values
    return None


def proves(body: Exact, values: np.ndarray) -> bool:
    """Return whether U proves that the body is stable, provided that no mode starts from rest."""
    cells = (len(values) - 2) // 2
    edges = graph(chatter_map(body), cells)
    if len(values) != edges.size or not np.all((values > 0) & (values < 2 * LARGE)):
        return False
    return bool(np.all(values[edges.source] >= edges.growth * values[edges.target] * (1 + MIN_FALL / 2)))


def graph(chatter: ChatterMap, cells: int) -> Graph:
    """Collect all edges between cells: of foot 0, of foot 1, then of joint sliding in either direction."""
    ends = {sign: _describe_end(chatter, sign) for sign in (1, -1)}
    small = min(
        (_find_small(chatter, sign, end) for sign, end in ends.items() if end), default=Fraction(1, 64)
    )
    grid = _grid(cells, float(small))
    plan = _Plan(chatter, ends, grid)
    for foot in range(2):
        plan.landings(foot)
    for sign in (1, -1):
        plan.slidings(sign)
    return plan.graph()


def _grid(cells: int, small: float) -> np.ndarray:
    """Divide the directions into cells by one number: -2 + w / |s| for s < -w, s / w, 2 - w / s for s > w."""
    quarter = cells // 4
    left = np.linspace(-2.0 + small, -1.0, quarter)
    middle = np.linspace(-1.0, 1.0, cells - 2 * quarter + 1)[1:-1]
    return np.concatenate([[-2.0], left, middle, -left[::-1], [2.0]])


def _coordinate(w: np.ndarray, s: np.ndarray) -> np.ndarray:
    size = np.maximum(np.maximum(w, np.abs(s)), 1e-300)
    return np.where(np.abs(s) > w, np.sign(s) * (2.0 - w / size), s / size)


def _range(w: Interval, s: Interval) -> tuple[np.ndarray, np.ndarray]:
    """Bound the coordinates of the directions in boxes; return their minimum and maximum."""
    low = _coordinate(np.where(s.lo < 0, w.lo, w.hi), s.lo)
    high = _coordinate(np.where(s.hi > 0, w.lo, w.hi), s.hi)
    return low - WIDER, high + WIDER


def _boxes(grid: np.ndarray) -> tuple[Interval, Interval]:
    """Enclose (w, s) of size one in every cell."""
    low, high = grid[:-1], grid[1:]
    side = np.where(high <= -1.0, -1.0, np.where(low >= 1.0, 1.0, 0.0))
    near, far = 2.0 - np.maximum(np.abs(low), np.abs(high)), 2.0 - np.minimum(np.abs(low), np.abs(high))
    w = outward(np.where(side == 0, 1.0, near), np.where(side == 0, 1.0, far)).clipped(0.0, 1.0)
    return w, Interval(np.where(side == 0, low, side), np.where(side == 0, high, side))


def _describe_end(chatter: ChatterMap, sign: int) -> End | None:
    """Describe joint sliding with ever smaller landings; return None if a foot lifts off from it."""
    grow, turn = [], []
    for foot in range(2):
        slip_sign = sign * chatter.signs[1 - foot]
        matching = (landing for landing in chatter.landings[foot] if landing.sign == slip_sign)
        landing = next(matching, None)
        if landing is None:
            return None
        rate, change = landing.matrix[0][0], slip_sign * landing.matrix[1][0]
        lift, slide = chatter.stances[1 - foot].slip[slip_sign]
        if rate > 0:
            if lift >= 0:
                return None
            change += slip_sign * slide * 2 * rate / -lift
        grow.append(abs(rate))
        turn.append(change)
    return End((grow[0], grow[1]), (turn[0], turn[1]), _find_weights(*grow, *(x + SLACK for x in turn)))


def _find_weights(k: Fraction, m: Fraction, a: Fraction, b: Fraction) -> tuple[Fraction, Fraction]:
    """Find (C, D) with C >= k D + a and D >= m C + b, k and m >= 0: as small as possible, not negative.

    If landings grow, k m > 1, both relations are equalities.
    """
    for c, d in ((Fraction(0), Fraction(0)), (Fraction(0), b), (a, Fraction(0))):
        if c >= k * d + a and d >= m * c + b:
            return c, d
    if k * m == 1:
        raise Unprovable("joint sliding neither draws landings in nor drives them out")
    return (a + k * b) / (1 - k * m), (b + m * a) / (1 - k * m)


def _find_small(chatter: ChatterMap, sign: int, end: End) -> Fraction:
    """Find a w / |s| up to which landings are as `end` says."""
    small = Fraction(1, 64)
    for _ in range(40):
        if all(_matches_end(chatter, sign, end, foot, small) for foot in range(2)):
            return small
        small /= 2
    raise Unprovable("joint sliding is not determined")


def _matches_end(chatter: ChatterMap, sign: int, end: End, foot: int, small: Fraction) -> bool:
    """Return whether the landings of a foot are as `end` says up to a w / |s| = `small`."""
    landing_sign, start_sign = sign * chatter.signs[1 - foot], sign * chatter.signs[foot]
    landing = next(landing for landing in chatter.landings[foot] if landing.sign == landing_sign)
    inside = all(b * start_sign > 0 and a * small + b * start_sign > 0 for a, b in landing.valid)
    slips = 1 + min(end.turn[foot], landing_sign * landing.matrix[1][0]) * small
    weight = 1 + end.weights[foot] * small
    return inside and slips >= Fraction(1, 2) and Fraction(1, 2) <= weight <= 2


class _Plan:
    """Collector of edges between cells."""

    def __init__(self, chatter: ChatterMap, ends: dict[int, End | None], grid: np.ndarray) -> None:
        self.chatter, self.ends, self.grid = chatter, ends, grid
        self.cells = len(grid) - 1
        self.parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def sliding(self, sign: int) -> int:
        """Return the node of joint sliding in the direction `sign`."""
        return 2 * self.cells + (sign < 0)

    def node(self, foot: int, cell: np.ndarray) -> np.ndarray:
        """Return the node of a cell; if joint sliding has landings, the cells at its end have its node."""
        node = foot * self.cells + cell
        for sign, end in self.ends.items():
            last = self.cells - 1 if sign * self.chatter.signs[foot] > 0 else 0
            if end is not None:
                node = np.where(cell == last, self.sliding(sign), node)
        return node

    def graph(self) -> Graph:
        """Return the collected edges, sorted by source."""
        source, target, growth = (np.concatenate(columns) for columns in zip(*self.parts, strict=True))
        order = np.argsort(source, kind="stable")
        return Graph(2 * self.cells + 2, source[order], target[order], growth[order])

    def landings(self, foot: int) -> None:
        """Add edges from the cells of one foot to those of the other."""
        w, s = _boxes(self.grid)
        source = self.node(foot, np.arange(self.cells))
        ordinary = source < 2 * self.cells
        for piece in images(self.chatter, foot, w, s):
            if len(piece) == 3:
                self.edges(source, piece[0] & ordinary, 1 - foot, piece[1], piece[2])
                continue
            mask, slip = piece
            for sign in (1, -1):
                slip_sign = sign * self.chatter.signs[1 - foot]
                onto = mask & ordinary & (slip.hi > 0 if slip_sign > 0 else slip.lo < 0)
                growth = slip.size().hi[onto]
                self.parts.append((source[onto], np.full(growth.shape, self.sliding(sign)), growth))
        for sign, end in self.ends.items():
            if end is not None:
                self.leaving(foot, sign, end)

    def leaving(self, foot: int, sign: int, end: End) -> None:
        """Add edges that leave joint sliding at the landing of one foot; inside it V falls by `SLACK` w."""
        small = 2.0 - self.grid[-2]  # size of the cells at the ends, as rounded
        reach = outward(np.zeros(1), np.full(1, small)).clipped(0.0, np.inf)
        slip = of_fraction(Fraction(1)) + of_fraction(end.turn[foot]) * reach
        w = of_fraction(end.grow[foot]) * reach
        min_source_value = (of_fraction(Fraction(1)) + of_fraction(end.weights[foot]) * reach).lo
        slip_sign = sign * self.chatter.signs[1 - foot]
        slip = slip if slip_sign > 0 else -slip
        source = np.full(1, self.sliding(sign))
        everywhere, node = np.ones(1, bool), self.sliding(sign)
        self.edges(source, everywhere, 1 - foot, w, slip, min_source_value=min_source_value, skip=node)

    def slidings(self, sign: int) -> None:
        """Add edges from joint sliding to the landing of a foot that lifts off."""
        for foot in range(2):
            slip_sign = sign * self.chatter.signs[foot]
            stance = self.chatter.stances[foot]
            if stance.slip[slip_sign][0] < 0:
                continue
            none, unit_slip = np.zeros(1), np.full(1, float(slip_sign))
            direction = Interval(none, none), Interval(unit_slip, unit_slip)
            for mask, w, s in flights(stance, slip_sign, *direction):
                self.edges(np.full(1, self.sliding(sign)), mask, foot, w, s)

    def edges(
        self,
        source: np.ndarray,
        mask: np.ndarray,
        foot: int,
        w: Interval,
        s: Interval,
        *,
        min_source_value: np.ndarray | float = 1.0,
        skip: int = -1,
    ) -> None:
        """Add edges to all cells of a foot that boxes (w, s) touch, except `skip`.

        `min_source_value` is the minimum of V at the source.
        """
        size = np.maximum(w.hi, s.size().hi)
        mask = mask & (size > 0)
        low, high = _range(w, s)
        first = np.clip(np.searchsorted(self.grid, low, side="left") - 1, 0, self.cells - 1)[mask]
        last = np.clip(np.searchsorted(self.grid, high, side="right") - 1, 0, self.cells - 1)[mask]
        count = np.maximum(last - first, 0) + 1
        which = np.repeat(np.flatnonzero(mask), count)
        cell = np.arange(len(which)) - np.repeat(np.cumsum(count) - count - first, count)
        target = self.node(foot, cell)
        height = size[which]
        for sign, end in self.ends.items():
            if end is not None:
                weighed = (s.size() + of_fraction(end.weights[foot]) * w).hi[which]
                height = np.where(target == self.sliding(sign), weighed, height)
        base = np.broadcast_to(min_source_value, size.shape)[which]
        growth = np.maximum(np.nextafter(height / base, np.inf), 0.0)
        is_edge = target != skip
        self.parts.append((source[which][is_edge], target[is_edge], growth[is_edge]))


def _longest(edges: Graph) -> np.ndarray | None:
    """Find the smallest U >= 1 that falls by `MIN_FALL` along all edges; return None if cycles forbid it."""
    values = np.ones(edges.size)
    starts = np.flatnonzero(np.diff(edges.source, prepend=-1))
    nodes, growth = edges.source[starts], edges.growth * (1.0 + MIN_FALL)
    for _ in range(ROUNDS):
        demanded = np.maximum.reduceat(growth * values[edges.target], starts)
        higher = np.maximum(values[nodes], demanded)
        if np.array_equal(higher, values[nodes]):
            return values
        values[nodes] = higher
        if not np.max(higher) < LARGE:
            return None
    return None
