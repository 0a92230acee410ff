"""The inelastic impact law of Anitescu & Potra (1997), and single impacts in sequence.

Entry `anitescu_potra`, all contacts at once: M (v+ - v) = J^T Lam, 0 <= Lam_n perp J_n v+ >= 0,
Lam_t in -mu Lam_n Unit_D(J_t v+); Halm & Posa, eq (31). Entry `sequential`: one contact after the other.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_corner, check_rows, check_sides
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.circular_cone import settle, settle_one_sided
from jaxcontact.impact.laws.contact_space import (
    ImpactInfo,
    approaching,
    contact_space,
    energy_ratio,
    mass_norm,
    slowest_approach,
)
from jaxcontact.impact.laws.turns_one_sided import Visitor, end_turns, visit_in_turn
from jaxcontact.precision import jit
from jaxcontact.solvers.contact_directions import border_size, without_rate
from jaxcontact.solvers.friction_search import CoulombNewton
from jaxcontact.solvers.lcp import Lemke
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

BORDER_TO_SLOWEST = 2.0  # in units of the slowest approach that counts; no contact is between both


@checked(num_directions=check_sides, corner=check_corner)
def anitescu_potra(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    *,
    num_directions: int | None = None,
    solver: Lemke | CoulombNewton | None = None,
    clearance: Float[jax.Array, " nc"] | Float[jax.Array, "nc nt+1"] | None = None,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Find one post-impact velocity of the simultaneous inelastic law with Coulomb friction.

    Solves eq (31) of Halm & Posa with the circular friction cone by Newton's method and interior points, see
    `solve_friction`; with a cone of sides as an LCP by Lemke's method. The law may have several solutions
    (three on the compass gait); this is the one that the solver happens to find, see `outcomes`. If no
    contact approaches, v is a solution.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        num_directions: None for the circular friction cone; an even number >= 4 for a cone of as many
            sides in space. In the plane both are the same law.
        solver: settings of its search, `CoulombNewton` for the circular cone, `Lemke` for sides; None is
            the default.
        clearance: (nc,) speed >= 0 at which each contact may still approach, m/s: J_n v_plus >= -clearance
            replaces J_n v_plus >= 0. With the gap over dt this is the step of Stewart & Trinkle (1996).
            With (nc, 1 + nt), J v_plus + clearance replaces J v_plus: surfaces that move. None is zero.
        corner: the derivative where a contact is between two modes. "smooth": that of the mode taken.
            "one_sided": `jax.jvp` is that of the modes into which the direction leads, not linear in it.

    Returns:
        v_plus (nv,) and ImpactInfo.

    Raises:
        ValueError, TypeError: shapes that do not fit;
            outside of jit also NaN, negative friction, a mass matrix that is not symmetric positive definite,
            penetration, a kinetic energy that overflows.
        NotImplementedError: `corner="one_sided"` in reverse mode, or for a second derivative.

    Status: STALLED, and the solver's bits, for a residual above 1e-9 (float32: 3e-6); inside jit NONFINITE,
        INVALID, PENETRATION for bad numbers, with v returned unchanged.

    Derivative: of the contact modes at the solution, by v and all terms, any order, forward and
        reverse. At a kink (a contact about to stick, slide or lift) that of the mode taken: stick
        before slide, rest before separation. With `corner="one_sided"` that of the direction, forward only.
    """
    inputs.check(terms, v)
    inputs.check_clearance(clearance, terms)
    return _anitescu_potra(terms, v, num_directions, solver, clearance, corner)


@functools.partial(jit, static_argnames=("num_directions", "corner"))
def _anitescu_potra(
    terms: ContactTerms,
    v: jax.Array,
    num_directions: int | None,
    solver: Lemke | CoulombNewton | None,
    clearance: jax.Array | None = None,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    clearance, trouble = inputs.prepare_clearance(clearance)
    status = status | trouble
    space = contact_space(terms, clearance)
    solve = settle_one_sided if corner == "one_sided" else settle
    v_plus, impulse, worst, solver_status = solve(space, v, num_directions, solver=solver)
    bad = status != 0
    info = ImpactInfo(
        status=status | solver_status,
        residual=worst,
        impulse=(space.scale * impulse).reshape(terms.J_t.shape[0], -1),
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_iters=jnp.int32(1),
    )
    return jnp.where(bad, v_in, v_plus), info


@checked(max_impacts=check_rows, num_directions=check_sides, corner=check_corner)
def sequential(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    order: tuple[int, ...],
    *,
    max_impacts: int,
    num_directions: int | None = None,
    clearance: Float[jax.Array, " nc"] | Float[jax.Array, "nc nt+1"] | None = None,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve single inelastic impacts one after the other until no contact approaches.

    Halm & Posa, Section 2.2.2 (after Ivanov 1995). `order` is a cycle of contact indices; contacts
    that do not approach are skipped. Three and more contacts may chatter without end.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        order: cycle of contact indices, such as (0, 1).
        max_impacts: largest number of single impacts.
        num_directions: as `anitescu_potra`.
        clearance: (nc,) as `anitescu_potra`.
        corner: as `anitescu_potra`. "one_sided" visits contacts that neither approach nor separate in their
            turn: in the order of a cycle the outcome is continuous there.

    Returns:
        v_plus (nv,) and ImpactInfo; info.num_iters counts the single impacts.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; an index out of range, max_impacts < 1.

    Status: UNTERMINATED if a contact of `order` still approaches after max_impacts; the bits of
        `anitescu_potra`.

    Derivative: through the modes of every single impact; the sequence is piecewise constant. Without an
        approaching contact v_plus is v, and the derivative is the identity. With `corner="one_sided"` that of
        the direction, forward only; NaN if its impacts do not end within max_impacts cycles. Where impacts
        accumulate, and thus end between two modes, there is none: JUMP and NaN.
    """
    inputs.check(terms, v)
    cycle = inputs.check_order("order", order, terms.phi.shape[0])
    inputs.check_count("max_impacts", max_impacts)
    inputs.check_clearance(clearance, terms)
    if corner == "one_sided":
        return _sequential_one_sided(terms, v, cycle, int(max_impacts), num_directions, clearance)
    return _sequential(terms, v, cycle, int(max_impacts), num_directions, clearance)


@functools.partial(jit, static_argnames=("order", "max_impacts", "num_directions"))
def _sequential(
    terms: ContactTerms,
    v: jax.Array,
    order: tuple[int, ...],
    max_impacts: int,
    num_directions: int | None,
    clearance: jax.Array | None = None,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    clearance, trouble = inputs.prepare_clearance(clearance)
    status = status | trouble
    cycle = jnp.asarray(order, jnp.int32)
    length = len(order)
    nc, nt, _ = terms.J_t.shape
    everything = jnp.zeros(nc, bool).at[cycle].set(True)
    space = contact_space(terms, clearance)
    slowest = slowest_approach(space, v)

    def impact(carry: PyTree, _: None) -> tuple[PyTree, None]:
        v, place, impulse, status, worst, count = carry
        near = approaching(space, v, slowest)[cycle]
        ahead = jnp.where(near, (jnp.arange(length, dtype=jnp.int32) - place) % length, length)
        needed = jnp.any(near)
        where = (place + jnp.min(ahead)) % length
        contact = cycle[where]
        contact_clearance = None if clearance is None else clearance[contact][None]
        v_next, info = _anitescu_potra(
            _one_contact(terms, contact, needed), v, num_directions, None, contact_clearance
        )
        return (
            jnp.where(needed, v_next, v),
            jnp.where(needed, (where + 1) % length, place),
            impulse.at[contact].add(jnp.where(needed, info.impulse[0], 0.0)),
            status | jnp.where(needed, info.status, jnp.uint32(0)),
            jnp.maximum(worst, jnp.where(needed, info.residual, 0.0)),
            count + needed.astype(jnp.int32),
        ), None

    zero = jnp.zeros((), v.dtype)
    start = (v, jnp.int32(0), jnp.zeros((nc, 1 + nt), v.dtype), status, zero, jnp.int32(0))
    (v_plus, _, impulse, total, worst, count), _ = lax.scan(impact, start, length=max_impacts)
    left = jnp.any(approaching(space, v_plus, slowest) & everything)
    info = ImpactInfo(
        status=total | flag(left, Status.UNTERMINATED),
        residual=worst,
        impulse=impulse,
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_iters=count,
    )
    return jnp.where(status != 0, v_in, v_plus), info


def _one_contact(terms: ContactTerms, contact: jax.Array, active: jax.Array) -> ContactTerms:
    """Return the terms of a single contact, which touches."""
    J_n, J_t, mu = jax.tree.map(lambda leaf: leaf[contact][None], (terms.J_n, terms.J_t, terms.mu))
    return ContactTerms(M=terms.M, J_n=J_n, J_t=J_t, phi=jnp.zeros_like(mu), mu=mu, active=active[None])


class _Blows(NamedTuple):
    """Velocity (nv,), impulses (nc, 1 + nt), status and residual after some single impacts."""

    v: jax.Array
    impulse: jax.Array
    status: jax.Array
    worst: jax.Array


@functools.partial(jit, static_argnames=("order", "max_impacts", "num_directions"))
def _sequential_one_sided(
    terms: ContactTerms,
    v: jax.Array,
    order: tuple[int, ...],
    max_impacts: int,
    num_directions: int | None,
    clearance: jax.Array | None = None,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    clearance, trouble = inputs.prepare_clearance(clearance)
    status = status | trouble
    space = contact_space(terms, clearance)
    slowest = slowest_approach(space, v)
    unit = border_size(v.dtype, jnp.ones((), v.dtype))
    size = jnp.maximum(mass_norm(terms.M, lax.stop_gradient(v)), BORDER_TO_SLOWEST * jnp.max(slowest) / unit)
    border = jnp.full_like(slowest, border_size(v.dtype, size))

    def strike(blows: _Blows, contact: jax.Array) -> _Blows:
        contact_clearance = None if clearance is None else clearance[contact][None]
        single = contact_space(_one_contact(terms, contact, terms.active[contact]), contact_clearance)
        after, impulse, worst, bits = settle_one_sided(single, blows.v, num_directions, size=size)
        return _Blows(
            after,
            blows.impulse.at[contact].add(single.scale * impulse),
            blows.status | bits,
            jnp.maximum(blows.worst, worst),
        )

    nc, nt, _ = terms.J_t.shape
    visitor = Visitor(lambda blows: space.normal_rates(blows.v), strike, space.active, slowest, border)
    zero = jnp.zeros((nc, 1 + nt), v.dtype)
    start = _Blows(v, zero, status, jnp.zeros((), v.dtype))
    turns = visit_in_turn(visitor, start, jnp.asarray(order, jnp.int32), max_impacts)
    in_cycle = jnp.zeros(nc, bool).at[jnp.asarray(order)].set(True) & space.active
    v_plus, impulse, total, worst = turns.state
    rates = space.normal_rates(v_plus)
    is_left, unfinished = in_cycle & (jnp.abs(rates) <= border), jnp.any(in_cycle & (rates < -slowest))
    jumps = turns.accumulates & jnp.any(is_left)
    v_plus = end_turns(v_plus, space.normal_rates(v), rates, is_left)
    v_plus = without_rate(v_plus, jumps | unfinished)
    info = ImpactInfo(
        status=total | flag(unfinished, Status.UNTERMINATED) | flag(jumps, Status.JUMP),
        residual=worst,
        impulse=impulse,
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_iters=turns.number,
    )
    return jnp.where(status != 0, v_in, v_plus), info
