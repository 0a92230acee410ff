"""Restitution at spatial contacts: a ball, pushes against tiny steps, energy, propagative outcomes, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.problems import random_spd

import jaxcontact as jc
from jaxcontact.impact import propagate, resolve, sample
from jaxcontact.impact.laws.contact_space import friction_directions
from jaxcontact.impact.sampling.draws import sobol

LANES, STEPS, NV = 32, 12, 6  # of the one program for two contacts
UNTERMINATED = int(jc.Status.UNTERMINATED)
FAN = friction_directions(2, 8)


@jax.jit
@jax.vmap
def bounce(terms, v, caps, picks, e):
    return resolve(terms, v, caps, picks, restitution=e, selection="lemke")


def two_contacts(M, J_n, J_t, mu, active=(True, True)):
    """Arrays (LANES, ...) of two spatial contacts as terms."""
    full = lambda a, *shape: jnp.asarray(np.broadcast_to(np.asarray(a), (LANES, *shape)))  # noqa: E731
    return jc.ContactTerms(
        M=full(M, NV, NV), J_n=full(J_n, 2, NV), J_t=full(J_t, 2, 2, NV), phi=jnp.zeros((LANES, 2)),
        mu=full(mu, 2), active=full(active, 2),
    )  # fmt: skip


def random_two(rng, friction, active=(True, True)):
    M = np.stack([random_spd(rng, NV) for _ in range(LANES)])
    J_n, J_t = rng.normal(size=(LANES, 2, NV)), rng.normal(size=(LANES, 2, 2, NV))
    terms = two_contacts(M, J_n, J_t, friction * rng.random((LANES, 2)), active)
    return terms, jnp.asarray(rng.normal(size=(LANES, NV)))


def random_draws(rng):
    caps = rng.random((LANES, STEPS, 2)) * rng.choice([1.0, 10.0], (LANES, 1, 1))
    return jnp.asarray(caps), jnp.asarray(rng.random((LANES, STEPS)))


def both_rows(terms):
    """(LANES, 2, 3, NV) of normals and tangents."""
    return np.concatenate([np.asarray(terms.J_n)[:, :, None], np.asarray(terms.J_t)], axis=2)


@pytest.mark.slow
def test_a_ball_bounces_slides_and_rolls():
    """v_n+ = -e v_n-; friction mu (1 + e) m |v_n-| against the slip, or less where that makes it roll."""
    rng = np.random.default_rng(0)
    mass, radius, mu, e = rng.uniform(0.2, 1.0, (4, LANES))
    inertia = 0.4 * mass * radius**2
    M = np.eye(NV) * np.stack([mass, mass, mass, inertia, inertia, inertia], axis=1)[:, None]
    J_t = np.zeros((LANES, 2, 2, NV))
    J_t[:, :, 0, 0], J_t[:, :, 0, 4] = 1.0, -radius[:, None]
    J_t[:, :, 1, 1], J_t[:, :, 1, 3] = 1.0, radius[:, None]
    terms = two_contacts(M, np.eye(NV)[[2, 2]], J_t, np.stack([mu, mu], axis=1), (True, False))
    # Slip along one of the directions of the friction cone, where it is the round one.
    slip, way = rng.uniform(0.0, 3.0, LANES), FAN[rng.integers(0, 8, LANES)]
    v = np.zeros((LANES, NV))
    v[:, :2], v[:, 2] = slip[:, None] * way, -rng.uniform(0.1, 1.0, LANES)
    v_plus, info = bounce(terms, jnp.asarray(v), *random_draws(rng), jnp.asarray(np.stack([e, e], axis=1)))
    limit = mu * (1 + e) * mass * -v[:, 2]
    push = np.minimum(slip * mass * 2.0 / 7.0, limit)
    assert 5 < np.sum(push < limit) < LANES - 5
    assert not np.any(info.status)
    np.testing.assert_allclose(v_plus[:, :2], v[:, :2] - (push / mass)[:, None] * way, atol=1e-13)
    np.testing.assert_allclose(v_plus[:, 2], -e * v[:, 2], atol=1e-13)
    turn = (push * radius / inertia)[:, None] * way
    np.testing.assert_allclose(v_plus[:, 3:5], np.stack([-turn[:, 1], turn[:, 0]], axis=1), atol=1e-12)


@pytest.mark.slow_cases("0.0", "0.5", "5.0")
@pytest.mark.parametrize("friction", [0.0, 0.5, 5.0])
def test_energy_never_rises(friction):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        terms, v = random_two(rng, friction)
        e = np.where(rng.random((LANES, 1)) < 0.5, 1.0, rng.random((LANES, 2)))
        e[:3] = 0.0
        v_plus, info = bounce(terms, v, *random_draws(rng), jnp.asarray(e))
        status, ratio = np.asarray(info.status), np.asarray(info.energy_ratio)
        assert set(status.tolist()) <= {0, UNTERMINATED} and np.mean(status == 0) > 0.8
        assert np.all(ratio <= 1 + 1e-12)
        done = status == 0
        if friction == 0.0:
            np.testing.assert_allclose(ratio[done & np.all(e == 1.0, axis=1)], 1.0, atol=1e-12)
        M, impulse = np.asarray(terms.M), np.asarray(info.impulse)
        change = np.einsum("bij,bj->bi", M, np.asarray(v_plus) - np.asarray(v))
        np.testing.assert_allclose(change, np.einsum("bcr,bcrv->bv", impulse, both_rows(terms)), atol=1e-8)
        assert np.min(np.einsum("bcv,bv->bc", terms.J_n, v_plus)[done]) >= -1.001e-8
        limit = np.asarray(terms.mu) * impulse[..., 0]
        assert np.all(np.linalg.norm(impulse[..., 1:], axis=-1) <= limit + 1e-6 * (1 + limit))


def best_friction(mu, matrix, slope):
    """The f in mu P that minimises f matrix f / 2 + slope f, P the regular polygon."""
    free = -np.linalg.solve(matrix, slope)
    inward = 0.5 * (FAN + np.roll(FAN, -1, axis=0))
    if np.all(inward @ free <= mu * np.sum(inward**2, axis=1)):
        return free
    start, edge = mu * FAN, mu * (np.roll(FAN, -1, axis=0) - FAN)
    along = -np.sum(edge * (slope + start @ matrix), axis=1) / np.sum((edge @ matrix) * edge, axis=1)
    points = start + np.clip(along, 0.0, 1.0)[:, None] * edge
    return points[np.argmin(points @ slope + 0.5 * np.sum((points @ matrix) * points, axis=1))]


def by_small_steps(D, mu, u, stored, number=250):
    """A push in small steps of the normal impulse, implicit in the friction, until the work is done."""
    dp = 2.0 * np.sqrt(stored / D[0, 0]) / number
    for _ in range(20 * number):
        f = best_friction(mu, dp * D[1:, 1:], u[1:] + dp * D[1:, 0])
        after = u + dp * D @ np.concatenate([[1.0], f])
        stored -= dp * 0.5 * (u[0] + after[0])
        if stored < 0:
            return u
        u = after
    raise AssertionError("the work is not done")


@pytest.mark.slow
def test_pushes_follow_friction_round_the_corners():
    """Slides that turn, stop, stick or start again, against tiny steps of impulse; one contact."""
    rng = np.random.default_rng(5)
    terms, v = random_two(rng, 1.0, (True, False))
    host, rows = jax.tree.map(np.asarray, terms), both_rows(terms)[:, 0]
    v = np.asarray(v) - 2.0 * host.J_n[:, 0] * np.maximum(np.sum(host.J_n[:, 0] * v, axis=1), 0.0)[:, None]
    e, picks, caps = np.full((LANES, 2), 0.8), np.zeros((LANES, STEPS)), np.zeros((LANES, STEPS, 2))
    caps[:, 0] = 1e3
    law = lambda caps: bounce(terms, *map(jnp.asarray, (v, caps, picks, e)))  # noqa: E731
    pressed, _ = law(caps)
    caps[:, 1:] = 1e3
    v_plus, info = law(caps)
    pressed, v_plus, num_iters = map(np.asarray, (pressed, v_plus, info.num_iters))
    turned = checked = 0
    for i in range(LANES):
        M, J, mu = host.M[i], rows[i], host.mu[i, 0]
        D = J @ np.linalg.solve(M, J.T)
        before, u = J @ v[i], J @ pressed[i]
        if before[0] > -0.1 or num_iters[i] != 2 or checked == 12:
            continue
        checked += 1
        lam = np.linalg.solve(D, u - before)
        work, lost = -lam[0] * before[0] / 2, -lam @ (u + before) / 2
        want = by_small_steps(D, mu, u, min(0.64 * work, lost))
        np.testing.assert_allclose(J @ v_plus[i], want, atol=2e-2 * np.abs(before).max())
        straight = np.linalg.norm(np.cross([*want[1:], 0], [*u[1:], 0]))
        turned += straight > 1e-2 * np.linalg.norm(want[1:]) * np.linalg.norm(u[1:])
    assert turned >= 4


@pytest.mark.long
def test_draws_of_full_steps_are_the_propagative_outcomes():
    rng = np.random.default_rng(4)
    terms, v = random_two(rng, 0.0)
    law = jax.jit(jax.vmap(lambda t, v: propagate(t, v, order="least_violated", max_reflections=STEPS // 2)))
    found, told = law(terms, v)
    caps = np.repeat(1e4 * (np.asarray(told.sequence)[:, :, None] == np.arange(2)), 2, axis=1)
    v_plus, info = bounce(terms, v, jnp.asarray(caps), jnp.zeros((LANES, STEPS)), jnp.ones((LANES, 2)))
    known = np.asarray(told.status) == 0
    assert np.sum(known & (np.asarray(told.num_iters) > 1)) >= 5
    assert not np.any(np.asarray(info.status)[known])
    np.testing.assert_allclose(v_plus[known], found[known], atol=1e-10)


@pytest.mark.slow
def test_a_box_dropped_flat_bounces_on_four_corners():
    """All samples end; without restitution the program with stores has the outcomes of the one without."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    law = jc.impact.Routh(impulse_step=model.impulse_step, max_steps=40, selection="lemke")

    def draw(e):
        return sample(terms, model.initial_state().v, law.replace(restitution=e), num_samples=128)

    speeds = []
    for e in (0.25, 0.5, 1.0):
        samples = draw(e)
        assert not np.any(samples.status) and np.max(samples.energy_ratio) <= 1.0 + 1e-12
        speeds.append(np.max(np.asarray(samples.v_plus)[:, 2]))
    assert np.all(np.diff(speeds) > 0.0)
    plain = draw(0.0)
    v = jnp.broadcast_to(model.initial_state().v, (16, 6))
    x = np.asarray(sobol(5 * 40, 0).uniform(jnp.arange(16, dtype=jnp.uint32), 0, 5 * 40)).T.reshape(16, 40, 5)
    law = jax.jit(
        jax.vmap(
            lambda v, c, p, e: resolve(terms, v, c, p, restitution=e, selection="lemke"), (0, 0, 0, None)
        )
    )
    v_plus, _ = law(v, jnp.asarray(model.impulse_step * x[..., :4]), jnp.asarray(x[..., 4]), jnp.zeros(4))
    np.testing.assert_allclose(v_plus, plain.v_plus[:16], atol=1e-13)
