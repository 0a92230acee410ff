"""The energy of one step against the work done in it: the test for the status bit ENERGY.

Entry: `gains_energy`. Equations: docs/methods/compliant.md, "The energy of a step".
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact.compliant.problem import (
    Problem,
    by_axis,
    count_rows,
    friction_springs,
    gaps_of,
    rubs_by_mass,
    spread_springs,
    start_rates,
    stretch_after,
)
from jaxcontact.solvers import row_algebra
from jaxcontact.solvers.cone_program import ConeProgram


def gains_energy(problem: Problem, program: ConeProgram, x: jax.Array, p: jax.Array) -> jax.Array:
    """Decide whether the step to x with impulses p gains more than the work and elastic energy supplied.

    More than rounding: the square root of the precision, to which momenta are balanced, times the energies
    that are compared. Kinetic energy is that at the configuration where the step starts.
    """
    terms, h, material = problem.terms, problem.dt, problem.material
    nb, nl, nc, axes = count_rows(terms.kind)
    heads = nb + nl + nc
    drift = h * by_axis(terms.gdot_v, terms.kind)
    u = row_algebra.apply_rows(program.columns, x) + drift
    work = p * u
    tangent = jnp.sum(work[heads:].reshape(axes - 1, nc), axis=0)
    held, *sprung = _work_on_springs(problem, p[heads:].reshape(axes - 1, nc).T / h)
    tangent = tangent - held
    supplied = work[:heads].at[nb + nl :].add(tangent)
    pushes = p[:heads] > 0
    answers = jnp.where(pushes, supplied / jnp.where(pushes, p[:heads], 1.0), u[:heads])
    stiffness, _, mass = spread_springs(problem, lifts=not program.coulomb)
    depth = -by_axis(terms.phi, terms.kind)[:heads]

    def elastic(depth: jax.Array) -> jax.Array:
        energy = 0.5 * stiffness * depth**2
        return energy if material.potential is None else energy.at[nb:].add(material.potential(depth[nb:]))

    before, after, bent = elastic(depth), elastic(depth - h * u[:heads]), elastic(depth - h * answers)
    used = pushes | (jnp.arange(heads) < nb)
    released = jnp.where(used, before - jnp.minimum(after, bent), 0.0)
    if mass is not None:
        first = start_rates(problem)
        arrives, leaves = first[:heads] ** 2, jnp.minimum(u[:heads] ** 2, answers**2)
        if rubs_by_mass(problem, lifts=not program.coulomb):
            arrives, rubbed = _rates_with_friction(first, p, arrives, heads, nc)
            slower = jnp.sum((first**2 - u**2)[heads:].reshape(axes - 1, nc), axis=0)
            released = released.at[nb + nl :].add(0.5 * mass[nb + nl :] * jnp.maximum(slower, 0.0) * rubbed)
        is_open = jnp.concatenate([jnp.zeros(nb, bool), gaps_of(problem).is_open])
        carried = 0.5 * mass * (arrives - leaves)  # at a gap that closes the impulse may be any smaller one
        released = released + jnp.where(used, jnp.where(is_open, jnp.maximum(carried, 0.0), carried), 0.0)
    kinetic = jnp.stack([0.5 * v @ row_algebra.multiply(problem.M, v) for v in (x, problem.v)])
    compared = jnp.abs(kinetic).sum() + jnp.abs(x) @ jnp.abs(program.push) + jnp.abs(work).sum()
    compared = compared + jnp.abs(p) @ jnp.abs(drift)
    compared = compared + jnp.sum(jnp.where(used, jnp.abs(before) + jnp.abs(after) + jnp.abs(bent), 0.0))
    compared = compared + jnp.sum(jnp.abs(released))
    compared = compared + jnp.sum(jnp.abs(held)) + sum(map(jnp.sum, sprung))
    rise = kinetic[0] - kinetic[1] - x @ program.push + p @ drift - jnp.sum(released)
    rise = rise - jnp.sum(sprung[0] - sprung[1])
    return rise > jnp.finfo(x.dtype).eps ** 0.5 * compared


def _rates_with_friction(
    first: jax.Array, p: jax.Array, arrives: jax.Array, heads: int, nc: int
) -> tuple[jax.Array, jax.Array]:
    """Raise squares of rates at the start to those along the impulses of contacts; return also who pushes."""
    contacts = slice(heads - nc, heads)
    pushes = p[contacts] > 0
    along = jnp.sum((p * first)[heads - nc :].reshape(-1, nc), axis=0)
    along = jnp.where(pushes, along / jnp.where(pushes, p[contacts], 1.0), 0.0)
    return arrives.at[contacts].max(along**2), pushes


def _work_on_springs(problem: Problem, force: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the work (nc,) of forces (nc, nt) on friction springs and dampers, and energies of springs."""
    end = stretch_after(problem.material, problem.stretch, force, problem.dt)
    if end is None:
        return (jnp.zeros(force.shape[0], force.dtype),) * 3
    start = jnp.zeros_like(end) if problem.stretch is None else problem.stretch
    stiff, _ = friction_springs(problem.material, force.shape[0], force.dtype)
    before, after = (0.5 * stiff * jnp.sum(stretch**2, axis=1) for stretch in (start, end))
    return jnp.sum(force * (end - start), axis=1), before, after
