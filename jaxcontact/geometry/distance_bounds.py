"""Lower bounds of the distances of shapes at one pose, by NumPy: there is no program to compile.

Owns `distance_bounds`, which tells the few pairs of a robot that may touch from the hundreds that are apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from jaxcontact.geometry.shapes import Box, Capsule, Constants, ConvexMesh, Cylinder, Ellipsoid, Shape, Sphere
from jaxcontact.geometry.support import core_in_body

NUM_DIRECTIONS = 512  # along which projections are compared; a distance of d is bounded from below by 0.99 d


def distance_bounds(
    bodies: tuple[str, ...],
    shapes: Mapping[str, Shape],
    pairs: tuple[tuple[str, str], ...],
    positions: np.ndarray,
    orientations: np.ndarray,
    constants: Constants,
) -> np.ndarray:
    """Bound the distances of pairs of shapes in space from below, m.

    Two bodies are at least as far apart as their projections on any line. For the directions d of a set that
    contains -d with d, h(d) = max over x of x . d: the distance is at least max over d of -h_a(-d) - h_b(d).

    Args:
        bodies: names of the bodies.
        shapes: by name.
        pairs: names of the two shapes of each pair.
        positions: (nb, 3) of the bodies, m.
        orientations: (nb, 3, 3) body-to-world rotation matrices.
        constants: numbers of the shapes.

    Returns:
        (np,); -inf for a pair with a shape that is no ball, box, capsule, cylinder, ellipsoid or hull.
    """
    directions = _directions()
    heights: dict[str, np.ndarray | None] = {}
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        shape = shapes[name]
        owner = getattr(shape, "body", None)
        position, orientation = np.zeros(3), np.eye(3)
        if owner is not None:
            position, orientation = positions[bodies.index(owner)], orientations[bodies.index(owner)]
        local = _heights(shape, directions @ orientation, constants)
        heights[name] = None if local is None else local + directions @ position
    bounds = np.full(len(pairs), -np.inf)
    half = len(directions) // 2
    for k, (a, b) in enumerate(pairs):
        high_a, high_b = heights[a], heights[b]
        if high_a is not None and high_b is not None:
            bounds[k] = np.max(-np.roll(high_a, half) - high_b)
    return bounds


def _directions() -> np.ndarray:
    """Spread unit vectors (n, 3) over the sphere: a spiral of equal areas, then their opposites."""
    half = NUM_DIRECTIONS // 2
    z = (np.arange(half) + 0.5) / half
    angle = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(half)
    radius = np.sqrt(1.0 - z**2)
    upper = np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)
    return np.concatenate([upper, -upper])


def _heights(shape: Shape, directions: np.ndarray, constants: Constants) -> np.ndarray | None:
    """Compute the heights of a shape along directions in its body, None for an unbounded or planar shape."""
    if isinstance(shape, Sphere):
        centre = np.zeros(3) if shape.at is None else np.asarray(constants[shape.at], float)
        return directions @ centre + float(constants[shape.radius])
    if not isinstance(shape, Box | Capsule | ConvexMesh | Cylinder | Ellipsoid):
        return None
    core, radius = core_in_body(shape, constants, float)
    corners = np.max(directions @ np.asarray(core.vertices).T, axis=1)
    return corners + np.linalg.norm(directions @ np.asarray(core.ellipsoid), axis=1) + float(radius)
