"""Contacts of a running MuJoCo as matrices: against our own, and what the laws make of them."""

import sys

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.models.robots import file_of

mujoco = pytest.importorskip("mujoco")
BOX = """
<mujoco>
  <worldbody>
    <geom type="plane" size="5 5 1" friction="0.4"/>
    <body pos="0 0 0.2"><freejoint/><geom type="box" size="0.3 0.2 0.2" mass="3" friction="0.2"/></body>
  </worldbody>
</mujoco>"""


def loaded(text, qpos=None):
    mj = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(mj)
    if qpos is not None:
        data.qpos[:] = qpos
    return mj, data


def check_outcome(terms, v, v_plus):
    """No active contact approaches, and energy does not rise."""
    speeds = np.asarray(terms.J_n @ v_plus)
    assert np.all(speeds[np.asarray(terms.active)] >= -1e-9)
    assert v_plus @ terms.M @ v_plus <= (v @ terms.M @ v) * (1 + 1e-12)


@pytest.mark.slow
def test_a_box_on_the_floor(rng):
    mj, data = loaded(BOX)
    data.qvel[:] = [0.4, 0.1, -1.0, 0.3, -0.2, 0.5]
    terms, v = jc.from_mujoco(mj, data)
    np.testing.assert_allclose(v, data.qvel)
    assert terms.J_n.shape == (4, 6)
    assert terms.J_t.shape == (4, 2, 6)
    np.testing.assert_array_equal(terms.mu, 0.4)
    np.testing.assert_array_equal(terms.active, True)
    np.testing.assert_allclose(
        terms.J_n[:, :3], np.tile([0, 0, 1.0], (4, 1)), atol=1e-15
    )  # upwards separates
    v_plus, info = jc.impact.anitescu_potra(terms, v)
    assert int(info.status) == 0
    check_outcome(terms, v, v_plus)
    data.qvel[:] = jc.to_mujoco(v_plus)
    np.testing.assert_allclose(data.qvel, v_plus)


@pytest.mark.slow
def test_outcomes_of_a_box():
    mj, data = loaded(BOX)
    data.qvel[:] = [0.4, 0.1, -1.0, 0.3, -0.2, 0.5]
    terms, v = jc.from_mujoco(mj, data)
    samples = jc.impact.sample(
        terms, v, jc.impact.Routh(impulse_step=1.0, max_steps=40, selection="lemke"), num_samples=64
    )
    assert np.mean(np.asarray(samples.status) == 0) > 0.9
    for outcome in np.asarray(samples.v_plus)[np.asarray(samples.status) == 0]:
        check_outcome(terms, v, outcome)


@pytest.mark.slow
def test_a_robot_has_the_terms_of_our_own(rng):
    mj, data = loaded(file_of("quadruped"))
    mujoco.mj_resetDataKeyframe(mj, data, 0)
    data.qpos[2] += 5e-4
    data.qvel[:] = rng.normal(size=mj.nv)
    before = data.qpos.copy()
    terms, v = jc.from_mujoco(mj, data)
    np.testing.assert_array_equal(data.qpos, before)
    model = jc.models.quadruped()
    own = jc.contact_terms(model, model.initial_state().replace(q=jnp.asarray(before)))
    exact = {"rtol": 1e-12, "atol": 1e-12}
    np.testing.assert_allclose(terms.M, own.M, **exact)
    order = np.argsort(np.asarray(terms.J_n)[:, 6:18] @ np.arange(12))
    mine = np.argsort(np.asarray(own.J_n)[:, 6:18] @ np.arange(12))
    np.testing.assert_allclose(terms.phi[order], own.phi[mine], **exact)
    np.testing.assert_allclose(
        terms.J_n[order], own.J_n[mine], rtol=1e-9, atol=3e-4
    )  # at the middle of the gap
    np.testing.assert_array_equal(terms.mu, 0.8)
    v_plus, info = jc.impact.anitescu_potra(terms, v)
    assert int(info.status) == 0
    check_outcome(terms, v, v_plus)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda mj, data: (data, mj), TypeError, "mj_model: expected mujoco.MjModel, got MjData"),
        (lambda mj, data: (mj, None), TypeError, "mj_data: expected mujoco.MjData, got NoneType"),
    ],
)
def test_mistakes_are_named(change, kind, message):
    with pytest.raises(kind, match=message):
        jc.from_mujoco(*change(*loaded(BOX)))


def test_what_does_not_touch_is_said():
    mj, data = loaded(BOX, [0, 0, 0.3, 1, 0, 0, 0])
    with pytest.raises(ValueError, match="finds no contact within touching = 0.001 m"):
        jc.from_mujoco(mj, data)
    with pytest.raises(ValueError, match="touching: expected a finite number >= 0"):
        jc.from_mujoco(mj, data, touching=-1.0)


def test_without_mujoco_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    for call in (lambda: jc.from_mujoco(None, None), lambda: jc.load_mjcf("robot.xml")):
        with pytest.raises(ImportError, match=r"needs the package mujoco: pip install jaxcontact\[mujoco\]"):
            call()
