"""How long the programs of a robot's mechanics are: what compiles them in seconds."""

import warnings

import jax
import jax.numpy as jnp
import pytest
from helpers import package_robots

import jaxcontact as jc

pytestmark = pytest.mark.slow
MOST_LINES = 2100


def test_mass_matrix_and_bias_of_a_humanoid_are_a_short_program():
    mj = package_robots.compiled(package_robots.WHOLE["gymnasium humanoid"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jc.io.mjcf.IgnoredOptionWarning)
        model = jc.load_mjcf(mj)
    rest = jnp.zeros_like(model.initial_state().v)

    def mechanics(params, state):
        return jc.mass_matrix(model.replace(params=params), state.q), jc.inverse_dynamics(
            model.replace(params=params), state, rest
        )

    lines = jax.jit(mechanics).lower(model.params, model.initial_state()).as_text("hlo").count("\n")
    print("lines of HLO", lines)
    assert lines <= MOST_LINES
