"""`solve_lcp`: known answers, brute force, impact problems up to mu = 1e5, status, derivative, batches."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxcontact.solvers.lcp import Lemke, solve_lcp
from jaxcontact.status import Status
from tests.oracles import problems

ROOT = pathlib.Path(__file__).resolve().parents[2]
MURTY = np.tril(np.full((6, 6), 2.0), -1).T + np.eye(6)  # Lemke visits many bases of this family
KNOWN = {
    # name: (W, w, z)
    "cottle_pang_stone_1": ([[2, 1], [1, 2]], [-5, -6], [4 / 3, 7 / 3]),
    "no_pivot": ([[0, 1], [-1, 0]], [0, 3], [0, 0]),
    "negative_zero": ([[1]], [-0.0], [0]),
    "one_row": ([[4]], [-2], [0.5]),
    "one_active": ([[1, 0], [-1, 1]], [-2, 5], [2, 0]),
    "skew": ([[0, -1], [1, 0]], [1, -1], [1, 1]),
    "murty": (MURTY, -np.ones(6), [0, 0, 0, 0, 0, 1]),
    "singular_twins": ([[1, 0, 0], [0, 1, 0], [0, 0, 0]], [-1, -2, 0], [1, 2, 0]),
    "wide_units": ([[2e-8, 1], [1, 2e8]], [-5e-4, -6e4], [4 / 3 * 1e4, 7 / 3 * 1e-4]),
}


def batch(seed: int, count: int, kind: str, m: int, mu: float | None = None):
    """Contacts, caps on the normal impulses and the LCPs of `count` problems of one kind."""
    rng = np.random.default_rng(seed)
    contacts = problems.stack([problems.random_contacts(rng, m, mu=mu) for _ in range(count)])
    if kind == "ap":
        return contacts, np.inf, problems.anitescu_potra_lcp(contacts)
    caps = 10.0 ** rng.uniform(-3, 4, (count, 1)) * np.ones((1, m))
    caps[rng.random(count) < 0.1] = 0.0
    return contacts, caps, problems.impact_step_lcp(contacts, caps)


SOLVE = jax.jit(jax.vmap(solve_lcp))


@pytest.mark.long
@pytest.mark.parametrize("name", KNOWN)
def test_known_answer(name):
    W, w, z = (jnp.asarray(x, jnp.float64) for x in KNOWN[name])
    got, info = solve_lcp(W, w)
    np.testing.assert_allclose(got, z, rtol=1e-14, atol=1e-14)
    assert info.status == 0 and info.status.dtype == jnp.uint32 and info.num_iters.dtype == jnp.int32
    assert (info.num_iters == 0) == bool(jnp.all(w >= 0))
    assert info.residual <= 1e-14


def test_empty():
    z, info = solve_lcp(jnp.zeros((0, 0)), jnp.zeros(0))
    assert z.shape == (0,) and info.status == 0


@pytest.mark.slow_cases("step-2")
@pytest.mark.parametrize(("kind", "m"), [("ap", 2), ("step", 2)])
def test_two_contacts_against_brute_force(kind, m):
    _, _, (W, w) = batch(11, 100, kind, m)
    z, info = SOLVE(W, w)
    assert np.all(info.status == 0)
    missed = 0
    for k in range(len(w)):
        scale = np.abs(w[k]).max() + 1e-300
        basic = problems.brute_force_lcp(W[k], w[k] / scale)
        distance = [np.abs(b - z[k] / scale).max() / (1 + np.abs(b).max()) for b in basic]
        if not distance or min(distance) > 1e-7:  # index set ill-conditioned for the enumeration
            assert problems.lcp_residual(W[k], w[k], z[k]) <= 1e-12 * scale
            missed += 1
    assert missed <= 5


@pytest.mark.long
@pytest.mark.slow_cases("ap-10-100000.0", "ap-10-None", "ap-4-None", "step-1-100000.0", "step-1-None")
@pytest.mark.parametrize("mu", [None, 1e5])
@pytest.mark.parametrize(
    ("kind", "m"), [("step", 1), ("ap", 4), pytest.param("step", 6, marks=pytest.mark.slow), ("ap", 10)]
)
def test_impact_sweep(kind, m, mu):
    contacts, caps, (W, w) = batch(m, 2000, kind, m, mu)
    z, info = SOLVE(W, w)
    good = np.asarray(info.status) == 0
    assert good.mean() >= (0.995 if mu is None else 0.98)
    assert problems.impact_residual(contacts, z, caps)[good].max() <= 1e-7
    assert np.all(np.asarray(z) >= 0)


@pytest.mark.slow
def test_long_impact_sweep():
    """1e5 problems, n = 5 ... 40, every friction coefficient: no wrong answer with status 0."""
    for kind, m in [("step", 1), ("ap", 2), ("step", 2), ("ap", 6), ("step", 6), ("step", 8)]:
        for mu in problems.FRICTIONS:
            good = 0
            for chunk in range(3):
                contacts, caps, (W, w) = batch(1000 * m + chunk, 700, kind, m, mu)
                z, info = SOLVE(W, w)
                fine = np.asarray(info.status) == 0
                good += fine.sum()
                assert problems.impact_residual(contacts, z, caps)[fine].max() <= 1e-6, (
                    kind,
                    m,
                    mu,
                )
            assert good >= (0.98 if mu == 1e5 else 0.995) * 2100, (kind, m, mu)


@pytest.mark.slow
def test_uncapped_is_anitescu_potra():
    """A cap that is never reached, however large, changes no impulse that velocities can see."""
    rng = np.random.default_rng(3)
    contacts = problems.stack([problems.random_contacts(rng, 3, mu=0.5) for _ in range(200)])
    z, info = SOLVE(*problems.impact_step_lcp(contacts, np.full(3, 1e12)))
    assert np.all(info.status == 0)
    assert problems.impact_residual(contacts, z).max() <= 1e-7


@pytest.mark.slow
def test_float32():
    _, _, (W, w) = batch(5, 1000, "ap", 3, 0.5)
    z, info = SOLVE(jnp.asarray(W, jnp.float32), jnp.asarray(w, jnp.float32))
    assert z.dtype == info.residual.dtype == jnp.float32
    good = np.asarray(info.status) == 0
    assert good.mean() >= 0.99
    relative = problems.lcp_residual(W, w, np.asarray(z, float)) / (np.abs(w).max(1) + 1e-300)
    assert np.quantile(relative[good], 0.99) <= 1e-3


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), decades=st.floats(0, 4))
def test_units_do_not_matter(seed, decades):
    """R W C and R w have the solution C^-1 z; a positive definite W has one."""
    rng = np.random.default_rng(seed)
    W, w = problems.random_spd(rng, 6, 0.5), rng.normal(size=6)
    rows, columns = 10.0 ** rng.uniform(-decades, decades, (2, 6))
    z, info = solve_lcp(W, w)
    scaled, scaled_info = solve_lcp(rows[:, None] * W * columns, rows * w)
    assert info.status == 0 and scaled_info.status == 0
    np.testing.assert_allclose(scaled * columns, z, rtol=1e-9, atol=1e-12)


def test_status_ray():
    for W, w in (([[-1.0]], [-1.0]), ([[0.0]], [-1.0]), ([[0.0, 0.0], [1.0, 1.0]], [-2.0, 1.0])):
        z, info = solve_lcp(jnp.array(W), jnp.array(w))
        assert info.status == Status.RAY
        assert info.residual > 0.1 and np.all(np.isfinite(z))


@pytest.mark.parametrize(
    "max_pivots", [pytest.param(1, marks=pytest.mark.slow), 2, pytest.param(3, marks=pytest.mark.slow)]
)
def test_status_max_iters(max_pivots):
    solver = Lemke(max_pivots=max_pivots, retries=0)
    _, info = solve_lcp(
        jnp.asarray(problems.random_spd(np.random.default_rng(0), 6)), -jnp.ones(6), solver=solver
    )
    assert info.status == Status.MAX_ITERS
    assert info.num_iters == max_pivots
    _, info = solve_lcp(jnp.eye(6), -jnp.ones(6), solver=solver.replace(retries=2))
    assert info.status == Status.MAX_ITERS and info.num_iters == 3 * max_pivots


def test_status_stalled():
    W, w = problems.random_spd(np.random.default_rng(0), 8, 3.0), -np.ones(8)
    z, info = solve_lcp(W, w, solver=Lemke(tolerance=1e-30))
    assert info.status == Status.STALLED
    assert 0 < info.residual < 1e-9
    assert problems.lcp_residual(W, w, np.asarray(z)) < 1e-9


@pytest.mark.long
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_status_nonfinite_leaves_other_lanes_alone(bad):
    _, _, (W, w) = batch(7, 8, "step", 2, 0.5)
    z, info = SOLVE(W, w)
    broken_W, broken_w = W.copy(), w.copy()
    broken_w[2, 1] = bad
    broken_W[5, 3, 4] = bad
    z_b, info_b = SOLVE(broken_W, broken_w)
    rest = np.array([0, 1, 3, 4, 6, 7])
    for lane in (2, 5):
        assert info_b.status[lane] == Status.NONFINITE
        assert np.all(z_b[lane] == 0) and info_b.num_iters[lane] == 0 and np.isinf(info_b.residual[lane])
    np.testing.assert_array_equal(z_b[rest], z[rest])
    np.testing.assert_array_equal(info_b.status[rest], info.status[rest])

    total = jax.jit(jax.grad(lambda W, w: jnp.sum(jax.vmap(solve_lcp)(W, w)[0]), (0, 1)))
    for g, h in zip(total(broken_W, broken_w), total(W, w), strict=True):
        assert np.all(g[np.array([2, 5])] == 0)
        np.testing.assert_allclose(g[rest], h[rest], rtol=1e-12, atol=1e-12)


def test_huge_and_tiny_numbers_are_not_silent():
    """Overflow is said, not returned as success."""
    z, info = solve_lcp(jnp.array([[1e-300]]), jnp.array([-1e300]))
    assert info.status & Status.NONFINITE
    z, info = solve_lcp(jnp.array([[1e-150]]), jnp.array([-1e-300]))
    assert info.status == 0
    np.testing.assert_allclose(z, [1e-150], rtol=1e-14)


@pytest.mark.slow
def test_vmap_is_loop_is_jit():
    _, _, (W, w) = batch(9, 40, "step", 4)
    z, info = SOLVE(W, w)
    one = jax.jit(solve_lcp)
    for k in range(40):
        z_k, info_k = one(W[k], w[k])
        np.testing.assert_allclose(z_k, z[k], rtol=1e-13, atol=1e-13 * np.abs(z[k]).max())
        assert info_k.num_iters == info.num_iters[k] and info_k.status == info.status[k]
    z_0, _ = solve_lcp(W[0], w[0])
    np.testing.assert_allclose(z_0, z[0], rtol=1e-13, atol=1e-13 * np.abs(z[0]).max())


def test_options_are_static():
    assert jax.tree.leaves(Lemke(max_pivots=3)) == []
    assert jax.tree.structure(Lemke(max_pivots=3)) == jax.tree.structure(Lemke(max_pivots=3))


def nondegenerate(seed):
    rng = np.random.default_rng(seed)
    W = problems.random_spd(rng, 5, 0.3) + 0.1 * rng.normal(size=(5, 5))
    w = rng.normal(size=5)
    z = np.asarray(solve_lcp(W, w)[0])
    assert np.maximum(z, W @ z + w).min() > 1e-2  # strictly complementary
    return jnp.asarray(W), jnp.asarray(w), z


@pytest.mark.long
@pytest.mark.slow_cases("0")
@pytest.mark.parametrize("seed", [0, 3, 4])
def test_derivative_against_differences_and_closed_form(seed):
    W, w, z = nondegenerate(seed)
    rng = np.random.default_rng(seed)
    dW, dw, cotangent = rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=5)

    def answer(W, w):
        return solve_lcp(W, w)[0]

    h = 1e-5
    difference = (answer(W + h * dW, w + h * dw) - answer(W - h * dW, w - h * dw)) / (2 * h)
    _, tangent = jax.jvp(answer, (W, w), (jnp.asarray(dW), jnp.asarray(dw)))
    np.testing.assert_allclose(tangent, difference, rtol=1e-7, atol=1e-7)
    A = z > 0
    exact = np.zeros(5)
    exact[A] = -np.linalg.solve(np.asarray(W)[np.ix_(A, A)], (dw + dW @ z)[A])
    np.testing.assert_allclose(tangent, exact, rtol=1e-12, atol=1e-12)
    gW, gw = jax.vjp(answer, W, w)[1](jnp.asarray(cotangent))
    np.testing.assert_allclose(np.sum(gW * dW) + gw @ dw, cotangent @ exact, rtol=1e-12)


def test_second_derivative():
    z = jax.grad(jax.grad(lambda a: solve_lcp(a * jnp.eye(2), jnp.array([-3.0, 1.0]))[0][0]))
    np.testing.assert_allclose(z(2.0), 2 * 3.0 / 2.0**3, rtol=1e-13)


@pytest.mark.slow
def test_derivative_is_finite_at_degenerate_problems():
    for kind in ("ap", "step"):
        _, _, (W, w) = batch(13, 300, kind, 3)
        W[0], w[1] = 0.0, 0.0
        gW, gw = jax.jit(jax.grad(lambda W, w: jnp.sum(jax.vmap(solve_lcp)(W, w)[0]), (0, 1)))(W, w)
        assert np.all(np.isfinite(gW)) and np.all(np.isfinite(gw))
        inactive = np.asarray(SOLVE(W, w)[0]).sum(1) == 0
        assert np.all(gw[0] == 0) and np.all(gw[1] == 0) and inactive[1]


@pytest.mark.parametrize(
    ("W", "w", "options", "error", "message"),
    [
        (np.zeros((2, 3)), np.zeros(2), {}, ValueError, r"W: expected shape \(n, n\), got \(2, 3\)"),
        (np.zeros(4), np.zeros(2), {}, ValueError, r"W: expected shape \(n, n\), got \(4,\)"),
        (np.zeros((2, 2)), np.zeros(3), {}, ValueError, r"w: expected shape \(2,\), got \(3,\)"),
        (np.zeros((2, 2)), np.zeros((2, 1)), {}, ValueError, r"w: expected shape \(2,\), got \(2, 1\)"),
        (
            np.zeros((2, 2), int),
            np.zeros(2),
            {},
            TypeError,
            "W: expected a floating dtype, got int",
        ),
        (
            np.zeros((2, 2)),
            np.zeros(2, complex),
            {},
            TypeError,
            "w: expected a floating dtype, got complex",
        ),
        (
            np.zeros((2, 2)),
            np.zeros(2, np.float32),
            {},
            TypeError,
            "w: expected float64, as W has, got float32",
        ),
        (
            np.zeros((2, 2)),
            np.zeros(2),
            {"max_pivots": 0},
            ValueError,
            "max_pivots: expected an integer >= 1, got 0",
        ),
        (
            np.zeros((2, 2)),
            np.zeros(2),
            {"retries": -1},
            ValueError,
            "retries: expected an integer >= 0, got -1",
        ),
    ],
)
def test_static_mistakes(W, w, options, error, message):
    with pytest.raises(error, match=message):
        solve_lcp(W, w, solver=Lemke(**options))
    with pytest.raises(error, match=message):
        jax.eval_shape(lambda W, w: solve_lcp(W, w, solver=Lemke(**options)), W, w)


@pytest.mark.long
def test_large_batch_does_not_hang():
    code = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
from jaxcontact.solvers.lcp import solve_lcp
from tests.oracles import problems
rng = np.random.default_rng(0)
c = problems.stack([problems.random_contacts(rng, 2, mu=0.5) for _ in range(512)])
W, w = problems.impact_step_lcp(c, np.ones(2))
W, w = np.tile(W, (16, 1, 1)), np.tile(w, (16, 1))
def value(W, w):
    z, info = jax.vmap(solve_lcp)(W, w)
    return z.sum(), info.status
(_, status), g = jax.jit(jax.value_and_grad(value, has_aux=True))(W, w)
print(int((np.asarray(status) == 0).sum()), bool(np.isfinite(g).all()))
"""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["8192", "True"]


def test_the_covering_vector_decides_among_solutions():
    """W = [[1, 2], [2, 1]], w = (-1, -1) has the solutions (1, 0), (0, 1) and (1/3, 1/3)."""
    W, w = jnp.array([[1.0, 2.0], [2.0, 1.0]]), jnp.array([-1.0, -1.0])
    found = {
        tuple(np.round(np.asarray(solve_lcp(W, w, cover=jnp.asarray(cover))[0]), 6))
        for cover in ([1.0, 3.0], [3.0, 1.0])
    }
    assert found == {(1.0, 0.0), (0.0, 1.0)}
    ones, _ = solve_lcp(W, w)
    for bad in ([1.0, 0.0], [-1.0, 1.0], [np.nan, 1.0]):
        assert np.array_equal(solve_lcp(W, w, cover=jnp.asarray(bad))[0], ones)
    with pytest.raises(ValueError, match=r"cover: expected shape \(2,\)"):
        solve_lcp(W, w, cover=jnp.ones(3))


def test_the_residual_is_in_the_users_units():
    """Rows of units 1e-6 to 1e6: |min(d z, W z + w)| with d the largest effect of z, over the deepest w."""
    rng = np.random.default_rng(12)
    units = 10.0 ** np.array([-6.0, 6.0, 0.0, 3.0])
    L = rng.normal(size=(4, 4))
    W = units[:, None] * (L @ L.T) * units[None, :]
    w = -units * rng.uniform(0.5, 1.0, 4)
    z, info = solve_lcp(jnp.asarray(W), jnp.asarray(w))
    slack = W @ np.asarray(z) + w
    misfit = np.abs(np.minimum(np.abs(W).max(axis=0) * np.asarray(z), slack)).max() / -w.min()
    assert info.status == 0 and misfit < 1e-9
    np.testing.assert_allclose(info.residual, misfit, atol=1e-14)


def octagon(rng, order):
    """The LCP of three contacts with friction of eight sides: masses over six decades, redundant, with round-off."""
    nc, sides, bodies = 3, 8, 2
    J = np.zeros((3 * nc, 3 * bodies))
    for k in range(nc):
        J[3 * k : 3 * k + 3, :3] = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    J[3:6, 3:] = -J[3:6, :3]
    J[6:] = J[:3]
    W = (J / np.repeat(10.0 ** rng.uniform(-3.0, 3.0, bodies), 3)) @ J.T
    angle = 2.0 * np.pi * np.arange(sides) / sides
    fan = np.stack([0.0 * angle, np.cos(angle), np.sin(angle)])
    rays = np.hstack([np.kron(np.eye(nc), np.eye(3, 1)), np.kron(np.eye(nc), fan)])
    m, n = rays.shape[1], rays.shape[1] + nc
    noise = rng.normal(size=(m, m))
    matrix = np.zeros((n, n))
    matrix[:m, :m] = rays.T @ W @ rays
    matrix[:m, :m] += 1e-16 * np.abs(matrix).max() * (noise + noise.T)
    ones = np.kron(np.eye(nc), np.ones((sides, 1)))
    matrix[nc:m, m:], matrix[m:, nc:m], matrix[m:, :nc] = ones, -ones.T, 0.5 * np.eye(nc)
    w = np.concatenate([rays.T @ (J @ rng.normal(size=3 * bodies)), np.zeros(nc)])
    by_contact = [np.r_[k, nc + sides * k : nc + sides * (k + 1), m + k] for k in range(nc)]
    rows = {"axis": np.arange(n), "contact": np.concatenate(by_contact), "any": rng.permutation(n)}[order]
    return matrix[np.ix_(rows, rows)], w[rows]


@pytest.mark.long
def test_round_off_in_place_of_zeros_is_never_wrong_with_status_0():
    rng = np.random.default_rng(14)
    problems = [octagon(rng, order) for order in ("axis", "contact", "any") for _ in range(20)]
    W, w = map(np.stack, zip(*problems, strict=True))
    z, info = jax.jit(jax.vmap(solve_lcp))(jnp.asarray(W), jnp.asarray(w))
    slack = np.einsum("kij,kj->ki", W, z) + w
    effect = np.einsum("kii->ki", np.abs(W))
    effect = np.where(effect > 0, effect, np.abs(W).max(axis=1))
    misfit = np.abs(np.minimum(effect * np.asarray(z), slack)).max(axis=1) / np.abs(w).max(axis=1)
    good = np.asarray(info.status) == 0
    assert good.sum() >= 57 and misfit[good].max() < 1e-9
