"""The sampler draws from the distribution of the slow reference path: two-sample tests, independent draws.

The reference enumerates contact modes in NumPy with its own draws, tie-breaks and order of solutions.
"""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from oracles import reference
from scipy.spatial.distance import cdist
from scipy.stats import chi2_contingency, ks_2samp

import jaxcontact as jc

LEVEL = 1e-3  # of every test family, with fixed seeds


@functools.cache
def draws(name, count, reference_count):
    """Contact velocities (n, 2 nc), relative to the largest before, steps (n,) and ended (n,) of both."""
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    M, J_n, J_t, mu = (np.asarray(a) for a in (terms.M, terms.J_n, terms.J_t[:, 0], terms.mu))
    v = np.asarray(model.initial_state().v)
    samples = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps),
        num_samples=count,
        seed=jax.random.key(11),
    )
    J = np.concatenate([J_n, J_t])
    ours = np.asarray(samples.v_plus) @ J.T, np.asarray(samples.num_iters), np.asarray(samples.status) == 0
    maps = reference.mode_maps(M, J_n, J_t, mu)
    rng = np.random.default_rng(17)
    found = []
    for _ in range(reference_count):
        caps = model.impulse_step * rng.uniform(size=(model.max_steps, len(mu)))
        path, _, done = reference.simulate_routh(
            M, J_n, J_t, mu, v, caps, rng.uniform(size=model.max_steps), maps=maps
        )
        found.append((path[-1] @ J.T, len(path) - 1, done))
    theirs = tuple(np.array(column) for column in zip(*found, strict=True))
    size = np.abs(J @ v).max()
    # Zeros are zeros on both sides: round-off would tell ties apart.
    ours, theirs = (((side[0] / size).round(7) + 0.0, *side[1:]) for side in (ours, theirs))
    return ours, theirs, size


def compare(name, count, reference_count):
    (u, steps, ended), (u_ref, steps_ref, ended_ref), _ = draws(name, count, reference_count)
    coordinates = [*zip(u.T, u_ref.T, strict=True), (steps, steps_ref), (ended * 1, ended_ref * 1)]
    mixed = np.random.default_rng(0).normal(size=(u.shape[1], 4))
    coordinates += list(zip((u @ mixed).round(6).T, (u_ref @ mixed).round(6).T, strict=True))
    pvalues = [ks_2samp(*pair).pvalue for pair in coordinates]
    assert min(pvalues) > LEVEL / len(pvalues)
    # Shares of the kinds of outcome: signs of all contact velocities.
    kinds, place = np.unique(np.sign(np.concatenate([u, u_ref]).round(5)), axis=0, return_inverse=True)
    table = np.zeros((2, len(kinds)))
    np.add.at(table, ((np.arange(len(place)) >= len(u)) * 1, place.reshape(-1)), 1)
    frequent = table.sum(axis=0) >= 10
    rare = table[:, ~frequent].sum(axis=1, keepdims=True)
    table = np.concatenate([table[:, frequent], rare], axis=1)[:, : frequent.sum() + (rare.sum() >= 10)]
    assert table.shape[1] < 2 or chi2_contingency(table).pvalue > LEVEL


def energy_pvalue(u, u_ref, rounds=200):
    """Permutation test of the energy distance between two clouds."""
    both = np.concatenate([u, u_ref])
    spread = both.std(axis=0)
    both = both / np.where(spread > 0, spread, 1.0)
    distance = cdist(both, both)
    rng, n = np.random.default_rng(3), len(u)

    def statistic(order):
        side = np.where(order < n, 1.0 / n, -1.0 / len(u_ref))
        return -side @ distance @ side

    observed = statistic(np.arange(len(both)))
    others = [statistic(rng.permutation(len(both))) for _ in range(rounds)]
    return (1 + np.sum(np.array(others) >= observed)) / (rounds + 1)


PLANAR = ["rocking_block", "compass_gait", "box_and_wall", "ramone"]


@pytest.mark.slow_cases("rocking_block")
@pytest.mark.parametrize(
    "name", ["rocking_block", *(pytest.param(n, marks=pytest.mark.slow) for n in PLANAR[1:])]
)
def test_the_distribution_is_that_of_the_reference(name):
    compare(name, 4000, 300)
    (u, _, _), (u_ref, _, _), _ = draws(name, 4000, 300)
    assert energy_pvalue(u[:600], u_ref) > 1 / 150


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count"), [*((name, 10000) for name in PLANAR), ("disk_stack", 600)])
def test_the_distribution_with_many_draws(name, count):
    compare(name, 4 * count if name != "disk_stack" else 2048, count)


@pytest.mark.slow
def test_the_tests_can_fail():
    """A sampler with one fixed solution per step (Lemke's) is told apart on the compass gait."""
    _, (u_ref, _, _), size = draws("compass_gait", 4000, 300)
    model = jc.models.compass_gait()
    terms = jc.contact_terms(model, model.initial_state())
    biased = jc.impact.sample(
        terms,
        model.initial_state().v,
        jc.impact.Routh(impulse_step=model.impulse_step, max_steps=model.max_steps, selection="lemke"),
        num_samples=600,
        seed=jax.random.key(11),
    )
    lift = np.asarray(biased.v_plus @ terms.J_n[1]) / size
    assert ks_2samp(lift.round(7), u_ref[:, 1]).pvalue < 1e-10
