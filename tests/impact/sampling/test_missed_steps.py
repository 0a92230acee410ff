"""Searched steps of contacts beyond enumeration, beside every solution by brute force over contact modes."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jaxcontact as jc
from benchmarks import missed_steps, step_modes
from jaxcontact.impact.laws.contact_space import friction_directions
from jaxcontact.impact.sampling import lemke_on_host

pytestmark = pytest.mark.skipif(not lemke_on_host.is_offered(np.zeros(1)), reason="needs machine code")


def listed_by_hand(J, M, v, mu, caps, fan):
    """All solutions with one system of equations per combination of modes, solved as a whole."""
    count, rows = len(mu), J.reshape(-1, len(v))
    response = np.linalg.solve(M, rows.T)
    modes = [step_modes.mode_rows(m, cap, fan) for m, cap in zip(mu, caps, strict=True)]
    ends = []
    for choice in itertools.product(range(len(modes[0][0])), repeat=count):
        on_u, on_lam = np.zeros((2, 3 * count, 3 * count))
        right = np.concatenate([modes[i][2][k] for i, k in enumerate(choice)])
        for i, k in enumerate(choice):
            at = slice(3 * i, 3 * i + 3)
            on_u[at, at], on_lam[at, at] = modes[i][0][k], modes[i][1][k]
        matrix = on_u @ rows @ response + on_lam
        if np.linalg.cond(matrix) > 1e9:
            continue
        lam = np.linalg.solve(matrix, right - on_u @ rows @ v)
        u, force = (rows @ (v + response @ lam)).reshape(-1, 3), lam.reshape(-1, 3)
        pushes = np.all((force[:, 0] > -1e-9) & (force[:, 0] < caps + 1e-9))
        normal = np.all((u[:, 0] > -1e-9) | (np.abs(force[:, 0] - caps) < 1e-9))
        normal &= np.all((u[:, 0] < 1e-9) | (force[:, 0] < 1e-9))
        inside = np.abs(force[:, 1:]).sum(axis=1) <= mu * force[:, 0] + 1e-9  # four sides
        steepest = np.abs(u[:, 1:]).max(axis=1)
        work = np.sum(force[:, 1:] * u[:, 1:], axis=1) + mu * force[:, 0] * steepest
        if pushes and normal and np.all(inside) and np.all(np.abs(work) < 1e-8):
            ends.append(v + response @ lam)
    return np.array(ends)


@pytest.mark.parametrize("seed", [0, 3, 7])
def test_the_brute_force_lists_what_whole_systems_do(seed):
    rng = np.random.default_rng(seed)
    terms, v, caps = missed_steps.random_step(rng, 2)
    J = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
    arguments = J, np.asarray(terms.M), np.asarray(v), np.asarray(terms.mu), caps, friction_directions(2, 4)
    expected = listed_by_hand(*arguments)
    found, _ = step_modes.all_solutions(*arguments, step_modes.compile_search(lambda function: function))
    assert len(found) and len(expected)
    apart = np.abs(found[:, None] - expected[None]).max(axis=2)
    assert apart.min(axis=1).max() < 1e-7 and apart.min(axis=0).max() < 1e-7


@pytest.mark.slow
def test_searches_of_four_contacts_reach_what_is_listed():
    """Ends of searches are outcomes, and the library's enumeration lists as many."""
    rows = missed_steps.compare(missed_steps.Case(4, 4, 20, 5))
    assert all(row["other"] == 0 and row["missed"] <= 0.05 * row["outcomes"] for row in rows)
    rng = np.random.default_rng(1)
    import numba

    search = step_modes.compile_search(numba.njit)
    for _ in range(5):
        terms, v, caps = missed_steps.random_step(rng, 3)
        J = np.concatenate([np.asarray(terms.J_n)[:, None], np.asarray(terms.J_t)], axis=1)
        found, _ = step_modes.all_solutions(
            J,
            np.asarray(terms.M),
            np.asarray(v),
            np.asarray(terms.mu),
            caps,
            friction_directions(2, 4),
            search,
        )
        law = jc.impact.RouthStep(impulse_max=jnp.asarray(caps), num_directions=4)
        (values, valid), _ = jc.impact.outcomes(terms, v, law)
        apart = np.abs(found[:, None] - np.asarray(values)[np.asarray(valid)][None]).max(axis=2)
        assert apart.min(axis=1).max() < 1e-6 and apart.min(axis=0).max() < 1e-6
