"""Every outcome of a step of Anitescu & Potra's law and of Routh's impact, by enumerating contact modes.

Entry `outcomes`. Owns the criterion that tells outcomes apart; the status says if some do not fit.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.callable_laws import AnitescuPotra
from jaxcontact.impact.laws.circular_cone import capped_one_sided, outcome_one_sided
from jaxcontact.impact.laws.contact_enumeration import (
    check_enumeration,
    mode_table,
    touching_contacts,
)
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    contact_space,
    friction_directions,
    mass_norm,
    residual_status,
)
from jaxcontact.impact.laws.outcome_of_modes import outcome
from jaxcontact.impact.laws.routh_law import RouthStep
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes, mode_choice
from jaxcontact.status import Info, Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

DEFAULT_SIDES = 8  # of a friction cone whose sides the law leaves open; the modes of a circle are a continuum
MOST_OUTCOMES = 64  # largest number returned for a step in space; bounds the close comparison of modes


class OutcomesInfo(Info):
    """Info returned with all outcomes of a law.

    Attributes:
        status: uint32 bits of `Status`; STALLED if no outcome was found, although each law has one.
        residual: the largest of the valid outcomes, as in `ImpactInfo`; 0 if no outcome is valid.
        num_iters: number of contact modes tried.
    """


@checked()
def outcomes(
    terms: ContactTerms, v: Float[jax.Array, " nv"], law: AnitescuPotra | RouthStep
) -> tuple[tuple[jax.Array, jax.Array], OutcomesInfo]:
    """Find every distinct solution of a law by enumerating contact modes.

    Exhaustive for up to five contacts in the plane; in space for up to four whose friction cone has four
    sides, three with eight. Of more candidates only the active contacts count, outside of jit. Outcomes
    closer than 1e-7 |v|_M count as one. Modes of the circular cone are a continuum: for it the cone has eight
    sides.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact, or before the step.
        law: `jc.impact.AnitescuPotra()`, or one step of Routh's impact with known largest impulses,
            `jc.impact.RouthStep(impulse_max=)`. `sample` draws whole impacts of `Routh`.

    Returns:
        (v_plus (k, nv), valid (k,)) and OutcomesInfo; k = 4^nc, of a RouthStep 7^nc, in space 64 or less. The
        valid outcomes come first, in a fixed order.

    Raises:
        ValueError, TypeError: as `anitescu_potra` and `routh_step`; more contacts than enumeration
            allows; another law.

    Status: STALLED if no outcome meets the law within the residual of `anitescu_potra`; MAX_ITERS if
        there are more than k; inside jit NONFINITE, INVALID, PENETRATION for bad numbers. With any of these
        bits except MAX_ITERS no outcome is valid. JUMP, a note, with `corner="one_sided"` of the law if a
        valid outcome ends or branches in some direction.

    Derivative: as that of the law, for each outcome; one-sided NaN for outcomes that jump.
    """
    inputs.check(terms, v)
    if not isinstance(law, AnitescuPotra | RouthStep):
        name = law.__name__ if isinstance(law, type) else type(law).__name__
        raise TypeError(
            f"law: expected jc.impact.AnitescuPotra() or RouthStep(impulse_max=), got {name}; "
            "`sample` draws from the outcomes of Routh"
        )
    impulse_max = None
    if isinstance(law, RouthStep):
        impulse_max = law.impulse_max
        inputs.check_impulse_max(impulse_max, jnp.shape(terms.phi))
    sides = DEFAULT_SIDES if law.num_directions is None else law.num_directions
    touching = touching_contacts(terms, sides)
    if touching is not None:
        terms = terms.take(touching)
        impulse_max = None if impulse_max is None else jnp.asarray(impulse_max)[touching]
    check_enumeration(terms, sides, "outcomes")
    velocities, valid, info = _list_outcomes(terms, v, impulse_max, sides, law.corner)
    return (velocities, valid), info


@functools.partial(jit, static_argnames=("num_directions", "corner"))
def _list_outcomes(
    terms: ContactTerms, v: jax.Array, impulse_max: jax.Array | None, num_directions: int, corner: str
) -> tuple[jax.Array, jax.Array, OutcomesInfo]:
    terms, v, status = inputs.prepare(terms, v)
    space = contact_space(terms)
    cap = None
    if impulse_max is not None:
        status = status | inputs.impulse_status(impulse_max)
        scale = space.scale[:: 1 + space.num_tangents]
        cap = jnp.where(space.active & (status == 0), impulse_max / scale, 0.0)
    return all_outcomes(space, v, cap, status, num_directions, corner)


def all_outcomes(
    space: ContactSpace,
    v: jax.Array,
    impulse_max: jax.Array | None,
    status: jax.Array,
    num_directions: int,
    corner: str = "smooth",
) -> tuple[jax.Array, jax.Array, OutcomesInfo]:
    """Find the distinct outcomes (K, nv) of all contact modes, `valid` (K,) ones first; K <= 64 in space."""
    fixed, v_fixed = lax.stop_gradient((space, v))
    directions = friction_directions(space.num_tangents, num_directions)
    table = mode_table(fixed, directions, capped=impulse_max is not None)
    u = fixed.jacobian @ v_fixed
    x = u if impulse_max is None else jnp.concatenate([u, lax.stop_gradient(impulse_max)])
    speed = mass_norm(space.mass, v)
    violation = contact_modes.evaluate(table, x)
    feasible = violation <= contact_modes.feasibility_tolerance(v.dtype) * speed
    if space.num_tangents == 2:  # so many modes that only distinct ones are examined closely
        max_outcomes = min(MOST_OUTCOMES, table.regular.shape[0])
        score = contact_modes.apply(table.score, x)
        modes, count = mode_choice.distinct(feasible, score, speed, max_outcomes)
        table = jax.tree.map(lambda leaf: leaf[..., modes], table)
        feasible = jnp.arange(max_outcomes) < count
        status = status | flag((status == 0) & (count > max_outcomes), Status.MAX_ITERS)
    impulses = jnp.einsum("ijk,j->ki", table.impulse, x)
    velocities, impulses, misfit = jax.vmap(lambda lam: outcome(space, v, lam, directions, impulse_max))(
        jnp.where(feasible[:, None], impulses, 0.0)
    )
    feasible &= residual_status(misfit) == 0
    # Equal outcomes are neighbours in the order of a generic coordinate; compare them by |dv|_M.
    sorted_velocities = lax.stop_gradient(velocities)
    generic = jnp.cos(jnp.arange(space.scale.shape[0]) * 1.7 + 0.3).astype(v.dtype)
    order = jnp.argsort(jnp.where(feasible, (sorted_velocities @ fixed.jacobian.T) @ generic, jnp.inf))
    velocities, sorted_velocities, feasible = velocities[order], sorted_velocities[order], feasible[order]
    apart = sorted_velocities - jnp.roll(sorted_velocities, 1, axis=0)
    square = jnp.einsum("ki,ij,kj->k", apart, fixed.mass, apart)
    same = (square <= (1e-7 * speed) ** 2) & jnp.roll(feasible, 1) & (jnp.arange(len(order)) > 0)
    new = feasible & ~same
    first = jnp.argsort(~new, stable=True)
    good = (status & ~jnp.uint32(int(Status.MAX_ITERS))) == 0
    valid, velocities = new[first] & good, velocities[first]
    if corner == "one_sided":

        def follow(impulse: jax.Array) -> tuple[jax.Array, jax.Array]:
            if impulse_max is None:
                return outcome_one_sided(space, v, impulse, speed, directions)
            impulse, jumps = capped_one_sided(space, v, impulse, impulse_max, speed, directions)
            return v + space.response @ impulse, jumps

        velocities, jumps = lax.map(
            lambda of: lax.cond(of[0], follow, lambda _: (of[2], jnp.array(False)), of[1]),
            (valid, impulses[order][first], velocities),
        )
        status = status | flag(jnp.any(jumps), Status.JUMP)
    info = OutcomesInfo(
        status=status | flag((status == 0) & ~jnp.any(valid), Status.STALLED),
        residual=jnp.max(jnp.where(feasible & good, misfit[order], 0.0)),
        num_iters=jnp.int32(violation.shape[0]),
    )
    return velocities, valid, info
