"""The distance of a body from losing its certificate: entry functions `margin`, `margin_gradient`.

Owns the margin as a function of the numbers of a biped, its slopes, and the end of the certified range of a
parameter, `certified_end`. Page: docs/methods/stability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import check_number, check_positive
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.impact.laws.callable_laws import Law
from jaxcontact.stability.body import Body, LocalTerms, PlanarBiped, as_terms
from jaxcontact.stability.certify import certify
from jaxcontact.stability.check import check
from jaxcontact.stability.impact_conditions import conditions
from jaxcontact.stability.lyapunov_basis import ConditionFamily, Numbers, family, solutions
from jaxcontact.stability.program import (
    PRECISION,
    ConicSolution,
    MarginProgram,
    clarabel,
    cone_program,
    margin_program,
)
from jaxcontact.stability.rational import Ints, Rational, exact, joined, null_space, rank, stack
from jaxcontact.stability.rational_modes import Exact, Unprovable, exact_terms

TANGENT_BITS = 300  # bits: a tangent times 2^-TANGENT_BITS is added to an exact body
TANGENT = 1e-100  # size of imaginary parts: their products vanish relative to real parts
MAX_TANGENT = 1e12  # a larger relative tangent means that a row has become another one
TIE = 1e-9  # difference of the margins of two programs that counts as a tie
ZERO_TANGENT = 1e-7  # size of a tangent relative to all others that counts as zero


@checked()
def margin(body: Body, *, law: Law | None = None) -> float:
    """Compute the margin of the certificate of a body under a law of `certify`; return 0 without one.

    It is the optimum of the conic program of `certify`: free of units, and continuous as long as the same
    contact modes are consistent.

    Raises:
        TypeError: a law that is no callable.
        ValueError: no equilibrium, bad numbers in the body, a law without conditions.
    """
    certificate = certify(body, law=law)
    return certificate.residuals["margin"] if certificate.verdict == "stable" else 0.0


@checked()
def margin_gradient(body: PlanarBiped, names: Sequence[str]) -> dict[str, float]:
    """Compute exact slopes of the margin by numbers of a biped, from the dual of the program at the body.

    By the envelope theorem the optimum of: minimise c x, b - A x in a cone, changes by z' dA x with its dual
    z; the solver is neither differentiated nor called again. dA is exact to rounding: the rational numbers in
    A are computed once more with 2^-300 of the tangents of the body added, which gives their tangents, and
    the arithmetic in floats after that is analytic. On level ground the margin is the smaller one of two
    programs.

    Args:
        body: with a certificate.
        names: of its numbers, such as "L1", "h", "mu1".

    Returns:
        Slope by name. At a kink, where more than one dual is optimal, the slope of one side or between them;
        if the two programs of level ground tie, the slope for a growing number.

    Raises:
        ValueError: no certificate at the body, or a number by which the program changes its form at once,
            such as "alpha" on level ground or "e1" from zero.
    """
    if margin(body) == 0.0:
        raise ValueError("body: expected one with a certificate, got margin 0")
    terms = jax.tree.map(np.asarray, as_terms(body))
    families = _families(exact_terms(terms))
    solved = []
    for condition_family, positive in families:
        program = margin_program(condition_family, positive_quadratic=positive)
        if program is None:
            raise ValueError("body: expected one with a certificate, got equalities without a solution")
        solved.append((program, clarabel(program.cost, *program.cone.arrays(), PRECISION)))
    min_margin = min(solution.x[-1] for _, solution in solved)
    slopes = {}
    for name in names:
        try:
            moved_families = _families(_perturb(body, terms, name))
            slope_per_program = [
                _slope(family_at_body, family_at_moved, *pair, positive)
                for (family_at_body, positive), (family_at_moved, _), pair in zip(
                    families, moved_families, solved, strict=True
                )
                if pair[1].x[-1] < min_margin + TIE
            ]
        except (ValueError, IndexError, OverflowError, Unprovable) as error:
            message = f"body.{name}: the program of the margin changes its form with it ({error})"
            raise ValueError(message) from None
        slopes[name] = min(slope_per_program)
    return slopes


def _families(body: Exact) -> list[tuple[ConditionFamily, bool]]:
    """List the conditions of the programs of the margin, and whether each asks Q + s M to be positive."""
    every = conditions(body, "homogeneous")
    if rank(joined([body.normal, body.force[None]]).num) == body.nv:
        return [(family(body, every, body.force), True)]
    drift = null_space(body.normal.num)[0]
    return [(family(body, every, Rational(sign * drift), drift=True), False) for sign in (1, -1)]


def _perturb(body: PlanarBiped, terms: LocalTerms, name: str) -> Exact:
    """Add 2^-TANGENT_BITS of the tangent of a body by one of its numbers, exactly."""
    value = jnp.asarray(getattr(body, name), float)
    _, tangent = jax.jvp(lambda x: as_terms(body.replace(**{name: x})), (value,), (jnp.ones_like(value),))

    def add(x: np.ndarray, dx: jax.Array) -> np.ndarray:
        total = exact(x) + exact(np.asarray(dx)) * Rational(1, 1 << TANGENT_BITS)
        return np.array([Fraction(n, total.den) for n in total.num.ravel()], object).reshape(x.shape)

    return exact_terms(jax.tree.map(add, terms, tangent))


def _slope(
    at_body: ConditionFamily,
    at_moved: ConditionFamily,
    program: MarginProgram,
    solution: ConicSolution,
    positive_quadratic: bool,
) -> float:
    """Compute the slope of the margin of one program, from the same conditions at the moved body."""
    reduced = program.conditions
    equalities = [at_moved.exact_row(i) for i in reduced.equalities]
    space = solutions(stack([at_moved.equal, *equalities], len(at_moved.basis)), reduced.order)
    numbers = Numbers(
        force=_with_tangent(at_body.basis.body.force, at_moved.basis.body.force),
        lead=_with_tangent(at_body.basis.lead, at_moved.basis.lead),
        table=_rows_with_tangents(at_body.table, at_moved.table),
        at_most=_rows_with_tangents(at_body.at_most, at_moved.at_most),
        space=_rows_with_tangents(reduced.space, space),
    )
    if at_body.rays != at_moved.rays or not all(map(np.array_equal, at_body.pairs, at_moved.pairs)):
        raise ValueError("other impacts")
    rows = at_body.rows(numbers)
    over = rows @ numbers.space.T
    nothing = np.linalg.norm(over.real, axis=1) <= 1e-9 * np.linalg.norm(rows.real, axis=1)
    largest = max(np.max(abs(matrix.imag), initial=0.0) for matrix in (rows, numbers.space))
    tolerance = ZERO_TANGENT * (1.0 + largest / TANGENT)
    if np.any(abs(over.imag[nothing]) > TANGENT * tolerance):
        raise ValueError("other equalities")
    cone, _ = cone_program(at_body, reduced, numbers, positive_quadratic=positive_quadratic)
    change = cone.arrays()[0].imag / TANGENT
    return -float(solution.z @ (change @ solution.x))


def _with_tangent(at_body: Rational, at_moved: Rational) -> np.ndarray:
    change = at_moved - at_body
    return at_body.floats() + 1j * TANGENT * Rational(change.num << TANGENT_BITS, change.den).floats()


def _rows_with_tangents(at_body: Ints, at_moved: Ints) -> np.ndarray:
    """Divide rows, defined up to a positive factor, by their largest entry; add their tangents."""
    if at_body.shape != at_moved.shape:
        raise ValueError("other rows")
    rows = np.zeros(at_body.shape, complex)
    for i, (row, moved) in enumerate(zip(at_body.tolist(), at_moved.tolist(), strict=True)):
        _, at = max((abs(x), k) for k, x in enumerate(row))
        p, q = abs(row[at]), abs(moved[at])
        if not q:
            raise ValueError("other rows")
        for k, (x, y) in enumerate(zip(row, moved, strict=True)):
            tangent = ((y * p - x * q) << TANGENT_BITS) / (p * q)
            if abs(tangent) > MAX_TANGENT:
                raise ValueError("other rows")
            rows[i, k] = complex(x / p, TANGENT * tangent)
    return rows


@checked(tolerance=POSITIVE)
def certified_end(
    make_body: Callable[[float], Body], inside: float, outside: float, *, tolerance: float = 1e-4
) -> float:
    """Find the last certified value of a parameter on the way from `inside` to `outside`, by bisection.

    Examples: the largest friction uncertainty that a stance bears, the smallest distance of its feet. The
    value returned has a checked certificate; between it and `inside` only the values tried have one.

    Args:
        make_body: from the value of the parameter.
        inside: a value with a certificate.
        outside: a value without one, to go towards.
        tolerance: of the value, > 0; below the spacing of floats, the search ends at two neighbours.

    Raises:
        ValueError: no certificate at `inside`, or one at `outside`, so that the range has no known end;
            numbers that are not finite, or a tolerance that is not positive.
    """
    check_number("inside", inside)
    check_number("outside", outside)
    check_positive("tolerance", tolerance)

    def stable(value: float) -> bool:
        try:
            certificate = certify(make_body(value))
        except ValueError:  # no equilibrium there
            return False
        return certificate.verdict == "stable" and check(certificate)

    if not stable(inside):
        raise ValueError(f"inside: expected a value with a certificate, got {inside:g}")
    if stable(outside):
        raise ValueError(f"outside: expected a value without a certificate, got {outside:g}, which has one")
    while abs(outside - inside) > tolerance:
        middle = inside + 0.5 * (outside - inside)
        if middle in (inside, outside):
            break
        inside, outside = (middle, outside) if stable(middle) else (inside, middle)
    return inside
