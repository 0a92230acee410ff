"""TREX, a planar runner on two legs and a tail (Seghete & Murphey, Fig. 6)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_names, check_number
from jaxcontact.front_door import NOT_NEGATIVE, checked
from jaxcontact.geometry import Capsule, Disc, HalfSpace, Point
from jaxcontact.geometry.shapes import Constants
from jaxcontact.mechanics.system import Model, Params, State, Structure, System

if TYPE_CHECKING:
    from jaxtyping import Float

BODY_DENSITY = 1000.0  # kg/m^3, that of water
ROD_DENSITY = 2000.0 * 1.25e-4  # kg/m, carbon fibre of 1.25 cm^2
DROP = 0.17  # m, height of the fall before the strike


def _tail(lengths: Constants) -> tuple[jax.Array, jax.Array]:
    """Compute the distance of the two body centres, and the length of the tail from the rear one to its tip.

    The spheres touch; the tip is the apex of the cone around both.
    """
    front, rear = lengths["front_radius"], lengths["rear_radius"]
    return front + rear, rear * (front + rear) / (front - rear)


def _along(angle: jax.Array) -> jax.Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Place front and rear body, tail, then thigh and shank of the left and of the right leg."""
    lengths = params.constants
    _, tail = _tail(lengths)
    rear = q[2] + q[7]
    # The joint of the bodies is the point at which the spheres touch.
    joint = q[:2] + lengths["front_radius"] * _along(q[2])
    behind = joint + lengths["rear_radius"] * _along(rear)
    positions, angles = [q[:2], behind, behind + 0.5 * tail * _along(rear)], [q[2], rear, rear]
    for hip, knee in ((q[3], q[4]), (q[5], q[6])):
        thigh, shank = q[2] + hip, q[2] + hip + knee
        bend = q[:2] + lengths["thigh"] * _along(thigh)
        positions += [
            q[:2] + 0.5 * lengths["thigh"] * _along(thigh),
            bend + 0.5 * lengths["shank"] * _along(shank),
        ]
        angles += [thigh, shank]
    return jnp.stack(positions), jnp.stack(angles)


def _forces(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    """Compute the torques of springs and dashpots of the knees and of the joint between the bodies."""
    c = params.constants
    at = jnp.array([4, 6, 7])
    stretch = q[at] - c["rest"][at]
    return jnp.zeros_like(v).at[at].set(-c["joint_stiffness"] * stretch - c["joint_damping"] * v[at])


def _drive(structure: Structure, state: State, params: Params) -> jax.Array:
    """Compute PD torques of the hips, which hold `rest` until `start`, then turn at `spin`."""
    c = params.constants
    late = state.t - c["start"]
    turning = late > 0
    target = c["rest"][jnp.array([3, 5])] + c["spin"] * jnp.where(turning, late, 0.0)
    speed = jnp.where(turning, c["spin"], 0.0)
    at = jnp.array([3, 5])
    torque = c["hip_stiffness"] * (target - state.q[at]) + c["hip_damping"] * (speed - state.v[at])
    return jnp.zeros_like(state.v).at[at].set(torque)


TREX = System(
    Structure(
        dim=2,
        bodies=("front", "rear", "tail", "left_thigh", "left_shank", "right_thigh", "right_shank"),
        num_positions=8,
        shapes=(
            Disc(name="front_ball", body="front", radius="front_radius"),
            Disc(name="rear_ball", body="rear", radius="rear_radius"),
            Point(name="tail_tip", body="tail", at="half_tail"),
            Point(name="left_foot", body="left_shank", at="half_shank"),
            Point(name="right_foot", body="right_shank", at="half_shank"),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
            # For pictures; they touch nothing.
            *(
                Capsule(
                    name=f"{body}_rod", body=body, radius="rod_radius", ends=f"{body.split('_')[-1]}_ends"
                )
                for body in ("tail", "left_thigh", "left_shank", "right_thigh", "right_shank")
            ),
        ),
        pairs=(("tail_tip", "floor"), ("left_foot", "floor"), ("right_foot", "floor")),
    ),
    _poses,
    _forces,
    drive=_drive,
)


@checked(constants=check_names("front_radius", "rear_radius", "thigh", "shank", "friction"))
def trex_params(constants: Any) -> Params:  # a mapping of arrays
    """Make params of TREX from constants; masses, inertias and end points follow from the lengths.

    Args:
        constants: front_radius, rear_radius, thigh, shank (m), and the others of `trex().params.constants`,
            of which half_tail, half_shank, rod_radius and the ends of the rods are computed.

    Derivative: exact by all constants.
    """
    front, rear = constants["front_radius"], constants["rear_radius"]
    thigh, shank = constants["thigh"], constants["shank"]
    _, tail = _tail(constants)
    balls = BODY_DENSITY * 4.0 / 3.0 * math.pi * jnp.stack([front**3, rear**3])
    rods = ROD_DENSITY * jnp.stack([tail, thigh, shank, thigh, shank])
    sizes = jnp.stack([tail, thigh, shank, thigh, shank])
    zero = jnp.zeros_like(tail)
    return Params(
        mass=jnp.concatenate([balls, rods]),
        inertia=jnp.concatenate([0.4 * balls * jnp.stack([front**2, rear**2]), rods * sizes**2 / 12.0]),
        mu=constants["friction"],
        gravity=jnp.array([0.0, -9.81]),
        constants={
            **constants,
            "half_tail": jnp.stack([0.5 * tail, zero]),
            "half_shank": jnp.stack([0.5 * shank, zero]),
            "rod_radius": 0.05 * thigh,
            **{
                f"{rod}_ends": jnp.stack([jnp.stack([-0.5 * size, zero]), jnp.stack([0.5 * size, zero])])
                for rod, size in (("tail", tail), ("thigh", thigh), ("shank", shank))
            },
        },
    )


@checked()
def trex_straight(params: Params, theta: float | Float[jax.Array, ""]) -> jax.Array:
    """Compute the stance q (8,) with straight legs, half a turn apart, tail and left foot on the floor."""
    c = params.constants
    apart, tail = _tail(c)
    y = -(apart + tail) * jnp.sin(theta)
    leg = jnp.pi + jnp.arcsin(y / (c["thigh"] + c["shank"]))  # forward, away from the tail
    zero = jnp.zeros_like(y)
    return jnp.stack([zero, y, theta, leg - theta, zero, leg - theta + jnp.pi, zero, zero])


@checked(height=NOT_NEGATIVE)
def trex_drop(params: Params, q: Float[jax.Array, " 8"], height: float = DROP) -> Model:
    """Make TREX at rest `height` above a stance q (8,) that springs and hips hold until it lands.

    After the landing the hips turn the legs. Free fall keeps the stance: points that touch in q strike
    together.
    """
    check_number("height", height, 0.0)
    q = jnp.asarray(q)
    start = jnp.sqrt(2.0 * height / -params.gravity[1])
    raised = trex_params({**params.constants, "rest": q, "start": start})
    state = State(q=q.at[1].add(height), v=jnp.zeros_like(q), t=jnp.zeros((), q.dtype))
    return Model(system=TREX, params=raised, initial=state, dt=1e-3)


def trex() -> Model:
    """Make TREX in a chosen stance, as it strikes the floor with tail and left foot after a fall of 17 cm.

    q = (x, y, theta, phi_L, gamma_L, phi_R, gamma_R, phi_T): centre and angle of the front body, hip and knee
    angle of the left and of the right leg, angle between the bodies; all relative to the parent, zero along
    its axis, and the tail points along theta. Contacts: tail, left foot, right foot, on the floor. Numbers
    are those of the first column of the paper's Table I, except gamma_L, such that the left foot touches,
    and y, such that the tail touches.

    Numbers missing in the paper are chosen: the hips are at the centre of the front body; bodies are solid
    spheres; thighs, shanks and the tail are rods, the tail from the centre of the rear body to the apex of
    the cone around both; knees and body joint are stiff enough for the weight, 20 and 40 N m/rad, 0.1 and
    0.2 N m s/rad; the hips' PD gains are 10 N m/rad and 1 N m s/rad, the paper's 1e5 and 1e4 read in kg, cm
    and s (in g, cm and s they could not carry it); the hips turn at 10 rad/s; friction is 0.5. Springs rest,
    and hips hold, in the state given. The balls are not among the contacts.
    """
    front, rear, thigh, shank = 0.07, 0.04, 0.08, 0.10
    theta, hip = 5.78, 5.13
    reach = (front + rear) * front / (front - rear)  # from the front centre to the tip
    y = -reach * math.sin(theta)
    # The shank points down and forward, away from the tail, as in the paper's Fig. 7.
    slope = math.asin((y + thigh * math.sin(theta + hip)) / shank)
    knee = 5.0 * math.pi + slope - theta - hip
    q = jnp.array([0.0, y, theta, hip, knee, 1.99, 5.24, 0.0])
    params = trex_params(
        {
            "front_radius": jnp.array(front),
            "rear_radius": jnp.array(rear),
            "thigh": jnp.array(thigh),
            "shank": jnp.array(shank),
            "rest": q,
            "joint_stiffness": jnp.array([20.0, 20.0, 40.0]),
            "joint_damping": jnp.array([0.1, 0.1, 0.2]),
            "hip_stiffness": jnp.array(10.0),
            "hip_damping": jnp.array(1.0),
            "spin": jnp.array(10.0),
            "start": jnp.array(math.sqrt(2.0 * DROP / 9.81)),
            "friction": jnp.array(0.5),
        }
    )
    v = jnp.zeros(8).at[1].set(-math.sqrt(2.0 * DROP * 9.81))
    state = State(q=q, v=v, t=params.constants["start"])
    return Model(system=TREX, params=params, initial=state, dt=1e-3)
