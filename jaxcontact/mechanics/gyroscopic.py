"""Gyroscopic forces over a step: they turn a velocity and keep its kinetic energy for every length of step.

This module owns the step of a spinning body, or of a mechanism with quaternions, under gyroscopic forces
alone. The entry function is `turned_by_gyroscopes`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxcontact.algebra import implicit
from jaxcontact.mechanics.motion_equations import bias
from jaxcontact.mechanics.system import Model, State, free_poses

CYCLES = ((0, 1, 2), (1, 2, 0), (2, 0, 1))  # indices of an axis and of the two axes after it


def turned_by_gyroscopes(
    model: Model, state: State, dt: jax.Array, M: Any, kinematics: Any
) -> tuple[jax.Array, jax.Array]:
    """Compute the velocity (nv,) after dt of gyroscopic forces alone, and the gyroscopic forces (nv,) at v.

    `bias` contains the gyroscopic forces. The gyroscopic force is the part S(v) v of -bias that does no work
    at any v; S is skew and linear in v. For a free body it is (I w) x w. With c(v) the inertial bias, which
    is quadratic in v, and K its derivative, S = (K^T - K) / 3. The step is the midpoint rule
    M (v' - v) = dt S (v' + v) / 2, with S at an estimate of the velocity after dt / 2. So v' has the kinetic
    energy of v for every dt, and the step has second order.

    Derivative: exact, any order, by q, v and params.
    """
    v = state.v
    if not model.structure.quaternions:  # no free body or ball joint: `bias` has all inertial forces
        return v, jnp.zeros_like(v)
    if model.system.poses is free_poses:
        return _free_bodies_turned(model, v, dt)
    force, matrix = _gyroscopic(model, state, kinematics)
    midpoint_velocity = v + 0.5 * dt * implicit.spd_solver(M)(force)
    skew = 0.5 * dt * matrix(midpoint_velocity)
    # (M - S) v' = (M + S) v
    return v + 2.0 * implicit.solve_positive(M - skew, skew @ v), force


def _gyroscopic(
    model: Model, state: State, kinematics: Any
) -> tuple[jax.Array, Callable[[jax.Array], jax.Array]]:
    """Return the gyroscopic force (nv,) at a state, and the function v -> skew matrix S(v) (nv, nv)."""
    mechanics, structure = model.system.mechanics, model.structure
    if mechanics is not None:
        force = mechanics.gyroscopic(structure, kinematics, state.v)
        return force, lambda v: mechanics.gyroscopic_matrix(structure, kinematics, v)
    free_of_forces = dataclasses.replace(model.system, forces=None, drive=None)
    weightless = model.params.replace(gravity=jnp.zeros_like(model.params.gravity))
    bare = model.replace(system=free_of_forces, params=weightless)

    def inertial(v: jax.Array) -> jax.Array:
        return bias(bare, state.replace(v=v))

    def skew(v: jax.Array) -> jax.Array:
        K = jax.jacfwd(inertial)(v)
        return (K.T - K) / 3.0

    inertial_bias, pull_back = jax.vjp(inertial, state.v)
    return (pull_back(state.v)[0] - 2.0 * inertial_bias) / 3.0, skew  # K v = 2 c


def _free_bodies_turned(model: Model, v: jax.Array, dt: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute `turned_by_gyroscopes` of free bodies; the inverse of I - dt [L]x / 2 has a closed form."""
    inertia = jnp.where(model.params.inertia > 0, model.params.inertia, 1.0)
    bodies = v.reshape(inertia.shape[0], 6)
    spin, half = bodies[:, 3:], 0.5 * dt

    def torque(momentum: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.cross(momentum, x)

    force = torque(inertia * spin, spin)
    midpoint_momentum = inertia * spin + half * force
    first = torque(midpoint_momentum, spin) / inertia
    second = torque(midpoint_momentum, first) / inertia
    half_turn: jax.Array = half * midpoint_momentum
    squared_turns = [
        (half_turn[:, i] / inertia[:, j]) * (half_turn[:, i] / inertia[:, k]) for i, j, k in CYCLES
    ]
    spin_after = (
        spin
        + 2.0
        * half
        * (first + half * second)
        / (1.0 + (squared_turns[0] + squared_turns[1] + squared_turns[2]))[:, None]
    )
    no_force = jnp.zeros_like(spin)
    return (
        jnp.concatenate([bodies[:, :3], spin_after], axis=1).ravel(),
        jnp.concatenate([no_force, force], axis=1).ravel(),
    )
