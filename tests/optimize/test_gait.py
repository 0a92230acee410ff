"""The spring-legged models against SciPy, and their gaits."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxcontact as jc
from jaxcontact import optimize
from jaxcontact.cli.main import main
from jaxcontact.optimize import gaits


@pytest.fixture(scope="module")
def stride():
    """Half a stride of the hexapod whose feet do not land together, and what it started with."""
    problem, params, free = gaits.hexapod(together=False)
    free = free | {"pitch": jnp.array(0.02), "thrust": jnp.array([8.0, 5.0, 12.0])}
    launch = problem.launch(free, params)
    x1, info = jc.ess.flow(
        jc.Model(system=problem.es, params=launch.params), launch.x0, 0.0, launch.duration,
        settings=problem.settings(), control=launch.control, crossed0=problem.starts_crossed(),
    )  # fmt: skip
    return launch, x1, info


@pytest.mark.slow
def test_hexapod_against_scipy_with_events(stride):
    launch, x1, info = stride
    p = {name: np.asarray(value) for name, value in launch.params.items()}
    thrust = np.asarray(launch.control["thrust"])
    mode, feet = np.zeros(3, int), np.zeros(3)  # 0 air before, 1 shortening, 2 lengthening, 3 air after

    def legs(x):
        arm = p["hips"][:3, None] * np.array([np.cos(x[2]), np.sin(x[2])])
        hip = x[:2] + arm
        speed = x[3:5] + x[5] * np.stack([-arm[:, 1], arm[:, 0]], -1)
        reach = np.stack([hip[:, 0] - feet, hip[:, 1]], -1)
        length = np.linalg.norm(reach, axis=1)
        return arm, hip, reach / length[:, None], length, np.sum(reach * speed, axis=1) / length

    def rhs(t, x):
        arm, _, axis, length, rate = legs(x)
        f = np.zeros(2)
        turn = power = 0.0
        for i in range(3):
            if mode[i] in (1, 2):
                push = p["stiffness"][i] * (0.2 - length[i]) + p["preload"][i]
                push += thrust[i] if mode[i] == 2 else -p["damping"][i] * rate[i]
                f += push * axis[i]
                turn += arm[i, 0] * push * axis[i, 1] - arm[i, 1] * push * axis[i, 0]
                power += thrust[i] * rate[i] if mode[i] == 2 else 0.0
        return np.concatenate([x[3:6], [f[0] / 8.0, f[1] / 8.0 - 9.81, turn / 0.17, power]])

    def event(i):
        def h(t, x):
            _, hip, _, length, rate = legs(x)
            return (0.2 * np.cos(p["angle"][i]) - hip[i, 1], rate[i], length[i] - 0.2, -1.0)[mode[i]]

        h.terminal, h.direction = True, 1
        return h

    t, x, times = 0.0, np.asarray(launch.x0)[:7], []
    while t < float(launch.duration):
        run = solve_ivp(
            rhs, (t, float(launch.duration)), x, method="DOP853", rtol=1e-12, atol=1e-13,
            events=[event(i) for i in range(3)], max_step=2e-3,
        )  # fmt: skip
        t, x = run.t[-1], run.y[:, -1]
        for i in range(3):
            if len(run.t_events[i]):
                if mode[i] == 0:
                    feet[i] = legs(x)[1][i, 0] + 0.2 * np.sin(p["angle"][i])
                mode[i] += 1
                times.append(t)
    assert int(info.status) == 0
    assert int(info.num_events) == len(times) == 9
    np.testing.assert_allclose(np.asarray(info.event_times)[:9], times, atol=1e-7)
    np.testing.assert_allclose(np.asarray(x1)[:7], x, atol=2e-7)
    # The legs of a pitched body land one after the other, the rear first.
    assert np.asarray(info.order)[:3].tolist() == [2, 1, 0]
    assert np.diff(times[:3]).min() > 1e-3


@pytest.mark.slow
def test_one_sided_derivative_at_the_landing_of_a_tripod():
    problem, params, free = gaits.hexapod(together=False)

    def outcome(z):
        cost, residuals = optimize.gait_outcome(problem, params, z, 1.0)
        return jnp.concatenate([cost[None], residuals])

    zero = jax.tree.map(
        lambda a: jnp.zeros(a.shape), free
    )  # not weakly typed: one program for all directions
    tilt = zero | {"pitch": jnp.ones(())}
    spread = zero | {"angle": jnp.array([1.0, -0.5, 0.3]), "duration": jnp.full_like(zero["duration"], 0.2)}

    @jax.jit
    def both(free, d):
        value, residuals = optimize.gait_outcome_rate(problem, params, free, d, 1.0)
        r = 1e-5
        near = jnp.stack([outcome(jax.tree.map(lambda a, b: a + s * r * b, free, d)) for s in (0.5, 1.0)])
        base = outcome(free)
        slopes = (near - base[None]) / (r * jnp.array([0.5, 1.0]))[:, None]
        return jnp.concatenate([value[None], residuals]), 2 * slopes[0] - slopes[1]

    found = {}
    for name, d in (("up", tilt), ("down", jax.tree.map(jnp.negative, tilt)), ("spread", spread)):
        exact, differences = both(free, d)
        found[name] = np.asarray(exact)
        np.testing.assert_allclose(exact, differences, atol=2e-4 * np.max(np.abs(differences)), err_msg=name)
    # Piecewise linear, not linear: the two sides of a level landing differ.
    assert np.max(np.abs(found["up"] + found["down"])) > 1e-3
    # That comes from the thrusts alone, whose guards depend on velocities; landings depend on positions.
    idle = free | {"thrust": jnp.zeros(3)}
    up, down = (np.asarray(both(idle, d)[0]) for d in (tilt, jax.tree.map(jnp.negative, tilt)))
    np.testing.assert_allclose(up + down, 0.0, atol=1e-12 * np.max(np.abs(up)))


@pytest.mark.slow
def test_gait_from_the_command_line(tmp_path, capsys, saved):
    arguments = ["gait", "hexapod", "--steps", "20", "--out", str(tmp_path), "--json"]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    summary = json.loads(captured.out)
    assert "20/20" in captured.err
    assert summary["periodicity_error"] <= 1e-8 and summary["speed_error"] <= 1e-8
    assert summary["error_before"] > 0.2
    strips = saved["hexapod_gait.png"].axes
    assert [axes.get_title().split(":")[0] for axes in strips[:2]] == ["start, no gait", "gait"]
    assert all(len(axes.patches) + len(axes.collections) for axes in strips[:2])
    for name in ("hexapod_gait.png", "hexapod_gait.gif", "hexapod_gait.json"):
        assert (tmp_path / name).exists()
    assert main(arguments) == 0  # from the checkpoint: nothing left to do
    captured = capsys.readouterr()
    assert "20/20" not in captured.err
    again = json.loads(captured.out)
    assert again["motions"] < 10
    np.testing.assert_allclose(again["cost_of_transport"], summary["cost_of_transport"], rtol=1e-6)


@pytest.mark.slow
def test_the_gait_of_a_hopper_repeats():
    from jaxcontact.cli.gait import run_strides

    problem, params, free0 = gaits.hopper()
    free, info = optimize.gait(problem, params, free0, speed=0.9, num_steps=25)
    assert info.status == 0 and info.residual <= 1e-8
    run = run_strides(problem, params, free, 2)
    assert int(run.status) == 0 and int(run.num_events) == 6
    last = int(run.num_rows) - 1
    x0, x1 = np.asarray(run.x[0]), np.asarray(run.x[last])
    np.testing.assert_allclose(x1[1:6], x0[1:6], atol=1e-6)
    np.testing.assert_allclose((x1[0] - x0[0]) / float(run.t[last]), 0.9, atol=1e-7)
