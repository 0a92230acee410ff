"""Surfaces of shapes as points, and their outline in a picture: the hull of the points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxcontact.algebra import rotations
from jaxcontact.geometry import Box, Capsule, ConvexMesh, Cylinder, Ellipsoid, Polygon

ROUND = 48  # points of a circle
OUTLINED = (Capsule, Cylinder, Ellipsoid, Polygon, ConvexMesh)


def _sphere(dim: int) -> np.ndarray:
    """Points of the unit circle, or of the unit sphere."""
    angle = 2.0 * np.pi * np.arange(ROUND) / ROUND
    ring = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    if dim == 2:
        return ring
    tilt = np.pi * np.arange(ROUND // 2 + 1) / (ROUND // 2)
    around = np.sin(tilt)[:, None, None] * ring[None]
    up = np.broadcast_to(np.cos(tilt)[:, None, None], (len(tilt), ROUND, 1))
    return np.concatenate([around, up], axis=2).reshape(-1, 3)


def box_corners(shape: Box, dim: int, constants: Mapping[str, Any]) -> np.ndarray:
    """All corners (2^dim, dim) in body coordinates, by the bits of their index."""
    signs = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(dim)] for k in range(2**dim)])
    return posed(shape, dim, constants, 0.5 * np.asarray(constants[shape.size], float) * signs)


def posed(shape: Any, dim: int, constants: Mapping[str, Any], points: np.ndarray) -> np.ndarray:
    """Points of a shape with `at` and `rotation` in body coordinates."""
    return points @ axes_of(shape, dim, constants).T + (
        np.zeros(dim) if shape.at is None else np.asarray(constants[shape.at], float)
    )


def axes_of(shape: Any, dim: int, constants: Mapping[str, Any]) -> np.ndarray:
    """Axes (dim, dim) of a shape in its body, as columns."""
    if shape.rotation is None:
        return np.eye(dim)
    turn = constants[shape.rotation]
    return np.asarray(rotations.planar_matrix(turn) if dim == 2 else rotations.quaternion_matrix(turn))


def surface(shape: Any, dim: int, constants: Mapping[str, Any]) -> np.ndarray:
    """Points (k, dim) of the surface of one of `OUTLINED`, in body coordinates."""

    def number(what: str) -> np.ndarray:
        return np.asarray(constants[getattr(shape, what)], float)

    if isinstance(shape, Polygon | ConvexMesh):
        return number("vertices")
    if isinstance(shape, Capsule):
        return (number("ends")[:, None] + number("radius") * _sphere(dim)[None]).reshape(-1, dim)
    if isinstance(shape, Ellipsoid):
        return posed(shape, dim, constants, number("semi_axes") * _sphere(3))
    ring = np.concatenate([number("radius") * _sphere(2), np.zeros((ROUND, 1))], axis=1)
    cap = np.array([0.0, 0.0, float(number("half_length"))])
    return posed(shape, dim, constants, np.concatenate([ring - cap, ring + cap]))


def outline(points: np.ndarray) -> np.ndarray:
    """The hull (m, 2) of points (k, 2), counter-clockwise."""
    from scipy.spatial import ConvexHull

    return np.asarray(points[ConvexHull(points).vertices])
