"""The compass gait walker taking a wide step (Halm & Posa, Fig. 4)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.geometry import Capsule, HalfSpace, Point
from jaxcontact.mechanics.system import Model, Params, State, Structure, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    hip, pitch = q[:2], q[2:]
    along = jnp.stack([jnp.sin(pitch), -jnp.cos(pitch)], axis=-1)
    return hip[None, :] + params.constants["hip_to_mass"] * along, pitch


COMPASS_GAIT = System(
    Structure(
        dim=2,
        bodies=("leading", "trailing"),
        num_positions=4,
        shapes=(
            Point(name="leading_foot", body="leading", at="mass_to_foot"),
            Point(name="trailing_foot", body="trailing", at="mass_to_foot"),
            HalfSpace(name="floor", normal=(0.0, 1.0)),
            # For pictures; they touch nothing.
            Capsule(name="leading_leg", body="leading", radius="leg_radius", ends="leg_ends"),
            Capsule(name="trailing_leg", body="trailing", radius="leg_radius", ends="leg_ends"),
        ),
        pairs=(("leading_foot", "floor"), ("trailing_foot", "floor")),
    ),
    _poses,
)


def compass_gait() -> Model:
    """Make a compass gait walker: two legs of 1 m and 1 kg, 156 degrees apart, as the leading foot strikes.

    Halm & Posa, Table 5: the mass is at the middle of each leg; A is the leading foot, B the trailing one. q
    = (hip x, hip y, leading pitch, trailing pitch), pitch counter-clockwise from hanging. Both pitch rates
    are 0.25 rad/s and the trailing foot is at rest.
    """
    length, mass, pitch, rate = 1.0, 1.0, math.radians(78.0), 0.25
    c, s = math.cos(pitch), math.sin(pitch)
    return Model(
        system=COMPASS_GAIT,
        params=Params(
            mass=jnp.array([mass, mass]),
            inertia=jnp.array([0.0, 0.0]),
            mu=jnp.array([5.0, 5.0]),
            gravity=jnp.array([0.0, -9.81]),
            constants={
                "hip_to_mass": jnp.array(length / 2.0),
                "mass_to_foot": jnp.array([0.0, -length / 2.0]),
                "leg_radius": jnp.array(0.02 * length),
                "leg_ends": jnp.array([[0.0, -length / 2.0], [0.0, length / 2.0]]),
            },
        ),
        initial=State(
            q=jnp.array([-length * s, length * c, -pitch, pitch]),
            v=jnp.array([-length * c * rate, -length * s * rate, rate, rate]),
            t=jnp.array(0.0),
        ),
        impulse_step=0.25,
        max_steps=5,
    )
