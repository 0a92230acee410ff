"""Any stiffness, any step: forces against extended precision, growth and decay, single precision."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms import BILATERAL, LIMIT, NORMAL, TANGENT

WIDE = np.longdouble


def solve_wide(matrix, rhs):
    """Gaussian elimination with row pivoting in extended precision."""
    a = np.concatenate([matrix, rhs[:, None]], axis=1).astype(WIDE)
    n = len(rhs)
    for k in range(n):
        best = k + np.argmax(np.abs(a[k:, k]))
        a[[k, best]] = a[[best, k]]
        for i in range(n):
            if i != k:
                a[i] = a[i] - a[k] * (a[i, k] / a[k, k])
    return a[:, -1] / np.diagonal(a[:, :n])


def law_wide(M, v, f, G, phi, gdot_v, K, B, h):
    """lam of one bilateral row and limits by trying every active set of the law."""
    M, v, f, G, phi, gdot_v, K, B = (np.asarray(a, WIDE) for a in (M, v, f, G, phi, gdot_v, K, B))
    h = WIDE(h)
    nr = len(phi)
    inverse = np.stack([solve_wide(M, e) for e in np.eye(len(v))], axis=1)
    D = h * h * K + h * B
    c = -K * phi - (h * K + B) * (G @ (v + h * (inverse @ f)) + h * gdot_v)
    system = np.eye(nr) + D[:, None] * (G @ inverse @ G.T)
    for picked in itertools.product([0, 1], repeat=nr - 1):
        on = [0] + [1 + i for i, p in enumerate(picked) if p]
        lam = np.zeros(nr, WIDE)
        lam[on] = solve_wide(system[np.ix_(on, on)], c[on])
        slack = system @ lam - c
        if np.all(lam[1:] >= 0) and np.all(slack[1:] >= -1e-14 * (np.abs(c[1:]) + np.abs(system @ lam)[1:])):
            return lam
    raise AssertionError("no active set")


def random_problems(rng, n, contacts):
    """n problems with stiffness 0..1e15 N/m, damping 0..1e12 N s/m and steps 1e-8..0.1 s."""
    nv, nr, nk = 6, 4 + 3 * contacts, 4 + contacts
    kind = (BILATERAL,) + (LIMIT,) * 3 + (NORMAL, TANGENT, TANGENT) * contacts
    half = rng.normal(size=(n, nv, nv))
    phi = rng.normal(size=(n, nr)) * 10.0 ** rng.uniform(-12, 0, (n, nr))
    phi[:, [i for i, k in enumerate(kind) if k == TANGENT]] = 0.0
    law = jc.compliant.Material(
        stiffness=jnp.array(10.0 ** rng.uniform(0, 15, (n, nk)) * (rng.random((n, nk)) > 0.1)),
        damping=jnp.array(10.0 ** rng.uniform(-3, 12, (n, nk)) * (rng.random((n, nk)) > 0.3)),
        friction_damping=jnp.full(n, 1e8),
    )
    terms = jc.ConstraintTerms(
        G=jnp.array(rng.normal(size=(n, nr, nv))),
        phi=jnp.array(phi),
        gdot_v=jnp.array(rng.normal(size=(n, nr))),
        mu=jnp.array(rng.uniform(0, 1, (n, contacts))),
        kind=kind,
    )
    return jc.compliant.Problem(
        M=jnp.array(half @ half.transpose(0, 2, 1) + 0.1 * np.eye(nv)),
        v=jnp.array(rng.normal(size=(n, nv)) * 10.0 ** rng.uniform(-6, 1, (n, 1))),
        f=jnp.array(rng.normal(size=(n, nv)) * 10.0),
        terms=terms,
        material=law,
        dt=jnp.array(10.0 ** rng.uniform(-8, -1, n)),
    )


@pytest.mark.slow
def test_forces_at_any_stiffness_and_step_agree_with_extended_precision(rng):
    problems = random_problems(rng, 2000, contacts=0)
    lam, info = jax.jit(jax.vmap(lambda p: jc.compliant.solve(p)))(problems)
    assert np.all(np.isfinite(lam)) and not np.any(info.status)
    for i in range(40):
        p = jax.tree.map(lambda a, i=i: np.asarray(a[i]), problems)
        expected = law_wide(
            p.M,
            p.v,
            p.f,
            p.terms.G,
            p.terms.phi,
            p.terms.gdot_v,
            p.material.stiffness,
            p.material.damping,
            p.dt,
        )
        np.testing.assert_allclose(
            lam[i], expected.astype(float), rtol=0, atol=1e-8 * np.max(np.abs(expected))
        )


@pytest.mark.slow
def test_friction_at_any_stiffness_and_step(rng):
    """Ten rows in six velocities: many problems are redundant, so the residuals are those in velocity."""
    problems = random_problems(rng, 2000, contacts=2)
    lam, info = jax.jit(jax.vmap(lambda p: jc.compliant.solve(p)))(problems)
    assert np.all(np.isfinite(lam))
    good = np.asarray(info.status) == 0
    assert good.mean() > 0.998  # the others say MAX_ITERS
    assert set(np.unique(info.status)) <= {0, int(jc.Status.MAX_ITERS)}
    assert np.max(np.asarray(info.residual)[good]) < 1e-9


@pytest.mark.slow_cases("2")
@pytest.mark.float32  # where single precision is the default; with both at hand in the long run
@pytest.mark.parametrize(
    "contacts",
    [
        pytest.param(0, marks=pytest.mark.slow),
        pytest.param(2, marks=[pytest.mark.slow] * jax.config.jax_enable_x64),
    ],
)
def test_single_precision_is_finite_and_balanced_or_says_so(rng, contacts):
    """Stiffness to 1e15 N/m, damping to 1e12 N s/m and steps down to 1e-8 s, as in double precision."""
    problems = jax.tree.map(lambda a: a.astype(jnp.float32), random_problems(rng, 500, contacts))
    lam, info = jax.jit(jax.vmap(lambda p: jc.compliant.solve(p)))(problems)
    assert lam.dtype == jnp.float32 and np.all(np.isfinite(lam))
    good = np.asarray(info.status) == 0
    assert good.mean() > (0.98 if contacts else 0.999)  # the others say MAX_ITERS
    assert np.max(np.asarray(info.residual)[good]) < (4e-4 if contacts else 3e-5)
    assert set(np.unique(info.status)) <= {0, int(jc.Status.MAX_ITERS)}


def test_a_deviation_dies_in_one_step_as_the_step_grows():
    """L-stability: phi+ = phi / (1 + (h^2 K + h B) / m), so phi+ / phi -> 0 as h grows."""
    K, B, mass, phi = 1e8, 1.0, 2.0, 1e-3
    shares = []
    for h in (1e-6, 1e-4, 1e-2, 1.0, 100.0):
        terms = jc.ConstraintTerms(
            G=jnp.ones((1, 1)), phi=jnp.array([phi]), gdot_v=jnp.zeros(1), mu=jnp.zeros(0), kind=(BILATERAL,)
        )
        found = jc.compliant.Problem(
            M=jnp.array([[mass]]), v=jnp.zeros(1), f=jnp.zeros(1), terms=terms,
            material=jc.compliant.Material(stiffness=K, damping=B), dt=jnp.array(h),
        )  # fmt: skip
        _, info = jc.compliant.solve(found)
        shares.append(float(info.gap[0]) / phi)
        closed = (1.0 + h * B / mass) / (1.0 + (h * h * K + h * B) / mass)
        np.testing.assert_allclose(shares[-1], closed, rtol=1e-6, atol=1e-12)
    assert shares[-1] < 1e-9


@pytest.mark.long
def test_energy_does_not_rise_where_jacobians_are_constant(rng):
    """Three coupled masses on joints and limits, implicit Euler: kinetic + constraint energy falls."""
    half = rng.normal(size=(3, 3))
    M, G = half @ half.T + np.eye(3), rng.normal(size=(3, 3))
    K = np.array([1e9, 1e4, 1e6])
    law = jc.compliant.Material(stiffness=jnp.array(K), damping=0.5)

    @jax.jit
    def advance(phi, v):
        terms = jc.ConstraintTerms(
            G=jnp.array(G), phi=phi, gdot_v=jnp.zeros(3), mu=jnp.zeros(0), kind=(BILATERAL, LIMIT, LIMIT)
        )
        found = jc.compliant.Problem(
            M=jnp.array(M), v=v, f=jnp.zeros(3), terms=terms, material=law, dt=jnp.array(0.01)
        )
        lam, info = jc.compliant.solve(found)
        return info.gap, v + 0.01 * jnp.array(np.linalg.inv(M)) @ (G.T @ lam)

    phi, v = jnp.array([0.0, 1e-3, -1e-3]), jnp.array(rng.normal(size=3))
    last = np.inf
    for _ in range(50):
        depth = np.asarray(phi) * [1.0, phi[1] < 0, phi[2] < 0]
        energy = 0.5 * v @ M @ v + 0.5 * np.sum(K * depth**2)
        assert energy <= last * (1 + 1e-10)
        last = energy
        phi, v = advance(phi, v)
