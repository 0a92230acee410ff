"""Which contacts shapes make where they rest on one another: each once, with the normal of the geometry."""

import itertools

import numpy as np
import pytest
from oracles import shape_cases as cases

from jaxcontact import geometry

UP = np.array([0.0, 0.0, 1.0])
BOX = {name: geometry.Box(name=name, body=name, size=f"{name}_size") for name in "ab"}
CAPSULE = {
    name: geometry.Capsule(name=name, body=name, radius=f"{name}_radius", ends=f"{name}_ends")
    for name in "ab"
}
CYLINDER = geometry.Cylinder(name="a", body="a", radius="a_radius", half_length="a_half")
FLOOR = geometry.HalfSpace(name="b", normal=(0.0, 0.0, 1.0))


def about_z(angle):
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


def at(a, b, offset, turn, numbers):
    """Contacts (point, phi, normal) of a at `offset` turned by `turn` above b at the origin."""
    dim = len(offset)
    positions = np.stack([np.asarray(offset, float), np.zeros(dim)])[None]
    turns = np.stack([np.asarray(turn, float), np.eye(dim)])[None]
    constants = {key: np.asarray(value, float)[None] for key, value in numbers.items()}
    point, _, phi, normal = (each[0] for each in cases.contacts(dim, a, b, positions, turns, constants))
    return point, phi, normal


CUBES = {"a_size": [0.2] * 3, "b_size": [0.2] * 3}
PLANKS = {"a_size": [0.6, 0.1, 0.1], "b_size": [0.6, 0.1, 0.1]}


@pytest.mark.long
@pytest.mark.slow_cases("aligned-0.0")
@pytest.mark.parametrize("depth", [0.0, 1e-4, 1e-9, -5e-7])
@pytest.mark.parametrize(
    ("numbers", "shift", "angle", "corners"),
    [
        (CUBES, (0, 0), 0.0, [(x, y) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]),
        (CUBES, (1e-9, -1e-9), 0.0, [(x, y) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]),
        (CUBES, (0, 0), np.pi / 2, [(x, y) for x in (-0.1, 0.1) for y in (-0.1, 0.1)]),
        (CUBES, (0.05, 0.03), 0.0, [(x, y) for x in (-0.05, 0.1) for y in (-0.07, 0.1)]),
        (CUBES, (0.1, 0.0), 0.0, [(x, y) for x in (0.0, 0.1) for y in (-0.1, 0.1)]),
        (PLANKS, (0, 0), np.pi / 2, [(x, y) for x in (-0.05, 0.05) for y in (-0.05, 0.05)]),
        (CUBES, (0, 0), np.pi / 4, None),
    ],
    ids=["aligned", "nearly", "quarter", "offset", "half", "crossed", "octagon"],
)
def test_a_box_rests_on_a_box(numbers, shift, angle, corners, depth):
    height = (numbers["a_size"][2] + numbers["b_size"][2]) / 2
    point, phi, normal = at(BOX["a"], BOX["b"], (*shift, height - depth), about_z(angle), numbers)
    active = phi <= 1e-6
    np.testing.assert_allclose(phi[active], -depth, atol=1e-12)
    np.testing.assert_allclose(normal[active], np.broadcast_to(UP, (active.sum(), 3)), atol=1e-12)
    found = point[active][:, :2]
    if corners is None:  # eight edges cross
        assert len(found) == 8
        np.testing.assert_allclose(np.max(np.abs(found), axis=1), 0.1, atol=1e-9)
    else:
        assert sorted(map(tuple, np.round(found, 6) + 0.0)) == sorted(corners)


@pytest.mark.long
@pytest.mark.parametrize("turn", [0.0, 0.01])
def test_a_box_on_an_edge_of_another_touches_along_it(turn):
    """A box tipped by 45 degrees: the ends of its edge carry, or where that edge leaves the face."""
    c = np.sqrt(0.5)
    tipped = about_z(turn) @ np.array([[1, 0, 0], [0, c, -c], [0, c, c]])
    numbers = {"a_size": [0.1, 0.2, 0.2], "b_size": [0.3, 0.3, 0.2]}
    point, phi, normal = at(BOX["a"], BOX["b"], (0, 0, 0.1 + 0.2 * c - 1e-5), tipped, numbers)
    active = phi <= 1e-6
    assert active.sum() == 2
    np.testing.assert_allclose(np.abs(point[active] @ about_z(turn))[:, 0], 0.05, atol=1e-9)
    np.testing.assert_allclose(normal[active], [UP, UP], atol=1e-12)


def test_parallel_capsules_touch_at_two_places():
    numbers = {"a_radius": 0.05, "b_radius": 0.1, "a_ends": [[-0.3, 0, 0], [0.3, 0, 0]]}
    numbers["b_ends"] = numbers["a_ends"]
    for shift, places in ((0.0, [-0.3, 0.3]), (0.2, [-0.1, 0.3])):
        point, phi, normal = at(CAPSULE["a"], CAPSULE["b"], (shift, 0, 0.15), np.eye(3), numbers)
        active = phi <= 1e-6
        np.testing.assert_allclose(sorted(point[active][:, 0]), places, atol=1e-12)
        np.testing.assert_allclose(normal[active], [UP, UP], atol=1e-12)
    point, phi, _ = at(CAPSULE["a"], CAPSULE["b"], (0, 0, 0.15), about_z(0.7), numbers)
    assert np.flatnonzero(phi <= 1e-6).tolist() == [4]  # where they cross
    tip = at(CAPSULE["a"], CAPSULE["b"], (0.75, 0, 0), np.eye(3), numbers)[1]
    assert np.flatnonzero(tip <= 1e-6).tolist() == [0]  # two ends are one contact


@pytest.mark.slow
def test_a_capsule_lies_on_a_box():
    numbers = {"a_radius": 0.05, "a_ends": [[-0.2, 0, 0], [0.2, 0, 0]], "b_size": [0.2, 0.2, 0.2]}
    for shift, places in ((0.0, [-0.1, 0.1]), (0.15, [-0.05, 0.1])):
        point, phi, normal = at(CAPSULE["a"], BOX["b"], (shift, 0, 0.15), np.eye(3), numbers)
        active = phi <= 1e-6
        np.testing.assert_allclose(sorted(point[active][:, 0]), places, atol=1e-12)
        np.testing.assert_allclose(normal[active], [UP, UP], atol=1e-12)


def test_a_cylinder_stands_lies_and_rolls():
    numbers = {"a_radius": 0.05, "a_half": 0.1}
    point, phi, _ = at(CYLINDER, FLOOR, (0, 0, 0.1), np.eye(3), numbers)
    ring = np.linalg.norm(point[phi <= 1e-6][:, :2], axis=1)
    assert np.sum(np.abs(ring - 0.05 / np.sqrt(2.0)) < 1e-12) == 6
    assert np.sum(np.abs(ring - 0.05) < 1e-12) == 2
    tilt = np.array([[np.cos(0.02), 0, np.sin(0.02)], [0, 1.0, 0], [-np.sin(0.02), 0, np.cos(0.02)]])
    point, phi, _ = at(CYLINDER, FLOOR, (0, 0, 0.1), tilt, numbers)
    lowest = tilt.T @ (point[np.argmin(phi)] - np.array([0, 0, 0.1]))  # on its rim once it leans
    np.testing.assert_allclose(np.linalg.norm(lowest[:2]), 0.05, atol=1e-12)
    for tilt in 10.0 ** np.arange(-8, -1):  # the lowest point is exact however little it leans
        turn = np.array(
            [[np.cos(tilt), 0, np.sin(tilt)], [0, 1.0, 0], [-np.sin(tilt), 0, np.cos(tilt)]]
        ) @ about_z(0.7)
        point, phi, _ = at(CYLINDER, FLOOR, (0, 0, 0.1), turn, numbers)
        lowest = [0.05 * np.cos(tilt) - 0.1 * np.sin(tilt), 0.0]
        np.testing.assert_allclose(phi.min(), 0.1 - 0.1 * np.cos(tilt) - 0.05 * np.sin(tilt), atol=1e-16)
        np.testing.assert_allclose(point[np.argmin(phi), :2], lowest, atol=1e-9)
    lying = np.array([[1, 0, 0], [0, 0, -1], [0, 1.0, 0]])
    for roll in (0.1, 0.2, 0.3):
        _, phi, _ = at(CYLINDER, FLOOR, (0, 0, 0.05), lying @ about_z(roll), numbers)
        assert np.flatnonzero(phi <= 1e-9).tolist() == [12, 14]


@pytest.mark.long
def test_a_cylinder_and_a_capsule_that_lie_side_by_side_touch_at_two_places():
    numbers = {"a_radius": 0.05, "a_half": 0.1, "b_radius": 0.05, "b_ends": [[0, 0, -0.3], [0, 0, 0.3]]}
    point, phi, normal = at(CYLINDER, CAPSULE["b"], (0.1, 0, 0), np.eye(3), numbers)
    active = phi <= 1e-6
    np.testing.assert_allclose(sorted(point[active][:, 2]), [-0.1, 0.1], atol=1e-12)
    np.testing.assert_allclose(normal[active], [[1, 0, 0]] * 2, atol=1e-12)


@pytest.mark.long
def test_a_rectangle_rests_on_a_rectangle():
    shapes = [geometry.Box(name=name, body=name, size=f"{name}_size") for name in "ab"]
    numbers = {"a_size": [0.2, 0.2], "b_size": [0.2, 0.2]}
    for shift, places in ((0.0, [-0.1, 0.1]), (1e-9, [-0.1, 0.1]), (0.05, [-0.05, 0.1])):
        for depth in (0.0, 1e-4):
            point, phi, normal = at(*shapes, (shift, 0.2 - depth), np.eye(2), numbers)
            active = phi <= 1e-6
            np.testing.assert_allclose(sorted(point[active][:, 0]), places, atol=2e-9)
            np.testing.assert_allclose(normal[active], [[0, 1]] * 2, atol=1e-12)


@pytest.mark.slow
def test_no_false_contacts_where_boxes_overlap_a_little():
    """Overlapping by 1e-4 of their size: no contact deeper than ten times that, none against the depth."""
    a, b = cases.make("box", 3, "a"), cases.make("box", 3, "b")
    positions, turns, constants = cases.samples(3, a, b, 60, 5, (2.0, 2.0))
    _, _, phi, _ = cases.contacts(3, a.shape, b.shape, positions, turns, constants)
    for _ in range(25):  # together until they overlap by 1e-4
        step = positions[:, 0] / np.linalg.norm(positions[:, 0], axis=1, keepdims=True)
        positions[:, 0] -= step * (phi.min(axis=1) + 1e-4)[:, None] * 0.7
        _, _, phi, normal = cases.contacts(3, a.shape, b.shape, positions, turns, constants)
    near = phi <= 1e-6
    assert near.any(axis=1).sum() > 50
    assert phi.min() > -1e-3
    for k in range(60):
        for i, j in itertools.combinations(np.flatnonzero(near[k]), 2):
            assert normal[k, i] @ normal[k, j] > 0.0
