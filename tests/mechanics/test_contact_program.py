"""Models that differ in their start alone share one program of contact terms."""

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from jaxcontact.terms.constraints import _contact_terms

BALL = """<mujoco><worldbody><geom name="floor" type="plane" size="0 0 1"/>
  <body pos="0 0 1"><freejoint/><geom size="0.1"/></body></worldbody></mujoco>"""


def test_another_start_compiles_nothing():
    model = jc.load_mjcf(BALL)
    state = model.initial_state()
    lower = state.replace(q=state.q.at[2].set(0.1))
    jc.contact_terms(model, state)
    programs = _contact_terms._cache_size()
    terms = jc.contact_terms(model.replace(initial=lower), lower)
    assert _contact_terms._cache_size() == programs
    np.testing.assert_allclose(terms.phi, jnp.zeros(1), atol=1e-12)
