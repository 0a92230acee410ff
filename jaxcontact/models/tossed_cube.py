"""A cube tossed onto the floor, turning as it lands: a hard case for gradients through contact."""

from __future__ import annotations

import jax.numpy as jnp

from jaxcontact.geometry import Box, HalfSpace
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.system import Model, Params, State, Structure, System, free_poses

TOSSED_CUBE = System(
    Structure(
        dim=3,
        bodies=("cube",),
        num_positions=7,
        quaternions=(3,),
        shapes=(
            Box(name="corners", body="cube", size="size"),
            HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
        ),
        pairs=(("corners", "floor"),),
    ),
    free_poses,
)


def tossed_cube() -> Model:
    """Make a cube of 0.1 m and 0.37 kg, thrown forward and turning; all eight corners may touch the floor.

    q = (x, y, z, qw, qx, qy, qz), angular velocity in body axes.
    """
    side, mass = 0.1, 0.37
    return Model(
        system=TOSSED_CUBE,
        params=Params(
            mass=jnp.array([mass]),
            inertia=jnp.full((1, 3), mass * side**2 / 6.0),
            mu=jnp.full(8, 0.25),
            gravity=jnp.array([0.0, 0.0, -9.81]),
            constants={"size": jnp.full(3, side)},
            material=Material(
                stiffness=jnp.array(1e4), damping=jnp.array(30.0), friction_damping=jnp.array(1e3)
            ),
        ),
        initial=State(
            q=jnp.array([0.0, 0.0, 0.3, 1.0, 0.0, 0.0, 0.0]),
            v=jnp.array([1.0, 0.0, 0.0, 0.5, -2.0, 0.3]),
            t=jnp.array(0.0),
        ),
        dt=1e-3,
    )
