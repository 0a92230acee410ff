"""One statement of the contact problem: closed forms, units, and every kernel that has a layout of its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space
from jaxcontact.impact.laws.energetic_restitution import Compression, give_back
from jaxcontact.impact.sampling.by_modes import tabulate
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.solvers import contact_modes, mode_tree
from jaxcontact.solvers.contact_problem import (
    SEPARATE,
    SLIDE,
    STICK,
    ContactModes,
    ContactProblem,
    mode_equations,
    residual,
)
from jaxcontact.stability.body import as_terms
from jaxcontact.stability.modes import contact_modes as modes_at_rest

CODES = {  # of `solvers.modes`: kind, capped, sign of sliding
    contact_modes.SEPARATE: (SEPARATE, False, 0.0),
    contact_modes.REST_STICK: (STICK, False, 0.0),
    contact_modes.REST_PLUS: (SLIDE, False, 1.0),
    contact_modes.REST_MINUS: (SLIDE, False, -1.0),
    contact_modes.CAP_STICK: (STICK, True, 0.0),
    contact_modes.CAP_PLUS: (SLIDE, True, 1.0),
    contact_modes.CAP_MINUS: (SLIDE, True, -1.0),
}


def problem_of(terms, v, cap=None):
    """The problem of contact terms and a velocity."""
    nc = terms.phi.shape[0]
    rows = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1).reshape(-1, terms.M.shape[0])
    return ContactProblem(
        delassus=rows @ jnp.linalg.solve(terms.M, rows.T),
        velocity=rows @ v,
        mu=terms.mu,
        cap=jnp.full(nc, jnp.inf) if cap is None else cap,
        mask=terms.active,
    )


def random_terms(rng, nc, nt, mu=0.6):
    nv = 3 * nc if nt == 2 else 2 * nc + 1
    root = rng.normal(size=(nv, nv))
    return jc.ContactTerms(
        M=jnp.asarray(root @ root.T + np.eye(nv)),
        J_n=jnp.asarray(rng.normal(size=(nc, nv))),
        J_t=jnp.asarray(rng.normal(size=(nc, nt, nv))),
        phi=jnp.zeros(nc),
        mu=jnp.full(nc, mu),
        active=jnp.ones(nc, bool),
    ), jnp.asarray(rng.normal(size=nv))


def test_a_ball_that_slides_in_closed_form():
    mu, m, r = 0.2, 2.0, 0.5
    inertia = 0.4 * m * r**2
    problem = ContactProblem(
        delassus=jnp.diag(jnp.array([1 / m, 1 / m + r**2 / inertia])),
        velocity=jnp.array([-3.0, 4.0]),
        mu=jnp.array([mu]),
        cap=jnp.array([jnp.inf]),
        mask=jnp.array([True]),
    )
    exact = jnp.array([3.0 * m, -mu * 3.0 * m])
    assert float(residual(problem, exact)) < 1e-15
    np.testing.assert_allclose(residual(problem, 0.9 * exact), 0.1 * exact[0] / exact[0], rtol=1e-12)
    matrix, rhs = mode_equations(
        problem,
        ContactModes(kind=jnp.array([SLIDE]), capped=jnp.array([False]), direction=jnp.array([[1.0]])),
    )
    np.testing.assert_allclose(jnp.linalg.solve(matrix, rhs), exact, rtol=1e-14)


@pytest.mark.long
@pytest.mark.parametrize("nt", [1, 2])
def test_units_do_not_matter(rng, nt):
    terms, v = random_terms(rng, 2, nt)
    problem = problem_of(terms, v)
    impulse = jnp.asarray(rng.normal(size=problem.velocity.size))
    expected = residual(problem, impulse)
    for mass, speed in ((1e-6, 1.0), (1e6, 1e-6), (1.0, 1e6)):
        other = problem.replace(delassus=problem.delassus / mass, velocity=problem.velocity * speed)
        np.testing.assert_allclose(residual(other, impulse * mass * speed), expected, rtol=1e-12)


@pytest.mark.slow
def test_every_mode_of_a_planar_step_has_these_equations(rng):
    terms, v = random_terms(rng, 2, 1)
    space = contact_space(terms)
    cap = jnp.array([0.3, 0.7])
    table = contact_modes.mode_table(space.delassus, space.mu, space.active, capped=True)
    problem = ContactProblem(
        delassus=space.delassus, velocity=space.jacobian @ v, mu=space.mu, cap=cap, mask=space.active
    )
    x = jnp.concatenate([problem.velocity, cap])
    impulses = np.einsum("ijk,j->ki", np.asarray(table.impulse), np.asarray(x))
    for k, codes in enumerate(np.asarray(table.codes).T):
        kind, capped, sign = map(np.array, zip(*(CODES[int(code)] for code in codes), strict=True))
        matrix, rhs = mode_equations(
            problem,
            ContactModes(
                kind=jnp.asarray(kind), capped=jnp.asarray(capped), direction=jnp.asarray(sign)[:, None]
            ),
        )
        assert bool(table.regular[k])
        np.testing.assert_allclose(impulses[k], np.linalg.solve(matrix, rhs), atol=1e-10)
    valid = np.asarray(contact_modes.evaluate(table, x)) < 1e-9
    assert valid.any()
    for k in np.flatnonzero(valid):
        assert float(residual(problem, jnp.asarray(impulses[k]))) < 1e-12
    for k in np.flatnonzero(~valid)[:10]:
        assert float(residual(problem, jnp.asarray(impulses[k]))) > 1e-9


@pytest.mark.slow_cases("2", "3")
@pytest.mark.parametrize("nc", [2, 3])
def test_modes_at_one_velocity_are_those_of_the_table(nc, rng):
    """A contact that is not active, two that are redundant, and any others."""

    @jax.jit
    def both(space, x):
        problem = (space.delassus, space.mu, space.active)
        table = contact_modes.mode_table(*problem, capped=True)
        at = contact_modes.modes_at(contact_modes.mode_inverses(*problem), x[: 2 * nc], x[2 * nc :])
        one = jnp.ones(1)
        impulses = jnp.einsum("ijk,j->ik", table.impulse, x), at.impulse[:, 0]
        return impulses, *(
            (contact_modes.evaluate(t, y), t.score.T @ y, t) for t, y in ((table, x), (at, one))
        )

    for case in range(6):
        terms, v = random_terms(rng, nc, 1)
        if case < 2:
            terms = terms.replace(
                J_n=terms.J_n.at[1].set(terms.J_n[0]), J_t=terms.J_t.at[1].set(terms.J_t[0])
            )
        if case == 2:
            terms = terms.replace(active=terms.active.at[0].set(False))
        space = contact_space(terms)
        x = jnp.concatenate([space.jacobian @ v, jnp.asarray(rng.uniform(0.1, 0.8, nc))])
        (every, told), (worst, score, table), (now, told_score, at) = both(space, x)
        assert not np.any(np.asarray(table.unresolved) & ~np.asarray(at.unresolved))
        regular = np.asarray(table.regular)
        assert np.all(np.asarray(at.regular)[regular]) and np.count_nonzero(regular) > 0
        np.testing.assert_allclose(told[:, regular], every[:, regular], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(now[regular], worst[regular], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(told_score[regular], score[regular], rtol=1e-9, atol=1e-9)
        assert np.count_nonzero(np.asarray(at.regular) & ~regular) == 0 and np.min(now) < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("nt", [1, 2])
def test_contacts_that_stay_closed_solve_this_problem(rng, nt):
    for _ in range(5):
        terms, v = random_terms(rng, 2, nt)
        problem = problem_of(terms, v)
        nc = problem.mu.size
        start = problem.velocity.reshape(nc, -1)
        lam, found = contact_impulses(
            problem.delassus, start, problem.mu, problem.mask, jnp.zeros_like(start)
        )
        assert bool(found)
        assert float(residual(problem, lam.reshape(-1))) < 1e-12


@pytest.mark.long
def test_the_impact_law_solves_this_problem(rng):
    for _ in range(5):
        terms, v = random_terms(rng, 2, 1)
        _, info = jc.impact.anitescu_potra(terms, v)
        assert float(residual(problem_of(terms, v), info.impulse.reshape(-1))) < 1e-10


@pytest.mark.long
def test_modes_at_rest_are_those_of_accelerations():
    body = jc.stability.PlanarBiped(alpha=0.2, h=0.7, L1=-1.0, L2=1.5, mu1=0.5, mu2=0.6)
    terms = as_terms(body)
    table = modes_at_rest(terms)
    rows = jnp.stack([terms.J_n, terms.J_t], axis=1).reshape(-1, terms.M.shape[0])
    problem = ContactProblem(
        delassus=rows @ jnp.linalg.solve(terms.M, rows.T),
        velocity=rows @ jnp.linalg.solve(terms.M, terms.force),
        mu=terms.mu,
        cap=jnp.full(2, jnp.inf),
        mask=jnp.ones(2, bool),
    )
    letters = {"F": (SEPARATE, 0.0), "S": (STICK, 0.0), "P": (SLIDE, 1.0), "N": (SLIDE, -1.0)}
    compared = 0
    for word, forces, misfit in zip(table.words, table.forces, table.residual, strict=True):
        kind, sign = zip(*(letters[letter] for letter in word), strict=True)
        matrix, rhs = mode_equations(
            problem,
            ContactModes(kind=jnp.array(kind), capped=jnp.zeros(2, bool), direction=jnp.array(sign)[:, None]),
        )
        if np.linalg.matrix_rank(matrix) == 4 and float(misfit) < 1e-9:
            np.testing.assert_allclose(forces.reshape(-1), np.linalg.solve(matrix, rhs), atol=1e-9)
            compared += 1
    assert compared >= 8


@pytest.mark.slow
def test_the_modes_of_the_tree_that_are_valid_are_those_that_solve_this_problem(rng):
    """Of all 343 capped modes of three contacts, at random velocities and caps."""
    terms, _ = random_terms(rng, 3, 1)
    space, table = tabulate(terms)
    tree = mode_tree.leaves(table, space.delassus, space.mu)
    limit = contact_modes.feasibility_tolerance(space.mu.dtype)
    kind, capped, sign = (
        jnp.asarray([[CODES[int(code)][part] for code in codes] for codes in np.asarray(table.codes).T])
        for part in range(3)
    )

    @jax.jit
    def each_mode(x):
        problem = ContactProblem(
            delassus=space.delassus, velocity=x[:6], mu=space.mu, cap=x[6:], mask=space.active
        )

        def one(kind, capped, sign):
            modes = ContactModes(kind=kind, capped=capped, direction=sign[:, None])
            return residual(problem, jnp.linalg.solve(*mode_equations(problem, modes)))

        return jax.vmap(one)(kind, capped, sign), mode_tree.valid(tree, x[:, None], limit)[:, 0]

    assert bool(jnp.all(table.regular))
    found = 0
    for _ in range(20):
        x = rng.normal(size=9)
        x[6:] = np.abs(x[6:])
        misfit, valid = each_mode(jnp.asarray(x))
        np.testing.assert_array_equal(np.asarray(misfit) < 1e-9, valid)
        found += int(jnp.sum(valid))
    assert found >= 20


@pytest.mark.slow
def test_a_push_of_restitution_has_the_friction_of_this_problem(rng):
    """One contact with much in store takes all its impulse; at most two pieces, before and after u_t = 0."""
    kinds = set()
    for _ in range(60):
        root = rng.normal(size=(2, 2))
        delassus = root @ root.T + 0.1 * np.eye(2)
        u = np.array([abs(rng.normal()), rng.normal()])
        mu, cap = 0.6, abs(rng.normal())
        problem = ContactProblem(
            delassus=jnp.asarray(delassus), velocity=jnp.asarray(u), mu=jnp.array([mu]),
            cap=jnp.array([cap]), mask=jnp.array([True]),
        )  # fmt: skip
        pushed = pushes(problem)
        if pushed[0] < (1.0 - 1e-9) * cap:  # friction wedges it, or its normal velocity falls to zero, before
            continue
        sign = np.sign(u[1])
        rate = delassus[1, 0] - sign * mu * delassus[1, 1]
        until = min(cap, -u[1] / rate) if sign * rate < 0 else cap
        total = np.zeros(2)
        for part in (until, cap - until):
            now = problem.replace(velocity=jnp.asarray(u + delassus @ total), cap=jnp.array([part]))
            each = [
                mode(now, STICK, 0.0),
                *(mode(now, SLIDE, way) for way in ([sign] if part == until else [1.0, -1.0])),
            ]
            right = [lam for lam in each if friction_residual(now, lam) < 1e-9]
            assert right
            total = total + right[0]
        np.testing.assert_allclose(pushed, total, rtol=1e-9, atol=1e-9)
        end = (u + delassus @ pushed)[1]
        kinds.add("stick" if abs(end) < 1e-9 else "slide" if end * sign > 0 else "back")
    assert kinds == {"stick", "slide", "back"}


def mode(problem, kind, way):
    """Impulses of one capped mode of one contact."""
    modes = ContactModes(kind=jnp.array([kind]), capped=jnp.array([True]), direction=jnp.array([[way]]))
    return np.linalg.solve(*mode_equations(problem, modes))


def friction_residual(problem, lam):
    """Of the law of friction alone: the normal row is made to hold."""
    u = problem.velocity + problem.delassus @ lam
    return residual(problem.replace(velocity=problem.velocity.at[0].add(-u[0])), jnp.asarray(lam))


@jax.jit
def pushes(problem):
    """The impulse of the push of a contact that has all the energy it wants in store."""
    space = ContactSpace(
        mass=jnp.eye(2), jacobian=jnp.eye(2), response=jnp.eye(2), delassus=problem.delassus, mu=problem.mu,
        scale=jnp.ones(2), active=problem.mask,
    )  # fmt: skip
    compression = Compression(
        space, jnp.ones(1), problem.cap, problem.velocity, problem.velocity, jnp.zeros(2),
        jnp.array([1e6]), jnp.array(1.0), jnp.array([1e-9]),
    )  # fmt: skip
    return give_back(compression)[0]
