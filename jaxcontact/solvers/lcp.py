"""The linear complementarity problem 0 <= z, W z + w >= 0, z (W z + w) = 0, by Lemke's method.

Owns pivoting, scaling, the tests of an answer and its derivative. Entry: `solve_lcp`. Impact LCPs are almost
always degenerate (exact zeros in w, redundant contacts) and badly scaled (friction coefficients up to 1e5).
Then a textbook Lemke method may return a wrong answer without a warning; hence the equilibration, the
lexicographic ratio test, and the residual of the answer in the original problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record, static
from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_positive, check_rows, check_whole
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.front_door import checked
from jaxcontact.precision import jit
from jaxcontact.solvers.lemke_dictionary import (
    RAY,
    RUNNING,
    SOLVED,
    Dictionary,
    enter,
    first_true,
    follow_path,
    generic_vectors,
    max_pivots,
)
from jaxcontact.solvers.scaling import scales
from jaxcontact.status import Info, Status, flag
from jaxcontact.tolerances import RESIDUAL, SQUARE, USER_RESIDUAL, rounding

if TYPE_CHECKING:
    from jaxtyping import Float


class LcpInfo(Info):
    """The information of `solve_lcp` about its answer.

    Attributes:
        status: uint32 bits; 0 is success.
        residual: max_i |min(d_i z_i, (W z + w)_i)| in the user's units, relative to the most negative w_i,
            with the effect d_i = |W_ii| of z_i, max_j |W_ji| if that is zero.
        num_iters: int32, pivots over all attempts.
    """


class ScaledProblem(NamedTuple):
    """Problem W' = R W C, w' = R w / size: entries of W' and w' near 1; z = size C z'."""

    W: jax.Array
    w: jax.Array
    columns: jax.Array  # size * C
    effects: jax.Array  # of z' and of W' z' + w' on the residual in the user's units
    slacks: jax.Array


class _Best(NamedTuple):
    """The answer with the smallest residual so far, in scaled variables; see `residuals`."""

    z: jax.Array
    active: jax.Array
    inverse: jax.Array  # of W_AA, the identity elsewhere
    residual: jax.Array
    outcome: jax.Array
    attempt: jax.Array
    pivots: jax.Array


def _times(matrix: jax.Array, vector: jax.Array) -> jax.Array:
    return jnp.sum(matrix * vector[None, :], axis=1)


def equilibrate(W: jax.Array, w: jax.Array, sweeps: int) -> tuple[ScaledProblem, jax.Array]:
    """Scale the rows and columns of a problem to entries near 1; also return R / size."""
    rows, columns = scales(W, sweeps)
    user_w, w = w, rows * w
    # Only negative entries drive z away from 0. Positive entries may be huge (an impulse cap that is not
    # reached) and, as a unit, would make every violation look small.
    unit = jnp.maximum(jnp.max(-w), jnp.max(jnp.abs(w)) * rounding(w.dtype, SQUARE))
    unit = jnp.where(unit > 0, unit, 1.0)
    scaled_W = rows[:, None] * W * columns[None, :]
    deepest = jnp.max(-user_w)
    deepest = jnp.where(deepest > 0, deepest, 1.0)  # else z = 0 is the answer
    rows, columns = rows / unit, columns * unit
    diagonal = jnp.abs(jnp.diagonal(W))
    effects = jnp.where(diagonal > 0, diagonal, jnp.max(jnp.abs(W), axis=0)) * columns / deepest
    return ScaledProblem(scaled_W, w / unit, columns, effects, 1.0 / (rows * deepest)), rows


@checked(max_pivots=check_rows, retries=check_whole, scaling_sweeps=check_whole, tolerance=check_positive)
class Lemke(Record):
    """Lemke's method with lexicographic ratio test on an equilibrated problem, and retries.

    Source: Cottle, Pang & Stone, The Linear Complementarity Problem, sections 4.4
    (Scheme I) and 4.9 (degeneracy).

    Attributes:
        max_pivots: limit on the pivots of one attempt; None means 10 n + 20.
        retries: further attempts, each with another covering vector and perturbation, for a problem
            whose answer is not good enough.
        scaling_sweeps: sweeps of the equilibration.
        tolerance: residual up to which an answer is good; None means eps^0.6 of the dtype.
        early_exit: stop when the answer is good. False does the same pivots in loops of static length,
            (retries + 1) times max_pivots iterations; lower both for that. The answer is the same, and so is
            its derivative, which does not pass through the pivots. The default is True on every device: a
            batch needs as many iterations as its hardest problem, a small part of the limits.
    """

    max_pivots: int | None = static(default=None)
    retries: int = static(default=5)
    scaling_sweeps: int = static(default=3)
    tolerance: float | None = static(default=None)
    early_exit: bool = static(default=True)

    def __call__(
        self, W: jax.Array, w: jax.Array, cover: jax.Array | None = None
    ) -> tuple[jax.Array, LcpInfo]:
        """Solve one problem; see `solve_lcp`."""
        W, w = _check_problem(W, w, self)
        if cover is not None and jnp.shape(cover) != w.shape:
            raise ValueError(f"solve_lcp: cover must have shape {w.shape} to match w, got {jnp.shape(cover)}")
        if w.shape[0] == 0:
            zero = jnp.zeros((), w.dtype)
            return w, LcpInfo(status=jnp.uint32(0), residual=zero, num_iters=jnp.int32(0))
        z, info = self._solve(W, w, cover)
        return z, info

    @jit  # so that calls outside of jit also trace once per size and options
    def _solve(self, W: jax.Array, w: jax.Array, cover: jax.Array | None) -> tuple[jax.Array, LcpInfo]:
        n, dtype = w.shape[0], w.dtype
        tolerance = rounding(dtype, RESIDUAL) if self.tolerance is None else self.tolerance
        finite = jnp.all(jnp.isfinite(W)) & jnp.all(jnp.isfinite(w))
        # W is tested by itself, so that a W shared by many w stays shared, and is scaled once.
        W, w = jnp.where(jnp.all(jnp.isfinite(W)), W, 0.0), jnp.where(finite, w, 0.0)

        fixed_W, fixed_w = lax.stop_gradient((W, w))
        scaled, rows = equilibrate(fixed_W, fixed_w, self.scaling_sweeps)
        best = self._attempts(scaled, tolerance, cover)

        # The answer again, as the solution of the equations of its index set, which has the derivative.
        columns = scaled.columns
        both = best.active[:, None] & best.active[None, :]
        equations = jnp.where(both, rows[:, None] * W * columns[None, :], jnp.eye(n, dtype=dtype))
        z = implicit.refine(equations, jnp.where(best.active, -rows * w, 0.0), best.z, best.inverse)
        refined = lax.stop_gradient(z)
        refined_residual, user_residual = residuals(scaled, jnp.maximum(refined, 0.0), tolerance)
        better = refined_residual <= jnp.maximum(best.residual, tolerance)
        residual = jnp.where(better, user_residual, residuals(scaled, best.z, tolerance)[1])
        judged = jnp.where(better, refined_residual, best.residual)
        z = jnp.where(better, z + (jnp.maximum(refined, 0.0) - refined), best.z) * columns
        residual = jnp.where(finite, residual, jnp.inf)
        good = finite & (judged <= tolerance)
        status = (
            flag(~finite | ~jnp.all(jnp.isfinite(z)), Status.NONFINITE)
            | flag(~good & (best.outcome == RAY), Status.RAY)
            | flag(~good & (best.outcome == RUNNING), Status.MAX_ITERS)
            | flag(finite & ~good & (best.outcome == SOLVED), Status.STALLED)
        )
        return z, LcpInfo(status=status, residual=residual, num_iters=best.pivots)

    def _attempts(self, scaled: ScaledProblem, tolerance: float, cover: jax.Array | None) -> _Best:
        """Retry Lemke's method with new covering vectors until the residual is good or no retry is left."""
        n, dtype = scaled.w.shape[0], scaled.w.dtype
        attempts, limit = self.retries + 1, max_pivots(n) if self.max_pivots is None else self.max_pivots
        covers, perturbations = jnp.asarray(generic_vectors(attempts, n), dtype)
        if cover is not None:
            usable = jnp.all(jnp.isfinite(cover) & (cover > 0))
            covers = covers.at[0].set(jnp.where(usable, lax.stop_gradient(cover).astype(dtype), 1.0))

        def body(best: _Best) -> _Best:
            wanted = best.residual > tolerance  # in a batch, other problems may still need an attempt
            cover, perturbation = covers[best.attempt], perturbations[best.attempt]
            d = follow_path(enter(scaled.W, scaled.w, cover, perturbation, wanted), limit, self.early_exit)
            z, active, inverse = read_solution(d, scaled)
            residual, _ = residuals(scaled, z, tolerance)
            better = residual < best.residual
            return _Best(
                z=jnp.where(better, z, best.z),
                active=jnp.where(better, active, best.active),
                inverse=jnp.where(better, inverse, best.inverse),
                residual=jnp.where(better, residual, best.residual),
                outcome=jnp.where(better, d.outcome, best.outcome),
                attempt=best.attempt + 1,
                pivots=best.pivots + d.pivots,
            )

        zeros = jnp.zeros(n, dtype)
        drive = jnp.maximum(-jnp.min(scaled.w), 0.0)  # 0 if w >= 0; then z = 0 needs no pivots
        start = _Best(
            z=zeros,
            active=zeros > 0,
            inverse=jnp.eye(n, dtype=dtype),
            residual=jnp.where(drive > 0, jnp.inf, 0.0),
            outcome=jnp.int32(SOLVED),
            attempt=jnp.int32(0),
            pivots=jnp.int32(0),
        )
        return bounded_loop(
            lambda best: (best.residual > tolerance) & (best.attempt < attempts),
            body,
            start,
            max_iters=attempts,
            early_exit=self.early_exit,
        )


def residuals(scaled: ScaledProblem, z: jax.Array, tolerance: float) -> tuple[jax.Array, jax.Array]:
    """Compute the residuals of scaled z (n,): the one that is judged, and that in the user's units.

    The judged residual is that of the scaled problem, or, if larger, that in the user's units times the ratio
    of the two tolerances.
    """
    slack = _times(scaled.W, z) + scaled.w
    user = jnp.max(jnp.abs(jnp.minimum(scaled.effects * z, scaled.slacks * slack)))
    user_tolerance = max(tolerance, rounding(z.dtype, USER_RESIDUAL))
    judged = jnp.maximum(jnp.max(jnp.abs(jnp.minimum(z, slack))), user * (tolerance / user_tolerance))
    return jnp.where(jnp.isfinite(judged), judged, jnp.inf), jnp.where(jnp.isfinite(user), user, jnp.inf)


def read_solution(d: Dictionary, scaled: ScaledProblem) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Read z, its index set, and the inverse of its equations from a dictionary."""
    n = scaled.w.shape[0]
    number = jnp.arange(n)
    holds = d.basic[:, None] == n + number[None, :]  # (rows, z)
    active = jnp.any(holds, axis=0)
    rows = jax.vmap(first_true, 1)(holds)
    columns = jax.vmap(first_true, 1)(d.nonbasic[:, None] == number[None, :])
    both = active[:, None] & active[None, :]
    inverse = jnp.where(both, d.table[rows][:, columns], jnp.eye(n, dtype=d.table.dtype))
    inverse = jnp.where(jnp.isfinite(inverse), inverse, 0.0)
    z = jnp.where(active, d.table[rows, n + 1], 0.0)
    for _ in range(2):
        error = jnp.where(active, _times(scaled.W, z) + scaled.w, 0.0)
        z = z - _times(inverse, error)
    return jnp.maximum(z, 0.0), active, inverse


def _check_problem(W: jax.Array, w: jax.Array, solver: Lemke) -> tuple[jax.Array, jax.Array]:
    W, w = jnp.asarray(W), jnp.asarray(w)
    if W.ndim != 2 or W.shape[0] != W.shape[1]:
        raise ValueError(f"solve_lcp: W must be square (n, n), got shape {W.shape}")
    if w.shape != W.shape[:1]:
        raise ValueError(f"solve_lcp: w must have shape {W.shape[:1]} to match W, got {w.shape}")
    for name, array in (("W", W), ("w", w)):
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"solve_lcp: {name} must be of a real floating dtype, got {array.dtype}")
    if W.dtype != w.dtype:
        raise TypeError(f"solve_lcp: W and w must have one dtype, got {W.dtype} and {w.dtype}")
    if solver.max_pivots is not None and solver.max_pivots < 1:
        raise ValueError(f"Lemke: max_pivots must be at least 1, got {solver.max_pivots}")
    if solver.retries < 0:
        raise ValueError(f"Lemke: retries must be at least 0, got {solver.retries}")
    return W, w


@checked()
def solve_lcp(
    W: Float[jax.Array, "n n"],
    w: Float[jax.Array, " n"],
    *,
    cover: Float[jax.Array, " n"] | None = None,
    solver: Lemke = Lemke(),  # noqa: B008
) -> tuple[jax.Array, LcpInfo]:
    """Solve the linear complementarity problem 0 <= z, W z + w >= 0, z . (W z + w) = 0.

    Source: Cottle, Pang & Stone, The Linear Complementarity Problem, chapters 1 and 4. Lemke's method
    solves every LCP with a copositive W for which v >= 0, W v >= 0, v . W v = 0 imply v . w >= 0; impact
    LCPs are of this class. There may be several solutions; the path of the method picks one.

    Args:
        W: (n, n), any units.
        w: (n,), of the same dtype as W.
        cover: (n,) > 0, covering vector of the first attempt, in the equilibrated problem; default ones.
            If there are several solutions it decides which is found. Unusable numbers count as ones.
        solver: a `Lemke` with its options.

    Returns:
        z (n,) >= 0, and an `LcpInfo`. w >= 0 gives z = 0 without a pivot.

    Raises:
        ValueError: W is not square, w does not match it, or an option is out of range.
        TypeError: W or w is not of a real floating dtype, or their dtypes differ.

    Status:
        RAY: Lemke's method found no solution; if W is of the class above, there is none.
        MAX_ITERS: the limit on pivots was reached.
        STALLED: the residual of the answer is above the tolerance, or above eps^0.4 in the user's units.
        NONFINITE: NaN or inf in W or w (z is 0), or in the result.

        With the first three, z is the iterate with the smallest residual of all attempts.

    Numbers:
        In float64 up to friction coefficients of 1e5. In float32 keep them below about 10: with 1e3 and more
        a few answers in a hundred satisfy the rounded problem but not the original one.

    Derivative:
        Of the equations of the index set found, W_AA z_A = -w_A with all other z fixed at 0. If the
        solution is degenerate (z_i = (W z + w)_i = 0) this is the element of the branch taken. Impact
        LCPs are degenerate at the commonest points, so impact laws do not use it; see `implicit`.

    >>> W, w = jnp.array([[2.0, 1.0], [1.0, 2.0]]), jnp.array([-5.0, -6.0])
    >>> [round(float(x), 4) for x in solve_lcp(W, w)[0]]
    [1.3333, 2.3333]
    """
    return solver(W, w, cover)
