"""Routh's impact, discretised: steps of bounded normal impulse with every order of contacts possible.

One step (Halm & Posa, eqs (72)-(75)) lets each approaching contact take up a normal impulse of at most
`impulse_max`, with Coulomb friction at the velocity it leads to; random caps make random orders. A step
often has several solutions, and they matter: on the compass gait one solver alone never lets the trailing
foot rest. `resolve` is one whole sample with given draws, the pure core of `sample`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.impact import inputs
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.contact_enumeration import check_enumeration, mode_table
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    ImpactInfo,
    approaching,
    contact_space,
    energy_ratio,
    friction_directions,
    mass_norm,
    outcome,
    residual_status,
    slowest_approach,
)
from jaxcontact.impact.laws.pivoting import random_cover, solve_by_pivoting
from jaxcontact.impact.laws.spatial_restitution import give_back_in_space
from jaxcontact.impact.laws.turned_polygon import random_angles, turn_rows, turned
from jaxcontact.solvers import contact_modes
from jaxcontact.solvers.lcp import Lemke
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

SELECTIONS = ("all", "lemke")


def check_selection(
    terms: ContactTerms, selection: str, allowed: tuple[str, ...], num_directions: int
) -> None:
    """Raise ValueError for an unknown selection, or one that these terms do not allow."""
    if selection not in allowed:
        raise ValueError(f"selection: expected one of {', '.join(allowed)}, got {selection!r}")
    if selection != "lemke":
        check_enumeration(terms, num_directions, f'selection="{selection}"')


def _step(
    space: ContactSpace,
    table: contact_modes.ModeMaps | None,
    directions: np.ndarray,
    v: jax.Array,
    impulse_max: jax.Array,
    pick: jax.Array,
    needed: jax.Array,
    known: jax.Array | None,
    early_exit: bool,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """v_next, scaled impulse (r,), residual and solver status of one step; zero impulse if not needed.

    `known` (r,) is the scaled impulse where another solver has found it.
    """
    rows = 1 + space.num_tangents
    cap = jnp.where(space.active, impulse_max / space.scale[::rows], 0.0)
    fixed, v_fixed, cap_fixed = lax.stop_gradient((space, v, cap))
    if known is not None:
        guess, status = known, jnp.uint32(0)
    elif table is None:
        # In the plane variety is what "all" is for; "lemke" is the one solver with its bias.
        cover = random_cover(space, directions, pick) if space.num_tangents == 2 else None
        solver = Lemke(early_exit=early_exit)
        guess, status = solve_by_pivoting(fixed, v_fixed, directions, cap_fixed, solver, cover)
    else:
        x = jnp.concatenate([fixed.rates(v_fixed), cap_fixed])
        speed = mass_norm(space.mass, v)
        violation = contact_modes.evaluate(table, x)
        score = jnp.sum(table.score * x[:, None], axis=0)
        valid = violation <= contact_modes.feasibility_tolerance(v.dtype) * speed
        mode, count = contact_modes.choose(valid, score, pick, speed, early_exit)
        mode = jnp.where(count == 0, jnp.argmin(violation), mode)  # the least bad
        guess, status = table.impulse[:, :, mode] @ x, jnp.uint32(0)
    # At rest contacts may press against each other with any impulse; none is the one to take.
    guess = jnp.where(needed & (mass_norm(space.mass, v) > 0), guess, 0.0)
    v_next, impulse, worst = outcome(space, v, guess, directions, cap)
    return v_next, impulse, worst, status


def routh_step(
    terms: ContactTerms,
    v: jax.Array,
    impulse_max: jax.Array,
    *,
    pick: jax.Array | float = 0.0,
    selection: str = "all",
    num_directions: int = 8,
) -> tuple[jax.Array, ImpactInfo]:
    """One step of the set-valued impact law: normal impulses of at most `impulse_max`.

    Halm & Posa, eqs (72)-(75): 0 <= lam_n <= impulse_max; a contact that still approaches has taken
    all of impulse_max, one that separates has taken none; Coulomb friction at the new velocity.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity.
        impulse_max: (nc,) largest normal impulse, N s.
        pick: in [0, 1), chooses among the distinct solutions of the step.
        selection: "all" enumerates contact modes (as `anitescu_potra_all`), so that every solution is a
            candidate; "lemke" takes the one that pivoting finds. For spatial contacts `pick` then seeds
            the covering vector of Lemke's method (0: all ones), and so finds others in part of the steps.
        num_directions: sides of the friction cone in space; no effect in the plane.

    Returns:
        v_next (nv,) and ImpactInfo; info.complete says whether the choice was exhaustive.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; impulse_max of the wrong shape or negative; "all" for
            more contacts than modes can be enumerated of.

    Status: STALLED for a residual above 1e-9 (float32: 5e-6); inside jit NONFINITE, INVALID, PENETRATION for
        bad numbers, with v returned as it came.

    Derivative: of the contact modes of the chosen solution, by v, impulse_max and all terms, any
        order. At a kink that of the mode taken: stick before slide, rest before separation.
    """
    inputs.check(terms, v)
    inputs.check_impulse_max(impulse_max, jnp.shape(terms.phi))
    check_selection(terms, selection, SELECTIONS, num_directions)
    inputs.check_pick(pick, ())
    picks = jnp.reshape(jnp.asarray(pick, v.dtype), (1,))
    v_next, info, _ = _resolve(
        terms, v, impulse_max[None], picks, selection, num_directions, until_separated=False
    )
    return v_next, info


def draw_status(impulse_max: jax.Array, pick: jax.Array, restitution: jax.Array | None) -> jax.Array:
    """Status bits of largest impulses, choices and coefficients that are not what they should be."""
    good = jnp.all((pick >= 0) & (pick < 1))
    if restitution is not None:
        good &= jnp.all((restitution >= 0) & (restitution <= 1))
    return inputs.impulse_status(impulse_max) | flag(~good, Status.INVALID)


def resolve(
    terms: ContactTerms,
    v: jax.Array,
    impulse_max: jax.Array,
    pick: jax.Array,
    *,
    restitution: jax.Array | float | None = None,
    selection: str = "all",
    num_directions: int = 8,
    early_exit: bool = True,
    clearance: jax.Array | None = None,
) -> tuple[jax.Array, ImpactInfo]:
    """One sample of the post-impact set with given draws: Halm & Posa, Algorithm 1, and restitution.

    Steps (`routh_step`) until no active contact approaches faster than 1e-8 of the fastest approach
    before, at most N of them. With
    restitution a step also lets contacts push that have energy in store, each by at most its impulse_max, and
    steps go on until the stores are empty; `energetic_restitution` and `spatial_restitution` say how, what is
    proven and what is observed.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        impulse_max: (N, nc) largest normal impulse of every step, N s.
        pick: (N,) in [0, 1), chooses among the distinct solutions of every step.
        restitution: e, a number or (nc,) in 0..1: Stronge's energetic coefficient, e^2 the share of the work
            of compression that restitution gives back. 0 or None: inelastic.
        selection: "all" or "lemke", as in `routh_step`.
        num_directions: sides of the friction cone in space; no effect in the plane.
        early_exit: let the loops within a step end when their work is done. False does the same in loops of
            static length, see `Lemke`. Steps are always N, in a loop of static length.
        clearance: (nc,) as `anitescu_potra`; not with restitution.

    Returns:
        v_plus (nv,) and ImpactInfo; info.num_solves counts the steps taken.

    Raises:
        ValueError, TypeError: as `routh_step`; restitution outside of 0..1 or NaN.

    Status: UNTERMINATED where a contact still approaches, or has energy in store, after N steps; the bits of
        `routh_step`; inside jit INVALID for a pick outside of [0, 1), a restitution outside of 0..1.

    Derivative: through the contact modes of every step, by v, impulse_max, restitution and all terms, any
        order; modes, picks and the number of steps are piecewise constant. Without an approaching contact
        v_plus is v, and contacts at rest stay at rest: a block standing on two corners has dv_plus/dv = 0.
    """
    inputs.check(terms, v)
    if jnp.ndim(impulse_max) != 2 or jnp.shape(impulse_max)[0] < 1:
        raise ValueError(f"impulse_max: expected shape (N, nc) with N >= 1, got {jnp.shape(impulse_max)}")
    steps = jnp.shape(impulse_max)[0]
    inputs.check_impulse_max(impulse_max, (steps, jnp.shape(terms.phi)[0]))
    inputs.check_pick(pick, (steps,))
    check_selection(terms, selection, SELECTIONS, num_directions)
    e = energetic_restitution.check(terms, restitution)
    inputs.check_clearance(clearance, jnp.shape(terms.phi))
    if clearance is not None and e is not None:
        raise ValueError("clearance: expected None with restitution; contacts that open rebound touch")
    v_plus, info, _ = _resolve(
        terms, v, impulse_max, pick, selection, num_directions,
        restitution=e, early_exit=early_exit, clearance=clearance,
    )  # fmt: skip
    return v_plus, info


def resolve_unchecked(
    terms: ContactTerms, v: jax.Array, impulse_max: jax.Array, pick: jax.Array, selection: str
) -> tuple[jax.Array, ImpactInfo]:
    """`resolve` for drivers that have checked their input."""
    v_plus, info, _ = _resolve(terms, v, impulse_max, pick, selection, 8)
    return v_plus, info


@functools.partial(jax.jit, static_argnums=(3, 4, 5), static_argnames="turn_polygon")
def resolve_many(
    terms: ContactTerms,
    v: jax.Array,
    impulse_max: jax.Array,
    selection: str,
    num_directions: int,
    keep_path: bool,
    pick: jax.Array | None = None,
    restitution: jax.Array | None = None,
    known: jax.Array | None = None,
    turn_polygon: bool = False,
) -> tuple[jax.Array, ImpactInfo, jax.Array | None]:
    """`resolve` for v (n, nv), caps (n, N, nc), pick (n, N) or 0; unchecked, with the path if asked.

    `known` (n, N, r) are the scaled impulses of the steps where they have been found, without their pushes.
    """

    def one(
        v: jax.Array, caps: jax.Array, picks: jax.Array, known: jax.Array | None
    ) -> tuple[jax.Array, ImpactInfo, jax.Array | None]:
        v_plus, info, path = _resolve(
            terms, v, caps, picks, selection, num_directions,
            restitution=restitution, known=known, turn_polygon=turn_polygon,
        )  # fmt: skip
        return v_plus, info, path if keep_path else None

    picks = jnp.zeros(impulse_max.shape[:2], v.dtype) if pick is None else pick
    return jax.vmap(one)(v, impulse_max, picks, known)


@functools.partial(
    jax.jit, static_argnums=(4, 5), static_argnames=("until_separated", "early_exit", "turn_polygon")
)
def _resolve(
    terms: ContactTerms,
    v: jax.Array,
    impulse_max: jax.Array,
    pick: jax.Array,
    selection: str,
    num_directions: int,
    until_separated: bool = True,
    restitution: jax.Array | None = None,
    known: jax.Array | None = None,
    early_exit: bool = True,
    clearance: jax.Array | None = None,
    turn_polygon: bool = False,
) -> tuple[jax.Array, ImpactInfo, jax.Array]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    clearance, trouble = inputs.prepare_clearance(clearance)
    status = status | trouble | draw_status(impulse_max, pick, restitution)
    impulse_max = jnp.where(status == 0, impulse_max, 0.0)
    pick = jnp.where(status == 0, pick, 0.0)
    directions = friction_directions(terms.J_t.shape[1], num_directions)
    original = space = contact_space(terms, clearance)
    tabulated = selection != "lemke" and known is None

    def tabulate(space: ContactSpace) -> contact_modes.ModeMaps | None:
        return mode_table(lax.stop_gradient(space), directions, capped=True) if tabulated else None

    def holds_all(table: contact_modes.ModeMaps | None) -> jax.Array:
        return jnp.array(False) if table is None else ~jnp.any(table.unresolved)

    unturned = None if turn_polygon else tabulate(original)
    speed, slowest = mass_norm(space.mass, v), slowest_approach(space, v)
    elastic = None if restitution is None else jnp.where(status == 0, restitution, 0.0) ** 2

    def step(carry: Any, draw: tuple[jax.Array, jax.Array, jax.Array | None]) -> tuple[Any, jax.Array]:
        v, impulse, status, worst, count, complete, stored = carry
        needed = jnp.any(approaching(original, v, slowest)) if until_separated else jnp.array(True)
        cap, pick, known = draw
        space, table, angle = original, unturned, None
        if turn_polygon:
            angle = random_angles(pick, space.mu.shape[0])
            space = turned(original, angle)
            table = tabulate(space)
        v_next, change, misfit, solver = _step(
            space, table, directions, v, cap, pick, needed, known, early_exit
        )
        solver = solver | residual_status(misfit)
        # If no contact approaches at all, v stays, but what rests stays at rest to first order.
        held = v_next - v
        held = v + (held - lax.stop_gradient(held))
        v_next = jnp.where(needed, v_next, jnp.where(count == 0, held, v))
        moved = needed
        if elastic is not None:
            moved |= jnp.any(energetic_restitution.loaded(stored, slowest))
            change = jnp.where(needed, change, 0.0)
            cap = jnp.where(space.active, cap / space.scale[:: 1 + space.num_tangents], 0.0)
            u, u_next = space.jacobian @ v, space.jacobian @ v_next
            passage = (space, elastic, cap, u, u_next, change, stored, speed, slowest)
            if space.num_tangents == 1:
                push, stored = energetic_restitution.give_back(*passage)
            else:
                push, stored = give_back_in_space(*passage, directions)
            v_next, change = v_next + space.response @ push, change + push
        if angle is not None:
            change = turn_rows(change, -angle)
        return (
            v_next,
            jnp.where(moved, impulse + change, impulse),
            status | jnp.where(needed, solver, jnp.uint32(0)),
            jnp.maximum(worst, jnp.where(needed, misfit, 0.0)),
            count + moved.astype(jnp.int32),
            complete & (~needed | holds_all(table)),
            stored,
        ), v_next

    nothing = None if elastic is None else jnp.zeros_like(space.mu)
    zero = jnp.zeros((), v.dtype)
    start = (v, jnp.zeros_like(space.scale), status, zero, jnp.int32(0), jnp.array(tabulated), nothing)
    (v_plus, impulse, total, worst, count, complete, stored), path = lax.scan(
        step, start, (impulse_max, pick, known)
    )
    left = jnp.any(approaching(space, v_plus, slowest)) & until_separated
    if stored is not None:
        left |= jnp.any(energetic_restitution.loaded(stored, slowest))
    info = ImpactInfo(
        status=total | flag(left, Status.UNTERMINATED),
        residual=worst,
        impulse=(space.scale * impulse).reshape(terms.J_t.shape[0], -1),
        energy_ratio=energy_ratio(terms.M, v, v_plus),
        num_solves=count,
        complete=complete,
    )
    path = jnp.concatenate([v[None], path])
    return jnp.where(status != 0, v_in, v_plus), info, path
