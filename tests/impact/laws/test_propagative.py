"""Propagative impacts: reflections, orders, restitution, plastic outcomes, against closed forms and brute force."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.problems import random_spd
from scipy.optimize import nnls

import jaxcontact as jc

impact = jc.impact


def contacts(M, J_n, active=None):
    J_n = jnp.asarray(J_n)
    nc, nv = J_n.shape
    return jc.ContactTerms(
        M=jnp.asarray(M),
        J_n=J_n,
        J_t=jnp.zeros((nc, 1, nv)),
        phi=jnp.zeros(nc),
        mu=jnp.zeros(nc),
        active=jnp.ones(nc, bool) if active is None else jnp.asarray(active),
    )


def with_gram(product):
    """Two contacts of unit normals with <u, w>_g = product, M = I."""
    return contacts(np.eye(3), [[1.0, 0.0, 0.0], [product, math.sqrt(1.0 - product**2), 0.0]])


def chamber(rng, nc, nv):
    """Random independent normals that a velocity can satisfy all, and one that violates some."""
    M = random_spd(rng, nv)
    J = rng.normal(size=(nc, nv))
    return contacts(M, J), jnp.asarray(rng.normal(size=nv))


def energy(M, v):
    return 0.5 * np.einsum("...i,ij,...j->...", v, M, v)


@pytest.mark.float32
def test_reset_maps_are_reflections(tolerance):
    rng = np.random.default_rng(1)
    limit = tolerance(1e-14, 1e-5)
    for nv in (1, 3, 6):
        M = np.eye(nv) + 0.1 * random_spd(rng, nv)
        u = rng.normal(size=nv)
        gamma = np.asarray(impact.reset_map(jnp.asarray(M, float), jnp.asarray(u, float)))
        np.testing.assert_allclose(gamma @ gamma, np.eye(nv), atol=limit)
        np.testing.assert_allclose(gamma.T @ M @ gamma, M, atol=limit * np.linalg.norm(M))  # an isometry
        scaled = impact.reset_map(jnp.asarray(M, float), jnp.asarray(-7.0 * u, float))
        np.testing.assert_allclose(scaled, gamma, atol=limit)
        np.testing.assert_allclose(u @ gamma, -u, atol=limit)
    with pytest.raises(ValueError, match=r"u: expected shape \(3,\), got \(2,\)"):
        impact.reset_map(jnp.eye(3), jnp.ones(2))


@pytest.mark.slow
def test_elastic_outcomes_keep_energy_and_the_momentum_along_the_contacts():
    """1 to 6 contacts; the others of six are not active."""
    rng = np.random.default_rng(3)
    number = np.repeat(np.arange(1, 7), 40)
    cases = [chamber(rng, 6, 8) for _ in number]
    terms, v = jax.tree.map(lambda *leaves: jnp.stack(leaves), *cases)
    terms = terms.replace(active=jnp.asarray(np.arange(6) < number[:, None]))
    law = jax.jit(jax.vmap(lambda t, v: impact.propagate(t, v, max_reflections=256)))
    v_plus, info = law(terms, v)
    assert np.mean(np.asarray(info.status) == 0) > 0.9
    for i in np.flatnonzero(np.asarray(info.status) == 0):
        nc = number[i]
        M, J = np.asarray(terms.M[i]), np.asarray(terms.J_n[i])[:nc]
        before, after = energy(M, np.asarray(v[i])), energy(M, np.asarray(v_plus[i]))
        assert abs(after - before) <= 1e-12 * before
        assert np.min(J @ np.asarray(v_plus[i])) >= -1e-10
        # Directions in which no contact pushes.
        free = np.linalg.svd(J)[2][nc:]
        np.testing.assert_allclose(free @ M @ np.asarray(v_plus[i] - v[i]), 0.0, atol=1e-12)
        assert np.min(np.asarray(info.impulse[i, :, 0])) >= 0.0
    unfinished = np.asarray(info.status) != 0
    assert np.all(np.asarray(info.status)[unfinished] == int(jc.Status.UNTERMINATED))


@pytest.mark.slow
def test_two_contacts_need_at_most_half_of_what_theorem_1_says():
    """100 000 random pairs of normals and velocities, in both orders: n <= ceil(pi / (2 gamma))."""
    rng = np.random.default_rng(0)
    count = 100_000
    product = rng.uniform(-0.995, 0.995, count)
    v = jnp.asarray(rng.normal(size=(count, 3)))
    J = np.zeros((count, 2, 3))
    J[:, 0, 0], J[:, 1, 0], J[:, 1, 1] = 1.0, product, np.sqrt(1.0 - product**2)
    gamma = np.arcsin(np.sqrt((1.0 + product) / 2.0))
    base = with_gram(0.0)

    @jax.jit
    @jax.vmap
    def stages(J, v):
        terms = base.replace(J_n=J)
        return [impact.propagate(terms, v, order=order)[1] for order in ((0, 1), "least_violated")]

    for info in stages(jnp.asarray(J), v):
        assert not np.any(info.status)
        assert np.all(np.asarray(info.num_iters) <= np.ceil(np.pi / (2.0 * gamma) - 1e-9))


@pytest.mark.long
@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
def test_n_stages_in_either_order(n):
    """<u, w> = -cos(pi / n): from a velocity that violates both, n impacts, and one outcome."""
    terms = with_gram(-math.cos(math.pi / n))
    inner = np.linalg.solve(np.asarray(terms.J_n)[:, :2], [-1.0, -0.3])
    v = jnp.asarray([*inner, 0.7])
    first, info = impact.propagate(terms, v, order=(0, 1))
    second, other = impact.propagate(terms, v, order=(1, 0))
    np.testing.assert_allclose(first, second, atol=1e-13)
    assert int(info.num_iters) == int(other.num_iters) == n
    assert list(np.asarray(info.sequence[:n])) == [i % 2 for i in range(n)]
    assert float(impact.indeterminacy(terms, v)) < 1e-13
    found = impact.unique_order(terms)
    assert bool(found.unique) and int(found.stages[0, 1]) == n
    assert found.theorem.startswith("Theorem 2" if n == 2 else "Theorem 3")
    assert impact.unique_order(with_gram(-math.cos(math.pi / n) + 1e-3)).theorem is None
    assert impact.unique_order(with_gram(0.5)).theorem is None  # the printed +0.5


@jax.jit
@jax.vmap
def both_orders(product, v):
    """How far apart the two outcomes are, relative to |v|; the second contact approaches, too."""
    terms = with_gram(0.0)
    J = terms.J_n.at[1].set(jnp.stack([product, jnp.sqrt(1.0 - product**2), 0.0]))
    first, second = (
        impact.propagate(terms.replace(J_n=J), v, order=order, max_reflections=256)[0]
        for order in ((0, 1), (1, 0))
    )
    return jnp.linalg.norm(first - second) / jnp.linalg.norm(v)


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 3, 7, 50, 200])
def test_a_theorem_is_named_only_where_outcomes_agree_within_its_tolerance(n):
    """Over velocities from which either contact may be first, at angles beside pi / n."""
    tol = 1e-4
    for share, agree in ((0.9, True), (-0.9, True), (1.3, False), (-1.3, False)):
        angle = math.pi / n + share * tol / (2 * n)
        at = math.pi + angle * np.linspace(0.01, 0.99, 64)
        v = jnp.asarray(np.stack([np.cos(at), np.sin(at), 0.0 * at], axis=1))
        # Polar coordinates in which contact 0 is the ray at 0 and contact 1 that at `angle`.
        v = v @ jnp.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        apart = np.asarray(both_orders(jnp.full(64, -math.cos(angle)), v))
        assert (apart.max() <= tol) == agree and apart.max() > 0.8 * abs(share) * tol
        found = impact.unique_order(with_gram(-math.cos(angle)), tol)
        assert (found.theorem is not None) == agree
        assert int(found.stages[0, 1]) == (n if agree else 0)


def test_near_opposite_normals_a_small_deviation_is_not_small():
    """At pi / 200.5 the cosine is 6e-7 off that of pi / 200, and outcomes differ by more than a hundredth."""
    terms = with_gram(-math.cos(math.pi / 200.5))
    assert impact.unique_order(terms, 1e-6).theorem is None
    assert impact.unique_order(with_gram(-math.cos(math.pi / 200)), 1e-6).theorem.startswith("Theorem 3")


@pytest.mark.slow
def test_three_normals_near_a_reflection_group_agree_within_the_tolerance(rng):
    """All outcomes of `propagate_all`, for Gram matrices beside those of A3, B3 and H3."""
    outcomes = jax.jit(
        jax.vmap(lambda J, v: impact.propagate_all(contacts(np.eye(3), J), v)[::2], in_axes=(None, 0))
    )
    for n in (3, 4, 5):
        exact = -np.cos(np.pi / np.array([[1, 3, 2], [3, 1, n], [2, n, 1]]))
        off = 1e-4 * rng.normal(size=(3, 3)) * (1 - np.eye(3))
        J = np.linalg.cholesky(exact + off + off.T)
        v = -np.linalg.solve(J, rng.random((3, 16))).T
        found, valid = outcomes(J, jnp.asarray(v))
        apart = np.linalg.norm(np.asarray(found)[:, :, None] - np.asarray(found)[:, None], axis=-1)
        both = np.asarray(valid)[:, :, None] & np.asarray(valid)[:, None]
        worst = np.max(np.where(both, apart, 0.0) / np.linalg.norm(v, axis=1)[:, None, None])
        assert worst > 1e-5
        assert impact.unique_order(contacts(np.eye(3), J), worst).theorem is None
        assert impact.unique_order(contacts(np.eye(3), J), 10.0 * worst).theorem.startswith("reflection")


@pytest.mark.long
def test_orthogonal_normals_in_any_order():
    rng = np.random.default_rng(2)
    M = random_spd(rng, 5)
    J = np.linalg.cholesky(M) @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:, :4]
    terms, v = contacts(M, 3.0 * J.T), jnp.asarray(rng.normal(size=5))
    np.testing.assert_allclose(impact.normals_gram(terms), np.eye(4), atol=1e-14)
    outcomes = [impact.propagate(terms, v, order=order)[0] for order in itertools.permutations(range(4))]
    np.testing.assert_allclose(np.stack(outcomes), np.broadcast_to(outcomes[0], (24, 5)), atol=1e-13)
    assert impact.unique_order(terms).theorem.startswith("Theorem 2")


def terms_of(model):
    return jc.contact_terms(model, model.initial_state())


@pytest.mark.long
@pytest.mark.parametrize("number", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 5, 6, 8))])
def test_equal_balls_of_a_cradle_pass_it_on(number):
    model = jc.models.newtons_cradle((0.7,) * number)
    terms = terms_of(model)
    for order in ("most_violated", "least_violated", tuple(range(number - 1))[::-1]):
        v_plus, info = impact.propagate(terms, model.initial_state().v, order=order)
        np.testing.assert_allclose(v_plus, [0.0] * (number - 1) + [1.0], atol=1e-14)
        assert int(info.num_iters) == number - 1
    # All contacts approach: the velocities are sorted, whatever the order.
    v = jnp.asarray(np.random.default_rng(number).normal(size=number))
    found, sequences, valid = impact.propagate_all(terms, v)
    assert int(valid.sum()) == 1 and not int(sequences.status)
    np.testing.assert_allclose(found[0], np.sort(np.asarray(v)), atol=1e-14)
    assert bool(impact.unique_order(terms).unique)


def brute_force(terms, v, limit=60):
    """All distinct feasible velocities at the ends of all physical orders, by depth-first search."""
    M, J = np.asarray(terms.M), np.asarray(terms.J_n)
    maps = [np.asarray(impact.reset_map(terms.M, u)) for u in terms.J_n]
    ends = []

    def follow(v, depth):
        near = np.flatnonzero(J @ v < -1e-11)
        assert depth < limit
        if not near.size and not any(np.allclose(v, other, atol=1e-9) for other in ends):
            ends.append(v)
        for k in near:
            follow(maps[k] @ v, depth + 1)

    follow(np.asarray(v), 0)
    assert energy(M, ends[0]) > 0
    return np.array(ends)


@pytest.mark.long
@pytest.mark.parametrize(
    "masses", [(1.0, 2.0, 0.5), pytest.param((1.0, 3.0, 1.0, 2.0), marks=pytest.mark.slow)]
)
def test_unequal_balls_have_several_outcomes_and_all_are_found(masses):
    model = jc.models.newtons_cradle(masses)
    terms = terms_of(model)
    v = jnp.arange(len(masses), 0.0, -1.0)
    found, sequences, valid = impact.propagate_all(terms, v)
    got = np.asarray(found)[np.asarray(valid)]
    want = brute_force(terms, v)
    assert not int(sequences.status)
    assert len(got) == len(want) == (2 if len(masses) == 3 else 5)
    order = lambda a: a[np.lexsort(np.round(a, 9).T)]  # noqa: E731
    np.testing.assert_allclose(order(got), order(want), atol=1e-12)
    assert np.asarray(sequences.minimal)[np.asarray(valid)][:2].all()
    # Too few places are told.
    _, sequences, _ = impact.propagate_all(terms, v, max_outcomes=1)
    assert jc.Status.describe(sequences.status) == "MAX_ITERS"
    _, sequences, _ = impact.propagate_all(terms, v, max_reflections=1)
    assert jc.Status.describe(sequences.status) == "UNTERMINATED"


@pytest.mark.slow_cases("False", "True")
@pytest.mark.parametrize("unilateral", [True, False])
def test_restitution_is_the_share_of_energy_it_says(unilateral):
    rng = np.random.default_rng(7)
    cases = [chamber(rng, 3, 5) for _ in range(30)]
    terms, v = jax.tree.map(lambda *leaves: jnp.stack(leaves), *cases)
    grid = jnp.linspace(0.0, 1.0, 21)
    law = jax.jit(
        jax.vmap(
            jax.vmap(
                lambda t, v, R: impact.propagate(t, v, restitution=R, unilateral=unilateral),
                in_axes=(None, None, 0),
            ),
            in_axes=(0, 0, None),
        )
    )
    v_plus, info = law(terms, v, grid)
    dead, _ = jax.vmap(lambda t, v: impact.plastic(t, v, unilateral=unilateral))(terms, v)
    fine, pulls = 0, False
    for i in range(30):
        if np.any(np.asarray(info.status[i])):
            continue
        M = np.asarray(terms.M[i])
        lost = energy(M, np.asarray(v[i])) - energy(M, np.asarray(v_plus[i]))
        most = energy(M, np.asarray(v[i])) - energy(M, np.asarray(dead[i]))
        if most < 1e-6:
            continue
        fine += 1
        realised = np.sqrt(np.maximum(1.0 - lost / most, 0.0))
        np.testing.assert_allclose(realised[1:], np.asarray(grid)[1:], atol=1e-10)
        np.testing.assert_allclose(v_plus[i, 0], dead[i], atol=1e-12)
        if unilateral:
            assert np.min(np.asarray(terms.J_n[i]) @ np.asarray(v_plus[i]).T) >= -1e-10
        pulls |= bool(np.min(np.asarray(info.impulse[i, 0, :, 0])) < -1e-9)
    assert fine > 15
    assert pulls != unilateral  # (11) needs pulling impulses now and then


@pytest.mark.slow
def test_the_plastic_outcome_is_the_nearest_feasible_velocity():
    """Against SciPy's non-negative least squares in the kinetic metric."""
    rng = np.random.default_rng(5)
    for nc in (1, 3, 4):
        terms, v = chamber(rng, nc, 4)
        v_plus, info = impact.plastic(terms, v)
        half = np.linalg.cholesky(np.asarray(terms.M))
        impulse, _ = nnls(np.linalg.solve(half, np.asarray(terms.J_n).T), -half.T @ np.asarray(v))
        want = np.asarray(v) + np.linalg.solve(np.asarray(terms.M), np.asarray(terms.J_n).T @ impulse)
        np.testing.assert_allclose(v_plus, want, atol=1e-10)
        assert not int(info.status) and float(info.residual) < 1e-10


def test_billiards_are_determinate_at_a_right_angle():
    """<u_a, u_b>_g m_c = cos(theta), eq (31), for any radii and masses; xi falls to 0 at 90 and 180 degrees."""
    rng = np.random.default_rng(3)
    for theta in (1.2, math.pi / 2, 2.5, math.pi):
        masses, radii = rng.uniform(0.1, 1.0, 3), rng.uniform(0.02, 0.03, 3)
        model = jc.models.billiard_break(theta, masses, radii)
        terms = terms_of(model)
        assert bool(jnp.all(terms.active))
        gram = np.asarray(impact.normals_gram(terms))
        norms = np.sqrt(1.0 / masses[:2] + 1.0 / masses[2])
        np.testing.assert_allclose(gram[0, 1] * norms[0] * norms[1], math.cos(theta) / masses[2], atol=1e-12)
        xi = float(impact.indeterminacy(terms, model.initial_state().v))
        assert (xi < 1e-12) == (theta in (math.pi / 2, math.pi))
    with pytest.raises(ValueError, match="theta: expected an angle up to pi"):
        jc.models.billiard_break(math.radians(59.0))
    jc.models.billiard_break(math.radians(60.0))


@pytest.mark.slow
def test_derivatives_by_velocity_mass_and_restitution():
    model = jc.models.newtons_cradle((1.0, 2.0, 0.5))
    base = terms_of(model)
    v = jnp.array([3.0, 2.0, 1.0])

    def outcome(v, mass, R):
        terms = base.replace(M=jnp.diag(mass))
        return impact.propagate(terms, v, order=(0, 1), restitution=R)[0]

    at = (v, jnp.array([1.0, 2.0, 0.5]), jnp.array(0.6))
    forward, reverse = jax.jacfwd(outcome, (0, 1, 2))(*at), jax.jacrev(outcome, (0, 1, 2))(*at)
    for which in range(3):
        np.testing.assert_allclose(forward[which], reverse[which], atol=1e-12)
        step = 1e-6
        size = at[which].size
        for i in range(size):
            shift = (step * np.eye(size)[i]).reshape(at[which].shape)
            up, down = ([x + s * shift if j == which else x for j, x in enumerate(at)] for s in (1, -1))
            want = (np.asarray(outcome(*up)) - np.asarray(outcome(*down))) / (2 * step)
            np.testing.assert_allclose(np.asarray(forward[which]).reshape(3, size)[:, i], want, atol=1e-8)

    def spread(mass):
        return impact.indeterminacy(base.replace(M=jnp.diag(mass)), v)

    slope = jax.grad(spread)(at[1])
    want = (spread(at[1].at[0].add(1e-6)) - spread(at[1].at[0].add(-1e-6))) / 2e-6
    np.testing.assert_allclose(slope[0], want, rtol=1e-6)
    equal = jax.grad(spread)(jnp.ones(3))
    assert np.all(np.isfinite(np.asarray(equal)))


@pytest.mark.slow
def test_mistakes_are_named_and_trouble_sets_bits():
    terms, v = with_gram(-0.99), jnp.array([-1.0, -1.0, 0.0])
    with pytest.raises(
        ValueError, match="order: expected 'most_violated', 'least_violated' or contact indices"
    ):
        impact.propagate(terms, v, order="random")
    with pytest.raises(ValueError, match=r"contact indices in 0\.\.1"):
        impact.propagate(terms, v, order=(0, 2))
    with pytest.raises(ValueError, match=r"restitution: expected a number in 0\.\.1, got 1\.2"):
        impact.propagate(terms, v, restitution=1.2)
    with pytest.raises(ValueError, match="max_reflections: expected an integer >= 1"):
        impact.propagate(terms, v, max_reflections=0)
    with pytest.raises(ValueError, match="tol: expected"):
        impact.unique_order(terms, -1.0)
    many = contacts(np.eye(5), np.eye(5))
    with pytest.raises(ValueError, match="orders: expected cycles"):
        impact.indeterminacy(many, -jnp.ones(5))
    _, info = impact.propagate(terms, v, max_reflections=3)
    assert jc.Status.describe(info.status) == "UNTERMINATED" and float(info.residual) > 0
    batch = jax.vmap(impact.propagate, in_axes=(None, 0))
    v_plus, info = batch(terms, jnp.stack([v, v.at[0].set(jnp.nan)]))
    assert int(info.status[0]) == 0 and jc.Status.describe(info.status[1]) == "NONFINITE"
    assert np.all(np.isfinite(np.asarray(v_plus[0])))


@pytest.mark.slow
def test_resting_contacts_take_part_and_inactive_ones_do_not():
    """A ball strikes one end of three that touch: the contacts between those rest, and carry the blow."""
    model = jc.models.newtons_cradle((1.0,) * 4)
    terms = terms_of(model)
    assert np.sum(np.asarray(terms.J_n @ model.initial_state().v) < 0) == 1
    cut = terms.replace(active=jnp.array([True, False, True]))
    v_plus, _ = impact.propagate(cut, model.initial_state().v)
    np.testing.assert_allclose(v_plus, [0.0, 1.0, 0.0, 0.0], atol=1e-14)
    still, info = impact.propagate(terms, -model.initial_state().v)
    np.testing.assert_allclose(still, -model.initial_state().v)
    assert int(info.num_iters) == 0


def test_a_flat_box_rises_as_it_came():
    """Four corners approach at the same speed: no order, no spin; -e v for every restitution e."""
    model = jc.models.box_drop_3d()
    terms = jc.contact_terms(model, model.initial_state())
    terms = terms.replace(phi=jnp.zeros(4), active=jnp.ones(4, bool))
    v = jnp.array([0.0, 0.0, -3.0, 0.0, 0.0, 0.0])
    bounce = jax.jit(lambda v, e: jc.impact.propagate(terms, v, restitution=e))
    for e in (1.0, 0.5):
        v_plus, info = bounce(v, e)
        assert int(info.status) == 0
        np.testing.assert_allclose(v_plus, -e * v, atol=1e-12)
        np.testing.assert_allclose(jnp.sum(info.impulse[:, 0]), (1.0 + e) * 3.0 * terms.M[0, 0], rtol=1e-12)
    turning = v.at[4].set(1e-3)  # an order, of two pairs: energy stays, and nothing approaches
    v_plus, info = bounce(turning, 1.0)
    np.testing.assert_allclose(v_plus @ terms.M @ v_plus, turning @ terms.M @ turning, rtol=1e-12)
    assert float(jnp.min(terms.J_n @ v_plus)) > -1e-9
