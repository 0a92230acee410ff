"""Gaps of all pairs of convex solids, and their derivatives, against the judge by support functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers.pair_poses import nearly_round_in_mesh, poses, shape_of, tilted
from oracles.pair_judge import judge, rates

from jaxcontact import geometry

PAIRS = [
    "mesh-cylinder", "ellipsoid-mesh", "cylinder-ellipsoid", "ellipsoid-ellipsoid", "cylinder-cylinder", "mesh-mesh",
    "mesh-capsule", "mesh-box", "ellipsoid-box", "cylinder-box", "box-box", "capsule-ellipsoid", "capsule-cylinder",
    "capsule-box", "capsule-capsule", "sphere-sphere", "sphere-capsule", "sphere-ellipsoid", "sphere-cylinder", "sphere-box",
]  # fmt: skip


def nearest_contacts(kinds, drawn, dtype=float):
    """Gaps (n,), normals (n, 3) and points (n, 2, 3) of the nearest contacts."""
    shapes = {name: shape_of(kind, name) for name, kind in zip("ab", kinds)}

    def contact(positions, turns, numbers):
        found = geometry.candidates(3, ("a", "b"), shapes, (("a", "b"),), positions, turns, numbers)
        k = jnp.argmin(found.phi)
        return found.phi[k], found.normal[k], jnp.stack([found.point[k], found.point_b[k]])

    numbers = {key: np.stack([pose.numbers[key] for pose in drawn]) for key in drawn[0].numbers}
    world = np.stack([pose.positions for pose in drawn]), np.stack([pose.turns for pose in drawn]), numbers
    args = jax.tree.map(lambda x: jnp.asarray(x, dtype), world)
    return jax.tree.map(
        np.asarray, jax.jit(lambda args: jax.lax.map(lambda x: contact(*x), args, batch_size=250))(args)
    )


def check(name, count, seed, deep_share):
    """Compare a pair; of the deep poses `deep_share` may miss the depth, where another direction is as good by 1 %."""
    kinds, rng = name.split("-"), np.random.default_rng(seed)
    drawn = [pose for start in range(0, count, 50) for pose in poses(kinds, min(50, count - start), rng)]
    compare(drawn, *nearest_contacts(kinds, drawn), deep_share)


def compare(drawn, gaps, normals, points, deep_share=0.0):
    """Compare contacts of poses with the judge, who tries the directions of the contacts among others."""
    verdicts = [
        v
        for start in range(0, len(drawn), 50)
        for v in judge([pose.placed() for pose in drawn[start : start + 50]], normals[start : start + 50])
    ]
    small, large = np.array([pose.small for pose in drawn]), np.array([pose.large for pose in drawn])
    right = np.array([verdict.gap for verdict in verdicts])
    is_unique = np.array([verdict.is_unique for verdict in verdicts])
    is_deep = right < -0.1 * small
    assert all(np.all(np.isfinite(x)) for x in (gaps, normals, points))
    error = np.abs(gaps - right) / small
    assert not np.any((error > 1e-7) & ~is_deep), np.flatnonzero((error > 1e-7) & ~is_deep)
    missed = (error > 1e-5) & is_deep
    assert np.mean(missed) <= deep_share and not np.any(missed & is_unique), np.flatnonzero(missed)
    for k in np.flatnonzero(is_unique & ~missed):
        right_rates = rates(verdicts[k], drawn[k].positions)
        arms = np.cross(points[k] - drawn[k].positions, normals[k]) / large[k]
        found = np.concatenate([normals[k], arms[0], -normals[k], -arms[1]])
        scale = np.array([1.0, large[k], 1.0, large[k]]).repeat(3)
        # Where flat faces lean by 1e-10 rad, rounding moves the nearest corner of a rim by 1e-6 of the size.
        assert not np.any(np.abs(found - right_rates / scale) > 1e-5), (k, found - right_rates / scale)


@pytest.mark.long
@pytest.mark.parametrize(("name", "count", "seed"), [("mesh-cylinder", 400, 1), ("ellipsoid-mesh", 400, 1)])
def test_curved_bodies_in_meshes(name, count, seed):
    check(name, count, seed, deep_share=0.0)


@pytest.mark.long
@pytest.mark.parametrize("name", ["capsule-capsule", "sphere-box", "sphere-ellipsoid"])
def test_bodies_of_a_few_micrometres(name):
    kinds = name.split("-")
    drawn = [pose.scaled(2e-6 / pose.small) for pose in poses(kinds, 200, np.random.default_rng(1))]
    compare(drawn, *nearest_contacts(kinds, drawn))


@pytest.mark.long
def test_balls_near_the_middle_plane_of_flat_ellipsoids():
    """Both sides are all but as near there, and the multiplier of the nearest point is all but at its pole."""
    rng, kinds = np.random.default_rng(1), ("sphere", "ellipsoid")
    drawn = poses(kinds, 200, rng)
    for k, pose in enumerate(drawn):
        axes = pose.numbers["b_axes"]
        thin = np.argmin(axes)
        # Of this size is the region whose points are as near to both sides.
        within = (axes - axes[thin]) * (axes + axes[thin]) / axes
        place = rng.normal(size=3) * (axes > axes[thin])
        place *= within * rng.random() / np.linalg.norm(place)
        place[thin] = axes[thin] * 10.0 ** rng.uniform(-16.0, -12.0)
        drawn[k] = pose.moved(pose.positions[1] + pose.turns[1] @ place - pose.positions[0])
    compare(drawn, *nearest_contacts(kinds, drawn))


@pytest.mark.long
def test_rims_that_lean_by_a_hair():
    """The lowest point of a rim lies between the corners that the region of contact has there."""
    rng = np.random.default_rng(1)
    drawn = [tilted("cylinder", "box", 10.0 ** rng.uniform(-9.0, -7.0), rng) for _ in range(100)]
    compare(drawn, *nearest_contacts(("cylinder", "box"), drawn))


@pytest.mark.long
def test_nearly_round_bodies_deep_in_meshes():
    """The depth is that of a face of the mesh, and many are all but as deep; the first seeds are hard ones."""
    seeds = [1037, 1154, 1384, 1971, 2042, 2252, 2881, 2949, 3638, 3686, 4005, 4016, 4878, 5823, *range(100)]
    drawn = [nearly_round_in_mesh(np.random.default_rng(seed)) for seed in seeds]
    compare(drawn, *nearest_contacts(("ellipsoid", "mesh"), drawn))


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_ten_thousand_poses(name):
    check(name, 10_000, 2, deep_share=1e-3)


@pytest.mark.long
def test_single_precision_has_no_side_wrong():
    """A direction that degenerates is no direction: its gap would be near zero at any depth."""
    rng = np.random.default_rng(1)
    drawn = [pose for _ in range(20) for pose in poses(("mesh", "cylinder"), 50, rng)]
    right = np.array([verdict.gap for verdict in judge([pose.placed() for pose in drawn])])
    gaps, normals, _ = nearest_contacts(("mesh", "cylinder"), drawn, np.float32)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1.0, atol=1e-5)
    assert np.max(np.abs(gaps - right) / np.array([pose.large for pose in drawn])) < 1e-3


@pytest.mark.long
def test_a_capsule_deep_in_a_cylinder_of_its_direction_has_finite_contacts():
    """Their axes differ by 4e-8 rad: two sides of a triangle between them are parallel to all digits."""
    shapes = {name: shape_of(kind, name) for kind, name in (("capsule", "a"), ("cylinder", "b"))}
    positions = jnp.array(
        [
            [-0.02252552429100444, -0.9617257996701961, -0.6619192228837518],
            [-0.02625103798039177, -1.0103422956050647, -0.68272090978508],
        ]
    )
    turns = jnp.array(
        [
            [
                [0.48162576242913707, 0.8735545694363497, 0.07027829808288008],
                [-0.37568391528019923, 0.1333477486414927, 0.9171041237133247],
                [0.7917690450909863, -0.468103398993341, 0.3924041119644244],
            ],
            [
                [0.48162575346526904, 0.8735545754050705, 0.07027828532255703],
                [-0.3756839098986505, 0.13334775419231737, 0.9171041251107357],
                [0.7917690530970976, -0.4681033862735156, 0.3924041109838088],
            ],
        ]
    )
    half = 0.26093936415991786
    numbers = {
        "a_radius": 0.004637903437054813, "a_ends": jnp.array([[0.0, 0.0, -half], [0.0, 0.0, half]]),
        "b_radius": 0.25309402255412533, "b_half": 0.3943426905525761,
    }  # fmt: skip
    found = geometry.candidates(3, ("a", "b"), shapes, (("a", "b"),), positions, turns, numbers)
    np.testing.assert_allclose(jnp.min(found.phi), -0.25773192599118017, rtol=1e-9)
    assert np.all(np.isfinite(found.point)) and np.all(np.isfinite(found.point_b))
