"""A free box in space dropped flat onto the floor, landing on its four lower corners."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.algebra import rotations
from jaxcontact.front_door import checked
from jaxcontact.geometry import Box, HalfSpace
from jaxcontact.mechanics.system import Model, Params, State, Structure, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return q[None, :3], rotations.quaternion_matrix(q[3:])[None]


def _system(corners: tuple[int, ...] | None) -> System:
    return System(
        Structure(
            dim=3,
            bodies=("box",),
            num_positions=7,
            quaternions=(3,),
            shapes=(
                Box(name="corners", body="box", size="size", corners=corners),
                HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
            ),
            pairs=(("corners", "floor"),),
        ),
        _poses,
    )


@checked()
def box_drop_3d(*, all_corners: bool = False) -> Model:
    """Make a box in space that lands flat on four corners after a fall of 1 cm while it slides at 0.2 m/s.

    A box of 1 m x 0.8 m x 2 m and 1 kg, the rocking block in space. q = (x, y, z, qw, qx, qy, qz) of the
    centre, angular velocity in body axes; contacts in the order of the corners (-,-), (+,-), (-,+), (+,+).

    Args:
        all_corners: whether the upper corners are also contacts, in the same order. The impact does not
            need them. A box that moves in time needs them, because with four corners it falls through the
            floor if it tips over.
    """
    size, mass = jnp.array([1.0, 0.8, 2.0]), 1.0
    square = size**2
    return Model(
        system=_system(None if all_corners else (0, 1, 2, 3)),
        params=Params(
            mass=jnp.array([mass]),
            inertia=(mass / 12.0 * (jnp.sum(square) - square))[None, :],
            mu=jnp.full(8 if all_corners else 4, 0.6),
            gravity=jnp.array([0.0, 0.0, -9.81]),
            constants={"size": size},
        ),
        initial=State(
            q=jnp.array([0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0]),
            v=jnp.array([0.2, 0.0, -math.sqrt(2.0 * 9.81 * 0.01), 0.0, 0.0, 0.0]),
            t=jnp.array(0.0),
        ),
        impulse_step=0.2,
        max_steps=15,
    )
