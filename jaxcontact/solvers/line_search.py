"""The length of a step along a direction in which a `ConeProgram` falls: `line_search`."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers.cone_program import ConeProgram, Response, along, project_impulses
from jaxcontact.solvers.roots import safeguarded_newton

SEARCH_STEPS = 12  # largest number of steps of the safeguarded Newton method
SEARCH_SHARE = 0.1  # of the slope at the start; a smaller slope ends a line search


class SearchDirection(NamedTuple):
    """A direction of descent.

    Attributes:
        du: (nr,) rates along it.
        start: derivative of the objective at the start.
        linear, curvature: of the quadratic part of the objective.
    """

    du: jax.Array
    start: jax.Array
    linear: jax.Array
    curvature: jax.Array


def line_search(
    program: ConeProgram,
    z: jax.Array,
    u: jax.Array,
    direction: SearchDirection,
    live: jax.Array,
    early_exit: bool = True,
) -> tuple[jax.Array, jax.Array]:
    """Find the length in (0, 1] at which the objective stops falling along a direction.

    The derivative of the objective by the length a is linear + a curvature - p(z - a slope du) . du, which
    increases. There is no search if not `live`. Returns the length, and the impulses (nr,) there.
    """
    du, start, linear, curvature = direction
    fall = program.slope * du

    def respond_at(a: jax.Array) -> Response:
        return project_impulses(program, z - a * fall, u + a * du)

    def slope_at(a: jax.Array) -> tuple[jax.Array, jax.Array]:
        pushed, bend = along(respond_at(a), du)
        return linear + a * curvature - pushed, curvature + bend

    def search(carry: tuple) -> tuple:
        k, a, low, high, slope, bend, _ = carry
        a, low, high = safeguarded_newton(a, slope, bend, low, high)
        slope, bend = slope_at(a)
        return k + 1, a, low, high, slope, bend, jnp.abs(slope) > enough

    full_length = jnp.ones_like(linear)
    enough = SEARCH_SHARE * jnp.abs(start)
    slope, _ = slope_at(full_length)
    # If the objective still falls at full length, that is enough; else the secant is the first guess.
    searching = live & (slope > enough)
    zero = jnp.zeros_like(full_length)
    first = (jnp.int32(0), full_length, zero, full_length, slope, slope - start, searching)

    end = bounded_loop(
        lambda carry: (carry[0] < SEARCH_STEPS) & carry[-1],
        search,
        first,
        max_iters=SEARCH_STEPS,
        early_exit=early_exit,
    )
    return end[1], respond_at(end[1]).p
