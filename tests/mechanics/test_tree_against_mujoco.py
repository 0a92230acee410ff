"""Mechanics of trees against MuJoCo C at random states: poses, M, bias, forces, Jacobians, energies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.robot_files import ZOO, chain

import jaxcontact as jc
from jaxcontact.io.mjcf import compiled
from jaxcontact.mechanics import actuators
from jaxcontact.models import robots

mujoco = pytest.importorskip("mujoco")
ROBOTS = ("planar_walker", "hopper", "half_cheetah", "ant", "quadruped")
NAMES = ("zoo", *ROBOTS)
STATES = 10


def text_of(name):
    return ZOO if name == "zoo" else robots.file_of(name)


def everything(system, params, state, controls, at):
    """All that MuJoCo computes too, of one state."""
    structure, q, v = system.structure, state.q, state.v
    number = len(structure.bodies)
    found = {
        "frames": jc.forward_kinematics(system, params, q),
        "M": jc.mass_matrix(system, params, q),
        "bias": system.mechanics.bias(structure, q, v, params),
        "passive": actuators.passive_forces(structure, q, v, params),
        "drive": jc.actuator_forces(system, params, state, controls),
        "jacobians": [jc.point_jacobian(system, params, q, b, at) for b in (number - 1, number // 2)],
        "kinetic": jc.kinetic_energy(system, params, state),
        "potential": jc.potential_energy(system, params, state),
    }
    return found


def mujoco_everything(mj, data, at):
    """The same by MuJoCo."""
    M = np.zeros((mj.nv, mj.nv))
    for row, basis in zip(M, np.eye(mj.nv), strict=True):
        mujoco.mj_mulM(mj, data, row, basis)
    jacobians = []
    for b in (mj.nbody - 1, (mj.nbody - 1) // 2 + 1):
        J = np.zeros((3, mj.nv))
        place = data.xpos[b] + data.xmat[b].reshape(3, 3) @ at
        mujoco.mj_jac(mj, data, J, None, place, b)
        jacobians.append(J)
    return {
        "frames": (data.xpos[1:], data.xmat[1:].reshape(-1, 3, 3)),
        "M": M,
        "bias": data.qfrc_bias,
        "passive": data.qfrc_passive,
        "drive": data.qfrc_actuator,
        "jacobians": jacobians,
        "kinetic": data.energy[1],
        "potential": data.energy[0],
    }


def random_data(rng, mj):
    """MuJoCo's data at a random state under random controls."""
    data = mujoco.MjData(mj)
    mujoco.mj_integratePos(mj, data.qpos, rng.normal(size=mj.nv), 1.0)
    data.qvel[:] = 3.0 * rng.normal(size=mj.nv)
    data.ctrl[:] = rng.normal(size=mj.nu)
    mujoco.mj_forward(mj, data)
    return data


def state_of(data):
    return jc.State(q=jnp.asarray(data.qpos.copy()), v=jnp.asarray(data.qvel.copy()), t=jnp.array(0.0))


def relative_error(found, expected):
    scale = np.max(np.abs(expected)) or 1.0
    return np.max(np.abs(np.asarray(found) - expected)) / scale


@pytest.mark.float32
@pytest.mark.parametrize("name", NAMES)
def test_mechanics_equal_those_of_mujoco(name, rng, tolerance):
    mj = compiled(text_of(name))
    mj.opt.enableflags |= int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    model = jc.load_mjcf(mj)
    assert model.system.structure.num_velocities == mj.nv
    assert model.system.num_controls == mj.nu
    at = np.array([0.1, -0.2, 0.3])
    ours = jax.jit(everything, static_argnums=0)
    for _ in range(STATES):
        data = random_data(rng, mj)
        controls = jnp.asarray(data.ctrl.copy())
        found = ours(model.system, model.params, state_of(data), controls, jnp.asarray(at))
        expected = mujoco_everything(mj, data, at)
        errors = jax.tree.map(relative_error, found, expected)
        for what, error in errors.items():
            assert np.max(error) < tolerance(1e-10, 2e-4), (what, error)


def test_a_chain_of_64_links_is_a_program_as_long_as_one_of_16(rng):
    lengths = {}
    for links in (16, 64):
        mj = compiled(chain(links))
        model = jc.load_mjcf(mj)
        data = random_data(rng, mj)

        def mechanics(params, state, system=model.system):
            return jc.mass_matrix(system, params, state.q), jc.bias(system, params, state)

        program = jax.jit(mechanics).lower(model.params, state_of(data))
        lengths[links] = len(program.as_text().splitlines())
        M, bias = program.compile()(model.params, state_of(data))
        expected = mujoco_everything(mj, data, np.zeros(3))
        assert relative_error(M, expected["M"]) < 1e-10
        assert relative_error(bias, expected["bias"]) < 1e-10
    assert lengths[64] < 1.1 * lengths[16]
    assert lengths[64] < 1500


def test_a_robot_far_from_the_origin_is_as_exact(rng):
    """Sums are taken about a point that moves along."""
    mj = compiled(text_of("quadruped"))
    model = jc.load_mjcf(mj)
    state = state_of(random_data(rng, mj))
    far = state.replace(q=state.q.at[:2].add(2.0**20))
    near = jc.mass_matrix(model.system, model.params, state.q)
    np.testing.assert_allclose(jc.mass_matrix(model.system, model.params, far.q), near, rtol=1e-9, atol=1e-9)
