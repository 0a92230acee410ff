"""The feedback policy of the trot of `benchmarks/trot.py`: its geometry, its symmetry and its derivative."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytest.importorskip("mujoco")

import jaxcontact as jc
from benchmarks import trot

RIGHT_TO_LEFT = np.array([1, 0, 3, 2])  # FR, FL, RR, RL
SIDES = np.array([-1.0, 1.0, 1.0])  # hip, thigh and knee of a leg in a mirror


def posture(seed):
    rng = np.random.default_rng(seed)
    turn = np.concatenate([[1.0], 0.1 * rng.normal(size=3)])
    legs = np.tile([0.0, 0.9, -1.8], 4) + 0.1 * rng.normal(size=12)
    q = np.concatenate([0.1 * rng.normal(size=3), turn / np.linalg.norm(turn), legs])
    return q, 0.3 * rng.normal(size=18)


def in_mirror(q, v):
    """The posture seen in a mirror along x and z: an axial vector keeps its part across the mirror alone."""

    def legs(x):
        return (x.reshape(4, 3)[RIGHT_TO_LEFT] * SIDES).ravel()

    place, turn = q[:3] * [1, -1, 1], q[3:7] * [1, -1, 1, -1]
    rates = v[:3] * [1, -1, 1], v[3:6] * [-1, 1, -1]
    return np.concatenate([place, turn, legs(q[7:])]), np.concatenate([*rates, legs(v[6:])])


def foot(side, hip, thigh, knee):
    """A foot from its hip, by rotations about x and y."""

    def about_y(angle, p):
        c, s = np.cos(angle), np.sin(angle)
        return np.array([c * p[0] + s * p[2], p[1], c * p[2] - s * p[0]])

    shank = np.array([0.0, 0.0, -trot.SHANK])
    x, y, z = about_y(thigh, shank + about_y(knee, shank)) + [0.0, side * trot.HIP[2], 0.0]
    return np.array([x, np.cos(hip) * y - np.sin(hip) * z, np.sin(hip) * y + np.cos(hip) * z])


def test_feet_come_where_they_are_asked():
    rng = np.random.default_rng(0)
    x, z = 0.1 * rng.normal(size=4), -0.25 + 0.03 * rng.normal(size=4)
    y = trot.LEFT * trot.HIP[2] + 0.05 * rng.normal(size=4)
    angles = trot.joints(np, x, y, z).reshape(4, 3)
    found = [foot(side, *leg) for side, leg in zip(trot.LEFT, angles, strict=True)]
    np.testing.assert_allclose(found, np.stack([x, y, z], axis=1), atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_mirrored_robot_is_controlled_half_a_stride_later(seed):
    q, v = posture(seed)
    for t in (0.03, 0.13, 0.31):
        there = trot.control(np, trot.START, 0.5, t, q, v)
        mirrored = trot.control(np, trot.START, 0.5, t + trot.START[0] / 2, *in_mirror(q, v))
        expected = (there.reshape(4, 3)[RIGHT_TO_LEFT] * SIDES).ravel()
        np.testing.assert_allclose(mirrored, expected, atol=1e-12)


@pytest.mark.long
def test_the_policy_of_numpy_is_that_of_jax_and_has_its_derivative():
    q, v = posture(2)

    def control(numbers):
        return trot.control(jnp, numbers, 0.5, 0.27, jnp.asarray(q), jnp.asarray(v))

    np.testing.assert_allclose(control(trot.START), trot.control(np, trot.START, 0.5, 0.27, q, v), atol=1e-14)
    slopes = jax.jacfwd(control)(jnp.asarray(trot.START))
    for column, step in enumerate(1e-5 * np.diag(trot.SCALE)):
        ends = [trot.control(np, trot.START + s * step, 0.5, 0.27, q, v) for s in (1, -1)]
        difference = (ends[0] - ends[1]) / (2 * step[column])
        np.testing.assert_allclose(slopes[:, column], difference, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_the_gradient_of_a_short_motion(monkeypatch):
    monkeypatch.setattr(trot, "STEPS", 40)
    try:
        _, model = trot.load()
    except ImportError as missing:
        pytest.skip(str(missing))
    run, q = trot.run_strides(model, 1, 1), trot.stance()

    def value(numbers):
        return trot.cost(run(numbers, 0.5, q, np.zeros(18), 0.2, 7)[0], 0.5)

    steps = 1e-5 * np.diag(trot.SCALE)
    slope = jc.simd(jax.grad(value), nan=False)(trot.START[None])[0]
    found = jc.simd(value, nan=False)(trot.START + np.concatenate([steps, -steps]))
    difference = (found[: len(steps)] - found[len(steps) :]) / 2e-5
    np.testing.assert_allclose(slope * trot.SCALE, difference, rtol=1e-4, atol=1e-5)
    assert np.all(slope[:4] != 0.0)
