"""How fast time advances along a path of the continuous model: entry `time_bound`.

Halm & Posa prove that numbers s* and t* exist (Theorem 5, Corollary 3); here they are computed.
Page: docs/papers/halm_posa.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_number
from jaxcontact.front_door import NOT_NEGATIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.bounds import least_distance, push_velocities
from jaxcontact.impact.analysis.dissipation import NOT_POINTED
from jaxcontact.terms import ContactTerms


class TimeBound(Record):
    """Lower bound on the time that a path of the continuous model takes: (length - still) / (1 + load).

    Attributes:
        still: s*, the largest length of s over which time may stand still, N s; inf if there is no bound.
        load: the largest force that contacts can have to carry on average, N; inf if there is no bound.
        reason: why there is no bound, or "".
    """

    still: float = static()
    load: float = static()
    reason: str = static()

    def least_time(self, length: float | np.ndarray) -> np.ndarray:
        """Compute t*, a time in s that every part of a path of this length of s takes at least."""
        if math.isinf(self.still):
            return np.zeros_like(np.asarray(length, float))
        return np.maximum(0.0, (np.asarray(length, float) - self.still) / (1.0 + self.load))

    @property
    def rate(self) -> float:
        """Return the least dt/ds over long paths (Corollary 3)."""
        return 0.0 if math.isinf(self.load) else 1.0 / (1.0 + self.load)


@checked(speed=NOT_NEGATIVE, forces=check_number)
def time_bound(terms: ContactTerms | Sequence[ContactTerms], *, speed: float, forces: jax.Array) -> TimeBound:
    """Bound the time along every path of the continuous model (Halm & Posa, Theorem 5, Corollary 3).

    Of all r with r . M^-1 f >= 1 for the generators f of the friction cones (their (77)) the shortest gives,
    along ds = dt + |lam_n|_1 ds,

        d(r . v) >= |lam_n|_1 ds - load dt,   load = max(0, -r . M^-1 F),   |r . v| <= |r|* |v|_M,

    so that the normal impulse of a part of the path is at most 2 |r|* speed + load t, and its time t at least
    (s - s*) / (1 + load) with s* = 2 |r|* speed. The paper's proof, by compactness, has no numbers.

    Args:
        terms: contact terms with every contact active that may touch, or several configurations of one
            mechanism; the bound holds for paths that stay in these.
        speed: the largest |v|_M on the path; sqrt(2 E), E the energy above the least potential energy.
        forces: (nv,) or (k, nv) all other generalized forces F on the path, velocity terms included.

    Returns:
        TimeBound.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; no configuration, a speed below zero, forces of another
            shape or not finite.

    Derivative: none; runs on the host.
    """
    several = [terms] if isinstance(terms, ContactTerms) else list(terms)
    if not several:
        raise ValueError("terms: expected at least one configuration, got none")
    nv = several[0].M.shape[0]
    for configuration in several:
        touching = configuration.replace(phi=jnp.zeros_like(configuration.phi))  # gaps play no role
        inputs.check(touching, jnp.zeros(nv, configuration.M.dtype))
    pulls = np.atleast_2d(np.asarray(forces, float))
    if pulls.shape[1:] != (nv,) or not np.all(np.isfinite(pulls)):
        raise ValueError(f"forces: expected finite numbers of shape (k, {nv}), got {np.shape(forces)}")
    if not any(np.any(np.asarray(configuration.active)) for configuration in several):
        return TimeBound(still=0.0, load=0.0, reason="")
    factor = np.linalg.cholesky(np.asarray(several[0].M, float))
    pushes = np.concatenate([push_velocities(configuration) for configuration in several])
    r = factor @ least_distance(pushes @ factor)
    if not np.all(np.isfinite(r)):
        return TimeBound(still=math.inf, load=math.inf, reason=NOT_POINTED)
    size = load = 0.0
    for configuration in several:
        lever = np.linalg.solve(np.asarray(configuration.M, float), r)
        size = max(size, math.sqrt(float(lever @ r)))
        load = max(load, float(np.max(-pulls @ lever)))
    return TimeBound(still=2.0 * size * speed, load=load, reason="")
