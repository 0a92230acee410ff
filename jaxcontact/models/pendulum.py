"""A pendulum, held by a stiff joint or stopped by a stiff limit (Drumwright, sections 4.4 and 5.4)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.algebra import rotations
from jaxcontact.geometry import Disc
from jaxcontact.mechanics import joints
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.system import Model, Params, State, Structure, System, free_poses

MASS, LENGTH, RADIUS, GRAVITY = 1.0, 1.0, 0.1, 9.81  # kg, m, m, m/s^2; the paper has no mass, no length
BOB = (Disc(name="bob", body="bob", radius="radius"),)


def _joint(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Compute the position of the bob's hanger, to stay at the origin: [x y] + R(theta) u, eq (64)."""
    bob = q[:2], rotations.planar_matrix(q[2])
    return joints.point(bob, params.constants["hanger"]), jnp.zeros(0, q.dtype)


def _swinging(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return params.constants["length"] * jnp.stack([jnp.sin(q), -jnp.cos(q)], axis=1), q


def _limit(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return jnp.zeros(0, q.dtype), q


PENDULUM_JOINT = System(
    Structure(dim=2, bodies=("bob",), num_positions=3, shapes=BOB), free_poses, constraints=_joint
)
PENDULUM_LIMIT = System(
    Structure(dim=2, bodies=("bob",), num_positions=1, shapes=BOB), _swinging, constraints=_limit
)


def _make_params(law: Material, **constants: jax.Array) -> Params:
    return Params(
        mass=jnp.array([MASS]),
        inertia=jnp.array([0.5 * MASS * RADIUS**2]),
        mu=jnp.array(0.0),
        gravity=jnp.array([0.0, -GRAVITY]),
        constants={"radius": jnp.array(RADIUS), **constants},
        material=law,
    )


def pendulum_joint() -> Model:
    """Make a bob of 1 kg held 1 m from the origin by a joint of 1e15 N/m, released horizontally.

    Drumwright, Fig. 4. q = (x, y, theta) of the bob, theta = 0 when it hangs; K = 1e15 N/m, B = 1 N s/m. The
    paper gives neither mass nor length; the bob is a disc of radius 0.1 m.
    """
    return Model(
        system=PENDULUM_JOINT,
        params=_make_params(
            Material(stiffness=jnp.array(1e15), damping=jnp.array(1.0)), hanger=jnp.array([0.0, LENGTH])
        ),
        initial=State(q=jnp.array([LENGTH, 0.0, math.pi / 2]), v=jnp.zeros(3), t=jnp.array(0.0)),
        dt=1e-4,
    )


def pendulum_limit() -> Model:
    """Make a pendulum of 1 m released horizontally, with a limit theta >= 0 of 1e12 N m/rad.

    Drumwright, Fig. 6. q = theta, zero when the bob hangs straight down; K = 1e12, B = 0. The bob is a disc
    of 1 kg and 0.1 m.
    """
    return Model(
        system=PENDULUM_LIMIT,
        params=_make_params(
            Material(stiffness=jnp.array(1e12), damping=jnp.array(0.0)), length=jnp.array(LENGTH)
        ),
        initial=State(q=jnp.array([math.pi / 2]), v=jnp.zeros(1), t=jnp.array(0.0)),
        dt=1e-6,
    )
