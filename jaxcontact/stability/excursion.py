"""Bounds on how far a certified body strays: entry function `excursion_bounds`.

Owns `ExcursionBounds`: the numbers zeta and eta of Varkonyi's lemmas, and delta of epsilon, for the
zero-order dynamics, in floats, and for |x| <= 1, as in the paper. Page: docs/methods/stability.md.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_positive
from jaxcontact.front_door import checked
from jaxcontact.stability.body import LocalTerms
from jaxcontact.stability.check import Certificate, check
from jaxcontact.stability.impact_conditions import count_kinds_of_impact
from jaxcontact.stability.modes import mode_words
from jaxcontact.stability.rational_modes import Exact, exact_terms, mode_accelerations, mode_cone

MAX_STATE = 1.0  # |x| up to which the bounds hold, as in the paper
STEPS = 100  # bisections, more than a float resolves


class ExcursionBounds(Record):
    """Bounds on motions near a certified equilibrium, in x = (q, v) with |x| its Euclidean length.

    Attributes:
        landing: (modes,) gradient of a gap over its deceleration, by mode that can move; inf if none closes.
        stopping: (modes,) the same of a slip.
        acceleration: the largest |dv/dt| of a mode.
        falling: `landing` and `acceleration` of free flight.
        mass: the largest |v|_M^2 / |v|^2.
        hit: the largest |v+|_M / |v-|_M of an impact.
        speed: |v|^2 <= speed * c where the functions of the certificate are <= c.
        place: |q| <= place * c there.
        linear: (functions,) factors a; every function is <= a |q| + b |v|_M^2 / 2.
        quadratic: (functions,) factors b.
        flies: whether an impact may begin a flight.
    """

    landing: np.ndarray
    stopping: np.ndarray
    acceleration: float
    falling: tuple[float, float]
    mass: float
    hit: float
    speed: float
    place: float
    linear: np.ndarray
    quadratic: np.ndarray
    flies: bool = static()

    def zeta(self, size: float) -> float:
        """Bound the time from |x| = size to the next impact or change of mode (Definition 3, Lemma 1)."""
        check_positive("size", size)
        return float(np.max(np.minimum(_landing_time(self.landing, size, size), self.stopping * size)))

    def eta(self, time: float) -> float:
        """Bound the growth of |x| over a time without impact, from |x| < 1 (Lemma 2)."""
        check_positive("time", time)
        return (self.acceleration + 1.0) * time + 0.5 * self.acceleration * time**2

    def delta(self, epsilon: float) -> float:
        """Find a size delta of pushes, |x| < delta, that keep |x| < epsilon (Definition 2; corrected 51).

        Raises:
            ValueError: epsilon is not positive.
        """
        check_positive("epsilon", epsilon)
        end = min(float(epsilon), MAX_STATE)
        level = _largest_argument(self._farthest, end, self._landed(end))
        return _largest_argument(self._landed, level, end)

    def _farthest(self, level: float) -> float:
        """Bound |x| until the next event, after one at which every function is <= level."""
        q, v = self.place * level, np.sqrt(self.speed * level)
        return float(np.hypot(*self._flown(q, v))) if self.flies else float(np.hypot(q, v))

    def _landed(self, size: float) -> float:
        """Bound every function after the first flight and impact of a push of a size."""
        q, v = self._flown(size, size)
        square = self.mass * (self.hit * v) ** 2
        return float(np.max(self.linear * q + 0.5 * np.maximum(self.quadratic, 0.0) * square))

    def _flown(self, q: float, v: float) -> tuple[float, float]:
        """Bound |q| and |v| in free flight until the next impact."""
        slope, pull = self.falling
        time = float(_landing_time(slope, q, v))
        return q + v * time + 0.5 * pull * time**2, v + pull * time


def _landing_time(slope: np.ndarray | float, q: float, v: float) -> np.ndarray:
    """Bound the time until a gap closes that is at most |gradient| q and opens at most at |gradient| v."""
    return slope * v + np.sqrt((slope * v) ** 2 + 2.0 * slope * q)


def _largest_argument(function: Callable[[float], float], value: float, high: float) -> float:
    """Find the largest argument up to `high`, to rounding, at which a growing function is <= `value`."""
    low = 0.0
    for _ in range(STEPS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if function(middle) <= value else (low, middle)
    return low


@checked()
def excursion_bounds(certificate: Certificate) -> ExcursionBounds:
    """Compute bounds from a certificate: zeta, eta, and the size of pushes that stay within epsilon.

    Varkonyi, Definitions 2 and 3, Lemmas 1 and 2; Theorem 2 with its proof mended. The bounds are for any
    motion of the zero-order dynamics, and far from sharp. The paper's proof takes |x| after an event to be at
    most |x| before it because V does not rise; that does not follow. Instead the level of V carries the bound
    from event to event:

        a push |x| < delta, a flight, and the first impact leave every V <= c;   V <= c at every later event;
        V <= c bounds q and v there, and a flight from there keeps |x| < epsilon.

    |q| and |v| are bounded separately, because q scales as v^2; one |x| would give epsilon^4 instead of
    epsilon^2.

    Args:
        certificate: one that proves "stable" by functions V, with independent gaps.

    Returns:
        ExcursionBounds.

    Raises:
        ValueError: the certificate does not prove a stable equilibrium by functions V, or gaps depend on each
            other.

    Derivative: none.
    """
    if certificate.verdict != "stable" or not check(certificate):
        raise ValueError(f"certificate: expected a proof of 'stable', got {certificate.verdict!r}")
    if certificate.method == "return_map":
        raise ValueError("certificate: expected one by functions V, got one by the return map")
    terms: LocalTerms = jax.tree.map(np.asarray, certificate.body)
    if np.linalg.matrix_rank(terms.J_n) < len(terms.mu):
        raise ValueError(
            "certificate: expected a body with independent gaps, got gaps that depend on each other"
        )
    body = exact_terms(terms)
    linear, quadratic = _functions(certificate, terms)
    speed, place = _bound_reach(certificate, terms, linear, quadratic)
    landing, stopping, fastest = _list_events(body)
    white = np.linalg.inv(np.linalg.cholesky(terms.M))
    return ExcursionBounds(
        landing=landing,
        stopping=stopping,
        acceleration=fastest,
        falling=(landing[0], float(np.linalg.norm(body.pull.floats()))),
        mass=float(np.linalg.eigvalsh(terms.M)[-1]),
        hit=_bound_impact_growth(body),
        speed=speed,
        place=place,
        linear=np.linalg.norm(linear, axis=1),
        quadratic=np.linalg.eigvalsh(white @ quadratic @ white.T)[..., -1].max(axis=1),
        flies=bool(np.any(terms.e > 0)),
    )


def _functions(certificate: Certificate, terms: LocalTerms) -> tuple[np.ndarray, np.ndarray]:
    """Stack the energy and the V: linear parts (n, nv), quadratic parts (n, 1 + nc kinds, nv, nv)."""
    normal, mass = np.asarray(terms.J_n), np.asarray(terms.M)
    kinds = count_kinds_of_impact(certificate.method)
    normal = np.repeat(normal, kinds, axis=0)
    linear, quadratic = [-np.asarray(terms.force)], [np.repeat(mass[None], 1 + len(normal), axis=0)]
    for V in certificate.V:
        linear.append(np.array(V.linear, float))
        turns = np.array(V.turns, float)
        turned = normal[:, :, None] * turns[:, None]
        turned = np.concatenate([np.zeros((1, *mass.shape)), turned + np.swapaxes(turned, 1, 2)])
        quadratic.append(np.array(V.quadratic, float) + turned)
    return np.array(linear), np.array(quadratic)


def _bound_reach(
    certificate: Certificate, terms: LocalTerms, linear: np.ndarray, quadratic: np.ndarray
) -> tuple[float, float]:
    """Compute (speed, place): |v|^2 <= speed c and |q| <= place c where all functions are <= c.

    One function: s V_0 + V_2 = v'(Q + s M)v / 2 + y gaps bounds v and gaps; with V_0, it bounds f q.
    Otherwise V_0 = v'Mv / 2 + p gaps bounds v and gaps, and two functions bound the drift from both sides.
    |q| follows from the gaps and this additional row.
    """
    has_one_function = len(certificate.V) == 1
    if has_one_function:
        weights = np.array(certificate.V[0].weights, float)
        shifted, share, press = quadratic[1] + weights[0] * terms.M, 1.0 + weights[0], weights[1:]
    else:
        shifted, share = terms.M, 1.0
        press = np.linalg.lstsq(terms.J_n.T, -terms.force)[0]
    speed = 2.0 * share / float(np.linalg.eigvalsh(shifted).min())
    gaps = share / press
    dips = 0.5 * speed * np.maximum(0.0, -np.linalg.eigvalsh(quadratic[1:]).min(axis=(1, 2), initial=0.0))
    if has_one_function:
        rows = np.vstack([terms.J_n, terms.force])
        far = [max(1.0, (1.0 + dips[0]) / weights[0])]
    elif len(certificate.V) == 2:
        rows = np.vstack([terms.J_n, np.linalg.svd(terms.J_n)[2][-1]])
        parts = np.linalg.solve(rows.T, linear[1:].T).T
        far = [np.max((1.0 + np.abs(parts[:, :-1]) @ gaps + dips) / np.abs(parts[:, -1]))]
    else:
        rows, far = np.asarray(terms.J_n), []
    return speed, float(np.linalg.norm(np.abs(np.linalg.pinv(rows)) @ np.concatenate([gaps, far])))


def _list_events(body: Exact) -> tuple[np.ndarray, np.ndarray, float]:
    """Compute `landing` and `stopping` of every mode that can move, and the largest acceleration."""
    normal, tangent = body.normal.floats(), body.tangent.floats()
    landing, stopping, fastest = [], [], 0.0
    for word in mode_words(body.nc):
        if set(word) == {"S"} or not any(map(len, mode_cone(body, word))):
            continue
        corners = np.array([a.floats() for a in mode_accelerations(body, word)])
        if not len(corners):
            continue
        lift, slide = (corners @ normal.T).max(axis=0), corners @ tangent.T
        falls = [i for i, letter in enumerate(word) if letter == "F" and lift[i] < 0]
        landing.append(min([np.linalg.norm(normal[i]) / -lift[i] for i in falls], default=np.inf))
        signs = [(i, 1.0 if letter == "P" else -1.0) for i, letter in enumerate(word) if letter in "PN"]
        braked = [(i, (sign * slide[:, i]).max()) for i, sign in signs]
        slow = [np.linalg.norm(tangent[i]) / -rate for i, rate in braked if rate < 0]
        stopping.append(min(slow, default=np.inf))
        fastest = max(fastest, float(np.linalg.norm(corners, axis=1).max()))
    return np.array(landing), np.array(stopping), fastest


def _bound_impact_growth(body: Exact) -> float:
    """Bound the growth of |v|_M over an impact by a factor.

    With the impulse L, Coulomb's law for the slip after the impact, and det = g_nn g_tt - g_nt^2, the kinetic
    energy rises by L v+ - L g L / 2 <= e L_n |gap'| - L_n^2 det / (2 g_tt), hence by a factor of at most
    1 + e^2 g_nn g_tt / det; without restitution it never rises.
    """
    back, largest = body.M_inv.floats(), 1.0
    for i, e in enumerate(body.e.floats()):
        pair = np.stack([body.normal[i].floats(), body.tangent[i].floats()])
        g = pair @ back @ pair.T
        largest = max(largest, 1.0 + e**2 * g[0, 0] * g[1, 1] / float(np.linalg.det(g)))
    return float(np.sqrt(largest))
