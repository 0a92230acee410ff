"""The drawable parts of a mechanism: solids on bodies, joints, ground; and their places over time.

Owns the one reading of mechanisms for pictures; the entries are `scene_of` and `scene_frames`. Bodies are
drawn by their shapes, including bodies that touch nothing. A body whose centre of mass is in none of its
shapes is drawn by a link between its shapes, its joint and those of its children, if there is a tree.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.mocap import MocapPoses, at_poses
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Model, Params, Structure
from jaxcontact.mechanics.tree import WORLD, Tree
from jaxcontact.viz.solids import Plane, Solid, of_body, quaternion_matrix, solids_of

THIN, THICK = 0.05, 0.11  # radius of a link between two places, or among more, relative to the longest link
SAME_PLACE = 1e-6  # of the size of a link; places of it that are nearer count as one


class Part(NamedTuple):
    """A solid in the axes of a body, by its index, or of the world, -1."""

    body: int
    solid: Solid
    is_link: bool = False


class JointMark(NamedTuple):
    """A hinge or ball at a place (dim,) in the axes of its body."""

    body: int
    at: np.ndarray
    on_world: bool


class Scene(NamedTuple):
    """The look of a mechanism, independent of its configuration."""

    dim: int
    bodies: tuple[str, ...]
    parts: tuple[Part, ...]
    planes: tuple[Plane, ...]
    joints: tuple[JointMark, ...]
    num_contacts: int


class Frames(NamedTuple):
    """The places of all parts; leading axes (...) are times, or worlds and times."""

    positions: np.ndarray  # (..., nb, dim) of the frames of bodies
    rotations: np.ndarray  # (..., nb, dim, dim)
    centres: np.ndarray  # (..., nb, dim) of mass
    contacts: np.ndarray  # (..., nc, dim)
    axes: np.ndarray  # (..., nc, dim, dim) normal, then tangents, as rows

    def at(self, index: PyTree) -> Frames:
        """Select the frames at an index of the leading axes."""
        return Frames(*(field[index] for field in self))

    def placed(self, body: int, points: np.ndarray) -> np.ndarray:
        """Transform points (k, dim) from the axes of a body to the world, at one time."""
        if body == WORLD:
            return points
        return np.asarray(self.positions[body] + points @ self.rotations[body].T)


def scene_of(model: Model) -> Scene:
    """Make the scene of a mechanism.

    Raises:
        TypeError: for a shape that has no picture.
    """
    structure, constants = model.structure, model.params.constants
    parts, planes = [], []
    for shape in structure.shapes:
        name = of_body(shape)
        body = WORLD if name is None else structure.bodies.index(name)
        for solid in solids_of(shape, structure.dim, constants):
            if isinstance(solid, Plane):
                planes.append(solid)
            else:
                parts.append(Part(body, solid))
    joints = () if structure.tree is None else _list_joint_marks(structure, model.params)
    parts += _links(structure, model.params, parts)
    return Scene(structure.dim, structure.bodies, tuple(parts), tuple(planes), joints, structure.num_contacts)


def scene_frames(
    model: Model, q: PyTree, *, contacts: bool = True, mocap: MocapPoses | None = None
) -> Frames:
    """Compute frames at configurations q (..., nq), by one vmap of the kinematics, optionally of contacts.

    `mocap` are poses (..., nm, 3 or 4) of the mocap bodies; None is those of the file.
    """
    shape = np.shape(q)[:-1]
    flat_q, poses = jax.tree.map(
        lambda x: np.reshape(np.asarray(x), (-1, *np.shape(x)[len(shape) :])), (q, mocap)
    )
    flat = _compute_places(model, contacts, flat_q, poses)
    return Frames(*(np.asarray(x).reshape(*shape, *x.shape[1:]) for x in flat))


@functools.partial(jax.jit, static_argnames="contacts")
def _compute_places(
    model: Model, contacts: bool, q: jax.Array, poses: MocapPoses | None
) -> tuple[jax.Array, ...]:
    """Compute frames and centres of bodies, and points and axes of contacts, of each configuration in q."""
    structure = model.structure
    dim, pairs = structure.dim, structure.pairs if contacts else ()

    def one(q: jax.Array, poses: MocapPoses | None) -> tuple[jax.Array, ...]:
        positions, turns = body_frames(model if poses is None else at_poses(model, poses), q)
        centres = positions
        if structure.tree is not None:
            centres = positions + geometry.products(turns, _flat(structure, model.params.tree.com))
        if not pairs:
            return positions, turns, centres, jnp.zeros((0, dim)), jnp.zeros((0, dim, dim))
        touch = geometry.candidates(
            dim, structure.bodies, structure.shape_table, pairs, positions, turns, model.params.constants
        )
        axes = jnp.concatenate([touch.normal[:, None], touch.tangents], axis=1)
        return positions, turns, centres, touch.point, axes

    return jax.vmap(one)(q, poses)


def _flat(structure: Structure, points: PyTree) -> PyTree:
    """Project points (..., 3) of a tree to the axes of its pictures; the plane of a tree is x and z."""
    return points[..., ::2] if structure.dim == 2 else points


def _list_joint_marks(structure: Structure, params: Params) -> tuple[JointMark, ...]:
    tree, anchors = structure.tree, _flat(structure, np.asarray(params.tree.anchor))
    kinds = _kinds_by_body(tree)
    return tuple(
        JointMark(joint.body, anchors[j], tree.parents[joint.body] == WORLD)
        for j, joint in enumerate(tree.joints)
        if joint.kind in ("hinge", "ball") and _hangs(tree, kinds, joint.body)
    )


def _kinds_by_body(tree: Tree) -> list[set[str]]:
    return [{joint.kind for joint in tree.joints if joint.body == body} for body in range(len(tree.parents))]


def _hangs(tree: Tree, kinds: list[set[str]], body: int) -> bool:
    """Return whether a body is fastened at a place: false if it may move away from the world."""
    return tree.parents[body] != WORLD or not kinds[body] & {"free", "slide"}


def _hubs(structure: Structure, params: Params) -> list[list[np.ndarray]]:
    """List the places of joints per body, in its axes: its own and its children's; empty without a tree."""
    tree, numbers = structure.tree, params.tree
    hubs: list[list[np.ndarray]] = [[] for _ in structure.bodies]
    if tree is None:
        return hubs
    kinds = _kinds_by_body(tree)
    first = {joint.body: j for j, joint in reversed(list(enumerate(tree.joints)))}
    for body, parent in enumerate(tree.parents):
        anchor = np.asarray(numbers.anchor)[first[body]] if body in first else np.zeros(3)
        if _hangs(tree, kinds, body):
            hubs[body].append(_flat(structure, anchor))
        if parent != WORLD:
            turn = np.asarray(quaternion_matrix(np.asarray(numbers.orientation)[body]))
            hubs[parent].append(_flat(structure, np.asarray(numbers.position)[body] + turn @ anchor))
    return hubs


def _links(structure: Structure, params: Params, parts: list[Part]) -> list[Part]:
    """Make the links of the bodies whose centres of mass are in none of their shapes."""
    hubs = _hubs(structure, params)
    coms = np.zeros((len(hubs), structure.dim))
    if structure.tree is not None:
        coms = _flat(structure, np.asarray(params.tree.com))
    covered = [False] * len(hubs)
    weighs = np.asarray(params.mass) > 0.0
    for body, solid, _ in parts:
        if body != WORLD:  # the centre of what weighs nothing can be anywhere
            covered[body] |= not weighs[body] or solid.contains(coms[body])
            hubs[body].append(solid.points.mean(axis=0))
    places = {body: _distinct(hub, coms[body]) for body, hub in enumerate(hubs) if not covered[body]}
    longest = max((float(np.max(np.ptp(hub, axis=0))) for hub in places.values()), default=0.0)
    return [  # radii differ, so that no two surfaces coincide at a joint
        Part(body, Solid(hub, (1.0 - 0.01 * (body % 5)) * longest * (THIN if len(hub) == 2 else THICK)), True)
        for body, hub in places.items()
        if len(hub) > 1
    ]


def _distinct(hubs: list[np.ndarray], com: np.ndarray) -> np.ndarray:
    """Select the distinct places (k, dim) of a link; add the centre of mass if there are fewer than two."""
    distinct: list[np.ndarray] = []
    apart = SAME_PLACE * max(float(np.linalg.norm(place)) for place in [*hubs, com])
    for place in hubs:
        if all(np.linalg.norm(place - other) > apart for other in distinct):
            distinct.append(place)
    if len(distinct) < 2 and all(np.linalg.norm(com - other) > apart for other in distinct):
        distinct.append(com)
    return np.stack(distinct) if distinct else com[None]


def extent(scene: Scene, frames: Frames) -> tuple[np.ndarray, np.ndarray]:
    """Compute minimum and maximum coordinates (dim,) of all that moves, at all times."""
    points = [frames.centres.reshape(-1, scene.dim)]
    for body, solid, _ in scene.parts:
        if body == WORLD:
            continue
        placed = frames.positions[..., body, None, :] + np.einsum(
            "...ij,kj->...ki", frames.rotations[..., body, :, :], solid.points
        )
        placed = placed.reshape(-1, scene.dim)
        points += [placed - solid.radius, placed + solid.radius]
    every = np.concatenate(points)
    every = every[np.all(np.isfinite(every), axis=1)]
    return every.min(axis=0), every.max(axis=0)
