"""Every outcome of a step of Anitescu & Potra's law and of Routh's impact, by contact modes or a search.

Entry `outcomes`. Owns the criterion that tells outcomes apart; the status says if some do not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.callable_laws import AnitescuPotra
from jaxcontact.impact.laws.circular_cone import capped_one_sided, outcome_one_sided
from jaxcontact.impact.laws.contact_enumeration import (
    enumerable,
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
from jaxcontact.impact.laws.pivoting import search_by_pivoting
from jaxcontact.impact.laws.routh_law import RouthStep
from jaxcontact.precision import all_digits, jit
from jaxcontact.solvers import contact_modes, mode_choice, polyhedral_modes
from jaxcontact.status import Info, Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

MOST_SEARCHED = 16  # contacts; of a robot's candidates that only might touch, searches would take hours
DEFAULT_SIDES = 8  # of a friction cone whose sides the law leaves open; the modes of a circle are a continuum
MOST_OUTCOMES = 64  # largest number returned for a step in space; bounds the close comparison of modes
LARGE_TABLE = 2**12  # modes; under vmap tables of more are made one after the other, for they fill the memory
SAME_OUTCOME = 1e-7  # of |v|_M; outcomes closer than this count as one


class OutcomesInfo(Info):
    """Info returned with all outcomes of a law.

    Attributes:
        status: uint32 bits of `Status`; STALLED if no outcome was found, although each law has one.
        residual: the largest of the valid outcomes, as in `ImpactInfo`; 0 if no outcome is valid.
        num_iters: number of contact modes tried, or of searches.
        complete: bool, whether every solution was a candidate, of a continuum its corners, and none was lost
            by rounding. False if they are searched, and in single precision, which loses solutions of strong
            friction and of unequal masses.
    """

    complete: jax.Array | bool = False


@checked()
def outcomes(
    terms: ContactTerms, v: Float[jax.Array, " nv"], law: AnitescuPotra | RouthStep
) -> tuple[tuple[jax.Array, jax.Array], OutcomesInfo]:
    """Find every distinct solution of a law by enumerating contact modes; search for those of many contacts.

    Exhaustive for up to five contacts in the plane; in space for up to four whose friction cone has four
    sides, three with eight. Outcomes of more contacts, up to 16, are searched along the paths of 256 covering
    vectors: rare ones may be missing, and of a continuum some corners. Of more candidates only the active
    contacts count, outside of jit. Outcomes closer than 1e-7 |v|_M count as one. Modes of the circular cone
    are a continuum: for it the cone has eight sides.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact, or before the step.
        law: `jc.impact.AnitescuPotra()`, or one step of Routh's impact with known largest impulses,
            `jc.impact.RouthStep(impulse_max=)`. `sample` draws whole impacts of `Routh`.

    Returns:
        (v_plus (k, nv), valid (k,)) and OutcomesInfo; k = 4^nc, of a RouthStep 7^nc, in space 64 or less. The
        valid outcomes come first, in a fixed order.

    Raises:
        ValueError, TypeError: as `anitescu_potra` and `routh_step`; more than 16 contacts that cannot be
            enumerated; another law.

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
    nc, nt = jnp.shape(terms.J_t)[:2]
    friction_directions(nt, sides)
    if nc > MOST_SEARCHED and not enumerable(nc, nt, sides):
        raise ValueError(
            f"outcomes: expected at most {MOST_SEARCHED} contacts, got {nc}; inside jit all candidates "
            "count. Choose those that touch by terms.take, or leave contacts out"
        )
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
    """Find the distinct outcomes (K, nv) of all contact modes, or of a search, `valid` (K,) first."""
    fixed, v_fixed = lax.stop_gradient((space, v))
    directions = friction_directions(space.num_tangents, num_directions)
    speed = mass_norm(space.mass, v)
    list_candidates = (
        _enumerate if enumerable(space.mu.shape[0], space.num_tangents, num_directions) else _search
    )
    candidates = list_candidates(fixed, v_fixed, *lax.stop_gradient((impulse_max, speed)), directions)
    impulses, feasible = candidates.impulses, candidates.feasible
    status = status | flag((status == 0) & candidates.overflows, Status.MAX_ITERS)
    velocities, impulses, misfit = jax.vmap(lambda lam: outcome(space, v, lam, directions, impulse_max))(
        jnp.where(feasible[:, None], impulses, 0.0)
    )
    is_same = functools.partial(_agree, fixed.mass, SAME_OUTCOME * speed)
    stays = is_same(v_fixed[None] + impulses @ fixed.response.T, lax.stop_gradient(velocities))
    is_lost = feasible & ~(stays & (residual_status(misfit) == 0))
    feasible &= residual_status(misfit) == 0
    # Equal outcomes are neighbours in the order of a generic coordinate; compare them by |dv|_M.
    sorted_velocities = lax.stop_gradient(velocities)
    along = (sorted_velocities @ fixed.jacobian.T) @ _generic(space)
    order = jnp.argsort(jnp.where(feasible, along, jnp.inf))
    velocities, sorted_velocities, feasible = velocities[order], sorted_velocities[order], feasible[order]
    same = is_same(sorted_velocities, jnp.roll(sorted_velocities, 1, axis=0))
    same &= jnp.roll(feasible, 1) & (jnp.arange(len(order)) > 0)
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
        num_iters=candidates.number,
        complete=candidates.complete & good & ~jnp.any(is_lost) & (jnp.finfo(v.dtype).bits >= 64),
    )
    return velocities, valid, info


def _agree(mass: jax.Array, limit: jax.Array, some: jax.Array, others: jax.Array) -> jax.Array:
    """Tell which velocities (K, nv) differ by at most `limit` in |dv|_M."""
    apart = some - others
    return jnp.einsum("ki,ij,kj->k", apart, mass, apart) <= limit**2


class _Candidates(NamedTuple):
    """Scaled impulses (K, r) that may be solutions.

    Attributes:
        feasible: (K,) bool.
        overflows: whether there are more than K.
        complete: whether no solution can be missing.
        number: of modes tried, or of searches.
    """

    impulses: jax.Array
    feasible: jax.Array
    overflows: jax.Array
    complete: jax.Array
    number: jax.Array


def _enumerate(
    space: ContactSpace, v: jax.Array, impulse_max: jax.Array | None, speed: jax.Array, directions: np.ndarray
) -> _Candidates:
    """List the impulses of all contact modes; under vmap large tables are made one after the other."""
    (nc,), (sides, nt) = space.mu.shape, directions.shape
    capped = impulse_max is not None
    kinds = (7 if capped else 4) if nt == 1 else polyhedral_modes.num_kinds(sides, capped)

    def evaluate(space: ContactSpace, rest: PyTree) -> _Candidates:
        v, impulse_max, speed = rest
        return _evaluate_modes(space, v, impulse_max, speed, directions)

    is_large = kinds**nc >= LARGE_TABLE
    return (_map_terms(evaluate) if is_large else evaluate)(space, (v, impulse_max, speed))


def _map_terms(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
    """Make function(terms, rest) work under vmap on one of several terms at a time; no derivative."""
    entry = jax.custom_batching.custom_vmap(all_digits(function))

    @entry.def_vmap
    def _(size: int, batched: PyTree, *arguments: PyTree) -> PyTree:
        if any(jax.tree.leaves(batched[0])):
            lanes = jax.tree.map(
                lambda is_lane, a: a if is_lane else jnp.broadcast_to(a[None], (size, *a.shape)),
                tuple(batched), arguments,
            )  # fmt: skip
            found = lax.map(lambda lane: entry(*lane), lanes)
        else:
            axes = jax.tree.map(lambda is_lane: 0 if is_lane else None, tuple(batched))
            found = _map_terms(jax.vmap(function, in_axes=axes, axis_size=size))(*arguments)
        return found, jax.tree.map(lambda _: True, found)

    return entry


def _evaluate_modes(
    space: ContactSpace,
    v: jax.Array,
    impulse_max: jax.Array | None,
    speed: jax.Array,
    directions: np.ndarray,
) -> _Candidates:
    """List the impulses of the modes of a table that are valid."""
    table = mode_table(space, directions, capped=impulse_max is not None)
    number, complete = table.regular.shape[0], ~jnp.any(table.unresolved)
    u = space.jacobian @ v
    x = u if impulse_max is None else jnp.concatenate([u, impulse_max])
    feasible = contact_modes.evaluate(table, x) <= contact_modes.feasibility_tolerance(v.dtype) * speed
    count = jnp.int32(0)
    if space.num_tangents == 2:  # so many modes that only distinct ones are examined closely
        max_outcomes = min(MOST_OUTCOMES, number)
        score = contact_modes.apply(table.score, x)
        modes, count = mode_choice.distinct(feasible, score, speed, max_outcomes)
        table = jax.tree.map(lambda leaf: leaf[..., modes], table)
        feasible = jnp.arange(max_outcomes) < count
    impulses = jnp.einsum("ijk,j->ki", table.impulse, x)
    return _Candidates(impulses, feasible, count > len(feasible), complete, jnp.int32(number))


def _search(
    space: ContactSpace, v: jax.Array, impulse_max: jax.Array | None, speed: jax.Array, directions: np.ndarray
) -> _Candidates:
    """List the impulses at which searches end, one for each outcome."""
    impulses, solved = search_by_pivoting(space, v, directions, impulse_max)
    score = (impulses @ space.delassus) @ _generic(space)
    places, count = mode_choice.distinct(solved, score, speed, MOST_OUTCOMES)
    feasible = jnp.arange(MOST_OUTCOMES) < count
    return _Candidates(
        impulses[places], feasible, count > MOST_OUTCOMES, jnp.array(False), jnp.int32(len(solved))
    )


def _generic(space: ContactSpace) -> jax.Array:
    """Return a generic direction (r,), along which distinct outcomes differ."""
    return jnp.cos(jnp.arange(space.scale.shape[0]) * 1.7 + 0.3).astype(space.scale.dtype)
