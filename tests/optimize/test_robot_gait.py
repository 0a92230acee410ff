"""Gaits of planar robots from files: legs, guesses, pieces that join, and a stride of a hopper."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks.robot_files import FOLDER, path_of
from benchmarks.robot_gaits import load
from jaxcontact.models.robots import file_of
from jaxcontact.optimize import stride_guess
from jaxcontact.terms import contact_terms


@pytest.fixture(scope="module")
def hopper():
    return jc.load_mjcf(file_of("hopper"), planar=True, contacts="world")


@pytest.fixture(scope="module")
def walker():
    return jc.load_mjcf(file_of("planar_walker"), planar=True, contacts="world")


def test_equal_legs_are_a_pair_and_others_are_not(hopper, walker):
    pair, single = stride_guess.find_legs(walker), stride_guess.find_legs(hopper)
    assert single.mirror is None and [c.size for c in single.contacts] == [2]
    np.testing.assert_array_equal(pair.mirror, [0, 1, 2, 6, 7, 8, 3, 4, 5])
    assert stride_guess.plan_stances(pair, 4).stands.tolist() == [[True, False]] * 4
    assert stride_guess.plan_stances(single, 4).stands.tolist() == [[True], [True], [False], [False]]


def test_the_file_of_ramone_is_the_robot_of_the_package():
    """Its mass matrix, and places of the feet; pitch turns the other way in a file."""
    ramone, own = load("ramone"), jc.models.ramone()
    state = own.initial_state()
    turn = np.array([1, 1, -1, 1, 1, 1, 1])
    q = turn * np.asarray(state.q) - np.array(
        [0, 0.6043, 0, 0, 0, 0, 0]
    )  # the height of the trunk in the file
    terms = jc.contact_terms(ramone, ramone.initial_state().replace(q=jnp.asarray(q)))
    expected = jc.contact_terms(own, state)
    np.testing.assert_allclose(turn[:, None] * np.asarray(terms.M) * turn, expected.M, atol=1e-14)
    np.testing.assert_allclose(terms.phi, expected.phi, atol=1e-12)
    np.testing.assert_allclose(np.asarray(terms.J_n) * turn, expected.J_n, atol=1e-12)


@pytest.mark.slow
def test_ramone_of_a_file_walks():
    """Periodic, within its motors' ranges and the friction of its feet."""
    _, info = jc.optimize.robot_gait(load("ramone"), speed=0.5, duration=0.25)
    assert int(info.status) in (0, int(jc.Status.MAX_ITERS)) and info.is_mirrored
    assert info.periodicity < 1e-8 and info.speed == pytest.approx(0.5, abs=1e-8)
    assert info.largest_control <= 1.0 and info.friction <= 1.0 + 1e-9


@pytest.mark.long
def test_feet_of_a_guess_stand_where_they_should(hopper):
    legs = stride_guess.find_legs(hopper)
    guess = stride_guess.guess_stride(hopper, legs, stride_guess.plan_stances(legs, 12), 0.5, 0.5, 0.4)
    state = hopper.initial_state()
    gaps = np.stack([contact_terms(hopper, state.replace(q=jnp.asarray(q))).phi for q in guess.q])
    feet = gaps[:, legs.contacts[0]]
    assert np.all(np.abs(feet[:7]) < 0.01)  # stands
    assert np.all(feet[8:12].min(axis=1) > 0.02)  # swings
    assert guess.q[-1, 0] - guess.q[0, 0] == pytest.approx(0.25)
    low, high = stride_guess.joint_bounds(hopper)
    assert np.all((low <= guess.q) & (guess.q <= high))


def test_what_is_no_planar_robot_is_named(hopper):
    for model in (jc.models.hopper(), jc.models.compass_gait(), jc.models.ramone()):
        with pytest.raises(
            ValueError, match="model: expected the material of a file.* jc.optimize.gait takes"
        ):
            jc.optimize.robot_gait(model, speed=0.5)
    with pytest.raises(ValueError, match="model: expected a planar robot"):
        jc.optimize.robot_gait(jc.load_mjcf(file_of("ant"), contacts="world"), speed=0.5)
    with pytest.raises(ValueError, match="speed"):
        jc.optimize.robot_gait(hopper, speed=0.0)


@pytest.mark.slow
def test_a_search_that_is_killed_in_two_of_its_phases_ends_at_the_same_bits(hopper, tmp_path):
    """Three guesses, none of which leads to a gait in so few steps; another search's file is refused."""
    path, reports = tmp_path / "gait.npz", []
    settings = {"speed": 0.5, "num_pieces": 4, "num_steps": 2}
    stride, info = jc.optimize.robot_gait(hopper, **settings)

    def kill(step, total, at):
        reports.append((step, total, at.phase))
        assert np.all(np.isfinite(at[:3]))
        if (step, at.phase) in ((2, "gait, guess 1"), (23, "plan, guess 3")) and reports.count(
            reports[-1]
        ) == 1:
            raise KeyboardInterrupt

    run = jc.Run(checkpoint=path, progress=kill)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            jc.optimize.robot_gait(hopper, **settings, run=run)
    resumed, again = jc.optimize.robot_gait(hopper, **settings, run=run)
    for name in ("q", "v", "controls", "duration"):
        np.testing.assert_array_equal(getattr(resumed, name), getattr(stride, name))
    for name in set(vars(info)) - {"seconds"}:
        np.testing.assert_array_equal(getattr(again, name), getattr(info, name), err_msg=name)
    assert len(set(reports)) == len(reports) and (40, 40, "plan, guess 2") in reports
    heavier = hopper.replace(params=hopper.params.replace(mass=1.01 * hopper.params.mass))
    for model, changes, names in (
        (heavier, {}, "model, step"), (hopper, {"speed": 0.6}, r"speed \(0.5 there, 0.6 now\)"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"these differ: {names}$"):
            jc.optimize.robot_gait(model, **settings | changes, run=run)


def step_through(model, stride, info):
    """Simulate a stride by XLA's program of the same steps."""
    controls = jnp.repeat(stride.controls, 8, axis=0)
    start = model.initial_state().replace(q=stride.q[0], v=stride.v[0])
    states, steps = jax.jit(lambda at, u: jc.compliant.rollout(model, at, u, dt=info.dt))(start, controls)
    assert np.all(np.asarray(steps.status) == 0)
    return states, steps


@pytest.mark.slow
def test_a_hopper_of_a_file_hops_periodically_within_its_limits():
    path = path_of("gymnasium", "gymnasium/envs/mujoco/assets/hopper.xml", FOLDER)
    if path is None:
        pytest.skip("gymnasium of tests/robot_packages.txt is not unpacked")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file names an integrator
        hopper = jc.load_mjcf(path, planar=True, contacts="world")
    stride, info = jc.optimize.robot_gait(hopper, speed=0.5, duration=0.54, num_steps=80)
    assert int(info.status) in (0, int(jc.Status.MAX_ITERS))
    assert info.periodicity <= 1e-8 and info.speed == pytest.approx(0.5, abs=1e-8)
    assert info.largest_control <= 1.0 and info.friction <= 1.0 + 1e-9
    # XLA's program of the same steps, which shares no machine code with the search, ends as the stride begins.
    states, steps = step_through(hopper, stride, info)
    way = np.eye(6)[0] * 0.5 * float(stride.duration)
    np.testing.assert_allclose(states.q[-1], stride.q[0] + way, atol=1e-7)
    np.testing.assert_allclose(states.v[-1], stride.v[0], atol=1e-6)
    airborne = np.asarray(steps.lam[:, -2 * hopper.structure.num_contacts :: 2]).max(axis=1) == 0
    assert 0.05 < np.mean(airborne) < 0.9
