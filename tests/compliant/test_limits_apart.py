"""Limits of hinges and slides move one velocity each: the Hessian takes them as a diagonal."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.compliant.solve import program_of
from jaxcontact.compliant.step import assemble
from jaxcontact.mechanics.tree import Tendon
from jaxcontact.solvers.cone_program import hessian, project_impulses


@pytest.mark.long
def test_the_hessian_is_that_of_all_rows(rng):
    pytest.importorskip("mujoco")
    model = jc.models.half_cheetah()
    start = model.initial_state()
    start = start.replace(q=start.q.at[3:].add(2.0))  # two limits are passed
    problem = assemble(model, start, jnp.zeros(6), 0.004)
    program = program_of(problem, "associated")
    assert program.limits_apart and program.num_limits == 12
    z = jnp.asarray(rng.normal(size=program.slope.shape))
    response = project_impulses(program, z, jnp.zeros_like(z))
    assert 0 < np.sum(np.asarray(response.scalar) > 0) < program.num_limits
    np.testing.assert_allclose(
        hessian(program, response), hessian(program.replace(limits_apart=False), response), rtol=1e-13
    )


def _folds(structure, q, params):
    """A robot's own limits, of several joints each."""
    return jnp.zeros(0), jnp.stack([0.3 - (q[3] + q[4] + 0.5 * q[2]), q[1] + q[5] + 0.2 * q[2] + 0.02])


@pytest.mark.slow
def test_other_limits_of_a_robot_than_those_of_its_joints():
    pytest.importorskip("mujoco")
    model = jc.models.half_cheetah()
    system = dataclasses.replace(model.system, constraints=_folds)
    start = jnp.array([0.1, -1.0, 2.0, 3.0, 1.0, -2.0, 0.5, 0.3, 0.2])

    def end(v):
        state, info = jc.compliant.step(
            jc.Model(system=system, params=model.params),
            model.initial_state().replace(v=v),
            jnp.zeros(6),
            dt=0.01,
            settings=jc.compliant.Settings(cone="associated"),
        )
        return state.v, info

    _, info = end(start)
    assert info.status == 0 and info.lam[1] > 10.0
    assert info.num_iters < 40  # 22 with the gate of limits; taken for limits of hinges it was 109
    steps = 1e-6 * jnp.eye(start.size)
    differences = jax.vmap(lambda step: (end(start + step)[0] - end(start - step)[0]) / 2e-6, out_axes=1)(
        steps
    )
    np.testing.assert_allclose(jax.jacrev(lambda v: end(v)[0])(start), differences, atol=1e-7)


def test_balls_and_tendons_move_several_velocities():
    pytest.importorskip("mujoco")
    tree = jc.models.half_cheetah().system.structure.tree
    assert tree.limits_apart
    assert not dataclasses.replace(tree, tendons=(Tendon(name="tendon", limited=True),)).limits_apart
    ball = dataclasses.replace(tree.joints[-1], kind="ball")
    assert not dataclasses.replace(tree, joints=(*tree.joints[:-1], ball)).limits_apart
