"""Equations of a step without contacts: the momentum midway, with springs, dampers and drive, and its rate.

Entry: `find_rate`. docs/methods/compliant.md, "Free flight", has the equations.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import implicit
from jaxcontact.mechanics import tendons
from jaxcontact.mechanics.configuration import position_rate, retract
from jaxcontact.mechanics.half_turns import by_spin, skew_blocks, spread, turn_back
from jaxcontact.mechanics.mass_centres import Centres, centres_at, retract_centres
from jaxcontact.mechanics.midpoint_search import resolution_of, search
from jaxcontact.mechanics.motion_equations import applied_forces, energies
from jaxcontact.mechanics.system import Model, Params, State, System


class Springs(NamedTuple):
    """Springs, dampers and gains of actuators of a tree, K and D, and their delay within a step.

    `share` (nv, nv) is the fraction of the impulses of a step that moves q in it, one half without stiffness.
    `late` (nv, nv) is the stiffness that acts dt w after the start instead of dt w / 2, halved. `turns_back`
    tells that the midpoint rule would turn a velocity back that a negative damping speeds up.
    """

    stiffness: jax.Array
    damping: jax.Array
    share: jax.Array
    late: jax.Array
    turns_back: jax.Array


class Drive(NamedTuple):
    """Force (nv,) of controls at the start of a step, and minus its derivatives (nv, nv) there."""

    force: jax.Array
    by_position: jax.Array
    by_velocity: jax.Array


class StepData(NamedTuple):
    """The data of the equations of a step; p (nv,) is the momentum at its start."""

    params: Params
    state: State
    drive: jax.Array | Drive
    dt: jax.Array
    p: jax.Array
    centre: jax.Array | None
    springs: Springs | None


class Midway(NamedTuple):
    """A configuration q in the middle of a step, its kinematics, and its centres of mass."""

    q: jax.Array
    kinematics: PyTree
    centres: Centres | None


def spring_impulse(springs: Springs, w: jax.Array, dt: jax.Array) -> jax.Array:
    """Compute the impulse (nv,) that springs and dampers take from the momentum at the rate w."""
    return dt * (springs.damping @ w + dt * (0.5 * springs.stiffness + springs.late) @ w)


def find_midway(system: System, data: StepData, w: jax.Array) -> Midway:
    """Compute where a mechanism is in the middle of a step that moves at w (nv,)."""
    model = Model(system=system, params=data.params)
    q, kinematics = retract_centres(model, data.state.q, data.centre, 0.5 * data.dt * w)
    return Midway(q, kinematics, centres_at(system, kinematics))


def momentum_midway(
    system: System, data: StepData, w: jax.Array, place: Midway
) -> tuple[jax.Array, jax.Array]:
    """Compute the momentum M w (nv,) in the middle of a step that moves at w, and the impulse of its forces.

    For free joints, w, momentum and impulse are those of the centres of mass.
    """
    (q, kinematics, centres), params, state, dt = place, data.params, data.state, data.dt
    rate = w if centres is None else centres.velocity_of_joints(w)
    model = Model(system=system, params=params)
    momentum, force = momentum_and_pull(model, q, kinematics, centres, rate)
    force = force + drive_at_rate(data, rate)
    if system.forces is not None:
        force = force + system.forces(system.structure, q, rate, params) + tendon_lag(system, data, q, rate)
    if system.drive is not None:
        middle = State(q=q, v=rate, t=state.t + 0.5 * dt)
        force = force + system.drive(system.structure, middle, params)
    if params.applied is not None:
        force = force + applied_forces(model, q, kinematics)
    if data.springs is not None:
        force = force - dt * (data.springs.late @ rate)
    if centres is not None:
        force, momentum = centres.force_at_centres(force), centres.force_at_centres(momentum)
        momentum = momentum.at[centres.linear].add(centres.mass[:, None] * w[centres.linear])
    return momentum, dt * force


def drive_at_rate(data: StepData, w: jax.Array) -> jax.Array:
    """Compute forces (nv,) of controls midway; those at the end of a range stay there during the step."""
    drive = data.drive
    if isinstance(drive, jax.Array):
        return drive
    return drive.force - drive.by_position @ (0.5 * data.dt * w) - drive.by_velocity @ (w - data.state.v)


def tendon_lag(system: System, data: StepData, q: jax.Array, w: jax.Array) -> jax.Array:
    """Correct the forces of tendons at (q, w) to those of springs that stay slack or tight in the step."""
    structure, params, start = system.structure, data.params, data.state
    if structure.tree is None or not structure.tree.tendons:
        return jnp.zeros_like(w)
    changes = position_rate(system, start.q, 0.5 * data.dt * w), w - start.v
    force, change = jax.jvp(
        lambda q, v: tendons.passive_forces(structure, q, v, params), (start.q, start.v), changes
    )
    return force + change - tendons.passive_forces(structure, q, w, params)


def momentum_and_pull(
    model: Model, q: jax.Array, kinematics: PyTree, centres: Centres | None, w: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Compute M(q) w (nv,), and the derivative (nv,) of kinetic minus gravity energy along tangents of q.

    With `centres`, w is that of bodies about their centres, except for rotors.
    """
    structure, mechanics = model.structure, model.system.mechanics
    if mechanics is not None:
        rotors = mechanics.rotor_momentum(structure, w, model.params)
        lever = None if centres is None else centres.lever(rotors)
        still = w if centres is None else centres.velocity_about_centres(w)
        momentum, pull = mechanics.momentum_and_pull(structure, kinematics, still, model.params, lever)
        return momentum + rotors, pull

    def action(w: jax.Array, shift: jax.Array) -> jax.Array:
        kinetic, gravity = energies(model, retract(model.system, q, shift), w)
        return kinetic - gravity

    momentum, pull = jax.grad(action, argnums=(0, 1))(w, jnp.zeros_like(w))
    return momentum, pull


def momentum_misfit(
    system: System, data: StepData, w: jax.Array, middle: tuple[jax.Array, jax.Array] | None = None
) -> tuple[jax.Array, jax.Array]:
    """Compute the misfit (nv,) of the momentum midway, which is zero at the solution w, and the impulse.

    `middle` is the result of `momentum_midway` at w, if it is known.
    """
    momentum, impulse = middle or momentum_midway(system, data, w, find_midway(system, data, w))
    structure, half = system.structure, 0.5 * data.dt * w
    before = 0.5 * impulse if data.springs is None else data.springs.share @ impulse
    momentum = by_spin(structure, spread, momentum, half, impulse)
    return momentum - by_spin(structure, turn_back, data.p, half) - before, impulse


def find_rate(system: System, data: StepData, start: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Find the rate w (nv,) of a step and its impulse (nv,), and whether the equations are solved.

    Derivative: of rate and impulse, by the equations at the solution.
    """
    equations = functools.partial(momentum_misfit, system)

    def residual(data: StepData, root: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        misfit, impulse = equations(data, root[0])
        return misfit, root[1] - impulse

    def correct(data: StepData, root: tuple, residual: tuple) -> tuple[jax.Array, jax.Array]:
        by_rate, impulse_by_rate = jax.jacfwd(functools.partial(equations, data))(root[0])
        rate = implicit.positive_solver(by_rate)(residual[0])
        return rate, residual[1] + impulse_by_rate @ rate

    fixed, start = jax.lax.stop_gradient((data, start))
    place = find_midway(system, fixed, start)
    middle = momentum_midway(system, fixed, start, place)
    jacobian, yields = misfit_jacobian(system, fixed, start, place)
    solve = implicit.positive_solver(jacobian)
    parts = jnp.abs(fixed.p) + jnp.abs(middle[0]) + jnp.abs(middle[1])
    rate, change, impulse, settled = search(
        functools.partial(equations, fixed),
        solve,
        start,
        equations(fixed, start, middle),
        parts,
        resolution_of(fixed.state.q, fixed.dt),
    )
    impulse = equations(fixed, rate)[1] if yields is None else impulse + yields @ change
    return *implicit.attach(residual, correct, data, (rate, impulse)), settled


def misfit_jacobian(
    system: System, data: StepData, w: jax.Array, place: Midway
) -> tuple[jax.Array, jax.Array | None]:
    """Compute the Jacobian (nv, nv) of the misfit by w to first order in dt, and minus that of stiff forces.

    The second is None if no springs are known.
    """
    if system.mechanics is None or data.springs is None:
        return jax.jacfwd(lambda w: momentum_misfit(system, data, w)[0])(w), None
    structure, dt, springs, (_, kinematics, centres) = system.structure, data.dt, data.springs, place
    turned = by_spin(structure, turn_back, data.p, 0.5 * dt * w)
    still = w if centres is None else centres.velocity_about_centres(w)
    rate = system.mechanics.momentum_rate(structure, kinematics, still)
    M = system.mechanics.mass_matrix(structure, kinematics, data.params)
    yields = dt * (springs.damping + dt * (0.5 * springs.stiffness + springs.late))
    if centres is not None:
        rate = centres.matrix_at_centres(rate).at[centres.linear.ravel()].set(0.0)
        M, yields = centres.matrix_at_centres(M), centres.matrix_at_centres(yields)
    turning = rate - rate.T - skew_blocks(structure, turned)
    return M + 0.5 * dt * turning + springs.share @ yields, yields
