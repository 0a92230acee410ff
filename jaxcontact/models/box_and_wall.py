"""A tilted box sliding on the floor into a wall (Halm & Posa, Fig. 5)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.geometry import Box, HalfSpace
from jaxcontact.mechanics.system import Model, Params, State, Structure, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return q[None, :2], q[2:3]


BOX_AND_WALL = System(
    Structure(
        dim=2,
        bodies=("box",),
        num_positions=3,
        shapes=(
            Box(name="foot", body="box", size="size", corners=(1,)),
            Box(name="nose", body="box", size="size", corners=(3,)),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
            HalfSpace(name="wall", normal=(-1.0, 0.0)),
        ),
        pairs=(("foot", "floor"), ("nose", "wall")),
    ),
    _poses,
)


def box_and_wall() -> Model:
    """Make a box of 1 m and 1 kg turned by -10 degrees, on the floor at corner A, at a wall at corner B.

    Halm & Posa, Table 6. The wall fills x > 0, the floor y < 0; q = (x, y, theta) of the centre. The box
    moves at 1 m/s towards the wall. A is its lower right corner, B its upper right one;
    they are the only contacts, enough for the impact and not for a motion in time.
    """
    side, mass, angle = 1.0, 1.0, -math.radians(10.0)
    c, s = math.cos(angle), math.sin(angle)
    half = side / 2.0
    # Body corners (half, -half) on the floor and (half, half) on the wall fix the centre.
    y = -(s * half - c * half)
    x = -(c * half - s * half)
    return Model(
        system=BOX_AND_WALL,
        params=Params(
            mass=jnp.array([mass]),
            inertia=jnp.array([mass * side**2 / 6.0]),
            mu=jnp.array([1.0, 1.0]),
            gravity=jnp.array([0.0, -9.81]),
            constants={"size": jnp.array([side, side])},
        ),
        initial=State(q=jnp.array([x, y, angle]), v=jnp.array([1.0, 0.0, 0.0]), t=jnp.array(0.0)),
        impulse_step=2.0,
        max_steps=5,
    )
