"""Validity by stems and leaves is that of every mode's own linear map."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles.problems import random_contacts

import jaxcontact as jc
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.solvers import contact_modes, mode_tree

LIMIT = contact_modes.feasibility_tolerance(np.dtype(np.float64))
worst_violation = jax.jit(contact_modes.evaluate)
valid = jax.jit(mode_tree.valid)


@pytest.mark.long
@pytest.mark.parametrize(("mechanism", "mu"), [("body", 0.0), ("body", 1e5), ("bodies", 0.7)])
def test_valid_modes_are_those_of_the_table(mechanism, mu):
    """Three contacts, of one body redundant, one of them inactive in the last case."""
    rng = np.random.default_rng(4)
    found = 0
    for active in (True, True, False):
        c = random_contacts(rng, 3, mu=mu, mechanism=mechanism)
        terms = jc.ContactTerms(
            M=jnp.asarray(c.M),
            J_n=jnp.asarray(c.J_n),
            J_t=jnp.asarray(c.J_t)[:, None],
            phi=jnp.zeros(3),
            mu=jnp.asarray(c.mu),
            active=jnp.array([True, True, active]),
        )
        space, table = tabulate(terms)
        these = mode_tree.leaves(table, space.delassus, space.mu)
        x = rng.normal(size=(9, 500))
        x[6:] = np.abs(x[6:])
        x[:6, :20] = np.round(x[:6, :20])  # exact zeros: borders of modes
        worst = np.asarray(worst_violation(table, jnp.asarray(x)))
        clear = np.abs(worst - LIMIT) > 0.5 * LIMIT
        got = np.asarray(valid(these, jnp.asarray(x), LIMIT))
        np.testing.assert_array_equal(got[clear], (worst <= LIMIT)[clear])
        found += np.sum(worst <= LIMIT)
    assert found >= 1500


@pytest.mark.slow
def test_modes_of_singular_stems_are_judged_by_their_own_maps():
    """The disk stack: 108 regular modes stand on stems without a unique impulse."""
    model = jc.models.disk_stack()
    space, table = tabulate(jc.contact_terms(model, model.initial_state()))
    these = mode_tree.leaves(table, space.delassus, space.mu)
    loose = np.flatnonzero(np.asarray(these.loose.regular))
    assert loose.size == 108
    x = np.random.default_rng(0).normal(size=(15, 64))
    x[10:] = np.abs(x[10:])
    # A limit so wide that the loose modes are valid now and then.
    worst = np.asarray(worst_violation(table, jnp.asarray(x)))
    got = np.asarray(valid(these, jnp.asarray(x), 0.5))
    np.testing.assert_array_equal(got[loose], worst[loose] <= 0.5)
    assert 50 < got[loose].sum() < got[loose].size
