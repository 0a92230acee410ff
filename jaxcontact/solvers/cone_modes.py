"""The modes of the rows of a `ConeProgram`: the points at which steps of Newton's method linearise the law.

Entries: `foresee` from known impulses, `next_modes` after a step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.algebra import cones
from jaxcontact.solvers.cone_program import ConeProgram, split
from jaxcontact.solvers.row_algebra import apply_rows
from jaxcontact.tolerances import SAME_IMPULSE, rounding


class FullStep(NamedTuple):
    """The end of a step of full length that renews the impulses: x (nv,), p (nr,), rates u and z (nr,).

    `law` (nr,) is the law's answer to z. `misfit` is the largest difference of p from it and `imbalance` that
    of the momenta, as energies.
    """

    x: jax.Array
    p: jax.Array
    u: jax.Array
    z: jax.Array
    law: jax.Array
    misfit: jax.Array
    imbalance: jax.Array


def next_modes(program: ConeProgram, base: jax.Array, law: jax.Array, step: FullStep) -> jax.Array:
    """Choose the point (nr,) at which the next step linearises the law.

    This step used the tangent at `base` (nr,), at which the law has the value `law`. For a row that holds the
    point is its impulse p, which may be more than it can hold; for a row that gives way, z. A row whose rate
    has reversed while it gave way, as with stiff friction, holds.
    """
    ne, singles = program.num_equalities, program.num_equalities + program.num_limits
    held = step.p[:ne]
    if program.dry_bound is not None:
        goes_on = jnp.where(step.u[:ne] * base[:ne] < 0, step.z[:ne], 0.0)
        held = jnp.where(jnp.abs(base[:ne]) > program.dry_bound, goes_on, held)
    pushed = jnp.where(base[ne:singles] > 0, step.p[ne:singles], step.z[ne:singles])
    contacts = _next_contact_modes(program, base, law, step) if program.mu.shape[0] else []
    return jnp.concatenate([held, pushed, *contacts])


def _next_contact_modes(
    program: ConeProgram, base: jax.Array, law: jax.Array, step: FullStep
) -> list[jax.Array]:
    """Choose the contact entries (nc,) of `next_modes`: normals, first tangents[, second tangents]."""
    singles, nc, fixed_bound = program.num_equalities + program.num_limits, program.mu.shape[0], program.bound
    (_, *rubbing), (pushing, *_) = split(base, singles, nc), split(law, singles, nc)
    (p_n, *p_t), (z_n, *z_t), (_, *slip) = (split(vector, singles, nc) for vector in (step.p, step.z, step.u))
    bound, next_bound = (program.mu * n if fixed_bound is None else fixed_bound for n in (pushing, p_n))
    sizes, units = cones.directions(rubbing, program.pyramid and fixed_bound is None)
    slides = [size > bound for size in sizes]
    turned = [sum(a * b for a, b in zip(unit, slip, strict=True)) >= 0 for unit in units]
    goes_on = [slide & ~(turn & (bound > 0)) for slide, turn in zip(slides, turned, strict=True)]
    rests = (pushing > 0) & (p_n > 0)
    tangents = []
    for j, (pushed, moved) in enumerate(zip(p_t, z_t, strict=True)):
        at = min(j, len(sizes) - 1)
        stopped = jnp.where(slides[at], 0.5 * next_bound * units[at][j], pushed)
        gives = goes_on[at] if fixed_bound is not None else goes_on[at] | ~rests
        tangents.append(jnp.where(gives, moved, stopped))
    if fixed_bound is None:  # a cone lifts a contact that slides
        rests = rests & ~functools.reduce(jnp.logical_or, goes_on)
    return [jnp.where(rests, p_n, z_n), *tangents]


def _slipping(program: ConeProgram, start: jax.Array) -> jax.Array:
    """Compute rates (nr,) of slip of contacts whose impulse in `start` (nr,) is at its bound; else zero.

    The tangential rates are those of program.v. A cone lifts a contact that slips by mu times its speed.
    """
    singles, nc = program.num_equalities + program.num_limits, program.mu.shape[0]
    normal, *tangent = split(start, singles, nc)
    _, *rates = split(apply_rows(program.columns, program.v), singles, nc)
    bound = program.mu * normal if program.bound is None else program.bound
    pyramid = program.pyramid and program.bound is None
    sizes, speeds = (cones.directions(tangents, pyramid)[0] for tangents in (tangent, rates))
    slips = [(normal > 0) & (size >= (1.0 - _margin(start)) * bound) for size in sizes]
    lift = sum(program.mu * jnp.where(slip, speed, 0.0) for slip, speed in zip(slips, speeds, strict=True))
    if program.bound is not None:
        lift = jnp.zeros_like(normal)
    slip_rates = [jnp.where(slips[min(j, len(slips) - 1)], rate, 0.0) for j, rate in enumerate(rates)]
    return jnp.concatenate([jnp.zeros(singles, start.dtype), lift, *slip_rates])


def _margin(start: jax.Array) -> float:
    """Compute the fraction by which a tangential impulse may miss its bound and still count as sliding."""
    return rounding(start.dtype, SAME_IMPULSE)


def foresee(program: ConeProgram, start: jax.Array) -> jax.Array:
    """Choose the point (nr,) that linearises the law if every row keeps the mode of its impulse in `start`.

    Rates alone do not determine the mode of a stiff row: the smallest error makes a resting contact slide or
    lift. Its last impulse (nr,) determines it better.
    """
    contacts = program.num_equalities + program.num_limits + program.mu.shape[0]
    if not program.mu.shape[0]:
        return start
    return start.at[contacts:].multiply(1.0 + _margin(start)) - program.slope * _slipping(program, start)
