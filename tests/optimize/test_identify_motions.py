"""Shared parameters and starts of motions are found together, and wrong ends are named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.algebra.rotations import quaternion_exp, quaternion_product

TIMES = jnp.linspace(0.0, 1.0, 21)
NOISE = 1e-2


def heights(gravity, height, speed):
    return height + speed * TIMES - 0.5 * gravity * TIMES**2


def fall(params, own, data):
    """Residuals of balls thrown from unknown heights with unknown speeds."""
    predicted = jax.vmap(heights, (None, 0, 0))(params["gravity"], own[:, 0], own[:, 1])
    return (predicted - data) / NOISE


def thrown(rng, count=12):
    starts = rng.normal(size=(count, 2))
    exact = jax.vmap(heights, (None, 0, 0))(9.81, starts[:, 0], starts[:, 1])
    return starts, exact + NOISE * rng.normal(size=exact.shape)


def test_a_linear_problem_is_solved_as_by_least_squares(rng):
    starts, data = thrown(rng)
    params, own, info = jc.optimize.identify_motions(
        fall, {"gravity": 1.0}, jnp.zeros((12, 2)), data, search=jc.optimize.SearchSettings(tol=1e-9)
    )
    basis = np.zeros((12, 21, 25))
    basis[..., 0] = -0.5 * np.asarray(TIMES) ** 2
    for i in range(12):
        basis[i, :, 1 + 2 * i], basis[i, :, 2 + 2 * i] = 1.0, TIMES
    flat = basis.reshape(-1, 25)
    expected, square, *_ = np.linalg.lstsq(flat, np.asarray(data).ravel(), rcond=None)
    assert info.status == 0
    assert params["gravity"] == pytest.approx(expected[0], rel=1e-6)
    np.testing.assert_allclose(np.asarray(own).ravel(), expected[1:], atol=1e-5)
    assert info.misfit == pytest.approx(square[0] / NOISE**2 / (flat.shape[0] - 25), rel=1e-5)
    assert info.lower["gravity"] < 9.81 < info.upper["gravity"]
    spread = NOISE * np.sqrt(np.linalg.inv(flat.T @ flat)[0, 0])
    assert np.sqrt(info.covariance[0, 0]) == pytest.approx(spread, rel=0.5)  # of twelve motions


def swing(params, own, data):
    return (own * jnp.sin(params["rate"] * TIMES)[None] - data) / NOISE


def test_a_wrong_minimum_is_named_and_another_start_leaves_it(rng):
    data = jnp.asarray(np.sin(7.0 * np.asarray(TIMES)) + NOISE * rng.normal(size=(4, 21)))
    per_motion0 = jnp.ones((4, 1))
    _, _, alone = jc.optimize.identify_motions(swing, {"rate": 17.0}, per_motion0, data)
    assert alone.status & int(jc.Status.INACCURATE) and alone.misfit > 2
    params, _, info = jc.optimize.identify_motions(
        swing,
        {"rate": 17.0},
        per_motion0,
        data,
        search=jc.optimize.SearchSettings(starts={"rate": jnp.array([2.0, 6.0, 25.0])}),
    )
    assert info.status == 0 and params["rate"] == pytest.approx(7.0, abs=0.05)
    assert info.ends.shape == (4, 1) and info.misfits.shape == info.statuses.shape == (4,)
    assert info.misfits[0] == pytest.approx(alone.misfit)


def test_the_motion_at_a_wrong_minimum_is_told_from_the_others(rng):
    """Phases of waves; the third is guessed where the wave fades, and runs off."""

    def waves(params, own, data):
        return (params["size"] * jnp.sin(7.0 * TIMES[None] + own) * jnp.exp(-(own**2)) - data) / NOISE

    data = jnp.asarray(np.sin(7.0 * np.asarray(TIMES)) + NOISE * rng.normal(size=(4, 21)))
    guesses = jnp.zeros((4, 1)).at[2].set(2.5)
    _, _, info = jc.optimize.identify_motions(waves, {"size": 1.0}, guesses, data)
    assert info.motion_misfits.shape == (4,) and info.motion_misfits[2] > 100
    assert np.all(np.delete(info.motion_misfits, 2) < 3) and info.status & int(jc.Status.INACCURATE)


def test_a_minimum_at_a_kink_has_its_status():
    """(a - 1/2)^2 + (|a - 1| + 1)^2 has its minimum at the kink a = 1."""

    def bent(params, own, data):
        a = params["a"]
        shared = jnp.stack([a - 0.5, jnp.abs(a - 1.0) + 1.0])
        return jnp.concatenate([jnp.broadcast_to(shared, (len(own), 2)), own - data], axis=1)

    params, _, info = jc.optimize.identify_motions(
        bent,
        {"a": 3.0},
        jnp.zeros((5, 1)),
        jnp.ones((5, 1)),
        search=jc.optimize.SearchSettings(largest=100.0),
    )
    assert params["a"] == pytest.approx(1.0, abs=1e-3)
    assert info.status & int(jc.Status.KINK) and not jc.Status.failed(info.status)


def test_a_bound_holds(rng):
    _, data = thrown(rng)
    params, _, info = jc.optimize.identify_motions(
        fall, {"gravity": 5.0}, jnp.zeros((12, 2)), data, bounds={"gravity": (1.0, 9.0)}
    )
    assert params["gravity"] == 9.0 and list(info.at_bound) == [True] and info.covariance[0, 0] == 0.0
    assert info.status == int(jc.Status.INACCURATE)


@pytest.mark.parametrize(
    "change, words",
    [
        ({"per_motion0": jnp.zeros((0, 2))}, "per_motion0: expected"),
        ({"per_motion0": jnp.zeros(12)}, "per_motion0: expected shapes that residuals take"),
        ({"data": jnp.full((12, 21), jnp.nan)}, "data|residuals: expected finite"),
        (
            {"search": jc.optimize.SearchSettings(starts={"gravity": jnp.ones((2, 2))})},
            "starts: expected",
        ),
        ({"bounds": {"gravity": (2.0, 3.0)}}, "bounds: expected"),
    ],
)
def test_bad_input_is_named(rng, change, words):
    given = {"params0": {"gravity": 1.0}, "per_motion0": jnp.zeros((12, 2)), "data": thrown(rng)[1]} | change
    with pytest.raises(ValueError, match=words):
        jc.optimize.identify_motions(fall, **given)


def test_residuals_that_are_no_function():
    with pytest.raises(TypeError, match="residuals: expected a function"):
        jc.optimize.identify_motions(3.0, {"a": 1.0}, np.ones((1, 1)), np.ones(2))


@pytest.mark.long
def test_residuals_of_a_pose_are_its_noise(rng):
    """Displacements and rotation vectors over their noise, for quaternions of either sign."""
    poses = rng.normal(size=(50, 7))
    poses[:, 3:] /= np.linalg.norm(poses[:, 3:], axis=1, keepdims=True)
    noise = rng.normal(size=(50, 6))
    turned = jax.vmap(quaternion_product)(poses[:, 3:], jax.vmap(quaternion_exp)(0.02 * noise[:, 3:]))
    predicted = jnp.concatenate([poses[:, :3] + 1e-3 * noise[:, :3], -turned], axis=1)
    residuals = jc.optimize.pose_residuals(predicted, poses, position_noise=1e-3, angle_noise=0.02)
    np.testing.assert_allclose(residuals, noise, atol=1e-8)
    score = jc.optimize.pose_score(predicted, poses, position_noise=1e-3, angle_noise=0.02)
    np.testing.assert_allclose(score, 0.5 * np.sum(noise**2, axis=1), rtol=1e-8)
    slope = jax.jacfwd(jc.optimize.pose_score)(poses[0], poses[0], position_noise=1e-3, angle_noise=0.02)
    np.testing.assert_allclose(slope, 0.0, atol=1e-10)


@pytest.mark.parametrize("name", ["position_noise", "angle_noise"])
def test_noise_that_is_not_positive_is_named(name):
    noise = {"position_noise": 1.0, "angle_noise": 1.0} | {name: 0.0}
    with pytest.raises(ValueError, match=name):
        jc.optimize.pose_score(jnp.ones(7), jnp.ones(7), **noise)
