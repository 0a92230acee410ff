"""Links that touch at flush faces about the axis of their hinge: their contacts have normals without motion."""

import jax.numpy as jnp
import numpy as np

import jaxcontact as jc

FLUSH = """<mujoco><option gravity="0 0 0"/><worldbody>
<geom type="cylinder" size=".25 .25" euler="0 90 0"/>
<body pos=".5 0 0"><joint axis="1 0 0"/><geom type="cylinder" size=".25 .25" euler="0 90 0"/>
<geom type="sphere" size=".1" pos="0 1 0"/></body></worldbody></mujoco>"""


def test_normals_that_round_off_alone_moves_push_nothing():
    """J_n is 1e-17 m and the gap 1e-17 m: a stop as stiff as one over the mobility, 1e40, made NaN of them."""
    model = jc.load_mjcf(FLUSH)
    state = model.initial_state()
    terms = jc.contact_terms(model, state)
    assert 0.0 < np.max(np.abs(terms.J_n)) < 1e-15 and np.min(np.abs(terms.phi)) < 1e-15
    for turned in (0.0, 1e-17, 0.3):
        start = state.replace(q=state.q + turned)
        after, *_, info = jc.compliant.step(model, start, jnp.zeros(model.num_controls), dt=2e-3)
        assert int(info.status) == 0
        np.testing.assert_allclose(after.v, 0.0, atol=1e-12)
