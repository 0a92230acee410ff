"""A box on four feet on an inclined plane (Drumwright, section 6.4)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_not_negative, check_number
from jaxcontact.front_door import checked
from jaxcontact.geometry import Box, HalfSpace
from jaxcontact.mechanics.material import Hertz, Material
from jaxcontact.mechanics.system import Model, Params, State, Structure, System, free_poses

SLOPE = math.radians(15.0)  # rad; the box slides if mu < tan(SLOPE)
SIZE = (0.2, 0.1, 0.05)  # m, along the slope, across, high
NORMAL = (math.sin(SLOPE), 0.0, math.cos(SLOPE))  # unit normal of the slope
TURN = (math.cos(SLOPE / 2), 0.0, math.sin(SLOPE / 2), 0.0)  # quaternion that turns the box onto the slope

BOX_ON_INCLINE = System(
    Structure(
        dim=3,
        bodies=("box",),
        num_positions=7,
        quaternions=(3,),
        shapes=(
            Box(name="feet", body="box", size="size", corners=(0, 1, 2, 3)),
            HalfSpace(name="ramp", normal=NORMAL),
        ),
        pairs=(("feet", "ramp"),),
    ),
    free_poses,
)


@checked(mu=check_not_negative)
def box_on_incline(mu: float | jax.Array = 0.25) -> Model:
    """Make a box of 1 kg at rest on a slope of 15 degrees, on feet at its lower corners (Drumwright, Fig. 9).

    q = (x, y, z, qw, qx, qy, qz); downhill is (cos 15, 0, -sin 15). Feet are spheres of radius 0.01 m on a
    half-space of E* = 1e11 N/m^2; the paper's damper of 1 N s/m is left out, because with a potential it
    would act before they touch. The box slides if mu < tan 15 = 0.268. Only the feet are contacts: a box
    thrown so that it tips over also needs the other corners as contacts.

    Raises:
        TypeError, ValueError: mu is not a number, or negative.
    """
    check_number("mu", mu, 0.0)
    size, mass = jnp.array(SIZE), 1.0
    square = size**2
    height = SIZE[2] / 2.0
    return Model(
        system=BOX_ON_INCLINE,
        params=Params(
            mass=jnp.array([mass]),
            inertia=(mass / 12.0 * (jnp.sum(square) - square))[None, :],
            mu=jnp.broadcast_to(jnp.asarray(mu, size.dtype), (4,)),
            gravity=jnp.array([0.0, 0.0, -9.81]),
            constants={"size": size},
            material=Material(
                potential=Hertz(modulus=jnp.array(1e11), radius=jnp.array(0.01)),
            ),
        ),
        initial=State(
            q=jnp.array([height * NORMAL[0], 0.0, height * NORMAL[2], *TURN]),
            v=jnp.zeros(6),
            t=jnp.array(0.0),
        ),
        dt=0.01,
    )
