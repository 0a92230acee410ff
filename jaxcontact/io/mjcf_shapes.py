"""Geoms of a compiled MuJoCo model as shapes, and the pairs of them that MuJoCo lets touch.

In the plane a sphere becomes a `Disc`, and a box becomes the `Polygon` of its silhouette. A mesh becomes its
convex hull.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
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

ACROSS = np.array([0.0, 1.0, 0.0])  # a planar robot does not move along this axis
EXACT = 1e-9


class Geometry(NamedTuple):
    """Shapes of a model, names of the pairs that may touch, friction of every candidate, numbers by name."""

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
    """The shapes that may touch, with their pairs, friction and numbers.

    Args:
        mj: the compiled model.
        turns: (nbody, 3, 3) rotations from the axes of each body in the file to those of the model's frames.
        positions: (nbody, 3) of bodies at the reference, in the world.
        planar: shapes of the x-z plane.

    Raises:
        ValueError: the package has no contacts for some pairs of kinds; the message names all of them.
    """
    pairs = _oriented(mj, candidate_pairs(mj))
    used = sorted({geom for pair in pairs for geom in pair[:2]})
    constants: dict[str, Any] = {}
    shapes = {geom: shape_of(mj, geom, turns, positions, planar, constants) for geom in used}
    _check_pairs(mj, pairs, shapes)
    dim, table = 2 if planar else 3, {shape.name: shape for shape in shapes.values()}
    names = tuple((shapes[first].name, shapes[second].name) for first, second, _ in pairs)
    counts = [num_contacts(dim, table, (pair_of_names,)) for pair_of_names in names]
    mu = np.repeat([pair.mu for pair in pairs], counts)
    return Geometry(tuple(shapes.values()), names, mu, constants)


def shape_of(
    mj: Any, geom: int, turns: np.ndarray, positions: np.ndarray, planar: bool, constants: dict[str, Any]
) -> Shape:
    """A geom as a shape; this function adds its numbers to `constants`."""
    name, kind, body = geom_name(mj, geom), kind_of(mj, geom), int(mj.geom_bodyid[geom])
    axes = turns[body] @ rotation(mj.geom_quat[geom])
    centre, size = turns[body] @ mj.geom_pos[geom], mj.geom_size[geom]
    fixed_to_world = int(mj.body_weldid[body]) == 0
    flat = slice(None, None, 2) if planar else slice(None)
    owner = None if fixed_to_world else body_names(mj)[body - 1]
    if fixed_to_world:  # its frame is that at the reference
        centre = centre + positions[body]

    def add_constant(key: str, value: Any) -> str:
        constants[f"{name}/{key}"] = jax.device_put(np.array(value, float))
        return f"{name}/{key}"

    def pose() -> dict[str, Any]:
        quaternion = np.zeros(4)
        mujoco_package("load_mjcf").mju_mat2Quat(quaternion, axes.ravel())
        return {"at": add_constant("at", centre), "rotation": add_constant("rotation", quaternion)}

    if kind == "plane":
        normal = axes[:, 2]
        if not fixed_to_world:
            raise ValueError(f"geom {name!r}: a plane must not move")
        if planar and abs(normal @ ACROSS) > EXACT:
            raise ValueError(f"geom {name!r}: planar=True needs a plane at a right angle to x-z")
        unit = tuple(float(x) for x in normal[flat] / np.linalg.norm(normal[flat]))
        return HalfSpace(name=name, normal=unit, offset=add_constant("offset", normal @ centre))
    if kind == "box":
        if planar:
            silhouette = _silhouette(name, axes, centre, size)
            return Polygon(name=name, body=owner, vertices=add_constant("vertices", silhouette), count=4)
        return Box(name=name, body=owner, size=add_constant("size", 2.0 * size), **pose())
    half_axis = size[1] * axes[:, 2]
    end_on = planar and abs(axes[1, 2]) > 0.5
    if kind == "capsule" and planar and min(abs(axes[1, 2]), abs(abs(axes[1, 2]) - 1.0)) > EXACT:
        raise ValueError(f"geom {name!r}: the capsule leans out of the plane of planar=True")
    if kind == "capsule" and not end_on:
        ends = np.stack([centre - half_axis, centre + half_axis])[:, flat]
        return Capsule(
            name=name, body=owner, radius=add_constant("radius", size[0]), ends=add_constant("ends", ends)
        )
    if kind in ("sphere", "capsule"):
        ball = Disc if planar else Sphere
        return ball(
            name=name, body=owner, radius=add_constant("radius", size[0]), at=add_constant("at", centre[flat])
        )
    if planar or kind not in ("cylinder", "ellipsoid", "mesh"):
        in_plane = " in the plane" if planar else ""
        raise ValueError(f"geom {name!r}: no shape here for a {kind}{in_plane}; leave it out of contacts")
    if kind == "cylinder":
        lengths = {
            "radius": add_constant("radius", size[0]),
            "half_length": add_constant("half_length", size[1]),
        }
        return Cylinder(name=name, body=owner, **lengths, **pose())
    if kind == "ellipsoid":
        return Ellipsoid(name=name, body=owner, semi_axes=add_constant("semi_axes", size), **pose())
    hull = _hull(mj, geom) @ axes.T + centre
    vertices = add_constant("vertices", hull)
    return ConvexMesh(name=name, body=owner, vertices=vertices, count=len(hull), faces=hull_faces(hull))


def _hull(mj: Any, geom: int) -> np.ndarray:
    """The corners (n, 3) of the convex hull of a mesh, in the axes of its geom."""
    from scipy.spatial import ConvexHull

    mesh = int(mj.geom_dataid[geom])
    start, number = int(mj.mesh_vertadr[mesh]), int(mj.mesh_vertnum[mesh])
    points = np.asarray(mj.mesh_vert[start : start + number], float)
    corners: np.ndarray = points[np.sort(ConvexHull(points).vertices)]
    return corners


def _silhouette(name: str, axes: np.ndarray, centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The four corners (4, 2), counter-clockwise, of a box with one axis perpendicular to the plane."""
    across = np.abs(axes[1])
    if not np.any(np.abs(across - 1.0) < EXACT):
        raise ValueError(f"geom {name!r}: the box leans out of the plane of planar=True")
    first, second = (axes[::2, k] * size[k] for k in range(3) if k != int(np.argmax(across)))
    if first[0] * second[1] < first[1] * second[0]:
        second = -second
    return centre[::2] + np.stack([-first - second, first - second, first + second, second - first])


def candidate_pairs(mj: Any) -> list[Pair]:
    """The pairs of geoms that MuJoCo lets touch: explicit pairs, then the pairs that pass its filters.

    The filters are contype and conaffinity, excluded bodies, and geoms of one body or of parent and child.
    Bodies welded together count as one body; the world does not count as a parent. The friction of a pair is
    that of the geom with the higher priority, or the larger friction at equal priority; it is 0 for condim 1.
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
    explicit_geoms = {frozenset(pair[:2]) for pair in explicit}
    filter_parents = not mj.opt.disableflags & int(flags.mjDSBL_FILTERPARENT)
    excluded = {(int(s) >> 16, int(s) & 0xFFFF) for s in mj.exclude_signature}
    filtered = [
        Pair(a, b, _friction(mj, a, b))
        for a, b in itertools.combinations(range(mj.ngeom), 2)
        if frozenset((a, b)) not in explicit_geoms and _may_touch(mj, a, b, filter_parents, excluded)
    ]
    return explicit + filtered


def _may_touch(mj: Any, a: int, b: int, filter_parents: bool, excluded: set[tuple[int, int]]) -> bool:
    if not (mj.geom_contype[a] & mj.geom_conaffinity[b] or mj.geom_contype[b] & mj.geom_conaffinity[a]):
        return False
    bodies = int(mj.geom_bodyid[a]), int(mj.geom_bodyid[b])
    if bodies in excluded or bodies[::-1] in excluded:
        return False
    first, second = (int(mj.body_weldid[body]) for body in bodies)
    if first == second:
        return False
    if filter_parents and first and second:
        parent_bodies = [int(mj.body_weldid[mj.body_parentid[body]]) for body in (first, second)]
        return first != parent_bodies[1] and second != parent_bodies[0]
    return True


def _friction(mj: Any, a: int, b: int) -> float:
    order = int(mj.geom_priority[a]) - int(mj.geom_priority[b])
    geoms = [a, b] if order == 0 else [a if order > 0 else b]
    if max(int(mj.geom_condim[geom]) for geom in geoms) == 1:
        return 0.0
    return max(float(mj.geom_friction[geom, 0]) for geom in geoms)


def _oriented(mj: Any, pairs: list[Pair]) -> list[Pair]:
    """The pairs, with the plane second in each."""
    return [
        Pair(second, first, mu) if kind_of(mj, first) == "plane" else Pair(first, second, mu)
        for first, second, mu in pairs
    ]


def _check_pairs(mj: Any, pairs: list[Pair], shapes: dict[int, Shape]) -> None:
    """Raise ValueError that names the pairs without contacts here, so that none passes through silently."""
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
    """The name of a geom, or its number where the file names none."""
    return mj.geom(geom).name or f"geom_{geom}"
