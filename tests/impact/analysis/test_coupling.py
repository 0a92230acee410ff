"""Coupling is zero exactly where all orders agree; invariant directions against brute force and closed forms."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact import coupling, invariant_subspace


def make_terms(M, J_n, J_t=None, mu=0.0, active=None):
    nc, nv = J_n.shape
    J_t = np.zeros((nc, 1, nv)) if J_t is None else J_t
    return jc.ContactTerms(
        M=jnp.asarray(M), J_n=jnp.asarray(J_n), J_t=jnp.asarray(J_t), phi=jnp.zeros(nc),
        mu=jnp.full(nc, float(mu)), active=jnp.ones(nc, bool) if active is None else jnp.asarray(active),
    )  # fmt: skip


def random_mass(rng, nv):
    factor = rng.standard_normal((nv, nv))
    return factor @ factor.T + nv * np.eye(nv)


def orthogonal_rows(rng, M, count):
    """Rows r with r M^-1 r' = 0 for every pair, of any length."""
    root = np.linalg.cholesky(M)
    basis = np.linalg.qr(rng.standard_normal(M.shape))[0][:count]
    return rng.uniform(0.5, 2.0, (count, 1)) * (basis @ root.T)


def all_orders(M, J, v, restitution):
    """Outcomes of single frictionless impacts in every order, contact by contact until none approaches."""
    inverse = np.linalg.inv(M)
    for order in itertools.permutations(range(len(J))):
        w = v.copy()
        for _ in range(400):
            rates = J @ w
            hits = [i for i in order if rates[i] < -1e-11]
            if not hits:
                break
            i = hits[0]
            w = w - (1 + restitution) * rates[i] / (J[i] @ inverse @ J[i]) * (inverse @ J[i])
            order = (*[j for j in order if j != i], i)
        yield w


def largest_difference(M, J, v, restitution):
    ends = np.stack(list(all_orders(M, J, v, restitution)))
    return np.max(np.abs(ends - ends[0]))


@pytest.mark.long
@pytest.mark.parametrize("count", [2, 3])
def test_without_coupling_every_order_agrees_and_with_it_not(rng, count):
    for _ in range(6):
        M = random_mass(rng, 5)
        J = orthogonal_rows(rng, M, count)
        assert np.max(np.abs(coupling(make_terms(M, J)).normals)) < 1e-14
        others = J.copy()
        others[1] += 0.3 * rng.choice([-1, 1]) * J[0]
        assert np.max(np.abs(coupling(make_terms(M, others)).normals)) > 0.05
        velocities = rng.standard_normal((20, 5))
        cases = list(itertools.product(velocities, (0.0, 0.5, 1.0)))
        assert max(largest_difference(M, J, v, e) for v, e in cases) < 1e-12
        assert max(largest_difference(M, others, v, e) for v, e in cases) > 1e-3


@pytest.mark.parametrize("cosine", [-0.99, -0.9, -0.5, -0.1, 0.1, 0.5, 0.9, 0.99])
def test_any_coupling_shows_at_a_restitution(cosine):
    J = np.array([[1.0, 0.0], [cosine, np.sqrt(1 - cosine**2)]])
    angles = np.linspace(0, 2 * np.pi, 40)
    cases = itertools.product(np.stack([np.cos(angles), np.sin(angles)], axis=1), (0.0, 0.3, 0.9, 0.98))
    assert max(largest_difference(np.eye(2), J, v, e) for v, e in cases) > 0.02


def test_right_for_one_restitution_is_not_right_for_all():
    """-cos(pi / 3): elastic orders agree (Seghete & Murphey, Theorem 3), those of restitution 1/2 do not."""
    J = np.array([[1.0, 0.0], [-0.5, np.sqrt(0.75)]])
    v = np.array([-1.0, -2.0])
    assert largest_difference(np.eye(2), J, v, 1.0) < 1e-12
    assert largest_difference(np.eye(2), J, v, 0.5) > 0.1
    np.testing.assert_allclose(coupling(make_terms(np.eye(2), J)).normals, [[0, -0.5], [-0.5, 0]], atol=1e-15)


@pytest.mark.long
def test_contacts_are_the_squared_cosines_of_principal_angles(rng):
    from scipy.linalg import subspace_angles

    M = random_mass(rng, 6)
    J_n, J_t = rng.standard_normal((2, 6)), rng.standard_normal((2, 2, 6))
    root = np.linalg.cholesky(M)
    spaces = [np.linalg.solve(root, np.vstack([J_n[i], J_t[i]]).T) for i in range(2)]
    expected = np.sum(np.cos(subspace_angles(*spaces)) ** 2)
    found = coupling(make_terms(M, J_n, J_t, mu=0.7)).contacts
    np.testing.assert_allclose(found, [[0, expected], [expected, 0]], atol=1e-12)
    units = np.array([1e3, 1.0, 1e-3, 1.0, 50.0, 1.0])  # of the velocities
    scaled = make_terms(M * units * units[:, None], J_n * units, J_t * units, mu=0.7)
    np.testing.assert_allclose(coupling(scaled).contacts, found, rtol=1e-9)
    flat = J_t.copy()
    flat[:, 1] = 0.0  # a planar robot in space: one tangent row moves nothing
    spaces = [np.linalg.solve(root, np.vstack([J_n[i], J_t[i, :1]]).T) for i in range(2)]
    expected = np.sum(np.cos(subspace_angles(*spaces)) ** 2)
    assert float(coupling(make_terms(M, J_n, flat, mu=0.7)).contacts[0, 1]) == pytest.approx(expected)
    smooth = coupling(make_terms(M, J_n, J_t))  # no friction: the squared cosine of the normals
    np.testing.assert_allclose(smooth.contacts, smooth.normals**2, atol=1e-15)


@pytest.mark.long
def test_decoupled_contacts_agree_with_friction_too(rng):
    M = random_mass(rng, 6)
    rows = orthogonal_rows(rng, M, 4)
    mixed = np.array([[1.0, 0.4], [0.2, 1.0]])  # within a contact rows need not be orthogonal
    blocks = np.stack([mixed @ rows[:2], mixed @ rows[2:]])
    terms = make_terms(M, blocks[:, 0], blocks[:, 1:], mu=0.6)
    assert float(jnp.max(coupling(terms).contacts)) < 1e-14
    v = -np.linalg.solve(M, blocks[:, 0].sum(axis=0)) * 20 + 0.1 * rng.standard_normal(6)
    ends = [
        jc.impact.sequential(terms, jnp.asarray(v), order=order, max_impacts=20)[0]
        for order in [(0, 1), (1, 0)]
    ]
    np.testing.assert_allclose(*ends, atol=1e-12)
    assert float(jnp.max(jnp.abs(ends[0] - v))) > 0.1


@pytest.mark.long
def test_coupling_has_a_derivative_also_at_zero_and_on_one_poisoned_lane(rng):
    M = random_mass(rng, 4)
    J = orthogonal_rows(rng, M, 2)

    def number(angle):
        turned = jnp.asarray(J).at[1].add(angle * J[0])
        both = coupling(make_terms(M, J, mu=0.5).replace(J_n=turned))
        return both.normals[0, 1], both.contacts[0, 1]

    slopes = jax.jacfwd(number)(0.0)
    ratio = np.sqrt((J[0] @ np.linalg.solve(M, J[0])) / (J[1] @ np.linalg.solve(M, J[1])))
    assert float(slopes[0]) == pytest.approx(ratio)
    assert abs(float(slopes[1])) < 1e-12
    lanes = jax.vmap(lambda scale: coupling(make_terms(M, J).replace(M=scale * M)).normals)(
        jnp.array([1.0, jnp.nan, 2.0])
    )
    np.testing.assert_allclose(lanes[0], lanes[2], atol=1e-14)
    assert not np.all(np.isfinite(lanes[1]))


def test_the_complement_of_the_impulses_is_untouched_by_every_impulse(rng):
    M = random_mass(rng, 6)
    terms = make_terms(M, rng.standard_normal((2, 6)), rng.standard_normal((2, 1, 6)), mu=0.5)
    for friction, count in ((True, 4), (False, 2)):
        space = invariant_subspace(terms, friction=friction)
        assert space.dimension == 6 - count
        rows = np.concatenate([terms.J_n, terms.J_t[:, 0]])[:count]
        np.testing.assert_allclose(space.projector @ np.linalg.solve(M, rows.T), 0, atol=1e-12)
        np.testing.assert_allclose(rows @ space.projector, 0, atol=1e-12)  # orthogonal in M: J P = 0
        np.testing.assert_allclose(space.covectors @ space.directions, np.eye(6), atol=1e-12)
        np.testing.assert_allclose(space.projector @ space.projector, space.projector, atol=1e-12)


def test_directions_of_samples_against_a_brute_force_search(rng):
    """Outcomes that differ in a plane of R^5: no covector of the others tells them apart, however it is drawn."""
    M = random_mass(rng, 5)
    plane = rng.standard_normal((5, 2))
    outcomes = rng.standard_normal(5) + rng.uniform(-1, 1, (500, 2)) @ plane.T
    terms = make_terms(M, rng.standard_normal((1, 5)))
    space = invariant_subspace(terms, outcomes)
    assert space.dimension == 3
    drawn = rng.standard_normal((200, 3)) @ space.covectors[:3]
    assert np.max(np.ptp(outcomes @ drawn.T, axis=0)) < 1e-12
    rest = space.covectors[3:] + 0.0
    assert np.min(np.ptp(outcomes @ rest.T, axis=0)) > 0.1
    one = np.vstack([outcomes, outcomes.mean(axis=0) + 1e-3 * rng.standard_normal(5)])  # a rare outcome
    assert invariant_subspace(terms, one).dimension == 2
    assert invariant_subspace(terms, outcomes[:1]).dimension == 5


def test_friction_moves_what_the_frictionless_complement_calls_invariant():
    """The rocking block: one direction is invariant over the sampled orders, and it is not that of Yang & Posa."""
    model = jc.models.rocking_block()
    state = model.initial_state()
    terms = jc.contact_terms(model, state)
    samples = jc.impact.sample(
        terms, state.v, jc.impact.Routh(impulse_step=0.6, max_steps=8), num_samples=256
    )
    ours, theirs = invariant_subspace(terms, samples), invariant_subspace(terms, friction=False)
    assert ours.dimension == theirs.dimension == 1 and invariant_subspace(terms).dimension == 0
    speed = float(jnp.sqrt(state.v @ terms.M @ state.v))
    spread = [np.ptp(samples.v_plus @ space.covectors[0]) / speed for space in (ours, theirs)]
    assert spread[0] < 1e-9 and spread[1] > 0.1


def test_samples_alone_have_the_subspace_of_samples_with_terms(rng):
    """The null space of differences needs no masses; the complement and the sizes of spreads do."""
    M = random_mass(rng, 5)
    plane = rng.standard_normal((5, 2))
    outcomes = rng.standard_normal(5) + rng.uniform(-1, 1, (500, 2)) @ plane.T
    alone = invariant_subspace(outcomes)
    beside = invariant_subspace(make_terms(M, rng.standard_normal((1, 5))), outcomes)
    assert alone.dimension == beside.dimension == 3
    rows = [np.linalg.qr(space.covectors[:3].T)[0] for space in (alone, beside)]
    np.testing.assert_allclose(np.linalg.svd(rows[0].T @ rows[1])[1], 1.0, atol=1e-12)
    np.testing.assert_allclose(alone.covectors @ alone.covectors.T, np.eye(5), atol=1e-12)
    np.testing.assert_allclose(plane.T @ alone.projector, 0.0, atol=1e-12)
    # The record of samples, and its velocities as arrays of JAX and of NumPy.
    model = jc.models.rocking_block()
    state = model.initial_state()
    terms = jc.contact_terms(model, state)
    law = jc.impact.Routh(impulse_step=0.6, max_steps=8)
    samples = jc.impact.sample(terms, state.v, law, num_samples=64)
    spaces = [invariant_subspace(s) for s in (samples, samples.v_plus, np.asarray(samples.v_plus))]
    assert {space.dimension for space in spaces} == {invariant_subspace(terms, samples).dimension} == {1}
    np.testing.assert_array_equal(spaces[0].covectors, spaces[2].covectors)


def test_directions_are_in_the_order_of_their_spread_also_without_an_invariant_one(rng):
    """The first direction of an oblong cloud is its narrowest, by a search over all angles."""
    outcomes = rng.standard_normal((400, 2)) * np.array([1.0, 0.1]) @ np.array([[0.8, 0.6], [-0.6, 0.8]])
    space = invariant_subspace(outcomes)
    assert space.dimension == 0 and np.all(np.diff(space.spread) >= 0)
    angles = np.linspace(0, np.pi, 2000)
    widths = np.ptp(outcomes @ np.stack([np.cos(angles), np.sin(angles)]), axis=0)
    assert widths.min() <= space.spread[0] + 1e-9 and space.spread[0] == pytest.approx(widths.min(), rel=0.1)


def test_bad_arguments_are_named(rng):
    with pytest.raises(TypeError, match="terms: expected ContactTerms beside samples"):
        invariant_subspace(np.zeros((3, 2)), np.zeros((3, 2)))
    with pytest.raises(ValueError, match="samples: expected velocities"):
        invariant_subspace(np.zeros(3))
    with pytest.raises(ValueError, match="samples: expected velocities"):
        invariant_subspace(jnp.zeros(()))
    with pytest.raises(ValueError, match="friction: expected True with samples"):
        invariant_subspace(np.zeros((3, 2)), friction=False)
    terms = make_terms(np.eye(2), np.eye(2))
    with pytest.raises(TypeError, match="terms: expected ContactTerms"):
        coupling(np.eye(2))
    with pytest.raises(ValueError, match="samples: expected velocities"):
        invariant_subspace(terms, np.zeros((3, 5)))
    with pytest.raises(ValueError, match="samples: expected finite"):
        invariant_subspace(terms, np.full((3, 2), np.nan))
    with pytest.raises(ValueError, match="at least one outcome"):
        invariant_subspace(terms, np.zeros((0, 2)))
    with pytest.raises(ValueError, match="friction: expected True with samples"):
        invariant_subspace(terms, np.zeros((3, 2)), friction=False)
    with pytest.raises(ValueError, match="tolerance"):
        invariant_subspace(terms, tolerance=0.0)
    nothing = terms.replace(active=jnp.zeros(2, bool))
    assert invariant_subspace(nothing).dimension == 2
    assert float(jnp.max(coupling(nothing).contacts)) == 0.0


@pytest.mark.long
@pytest.mark.float32
def test_single_precision_and_masses_far_apart(rng, tolerance):
    M = np.diag([1e3, 1.0, 1e-3])
    J = np.array([[1.0, 1.0, 0.0], [1.0, -1e-3, 0.0]])  # 1e-3 - 1e-3 = 0 in M^-1
    terms = jax.tree.map(
        lambda x: x.astype(jnp.result_type(float)) if x.dtype != bool else x, make_terms(M, J)
    )
    assert float(jnp.max(jnp.abs(coupling(terms).normals))) < tolerance(1e-14, 1e-5)
    assert invariant_subspace(terms).dimension == 1
