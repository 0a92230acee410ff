"""Gyroscopic forces over a step: the turning of a velocity that costs no energy, however long the step.

Owns the step of a spinning body, or of a mechanism with quaternions, under its gyroscopic forces alone.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.mechanics.motion_equations import bias, mass_matrix
from jaxcontact.mechanics.system import Params, State, System, free_poses

CYCLES = ((0, 1, 2), (1, 2, 0), (2, 0, 1))


def turned_by_gyroscopes(
    system: System, params: Params, state: State, dt: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The velocity (nv,) after dt of gyroscopic forces alone, and those forces (nv,), which `bias` has, too.

    Gyroscopic is that part S(v) v of -bias, S skew and linear in v, which does no work at any v: for a free
    body (I w) x w. The step is the midpoint rule with S where that will be half-way,
    M (v' - v) = dt S (v' + v) / 2, so v' has the kinetic energy of v, and second order, however long dt. With
    c(v) the inertial bias, quadratic in v, and K its derivative, S = (K^T - K) / 3.

    Derivative: exact, any order, by q, v and params.
    """
    q, v = state.q, state.v
    if not system.structure.quaternions:  # angles of the plane; what else has no turning axes of its own
        return v, jnp.zeros_like(v)
    if system.poses is free_poses:
        return _free_turned(system, params, v, dt)
    alone = dataclasses.replace(system, forces=None, drive=None)
    still = params.replace(gravity=jnp.zeros_like(params.gravity))

    def inertial(v: jax.Array) -> jax.Array:
        return bias(alone, still, state.replace(v=v))

    mass = mass_matrix(system, params, q)
    inverse, _ = small_dense.spd_inverse(jax.lax.stop_gradient(mass))
    now, back = jax.vjp(inertial, v)
    force = (back(v)[0] - 2.0 * now) / 3.0  # K v = 2 c
    ahead = v + 0.5 * dt * implicit.solve_spd(mass, force[:, None], inverse)[:, 0]
    K = jax.jacfwd(inertial)(ahead)
    skew = 0.5 * dt * (K.T - K) / 3.0
    # (M - S) v' = (M + S) v, times (M + S) M^-1: a matrix that is symmetric positive definite.
    response = implicit.solve_spd(mass, skew, inverse)
    turned = implicit.solve_spd(mass - skew @ response, ((mass + skew) @ (v + response @ v))[:, None])[:, 0]
    return turned, force


def _free_turned(system: System, params: Params, v: jax.Array, dt: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same of free bodies, where the inverse of I - dt [L]x / 2 is known."""
    inertia = jnp.where(params.inertia > 0, params.inertia, 1.0)
    bodies = v.reshape(inertia.shape[0], 6)
    spin, half = bodies[:, 3:], 0.5 * dt

    def torque(momentum: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.cross(momentum, x)

    force = torque(inertia * spin, spin)
    ahead = inertia * spin + half * force
    first = torque(ahead, spin) / inertia
    second = torque(ahead, first) / inertia
    over: jax.Array = half * ahead
    others = [(over[:, i] / inertia[:, j]) * (over[:, i] / inertia[:, k]) for i, j, k in CYCLES]
    after = spin + 2.0 * half * (first + half * second) / (1.0 + (others[0] + others[1] + others[2]))[:, None]
    none = jnp.zeros_like(spin)
    return (
        jnp.concatenate([bodies[:, :3], after], axis=1).ravel(),
        jnp.concatenate([none, force], axis=1).ravel(),
    )
