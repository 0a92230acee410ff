"""Dormand & Prince's step: orders of step, interpolant and error estimate, derivative, control of sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.solvers import ode


def pendulum(t, x):
    return jnp.stack([x[1], -jnp.sin(x[0]) + 0.1 * jnp.cos(t)])


@jax.jit
def trial(h):
    x = jnp.array([1.0, 0.3])
    return ode.step(pendulum, jnp.zeros(()), x, h, pendulum(0.0, x))


@pytest.fixture(scope="module")
def fine():
    """States at 0.4 and at three fifths of it, by two thousand small steps."""

    @jax.jit
    def run(t1):
        def body(i, x):
            t = i * t1 / 2000
            return ode.step(pendulum, t, x, t1 / 2000, pendulum(t, x)).x1

        return jax.lax.fori_loop(0, 2000, body, jnp.array([1.0, 0.3]))

    return run


def test_order_of_step_interpolant_and_error(fine):
    sizes = np.array([0.4, 0.2, 0.1])
    end, middle, estimate = [], [], []
    for h in sizes:
        step = trial(h)
        end.append(np.abs(step.x1 - fine(h)).max())
        middle.append(np.abs(ode.interpolate(step, 0.6) - fine(0.6 * h)).max())
        estimate.append(float(ode.error_ratio(step, ode.DormandPrince(rtol=0.0, atol=1.0))))

    def slope(e):
        return np.polyfit(np.log(sizes), np.log(e), 1)[0]

    assert 5.7 < slope(end) < 6.8  # local error of order five
    assert 4.6 < slope(middle) < 5.6
    assert 4.6 < slope(estimate) < 5.6
    assert np.abs(ode.interpolate(trial(0.3), 0.0) - jnp.array([1.0, 0.3])).max() == 0
    assert np.abs(ode.interpolate(trial(0.3), 1.0) - trial(0.3).x1).max() < 1e-15


def test_quartics_are_exact():
    step = ode.step(lambda t, x: x * 0 + 5 * t**4, jnp.zeros(()), jnp.zeros(1), 2.0, jnp.zeros(1))
    assert abs(float(step.x1[0]) - 32.0) < 1e-13


def test_sizes():
    assert float(ode.next_size(1.0, 0.0)) == ode.GROW
    assert abs(float(ode.next_size(1.0, 1.0)) - ode.SAFETY) < 1e-12
    assert float(ode.next_size(1.0, jnp.nan)) == ode.SHRINK
    assert float(ode.next_size(1.0, 1e30)) == ode.SHRINK


@pytest.mark.long
def test_derivative_by_start_and_length():
    def run(x, h):
        return ode.step(pendulum, jnp.zeros(()), x, h, pendulum(0.0, x)).x1

    x, d = jnp.array([1.0, 0.3]), 1e-6
    by_x = jax.jacrev(run)(x, 0.3)
    for i in range(2):
        estimate = (run(x.at[i].add(d), 0.3) - run(x.at[i].add(-d), 0.3)) / (2 * d)
        assert np.abs(by_x[:, i] - estimate).max() < 1e-9
    by_h = jax.jacfwd(run, argnums=1)(x, 0.3)
    assert np.abs(by_h - pendulum(0.3, run(x, 0.3))).max() < 1e-4
