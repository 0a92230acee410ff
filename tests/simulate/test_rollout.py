"""`rollout` and `run`: one protocol for every stepper, controls and policies, files."""

import dataclasses
import logging

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import sliding_disc
from helpers.sliding_disc import PARAMS, STATE

import jaxcontact as jc

ARGS = (sliding_disc.MODEL, STATE)
STEPPER = jc.simulate.Compliant()
CONTROLS = jnp.zeros((6, 3)).at[:, 0].set(jnp.linspace(0.0, 3.0, 6))
DT = 0.01


def push(model, state, t, memory, key):
    u = jnp.zeros(3).at[0].set(-memory * state.v[0])
    return u, memory


@pytest.mark.slow
def test_a_rollout_is_the_rollout_of_its_method():
    found = jc.simulate.rollout(*ARGS, CONTROLS, stepper=STEPPER, dt=DT)
    states, info = jc.compliant.rollout(*ARGS, CONTROLS, dt=DT)
    np.testing.assert_allclose(found.states.q[1:], states.q, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(found.states.q[0], STATE.q)
    assert found.states.t.shape == (7,) and found.contacts.shape[0] == 7 and found.status.shape == (6,)
    np.testing.assert_array_equal(found.inputs, CONTROLS)
    rise = found.states.v[1:, 1] - found.states.v[:-1, 1]
    np.testing.assert_allclose(found.impulse[:, 0, 0], 2.0 * (rise + 9.81 * DT), rtol=1e-9)
    assert bool(found.contacts[-1].all())
    np.testing.assert_array_equal(found.info.num_iters, info.num_iters)


@pytest.mark.slow
def test_a_policy_closes_the_loop_and_has_derivatives():
    def end(gain):
        return jc.simulate.rollout(
            *ARGS, jc.simulate.Inputs(push, memory=gain), stepper=STEPPER, dt=DT, num_steps=6
        ).states.q[-1, 0]

    slope = jax.grad(end)(2.0)
    np.testing.assert_allclose(slope, (end(2.0 + 1e-5) - end(2.0 - 1e-5)) / 2e-5, rtol=1e-5)
    found = jc.simulate.rollout(
        *ARGS, jc.simulate.Inputs(push, memory=2.0), stepper=STEPPER, dt=DT, num_steps=6
    )
    np.testing.assert_allclose(found.inputs[:, 0], -2.0 * found.states.v[:-1, 0], rtol=1e-12, atol=1e-15)


@pytest.mark.slow
def test_run_gives_the_same_motion_in_chunks(monkeypatch):
    monkeypatch.setattr("jaxcontact.simulate.stepping.CHUNK", 3)
    seen = []
    found = jc.simulate.run(
        *ARGS,
        jc.simulate.MotionSettings(stepper=STEPPER, dt=DT, duration=0.06, controls=CONTROLS),
        run=jc.Run(progress=lambda *at: seen.append(at)),
    )
    whole = jc.simulate.rollout(*ARGS, CONTROLS, stepper=STEPPER, dt=DT)
    chex.assert_trees_all_close(found, whole, rtol=1e-12, atol=1e-12)
    assert seen == [(3, 6), (6, 6)]


@pytest.mark.long
def test_one_program_moves_any_number_of_steps():
    traced = []

    class Counting(jc.simulate.Compliant):
        def step(self, *args, **options):
            traced.append(1)
            return super().step(*args, **options)

    stepper = Counting()
    many = jax.jit(
        lambda count: jc.simulate.rollout(*ARGS, CONTROLS, stepper=stepper, dt=DT, num_steps=count).states
    )
    all_steps = many(6)
    first = len(traced)
    for count in (0, 1, 4):
        states = many(count)
        np.testing.assert_array_equal(states.q[: count + 1], all_steps.q[: count + 1])
        np.testing.assert_array_equal(states.q[count:], np.broadcast_to(states.q[count], (7 - count, 3)))
        np.testing.assert_allclose(states.t[-1], count * DT, atol=1e-15)
    assert len(traced) == first
    for wrong in (7, -1, 1.5):
        with pytest.raises(ValueError, match="num_steps: expected an integer"):
            jc.simulate.rollout(*ARGS, CONTROLS, stepper=stepper, dt=DT, num_steps=wrong)


@pytest.mark.slow
def test_one_program_of_run_moves_any_number_of_steps():
    traced = []

    class Counting(jc.simulate.Compliant):
        def step(self, *args, **options):
            traced.append(1)
            return super().step(*args, **options)

    stepper = Counting()
    runs = [
        jc.simulate.run(*ARGS, jc.simulate.MotionSettings(stepper=stepper, dt=DT, duration=n * DT))
        for n in (2, 5)
    ]
    again = len(traced)
    runs.append(jc.simulate.run(*ARGS, jc.simulate.MotionSettings(stepper=stepper, dt=DT, duration=3 * DT)))
    assert len(traced) == again and [run.states.q.shape[0] for run in runs] == [3, 6, 4]
    np.testing.assert_array_equal(runs[1].states.q[:4], runs[2].states.q)


def rest(model, state, t, memory, key):
    return jnp.zeros(3), memory


@pytest.mark.slow
@pytest.mark.parametrize(
    "stepper",
    [
        jc.simulate.Compliant(),
        jc.simulate.TimeStepping(),
        jc.simulate.TimeStepping(impact=jc.impact.Newton(restitution=0.5)),
        jc.simulate.EventDriven(),
        jc.simulate.Variational(impact=jc.impact.AnitescuPotra()),
    ],
    ids=["compliant", "time stepping", "strikes", "events", "variational"],
)
def test_another_number_of_steps_compiles_nothing(stepper, caplog):
    """Of `run`, with controls, none or a policy; of `rollout` with a policy or rows for the longest motion."""
    model = jc.models.rocking_block()
    model = model.replace(params=model.params.replace(material=jc.compliant.stiff_material(1.0)))
    start = model.initial_state().replace(v=jnp.zeros(3))

    def move(count):
        motion = jc.simulate.MotionSettings(stepper=stepper, dt=1e-3, duration=count * 1e-3)
        for controls in (None, np.zeros((count, 3)), rest):
            jc.simulate.run(model, start, dataclasses.replace(motion, controls=controls))
        jc.simulate.rollout(model, start, rest, stepper=stepper, dt=1e-3, num_steps=count)
        rows = np.zeros((8, 3))
        return jc.simulate.rollout(model, start, rows, stepper=stepper, dt=1e-3, num_steps=count)

    move(5)
    with jax.log_compiles(), caplog.at_level(logging.WARNING, logger="jax"):
        for count in (3, 7):
            move(count)
    compiled = [record.getMessage() for record in caplog.records if "Compiling" in record.getMessage()]
    assert not compiled, compiled


def damp(model, state, t, memory, key):
    return memory["gain"] * state.v + 0.01 * jax.random.normal(key, (3,)), memory


@pytest.mark.long
def test_one_program_of_rollout_with_a_policy_moves_any_number_of_steps_with_derivatives():
    traced = []

    class Counting(jc.simulate.Compliant):
        def step(self, *args, **options):
            traced.append(1)
            return super().step(*args, **options)

    stepper, key = Counting(), jax.random.key(0)

    def motion(v, gain, count):
        inputs = jc.simulate.Inputs(damp, memory={"gain": gain})
        start = STATE.replace(v=v)
        return jc.simulate.rollout(ARGS[0], start, inputs, stepper=stepper, dt=DT, num_steps=count, key=key)

    def end(v, gain, count):
        return motion(v, gain, count).states.q[-1, 0]

    slope, gain = jax.grad(end, (0, 1)), jnp.array(-0.3)
    motion(STATE.v, gain, 5), slope(STATE.v, gain, 5)
    once = len(traced)
    found = {count: motion(STATE.v, gain, count) for count in (2, 64, 70)}
    slopes = {count: slope(STATE.v, gain, count) for count in (2, 70)}
    worlds = jax.vmap(lambda v: end(v, gain, 70))(jnp.stack([STATE.v, 2.0 * STATE.v]))
    assert len(traced) == once > 0
    whole = jax.jit(motion, static_argnums=2)(STATE.v, gain, 70)
    for count, shorter in found.items():
        assert shorter.states.q.shape[0] == count + 1 and shorter.info.status.shape == (count,)
        np.testing.assert_allclose(shorter.states.q, whole.states.q[: count + 1], rtol=1e-9, atol=1e-13)
        np.testing.assert_allclose(shorter.inputs, whole.inputs[:count], rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(worlds[0], whole.states.q[-1, 0], rtol=1e-10)
    for a, b in zip(slopes[70], jax.jit(slope, static_argnums=2)(STATE.v, gain, 70), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_rollout_of_fewer_steps_has_the_derivatives_of_the_shorter_one():
    def end(v, controls, count):
        start = STATE.replace(v=v)
        found = jc.simulate.rollout(ARGS[0], start, controls, stepper=STEPPER, dt=DT, num_steps=count)
        return found.states.q[-1, 0]

    long = jax.grad(end, argnums=(0, 1))(STATE.v, CONTROLS, 4)
    short = jax.grad(end, argnums=(0, 1))(STATE.v, CONTROLS[:4], None)
    np.testing.assert_allclose(long[0], short[0], rtol=1e-12, atol=1e-18)
    np.testing.assert_allclose(long[1][:4], short[1], rtol=1e-12, atol=1e-18)
    np.testing.assert_array_equal(long[1][4:], 0.0)
    worlds = jax.vmap(lambda n: end(STATE.v, CONTROLS, n))(jnp.array([2, 4]))
    np.testing.assert_allclose(worlds[1], end(STATE.v, CONTROLS[:4], None), rtol=1e-12)


@pytest.mark.long
def test_run_raises_where_a_step_fails_and_says_which():
    poisoned = CONTROLS.at[4, 0].set(jnp.nan)
    motion = jc.simulate.MotionSettings(stepper=STEPPER, dt=DT, duration=0.06, controls=poisoned)
    with pytest.raises(jc.FailureError, match=r"step 4: .*NONFINITE.*; 2 of 6 failed"):
        jc.simulate.run(*ARGS, motion)
    found = jc.simulate.run(*ARGS, motion, check=False)
    assert np.flatnonzero(jc.Status.failed(found.status)).tolist() == [4, 5]


@pytest.mark.long
def test_other_numbers_do_not_compile_again():
    traced = []

    class Counting(jc.simulate.Compliant):
        def step(self, *args, **options):
            traced.append(1)
            return super().step(*args, **options)

    stepper = Counting()
    jc.simulate.rollout(*ARGS, CONTROLS, stepper=stepper, dt=DT)
    once = len(traced)
    other = PARAMS.replace(mu=jnp.array(0.5), mass=jnp.array([3.0]))
    jc.simulate.rollout(ARGS[0].replace(params=other), STATE, CONTROLS + 1.0, stepper=stepper, dt=2 * DT)
    assert len(traced) == once > 0


@pytest.mark.long
def test_a_trajectory_is_saved_and_loaded(tmp_path):
    found = jc.simulate.rollout(*ARGS, CONTROLS, stepper=STEPPER, dt=DT)
    found.save(tmp_path / "run.npz")
    chex.assert_trees_all_equal(jc.simulate.Trajectory.load(tmp_path / "run.npz"), found)


def test_wrong_arguments_are_named():
    with pytest.raises(
        TypeError, match="stepper: expected a Stepper with init, closed, step, got 'compliant'"
    ):
        jc.simulate.rollout(*ARGS, CONTROLS, stepper="compliant", dt=DT)
    with pytest.raises(ValueError, match=r"controls: expected shape \(T, 3\), got \(6, 2\)"):
        jc.simulate.rollout(*ARGS, CONTROLS[:, :2], stepper=STEPPER, dt=DT)
    with pytest.raises(ValueError, match="num_steps: expected an integer >= 1"):
        jc.simulate.rollout(*ARGS, push, stepper=STEPPER, dt=DT)
    with pytest.raises(ValueError, match="duration: expected a finite number > 0, got -1"):
        jc.simulate.MotionSettings(stepper=STEPPER, dt=DT, duration=-1)
    with pytest.raises(ValueError, match=r"controls: expected shape \(2, 3\), got \(6, 3\)"):
        jc.simulate.run(
            *ARGS, jc.simulate.MotionSettings(stepper=STEPPER, dt=DT, duration=0.02, controls=CONTROLS)
        )
    with pytest.raises(TypeError, match="memory: expected"):
        jc.simulate.rollout(
            *ARGS, jc.simulate.Inputs(push, memory="gain"), num_steps=2, stepper=STEPPER, dt=DT
        )
