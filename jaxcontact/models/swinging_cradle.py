"""Newton's cradle: balls on a line, with springs that pull each back home (Seghete & Murphey, Fig. 2)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_positive
from jaxcontact.front_door import NOT_NEGATIVE, checked
from jaxcontact.geometry import Disc
from jaxcontact.mechanics.system import Model, Params, State, Structure, System


def _poses(structure: Structure, q: jax.Array, params: Params) -> tuple[jax.Array, jax.Array]:
    return jnp.stack([q, jnp.zeros_like(q)], axis=1), jnp.zeros_like(q)


def _forces(structure: Structure, q: jax.Array, v: jax.Array, params: Params) -> jax.Array:
    c = params.constants
    return -params.mass * c["rate"] ** 2 * (q - c["home"])


@functools.cache
def _system(number: int) -> System:
    names = tuple(f"ball_{i}" for i in range(number))
    return System(
        Structure(
            dim=2,
            bodies=names,
            num_positions=number,
            shapes=tuple(Disc(name=f"{name}_rim", body=name, radius="radius") for name in names),
            pairs=tuple((f"{b}_rim", f"{a}_rim") for a, b in itertools.pairwise(names)),
        ),
        _poses,
        _forces,
    )


@checked(frequency=NOT_NEGATIVE)
def swinging_cradle(masses: Sequence[float] = (1.0, 1.0, 1.0), frequency: float = 1.0) -> Model:
    """Make balls of 5 cm that touch at home and swing at `frequency`; the first is released 20 cm aside.

    q = x of each ball; contact i is between balls i and i + 1. For any masses, all balls come home at the
    same times, so that every impact is simultaneous: the pendulums of the toy at small angles.
    """
    if len(masses) < 2:
        raise ValueError(f"masses: expected two or more numbers > 0, got {tuple(masses)}")
    for mass in masses:
        check_positive("masses", mass)
    number, radius = len(masses), 0.05
    home = 2.0 * radius * jnp.arange(float(number))
    return Model(
        system=_system(number),
        params=Params(
            mass=jnp.asarray(masses, home.dtype),
            inertia=jnp.ones(number),
            mu=jnp.array(0.0),
            gravity=jnp.zeros(2),
            constants={
                "radius": jnp.array(radius),
                "home": home,
                "rate": jnp.array(2.0 * math.pi * frequency),
            },
        ),
        initial=State(q=home.at[0].add(-0.2), v=jnp.zeros(number), t=jnp.array(0.0)),
        dt=0.01,
    )


@checked()
def newtons_cradle(masses: Sequence[float] = (1.0, 1.0, 1.0)) -> Model:
    """Make balls of 5 cm on a line that touch; the first arrives at 1 m/s (Seghete & Murphey, Example 1)."""
    model = swinging_cradle(masses)
    home = model.params.constants["home"]
    return model.replace(initial=State(q=home, v=jnp.zeros_like(home).at[0].set(1.0), t=jnp.array(0.0)))
