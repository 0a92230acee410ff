"""`jc.fixed_iterations`: programs without a loop that has a condition, the same values, and a reverse mode."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact import compliant, ess, impact, optimize
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


# Functions whose loops end early, with the time of compiling them twice: a few seconds, or long.
QUICK = (jc.project, jc.solve_lcp, jc.solve_friction, ess.b_derivative, ess.flow, ess.integrate,
         impact.anitescu_potra, impact.paradox, impact.plastic, impact.propagate, impact.propagate_all,
         impact.routh_step, impact.sequential)  # fmt: skip
LONG = (jc.place_on_ground, compliant.estimate_forces, compliant.rollout, compliant.solve, compliant.step,
        impact.newton, impact.poisson, impact.resolve, impact.sample_in_jit, jc.linearize, optimize.track,
        optimize.gait_outcome, optimize.gait_outcome_rate, jc.simulate.augmented_motion, jc.simulate.rollout,
        jc.simulate.time_augmented, jc.simulate.variational)  # fmt: skip
SLOW_IN_REVERSE = (
    "augmented_motion", "estimate_forces", "gait_outcome", "gait_outcome_rate", "linearize", "place_on_ground", "track",
    "variational")  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_public_function_has_a_loop_with_a_condition(name):
    """Programs without such a loop stay as they are; the others are compared below."""
    function = NAMES[name]
    fixed = jax.make_jaxpr(jc.fixed_iterations(CALLS[function]))(numbers())
    assert loops_with_a_condition(fixed.jaxpr) == 0
    early = jax.make_jaxpr(CALLS[function])(numbers())
    if loops_with_a_condition(early.jaxpr):
        assert function in QUICK + LONG
    else:
        assert len({re.sub("0x[0-9a-f]+", "", str(program)) for program in (fixed, early)}) == 1


def assert_same(fixed, early):
    for a, b in zip(jax.tree.leaves(fixed), jax.tree.leaves(early), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind == "f":
            size = np.max(np.abs(b), initial=1.0, where=np.isfinite(b))
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * size)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.mark.long
@pytest.mark.parametrize(
    "function", [*QUICK, *(pytest.param(f, marks=pytest.mark.slow) for f in LONG)], ids=lambda f: f.__name__
)
def test_values_and_statuses_are_those_of_loops_that_end_early(function):
    early = jax.jit(CALLS[function])(numbers())
    assert_same(jax.jit(jc.fixed_iterations(CALLS[function]))(numbers()), early)


def sum_of_floats(tree):
    """Add all floating numbers of what a function returns."""
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    return sum((jnp.sum(x) for x in leaves), jnp.array(0.0))


def gradient_for_a_gpu(function, tree):
    """Trace the gradient by all floating numbers, lower it for a GPU, and return its program."""
    leaves, structure = jax.tree.flatten(tree)
    at = [k for k, x in enumerate(leaves) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]

    def total(floats):
        moved = [*leaves]
        for k, x in zip(at, floats):
            moved[k] = x
        return sum_of_floats(function(jax.tree.unflatten(structure, moved)))

    traced = jax.jit(jax.value_and_grad(total)).trace([jnp.asarray(leaves[k]) for k in at])
    traced.lower(lowering_platforms=("cuda",))
    return traced.jaxpr.jaxpr


@pytest.mark.long
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] if name.endswith(SLOW_IN_REVERSE) else []) for name in NAMES])  # fmt: skip
def test_reverse_mode_exists_without_a_loop_with_a_condition_and_lowers_for_a_gpu(name):
    function = jc.fixed_iterations(CALLS[NAMES[name]])
    if NAMES[name] is jc.simulate.time_augmented:  # forward mode neither
        with pytest.raises(NotImplementedError, match="time_augmented has no derivative"):
            gradient_for_a_gpu(function, numbers())
        assert jax.jit(function).trace(numbers()).lower(lowering_platforms=("cuda",))
    else:
        assert loops_with_a_condition(gradient_for_a_gpu(function, numbers())) == 0


STEPPERS = (
    jc.simulate.TimeStepping(),
    jc.simulate.EventDriven(max_events=4),
    jc.simulate.Variational(impact=jc.impact.Newton(restitution=0.5), max_impacts=2),
    jc.simulate.Compliant(),
)


def motion(stepper, dt=0.01):
    """A block that falls on a corner within two steps: its trajectory by parameters and velocity."""

    def end(numbers):
        params, v = numbers
        model = BLOCK.replace(params=params)
        state = model.initial_state()
        state = state.replace(q=state.q + jnp.array([0.0, 0.06, 0.1]), v=v)
        return jc.simulate.rollout(model, state, jnp.zeros((2, 3)), stepper=stepper, dt=dt)

    material = compliant.Material(stiffness=jnp.array(1e4), damping=jnp.array(30.0))
    return end, (BLOCK.params.replace(material=material), jnp.array([0.3, -2.0, 0.0]))


@pytest.mark.slow
@pytest.mark.parametrize("stepper", STEPPERS, ids=lambda stepper: type(stepper).__name__)
def test_steppers_end_where_their_loops_that_end_early_do(stepper):
    end, start = motion(stepper)
    early = jax.jit(end)(start)
    assert not np.any(jc.Status.failed(early.status))
    assert early.impacts is None or early.impacts.count > 0
    assert_same(jax.jit(jc.fixed_iterations(end))(start), early)


@pytest.mark.slow
@pytest.mark.parametrize("stepper", STEPPERS, ids=lambda stepper: type(stepper).__name__)
def test_no_stepper_has_a_loop_with_a_condition_forward_or_reverse(stepper):
    end, start = motion(stepper)
    assert loops_with_a_condition(jax.make_jaxpr(jc.fixed_iterations(end))(start).jaxpr) == 0
    assert loops_with_a_condition(gradient_for_a_gpu(jc.fixed_iterations(end), start)) == 0


@pytest.mark.slow
def test_loops_that_do_not_end_within_their_limit_set_the_same_bit():
    """Two pivots for four, two moments of a flow, and a chatter of more events than allowed."""
    W, w = jnp.eye(4) + 0.3, -jnp.arange(1.0, 5.0)
    end, start = motion(jc.simulate.EventDriven(impact=jc.impact.Newton(restitution=0.9), max_events=1))
    model = jc.Model(
        system=ess.EventSystem(lambda t, x, s, c, p: 1.0 - 0.3 * (s > 0), lambda x, p: x), params=None
    )
    few = FEW.replace(max_steps=2)
    for call in (
        lambda: jc.solve_lcp(W, w, solver=jc.Lemke(max_pivots=2, retries=0))[1].status,
        lambda: ess.flow(model, jnp.array([-1.0, -0.5]), 0.0, 2.0, settings=few)[1].status,
        lambda: end(start).status[0],
    ):
        statuses = [int(jax.jit(f)()) for f in (call, jc.fixed_iterations(call))]
        assert statuses[0] == statuses[1] and statuses[0] & int(jc.Status.MAX_ITERS), statuses


@pytest.mark.slow
def test_trial_steps_of_static_length_follow_the_number_of_recorded_impacts():
    """A step of a chatter that takes more trial steps than 16 for each impact has the bit of it."""
    chatter = jc.simulate.Variational(impact=jc.impact.Newton(restitution=0.6), max_impacts=1, zeno=0.0)
    start = BLOCK.initial_state().replace(q=jnp.array([0.0, 1.02, 0.02]))

    def motion(v):
        return jc.simulate.rollout(BLOCK, start.replace(v=v), jnp.zeros((6, 3)), stepper=chatter, dt=0.05)

    v = jnp.array([0.5, -1.0, 0.3])
    early, fixed = jax.jit(motion)(v), jax.jit(jc.fixed_iterations(motion))(v)
    turns = np.asarray(early.info.num_iters)
    assert np.all(turns[:5] < 32) and turns[5] > 32
    assert_same(fixed.states.q[:6], early.states.q[:6])
    np.testing.assert_array_equal(fixed.status[:5], early.status[:5])
    assert not early.status[5] & int(jc.Status.MAX_ITERS) and fixed.status[5] & int(jc.Status.MAX_ITERS)


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
