"""Spheres dropped in a line, which come to rest as a stack (Drumwright, section 6.5)."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from jaxcontact.arguments import check_count, check_number, check_rows
from jaxcontact.front_door import checked
from jaxcontact.geometry import HalfSpace, Sphere
from jaxcontact.mechanics.material import Hertz, Material
from jaxcontact.mechanics.system import Model, Params, State, Structure, System, free_poses

RADIUS, MASS, SPACE = 0.1, 1.0, 0.01  # m, kg, m between neighbours; the paper gives neither size nor mass


@functools.cache
def _system(number: int, all_pairs: bool) -> System:
    names = [f"sphere_{i}" for i in range(number)]
    neighbours = [(names[0], "floor"), *zip(names[1:], names[:-1], strict=True)]
    others = [(name, "floor") for name in names[1:]]
    others += [(names[j], names[i]) for j in range(number) for i in range(j - 1)]
    return System(
        Structure(
            dim=3,
            bodies=tuple(names),
            num_positions=7 * number,
            quaternions=tuple(range(3, 7 * number, 7)),
            shapes=(
                *(Sphere(name=name, body=name, radius="radius") for name in names),
                HalfSpace(name="floor", normal=(0.0, 0.0, 1.0)),
            ),
            pairs=tuple(neighbours + others * all_pairs),
        ),
        free_poses,
    )


@checked(n=check_rows)
def sphere_stack(n: int = 10, offset: float = 0.0, all_pairs: bool = False) -> Model:
    """Make n spheres of 1 kg and 0.1 m radius, one above the other with gaps of 1 cm, at rest.

    Drumwright, Fig. 10. q = (x, y, z, qw, qx, qy, qz) of each, from the lowest up; contacts are floor and
    lowest, then each with the one below. E* = 1e11 N/m^2; the paper gives neither size, mass nor friction
    (chosen: 0.5). Its damper of 1 N s/m is left out: with a potential it would brake spheres before they
    touch.

    Args:
        n: number of spheres, at least 1.
        offset: m, displacement of every other sphere along x.
        all_pairs: also contacts of every sphere with the floor and with every other, for a stack that falls
            down; otherwise each meets its neighbours only.

    Raises:
        ValueError, TypeError: n is not a positive integer, offset not a number.
    """
    check_count("n", n)
    check_number("offset", offset)
    system = _system(n, all_pairs)
    nc = system.structure.num_contacts
    on_floor = jnp.array([pair[1] == "floor" for pair in system.structure.pairs])
    index = jnp.arange(n)
    q = jnp.zeros((n, 7)).at[:, 3].set(1.0)
    q = q.at[:, 0].set(offset * (index % 2)).at[:, 2].set(RADIUS + SPACE + index * (2.0 * RADIUS + SPACE))
    return Model(
        system=system,
        params=Params(
            mass=jnp.full(n, MASS),
            inertia=jnp.full((n, 3), 0.4 * MASS * RADIUS**2),
            mu=jnp.full(nc, 0.5),
            gravity=jnp.array([0.0, 0.0, -9.81]),
            constants={"radius": jnp.array(RADIUS)},
            material=Material(
                potential=Hertz(modulus=jnp.array(1e11), radius=jnp.where(on_floor, RADIUS, RADIUS / 2.0)),
            ),
        ),
        initial=State(q=q.ravel(), v=jnp.zeros(6 * n), t=jnp.array(0.0)),
        dt=0.01,
    )
