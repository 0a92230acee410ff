"""Samples of an impact inside the user's own program: what `sample` does on the host, traced.

The sampling kernel finds the outcomes and the impulses of their steps. Derivatives are those of the steps
with these impulses, by the rule of `resolve`, and are computed only where somebody differentiates.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import implicit
from jaxcontact.batching import platforms
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import energetic_restitution, routh
from jaxcontact.impact.laws.contact_enumeration import mode_table
from jaxcontact.impact.laws.contact_space import (
    ContactSpace,
    ImpactInfo,
    approaching,
    contact_space,
    energy_ratio,
    friction_directions,
    residual_status,
    slowest_approach,
)
from jaxcontact.impact.laws.turned_polygon import check_turning
from jaxcontact.impact.sampling.by_modes import tile_size
from jaxcontact.impact.sampling.draws import Iid
from jaxcontact.impact.sampling.driver import step_sizes
from jaxcontact.impact.sampling.sampling_kernel import LaneResults, resolve_lanes
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

_GROUP = 8  # a tile has a multiple of so many lanes, see `mode_filter.any_lane`


def sample_in_jit(
    terms: ContactTerms,
    v: jax.Array,
    key: jax.Array,
    *,
    step: jax.Array | np.ndarray | float,
    max_steps: int,
    num_samples: int,
    selection: str = "all",
    restitution: jax.Array | float | None = None,
    num_directions: int = 8,
    turn_polygon: bool = False,
    max_contacts: int | None = None,
) -> tuple[jax.Array, ImpactInfo]:
    """Outcomes of an impact over random impulse orders (Halm & Posa, Algorithm 1), inside `jit`.

    `sample` for programs of your own: traceable, of static shape, under `jit`, `vmap`, `lax.scan`,
    `shard_map` (with check_vma=False) and derivatives. The outcomes are those of `sample(..., key=key)`, up
    to rounding: sample i is a function of the key and i alone.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        key: a JAX random key, of threefry2x32 or rbg.
        step: largest normal impulse of a step, a number or (nc,), N s.
        max_steps: N, the largest number of steps (static).
        num_samples: n, how many samples (static).
        selection: "all": uniform among the distinct solutions of each step (planar, nc <= 5; in space as
            `sample`). "lemke": the one that pivoting finds. See `sample`, whose "visited" learns on the host
            and is not offered here.
        restitution: e, a number or (nc,) in 0..1, see `resolve`. 0 or None: inelastic.
        num_directions: sides of the friction cone in space; no effect in the plane.
        turn_polygon: as `sample`.
        max_contacts: so many of the active contacts at most take part, the first ones in their order; limits
            are those of so many contacts, and the others get no impulse. A robot has many more candidates
            than touch. Draws are then those of so many contacts. None: all candidates.

    Returns:
        v_plus (n, nv) and ImpactInfo, whose arrays have the samples first: status, residual, energy_ratio and
        num_solves and complete (n,), impulse (n, nc, 1 + nt).

    Raises:
        ValueError, TypeError: as `sample`; a key that is none.

    Status: per sample, UNTERMINATED and STALLED as `sample`; inside jit all samples have the bits of
        `resolve` for bad numbers, INVALID also for a step that is not positive, and v_plus is v. OVERFLOW
        where more than `max_contacts` are active.

    Derivative: of each outcome and its impulse, by v, step, restitution and all terms, through the contact
        modes of its steps as `resolve`, forward and reverse, any order. Draws, modes and numbers of steps are
        piecewise constant: samples move with the data, but none moves to another mode.
    """
    inputs.check(terms, v)
    nc = terms.phi.shape[0]
    if not isinstance(key, jax.Array | np.ndarray):
        raise TypeError(f"key: expected a JAX random key, got {type(key).__name__}")
    if inputs.is_concrete(step):
        step_sizes(step, nc)
    elif jnp.shape(step) not in ((), (nc,)):
        raise ValueError(f"step: expected a number or shape ({nc},), got shape {jnp.shape(step)}")
    inputs.check_count("max_steps", max_steps)
    inputs.check_count("num_samples", num_samples)
    e = energetic_restitution.check(terms, restitution)
    steps = jnp.broadcast_to(jnp.asarray(step, v.dtype), (nc,))
    if max_contacts is not None:
        inputs.check_count("max_contacts", max_contacts)
        if max_contacts < nc:
            settings: dict[str, Any] = {"max_steps": max_steps, "num_samples": num_samples}
            settings |= {
                "selection": selection,
                "num_directions": num_directions,
                "turn_polygon": turn_polygon,
            }
            return _of_active(terms, v, key, steps, e, max_contacts, settings)
    routh.check_selection(terms, selection, routh.SELECTIONS, num_directions)
    if turn_polygon:
        check_turning(terms, selection)
    return _sample(
        terms, v, jnp.asarray(key), steps, e, int(max_steps), int(num_samples), selection, num_directions,
        turn_polygon,
    )  # fmt: skip


def _of_active(
    terms: ContactTerms, v: jax.Array, key: jax.Array, step: jax.Array, e: jax.Array | None, count: int,
    settings: dict[str, Any],
) -> tuple[jax.Array, ImpactInfo]:  # fmt: skip
    """`sample_in_jit` of the first `count` active contacts, with the impulses of all."""
    index = jnp.argsort(~terms.active, stable=True)[:count]
    v_plus, info = sample_in_jit(
        terms.take(index), v, key, step=step[index], restitution=None if e is None else e[index], **settings
    )
    nc, rows = terms.phi.shape[0], info.impulse.shape[2]
    impulse = jnp.zeros((info.impulse.shape[0], nc, rows), v.dtype).at[:, index].set(info.impulse)
    more = flag(jnp.sum(terms.active) > count, Status.OVERFLOW)
    return v_plus, info.replace(impulse=impulse, status=info.status | more)


@functools.partial(jit, static_argnums=(5, 6, 7, 8, 9))
def _sample(
    terms: ContactTerms,
    v: jax.Array,
    key: jax.Array,
    step: jax.Array,
    e: jax.Array | None,
    max_steps: int,
    num_samples: int,
    selection: str,
    num_directions: int,
    turn_polygon: bool,
) -> tuple[jax.Array, ImpactInfo]:
    step = jnp.where(step <= 0, -1.0, step)  # which no step of an impact takes
    nc = step.shape[0]
    numbers = jnp.arange(num_samples, dtype=jnp.uint32)
    drawn = Iid(key=key).uniform(numbers, 0, max_steps * (nc + 1), v.dtype)
    given = terms, v, step, e, drawn.reshape(max_steps, nc + 1, num_samples)
    again = functools.partial(
        _by_steps, selection=selection, num_directions=num_directions, turn_polygon=turn_polygon
    )
    if selection == "lemke" or turn_polygon:
        return again(given, None)
    v_plus, info, changes = _by_modes(terms, v, key, step, e, max_steps, num_samples, num_directions)
    v_plus, impulse = implicit.attach(
        functools.partial(_misfit, again), _unchanged, (given, changes), (v_plus, info.impulse)
    )
    return v_plus, info.replace(impulse=impulse)


_Given = tuple[ContactTerms, jax.Array, jax.Array, jax.Array | None, jax.Array]


def _by_steps(
    given: _Given, known: jax.Array | None, *, selection: str, num_directions: int, turn_polygon: bool
) -> tuple[jax.Array, ImpactInfo]:
    """The samples one step after the other, with the impulses (N, r, n) that are known; differentiable."""
    terms, v, step, e, drawn = given
    nc, num_samples = step.shape[0], drawn.shape[2]
    start = jnp.broadcast_to(v, (num_samples, v.shape[0]))
    caps = jnp.moveaxis(drawn[:, :nc] * step[None, :, None], 2, 0)
    picks = drawn[:, nc].T
    first_known = None if known is None else jnp.moveaxis(known, 2, 0)
    return routh.resolve_many(
        terms, start, caps, selection, num_directions, False, picks, e, first_known, turn_polygon=turn_polygon
    )[:2]


def _misfit(again: Any, data: tuple[_Given, jax.Array], at: Any) -> Any:
    """Of outcomes and impulses from those of the steps taken again: its derivative is theirs."""
    v_plus, info = again(*data)
    return at[0] - v_plus, at[1] - info.impulse


def _unchanged(data: Any, at: Any, rhs: Any) -> Any:
    return rhs


def _by_modes(
    terms: ContactTerms,
    v: jax.Array,
    key: jax.Array,
    step: jax.Array,
    e: jax.Array | None,
    max_steps: int,
    num_samples: int,
    num_directions: int,
) -> tuple[jax.Array, ImpactInfo, jax.Array]:
    """Outcomes (n, nv), what is said of them, and the impulses (N, r, n) of the steps. No derivative."""
    v_in = lax.stop_gradient(v)
    terms, v, step, e = lax.stop_gradient((terms, v, step, e))
    terms, v, status = inputs.prepare(terms, v)
    status = status | routh.draw_status(step, jnp.zeros_like(step), e)
    step = jnp.where(status == 0, step, 1.0)
    elastic = None if e is None else jnp.where(status == 0, e, 0.0) ** 2
    space = contact_space(terms)
    begins = jnp.any(approaching(space, v, slowest_approach(space, v))) & (status == 0)
    run = functools.partial(
        _lanes, max_steps=max_steps, num_samples=num_samples, num_directions=num_directions
    )
    given = space, key, v, step, elastic, begins
    lanes, holds_all = batch_first(run, functools.partial(_worlds, run), *given)
    v_plus = v[None] + jnp.einsum("rn,vr->nv", lanes.impulse, space.response)
    left = flag(lanes.collides, Status.UNTERMINATED) | residual_status(lanes.residual)
    info = ImpactInfo(
        status=status | left,
        residual=lanes.residual,
        impulse=(lanes.impulse * space.scale[:, None]).T.reshape(num_samples, step.shape[0], -1),
        energy_ratio=jax.vmap(energy_ratio, (None, None, 0))(terms.M, v, v_plus),
        num_solves=lanes.num_solves,
        complete=jnp.broadcast_to((holds_all | ~begins) & (status == 0), (num_samples,)),
    )
    assert lanes.changes is not None
    return jnp.where(status == 0, v_plus, v_in[None]), info, lanes.changes


def _lanes(
    space: ContactSpace,
    key: jax.Array,
    v: jax.Array,
    step: jax.Array,
    elastic: jax.Array | None,
    begins: jax.Array,
    *,
    max_steps: int,
    num_samples: int,
    num_directions: int,
) -> tuple[LaneResults, jax.Array]:
    """All samples of one impact, none where it does not begin; and whether all modes were looked at."""
    directions = friction_directions(space.num_tangents, num_directions)
    table = mode_table(space, directions, capped=True)
    count = jnp.where(begins, jnp.int32(num_samples), 0)
    whole = -(-num_samples // _GROUP) * _GROUP

    def tiled(platform: str) -> Callable[..., LaneResults]:
        return functools.partial(
            resolve_lanes,
            max_steps=max_steps,
            tile=min(tile_size(table.regular.shape[0], platform), whole),
            keep_path=False,
            keep_changes=True,
            elastic=elastic,
            num_directions=num_directions,
        )

    numbers = jnp.arange(num_samples, dtype=jnp.uint32)
    given = space, table, Iid(key=key), v, step, numbers, count
    lanes: LaneResults = platforms.choose(*given, cpu=tiled("cpu"), other=tiled("gpu"))
    return lanes, ~jnp.any(table.unresolved)


def _worlds(run: Callable[..., Any], *given: Any) -> Any:
    """Many impacts: on a CPU one after the other, whose tiles stay in its cache, else together."""
    return platforms.choose(
        *given, cpu=lambda *each: lax.map(lambda one: run(*one), each), other=jax.vmap(run)
    )
