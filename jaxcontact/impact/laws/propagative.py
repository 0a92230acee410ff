"""Propagative impacts: a simultaneous impact as a sequence of single impacts, elastic, plastic or in between.

Entries: `propagate`, the outcome of one given order, and `plastic`; `orders.py` has those of all orders.
The law has no friction and follows Seghete & Murphey, *A propagative model of simultaneous impact*;
docs/methods/propagative.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.arguments import check_corner, check_number, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_space import energy_ratio, mass_norm
from jaxcontact.impact.laws.reflections import (
    ORDERS,
    Normals,
    Order,
    normals,
    reflect,
    stop,
    tolerance,
)
from jaxcontact.impact.laws.reflections_one_sided import (
    Mixture,
    StrikeRule,
    mix,
    one_sided_mix,
    one_sided_reflections,
    one_sided_stop,
    order_matters,
)
from jaxcontact.precision import jit
from jaxcontact.solvers.contact_directions import border_size
from jaxcontact.status import Info, Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float


class PropagateInfo(Info):
    """Info that a propagative law returns with v_plus.

    Attributes:
        status: uint32 bits of `Status`.
        residual: largest remaining rate of approach along a unit normal, relative to |v|_M.
        impulse: (nc, 1 + nt) total contact impulse (n, t1, t2), N s; no friction.
        energy_ratio: kinetic energy after / before; 1 without energy before.
        num_iters: number of single impacts.
        sequence: (max_reflections,) int32 contacts in the order of their impacts, -1 after the last; of
            contacts that strike together the first one.
    """

    impulse: jax.Array
    energy_ratio: jax.Array
    sequence: jax.Array


@checked(restitution=check_number, max_reflections=check_rows, corner=check_corner)
def propagate(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    key: jax.Array | None = None,
    *,
    order: Order = "most_violated",
    restitution: float | Float[jax.Array, ""] = 1.0,
    unilateral: bool = True,
    max_reflections: int = 64,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], PropagateInfo]:
    """Resolve an impact as a sequence of single elastic impacts, until no contact approaches.

    Seghete & Murphey, eq (14); a contact at rest takes part when the impact of a neighbour makes it approach.
    With restitution R, eqs (16) and (17): v_plus = alpha v_elastic + (1 - alpha) v_plastic loses (1 - R^2) of
    the energy that the plastic outcome loses. The printed alpha = sqrt(1 - R^2) is wrong. With the bilateral
    plastic outcome alpha = R; with the unilateral plastic outcome alpha is the root of a quadratic equation.

    Args:
        terms: contact terms, nc contacts; friction plays no part.
        v: (nv,) velocity before the impact.
        key: not used; every impact law takes a key.
        order: choice of the next approaching contact: "most_violated" or "least_violated", by the rate along
            its unit normal; or a cycle of contact indices such as (1, 0). The rules leave open which of
            several contacts with the same rate strikes first: they strike together, with equal impulses
            along their unit normals, so that a symmetric impact has a symmetric outcome.
        restitution: R in 0..1; 0 is `plastic`, 1 elastic.
        unilateral: choice of the plastic outcome, see `plastic`.
        max_reflections: largest number of single impacts. Two contacts need at most ceil(pi / (2 gamma)) with
            gamma = asin sqrt((1 + <u_1, u_2>) / 2), half the number in Theorem 1.
        corner: the derivative where contacts tie, or neither approach nor separate. "smooth": of the sequence
            taken. "one_sided": `jax.jvp` is that of the sequence in the order of the direction, not linear in
            it.

    Returns:
        v_plus (nv,) and PropagateInfo.

    Raises:
        ValueError, TypeError: shapes, dtypes and known bad values; an unknown order, R outside 0..1;
            `corner="one_sided"` of contacts that glue, whose outcome jumps where one stops to approach.
        NotImplementedError: `corner="one_sided"` in reverse mode, or for a second derivative.

    Status: UNTERMINATED if a contact still approaches after max_reflections; NONFINITE, INVALID,
        PENETRATION as other laws; for R < 1 the bits of `solve_lcp`; INVALID also for R outside 0..1. With
        `corner="one_sided"` JUMP if contacts tie and a displaced impact, in which one of them strikes before
        the others, ends elsewhere.

    Derivative: by v, terms and restitution, with the sequence of impacts and the contacts that the plastic
        outcome keeps closed held fixed; both are piecewise constant. Forward and reverse. With
        `corner="one_sided"` that of the direction, forward only; NaN with JUMP, and if impacts of the
        direction do not end.
    """
    inputs.check(terms, v)
    inputs.check_count("max_reflections", max_reflections)
    if inputs.is_concrete(restitution) and not 0.0 <= float(restitution) <= 1.0:
        raise ValueError(f"restitution: expected a number in 0..1, got {restitution}")
    checked = check_order(order, terms.phi.shape[0])
    rule, cycle = (checked, None) if isinstance(checked, str) else (None, jnp.asarray(checked, jnp.int32))
    # An elastic impact needs no plastic outcome.
    R = None if inputs.is_concrete(restitution) and float(restitution) == 1.0 else restitution
    R = None if R is None else jnp.asarray(R, v.dtype)
    if corner == "one_sided":
        _check_one_sided(unilateral or R is None)
    return _propagate(terms, v, R, cycle, rule, unilateral, int(max_reflections), corner)


def _check_one_sided(unilateral: bool) -> None:
    """Raise ValueError for contacts that glue."""
    if not unilateral:
        raise ValueError("corner: expected 'smooth' with unilateral=False, got 'one_sided'")


def check_order(order: Order, nc: int) -> Order:
    """Return the checked order; raise ValueError for anything but a known rule or a cycle of contacts."""
    if isinstance(order, str):
        if order in ORDERS:
            return order
    elif order and all(isinstance(i, int | np.integer) and 0 <= i < nc for i in order):
        return tuple(map(int, order))
    raise ValueError(
        f"order: expected {ORDERS[0]!r}, {ORDERS[1]!r} or contact indices in 0..{nc - 1}, got {order!r}"
    )


@functools.partial(jit, static_argnames=("rule", "unilateral", "length", "corner"))
def _propagate(
    terms: ContactTerms,
    v: jax.Array,
    restitution: jax.Array | None,
    cycle: jax.Array | None,
    rule: str | None,
    unilateral: bool,
    length: int,
    corner: str,
) -> tuple[Float[jax.Array, " nv"], PropagateInfo]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    unit_normals, speed = normals(terms, v), mass_norm(terms.M, v)
    order = rule if cycle is None else cycle
    assert order is not None
    impulse, sequence = reflect(unit_normals, speed, order, length)
    rate_after = jnp.where(unit_normals.active, unit_normals.rate + unit_normals.gram @ impulse, 0.0)
    unfinished = jnp.any(rate_after < -tolerance(v.dtype) * speed)
    if corner == "one_sided":
        border = border_size(v.dtype, lax.stop_gradient(speed))
        signs = {None: 0.0, "most_violated": 1.0, "least_violated": -1.0}
        strike_rule = StrikeRule(
            sign=jnp.asarray(signs[rule], v.dtype),
            cycle=jnp.arange(impulse.shape[0]) if cycle is None else cycle,
            active=unit_normals.active,
            border=border,
            jumps=unfinished,
            impulse=lax.stop_gradient(impulse),
        )
        jumps = ~unfinished & order_matters(length, unit_normals.gram, unit_normals.rate, strike_rule)
        jumps &= True if restitution is None else restitution > 0
        strike_rule = strike_rule._replace(jumps=jumps | unfinished)
        impulse = one_sided_reflections(length, unit_normals.gram, unit_normals.rate, strike_rule)
        status |= flag(jumps, Status.JUMP)
    if restitution is not None:
        stops, stop_status = stop(unit_normals, speed, unilateral)
        if corner == "one_sided":
            stops = one_sided_stop(unit_normals, speed, stops)
        parts = Mixture(unit_normals.gram, unit_normals.rate, impulse, stops, jnp.clip(restitution, 0.0, 1.0))
        if corner == "one_sided":
            impulse = one_sided_mix(parts, jnp.all(jnp.abs(lax.stop_gradient(stops)) <= border))
        else:
            impulse = mix(parts)
        unfinished &= restitution > 0
        status |= stop_status | flag(~((restitution >= 0) & (restitution <= 1)), Status.INVALID)
    status |= flag(unfinished, Status.UNTERMINATED)
    return _outcome_of_impulses(terms, v_in, v, unit_normals, impulse, speed, status, sequence)


@checked(corner=check_corner)
def plastic(
    terms: ContactTerms, v: Float[jax.Array, " nv"], *, unilateral: bool = True, corner: str = "smooth"
) -> tuple[Float[jax.Array, " nv"], PropagateInfo]:
    """Find the perfectly plastic outcome: the feasible velocity nearest to v in the kinetic metric.

    With `unilateral` contacts push and may separate: min |v_plus - v|_M over J_n v_plus >= 0. Otherwise the
    outcome is eq (11) of Seghete & Murphey, the projection on J_n v_plus = 0 for all contacts that approach
    or rest. This projection glues contacts: it pulls wherever <u, v> > 0 and one contact approaches slowly.

    Args:
        terms: contact terms, nc contacts; friction plays no part.
        v: (nv,) velocity before the impact.
        corner: the derivative where a contact just closes. "smooth": with the set of closed contacts held
            fixed. "one_sided": `jax.jvp` is that of the direction, not linear in it, by v and terms.

    Returns:
        v_plus (nv,) and PropagateInfo.

    Raises:
        ValueError, TypeError: shapes, dtypes and known bad values; `corner="one_sided"` of contacts that
            glue, whose outcome jumps where one stops to approach.
        NotImplementedError: `corner="one_sided"` in reverse mode, or for a second derivative.

    Status: as `propagate`.

    Derivative: by v and terms, with the set of closed contacts held fixed, or one-sided.
    """
    inputs.check(terms, v)
    if corner == "one_sided":
        _check_one_sided(unilateral)
    return _plastic(terms, v, unilateral, corner)


@functools.partial(jit, static_argnames=("unilateral", "corner"))
def _plastic(
    terms: ContactTerms, v: jax.Array, unilateral: bool, corner: str
) -> tuple[jax.Array, PropagateInfo]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    unit_normals, speed = normals(terms, v), mass_norm(terms.M, v)
    impulse, stop_status = stop(unit_normals, speed, unilateral)
    if corner == "one_sided":
        impulse = one_sided_stop(unit_normals, speed, impulse)
    no_sequence = jnp.full(1, -1, jnp.int32)
    return _outcome_of_impulses(
        terms, v_in, v, unit_normals, impulse, speed, status | stop_status, no_sequence
    )


def _outcome_of_impulses(
    terms: ContactTerms, v_in: jax.Array, v: jax.Array, unit_normals: Normals, impulse: jax.Array,
    speed: jax.Array, status: jax.Array, sequence: jax.Array,
) -> tuple[Float[jax.Array, " nv"], PropagateInfo]:  # fmt: skip
    """Compute v_plus and its info from the impulses along unit normals."""
    v_plus = v + unit_normals.response @ impulse
    rate = jnp.where(unit_normals.active, unit_normals.rate + unit_normals.gram @ impulse, 0.0)
    nc, nt, _ = terms.J_t.shape
    info = PropagateInfo(
        status=status,
        residual=jnp.max(jnp.maximum(-rate, 0.0)) / jnp.where(speed > 0, speed, 1.0),
        impulse=jnp.zeros((nc, 1 + nt), v.dtype).at[:, 0].set(impulse / unit_normals.size),
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_iters=jnp.sum(sequence >= 0, dtype=jnp.int32),
        sequence=sequence,
    )
    unusable = (status & jnp.uint32(int(Status.NONFINITE | Status.INVALID | Status.PENETRATION))) != 0
    return jnp.where(unusable, v_in, v_plus), info
