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
Function = Callable[[jax.Array, jax.Array], jax.Array]  # of a vector and a count, to a vector


def programs(seed: int) -> Tally:
    """One program; every other one keeps its small loops and branches, which else are written out."""
    rng = np.random.default_rng(seed)
    function = random_program(rng, int(rng.integers(1, 5)))
    x, n = 2.0 * rng.normal(size=(WORLDS, SIZE)), rng.integers(0, 6, size=WORLDS)
    try:
        expected = np.asarray(jax.jit(jax.vmap(function))(x, n))
    except ValueError:  # JAX has no reverse derivative of a `while` loop
        return Tally()
    before = rules_control.UNROLLED, rules_control.CHOSEN
    if seed % 2:
        rules_control.UNROLLED = rules_control.CHOSEN = 0
    try:
        found = jc.simd(function)(x, n)
    finally:
        rules_control.UNROLLED, rules_control.CHOSEN = before
    tally = Tally()
    good = tally.count(np.zeros(WORLDS, np.uint32))
    known = np.isfinite(expected)
    tally.judge("known where JAX knows", np.any(np.isfinite(found) != known, axis=1).astype(float), 0.5, good)
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
    return lambda x, n: jnp.tanh(matrix @ x + shift)


def _chosen(rng: np.random.Generator, depth: int) -> Function:
    bound = rng.normal(size=SIZE)
    return lambda x, n: jnp.where(x > bound, x * bound, -x)


def _sorted(rng: np.random.Generator, depth: int) -> Function:
    slope = rng.normal(size=SIZE)
    return lambda x, n: jnp.sort(x)[::-1] + slope * n


def _divided(rng: np.random.Generator, depth: int) -> Function:
    return lambda x, n: jnp.roll(x, 1) / (1.0 + x * x)


def _placed(rng: np.random.Generator, depth: int) -> Function:
    further = int(rng.integers(SIZE))
    return lambda x, n: x.at[(n + further) % SIZE].add(0.5 * x[n % SIZE])


def _one_after_the_other(rng: np.random.Generator, depth: int) -> Function:
    first, second = random_program(rng, depth), random_program(rng, depth)
    return lambda x, n: second(first(x, n), n)


def _branch(rng: np.random.Generator, depth: int) -> Function:
    one, other = random_program(rng, depth), random_program(rng, depth)
    return lambda x, n: lax.cond(x[0] > x[1], one, other, x, n)


def _switch(rng: np.random.Generator, depth: int) -> Function:
    branches = [random_program(rng, depth) for _ in range(3)]
    return lambda x, n: lax.switch(n % 4, branches, x, n)


def _scan(rng: np.random.Generator, depth: int) -> Function:
    body, length = random_program(rng, depth), int(rng.integers(1, 5))

    def function(x: jax.Array, n: jax.Array) -> jax.Array:
        def turn(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            return 0.5 * body(carry, n) + row, jnp.sum(carry)

        rows = jnp.stack([x * k for k in range(length)])
        carry, sums = lax.scan(turn, x, rows, reverse=length % 2 == 0)
        return carry + jnp.resize(sums, SIZE)

    return function


def _while(rng: np.random.Generator, depth: int) -> Function:
    body = random_program(rng, depth)

    def function(x: jax.Array, n: jax.Array) -> jax.Array:
        def turn(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            return carry[0] + 1, body(carry[1], carry[0]) + 0.3

        start = jnp.zeros_like(n), x
        return lax.while_loop(lambda c: (c[0] < n) & (jnp.sum(c[1]) < 50.0), turn, start)[1]

    return function


def _batch_of_vectors(rng: np.random.Generator, depth: int) -> Function:
    body, other = random_program(rng, depth), rng.normal(size=SIZE)
    return lambda x, n: jnp.sum(jax.vmap(lambda y: body(y, n))(jnp.stack([x, -x, other + 0 * x])), axis=0)


def _batch_of_counts(rng: np.random.Generator, depth: int) -> Function:
    body = random_program(rng, depth)
    return lambda x, n: jax.vmap(lambda m: body(x + 0.1 * m, m))(n + jnp.arange(SIZE))[:, 0]


def _forward_derivative(rng: np.random.Generator, depth: int) -> Function:
    body, along = random_program(rng, depth), rng.normal(size=SIZE)
    return lambda x, n: jax.jvp(lambda y: body(y, n), (x,), (jnp.asarray(along),))[1]


def _reverse_derivative(rng: np.random.Generator, depth: int) -> Function:
    """Of a loop of three turns."""
    body = random_program(rng, depth)

    def total(x: jax.Array, n: jax.Array) -> jax.Array:
        return jnp.sum(lax.scan(lambda c, _: (0.7 * body(c, n), None), x, length=3)[0] ** 2)

    return jax.grad(total)


def _equations(rng: np.random.Generator, depth: int) -> Function:
    body, column = random_program(rng, depth), rng.normal(size=SIZE)

    def function(x: jax.Array, n: jax.Array) -> jax.Array:
        matrix = 5.0 * jnp.eye(SIZE) + jnp.outer(x, column) / (1.0 + x @ x)
        return jnp.linalg.solve(matrix, body(x, n))

    return function


SIMPLE = (_mapped, _chosen, _sorted, _divided, _placed)
NESTED = (
    _one_after_the_other, _branch, _switch, _scan, _while, _batch_of_vectors, _batch_of_counts,
    _forward_derivative, _reverse_derivative, _equations,
)  # fmt: skip
