"""Containment: outcomes of the law are inside, impossible velocities are outside by the right distance."""

import functools

import jax
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.containment import contains

TIGHT = 1e-9 if jax.config.jax_enable_x64 else 1e-4


@functools.cache
def sampled():
    model = jc.models.rocking_block()
    terms = jc.contact_terms(model.system, model.params, model.state)
    samples = jc.impact.sample(
        terms, model.state.v, step=model.step, max_steps=model.max_steps, num_samples=2**14
    )
    return terms, samples


def mass_norm(terms, v):
    return np.sqrt(np.einsum("...i,ij,...j->...", v, np.asarray(terms.M), v))


@pytest.mark.slow
def test_outcomes_of_other_laws_are_inside():
    terms, samples = sampled()
    found = [jc.impact.sequential(terms, samples.v_minus, o, max_impacts=9)[0] for o in ((0, 1), (1, 0))]
    found.append(jc.impact.anitescu_potra(terms, samples.v_minus)[0])
    result = contains(samples, np.stack(found), terms=terms)
    assert result.inside.shape == (3,)
    assert bool(np.all(result.inside))
    assert float(result.distance[2]) < TIGHT  # rest is an atom of the set
    # The two extremes are not met exactly, but nearly: 1 % of the speed before.
    assert float(np.max(result.distance)) < 0.01 * mass_norm(terms, np.asarray(samples.v_minus))


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
        for name in ("inside", "distance", "nearest", "tolerance"):
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
