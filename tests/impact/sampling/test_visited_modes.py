"""What is known of the modes: nothing that can be valid in a first step is left out there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling import mode_selection, visited_modes
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.solvers import contact_modes


@pytest.mark.slow
def test_first_steps_keep_every_mode_that_is_valid_there():
    model = jc.models.disk_stack()
    v = model.initial_state().v
    space, table = tabulate(jc.contact_terms(model, model.initial_state()))
    u, cap = np.asarray(space.jacobian @ v), np.asarray(mode_selection.scale_largest(space, jnp.ones(5)))
    limit = contact_modes.feasibility_tolerance(v.dtype)  # |v|_M = 1
    met = np.flatnonzero(table.regular)[::8]
    rng = np.random.default_rng(2)
    drawn = rng.uniform(size=(5, 400)) * cap[:, None]
    # Equal largest impulses, and none, are at the borders of modes.
    drawn[:, :100] = np.round(drawn[:, :100])
    x = np.concatenate([np.broadcast_to(u[:, None], (10, 400)), drawn])
    valid = np.asarray(jax.jit(contact_modes.evaluate)(table.take(met), jnp.asarray(x))) <= limit
    memory = visited_modes.Memory(table, space.delassus, u, cap, limit)
    facts = np.append(met, visited_modes.SET + 7)
    what = memory.tabulate(facts, memory.choose_capacity(facts))
    kept = what.first.table
    codes = {tuple(code) for code in np.asarray(kept.codes).T[np.asarray(kept.regular)]}
    needed = {tuple(code) for code in np.asarray(table.codes).T[met[valid.any(axis=1)]]}
    assert len(needed) > 20
    assert needed <= codes
    assert len(codes) < 0.6 * met.size
    assert what.first.complete[0] == 7
