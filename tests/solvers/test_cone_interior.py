"""Interior points for programs under Coulomb's law, by the conditions of the law."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.solvers.cone_interior import approach_by_interior_points
from jaxcontact.solvers.cone_program import ConeProgram
from jaxcontact.solvers.coulomb_program import TRIAL_STEPS, solve_by_modes

NV, EQUALITIES, LIMITS, CONTACTS, PROGRAMS = 7, 3, 2, 6, 48


def programs(axes, dtype=jnp.float64):
    """Draw springs, dry joints, limits and redundant contacts; half of them close within the step or not."""
    rng, count = np.random.default_rng(axes), EQUALITIES + LIMITS + axes * CONTACTS
    heads = LIMITS + CONTACTS
    root = rng.normal(size=(PROGRAMS, NV, NV))
    normal = rng.normal(size=(PROGRAMS, NV, 2)) @ rng.normal(size=(PROGRAMS, 2, CONTACTS))  # rank 2
    tangent = rng.normal(size=(PROGRAMS, NV, 3)) @ rng.normal(size=(PROGRAMS, 3, (axes - 1) * CONTACTS))
    single = rng.normal(size=(PROGRAMS, NV, EQUALITIES + LIMITS))
    opens = rng.random((PROGRAMS, heads)) < 0.5
    slope = np.full((PROGRAMS, count), 50.0)
    slope[:, EQUALITIES + heads :] = 5e3  # friction sticks by a stiff damper
    slope[rng.random((PROGRAMS, count)) < 0.05] = 0.0
    tangents = slope[:, EQUALITIES + heads :].reshape(PROGRAMS, axes - 1, CONTACTS)
    tangents[:] = tangents[:, :1]
    offset = np.zeros((PROGRAMS, count))
    offset[:, : EQUALITIES + heads] = rng.normal(size=(PROGRAMS, EQUALITIES + heads))
    offset *= slope > 0
    dry = np.tile([np.inf, 0.2, 0.0], (PROGRAMS, 1))
    program = ConeProgram(
        M=jnp.asarray(root @ root.transpose(0, 2, 1) + np.eye(NV), dtype),
        v=jnp.asarray(rng.normal(size=(PROGRAMS, NV)), dtype),
        push=jnp.asarray(rng.normal(size=(PROGRAMS, NV)), dtype),
        columns=jnp.asarray(np.concatenate([single, normal, tangent], axis=2), dtype),
        offset=jnp.asarray(offset, dtype),
        slope=jnp.asarray(slope, dtype),
        keep=jnp.zeros((PROGRAMS, count), dtype),
        mu=jnp.asarray(rng.choice([0.0, 0.2, 0.5], size=(PROGRAMS, CONTACTS)), dtype),
        touch=jnp.asarray(np.where(opens, -rng.random((PROGRAMS, heads)), np.inf), dtype),
        stop=jnp.full((PROGRAMS, heads), 1e7, dtype),
        dry_bound=jnp.asarray(dry, dtype),
        num_equalities=EQUALITIES,
        num_limits=LIMITS,
        coulomb=True,
    )
    return program


def rub(bound, force, slip):
    """Misfit of |force| <= bound and bound slip + |slip| force = 0, with rows of tangents (nt, n)."""
    excess = np.linalg.norm(force, axis=0) - bound
    turned = bound * slip + np.linalg.norm(slip, axis=0) * force
    return max(np.max(excess), np.max(np.abs(turned)))


def misfit_of(program, x, p, axes):
    """Largest misfit of the laws of all rows, and of the momenta."""
    u, z = x @ program.columns, program.offset - program.slope * (x @ program.columns)
    heads = slice(EQUALITIES, EQUALITIES + LIMITS + CONTACTS)
    asked = np.minimum(
        z[heads], np.where(np.isinf(program.touch), np.inf, program.stop * (program.touch - u[heads]))
    )
    pushed = np.abs(p[heads] - np.maximum(asked, 0.0))
    # The loss of impulse per rate of a stop is 1e7: its rates are compared.
    pushed = np.where(p[heads] > 0, pushed / np.where(asked < z[heads], program.stop, 1.0), pushed)
    force, slope, slips = (rows[heads.stop :].reshape(axes - 1, CONTACTS) for rows in (p, program.slope, u))
    slip = slips + force / np.where(slope > 0, slope, 1.0)
    grips = (slope[0] > 0) & (program.slope[heads][LIMITS:] > 0)
    bound = program.mu * p[heads][LIMITS:]
    rubbed = max(
        rub(bound[grips], force[:, grips], slip[:, grips]), np.max(np.abs(force[:, ~grips]), initial=0.0)
    )
    held = abs(p[0] - z[0])
    springy = program.slope[1] > 0
    dry = (
        rub(
            program.dry_bound[1:2],
            p[None, 1:2],
            u[None, 1:2] - (z + program.slope * u - p)[None, 1:2] / program.slope[1],
        )
        if springy
        else abs(p[1])
    )
    momentum = program.M @ (x - program.v) - program.push - program.columns @ p
    return max(np.max(pushed), rubbed, held, dry, abs(p[2]), np.max(np.abs(momentum)))


def approach(axes, dtype=jnp.float64, early_exit=True, count=PROGRAMS):
    """Solve the programs; return what was found, and the largest misfit of each relative to its impulses."""
    given = jax.tree.map(lambda rows: rows[:count], programs(axes, dtype))
    one = functools.partial(approach_by_interior_points, early_exit=early_exit)
    found = jax.tree.map(np.asarray, jax.jit(jax.vmap(lambda program: one(program, program.v)))(given))
    exact = jax.tree.map(lambda rows: np.asarray(rows, np.float64), given)
    misfits = [
        misfit_of(jax.tree.map(lambda rows: rows[k], exact), found.x[k], found.p[k], axes)
        / np.max(np.abs(found.p[k]))
        for k in range(count)
    ]
    return found, np.array(misfits)


@pytest.mark.parametrize("axes", [2, 3, pytest.param(5, marks=pytest.mark.long)])
def test_springs_dry_joints_limits_and_redundant_contacts_obey_their_laws(axes):
    """In the plane, in space, and with friction of spin and rolling."""
    found, misfits = approach(axes)
    assert np.mean(found.converged) >= 0.95
    assert np.max(misfits[found.converged]) <= 1e-6
    assert np.max(found.iterations) <= 25


@pytest.mark.long
def test_single_precision_converges_as_well():
    found, misfits = approach(3, jnp.float32)
    assert np.mean(found.converged) >= 0.95
    assert np.median(misfits) <= 1e-3


@pytest.mark.long
def test_loops_of_fixed_length_have_the_same_result():
    early, late = approach(2, count=2)[0], approach(2, early_exit=False, count=2)[0]
    np.testing.assert_allclose(early.x, late.x, atol=1e-12)
    np.testing.assert_array_equal(early.iterations, late.iterations)


@pytest.mark.long
def test_a_trial_ends_where_three_steps_make_no_progress():
    """Newton's method from the velocities before the step: elsewhere a trial is the same search."""
    program = programs(3)
    start = jnp.zeros_like(program.offset)

    def search(is_trial):
        def one(world):
            program, start = world
            return solve_by_modes(program, program.v, start, 24, is_trial=is_trial)

        return jax.jit(lambda *worlds: jax.lax.map(one, worlds))(program, start)

    trial, whole_search = search(True), search(False)
    ended = np.asarray(trial.iterations < whole_search.iterations)
    assert 0 < ended.sum() < PROGRAMS
    assert np.all(np.asarray(trial.iterations)[ended] == TRIAL_STEPS) and not np.any(trial.converged[ended])
    np.testing.assert_array_equal(np.asarray(trial.x)[~ended], np.asarray(whole_search.x)[~ended])
