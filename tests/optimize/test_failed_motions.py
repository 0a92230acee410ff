"""A motion that fails, as NaN in its cost or derivative, ends a search at its best point and raises nothing."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import jaxcontact as jc
from jaxcontact.ess.linear_pieces import LinearPieces
from jaxcontact.optimize import (
    AugmentedLagrangian,
    OneSided,
    PiecewiseNewton,
    sequential_quadratic,
    trajectory,
)

NONFINITE = int(jc.Status.NONFINITE)


def cost(z):
    return jnp.sum((z - 3.0) ** 2)


@jax.custom_jvp
def wall(z):
    """Return the cost, whose derivative exists at the start (0, 0) alone."""
    return cost(z)


@wall.defjvp
def _wall_jvp(primals, tangents):
    ((z,), (dz,)) = primals, tangents
    return cost(z), jnp.where(jnp.all(z == 0.0), 1.0, jnp.nan) * jnp.sum(2.0 * (z - 3.0) * dz)


def alone(z):
    """Return the cost of a motion that succeeds from the start (0, 0) alone."""
    return jnp.where(jnp.all(z == 0.0), cost(z), jnp.nan)


def pieces_of(z):
    gradient = 2.0 * (np.asarray(z) - 3.0)
    return LinearPieces(
        jacobians=jnp.asarray(gradient)[None, None], offsets=jnp.zeros((1, 1)), conditions=jnp.zeros((1, 0, 2)),
        margins=jnp.zeros((1, 0)), orders=jnp.zeros((1, 0), jnp.int32),
    )  # fmt: skip


OPTIMIZERS = {
    "augmented Lagrangian": AugmentedLagrangian(),
    "optax": optax.sgd(0.1),
    "one-sided": OneSided(optax.sgd(0.1), lambda z, d: jnp.sum(2.0 * (z - 3.0) * d)),
    "pieces": PiecewiseNewton(pieces_of),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("objective", [wall, alone])
def test_where_every_step_fails_the_best_point_is_returned(name, objective, tmp_path):
    path, calls = tmp_path / "run.npz", []
    run = jc.Run(
        checkpoint=path, progress=lambda done, total, at: calls.append((done, total, at.cost, at.slope))
    )
    controls, info = trajectory(objective, jnp.zeros(2), optimizer=OPTIMIZERS[name], run=run)
    np.testing.assert_array_equal(controls, 0.0)
    assert info.status == NONFINITE and info.cost == 18.0 and info.best_step == info.costs.size - 1
    assert info.costs.size <= 3 and len(calls) == info.costs.size - 1 and np.all(np.isfinite(calls))
    # The file continues at the same end, and a shorter run is that without a file.
    again = trajectory(objective, jnp.zeros(2), optimizer=OPTIMIZERS[name], num_steps=300, run=run)[1]
    np.testing.assert_array_equal(again.path, info.path)
    assert again.status == NONFINITE
    ends = [
        trajectory(objective, jnp.zeros(2), optimizer=OPTIMIZERS[name], num_steps=0, run=at)[1]
        for at in (run, jc.Run())
    ]
    assert ends[0].status == ends[1].status and ends[0].cost == ends[1].cost == 18.0


def test_a_search_whose_later_steps_fail_keeps_its_best_point():
    """Momentum leads beyond z = 1, where there is no motion; before that the cost falls."""

    def beyond(z):
        return jnp.where(jnp.all(z < 1.0), cost(z), jnp.nan)

    for optimizer in (AugmentedLagrangian(), optax.sgd(0.1)):
        controls, info = trajectory(beyond, jnp.zeros(2), optimizer=optimizer, num_steps=60)
        assert np.all(controls > 0.99) and info.cost == float(cost(controls)) == np.min(info.costs)
        assert np.all(np.isfinite(info.costs)) and int(info.status) in (NONFINITE, int(jc.Status.KINK))


def test_with_constraints_the_return_to_them_fails_without_an_error():
    def only_before(z):
        return jnp.where(z[0] <= 0.5, cost(z), jnp.nan)

    for optimizer in (AugmentedLagrangian(), optax.sgd(0.1)):
        controls, info = trajectory(
            only_before, jnp.zeros(2), constraints=lambda z: z[:1] - 1.0, optimizer=optimizer, num_steps=20
        )
        assert info.status & int(jc.Status.UNTERMINATED) and np.isfinite(info.cost)
        assert controls[0] <= 0.5 and info.residual == pytest.approx(1.0 - float(controls[0]))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_start_without_a_motion_is_returned(name):
    for objective, start in ((lambda z: jnp.nan * cost(z), jnp.ones(2)), (cost, jnp.array([1.0, jnp.nan]))):
        controls, info = trajectory(objective, start, optimizer=OPTIMIZERS[name])
        np.testing.assert_array_equal(controls, start)
        assert info.status == NONFINITE and np.isnan(info.cost) and info.path.shape == (1, 2)


def test_starts_without_a_motion_are_passed_over():
    def objective(z):
        return jnp.where(z[0] > 0, jnp.sum((z - 2.0) ** 2), jnp.nan)

    def search(z):
        return trajectory(objective, z)

    best, info = jc.optimize.search_from_starts(search, jnp.array([[-1.0], [1.0]]))
    assert info.best == 1 and best[0] == pytest.approx(2.0) and info.status == 0
    assert np.isinf(info.costs[0]) and info.statuses[0] & NONFINITE
    best, info = jc.optimize.search_from_starts(search, jnp.array([[-1.0], [-2.0]]))
    assert info.best == 0 and best[0] == -1.0 and info.status & NONFINITE


def test_no_direction_comes_from_derivatives_that_are_not_finite():
    for rate, piece in (
        (lambda d: np.nan, lambda d: np.full(2, np.nan)), (lambda d: np.nan, lambda d: np.ones(2)),
    ):  # fmt: skip
        d, _ = jc.optimize.one_sided_descent(rate, piece, np.ones(2))
        np.testing.assert_array_equal(d, 0.0)


def program_point(s):
    beyond = s[0] > 0.5
    value = np.nan if beyond else float(np.sum((s - 1.0) ** 2))
    jacobian = np.full((1, 2), np.nan) if s[1] > 0.7 else np.array([[0.0, 1.0]])
    return sequential_quadratic.ProgramPoint(
        s, value, 2.0 * (s - 1.0), 2.0 * np.eye(2), np.array([s[1] - 0.2]), jacobian
    )


def test_a_quadratic_program_avoids_points_without_a_motion():
    far = np.full(2, -np.inf), np.full(2, np.inf)
    for start in (np.zeros(2), np.array([0.0, 0.69]), np.ones(2)):
        end = sequential_quadratic.minimise(
            program_point, sequential_quadratic.begin(start, far), far, max_iters=60, change=1e-6, tol=1e-6
        )
        if start[0] == 1.0:
            assert end.num_iters == 0 and not end.point.is_finite
            end = sequential_quadratic.restore(program_point, end.point, far, 1e-9)
            np.testing.assert_array_equal(end.s, start)
        else:
            assert end.point.is_finite and end.point.s[0] > 0.45 and end.point.violation < 1e-3


def test_residuals_without_a_motion_at_the_start_end_there_and_other_starts_go_on():
    data = jnp.linspace(1.0, 2.0, 12).reshape(4, 3)

    def residuals(params, per_motion, data):
        slope = jnp.where(params["slope"] > 0, params["slope"], jnp.nan)
        return slope * data - 2.0 * data - per_motion["offset"][:, None] + 0.1

    guess = {"offset": jnp.zeros(4)}
    found, _, info = jc.optimize.identify_motions(residuals, {"slope": -1.0}, guess, data)
    assert found["slope"] == -1.0 and info.status & NONFINITE and np.isnan(info.covariance).all()
    search = jc.optimize.SearchSettings(starts={"slope": jnp.array([1.0])})
    found, _, info = jc.optimize.identify_motions(residuals, {"slope": -1.0}, guess, data, search=search)
    assert found["slope"] == pytest.approx(2.0) and info.statuses[0] & NONFINITE and info.statuses[1] == 0
