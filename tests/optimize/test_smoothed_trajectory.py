"""Levels of smoothing in a search through motions whose exact derivative is zero before a contact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.optimize import AugmentedLagrangian, trajectory

LEVELS = (0.3, 0.1, 0.03)
GOAL, REACH = 0.5, 1.0


def pushed(controls, smoothing):
    """Return how far a box is pushed that stands `REACH` away from two pushers."""
    over = controls - REACH
    if smoothing is None:
        return jax.nn.relu(over)
    return smoothing * jax.nn.softplus(over / smoothing)


def effort(controls, smoothing):
    return jnp.sum(jnp.array([1.0, 2.0]) * controls**2)


def misses(controls, smoothing):
    return jnp.sum(pushed(controls, smoothing))[None] - GOAL


def search(**changes):
    arguments = {"constraints": misses, "optimizer": AugmentedLagrangian(smoothing=LEVELS)} | changes
    return trajectory(effort, jnp.zeros(2), scale=1.0, **arguments)


@pytest.mark.float32
def test_smoothing_lowered_in_turn_reaches_a_contact_that_the_exact_gradient_does_not_see():
    tol = 1e-9 if jax.config.jax_enable_x64 else 1e-5
    exact = trajectory(
        lambda u: effort(u, None), jnp.zeros(2), constraints=lambda u: misses(u, None), scale=1.0, tol=tol
    )[1]
    assert exact.status & int(jc.Status.UNTERMINATED) and exact.residual == pytest.approx(GOAL)
    controls, info = search(tol=tol)
    assert info.status == 0 and info.residual <= tol
    # A minimum: the cheap control pushes alone. A second one, with the other control alone, costs twice.
    np.testing.assert_allclose(controls, [REACH + GOAL, 0.0], atol=2e-3)
    assert info.cost == pytest.approx((REACH + GOAL) ** 2, rel=1e-3)
    # Costs and violations are those of their levels, the result that of the exact motion.
    assert np.unique(info.smoothing).tolist() == pytest.approx(sorted((0.0, *LEVELS)))
    assert np.all(np.diff(info.smoothing) <= 0) and info.smoothing[info.best_step] == 0
    for level in (*LEVELS, None):
        rows = np.flatnonzero(info.smoothing == (level or 0.0))
        assert rows.size > 1
        for row in rows[[0, -1]]:
            away = float(misses(jnp.asarray(info.path[row]), level)[0])
            assert info.residuals[row] == pytest.approx(abs(away), abs=1e-5)


def test_a_search_that_ends_at_a_level_reports_the_exact_motion():
    for num_steps in (0, 4):
        controls, info = search(num_steps=num_steps)
        assert info.status & int(jc.Status.MAX_ITERS) and np.all(info.smoothing == LEVELS[0])
        assert info.residual == pytest.approx(abs(float(misses(controls, None)[0])))
        assert info.cost == pytest.approx(float(effort(controls, None)))


def test_a_killed_search_resumes_at_its_level_to_the_same_bits(tmp_path):
    controls, info = search()
    path, reports, phases = tmp_path / "run.npz", [], set()

    def kill(done, total, at):
        reports.append(done)
        phases.add(at.phase)
        assert np.all(np.isfinite(at[:3]))
        if done % 10 == 3 and reports.count(done) == 1:
            raise KeyboardInterrupt

    for _ in range(2 + info.costs.size // 10):
        try:
            resumed, again = search(run=jc.Run(checkpoint=path, progress=kill))
            break
        except KeyboardInterrupt:
            pass
    np.testing.assert_array_equal(resumed, controls)
    for name in vars(info):
        if name != "evaluations":
            np.testing.assert_array_equal(getattr(again, name), getattr(info, name), err_msg=name)
    assert phases == {"exact", *(f"smoothing {level:g}" for level in LEVELS)}
    assert len(set(info.smoothing[10::10])) >= 3  # levels that begin a resumed run
    for num_steps in (0, 4, 30):  # shorter than the run on the disk
        short, alone = (
            search(num_steps=num_steps, run=run)[1] for run in (jc.Run(checkpoint=path), jc.Run())
        )
        for name in ("status", "cost", "residual", "path", "smoothing"):
            np.testing.assert_array_equal(getattr(short, name), getattr(alone, name), err_msg=name)
    other = AugmentedLagrangian(smoothing=LEVELS[1:])
    with pytest.raises(ValueError, match="these differ: .*optimizer"):
        search(optimizer=other, run=jc.Run(checkpoint=path))


def test_the_exact_level_ends_at_a_kink_and_does_not_leave_it():
    def bends(z, smoothing):
        size = jnp.abs(z) if smoothing is None else jnp.sqrt(z**2 + smoothing**2)
        return jnp.sum(jnp.array([1.0, 3.0]) * size) + 0.1 * (z[0] - z[1] - 1.0) ** 2

    levels = (0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
    z, info = trajectory(
        bends, jnp.array([0.7, -0.4]), num_steps=300, optimizer=AugmentedLagrangian(smoothing=levels)
    )
    np.testing.assert_allclose(z, 0.0, atol=1e-3)
    assert info.status == int(jc.Status.KINK) and info.corners == 0
    assert np.sum(info.smoothing == 0) < 20


def failing_at(*failing):
    """Return the effort, NaN at some levels of smoothing."""

    def objective(controls, smoothing):
        value = effort(controls, smoothing)
        fails = smoothing is None if None in failing else False
        for level in failing:
            fails |= level is not None and smoothing is not None and jnp.isclose(smoothing, level)
        return jnp.where(fails, jnp.nan, value)

    return objective


def test_levels_whose_motion_fails_are_skipped(tmp_path):
    for failing in ((LEVELS[0],), (LEVELS[1],), LEVELS[1:], LEVELS):
        arguments = {"constraints": misses, "optimizer": AugmentedLagrangian(smoothing=LEVELS), "scale": 1.0}
        start = jnp.full(2, 0.8)
        controls, info = trajectory(failing_at(*failing), start, **arguments)
        np.testing.assert_allclose(np.unique(info.smoothing), sorted({0.0, *LEVELS} - set(failing)))
        if len(failing) < len(LEVELS):  # alone, the exact motion has no gradient from there
            assert info.status == 0 and info.residual <= 1e-9
        # A killed run resumes to the same bits, with its levels.
        path = tmp_path / f"{len(failing)}{failing[0]}.npz"
        for steps in (7, 100):
            again = trajectory(
                failing_at(*failing), start, num_steps=steps, run=jc.Run(checkpoint=path), **arguments
            )
        np.testing.assert_array_equal(again[0], controls)
        np.testing.assert_array_equal(again[1].smoothing, info.smoothing)


def test_an_exact_motion_that_fails_leaves_the_best_point_of_the_last_level_with_one():
    controls, info = trajectory(
        failing_at(None), jnp.ones(2), optimizer=AugmentedLagrangian(smoothing=(0.1, 0.03)), scale=1.0
    )
    assert info.status == int(jc.Status.NONFINITE)
    np.testing.assert_allclose(controls, 0.0, atol=1e-3)
    assert info.smoothing[info.best_step] == 0.03 and info.cost == pytest.approx(float(effort(controls, 0.0)))


def test_wrong_smoothing_is_named():
    for levels, words in (
        ((0.1, 0.1), "decrease"), ((0.1, 0.3), "decrease"), ((0.1, 0.0), "> 0|positive"), ((np.nan,), ""),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"smoothing.*({words})"):
            AugmentedLagrangian(smoothing=levels)
    with pytest.raises(TypeError, match="smoothing"):
        AugmentedLagrangian(smoothing=0.1)
    settings = AugmentedLagrangian(smoothing=LEVELS)
    with pytest.raises(TypeError, match=r"objective: expected a function \(controls, smoothing\).*\(u\)"):
        trajectory(lambda u: u @ u, jnp.zeros(2), optimizer=settings)
    with pytest.raises(TypeError, match="constraints: expected a function"):
        trajectory(effort, jnp.zeros(2), constraints=lambda u: u[:1], optimizer=settings)
    problem, params, free = jc.optimize.gaits.hopper()
    with pytest.raises(ValueError, match="optimizer.smoothing: expected none"):
        jc.optimize.gait(problem, params, free, speed=1.0, optimizer=settings)
