"""Coulomb friction by Newton and interior points, against De Saxce's conditions and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.solvers.friction_newton import CoulombNewton, solve_coulomb

SOLVE = jax.jit(lambda *data: solve_coulomb(*data))
BATCH = jax.jit(jax.vmap(lambda *data: solve_coulomb(*data)))


def conditions(W, q, mu, r):
    """Worst violation of Coulomb's law, in velocities of the data over the largest |q|; numpy alone."""
    nc = len(mu)
    size = np.abs(np.diag(W)).max()
    u, r = (W @ r + q).reshape(nc, -1), r.reshape(nc, -1)
    slip, rub = np.linalg.norm(u[:, 1:], axis=1), np.linalg.norm(r[:, 1:], axis=1)
    power = np.abs(np.sum(u[:, 1:] * r[:, 1:], axis=1) + mu * r[:, 0] * slip)
    worst = [
        -u[:, 0].min(),
        -r[:, 0].min() * size,
        (rub - mu * r[:, 0]).max() * size / max(1.0, mu.max()),
        np.sqrt(np.abs(u[:, 0] * r[:, 0]).max() * size) * 1e-4,
        np.sqrt(power.max() * size) * 1e-4,
    ]
    return max(worst) / np.abs(q).max()


def plate(rng, nc, softness=0.0):
    """A free body on contacts in one plane: redundant, and regularised if soft."""
    x = np.concatenate([rng.uniform(-1.0, 1.0, (nc, 2)), np.full((nc, 1), -0.3)], axis=1)
    rows = []
    for px, py, pz in x:
        turn = np.array([[0.0, pz, -py], [-pz, 0.0, px], [py, -px, 0.0]])
        rows.append(np.concatenate([np.eye(3), turn], axis=1)[[2, 0, 1]])
    J = np.concatenate(rows)
    W = J @ J.T
    v = rng.normal(size=6)
    v[2] -= 2.0
    return W + softness * np.diag(np.diag(W)), J @ v


@pytest.mark.long
def test_one_contact_against_closed_forms():
    """A block of mass 2 on the floor: lifts, sticks, slides."""
    W, mu = jnp.eye(3) / 2.0, jnp.array([0.5])
    cases = {(1.0, 0.3, 0.0): (0, 0, 0), (-1.0, 0.3, 0.4): (2, -0.6, -0.8), (-1.0, 3.0, 4.0): (2, -0.6, -0.8)}
    q = jnp.array(list(cases))
    r, info = jax.jit(jax.vmap(lambda q: solve_coulomb(W, q, mu)))(q)
    np.testing.assert_allclose(r, jnp.array(list(cases.values()), r.dtype), atol=1e-12)
    assert not info.status.any() and (info.residual < 1e-12).all()


@pytest.mark.long
@pytest.mark.parametrize("softness", [0.0, 1e-6, 1e-3])
def test_plates_on_four_contacts(softness):
    rng = np.random.default_rng(3)
    W, q = map(np.stack, zip(*[plate(rng, 4, softness) for _ in range(64)], strict=True))
    mu = rng.choice([0.0, 0.2, 0.7, 3.0], (64, 4))
    r, info = BATCH(*map(jnp.asarray, (W, q, mu)))
    assert not info.status.any()
    for data in zip(W, q, mu, np.asarray(r), strict=True):
        assert conditions(*data) < 1e-10
    one, alone = SOLVE(W[5], q[5], mu[5])
    np.testing.assert_allclose(W[5] @ one, W[5] @ r[5], atol=1e-9)
    assert alone.status == 0


@pytest.mark.long
def test_units_leave_the_solution():
    """Masses of grams and of thousands of tons: the same problem, residual and steps."""
    rng = np.random.default_rng(4)
    W, q = plate(rng, 4)
    mu = np.full(4, 0.6)
    scale = 10.0 ** np.arange(-9, 10, 6)
    batch = (
        jnp.asarray(scale[:, None, None] * W[None]),
        jnp.tile(jnp.asarray(q), (4, 1)),
        jnp.tile(mu, (4, 1)),
    )
    r, info = BATCH(*batch)
    assert not info.status.any() and (info.residual < 1e-12).all()
    for s, push in zip(scale, np.asarray(r), strict=True):
        np.testing.assert_allclose(s * (W @ push), scale[0] * (W @ np.asarray(r[0])), atol=1e-9)


@pytest.mark.long
def test_inactive_contacts_and_starts():
    """A contact that is not active has no impulse, whatever its rows hold; a start at the solution ends at once."""
    rng = np.random.default_rng(5)
    W, q = plate(rng, 3, 1e-4)
    mu = jnp.full(3, 0.5)
    wide = np.full((12, 12), np.nan)
    wide[:9, :9] = W
    data = (jnp.asarray(wide), jnp.append(jnp.asarray(q), jnp.full(3, jnp.nan)), jnp.append(mu, 0.5))
    r, info = jax.jit(lambda *d: solve_coulomb(*d, active=jnp.arange(4) < 3))(*data)
    assert info.status == 0
    np.testing.assert_array_equal(r[9:], 0.0)
    assert conditions(W, q, np.asarray(mu), np.asarray(r[:9])) < 1e-10
    again, info = jax.jit(lambda *d: solve_coulomb(*d[:3], start=d[3]))(
        jnp.asarray(W), jnp.asarray(q), mu, r[:9]
    )
    assert info.num_iters <= 1
    np.testing.assert_allclose(again, r[:9], atol=1e-12)


@pytest.mark.long
def test_bad_numbers_set_bits_in_their_lane():
    rng = np.random.default_rng(6)
    W, q = plate(rng, 4)
    W, q, mu = (jnp.stack([jnp.asarray(x)] * 3) for x in (W, q, np.full(4, 0.5)))
    q, mu = q.at[1, 2].set(jnp.nan), mu.at[2, 0].set(-1.0)
    r, info = BATCH(W, q, mu)
    assert [int(s) for s in info.status] == [0, int(jc.Status.NONFINITE), int(jc.Status.INVALID)]
    assert jnp.isfinite(r).all()


@pytest.mark.long
def test_static_length_has_no_while_and_the_same_answer():
    rng = np.random.default_rng(7)
    W, q = plate(rng, 4)
    mu = jnp.full(4, 0.5)
    fixed = CoulombNewton(max_iters=12, early_exit=False)
    program = jax.make_jaxpr(lambda *d: solve_coulomb(*d, settings=fixed))(W, q, mu)
    assert "while[" not in str(program)
    r, info = jax.jit(lambda *d: solve_coulomb(*d, settings=fixed))(W, q, mu)
    reference, _ = SOLVE(W, q, mu)
    np.testing.assert_allclose(W @ r, W @ reference, atol=1e-10)
    assert info.status == 0


@pytest.mark.long
def test_single_precision():
    rng = np.random.default_rng(8)
    W, q = map(np.stack, zip(*[plate(rng, 4, 1e-3) for _ in range(64)], strict=True))
    mu = np.full((64, 4), 0.5)
    r, info = BATCH(*(jnp.asarray(x, jnp.float32) for x in (W, q, mu)))
    assert r.dtype == jnp.float32 and not info.status.any()
    for data in zip(W, q, mu, np.asarray(r, float), strict=True):
        assert conditions(*data) < 1e-3


def differences(W, q, mu, of, direction, h=1e-6):
    """Central differences along a direction of all data."""
    ends = []
    for sign in (1.0, -1.0):
        moved = [x + sign * h * dx for x, dx in zip((W, q, mu), direction, strict=True)]
        ends.append(of(*moved))
    return (ends[0] - ends[1]) / (2.0 * h)


@pytest.mark.long
@pytest.mark.parametrize("softness", [0.0, pytest.param(1e-4, marks=pytest.mark.slow)])
def test_derivatives_of_velocities_against_differences(softness):
    rng = np.random.default_rng(9)
    J = rng.normal(size=(12, 6))
    shape = np.diag([0.0, 1.0, 1.0] * 4) * softness + softness * np.eye(12)
    v = rng.normal(size=6)

    def velocity(inverse_mass, v, mu):
        W = J @ (inverse_mass[:, None] * J.T) + shape
        r, _ = solve_coulomb(W, J @ v, mu)
        return W @ r + J @ v

    data = (jnp.asarray(rng.uniform(0.5, 2.0, 6)), jnp.asarray(v), jnp.full(4, 0.4))
    direction = tuple(jnp.asarray(rng.normal(size=x.shape)) for x in data)
    of = jax.jit(velocity)
    expected = differences(*data, of, direction)
    tangent = jax.jit(lambda d, t: jax.jvp(velocity, d, t)[1])(data, direction)
    np.testing.assert_allclose(tangent, expected, atol=2e-6 * float(jnp.abs(expected).max() + 1.0))
    weights = jnp.asarray(rng.normal(size=12))
    pulled = jax.jit(lambda d: jax.vjp(velocity, *d)[1](weights))(data)
    product = sum(jnp.vdot(g, t) for g, t in zip(pulled, direction, strict=True))
    np.testing.assert_allclose(product, weights @ tangent, rtol=1e-6)
