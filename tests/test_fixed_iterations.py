"""`jc.fixed_iterations`: programs without a loop that has a condition, the same values, and a reverse mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import ess
from tests.test_traces import BLOCK, CALLS, NAMES, numbers

FEW = ess.Settings(eps=0.1, max_steps=16, max_events=4)


def loops_with_a_condition(jaxpr):
    """Count the `while` equations of a program and of all programs in it."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name == "while"
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(inner, "jaxpr", inner)
                count += loops_with_a_condition(inner) if hasattr(inner, "eqns") else 0
    return count


@pytest.mark.parametrize("name", NAMES)
def test_no_public_function_has_a_loop_with_a_condition(name):
    program = jax.make_jaxpr(jc.fixed_iterations(CALLS[NAMES[name]]))(numbers())
    assert loops_with_a_condition(program.jaxpr) == 0


@pytest.mark.long
@pytest.mark.parametrize("stepper", [jc.simulate.TimeStepping(), jc.simulate.EventDriven(), jc.simulate.Variational()],
                         ids=lambda stepper: type(stepper).__name__)  # fmt: skip
def test_no_stepper_has_a_loop_with_a_condition(stepper):
    def motion(params, controls):
        model = BLOCK.replace(params=params)
        return jc.simulate.rollout(model, model.initial_state(), controls, stepper=stepper, dt=0.01).states

    nv = BLOCK.initial_state().v.shape[0]
    program = jax.make_jaxpr(jc.fixed_iterations(motion))(BLOCK.params, jnp.zeros((2, nv)))
    assert loops_with_a_condition(program.jaxpr) == 0


CHEAP = (jc.project, jc.solve_lcp, jc.solve_friction, jc.impact.sequential, jc.impact.plastic, ess.flow)
LONG = (jc.impact.routh_step, jc.impact.sample_in_jit, jc.impact.anitescu_potra, jc.impact.propagate,
        jc.place_on_ground, jc.compliant.step, ess.b_derivative, jc.simulate.time_augmented)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", [*CHEAP, *(pytest.param(f, marks=pytest.mark.slow) for f in LONG)], ids=lambda f: f.__name__
)
def test_values_and_statuses_are_those_of_loops_that_end_early(function):
    early = jax.jit(CALLS[function])(numbers())
    fixed = jax.jit(jc.fixed_iterations(CALLS[function]))(numbers())
    for a, b in zip(jax.tree.leaves(fixed), jax.tree.leaves(early), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(
                a, b, rtol=1e-12, atol=1e-12 * np.max(np.abs(b), initial=1.0, where=np.isfinite(b))
            )
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_flow_of_fixed_iterations_lowers_for_a_gpu_and_has_a_reverse_mode():
    model = jc.Model(
        system=ess.EventSystem(lambda t, x, s, c, p: 1.0 - 0.3 * (s > 0), lambda x, p: x), params=None
    )

    def end(x):
        return ess.flow(model, x, 0.0, 2.0, settings=FEW)[0][0]

    x0 = jnp.array([-1.0, -0.5])
    fixed = jax.jit(jc.fixed_iterations(jax.grad(end)))
    np.testing.assert_allclose(fixed(x0), jax.grad(end)(x0), rtol=1e-12)
    exported = jax.export.export(fixed, platforms=["cuda"])(x0)
    assert exported.platforms == ("cuda",)


def test_programs_inside_and_outside_are_kept_apart():
    """A function that is compiled once outside is compiled again inside, and the other way around."""

    def solve(W, w):
        return jc.solve_lcp(W, w)[0]

    W, w = jnp.eye(2), -jnp.ones(2)
    before = jax.make_jaxpr(solve)(W, w)
    inside = jax.make_jaxpr(jc.fixed_iterations(solve))(W, w)
    after = jax.make_jaxpr(solve)(W, w)
    counts = [loops_with_a_condition(program.jaxpr) for program in (before, inside, after)]
    assert counts[0] == counts[2] > 0 == counts[1]
    with pytest.raises(TypeError, match="function: expected a function"):
        jc.fixed_iterations(3.0)
