"""Numbers without bounds for masses and inertias that a body can have: `inertia_of`, `inertia_numbers`.

Log-Cholesky factors of the pseudo-inertia (Rucker & Wensing, Smooth parameterization of rigid-body inertia,
2022), for searches such as `identify`. Page: docs/start/which-call.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact.front_door import checked

if TYPE_CHECKING:
    from jaxtyping import Float


@checked()
def inertia_of(numbers: Float[jax.Array, " 10"]) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute mass, centre of mass (3,) and inertia about it (3, 3), kg, m, kg m^2, of ten numbers.

    The pseudo-inertia is J = U U^T, U = exp(a) [[exp(d), s, t], [0, 0, 0, 1]] upper triangular, of the
    numbers (a, d1, d2, d3, s12, s23, s13, t1, t2, t3). Every choice of them is a distribution of mass, and
    every body of a volume has one choice.

    Derivative: exact.
    """
    a, d1, d2, d3, s12, s23, s13, t1, t2, t3 = numbers
    zero, unit = jnp.zeros_like(a), jnp.ones_like(a)
    rows = [[jnp.exp(d1), s12, s13, t1], [zero, jnp.exp(d2), s23, t2], [zero, zero, jnp.exp(d3), t3]]
    factor = jnp.exp(a) * jnp.stack([jnp.stack(row) for row in [*rows, [zero, zero, zero, unit]]])
    pseudo = factor @ factor.T
    mass, com = pseudo[3, 3], pseudo[:3, 3] / pseudo[3, 3]
    spread = pseudo[:3, :3] - mass * jnp.outer(com, com)
    return mass, com, jnp.trace(spread) * jnp.eye(3, dtype=spread.dtype) - spread


@checked()
def inertia_numbers(
    mass: float | Float[jax.Array, ""], com: Float[jax.Array, " 3"], inertia: Float[jax.Array, "3 3"]
) -> jax.Array:
    """Compute the numbers (10,) of `inertia_of` from mass, centre of mass (3,) and inertia about it (3, 3).

    They are NaN if no body has this inertia: the largest principal moment is less than the sum of the others.
    """
    mass, com, inertia = jnp.asarray(mass, float), jnp.asarray(com, float), jnp.asarray(inertia, float)
    spread = 0.5 * jnp.trace(inertia) * jnp.eye(3) - inertia
    upper = jnp.concatenate([spread + mass * jnp.outer(com, com), mass * com[:, None]], axis=1)
    pseudo = jnp.concatenate([upper, jnp.append(mass * com, mass)[None]])
    factor = jnp.linalg.cholesky(pseudo[::-1, ::-1])[::-1, ::-1]
    scale = factor[3, 3]
    u = factor / scale
    return jnp.stack([
        jnp.log(scale), jnp.log(u[0, 0]), jnp.log(u[1, 1]), jnp.log(u[2, 2]),
        u[0, 1], u[1, 2], u[0, 2], u[0, 3], u[1, 3], u[2, 3],
    ])  # fmt: skip
