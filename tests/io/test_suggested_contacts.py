"""How many contacts of a robot a step sees unless told otherwise."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms.constraints import nearest_terms

SIDE = 0.1


def boxes(count, floor="0 0 0"):
    rows = "".join(
        f'<body pos="0 0 {SIDE * (0.5 + k)}"><freejoint/><geom type="box" size="{SIDE / 2} {SIDE / 2} {SIDE / 2}"/>'
        "</body>"
        for k in range(count)
    )
    return f'<mujoco><worldbody><geom type="plane" size="1 1 1" pos="{floor}"/>{rows}</worldbody></mujoco>'


def test_few_candidates_are_all_seen():
    assert jc.load_mjcf(boxes(1)).max_contacts is None
    assert jc.models.quadruped().max_contacts is None


@pytest.mark.long
def test_a_stack_fits_into_the_suggestion_and_more_that_touch_are_noted():
    """Four boxes on one another rest on sixteen corners; lying in the floor, more touch than are seen."""
    model = jc.load_mjcf(boxes(4))
    assert model.max_contacts == 24 < model.structure.num_contacts
    state = model.initial_state()
    terms, nearest = nearest_terms(model, state, model.max_contacts)
    normals = terms.phi[np.flatnonzero(np.array(terms.kind, int) == 2)]
    assert np.sum(np.asarray(normals) <= 1e-6) == 16 and not bool(nearest.overflow)
    sunk = state.replace(q=state.q.at[jnp.array([2, 9, 16, 23])].set(-1.0))
    assert bool(nearest_terms(model, sunk, 24)[1].overflow)


@pytest.mark.slow
def test_a_step_sees_the_suggested_contacts_and_all_by_name():
    model = jc.load_mjcf(boxes(4))
    state, controls = model.initial_state(), jnp.zeros(model.num_controls)
    _, info = jc.compliant.step(model, state, controls, dt=0.004)
    assert int(np.sum(info.seen)) == 24
    everything = jc.compliant.Settings(max_contacts=model.structure.num_contacts)
    then, info = jc.compliant.step(model, state, controls, dt=0.004, settings=everything)
    assert np.all(info.seen)
