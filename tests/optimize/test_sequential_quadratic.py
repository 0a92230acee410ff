"""The search under many constraints, against closed forms."""

import numpy as np
import pytest

from jaxcontact.optimize import sequential_quadratic

TARGET = np.array([1.0, -2.0, 3.0])


def near_target_on_a_sphere(s):
    """|s - t|^2 on |s| = 2."""
    off = s - TARGET
    return sequential_quadratic.ProgramPoint(
        s, float(off @ off), 2 * off, 2 * np.eye(3), np.array([s @ s - 4.0]), 2 * s[None]
    )


@pytest.mark.parametrize("bound, atol", [(0.3, 1e-4), (9.0, 2e-3)])
def test_the_nearest_point_of_a_sphere_within_bounds(bound, atol):
    bounds = np.full(3, -9.0), np.array([bound, 9.0, 9.0])
    start = sequential_quadratic.begin(np.array([0.3, 0.7, 0.4]), bounds)
    found = sequential_quadratic.minimise(
        near_target_on_a_sphere, start, bounds, max_iters=60, change=1e-5, tol=1e-6
    )
    expected = 2.0 * TARGET / np.linalg.norm(TARGET)
    if bound < expected[0]:
        expected = np.r_[bound, TARGET[1:] / np.linalg.norm(TARGET[1:]) * np.sqrt(4.0 - bound**2)]
    assert found.point.violation <= 1e-6
    assert sequential_quadratic.slope_along(found.point, bounds) < 5e-3
    np.testing.assert_allclose(found.point.s, expected, atol=atol)
    joined = sequential_quadratic.restore(near_target_on_a_sphere, found.point, bounds, 1e-12)
    assert joined.violation <= 1e-12 and np.all(joined.s <= bounds[1])


def test_a_program_with_bounds_has_the_solution_of_a_projection(rng):
    """|d - t|^2 / 2 with sum d = 1 and 0 <= d <= 1: d = clip(t - y, 0, 1) with the y of that sum."""
    target = rng.normal(size=20)
    point = sequential_quadratic.ProgramPoint(
        np.zeros(20), 0.0, -target, np.eye(20), np.array([-1.0]), np.ones((1, 20))
    )
    d = sequential_quadratic.solve_program(point, np.zeros(20), np.ones(20))
    low, high = target.min() - 2.0, target.max()
    for _ in range(80):
        middle = 0.5 * (low + high)
        total = np.clip(target - middle, 0.0, 1.0).sum()
        low, high = (middle, high) if total > 1.0 else (low, middle)
    np.testing.assert_allclose(d, np.clip(target - low, 0.0, 1.0), atol=2e-3)
    assert abs(d.sum() - 1.0) < 1e-6


def test_constraints_that_cannot_hold_within_bounds_are_approached():
    point = sequential_quadratic.ProgramPoint(
        np.zeros(2), 0.0, np.zeros(2), np.eye(2), np.array([-5.0]), np.array([[1.0, 2.0]])
    )
    d = sequential_quadratic.solve_program(point, np.full(2, -0.5), np.full(2, 0.5))
    np.testing.assert_allclose(d, [0.5, 0.5], atol=1e-6)


def test_a_search_leaps_over_a_kink_at_which_no_step_is_accepted():
    """Slopes of one side mislead: r jumps at 0.5 from the start to a solution at 2."""

    def jumps(s):
        x = s[0]
        r, slope = (-1.0 - 0.2 * np.cos(8 * x), 1.0) if x < 0.5 else (x - 2.0, 1.0)
        return sequential_quadratic.ProgramPoint(s, 0.0, 0 * s, np.eye(1), np.array([r]), np.array([[slope]]))

    bounds = np.full(1, -9.0), np.full(1, 9.0)
    found = sequential_quadratic.minimise(
        jumps,
        sequential_quadratic.begin(np.array([0.45]), bounds),
        bounds,
        max_iters=80,
        change=1e-6,
        tol=1e-9,
    )
    assert found.point.s[0] == pytest.approx(2.0)
