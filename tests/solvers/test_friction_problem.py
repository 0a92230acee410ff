"""`jc.solve_friction`: laws against each other and closed forms, arguments, hard kinds of problems."""

import itertools

import clarabel
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import sparse

import jaxcontact as jc
from jaxcontact.solvers import friction_dense, friction_host
from jaxcontact.solvers.friction_newton import solve_coulomb


def heap(rng, spheres, contacts, dim=3):
    """Spheres of mixed masses in contact with each other and the floor: W, its (M, J), and a falling q."""
    nv = 6 * spheres
    mass = np.repeat(10.0 ** rng.uniform(-1.0, 1.0, spheres), 6) * np.tile([1, 1, 1, 0.4, 0.4, 0.4], spheres)
    J = np.zeros((3 * contacts, nv))
    for k in range(contacts):
        a, b = k % spheres, int(rng.integers(-1, spheres))
        normal = rng.normal(size=3)
        normal = np.array([0.0, 0.0, 1.0]) if b in (-1, a) else normal / np.linalg.norm(normal)
        frame = np.linalg.qr(np.column_stack([normal, rng.normal(size=(3, 2))]))[0].T
        frame[0] = normal
        for body, sign in ((a, 1.0),) if b in (-1, a) else ((a, 1.0), (b, -1.0)):
            arm = -sign * normal
            turn = np.array([[0, arm[2], -arm[1]], [-arm[2], 0, arm[0]], [arm[1], -arm[0], 0]])
            J[3 * k : 3 * k + 3, 6 * body : 6 * body + 6] += sign * frame @ np.hstack([np.eye(3), turn])
    v = rng.normal(size=nv)
    v[2::6] -= 2.0
    rows = np.arange(3 * contacts).reshape(-1, 3)[:, :dim].ravel()
    J = J[rows]
    return (J / mass) @ J.T, (mass, J), J @ v


@pytest.mark.slow
def test_a_sliding_block_and_its_derivatives():
    W, q = jnp.eye(3) / 2.0, jnp.array([-1.0, 3.0, 4.0])
    (r, u), info = jc.solve_friction(W, q, 0.5)
    np.testing.assert_allclose(r, [2.0, -0.6, -0.8], atol=1e-12)
    np.testing.assert_allclose(u, [0.0, 2.7, 3.6], atol=1e-12)
    assert info.status == 0 and info.residual < 1e-12
    (r, u), _ = jc.solve_friction(W, q, 0.5, law="associated")
    # r = t (1, -0.3, -0.4) with the speed along that ray zero: -1 - 2.5 + t (1 + 0.25) / 2 = 0.
    np.testing.assert_allclose(r, 5.6 * np.array([1.0, -0.3, -0.4]), atol=1e-12)
    np.testing.assert_allclose(u[0], 0.5 * np.hypot(*u[1:]), atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("law", ["coulomb", "associated"])
def test_smooth_contacts_without_slip_open_and_push(dim, law):
    """Without friction and slip the tangential inequality holds as 0 <= -0 where a contact opens."""
    W, q = np.diag(np.tile([1.0, *[0.0] * (dim - 1)], 3)), np.zeros(3 * dim)
    q[::dim] = 0.1, -0.003, -0.002
    for device in (np.asarray, jnp.asarray):
        (r, u), info = jc.solve_friction(device(W), device(q), device(np.zeros(3)), dim=dim, law=law)
        np.testing.assert_allclose(r[::dim], [0.0, 0.003, 0.002], atol=1e-15)
        np.testing.assert_allclose(u[::dim], [0.1, 0.0, 0.0], atol=1e-15)
        assert info.status == 0 and info.residual < 1e-12
    r, info = jax.jit(lambda W, q: solve_coulomb(W, q, jnp.zeros(3)))(W, q)
    np.testing.assert_allclose(r[::dim], [0.0, 0.003, 0.002], atol=1e-15)
    assert info.status == 0


def test_the_associated_law_is_the_minimum_of_a_cone_program():
    rng = np.random.default_rng(1)
    W, _, q = heap(rng, 4, 8)
    mu = rng.uniform(0.1, 1.5, 8)
    (r, u), info = jc.solve_friction(W, q, mu, law="associated")
    cones = sparse.block_diag([sparse.diags([-m, -1.0, -1.0]) for m in mu], format="csc")
    options = clarabel.DefaultSettings()
    options.verbose, options.tol_gap_abs, options.tol_gap_rel, options.tol_feas = False, 1e-12, 1e-12, 1e-12
    solver = clarabel.DefaultSolver(
        sparse.csc_matrix(np.triu(W)), q, cones, np.zeros(24), [clarabel.SecondOrderConeT(3)] * 8, options
    )
    np.testing.assert_allclose(u, W @ np.array(solver.solve().x) + q, atol=1e-6)
    assert info.status == 0 and info.residual < 1e-12


@pytest.mark.long
def test_pairs_of_mass_and_rows_and_padding():
    """(M, J) is J M^-1 J^T, with M or its diagonal; 8 contacts more or less run one program."""
    rng = np.random.default_rng(2)
    W, (mass, J), q = heap(rng, 4, 8)
    (_, u), info = jc.solve_friction(W, q, 0.6)
    for pair in ((mass, J), (np.diag(mass), J)):
        (_, by_pair), more = jc.solve_friction(pair, q, 0.6)
        np.testing.assert_allclose(by_pair, u, atol=1e-9)
        assert info.status == more.status == 0
    (r, u), info = jc.solve_friction(W[:21, :21], q[:21], 0.6)
    assert r.shape == u.shape == (21,) and info.status == 0
    np.testing.assert_allclose(u, W[:21, :21] @ r + q[:21], atol=1e-12)


def planar(W, q, mu):
    """All solutions of a problem in the plane, by every mode of every contact; numpy alone."""
    nc, solutions = len(mu), []
    for modes in itertools.product(("free", "stick", "left", "right"), repeat=nc):
        A, b = np.eye(2 * nc), np.zeros(2 * nc)
        for i, mode in enumerate(modes):
            if mode != "free":
                A[2 * i], b[2 * i] = W[2 * i], -q[2 * i]
            if mode == "stick":
                A[2 * i + 1], b[2 * i + 1] = W[2 * i + 1], -q[2 * i + 1]
            if mode in ("left", "right"):  # slides to one side, rubs to the other
                A[2 * i + 1, 2 * i] = mu[i] if mode == "right" else -mu[i]
        r = np.linalg.lstsq(A, b, rcond=None)[0]
        u = W @ r + q
        sign = np.array([{"left": -1.0, "right": 1.0}.get(mode, 0.0) for mode in modes])
        fits = np.abs(A @ r - b).max() < 1e-9 and r[::2].min() > -1e-9 and u[::2].min() > -1e-9
        if fits and (np.abs(r[1::2]) <= mu * r[::2] + 1e-9).all() and (sign * u[1::2] >= -1e-9).all():
            solutions.append(u)
    return solutions


@pytest.mark.long
def test_planar_problems_against_all_modes():
    rng = np.random.default_rng(3)
    solve = jax.jit(jax.vmap(lambda *data: jc.solve_friction(*data, dim=2)))
    problems = [heap(rng, 2, 3, dim=2) for _ in range(40)]
    W, q = np.stack([p[0] + 0.01 * np.eye(6) for p in problems]), np.stack([p[2] for p in problems])
    mu = rng.choice([0.0, 0.3, 1.0], (40, 3))
    (_, u), info = solve(jnp.asarray(W), jnp.asarray(q), jnp.asarray(mu))
    assert not info.status.any()
    for k in range(40):
        distances = [np.abs(each - np.asarray(u[k])).max() for each in planar(W[k], q[k], mu[k])]
        assert min(distances) < 1e-8


@pytest.mark.slow
def test_hard_kinds():
    """Redundant, noisy in place of zero, out of range, light beside heavy, no friction and very much."""
    rng = np.random.default_rng(4)
    W, _, q = heap(rng, 4, 8)
    copies = np.arange(24).reshape(8, 3)[[0, 0, 0, 1, 1, 2, 3, 4]].ravel()
    noise = 1e-16 * np.abs(W).max() * rng.normal(size=W.shape)
    units = np.repeat(10.0 ** rng.integers(-4, 5, 8), 3)
    cases = {
        "redundant": (W[copies][:, copies], q[copies], 0.6),
        "round-off": (W[copies][:, copies] + noise, q[copies], 0.6),
        "out of range": (W[copies][:, copies], q[copies] + 0.1 * np.abs(rng.normal(size=24)), 0.6),
        "not symmetric": ((W + np.diag(0.02 * np.diag(W))) * (1.0 + 1e-3 * rng.normal(size=W.shape)), q, 0.6),
        "scales": (W * units[:, None] * units[None], q * units, 0.6),
        "huge": (1e9 * W, q, 0.6),
        "tiny": (W, 1e-12 * q, 0.6),
        "at rest": (W, 0.0 * q, 0.6),
        "smooth and rough": (W, q, np.array([0.0, 1e3] * 4)),
    }
    for name, (matrix, rates, mu) in cases.items():
        (r, u), info = jc.solve_friction(matrix, rates, mu)
        assert info.status == 0 and info.residual < 1e-9, name
        r, u, mu = np.asarray(r).reshape(8, 3), np.asarray(u).reshape(8, 3), np.broadcast_to(mu, 8)
        assert (r[:, 0] >= -1e-12 * np.abs(r).max()).all(), name
        slip = np.linalg.norm(u[:, 1:], axis=1)
        power = np.abs(np.sum(r[:, 1:] * u[:, 1:], axis=1) + mu * r[:, 0] * slip)
        assert power.max() <= 1e-8 * np.abs(r).max() * np.abs(rates).max() * (1.0 + mu.max()), name


def test_a_problem_without_solution_fails():
    """A normal that no impulse moves, and that approaches."""
    W = np.diag([0.0, 1.0, 1.0])
    _, info = jc.solve_friction(W, np.array([-1.0, 0.3, 0.0]), 0.5)
    assert info.status == jc.Status.MAX_ITERS and info.residual > 0.1


def test_sides():
    """Many sides tend to the circular cone: the block slides within a hundredth."""
    W, q = jnp.eye(3) / 2.0, jnp.array([-1.0, 3.0, 4.0])
    (r, _), info = jc.solve_friction(W, q, 0.5, law=8)
    # The direction of eight that opposes (3, 4) most is (-1, -1) / sqrt(2).
    np.testing.assert_allclose(r, [2.0, -(0.5**0.5), -(0.5**0.5)], atol=1e-9)
    assert info.status == 0


@pytest.mark.parametrize(
    ("error", "match", "changes"),
    [
        (ValueError, "law: expected", {"law": "cone"}),
        (ValueError, "law: expected", {"law": 5}),
        (ValueError, "dim: expected", {"dim": 4}),
        (ValueError, "W: expected shape", {"W": np.eye(2)}),
        (ValueError, "W: expected finite", {"W": np.full((3, 3), np.nan)}),
        (ValueError, "J: expected shape", {"W": (np.eye(2), np.eye(2))}),
        (ValueError, "M: expected shape", {"W": (np.eye(2), np.eye(3))}),
        (ValueError, "M: expected a positive diagonal", {"W": (np.array([1.0, 0.0, 1.0]), np.eye(3))}),
        (ValueError, "M: expected a positive definite", {"W": (np.ones((3, 3)), np.eye(3))}),
        (ValueError, "M: expected a positive definite", {"W": (np.ones((3, 3)), sparse.eye_array(3))}),
        (ValueError, "q: expected shape", {"q": np.zeros(4)}),
        (TypeError, "q: expected a floating", {"q": np.zeros(3, int)}),
        (TypeError, "W: expected dtype", {"W": np.eye(3, dtype=np.float32)}),
        (ValueError, "mu: expected numbers >= 0", {"mu": -1.0}),
        (ValueError, "mu: expected a number or shape", {"mu": np.ones(2)}),
        (ValueError, "start: expected shape", {"start": np.zeros(2)}),
    ],
)
def test_wrong_arguments_are_named(error, match, changes):
    arguments = {"W": np.eye(3), "q": np.zeros(3), "mu": 0.5, **changes}
    with pytest.raises(error, match=match):
        jc.solve_friction(**arguments)


def test_no_contacts():
    (r, u), info = jc.solve_friction(np.zeros((0, 0)), np.zeros(0), 0.5)
    assert r.shape == u.shape == (0,) and info.status == 0


def chain(rng, bodies):
    """Points of mixed masses with a contact from each to the next and to the floor; J is sparse."""
    mass, J = 10.0 ** rng.uniform(-1.0, 1.0, bodies), sparse.lil_array((6 * bodies, 3 * bodies))
    for k in range(bodies):
        frame = np.linalg.qr(rng.normal(size=(3, 3)))[0]
        J[6 * k : 6 * k + 3, 3 * k : 3 * k + 3] = np.eye(3)[[2, 0, 1]]
        J[6 * k + 3 : 6 * k + 6, 3 * k : 3 * k + 3] = frame
        if k:
            J[6 * k + 3 : 6 * k + 6, 3 * k - 3 : 3 * k] = -frame
    v = rng.normal(size=3 * bodies) - np.tile([0.0, 0.0, 1.0], bodies)
    return np.repeat(mass, 3), sparse.csr_array(J), J @ v


def conditions(W, q, mu, r):
    """Distance from Coulomb's law, by De Saxce's natural map with unit steps of every contact."""
    u, lever = (W @ r + q).reshape(-1, 3), np.abs(W.diagonal()).reshape(-1, 3).max(axis=1)[:, None]
    push = lever * r.reshape(-1, 3)
    asked = push - u
    asked[:, 0] -= mu * np.hypot(u[:, 1], u[:, 2])
    size = np.hypot(asked[:, 1], asked[:, 2])
    normal = np.where(
        size <= mu * asked[:, 0], asked[:, 0], np.maximum(asked[:, 0] + mu * size, 0) / (1 + mu**2)
    )
    granted = asked * np.minimum(1.0, mu * normal / np.maximum(size, 1e-300))[:, None]
    granted[:, 0] = normal
    return np.abs(granted - push).max() / np.abs(q).max()


def test_sparse_arrays_of_many_contacts():
    """W, or (M, J) with M diagonal or of blocks, sparse: 400 contacts, no array of 1200 x 1200."""
    mass, J, q = chain(np.random.default_rng(6), 200)
    W = sparse.csr_array(J @ sparse.diags_array(1.0 / mass) @ J.T)
    answers = [jc.solve_friction(x, q, 0.3) for x in (W, (mass, J), (sparse.diags_array(mass), J))]
    for (r, u), info in answers:
        assert info.status == 0 and isinstance(r, np.ndarray)
        assert conditions(W, q, 0.3, r) < 1e-9
        np.testing.assert_allclose(u, W @ r + q, atol=1e-12)
    turned = np.linalg.qr(np.random.default_rng(7).normal(size=(3, 3)))[0]
    blocks = sparse.csr_array(
        sparse.block_diag([turned @ np.diag([m, 2 * m, 3 * m]) @ turned.T for m in mass[::3]])
    )
    inverse = np.linalg.inv(blocks.toarray())
    (r, _), info = jc.solve_friction((blocks, J), q, 0.3)
    assert info.status == 0 and conditions(J @ inverse @ J.T, q, 0.3, r) < 1e-9
    with pytest.raises(TypeError, match="W: expected arrays inside jit"):
        jax.jit(lambda q: jc.solve_friction(W, q, 0.3))(jnp.asarray(q))


@pytest.mark.long
@pytest.mark.parametrize("law", ["coulomb", "associated"])
def test_arrays_of_numpy_and_traced_ones_have_one_answer(law):
    """Velocities agree where they are unique: a heap that moves fast; NumPy's arrays stay NumPy's."""
    rng = np.random.default_rng(8)
    W, _, q = heap(rng, 4, 8)
    mu = np.array([0.0, 0.3] * 4)
    (r, u), info = jc.solve_friction(W, q, mu, law=law)
    (_, traced), other = jax.jit(lambda *data: jc.solve_friction(*data, law=law))(W, q, mu)
    assert isinstance(r, np.ndarray) and info.status == other.status == 0
    np.testing.assert_allclose(u, traced, atol=1e-9)
    (r, u), info = jc.solve_friction(*(jnp.asarray(x, jnp.float32) for x in (W, q, mu)), law=law)
    assert isinstance(r, jax.Array) and r.dtype == jnp.float32 and info.status == 0
    np.testing.assert_allclose(u, traced, atol=1e-4)


def test_dense_problems_of_arbitrary_numbers():
    """Low rank, every contact with every other, friction of 0 to 3."""
    rng = np.random.default_rng(11)
    for _ in range(40):
        nc = int(rng.integers(4, 16))
        J = rng.normal(size=(3 * nc, int(rng.integers(nc, 3 * nc + 1))))
        q, mu = J @ rng.normal(size=J.shape[1]), rng.choice([0.0, 0.3, 0.8, 3.0], nc)
        (r, _), info = jc.solve_friction(J @ J.T, q, mu)
        assert info.status == 0 and conditions(J @ J.T, q, mu, r) < 1e-8


@pytest.mark.parametrize("jams", [False, True])
def test_a_heap_of_spheres(jams, monkeypatch):
    """400 contacts of spheres with their neighbours, without a dense matrix; also by proximal steps alone."""
    if jams:
        monkeypatch.setattr(friction_host._HostSearch, "interior", lambda _, now, *limits: (now, 1.0, False))
    rng = np.random.default_rng(12)
    spheres, contacts = 200, 400
    mass = np.repeat(rng.uniform(0.5, 2.0, spheres), 6) * np.tile([1, 1, 1, 0.4, 0.4, 0.4], spheres)
    J = sparse.lil_array((3 * contacts, 6 * spheres))
    for k in range(contacts):
        a = k % spheres
        b = a - int(rng.integers(1, 6))
        normal = rng.normal(size=3) if b >= 0 else np.array([0.0, 0.0, 1.0])
        normal /= np.linalg.norm(normal)
        frame = np.linalg.qr(np.column_stack([normal, rng.normal(size=(3, 2))]))[0].T
        frame[0] = normal
        for body, sign in ((a, 1.0), (b, -1.0)) if b >= 0 else ((a, 1.0),):
            turn = np.cross(np.eye(3), -sign * normal)
            J[3 * k : 3 * k + 3, 6 * body : 6 * body + 6] = sign * frame @ np.hstack([np.eye(3), turn])
    J = sparse.csr_array(J)
    q = J @ (rng.normal(size=6 * spheres) - np.tile([0, 0, 2.0, 0, 0, 0], spheres))
    (r, _), info = jc.solve_friction((mass, J), q, 0.5)
    W = J @ sparse.diags_array(1.0 / mass) @ J.T
    assert info.status == 0 and conditions(W, q, 0.5, r) < 1e-8


def random_problem(rng, nc, nv, dim):
    J = rng.normal(size=(nc * dim, nv)) * 10.0 ** rng.uniform(-1.0, 1.0, (1, nv))
    return J @ J.T, J @ rng.normal(size=nv), rng.choice([0.0, 0.3, 1.0], nc)


@pytest.mark.parametrize("dim", [2, 3])
def test_machine_code_and_numpy_find_velocities_of_one_law(dim, monkeypatch):
    rng = np.random.default_rng(dim)
    problems = [
        random_problem(rng, nc, nv, dim) for nc, nv in ((1, 6), (2, 6), (4, 3), (8, 30), (20, 90)) * 4
    ]
    quick = [friction_dense.solve_dense(W, q, mu, dim, None) for W, q, mu in problems]
    assert sum(answer.is_solved for answer in quick) >= 18
    monkeypatch.setattr(friction_dense, "load_machine_code", lambda name: None)
    for (W, q, mu), answer in zip(problems, quick, strict=True):
        (_, u), info = jc.solve_friction(W, q, mu, dim=dim)
        if answer.is_solved and int(info.status) == 0 and len(mu) <= 2:  # small ones have one solution
            np.testing.assert_allclose(answer.u, u, atol=1e-8 * np.abs(q).max())
        assert friction_residual(W, q, mu, dim, answer.r) <= 1e-8 or not answer.is_solved


def friction_residual(W, q, mu, dim, r):
    """Violation of Coulomb's law, row by row, over the largest |q|."""
    u, r = (W @ r + q).reshape(-1, dim), r.reshape(-1, dim)
    own = np.abs(np.diag(W)).reshape(-1, dim).max(axis=1)
    slip, push = np.linalg.norm(u[:, 1:], axis=1), np.linalg.norm(r[:, 1:], axis=1)
    off = [np.minimum(r[:, 0] * own, u[:, 0]), own * np.maximum(push - mu * r[:, 0], 0.0)]
    off.append(np.minimum(slip, own * (mu * r[:, 0] - push)))
    off.append(np.minimum(slip, own * np.linalg.norm(slip[:, None] * r[:, 1:] + mu[:, None] * r[:, :1] * u[:, 1:], axis=1)
                          / np.where(slip > 0, slip, 1.0)))  # fmt: skip
    return max(np.abs(x).max() for x in off) / np.abs(q).max()


def test_machine_code_alone_solves_redundant_contacts():
    """Six contacts of one body: proximal steps finish where sweeps are slow and Newton's method stalls."""
    rng = np.random.default_rng(1)
    problems = [random_problem(rng, 6, 6, 3)[:2] for _ in range(60)]
    answers = [friction_dense.solve_dense(W, q, 0.7, 3, None) for W, q in problems]
    assert sum(answer.is_solved for answer in answers) >= 57
    for (W, q), answer in zip(problems, answers, strict=True):
        assert not answer.is_solved or friction_residual(W, q, np.full(6, 0.7), 3, answer.r) < 1e-8


@pytest.mark.slow
def test_a_batch_of_numpy_arrays_has_the_bits_of_single_problems():
    rng = np.random.default_rng(0)
    W, q, mu = (np.stack(x) for x in zip(*(random_problem(rng, 4, 12, 3) for _ in range(9)), strict=True))
    (r, u), info = jc.solve_friction(W, q, mu)
    for k in range(9):
        (one, rate), single = jc.solve_friction(W[k], q[k], mu[k])
        np.testing.assert_array_equal(r[k], one)
        np.testing.assert_array_equal(u[k], rate)
        assert info.status[k] == single.status and info.num_iters[k] == single.num_iters
    (r, u), info = jc.solve_friction(W[0], q, mu)  # one matrix for all
    for k in range(9):
        (one, rate), single = jc.solve_friction(W[0], q[k], mu[k])
        np.testing.assert_array_equal(r[k], one)
        np.testing.assert_array_equal(u[k], rate)
        assert info.status[k] == single.status
    hard = q.copy()
    hard[5] = np.random.default_rng(7).normal(size=12)  # outside of the range of W
    friction = np.where(np.arange(9) == 5, 1e3, 0.3)[:, None]
    friction = friction * np.ones(4)
    assert not friction_dense.solve_dense(W, hard, friction, 3, None).is_solved
    (some, _), status = jc.solve_friction(W, hard, friction)
    for k in range(9):
        (one, _), single = jc.solve_friction(W[k], hard[k], friction[k])
        np.testing.assert_array_equal(some[k], one)
        assert status.status[k] == single.status
    with pytest.raises(ValueError, match="W: expected shape"):
        jc.solve_friction(W[:3], q, mu)
    bad = q.copy()
    bad[4, 2] = np.nan
    with pytest.raises(ValueError, match="q: expected finite numbers"):
        jc.solve_friction(W, bad, mu)


def test_impulses_that_hide_velocities_in_their_round_off_are_no_solution():
    """A q outside of the range of W, pressed by friction of 1000: impulses of 1e16 make W r + q exact zeros."""
    rng = np.random.default_rng(3)
    solved = 0
    for _ in range(10):
        J = rng.normal(size=(6, 2)) * 10.0 ** rng.uniform(-3.0, 3.0, (1, 2))
        W, q, mu = J @ J.T, rng.normal(size=6), rng.choice([10.0, 1e3], 2)
        (r, _), info = jc.solve_friction(W, q, mu)
        solved += int(info.status) == 0
        assert int(info.status) != 0 or np.abs(r).max() * np.abs(W).max() < 1e7 * np.abs(q).max()
    assert solved
