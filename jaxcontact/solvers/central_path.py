"""Coulomb friction relaxed to a point of the central path of interior points: entry `follow_central_path`.

Owns the search for r_n u_n = k and (mu r_n, r_t) o (psi, u_t) = (k, 0) at a fixed k > 0, and the derivative
of these equations. Page: docs/methods/planning.md.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra import general_factor, implicit
from jaxcontact.algebra.cones import positive
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.solvers import friction_interior
from jaxcontact.solvers.friction_interior import Interior
from jaxcontact.solvers.friction_law import (
    ScaledFriction,
    assemble_law,
    by_axis,
    by_contact,
    dot,
    scale_friction,
    split,
)
from jaxcontact.tolerances import END_OF_PATH

ROUNDING = 16.0  # eps; misfit that ends the search whatever the target
SUCCESS = 1e3  # times the misfit that ends the search; more is a failure
START_FACTOR = 3.0  # size of the start inside the cones, relative to the root of the target

Numbers = tuple[jax.Array, ...]  # W, q, mu and target in units of the contacts, active


class _PathSearch(NamedTuple):
    """The state of the search: the point, its misfit in those that end the search, and the steps."""

    inside: Interior
    misfit: jax.Array
    steps: jax.Array


def follow_central_path(
    W: jax.Array, q: jax.Array, mu: jax.Array, smoothing: jax.Array, *, dim: int, active: jax.Array,
    limits: tuple[int, bool],
) -> tuple[jax.Array, jax.Array, jax.Array]:  # fmt: skip
    """Find the impulses r (n,) on the central path of the contacts of `solve_coulomb`, with u = W r + q.

    Args:
        smoothing: k > 0, J: the product of normal impulse and normal velocity of every contact.
        active: (nc,) bool, contacts that may push; the others have no impulse.
        limits: largest number of steps, and whether to stop when solved.

    Returns:
        r (n,), contact-major; whether the search settled; int32 steps.

    Derivative: of the relaxed equations by W, q, mu and smoothing; any order, forward and reverse.
    """
    scaled = scale_friction(by_axis(by_axis(W, dim).T, dim).T, by_axis(q, dim), mu, active)
    target = smoothing / lax.stop_gradient(scaled.impulse[0] * scaled.velocity[0])
    found = _walk(*lax.stop_gradient((scaled, target)), *limits)
    numbers = (scaled.W, scaled.q, scaled.mu, target, active)
    attached = implicit.attach(_path_equations, _correct, numbers, found.inside.impulse)
    return by_contact(attached * scaled.impulse, dim), found.misfit <= SUCCESS, found.steps


def _path_equations(numbers: Numbers, r: jax.Array) -> jax.Array:
    """Compute the misfits (n,) of r_n u_n = k and psi r_t = -mu r_n u_t, psi the dual speed."""
    W, q, mu, target, active = numbers
    nc = mu.shape[0]
    (r_n, *r_t), (u_n, *u_t) = split(r, nc), split(W @ r + q, nc)
    rubs = active & (mu > 4.0 * jnp.finfo(mu.dtype).eps)
    bound = jnp.where(rubs, mu * r_n, 1.0)
    half = 0.5 * target / bound
    psi = half + jnp.sqrt(half**2 + dot(u_t, u_t))
    lines = [jnp.where(active, r_n * u_n - target, r_n)]
    lines += [jnp.where(rubs, psi * r + bound * u, r) for r, u in zip(r_t, u_t, strict=True)]
    return jnp.concatenate(lines)


def _correct(numbers: Numbers, r: jax.Array, misfit: jax.Array) -> jax.Array:
    """Solve J x = misfit with the Jacobian J (n, n) of the equations by r, rows scaled."""
    slopes = jax.jacfwd(functools.partial(_path_equations, numbers))(r)
    weight = 1.0 / positive(jnp.max(jnp.abs(lax.stop_gradient(slopes)), axis=1))
    matrix = weight[:, None] * slopes
    factor = general_factor.factorise(lax.stop_gradient(matrix))
    return lax.custom_linear_solve(
        lambda x: matrix @ x,
        weight * misfit,
        lambda _, b: general_factor.solve_factored(factor, b),
        transpose_solve=lambda _, b: general_factor.solve_factored(factor, b, transposed=True),
    )


def _walk(problem: ScaledFriction, target: jax.Array, max_iters: int, early_exit: bool) -> _PathSearch:
    """Step from the inside of the cones to the point of the central path with products `target`."""
    size = jnp.maximum(1.0, START_FACTOR * jnp.sqrt(target))
    begin = _PathSearch(
        inside=friction_interior.begin(problem, size),
        misfit=jnp.full((), jnp.inf, target.dtype),
        steps=jnp.int32(0),
    )

    def running(now: _PathSearch) -> jax.Array:
        return (now.misfit > 1.0) & (now.steps < max_iters)

    def step(now: _PathSearch) -> _PathSearch:
        inside = _take_path_step(problem, now.inside, target)
        then = _PathSearch(inside, _largest_misfit(problem, inside, target), now.steps + 1)
        stays = ~running(now) | ~jnp.isfinite(then.misfit)
        then = jax.tree.map(lambda new, old: jnp.where(stays, old, new), then, now)
        return then._replace(steps=jnp.where(running(now), now.steps + 1, now.steps))

    found: _PathSearch = bounded_loop(running, step, begin, max_iters=max_iters, early_exit=early_exit)
    return found


def _largest_misfit(problem: ScaledFriction, inside: Interior, target: jax.Array) -> jax.Array:
    """Compute the largest misfit of the equations, in the misfit that ends the search."""
    eps = float(jnp.finfo(target.dtype).eps)
    numbers = (problem.W, problem.q, problem.mu, target, problem.active)
    law = _path_equations(numbers, inside.impulse) / (eps**END_OF_PATH * target + ROUNDING * eps)
    rate = problem.W @ inside.impulse + problem.q
    motion = (rate - inside.velocity) / (eps**END_OF_PATH * (1.0 + jnp.max(jnp.abs(rate))))
    return jnp.max(jnp.abs(jnp.concatenate([law, motion])))


def _take_path_step(problem: ScaledFriction, inside: Interior, target: jax.Array) -> Interior:
    """Take one predictor-corrector step towards products of `target`."""
    law = friction_interior.linearise_law(problem, inside)
    by_impulse, by_velocity, _ = law
    solve = functools.partial(
        general_factor.solve_factored,
        general_factor.factorise(assemble_law(by_impulse, by_velocity, problem.W)),
    )
    misfit = problem.W @ inside.impulse + problem.q - inside.velocity
    aim = functools.partial(friction_interior.right_hand_sides, problem, inside, law, misfit)
    rhs, cone = aim(target, None)
    ahead = friction_interior.direct(problem, inside, solve(rhs), misfit, cone)
    length = friction_interior.longest_step(problem, inside, ahead)
    predicted = friction_interior.advance(inside, ahead, length)
    before = friction_interior.complementarity(problem, inside)
    after = friction_interior.complementarity(problem, predicted)
    share = friction_interior.centring(before, after)
    goal = jnp.maximum(target, jnp.where(length > 0.9, target, share * before))
    corrected, cone = aim(goal, ahead)
    move = friction_interior.direct(problem, inside, solve(corrected), misfit, cone)
    return friction_interior.advance(inside, move, friction_interior.longest_step(problem, inside, move))
