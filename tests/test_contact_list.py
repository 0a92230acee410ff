"""Contacts to read: names, points, gaps, velocities and forces of a sphere and a box, in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytest.importorskip("mujoco")

TILT = 0.3
SCENE = f"""
<mujoco>
  <worldbody>
    <geom name="slope" type="plane" size="1 1 1" axisangle="0 1 0 {np.degrees(TILT)}"/>
    <body name="rock" pos="0 0 0.25"><freejoint/><geom name="stone" size="0.25"/></body>
    <body name="pebble" pos="0 0 0.6"><freejoint/><geom name="pebble" size="0.1"/></body>
  </worldbody>
</mujoco>"""
NORMAL = np.array([np.sin(TILT), 0.0, np.cos(TILT)])


@pytest.mark.long
def test_contacts_have_names_points_velocities_and_forces():
    model = jc.load_mjcf(SCENE)
    v = jnp.array([1.0, 2.0, 3.0, 0.4, 0.5, 0.6] + [0.0] * 6)
    state = model.initial_state().replace(v=v)
    impulse = jnp.array([[0.2, 0.1, -0.3], [0.0, 0.0, 0.0], [0.4, 0.0, 0.0]])
    found = jax.jit(lambda s, p: jc.contacts(model, s, impulse=p, dt=0.01))(state, impulse)
    assert found.names == [("stone", "slope"), ("pebble", "slope"), ("stone", "pebble")]
    assert found.rows("rock").tolist() == [0, 2] and found.rows("stone", "pebble").tolist() == [2]
    with pytest.raises(
        ValueError, match="names: expected names of shapes or bodies, pebble, rock, slope, stone; got"
    ):
        found.rows("sand")
    centre = np.array([0.0, 0.0, 0.25])
    np.testing.assert_allclose(found.gap, [centre @ NORMAL - 0.25, 0.6 * NORMAL[2] - 0.1, 0.0], atol=1e-15)
    np.testing.assert_allclose(found.normal, [NORMAL, NORMAL, [0.0, 0.0, -1.0]], atol=1e-15)
    np.testing.assert_allclose(found.point[0], centre - 0.25 * NORMAL, atol=1e-15)
    np.testing.assert_allclose(found.velocity[0], v[:3] + np.cross(v[3:6], -0.25 * NORMAL), atol=1e-14)
    assert found.touching.tolist() == [True, False, True]
    terms = jc.contact_terms(model, state)
    axes = np.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    along = np.einsum("nkv,v->nk", axes, v)
    np.testing.assert_allclose(found.power, np.sum(along * impulse, axis=1) / 0.01, atol=1e-12)
    np.testing.assert_allclose(np.sum(found.force * found.velocity, axis=1), found.power, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(found.force, axis=1), np.linalg.norm(impulse, axis=1) / 0.01)
    np.testing.assert_allclose(found.force[2], [0.0, 0.0, -40.0], atol=1e-12)
    lines = list(found.table())
    assert len(lines) == 2 and lines[1].startswith("stone on pebble: gap")
    gap_rate = jax.jvp(
        lambda h: jc.contacts(model, state.replace(q=jc.retract(model, state.q, h * v))).gap,
        (0.0,),
        (1.0,),
    )[1]
    np.testing.assert_allclose(gap_rate, terms.J_n @ v, atol=1e-14)


def test_arguments_that_do_not_fit_are_named():
    model = jc.load_mjcf(SCENE)
    with pytest.raises(ValueError, match="impulse: expected shape .3, 3., got .3,."):
        jc.contacts(model, model.initial_state(), impulse=jnp.zeros(3), dt=0.1)
    with pytest.raises(ValueError, match="dt: expected with `impulse`"):
        jc.contacts(model, model.initial_state(), impulse=jnp.zeros((3, 3)))
    with pytest.raises(TypeError, match="model: expected Model, got System"):
        jc.contacts(model.system, model.initial_state())
    alone = jc.load_mjcf(SCENE, contacts=[])
    with pytest.raises(ValueError, match="model: the structure has no candidate contacts"):
        jc.contacts(alone, alone.initial_state())
