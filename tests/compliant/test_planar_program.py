"""The planar program that Drumwright prints (99)-(108), as it stands, against formulation="min_norm"; and its zeta."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from compliant.test_solve import GRAVITY, problem
from scipy.linalg import null_space

import jaxcontact as jc
from jaxcontact.terms import NORMAL, TANGENT


def printed_program(G_n, G_r, M, v, f, phi_n, phi_r, K, B, mu, h, zeta):
    """(lam_n, lam_r) of (99)-(108), with every variable that the paper has, by trying all active sets.

    Unknowns: lam_n, lam_r, phi_n, phidot_n, phi_r, phidot_r, beta; the Jacobians are constant.
    """
    m = len(G_n)
    zero, one = np.zeros((m, m)), np.eye(m)
    inverse = np.linalg.inv(M)
    free = v + h * inverse @ f
    response = [[h * a @ inverse @ b.T for b in (G_n, G_r)] for a in (G_n, G_r)]
    (K_n, K_r), (B_n, B_r) = K, B
    equalities = np.block([
        [zero, zero, one, -h * one, zero, zero, zero],  # (100)
        [-response[0][0], -response[0][1], zero, one, zero, zero, zero],  # (101)
        [zero, zero, zero, zero, one, -h * one, zero],  # (102)
        [-response[1][0], -response[1][1], zero, zero, zero, one, zero],  # (103)
        [zero, one, zero, zero, K_r * one, B_r * one, -one],  # (106)
    ])  # fmt: skip
    right = np.concatenate([phi_n, G_n @ free, phi_r, G_r @ free, np.zeros(m)])
    inequalities = np.block([
        [-one, zero, -K_n * one, -B_n * one, zero, zero, zero],  # (104)
        [-one, zero, zero, zero, zero, zero, zero],  # (105)
        [-mu * one, one, zero, zero, zero, zero, zero],  # (107)
        [-mu * one, -one, zero, zero, zero, zero, zero],  # (108)
    ])  # fmt: skip
    weights = np.concatenate([np.full(m, zeta), np.ones(m), np.zeros(4 * m), np.ones(m)])
    # Equations leave 2 m unknowns y, z = point + basis y, of which every set of active inequalities is tried.
    point = np.linalg.lstsq(equalities, right, rcond=None)[0]
    basis = null_space(equalities)
    hessian, slope = (basis.T * weights) @ basis, basis.T @ (weights * point)
    rows, bounds = inequalities @ basis, -inequalities @ point
    size = np.linalg.norm(rows, axis=1)
    best, least = None, np.inf
    for count in range(2 * m + 1):
        for active in map(list, itertools.combinations(range(4 * m), count)):
            there = rows[active]
            kkt = np.block([[hessian, there.T], [there, np.zeros((count, count))]])
            if np.linalg.cond(kkt) > 1e14:
                continue
            y = np.linalg.solve(kkt, np.concatenate([-slope, bounds[active]]))[: 2 * m]
            value = y @ (0.5 * hessian @ y + slope)
            if np.all(rows @ y - bounds <= 1e-9 * size) and value < least:
                best, least = point + basis @ y, value
    return best[: 2 * m].reshape(2, m)


def solved(G, phi, M, v, f, law, dt, mu, stretch=None, zeta=None):
    """Forces (contacts, 2) of the paper's program here."""
    kinds = [NORMAL, TANGENT] * (len(G) // 2)
    found = problem(G, phi, M, v, f, kinds, law, dt, mu).replace(stretch=stretch)
    lam, info = jc.compliant.solve(
        found,
        settings=jc.compliant.Settings(cone="coupled", formulation="min_norm", zeta=zeta),
    )
    assert info.status == 0
    return np.asarray(lam).reshape(-1, 2)


@pytest.mark.long
def test_the_planar_program_as_it_is_printed():
    """Bodies of three velocities on two contacts, one of them open in some draws; any zeta, springs along both."""
    rng = np.random.default_rng(3)
    h, mu, opened, slid = 0.01, 0.4, 0, 0
    K, B = (4e3, 300.0), (30.0, 20.0)
    law = jc.compliant.Material(
        stiffness=K[0], damping=B[0],
        friction_spring=jc.compliant.FrictionSpring(stiffness=jnp.array(K[1]), damping=jnp.array(B[1])),
    )  # fmt: skip
    for draw in range(24):
        zeta = (1 / h, 1.0, 1e4)[draw % 3]
        root = rng.normal(size=(3, 3))
        M, v, f = root @ root.T + np.eye(3), rng.normal(size=3), 20.0 * rng.normal(size=3)
        G, phi, stretch = rng.normal(size=(4, 3)), 0.01 * rng.normal(size=2), 0.02 * rng.normal(size=2)
        expected = printed_program(G[::2], G[1::2], M, v, f, phi, stretch, K, B, mu, h, zeta)
        gaps = np.array([phi[0], 0.0, phi[1], 0.0])
        found = solved(G, gaps, M, v, f, law, h, [mu, mu], jnp.asarray(stretch)[:, None], zeta)
        np.testing.assert_allclose(found.T, expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))
        opened += np.sum(found[:, 0] < 1e-6)
        slid += np.sum((found[:, 0] > 1e-3) & (np.abs(found[:, 1]) > 0.999 * mu * found[:, 0]))
    assert opened >= 2 and slid >= 3


SLIDING = jc.compliant.Material(stiffness=1e9, damping=1.0)
RUBBED = SLIDING.replace(friction_damping=1e4)


@pytest.mark.long
@pytest.mark.parametrize("count", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_no_zeta_makes_the_program_the_law(count):
    """A sliding mass: the larger zeta, the less it is pressed. But a foot out of reach carries its share at any."""
    G, f = np.tile(np.eye(2)[[1, 0]], (count, 1)), [0.0, -GRAVITY]
    phi = np.zeros(2 * count)
    phi[2:] = 0.1  # a second foot, 0.1 m above the ground
    normals = [
        solved(G, phi, np.eye(2), [1.0, 0.0], f, RUBBED, 0.01, [0.25] * count, zeta=zeta)[:, 0] / GRAVITY
        for zeta in (None, 1e3, 3e3, 1e15)
    ]
    totals = np.sum(normals, axis=1)
    same = solved(G, phi, np.eye(2), [1.0, 0.0], f, RUBBED, 0.01, [0.25] * count, zeta=100.0)
    np.testing.assert_allclose(normals[0], same[:, 0] / GRAVITY, rtol=1e-14)  # None is 1 / dt
    assert totals[0] > 20.0 and np.all(np.diff(totals) < 0)
    np.testing.assert_allclose(totals[-1], 1.0, rtol=1e-2)
    if count == 2:
        np.testing.assert_allclose(normals[-1], [0.5, 0.5], rtol=1e-2)  # the law says (1, 0)


@pytest.mark.long
def test_forces_off_their_cones_are_not_a_success():
    """Two feet share a rigid friction: its energy hides that of the cones from the search."""
    found = problem(np.tile(np.eye(2)[[1, 0]], (2, 1)), [0.0, 0.0, 0.1, 0.1], np.eye(2), [1.0, 0.0],
                    [0.0, -GRAVITY], [NORMAL, TANGENT] * 2, SLIDING, 0.01, [0.25, 0.25])  # fmt: skip
    lam, info = jc.compliant.solve(
        found, settings=jc.compliant.Settings(cone="coupled", formulation="min_norm", zeta=1e10)
    )
    assert info.status & jc.Status.MAX_ITERS and -lam[1] > 0.3 * lam[0]


def test_a_zeta_without_its_program_or_not_positive_is_told():
    with pytest.raises(ValueError, match="zeta: expected None"):
        jc.compliant.Settings(zeta=1.0)
    with pytest.raises(ValueError, match="zeta: expected a positive number, got -1"):
        jc.compliant.Settings(cone="coupled", formulation="min_norm", zeta=-1.0)
