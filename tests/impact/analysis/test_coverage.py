"""Coverage statements: true as often as they claim on distributions that are known, and what they refuse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta, binom

import jaxcontact as jc
from jaxcontact.impact import ImpactSamples, coverage
from jaxcontact.impact.sampling.binomial_bounds import binomial_lower, binomial_upper


def synthetic(v_plus, v_minus=None, status=None, independent=True):
    n, nv = v_plus.shape
    return ImpactSamples(
        v_minus=np.ones(nv) if v_minus is None else v_minus,
        v_plus=v_plus,
        impulse=np.zeros((n, 1, 2)),
        status=np.zeros(n, np.uint32) if status is None else status,
        num_iters=np.ones(n, np.int32),
        energy_ratio=np.ones(n),
        residual=np.zeros(n),
        independent=independent,
    )


def uncovered(places, r):
    """P(a uniform point of [0, 1] is farther than r from all places), exactly."""
    edges = np.sort(places)
    gaps = np.diff(edges)
    return (
        np.maximum(edges[0] - r, 0) + np.maximum(1 - edges[-1] - r, 0) + np.sum(np.maximum(gaps - 2 * r, 0))
    )


def test_bounds_are_true_as_often_as_they_claim():
    """500 experiments with 90 % confidence on uniform points and an atom; failures are at most binomial."""
    rng = np.random.default_rng(5)
    radii, shares, trials, atom = np.array([1e-3, 3e-3, 1e-2, 3e-2]), (0.3, 0.1), 500, 0.2
    pointwise, uniform, quantile = np.zeros(4, int), 0, np.zeros(2, int)
    for _ in range(trials):
        x = np.where(rng.random(240) < atom, 0.5, rng.random(240))
        found = coverage(synthetic(x[:, None]), confidence=0.9, r=radii, shares=shares)

        def truth(r, x=x):
            missed_atom = np.min(np.abs(x[:120] - 0.5)) > r
            return atom * missed_atom + (1 - atom) * uncovered(x[:120], r)

        wrong = np.array([truth(r) for r in radii])
        pointwise += wrong > found.share_bound[-1]
        uniform += np.any(wrong > found.uniform_bound[-1])
        quantile += np.array([truth(r) > p for r, p in zip(found.radius[-1], shares, strict=True)])
    most = binom.ppf(0.999, trials, 0.1)
    assert np.all(pointwise <= most)
    assert uniform <= most
    assert np.all(quantile <= most)
    # Not by being vague: the exact binomial bound fails about as often as it may.
    assert np.max(pointwise) >= binom.ppf(0.001, trials, 0.06)
    assert np.max(quantile) >= binom.ppf(0.001, trials, 0.06)


def test_binomial_bounds_are_those_of_clopper_and_pearson():
    k = np.arange(21)
    upper = binomial_upper(k, 20, 0.95)
    np.testing.assert_allclose(upper[:-1], beta.ppf(0.95, k[:-1] + 1, 20 - k[:-1]), rtol=1e-10)
    assert upper[-1] == 1.0
    assert binomial_upper(0, 20, 0.95) == pytest.approx(1 - 0.05 ** (1 / 20), rel=1e-12)
    np.testing.assert_allclose(binom.cdf(k[:-1], 20, upper[:-1]), 0.05, rtol=1e-8)
    np.testing.assert_allclose(binomial_lower(k, 20, 0.95), 1 - upper[::-1], rtol=1e-12)


def test_distances_by_brute_force_and_growing_sets():
    rng = np.random.default_rng(1)
    v = rng.normal(size=(400, 3))
    root = np.diag([1.0, 2.0, 0.5])
    terms = jc.ContactTerms(
        M=jnp.asarray(root**2), J_n=jnp.ones((1, 3)), J_t=jnp.ones((1, 1, 3)), phi=jnp.zeros(1),
        mu=jnp.zeros(1), active=jnp.ones(1, bool),
    )  # fmt: skip
    status = np.where(rng.random(400) < 0.1, 16, 0).astype(np.uint32)
    found = coverage(synthetic(v, status=status), terms=terms, r=[0.1, 0.5, 1.0], shares=(0.1, 1e-4))
    kept = v[status == 0] @ root
    half = len(kept) // 2
    assert (found.num_test, found.num_failed) == (len(kept) - half, 400 - len(kept))
    assert found.num_set[-1] == half
    for k, size in enumerate(found.num_set):
        near = np.min(np.linalg.norm(kept[half:, None] - kept[None, :size], axis=-1), axis=1)
        np.testing.assert_allclose(found.share_far[k], [np.mean(near > r) for r in (0.1, 0.5, 1.0)])
        assert np.isin(found.radius[k, 0].round(9), near.round(9))
    assert np.all(np.diff(found.share_bound, axis=0) <= 0)
    assert np.all(found.share_bound > found.share_far)
    assert np.all(found.uniform_bound >= found.share_far)
    assert np.all(np.isinf(found.radius[:, 1]))  # 180 tests cannot show 1e-4


@pytest.mark.long
@pytest.mark.float32
def test_fresh_outcomes_of_an_impact_lie_where_the_bound_says():
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model, model.initial_state())

    def draw(count, seed):
        key = jax.random.key(seed)
        return jc.impact.sample(
            terms,
            model.initial_state().v,
            jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
            num_samples=count,
            seed=key,
        )

    samples = draw(8192, 0)
    found = coverage(samples, terms=terms)
    fresh = np.asarray(draw(4000, 1).v_plus)
    first = samples.replace(v_plus=samples.v_plus[:4096], status=samples.status[:4096])
    near = jc.impact.contains(first, fresh, terms=terms, tolerance=0)
    for k in (0, 1):
        share = np.mean(np.asarray(near.distance) > found.radius[-1, k])
        assert binom.sf(share * 4000 - 1, 4000, found.shares[k]) > 1e-3
    assert np.all(np.diff(found.radius[:, 0]) < 0)
    # Doubling the set halves the distances: these outcomes lie on curves.
    slope = np.polyfit(np.log(found.num_set), np.log(found.radius[:, 0]), 1)[0]
    assert -1.2 < slope < -0.8
    both = coverage(samples, terms=terms, symmetry=model.symmetry)
    assert np.all(both.share_far <= found.share_far)
    assert both.radius[-1, 0] < 0.7 * found.radius[-1, 0]


def test_mistakes_are_named():
    v = np.random.default_rng(0).normal(size=(64, 2))
    with pytest.raises(ValueError, match=r"samples: expected independent draws.*key=jax\.random\.key"):
        coverage(synthetic(v, independent=False))
    with pytest.raises(ValueError, match="at least 16 with status 0, got 12"):
        coverage(synthetic(v[:12]))
    for options in ({"confidence": 1.0}, {"shares": (0.0,)}, {"confidence": float("nan")}):
        with pytest.raises(ValueError, match=r"(confidence|shares): expected"):
            coverage(synthetic(v), **options)
    for r in ([-1.0], [np.inf], 1.0):
        with pytest.raises(ValueError, match="r: expected"):
            coverage(synthetic(v), r=r)
