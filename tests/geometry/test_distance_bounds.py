"""Bounds of distances by projections: spheres in closed form, other shapes against many points of their surface."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxcontact as jc
from jaxcontact.geometry.distance_bounds import distance_bounds

NUMBERS = {
    "r": 0.2, "size": np.array([0.4, 0.6, 0.3]), "ends": np.array([[0.0, 0.0, -0.3], [0.1, 0.0, 0.4]]), "h": 0.25,
    "axes": np.array([0.1, 0.3, 0.5]), "corners": np.array([[0, 0, 0], [0.5, 0, 0], [0, 0.4, 0], [0, 0, 0.6]]),
    "at": np.array([0.1, -0.2, 0.05]),
}  # fmt: skip
SHAPES = {
    "sphere": jc.Sphere(name="sphere", body="b", radius="r", at="at"),
    "box": jc.Box(name="box", body="b", size="size", at="at"),
    "capsule": jc.Capsule(name="capsule", body="b", radius="r", ends="ends"),
    "cylinder": jc.Cylinder(name="cylinder", body="b", radius="r", half_length="h"),
    "ellipsoid": jc.Ellipsoid(name="ellipsoid", body="b", semi_axes="axes"),
    "mesh": jc.ConvexMesh(name="mesh", body="b", vertices="corners", count=4),
}
OTHER = jc.Sphere(name="other", body="a", radius="r")


def surface(kind, rng):
    """Many points (n, 3) of a shape in its body, its corners among them."""
    unit = rng.normal(size=(20_000, 3))
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    if kind == "sphere":
        return NUMBERS["at"] + NUMBERS["r"] * unit
    if kind == "box":
        inside = rng.uniform(-0.5, 0.5, (20_000, 3))
        face = np.arange(20_000) % 3
        inside[np.arange(20_000), face] = np.sign(inside[np.arange(20_000), face]) / 2
        return NUMBERS["at"] + inside * NUMBERS["size"]
    if kind == "capsule":
        along = rng.uniform(size=(20_000, 1))
        return (1 - along) * NUMBERS["ends"][0] + along * NUMBERS["ends"][1] + NUMBERS["r"] * unit
    if kind == "cylinder":
        flat = unit[:, :2] / np.linalg.norm(unit[:, :2], axis=1)[:, None]
        rim = rng.choice([-1.0, 1.0], 20_000) * np.sqrt(rng.uniform(size=20_000))
        side = np.arange(20_000) % 2 == 0
        radius = np.where(side, 1.0, np.abs(rim)) * NUMBERS["r"]
        z = np.where(side, rng.uniform(-1, 1, 20_000), np.sign(rim)) * NUMBERS["h"]
        return np.column_stack([flat * radius[:, None], z])
    if kind == "ellipsoid":
        return unit * NUMBERS["axes"]
    return rng.dirichlet(np.full(4, 0.3), 20_000) @ NUMBERS["corners"]


@pytest.mark.parametrize("kind", SHAPES)
def test_a_bound_is_below_the_distance_of_a_ball_and_near_it(kind):
    """The distance of a small ball is that of its centre to points of the surface, less its radius."""
    rng = np.random.default_rng(3)
    for _ in range(10):
        turn = Rotation.random(random_state=rng).as_matrix()
        place = rng.uniform(0.9, 1.4, 3) * rng.choice([-1.0, 1.0], 3)
        points = surface(kind, rng) @ turn.T + place
        shapes = {kind: SHAPES[kind], "other": OTHER}
        (bound,) = distance_bounds(
            ("a", "b"),
            shapes,
            (("other", kind),),
            np.array([np.zeros(3), place]),
            np.array([np.eye(3), turn]),
            NUMBERS,
        )
        distance = np.linalg.norm(points, axis=1).min() - NUMBERS["r"]
        assert bound <= distance + 1e-12
        assert bound > 0.93 * distance - 0.01


def test_shapes_without_a_bound_are_never_apart():
    floor = jc.HalfSpace(name="floor", normal=(0.0, 0.0, 1.0))
    shapes = {"floor": floor, "other": OTHER}
    found = distance_bounds(
        ("a",), shapes, (("other", "floor"),), np.array([[0.0, 0.0, 9.0]]), np.eye(3)[None], NUMBERS
    )
    assert found.tolist() == [-np.inf]
