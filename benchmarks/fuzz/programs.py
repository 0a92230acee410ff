"""Random programs by `jc.simd` against JAX's own batch of them."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxcontact as jc
from benchmarks.fuzz.tally import Tally
from jaxcontact.native import rules_control

WORLDS, SIZE = 6, 3
LIMIT = 1e-6  # of a difference, of the largest number: derivatives of derivatives enlarge rounding
ODD_NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -0.0)
ODD_FRACTION = 0.15  # of the numbers of every third program
Function = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]  # vector, count, bits to a vector


def programs(seed: int) -> Tally:
    """One program; every other one keeps its small loops and branches, which else are written out."""
    rng = np.random.default_rng(seed)
    function = random_program(rng, int(rng.integers(1, 5)))
    x, n = 2.0 * rng.normal(size=(WORLDS, SIZE)), rng.integers(0, 6, size=WORLDS)
    flags = rng.uniform(size=(WORLDS, SIZE)) < 0.5
    if seed % 3 == 0:
        x = np.where(rng.uniform(size=x.shape) < ODD_FRACTION, rng.choice(ODD_NUMBERS, x.shape), x)
    try:
        expected = np.asarray(jax.jit(jax.vmap(function))(x, n, flags))
    except ValueError:  # JAX has no reverse derivative of a `while` loop
        return Tally()
    before = rules_control.UNROLLED, rules_control.CHOSEN
    if seed % 2:
        rules_control.UNROLLED = rules_control.CHOSEN = 0
    try:
        found = jc.simd(function)(x, n, flags)
    finally:
        rules_control.UNROLLED, rules_control.CHOSEN = before
    tally = Tally()
    good = tally.count(np.zeros(WORLDS, np.uint32))
    known = np.isfinite(expected)
    same = np.where(known, np.isfinite(found), (found == expected) | (np.isnan(found) & np.isnan(expected)))
    tally.judge("known where JAX knows", np.any(~same, axis=1).astype(float), 0.5, good)
    with np.errstate(invalid="ignore"):
        difference = np.where(known, np.abs(found - expected), 0.0)
    size = 1.0 + np.max(np.abs(expected), axis=1, initial=0.0, where=known)
    tally.judge("difference", np.max(difference, axis=1), LIMIT * size, good)
    return tally


def random_program(rng: np.random.Generator, depth: int) -> Function:
    """Operations on a vector, in loops, branches, batches and derivatives up to that depth."""
    kinds = (*SIMPLE, *NESTED) if depth else SIMPLE
    return kinds[int(rng.integers(len(kinds)))](rng, depth - 1)


def _mapped(rng: np.random.Generator, depth: int) -> Function:
    matrix = rng.normal(size=(SIZE, SIZE)) * (rng.uniform(size=(SIZE, SIZE)) < 0.6)
    shift = rng.normal(size=SIZE)
    return lambda x, n, b: jnp.tanh(matrix @ x + shift)


def _chosen(rng: np.random.Generator, depth: int) -> Function:
    bound = rng.normal(size=SIZE)
    return lambda x, n, b: jnp.where(x > bound, x * bound, -x)


def _sorted(rng: np.random.Generator, depth: int) -> Function:
    slope = rng.normal(size=SIZE)
    return lambda x, n, b: jnp.sort(x)[::-1] + slope * n


def _divided(rng: np.random.Generator, depth: int) -> Function:
    return lambda x, n, b: jnp.roll(x, 1) / (1.0 + x * x)


def _placed(rng: np.random.Generator, depth: int) -> Function:
    further = int(rng.integers(SIZE))
    return lambda x, n, b: x.at[(n + further) % SIZE].add(0.5 * x[n % SIZE])


def _one_after_the_other(rng: np.random.Generator, depth: int) -> Function:
    first, second = random_program(rng, depth), random_program(rng, depth)
    return lambda x, n, b: second(first(x, n, b), n, b)


def _branch(rng: np.random.Generator, depth: int) -> Function:
    one, other = random_program(rng, depth), random_program(rng, depth)
    return lambda x, n, b: lax.cond(x[0] > x[1], one, other, x, n, b)


def _switch(rng: np.random.Generator, depth: int) -> Function:
    branches = [random_program(rng, depth) for _ in range(3)]
    return lambda x, n, b: lax.switch(n % 4, branches, x, n, b)


def _scan(rng: np.random.Generator, depth: int) -> Function:
    body, length = random_program(rng, depth), int(rng.integers(1, 5))

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            return 0.5 * body(carry, n, b) + row, jnp.sum(carry)

        rows = jnp.stack([x * k for k in range(length)])
        carry, sums = lax.scan(turn, x, rows, reverse=length % 2 == 0)
        return carry + jnp.resize(sums, SIZE)

    return function


def _while(rng: np.random.Generator, depth: int) -> Function:
    body = random_program(rng, depth)

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        def turn(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return carry[0] + 1, body(carry[1], carry[0], b) + 0.3

        start = jnp.zeros_like(n), x
        return lax.while_loop(lambda c: (c[0] < n) & (jnp.sum(c[1]) < 50.0), turn, start)[1]

    return function


def _batch_of_vectors(rng: np.random.Generator, depth: int) -> Function:
    body, other = random_program(rng, depth), rng.normal(size=SIZE)
    return lambda x, n, b: jnp.sum(
        jax.vmap(lambda y: body(y, n, b))(jnp.stack([x, -x, other + 0 * x])), axis=0
    )


def _batch_of_counts(rng: np.random.Generator, depth: int) -> Function:
    body = random_program(rng, depth)
    return lambda x, n, b: jax.vmap(lambda m: body(x + 0.1 * m, m, b))(n + jnp.arange(SIZE))[:, 0]


def _forward_derivative(rng: np.random.Generator, depth: int) -> Function:
    body, along = random_program(rng, depth), rng.normal(size=SIZE)
    return lambda x, n, b: jax.jvp(lambda y: body(y, n, b), (x,), (jnp.asarray(along),))[1]


def _reverse_derivative(rng: np.random.Generator, depth: int) -> Function:
    """Of a loop of three turns."""
    body = random_program(rng, depth)

    def total(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.sum(lax.scan(lambda c, _: (0.7 * body(c, n, b), None), x, length=3)[0] ** 2)

    return jax.grad(total)


def _equations(rng: np.random.Generator, depth: int) -> Function:
    body, column = random_program(rng, depth), rng.normal(size=SIZE)

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        matrix = 5.0 * jnp.eye(SIZE) + jnp.outer(x, column) / (1.0 + x @ x)
        return jnp.linalg.solve(matrix, body(x, n, b))

    return function


def _masked(rng: np.random.Generator, depth: int) -> Function:
    """Known zeros times what may be NaN or infinite."""
    mask, matrix = rng.integers(0, 2, size=SIZE), np.diag(rng.integers(0, 2, size=SIZE).astype(float))
    return lambda x, n, b: x * mask.astype(float) + matrix @ x[::-1] + jnp.where(b, 0.0, x)


def _with_known_nan(rng: np.random.Generator, depth: int) -> Function:
    known = jnp.asarray(np.where(rng.uniform(size=SIZE) < 0.3, np.nan, rng.normal(size=SIZE)))
    pick = int(rng.integers(4))
    choices = (
        jnp.maximum,
        jnp.minimum,
        lambda x, k: jnp.clip(x, k, 2.0),
        lambda x, k: jnp.where(x > k, x, 1),
    )
    return lambda x, n, b: choices[pick](x, known)


def _whole(rng: np.random.Generator, depth: int) -> Function:
    """Integers of some kind, from the numbers, by two operations."""
    kind = rng.choice([np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
    shift = int(rng.integers(1, 5))
    operations: tuple[Callable[..., jax.Array], ...] = (
        lambda m, k: m * k + k, lambda m, k: m - 3 * k, lax.div, lax.rem, lambda m, k: m // (k | 1),
        lambda m, k: m % (k | 1), lambda m, k: m ^ k, lambda m, k: (m & k) | 1, jnp.maximum, jnp.minimum,
        lambda m, k: m << (k & 3), lambda m, k: m >> (k & 3), lambda m, k: jnp.where(m > k, -m, ~k),
        lambda m, k: jnp.sort(m) + jnp.argmax(k).astype(m.dtype), lambda m, k: jnp.cumsum(m).astype(m.dtype),
        lambda m, k: jnp.abs(m) + jnp.sign(k), lambda m, k: jnp.sum(m * k).astype(m.dtype) + k,
    )  # fmt: skip
    first, second = (operations[int(rng.integers(len(operations)))] for _ in range(2))

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        m, k = (10 * x).astype(kind), jnp.roll(n + jnp.arange(SIZE) - shift, shift).astype(kind)
        whole = second(first(m, k), m)
        return 0.5 * x + jnp.sin(whole.astype(float)) + (whole > 7)

    return function


def _to_a_power(rng: np.random.Generator, depth: int) -> Function:
    """Of integers; the shift keeps a loop of 1 / x from cancelling to zero but for rounding."""
    return lambda x, n, b: (0.37 + jnp.abs(x) ** (n + jnp.arange(SIZE) - 2)) / 10.0


def _outside(rng: np.random.Generator, depth: int) -> Function:
    """Places that may lie outside."""
    known, fill = rng.integers(-6, 7, size=SIZE), float(rng.normal())
    mode = str(rng.choice(["fill", "clip"]))

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        first = x.at[known].get(mode=mode, fill_value=fill)
        second = x.at[n + known].get(mode=mode, fill_value=fill)
        return first + second + jnp.take(x, n, mode="clip")

    return function


def _running(rng: np.random.Generator, depth: int) -> Function:
    by = (jnp.cumsum, lax.cummax, lax.cummin, jnp.cumprod)[int(rng.integers(4))]
    return lambda x, n, b: (
        by(x) + jnp.where(b[0], lax.top_k(x, 2)[0].sum(), 0.0) + jnp.argmax(x) - jnp.argmin(x)
    )


def _factor(rng: np.random.Generator, depth: int) -> Function:
    """Of a finite matrix that may be indefinite; LAPACK takes an infinite pivot as it likes."""
    shift = float(rng.uniform(-1.0, 3.0))

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        x = jnp.clip(x, -1e3, 1e3)
        return jnp.linalg.cholesky(jnp.outer(x, x) + shift * jnp.eye(SIZE))[-1]

    return function


def _table_in_while(rng: np.random.Generator, depth: int) -> Function:
    """A loop that reads an array at its counter, whose first entry all worlds share."""
    body, bound, first = random_program(rng, depth), float(rng.uniform(0.0, 6.0)), float(rng.normal())

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        table = jnp.concatenate([jnp.full(1, first), jnp.cumsum(jnp.abs(x))])

        def turn(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            i, y = carry
            return i + 1, 0.5 * y.at[i].add(table[i]) + table[i + 1]

        i, y = lax.while_loop(lambda c: (table[c[0]] < bound) & (c[0] < SIZE), turn, (0, jnp.zeros(SIZE)))
        return body(y + 0.1 * x, i + n, b)

    return function


def _table_in_for(rng: np.random.Generator, depth: int) -> Function:
    """A loop of known or unknown length over known and unknown rows."""
    body, known = random_program(rng, depth), jnp.asarray(rng.normal(size=(7, SIZE)))
    is_long, shift = bool(rng.integers(2)), int(rng.integers(SIZE))

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        def turn(i: jax.Array, y: jax.Array) -> jax.Array:
            window = lax.dynamic_slice(jnp.concatenate([y, x]), (i,), (SIZE,))
            return 0.5 * window + known[i] * x[(i + shift) % SIZE] + jnp.where(b[i % SIZE], y[0], 0.0)

        return body(lax.fori_loop(0, 4 if is_long else n, turn, x), n, b)

    return function


def _branch_by_argument(rng: np.random.Generator, depth: int) -> Function:
    one, other, k = random_program(rng, depth), random_program(rng, depth), int(rng.integers(SIZE))
    return lambda x, n, b: lax.cond(b[k], one, other, x, n, b)


def _branches_by_rows(rng: np.random.Generator, depth: int) -> Function:
    """Branches in a loop by a bit of its row; another loop by an argument."""
    one, other = random_program(rng, depth), random_program(rng, depth)

    def function(x: jax.Array, n: jax.Array, b: jax.Array) -> jax.Array:
        turn = lambda c, flag: (0.5 * lax.cond(flag, one, other, c, n, b) + x, flag)  # noqa: E731
        y = lax.scan(turn, x, b)[0]
        return lax.while_loop(
            lambda c: b[0] & (c[1] < n), lambda c: (0.9 * c[0] + 0.1, c[1] + 1), (y, 0 * n)
        )[0]

    return function


SIMPLE = (
    _mapped, _chosen, _sorted, _divided, _placed, _masked, _with_known_nan, _whole, _to_a_power, _outside,
    _running, _factor,
)  # fmt: skip
NESTED = (
    _one_after_the_other, _branch, _switch, _scan, _while, _batch_of_vectors, _batch_of_counts,
    _forward_derivative, _reverse_derivative, _equations, _table_in_while, _table_in_for, _branch_by_argument,
    _branches_by_rows,
)  # fmt: skip
