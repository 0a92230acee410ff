"""Models with fewer pairs: the contacts that touch are those of the whole model."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.terms.near_pairs import only_near, only_pairs

TEXT = """<mujoco><worldbody><geom type="plane" size="5 5 1" friction="0.4"/>
<body pos="0 0 0.1"><freejoint/><geom type="sphere" size="0.1" friction="0.5"/></body>
<body pos="0.2 0 0.1"><freejoint/><geom type="capsule" size="0.1 0.2" euler="90 0 0" friction="0.6"/></body>
<body pos="0 3 0.2"><freejoint/><geom type="box" size="0.2 0.2 0.2" friction="0.7"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_touching_contacts_are_those_of_the_whole_model():
    model = jc.load_mjcf(TEXT)
    state = model.initial_state()
    near = only_near(model, state.q, 1e-3)
    assert len(model.structure.pairs) == 6
    floor = [(f"geom_{k}", "geom_0") for k in (1, 2, 3)]
    assert near.structure.pairs == (*floor, ("geom_1", "geom_2"))
    whole, few = jc.contact_terms(model, state), jc.contact_terms(near, state)
    for name in ("J_n", "J_t", "phi", "mu"):
        np.testing.assert_array_equal(getattr(few, name)[few.active], getattr(whole, name)[whole.active])
    assert int(jnp.sum(few.active)) == int(jnp.sum(whole.active)) >= 7


def test_numbers_of_contacts_follow_their_pairs():
    model = jc.load_mjcf(TEXT)
    kept = np.arange(len(model.structure.pairs)) == 1
    one = only_pairs(model, kept)
    count = one.structure.num_contacts
    assert one.structure.pairs == model.structure.pairs[1:2]
    assert np.shape(one.params.mu) == (count,)
