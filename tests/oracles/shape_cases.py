"""Random shapes and poses, with their support functions in plain NumPy: the oracle of contacts between shapes.

The signed distance of two convex bodies is the greatest s(n) = min over a of n.x - max over b of n.x over all
directions n, apart or overlapping; `signed_distance` looks for it by brute force, then climbs.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from jaxcontact import geometry

CUBE = tuple(tuple(float(k >> axis & 1) - 0.5 for axis in range(3)) for k in range(8))
# A hull with edges between flat and sharp; random stretching keeps its faces.
MESH = np.array([*CUBE, (0.0, 0.0, 0.9), (0.8, 0.1, 0.0), (-0.1, -0.7, 0.1)])
FACES = geometry.hull_faces(MESH)
POLYGON = np.array([[np.cos(t), np.sin(t)] for t in (0.1, 1.2, 2.4, 3.3, 4.9)])
FLOOR = {2: (0.6, 0.8), 3: (0.48, 0.6, 0.64)}


class Case(NamedTuple):
    """A shape on body `name` and a sampler of its numbers."""

    shape: Any
    numbers: Any  # rng -> dict of constants


def make(kind: str, dim: int, name: str, *, posed: bool = True) -> Case:
    """A shape of a kind; its constants start with its name."""

    def key(what: str) -> str:
        return f"{name}_{what}"

    at = {"at": key("at"), "rotation": key("rotation")} if posed else {}

    def pose(rng):
        if not posed:
            return {}
        turn = rng.uniform(-3, 3) if dim == 2 else unit_quaternion(rng)
        return {key("at"): rng.uniform(-0.2, 0.2, dim), key("rotation"): turn}

    def size(rng, *shape):
        return np.exp(rng.uniform(np.log(0.2), np.log(0.8), shape))

    body = {"name": name, "body": name}
    match kind:
        case "plane":
            return Case(
                geometry.HalfSpace(name=name, normal=FLOOR[dim], offset=key("offset")),
                lambda rng: {key("offset"): rng.uniform(-0.5, 0.5)},
            )
        case "point":
            return Case(geometry.Point(**body, at=key("at")), lambda rng: {key("at"): size(rng, dim)})
        case "sphere" | "disc":
            make_ball = geometry.Sphere if kind == "sphere" else geometry.Disc
            shape = make_ball(**body, radius=key("radius"), at=key("at"))
            return Case(
                shape, lambda rng: {key("radius"): size(rng)[()], key("at"): rng.uniform(-0.2, 0.2, dim)}
            )
        case "capsule":
            shape = geometry.Capsule(**body, radius=key("radius"), ends=key("ends"))
            return Case(
                shape,
                lambda rng: {key("radius"): size(rng)[()], key("ends"): rng.uniform(-0.7, 0.7, (2, dim))},
            )
        case "box":
            return Case(
                geometry.Box(**body, size=key("size"), **at),
                lambda rng: {key("size"): size(rng, dim), **pose(rng)},
            )
        case "cylinder":
            shape = geometry.Cylinder(**body, radius=key("radius"), half_length=key("half"), **at)
            return Case(
                shape, lambda rng: {key("radius"): size(rng)[()], key("half"): size(rng)[()], **pose(rng)}
            )
        case "ellipsoid":
            shape = geometry.Ellipsoid(**body, semi_axes=key("axes"), **at)
            return Case(shape, lambda rng: {key("axes"): size(rng, 3), **pose(rng)})
        case "polygon":
            shape = geometry.Polygon(**body, vertices=key("vertices"), count=len(POLYGON))
            return Case(shape, lambda rng: {key("vertices"): POLYGON * size(rng, 2)})
        case "mesh":
            shape = geometry.ConvexMesh(**body, vertices=key("vertices"), count=len(MESH), faces=FACES)
            return Case(shape, lambda rng: {key("vertices"): MESH * size(rng, 3)})
    raise ValueError(kind)


def unit_quaternion(rng):
    q = rng.normal(size=4)
    return q / np.linalg.norm(q)


def rotation(rng, dim):
    """A random rotation matrix."""
    if dim == 2:
        return planar_matrix(rng.uniform(-np.pi, np.pi))
    return np.asarray(quaternion_matrix(unit_quaternion(rng)))


def planar_matrix(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


def quaternion_matrix(q):
    w, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def samples(dim, a, b, count, seed, reach):
    """Stacked poses and constants: positions (count, 2, dim), orientations, constants."""
    rng = np.random.default_rng(seed)
    places, turns, numbers = [], [], []
    for _ in range(count):
        step = rng.normal(size=dim)
        step *= rng.uniform(*reach) / np.linalg.norm(step)
        places.append(np.stack([step, np.zeros(dim)]))
        turns.append(np.stack([rotation(rng, dim), rotation(rng, dim)]))
        numbers.append({**a.numbers(rng), **b.numbers(rng)})
    stacked = {k: np.stack([each[k] for each in numbers]) for k in numbers[0]}
    return np.stack(places), np.stack(turns), stacked


@functools.lru_cache(maxsize=64)
def compiled(dim, a, b):
    """(positions, orientations, constants) -> point, point_b, phi, normal of one pair, batched."""

    def one(positions, orientations, constants):
        found = geometry.candidates(
            dim, ("a", "b"), {"a": a, "b": b}, (("a", "b"),), positions, orientations, constants
        )
        return found.point, found.point_b, found.phi, found.normal

    return jax.jit(jax.vmap(one))


def contacts(dim, a, b, positions, orientations, constants, dtype=np.float64):
    """Contacts of one pair at stacked poses, as NumPy."""
    args = jax.tree.map(lambda x: jnp.asarray(x, dtype), (positions, orientations, constants))
    return tuple(np.asarray(each) for each in compiled(dim, a, b)(*args))


def support(case, numbers, position, turn, directions):
    """Greatest n.x over a shape for directions (k, dim)."""
    shape, dim = case.shape, len(position)
    if isinstance(shape, geometry.HalfSpace):
        same = directions @ np.array(shape.normal) > 1.0 - 1e-15
        return np.where(same, numbers[shape.offset], np.inf)
    local = directions @ turn
    shift = directions @ position
    get = lambda what: numbers[getattr(shape, what)]  # noqa: E731
    if isinstance(shape, geometry.Point):
        return shift + local @ get("at")
    if isinstance(shape, geometry.Sphere | geometry.Disc):
        return shift + local @ get("at") + get("radius")
    if isinstance(shape, geometry.Capsule):
        return shift + np.max(local @ get("ends").T, axis=1) + get("radius")
    if isinstance(shape, geometry.Polygon | geometry.ConvexMesh):
        return shift + np.max(local @ get("vertices").T, axis=1)
    if shape.at is not None:
        shift = shift + local @ get("at")
        local = local @ (planar_matrix if dim == 2 else quaternion_matrix)(numbers[shape.rotation])
    if isinstance(shape, geometry.Box):
        return shift + np.abs(local) @ get("size") / 2
    if isinstance(shape, geometry.Ellipsoid):
        return shift + np.linalg.norm(local * get("semi_axes"), axis=1)
    radial = np.linalg.norm(local[:, :2], axis=1)
    return shift + get("radius") * radial + get("half_length") * np.abs(local[:, 2])


def separation(a, b, numbers, positions, turns, n):
    """s(n) of two shapes for directions n (k, dim)."""
    above = -support(a, numbers, positions[0], turns[0], -n)
    return above - support(b, numbers, positions[1], turns[1], n)


def signed_distance(a, b, numbers, positions, turns, seed=0, rounds=60):
    """Greatest s(n) that a search over directions finds: never more than the signed distance."""
    dim = positions.shape[1]
    rng = np.random.default_rng(seed)
    if isinstance(b.shape, geometry.HalfSpace):
        return separation(a, b, numbers, positions, turns, np.array([b.shape.normal]))[0]

    def value_of(n):
        return separation(a, b, numbers, positions, turns, n.reshape(-1, dim)).reshape(n.shape[:-1])

    n = rng.normal(size=(4000, dim))
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    best = n[np.argsort(value_of(n))[-6:]]  # several hills where they overlap
    width = np.full(len(best), 0.15)  # of each hill; halved where no step goes up
    for _ in range(rounds):
        tried = best[:, None] + width[:, None, None] * rng.normal(size=(len(best), 40, dim))
        tried = np.concatenate([best[:, None], tried / np.linalg.norm(tried, axis=2, keepdims=True)], axis=1)
        highest = np.argmax(value_of(tried), axis=1)
        best = tried[np.arange(len(best)), highest]
        width = np.where(highest == 0, 0.5 * width, width)
    return _climb(value_of, best[np.argmax(value_of(best))])


def _climb(value_of, direction, sizes=(1e-2, 1e-3, 1e-4)):
    """Return the highest value near a direction, by simplexes, which also climb a ridge."""
    for size in sizes:
        axes = np.linalg.svd(direction[None])[2][1:]

        def turned(c, start=direction, axes=axes):
            return (start + c @ axes) / np.sqrt(1.0 + c @ c)

        simplex = np.concatenate([np.zeros((1, len(axes))), size * np.eye(len(axes))])
        options = {"initial_simplex": simplex, "xatol": 1e-13, "fatol": 1e-15, "maxfev": 2000}
        found = minimize(lambda c: -value_of(turned(c)), simplex[0], method="Nelder-Mead", options=options)
        direction = turned(found.x)
    return value_of(direction)
