"""Rays and lines that generate a polyhedral cone, in integers: entry function `cone_generators`.

Cones of velocities have two to four dimensions and few facets: every choice of facets is tried, and the
direction common to them is a row of minors, which takes a tenth of the time of an elimination.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from jaxcontact.stability.rational import Ints, null_space, reduce_rows, whole, zeros

Row = list[int]


def cone_generators(equal: Ints, at_least: Ints) -> tuple[Ints, Ints]:
    """Compute rays and lines, of coprime integers, that generate exactly {x: equal x = 0, at_least x >= 0}.

    If there are lines, rays are orthogonal to them.
    """
    size = equal.shape[1]
    fixed = (reduce_rows(equal)[0] if len(equal) > 1 or not np.any(equal) else equal).tolist()
    facets = at_least.tolist()
    rays = _pointed(fixed, facets, size)
    if rays is not None:
        return rays, zeros(0, size)
    lines = null_space(np.concatenate([equal, at_least]))
    rays = _pointed([*fixed, *lines.tolist()], facets, size)
    return zeros(0, size) if rays is None else rays, lines


def _pointed(fixed: list[Row], facets: list[Row], size: int) -> Ints | None:
    """Compute the rays of a cone with independent rows `fixed`; return None if it has lines or is a point."""
    rays: dict[tuple[int, ...], None] = {}
    pointed = False
    for chosen in itertools.combinations(range(len(facets)), max(size - 1 - len(fixed), 0)):
        x = common_direction([*fixed, *(facets[i] for i in chosen)], size)
        if x is None:
            continue
        above = below = False
        for i, facet in enumerate(facets):
            if i not in chosen:
                value = sum(map(int.__mul__, facet, x))
                above, below = above or value > 0, below or value < 0
                if above and below:
                    break
        if above or below:  # this choice of rows is regular
            pointed = True
            if above != below:
                factor = math.gcd(*x) if above else -math.gcd(*x)
                rays[tuple(entry // factor for entry in x)] = None
    return whole(list(rays)).reshape(len(rays), size) if pointed else None


def common_direction(rows: Sequence[Row], size: int) -> Row | None:
    """Compute the direction in which size - 1 rows vanish, by minors; return None if it is not unique."""
    if len(rows) != size - 1:
        return None
    if size == 2:
        ((a, b),) = rows
        minors = [b, -a]
    elif size == 3:
        (a, b, c), (d, e, f) = rows
        minors = [b * f - c * e, c * d - a * f, a * e - b * d]
    elif size == 4:
        (a, b, c, d), (e, f, g, h), (p, q, r, s) = rows
        ef, eg, eh = e * q - f * p, e * r - g * p, e * s - h * p
        fg, fh, gh = f * r - g * q, f * s - h * q, g * s - h * r
        minors = [
            b * gh - c * fh + d * fg,
            c * eh - a * gh - d * eg,
            a * fh - b * eh + d * ef,
            b * eg - a * fg - c * ef,
        ]
    else:
        null = null_space(whole(rows).reshape(len(rows), size))
        return null[0].tolist() if len(null) == 1 else None
    return minors if any(minors) else None
