"""Samples of an impact inside the user's own program: a traceable form of `sample`; entry `sample_in_jit`.

The sampling kernel finds the outcomes and the impulses of their steps. Derivatives are those of the steps
with these impulses, by the rule of `resolve`, and are computed only on demand. docs/methods/set-valued.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_count
from jaxcontact.batching import platforms
from jaxcontact.batching.batch_axes import batch_first
from jaxcontact.costs import announce_memory
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import routh
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
from jaxcontact.impact.laws.routh_law import FittedRouth, Routh, fitted_law
from jaxcontact.impact.laws.routh_steps import ImpactDraws
from jaxcontact.impact.sampling.by_modes import tile_size
from jaxcontact.impact.sampling.density import Shaped, shaped
from jaxcontact.impact.sampling.draws import Iid, Sobol
from jaxcontact.impact.sampling.sampling_kernel import (
    LaneProblem,
    LaneResults,
    LaneSettings,
    SampleBatch,
    resolve_lanes,
)
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

_GROUP = 8  # lanes: the size of a tile is a multiple of it, see `mode_filter.any_lane`


@checked(num_samples=check_count, max_contacts=check_count)
def sample_in_jit(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    law: Routh,
    key: jax.Array,
    *,
    num_samples: int,
    max_contacts: int | None = None,
) -> tuple[jax.Array, ImpactInfo]:
    """Draw outcomes of an impact over random impulse orders (Halm & Posa, Algorithm 1), inside `jit`.

    This is `sample` for programs of your own: traceable, of static shape, under `jit`, `vmap`, `lax.scan`,
    `shard_map` (with check_vma=False) and derivatives. The outcomes are those of `sample(..., seed=key)`, up
    to rounding: sample i is a function of the key and i alone.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        law: as `sample`; the selection "visited" learns on the host and is not offered.
        key: a JAX random key, of threefry2x32 or rbg.
        num_samples: n, number of samples (static).
        max_contacts: largest number of active contacts that take part, the first ones in their order; limits
            and draws are those of `max_contacts` contacts, and the others get no impulse. A robot has many
            more candidates than touch. None: all candidates.

    Returns:
        v_plus (n, nv) and ImpactInfo, whose arrays have the samples first: status, residual, energy_ratio and
        num_iters and complete (n,), impulse (n, nc, 1 + nt).

    Raises:
        ValueError, TypeError: as `sample`; a key that is not a JAX random key. A `MemoryWarning` announces
            more than 4 GB.

    Status: per sample, UNTERMINATED and STALLED as `sample`; inside jit all samples have the bits of
        `resolve` for bad numbers, INVALID also for an impulse_step that is not positive, and v_plus is v.
        OVERFLOW if more than `max_contacts` are active.

    Derivative: of each outcome and its impulse, by v, all terms and the numbers of the law, through the
        contact modes of its steps as `resolve`, forward and reverse, any order. Draws, modes and numbers of
        steps are piecewise constant: samples move with the data, but none moves to another mode.
    """
    if not inputs.is_key(key):
        raise TypeError(f"key: expected a JAX random key, got {type(key).__name__}")
    inputs.check_count("num_samples", num_samples)
    fitted = fitted_law(terms, v, law)
    if max_contacts is not None:
        inputs.check_count("max_contacts", max_contacts)
        if max_contacts < terms.phi.shape[0]:
            return _sample_active(terms, v, law, fitted, key, num_samples, max_contacts)
    routh.check_selection(terms, fitted.selection, routh.SELECTIONS, fitted.num_directions)
    random_draws(key, fitted)
    _announce_memory(terms, v, fitted, num_samples)
    return _sample(terms, v, jnp.asarray(key), fitted, int(num_samples))


def _announce_memory(terms: ContactTerms, v: jax.Array, law: FittedRouth, num_samples: int) -> None:
    """Warn if draws, outcomes and impulses of all steps need more than 4 GB."""
    nc, nt, nv = terms.J_t.shape
    numbers = law.max_steps * (nc + 1 + nc * (1 + nt)) + nv + nc * (1 + nt)
    announce_memory(
        "sample_in_jit", int(num_samples), numbers * v.dtype.itemsize, "several calls, or max_contacts=,"
    )


def _sample_active(
    terms: ContactTerms, v: jax.Array, law: Routh, fitted: FittedRouth, key: jax.Array, num_samples: int,
    count: int,
) -> tuple[jax.Array, ImpactInfo]:  # fmt: skip
    """Draw from the first `count` active contacts; the impulses are those of all candidates."""
    index = jnp.argsort(~terms.active, stable=True)[:count]
    e = fitted.restitution
    chosen = law.replace(
        impulse_step=fitted.impulse_step[index], restitution=None if e is None else e[index],
        max_steps=law.num_steps(count),
    )  # fmt: skip
    v_plus, info = sample_in_jit(terms.take(index), v, chosen, key, num_samples=num_samples)
    nc, rows = terms.phi.shape[0], info.impulse.shape[2]
    impulse = jnp.zeros((info.impulse.shape[0], nc, rows), v.dtype).at[:, index].set(info.impulse)
    more = flag(jnp.sum(terms.active) > count, Status.OVERFLOW)
    return v_plus, info.replace(impulse=impulse, status=info.status | more)


def random_draws(key: jax.Array, law: FittedRouth) -> Iid | Sobol | Shaped:
    """Make independent draws with the density of the law."""
    return shaped(Iid(key=key), law.density, law.impulse_step.shape[0])


@functools.partial(jit, static_argnames="num_samples")
def _sample(
    terms: ContactTerms, v: jax.Array, key: jax.Array, law: FittedRouth, num_samples: int
) -> tuple[jax.Array, ImpactInfo]:
    step = law.impulse_step
    law = law.replace(impulse_step=jnp.where(step <= 0, -1.0, step))  # -1 makes the status INVALID
    nc, max_steps = step.shape[0], law.max_steps
    numbers = jnp.arange(num_samples, dtype=jnp.uint32)
    drawn = random_draws(key, law).uniform(numbers, 0, max_steps * (nc + 1), v.dtype)
    data = terms, v, law, drawn.reshape(max_steps, nc + 1, num_samples)
    if law.selection == "lemke" or law.turn_polygon:
        return _resolve_by_steps(data, None)
    v_plus, info, changes = _sample_by_modes(terms, v, key, law, num_samples)
    v_plus, impulse = implicit.attach(
        _misfit_of_steps, _solve_identity, (data, changes), (v_plus, info.impulse)
    )
    return v_plus, info.replace(impulse=impulse)


_Data = tuple[ContactTerms, jax.Array, FittedRouth, jax.Array]


def _resolve_by_steps(data: _Data, impulses: jax.Array | None) -> tuple[jax.Array, ImpactInfo]:
    """Resolve the samples one step after the other, differentiably.

    `impulses` (N, r, n) are the impulses of the steps, if they are known.
    """
    terms, v, law, drawn = data
    nc, num_samples = law.impulse_step.shape[0], drawn.shape[2]
    start = jnp.broadcast_to(v, (num_samples, v.shape[0]))
    draws = ImpactDraws(
        impulse_max=jnp.moveaxis(drawn[:, :nc] * law.impulse_step[None, :, None], 2, 0),
        pick=drawn[:, nc].T,
        solutions=None if impulses is None else jnp.moveaxis(impulses, 2, 0),
    )
    return routh.resolve_many(terms, start, draws, law.steps, False, law.restitution)[:2]


def _misfit_of_steps(data: tuple[_Data, jax.Array], at: PyTree) -> PyTree:
    """Compute outcomes and impulses minus those of repeated steps, which determine the derivative."""
    v_plus, info = _resolve_by_steps(*data)
    return at[0] - v_plus, at[1] - info.impulse


def _solve_identity(data: PyTree, at: PyTree, rhs: PyTree) -> PyTree:
    """Solve the equations of a derivative whose matrix, of `_misfit_of_steps` by `at`, is the identity."""
    return rhs


def _sample_by_modes(
    terms: ContactTerms, v: jax.Array, key: jax.Array, law: FittedRouth, num_samples: int
) -> tuple[jax.Array, ImpactInfo, jax.Array]:
    """Sample by contact modes; return outcomes (n, nv), info, step impulses (N, r, n). No derivative."""
    v_in = lax.stop_gradient(v)
    terms, v, law = lax.stop_gradient((terms, v, law))
    step, e = law.impulse_step, law.restitution
    terms, v, status = inputs.prepare(terms, v)
    status = status | routh.draw_status(step, jnp.zeros_like(step), e)
    step = jnp.where(status == 0, step, 1.0)
    elastic = None if e is None else jnp.where(status == 0, e, 0.0) ** 2
    space = contact_space(terms)
    begins = jnp.any(approaching(space, v, slowest_approach(space, v))) & (status == 0)
    run = functools.partial(_draw_lanes, num_samples=num_samples)
    # The kernel expects the squares of the coefficients in place of the coefficients.
    data = space, key, v, law.replace(impulse_step=step, restitution=elastic), begins
    lanes, holds_all = batch_first(run, functools.partial(_run_worlds, run), *data)
    v_plus = v[None] + jnp.einsum("rn,vr->nv", lanes.impulse, space.response)
    left = flag(lanes.collides, Status.UNTERMINATED) | residual_status(lanes.residual)
    info = ImpactInfo(
        status=status | left,
        residual=lanes.residual,
        impulse=(lanes.impulse * space.scale[:, None]).T.reshape(num_samples, step.shape[0], -1),
        energy_ratio=jax.vmap(energy_ratio, (None, None, 0))(terms.M, v, v_plus),
        num_iters=lanes.num_iters,
        complete=jnp.broadcast_to((holds_all | ~begins) & (status == 0), (num_samples,)),
    )
    assert lanes.changes is not None
    return jnp.where(status == 0, v_plus, v_in[None]), info, lanes.changes


def _draw_lanes(
    space: ContactSpace,
    key: jax.Array,
    v: jax.Array,
    law: FittedRouth,
    begins: jax.Array,
    *,
    num_samples: int,
) -> tuple[LaneResults, jax.Array]:
    """Draw all samples of one impact, none if it does not begin; tell whether all modes were candidates."""
    directions = friction_directions(space.num_tangents, law.num_directions)
    table = mode_table(space, directions, capped=True)
    count = jnp.where(begins, jnp.int32(num_samples), 0)
    padded_samples = -(-num_samples // _GROUP) * _GROUP

    def tiled(platform: str) -> Callable[..., LaneResults]:
        settings = LaneSettings(
            max_steps=law.max_steps,
            tile=min(tile_size(table.regular.shape[0], platform), padded_samples),
            keep_changes=True,
            num_directions=law.num_directions,
        )
        return functools.partial(resolve_lanes, settings=settings)

    draws = random_draws(key, law)
    problem = LaneProblem(space, table, draws, v, law.impulse_step, elastic=law.restitution)
    data = problem, SampleBatch(jnp.arange(num_samples, dtype=jnp.uint32), count)
    lanes: LaneResults = platforms.choose(*data, cpu=tiled("cpu"), other=tiled("gpu"))
    return lanes, ~jnp.any(table.unresolved)


def _run_worlds(run: Callable[..., PyTree], *arguments: PyTree) -> PyTree:
    """Run many impacts: on a CPU one after the other, so that tiles stay in its cache, else together."""
    return platforms.choose(
        *arguments, cpu=lambda *worlds: lax.map(lambda world: run(*world), worlds), other=jax.vmap(run)
    )
