"""A cube on an elastic foundation, with a load that circles on its top (Drumwright, section 5.5)."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from jaxcontact.algebra import rotations
from jaxcontact.arguments import check_count, check_number, check_rows
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.geometry import Box, HalfSpace
from jaxcontact.mechanics.material import Material, foundation_stiffness
from jaxcontact.mechanics.system import Model, Params, State, Structure, System, free_poses

SIDE, DENSITY, DEPTH, TURNING = 1.0, 8.0, 1.0, 10.0  # m, kg/m^3, m of the foundation, rad/s of the load


def _compression(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Compute heights (n,) of points of the bottom over the uncompressed elements; no equality rows."""
    turn = rotations.quaternion_matrix(q[3:])
    return jnp.zeros(0, q.dtype), q[2] + params.constants["elements"] @ turn[2]


def _load(structure: Structure, state: State, params: Params) -> jax.Array:
    """Compute the force and torque of a vertical load at s/2 (cos 10 t, sin 10 t, 1) in axes of the cube."""
    angle = TURNING * state.t
    at = 0.5 * params.constants["size"] * jnp.stack([jnp.cos(angle), jnp.sin(angle), jnp.ones_like(angle)])
    force = params.constants["load"] * jnp.array([0.0, 0.0, -1.0], state.q.dtype)
    turn = rotations.quaternion_matrix(state.q[3:])
    return jnp.concatenate([force, jnp.cross(at, turn.T @ force)])


BOX_ON_FOUNDATION = System(
    Structure(
        dim=3,
        bodies=("cube",),
        num_positions=7,
        quaternions=(3,),
        shapes=(
            Box(name="cube", body="cube", size="size"),
            HalfSpace(name="foundation", normal=(0.0, 0.0, 1.0)),
        ),
    ),
    free_poses,
    constraints=_compression,
    drive=_load,
)


@checked(num_elements=check_rows, youngs_modulus=POSITIVE)
def box_on_foundation(num_elements: int = 100, youngs_modulus: float = 1e7, load: float = 5.0) -> Model:
    """Make a cube of 1 m and 8 kg at rest on springs, under a load that circles at 10 rad/s.

    Drumwright, Fig. 7. q = (x, y, z, qw, qx, qy, qz). The foundation is 1 m deep and has a square number of
    elements, each of stiffness E A / depth and damping 1 N s/m; they carry no friction.

    Args:
        num_elements: 100 and 900 in the paper.
        youngs_modulus: 1e7 (rubber) and 1e11 (steel) N/m^2 in the paper.
        load: 5 and 50 N in the paper; under 50 N some elements part from the cube.

    Raises:
        ValueError, TypeError: the number of elements is not a square; an argument that is not a number, a
            negative modulus.
    """
    check_count("num_elements", num_elements)
    check_number("youngs_modulus", youngs_modulus, 0.0)
    check_number("load", load)
    rows = math.isqrt(num_elements)
    if rows**2 != num_elements:
        raise ValueError(f"num_elements: expected a square number such as 100 or 900, got {num_elements}")
    mass = DENSITY * SIDE**3
    middle = (jnp.arange(rows) + 0.5) / rows * SIDE - SIDE / 2.0
    x, y = jnp.meshgrid(middle, middle, indexing="ij")
    elements = jnp.stack([x.ravel(), y.ravel(), jnp.full(num_elements, -SIDE / 2.0)], axis=1)
    return Model(
        system=BOX_ON_FOUNDATION,
        params=Params(
            mass=jnp.array([mass]),
            inertia=jnp.full((1, 3), mass * SIDE**2 / 6.0),
            mu=jnp.array(0.0),
            gravity=jnp.array([0.0, 0.0, -9.81]),
            constants={
                "size": jnp.full(3, SIDE),
                "elements": elements,
                "load": jnp.asarray(load, elements.dtype),
            },
            material=Material(
                stiffness=foundation_stiffness(
                    jnp.asarray(youngs_modulus, elements.dtype), SIDE**2 / num_elements, DEPTH
                ),
                damping=jnp.array(1.0),
            ),
        ),
        initial=State(
            q=jnp.array([0.0, 0.0, SIDE / 2.0, 1.0, 0.0, 0.0, 0.0]), v=jnp.zeros(6), t=jnp.array(0.0)
        ),
        dt=0.01,
    )
