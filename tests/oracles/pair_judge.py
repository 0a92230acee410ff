"""The signed distance of convex bodies from support functions in plain NumPy, with nothing of the package.

A body is the hull of vertices plus an ellipsoid plus a ball. For every unit direction n the height h(n) of the
difference b - a bounds the signed distance from below by -h(n), and the lowest height is minus the distance. The
differences of the vertices span a polytope, whose normal cones divide the sphere; within a cone h is smooth.
`judge` searches for the minima in all of them: facets exactly, edges along their arcs, corners by Newton's method
from many directions. Many pairs of bodies are judged at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import nnls
from scipy.spatial import ConvexHull, QhullError

UNIQUE = 0.01  # of the depth, by which the second lowest minimum must exceed the lowest
STEPS = 32  # angles on an arc, and as many more for each ellipsoid
ALONE = 1e-5  # rad; minima nearer than this are one
ROUNDING = 1e-15  # of the size; of directions as low up to this, that whose nearest points fit best is taken
ALIKE = 6  # as many of them are compared
SHORT = 1e-7  # rad; an arc of this length is that between the parts of a flat facet


class Solid(NamedTuple):
    """A convex body in the world."""

    vertices: np.ndarray  # (n, 3)
    ellipsoid: np.ndarray  # (3, 3), its columns are semi-axes; zero columns for a disc or none
    radius: float


class Verdict(NamedTuple):
    """The signed distance of two bodies, its direction from b to a, and the points that are this far apart."""

    gap: float
    normal: np.ndarray  # (3,)
    is_unique: bool  # False if another minimum is as low by 1 %
    points: np.ndarray  # (2, 3) of a and b; not a number if several pairs of points are nearest


def lattice(count: int) -> np.ndarray:
    """Spread unit vectors (count, 3) over the sphere, along a spiral of equal areas."""
    z = 1.0 - (2.0 * np.arange(count) + 1.0) / count
    angle = np.pi * (3.0 - np.sqrt(5.0)) * np.arange(count)
    radius = np.sqrt(1.0 - z**2)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), z], axis=1)


LATTICE = lattice(900)


def normalised(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors (n, 3) to length one, and leave out those of zero."""
    vectors = np.asarray(vectors, float).reshape(-1, 3)
    largest = np.max(np.abs(vectors), axis=1, keepdims=True)
    vectors = vectors[largest[:, 0] > 0.0] / largest[largest[:, 0] > 0.0]
    return vectors / np.sqrt(inner(vectors, vectors))[:, None]


def inner(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Multiply rows (..., 3) of two arrays."""
    return np.einsum("...i,...i->...", x, y)


def crossed(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Compute cross products of rows (n, 3); faster than NumPy's for few rows."""
    return x[:, [1, 2, 0]] * y[:, [2, 0, 1]] - x[:, [2, 0, 1]] * y[:, [1, 2, 0]]


class Difference:
    """The difference b - a: a polytope plus ellipsoids plus a ball."""

    def __init__(self, a: Solid, b: Solid):
        """Find the polytope of the differences of all vertices."""
        self.a, self.b = a, b
        self.corners = (b.vertices[:, None] - a.vertices[None]).reshape(-1, 3)
        self.ellipsoids = np.stack([a.ellipsoid, b.ellipsoid])
        self.radius = a.radius + b.radius
        self.size = float(
            np.max(np.ptp(self.corners, axis=0))
            + sum(np.max(np.abs(e)) for e in self.ellipsoids)
            + self.radius
        )
        self.facets, edges, self.arcs = _polytope(self.corners, self.size)
        self.edges = self.corners[edges]  # (k, 2, 3)
        if self.arcs is not None:
            self.corners = self.corners[np.unique(edges)]

    def height(self, normals: np.ndarray) -> np.ndarray:
        """Compute the height along unit directions (n, 3), without the ball."""
        height = np.max(normals @ self.corners.T, axis=1)
        for ellipsoid in self.ellipsoids:
            image = normals @ ellipsoid
            height = height + np.sqrt(inner(image, image))
        return height

    def easy_directions(self) -> np.ndarray:
        """Collect the directions (n, 3) that are minima of a polytope alone, and the axes of the ellipsoids."""
        start, along = self.edges[:, 0], self.edges[:, 1] - self.edges[:, 0]
        share = np.clip(-inner(start, along) / np.maximum(inner(along, along), 1e-300), 0.0, 1.0)
        feet = start + share[:, None] * along
        found = [self.facets, -normalised(self.corners), -normalised(feet), LATTICE[::100]]
        if (
            self.arcs is None and len(along) == 1
        ):  # all directions across a segment, where it meets the origin
            first = normalised(crossed(along, np.eye(3)[np.argmin(np.abs(along), axis=1)]))
            found += [first, -first, crossed(first, normalised(along))]
        for ellipsoid in self.ellipsoids:
            if np.any(ellipsoid):
                axes = np.linalg.svd(ellipsoid)[0].T
                found += [axes, -axes]
        return np.concatenate(found)

    def starts(self, easy: np.ndarray) -> np.ndarray:
        """Choose directions (n, 3) from which Newton's method finds the minima within corners."""
        samples = [LATTICE, easy]
        for ellipsoid in self.ellipsoids:
            if np.any(ellipsoid):  # normals of evenly spread points
                left, extents, _ = np.linalg.svd(ellipsoid)
                samples.append(normalised(LATTICE[::2] / np.maximum(extents, 1e-6 * extents[0])) @ left.T)
        tried = np.concatenate(samples)
        order = np.argsort(self.height(tried))
        return np.concatenate([tried[order[:16]], tried[order[16 : len(order) // 2 : 48]]])


def _polytope(vertices: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Find facet normals (m, 3), edges (k, 2) and the normals (k, 2, 3) that bound their arcs, None for circles."""
    middle = vertices - vertices.mean(axis=0)
    _, extents, axes = np.linalg.svd(middle, full_matrices=True)
    rank = int(np.sum(extents > 1e-13 * max(size, 1e-300)))
    if rank == 0:
        return np.zeros((0, 3)), np.zeros((0, 2), int), None
    if rank == 1:
        along = middle @ axes[0]
        return np.zeros((0, 3)), np.array([[np.argmin(along), np.argmax(along)]]), None
    if rank == 2:
        try:
            edges = ConvexHull(middle @ axes[:2].T).simplices
        except QhullError:
            edges = np.stack(np.triu_indices(len(vertices), 1), axis=1)
        return np.stack([axes[2], -axes[2]]), edges, None
    # Stretched to a round shape, so that thin bodies have facets as well.
    stretched = middle @ axes.T / extents[None]
    try:
        hull = ConvexHull(stretched)
    except QhullError:
        hull = ConvexHull(stretched, qhull_options="QJ Qt")
    corners = vertices[hull.simplices]
    exact = crossed(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    lengths = np.sqrt(inner(exact, exact))[:, None]
    outward = normalised(hull.equations[:, :3] / extents[None] @ axes)
    exact = np.where(lengths > 0.0, exact / np.where(lengths > 0.0, lengths, 1.0), outward)
    exact *= np.where(inner(exact, outward) < 0.0, -1.0, 1.0)[:, None]
    # Qhull's own neighbours are wrong where it splits a flat facet.
    sides = np.sort(hull.simplices[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
    order = np.lexsort(sides.T)
    first, second = order[:-1], order[1:]
    shared = np.all(sides[first] == sides[second], axis=1)
    first, second = first[shared], second[shared]
    arcs = np.stack([outward[first // 3], outward[second // 3]], axis=1)
    return np.concatenate([exact, outward]), sides[first], arcs


def _smooth(
    corner: np.ndarray, ellipsoids: np.ndarray, normals: np.ndarray, order: int
) -> tuple[Any, Any, Any]:
    """Compute heights (n,), gradients (n, 3) and second derivatives (n, 3, 3) up to an order.

    The polytope is one corner (n, 3) in each row; the ellipsoids are (n, 2, 3, 3).
    """
    images = np.einsum("ni,nkij->nkj", normals, ellipsoids)
    lengths = np.sqrt(inner(images, images))
    height = inner(corner, normals) + lengths.sum(axis=1)
    if order == 0:
        return height, None, None
    inverse = 1.0 / np.maximum(lengths, np.maximum(1e-14 * np.max(np.abs(ellipsoids), axis=(2, 3)), 1e-300))
    points = np.einsum("nkij,nkj,nk->nki", ellipsoids, images, inverse)
    gradient = corner + points.sum(axis=1)
    if order == 1:
        return height, gradient, None
    second = np.einsum("nkij,nklj,nk->nil", ellipsoids, ellipsoids, inverse)
    return height, gradient, second - np.einsum("nki,nkj,nk->nij", points, points, inverse)


def _in_corners(corner: np.ndarray, ellipsoids: np.ndarray, normals: np.ndarray) -> np.ndarray:
    """Minimise the heights of corners (n, 3) from directions (n, 3), by damped Newton steps."""
    damping = np.array([1.0, 0.5, 0.12, 0.02, 0.0])
    for _ in range(16):
        height, gradient, second = _smooth(corner, ellipsoids, normals, 2)
        first = normalised(crossed(normals, np.eye(3)[np.argmin(np.abs(normals), axis=1)]))
        plane = np.stack([first, crossed(normals, first)], axis=1)
        slope = np.einsum("nij,nj->ni", plane, gradient)
        curvature = np.einsum("nij,njk,nlk->nil", plane, second, plane) - height[:, None, None] * np.eye(2)
        values, vectors = np.linalg.eigh(curvature)
        values = np.maximum(
            np.abs(values), np.maximum(1e-9 * np.max(np.abs(values), axis=1, keepdims=True), 1e-300)
        )
        step = -np.einsum("nij,nkj,nk,nj->ni", vectors, vectors, slope, 1.0 / values)
        step *= np.minimum(1.0, 0.5 / np.maximum(np.sqrt(np.sum(step**2, axis=1)), 1e-300))[:, None]
        move = np.einsum("ni,nij->nj", step, plane)
        tried = [normalised(normals + share * move) for share in damping]
        heights = np.stack([_smooth(corner, ellipsoids, each, 0)[0] for each in tried])
        normals = np.stack(tried)[np.argmin(heights, axis=0), np.arange(len(normals))]
    return normals


def _on_arcs(
    edges: np.ndarray,
    arcs: np.ndarray,
    is_circle: np.ndarray,
    ellipsoids: np.ndarray,
    owner: np.ndarray,
    lowest: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the height over the directions normal to edges (n, 2, 3), if it may be below the `lowest` of the owner.

    Returns directions and their owners.
    """
    along = normalised(edges[:, 1] - edges[:, 0])
    side = np.where(
        is_circle[:, None], crossed(along, np.eye(3)[np.argmin(np.abs(along), axis=1)]), arcs[:, 0]
    )
    side = normalised(side - inner(side, along)[:, None] * along)
    other = crossed(along, side)
    limit = np.arctan2(inner(arcs[:, 1], other), inner(arcs[:, 1], side))
    other = np.where((limit < 0.0)[:, None] & ~is_circle[:, None], -other, other)
    limit = np.where(is_circle, 2.0 * np.pi, np.abs(limit))
    # Angles at equal steps of the arc, and at steps equal on the outline of each ellipsoid.
    angles = [limit[:, None] * np.linspace(0.0, 1.0, STEPS)]
    circle = 2.0 * np.pi * np.arange(STEPS) / STEPS
    for k in range(2):
        images = np.einsum("nsi,nij->nsj", np.stack([side, other], axis=1), ellipsoids[:, k])
        _, extents, right = np.linalg.svd(np.swapaxes(images, 1, 2))
        extents = np.maximum(extents, 1e-7 * np.max(extents, axis=1, keepdims=True) + 1e-300)
        turned = np.einsum(
            "nji,njm->nim", right, np.stack([np.cos(circle), np.sin(circle)]) / extents[:, :, None]
        )
        adapted = np.arctan2(turned[:, 1], turned[:, 0]) % (2.0 * np.pi)
        between = limit[:, None] * (np.arange(STEPS) + 0.3 + 0.2 * k) / STEPS
        angles.append(np.where(adapted < limit[:, None], adapted, between))
    angle = np.sort(np.concatenate(angles, axis=1), axis=1)
    normals = np.cos(angle)[..., None] * side[:, None] + np.sin(angle)[..., None] * other[:, None]
    values = np.einsum("nmi,ni->nm", normals, edges[:, 0])
    for k in range(2):
        images = np.einsum("nmi,nij->nmj", normals, ellipsoids[:, k])
        values += np.sqrt(inner(images, images))
    before, after = np.roll(values, 1, axis=1), np.roll(values, -1, axis=1)
    low_gap, high_gap = (
        np.diff(angle, axis=1, prepend=angle[:, :1]),
        np.diff(angle, axis=1, append=angle[:, -1:]),
    )
    low_gap[is_circle, 0] = high_gap[is_circle, -1] = 2.0 * np.pi / STEPS
    before[~is_circle, 0] = after[~is_circle, -1] = np.inf
    edge, place = np.nonzero((values <= before) & (values <= after) & (low_gap + high_gap > SHORT))
    low, high = low_gap[edge, place], high_gap[edge, place]
    angle, value = angle[edge, place], values[edge, place]
    corner, side, other, ellipsoids = edges[edge, 0], side[edge], other[edge], ellipsoids[edge]

    def slope(angle: np.ndarray) -> np.ndarray:
        c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
        return inner(_smooth(corner, ellipsoids, c * side + s * other, 1)[1], c * other - s * side)

    # The height lies above its tangent, or not far below.
    fall = 2.0 * np.maximum(slope(angle) * low, -slope(angle) * high)
    near = value - fall <= lowest[owner[edge]]
    edge, low, high = edge[near], (angle - low)[near], (angle + high)[near]
    corner, side, other, ellipsoids = corner[near], side[near], other[near], ellipsoids[near]
    for _ in range(48):
        middle = 0.5 * (low + high)
        rises = slope(middle) > 0.0
        low, high = np.where(rises, low, middle), np.where(rises, middle, high)
    angle = 0.5 * (low + high)
    return np.cos(angle)[:, None] * side + np.sin(angle)[:, None] * other, owner[edge]


def judge(pairs: list[tuple[Solid, Solid]], tried: np.ndarray | None = None) -> list[Verdict]:
    """Compute the signed distances of pairs of bodies, their directions and nearest points.

    Every direction bounds a distance from below, so a pair may bring one more (n, 3), `tried`.
    """
    differences = [Difference(a, b) for a, b in pairs]
    found = [[difference.easy_directions()] for difference in differences]
    if tried is not None:
        for normals, direction in zip(found, tried):
            normals.append(normalised(direction))
    curved = [k for k, difference in enumerate(differences) if np.any(difference.ellipsoids)]
    if curved:
        starts = [differences[k].starts(found[k][0]) for k in curved]
        owner = np.repeat(curved, [len(each) for each in starts])
        corners = [
            differences[k].corners[np.argmax(n @ differences[k].corners.T, axis=1)]
            for k, n in zip(curved, starts)
        ]
        ellipsoids = np.stack([difference.ellipsoids for difference in differences])
        directions = _in_corners(np.concatenate(corners), ellipsoids[owner], np.concatenate(starts))
        for k in curved:
            found[k].append(directions[owner == k])
        edged = [k for k in curved if len(differences[k].edges)]
        if edged:
            owner = np.repeat(edged, [len(differences[k].edges) for k in edged])
            arcs = [
                np.ones_like(differences[k].edges) if differences[k].arcs is None else differences[k].arcs
                for k in edged
            ]
            circles = np.array([difference.arcs is None for difference in differences])
            edges = np.concatenate([differences[k].edges for k in edged])
            lowest = np.array([np.min(each.height(np.concatenate(n))) for each, n in zip(differences, found)])
            directions, owner = _on_arcs(
                edges, np.concatenate(arcs), circles[owner], ellipsoids[owner], owner, lowest
            )
            for k in edged:
                found[k].append(directions[owner == k])
    return [_verdict(difference, np.concatenate(normals)) for difference, normals in zip(differences, found)]


def _verdict(difference: Difference, normals: np.ndarray) -> Verdict:
    heights = difference.height(normals)
    order = np.argsort(heights)
    equal = [k for k in order[:ALIKE] if heights[k] <= heights[order[0]] + ROUNDING * difference.size]
    solved = [_points(difference, normals[k], heights[k]) for k in equal]
    best = int(np.argmin([residual for _, residual in solved]))
    height, normal, points = heights[equal[best]], normals[equal[best]], solved[best][0]
    is_unique = True
    if height + difference.radius > 0.0:
        near = heights + difference.radius <= (1.0 + UNIQUE) * (height + difference.radius)
        others = near & (np.max(np.abs(normals - normal), axis=1) > ALONE)
        is_unique = not np.any(_is_minimum(difference, normals[others], heights[others]))
    return Verdict(-height - difference.radius, normal, is_unique, points)


def _is_minimum(difference: Difference, normals: np.ndarray, heights: np.ndarray) -> np.ndarray:
    """Test whether no direction on a small ring around each of the directions (n, 3) is lower."""
    if not len(normals):
        return np.zeros(0, bool)
    first = normalised(crossed(normals, np.eye(3)[np.argmin(np.abs(normals), axis=1)]))
    second = crossed(normals, first)
    angles = 2.0 * np.pi * np.arange(16)[:, None, None] / 16
    ring = normalised(normals + ALONE * (np.cos(angles) * first + np.sin(angles) * second))
    return np.all(difference.height(ring).reshape(16, -1) >= heights - 1e-13 * difference.size, axis=0)


def _points(difference: Difference, normal: np.ndarray, height: float) -> tuple[np.ndarray, float]:
    """Find the points of a and b that are nearest; not a number if there are several pairs, or none is found.

    Also returns how far the two are from being apart along the normal, of the size.

    The nearest point of the difference is height * normal, a sum of corners with weights and of points of ellipsoids.
    """
    size = max(difference.size, 1e-300)
    target, columns, parts, sides = height * normal, [], [], []
    for sign, solid in ((-1.0, difference.a), (1.0, difference.b)):
        along = sign * solid.vertices @ normal
        corners = solid.vertices[along >= np.max(along) - 1e-9 * size]
        image = solid.ellipsoid.T @ normal
        length, extent = np.linalg.norm(image), np.max(np.abs(solid.ellipsoid))
        disc, point = np.zeros((3, 0)), np.zeros(3)
        if length > 1e-9 * extent:
            point = solid.ellipsoid @ image / length
        elif extent > 0.0:
            axes, extents, _ = np.linalg.svd(solid.ellipsoid)
            disc = axes[:, :2] * extents[:2]
        target = target - point
        columns += [sign * corners.T / size, disc / size, -disc / size]
        parts.append((sign, sign * point, corners, disc))
        sides.append(np.concatenate([(corners - corners[0]).T, disc], axis=1) / size)
    ranks = [np.linalg.matrix_rank(side, tol=1e-8) for side in (*sides, np.concatenate(sides, axis=1))]
    if ranks[2] < ranks[0] + ranks[1]:  # parallel parts face one another
        return np.full((2, 3), np.nan), 0.0
    matrix = np.zeros((5, sum(column.shape[1] for column in columns)))
    matrix[:3] = np.concatenate(columns, axis=1)
    count, discs = len(parts[0][2]), 2 * parts[0][3].shape[1]
    matrix[3, :count] = 1.0
    matrix[4, count + discs : count + discs + len(parts[1][2])] = 1.0
    shares, residual = nnls(matrix, np.append(target / size, [1.0, 1.0]))
    if residual > 1e-7:
        return np.full((2, 3), np.nan), residual
    points, place = [], 0
    for sign, point, corners, disc in parts:
        weights, place = shares[place : place + len(corners)], place + len(corners)
        width = disc.shape[1]
        shift = disc @ (shares[place : place + width] - shares[place + width : place + 2 * width])
        place += 2 * width
        points.append(weights @ corners + point + sign * shift)
    points = np.stack([points[0] - difference.a.radius * normal, points[1] + difference.b.radius * normal])
    return points, residual


def rates(verdict: Verdict, positions: np.ndarray) -> np.ndarray:
    """Compute the derivative (12,) of the gap by the velocities and spins of a and b, in the axes of the world."""
    normal, turns = verdict.normal, np.cross(verdict.points - positions, verdict.normal)
    return np.concatenate([normal, turns[0], -normal, -turns[1]])
