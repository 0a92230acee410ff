"""How far to go along a direction in which a `ConeProgram` falls."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers.cone_program import ConeProgram, Response, along, respond
from jaxcontact.solvers.roots import safeguarded_newton

SEARCH_STEPS = 12
SEARCH_SHARE = 0.1  # slope left, relative to the slope at its start, that ends a line search


def line_search(
    program: ConeProgram,
    z: jax.Array,
    u: jax.Array,
    du: jax.Array,
    start: jax.Array,
    linear: jax.Array,
    curvature: jax.Array,
    live: jax.Array,
    early_exit: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """The length in (0, 1] at which the objective stops falling, for a direction with rates du (nr,).

    Its derivative by the length a is linear + a curvature - p(z - a slope du) . du: increasing, and `start`
    at a = 0. Nothing is searched that is not `live`. Returns the impulses (nr,) there, too.
    """
    fall = program.slope * du

    def respond_at(a: jax.Array) -> Response:
        return respond(program, z - a * fall, u + a * du)

    def slope_at(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        pushed, bend = along(respond_at(a), du)
        return linear + a * curvature - pushed, curvature + bend

    def search(carry: tuple) -> tuple:
        k, a, low, high, slope, bend, _ = carry
        a, low, high = safeguarded_newton(a, slope, bend, low, high)
        slope, bend = slope_at(a)
        return k + 1, a, low, high, slope, bend, jnp.abs(slope) > enough

    one = jnp.ones_like(linear)
    enough = SEARCH_SHARE * jnp.abs(start)
    slope, _ = slope_at(one)
    # A slope that is still falling at full length is progress enough; else the secant is the first guess.
    searching = live & (slope > enough)
    first = (jnp.int32(0), one, jnp.zeros_like(one), one, slope, slope - start, searching)

    end = bounded_loop(
        lambda carry: (carry[0] < SEARCH_STEPS) & carry[-1],
        search,
        first,
        most=SEARCH_STEPS,
        early_exit=early_exit,
    )
    return end[1], respond_at(end[1]).p
