"""Geoms of a compiled MuJoCo model as shapes, and the pairs of them that MuJoCo lets touch.

In the plane a sphere becomes a `Disc`, and a box becomes the `Polygon` of its silhouette. A mesh becomes its
convex hull.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

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
from jaxcontact.io.mjcf_hulls import FileHull, hull_of
from jaxcontact.io.mjcf_pairs import Pair, candidate_pairs, chosen_pairs, geom_name, kind_of
from jaxcontact.io.mjcf_tree import body_names, rotation
from jaxcontact.io.mujoco_package import mujoco_package
from jaxcontact.mechanics.system import Structure
from jaxcontact.mechanics.tree import roots

if TYPE_CHECKING:
    import mujoco

ACROSS = np.array([0.0, 1.0, 0.0])  # a planar robot does not move along this axis
OF_SHAPE = {Sphere: 1, Disc: 1, Ellipsoid: 1, Capsule: 2}  # contacts of a shape at rest
OF_FACE = 4  # contacts of a box, cylinder or mesh at rest
SPARE_CONTACTS = 1.25  # times the contacts at rest: those that are about to close
FEWEST_CONTACTS = 16  # that a step sees of many
FEW_CANDIDATES = 48  # of which a step sees all
ZERO_COMPONENT = 1e-9  # of a unit vector, below which it counts as zero in a planar robot, for round-off


class Geometry(NamedTuple):
    """Shapes of a model, names of the pairs that may touch, and of every candidate friction and margin.

    `surfaces` are the twists of running surfaces, `constants` numbers by name, `counted` has each pair with
    its number of candidates; `left_out` names missing shapes and pairs, `notes` thinned hulls.
    """

    shapes: tuple[Shape, ...]
    pairs: tuple[tuple[str, str], ...]
    mu: np.ndarray
    spins: np.ndarray | None
    margin: np.ndarray | None
    surfaces: np.ndarray | None
    constants: dict[str, jax.Array]
    counted: tuple[tuple[Pair, int], ...]
    left_out: tuple[str, ...]
    notes: tuple[str, ...]


class FileFrames(NamedTuple):
    """The frames of the bodies of a file at the reference.

    `orientations` (nbody, 3, 3) and `positions` (nbody, 3) are in the world. A `planar` model has the shapes
    of the x-z plane, and frames that are parallel to the world's.
    """

    orientations: np.ndarray
    positions: np.ndarray
    planar: bool

    @property
    def turns(self) -> np.ndarray:
        """Rotations (nbody, 3, 3) from the axes of each body in the file to those of the model's frames."""
        if self.planar:
            return self.orientations
        return np.broadcast_to(np.eye(3), self.orientations.shape)


def geometry_of(
    mj: mujoco.MjModel, frames: FileFrames, contacts: object = "all", max_hull_vertices: int | None = None
) -> Geometry:
    """Make the shapes that may touch, with their pairs, friction and numbers.

    Pairs and shapes that the package lacks are not among them, and are named in `left_out`.
    """
    pairs = _orient_pairs(mj, chosen_pairs(mj, candidate_pairs(mj), contacts))
    constants: dict[str, jax.Array] = {}
    shapes: dict[int, Shape] = {}
    left_out: dict[str, None] = {}
    notes = []
    for geom in sorted({geom for pair in pairs for geom in pair[:2]}):
        try:
            shapes[geom], displacement = shape_of(mj, geom, frames, constants, max_hull_vertices)
        except ValueError as error:
            left_out[str(error)] = None
            continue
        if displacement:
            hull = len(constants[shapes[geom].vertices])  # type: ignore[union-attr]  # only hulls move
            notes.append(
                f"geom {geom_name(mj, geom)!r}: a hull of {hull} corners, "
                f"{displacement:.3g} m inside that of the mesh"
            )
    pairs = [pair for pair in pairs if pair.first in shapes and pair.second in shapes]
    missing = _describe_missing_pairs(mj, pairs, shapes)
    left_out |= dict.fromkeys(missing.values())
    shape_pairs = [pair for pair in pairs if _kinds_of(mj, pair) not in missing]
    used = {geom for pair in shape_pairs for geom in pair[:2]}
    shapes = {geom: shape for geom, shape in shapes.items() if geom in used}
    dim, table = 2 if frames.planar else 3, {shape.name: shape for shape in shapes.values()}
    names = tuple((shapes[pair.first].name, shapes[pair.second].name) for pair in shape_pairs)
    counts = [num_contacts(dim, table, (pair_of_names,)) for pair_of_names in names]
    margin = np.repeat([pair.margin for pair in shape_pairs], counts)
    return Geometry(
        shapes=tuple(shapes.values()),
        pairs=names,
        mu=np.repeat([pair.mu for pair in shape_pairs], counts),
        spins=None if frames.planar else _spin_levers(shape_pairs, counts),
        margin=margin if np.any(margin) else None,
        surfaces=_surface_twists(mj, list(shapes), frames),
        constants={key: value for key, value in constants.items() if key.rpartition("/")[0] in table},
        counted=tuple(zip(shape_pairs, counts, strict=True)),
        left_out=tuple(left_out),
        notes=tuple(notes),
    )


def _spin_levers(pairs: list[Pair], counts: list[int]) -> np.ndarray | None:
    """Divide torsional and rolling friction of each candidate by its friction; None if no pair has any."""
    rows = np.array([[*pair.spins, pair.mu] for pair in pairs]).reshape(-1, 3)
    spins, mu = np.split(np.repeat(rows, counts, axis=0), [2], axis=1)
    if not np.any(spins):
        return None
    levers = np.where(mu > 0.0, spins / np.where(mu > 0.0, mu, 1.0), 0.0)
    return levers[:, [0, 1, 1]] if np.any(levers[:, 1]) else levers[:, :1]


def _surface_twists(mj: mujoco.MjModel, geoms: list[int], frames: FileFrames) -> np.ndarray | None:
    """Return the twists (ns, 6) of running surfaces in the axes of their bodies, in the plane (ns, 3).

    MuJoCo before version 4 has none. None if no surface runs.

    Raises:
        ValueError: in the plane, a surface that runs out of it.
    """
    of_geoms = getattr(mj, "geom_surfacevel", None)
    if of_geoms is None or not np.any(of_geoms[geoms]):
        return None
    rows = []
    for geom in geoms:
        axes, centre, _ = _place_geom(mj, geom, frames)
        linear, angular = (axes @ part for part in of_geoms[geom].reshape(2, 3))
        linear = linear - np.cross(angular, centre)
        if frames.planar:
            if max(abs(linear[1]), abs(angular[0]), abs(angular[2])) > ZERO_COMPONENT:
                raise ValueError(f"planar: the surface of geom {geom_name(mj, geom)!r} leaves the x-z plane")
            angular = -angular[1:2]
        rows.append(np.concatenate([linear[::2] if frames.planar else linear, angular]))
    return np.array(rows)


def suggested_contacts(structure: Structure) -> int | None:
    """Suggest how many contacts a step sees: those of a loose body on a face, of a robot on half its shapes.

    None is all candidates, where these are few.
    """
    if structure.num_contacts <= FEW_CANDIDATES:
        return None
    root, expected = roots(structure.tree), 0.0
    for shape in structure.shapes:
        body = getattr(shape, "body", None)
        if body is not None:
            place = structure.bodies.index(body)
            is_loose = np.sum(root == root[place]) == 1
            expected += OF_SHAPE.get(type(shape), OF_FACE) * (1.0 if is_loose else 0.5)
    return max(FEWEST_CONTACTS, 8 * math.ceil(SPARE_CONTACTS * expected / 8.0))


def shape_of(
    mj: mujoco.MjModel,
    geom: int,
    frames: FileFrames,
    constants: dict[str, jax.Array],
    max_hull_vertices: int | None = None,
) -> tuple[Shape, float]:
    """Make a shape of a geom; return it and the displacement of its hull, m. Its numbers go to `constants`.

    Raises:
        ValueError: the package has no shape for the geom.
    """
    shape = _make_simple_shape(mj, geom, frames, constants)
    if shape is not None:
        return shape, 0.0
    name = geom_name(mj, geom)
    hull = _hull_of_mesh(mj, geom, max_hull_vertices)
    axes, centre, owner = _place_geom(mj, geom, frames)
    vertices = hull.corners @ axes.T + centre
    constants[f"{name}/vertices"] = jax.device_put(vertices)
    mesh = ConvexMesh(
        name=name, body=owner, vertices=f"{name}/vertices", count=len(vertices), faces=hull_faces(vertices)
    )
    return mesh, hull.displacement


def _place_geom(
    mj: mujoco.MjModel, geom: int, frames: FileFrames
) -> tuple[np.ndarray, np.ndarray, str | None]:
    """Return axes (3, 3) and centre (3,) of a geom in its body's frame, and the body, None for the world."""
    body = int(mj.geom_bodyid[geom])
    fixed_to_world = int(mj.body_weldid[body]) == 0
    turn = (frames.orientations if fixed_to_world else frames.turns)[body]
    axes, centre = turn @ rotation(mj.geom_quat[geom]), turn @ mj.geom_pos[geom]
    if fixed_to_world:
        return axes, centre + frames.positions[body], None
    return axes, centre, body_names(mj)[body - 1]


def _make_simple_shape(
    mj: mujoco.MjModel, geom: int, frames: FileFrames, constants: dict[str, jax.Array]
) -> Shape | None:
    """Make a shape of a geom that is no mesh; return None for a mesh."""
    name, kind, size, planar = geom_name(mj, geom), kind_of(mj, geom), mj.geom_size[geom], frames.planar
    axes, centre, owner = _place_geom(mj, geom, frames)
    flat = slice(None, None, 2) if planar else slice(None)

    def add_constant(key: str, value: object) -> str:
        constants[f"{name}/{key}"] = jax.device_put(np.array(value, float))
        return f"{name}/{key}"

    def pose() -> dict[str, Any]:  # keywords of a shape
        quaternion = np.zeros(4)
        mujoco_package("load_mjcf").mju_mat2Quat(quaternion, axes.ravel())
        return {"at": add_constant("at", centre), "rotation": add_constant("rotation", quaternion)}

    if kind == "plane":
        normal = axes[:, 2]
        if owner is not None:
            raise ValueError(f"geom {name!r}: a plane must not move")
        if planar and abs(normal @ ACROSS) > ZERO_COMPONENT:
            raise ValueError(f"geom {name!r}: planar=True needs a plane at a right angle to x-z")
        unit = tuple(float(x) for x in normal[flat] / np.linalg.norm(normal[flat]))
        return HalfSpace(name=name, normal=unit, offset=add_constant("offset", normal @ centre))
    if kind == "box":
        if planar:
            silhouette = _silhouette_of_box(name, axes, centre, size)
            return Polygon(name=name, body=owner, vertices=add_constant("vertices", silhouette), count=4)
        return Box(name=name, body=owner, size=add_constant("size", 2.0 * size), **pose())
    half_axis = size[1] * axes[:, 2]
    end_on = planar and abs(axes[1, 2]) > 0.5
    if kind == "capsule" and planar and min(abs(axes[1, 2]), abs(abs(axes[1, 2]) - 1.0)) > ZERO_COMPONENT:
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
        raise ValueError(f"geom {name!r}: no shape here for a {kind}{in_plane}")
    if kind == "cylinder":
        lengths = {
            "radius": add_constant("radius", size[0]),
            "half_length": add_constant("half_length", size[1]),
        }
        return Cylinder(name=name, body=owner, **lengths, **pose())
    if kind == "ellipsoid":
        return Ellipsoid(name=name, body=owner, semi_axes=add_constant("semi_axes", size), **pose())
    return None


def _hull_of_mesh(mj: mujoco.MjModel, geom: int, max_vertices: int | None) -> FileHull:
    """Compute the convex hull of a mesh, in the axes of its geom."""
    mesh = int(mj.geom_dataid[geom])
    start, number = int(mj.mesh_vertadr[mesh]), int(mj.mesh_vertnum[mesh])
    try:
        return hull_of(np.asarray(mj.mesh_vert[start : start + number], float), max_vertices)
    except ValueError as error:
        raise ValueError(f"geom {geom_name(mj, geom)!r}: {error}") from None


def _silhouette_of_box(name: str, axes: np.ndarray, centre: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Return the four corners (4, 2), counter-clockwise, of a box with one axis normal to the plane."""
    across = np.abs(axes[1])
    if not np.any(np.abs(across - 1.0) < ZERO_COMPONENT):
        raise ValueError(f"geom {name!r}: the box leans out of the plane of planar=True")
    first, second = (axes[::2, k] * size[k] for k in range(3) if k != int(np.argmax(across)))
    if first[0] * second[1] < first[1] * second[0]:
        second = -second
    return centre[::2] + np.stack([-first - second, first - second, first + second, second - first])


def _orient_pairs(mj: mujoco.MjModel, pairs: list[Pair]) -> list[Pair]:
    """Return the pairs, with the plane second in each."""
    return [
        pair._replace(first=pair.second, second=pair.first) if kind_of(mj, pair.first) == "plane" else pair
        for pair in pairs
    ]


def _kinds_of(mj: mujoco.MjModel, pair: Pair) -> tuple[str, str]:
    return kind_of(mj, pair.first), kind_of(mj, pair.second)


def _describe_missing_pairs(
    mj: mujoco.MjModel, pairs: list[Pair], shapes: dict[int, Shape]
) -> dict[tuple[str, str], str]:
    """Describe the kinds of pairs for which the package has no contacts, by kinds."""
    missing: dict[tuple[str, str], str] = {}
    for pair in pairs:
        try:
            check_pair(shapes[pair.first], shapes[pair.second])
        except ValueError:
            a, b = _kinds_of(mj, pair)
            names = f"{geom_name(mj, pair.first)!r} and {geom_name(mj, pair.second)!r}"
            missing.setdefault((a, b), f"contacts between {a} and {b} (such as {names})")
    return missing
