"""The simultaneous inelastic law and single impacts in sequence: closed forms, space, status, batches."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import reference as ref

import jaxcontact as jc
from jaxcontact.impact import anitescu_potra, sequential
from tests.oracles import problems

MASS, RADIUS = 2.0, 0.5


def make(M, J_n, J_t, mu, active=None):
    """ContactTerms from nested lists; J_t of shape (nc, nv) is planar."""
    nc = len(mu)
    return jc.ContactTerms(
        M=jnp.asarray(M, float),
        J_n=jnp.asarray(J_n, float),
        J_t=jnp.asarray(J_t, float).reshape(nc, -1, len(M)),
        phi=jnp.zeros(nc),
        mu=jnp.asarray(mu, float),
        active=jnp.ones(nc, bool) if active is None else jnp.asarray(active),
    )


def point(mu):
    """A point mass over the floor, v = (x, y)."""
    return make(MASS * np.eye(2), [[0.0, 1.0]], [[1.0, 0.0]], [mu])


def sphere(mu):
    """A uniform sphere on the floor, v = (linear, angular): u_t = (v_x - r w_y, v_y + r w_x)."""
    inertia = 0.4 * MASS * RADIUS**2
    J_t = [[[1, 0, 0, 0, -RADIUS, 0], [0, 1, 0, RADIUS, 0, 0]]]
    return make(np.diag([MASS] * 3 + [inertia] * 3), [[0, 0, 1, 0, 0, 0]], J_t, [mu])


def model(name):
    found = getattr(jc.models, name)()
    return jc.contact_terms(found, found.initial_state()), found.initial_state().v


# --- one contact in the plane


@pytest.mark.slow
@pytest.mark.slow_cases("v0-1.0-expected0")
@pytest.mark.parametrize(
    ("v", "mu", "expected"),
    [
        ((0.5, -1.0), 1.0, (0.0, 0.0)),  # sticks
        ((-0.5, -1.0), 1.0, (0.0, 0.0)),
        ((3.0, -1.0), 1.0, (2.0, 0.0)),  # slides, losing mu |v_n|
        ((-3.0, -1.0), 0.7, (-2.3, 0.0)),
        ((0.3, -1.0), 0.0, (0.3, 0.0)),  # no friction
        ((0.3, 0.0), 1.0, (0.3, 0.0)),  # grazes
        ((0.3, 2.0), 1.0, (0.3, 2.0)),  # separates
        ((0.0, -1.0), 1.0, (0.0, 0.0)),
        ((1.0, -1.0), 1.0, (0.0, 0.0)),  # on the edge of the cone
        ((40.0, -1.0), 1e5, (0.0, 0.0)),
    ],
)
def test_point_mass(v, mu, expected):
    terms, v = point(mu), jnp.array(v)
    v_plus, info = anitescu_potra(terms, v)
    np.testing.assert_allclose(v_plus, expected, rtol=0, atol=1e-14)
    momentum = MASS * (np.array(expected) - np.asarray(v))
    np.testing.assert_allclose(info.impulse, [[momentum[1], momentum[0]]], rtol=0, atol=1e-13)
    before, after = np.dot(v, v), np.dot(expected, expected)
    assert float(info.energy_ratio) == pytest.approx(after / before, abs=1e-14)
    assert info.status.dtype == jnp.uint32
    assert int(info.status) == 0
    assert int(info.num_iters) == 1
    assert not info.complete
    assert float(info.residual) < 1e-14
    outcomes, valid = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())[0]
    assert outcomes.shape == (4, 2)
    assert valid.tolist() == [True, False, False, False]
    np.testing.assert_allclose(outcomes[0], expected, rtol=0, atol=1e-14)


def test_at_rest_nothing_happens():
    v_plus, info = anitescu_potra(point(1.0), jnp.zeros(2))
    assert np.array_equal(v_plus, np.zeros(2))
    assert int(info.status) == 0
    assert float(info.energy_ratio) == 1.0


@pytest.mark.slow_cases("0.0")
@pytest.mark.parametrize("mu", [0.0, 0.3, 1e5])
def test_falling_rod_is_that_of_the_reference(mu):
    """One tip, coupled normal and tangential motion; also slip that reverses and jams."""
    angles, lean = np.meshgrid(np.linspace(0.1, 1.4, 6), np.linspace(-2, 2, 7))
    M = np.diag([1.0, 1.0, 1 / 12])
    run = jax.vmap(
        anitescu_potra, in_axes=(jc.ContactTerms(M=None, J_n=0, J_t=0, phi=None, mu=None, active=None), 0)
    )
    J_n = np.stack([0 * angles, 1 + 0 * angles, 0.5 * np.cos(angles)], axis=-1).reshape(-1, 1, 3)
    J_t = np.stack([1 + 0 * angles, 0 * angles, 0.5 * np.sin(angles)], axis=-1).reshape(-1, 1, 3)
    v = np.stack([lean, -1 + 0 * lean, 0 * lean], axis=-1).reshape(-1, 3)
    base = make(M, J_n[0], J_t[0], [mu])
    v_plus, info = run(base.replace(J_n=jnp.asarray(J_n), J_t=jnp.asarray(J_t)[:, None]), jnp.asarray(v))
    assert not np.any(info.status)
    for n, t, before, after in zip(J_n, J_t, v, np.asarray(v_plus), strict=True):
        expected = ref.anitescu_potra_solutions(M, n, t, np.array([mu]), before)[0]
        assert len(expected) == 1
        np.testing.assert_allclose(after, expected[0], rtol=0, atol=1e-10)


# --- in space


def directions_of(angles, speed, drop):
    return np.stack([speed * np.cos(angles), speed * np.sin(angles), 0 * angles - drop], axis=1)


@pytest.mark.slow_cases("32", "8")
@pytest.mark.parametrize("k", [pytest.param(4, marks=pytest.mark.slow), 8, 32])
def test_sliding_point_mass_converges_to_the_true_cone(k):
    """Friction is on the boundary of the polygon and within pi / k of the direction opposite to sliding."""
    mu, speed, drop = 0.3, 2.0, 1.0
    terms = make(MASS * np.eye(3), [[0, 0, 1]], [[[1, 0, 0], [0, 1, 0]]], [mu])
    angles = np.linspace(0.01, 2 * np.pi, 200)
    v = directions_of(angles, speed, drop)
    law = jax.vmap(lambda v: anitescu_potra(terms, v, num_directions=k))
    v_plus, info = law(jnp.asarray(v))
    assert not np.any(info.status)
    lam = np.asarray(info.impulse)[:, 0]
    np.testing.assert_allclose(lam[:, 0], MASS * drop, rtol=1e-13)
    middle = 2 * np.pi * (np.arange(k) + 0.5) / k  # of the sides of the polygon
    side = (lam[:, 1:] @ np.stack([np.cos(middle), np.sin(middle)])).max(axis=1)
    np.testing.assert_allclose(side, mu * MASS * drop * np.cos(np.pi / k), rtol=1e-12)
    exact = directions_of(angles, speed - mu * drop, 0.0)
    error = np.linalg.norm(np.asarray(v_plus) - exact, axis=1).max()
    bound = 2 * np.sin(np.pi / (2 * k)) * mu * drop
    assert 0.5 * bound < error < 1.01 * bound
    slip = np.asarray(v_plus)[:, :2]
    opposite = -np.einsum("nk,nk->n", slip, lam[:, 1:])
    sizes = np.linalg.norm(slip, axis=1) * np.linalg.norm(lam[:, 1:], axis=1)
    assert (opposite / sizes).min() >= np.cos(np.pi / k) - 1e-12
    assert np.max(info.energy_ratio) < 1.0


@pytest.mark.slow
def test_along_a_corner_of_the_polygon_friction_is_exact():
    terms = make(MASS * np.eye(3), [[0, 0, 1]], [[[1, 0, 0], [0, 1, 0]]], [0.3])
    angles = 2 * np.pi * np.arange(8) / 8
    v_plus, _ = jax.vmap(lambda v: anitescu_potra(terms, v))(jnp.asarray(directions_of(angles, 2.0, 1.0)))
    np.testing.assert_allclose(v_plus, directions_of(angles, 1.7, 0.0), rtol=0, atol=1e-13)


@pytest.mark.long
def test_sphere_sticks_into_rolling_or_slides():
    """Rolling needs 2/7 of the slip as an impulse over m; the polygon's inscribed circle bounds mu."""
    law = jax.jit(anitescu_potra)
    v = jnp.array([0.6, -0.8, -1.0, 0.0, 0.0, 0.3])
    v_plus, info = law(sphere(0.5), v)
    rolling = np.array([0.6, -0.8]) * 5 / 7
    expected = [*rolling, 0.0, rolling[1] / -RADIUS, rolling[0] / RADIUS, 0.3]
    np.testing.assert_allclose(v_plus, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(sphere(0.5).J_t[0] @ v_plus, 0.0, atol=1e-13)
    assert float(jnp.linalg.norm(info.impulse[0, 1:])) == pytest.approx(2 / 7 * MASS, rel=1e-12)
    v_plus, info = law(sphere(0.2), v)  # 0.2 < 2/7
    slip = sphere(0.2).J_t[0] @ v_plus
    assert float(jnp.linalg.norm(slip)) > 0.1
    assert float(slip @ info.impulse[0, 1:]) < 0
    assert float(jnp.linalg.norm(info.impulse[0, 1:])) <= 0.2 * MASS * (1 + 1e-12)
    assert int(info.status) == 0


@pytest.mark.long
def test_frictionless_space_keeps_the_tangential_velocity():
    v = jnp.array([0.6, -0.8, -1.0, 0.1, 0.2, 0.3])
    v_plus, info = anitescu_potra(sphere(0.0), v)
    np.testing.assert_allclose(v_plus, v.at[2].set(0.0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(info.impulse, [[MASS, 0.0, 0.0]], atol=1e-13)


@pytest.mark.long
def test_box_falling_flat_in_space_stops_dead():
    """Four redundant corners: forces are not unique, the velocity is."""
    q = np.array([0, 0, 0.2, 1.0, 0, 0, 0])
    phi, J_n, J_t = ref.box3d_contacts(q)
    touching = np.flatnonzero(phi < 1e-9)
    assert len(touching) == 4
    terms = make(ref.box3d_mass_matrix(q), J_n[touching], J_t[touching], [0.5] * 4)
    v = jnp.array([0.1, -0.2, -1.0, 0.0, 0.0, 0.0])
    v_plus, info = anitescu_potra(terms, v, num_directions=4)
    assert int(info.status) == 0
    np.testing.assert_allclose(v_plus, np.zeros(6), atol=1e-12)
    lam = np.asarray(info.impulse)
    momentum = np.einsum("cv,c->v", np.asarray(terms.J_n), lam[:, 0])
    momentum += np.einsum("ctv,ct->v", np.asarray(terms.J_t), lam[:, 1:])
    np.testing.assert_allclose(momentum, np.asarray(terms.M) @ -np.asarray(v), atol=1e-12)
    assert np.all(np.linalg.norm(lam[:, 1:], axis=1) <= 0.5 * lam[:, 0] + 1e-12)


@pytest.mark.parametrize("k", [3, 5, 2, 0])
def test_number_of_friction_directions_is_checked(k):
    with pytest.raises(ValueError, match="num_directions: expected an even number >= 4"):
        anitescu_potra(sphere(0.2), jnp.zeros(6), num_directions=k)


# --- every solution


@pytest.mark.long
def test_compass_gait_has_three_outcomes_and_pivoting_finds_one_of_them():
    terms, v = model("compass_gait")
    outcomes, valid = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())[0]
    assert outcomes.shape == (16, 4)
    assert valid.tolist() == [True] * 3 + [False] * 13
    one, _ = anitescu_potra(terms, v)
    assert np.abs(np.asarray(outcomes)[:3] - np.asarray(one)).max(axis=1).min() < 1e-12
    # A nudge upwards of the trailing foot leaves one outcome.
    lifting = v + jnp.linalg.solve(terms.M, terms.J_n[1]) * 1.0
    assert int(jc.impact.outcomes(terms, lifting, jc.impact.AnitescuPotra())[0][1].sum()) == 1


@pytest.mark.slow
def test_duplicated_contacts_add_no_outcome():
    terms, v = model("compass_gait")
    twice = jax.tree.map(lambda a: a if a.shape == terms.M.shape else jnp.concatenate([a, a]), terms)
    twice = twice.replace(M=terms.M)
    single, found = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())[0]
    outcomes, valid = jc.impact.outcomes(twice, v, jc.impact.AnitescuPotra())[0]
    for v_plus in np.asarray(single)[np.asarray(found)]:
        assert np.abs(np.asarray(outcomes)[np.asarray(valid)] - v_plus).max(axis=1).min() < 1e-10
    one, info = anitescu_potra(twice, v)
    assert int(info.status) == 0
    assert np.abs(np.asarray(single)[:3] - np.asarray(one)).max(axis=1).min() < 1e-10


@pytest.mark.long
def test_what_is_not_enumerated_is_searched_or_refused():
    """Contacts at one place have the outcomes of one: at rest sideways, or sliding on."""
    six = make(np.eye(2), np.tile([0.0, 1.0], (6, 1)), np.tile([1.0, 0.0], (6, 1)), np.ones(6))
    ball = sphere(0.3)
    four, many = (
        jax.tree.map(lambda leaf, n=n: jnp.concatenate([leaf] * n), ball).replace(M=ball.M) for n in (4, 17)
    )
    for terms, one, v in (
        (six, six.take([0]), jnp.array([1.5, -1.0])),
        (four, ball, jnp.array([0.5, 0.1, -1.0, 0.0, 0.3, 0.0])),
    ):
        (expected, good), info = jc.impact.outcomes(one, v, jc.impact.AnitescuPotra())
        assert info.complete and good.sum() == 1
        (values, valid), info = jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())
        assert int(info.status) == 0 and not info.complete and valid.sum() == 1
        np.testing.assert_allclose(values[0], expected[0], atol=1e-12)
    with pytest.raises(ValueError, match="at most 16 contacts, got 17.*terms.take.*leave contacts out"):
        jc.impact.outcomes(many, jnp.zeros(many.M.shape[0]), jc.impact.AnitescuPotra())
    assert int(anitescu_potra(six, jnp.array([0.0, -1.0]))[1].status) == 0


# --- batches and status


@pytest.mark.slow
def test_a_loop_and_a_batch_agree():
    terms, v = model("compass_gait")
    rng = np.random.default_rng(0)
    velocities = jnp.asarray(np.asarray(v) + 0.1 * rng.normal(size=(40, 4)))
    plain = [anitescu_potra(terms, one) for one in velocities]
    batched, info = jax.jit(jax.vmap(anitescu_potra, in_axes=(None, 0)))(terms, velocities)
    np.testing.assert_allclose(np.stack([v_plus for v_plus, _ in plain]), batched, rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.stack([i.impulse for _, i in plain]), info.impulse, rtol=0, atol=1e-13)
    assert [int(i.status) for _, i in plain] == info.status.tolist() == [0] * 40
    alls, valid = jax.vmap(lambda v: jc.impact.outcomes(terms, v, jc.impact.AnitescuPotra())[0])(velocities)
    for k, one in enumerate(velocities[:10]):
        outcomes, found = jc.impact.outcomes(terms, one, jc.impact.AnitescuPotra())[0]
        assert np.array_equal(found, valid[k])
        np.testing.assert_allclose(outcomes, alls[k], rtol=0, atol=1e-13)


@pytest.mark.slow
def test_bad_numbers_set_bits_in_their_world_alone():
    terms, v = point(0.5), jnp.array([0.2, -1.0])
    worlds = [
        (terms, v),
        (terms, v.at[0].set(jnp.nan)),
        (terms.replace(mu=-terms.mu), v),
        (terms.replace(M=-terms.M), v),
        (terms.replace(phi=terms.phi - 1.0), v),
    ]
    bits = [jc.Status[name] for name in ("SUCCESS", "NONFINITE", "INVALID", "INVALID", "PENETRATION")]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *worlds)
    v_plus, info = jax.vmap(anitescu_potra)(*batch)
    assert info.status.tolist() == [int(bit) for bit in bits]
    np.testing.assert_allclose(v_plus[0], [0.0, 0.0], atol=1e-15)
    for k in range(1, len(worlds)):
        assert np.array_equal(v_plus[k], batch[1][k], equal_nan=True)
    for bit, (one, w) in itertools.islice(zip(bits, worlds, strict=True), 1, None):
        with pytest.raises(ValueError, match="terms|v"):
            anitescu_potra(one, w)
        assert int(jax.jit(anitescu_potra)(one, w)[1].status) == int(bit)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda t, v: (t.replace(M=jnp.eye(3)), v), ValueError, r"terms.M: expected shape \(2, 2\)"),
        (lambda t, v: (t.replace(mu=jnp.ones(2)), v), ValueError, r"terms.mu: expected shape \(1,\)"),
        (lambda t, v: (t, v[:1]), ValueError, r"v: expected shape \(2,\)"),
        (lambda t, v: (t, v.astype(int)), TypeError, "v: expected a floating dtype"),
        (lambda t, v: (t.replace(active=jnp.ones(1)), v), TypeError, "terms.active: expected bool"),
        (lambda t, v: (t.replace(mu=-t.mu), v), ValueError, "friction must be >= 0"),
        (lambda t, v: (t.replace(phi=t.phi - 1e-3), v), ValueError, "penetrates by 0.001 m"),
        (lambda t, v: (t.replace(M=t.M.at[0, 1].set(1.0)), v), ValueError, "not symmetric"),
        (lambda t, v: (t.replace(M=t.M.at[1, 1].set(0.0)), v), ValueError, "positive definite"),
    ],
)
def test_mistakes_are_named(change, error, message):
    with pytest.raises(error, match=message):
        anitescu_potra(*change(point(0.5), jnp.array([0.2, -1.0])))


# --- in sequence


def sliders(count):
    """Independent point masses over the floor: contact i touches mass i."""
    unit = np.eye(2 * count)
    return make(unit, unit[1::2], unit[0::2], [0.5] * count)


@pytest.mark.long
@pytest.mark.parametrize(
    ("order", "impacts", "done"),
    [
        ((0, 1, 2), 5, {0, 2}),
        pytest.param((2, 1, 0), 5, {0, 2}, marks=pytest.mark.slow),
        pytest.param((0, 1, 2), 1, {0}, marks=pytest.mark.slow),
        ((1, 2, 0), 1, {2}),
        ((1, 0), 5, {0}),  # contact 2 is not in the cycle
    ],
)
def test_sequence_skips_contacts_that_do_not_approach(order, impacts, done):
    v = jnp.array([1.0, -1.0, 1.0, 0.5, 1.0, -2.0])
    hit = {0: (0.5, 0.0), 2: (0.0, 0.0)}  # mu 0.5 times the approach speed, or all of the slip
    v_plus, info = sequential(sliders(3), v, order, max_impacts=impacts)
    expected = np.array(v).reshape(3, 2)
    for contact in done:
        expected[contact] = hit[contact]
    np.testing.assert_allclose(v_plus, expected.ravel(), rtol=0, atol=1e-14)
    assert int(info.num_iters) == len(done)
    left = any(contact in order for contact in {0, 2} - done)
    assert int(info.status) == (int(jc.Status.UNTERMINATED) if left else 0)
    assert np.array_equal(np.asarray(info.impulse)[:, 0] > 0, [c in done for c in range(3)])


@pytest.mark.long
def test_sequence_without_approach_takes_no_impact():
    v = jnp.array([1.0, 0.0, 1.0, 0.5, 1.0, 2.0])
    v_plus, info = sequential(sliders(3), v, (0, 1, 2), max_impacts=5)
    assert np.array_equal(v_plus, v)
    assert (int(info.status), int(info.num_iters), float(info.energy_ratio)) == (0, 0, 1.0)


@pytest.mark.slow
def test_sequences_of_random_systems_are_those_of_the_reference():
    """A cycle with a repeated index; batched, so that every world is at its own place of the cycle."""
    rng, order = np.random.default_rng(3), (0, 2, 0, 1)
    found = [problems.random_contacts(rng, 3, mechanism="bodies", velocity="random") for _ in range(60)]
    c = problems.stack(found)
    terms = jc.ContactTerms(
        M=jnp.asarray(c.M),
        J_n=jnp.asarray(c.J_n),
        J_t=jnp.asarray(c.J_t)[:, :, None],
        phi=jnp.zeros((60, 3)),
        mu=jnp.asarray(c.mu),
        active=jnp.ones((60, 3), bool),
    )
    v_plus, info = jax.vmap(lambda t, v: sequential(t, v, order, max_impacts=8))(terms, jnp.asarray(c.v))
    lengths = set()
    for k in range(60):
        args = c.M[k], c.J_n[k], c.J_t[k], c.mu[k], c.v[k]
        path, hits = ref.sequential(*args, order, 8)
        lengths.add(len(hits))
        assert int(info.num_iters[k]) == len(hits)
        size = np.abs(c.v[k]).max()
        np.testing.assert_allclose(v_plus[k], path[-1], rtol=0, atol=1e-9 * size)
        done = (c.J_n[k] @ path[-1]).min() >= -1e-8
        assert int(info.status[k]) == (0 if done else int(jc.Status.UNTERMINATED))
    assert {0, 1, 2} < lengths


@pytest.mark.parametrize(
    ("order", "impacts", "message"),
    [((), 3, "order"), ((0, 3), 3, r"order: expected contact indices in 0..2"), ((0,), 0, "max_impacts")],
)
def test_wrong_sequences_are_refused(order, impacts, message):
    with pytest.raises(ValueError, match=message):
        sequential(sliders(3), jnp.zeros(6), order, max_impacts=impacts)


@pytest.mark.slow
def test_sequence_in_space():
    """Two spheres on the floor side by side: each meets it alone."""
    one = sphere(0.2)
    zero = np.zeros_like
    M, n, t = (np.asarray(a) for a in (one.M, one.J_n, one.J_t))
    terms = make(
        np.block([[M, zero(M)], [zero(M), M]]),
        np.block([[n, zero(n)], [zero(n), n]]),
        np.concatenate([np.concatenate([t, zero(t)], axis=2), np.concatenate([zero(t), t], axis=2)]),
        [0.2, 0.2],
    )
    v = jnp.array([0.6, -0.8, -1.0, 0.0, 0.0, 0.3])
    v_plus, info = sequential(terms, jnp.concatenate([v, 2 * v]), (0, 1), max_impacts=3)
    expected, single = anitescu_potra(one, v)
    np.testing.assert_allclose(v_plus, np.concatenate([expected, 2 * expected]), rtol=0, atol=1e-13)
    np.testing.assert_allclose(info.impulse, np.stack([single.impulse[0], 2 * single.impulse[0]]), atol=1e-13)
    assert (int(info.status), int(info.num_iters)) == (0, 2)
