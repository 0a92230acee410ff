"""Limits of hinges and slides move one velocity each: the Hessian takes them as a diagonal."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.compliant.solve import program_of
from jaxcontact.compliant.step import assemble
from jaxcontact.mechanics.tree import Tendon
from jaxcontact.solvers.cone_program import hessian, respond


def test_the_hessian_is_that_of_all_rows(rng):
    pytest.importorskip("mujoco")
    model = jc.models.half_cheetah()
    problem = assemble(model.system, model.params, model.state, jnp.zeros(6), 0.004)
    program = program_of(problem, "associated")
    assert program.limits_apart and program.num_limits == 12
    z = jnp.asarray(rng.normal(size=program.slope.shape))
    response = respond(program, z, jnp.zeros_like(z))
    assert 0 < np.sum(np.asarray(response.scalar) > 0) < program.num_limits
    np.testing.assert_allclose(
        hessian(program, response), hessian(program.replace(limits_apart=False), response), rtol=1e-13
    )


def test_balls_and_tendons_move_several_velocities():
    pytest.importorskip("mujoco")
    tree = jc.models.half_cheetah().system.structure.tree
    assert tree.limits_apart
    assert not dataclasses.replace(tree, tendons=(Tendon(name="tendon", limited=True),)).limits_apart
    ball = dataclasses.replace(tree.joints[-1], kind="ball")
    assert not dataclasses.replace(tree, joints=(*tree.joints[:-1], ball)).limits_apart
