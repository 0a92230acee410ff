"""A planar mechanism in world coordinates, as a picture needs it: bodies, joints, contacts and their speeds.

Joints are found from the kinematics: two bodies share a joint where one point of both always moves alike.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxcontact import geometry
from jaxcontact.geometry import Box, Disc, Point
from jaxcontact.mechanics.configuration import tangent_jacobian
from jaxcontact.mechanics.motion_equations import body_frames
from jaxcontact.mechanics.system import Params, State, Structure, System
from jaxcontact.terms import contact_terms
from jaxcontact.viz import outline as outlines
from jaxcontact.viz.palette import ARROW, STILL


class Scene(NamedTuple):
    """A planar mechanism in world coordinates."""

    structure: Structure
    constants: Mapping[str, Any]
    positions: np.ndarray  # (nb, 2) of the frames of bodies
    centres: np.ndarray  # (nb, 2) of mass
    angles: np.ndarray  # (nb,)
    rotations: np.ndarray  # (nb, 2, 2)
    joints: list[tuple[int, int, np.ndarray]]  # two bodies, the second -1 for the world, and the place
    contacts: np.ndarray  # (nc, 2)
    normals: np.ndarray  # (nc, 2)
    tangents: np.ndarray  # (nc, 2)
    J_n: np.ndarray  # (nc, nv)
    J_t: np.ndarray  # (nc, nv)


def scene_of(system: System, params: Params, state: State) -> Scene:
    """The scene of a planar mechanism.

    Raises:
        ValueError: a spatial mechanism.
    """
    structure = system.structure
    if structure.dim != 2:
        raise ValueError("system: only planar mechanisms (dim = 2); draw_bodies draws spatial ones")
    terms = contact_terms(system, params, state)
    positions, centres, rotations, angles, point, normal, tangents = jax.tree.map(
        np.asarray, _places(system, params, state.q)
    )
    return Scene(
        structure=structure,
        constants=params.constants,
        positions=positions,
        centres=centres,
        angles=angles,
        rotations=rotations,
        joints=revolute_joints(system, params, state),
        contacts=point,
        normals=normal,
        tangents=tangents[:, 0],
        J_n=np.asarray(terms.J_n),
        J_t=np.asarray(terms.J_t)[:, 0],
    )


@functools.partial(jax.jit, static_argnums=0)  # operations one by one would compile one by one
def _places(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, ...]:
    structure = system.structure
    positions, rotations = body_frames(system, params, q)
    contacts = geometry.candidates(
        2, structure.bodies, structure.shape_table, structure.pairs, positions, rotations, params.constants
    )
    angles = system.poses(structure, q, params)[1]
    centres = positions
    if structure.tree is not None:
        centres = positions + geometry.products(rotations, params.tree.com[:, ::2])
    return positions, centres, rotations, angles, contacts.point, contacts.normal, contacts.tangents


@functools.partial(jax.jit, static_argnums=0)
def _motion(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Places of the bodies (nb, 2), and how they move (nb, 2, nv) and turn (nb, nv)."""

    def poses(q: jax.Array) -> tuple[jax.Array, jax.Array]:
        return system.poses(system.structure, q, params)

    positions, _ = body_frames(system, params, q)
    linear = tangent_jacobian(system, lambda q: poses(q)[0], q)
    return positions, linear, tangent_jacobian(system, lambda q: poses(q)[1], q)


def revolute_joints(system: System, params: Params, state: State) -> list[tuple[int, int, np.ndarray]]:
    """Revolute joints: places c where two bodies, or a body and the world, always move alike.

    Solves J_i + w_i perp(c - p_i) = J_j + w_j perp(c - p_j) for c, over all generalized velocities.
    """
    places, linear, turning = (np.asarray(each) for each in _motion(system, params, state.q))
    count = len(system.structure.bodies)
    # perp(r) = (-r_y, r_x); velocities at the origin, moved there from the centres of mass
    perp = np.stack([-places[:, 1], places[:, 0]], axis=1)
    at_origin = linear - perp[:, :, None] * turning[:, None, :]
    at_origin = np.concatenate([at_origin, np.zeros_like(at_origin[:1])])
    turning = np.concatenate([turning, np.zeros_like(turning[:1])])
    tolerance = 1e-9 if places.dtype == np.float64 else 1e-4
    joints: list[tuple[int, int, np.ndarray]] = []
    for i in range(count):
        for j in [*range(i + 1, count), count]:
            spin, drift = turning[i] - turning[j], at_origin[i] - at_origin[j]
            square = float(spin @ spin)
            if square <= tolerance:
                continue
            x, y = -(drift[1] @ spin) / square, (drift[0] @ spin) / square
            rest = drift + np.stack([-y * spin, x * spin])
            if np.max(np.abs(rest)) <= tolerance * max(1.0, float(np.max(np.abs(linear)))):
                joints.append((i, -1 if j == count else j, np.array([x, y])))
    return joints


def contact_velocities(scene: Scene, v: np.ndarray) -> np.ndarray:
    """(nc, 2) relative velocities in the world."""
    return (scene.J_n @ v)[:, None] * scene.normals + (scene.J_t @ v)[:, None] * scene.tangents


def arrow_scale_of(scene: Scene, *velocities: np.ndarray) -> float:
    """Length of arrows, m per m/s; 0 where nothing moves."""
    fastest = max((float(np.max(np.linalg.norm(u, axis=1))) for u in velocities), default=0.0)
    low, high = extent(scene)
    return ARROW * float(np.max(high - low)) / fastest if fastest > STILL else 0.0


def box_corners(scene: Scene, shape: Box) -> np.ndarray:
    """Corners (4, 2) of a box, counter-clockwise."""
    return placed(scene, shape, outlines.box_corners(shape, 2, scene.constants)[[0, 1, 3, 2]])


def placed(scene: Scene, shape: Any, points: np.ndarray) -> np.ndarray:
    """Points (k, 2) of a shape in the world, from body coordinates."""
    if shape.body is None:
        return points
    body = scene.structure.bodies.index(shape.body)
    return np.asarray(scene.positions[body] + points @ scene.rotations[body].T)


def shape_outline(scene: Scene, shape: Any) -> np.ndarray:
    """Outline (m, 2) of a capsule or a polygon in the world."""
    return placed(scene, shape, outlines.outline(outlines.surface(shape, 2, scene.constants)))


def ball(scene: Scene, shape: Disc | Point) -> tuple[np.ndarray, float]:
    """Centre in the world and radius."""
    local = np.zeros(2) if shape.at is None else np.asarray(scene.constants[shape.at])
    radius = float(scene.constants[shape.radius]) if isinstance(shape, Disc) else 0.0
    if shape.body is None:
        return local, radius
    body = scene.structure.bodies.index(shape.body)
    return scene.positions[body] + scene.rotations[body] @ local, radius


def extent(scene: Scene) -> tuple[np.ndarray, np.ndarray]:
    """Lower left and upper right of all that moves."""
    points = [scene.centres, scene.contacts, *(place[None] for *_, place in scene.joints)]
    for shape in scene.structure.shapes:
        if isinstance(shape, Box):
            points.append(box_corners(scene, shape))
        elif isinstance(shape, outlines.OUTLINED):
            points.append(shape_outline(scene, shape))
        elif isinstance(shape, Disc | Point):
            centre, radius = ball(scene, shape)
            points += [centre[None] - radius, centre[None] + radius]
    every = np.concatenate(points)
    return every.min(axis=0), every.max(axis=0)


def margin_of(scene: Scene) -> float:
    """Room for arrows about all that moves, m."""
    low, high = extent(scene)
    return (ARROW + 0.06) * float(np.max(high - low))
