"""Reverse gradients through 200 steps of robots that come down, against central differences."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc

pytest.importorskip("mujoco")
ROUNDING = 1e-8  # of differences of a value near one over 2 STEP
STEP = 1e-5


def go1():
    """Unitree's go1 of the package playground, standing; a step sees its feet alone."""
    from helpers import package_robots

    mj = package_robots.compiled(package_robots.WHOLE["playground go1"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", jc.io.mjcf.IgnoredOptionWarning)
        return jc.load_mjcf(mj, keyframe="home")


def landing(model, steps, dt):
    """(numbers, outcome): a robot falls on its feet; it starts above the floor and moves on."""
    system, tree = model.system, model.params.tree
    weight = 9.81 * float(jnp.sum(model.params.mass))
    soft = model.params.material.replace(stiffness=jnp.array(weight / 5e-3), damping=jnp.array(weight / 5e-1))
    start = model.initial_state().replace(v=model.initial_state().v.at[0].set(0.4))
    height = 1 if system.structure.dim == 2 else 2
    start = start.replace(q=start.q.at[height].add(0.05), v=start.v.at[height].set(-0.5))
    last = len(system.structure.bodies) - 1

    def outcome(numbers):
        position = tree.position.at[last].multiply(1.0 + numbers["length"])
        params = model.params.replace(
            mass=model.params.mass.at[0].multiply(1.0 + numbers["mass"]),
            mu=model.params.mu * (1.0 + numbers["friction"]),
            material=soft,
            tree=tree.replace(position=position),
        )
        states, info = jc.compliant.rollout(model.replace(params=params), start, numbers["controls"], dt=dt)
        gaps = info.gap[:, -system.structure.num_contacts :]
        shown = {"status": info.status, "closed": gaps < 0, "lam": info.lam}
        return states.q[-1, 0] + 0.1 * states.q[-1, height] + 0.01 * jnp.sum(states.v[-1]), shown

    controls = jnp.zeros((steps, system.num_controls))
    if system.num_controls == 12:  # servos that hold a dog's legs
        controls = jnp.tile(model.initial_state().q[7:], (steps, 1))
    zero = jnp.array(0.0)
    return {"mass": zero, "length": zero, "friction": zero, "controls": controls}, outcome


def check(name, steps, dt, rtol):
    model = go1() if name == "go1" else getattr(jc.models, name)()
    numbers, outcome = landing(model, steps, dt)
    both = jax.jit(jax.value_and_grad(outcome, has_aux=True))  # one program for the differences, too
    (_, shown), gradient = both(numbers)
    assert not np.any(shown["status"])
    assert not np.any(shown["closed"][0])
    assert np.any(shown["closed"][-1])
    rng = np.random.default_rng(3)
    for what, value in numbers.items():
        direction = jnp.asarray(rng.normal(size=value.shape)) if value.ndim else jnp.array(1.0)
        sides = [both({**numbers, what: value + h * direction})[0] for h in (-STEP, STEP)]
        (low, before), (high, after) = sides
        np.testing.assert_array_equal(before["closed"], after["closed"], err_msg=f"{what}: another mode")
        difference = float(high - low) / (2.0 * STEP)
        found = float(jnp.sum(gradient[what] * direction))
        print(name, what, found, difference)
        assert abs(found - difference) <= rtol * abs(difference) + ROUNDING, what


@pytest.mark.slow
def test_a_hopper_touches_down():
    check("hopper", 20, 6e-3, 3e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["half_cheetah", "quadruped", "go1"])
def test_two_hundred_steps(name):
    check(name, 200, 2e-3, 1e-5)
