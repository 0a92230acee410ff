"""The distance between two motions of one mechanism: entry `momentum_difference`."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.front_door import checked
from jaxcontact.mechanics.motion_equations import mass_matrix
from jaxcontact.mechanics.system import Model
from jaxcontact.precision import jit
from jaxcontact.simulate.trajectory import Trajectory


@checked()
@jit
def momentum_difference(model: Model, first: Trajectory, second: Trajectory) -> jax.Array:
    """Compare the momenta of two motions at equal times; return the relative difference (T + 1,).

    xi = |p_1 - p_2|_g / |p_1|_g with |p|_g^2 = p M^-1 p, M at the first motion's configuration: a ratio of
    norms, like `impact.indeterminacy` (Seghete & Murphey, Fig. 8). Zero if both rest; the absolute
    |p_1 - p_2|_g if only the first rests.

    Derivative: exact at times at which the momenta differ.
    """

    def one(q: jax.Array, v: jax.Array, q2: jax.Array, v2: jax.Array) -> jax.Array:
        mass = mass_matrix(model, q)
        # |M v - p_2|_g = |v - M^-1 p_2|_M
        apart = v - jnp.linalg.solve(mass, mass_matrix(model, q2) @ v2)
        square = v @ mass @ v
        return jnp.sqrt(apart @ mass @ apart / jnp.where(square > 0, square, 1.0))

    return jax.lax.map(lambda x: one(*x), (first.states.q, first.states.v, second.states.q, second.states.v))
