"""Proven bounds on whole impact paths: on the impulse they take and on the energy they lose.

Entries `impulse_bound` and `dissipation_bound`: the two constants that Halm & Posa prove to exist and do not
compute (Proposition 4, Theorem 3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.bounds import shortest_push
from jaxcontact.impact.analysis.necessary import cone_generators
from jaxcontact.impact.analysis.pointed_cone import pointed_cone
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

NOT_POINTED = "the friction cone is not pointed: contacts can jam, and no bound follows"


class ImpulseBound(Record):
    """Upper bound on the total normal impulse of all contacts in an impact.

    Attributes:
        total: bound on the sum over contacts from this velocity, N s; inf if there is none.
        per_speed: the same for every velocity with |v|_M = 1, kg^(1/2); inf if there is none.
        reason: why there is no bound, or "".
    """

    total: float = static()
    per_speed: float = static()
    reason: str = static()


@checked()
def impulse_bound(terms: ContactTerms, v: Float[jax.Array, " nv"]) -> ImpulseBound:
    """Bound the normal impulse of any path of the impact inclusion (Halm & Posa, Proposition 4).

    The shortest r with r . M^-1 J^T lam >= |lam_n|_1 (their (77)) gives s <= r . (v(s) - v), and as
    |v(s)|_M <= |v|_M (Theorem 2), s <= |r|* |v|_M - r . v <= 2 |r|* |v|_M with |r|* = sqrt(r^T M^-1 r). So an
    impact ends within an impulse proportional to its speed, with a computable constant; the paper's
    proof, by compactness, has none.

    Args:
        terms: contact terms, in the plane or in space.
        v: (nv,) velocity before the impact.

    Returns:
        ImpulseBound.

    Raises:
        ValueError, TypeError: as `anitescu_potra` and `pointed_cone`.

    Derivative: none; runs on the host.
    """
    inputs.check(terms, v)
    if pointed_cone(terms)[1] <= 0:
        return ImpulseBound(total=math.inf, per_speed=math.inf, reason=NOT_POINTED)
    r, size = shortest_push(terms)
    velocity = np.asarray(v, float)
    speed = math.sqrt(float(velocity @ np.asarray(terms.M, float) @ velocity))
    return ImpulseBound(total=size * speed - float(r @ velocity), per_speed=2.0 * size, reason="")


class DissipationBound(Record):
    """A rate alpha(s) of Halm & Posa, Definition 6: from |v|_M = 1, |v(s)|_M <= 1 - alpha(s).

    alpha(s) = 1 - sqrt(1 - curvature s^2) for s up to `end`; beyond it every impact has ended, and alpha = 1.

    Attributes:
        curvature: 1/kg; 0 if there is no bound.
        end: the impulse within which an impact of |v|_M = 1 ends, kg^(1/2); inf if there is no bound. The
            number inf s / alpha(s) of Lemma 3.
        reason: why there is no bound, or "".
    """

    curvature: float = static()
    end: float = static()
    reason: str = static()

    def alpha(self, impulse: float | np.ndarray) -> np.ndarray:
        """Compute the rate at normal impulses s >= 0 of any shape, for |v|_M = 1; else use s / |v|_M."""
        s = np.asarray(impulse, float)
        lost = np.minimum(self.curvature * s**2, 1.0)
        return np.where(s > self.end, 1.0, lost / (1.0 + np.sqrt(1.0 - lost)))


@checked()
def dissipation_bound(terms: ContactTerms | Sequence[ContactTerms]) -> DissipationBound:
    """Bound the energy loss of every path of the impact inclusion (Halm & Posa, Theorem 3, Corollary 2).

    Let w_i = max(0, -u_n,i) + mu_i |u_t,i| be the dissipation of contact i per unit of its impulse, c the
    largest rate of any w_i per unit of s, |r|* as in `impulse_bound`. Impulse s moves v by no less than
    s / |r|*. Of thresholds that grow by the factor rho = 2 y c |r|*^2 / x, no w_i lies between some two
    neighbours, among m + 1 pairs for m contacts. Contacts below them are too slow to take all the impulse of
    a fitting interval without moving v less than that; so those above take some, and stay above over this
    interval.
    Energy falls by (1 - x)(y - 1) / 2 rho^(-2m) s^2 / |r|*^2, most for x = 2m / (2m + 1), y = 2m / (2m - 1).

    The paper's proof, by contradiction, gives no number. This one is small: paths lose much more.

    Args:
        terms: contact terms, or several configurations of one mechanism, for all of which the bound holds.

    Returns:
        DissipationBound.

    Raises:
        ValueError, TypeError: as `pointed_cone`; no configuration.

    Derivative: none; runs on the host.
    """
    several = [terms] if isinstance(terms, ContactTerms) else list(terms)
    if not several:
        raise ValueError("terms: expected at least one configuration, got none")
    if any(pointed_cone(configuration)[1] <= 0 for configuration in several):
        return DissipationBound(curvature=0.0, end=math.inf, reason=NOT_POINTED)
    sizes = [shortest_push(configuration)[1] for configuration in several]
    curvatures = [_curvature(configuration, size) for configuration, size in zip(several, sizes, strict=True)]
    return DissipationBound(curvature=min(curvatures), end=2.0 * max(sizes), reason="")


def _curvature(terms: ContactTerms, size: float) -> float:
    """Compute (1 - x)(y - 1) rho^(-2m) / |r|*^2 of one configuration."""
    m = int(np.sum(np.asarray(terms.active)))
    x, y = 2.0 * m / (2.0 * m + 1.0), 2.0 * m / (2.0 * m - 1.0)
    rho = 2.0 * y * _fastest_change(terms) * size**2 / x
    return (1.0 - x) * (y - 1.0) * rho ** (-2.0 * m) / size**2


def _fastest_change(terms: ContactTerms) -> float:
    """Maximise |J_n,i M^-1 f| + mu_i |J_t,i M^-1 f| over contacts i and forces f of unit normal part."""
    active = np.asarray(terms.active)
    J_n, J_t, mu = (np.asarray(getattr(terms, n), float)[active] for n in ("J_n", "J_t", "mu"))
    moves = np.linalg.solve(np.asarray(terms.M, float), cone_generators(terms).T)
    sliding = np.linalg.norm(np.einsum("itv,vk->itk", J_t, moves), axis=1)
    return float(np.max(np.abs(J_n @ moves) + mu[:, None] * sliding))
