"""Extreme outcomes by gradient ascent: the ends of the post-impact set, which sampling only approaches."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.impact import inputs
from jaxcontact.impact.laws import routh
from jaxcontact.impact.sampling.draws import sobol
from jaxcontact.precision import jit
from jaxcontact.status import Status
from jaxcontact.terms import ContactTerms


class Extreme(Record):
    """The outcome farthest along a direction that the search reached, and the impulse order that leads to it.

    Attributes:
        v_plus: (nv,) the outcome.
        value: direction . v_plus.
        impulse_max: (N, nc) caps of the steps, N s; with `pick` they reproduce v_plus by `resolve`.
        pick: (N,) choices among the solutions of the steps.
        status: uint32 bits of `resolve`; UNTERMINATED if no start ended its impact.
        values: (num_starts,) best value of every start, -inf where none ended.
    """

    v_plus: jax.Array
    value: jax.Array
    impulse_max: jax.Array
    pick: jax.Array
    status: jax.Array
    values: jax.Array


def extreme(
    terms: ContactTerms,
    v: jax.Array,
    direction: jax.Array,
    *,
    step: float,
    max_steps: int,
    num_starts: int = 128,
    num_iterations: int = 150,
    seed: int = 0,
    selection: str = "all",
) -> Extreme:
    """Search for the impulse order whose outcome lies farthest along a direction.

    The search maximises direction . v_plus over the caps in [0, step] of `resolve`, by projected gradient
    ascent from many quasi-random starts in parallel; the starts also draw the choices among solutions. The
    objective is piecewise smooth, so the search is local: its result is an outcome with its impulse order,
    and no proof that no outcome lies farther.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        direction: (nv,) covector. A row of J_n, for example, maximises the separation speed of its contact.
        step: largest normal impulse of a step, N s.
        max_steps: number of steps N.
        num_starts: starts in parallel.
        num_iterations: gradient steps of each.
        seed: of the starts.
        selection: "all" or "lemke", as in `resolve`.

    Returns:
        Extreme.

    Raises:
        ValueError, TypeError: as `resolve`; a direction of the wrong shape, not finite or zero.

    Status: of the best outcome, as `resolve`.

    Derivative: none; a driver for the host.
    """
    inputs.check(terms, v)
    inputs.check_array("direction", direction)
    if jnp.shape(direction) != jnp.shape(v):
        raise ValueError(f"direction: expected shape {jnp.shape(v)}, got {jnp.shape(direction)}")
    if not np.all(np.isfinite(np.asarray(direction))) or not np.any(np.asarray(direction)):
        raise ValueError("direction: expected finite numbers, not all zero")
    for name, number in (
        ("max_steps", max_steps),
        ("num_starts", num_starts),
        ("num_iterations", num_iterations),
    ):
        inputs.check_count(name, number)
    if not (np.isfinite(step) and step > 0):
        raise ValueError(f"step: expected a finite number > 0, got {step}")
    routh.check_selection(terms, selection, routh.SELECTIONS, 8)
    nc = terms.phi.shape[0]
    draws = sobol(max_steps * (nc + 1), seed)
    index = jnp.arange(num_starts, dtype=jnp.uint32)
    start = draws.uniform(index, 0, max_steps * (nc + 1), v.dtype).T.reshape(num_starts, max_steps, nc + 1)
    # Sequences of single impacts are corners of the cube of caps, so half of the starts are corners.
    corner = jnp.round(start[..., :nc])
    shares = jnp.where((index % 2 == 0)[:, None, None], start[..., :nc], corner)
    return _climb(terms, v, direction, float(step), shares, start[..., nc], num_iterations, selection)


@functools.partial(jit, static_argnums=(6, 7))
def _climb(
    terms: ContactTerms,
    v: jax.Array,
    direction: jax.Array,
    step: float,
    shares: jax.Array,
    pick: jax.Array,
    num_iterations: int,
    selection: str,
) -> Extreme:
    def value(share: jax.Array, picks: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        v_plus, info = routh.resolve_unchecked(terms, v, step * share, picks, selection)
        return direction @ v_plus, (v_plus, info.status)

    slopes = jax.vmap(jax.value_and_grad(value, has_aux=True))

    def iterate(carry: tuple, fraction: jax.Array) -> tuple[tuple, None]:
        share, best_share, best_value, best_v = carry
        (outcome_value, (v_plus, status)), slope = slopes(share, pick)
        improved = (status == 0) & (outcome_value > best_value)
        best_value = jnp.where(improved, outcome_value, best_value)
        best_share = jnp.where(improved[:, None, None], share, best_share)
        best_v = jnp.where(improved[:, None], v_plus, best_v)
        # The size of a step does not depend on the slope, because slopes of the pieces differ by orders of
        # magnitude. The steps shrink geometrically from the best point so far, so they settle on the edge of
        # its piece.
        size = jnp.max(jnp.abs(slope), axis=(1, 2), keepdims=True)
        move = fraction * slope / jnp.where(size > 0, size, 1.0)
        off_best = ~improved & (fraction < 0.02) & jnp.isfinite(best_value)
        base = jnp.where(off_best[:, None, None], best_share, share)
        return (jnp.clip(base + move, 0.0, 1.0), best_share, best_value, best_v), None

    starts = shares.shape[0]
    fractions = jnp.geomspace(0.3, 1e-7, num_iterations, dtype=shares.dtype)
    begin = (shares, shares, jnp.full(starts, -jnp.inf, v.dtype), jnp.broadcast_to(v, (starts, v.size)))
    (_, best_share, best_value, _), _ = lax.scan(iterate, begin, fractions)
    winner = jnp.argmax(best_value)
    caps = step * best_share[winner]
    v_plus, info = routh.resolve_unchecked(terms, v, caps, pick[winner], selection)
    nothing_ended = ~jnp.isfinite(best_value[winner])
    return Extreme(
        v_plus=v_plus,
        value=direction @ v_plus,
        impulse_max=caps,
        pick=pick[winner],
        status=info.status | jnp.where(nothing_ended, jnp.uint32(int(Status.UNTERMINATED)), jnp.uint32(0)),
        values=best_value,
    )
