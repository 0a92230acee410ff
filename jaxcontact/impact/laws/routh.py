"""Routh's impact, discretised into steps of bounded normal impulse; docs/methods/set-valued.md.

Entries: `routh_step` takes one step, `resolve` one whole sample with given draws, the pure core of `sample`.
Random largest impulses make random orders of contacts. A step often has several solutions, and they matter:
on the compass gait one solver alone never lets the trailing foot rest.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_corner, check_number, check_sides
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import energetic_restitution
from jaxcontact.impact.laws.contact_enumeration import check_enumeration
from jaxcontact.impact.laws.contact_space import ImpactInfo, energy_ratio
from jaxcontact.impact.laws.routh_steps import (
    ImpactDraws,
    Resolved,
    StepSettings,
    all_steps,
    needed_steps,
)
from jaxcontact.impact.laws.routh_touching import (
    ImpactQuestion,
    OrderKey,
    TouchingSettings,
    resolve_touching,
)
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

SELECTIONS = ("all", "lemke")


def check_selection(
    terms: ContactTerms, selection: str, allowed: tuple[str, ...], num_directions: int
) -> None:
    """Raise ValueError for an unknown selection or a selection that these terms do not allow."""
    if selection not in allowed:
        raise ValueError(f"selection: expected one of {', '.join(allowed)}, got {selection!r}")
    if selection != "lemke":
        check_enumeration(terms, num_directions, f'selection="{selection}"')


@checked(num_directions=check_sides, corner=check_corner)
def routh_step(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    impulse_max: jax.Array,
    *,
    pick: jax.Array | float = 0.0,
    selection: str = "all",
    num_directions: int = 8,
    corner: str = "smooth",
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Take one step of the set-valued impact law, with normal impulses of at most `impulse_max`.

    Halm & Posa, eqs (72)-(75): 0 <= lam_n <= impulse_max; a contact that still approaches has taken
    all of impulse_max, one that separates has taken none; Coulomb friction at the new velocity.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity.
        impulse_max: (nc,) largest normal impulse, N s.
        pick: in [0, 1), chooses among the distinct solutions of the step.
        selection: "all" enumerates contact modes (as `outcomes`), so that every solution is a
            candidate; "lemke" takes the solution that pivoting finds. For spatial contacts `pick` then seeds
            the covering vector of Lemke's method (0: all ones), and so finds others in part of the steps.
        num_directions: sides of the friction cone in space; no effect in the plane.
        corner: as `anitescu_potra`.

    Returns:
        v_next (nv,) and ImpactInfo; info.complete says whether the choice was exhaustive.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; impulse_max of the wrong shape or negative; "all" for
            more contacts than enumeration allows.

    Status: STALLED for a residual above 1e-9 (float32: 3e-6); inside jit NONFINITE, INVALID, PENETRATION for
        bad numbers, with v returned unchanged.

    Derivative: of the contact modes of the chosen solution, by v, impulse_max and all terms, any
        order. At a kink that of the mode taken: stick before slide, rest before separation. With
        `corner="one_sided"` that of the direction, forward only, NaN with JUMP.
    """
    inputs.check(terms, v)
    inputs.check_impulse_max(impulse_max, jnp.shape(terms.phi))
    check_selection(terms, selection, SELECTIONS, num_directions)
    inputs.check_pick(pick, ())
    picks = jnp.reshape(jnp.asarray(pick, v.dtype), (1,))
    settings = StepSettings(
        selection, num_directions, until_separated=False, is_one_sided=corner == "one_sided"
    )
    v_next, info, _ = _resolve(terms, v, ImpactDraws(impulse_max[None], picks), None, settings)
    return v_next, info


def draw_status(impulse_max: jax.Array, pick: jax.Array, restitution: jax.Array | None) -> jax.Array:
    """Return the status bits for invalid largest impulses, picks and coefficients of restitution."""
    good = jnp.all((pick >= 0) & (pick < 1))
    if restitution is not None:
        good &= jnp.all((restitution >= 0) & (restitution <= 1))
    return inputs.impulse_status(impulse_max) | flag(~good, Status.INVALID)


@checked(restitution=check_number, num_directions=check_sides)
def resolve(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    impulse_max: jax.Array,
    pick: jax.Array,
    *,
    restitution: float | Float[jax.Array, ""] | Float[jax.Array, " nc"] | None = None,
    selection: str = "all",
    num_directions: int = 8,
    early_exit: bool = True,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Compute one sample of the post-impact set with given draws: Halm & Posa, Algorithm 1, and restitution.

    Takes steps (`routh_step`) until no active contact approaches faster than 1e-8 of the fastest approach
    before the impact (float32: 1e-5), at most N. With restitution a step also lets contacts that have energy
    in store push, each by at most its impulse_max, and steps continue until the stores are empty. The modules
    `energetic_restitution` and `spatial_restitution` describe how, and list proven and observed properties.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        impulse_max: (N, nc) largest normal impulse of every step, N s.
        pick: (N,) in [0, 1), chooses among the distinct solutions of every step.
        restitution: e, a number or (nc,) in 0..1: Stronge's energetic coefficient, e^2 the fraction of the
            work of compression that restitution gives back. 0 or None: inelastic.
        selection: "all" or "lemke", as in `routh_step`.
        num_directions: sides of the friction cone in space; no effect in the plane.
        early_exit: let the loops within a step end when their work is done. False does the same in loops of
            static length, see `Lemke`. The loop over steps always has the static length N.

    Returns:
        v_plus (nv,) and ImpactInfo; info.num_iters counts the steps taken.

    Raises:
        ValueError, TypeError: as `routh_step`; restitution outside of 0..1 or NaN.

    Status: UNTERMINATED if a contact still approaches, or has energy in store, after N steps; the bits of
        `routh_step`; inside jit INVALID for a pick outside of [0, 1), a restitution outside of 0..1.

    Derivative: through the contact modes of every step, by v, impulse_max, restitution and all terms, any
        order; modes, picks and the number of steps are piecewise constant. Without an approaching contact
        v_plus is v, and contacts at rest stay at rest: a block standing on two corners has dv_plus/dv = 0.
    """
    settings = StepSettings(selection, num_directions, early_exit=early_exit)
    return resolve_draws(terms, v, ImpactDraws(impulse_max, pick), settings, restitution=restitution)


def resolve_draws(
    terms: ContactTerms,
    v: jax.Array,
    draws: ImpactDraws,
    settings: StepSettings,
    *,
    restitution: jax.Array | float | None = None,
    clearance: jax.Array | None = None,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve the impact with given draws and step settings, as `resolve`; return v_plus and its info.

    Args:
        terms, v, draws, settings, restitution: as `resolve`.
        clearance: (nc,) as `anitescu_potra`; not with restitution.
    """
    impulse_max = draws.impulse_max
    if jnp.ndim(impulse_max) != 2 or jnp.shape(impulse_max)[0] < 1:
        raise ValueError(f"impulse_max: expected shape (N, nc) with N >= 1, got {jnp.shape(impulse_max)}")
    inputs.check_pick(draws.pick, jnp.shape(impulse_max)[:1])
    e = _check_resolve(terms, v, impulse_max, restitution, settings, clearance)
    v_plus, info, _ = _resolve(terms, v, draws, e, settings, clearance)
    return v_plus, info


def resolve_order(
    terms: ContactTerms,
    v: jax.Array,
    order: OrderKey,
    settings: TouchingSettings,
    *,
    restitution: jax.Array | float | None,
    clearance: jax.Array | None,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve the impact of one time step of a motion, with draws of a key, each batch lane at its own cost.

    `resolve` is meant for batches that differ in their draws alone. With a clearance `info.complete` may be
    False where it could be True, because no caller reads it then.
    """
    e = _check_resolve(terms, v, order.impulse_step, restitution, settings.steps, clearance)
    return _resolve_order(terms, v, order, e, settings, clearance)


def _check_resolve(
    terms: ContactTerms, v: jax.Array, impulse_max: jax.Array, restitution: jax.typing.ArrayLike | None,
    settings: StepSettings, clearance: jax.Array | None,
) -> jax.Array | None:  # fmt: skip
    """Return the checked coefficients of restitution; raise for input that `resolve` does not accept.

    The largest impulses are (nc,), or (N, nc) with a first axis of steps.
    """
    inputs.check(terms, v)
    steps = jnp.shape(impulse_max)[:-1]
    inputs.check_impulse_max(impulse_max, (*steps, jnp.shape(terms.phi)[0]))
    check_selection(terms, settings.selection, SELECTIONS, settings.num_directions)
    e = energetic_restitution.check_coefficients(terms, restitution)
    inputs.check_clearance(clearance, terms)
    if clearance is not None and e is not None:
        raise ValueError("clearance: expected None with restitution; contacts that open rebound touch")
    return e


def resolve_unchecked(
    terms: ContactTerms,
    v: jax.Array,
    draws: ImpactDraws,
    settings: StepSettings,
    restitution: jax.Array | None = None,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve the impact as `resolve_draws`, without checks, for drivers that have checked their input."""
    v_plus, info, _ = _resolve(terms, v, draws, restitution, settings)
    return v_plus, info


@functools.partial(jit, static_argnames=("settings", "keep_path"))
def resolve_many(
    terms: ContactTerms,
    v: jax.Array,
    draws: ImpactDraws,
    settings: StepSettings,
    keep_path: bool,
    restitution: jax.Array | None = None,
) -> tuple[jax.Array, ImpactInfo, jax.Array | None]:
    """Resolve v (n, nv) with draws that have a first axis of n, unchecked; return the path if `keep_path`.

    `draws.solutions` has the scaled impulses of the steps, without those of restitution.
    """

    def one(v: jax.Array, draws: ImpactDraws) -> tuple[jax.Array, ImpactInfo, jax.Array | None]:
        v_plus, info, path = _resolve(terms, v, draws, restitution, settings)
        return v_plus, info, path if keep_path else None

    return jax.vmap(one)(v, draws)


@functools.partial(jit, static_argnames="settings")
def resolve_until_all_end(
    terms: ContactTerms,
    v: jax.Array,
    draws: ImpactDraws,
    settings: StepSettings,
    restitution: jax.Array | None = None,
) -> tuple[jax.Array, ImpactInfo, None]:
    """Resolve as `resolve_many`, in a loop that ends after the last step that any of them needs.

    Derivative: none.
    """

    def one(v: jax.Array, draws: ImpactDraws) -> tuple[jax.Array, ImpactInfo, None]:
        asked = _question(terms, v, draws, restitution, None)
        resolved = needed_steps(
            asked.terms,
            asked.v,
            lambda k: jax.tree.map(lambda x: x[k], asked.draws),
            draws.pick.shape[0],
            asked.restitution,
            asked.clearance,
            asked.status,
            settings,
        )
        return *_resolve_question(terms, v, asked, resolved), None

    return jax.vmap(one)(v, draws)


@functools.partial(jit, static_argnames="settings")
def _resolve(
    terms: ContactTerms,
    v: jax.Array,
    draws: ImpactDraws,
    restitution: jax.Array | None,
    settings: StepSettings,
    clearance: jax.Array | None = None,
) -> tuple[jax.Array, ImpactInfo, jax.Array]:
    """Resolve an impact without checks; return v_plus, its info and the path (N + 1, nv) of velocities."""
    question = _question(terms, v, draws, restitution, clearance)
    resolved, path = all_steps(*question, settings)
    return *_resolve_question(terms, v, question, resolved), path


@functools.partial(jit, static_argnames="settings")
def _resolve_order(
    terms: ContactTerms,
    v: jax.Array,
    order: OrderKey,
    restitution: jax.Array | None,
    settings: TouchingSettings,
    clearance: jax.Array | None = None,
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    """Resolve an impact without checks, for batches whose lanes differ in their terms."""
    question = _question(terms, v, ImpactDraws(order.impulse_step, jnp.zeros(())), restitution, clearance)
    question = question._replace(draws=order._replace(impulse_step=question.draws.impulse_max))
    return _resolve_question(terms, v, question, resolve_touching(settings, question))


def _question(
    terms: ContactTerms, v: jax.Array, draws: ImpactDraws, restitution: jax.Array | None,
    clearance: jax.Array | None,
) -> ImpactQuestion:  # fmt: skip
    """Replace bad numbers by harmless ones, and return the impact with the status bits that say so."""
    terms, v, status = inputs.prepare(terms, v)
    clearance, trouble = inputs.prepare_clearance(clearance)
    status = status | trouble | draw_status(draws.impulse_max, draws.pick, restitution)
    good = status == 0
    draws = draws._replace(
        impulse_max=jnp.where(good, draws.impulse_max, 0.0), pick=jnp.where(good, draws.pick, 0.0)
    )
    e = None if restitution is None else jnp.where(good, restitution, 0.0)
    return ImpactQuestion(terms, v, draws, e, clearance, status)


def _resolve_question(
    terms: ContactTerms, v: jax.Array, question: ImpactQuestion, resolved: Resolved
) -> tuple[Float[jax.Array, " nv"], ImpactInfo]:
    info = ImpactInfo(
        status=resolved.status,
        residual=resolved.residual,
        impulse=resolved.impulse,
        energy_ratio=energy_ratio(question.terms.M, question.v, resolved.v),
        num_iters=resolved.num_iters,
        complete=resolved.complete,
    )
    return jnp.where(question.status != 0, v, resolved.v), info
