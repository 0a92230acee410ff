"""A plate in the plane falls onto a bed of vertical springs (Anderson & Revzen, 2024, section 5.2)."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_count, check_rows
from jaxcontact.front_door import checked
from jaxcontact.geometry import HalfSpace, Point
from jaxcontact.mechanics.material import Material
from jaxcontact.mechanics.system import Model, Params, State, Structure, System

GRAVITY = 9.81  # m/s^2
SPAN = 4.0  # m, from the first spring to the last


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    """Place the plate, and above each spring the massless roller on which the plate would rest."""
    x, z, theta = q
    places = params.constants["places"]
    rollers = jnp.stack([places, z + jnp.tan(theta) * (places - x)], axis=-1)
    angles = jnp.concatenate([theta[None], jnp.zeros_like(places)])
    return jnp.concatenate([q[None, :2], rollers]), angles


@functools.cache
def _system(n: int) -> System:
    rollers = tuple(f"roller_{i}" for i in range(n))
    points = tuple(Point(name=f"tip_{i}", body=rollers[i]) for i in range(n))
    return System(
        Structure(
            dim=2,
            bodies=("plate", *rollers),
            num_positions=3,
            shapes=(*points, HalfSpace(name="springs", normal=(0.0, 1.0), offset="rest_length")),
            pairs=tuple((point.name, "springs") for point in points),
        ),
        _poses,
    )


@checked(n=check_rows)
def plate_on_springs(n: int = 6) -> Model:
    """Make a plate of 1 kg and 4 m above n vertical springs of 1 m, dropped from rest; q = (x, z, theta).

    Anderson & Revzen, section 5.2: contact i closes if the plate's height above spring i,
    z + tan(theta) (x_i - x), falls to the rest length; rolling without friction. The gap and its gradient are
    those of the paper's -h_i. The n springs together have a stiffness of 1000 N/m and a damping of
    2 N s/m; the paper gives no numbers. Contact i is that of spring i, left to right.

    Raises:
        ValueError: n is not an integer >= 1.
    """
    check_count("n", n)
    places = jnp.linspace(-0.5 * SPAN, 0.5 * SPAN, n) if n > 1 else jnp.zeros(1)
    none = jnp.zeros(n)
    return Model(
        system=_system(n),
        params=Params(
            mass=jnp.concatenate([jnp.ones(1), none]),
            inertia=jnp.concatenate([jnp.array([SPAN**2 / 12.0]), none]),
            mu=jnp.array(0.0),
            gravity=jnp.array([0.0, -GRAVITY]),
            constants={"places": places, "rest_length": jnp.array(1.0)},
            material=Material(stiffness=jnp.array(1000.0 / n), damping=jnp.array(2.0 / n)),
        ),
        initial=State(q=jnp.array([0.0, 2.0, 0.05]), v=jnp.zeros(3), t=jnp.array(0.0)),
        dt=1e-3,
    )
