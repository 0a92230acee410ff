"""Every rule against JAX itself, on a batch that does not fill its last group of lanes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax._src.lax.lax import le_to_p, lt_to_p

import jaxcontact as jc
from tests.helpers.by_lanes import close

WORLDS = 7
RNG = np.random.default_rng(0)
REAL = RNG.normal(size=(WORLDS, 3, 4))
POSITIVE = np.abs(REAL) + 0.1
UNIT = np.tanh(REAL)
WHOLE = RNG.integers(-9, 9, size=(WORLDS, 3, 4)).astype(np.int32)
COUNTS = RNG.integers(0, 60, size=(WORLDS, 3, 4)).astype(np.uint32)
BITS = REAL > 0.2
ODD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -2.5])[:, None, None] + 0.0 * np.zeros(
    (WORLDS, 3, 4)
)
PLACES = RNG.integers(-2, 7, size=(WORLDS, 5)).astype(np.int32)
PAIRS = RNG.integers(-1, 5, size=(WORLDS, 5, 2)).astype(np.int32)


ELEMENTWISE = {
    **{name: (getattr(jnp, name), REAL) for name in ("sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh")},
    **{name: (getattr(jnp, name), POSITIVE) for name in ("sqrt", "cbrt", "log", "log1p", "exp", "exp2")},
    **{name: (getattr(jnp, name), UNIT) for name in ("arcsin", "arccos", "expm1")},
    **{name: (getattr(jnp, name), ODD) for name in ("isfinite", "isnan", "abs", "sign", "floor", "ceil")},
    "negative": (jnp.negative, ODD),
    "rsqrt": (lax.rsqrt, POSITIVE),
    "logistic": (jax.nn.sigmoid, REAL),
    "square": (jnp.square, REAL),
    "cube": (lambda x: x**3, REAL),
    "inverse square": (lambda x: x**-2, POSITIVE),
    "to even": (jnp.round, np.arange(WORLDS)[:, None] / 2 + np.array([-3.0, 0.5])),
    "away from zero": (
        lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
        np.arange(WORLDS)[:, None] / 2 + np.array([-3.0, 0.5]),
    ),
    "whole": (lambda n: (abs(n), -n, ~n, n * 3 - 2, jnp.sign(n), n == 4), WHOLE),
    "counts": (lambda n: (~n, n - 7, n * n, n > 3, jnp.sign(n), n & 5 | 8 ^ n), COUNTS),
    "bits": (
        lambda b: (~b, b & b[:1], b | b[1:2], b ^ b[2:], jnp.maximum(b, b[:1]), jnp.minimum(b, b[:1])),
        BITS,
    ),
    "converted": (
        lambda x: [x.astype(t) for t in (np.int32, np.uint32, np.int8, np.float32, np.bool_)],
        np.array([-3.7, 0.0, 2.5, 1e12, -1e12, np.nan, 300.0]),
    ),
    "of whole": (lambda n: (n.astype(float), n.astype(np.uint32), n.astype(np.int8), n.astype(bool)), WHOLE),
    "of counts": (lambda n: (n.astype(float), n.astype(np.int32), (n > 20).astype(float)), COUNTS),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_functions_of_one_number(name):
    close(*ELEMENTWISE[name])


@pytest.mark.float32
def test_functions_of_two_numbers():
    def function(a, b, c, m, n, k):
        return (
            *(a + b, a - b, a * b, a / b, jnp.arctan2(a, b), c**a, lax.rem(a, b)),
            *(a < b, a <= b, a > b, a >= b, a == b, a != b),
            *(m < n, m <= n, m > n, m >= n, m == n, m != n, jnp.maximum(m, n), jnp.minimum(m, n)),
            *(lax.div(m, n), lax.rem(m, n), m // 3, m % 3, m + n, m - n),
            *(lax.shift_left(k, k), lax.shift_right_logical(k, k % 40), k // 7, k % 7),
            lax.shift_right_logical(m, jnp.abs(n)),
        )

    close(function, REAL, REAL[::-1], POSITIVE, WHOLE, WHOLE[::-1], COUNTS)


@pytest.mark.float32
@pytest.mark.parametrize("kind", "iu")
@pytest.mark.parametrize("size", [4, 8])
def test_shifts(kind, size):
    """By all amounts, those below zero and those of more bits than there are, too; known or not."""
    dtype = np.dtype(f"{kind}{min(size, jnp.zeros(0).dtype.itemsize)}")
    amounts = np.arange(-2, 8 * dtype.itemsize + 2).astype(dtype)
    numbers = np.array([1, 0xF0F0F0F0, 2**31, 2**63, 2**64 - 1], np.uint64).astype(dtype)

    def shifted(n, by):
        moves = (lax.shift_left, lax.shift_right_logical, lax.shift_right_arithmetic)
        return jnp.stack([move(n, by) for move in moves])

    pairs = np.repeat(numbers, len(amounts)), np.tile(amounts, len(numbers))
    close(shifted, *pairs)
    close(lambda world: shifted(*pairs) + 0 * world, np.zeros((2, 3, *pairs[0].shape), dtype))


@pytest.mark.float32
def test_what_is_no_number():
    def function(a, b):
        return (
            *(jnp.maximum(a, b), jnp.minimum(a, b), jnp.maximum(a, 0.5), jnp.minimum(0.5, a)),
            *(a < b, a == b, a != b, a != a, jnp.clip(a, -1.0, 1.0), jnp.where(a == a, a, b)),
            *(jnp.max(a), jnp.min(a), jnp.argmax(a), jnp.argmin(a), jnp.sort(a), jnp.argsort(-a)),
        )

    mixed = np.where(RNG.uniform(size=(WORLDS, 6)) < 0.3, np.nan, RNG.normal(size=(WORLDS, 6)))
    close(function, mixed, mixed[::-1])


KNOWN_NAN = jnp.array(np.nan)
NOT_NUMBERS = {
    "known NaN": (
        lambda a: (jnp.maximum(a, KNOWN_NAN), jnp.minimum(KNOWN_NAN, a), jnp.clip(a, KNOWN_NAN, 1.0)),
        ODD,
    ),
    "zero times": (lambda a: (0.0 * a, a * -0.0, a - a, jnp.zeros((2, 3)) @ a), ODD),
    "zero over": (lambda a: (0.0 / a, jnp.zeros((3, 4)) / a, a / 0.0), ODD),
    "masks": (lambda a: (jnp.eye(3) @ a, jnp.where(a > 0, 0.0, a), jnp.sum(0 * (a > 0))), ODD),
    "running": (lambda a: (lax.cummax(a), lax.cumsum(a), jnp.max(a, 0), a.at[0].max(a[1])), ODD),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", NOT_NUMBERS)
def test_nan_is_that_of_jax(name):
    close(*NOT_NUMBERS[name])


def test_the_signs_of_zeros_are_those_of_jax():
    zeros = np.array([[0.0, -0.0], [-0.0, 0.0], [0.0, 0.0], [-0.0, -0.0], [3.0, 3.0]])

    def function(x):
        a, b = x
        pairs = (a, b), (a, 0.0), (-0.0, a), (a, jnp.array(-0.0)), (jnp.array(0.0), b)
        return (
            [1.0 / by(*pair) for pair in pairs for by in (jnp.maximum, jnp.minimum)],
            1.0 / (x + 0.0),
            1.0 / -x,
        )

    close(function, zeros)


def test_zeros_that_are_known_may_be_taken_for_zeros():
    x = np.array([np.nan, np.inf, 0.0, 2.0])
    found = jc.simd(lambda x: jnp.stack([0.0 * x, 0.0 / x, jnp.zeros(2) @ jnp.stack([x, x])]), nan=False)(x)
    np.testing.assert_array_equal(found, np.zeros((4, 3)))


@pytest.mark.float32
def test_a_factor_of_an_indefinite_matrix_is_nan():
    """Of that matrix alone, whichever pivot fails."""
    matrices = np.stack(
        [np.diag(d) for d in ([1.0, 2, 3], [1, 0, 3], [1, 2, -3], [-1, 2, 3], [4, np.nan, 9])]
    )
    matrices[0, 1, 0] = matrices[0, 0, 1] = 0.5
    close(jnp.linalg.cholesky, matrices)
    close(lambda a: jnp.linalg.cholesky(jnp.stack([a, jnp.eye(3)])), matrices)


@pytest.mark.float32
def test_places_outside_an_array_are_filled():
    known = jnp.array([1, 50, -9])

    def function(x, n, k, at):
        return (
            x[0].at[known].get(mode="fill", fill_value=7.0),
            x[0].at[at].get(mode="fill", fill_value=-2.0),
            *(jnp.take(array, known) for array in (x, n, k, x > 0)),
            *(jnp.take(array, at) for array in (x, n, k, x > 0)),
            n.ravel().at[at].get(mode="fill", fill_value=3),
            jnp.take(x, k.ravel()[:3], axis=0, mode="clip"),
        )

    close(function, REAL, WHOLE, COUNTS * np.uint32(2**26), PLACES + 9)


@pytest.mark.float32
@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (8, 23), (11, 52), (4, 3), (8, 2)])
def test_rounding_to_less_precision(exponent, mantissa):
    sizes = 10.0 ** np.linspace(-12, 12, 97)
    values = np.concatenate([ODD[:, 0, 0], sizes, -sizes, 1 + np.arange(33) / 512, [65504, 65519, 65520]])
    close(lambda x: lax.reduce_precision(x, exponent, mantissa), values)


@pytest.mark.float32
def test_less_usual_arguments():
    def function(x, n, k, b):
        return (
            jnp.abs(x) ** n,
            jnp.abs(x) ** 3,
            lax.reduce_and(k, (0,)),
            lax.reduce_or(k, (1,)),
            lax.reduce_and(n, (0,)),
            *(lax.max(b[0], b[1]), lax.min(b[0], b[1]), lax.reduce_max(b, (0,)), lax.reduce_min(b, (1,))),
            *(lax.abs(n.astype(np.int8)), jnp.abs(k)),
            b[0].at[n[0]].max(b[1]),
            jnp.argmax(b),
        )

    close(function, REAL, WHOLE, COUNTS | np.uint32(2**31), BITS)
    least = np.array([-(2**31), 5], np.int32)
    close(lambda n: (lax.abs(n), lax.div(jnp.int32(-(2**31)), jnp.int32(-1)) + n), least)


def test_integers_wrap_round_where_their_kind_does():
    def function(n, k):
        return n + n, n * n, -n, k * k, k - 1, n - 2 * n, jnp.sum(n), lax.div(n, jnp.int32(-1))

    large = np.array([[2**31 - 1, -(2**31), 65537]] * WORLDS, np.int32)
    close(function, large, np.array([[2**32 - 1, 0, 65537]] * WORLDS, np.uint32))


def test_a_division_by_zero_does_not_stop_the_process():
    def function(n, m):
        return lax.div(n, m), lax.rem(n, m)

    n = np.array([5, -5, -(2**63), 7, 0, 1, -(2**63)])
    m = np.array([0, 0, -1, -1, 0, 3, 1])
    close(function, n, m)
    close(function, n.astype(np.uint64), m.astype(np.uint64))


SHAPES = {
    "broadcast": (lambda x: x[:, None] + x[None], REAL),
    "reshape": (lambda x: (x.reshape(2, 6), x.ravel(), x[None], x.T, x[::-1], jnp.flip(x, 1)), REAL),
    "slice": (lambda x: (x[1:, ::2], x[-1], x[..., 1:3], jnp.split(x, 2, axis=1)), REAL),
    "join": (lambda x: (jnp.concatenate([x, 2 * x]), jnp.stack([x, x + 1], 1), jnp.tile(x, (2, 1))), REAL),
    "pad": (lambda x: (jnp.pad(x, 1), lax.pad(x, 9.0, [(-1, 2, 0), (1, -1, 2)])), REAL),
    "iota": (lambda x: (x + jnp.arange(4)[None], lax.broadcasted_iota(int, (3, 4), 0)), REAL),
    "known places": (lambda x: (x[jnp.array([2, 0, 5])], x.at[1, 2].set(7.0), x.at[:, 1].add(x[:, 2])), REAL),
    "repeated places": (lambda x: x.at[jnp.array([0, 2, 0])].add(x), REAL),
    "diagonal": (lambda x: (jnp.diag(x[0]), jnp.diagonal(x), jnp.tril(x), jnp.trace(x)), REAL),
    "choice": (lambda x: (x[jnp.array([0, 1, 2, 1]), jnp.arange(4)], lax.select_n(2, *x)), REAL),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", SHAPES)
def test_arrangements(name):
    close(*SHAPES[name])


SUMS = {
    "sums": (lambda x: (x.sum(), x.sum(0), x.prod(1), x.max(), x.min(0), x.mean(1), jnp.sum(x[:0])), REAL),
    "sums of nothing": (lambda x: (jnp.sum(x[:0], 1), jnp.sum(x[:0], 0)), REAL),
    "bits": (lambda b: (b.all(), b.any(0), b.sum(), jnp.logical_xor.reduce(b, 1)), BITS),
    "whole": (lambda n: (n.sum(), n.max(0), n.min(1), n.prod(0), jnp.bitwise_or.reduce(n, 1)), WHOLE),
    "running": (
        lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1), lax.cummin(x, 0, reverse=True)),
        REAL,
    ),
    "places": (lambda x: (jnp.argmax(x), jnp.argmin(x, 0), jnp.argmax(x, 1)), REAL),
    "products": (
        lambda x: (x @ x.T, x[0] @ x[1], jnp.einsum("ij,kj->ikj", x, x), x @ jnp.eye(4)[:, :2]),
        REAL,
    ),
    "of bits": (lambda b: b.astype(int) @ jnp.arange(4), BITS),
}


@pytest.mark.float32
@pytest.mark.parametrize("name", SUMS)
def test_sums(name):
    close(*SUMS[name], rtol=1e-12)


@pytest.mark.float32
@pytest.mark.parametrize("size", [1, 2, 3, 5, 13])
def test_sorting(size):
    values = RNG.integers(0, 6, size=(WORLDS, size)).astype(float)  # with ties

    def function(x):
        by_two = lax.sort((jnp.round(x / 2), x, jnp.arange(size)), num_keys=2)
        return jnp.sort(x), jnp.argsort(x), by_two, lax.top_k(x, min(3, size)), lax.top_k(-x, size)

    close(function, values)


def test_comparisons_by_the_total_order():
    """`jnp.searchsorted` compares so, and laws by Routh's paths use it."""
    odd = np.array([-0.0, 0.0, 1.0, np.nan, -0.0, -np.nan, -np.inf, np.inf])
    pairs = np.stack(np.meshgrid(odd, odd), axis=-1).reshape(-1, 2)
    close(lambda x: (le_to_p.bind(x[0], x[1]), lt_to_p.bind(x[0], x[1])), pairs)
    close(lambda n: jnp.searchsorted(jnp.array([1, 4, 4, 7]), n), WHOLE)


@pytest.mark.float32
def test_the_largest_of_many():
    values = np.round(RNG.normal(size=(WORLDS, 90)), 1)
    values[3, 40], values[4] = -np.inf, -np.inf
    close(lambda x: lax.top_k(x, 7), values)
    close(lambda n: lax.top_k(n, 7), (10 * values[:3]).astype(np.int32))
    odd = np.array([-0.0, 0.0, 1.0, np.nan, -0.0, -np.nan, -np.inf, np.inf])
    close(lambda x: lax.top_k(x, 8), np.stack([odd, odd[::-1]]))
    close(lambda x: lax.top_k(x.astype(np.float32), 3), np.stack([odd, odd[::-1]]))


@pytest.mark.float32
def test_places_that_differ_between_worlds():
    def function(x, at, pair):
        return (
            x.ravel()[at],
            x[0].at[at[0]].get(mode="clip"),
            x[at],
            x[:, at],
            x[pair[:, 0], pair[:, 1]],
            jnp.take(x, at, axis=1, mode="clip"),
            lax.dynamic_slice(x, (at[0], at[1]), (2, 2)),
            lax.dynamic_update_slice(x, x[:2, :2] + 1, (at[0], at[1])),
            x.at[at].set(x[:1], mode="drop"),
            x.at[at[0]].set(5.0),
            x.at[:, at[1]].add(x[:, 0]),
            x.at[pair[:, 0], pair[:, 1]].add(jnp.arange(5.0)),
            x.at[at[0], 1].mul(3.0),
            x.at[at[0]].max(0.3),
            x.at[at[0]].min(0.3),
            (x > 0)[at],
            (x > 0).at[at[2]].set(True),
            jnp.arange(7).at[at].set(at),
        )

    close(function, REAL, PLACES, PAIRS)


@pytest.mark.float32
def test_linear_algebra():
    matrix = np.einsum("wij,wkj->wik", REAL, REAL) + np.eye(3)

    def function(a, b):
        solve = functools.partial(lax.linalg.triangular_solve, a)
        return (
            jnp.linalg.cholesky(a),
            *(
                solve(b, left_side=True, lower=low, transpose_a=turn)
                for low in (True, False)
                for turn in (True, False)
            ),
            *(
                solve(b.T, left_side=False, lower=low, transpose_a=turn)
                for low in (True, False)
                for turn in (True, False)
            ),
            solve(b, left_side=True, lower=True, unit_diagonal=True),
            jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(a), True), b),
            jax.vmap(jnp.linalg.cholesky)(jnp.stack([a, 2 * a])),
            solve(b[:, :0], left_side=True),
        )

    close(function, matrix, REAL, rtol=1e-11)


@pytest.mark.float32
def test_linear_equations_with_pivots():
    def function(a, b):
        wide = lax.linalg.lu(jnp.concatenate([a, b], axis=1))
        several = jnp.linalg.solve(jnp.stack([a, a.T @ a + jnp.eye(4)]), jnp.stack([b, 2 * b]))
        slope = jax.grad(lambda a: jnp.sum(jnp.linalg.solve(a, b) ** 2))(a)
        return wide, several, jnp.linalg.inv(a), jnp.linalg.det(a), slope

    turns = np.linalg.qr(RNG.normal(size=(WORLDS, 4, 4)))[0]
    matrix = turns * np.array([1.0, 2.0, 0.5, 3.0])
    matrix[0] = np.eye(4)[[3, 0, 2, 1]]  # pivots are zero without exchanges
    atol = 3e-5 if jnp.zeros(0).dtype == np.float32 else 1e-12
    close(function, matrix, RNG.normal(size=(WORLDS, 4, 2)), rtol=1e-11, atol=atol)
    zero = jc.simd(lambda a: lax.linalg.lu(a))(np.zeros((2, 3, 3)))
    np.testing.assert_array_equal(zero[0], np.zeros((2, 3, 3)))


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda x: jnp.linalg.svd(x)[1], "svd"),
        (lambda x: jax.pure_callback(np.asarray, x, x, vmap_method="broadcast_all"), "pure_callback"),
        (lambda x: lax.complex(x, x), "complex"),
        (lambda x: jnp.sort(jnp.tile(x.ravel(), 22)), "at most 256 numbers, got 264"),
        (lambda x: x.astype(jnp.float16), "float16"),
        (lambda x: x + jax.random.uniform(jax.random.key(0, impl="rbg")), "threefry, got key<rbg>"),
    ],
)
def test_what_has_no_rule_is_named_once_and_runs_by_xla(function, name):
    run = jc.simd(function)
    with pytest.warns(UserWarning, match=name) as caught:
        found = run(REAL)
    assert caught[0].filename == __file__
    np.testing.assert_allclose(found, jax.vmap(function)(REAL), rtol=1e-12)
    assert isinstance(found, np.ndarray)
    run(REAL[:5])
    with pytest.warns(UserWarning, match=r"runs as jc.on_all_cores\(jax.vmap\(function\)\)"):
        jc.simd(function)(REAL)


def test_keys_are_arranged_as_other_arrays():
    keys, several = jax.random.split(jax.random.key(3), 6), jnp.array([4, 0])

    def function(i, at, bits):
        square = keys.reshape(2, 3)
        arranged = (
            *(keys[several], keys[at], square.T, square[:, ::-1], jnp.where(bits, keys[:2], keys[2:4])),
            *(keys.at[i].set(keys[0]), keys.at[several].set(keys[2:4]), jnp.concatenate([keys, keys[:1]])),
            *(jnp.broadcast_to(keys[:2], (3, 2)), jnp.take(keys, at, mode="clip")),
            lax.dynamic_update_slice(keys, keys[:2], (i,)),
        )
        return jax.tree.map(jax.random.key_data, arranged)

    bits = np.random.default_rng(0).uniform(size=(5, 2)) < 0.5
    close(function, np.arange(5), np.arange(10).reshape(5, 2) % 6, bits)


def test_other_generators_run_by_xla():
    keys = jax.random.split(jax.random.key(0, impl="rbg"), 3)
    with pytest.warns(UserWarning, match="threefry, got key<rbg>"):
        found = jc.simd(lambda key: (jax.random.bits(key), jax.random.fold_in(key, 1)))(keys)
    assert found[1].dtype == keys.dtype


@pytest.mark.long
@pytest.mark.float32
def test_random_numbers_are_those_of_jax():
    def function(key, seed, at):
        keys = jax.random.split(key, 5)
        own = jax.random.fold_in(jax.random.key(seed), 3)
        rows = lax.scan(lambda k, _: tuple(jax.random.split(k)), own, length=4)[1]
        return (
            jax.random.uniform(key, (3,)),
            jax.random.uniform(keys[at], (2, 2)),
            jax.random.bits(keys[1], (3,), "uint32"),
            jax.random.permutation(keys[2], 6),
            jax.random.randint(keys[3], (4,), 0, 10),
            jax.vmap(lambda k: jax.random.exponential(k))(rows.reshape(-1)),
            jax.vmap(jax.random.fold_in, (None, 0))(key, jnp.arange(2)),
            jax.vmap(jax.random.fold_in)(keys, jnp.arange(5)),
            jax.random.key_data(keys.reshape(5, 1)),
        )

    keys = jax.random.split(jax.random.key(3), WORLDS)
    given = keys, np.arange(WORLDS), np.arange(WORLDS) % 5
    found, expected = jc.simd(function)(*given), jax.vmap(function)(*given)
    for a, b in zip(found, expected, strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_allclose(a, b, rtol=1e-5 if a.dtype == np.float32 else 1e-12)


def test_keys_that_are_closed_over_or_returned():
    keys, old = jax.random.split(jax.random.key(3), 5), jax.random.PRNGKey(4)

    def function(i):
        several = (
            jax.random.uniform(keys[jnp.array([3, 1, 9])[0]]),
            jax.random.key_data(keys[jnp.array([4, 0])]),
        )
        return jax.random.uniform(keys[i]), jax.random.uniform(jax.random.fold_in(old, i)), keys[:2], several

    found, expected = (by(function)(np.arange(5)) for by in (jc.simd, jax.vmap))
    np.testing.assert_allclose(found[:2], expected[:2], rtol=1e-12)
    np.testing.assert_allclose(found[3][0], expected[3][0], rtol=1e-12)
    np.testing.assert_array_equal(found[3][1], expected[3][1])
    assert found[2].dtype == expected[2].dtype
    assert jnp.all(found[2] == expected[2])


@pytest.mark.float32
def test_bits_of_numbers():
    def function(x, n, k):
        whole = lax.bitcast_convert_type(x, np.int32 if x.dtype == np.float32 else np.int64)
        short = x.astype(np.float32)
        return (
            whole,
            lax.bitcast_convert_type(whole + 1, x.dtype),
            lax.bitcast_convert_type(short, np.uint32),
            lax.bitcast_convert_type(n, np.float32),
            lax.bitcast_convert_type(n, np.uint32),
            lax.bitcast_convert_type(k, np.int32),
        )

    close(function, REAL, WHOLE + 2**29, COUNTS)


@pytest.mark.float32
def test_places_in_batches():
    def function(x, at):
        rows = jax.vmap(lambda row, k: row[k])(x, at[:3])
        written = jax.vmap(lambda row, k: row.at[k].set(9.0))(x, at[:3])
        return rows, written, jax.vmap(lambda row, k: row.at[k].add(row[0]))(x, at[1:4])

    close(function, REAL, PLACES)
