"""Mass, velocity and force of a time step without constraints; the entry function is `free_step`.

This module decides which forces a step evaluates at its start, at its middle and at its end.
"""

from __future__ import annotations

from typing import Any

import jax

from jaxcontact.mechanics.gyroscopic import turned_by_gyroscopes
from jaxcontact.mechanics.motion_equations import bias_at
from jaxcontact.mechanics.system import Model, State


def free_step(
    model: Model, state: State, controls: jax.Array, dt: jax.Array, M: Any, kinematics: Any
) -> tuple[Any, jax.Array, jax.Array]:
    """Compute mass matrix M^, velocity v^ (nv,) and force f (nv,) of a step M^ (v+ - v^) = dt f + J^T lam.

    Gyroscopic forces turn the velocity. Linear springs, dampers and gains of actuators are those at the end
    of the step; forces that depend on time take the time of its end; all others are those at its start.

    Derivative: exact, any order, by all arguments.
    """
    turned, gyroscopic = turned_by_gyroscopes(model, state, dt, M, kinematics)
    if model.system.mechanics is not None:
        M, controls = _yielding(model, state, controls, dt, M)
    force = bias_at(model, state.replace(t=state.t + dt), kinematics)
    return M, turned, controls - force - gyroscopic


def _yielding(
    model: Model, state: State, controls: jax.Array, dt: Any, M: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute mass matrix and force with springs, dampers and linear actuators K, D at the end of the step.

    M (v+ - v) = h (f - D (v+ - v) - h K v+) is M^ (v+ - v) = h (f - h K v) with M^ = M + h D + h^2 K.
    """
    assert model.system.mechanics is not None
    place = (model.structure, state.q, state.v, model.params, controls)
    stiffness, damping = model.system.mechanics.yielding(*place)
    force = model.system.mechanics.drive(*place) - dt * stiffness @ state.v
    return M + dt * (damping + dt * stiffness), force
