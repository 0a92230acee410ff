"""Routh's planar impact path for given relative rates, solved exactly: entry `routh_path`.

The path is piecewise linear in the accumulated impulse. Between events (a contact starts to stick, slide or
separate, or the rates change) every contact keeps its mode; a small contact problem for the rates yields the
modes of the next piece. A member of the family of Liu, Zhao & Brogliato (2008); docs/methods/restitution.md.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.arguments import check_number, check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    ImpactInfo,
    contact_space,
    energy_ratio,
    mass_norm,
    slowest_approach,
)
from jaxcontact.impact.laws.outcome_of_modes import KnownModes, mode_impulse
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float


class RouthPathInfo(ImpactInfo):
    """Info that `routh_path` returns with v_plus; after its end the path repeats its last row.

    Attributes:
        path: (max_events + 1, nv) velocity at the beginning and at the end of each piece.
        path_impulse: (max_events + 1, nc, 2) impulse accumulated up to each row, N s; s of Halm & Posa is the
            sum of its normal parts.
    """

    path: jax.Array
    path_impulse: jax.Array


@checked(max_events=check_rows, restitution=check_number)
def routh_path(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    rates: jax.Array,
    *,
    max_events: int = 100,
    until: jax.Array | None = None,
    restitution: float | Float[jax.Array, ""] | Float[jax.Array, " nc"] | None = None,
) -> tuple[Float[jax.Array, " nv"], RouthPathInfo]:
    """Follow the planar impact inclusion exactly, with the given relative rates of normal impulse.

    dv/ds = M^-1 J^T lam, Halm & Posa, eq (39): an approaching contact i accumulates normal impulse at
    rate r_i, a separating one at rate 0, one at rest (u_n = 0) at a rate in [0, r_i] that keeps it from
    approaching where it can; lam_t in -mu lam_n Sign(u_t). The impact ends when no contact approaches.
    It is the limit of `routh_step` with impulse_max = r ds, ds -> 0. If several continuations
    exist, the first in a fixed order is followed.

    With restitution a contact stores e_i^2 of the work that its normal impulse does in compression (u_n < 0),
    and then continues to push at rate r_i until that is spent: Stronge's energetic law (1990), exact through
    stops and reversals of slip. Energy and stores together never rise. In a chain the ratio of rates is the
    impulse correlation ratio of Ceanga & Hurmuzlu (2001).

    Args:
        terms: planar contact terms, nc <= 5.
        v: (nv,) velocity before the impact.
        rates: (nc,) relative rates >= 0, positive for at least one approaching contact; only their
            ratios matter, and below 1e-6 of the largest (float32: 3e-3) a rate counts as 0. Or (k, nc) for k
            consecutive phases.
        max_events: largest number of pieces of the path; a change of rates begins a new one.
        until: (k - 1,) end of each phase but the last: the sum over contacts of the normal impulse since the
            beginning, N s, in ascending order. Needed for rates of several phases.
        restitution: e in 0..1, a number or (nc,); None is 0.

    Returns:
        v_plus (nv,) and RouthPathInfo with the path; info.num_iters counts its pieces.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; rates of the wrong shape or negative; until of the wrong
            shape, negative or not ascending; spatial terms or more than five contacts.

    Status: UNTERMINATED if a contact still approaches or has not spent its store after max_events pieces,
        or has rate 0 and nothing else moves; STALLED if no mode continues the path; inside jit INVALID for
        bad rates or until, or restitution outside 0..1.

    Derivative: forward and reverse by v, rates, until, restitution and terms along the sequence of events
        found; event times move with their arguments. At a kink that of the sequence taken; if two contacts
        reach an event together AD gives neither side: `Energetic(corner="one_sided")` follows the direction.
    """
    inputs.check(terms, v)
    inputs.check_planar_enumeration(terms, contact_modes.MAX_ENUMERATED)
    inputs.check_array("rates", rates)
    shape = jnp.shape(terms.phi)
    if jnp.ndim(rates) not in (1, 2) or jnp.shape(rates)[-1:] != shape or 0 in jnp.shape(rates):
        raise ValueError(f"rates: expected shape {shape} or (k, {shape[0]}), got {jnp.shape(rates)}")
    if inputs.is_concrete(rates) and not np.all((np.asarray(rates) >= 0) & np.isfinite(rates)):
        raise ValueError(f"rates: expected finite numbers >= 0, got {rates}")
    phases = jnp.shape(rates)[0] if jnp.ndim(rates) == 2 else 1
    if until is None:
        until = jnp.zeros(0, v.dtype)
    inputs.check_array("until", until)
    if jnp.shape(until) != (phases - 1,):
        raise ValueError(
            f"until: expected shape ({phases - 1},) for rates of {phases} phases, got {jnp.shape(until)}"
        )
    ends = np.asarray(until) if inputs.is_concrete(until) else np.zeros(0)
    if not (np.all(np.isfinite(ends)) and np.all(np.diff(ends, prepend=0.0) >= 0)):
        raise ValueError(f"until: expected finite, ascending numbers >= 0, got {until}")
    inputs.check_count("max_events", max_events)
    e = energetic_restitution.check_coefficients(terms, restitution)
    return _routh_path(terms, v, jnp.reshape(rates, (phases, -1)), until, int(max_events), e)


class _PathData(NamedTuple):
    """Numbers that all pieces of a path share.

    Attributes:
        tolerance: violation of an inequality below which it counts as met.
        near: velocity below which a contact velocity counts as zero, scaled.
        slowest: (nc,) approaches below it do not count.
        caps: (phases, nc) rates of scaled normal impulse.
        ends: (phases,) normal impulse at the end of each phase, N s; the last has none.
        elastic: (nc,) squared coefficients of restitution.
    """

    space: ContactSpace
    table: contact_modes.ModeMaps
    tolerance: float
    near: jax.Array
    slowest: jax.Array
    caps: jax.Array
    ends: jax.Array
    elastic: jax.Array


# Velocity, impulse, stored energy, status, worst violation, number of pieces, phase.
_PathCarry = tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array, jax.Array]


@functools.partial(jit, static_argnames="max_events")
def _routh_path(
    terms: ContactTerms,
    v: jax.Array,
    rates: jax.Array,
    until: jax.Array,
    max_events: int,
    restitution: jax.Array | None,
) -> tuple[Float[jax.Array, " nv"], RouthPathInfo]:
    v_in, dtype = v, v.dtype
    terms, v, status = inputs.prepare(terms, v)
    bad = ~jnp.all(jnp.isfinite(rates)) | jnp.any(rates < 0)
    bad |= ~jnp.all(jnp.isfinite(until) & (jnp.diff(until, prepend=jnp.zeros(1, dtype)) >= 0))
    if restitution is not None:
        bad |= ~jnp.all((restitution >= 0) & (restitution <= 1))
    status = status | flag(bad, Status.INVALID)
    elastic = jnp.zeros_like(terms.phi) if restitution is None else jnp.where(bad, 0.0, restitution) ** 2
    rates = jnp.where(terms.active & ~bad, rates, 0.0)
    space = contact_space(terms)
    fixed = lax.stop_gradient(space)
    tolerance = 10.0 * contact_modes.feasibility_tolerance(dtype)
    near = tolerance * mass_norm(space.mass, v)  # velocities below it count as zero
    caps = rates / space.scale[None, ::2]  # of scaled impulse
    path_data = _PathData(
        space=space,
        table=contact_modes.mode_table(fixed.delassus, fixed.mu, fixed.active, capped=True),
        tolerance=tolerance,
        near=near,
        slowest=jnp.maximum(near, slowest_approach(space, v)),
        caps=caps,
        ends=jnp.concatenate([jnp.where(bad, 0.0, until), jnp.zeros(1, dtype)]),
        elastic=elastic,
    )
    zero = jnp.zeros((), dtype)
    start = (
        space.jacobian @ v, jnp.zeros_like(space.scale), jnp.zeros_like(space.mu), status, zero,
        jnp.int32(0), jnp.int32(0),
    )  # fmt: skip
    (u, impulse, stored, total, worst, count, _), impulses = lax.scan(
        functools.partial(_add_piece, path_data), start, length=max_events
    )
    v_plus = v + space.response @ impulse
    impulses = jnp.concatenate([jnp.zeros_like(impulse)[None], impulses])
    path = v[None] + impulses @ space.response.T
    slowest = path_data.slowest
    unfinished = jnp.any((u[0::2] < -slowest) | energetic_restitution.find_loaded(stored, slowest))
    info = RouthPathInfo(
        status=total | flag(unfinished, Status.UNTERMINATED),
        residual=worst,
        impulse=(space.scale * impulse).reshape(-1, 2),
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_iters=count,
        path=jnp.where(status != 0, v_in[None], path),
        path_impulse=(space.scale[None] * impulses).reshape(max_events + 1, -1, 2),
    )
    return jnp.where(status != 0, v_in, v_plus), info


def _add_piece(path_data: _PathData, carry: _PathCarry, _: None) -> tuple[_PathCarry, jax.Array]:
    """Continue the path by its next straight piece, if it has not ended; also return the impulse so far."""
    space, table, tolerance, near, slowest, caps, ends, elastic = path_data
    u, impulse, stored, status, worst, count, phase = carry
    u_fixed = lax.stop_gradient(u)
    pushes = energetic_restitution.find_loaded(lax.stop_gradient(stored), slowest) & (u_fixed[0::2] >= -near)
    # The common size of rates has no meaning; large rates of separating contacts would hide the others.
    largest = jnp.max(jnp.where((u_fixed[0::2] <= near) | pushes, lax.stop_gradient(caps[phase]), 0.0))
    cap = caps[phase] / jnp.where(largest > 0, largest, 1.0)
    cap = jnp.where(cap > tolerance**0.75, cap, 0.0)  # below it modes are not distinguishable
    needed = jnp.any((u_fixed[0::2] < -slowest) | pushes)
    x = jnp.concatenate([jnp.zeros_like(u_fixed), lax.stop_gradient(cap)])
    mode, violation = next_mode(table, u_fixed, x, near, tolerance, pushes)
    stuck = violation > tolerance
    rate, hold = impulse_rates(space, table, mode, u, cap, table.impulse[:, :, mode] @ x)
    u = u + space.delassus @ hold
    slope = space.delassus @ rate
    u_next, length, never = _next_event(u, slope, near, tolerance)
    spent, empties = find_spent(u, slope, rate, stored, pushes, near)
    first = jnp.argmin(lax.stop_gradient(spent))
    sooner = spent[first] < jnp.where(never, jnp.inf, length)
    length = jnp.where(sooner, spent[first], length)
    u_next = jnp.where(sooner, u + length * slope, u_next)
    # A contact that neither moves nor meets an event, such as a wedged contact, keeps no energy.
    wedged = never & ~sooner & pushes
    never = never & ~sooner & ~jnp.any(wedged)
    drained = wedged | (sooner & empties & (spent <= spent[first]))
    # The remaining normal impulse of this phase, in units of this piece.
    pace = jnp.sum((space.scale * rate)[0::2])
    left = (ends[phase] - jnp.sum((space.scale * impulse)[0::2])) / jnp.where(pace > 0, pace, 1.0)
    turns = (phase < len(ends) - 1) & (pace > 0) & (never | jnp.any(wedged) | (left < length))
    left = jnp.maximum(left, 0.0)
    length = jnp.where(turns, left, length)
    u_next = jnp.where(turns, u + left * slope, u_next)
    go = needed & ~stuck & (turns | ~never)
    work = length * rate[0::2] * (u[0::2] + 0.5 * length * slope[0::2])
    remaining = stored - jnp.where(work > 0, work, elastic * work)
    remaining = jnp.where(drained & ~turns, 0.0, jnp.maximum(remaining, 0.0))
    impulse = jnp.where(go, impulse + hold + length * rate, impulse)
    return (
        jnp.where(go, u_next, u),
        impulse,
        jnp.where(go, remaining, stored),
        status | flag(needed & stuck, Status.STALLED),
        jnp.maximum(worst, jnp.where(needed, violation, 0.0)),
        count + go.astype(jnp.int32),
        phase + (go & turns).astype(jnp.int32),
    ), impulse


def find_spent(
    u: jax.Array, slope: jax.Array, rate: jax.Array, stored: jax.Array, pushes: jax.Array, near: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute the length (nc,) after which each push empties its store, else inf, and a mask of finite ones.

    With s the length: rate_n (u_n s + slope_n s^2 / 2) = S. A normal velocity within `near` of 0 begins at 0.
    """
    normal, change, pace = u[0::2], slope[0::2], rate[0::2]
    normal = jnp.where(jnp.abs(lax.stop_gradient(normal)) <= near, 0.0, normal)
    store = stored / jnp.where(pace > 0, pace, 1.0)
    square = normal**2 + 2.0 * change * store
    bottom = normal + jnp.sqrt(jnp.where(square > 0, square, 1.0))
    empties = pushes & (pace > 0) & (square > 0) & (bottom > 0)
    return jnp.where(empties, 2.0 * store / jnp.where(empties, bottom, 1.0), jnp.inf), empties


def next_mode(
    table: contact_modes.ModeMaps,
    u: jax.Array,
    x: jax.Array,
    near: jax.Array,
    tolerance: float,
    pushes: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Find the number of the mode in which the path continues, and its violation of the inequalities."""
    violation = mode_violation(table, u, x, jnp.broadcast_to(near, u.shape), pushes)
    valid = violation <= tolerance
    mode = jnp.where(jnp.any(valid), jnp.argmax(valid), jnp.argmin(violation))
    return mode, violation[mode]


def mode_violation(
    table: contact_modes.ModeMaps,
    u: jax.Array,
    x: jax.Array,
    near: jax.Array,
    pushes: jax.Array | bool = False,
) -> jax.Array:
    """Compute the violation (K,) of each mode at the current point of the path; inf for impossible modes.

    A contact velocity away from zero determines the mode; at zero the laws hold for the rates of change.

    Args:
        u: (r,) scaled contact velocities.
        x: zeros (r,) and the rates (nc,) of normal impulse.
        near: (r,) velocities below these count as zero.
        pushes: (nc,) bool, contacts that give back their stored energy, at their rate.
    """
    u_n, u_t = u[0::2], u[1::2]
    approaches = (u_n < -near[0::2]) | pushes
    leaves, slides = (u_n > near[0::2]) & ~approaches, jnp.abs(u_t) > near[1::2]
    codes = table.codes  # (m, K)
    separate, plus, minus = codes == contact_modes.SEPARATE, _slides(codes, 1), _slides(codes, -1)
    allowed = jnp.where(
        approaches[:, None], codes >= contact_modes.CAP_STICK, jnp.where(leaves[:, None], separate, True)
    )
    sliding = jnp.where((u_t > 0)[:, None], plus, minus) | separate
    allowed &= jnp.where(slides[:, None], sliding, True)
    skip = jnp.stack([approaches | leaves, slides, jnp.zeros_like(slides)], axis=1).reshape(-1)
    violation = contact_modes.evaluate(table, x, skip=skip)
    return jnp.where(jnp.all(allowed, axis=0), violation, jnp.inf)


def _slides(codes: jax.Array, sign: int) -> jax.Array:
    """Return a mask of the modes that let a contact slide in the direction of `sign`."""
    names = (
        (contact_modes.REST_PLUS, contact_modes.CAP_PLUS)
        if sign > 0
        else (contact_modes.REST_MINUS, contact_modes.CAP_MINUS)
    )
    return (codes == names[0]) | (codes == names[1])


def impulse_rates(
    space: ContactSpace,
    table: contact_modes.ModeMaps,
    mode: jax.Array,
    u: jax.Array,
    cap: jax.Array,
    guess: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Compute the impulse per unit of s in a mode, and an impulse of value 0 that keeps contacts at rest.

    The second impulse changes no value and ends the derivative of velocities that stay zero.
    """
    codes = table.codes[:, mode]
    sticks = (codes == contact_modes.REST_STICK) | (codes == contact_modes.CAP_STICK)
    modes = KnownModes(
        separates=codes == contact_modes.SEPARATE,
        capped=codes >= contact_modes.CAP_STICK,
        free=sticks[:, None, None].astype(u.dtype),
        direction=jnp.where(_slides(codes, 1), -1.0, 1.0)[:, None].astype(u.dtype),
    )
    rate = mode_impulse(space, jnp.zeros_like(u), cap, modes, guess)
    hold = mode_impulse(space, u, jnp.zeros_like(cap), modes, jnp.zeros_like(u))
    return rate, hold - lax.stop_gradient(hold)


def _next_event(
    u: jax.Array, slope: jax.Array, near: jax.Array, tolerance: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Find the velocities at the next zero crossing, the length until then, and whether none follows."""
    u_fixed, slope_fixed = lax.stop_gradient(u), lax.stop_gradient(slope)
    steady = jnp.abs(slope_fixed) <= tolerance
    wait = -u_fixed / jnp.where(steady, 1.0, slope_fixed)
    wait = jnp.where((jnp.abs(u_fixed) > near) & ~steady & (wait > 0), wait, jnp.inf)
    event = jnp.argmin(wait)
    never = ~jnp.isfinite(wait[event])
    length = jnp.where(never, 0.0, -u[event] / jnp.where(steady[event], 1.0, slope[event]))
    return jnp.where(jnp.arange(u.size) == event, 0.0, u + length * slope), length, never
