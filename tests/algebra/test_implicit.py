"""The rule of differentiation against jnp.linalg, finite differences and closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxcontact.algebra import implicit

N = 4


@pytest.fixture
def smooth(rng):
    """Smooth A(s), S(s) symmetric positive definite, b(s) of three numbers s, and a point s."""
    parts = [jnp.array(x) for x in rng.normal(size=(4, N, N))]
    right = [jnp.array(x) for x in rng.normal(size=(4, N))]

    def square(s):
        return 4.0 * jnp.eye(N) + parts[0] + s[0] * parts[1] + s[1] ** 2 * parts[2] + jnp.sin(s[2]) * parts[3]

    def spd(s):
        root = square(s)
        return root @ root.T + jnp.eye(N)

    def rhs(s):
        return right[0] + s[0] * right[1] + s[1] * s[2] * right[2] + jnp.cos(s[2]) * right[3]

    return square, spd, rhs, jnp.array([0.3, -0.5, 0.8])


def compiled(derivative, *functions):
    return [jax.jit(derivative(f)) for f in functions]


def differences(f, s, h=1e-6):
    return np.stack([(f(s + h * e) - f(s - h * e)) / (2 * h) for e in np.eye(len(s))], axis=-1)


@pytest.mark.slow
def test_solve_spd_against_linalg(smooth):
    _, spd, rhs, s = smooth

    def ours(s):
        return implicit.solve_spd(spd(s), jnp.stack([rhs(s), 2.0 - rhs(s)], axis=1))

    def theirs(s):
        return jnp.linalg.solve(spd(s), jnp.stack([rhs(s), 2.0 - rhs(s)], axis=1))

    np.testing.assert_allclose(ours(s), theirs(s), rtol=1e-12)
    for derivative in (jax.jacfwd, jax.jacrev, jax.hessian):
        ours_at, theirs_at = compiled(derivative, ours, theirs)
        np.testing.assert_allclose(ours_at(s), theirs_at(s), rtol=1e-9, atol=1e-12)
    slope = jax.jit(jax.jacfwd(ours))(s)
    np.testing.assert_allclose(slope, differences(jax.jit(ours), s), rtol=1e-7, atol=1e-9)


@pytest.mark.slow
@pytest.mark.float32
def test_refine_against_linalg(smooth, tolerance):
    square, _, rhs, s = smooth

    def ours(s):
        return implicit.refine(square(s), rhs(s), jnp.zeros(N))

    def theirs(s):
        return jnp.linalg.solve(square(s), rhs(s))

    rtol = tolerance(1e-10, 1e-3)
    np.testing.assert_allclose(ours(s), theirs(s), rtol=rtol, atol=rtol)
    for derivative in (jax.jacfwd, jax.jacrev, jax.hessian):
        ours_at, theirs_at = compiled(derivative, ours, theirs)
        np.testing.assert_allclose(ours_at(s), theirs_at(s), rtol=10 * rtol, atol=10 * rtol)


@pytest.mark.long
def test_refine_against_finite_differences_in_both_modes(smooth, rng):
    square, _, rhs, s = smooth
    weight, direction = jnp.array(rng.normal(size=N)), jnp.array(rng.normal(size=3))

    @jax.jit
    def f(s):
        return implicit.refine(square(s), rhs(s), jnp.ones(N))

    slope = differences(f, s)
    forward = jax.jit(lambda s, ds: jax.jvp(f, (s,), (ds,))[1])
    np.testing.assert_allclose(forward(s, direction), slope @ direction, rtol=1e-7)
    gradient = jax.jit(jax.grad(lambda s: weight @ f(s)))
    np.testing.assert_allclose(gradient(s), weight @ slope, rtol=1e-7)
    over, under = jax.jit(jax.jacfwd(gradient))(s), jax.jit(jax.jacrev(gradient))(s)
    np.testing.assert_allclose(over, differences(gradient, s), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(under, over, rtol=1e-11, atol=1e-14)


@pytest.mark.long
def test_refine_repairs_any_guess_and_takes_no_derivative_from_it(smooth, rng):
    square, _, rhs, s = smooth
    exact = np.linalg.solve(square(s), rhs(s))
    for size in (0.0, 1e-6, 1e3):
        guess = jnp.array(exact + size * rng.normal(size=N))
        x = implicit.refine(square(s), rhs(s), guess)
        np.testing.assert_allclose(x, exact, rtol=1e-10)
    slope = jax.jacfwd(lambda g: implicit.refine(square(s), rhs(s), g))(jnp.array(exact))
    np.testing.assert_array_equal(slope, np.zeros((N, N)))


@pytest.mark.long
def test_refine_with_an_inverse_handed_over(smooth):
    square, _, rhs, s = smooth

    def f(s, inverse):
        return implicit.refine(square(s), rhs(s), jnp.zeros(N), inverse)

    inverse = jnp.linalg.inv(square(s))
    plain = jax.jacfwd(lambda s: implicit.refine(square(s), rhs(s), jnp.zeros(N)))(s)
    np.testing.assert_allclose(jax.jacfwd(f)(s, inverse), plain, rtol=1e-10)
    np.testing.assert_array_equal(jax.jacfwd(f, argnums=1)(s, inverse), np.zeros((N, N, N)))


def projector(angle):
    """The projector on the line at that angle, and its derivative: v v^T and v v'^T + v' v^T."""
    v, w = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    return np.outer(v, v), np.outer(v, w) + np.outer(w, v)


def test_rank_deficient_projector_in_closed_form():
    c = jnp.array([1.5, -0.7])

    def line(t):
        v = jnp.stack([jnp.cos(t), jnp.sin(t)])
        return v[:, None] * v[None, :]

    def determined(t, guess):
        # P x = P c leaves x free across the line; P x is determined.
        return line(t) @ implicit.refine(line(t), line(t) @ c, guess)

    forward, reverse, second = (
        jax.jit(derivative(determined))
        for derivative in (jax.jacfwd, jax.jacrev, lambda f: jax.jacfwd(jax.jacrev(f)))
    )
    for angle in (0.0, 0.4, np.pi / 2, 2.5):
        P, dP = projector(angle)
        for guess in (np.zeros(2), P @ c, np.array([3.0, 5.0])):
            g = jnp.array(guess)
            np.testing.assert_allclose(jax.jit(determined)(angle, g), P @ c, atol=1e-14)
            np.testing.assert_allclose(forward(angle, g), dP @ c, atol=1e-13)
            np.testing.assert_allclose(reverse(angle, g), dP @ c, atol=1e-13)
            # P'' = 2 (w w^T - v v^T) = 2 (1 - 2 P)
            np.testing.assert_allclose(second(angle, g), 2 * (np.eye(2) - 2 * P) @ c, atol=1e-12)


def test_rank_deficient_systems_keep_the_solvers_choice(rng):
    B = rng.normal(size=(N, 2))
    A, c = B @ B.T, rng.normal(size=N)
    x = implicit.refine(jnp.array(A), jnp.array(A @ c), jnp.array(c))
    np.testing.assert_allclose(x, c, atol=1e-13)


@pytest.mark.long
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_rank_deficient_derivatives_of_what_is_determined(rank, rng):
    parts = [jnp.array(x) for x in rng.normal(size=(3, N, rank))]
    target = [jnp.array(x) for x in rng.normal(size=(3, N))]
    guess = jnp.array(rng.normal(size=N))

    def root(s):  # redundant contacts: the Delassus matrix B B^T has rank nv < nc
        return parts[0] + s[0] * parts[1] + s[1] ** 2 * parts[2]

    def c(s):
        return target[0] + s[1] * target[1] + jnp.sin(s[0]) * target[2]

    def ours(s):
        B = root(s)
        return B.T @ implicit.refine(B @ B.T, B @ (B.T @ c(s)), guess)

    def closed(s):
        return root(s).T @ c(s)

    s = jnp.array([0.2, -0.4])
    np.testing.assert_allclose(ours(s), closed(s), rtol=1e-11, atol=1e-12)
    for derivative in (jax.jacfwd, jax.jacrev, jax.hessian):
        ours_at, closed_at = compiled(derivative, ours, closed)
        np.testing.assert_allclose(ours_at(s), closed_at(s), rtol=1e-8, atol=1e-10)


def test_batches_give_what_single_calls_give(smooth, rng):
    square, spd, rhs, s = smooth
    points = jnp.array(np.asarray(s) + 0.1 * rng.normal(size=(5, 3)))

    def f(s):
        return implicit.refine(square(s), rhs(s), jnp.zeros(N)) + implicit.solve_spd(
            spd(s), rhs(s)[:, None]
        ).reshape(-1)

    gradient = jax.jit(jax.grad(lambda s: jnp.sum(f(s) ** 2)))
    together = jax.jit(jax.vmap(gradient))(points)
    np.testing.assert_allclose(together, np.stack([gradient(p) for p in points]), rtol=1e-11)


@pytest.mark.slow
def test_attach_carries_the_derivatives_of_a_root():
    """x^3 + x = s: x' = 1 / (3 x^2 + 1), x'' = -6 x x'^3, also in a batch and in a loop."""

    def root(s):
        x = jnp.array(2.0)
        for _ in range(30):
            x = x - (x**3 + x - s) / (3 * x**2 + 1)
        x = jax.lax.stop_gradient(x)
        return implicit.attach(lambda s, y: y**3 + y - s, lambda s, y, r: r / (3 * y**2 + 1), s, x)

    def looped(s):
        return jax.lax.scan(lambda _, at: (root(at * s), None), jnp.array(0.0), jnp.ones(2))[0]

    def derivatives(s):
        first, second = jax.grad(root), (jax.grad(jax.grad(root)), jax.jacfwd(jax.jacfwd(root)))
        mixed = jax.jacfwd(first), jax.jacfwd(jax.grad(looped)), jax.grad(jax.jacfwd(looped))
        third = jax.grad(jax.jacfwd(first))
        return root(s), first(s), jax.jacfwd(root)(s), third(s), *(each(s) for each in (*second, *mixed))

    points = jnp.array([10.0, -3.0])
    x, first, forward, third, *found = jax.jit(jax.vmap(derivatives))(points)
    slope = 1 / (3 * x**2 + 1)
    np.testing.assert_allclose([first, forward], [slope] * 2, rtol=1e-12)
    np.testing.assert_allclose(found, [-6 * x * slope**3] * 5, rtol=1e-12)
    np.testing.assert_allclose(third, -6 * slope**4 + 108 * x**2 * slope**5, rtol=1e-12)
    batched = jax.grad(lambda s: jnp.sum(jax.vmap(root)(s)))
    np.testing.assert_allclose(batched(points), slope, rtol=1e-12)


@pytest.mark.slow
def test_attach_takes_equations_of_which_some_do_not_know_the_data():
    """y = 2 and x = s^2 y, with data that nobody reads."""

    def residual(data, at):
        return at[0] - data["s"] ** 2 * at[1], at[1] - 2.0

    def correct(data, at, r):
        return r[0] + data["s"] ** 2 * r[1], r[1]

    def root(s, unread):
        data = {"s": s, "unread": unread, "empty": jnp.zeros(0)}
        start = (2.0 * jax.lax.stop_gradient(s) ** 2, jnp.array(2.0))
        return sum(implicit.attach(residual, correct, data, start))

    at = jnp.array(3.0), jnp.array(1.0)
    assert jax.grad(root)(*at) == jax.jacfwd(root)(*at) == 12.0
    assert jax.grad(root, argnums=1)(*at) == 0.0
    for first, second in itertools.product((jax.grad, jax.jacfwd), repeat=2):
        np.testing.assert_allclose(second(first(root))(*at), 4.0)


@pytest.mark.long
def test_attach_has_second_derivatives_that_are_zero():
    """x = b / a is linear in b: by b, neither J nor the right-hand side of the linear solve changes."""

    def root(a, b):
        start = jax.lax.stop_gradient(b / a)
        return implicit.attach(
            lambda data, x: data[0] * x - data[1], lambda data, x, r: r / data[0], (a, b), start
        )

    at = jnp.array(3.0), jnp.array(2.0)
    for first, second in itertools.product((jax.grad, jax.jacfwd), repeat=2):
        assert second(first(root, argnums=1), argnums=1)(*at) == 0.0
        np.testing.assert_allclose(second(first(root, argnums=1), argnums=0)(*at), -1.0 / 9.0, rtol=1e-14)
        np.testing.assert_allclose(second(first(root, argnums=0), argnums=0)(*at), 4.0 / 27.0, rtol=1e-14)


def test_systems_with_a_positive_symmetric_part_are_solved_in_batches_both_ways(rng):
    """A mass matrix with masses that differ by 1e6, and a skew part as large."""
    A = rng.normal(size=(5, 7, 7))
    scale = np.logspace(-3, 3, 7)
    mass = A @ A.transpose(0, 2, 1) + np.eye(7)
    matrix = jnp.asarray((mass + 3.0 * (A - A.transpose(0, 2, 1))) * scale[:, None] * scale)
    rhs = jnp.asarray(rng.normal(size=(5, 7)) * scale)
    found, pull_back = jax.vjp(jax.vmap(lambda a, b: implicit.positive_solver(a)(b)), matrix, rhs)
    cotangent = rng.normal(size=(5, 7)) / scale
    by_matrix, by_rhs = (np.asarray(part) for part in pull_back(jnp.asarray(cotangent)))
    x, alone = np.asarray(found), implicit.positive_solver(matrix[0])(rhs[0])
    expected = np.linalg.solve(np.asarray(matrix), np.asarray(rhs)[..., None])[..., 0]
    np.testing.assert_allclose(x * scale, expected * scale, atol=1e-11)
    backward = np.linalg.solve(np.swapaxes(np.asarray(matrix), 1, 2), cotangent[..., None])[..., 0]
    np.testing.assert_allclose(by_rhs * scale, backward * scale, atol=1e-11)
    outer = -backward[:, :, None] * expected[:, None] * scale[:, None] * scale
    np.testing.assert_allclose(by_matrix * scale[:, None] * scale, outer, atol=1e-10)
    np.testing.assert_allclose(alone, x[0], rtol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("n", [5, 14])
def test_a_solver_of_positive_definite_systems_is_linear_to_jax(n, rng):
    """Pivot by pivot and by LAPACK, of one system and of a batch: forward, reverse and transposed."""
    A = rng.normal(size=(3, n, n))
    scale = np.logspace(-2, 2, n)
    matrix = jnp.asarray((A @ A.transpose(0, 2, 1) + np.eye(n)) * scale[:, None] * scale)
    rhs, cotangent = (jnp.asarray(rng.normal(size=(3, n)) * scale) for _ in range(2))
    expected, backward = (np.linalg.solve(matrix, x[..., None])[..., 0] for x in (rhs, cotangent))

    def solve(matrix, rhs):
        return implicit.spd_solver(matrix)(rhs)

    def everything(matrix, rhs, cotangent):
        x, pull_back = jax.vjp(solve, matrix, rhs)
        transposed = jax.linear_transpose(implicit.spd_solver(matrix), rhs)(cotangent)[0]
        return x, *pull_back(cotangent), jax.jvp(solve, (matrix, rhs), (matrix, 2.0 * rhs))[1], transposed

    outer = -backward[:, :, None] * expected[:, None]
    wanted = (expected, outer, backward, expected, backward)
    batch = jax.jit(jax.vmap(everything))(matrix, rhs, cotangent)
    one = jax.jit(everything)(matrix[0], rhs[0], cotangent[0])
    for found, alone, each in zip(batch, one, wanted, strict=True):
        size = scale[:, None] * scale if each.ndim == 3 else scale
        np.testing.assert_allclose(np.asarray(found) * size, each * size, atol=1e-10)
        np.testing.assert_allclose(np.asarray(alone) * size, each[0] * size, atol=1e-10)
