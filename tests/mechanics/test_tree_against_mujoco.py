"""Mechanics of trees against MuJoCo C at random states: poses, M, bias, forces, Jacobians, energies."""

import jax
import numpy as np
import pytest
from helpers.robot_files import ZOO, chain
from oracles.mujoco_mechanics import mujoco_everything, random_data, relative_error, state_of, worst_errors

import jaxcontact as jc
from jaxcontact.io.mjcf_source import compile_source
from jaxcontact.models import robots

mujoco = pytest.importorskip("mujoco")
ROBOTS = ("planar_walker", "hopper", "half_cheetah", "ant", "quadruped")
NAMES = ("zoo", *ROBOTS)
STATES = 10
pytestmark = pytest.mark.filterwarnings("ignore:load_mjcf notes joint")  # files whose zero is out of range


def text_of(name):
    return ZOO if name == "zoo" else robots.file_of(name)


@pytest.mark.long
@pytest.mark.float32
@pytest.mark.parametrize("name", NAMES)
def test_mechanics_equal_those_of_mujoco(name, rng, tolerance):
    mj = compile_source(text_of(name)).mj
    model = jc.load_mjcf(mj)
    assert model.structure.num_velocities == mj.nv
    assert model.num_controls == mj.nu
    for what, error in worst_errors(mj, model, rng, STATES).items():
        assert error < tolerance(1e-10, 2e-4), what


def test_a_chain_of_64_links_is_a_program_as_long_as_one_of_16(rng):
    lengths = {}
    for links in (16, 64):
        mj = compile_source(chain(links)).mj
        model = jc.load_mjcf(mj)
        data = random_data(rng, mj)

        def mechanics(params, state, model=model):
            model = model.replace(params=params)
            return jc.mass_matrix(model, state.q), jc.bias(model, state)

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
    mj = compile_source(text_of("quadruped")).mj
    model = jc.load_mjcf(mj)
    state = state_of(random_data(rng, mj))
    far = state.replace(q=state.q.at[:2].add(2.0**20))
    near = jc.mass_matrix(model, state.q)
    np.testing.assert_allclose(jc.mass_matrix(model, far.q), near, rtol=1e-9, atol=1e-9)
