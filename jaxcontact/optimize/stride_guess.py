"""A first guess of a planar robot's stride, by its kinematics alone: entry `guess_stride`.

Feet that stand stay where they are, feet that swing are lifted, the trunk moves on. Page:
docs/methods/planning.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.geometry import WORLD
from jaxcontact.mechanics.robot import forward_kinematics
from jaxcontact.mechanics.system import Model
from jaxcontact.optimize.multiple_shooting import Pieces
from jaxcontact.simulate.placement import place_on_ground
from jaxcontact.terms import contact_terms
from jaxcontact.terms.contacts import bodies_of

CLEARANCE = 0.05  # m, of a foot in the middle of its swing
PRESS = 2e-3  # m, depth of feet that stand
DIP = 0.2  # of a trunk over feet that stand, in parts of the height that its speed at lift-off would reach
NEAR_POSE = 0.1  # m; weight of the robot's own pose, beside the places of feet
UPRIGHT = 0.1  # m; weight of the pitch of the trunk
LEVEL = 0.3  # weight of the height of the trunk


class Legs(NamedTuple):
    """The legs of a robot: the body of each foot, its contacts, and the leg that mirrors it.

    `mirror` (nv,) are the velocities in the order that exchanges the legs of a pair, None without a pair.
    """

    feet: tuple[int, ...]
    contacts: tuple[np.ndarray, ...]
    mirror: np.ndarray | None


class StanceSchedule(NamedTuple):
    """Which foot stands: (N, legs) during each piece; a stride is half of one if legs are exchanged."""

    stands: np.ndarray
    is_mirrored: bool


def find_legs(model: Model) -> Legs:
    """Find the legs of a planar robot: chains that end at a body with contacts.

    Raises:
        ValueError: no planar robot, or one without contacts at the ends of its chains.
    """
    structure = model.structure
    tree = structure.tree
    if structure.dim != 2 or tree is None or tree.num_positions != tree.num_velocities:
        raise ValueError("model: expected a planar robot, as load_mjcf(..., planar=True) gives")
    bodies = ground_bodies(model)
    leaves = set(range(len(tree.parents))) - set(tree.parents)
    feet = tuple(sorted(set(bodies.tolist()) & leaves))
    if not feet:
        raise ValueError("model: expected contacts of feet with the ground at the ends of legs, got none")
    contacts = tuple(np.flatnonzero(bodies == foot) for foot in feet)
    return Legs(feet, contacts, _order_mirrored(model, feet))


def ground_bodies(model: Model) -> np.ndarray:
    """Return the body of every contact with the ground; -1 for contacts of two bodies."""
    first, second = (np.asarray(bodies) for bodies in bodies_of(model.system))
    return np.where(first == WORLD, second, np.where(second == WORLD, first, -1))


def _list_chain(parents: tuple[int, ...], body: int) -> list[int]:
    """List the bodies from the trunk to a body."""
    chain = []
    while body >= 0:
        chain.append(body)
        body = parents[body]
    return chain[::-1]


def _order_mirrored(model: Model, feet: tuple[int, ...]) -> np.ndarray | None:
    """Return the order of velocities with both legs exchanged, None unless two legs have equal masses."""
    tree = model.structure.tree
    chains = [_list_chain(tree.parents, foot) for foot in feet]
    if len(feet) != 2 or len(chains[0]) != len(chains[1]):
        return None
    first, second = (chain[1:] for chain in chains)
    mass, inertia = np.asarray(model.params.mass), np.asarray(model.params.inertia)
    if set(first) & set(second) or not np.allclose(mass[first], mass[second], rtol=1e-6):
        return None
    if not np.allclose(inertia[first], inertia[second], rtol=1e-6):
        return None
    order = np.arange(tree.num_velocities)
    for a, b in zip(first, second, strict=True):
        place_a, place_b = (tree.body_slices(body)[1] for body in (a, b))
        order[place_a], order[place_b] = np.r_[place_b], np.r_[place_a]
    return order


def plan_stances(legs: Legs, count: int) -> StanceSchedule:
    """Plan a stride of `count` pieces: a pair of legs walks, other legs hop together."""
    stands = np.zeros((count, len(legs.feet)), bool)
    if legs.mirror is not None:
        stands[:, 0] = True
        return StanceSchedule(stands, True)
    stands[: count // 2] = True
    return StanceSchedule(stands, False)


def guess_stride(
    model: Model, legs: Legs, schedule: StanceSchedule, speed: float, duration: float, bend: float
) -> Pieces:
    """Guess a stride at a speed: feet in place or swung, joints by least squares, no controls.

    Joints with limits bend by up to `bend`, rad, from the robot's own pose to the middle of their range.
    """
    from scipy.optimize import least_squares  # inside the function, because the import takes long

    state = place_on_ground(model, model.initial_state())[0]
    q0, count, feet = np.asarray(state.q), len(schedule.stands), jnp.asarray(legs.feet)
    share = model.params.mass / jnp.sum(model.params.mass)

    @jax.jit
    def feet_and_gaps(q: jax.Array) -> jax.Array:
        places = forward_kinematics(model, q)[0][:, 0]
        gaps = contact_terms(model, state.replace(q=q)).phi[np.concatenate(legs.contacts)]
        return jnp.concatenate([places[feet] - share @ places, gaps])

    slopes, reference = jax.jit(jax.jacfwd(feet_and_gaps)), np.asarray(feet_and_gaps(q0))
    reference = (
        reference - np.r_[np.full(feet.size, np.mean(reference[: feet.size])), 0 * reference[feet.size :]]
    )
    low, high = joint_bounds(model)
    middle = np.where(np.isfinite(high), 0.5 * (np.clip(low, -1e9, 1e9) + np.clip(high, -1e9, 1e9)), q0)
    pose = q0 + np.clip(middle - q0, -bend, bend)
    pose = np.asarray(place_on_ground(model, state.replace(q=jnp.asarray(pose)))[0].q)
    weights = np.r_[LEVEL, UPRIGHT, np.full(q0.size - 3, NEAR_POSE)]
    sizes = [places.size for places in legs.contacts]
    phase, rows, q = np.linspace(0.0, 1.0, count + 1), [], np.clip(pose, low + 1e-6, high - 1e-6)
    for at in phase:
        along, lift, raised = _plan_feet(model, schedule, speed, duration, at)
        wanted = reference + np.r_[along, np.repeat(lift, sizes) - PRESS]
        aim = pose + np.r_[0.0, raised, np.zeros(q0.size - 2)]
        x = speed * duration * at + q0[0]

        def errors(
            z: np.ndarray, x: float = x, wanted: np.ndarray = wanted, aim: np.ndarray = aim
        ) -> np.ndarray:
            return np.r_[np.asarray(feet_and_gaps(np.r_[x, z])) - wanted, weights * (z - aim[1:])]

        def rates(z: np.ndarray, x: float = x, wanted: object = None, aim: object = None) -> np.ndarray:
            return np.r_[np.asarray(slopes(np.r_[x, z]))[:, 1:], np.diag(weights)]

        z = least_squares(errors, q[1:], rates, bounds=(low[1:], high[1:]), max_nfev=40).x
        q = np.r_[x, np.clip(z, low[1:] + 1e-6, high[1:] - 1e-6)]
        rows.append(q)
    places = np.array(rows)
    v = np.gradient(places, phase * duration, axis=0)
    controls = np.zeros((count, model.num_controls))
    return Pieces(q=places, v=v, controls=controls, duration=np.asarray(duration))


def _plan_feet(
    model: Model, schedule: StanceSchedule, speed: float, duration: float, at: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Plan how far each foot is ahead of the trunk, its height, and that of the trunk, at a phase in 0..1.

    The trunk of a robot that hops falls freely while no foot stands.
    """
    stance = np.mean(schedule.stands, axis=0)
    along, lift = np.zeros(stance.size), np.zeros(stance.size)
    if schedule.is_mirrored:
        turn = np.where(stance > 0, 1.0, -1.0)
        along = turn * speed * duration * (0.5 - at)
        lift[stance == 0] = CLEARANCE * np.sin(np.pi * at)
        return along, lift, 0.0
    part = float(np.max(stance))
    fall = 0.5 * float(np.linalg.norm(model.params.gravity)) * duration**2
    if at < part:
        dip = DIP * fall * (1.0 - part) * part * np.sin(np.pi * at / part)
        return along + speed * duration * (0.5 * part - at), lift, -dip
    flown = at - part
    raised = fall * flown * (1.0 - part - flown)
    swung = flown / (1.0 - part)
    along = along + speed * duration * part * (swung - 0.5)
    return along, lift + raised + CLEARANCE * np.sin(np.pi * swung), raised


def joint_bounds(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Return the limits of every joint, infinite without."""
    tree = model.structure.tree
    limits = np.asarray(model.params.tree.limits)
    low, high = np.full(tree.num_positions, -np.inf), np.full(tree.num_positions, np.inf)
    for j, joint in enumerate(tree.joints):
        if joint.limited:
            low[tree.joint_slices(j)[0]], high[tree.joint_slices(j)[0]] = limits[j]
    return low, high
