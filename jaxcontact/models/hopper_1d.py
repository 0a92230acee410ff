"""A mass on one massless spring leg that hops up and down (Anderson & Revzen, 2024, section 5.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.geometry import HalfSpace, Point
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.system import Model, Params, State, Structure, System

GRAVITY = 9.81  # m/s^2


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return jnp.stack([jnp.zeros_like(q), q], axis=-1), jnp.zeros_like(q)


HOPPER_1D = System(
    Structure(
        dim=2,
        bodies=("mass",),
        num_positions=1,
        shapes=(
            Point(name="foot", body="mass", at="foot"),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
        ),
        pairs=(("foot", "floor"),),
    ),
    _poses,
)


def hopper_1d() -> Model:
    """Make a hopper of 1 kg with a leg of 1 m and 1000 N/m, at rest 2 m above the ground; q = (z,).

    Anderson & Revzen, section 5.1: zddot = -g above z = L0, -g + k (L0 - z) / m below (printed as zdot). The
    spring only pushes. The paper gives neither m nor k. The foot at rest length is the contact.
    """
    return Model(
        system=HOPPER_1D,
        params=Params(
            mass=jnp.array([1.0]),
            inertia=jnp.array([1.0]),
            mu=jnp.array(0.0),
            gravity=jnp.array([0.0, -GRAVITY]),
            constants={"foot": jnp.array([0.0, -1.0])},
            material=Material(stiffness=jnp.array(1000.0), damping=jnp.array(0.0)),
        ),
        initial=State(q=jnp.array([2.0]), v=jnp.array([0.0]), t=jnp.array(0.0)),
        dt=0.002,
    )
