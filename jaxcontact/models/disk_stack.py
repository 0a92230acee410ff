"""A disk dropped onto two others that rest on the floor side by side (Halm & Posa, Fig. 14)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import check_positive
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.geometry import Disc, HalfSpace
from jaxcontact.mechanics.system import Model, Params, State, Structure, Symmetry, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    disks = q.reshape(3, 3)
    return disks[:, :2], disks[:, 2]


_SWAP = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])  # left and right disk
_MIRROR = np.array([-1.0, 1.0, -1.0])  # x, y, theta

DISK_STACK = System(
    Structure(
        dim=2,
        bodies=("left", "right", "top"),
        num_positions=9,
        shapes=(
            Disc(name="left_rim", body="left", radius="radius"),
            Disc(name="right_rim", body="right", radius="radius"),
            Disc(name="top_rim", body="top", radius="radius"),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(
            ("left_rim", "floor"),
            ("right_rim", "floor"),
            ("right_rim", "left_rim"),
            ("top_rim", "left_rim"),
            ("top_rim", "right_rim"),
        ),
    ),
    _poses,
)


@checked(mass=POSITIVE)
def disk_stack(mass: float = 1.0) -> Model:
    """Make three disks of radius 1 m; the top one falls at 1 m/s onto the other two: five contacts.

    Halm & Posa, Table 8 (1 kg; the authors' own runs used 5 kg). q = (x, y, theta) of the left, right and
    top disk; contacts: left-floor, right-floor, right-left, top-left, top-right.
    """
    check_positive("mass", mass)
    radius = 1.0
    return Model(
        system=DISK_STACK,
        params=Params(
            mass=jnp.full(3, float(mass)),
            inertia=jnp.full(3, 0.5 * mass * radius**2),
            mu=jnp.full(5, math.sqrt(3.0)),
            gravity=jnp.array([0.0, -9.81]),
            constants={"radius": jnp.array(radius)},
        ),
        initial=State(
            q=jnp.array([-1.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0 + math.sqrt(3.0), 0.0]),
            v=jnp.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0.0]),
            t=jnp.array(0.0),
        ),
        symmetry=Symmetry(velocity=jnp.asarray(np.kron(_SWAP, np.diag(_MIRROR))), contacts=(1, 0, 2, 4, 3)),
        impulse_step=1.0,
        max_steps=10,
    )
