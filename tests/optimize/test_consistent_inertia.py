"""Inertias of ten numbers are those of bodies, and bodies have their numbers."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.optimize import inertia_numbers, inertia_of, inertias_of_bodies, with_inertias

ARM = """<mujoco><worldbody><body name="arm"><joint type="hinge" axis="0 1 0"/>
    <geom type="capsule" size=".02" fromto="0 0 0 .3 .02 0" mass="1.5"/><body name="hand" pos=".3 0 0">
    <joint type="hinge" axis="0 .3 1"/><inertial pos="{pos}" mass="{mass}" fullinertia="{inertia}"/>
    <geom type="sphere" size=".03" pos=".1 0 0" mass="0"/></body></body></worldbody></mujoco>"""
HAND = {"pos": "0.1 0 0.02", "mass": "0.7", "inertia": "0.002 0.003 0.004 0.0002 0.0003 -0.0001"}


def test_every_ten_numbers_are_a_body(rng):
    for numbers in rng.normal(size=(200, 10)):
        mass, _, inertia = inertia_of(numbers)
        moments = np.linalg.eigvalsh(inertia)
        assert mass > 0 and moments[0] > 0
        assert moments[2] <= moments[0] + moments[1]


def test_points_with_mass_have_the_numbers_of_their_sums(rng):
    """Mass, centre and inertia by sums over 30 points; the numbers lead back to them."""
    masses, places = rng.uniform(0.1, 1.0, 30), rng.normal(size=(30, 3))
    mass = masses.sum()
    com = masses @ places / mass
    off = places - com
    inertia = sum(m * (o @ o * np.eye(3) - np.outer(o, o)) for m, o in zip(masses, off, strict=True))
    found = inertia_of(inertia_numbers(mass, com, inertia))
    for value, expected in zip(found, (mass, com, inertia), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-12)


def test_an_inertia_of_no_body_has_no_numbers():
    assert np.any(np.isnan(inertia_numbers(1.0, np.zeros(3), np.diag([1.0, 1.0, 2.5]))))


def test_the_derivative_is_that_of_differences(rng):
    numbers, direction = rng.normal(size=(2, 10))
    rate = jax.jvp(lambda n: inertia_of(n)[2], (numbers,), (direction,))[1]
    h = 1e-6
    low, high = (inertia_of(numbers + sign * h * direction)[2] for sign in (-1, 1))
    np.testing.assert_allclose(rate, (np.asarray(high) - low) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.float32
def test_numbers_of_another_count_are_named():
    with pytest.raises(ValueError, match="numbers"):
        inertia_of(np.zeros(9))


def test_a_robot_with_other_inertias_has_the_equations_of_motion_of_mujocos(rng):
    model = jc.load_mjcf(ARM.format(**HAND))
    numbers = inertias_of_bodies(model, ["hand"])
    changed = {"hand": numbers["hand"] + 0.2 * rng.normal(size=10)}
    mass, com, inertia = (np.asarray(value) for value in inertia_of(changed["hand"]))
    six = [inertia[place] for place in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    others = {"mass": repr(float(mass))}
    others |= {name: " ".join(map(repr, map(float, row))) for name, row in (("pos", com), ("inertia", six))}
    mj = mujoco.MjModel.from_xml_string(ARM.format(**others))
    data, expected = mujoco.MjData(mj), np.zeros((2, 2))
    data.qpos[:], data.qvel[:] = q, v = rng.normal(size=(2, 2))
    mujoco.mj_forward(mj, data)
    for i in range(2):
        mujoco.mj_mulM(mj, data, expected[i], np.eye(2)[i])
    found = with_inertias(model, changed)
    state = model.initial_state().replace(q=jnp.asarray(q), v=jnp.asarray(v))
    np.testing.assert_allclose(jc.mass_matrix(found, state.q), expected, rtol=1e-10)
    np.testing.assert_allclose(jc.bias(found, state), data.qfrc_bias, rtol=1e-9)
    again = inertias_of_bodies(with_inertias(model, numbers), ["hand"])
    np.testing.assert_allclose(again["hand"], numbers["hand"], rtol=1e-9)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"foot": np.zeros(10)}, "expected names of bodies, arm, hand"),
        ({"hand": np.zeros(9)}, "shape \\(10,\\)"),
    ],
)
def test_other_bodies_and_shapes_are_named(numbers, message):
    with pytest.raises(ValueError, match=message):
        with_inertias(jc.load_mjcf(ARM.format(**HAND)), numbers)


def test_inertias_are_those_of_a_robot_in_space():
    with pytest.raises(ValueError, match="model: expected a robot in space"):
        inertias_of_bodies(jc.models.rocking_block(), ["block"])
