"""Containment: outcomes of the law are inside, impossible velocities are outside by the right distance."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import cKDTree

import jaxcontact as jc
from jaxcontact.impact.analysis.containment import contains
from jaxcontact.impact.analysis.impulse_programs import ImpulsePrograms
from jaxcontact.impact.analysis.outcome_families import BACKWARD, FORWARD, SEPARATING, STICKING, end_modes
from jaxcontact.impact.laws.contact_space import collision_tolerance
from jaxcontact.impact.laws.routh_law import fitted_law

TIGHT = 1e-9 if jax.config.jax_enable_x64 else 1e-4


@functools.cache
def sampled():
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())
    samples = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        num_samples=2**14,
    )
    return terms, samples


def mass_norm(terms, v):
    return np.sqrt(np.einsum("...i,ij,...j->...", v, np.asarray(terms.M), v))


@pytest.mark.slow
def test_outcomes_of_other_laws_are_inside_or_beyond_the_last_sample():
    terms, samples = sampled()
    found = [jc.impact.sequential(terms, samples.v_minus, o, max_impacts=9)[0] for o in ((0, 1), (1, 0))]
    found.append(jc.impact.anitescu_potra(terms, samples.v_minus)[0])
    result = contains(samples, np.stack(found), terms=terms)
    assert result.inside.shape == (3,)
    # The two extremes are not met exactly, but nearly: 1 % of the speed before.
    np.testing.assert_array_equal(result.inside | result.unknown, True)
    assert bool(result.inside[2]) and float(result.distance[2]) < TIGHT  # rest is an atom of the set
    assert float(np.max(result.distance)) < 0.01 * mass_norm(terms, np.asarray(samples.v_minus))


@pytest.mark.long
def test_an_unfinished_impact_is_outside_by_the_distance_of_every_sample():
    terms, samples = sampled()
    v = 0.3 * np.asarray(samples.v_minus)
    result = contains(samples, v, terms=terms)
    exact = mass_norm(terms, np.asarray(samples.v_plus) - v)
    assert result.inside.shape == ()
    assert not bool(result.inside)
    np.testing.assert_allclose(result.distance, exact.min(), rtol=1e-5)
    np.testing.assert_allclose(exact[int(result.nearest)], exact.min(), rtol=1e-5)
    # Rest is the nearest outcome: the block would still have 30 % of its speed.
    np.testing.assert_allclose(
        result.distance, 0.3 * mass_norm(terms, np.asarray(samples.v_minus)), rtol=1e-5
    )


def test_distance_is_euclidean_without_terms():
    _, samples = sampled()
    v = np.asarray(samples.v_plus[7]) + np.array([3.0, -4.0, 12.0])
    exact = np.linalg.norm(np.asarray(samples.v_plus) - v, axis=1)
    np.testing.assert_allclose(contains(samples, v).distance, exact.min(), rtol=1e-5)


def test_a_batch_agrees_with_one_at_a_time_and_samples_contain_themselves():
    terms, samples = sampled()
    batch = np.concatenate([np.asarray(samples.v_plus[:50]), [[1.0, 2.0, 3.0]]])
    result = contains(samples, batch, terms=terms)
    assert bool(np.all(result.inside[:50]))
    assert not bool(result.inside[50])
    assert float(np.max(result.distance[:50])) < TIGHT
    for i in (0, 17, 50):
        one = contains(samples, batch[i], terms=terms)
        for name in ("inside", "distance", "nearest", "tolerance", "unknown"):
            assert np.asarray(getattr(one, name)) == np.asarray(getattr(result, name))[i]


def test_failed_samples_are_left_out_and_indices_are_those_of_all_samples():
    terms, samples = sampled()
    v = np.asarray(samples.v_plus[100])
    status = np.asarray(samples.status).copy()
    same = np.flatnonzero(np.all(np.abs(np.asarray(samples.v_plus) - v) < 1e-12, axis=1))
    status[same] = int(jc.Status.UNTERMINATED)
    result = contains(samples.replace(status=status), v, terms=terms, tolerance=0.0)
    assert int(result.nearest) not in same
    assert float(result.distance) > 0.0
    assert not bool(result.inside)
    exact = mass_norm(terms, np.asarray(samples.v_plus[int(result.nearest)]) - v)
    np.testing.assert_allclose(result.distance, exact, rtol=1e-3)


def test_a_given_tolerance_decides():
    terms, samples = sampled()
    v = 0.3 * np.asarray(samples.v_minus)
    distance = float(contains(samples, v, terms=terms).distance)
    assert bool(contains(samples, v, terms=terms, tolerance=1.01 * distance).inside)
    assert not bool(contains(samples, v, terms=terms, tolerance=0.99 * distance).inside)


def test_one_sample_has_a_tolerance_by_the_speed():
    terms, samples = sampled()
    one = jax.tree.map(lambda leaf: leaf if leaf.ndim == 1 and leaf.shape[0] == 3 else leaf[:1], samples)
    result = contains(one, samples.v_plus[0], terms=terms)
    assert bool(result.inside)
    speed = mass_norm(terms, np.asarray(samples.v_minus))
    np.testing.assert_allclose(result.tolerance, 1e-9 * speed, rtol=1e-5)


def by_hand(*places):
    """Samples in the plane: (number, centre, spread) of each place, normally distributed around it."""
    rng = np.random.default_rng(0)
    v_plus = np.concatenate(
        [np.asarray(centre) + spread * rng.normal(size=(n, 2)) for n, centre, spread in places]
    )
    count = len(v_plus)
    _, samples = sampled()
    return samples.replace(
        v_minus=np.array([0.0, -1.0]),
        v_plus=v_plus,
        status=np.zeros(count, np.uint32),
        energy_ratio=np.ones(count),
        num_iters=np.ones(count, np.int32),
        residual=np.zeros(count),
    )


@pytest.mark.parametrize("spread", [0.0, 1e-3])
@pytest.mark.parametrize("few", [10, 5, 1])
def test_a_small_family_does_not_reach_for_the_next_one(few, spread):
    """Where too few samples lie to tell how wide a place is, that is the answer; never "inside"."""
    samples = by_hand((4086, (0.0, 0.0), spread), (few, (5.0, 0.0), spread))
    away = np.array([[2.0, 0.0], [3.0, 0.0], [7.0, 0.0], [5.0, 3.0]])
    result = contains(samples, away)
    assert not np.any(result.inside)
    assert np.all(result.unknown)  # without terms nothing is proven
    own = contains(samples, samples.v_plus[[0, 1, -1]])
    assert np.all(own.inside) and not np.any(own.unknown)


def landing_cheetah():
    """A half cheetah with heavy motors lands on both feet: terms of the two contacts, and its velocity."""
    model = jc.models.half_cheetah()
    tree = model.params.tree
    params = model.params.replace(
        mu=jnp.full_like(model.params.mu, 0.8), tree=tree.replace(armature=tree.armature.at[3:].set(10.0))
    )
    model = model.replace(params=params)
    state, _ = jc.place_on_ground(model, model.initial_state(), contacts=["hind_foot", "fore_foot"])
    terms = jc.contact_terms(model, state)
    return terms.take(np.asarray(terms.active)), jnp.zeros(9).at[:2].set(jnp.array([1.0, -1.0]))


def row_of_balls(count=4):
    J_n = jnp.eye(count - 1, count, 1) - jnp.eye(count - 1, count)
    terms = jc.ContactTerms(
        M=jnp.eye(count),
        J_n=J_n,
        J_t=jnp.zeros((count - 1, 1, count)),
        phi=jnp.zeros(count - 1),
        mu=jnp.zeros(count - 1),
        active=jnp.ones(count - 1, bool),
    )
    return terms, jnp.eye(count)[0]


@pytest.mark.slow
def test_members_that_no_sample_comes_near_are_not_denied():
    """With small steps samples crowd: the outcomes of single impacts lie far off, and are still outcomes."""
    terms, v = landing_cheetah()
    law = jc.impact.Routh(impulse_step=2.0, max_steps=40)
    samples = jc.impact.sample(terms, v, law, num_samples=2**10)
    ends = [jc.impact.sequential(terms, v, order, max_impacts=40)[0] for order in ((0, 1), (1, 0))]
    result = contains(samples, jnp.stack([*ends, v]), terms=terms)
    speed = mass_norm(terms, np.asarray(v))
    assert np.min(np.asarray(result.distance)[:2]) > 0.02 * speed
    # The velocity before the impact is none: it approaches.
    assert result.inside.tolist() == [False] * 3 and result.unknown.tolist() == [True, True, False]

    terms, v = row_of_balls()
    law = jc.impact.Routh(restitution=0.8, max_steps=40)
    samples = jc.impact.sample(terms, v, law, num_samples=2**12)
    alone = 0.1 * jnp.eye(3)[jnp.arange(96) // 8 % 3]  # N s; contact after contact pushes alone
    member, info = jc.impact.resolve(terms, v, alone, jnp.zeros(96), restitution=0.8)
    assert int(info.status) == 0
    faster = member.at[3].add(0.3)  # adds energy
    aside = member.at[0].add(0.1)  # adds momentum
    result = contains(samples, jnp.stack([member, faster, aside]), terms=terms)
    assert result.inside.tolist() == [False] * 3 and result.unknown.tolist() == [True, False, False]


def slow_giant():
    """A giant approaches so slowly that the impact of a light body beside it ends before the giant stops."""
    slow = 0.5 * collision_tolerance(jnp.zeros(()).dtype)
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1e6])), J_n=jnp.eye(2), J_t=jnp.zeros((2, 1, 2)), phi=jnp.zeros(2),
        mu=jnp.zeros(2), active=jnp.ones(2, bool),
    )  # fmt: skip
    v = jnp.array([-1.0, -slow])
    member, info = jc.impact.resolve(terms, v, jnp.array([[10.0, 1e-12]]), jnp.zeros(1))
    assert int(info.status) == 0 and float(member[1]) < -0.9 * slow
    return terms, v, member, slow


@pytest.mark.long
@pytest.mark.float32
def test_an_impact_that_ended_is_not_denied_for_its_last_approach():
    terms, v, member, slow = slow_giant()
    samples = jc.impact.sample(terms, v, jc.impact.Routh(), num_samples=16)
    result = contains(samples, jnp.stack([member, member.at[1].set(-1e3 * slow)]), terms=terms)
    assert (result.inside | result.unknown).tolist() == [True, False]
    down = np.array([0.0, -1.0])
    assert down @ member <= ImpulsePrograms(
        terms, np.asarray(v), fitted_law(terms, v, jc.impact.Routh())
    ).maximise(down)


@pytest.mark.slow
def test_impulse_orders_are_searched_with_the_law():
    terms, v = landing_cheetah()
    law = jc.impact.Routh(impulse_step=2.0, max_steps=40)
    samples = jc.impact.sample(terms, v, law, num_samples=2**10)
    ends = [jc.impact.sequential(terms, v, order, max_impacts=40)[0] for order in ((0, 1), (1, 0))]
    result = contains(samples, jnp.stack([*ends, v]), terms=terms, law=law)
    assert result.inside.tolist() == [True, True, False] and not np.any(result.unknown)
    assert np.max(np.asarray(result.distance)[:2]) < 1e-3 * mass_norm(terms, np.asarray(v))


def test_families_are_told_by_what_contacts_do():
    """Sliding samples on a line and separating ones beside it: each family has its own width."""
    terms = jc.ContactTerms(
        M=np.eye(2),
        J_n=np.array([[0.0, 1.0]]),
        J_t=np.array([[[1.0, 0.0]]]),
        phi=np.zeros(1),
        mu=np.ones(1),
        active=np.ones(1, bool),
    )
    rng = np.random.default_rng(1)
    line = np.stack([rng.uniform(0.5, 1.5, 2000), np.zeros(2000)], axis=1)
    apart = rng.uniform([0.5, 0.5], [1.5, 1.5], (200, 2))
    few = np.stack([rng.uniform(-1.5, -0.5, 6), np.zeros(6)], axis=1)
    rest = np.zeros((30, 2))
    samples = by_hand((2236, (0.0, 0.0), 0.0)).replace(
        v_minus=np.array([0.0, -3.0]), v_plus=np.concatenate([line, apart, few, rest])
    )
    modes = end_modes(terms, samples.v_minus, samples.v_plus)[:, 0]
    assert np.array_equal(modes, np.repeat([FORWARD, SEPARATING, BACKWARD, STICKING], [2000, 200, 6, 30]))
    v = np.array([[1.0, 0.0], [1.0, 0.05], [1.0, 1.05], [-0.95, 0.0], [-0.95, 0.1], [0.1, 0.0], [0.0, 0.0]])
    result = contains(samples, v, terms=terms)
    assert result.inside.tolist() == [True, False, True, False, False, False, True]
    assert result.unknown.tolist() == [False, True, False, True, True, True, False]


def false_answers(terms, samples, fresh, count):
    """Shares of fresh outcomes that are not inside `count` samples, and of places off the set that are."""
    part = jax.tree.map(lambda a: a[:count] if np.shape(a)[:1] == samples.status.shape else a, samples)
    good = np.asarray(fresh.v_plus)[np.asarray(fresh.status) == 0]
    own = contains(part, good, terms=terms)
    root = np.linalg.cholesky(np.asarray(terms.M)).T
    rng = np.random.default_rng(3)
    aside = rng.normal(size=good.shape)
    aside /= np.linalg.norm(aside @ root.T, axis=1)[:, None]
    # As far as several of the largest widths but for those at the rim of the set.
    widths = np.quantile(np.asarray(own.tolerance), 0.99)
    places = good + 4.0 * widths * aside
    all_good = np.concatenate([good, np.asarray(samples.v_plus)[np.asarray(samples.status) == 0]])
    off = cKDTree(all_good @ root.T, balanced_tree=False).query(places @ root.T)[0] > 3.0 * widths
    assert np.sum(off) > 500
    return np.mean(~np.asarray(own.inside)), np.mean(contains(part, places[off], terms=terms).inside)


@pytest.mark.slow_cases("rocking_block")
@pytest.mark.parametrize(
    "name",
    ["rocking_block", *(pytest.param(n, marks=pytest.mark.slow) for n in ("compass_gait", "ramone"))],
)
def test_fresh_outcomes_are_inside_and_places_off_the_set_are_not(name):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())

    def draw(number):
        return jc.impact.sample(
            terms,
            model.initial_state().v,
            jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
            num_samples=2**14,
            seed=jax.random.key(number),
        )

    samples, fresh = draw(1), draw(2)
    for count in (2**14, 2**11):
        outside, inside = false_answers(terms, samples, fresh, count)
        assert outside < 0.01 and inside < 0.01


def wrong():
    terms, samples = sampled()
    v = np.asarray(samples.v_minus)
    failed = samples.replace(status=np.ones(samples.status.shape, np.uint32))
    return {
        "length": (
            lambda: contains(samples, v[:2]),
            r"v_measured: expected shape \(3,\) or \(k, 3\), got \(2,\)",
        ),
        "rank": (lambda: contains(samples, v[None, None]), "v_measured: expected shape"),
        "nan": (lambda: contains(samples, v * np.nan), "v_measured: expected finite numbers, got NaN"),
        "tolerance": (lambda: contains(samples, v, tolerance=-1.0), "tolerance: .* >= 0, got -1.0"),
        "failed": (lambda: contains(failed, v), "at least one with status 0, all 16384 failed"),
        "terms": (
            lambda: contains(samples, v, terms=terms.replace(M=terms.M[:2, :2])),
            "terms.M: expected shape",
        ),
        "mass": (
            lambda: contains(samples, v, terms=terms.replace(M=-terms.M)),
            "terms.M: expected a positive",
        ),
        "samples": (lambda: contains(samples.replace(v_plus=v), v), "samples.v_plus"),
    }


@pytest.mark.parametrize("case", ["length", "rank", "nan", "tolerance", "failed", "terms", "mass", "samples"])
def test_wrong_arguments_are_named(case):
    call, message = wrong()[case]
    with pytest.raises(ValueError, match=message):
        call()
