"""Theorem 8 and Lemma 1: against measured counts, closed forms and simulation, and where they say nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import draw, with_law
from scipy.stats import binom

import jaxcontact as jc
from jaxcontact.impact import dense_sampling, net_bound, pointed_cone, step_bound
from jaxcontact.impact.analysis.bounds import shortest_push


def load(name):
    model = getattr(jc.models, name)()
    return model, jc.contact_terms(model, model.initial_state()), model.initial_state().v


def point(mass=2.0, mu=0.0):
    return jc.ContactTerms(
        M=mass * jnp.eye(2), J_n=jnp.array([[0.0, 1.0]]), J_t=jnp.array([[[1.0, 0.0]]]), phi=jnp.zeros(1),
        mu=jnp.array([mu]), active=jnp.ones(1, bool),
    )  # fmt: skip


# Steps of a sample: mean, largest of 4096, bound of probability 1e-3, bound as printed.
#   rocking block 2.45, 6, 48, 127; compass gait 2.26, 9, 54, 1099; box and wall 1.52, 5, 41, 87;
#   RAMone 2.99, 8, 51, 2055; disk stack (512 samples) 2.40, 7, 182, 349
MODELS = ["rocking_block", "compass_gait", "box_and_wall", "ramone"]


@pytest.mark.long
@pytest.mark.slow_cases("compass_gait")
@pytest.mark.parametrize("name", [*MODELS, pytest.param("disk_stack", marks=pytest.mark.slow)])
def test_measured_steps_stay_below_the_bound(name):
    model, terms, v = load(name)
    count = 2048 if name != "disk_stack" else 256
    steps = jc.impact.sample(
        terms,
        v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=40),
        num_samples=count,
        seed=jax.random.key(0),
    ).num_iters
    for probability in (0.5, 1e-3):
        bound = step_bound(
            terms, v, jc.impact.Routh(impulse_step=model.impulse_step, max_steps=1), probability=probability
        )
        beyond = int(np.sum(np.asarray(steps) > bound.num_steps))
        assert binom.sf(beyond - 1, count, probability) > 1e-3
        assert np.max(steps) < bound.num_steps <= bound.paper
        assert bound.reason == ""
    # The push is valid, and shorter than the one of the linear program.
    r, size = shortest_push(terms)
    J_n, J_t, mu = np.asarray(terms.J_n), np.asarray(terms.J_t)[:, 0], np.asarray(terms.mu)[:, None]
    generators = np.concatenate([J_n + mu * J_t, J_n - mu * J_t])
    push = np.linalg.solve(terms.M, r)
    assert np.min(generators @ push) == pytest.approx(1.0, abs=1e-9)
    assert size == pytest.approx(np.sqrt(r @ push), rel=1e-9)
    other = pointed_cone(terms)[0]
    assert size <= np.sqrt(other @ np.linalg.solve(terms.M, other)) * (1 + 1e-9)


def test_one_contact_in_closed_form():
    """A mass falling at 1 m/s needs caps that sum to 2 N s; the bound allows 4, energy alone not telling."""
    v, step, probability = jnp.array([0.0, -1.0]), 0.5, 0.01
    r, size = shortest_push(point())
    np.testing.assert_allclose(r, [0.0, 2.0], atol=1e-12)
    assert size == pytest.approx(np.sqrt(2.0))
    bound = step_bound(
        point(), v, jc.impact.Routh(impulse_step=step, max_steps=1), probability=probability
    ).num_steps
    steps = np.arange(1, 200)
    chance = np.exp(-2 * (steps * step / 2 - 4.0) ** 2 / (steps * step**2))
    assert bound == steps[(steps * step / 2 > 4.0) & (chance <= probability)][0]
    sums = np.cumsum(np.random.default_rng(0).uniform(0, step, (2000, 100)), axis=1)
    assert np.quantile(np.argmax(sums >= 2.0, axis=1) + 1, 0.99) < bound


def test_jammed_contacts_have_no_bound():
    terms = jc.ContactTerms(
        M=jnp.eye(2), J_n=jnp.array([[0.0, 1.0], [0.0, -1.0]]), J_t=jnp.array([[[1.0, 0.0]], [[1.0, 0.0]]]),
        phi=jnp.zeros(2), mu=jnp.zeros(2), active=jnp.ones(2, bool),
    )  # fmt: skip
    bound = step_bound(terms, jnp.array([0.0, -1.0]), jc.impact.Routh(impulse_step=1.0, max_steps=1))
    assert np.isinf(bound.num_steps) and np.isinf(bound.paper)
    assert "not pointed" in bound.reason


@pytest.mark.parametrize(("n", "samples", "epsilon"), [(1, 60, 0.1), (1, 30, 0.1), (2, 300, 0.2)])
def test_dense_sampling_against_simulation(n, samples, epsilon):
    """The identity on the unit cube: how often uniform points really are a net, 2000 experiments."""
    bound = dense_sampling(1.0, 1.0, n, samples, epsilon)
    rng = np.random.default_rng(2)
    if n == 1:
        x = np.sort(rng.uniform(size=(2000, samples)), axis=1)
        gaps = np.maximum(np.max(np.diff(x), axis=1) / 2, np.maximum(x[:, 0], 1 - x[:, -1]))
        net = gaps <= epsilon
    else:
        grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 21)] * 2), -1).reshape(-1, 2)
        net = [
            np.all(
                np.min(np.sum((grid[:, None] - rng.uniform(size=(samples, 2))[None]) ** 2, -1), 1)
                <= epsilon**2
            )
            for _ in range(100)
        ]
    assert binom.cdf(np.sum(net), len(net), bound) > 1e-3
    cells = np.ceil(np.sqrt(n) / epsilon) ** n
    assert bound == pytest.approx(max(0.0, 1 - cells * (1 - 1 / cells) ** samples), abs=1e-12)


@pytest.mark.slow
def test_lemma_1_where_everything_is_known():
    """One contact, one step: v' = -1 + cap / m, so L = m^-1/2 and the reachable set is an interval."""
    v, settings = jnp.array([0.0, -1.0]), {"impulse_step": 0.5, "max_steps": 1}
    found = with_law(net_bound, point(), v, num_samples=200, tolerance=0.02, num_tested=64, **settings)
    assert found.applies
    assert (found.num_dimensions, found.lipschitz) == (1, pytest.approx(2.0**-0.5))
    assert found.probability == pytest.approx(1 - 18 * (1 - 1 / 18) ** 200)
    samples = draw(point(), v, num_samples=200 * 20, seed=jax.random.key(0), **settings)
    speeds = np.sort(np.sqrt(2.0) * np.asarray(samples.v_plus)[:, 1].reshape(20, 200), axis=1)
    ends = np.sqrt(2.0) * np.array([-1.0, -0.75])
    widest = np.maximum(
        np.max(np.diff(speeds), axis=1) / 2, np.maximum(speeds[:, 0] - ends[0], ends[1] - speeds[:, -1])
    )
    assert np.mean(widest <= 0.02) == 1.0


@pytest.mark.slow
def test_lemma_1_says_nothing_about_the_models():
    model, terms, v = load("rocking_block")
    settings = {
        "impulse_step": model.impulse_step,
        "max_steps": model.max_steps,
        "num_samples": 10**6,
        "tolerance": 4e-3,
    }
    vacuous = with_law(net_bound, terms, v, num_tested=256, **settings)
    assert vacuous.applies and vacuous.probability == 0.0 and vacuous.log10_needed > 100
    assert "vacuous" in vacuous.statement
    model, terms, v = load("compass_gait")
    fails = with_law(net_bound, terms, v, num_tested=256, **settings | {"impulse_step": model.impulse_step})
    assert not fails.applies and fails.probability == 0.0
    assert "Assumption 6 fails" in fails.statement


def test_mistakes_are_named():
    v = jnp.array([0.0, -1.0])
    for options, message in (
        ({"impulse_step": 0.0, "max_steps": 1}, "impulse_step: expected a finite number > 0"),
        ({"impulse_step": 1.0, "max_steps": 1, "probability": 1.0}, "probability: expected a number"),
    ):
        with pytest.raises(ValueError, match=message):
            with_law(step_bound, point(), v, **options)
    with pytest.raises(ValueError, match="tolerance: expected a finite number > 0"):
        net_bound(point(), v, jc.impact.Routh(impulse_step=1.0, max_steps=1), num_samples=10, tolerance=0.0)
