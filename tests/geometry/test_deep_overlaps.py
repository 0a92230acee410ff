"""The signed distance of cores that overlap deeply, against the best of many directions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra import rotations
from jaxcontact.geometry.nearest import nearest_points
from jaxcontact.geometry.support import Couple

SIGNS = np.array([[k >> axis & 1 for axis in range(3)] for k in range(8)]) - 0.5
AXIS = np.array([[0.0, 0.0, -0.5], [0.0, 0.0, 0.5]])[[0, 1, 1, 1, 1, 1, 1, 1]]
CORES = {  # vertices, semi-axes
    "capsule": (0.6 * AXIS, np.zeros(3)),
    "cylinder": (0.3 * AXIS, np.array([0.2, 0.2, 0.0])),
    "ellipsoid": (np.zeros((8, 3)), np.array([0.1, 0.2, 0.35])),
    "box": (np.array([0.2, 0.4, 0.6]) * SIGNS, np.zeros(3)),
}
NEAREST = jax.jit(jax.vmap(nearest_points))


def pose(name, position, rotation):
    vertices, semi_axes = CORES[name]
    return position + vertices @ rotation.T, rotation * semi_axes


def turn(quaternion):
    return np.array(rotations.quaternion_matrix(jnp.asarray(quaternion / np.linalg.norm(quaternion))))


def couple(a, b):
    return Couple(*(jnp.asarray(x) for x in (a[0], b[0], np.stack([a[1], b[1]]))))


def gap_along(directions, a, b):
    """Compute the gaps of the projections, which are at most the signed distance."""
    gap = np.min(directions @ a[0].T, axis=-1) - np.max(directions @ b[0].T, axis=-1)
    return gap - np.linalg.norm(directions @ a[1], axis=-1) - np.linalg.norm(directions @ b[1], axis=-1)


@pytest.mark.slow_cases("capsule-cylinder")
@pytest.mark.long
@pytest.mark.parametrize(
    "pair",
    ["capsule-cylinder", "capsule-ellipsoid", "cylinder-cylinder", "cylinder-ellipsoid", "box-cylinder"],
)
def test_no_direction_separates_deep_bodies_more(pair):
    """Poses are at random, with axes alike, almost alike, perpendicular, and with a centre on the other's axis."""
    names, rng = pair.split("-"), np.random.default_rng(11)
    poses = []
    for k in range(60):
        first, second = turn(rng.normal(size=4)), turn(rng.normal(size=4))
        at = rng.choice([0.0, 0.01, 0.05], size=2)[:, None] * rng.normal(size=(2, 3))
        if k % 5 < 3:
            tilt = 10.0 ** rng.uniform(-9.0, -1.0) * rng.normal(size=3)
            second = first @ turn(np.append(1.0, ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0], tilt)[k % 5]))
        elif k % 5 == 3:
            at[1] = at[0] + rng.uniform(-0.3, 0.3) * first[:, 2]
        poses.append((pose(names[0], at[0], first), pose(names[1], at[1], second)))
    nearest = NEAREST(jax.tree.map(lambda *leaves: jnp.stack(leaves), *(couple(*both) for both in poses)))
    normals, gaps = np.asarray(nearest.normal), np.asarray(nearest.gap)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0, rtol=0, atol=1e-9)
    for both, normal, gap in zip(poses, normals, gaps, strict=True):
        np.testing.assert_allclose(gap_along(normal, *both), gap, rtol=0, atol=1e-9)
        frames = np.concatenate(
            [both[0][1].T, both[1][1].T, np.diff(both[0][0], axis=0), np.diff(both[1][0], axis=0)]
        )
        crossed = np.cross(frames[:, None], frames[None]).reshape(-1, 3)
        directions = np.concatenate([frames, crossed, rng.normal(size=(2000, 3))])
        directions = np.concatenate([directions, -directions])
        lengths = np.linalg.norm(directions, axis=1, keepdims=True)
        directions = (directions / np.where(lengths > 0.0, lengths, 1.0))[lengths[:, 0] > 1e-12]
        assert gap > np.max(gap_along(directions, *both)) - 1e-9


@pytest.mark.slow
def test_bodies_with_common_axes_have_closed_forms():
    """A box and a cylinder, concentric: out by the thin side. A capsule along a cylinder: out by the radius."""
    upright, centre = np.eye(3), np.zeros(3)
    tilted = turn(np.array([1.0, 2e-6, 0.0, 0.0]))
    cases = [
        (couple(pose("box", centre, upright), pose("cylinder", centre, upright)), -0.3),
        (couple(pose("capsule", centre, upright), pose("cylinder", centre, tilted)), -0.2),
        (couple(pose("capsule", centre, turn(np.array([1.0, 0.4, 0.0, 0.0]))), pose("cylinder", centre, upright)), -0.2),
    ]  # fmt: skip
    for case, gap in cases:
        found = NEAREST(jax.tree.map(lambda x: x[None], case))
        np.testing.assert_allclose(found.gap, gap, rtol=0, atol=1e-6)
