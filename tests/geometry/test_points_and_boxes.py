"""The distance of a point to a box, against its corners' box coordinates and against any other polytope's way."""

import jax
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.geometry.polytopes import place_polytopes, signed_distance, topology

COUNT = 400


def poses(rng, dim, thickness):
    """Boxes of many sizes, half of them so thin, turned and moved, and points around or on them, by axis."""
    half = 10.0 ** rng.uniform(-2, 1, size=(COUNT, dim))
    half[::2, 0] = thickness
    turn = np.linalg.qr(rng.normal(size=(COUNT, dim, dim)))[0]
    origin = rng.normal(size=(COUNT, dim)) * 10.0 ** rng.uniform(-2, 1.5, size=(COUNT, 1))
    local = half * rng.uniform(-1.6, 1.6, size=(COUNT, dim))
    on_features = rng.random((COUNT, dim)) < 0.2
    local = np.where(on_features, half * rng.choice([-1.0, 0.0, 1.0], size=(COUNT, dim)), local)
    return half, turn, origin, local


def distances(kind, half, turn, origin, points):
    shape = jc.Box(name="box", body="body", size="size")

    def one(half, turn, origin, point):
        solid = place_polytopes(len(point), (shape,), origin[None], turn[None], {"size": 2.0 * half})
        return signed_distance(jax.tree.map(lambda column: column[0], solid), kind, point)

    return [np.asarray(x) for x in jax.jit(jax.vmap(one))(half, turn, origin, points)]


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("thickness", [0.3, 1e-7, 0.0])
def test_the_nearest_point_is_that_of_box_coordinates(rng, dim, thickness):
    """The way by edges misses it by 1e-8 of the size on a plate of 0.1 um."""
    half, turn, origin, local = poses(rng, dim, thickness)
    points = origin + np.einsum("nij,nj->ni", turn, local)
    kind = topology(dim, jc.Box(name="box", body="body", size="size"))
    gap, normal, foot = distances(kind, half, turn, origin, points)
    size = np.max(np.abs(half), axis=1) + np.max(np.abs(origin), axis=1)
    beyond = np.abs(local) - half
    nearest = np.clip(local, -half, half)
    outside = np.max(beyond, axis=1) > 1e-9 * size
    expected = np.where(outside, np.linalg.norm(local - nearest, axis=1), np.max(beyond, axis=1))
    assert np.max(np.abs(gap - expected) / size) < 1e-14
    found = np.einsum("nij,ni->nj", turn, foot - origin)
    assert np.max(np.abs(found - nearest)[outside] / size[outside, None]) < 1e-14
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(points - foot, gap[:, None] * normal, atol=1e-14 * np.max(size))


def test_gap_normal_and_foot_are_those_of_a_polytope_in_general(rng):
    """Inside and outside, over faces, edges and corners."""
    half, turn, origin, local = poses(rng, 3, 0.05)
    points = origin + np.einsum("nij,nj->ni", turn, local)
    box = topology(3, jc.Box(name="box", body="body", size="size"))
    assert box.is_box
    found = distances(box, half, turn, origin, points)
    general = distances(box._replace(is_box=False), half, turn, origin, points)
    for a, b in zip(found, general, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-9)
