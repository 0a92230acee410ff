"""Contacts with rigid friction that are about to slip: Newton's method ends at the solution, and soon."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.solvers.cone_newton import solve_cone_program
from jaxcontact.solvers.cone_program import ConeProgram

COUNT, NV, NC = 1000, 6, 2
STIFF = 7e5  # slope x mobility of friction, near the largest that a step gets


def about_to_slip(key):
    """A program and its minimiser x (nv,): no contact slips there, with friction within 1e-4 of its bound."""
    keys = jax.random.split(key, 7)
    A, columns = jax.random.normal(keys[0], (NV, NV)), jax.random.normal(keys[1], (NV, 3 * NC))
    M = jnp.eye(NV) + 0.3 * A @ A.T
    mobility = jnp.sum(columns**2 / jnp.diagonal(M)[:, None], axis=0)
    slope_t = STIFF / jnp.maximum(mobility[NC : 2 * NC], mobility[2 * NC :])
    slope = jnp.concatenate([1.0 / mobility[:NC], slope_t, slope_t])
    push = jax.random.uniform(keys[2], (NC,))
    angle = 2.0 * jnp.pi * jax.random.uniform(keys[3], (NC,))
    rub = push * (1.0 - 10.0 ** (-4.0 * jax.random.uniform(keys[4], (NC,))))
    p = jnp.concatenate([push, rub * jnp.cos(angle), rub * jnp.sin(angle)])
    tangents, x = columns[:, NC:], jax.random.normal(keys[5], (NV,))
    x = x - tangents @ jnp.linalg.lstsq(tangents, x)[0]
    rigid = jnp.zeros(2 * NC)
    program = ConeProgram(
        M=M,
        v=x - jnp.linalg.solve(M, columns @ p),
        push=jnp.zeros(NV),
        columns=columns,
        offset=jnp.concatenate([push + slope[:NC] * (columns[:, :NC].T @ x), rigid]),
        slope=slope,
        keep=jnp.concatenate([jnp.zeros(NC), rigid + 1.0]),
        mu=jnp.ones(NC),
    )
    return program, x


@pytest.mark.slow
def test_contacts_about_to_slip_are_solved_soon():
    programs, expected = jax.jit(jax.vmap(about_to_slip))(jax.random.split(jax.random.key(5), COUNT))
    found = jax.vmap(lambda program, start: solve_cone_program(program, start, 500))(
        programs, jnp.zeros((COUNT, 3 * NC))
    )
    assert np.all(found.converged)
    assert int(found.iterations.max()) < 150
    np.testing.assert_allclose(found.x, expected, atol=1e-9)
