"""One statement of the contact problem: closed forms, units, and every kernel that has a layout of its own."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from jaxcontact.impact.laws.contact_space import contact_space
from jaxcontact.simulate.variational.active_set import contact_impulses
from jaxcontact.solvers import contact_modes
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


@pytest.mark.parametrize("nt", [1, 2])
def test_units_do_not_matter(rng, nt):
    terms, v = random_terms(rng, 2, nt)
    problem = problem_of(terms, v)
    impulse = jnp.asarray(rng.normal(size=problem.velocity.size))
    expected = residual(problem, impulse)
    for mass, speed in ((1e-6, 1.0), (1e6, 1e-6), (1.0, 1e6)):
        other = problem.replace(delassus=problem.delassus / mass, velocity=problem.velocity * speed)
        np.testing.assert_allclose(residual(other, impulse * mass * speed), expected, rtol=1e-12)


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


def test_the_impact_law_solves_this_problem(rng):
    for _ in range(5):
        terms, v = random_terms(rng, 2, 1)
        _, info = jc.impact.anitescu_potra(terms, v)
        assert float(residual(problem_of(terms, v), info.impulse.reshape(-1))) < 1e-10


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
