"""Intervals of a linear function of the outcomes, by search and by linear programs; entry `bounds`.

The outer end holds for every order, number of steps and choice among solutions; docs/methods/set-valued.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.arguments import check_rows, check_whole
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.necessary import friction_fan
from jaxcontact.impact.analysis.order_search import (
    Starts,
    draw_starts,
    reach_along,
    resolve_fractions,
    search_orders,
    searchable,
)
from jaxcontact.impact.laws.contact_space import friction_directions
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh
from jaxcontact.precision import jit
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

CUTS = 60  # tangent planes of the energy ellipsoid at most; each is one linear program
ENERGY_SLACK = 1e-4  # relative excess of energy at which cutting ends; the bound holds at any excess
SOLVER_TOLERANCE = 1e-7  # of a linear program, relative to |v|_M; added to its bound
SLIDE_SIDES = 16  # planes that hold the sliding velocity in space
Condition = tuple[np.ndarray, float]  # row and limit: row . x <= limit for the total impulses x


class OutcomeInterval(Record):
    """Ends of direction . v_plus over all impulse orders; values in the unit of direction . v.

    Attributes:
        inner_low, inner_high: values that orders reach; NaN if no impact of the search ended.
        outer_low, outer_high: values that no order passes.
        gap: outer width minus inner width.
        v_low, v_high: (nv,) the outcomes at the inner ends.
    """

    inner_low: float = static()
    inner_high: float = static()
    outer_low: float = static()
    outer_high: float = static()
    gap: float = static()
    v_low: jax.Array
    v_high: jax.Array


@checked(num_starts=check_rows, num_iters=check_whole)
def bounds(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    direction: Float[jax.Array, " nv"],
    *,
    num_starts: int = 64,
    num_iters: int = 64,
    seed: int = 0,
) -> OutcomeInterval:
    """Bound a linear function of the outcomes of an impact from both sides, for any number of contacts.

    Inside: the search of `extreme` in both directions. Outside: linear programs over the total impulses P_i
    of the contacts and their friction, which relax the impact. Every outcome has

        v+ = v + M^-1 J^T lam,  |lam_t,i| <= mu_i P_i in the polygon,  |v+|_M <= |v|_M,  J_n v+ >= 0,
        u_n,i+ <= max(0, u_n,i) + sum_(j != i) c_ij P_j,   |u_t,i+| <= |u_t,i| + sum_j s_ij P_j,

    the last two without restitution: a contact stops pushing before it separates, its friction does not
    increase its sliding but through its normal impulse, and P_j adds at most c_ij and s_ij per N s. Energy
    enters by tangent planes. The outer interval is narrower than that of energy and momentum, and often much
    wider than the set.

    Args:
        terms: contact terms, of which the active contacts count.
        v: (nv,) velocity before the impact.
        law: `jc.impact.Routh(...)`; its step and number of steps limit the inner ends alone.
        direction: (nv,) covector.
        num_starts: orders of each round of the search.
        num_iters: gradient steps of each start; 0 only evaluates the starts, for many contacts.
        seed: of the starts.

    Returns:
        OutcomeInterval.

    Raises:
        ValueError, TypeError: as `extreme`.

    Derivative: none; a driver for the host.
    """
    inputs.check(terms, v)
    inputs.check_array("direction", direction, jnp.shape(v))
    covector = np.asarray(direction, float)
    if not np.all(np.isfinite(covector)) or not np.any(covector):
        raise ValueError(f"direction: expected finite numbers, not all zero, got {direction}")
    inputs.check_count("num_starts", num_starts)
    terms, fitted, _ = searchable(terms, v, law)
    starts, along = draw_starts(fitted, num_starts, seed, v.dtype), jnp.asarray(direction, v.dtype)
    ends = [_search_farthest(terms, v, sign * along, fitted, starts, num_iters) for sign in (-1, 1)]
    (v_low, _), (v_high, _) = ends
    inner = [float(covector @ np.asarray(end)) if ended else math.nan for end, ended in ends]
    relaxation = Relaxation(terms, np.asarray(v, float), fitted)
    outer = [-relaxation.maximise(-covector), relaxation.maximise(covector)]
    return OutcomeInterval(
        inner_low=inner[0],
        inner_high=inner[1],
        outer_low=outer[0],
        outer_high=outer[1],
        gap=(outer[1] - outer[0]) - (inner[1] - inner[0]),
        v_low=jnp.asarray(v_low),
        v_high=jnp.asarray(v_high),
    )


@functools.partial(jit, static_argnums=5)
def _search_farthest(
    terms: ContactTerms, v: jax.Array, direction: jax.Array, law: FittedRouth, starts: Starts, num_iters: int
) -> tuple[jax.Array, jax.Array]:
    """Search for the outcome farthest along a direction; return it and whether its impact ended."""
    along = functools.partial(reach_along, terms, v, law, direction)
    if num_iters:
        order, values = search_orders(along, starts, num_iters)
    else:
        order = starts.orders.reshape(-1, *starts.orders.shape[2:])
        reached, status = jax.lax.map(along, order, batch_size=starts.orders.shape[1])
        values = jnp.where(status == 0, reached, -jnp.inf)
    best = jnp.argmax(values)
    return resolve_fractions(terms, v, law, order[best])[1], jnp.isfinite(values[best])


class Relaxation:
    """Linear conditions on the total impulses of an impact, in units of its kinetic metric and speed."""

    def __init__(self, terms: ContactTerms, v: np.ndarray, law: FittedRouth) -> None:
        M, J_n, J_t, mu = (np.asarray(getattr(terms, n), float) for n in ("M", "J_n", "J_t", "mu"))
        self.root = np.linalg.cholesky(M).T
        self.start = self.root @ v
        self.speed = float(np.linalg.norm(self.start))
        self.start = self.start / (self.speed or 1.0)
        nt = J_t.shape[1]
        if law.turn_polygon and nt == 2:
            fan = friction_fan(nt)
        else:
            fan = friction_directions(nt, law.num_directions)
        inverse = np.linalg.inv(self.root)
        self.normals, self.tangents = J_n @ inverse, J_t @ inverse
        self.pushes = [
            np.concatenate([n[None], fan @ t]).T for n, t in zip(self.normals, self.tangents, strict=True)
        ]
        self.reach = np.concatenate(self.pushes, axis=1)
        conditions = [
            *self._friction_conditions(mu, len(fan)),
            *self._separation_conditions(),
            *self._speed_conditions(),
        ]
        if law.restitution is None or not np.any(np.asarray(law.restitution)):
            conditions += self._contact_conditions(mu, fan, law.num_directions)
        self.rows = np.array([row for row, _ in conditions])
        self.limits = np.array([limit for _, limit in conditions])

    def maximise(self, covector: np.ndarray) -> float:
        """Bound covector . v_plus from above."""
        from scipy.optimize import linprog  # imported late because its import is slow

        if self.speed == 0.0:
            return 0.0
        along = np.linalg.solve(self.root.T, covector)
        size = float(np.linalg.norm(along))
        along = along / size
        bound = 1.0  # by energy alone
        for _ in range(CUTS):
            answer = linprog(-(along @ self.reach), A_ub=self.rows, b_ub=self.limits, bounds=(0, None))
            if answer.status != 0:  # not solved to its tolerance: the bound so far holds
                break
            bound = min(bound, float(along @ self.start - answer.fun) + SOLVER_TOLERANCE)
            end = self.start + self.reach @ answer.x
            length = float(np.linalg.norm(end))
            if length <= 1.0 + ENERGY_SLACK:
                break
            tangent = end / length
            self.rows = np.vstack([self.rows, tangent @ self.reach])
            self.limits = np.append(self.limits, 1.0 - tangent @ self.start)
        return bound * size * self.speed

    def _friction_conditions(self, mu: np.ndarray, sides: int) -> Iterator[Condition]:
        """Yield the conditions that friction is within its polygon: sum of its weights at most mu P."""
        for i, friction in enumerate(mu):
            row = np.zeros((len(mu), 1 + sides))
            row[i, 0], row[i, 1:] = -friction, 1.0
            yield row.ravel(), 0.0

    def _separation_conditions(self) -> Iterator[Condition]:
        """Yield the conditions that no contact approaches after the impact."""
        for normal in self.normals:
            yield -normal @ self.reach, normal @ self.start

    def _speed_conditions(self) -> Iterator[Condition]:
        """Yield the conditions that no coordinate of the outcome exceeds the speed before."""
        for axis, row in enumerate(self.reach):
            yield row, 1.0 - self.start[axis]
            yield -row, 1.0 + self.start[axis]

    def _contact_conditions(
        self, mu: np.ndarray, fan: np.ndarray, num_directions: int
    ) -> Iterator[Condition]:
        """Yield the conditions that a contact pushes nothing that separates, and rubs against its slip."""
        number, width = len(mu), 1 + len(fan)
        nt = self.tangents.shape[1]
        angle = np.arange(SLIDE_SIDES) * (2.0 * np.pi / SLIDE_SIDES)
        sides = np.array([[1.0], [-1.0]]) if nt == 1 else np.stack([np.cos(angle), np.sin(angle)], axis=1)
        for i, (normal, tangent) in enumerate(zip(self.normals, self.tangents, strict=True)):
            opens, slides = np.zeros(number), np.zeros(number)
            for j, push in enumerate(self.pushes):
                corners = push[:, :1] + mu[j] * push  # forces of unit normal part at the corners of the cone
                corners[:, 0] = push[:, 0]
                opens[j] = max(0.0, float(np.max(normal @ corners))) if j != i else 0.0
                slides[j] = np.max(np.linalg.norm(tangent @ corners, axis=0))
            slides[i] = self._bound_own_slide(normal, tangent, float(mu[i]), num_directions)
            row = (normal @ self.reach).reshape(number, width)
            row[:, 0] -= opens
            before = float(normal @ self.start)
            yield row.ravel(), max(0.0, before) - before
            slip = tangent @ self.start
            for side in sides:
                row = (side @ tangent @ self.reach).reshape(number, width)
                row[:, 0] -= slides
                yield row.ravel(), float(np.linalg.norm(slip) - side @ slip)

    def _bound_own_slide(
        self, normal: np.ndarray, tangent: np.ndarray, mu: float, num_directions: int
    ) -> float:
        """Bound the growth of a contact's sliding speed per unit of its own normal impulse."""
        off = np.pi / num_directions if len(tangent) == 2 else 0.0  # of a corner from the slip it opposes
        values = np.linalg.eigvalsh(tangent @ tangent.T)
        slowing = np.cos(off) * values[0] - np.sin(off) * (values[-1] - values[0]) / 2.0
        return max(0.0, float(np.linalg.norm(tangent @ normal)) - mu * slowing)
