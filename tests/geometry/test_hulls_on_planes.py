"""A hull of many corners on a half-space: nine contacts at most, the deepest corner among them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.geometry.hulls import MANY_CORNERS, touch_half_space
from jaxcontact.geometry.manifold import CONTACTS

UP = jnp.array([0.0, 0.0, 1.0])
touch = jax.jit(touch_half_space)


def sole(corners=60):
    """A flat round sole of 0.1 m at z = 0 under a smaller rim 0.05 m above."""
    angles = 2 * np.pi * np.arange(corners) / corners
    ring = np.stack([np.cos(angles), np.sin(angles), np.zeros(corners)], axis=1)
    return jnp.asarray(np.concatenate([0.1 * ring, 0.05 * ring + [0.0, 0.0, 0.05]]))


def rotations(count):
    rng = np.random.default_rng(0)
    return np.linalg.qr(rng.normal(size=(count, 3, 3)))[0]


def test_the_deepest_gap_is_that_of_all_corners():
    """Over random turns, against every corner; contacts without meaning lie above the hull."""
    vertices = jnp.asarray(np.random.default_rng(1).normal(size=(MANY_CORNERS + 20, 3)))
    position, offset = jnp.array([0.3, -0.2, 0.7]), jnp.array(0.1)
    for turn in rotations(50):
        point, on_plane, gap, normal = touch(vertices, position, jnp.asarray(turn), UP, offset)
        corners = np.asarray(position) + np.asarray(vertices) @ turn.T
        heights = corners[:, 2] - 0.1
        np.testing.assert_allclose(np.min(gap), np.min(heights), atol=1e-14)
        counts = np.asarray(gap) < np.max(heights) + 1e-9
        assert 1 <= np.sum(counts) <= CONTACTS
        nearest = np.min(np.linalg.norm(np.asarray(point)[:, None] - corners[None], axis=2), axis=1)
        np.testing.assert_allclose(nearest, 0.0, atol=1e-12)
        np.testing.assert_allclose(
            np.asarray(point - on_plane)[counts, 2], np.asarray(gap)[counts], atol=1e-14
        )


@pytest.mark.parametrize("tilt", [0.0, 1e-12, 1e-3])
def test_a_flat_sole_rests_on_eight_corners_that_surround_its_middle(tilt):
    """Sixty corners touch; eight of these count, spread around, each once, in pairs about the middle."""
    c, s = np.cos(tilt), np.sin(tilt)
    turn = jnp.array([[c, 0.0, s], [0.0, 1.0, 0.0], [-s, 0.0, c]])
    point, _, gap, _ = touch(sole(), jnp.zeros(3), turn, UP, jnp.array(0.0))
    near = np.asarray(gap) <= 0.11 * abs(np.sin(tilt)) + 1e-9
    assert np.sum(near) == 8
    np.testing.assert_allclose(gap.min(), -0.1 * s, atol=1e-12)
    middle = np.mean(np.asarray(point)[near, :2], axis=0)
    np.testing.assert_allclose(middle, 0.0, atol=3e-3)  # the next corner is 6 degrees on
    angles = np.sort(np.arctan2(*np.asarray(point)[near, 1::-1].T))
    assert np.max(np.diff(np.append(angles, angles[0] + 2 * np.pi))) < 1.25
    assert len(np.unique(np.round(np.asarray(point)[near], 9), axis=0)) == np.sum(near)


def test_the_rate_of_a_gap_is_that_of_its_corner():
    vertices = sole()
    turn = jnp.asarray(rotations(1)[0])
    lift = lambda height: touch_half_space(vertices, height * UP, turn, UP, jnp.array(0.0))[2]  # noqa: E731
    gap, rate = jax.jit(lambda height: jax.jvp(lift, (height,), (1.0,)))(0.2)
    counts = np.asarray(gap) < 0.4
    np.testing.assert_allclose(np.asarray(rate)[counts], 1.0, atol=1e-14)
