"""One-sided derivatives of a linear complementarity problem, where a variable and its slack are both zero.

Owns the tangent problem at a solution: rows of positive variables are equations, rows of zeros on both sides
keep their complementarity. Entries: `one_sided_answer`, `has_jump`. Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.algebra import small_dense
from jaxcontact.algebra.cones import positive
from jaxcontact.algebra.forward_only import forward_only
from jaxcontact.precision import all_digits
from jaxcontact.solvers.contact_directions import REVERSE, SECOND, border_size, without_noise
from jaxcontact.solvers.lcp import Lemke
from jaxcontact.status import Status
from jaxcontact.tolerances import FOLD, rounding

# Rows with an equation that determines their variable, with complementarity, of variables that stay zero, and
# with an equation that other variables have to meet.
POSITIVE, BORDER, ZERO, SHARED = range(4)
FAR = 256.0  # of the largest rate of w; variables of SHARED rows change less, both ways
COVERS = 2  # covering vectors of Lemke's method, which may find two answers
COVER_SPREAD = 3.0  # random covering vectors lie in exp(-3)..exp(3)


class LcpAnswer(NamedTuple):
    """A solution of 0 <= z, W z + w >= 0, z (W z + w) = 0.

    Attributes:
        z: (n,).
        kind: (n,) POSITIVE, BORDER, ZERO or SHARED.
        reading: (r, n) matrix that maps z to what counts: different z of one reading are one answer.
        effect: (m, r) matrix by which two readings are compared.
    """

    z: jax.Array
    kind: jax.Array
    reading: jax.Array
    effect: jax.Array


@jax.custom_jvp
def one_sided_answer(
    W: jax.Array, w: jax.Array, value: jax.Array, jumps: jax.Array, answer: LcpAnswer
) -> jax.Array:
    """Return `value`, the reading of an answer; its forward derivative is the one-sided one.

    Derivative: forward, first order, by W and w; NaN if it `jumps`, or the direction has no rates or several.
    """
    return value


@one_sided_answer.defjvp
@all_digits
def _one_sided_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    W, _, value, jumps, answer = primals
    offset = tangents[0] @ answer.z + tangents[1]
    change, is_unique = _reading_rates(W, _reduce(W, answer), offset, answer)
    change = jnp.where(is_unique & ~jumps, change, jnp.nan)
    return one_sided_answer(*primals), forward_only(change, value, reverse=REVERSE, second=SECOND)


def has_jump(
    W: jax.Array, motions: jax.Array, answer: LcpAnswer, rows: jax.Array, sets: np.ndarray
) -> jax.Array:
    """Decide whether some rates (p, n) of w lead to no answer nearby, or to several, or pieces fold.

    Args:
        rows, sets: as `_has_fold`.

    Derivative: none.
    """
    reduced = _reduce(W, answer)
    lost = jax.lax.map(lambda rates: ~_reading_rates(W, reduced, rates, answer)[1], motions)
    return jnp.any(lost) | _has_fold(reduced, answer, rows, sets)


def at_border(kind: jax.Array) -> jax.Array:
    """Mark the kinds of rows that leave the choice of a piece open."""
    return (kind == BORDER) | (kind == SHARED)


class _BorderProblem(NamedTuple):
    """The tangent problem of borders, without the positive rows."""

    matrix: jax.Array  # (n, n), the identity elsewhere
    inverse: jax.Array  # (n, n) of the positive rows, zero elsewhere
    growth: jax.Array  # (n, n), by which round-off of the elimination is judged


def _reduce(W: jax.Array, answer: LcpAnswer) -> _BorderProblem:
    """Eliminate the positive rows."""
    is_equation, is_border = answer.kind == POSITIVE, at_border(answer.kind)
    inner = is_equation[:, None] & is_equation[None]
    inverse, _ = small_dense.generalized_inverse(
        jnp.where(inner, W, jnp.diag((~is_equation).astype(W.dtype)))
    )
    inverse = jnp.where(inner, inverse, 0.0)
    growth = jnp.abs(W) @ jnp.abs(inverse)
    matrix = without_noise(W - W @ inverse @ W, jnp.abs(W) + growth @ jnp.abs(W))
    outer = is_border[:, None] & is_border[None]
    return _BorderProblem(jnp.where(outer, matrix, jnp.diag((~is_border).astype(W.dtype))), inverse, growth)


def _has_fold(reduced: _BorderProblem, answer: LcpAnswer, rows: jax.Array, sets: np.ndarray) -> jax.Array:
    """Decide whether a regular piece of the tangent problem has a negative determinant.

    Args:
        rows: (c, m) rows of blocks of variables, n for none.
        sets: (k, m) bool, the variables of a block that may be positive together.
    """
    kind = answer.kind.at[rows].get(mode="fill", fill_value=ZERO)  # (c, m)
    needed, refused = (kind == POSITIVE) | (kind == SHARED), kind == ZERO
    meets = jnp.all(jnp.asarray(sets)[None] | ~needed[:, None], axis=2) | ~jnp.any(sets, axis=1)[None]
    allowed = meets & ~jnp.any(jnp.asarray(sets)[None] & refused[:, None], axis=2)  # (c, k)
    flat = rows.reshape(-1)
    matrix = reduced.matrix.at[flat[:, None], flat[None]].get(mode="fill", fill_value=0.0)
    is_border, dtype = at_border(kind).reshape(-1), matrix.dtype
    low = rounding(dtype, FOLD)

    def is_negative(choice: jax.Array) -> jax.Array:
        chosen = jnp.asarray(sets)[choice].reshape(-1) & is_border
        both = chosen[:, None] & chosen[None]
        piece = jnp.where(both, matrix, jnp.diag((~chosen).astype(dtype)))
        piece = piece / positive(jnp.sqrt(jnp.sum(piece**2, axis=0)))[None]
        return jnp.all(allowed[jnp.arange(len(choice)), choice]) & (jnp.linalg.det(piece) < -low)

    choices = np.stack(np.meshgrid(*[np.arange(len(sets))] * rows.shape[0], indexing="ij"), axis=-1)
    return jnp.any(jax.vmap(is_negative)(jnp.asarray(choices.reshape(-1, rows.shape[0]))))


def _reading_rates(
    W: jax.Array, reduced: _BorderProblem, offset: jax.Array, answer: LcpAnswer
) -> tuple[jax.Array, jax.Array]:
    """Solve the tangent problem for the rates (r,) of the reading; return also whether there are no others.

    Args:
        offset: (n,) rates of W z + w at fixed z.
    """
    is_equation, is_shared = answer.kind == POSITIVE, answer.kind == SHARED
    is_border, (matrix, inverse, growth) = at_border(answer.kind), reduced
    asked = without_noise(offset - W @ (inverse @ offset), jnp.abs(offset) + growth @ jnp.abs(offset))
    far = FAR * jnp.max(jnp.abs(offset))
    lower = jnp.where(is_shared, -far, 0.0)
    asked = jnp.where(is_border, asked + matrix @ lower, far)

    def solve(cover: jax.Array) -> tuple[jax.Array, jax.Array]:
        z, info = Lemke()(matrix, asked, cover)
        is_far = jnp.any(is_shared & (z <= 0)) & (far > 0)
        z = jnp.where(is_border, z + lower, 0.0)
        z = z - inverse @ (offset + W @ z)
        left = jnp.where(is_equation, offset + W @ z, 0.0)
        size = jnp.max(jnp.abs(offset)) + jnp.max(jnp.abs(W) @ jnp.abs(z))
        is_solved = (info.status & jnp.uint32(int(Status.FAILURES))) == 0
        return z, is_solved & ~is_far & (jnp.max(jnp.abs(left)) <= border_size(W.dtype, size))

    spread = np.random.default_rng(0).uniform(-COVER_SPREAD, COVER_SPREAD, (COVERS, len(offset)))
    spread[0] = 0.0
    z, is_solved = jax.vmap(solve)(jnp.asarray(np.exp(spread), W.dtype))
    rates = z @ answer.reading.T
    moves = rates @ answer.effect.T
    size = jnp.max(jnp.abs(moves)) + jnp.max(jnp.abs(offset))
    is_unique = jnp.max(jnp.abs(moves - moves[:1])) <= border_size(W.dtype, size)
    return rates[0], jnp.all(is_solved) & is_unique
