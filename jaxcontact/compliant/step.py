"""Steps in time: (State, forces) -> State, and many of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra.body_rows import BodyRows, Diagonal
from jaxcontact.arguments import check_array, check_positive, check_type
from jaxcontact.compliant.nearest import Selection, make_selection, select_material, spread_info
from jaxcontact.compliant.problem import Problem, stretch_after
from jaxcontact.compliant.settings import DEFAULT, START, Settings, StepMemory
from jaxcontact.compliant.solve import StepInfo, solve_velocity
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.applied import Applied, applied_rows, apply_wrenches
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.free_step import FreeStep, free_step, take_free_step
from jaxcontact.mechanics.mocap import Mocap, MocapRows, apply_mocap, mocap_rows
from jaxcontact.mechanics.motion_equations import free_masses, kinematics_of, mass_matrix_at
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag
from jaxcontact.terms import BILATERAL, ConstraintTerms, constraint_terms, kept_by_body, rows_by_body
from jaxcontact.terms.constraints import Coming, bound_speed, check_sizes, constraint_terms_at

if TYPE_CHECKING:
    from jaxtyping import Float


def assemble(
    model: Model, state: State, tau: jax.Array, dt: float | jax.Array, *, by_body: bool = False
) -> Problem:
    """Assemble the algebra of a step of a mechanism at a state; `by_body` where the mechanism suits that.

    Raises:
        ValueError: params carry no material, q or v has the wrong length, params do not fit the structure.
    """
    return assemble_all(model, state, tau, dt, by_body=by_body)[0]


def assemble_all(
    model: Model, state: State, tau: jax.Array, dt: float | jax.Array, *, by_body: bool = False
) -> tuple[Problem, FreeStep]:
    """Assemble a step as `assemble`, and the step without constraints."""
    check_sizes(model, state)
    kinematics = kinematics_of(model, state.q)
    M: PyTree
    if by_body:
        M, terms = Diagonal(values=free_masses(model).ravel()), rows_by_body(model, state)
    else:
        M = mass_matrix_at(model, state.q, kinematics)
        terms, _ = constraint_terms_at(model, state, kinematics)
    h = jnp.asarray(dt, state.q.dtype)
    free = free_step(model, state, tau, h, M, kinematics)
    return _make_problem(model, state, free, h, terms), free


def assemble_nearest(
    model: Model, state: State, tau: jax.Array, dt: float | jax.Array, max_contacts: int
) -> tuple[Problem, FreeStep, Selection]:
    """Assemble a step that sees the nearest contacts alone; return its free step and which those are."""
    check_sizes(model, state)
    kinematics = kinematics_of(model, state.q)
    M = mass_matrix_at(model, state.q, kinematics)
    h = jnp.asarray(dt, state.q.dtype)
    free = free_step(model, state, tau, h, M, kinematics)
    terms, nearest = constraint_terms_at(model, state, kinematics, max_contacts, Coming(h, free.v))
    assert nearest is not None
    problem = _make_problem(model, state, free, h, terms)
    selection = make_selection(terms.kind, nearest)
    return problem.replace(material=select_material(problem.material, selection)), free, selection


def _make_problem(
    model: Model, state: State, free: FreeStep, h: jax.Array, terms: ConstraintTerms
) -> Problem:
    """Make the problem of a step from its constraints and its free motion."""
    if model.params.material is None:
        raise ValueError("params.material: expected a compliant.Material, got None")
    # Rows turn with the bodies: those of the middle of the step give the mean rate of a gap.
    terms = terms.replace(gdot_v=0.5 * terms.gdot_v)
    return Problem(
        M=free.M,
        v=free.ahead,
        f=free.push / h,
        terms=terms,
        material=model.params.material,
        dt=h,
        start=state.v,
    )


def _touched_velocities(terms: ConstraintTerms, lam: jax.Array) -> jax.Array:
    """Find the velocities (nv,) on which joints act, or limits and contacts that push."""
    acts = (lam != 0) | (jnp.asarray(terms.kind, jnp.int32) == BILATERAL)
    if not isinstance(terms.G, BodyRows):
        return jnp.any(acts[:, None] & (terms.G != 0), axis=0)
    dim, count = terms.G.values.shape[0], terms.G.count
    pushes = acts.reshape(-1, dim)[:, 0]
    touched = jnp.zeros(count + 1, bool)  # the last entry, index -1, is the world
    for bodies in (terms.G.first, terms.G.second):
        touched = touched.at[jnp.asarray(bodies)].max(pushes)
    return jnp.repeat(touched[:-1], 3 * dim - 3)


@checked(dt=POSITIVE)
def step(
    model: Model,
    state: State,
    controls: Float[jax.Array, " nu"],
    *,
    dt: float | jax.Array,
    settings: Settings = DEFAULT,
    memory: StepMemory = START,
    applied: Applied | None = None,
    mocap: Mocap | None = None,
) -> tuple[State, StepInfo]:
    """Make one step of length dt: v+ from the problem of its constraints, then q+ = q retracted by dt v+.

    First order in dt and L-stable where constraints push: as dt grows, a deviation dies in one step
    (Drumwright, eqs 36-39). Parts of a mechanism without such constraints move to second order, and keep
    their momentum; stiff springs and dampers of joints and linear gains of actuators are stable at any gain.

    Args:
        model: the mechanism and its numbers; `params.material` says how its constraints yield.
        state: where it starts.
        controls: (nu,) of the actuators of a robot; of another mechanism (nv,) generalized forces beside
            gravity and the forces of the system.
        dt: s; 1e-8 to 0.1 tested with stiffness up to 1e15 N/m and damping up to 1e12 N s/m.
        settings: cone, program and limits.
        memory: `info.memory` of the step before.
        applied: wrench of each named body during the step, (6,), in the plane (3,): force at its centre of
            mass, N, and torque, N m, along world axes.
        mocap: poses (2, 7) of named mocap bodies at the start and at the end, position and quaternion; in the
            plane (2, 3): x, z, m, and the angle from the pose in the file, from x to z, rad. Contacts have
            the velocity that takes one pose to the other.

    Returns:
        The next State, and StepInfo.

    Raises:
        TypeError: arguments in another order, a Model, or what is no array or number.
        ValueError: params carry no material, controls have another shape, dt is a number that is not positive
            and finite; what `solve` raises.

    Status: that of `solve`; NONFINITE also for q or t at the end; OVERFLOW where more than `max_contacts`
        touch at the start (gap <= 1e-6 m), or where an impact may throw a shape at one out of reach.

    Derivative: as `solve`; exact for the step by state, tau, applied and params, any order. The reverse mode
        keeps state, forces and matrices of each step, and computes its kinematics again.
    """
    _check(model, state, settings, memory, dt)
    check_array("controls", controls, (model.num_controls,))
    memory = start_memory(model, state, memory)
    model = apply_wrenches(model, applied_rows(model, applied))
    moving = mocap_rows(model, mocap, dt, 1)
    model = apply_mocap(model, jax.tree.map(lambda rows: rows[0], moving), state.t)
    return _step(model, state, controls, dt, settings, memory)


@checked(smoothing=POSITIVE)
def smoothed(model: Model, smoothing: jax.Array | float | None) -> Model:
    """Return a model whose steps are on the central path, lam_n gap = smoothing: for planning.

    A force smoothing / gap acts across an open gap, so that gradients see contacts before they close;
    friction is (mu lam_n, lam_t) o (psi, u_t) = (smoothing / h, 0) in the Jordan algebra of second-order
    cones. The error of a step is of first order in `smoothing`, on what contacts touch; other parts move to
    first order in dt. Anneal it, 1e-1 to 1e-5 J for a box of 1 kg, then None.

    Args:
        model: with a material; its steps need cone="coulomb" and no potential.
        smoothing: k > 0, J, traced or not; None is the material itself.

    Returns:
        The model with `params.material.smoothing`.

    Raises:
        ValueError: params carry no material; a number that is not positive and finite.

    Status: of a step, INVALID where a traced k is not > 0; MAX_ITERS where the search did not settle.

    Derivative: of the relaxed equations, by k as well, forward and reverse.
    """
    if model.params.material is None:
        raise ValueError("params.material: expected a compliant.Material, got None")
    return model.replace(
        params=model.params.replace(material=model.params.material.replace(smoothing=smoothing))
    )


def _check(model: Model, state: State, settings: Settings, memory: StepMemory, dt: float | jax.Array) -> None:
    """Raise TypeError or ValueError for arguments of a step that do not fit."""
    check_mechanism(model, state)
    check_type("settings", settings, Settings)
    check_type("memory", memory, StepMemory)
    if not isinstance(dt, jax.Array):  # reading one would wait for its device
        check_positive("dt", dt)
    material = model.params.material
    if model.params.spin_friction is not None:
        if settings.cone == "pyramid" or settings.formulation == "min_norm":
            raise ValueError("settings: spin_friction needs the cone 'coulomb' or 'associated'")
        if material is not None and material.friction_spring is not None:
            raise ValueError("params.material: friction springs have no spin_friction; use friction_damping")
    if settings.formulation == "min_norm" and material is not None and material.potential is not None:
        raise ValueError(
            "formulation: 'min_norm' has springs and dampers only, got a material with a potential"
        )


def start_memory(model: Model, state: State, memory: StepMemory = START) -> StepMemory:
    """Put zero stretch (nc, nt) into a memory without any, if the material has friction springs.

    Raises:
        ValueError: a stretch of another shape, or one of a material without friction_spring.
    """
    shape = (model.structure.num_contacts, model.structure.dim - 1)
    if model.params.material is None or model.params.material.friction_spring is None:
        if memory.stretch is not None:
            raise ValueError("stretch: expected None, for the material has no friction_spring, got an array")
        return memory
    if memory.stretch is None:
        return memory.replace(stretch=jnp.zeros(shape, state.q.dtype))
    check_array("stretch", memory.stretch, shape)
    return memory


@functools.partial(jit, static_argnames="settings")
def _step(
    model: Model,
    state: State,
    tau: jax.Array,
    dt: float | jax.Array,
    settings: Settings,
    memory: StepMemory,
) -> tuple[State, StepInfo]:
    # These eliminate with one matrix:
    needs_matrix = settings.formulation == "min_norm" or settings.cone == "coulomb"
    warm_start, stretch, max_contacts = memory.forces, memory.stretch, settings.max_contacts
    max_contacts = model.max_contacts if max_contacts is None else max_contacts
    if max_contacts is not None and max_contacts >= model.structure.num_contacts:
        max_contacts = None
    spins = model.params.spin_friction is not None
    runs = model.params.surface_velocity is not None
    by_body = (
        not needs_matrix and not spins and not runs and max_contacts is None and kept_by_body(model.system)
    )
    # The reverse mode keeps the state and computes its mechanics again: less than to store and read them.
    again = functools.partial(jax.checkpoint, prevent_cse=False)
    if max_contacts is not None:
        make = functools.partial(assemble_nearest, max_contacts=max_contacts)
        problem, free, selection = again(make)(model, state, tau, dt)
        if warm_start is not None:
            check_array("memory.forces", warm_start, (selection.num_rows,))
            warm_start = warm_start[selection.rows]
        loose = None
        if model.params.material is not None and stretch is not None:
            problem = problem.replace(stretch=stretch[selection.nearest.index])
            loose = stretch_after(model.params.material, stretch, jnp.zeros_like(stretch), problem.dt)
        v, info = solve_velocity(problem, warm_start, settings, selection.nearest.tree_rows)
        touched = _touched_velocities(problem.terms, info.lam)
        info = spread_info(info, selection, loose)
        if selection.nearest.unseen is not None:
            # An impact on a lever may throw its far end at what was out of reach.
            meets = 2.0 * problem.dt * bound_speed(model, state.q, v) > selection.nearest.unseen
            info = info.replace(status=info.status | flag(meets, Status.OVERFLOW))
    else:
        problem, free = again(functools.partial(assemble_all, by_body=by_body))(model, state, tau, dt)
        problem = problem.replace(stretch=stretch)
        if warm_start is not None:
            check_array("memory.forces", warm_start, problem.terms.phi.shape)
        v, info = solve_velocity(problem, warm_start, settings)
        touched = _touched_velocities(problem.terms, info.lam)
    v, rate = again(take_free_step)(model, state.q, free, v, touched, problem.dt)
    q = again(functools.partial(retract, model.system))(state.q, problem.dt * rate)
    t = state.t + problem.dt
    moved = jnp.all(jnp.isfinite(q)) & jnp.isfinite(t)  # v is finite, and dt v may not be
    motion_status = flag(~moved, Status.NONFINITE) | flag(~free.settled, Status.MAX_ITERS)
    return State(q=q, v=v, t=t), info.replace(status=info.status | motion_status)


@checked(dt=POSITIVE)
def rollout(
    model: Model,
    state: State,
    controls: Float[jax.Array, "T nu"],
    *,
    dt: float | jax.Array,
    settings: Settings = DEFAULT,
    memory: StepMemory = START,
    applied: Applied | None = None,
    mocap: Mocap | None = None,
) -> tuple[State, StepInfo]:
    """Make steps under the controls (T, nu), each with the memory of the one before.

    Args:
        model: the mechanism and its numbers.
        state: where it starts.
        controls: (T, nu) of the actuators of a robot; (T, nv) generalized forces where there are none.
        dt: s.
        settings: cone, program and limits.
        memory: before the first step.
        applied: wrenches (T, 6) of named bodies, in the plane (T, 3), as in `step`.
        mocap: poses (T + 1, 7) of named mocap bodies, in the plane (T + 1, 3), as in `step`.

    Returns:
        States and StepInfos after each step, time first: T rows, the last is the final state.

    Raises:
        TypeError, ValueError: as `step`.

    Status: of each step.

    Derivative: as `step`; memory grows with T.
    """
    _check(model, state, settings, memory, dt)
    check_array("controls", controls)
    width = model.num_controls
    if jnp.ndim(controls) != 2 or jnp.shape(controls)[1] != width:
        raise ValueError(f"controls: expected shape (T, {width}), got {jnp.shape(controls)}")
    steps = jnp.shape(controls)[0]
    inputs = _Inputs(controls, applied_rows(model, applied, steps), mocap_rows(model, mocap, dt, steps))
    return _rollout(model, state, inputs, dt, settings, start_memory(model, state, memory))


class _Inputs(NamedTuple):
    """Controls (T, nu), wrenches on the bodies and the motion of mocap bodies, of T steps."""

    controls: jax.Array
    wrenches: jax.Array | None
    mocap: MocapRows | None


@functools.partial(jit, static_argnames="settings")
def _rollout(
    model: Model,
    state: State,
    inputs: _Inputs,
    dt: float | jax.Array,
    settings: Settings,
    memory: StepMemory,
) -> tuple[State, StepInfo]:
    def advance(carry: tuple[State, StepMemory], row: _Inputs) -> tuple:
        moved = apply_mocap(apply_wrenches(model, row.wrenches), row.mocap, carry[0].t)
        then, info = step(moved, carry[0], row.controls, dt=dt, settings=settings, memory=carry[1])
        return (then, info.memory), (then, info)

    state = _let_depend_on(state, (model.params, state, inputs))
    return lax.scan(advance, (state, first_memory(model, state, memory)), inputs)[1]


def first_memory(model: Model, state: State, memory: StepMemory = START) -> StepMemory:
    """Fill what a memory lacks, zero forces (nr,) and zero stretch, so that steps keep its structure."""
    memory = start_memory(model, state, memory)
    if memory.forces is not None:
        return memory.replace(forces=lax.stop_gradient(memory.forces))
    spins = model.params.spin_friction is not None
    terms = rows_by_body if kept_by_body(model.system) and not spins else constraint_terms
    # A function that lasts would keep each call in a cache of JAX; a lambda takes its entry along.
    rows = jax.eval_shape(lambda at: terms(model, at), state).phi
    return memory.replace(forces=jnp.zeros(rows.shape, rows.dtype))


def _let_depend_on(state: State, causes: PyTree) -> State:
    """Add to a state a zero that depends on `causes`, so that it has a tangent whenever one of them has.

    After a step it has one anyway; if it had none before, JAX would derive the step twice.
    """
    floats = [x for x in jax.tree.leaves(causes) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    nothing = sum(jnp.where(False, jnp.ravel(x)[0], 0.0).astype(state.q.dtype) for x in floats if jnp.size(x))
    return state.replace(q=state.q + nothing, v=state.v + nothing)
