"""Points of the central path against a general root finder, for any rank, and their derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import least_squares

from jaxcontact.solvers.central_path import follow_central_path


@functools.partial(jax.jit, static_argnames="dim")
def follow(W, q, mu, k, dim=3):
    active = jnp.ones(mu.shape, bool)
    return follow_central_path(W, q, mu, k, dim=dim, active=active, limits=(80, True))


def problem(rng, redundant):
    rows = rng.standard_normal((12, 7 if redundant else 14))
    return jnp.asarray(rows @ rows.T), jnp.asarray(rows @ rng.standard_normal(rows.shape[1]))


def misfits(W, q, mu, k, r):
    """The path in its first form: r_n u_n = k, and (mu r_n, r_t) o (psi, u_t) = (k, 0) with psi > |u_t|."""
    for impulse, rate, friction in zip(r.reshape(-1, 3), (W @ r + q).reshape(-1, 3), mu, strict=True):
        bound = friction * impulse[0]
        psi = max(np.roots([bound, -k, -bound * rate[1:] @ rate[1:]]).real)
        yield impulse[0] * rate[0] - k
        yield from psi * impulse[1:] + bound * rate[1:]


@pytest.mark.long
@pytest.mark.parametrize("redundant", [False, True])
def test_the_point_is_a_root_of_the_path(rng, redundant):
    mu = np.array([0.5, 1.2, 0.1, 0.3])
    for _ in range(3):
        W, q = problem(rng, redundant)
        for k in (1.0, 1e-2, 1e-5, 1e-8):
            r, settled, steps = follow(W, q, mu, k)
            assert bool(settled) and int(steps) < 25
            assert max(map(abs, misfits(W, q, mu, k, np.asarray(r)))) < 1e-9 * max(k, 1e-3)
            assert np.min(np.asarray(r)[::3]) > 0 and np.min((W @ r + q)[::3]) > 0
        far = np.asarray(follow(W, q, mu, 1.0)[0])
        found = least_squares(lambda r: list(misfits(W, q, mu, 1.0, r)), far * 1.1, xtol=1e-14, ftol=1e-14)
        np.testing.assert_allclose(found.x, far, atol=1e-6)


@pytest.mark.long
def test_its_derivatives_are_those_of_differences(rng):
    W, q = problem(rng, True)
    mu, change = jnp.array([0.5, 0.0, 1.2, 0.3]), jnp.asarray(rng.standard_normal((12, 12)))

    def moved(t):
        return follow(W + t[0] * change, q * (1 + t[1]), mu * (1 + t[2]), 1e-2 * (1 + t[3]))[0]

    step, zero = 1e-6 * np.eye(4), jnp.zeros(4)
    expected = np.stack([(moved(d) - moved(-d)) / 2e-6 for d in step], axis=1)
    np.testing.assert_allclose(jax.jacfwd(moved)(zero), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jacrev(moved)(zero), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.float32
def test_single_precision(rng):
    W, q = (x.astype(jnp.result_type(float)) for x in problem(rng, False))
    mu = jnp.full(4, 0.5)
    for k in (1.0, 1e-2, 1e-4):
        r, settled, _ = follow(W, q, mu, k)
        products = (r * (W @ r + q))[::3]
        assert bool(settled)
        np.testing.assert_allclose(products, k, rtol=0.05, atol=1e-5)
