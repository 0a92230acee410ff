"""The integrator: exactness, order, re-arming, located entry, status and bad input."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.ess_systems import BALL, CORNER, HOPPER, HOPPER_PARAMS, TIGHT, corner_params
from scipy.linalg import expm
from scipy.optimize import brentq

import jaxcontact as jc
from jaxcontact.ess import DormandPrince, EventSystem, flow, integrate
from jaxcontact.ess.plan import first_least
from jaxcontact.models.affine_3d import AFFINE_3D

ROOT = Path(__file__).parents[2]
FINE = jc.ess.Settings(eps=1e-5, ode=DormandPrince(rtol=1e-10, atol=1e-11), max_steps=2048)


def exact_affine(x0, t1, fields, normals, m):
    """Piecewise affine flow by matrix exponentials and root finding, one guard crossed at a time.

    fields(mask) -> (A, b); guards are normals @ x, all of them crossed once.
    """
    x, t, crossed, order = np.asarray(x0, float), 0.0, np.zeros(m, bool), []

    def advance(x, A, b, s):
        n = len(x)
        block = np.zeros((n + 1, n + 1))
        block[:n, :n], block[:n, n] = A * s, b * s
        return (expm(block) @ np.append(x, 1.0))[:n]

    while True:
        A, b = fields(crossed)
        times = np.full(m, np.inf)
        for k in np.flatnonzero(~crossed):
            grid = np.linspace(0.0, t1 - t, 200)
            values = [normals[k] @ advance(x, A, b, s) for s in grid]
            rises = [i for i in range(199) if values[i] < 0 <= values[i + 1]]
            if rises:
                i = rises[0]
                times[k] = brentq(
                    lambda s: normals[k] @ advance(x, A, b, s), grid[i], grid[i + 1], xtol=1e-15, rtol=1e-14
                )
        k = int(np.argmin(times))
        if not np.isfinite(times[k]):
            return advance(x, A, b, t1 - t), order
        x, t = advance(x, A, b, times[k]), t + times[k]
        crossed[k] = True
        order.append(k)


@pytest.fixture(scope="module")
def table_1():
    """The model, its exact end by matrix exponentials, and flows over a range of eps."""
    model = jc.models.affine_3d()
    p = {k: np.asarray(v) for k, v in model.params.items()}

    def fields(crossed):
        piece = int(crossed[0]) + 2 * int(crossed[1])
        x, y, z = p["x_rate"][piece], p["y_rate"][piece], p["z_rate"][int(crossed[2])]
        A = np.array([[x[0], x[1], 0], [y[0], y[1], 0], [0, 0, z[0]]])
        return A, np.array([x[2], y[2], z[1]])

    end, order = exact_affine(model.initial_state(), 0.5, fields, np.diag([1.0, 1.0, -1.0]), 3)
    widths = jnp.logspace(-6, -2, 17)
    run = jax.jit(
        jax.vmap(
            lambda e: flow(model, model.initial_state(), 0.0, 0.5, settings=jc.ess.Settings(eps=e, ode=TIGHT))
        )
    )
    ends, info = run(widths)
    return np.asarray(widths), np.sqrt(np.mean((np.asarray(ends) - end) ** 2, axis=1)), order, info


@pytest.mark.slow
def test_the_affine_system_of_table_1_converges_with_order_three(table_1):
    widths, error, order, info = table_1
    assert np.all(np.asarray(info.status) == 0)
    assert np.all(np.asarray(info.order)[:, :3] == order) and order == [1, 2, 0]
    fitted = (widths >= 0.99e-4) & (widths <= 1.01e-2)
    slope = np.polyfit(np.log(widths[fitted]), np.log(error[fitted]), 1)[0]
    assert 2.98 <= slope <= 3.02
    # No flat tail: the error falls with eps^3 down to the tolerance of the smooth steps, and stays there.
    ratio = error / widths**3
    assert np.all(np.abs(ratio[widths > 1.5e-4] / ratio[-1] - 1.0) < 0.05)
    assert np.all(error[widths < 3e-5] < 5e-13)


@pytest.mark.slow
def test_a_band_thinner_than_any_step_is_not_jumped_over():
    model = jc.models.affine_3d()
    loose = DormandPrince(dt=0.1)
    x1, info = flow(model, model.initial_state(), 0.0, 0.5, settings=jc.ess.Settings(eps=1e-9, ode=loose))
    tight, _ = flow(model, model.initial_state(), 0.0, 0.5, settings=jc.ess.Settings(eps=1e-9, ode=TIGHT))
    assert int(info.status) == 0 and int(info.num_events) == 3 and int(info.num_iters) <= 14
    assert np.abs(x1 - tight).max() < 1e-4


@pytest.mark.slow_cases("4-6")
@pytest.mark.float32
@pytest.mark.parametrize(("n", "m"), [pytest.param(2, 2, marks=pytest.mark.slow), (4, 6)])
def test_piecewise_constant_fields_are_integrated_exactly(rng, tolerance, n, m):
    params = corner_params(rng, n, m)
    params["offsets"] = 0.3 * rng.random(m)
    x = rng.uniform(-0.4, -0.2, n)
    t, crossed = 0.0, np.zeros(m, bool)
    end = x.copy()
    while True:  # by hand: from plane to plane
        f = params["b"] + np.where(crossed, 1.0, -1.0) @ params["b_k"]
        wait = np.where(
            crossed, np.inf, -(params["normals"] @ end - params["offsets"]) / (params["normals"] @ f)
        )
        k = int(np.argmin(wait))
        if t + wait[k] > 1.0:
            end = end + (1.0 - t) * f
            break
        end, t = end + wait[k] * f, t + wait[k]
        crossed[k] = True
    assert crossed.all()
    numbers = jax.tree.map(jnp.asarray, params)
    for eps in (0.2, 1e-3):
        x1, info = flow(
            jc.Model(system=CORNER, params=numbers),
            jnp.asarray(x),
            0.0,
            1.0,
            settings=jc.ess.Settings(eps=eps),
        )
        assert int(info.status) == 0 and int(info.num_events) == m
        assert np.abs(np.asarray(x1) - end).max() <= tolerance(2e-15, 1e-6)


def hopper_exact(t1, k=200.0, m=1.0, g=9.81, z0=2.0):
    """Height and speed of the undamped hopper at t1, dropped at rest from z0, rest length 1."""
    w, fall = np.sqrt(k / m), np.sqrt(2 * (z0 - 1.0) / g)
    v = -g * fall
    shift, amplitude = 1.0 - m * g / k, np.hypot(m * g / k, v / w)
    # z = shift + A cos(w s + phase) from touch-down to lift-off
    phase = np.arctan2(-v / w, m * g / k)
    stance = (2 * np.pi - 2 * phase) / w
    period = 2 * fall + stance
    s = t1 % period
    if s < fall:
        return np.array([z0 - 0.5 * g * s**2, -g * s])
    s -= fall
    if s < stance:
        return np.array([shift + amplitude * np.cos(w * s + phase), -amplitude * w * np.sin(w * s + phase)])
    s -= stance
    return np.array([1.0 - v * s - 0.5 * g * s**2, -v - g * s])


@pytest.mark.long
def test_the_hopper_hops_as_in_closed_form():
    x0 = jnp.array([2.0, 0.0])
    trajectory = integrate(
        jc.Model(system=HOPPER, params=HOPPER_PARAMS),
        x0,
        0.0,
        12.0,
        settings=FINE,
    )
    assert int(trajectory.status) == 0
    count = int(trajectory.num_events)
    assert count == 21 and np.array_equal(trajectory.order[:count], np.arange(count) % 2)
    rows = int(trajectory.num_rows)
    exact = np.array([hopper_exact(t) for t in np.asarray(trajectory.t[:rows])])
    assert np.abs(np.asarray(trajectory.x[:rows]) - exact).max() < 2e-6
    assert trajectory.crossed.shape == (2049, 2) and np.all(trajectory.t[rows:] == 12.0)
    at = np.asarray(trajectory.event_rows[:count])
    assert np.abs(np.asarray(trajectory.x)[at, 0] - 1.0).max() < 1e-9


@pytest.mark.long
def test_flow_is_the_end_of_integrate():
    arguments = (jc.Model(system=HOPPER, params=HOPPER_PARAMS), jnp.array([2.0, 0.0]), 0.0, 12.0)
    x1, info = flow(*arguments, settings=FINE)
    trajectory = integrate(*arguments, settings=FINE)
    assert np.array_equal(x1, trajectory.x[-1])
    assert np.array_equal(info.order, trajectory.order)
    at = np.asarray(trajectory.event_rows[: int(info.num_events)])
    assert np.array_equal(info.event_times[: len(at)], trajectory.t[at])
    # Chained pieces, one starting in the middle of a stance, one at a touch-down.
    for middle in (float(info.event_times[4]) + 0.05, float(info.event_times[6])):
        half, first = flow(*arguments[:3], middle, settings=FINE)
        whole, second = flow(
            arguments[0],
            half,
            middle,
            12.0,
            settings=FINE,
            crossed0=first.crossed,
        )
        assert int(second.status) == 0 and np.abs(whole - x1).max() < 1e-6
        assert int(first.num_events) + int(second.num_events) == 21


@pytest.mark.slow
def test_events_and_steps_are_bounded_and_say_so():
    arguments = (jc.Model(system=HOPPER, params=HOPPER_PARAMS), jnp.array([2.0, 0.0]), 0.0, 12.0)
    _, info = flow(*arguments, settings=FINE.replace(max_events=5))
    assert int(info.status) == int(jc.Status.UNTERMINATED) and int(info.num_events) == 5
    trajectory = integrate(*arguments, settings=jc.ess.Settings(eps=1e-5, ode=TIGHT, max_steps=40))
    assert int(trajectory.status) == int(jc.Status.MAX_ITERS)
    assert float(trajectory.t[-1]) < 12.0


def test_a_ball_bounces_with_self_re_arming_until_zeno():
    params = {"g": 9.81, "e": jnp.array(0.5)}
    run = jax.jit(
        lambda t1: flow(
            jc.Model(system=BALL, params=params),
            jnp.array([1.0, 0.0]),
            0.0,
            t1,
            settings=jc.ess.Settings(eps=1e-6, max_steps=512),
        )
    )
    x1, info = run(1.0)
    fall = np.sqrt(2 / 9.81)
    v = 0.5 * 9.81 * fall
    s = 1.0 - fall - v / 4.905
    assert int(info.status) == 0 and int(info.num_events) == 2
    assert np.abs(np.asarray(x1) - [v / 2 * s - 0.5 * 9.81 * s**2, v / 2 - 9.81 * s]).max() < 1e-7
    # Bounces accumulate at the fall times 1 + 2 e / (1 - e): there it stops, and says why.
    x1, info = run(6.0)
    # The last bounces are lower than the band, which is noted as well.
    assert int(info.status) & ~int(jc.Status.WIDE_BAND) == int(jc.Status.ZENO | jc.Status.STALLED)
    last = float(info.event_times[int(info.num_events) - 1])
    assert abs(last - 3.0 * fall) < 1e-5 and np.abs(np.asarray(x1)).max() < 1e-6


def bursting_field(t, x, signs, control, params):
    return jnp.stack([x[0] ** 2, jnp.ones_like(x[1])])


def second_guard(x, params):
    return x[1:] - 0.5


def test_a_field_that_needs_ever_smaller_steps_stalls():
    es = EventSystem(bursting_field, second_guard)
    x1, info = flow(
        jc.Model(system=es, params=None), jnp.array([1.0, 0.0]), 0.0, 2.0, settings=jc.ess.Settings(eps=1e-3)
    )  # 1 / (1 - t)
    assert int(info.status) == int(jc.Status.STALLED) and int(info.num_events) == 1
    assert np.all(np.isfinite(x1)) and abs(float(x1[1]) - 1.0) < 1e-6


LANES = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxcontact as jc
model = jc.models.plate_on_springs(2)
events = jc.ess.from_system(model)
settings = jc.ess.Settings(eps=1e-2, ode=jc.ess.DormandPrince(rtol=1e-4, atol=1e-4), max_steps=24, max_events=4)
def end(x):
    x1, info = jc.ess.flow(events, x, 0.0, 0.55, settings=settings)
    return jnp.sum(x1), info.status
def rate(x):
    dx, info = jc.ess.b_derivative(events, x, jnp.ones(6), 0.0, 0.55, settings=settings)
    return jnp.sum(dx), info.status
function = {"flow": end, "grad": lambda x: jax.grad(end, has_aux=True)(x), "b_derivative": rate}["WHAT"]
starts = jnp.tile(events.initial_state(), (8192, 1)).at[:, 1].add(jnp.linspace(0.0, 0.3, 8192))
value, status = jax.jit(jax.vmap(function))(starts)
print(int((status == 0).sum()), bool(np.isfinite(value).all()))
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["flow", "grad", "b_derivative"])
def test_eight_thousand_lanes_do_not_hang(what):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", LANES.replace("WHAT", what)], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=400, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["8192", "True"]


def oscillator_field(t, x, signs, control, params):
    return jnp.stack([x[1], -x[0]])


def oscillator_guards(x, params):
    return x[:1] - params


OSCILLATOR = EventSystem(oscillator_field, oscillator_guards)


def test_grazing_names_its_guard():
    x0 = jnp.array([0.0, 1.0])
    for height, crossings, grazes in ((0.5, 1, False), (1.0 + 5e-4, 0, True), (1.1, 0, False)):
        _, info = flow(
            jc.Model(system=OSCILLATOR, params=jnp.array(height)),
            x0,
            0.0,
            3.0,
            settings=jc.ess.Settings(eps=1e-3, ode=TIGHT),
        )
        assert int(info.num_events) == crossings
        assert int(info.status) == (int(jc.Status.GRAZING) if grazes else 0)
        assert int(info.grazed) == (0 if grazes else -1)


def sliding_field(t, x, signs, control, params):
    return jnp.stack([-signs[0]])


def first_guard(x, params):
    return x[:1]


def test_a_reversed_crossing_grazes():
    es = EventSystem(sliding_field, first_guard)
    _, info = flow(
        jc.Model(system=es, params=None), jnp.array([-0.5]), 0.0, 1.0, settings=jc.ess.Settings(eps=1e-3)
    )
    assert int(info.status) == int(jc.Status.GRAZING) and int(info.grazed) == 0


def nan_field(t, x, signs, control, params):
    return jnp.where(x > 0.1, jnp.nan, 1.0)


def test_bad_numbers_never_come_back_as_success():
    es = EventSystem(nan_field, first_guard)
    _, info = flow(
        jc.Model(system=es, params=None), jnp.array([-0.5]), 0.0, 1.0, settings=jc.ess.Settings(eps=1e-3)
    )
    assert int(info.status) & int(jc.Status.NONFINITE)
    with pytest.raises(ValueError, match="x0: expected finite"):
        flow(
            jc.Model(system=es, params=None),
            jnp.array([jnp.nan]),
            0.0,
            1.0,
            settings=jc.ess.Settings(eps=1e-3),
        )
    run = jax.jit(
        lambda x, t1, eps: (
            flow(jc.Model(system=es, params=None), x, 0.0, t1, settings=jc.ess.Settings(eps=eps))[1].status
        )
    )
    assert int(run(jnp.array([jnp.nan]), 1.0, 1e-3)) & int(jc.Status.NONFINITE)
    assert int(run(jnp.array([-0.5]), -1.0, 1e-3)) & int(jc.Status.INVALID)
    assert int(run(jnp.array([-0.5]), 0.1, -1e-3)) & int(jc.Status.INVALID)
    assert int(run(jnp.array([0.0]), 0.1, 1e-3)) & int(jc.Status.INVALID)  # on its guard


def test_named_errors():
    x0, model = jnp.array([2.0, 0.0]), jc.Model(system=HOPPER, params=HOPPER_PARAMS)
    cases = [
        (ValueError, "t1: expected finite t1 >= t0", (model, x0, 1.0, 0.5), {}),
        (ValueError, "t1: expected finite t1 >= t0", (model, x0, 0.0, np.inf), {}),
        (ValueError, "eps: expected one number or shape", (model, x0, 0.0, 0.5), {"eps": jnp.ones(3)}),
        (ValueError, "eps: expected a finite number > 0", (model, x0, 0.0, 0.5), {"eps": 0.0}),
        (ValueError, "eps: expected finite numbers", (model, x0, 0.0, 0.5), {"eps": np.inf}),
        (ValueError, "x0: expected shape", (model, x0[None], 0.0, 0.5), {}),
        (TypeError, "x0: expected an array, got list", (model, [2.0, 0.0], 0.0, 0.5), {}),
        (ValueError, "field: expected", (model, jnp.ones(3), 0.0, 0.5), {}),
        (TypeError, "model: expected a Model of an EventSystem", (jc.models.hopper_1d(), x0, 0.0, 0.5), {}),
        (TypeError, "crossed0: expected booleans", (model, x0, 0.0, 0.5), {"crossed0": jnp.zeros(2)}),
        (ValueError, "crossed0: guard 1", (model, x0, 0.0, 0.5), {"crossed0": jnp.zeros(2, bool)}),
        (ValueError, "x0: guard 0 is zero there", (model, jnp.array([1.0, -1.0]), 0.0, 0.5), {}),
        (ValueError, "max_events", (model, x0, 0.0, 0.5), {"max_events": 0}),
    ]
    for kind, message, arguments, options in cases:
        with pytest.raises(kind, match=message):
            mask = {"crossed0": options.pop("crossed0")} if "crossed0" in options else {}
            flow(*arguments, settings=jc.ess.Settings(**({"eps": 1e-3} | options)), **mask)
    for rearm, message in (([[True]], "re-arm itself"), ([[0]], "booleans"), ([True], "square")):
        with pytest.raises(ValueError, match=message):
            EventSystem(sliding_field, first_guard, rearm=rearm)
    with pytest.raises(ValueError, match="rearm: expected shape"):
        es = EventSystem(sliding_field, first_guard, rearm=np.zeros((2, 2), bool))
        flow(
            jc.Model(system=es, params=None), jnp.array([-0.5]), 0.0, 1.0, settings=jc.ess.Settings(eps=1e-3)
        )
    with pytest.raises(TypeError, match="guards: expected a function"):
        EventSystem(sliding_field, None)


def test_a_start_inside_a_band_is_legal():
    x0 = jnp.array([1.0, -4.0])  # exactly at touch-down
    flight, info = flow(
        jc.Model(system=HOPPER, params=HOPPER_PARAMS),
        x0,
        0.0,
        0.3,
        settings=jc.ess.Settings(eps=1e-3, ode=TIGHT),
        crossed0=jnp.array([False, True]),
    )
    stance, after = flow(
        jc.Model(system=HOPPER, params=HOPPER_PARAMS),
        x0,
        0.0,
        0.3,
        settings=jc.ess.Settings(eps=1e-3, ode=TIGHT),
        crossed0=jnp.array([True, False]),
    )
    assert int(info.status) == int(after.status) == 0
    assert int(info.num_events) == int(after.num_events) + 1
    assert np.abs(flight - stance).max() < 1e-12


@pytest.mark.slow
def test_one_program_for_equal_systems_and_a_loop_agrees_with_vmap():
    again = EventSystem(AFFINE_3D.field, AFFINE_3D.guards)
    assert again == AFFINE_3D and hash(again) == hash(AFFINE_3D)
    traced = 0
    model = jc.models.affine_3d()

    @jax.jit
    def run(x):
        nonlocal traced
        traced += 1
        return flow(
            jc.Model(system=again, params=model.params),
            x,
            0.0,
            0.5,
            settings=jc.ess.Settings(eps=1e-3, max_steps=128),
        )

    starts = np.asarray(model.initial_state()) + 0.01 * np.asarray(
        np.random.default_rng(0).normal(size=(2000, 3))
    )
    starts = jnp.asarray(starts)
    many, info = jax.vmap(run)(starts)
    assert np.all(np.asarray(info.status) == 0) and np.all(np.asarray(info.num_events) == 3)
    one, two = run(starts[3])[0], run(starts[77])[0]
    assert traced == 1
    assert np.abs(one - many[3]).max() < 1e-13 and np.abs(two - many[77]).max() < 1e-13


@pytest.mark.slow
def test_bands_may_differ_and_steps_may_be_fixed():
    model = jc.models.affine_3d()
    arguments = (model, model.initial_state(), 0.0, 0.5)
    tight, _ = flow(*arguments, settings=jc.ess.Settings(eps=1e-8, ode=TIGHT))
    same, _ = flow(*arguments, settings=jc.ess.Settings(eps=jnp.full(3, 1e-3), ode=TIGHT))
    one, _ = flow(*arguments, settings=jc.ess.Settings(eps=1e-3, ode=TIGHT))
    assert np.array_equal(same, one)
    # Only the guard of z is coarse: its step has all of the error.
    wide, narrow = (
        np.abs(
            flow(*arguments, settings=jc.ess.Settings(eps=jnp.array([1e-8, 1e-8, e]), ode=TIGHT))[0] - tight
        ).max()
        for e in (1e-2, 5e-3)
    )
    assert 7.8 < wide / narrow < 8.2
    error = []
    for dt in (0.02, 0.01):
        x1, info = flow(*arguments, settings=jc.ess.Settings(eps=1e-8, ode=DormandPrince(dt=dt)))
        assert int(info.status) == 0 and int(info.num_iters) <= 0.5 / dt + 8
        error.append(np.abs(x1 - tight).max())
    assert error[1] < 0.1 * error[0] < 1e-6


@pytest.mark.parametrize("m", [7, 33, 200])
def test_the_first_of_equal_waits_is_taken(rng, m):
    waits = np.where(rng.random((200, m)) < 0.3, np.inf, rng.integers(-2, 3, (200, m)).astype(float))
    waits[0] = np.inf
    found = jax.jit(jax.vmap(first_least))(jnp.asarray(waits))
    assert np.array_equal(found, np.argmin(waits, axis=1))
