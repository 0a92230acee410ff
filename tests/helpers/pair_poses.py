"""Pairs of solids at poses apart, a little and deep in one another, for the judge of contact geometry.

Among them are plates, needles, bodies that are nearly round, edges of 4 to 40 degrees, parallel and nearly parallel
axes, sizes of 1 mm and 100 m, and bodies of unequal sizes.
"""

from typing import Any, NamedTuple

import numpy as np
from oracles.pair_judge import LATTICE, Solid, judge, normalised

from jaxcontact import geometry

COUNT = 16  # vertices of a mesh, some of them repeated
CUBE = np.array([[1.0 if k >> axis & 1 else -1.0 for axis in range(3)] for k in range(8)])
VARIANTS = ("usual", "plate", "needle", "round", "sharp")
WANTED = ("apart", "shallow", "deep")
QUARTERS = np.array([np.eye(3), np.eye(3)[[0, 2, 1]], np.eye(3)[[2, 1, 0]], np.eye(3)[[1, 0, 2]]])
QUARTERS[1:] *= np.array([[1.0, -1.0, 1.0], [1.0, 1.0, -1.0], [-1.0, 1.0, 1.0]])[:, :, None]


class Pose(NamedTuple):
    """Two solids of a pair at a pose."""

    numbers: dict[str, Any]  # of the shapes a and b
    solids: tuple[Solid, Solid]  # in their bodies
    positions: np.ndarray  # (2, 3)
    turns: np.ndarray  # (2, 3, 3)
    small: float  # m, diameter of the smaller body
    large: float

    def placed(self) -> tuple[Solid, Solid]:
        """Place the solids in the world."""
        a, b = (
            Solid(x + solid.vertices @ turn.T, turn @ solid.ellipsoid, solid.radius)
            for solid, x, turn in zip(self.solids, self.positions, self.turns)
        )
        return a, b

    def moved(self, step):
        """Move the first body."""
        return self._replace(positions=self.positions + np.stack([step, np.zeros(3)]))

    def scaled(self, factor):
        """Scale both bodies and their places."""
        return Pose(
            {key: factor * np.asarray(value) for key, value in self.numbers.items()},
            tuple(Solid(*(factor * np.asarray(part) for part in solid)) for solid in self.solids),
            factor * self.positions,
            self.turns,
            factor * self.small,
            factor * self.large,
        )


def shape_of(kind, name):
    """The shape of a kind; its constants begin with its name."""
    body = {"name": name, "body": name}
    match kind:
        case "sphere":
            return geometry.Sphere(**body, radius=f"{name}_radius")
        case "capsule":
            return geometry.Capsule(**body, radius=f"{name}_radius", ends=f"{name}_ends")
        case "ellipsoid":
            return geometry.Ellipsoid(**body, semi_axes=f"{name}_axes")
        case "cylinder":
            return geometry.Cylinder(**body, radius=f"{name}_radius", half_length=f"{name}_half")
        case "box":
            return geometry.Box(**body, size=f"{name}_size")
    return geometry.ConvexMesh(**body, vertices=f"{name}_vertices", count=COUNT)


def _turn(rng):
    quaternion = rng.normal(size=4)
    w, x, y, z = quaternion / np.linalg.norm(quaternion)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def _tilt(rng, angle):
    x, y, z = normalised(rng.normal(size=3))[0]
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


def _extents(rng, variant):
    size = np.exp(rng.uniform(np.log(0.2), np.log(0.8), 3))
    if variant == "plate":
        size[rng.integers(3)] *= 10.0 ** rng.uniform(-3.0, -1.0)
    if variant == "needle":
        thin = rng.permutation(3)[:2]
        size[thin] = size[thin[0]] * 10.0 ** rng.uniform(-3.0, -1.0) * np.exp(rng.uniform(-0.3, 0.3, 2))
    if variant == "round":
        size = size[0] * (1.0 + 10.0 ** rng.uniform(-9.0, -1.0) * rng.normal(size=3))
    return size


def _mesh(rng, variant):
    if variant == "sharp":  # a prism with a curved back
        half, length, height = (
            np.deg2rad(rng.uniform(2.0, 20.0)),
            rng.uniform(0.1, 0.4),
            rng.uniform(0.2, 0.6),
        )
        x = np.linspace(-1.0, 1.0, COUNT // 2 - 1)
        back = np.stack([x * height * np.tan(half), 0.0 * x, -height - 0.1 * height * (1.0 - x**2)], axis=1)
        profile = np.vstack([np.zeros(3), back])
        return np.vstack([profile + [0.0, length, 0.0], profile - [0.0, length, 0.0]])
    points = normalised(rng.normal(size=(COUNT, 3)))
    if rng.random() < 0.2:
        points[8:] = points[rng.integers(0, 8, 8)]
    elif rng.random() < 0.2:
        points = CUBE[np.arange(COUNT) % 8] / np.sqrt(3.0)
    return 0.5 * points * _extents(rng, variant)


def _solid(kind, rng, variant, scale):
    size, none = scale * _extents(rng, variant), np.zeros((3, 3))
    thin, wide = size.min() / 2, size.max() / 2
    match kind:
        case "sphere":
            return {"radius": wide}, Solid(np.zeros((1, 3)), none, wide)
        case "capsule":
            radius = thin if variant in ("plate", "needle") else wide
            half = radius * 10.0 ** rng.uniform(-9.0, -1.0) if variant == "round" else size[2] / 2
            ends = np.outer([-half, half], normalised(rng.normal(size=3))[0])
            return {"radius": radius, "ends": ends}, Solid(ends, none, radius)
        case "ellipsoid":
            return {"axes": size / 2}, Solid(np.zeros((1, 3)), np.diag(size / 2), 0.0)
        case "cylinder":
            radius, half = {"plate": (wide, thin), "needle": (thin, wide)}.get(
                variant, (size[0] / 2, size[2] / 2)
            )
            ends = np.array([[0.0, 0.0, -half], [0.0, 0.0, half]])
            return {"radius": radius, "half": half}, Solid(ends, np.diag([radius, radius, 0.0]), 0.0)
        case "box":
            return {"size": size}, Solid(0.5 * size * CUBE, none, 0.0)
    vertices = scale * _mesh(rng, variant)
    return {"vertices": vertices}, Solid(vertices, none, 0.0)


def _diameter(solid):
    along = LATTICE[::6] @ solid.vertices.T
    round_part = 2.0 * np.linalg.norm(LATTICE[::6] @ solid.ellipsoid, axis=1) + 2.0 * solid.radius
    return float(np.max(np.ptp(along, axis=1) + round_part))


def tilted(first, second, angle, rng):
    """Draw a pose of two kinds of the usual sizes that touch along nearly parallel axes, a tenth deep at most."""
    (numbers_a, a), (numbers_b, b) = (_solid(kind, rng, "usual", 1.0) for kind in (first, second))
    numbers = {f"a_{k}": v for k, v in numbers_a.items()} | {f"b_{k}": v for k, v in numbers_b.items()}
    turn = _turn(rng)
    small, large = sorted(_diameter(solid) for solid in (a, b))
    pose = Pose(numbers, (a, b), np.zeros((2, 3)), np.stack([turn @ _tilt(rng, angle), turn]), small, large)
    away = pose.moved(turn @ np.append(rng.uniform(-0.05, 0.05, 2), 2.0))
    verdict = judge([away.placed()])[0]
    return away.moved(-(verdict.gap + 0.1 * small * rng.random()) * turn[:, 2])


def nearly_round_in_mesh(rng):
    """Draw a pose of an ellipsoid whose axes are alike, deep in a mesh about as long as wide."""
    mesh, axes = _mesh(rng, "round"), 0.15 * (1.0 + 0.1 * 10.0 ** rng.uniform(-6.0, 0.0) * rng.normal(size=3))
    solids = Solid(np.zeros((1, 3)), np.diag(axes), 0.0), Solid(mesh, np.zeros((3, 3)), 0.0)
    place, turns = 0.01 * rng.normal(size=(2, 3)), np.stack([_turn(rng), _turn(rng)])
    small, large = sorted(_diameter(solid) for solid in solids)
    return Pose({"a_axes": axes, "b_vertices": mesh}, solids, place, turns, small, large)


def _draw(kinds, rng):
    scale = rng.choice([1e-3, 1e2, 1.0], p=[0.1, 0.1, 0.8])
    other = scale * (10.0 ** rng.uniform(-2.0, 2.0) if rng.random() < 0.1 else 1.0)
    numbers, solids = {}, []
    for name, kind, size in zip("ab", kinds, (other, scale)):
        own, solid = _solid(kind, rng, rng.choice(VARIANTS, p=[0.4, 0.15, 0.15, 0.15, 0.15]), size)
        numbers |= {f"{name}_{key}": value for key, value in own.items()}
        solids.append(solid)
    first, parallel = _turn(rng), rng.random()
    second = _turn(rng) if parallel < 0.7 else first @ QUARTERS[rng.integers(4)]
    if parallel > 0.8:
        second = second @ _tilt(rng, 10.0 ** rng.uniform(-9.0, -1.0))
    small, large = sorted(_diameter(solid) for solid in solids)
    place = rng.normal(size=3) * large
    return Pose(numbers, tuple(solids), np.stack([place, place]), np.stack([second, first]), small, large)


def poses(kinds, count, rng):
    """Draw poses of two kinds of solids: a quarter apart, a third overlap by less than a tenth, the rest deeper."""
    drawn, near, wanted = [], [], rng.choice(WANTED, size=count, p=[0.25, 0.35, 0.4])
    for k in range(count):
        pose = _draw(kinds, rng)
        a, b = pose.placed()
        towards = normalised(rng.normal(size=3))[0]
        ahead = LATTICE[LATTICE @ towards > 0.05]
        height = (
            np.max(ahead @ b.vertices.T, axis=1) + np.max(-ahead @ a.vertices.T, axis=1) + a.radius + b.radius
        )
        height += np.linalg.norm(ahead @ a.ellipsoid, axis=1) + np.linalg.norm(ahead @ b.ellipsoid, axis=1)
        touching = np.min(height / (ahead @ towards))
        share = rng.uniform(0.0, 0.97) if wanted[k] == "deep" else 1.0
        drawn.append(pose.moved(share * touching * towards))
        near += [k] * (wanted[k] != "deep")
    for k, verdict in zip(near, judge([drawn[k].placed() for k in near])):
        depth = 0.1 * (10.0 ** rng.uniform(-7.0, 0.0) if rng.random() < 0.5 else rng.random())
        gap = 10.0 ** rng.uniform(-8.0, 0.5) if wanted[k] == "apart" else -depth
        drawn[k] = drawn[k].moved((gap * drawn[k].small - verdict.gap) * verdict.normal)
    return drawn
