"""Tallies: parts add up to the whole, and agree with a count sample by sample."""

import itertools
from collections import Counter

import jax
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling.outcomes import outcome_labels, outcome_shares
from jaxcontact.impact.sampling.summary_statistics import Tally, tally


@pytest.fixture(scope="module")
def run() -> tuple[jc.ContactTerms, jc.impact.ImpactSamples]:
    model = jc.models.compass_gait()
    terms = jc.contact_terms(model, model.initial_state())
    return terms, jc.impact.sample(
        terms, model.initial_state().v, jc.impact.Routh(impulse_step=0.25, max_steps=5), num_samples=2000
    )


def part(samples: jc.impact.ImpactSamples, begin: int, end: int) -> jc.impact.ImpactSamples:
    cut = jax.tree.map(lambda a: a[begin:end], samples.replace(v_minus=None))
    return cut.replace(v_minus=samples.v_minus)


def test_parts_add_up(run: tuple) -> None:
    terms, samples = run
    status = np.asarray(samples.status).copy()
    status[[700, 1500]] = int(jc.Status.STALLED)
    samples = samples.replace(status=status)
    whole = tally(samples, terms)
    edges = [0, 1, 300, 699, 900, 2000]
    parts = [tally(part(samples, a, b), terms) for a, b in itertools.pairwise(edges)]
    total = parts[0]
    for each in parts[1:]:
        total = total + each
    for name in Tally.__dataclass_fields__:
        assert np.all(getattr(whole, name) == getattr(total, name)), name
    assert whole.failed == 2
    assert whole.first_failed == (700, int(samples.num_iters[700]))


def test_against_a_count_sample_by_sample(run: tuple) -> None:
    terms, samples = run
    found = tally(samples, terms)
    ended = np.asarray(samples.status) == 0
    labels = outcome_labels(samples, terms)[ended]
    assert found.kinds == Counter(tuple(row) for row in labels.tolist())
    assert 0 < np.count_nonzero(~ended) == found.number - found.terminated
    for i in range(2):
        normal = np.asarray(samples.v_plus) @ np.asarray(terms.J_n)[i]
        sliding = np.asarray(samples.v_plus) @ np.asarray(terms.J_t)[i, 0]
        for k, velocity in enumerate((normal[ended], sliding[ended])):
            np.testing.assert_allclose(
                [found.low[i, k], found.high[i, k]], [velocity.min(), velocity.max()], rtol=0, atol=1e-15
            )
    assert found.steps == np.sum(samples.num_iters)
    assert found.energy[1] == np.max(np.asarray(samples.energy_ratio)[ended])
    shares = outcome_shares(samples, terms)
    assert sum(share for _, share in shares) == pytest.approx(1.0, abs=1e-12)
    assert [share for _, share in shares] == sorted((share for _, share in shares), reverse=True)


def test_no_sample_ended(run: tuple) -> None:
    terms, samples = run
    status = np.full(2000, int(jc.Status.UNTERMINATED), np.uint32)
    found = tally(samples.replace(status=status), terms) + tally(samples, terms)
    alone = tally(samples, terms)
    assert found.kinds == alone.kinds
    assert found.energy == alone.energy
    assert np.array_equal(found.low, alone.low)
