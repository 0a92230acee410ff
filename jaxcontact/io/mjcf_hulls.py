"""Convex hulls of meshes, and hulls with fewer corners.

A hull is thinned by the order in which quickhull would find its corners: the next corner is the one farthest
outside the hull of those chosen so far. The entry function is `hull_of`.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

FEWEST_CORNERS = 4  # smallest number of corners of a solid, a tetrahedron
CHUNK = 4096  # points whose distances to all faces are computed at once; limits memory


class FileHull(NamedTuple):
    """The corners (n, 3) of a convex hull, and the distance of its surface from that of the whole mesh, m."""

    corners: np.ndarray
    displacement: float


def hull_of(points: np.ndarray, max_vertices: int | None = None) -> FileHull:
    """Compute the convex hull of points (n, 3), with at most `max_vertices` corners.

    Raises:
        ValueError: the points lie in a plane.
    """
    corners = _select_corners(np.asarray(points, float))
    if max_vertices is None or len(corners) <= max_vertices:
        return FileHull(corners, 0.0)
    thin = _select_corners(_farthest_first(corners, max_vertices))
    return FileHull(thin, displacement(corners, thin))


def _select_corners(points: np.ndarray) -> np.ndarray:
    """Select the points that are corners of their hull, again until rounding drops no nearly equal point."""
    from scipy.spatial import ConvexHull, QhullError

    try:
        while True:
            chosen = np.sort(ConvexHull(points).vertices)
            if len(chosen) == len(points):
                return points
            points = points[chosen]
    except QhullError:
        raise ValueError("the points lie in a plane: a mesh of no volume") from None


def _farthest_first(corners: np.ndarray, count: int) -> np.ndarray:
    """Choose `count` corners with a hull near that of all: each is the farthest from the hull before it."""
    from scipy.spatial import ConvexHull

    chosen = _spread_corners(corners)
    hull = ConvexHull(corners[chosen], incremental=True)
    while len(chosen) < count:
        heights = np.max(corners @ hull.equations[:, :3].T + hull.equations[:, 3], axis=1)
        heights[chosen] = -np.inf
        farthest = int(np.argmax(heights))
        if heights[farthest] <= 0.0:
            break
        chosen.append(farthest)
        hull.add_points(corners[[farthest]])
    hull.close()
    return corners[np.sort(chosen)]


def _spread_corners(corners: np.ndarray) -> list[int]:
    """Choose four corners of a large tetrahedron; all but the first are farthest from those before."""
    chosen = [int(np.argmax(np.linalg.norm(corners - corners.mean(axis=0), axis=1)))]
    residual = corners - corners[chosen[0]]
    for _ in range(FEWEST_CORNERS - 1):
        lengths = np.linalg.norm(residual, axis=1)
        chosen.append(int(np.argmax(lengths)))
        direction = residual[chosen[-1]] / lengths[chosen[-1]]
        residual = residual - np.outer(residual @ direction, direction)
    return chosen


def displacement(corners: np.ndarray, thin: np.ndarray) -> float:
    """Compute the largest distance of `corners` from the hull of `thin`, which lies within theirs, m."""
    from scipy.spatial import ConvexHull

    triangles = thin[ConvexHull(thin).simplices]
    chunks = (corners[k : k + CHUNK] for k in range(0, len(corners), CHUNK))
    outside = itertools.chain.from_iterable(_distances(chunk, triangles) for chunk in chunks)
    return float(max(outside))


def _distances(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """Compute the distance (n,) of each point to the nearest of the triangles (m, 3, 3)."""
    a = triangles[None, :, 0]
    edges = triangles - np.roll(triangles, 1, axis=1)  # (m, 3, 3): each corner less the one before it
    nearest = np.full((len(points), len(triangles)), np.inf)
    for k in range(3):
        start, edge = np.roll(triangles, 1, axis=1)[:, k], edges[:, k]
        along = np.einsum("nmi,mi->nm", points[:, None] - start, edge) / np.sum(edge**2, axis=1)
        foot = start + np.clip(along, 0.0, 1.0)[..., None] * edge
        nearest = np.minimum(nearest, np.linalg.norm(points[:, None] - foot, axis=2))
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    unit = normal / np.where(length > 0.0, length, 1.0)
    height = np.einsum("nmi,mi->nm", points[:, None] - a, unit)
    foot = points[:, None] - height[..., None] * unit
    sides = [
        np.einsum("nmi,mi->nm", np.cross(edges[:, k], foot - np.roll(triangles, 1, axis=1)[:, k]), unit)
        for k in range(3)
    ]
    inside = np.all(np.stack(sides) >= 0.0, axis=0) & (length[:, 0] > 0.0)
    return np.min(np.where(inside, np.minimum(nearest, np.abs(height)), nearest), axis=1)
