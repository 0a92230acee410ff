"""MuJoCo's models of our mechanisms are the same mechanisms, and its outcomes are what is documented."""

import sys

import jax
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.peers import mujoco_outcome
from jaxcontact.peers.mujoco import mjcf, outcome_of_file

mujoco = pytest.importorskip("mujoco")

MODELS = ("rocking_block", "compass_gait", "box_and_wall", "ramone", "disk_stack", "box_drop_3d")
TIGHT = 1e-9 if jax.config.jax_enable_x64 else 1e-5


def at_start(name):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    compiled = mujoco.MjModel.from_xml_string(mjcf(name))
    data = mujoco.MjData(compiled)
    data.qpos[:], data.qvel[:] = model.initial_state().q, model.initial_state().v
    mujoco.mj_forward(compiled, data)
    return model, terms, compiled, data


def mass(compiled, data):
    """The dense mass matrix, column by column."""
    columns = np.zeros((compiled.nv, compiled.nv))
    for i in range(compiled.nv):
        mujoco.mj_mulM(compiled, data, columns[i], np.eye(compiled.nv)[i])
    return columns


@pytest.mark.parametrize("name", MODELS)
def test_same_mass_matrix(name):
    _, terms, compiled, data = at_start(name)
    scale = np.max(np.abs(terms.M))
    np.testing.assert_allclose(mass(compiled, data) / scale, terms.M / scale, atol=max(TIGHT, 1e-8))


@pytest.mark.parametrize("name", MODELS)
def test_same_contacts_and_contact_jacobians(name):
    model, terms, compiled, data = at_start(name)
    assert data.ncon == model.structure.num_contacts
    remaining = list(range(data.ncon))
    for i in range(data.ncon):
        contact = data.contact[i]
        normal = contact.frame[:3]  # from the first geom to the second
        assert abs(contact.dist) < 1e-6
        jacobian = np.zeros((3, compiled.nv))
        for geom, sign in ((contact.geom[0], -1.0), (contact.geom[1], 1.0)):
            part = np.zeros((3, compiled.nv))
            mujoco.mj_jac(compiled, data, part, None, contact.pos, compiled.geom_bodyid[geom])
            jacobian += sign * part
        # Our normal may point the other way between two bodies; so then do the geoms.
        tangent = np.array([normal[2], 0.0, -normal[0]])
        row_n, row_t = normal @ jacobian, tangent @ jacobian
        match = [
            j
            for j in remaining
            if np.allclose(terms.J_n[j], row_n, atol=1e-4)
            and min(np.abs(terms.J_t[j, 0] - s * row_t).max() for s in (1.0, -1.0)) < 1e-4
        ]
        assert match, f"no contact like MuJoCo's {i}"
        j = match[0]
        remaining.remove(j)
        np.testing.assert_allclose(
            row_n @ data.qvel, terms.J_n[j] @ model.initial_state().v, atol=max(TIGHT, 1e-7)
        )
        assert np.isclose(contact.friction[0], terms.mu[j])


@pytest.mark.parametrize("name", MODELS)
def test_no_touching_contact_approaches_afterwards_and_energy_falls(name):
    model = getattr(jc.models, name)()
    terms = jc.contact_terms(model, model.initial_state())
    v = mujoco_outcome(name)
    assert v.shape == model.initial_state().v.shape
    assert np.all(np.isfinite(v))
    # The bodies have moved a little: the Jacobians at the start hold to 1e-3 of the speed.
    assert np.min(terms.J_n @ v) > -1e-3
    energy = [w @ np.asarray(terms.M) @ w for w in (v, np.asarray(model.initial_state().v))]
    assert energy[0] < energy[1]


def test_rocking_block_comes_to_rest_as_by_symmetry():
    model = jc.models.rocking_block()
    v = mujoco_outcome("rocking_block")
    assert np.max(np.abs(v)) < 2e-3 * np.max(np.abs(model.initial_state().v))


def test_no_friction_no_tangential_impulse():
    model = jc.models.box_and_wall()
    v = mujoco_outcome("box_and_wall", friction=0.0)
    terms = jc.contact_terms(model, model.initial_state().replace(v=v))
    # Free of friction, M (v+ - v) is a combination of the two normals alone.
    impulse = np.asarray(terms.M) @ (v - np.asarray(model.initial_state().v))
    rest = np.linalg.lstsq(np.asarray(terms.J_n).T, impulse, rcond=None)[1]
    assert rest.size == 0 or np.sqrt(rest[0]) < 5e-3 * np.linalg.norm(impulse)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_name": "teapot"}, "model_name: expected one of rocking_block, .*, got 'teapot'"),
        ({"cone": "round"}, "cone: expected elliptic or pyramidal, got 'round'"),
        ({"timestep": 0.0}, "timestep: expected a finite number > 0, got 0.0"),
    ],
)
def test_wrong_arguments_are_named(change, message):
    with pytest.raises(ValueError, match=message):
        mujoco_outcome(**{"model_name": "rocking_block", **change})


def test_a_missing_package_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(
        ImportError, match=r"mujoco_outcome needs the package mujoco: pip install jaxcontact\[mujoco\]"
    ):
        mujoco_outcome("rocking_block")


def test_a_ball_of_a_file_slides_by_coulombs_law():
    """Its stiff contact takes mu times the normal momentum from the sliding, and spins the ball."""
    text = """<mujoco><worldbody><geom type="plane" size="1 1 1" friction="0.3"/><body pos="0 0 0.1"><freejoint/>
    <geom type="sphere" size="0.1" mass="2" friction="0.3"/></body></worldbody></mujoco>"""
    model = jc.load_mjcf(text)
    model = model.replace(
        initial=model.initial_state().replace(v=jax.numpy.array([3.0, 0.0, -1.0, 0.0, 0.0, 0.0]))
    )
    v = outcome_of_file(text, model)
    assert 0.0 <= v[2] < 0.15
    np.testing.assert_allclose(v[0], 3.0 - 0.3 * (1.0 + v[2]), atol=2e-3)
    np.testing.assert_allclose(0.4 * 0.1 * v[4], 3.0 - v[0], atol=2e-3)
    np.testing.assert_allclose(v[[1, 3, 5]], 0.0, atol=1e-9)
