"""The step of a mechanism without its contacts: second order, and with the momentum of the midpoint rule.

Entry: `free_step`. This module decides when springs and dampers are stiff, and which mass matrix impulses of
constraints then meet. The equations are on docs/methods/compliant.md, "Free flight".
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.algebra import implicit
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.free_equations import Drive, Springs, StepData, find_rate, spring_impulse
from jaxcontact.mechanics.half_turns import by_spin, spin_places, turn_back
from jaxcontact.mechanics.mass_centres import Centres, centres_at, linear_places, retract_centres
from jaxcontact.mechanics.midpoint_search import turn_free_bodies
from jaxcontact.mechanics.motion_equations import free_masses, mass_matrix_at
from jaxcontact.mechanics.system import Model, State, System, free_poses
from jaxcontact.mechanics.tree import dofs, of_kind, roots
from jaxcontact.mechanics.turned_momentum import FreeJoints, TurnedMomentum, momentum_of_tree

MAX_SPRING_MASS = 1e6  # largest mass that a stiff spring adds to its joint, relative to that of the joint


class FreeStep(Record):
    """A step without contacts, joints held by rows, and limits.

    Attributes:
        rate: (nv,) velocity that moves q: at the end q is retract(q, dt rate).
        v: (nv,) velocity at the end.
        ahead: (nv,) velocity from which impulses of constraints start; moves q as `rate`.
        M: mass matrix that impulses of constraints meet: with springs, dampers and gains of actuators.
        push: (nv,) impulse that changes `ahead`, too: springs and dampers act as at the end of the step.
        turned: angular momenta of quaternions; None without any.
        settled: bool, True if the equations of the step are solved, and no damping `turns_back`.
    """

    rate: jax.Array
    v: jax.Array
    ahead: jax.Array
    M: PyTree
    push: jax.Array
    turned: TurnedMomentum | None
    settled: jax.Array


def free_step(
    model: Model, state: State, controls: jax.Array, dt: jax.Array, M: PyTree, kinematics: PyTree
) -> FreeStep:
    """Advance a mechanism by dt without its contacts, by the variational midpoint rule.

    Forces are those of the middle of the step. A spring or damper with dt^2 k + dt c above the mass of its
    joint acts later, a very stiff one as in backward Euler. `M` and `kinematics` are those of the start.

    Derivative: exact, any order, by all arguments.
    """
    system = model.system
    others = (system.mechanics, system.forces, system.drive, model.params.applied)
    if system.poses is free_poses and all(other is None for other in others):
        return _free_bodies_step(model, state, controls, dt, M)
    structure, dense = model.structure, M if isinstance(M, jax.Array) else jnp.diag(M.values)
    centres = centres_at(model.system, kinematics)
    springs = _springs(model, state, controls, dt, dense, centres)
    p, centre = dense @ state.v, None
    if centres is not None:
        p, centre = centres.force_at_centres(p), centres.centre
    data = StepData(model.params, state, _drive_at(model, state, controls), dt, p, centre, springs)
    start = state.v if centres is None else centres.velocity_of_centres(state.v)
    w, impulse, settled = find_rate(model.system, data, start)
    half = 0.5 * dt * w
    midway = by_spin(structure, turn_back, data.p, half)
    momentum = by_spin(structure, turn_back, midway + impulse, half)
    q, kinematics = retract_centres(model, state.q, centre, dt * w)
    rate, at_end, joints = w, None, None
    if centres is not None:
        at_end = centres_at(model.system, kinematics)
        assert at_end is not None
        momentum = at_end.force_at_joints(momentum)
        rate = _rate_of_joints(model.system, state.q, q, w, dt)
        lag = 0.5 * (centres.drift(state.v) - at_end.drift(state.v))
        joints = FreeJoints(w, centres.centre, centres.drift_rows(), lag)
    divide_by_mass = implicit.positive_solver(mass_matrix_at(model, q, kinematics))
    v = ahead = divide_by_mass(momentum)
    turned = None
    if structure.quaternions:
        rows, momenta = dense, (data.p, midway, impulse)
        if centres is not None:
            rows = jax.vmap(centres.force_at_centres, 1, 1)(dense)
        turned = momentum_of_tree(structure, momenta, rows, divide_by_mass, joints)
        end = v if at_end is None else at_end.velocity_of_centres(v)
        ahead = turned.velocity_ahead(structure, end, half)
    push = jnp.zeros_like(v)
    if springs is not None:
        late = dt * (springs.damping @ ahead) + dt * dt * (springs.stiffness @ ahead)
        push = spring_impulse(springs, rate, dt) - late
        settled = settled & ~springs.turns_back
        M = dense + dt * (springs.damping + dt * springs.stiffness)
    if system.drive is not None:
        push = push + dt * _drive_change(model, state, dt, rate)
    return FreeStep(rate=rate, v=v, ahead=ahead, M=M, push=push, turned=turned, settled=settled)


def _drive_change(model: Model, state: State, dt: jax.Array, rate: jax.Array) -> jax.Array:
    """Compute the forces (nv,) of `drive` at a step's end, which constraints balance, less those midway."""
    structure, params, drive = model.structure, model.params, model.system.drive
    assert drive is not None
    middle = retract(model.system, state.q, 0.5 * dt * rate)
    end = drive(structure, state.replace(t=state.t + dt), params)
    return end - drive(structure, State(q=middle, v=rate, t=state.t + 0.5 * dt), params)


def _rate_of_joints(system: System, q: jax.Array, end: jax.Array, w: jax.Array, dt: jax.Array) -> jax.Array:
    """Compute the velocity (nv,) that moves q to `end` over dt, from that of the centres of mass."""
    tree = system.structure.tree
    free = of_kind(tree, "free")
    places = np.array(tree.position_starts)[free][:, None] + np.arange(3)
    return w.at[linear_places(system.structure)].set((end[places] - q[places]) / dt)


def take_free_step(
    model: Model, q: jax.Array, free: FreeStep, v: jax.Array, touched: jax.Array, dt: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Choose the velocity (nv,) at the end of a step, and the one that moves q, from `v` of its constraints.

    Parts of a mechanism in which constraints act on a velocity, `touched` (nv,), move at `v`, as by backward
    Euler, and free joints keep their momentum; the other parts move by the free step.
    """
    system, turned = model.system, free.turned
    moved = moves_with(system, touched)
    rate = jnp.where(moved, v, free.rate)
    if turned is not None:
        momentum = turned.momentum_at_end(system.structure, v, free.ahead, dt)
        v = turned.velocity_at_end(system.structure, v, free.ahead, momentum)
        if turned.joints is not None:
            moves = turned.joints.velocity_of_centres(system.structure, rate)
            moves = jnp.where(moved, moves, turned.joints.mean)
            end, kinematics = retract_centres(model, q, turned.joints.centre, dt * moves)
            rate, at_end = _rate_of_joints(system, q, end, rate, dt), centres_at(system, kinematics)
            assert at_end is not None
            v = _keep_momentum_in_flight(model, (end, kinematics, at_end), v, momentum, touched)
            v = at_end.velocity_of_joints(v)
    return jnp.where(moved, v, free.v), rate


def _keep_momentum_in_flight(
    model: Model,
    at_end: tuple[jax.Array, PyTree, Centres],
    v: jax.Array,
    momentum: jax.Array,
    touched: jax.Array,
) -> jax.Array:
    """Give free joints the spin with which their trees have the angular momenta (k, 3) of quaternions.

    `v` (nv,) is the velocity of centres at the end of a step in which only constraints within a tree act, as
    limits and dry joints; they push no free joint. Others, and joints, keep their velocity.
    """
    structure, (q, kinematics, centres) = model.structure, at_end
    linear = linear_places(structure)
    if structure.num_velocities == 2 * linear.size:
        return v  # free bodies alone
    spins = linear + 3
    flies = ~jnp.any(touched[linear], axis=1)
    of_free = np.flatnonzero(np.isin(spin_places(structure)[:, 0], spins[:, 0]))

    def correct(v: jax.Array) -> jax.Array:
        M = centres.matrix_at_centres(mass_matrix_at(model, q, kinematics))
        missing = momentum[of_free] - M[spins] @ v
        change = jax.vmap(implicit.solve_spd)(M[spins[:, :, None], spins[:, None]], missing)
        return v.at[spins].add(jnp.where(flies[:, None], change, 0.0))

    return jax.lax.cond(jnp.any(flies) & jnp.any(touched), correct, lambda v: v, v)


def moves_with(system: System, touched: jax.Array) -> jax.Array:
    """Find the velocities (nv,) of the parts of a mechanism that have one of `touched` (nv,)."""
    parts = _parts(system)
    if parts is None:
        return jnp.broadcast_to(jnp.any(touched), touched.shape)
    member = jnp.asarray(parts[None] == np.unique(parts)[:, None], jnp.float32)
    return member.T @ (member @ touched.astype(member.dtype)) > 0


def _parts(system: System) -> np.ndarray | None:
    """Label each velocity (nv,) by the part of the mechanism that it moves; return None for a single part."""
    structure = system.structure
    if structure.tree is not None:
        return (
            None
            if structure.tree.tendons or structure.tree.rotors
            else roots(structure.tree)[dofs(structure.tree).body]
        )
    if system.poses is not free_poses or system.forces is not None or system.drive is not None:
        return None
    return np.repeat(np.arange(len(structure.bodies)), 3 * structure.dim - 3)


def _free_bodies_step(model: Model, state: State, controls: jax.Array, dt: jax.Array, M: PyTree) -> FreeStep:
    """Compute `free_step` of free bodies under controls and gravity, in closed form except rotations."""
    dim, masses = model.structure.dim, free_masses(model)
    nb = masses.shape[0]
    v, pushed = state.v.reshape(nb, -1), controls.reshape(nb, -1)
    fall = dt * (model.params.gravity[None] + pushed[:, :dim] / model.params.mass[:, None])
    linear = v[:, :dim] + fall
    settled, turned = jnp.asarray(True), None
    if dim == 3:
        inertia = jnp.where(model.params.inertia > 0, model.params.inertia, 1.0)
        torque_impulse = dt * pushed[:, dim:]
        turning, spin, settled = turn_free_bodies(inertia, v[:, dim:], torque_impulse, dt)
        start = inertia * v[:, dim:]
        midway = jax.vmap(turn_back)(start, 0.5 * dt * turning)
        turned = TurnedMomentum(
            start=start, midway=midway, impulse=torque_impulse, rows=inertia, mobility=1.0 / inertia
        )
    else:
        spin = v[:, dim:] + dt * pushed[:, dim:] / masses[:, dim:]
        turning = 0.5 * (v[:, dim:] + spin)
    rate = jnp.concatenate([v[:, :dim] + 0.5 * fall, turning], axis=1).ravel()
    end = jnp.concatenate([linear, spin], axis=1).ravel()
    ahead = end if turned is None else turned.velocity_ahead(model.structure, end, 0.5 * dt * rate)
    return FreeStep(
        rate=rate, v=end, ahead=ahead, M=M, push=jnp.zeros_like(end), turned=turned, settled=settled
    )


def _springs(
    model: Model,
    state: State,
    controls: jax.Array,
    dt: jax.Array,
    M: jax.Array,
    centres: Centres | None,
) -> Springs | None:
    """Choose the delay of the springs of a tree: by dt^2 k + dt c at each velocity against its mass.

    With w = v+ - (M + S)^-1 dt f / 2 the step adds no energy, for every S >= 0; S = 0 is the midpoint rule.
    """
    if model.system.mechanics is None:
        return None
    stiffness, damping = model.system.mechanics.yielding(
        model.structure, state.q, state.v, model.params, controls
    )
    yields, divide_by_mass = dt * (damping + dt * stiffness), implicit.positive_solver(M)
    mobility = jnp.diagonal(jax.vmap(divide_by_mass)(jnp.eye(M.shape[0], dtype=M.dtype)))
    if centres is not None:
        M, yields = centres.matrix_at_centres(M), centres.matrix_at_centres(yields)
        mobility = mobility.at[centres.linear].set(1.0 / centres.mass[:, None])
    ratio = jnp.diagonal(yields) * mobility
    excess = jnp.clip(ratio - 1.0, 0.0, jnp.sqrt(MAX_SPRING_MASS))

    def delay(M: jax.Array, added: jax.Array) -> jax.Array:
        return 0.5 * added[:, None] * implicit.positive_inverse(M + jnp.diag(added))

    more = jax.lax.cond(jnp.any(excess > 0), delay, lambda M, _: jnp.zeros_like(M), M, excess**2 / mobility)
    lateness = excess / jnp.sqrt(2.0 * (1.0 + excess**2))
    share = 0.5 * jnp.eye(M.shape[0], dtype=M.dtype) + more
    late = lateness[:, None] * stiffness * lateness[None]
    return Springs(stiffness, damping, share, late, turns_back=jnp.any(ratio < -2.0))


def _drive_at(model: Model, state: State, controls: jax.Array) -> jax.Array | Drive:
    """Compute the forces of controls at the start of a step; without actuators, return the controls."""
    mechanics = model.system.mechanics
    if mechanics is None:
        return controls
    place = (model.structure, state.q, state.v, model.params, controls)
    return Drive(mechanics.drive(*place), *mechanics.drive_slopes(*place))
