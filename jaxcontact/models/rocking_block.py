"""A slender block dropped flat onto the floor, landing on its two lower corners (Halm & Posa, Fig. 1)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.front_door import checked
from jaxcontact.geometry import Box, HalfSpace
from jaxcontact.mechanics.system import Model, Params, State, Structure, Symmetry, System

GRAVITY = 9.81  # m/s^2


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return q[None, :2], q[2:3]


def _system(corners: tuple[int, ...] | None) -> System:
    return System(
        Structure(
            dim=2,
            bodies=("block",),
            num_positions=3,
            shapes=(
                Box(name="corners", body="block", size="size", corners=corners),
                HalfSpace(name="floor", normal=(0.0, 1.0)),
            ),
            pairs=(("corners", "floor"),),
        ),
        _poses,
    )


@checked()
def rocking_block(*, all_corners: bool = False) -> Model:
    """Make a block of 1 m x 2 m and 1 kg, dropped from 1 cm; contacts: lower left and lower right corner.

    Halm & Posa, Table 4; the drop speed 0.4429 m/s is sqrt(2 g 0.01 m). q = (x, y, theta) of the centre.

    Args:
        all_corners: whether the upper corners are also contacts: upper left and upper right. The impact does
            not need them. A block that moves in time needs them, because with two corners it falls through
            the floor if it tips over.
    """
    width, height, mass = 1.0, 2.0, 1.0
    corners, mirrored = (None, (1, 0, 3, 2)) if all_corners else ((0, 1), (1, 0))
    return Model(
        system=_system(corners),
        params=Params(
            mass=jnp.array([mass]),
            inertia=jnp.array([mass * (width**2 + height**2) / 12.0]),
            mu=jnp.ones(len(mirrored)),
            gravity=jnp.array([0.0, -GRAVITY]),
            constants={"size": jnp.array([width, height])},
        ),
        initial=State(
            q=jnp.array([0.0, height / 2.0, 0.0]),
            v=jnp.array([0.0, -math.sqrt(2.0 * GRAVITY * 0.01), 0.0]),
            t=jnp.array(0.0),
        ),
        symmetry=Symmetry(velocity=jnp.diag(jnp.array([-1.0, 1.0, -1.0])), contacts=mirrored),
        impulse_step=0.3,
        max_steps=10,
    )
