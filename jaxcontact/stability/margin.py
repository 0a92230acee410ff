"""How far a body is from losing its certificate, and which way leads to a safer stance.

Owns the margin as a function of the numbers of a biped, its slopes, and the end of the certified range of a
parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxcontact.stability.body import Body, PlanarBiped
from jaxcontact.stability.certify import certify
from jaxcontact.stability.check import check


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
    """Slopes of the margin by numbers of a biped, by central differences.

    Args:
        body: with a certificate.
        names: of its numbers, such as "L1", "h", "mu1".
        step: of the differences; the solver leaves the margin an error of about 1e-10.

    Returns:
        Slope by name. At a kink, where a contact mode becomes consistent or another condition binds, the
        mean of both sides.

    Raises:
        ValueError: no certificate at the body.
    """
    if margin(body) == 0.0:
        raise ValueError("body: expected one with a certificate, got margin 0")
    slopes = {}
    for name in names:
        value = float(getattr(body, name))
        ahead, behind = (margin(body.replace(**{name: value + sign * step})) for sign in (1, -1))
        slopes[name] = (ahead - behind) / (2.0 * step)
    return slopes


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
