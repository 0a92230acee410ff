"""Landings on twelve and sixteen corners of box feet and hands, by searched steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.sampling import lemke_on_host

pytestmark = pytest.mark.skipif(not lemke_on_host.is_offered(np.zeros(1)), reason="needs machine code")
LEG = """<body pos="{x} {y} 0"><joint axis="1 0 0"/><joint axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.2" size="0.02" mass="0.6" contype="0" conaffinity="0"/>
<body pos="0 0 -0.2"><joint axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0 0 -0.18" size="0.015" mass="0.3" contype="0" conaffinity="0"/>
<body pos="0 0 -0.2"><joint axis="1 0 0"/><joint axis="0 1 0"/>
<geom type="box" size="0.03 0.02 0.01" mass="0.1" friction="0.8"/></body></body></body>"""


def robot(*places):
    """A trunk on legs with box feet that stand at these places."""
    legs = "".join(LEG.format(x=x, y=y) for x, y in places)
    source = f"""<mujoco><worldbody><geom name="floor" type="plane" size="5 5 1" friction="0.8"/>
<body pos="0 0 0.41"><freejoint/><geom type="box" size="0.25 0.1 0.05" mass="8" contype="0" conaffinity="0"/>
{legs}</body></worldbody></mujoco>"""
    model = jc.load_mjcf(source, contacts="world")
    state, _ = jc.place_on_ground(model, model.initial_state())
    terms = jc.contact_terms(model, state)
    touching = np.flatnonzero(np.asarray(terms.phi) < 1e-3)
    terms = terms.take(touching)
    v = jnp.zeros(model.structure.num_velocities).at[jnp.array([0, 2, 4])].set(jnp.array([0.4, -1.0, 0.3]))
    return terms.replace(phi=jnp.zeros(touching.size), active=jnp.ones(touching.size, bool)), v


CORNERS = {
    12: ((0.2, 0.1), (0.2, -0.1), (-0.2, 0.0)),
    16: ((0.2, 0.1), (0.2, -0.1), (-0.2, 0.1), (-0.2, -0.1)),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", [1.0, None])
@pytest.mark.parametrize("corners", CORNERS)
def test_samples_end_and_lose_energy(corners, step):
    """All samples of a landing on many corners end, separate and have lost energy."""
    terms, v = robot(*CORNERS[corners])
    assert terms.phi.shape == (corners,)
    law = jc.impact.Routh(impulse_step=step, max_steps=64, selection="visited", num_directions=4)
    samples = jc.impact.sample(terms, v, law, num_samples=64)
    ended = np.asarray(samples.status) == 0
    assert np.all(ended)
    assert np.all(np.asarray(samples.energy_ratio)[ended] < 1.0)
    assert float(np.min(np.asarray(samples.v_plus)[ended] @ terms.J_n.T)) > -1e-7
    assert samples.miss_bound is not None and 0.0 < samples.miss_bound <= 1.0
