"""How many steps have several outcomes: against brute force over all index sets, and the known models."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from helpers.drawing import with_law
from oracles import reference
from scipy.stats import beta

import jaxcontact as jc
from jaxcontact.impact import unique_steps
from jaxcontact.impact.analysis.assumptions import _count_by_modes, _count_by_search, _count_outcomes
from jaxcontact.impact.sampling.by_modes import tabulate


def load(name):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    return (
        terms,
        model.initial_state().v,
        {"impulse_step": model.impulse_step, "max_steps": 10},
    )  # compiled once for all


def plain(terms):
    return [np.asarray(a) for a in (terms.M, terms.J_n, terms.J_t[:, 0], terms.mu)]


@pytest.mark.slow
def test_unique_where_the_assumption_holds():
    terms, v, settings = load("rocking_block")
    found = with_law(unique_steps, terms, v, num_samples=2000, **settings)
    assert (found.num_steps, found.num_several, found.max_outcomes, found.example) == (2000, 0, 1, None)
    assert found.share_high == pytest.approx(1 - 0.01 ** (1 / 2000))
    assert found.share_low == 0.0


@pytest.mark.slow_cases("compass_gait-0.89")
@pytest.mark.parametrize(
    ("name", "share"), [("compass_gait", 0.89), pytest.param("ramone", 1.0, marks=pytest.mark.slow)]
)
def test_several_outcomes_where_it_fails(name, share):
    terms, v, settings = load(name)
    found = with_law(unique_steps, terms, v, num_samples=1000, **settings)
    assert found.share == pytest.approx(share, abs=0.03)
    assert found.share_low == pytest.approx(beta.ppf(0.01, found.num_several, 1001 - found.num_several))
    assert found.share_low < found.share <= found.share_high
    # The example is one: the law in plain NumPy has the same outcomes for it.
    example = found.example
    outcomes, _, _ = reference.step_solutions(
        *plain(terms), np.asarray(example.v), np.asarray(example.impulse_max)
    )
    assert len(outcomes) == len(example.outcomes) == found.max_outcomes
    gap = np.abs(outcomes[:, None] - np.asarray(example.outcomes)[None]).max(axis=-1)
    assert np.max(np.min(gap, axis=1)) < 1e-6


def test_counts_by_brute_force():
    """Random velocities and caps of the compass gait: 2^10 index sets of the LCP each."""
    terms, v, _ = load("compass_gait")
    rng = np.random.default_rng(3)
    velocities = np.asarray(v) + 0.1 * rng.normal(size=(60, 4))
    caps = rng.uniform(0.01, 0.4, (60, 2))
    counts = _count_outcomes(*tabulate(terms), jnp.asarray(velocities), jnp.asarray(caps))
    bases = reference.brute_bases(*plain(terms), True)
    expected = [
        len(reference.step_solutions(*plain(terms), v, cap, bases=bases)[0])
        for v, cap in zip(velocities, caps, strict=True)
    ]
    assert np.array_equal(counts, expected)
    assert len(set(expected)) > 1


def test_equal_outcomes_count_once():
    """Two contacts at one place, of which either may take all it can: two modes, one outcome."""
    J = jnp.array([[0.0, 1.0], [0.0, 1.0]])
    terms = jc.ContactTerms(
        M=jnp.eye(2), J_n=J, J_t=J[:, None, ::-1], phi=jnp.zeros(2), mu=jnp.full(2, 0.5),
        active=jnp.ones(2, bool),
    )  # fmt: skip
    count = _count_outcomes(*tabulate(terms), jnp.array([[2.0, -1.0]]), jnp.array([[0.6, 0.7]]))
    assert count.tolist() == [1]


def test_mistakes_are_named():
    terms, v, settings = load("compass_gait")
    with pytest.raises(ValueError, match="confidence: expected a number between 0 and 1"):
        with_law(unique_steps, terms, v, confidence=0.0, **settings)
    with pytest.raises(ValueError, match="v: expected a contact that approaches"):
        with_law(unique_steps, terms, 0.0 * v, num_samples=8, **settings)


def in_space(rng, contacts, nv=5):
    """Random contacts in space on a mechanism with a random mass matrix."""
    root = rng.normal(size=(nv, nv))
    return jc.ContactTerms(
        M=jnp.asarray(root @ root.T + 0.3 * np.eye(nv)),
        J_n=jnp.asarray(rng.normal(size=(contacts, nv))),
        J_t=jnp.asarray(rng.normal(size=(contacts, 2, nv))),
        phi=jnp.zeros(contacts),
        mu=jnp.asarray(rng.uniform(0.3, 2.5, contacts)),
        active=jnp.ones(contacts, bool),
    )


@pytest.mark.long
@pytest.mark.parametrize("contacts", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_search_finds_what_the_table_of_modes_holds(contacts):
    """Eight covering vectors find several outcomes in nearly every step that has several, and none too many."""
    rng = np.random.default_rng(1)
    several = missed = 0
    for _ in range(5):
        terms = in_space(rng, contacts)
        velocities, caps = 3.0 * rng.normal(size=(256, 5)), 2.0 * rng.uniform(size=(256, contacts))
        by_modes = _count_by_modes(terms, velocities, caps, 4)
        searched = _count_by_search(terms, velocities, caps, 4, 8)
        assert np.all(searched <= by_modes)
        several += np.sum(by_modes > 1)
        missed += np.sum((by_modes > 1) & (searched == 1))
    assert several >= 20, missed
    assert missed <= 0.1 * several


@pytest.mark.slow
def test_steps_of_a_box_on_eight_contacts_are_searched():
    """More contacts than can be enumerated: the answer says that it is of a search, with its bound."""
    corners = 0.2 * np.array([[x, y] for x in (-1, 1) for y in (-1, 0.2, 0.5, 1)])
    x, y = corners.T
    zero, one = np.zeros(8), np.ones(8)
    J_n = np.stack([zero, zero, one, y, -x, zero], axis=1)
    J_t = np.stack(
        [np.stack([one, zero, zero, zero, zero, -y], 1), np.stack([zero, one, zero, zero, zero, x], 1)], 1
    )
    terms = jc.ContactTerms(
        M=jnp.diag(jnp.array([1.0, 1.0, 1.0, 0.01, 0.01, 0.02])),
        J_n=jnp.asarray(np.concatenate([J_n, J_n[:1]])),
        J_t=jnp.asarray(np.concatenate([J_t, J_t[:1]])),
        phi=jnp.zeros(9),
        mu=jnp.full(9, 0.5),
        active=jnp.arange(9) < 8,
    )
    v = jnp.array([0.5, 0.2, -1.0, 0.3, 0.2, 0.5])
    law = jc.impact.Routh(selection="lemke", num_directions=4, max_steps=3)
    found = unique_steps(terms, v, law, num_samples=32, num_covers=2)
    assert not found.complete and found.num_steps == 32 and found.example is None
    assert found.share <= found.share_high < 1.0
