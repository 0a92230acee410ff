"""How far a body is from losing its certificate, and which way leads to a safer stance.

Owns the margin as a function of the numbers of a biped, its slopes, and the end of the certified range of a
parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np

from jaxcontact.stability.body import Body, PlanarBiped, as_terms
from jaxcontact.stability.certify import certify
from jaxcontact.stability.check import check
from jaxcontact.stability.exact import exact_terms
from jaxcontact.stability.family import family
from jaxcontact.stability.jumps import conditions
from jaxcontact.stability.program import PRECISION, MarginProgram, clarabel, margin_program
from jaxcontact.stability.rational import joined, rank


def margin(body: Body) -> float:
    """Margin of the certificate of a body, 0 where there is none.

    It is the optimum of the conic program of `certify`: free of units, and continuous as long as the same
    contact modes are consistent.

    Raises:
        ValueError: no equilibrium, bad numbers in the body.
    """
    found = certify(body)
    return found.residuals["margin"] if found.verdict == "stable" else 0.0


def margin_gradient(body: PlanarBiped, names: Sequence[str], *, step: float = 1e-5) -> dict[str, float]:
    """Slopes of the margin by numbers of a biped, from the dual of the one program at the body.

    By the envelope theorem the optimum of: minimise c x, b - A x in a cone, changes by z' dA x with its dual
    z; the solver is not differentiated nor called again. dA is a central difference of the data of the
    program, which are computed in rational numbers and rounded once: its error is about step^2.

    Args:
        body: with a certificate, on a slope.
        names: of its numbers, such as "L1", "h", "mu1".
        step: of the differences of A.

    Returns:
        Slope by name. At a kink, where more than one dual is optimal, the slope of one side or between them.

    Raises:
        ValueError: no certificate at the body, level ground, or within `step` of a body with other contact
            modes or impacts, whose program has another form.
    """
    if margin(body) == 0.0:
        raise ValueError("body: expected one with a certificate, got margin 0")
    here = _program(body)
    matrix, rhs, kinds = here.cone.arrays()
    solution = clarabel(here.cost, matrix, rhs, kinds, PRECISION)
    slopes = {}
    for name in names:
        value = float(getattr(body, name))
        ends = value + step, value - step
        ahead, behind = (_program(body.replace(**{name: end})).cone.arrays() for end in ends)
        same = ahead[2] == kinds == behind[2]
        if not same or max(abs(end[0] - matrix).max() for end in (ahead, behind)) > step**0.5:
            raise ValueError(f"body.{name}: within {step:g} the program of the margin changes its form")
        change = (ahead[0] - behind[0]) / (ends[0] - ends[1])
        slopes[name] = -float(solution.z @ (change @ solution.x))
    return slopes


def _program(body: PlanarBiped) -> MarginProgram:
    """The program behind the margin of a biped on a slope."""
    exact = exact_terms(jax.tree.map(np.asarray, as_terms(body)))
    if rank(joined([exact.normal, exact.force[None]]).num) < exact.nv:
        raise ValueError("body: expected one on a slope, got a force that is a combination of the gaps")
    found = family(exact, conditions(exact, "homogeneous"), exact.force)
    program = margin_program(exact, found, positive_quadratic=True)
    if program is None:
        raise ValueError("body: expected one with a certificate, got equalities without a solution")
    return program


def certified_end(
    make_body: Callable[[float], Body], inside: float, outside: float, *, tolerance: float = 1e-4
) -> float:
    """The last value of a parameter on the way from `inside` to `outside` that is certified; by bisection.

    The largest friction uncertainty that a stance bears, the smallest distance of its feet. The value
    returned has a checked certificate; between it and `inside` only the values tried have one.

    Args:
        make_body: from the value of the parameter.
        inside: a value with a certificate.
        outside: a value to go towards.
        tolerance: of the value.

    Raises:
        ValueError: no certificate at `inside`.
    """

    def stable(value: float) -> bool:
        try:
            found = certify(make_body(value))
        except ValueError:  # no equilibrium there
            return False
        return found.verdict == "stable" and check(found)

    if not stable(inside):
        raise ValueError(f"inside: expected a value with a certificate, got {inside:g}")
    if stable(outside):
        return outside
    while abs(outside - inside) > tolerance:
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if stable(middle) else (inside, middle)
    return inside
