"""Geoms of a compiled MuJoCo model as shapes, and which of them may touch, as MuJoCo decides.

In the plane a sphere is a `Disc`, a box the `Polygon` that one sees. A mesh is its convex hull.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry import (
    Box,
    Capsule,
    ConvexMesh,
    Cylinder,
    Disc,
    Ellipsoid,
    HalfSpace,
    Polygon,
    Shape,
    Sphere,
    check_pair,
    hull_faces,
    num_contacts,
)
from jaxcontact.io.mjcf_tree import body_names, rotation
from jaxcontact.io.mujoco_package import mujoco_package

ACROSS = np.array([0.0, 1.0, 0.0])  # what a planar file does not move along
EXACT = 1e-9


class Geometry(NamedTuple):
    """Shapes of a model, names of those that may touch, friction of every candidate, numbers by name."""

    shapes: tuple[Shape, ...]
    pairs: tuple[tuple[str, str], ...]
    mu: np.ndarray
    constants: dict[str, Any]


class Pair(NamedTuple):
    """Two geoms that may touch, with their friction."""

    first: int
    second: int
    mu: float


def geometry_of(mj: Any, turns: np.ndarray, positions: np.ndarray, planar: bool) -> Geometry:
    """The shapes that may touch.

    Args:
        mj: the compiled model.
        turns: (nbody, 3, 3) from the axes of each body in the file to those of our frames.
        positions: (nbody, 3) of bodies at the reference, in the world.
        planar: shapes of the x-z plane.

    Raises:
        ValueError: names all pairs of kinds that have no contact here.
    """
    pairs = _oriented(mj, candidate_pairs(mj))
    used = sorted({geom for pair in pairs for geom in pair[:2]})
    constants: dict[str, Any] = {}
    shapes = {geom: shape_of(mj, geom, turns, positions, planar, constants) for geom in used}
    _check_pairs(mj, pairs, shapes)
    dim, table = 2 if planar else 3, {shape.name: shape for shape in shapes.values()}
    names = tuple((shapes[first].name, shapes[second].name) for first, second, _ in pairs)
    counts = [num_contacts(dim, table, (both,)) for both in names]
    mu = np.repeat([pair.mu for pair in pairs], counts)
    return Geometry(tuple(shapes.values()), names, mu, constants)


def shape_of(
    mj: Any, geom: int, turns: np.ndarray, positions: np.ndarray, planar: bool, constants: dict[str, Any]
) -> Shape:
    """A geom as a shape; its numbers go into `constants`."""
    name, kind, body = geom_name(mj, geom), kind_of(mj, geom), int(mj.geom_bodyid[geom])
    turn = turns[body] @ rotation(mj.geom_quat[geom])
    centre, size = turns[body] @ mj.geom_pos[geom], mj.geom_size[geom]
    still = int(mj.body_weldid[body]) == 0
    flat = slice(None, None, 2) if planar else slice(None)
    owner = None if still else body_names(mj)[body - 1]
    if still:  # the frames of such bodies are known
        centre = centre + positions[body]

    def keep(key: str, value: Any) -> str:
        constants[f"{name}/{key}"] = jnp.asarray(np.array(value, float))
        return f"{name}/{key}"

    def pose() -> dict[str, Any]:
        quaternion = np.zeros(4)
        mujoco_package("load_mjcf").mju_mat2Quat(quaternion, turn.ravel())
        return {"at": keep("at", centre), "rotation": keep("rotation", quaternion)}

    if kind == "plane":
        normal = turn[:, 2]
        if not still:
            raise ValueError(f"geom {name!r}: a plane must not move")
        if planar and abs(normal @ ACROSS) > EXACT:
            raise ValueError(f"geom {name!r}: the plane is not upright, planar=True needs it to be")
        unit = tuple(float(x) for x in normal[flat] / np.linalg.norm(normal[flat]))
        return HalfSpace(name=name, normal=unit, offset=keep("offset", normal @ centre))
    if kind == "box":
        if planar:
            seen = _silhouette(name, turn, centre, size)
            return Polygon(name=name, body=owner, vertices=keep("vertices", seen), count=4)
        return Box(name=name, body=owner, size=keep("size", 2.0 * size), **pose())
    along = size[1] * turn[:, 2]
    end_on = planar and abs(turn[1, 2]) > 0.5
    if kind == "capsule" and planar and min(abs(turn[1, 2]), abs(abs(turn[1, 2]) - 1.0)) > EXACT:
        raise ValueError(f"geom {name!r}: the capsule leans out of the plane of planar=True")
    if kind == "capsule" and not end_on:
        ends = np.stack([centre - along, centre + along])[:, flat]
        return Capsule(name=name, body=owner, radius=keep("radius", size[0]), ends=keep("ends", ends))
    if kind in ("sphere", "capsule"):
        ball = Disc if planar else Sphere
        return ball(name=name, body=owner, radius=keep("radius", size[0]), at=keep("at", centre[flat]))
    if planar or kind not in ("cylinder", "ellipsoid", "mesh"):
        where = " in the plane" if planar else ""
        raise ValueError(f"geom {name!r}: no shape here for a {kind}{where}; leave it out of contacts")
    if kind == "cylinder":
        lengths = {"radius": keep("radius", size[0]), "half_length": keep("half_length", size[1])}
        return Cylinder(name=name, body=owner, **lengths, **pose())
    if kind == "ellipsoid":
        return Ellipsoid(name=name, body=owner, semi_axes=keep("semi_axes", size), **pose())
    hull = _hull(mj, geom) @ turn.T + centre
    vertices = keep("vertices", hull)
    return ConvexMesh(name=name, body=owner, vertices=vertices, count=len(hull), faces=hull_faces(hull))


def _hull(mj: Any, geom: int) -> np.ndarray:
    """The corners (n, 3) of the convex hull of a mesh, in the axes of its geom."""
    from scipy.spatial import ConvexHull

    mesh = int(mj.geom_dataid[geom])
    start, number = int(mj.mesh_vertadr[mesh]), int(mj.mesh_vertnum[mesh])
    points = np.asarray(mj.mesh_vert[start : start + number], float)
    corners: np.ndarray = points[np.sort(ConvexHull(points).vertices)]
    return corners


def _silhouette(name: str, turn: np.ndarray, centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The four corners (4, 2) of a box that has an axis across the plane, counter-clockwise."""
    across = np.abs(turn[1])
    if not np.any(np.abs(across - 1.0) < EXACT):
        raise ValueError(f"geom {name!r}: the box leans out of the plane of planar=True")
    first, second = (turn[::2, k] * size[k] for k in range(3) if k != int(np.argmax(across)))
    if first[0] * second[1] < first[1] * second[0]:
        second = -second
    return centre[::2] + np.stack([-first - second, first - second, first + second, second - first])


def candidate_pairs(mj: Any) -> list[Pair]:
    """The pairs of geoms that MuJoCo lets touch: explicit ones, then those that its filters leave.

    Filters: contype and conaffinity, geoms of one body or of parent and child (bodies welded together count
    as one, the world is nobody's parent), excluded bodies. Friction of a pair is that of the geom with the
    higher priority, else the larger; 0 for condim 1.
    """
    flags = mujoco_package("load_mjcf").mjtDisableBit
    if mj.opt.disableflags & int(flags.mjDSBL_CONTACT | flags.mjDSBL_CONSTRAINT):
        return []
    explicit = [
        Pair(int(a), int(b), float(friction[0]) if dim > 1 else 0.0)
        for a, b, friction, dim in zip(
            mj.pair_geom1, mj.pair_geom2, mj.pair_friction, mj.pair_dim, strict=True
        )
    ]
    taken = {frozenset(pair[:2]) for pair in explicit}
    parents = not mj.opt.disableflags & int(flags.mjDSBL_FILTERPARENT)
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in mj.exclude_signature}
    found = [
        Pair(a, b, _friction(mj, a, b))
        for a, b in itertools.combinations(range(mj.ngeom), 2)
        if frozenset((a, b)) not in taken and _may_touch(mj, a, b, parents, excluded)
    ]
    return explicit + found


def _may_touch(mj: Any, a: int, b: int, parents: bool, excluded: set[tuple[int, int]]) -> bool:
    if not (mj.geom_contype[a] & mj.geom_conaffinity[b] or mj.geom_contype[b] & mj.geom_conaffinity[a]):
        return False
    bodies = int(mj.geom_bodyid[a]), int(mj.geom_bodyid[b])
    if bodies in excluded or bodies[::-1] in excluded:
        return False
    first, second = (int(mj.body_weldid[body]) for body in bodies)
    if first == second:
        return False
    if parents and first and second:
        above = [int(mj.body_weldid[mj.body_parentid[body]]) for body in (first, second)]
        return first != above[1] and second != above[0]
    return True


def _friction(mj: Any, a: int, b: int) -> float:
    order = int(mj.geom_priority[a]) - int(mj.geom_priority[b])
    geoms = [a, b] if order == 0 else [a if order > 0 else b]
    if max(int(mj.geom_condim[geom]) for geom in geoms) == 1:
        return 0.0
    return max(float(mj.geom_friction[geom, 0]) for geom in geoms)


def _oriented(mj: Any, pairs: list[Pair]) -> list[Pair]:
    """The same pairs with planes second."""
    return [
        Pair(second, first, mu) if kind_of(mj, first) == "plane" else Pair(first, second, mu)
        for first, second, mu in pairs
    ]


def _check_pairs(mj: Any, pairs: list[Pair], shapes: dict[int, Shape]) -> None:
    """Raise ValueError naming the pairs that have no contact here; nothing passes through silently."""
    missing: dict[tuple[str, str], str] = {}
    for first, second, _ in pairs:
        try:
            check_pair(shapes[first], shapes[second])
        except ValueError:
            kinds = kind_of(mj, first), kind_of(mj, second)
            missing.setdefault(kinds, f"{geom_name(mj, first)!r} and {geom_name(mj, second)!r}")
    if missing:
        listed = "; ".join(f"{a} and {b} (such as {pair})" for (a, b), pair in missing.items())
        raise ValueError(
            f"source: no contacts between {listed}; keep them apart by contype and conaffinity, "
            "or <contact><exclude>"
        )


def kind_of(mj: Any, geom: int) -> str:
    """MuJoCo's word for the shape of a geom."""
    kinds = mujoco_package("load_mjcf").mjtGeom
    return kinds(int(mj.geom_type[geom])).name.removeprefix("mjGEOM_").lower()


def geom_name(mj: Any, geom: int) -> str:
    """The name of a geom, by its number where the file gives none."""
    return mj.geom(geom).name or f"geom_{geom}"
