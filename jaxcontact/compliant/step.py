"""Steps in time: (State, forces) -> State, and many of them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra.body_rows import BodyRows, Diagonal
from jaxcontact.arguments import check_array, check_count, check_positive, check_type
from jaxcontact.compliant.nearest import Selection, info_of_all, law_of, selection_of
from jaxcontact.compliant.problem import Problem, stretch_after
from jaxcontact.compliant.solve import NEWTON, Newton, StepInfo, solve_velocity
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.free_step import FreeStep, free_step, take_free_step
from jaxcontact.mechanics.motion_equations import free_masses, kinematics_of, mass_matrix_at
from jaxcontact.mechanics.system import Model, State, check_mechanism
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag
from jaxcontact.terms import BILATERAL, ConstraintTerms, constraint_terms, kept_by_body, rows_by_body
from jaxcontact.terms.constraints import check_sizes, constraint_terms_at


def assemble(model: Model, state: State, tau: jax.Array, dt: Any, *, by_body: bool = False) -> Problem:
    """The algebra of a step of a mechanism at a state; `by_body` where the mechanism suits that.

    Raises:
        ValueError: params carry no law, q or v has the wrong length, params do not fit the structure.
    """
    return assemble_all(model, state, tau, dt, by_body=by_body)[0]


def assemble_all(
    model: Model, state: State, tau: jax.Array, dt: Any, *, by_body: bool = False
) -> tuple[Problem, FreeStep]:
    """`assemble`, and the step without constraints."""
    check_sizes(model, state)
    kinematics = kinematics_of(model, state.q)
    M: Any
    if by_body:
        M, terms = Diagonal(values=free_masses(model).ravel()), rows_by_body(model, state)
    else:
        M = mass_matrix_at(model, state.q, kinematics)
        terms, _ = constraint_terms_at(model, state, kinematics)
    return _problem(model, state, tau, dt, M, terms, kinematics)


def assemble_nearest(
    model: Model, state: State, tau: jax.Array, dt: Any, max_contacts: int
) -> tuple[Problem, FreeStep, Selection]:
    """The algebra of a step that sees the nearest contacts alone, its free step, and which those are."""
    check_sizes(model, state)
    kinematics = kinematics_of(model, state.q)
    terms, nearest = constraint_terms_at(model, state, kinematics, max_contacts)
    assert nearest is not None
    M = mass_matrix_at(model, state.q, kinematics)
    problem, free = _problem(model, state, tau, dt, M, terms, kinematics)
    taken = selection_of(terms.kind, nearest)
    return problem.replace(law=law_of(problem.law, taken)), free, taken


def _problem(
    model: Model,
    state: State,
    tau: jax.Array,
    dt: Any,
    M: Any,
    terms: ConstraintTerms,
    kinematics: Any,
) -> tuple[Problem, FreeStep]:
    if model.params.law is None:
        raise ValueError("params.law: expected a compliant.Law, got None")
    h = jnp.asarray(dt, state.q.dtype)
    free = free_step(model, state, tau, h, M, kinematics)
    return Problem(M=free.M, v=free.v, f=free.push / h, terms=terms, law=model.params.law, dt=h), free


def _touched(terms: ConstraintTerms, lam: jax.Array) -> jax.Array:
    """Velocities (nv,) on which joints act, or limits and contacts that push."""
    acts = (lam != 0) | (jnp.asarray(terms.kind, jnp.int32) == BILATERAL)
    if not isinstance(terms.G, BodyRows):
        return jnp.any(acts[:, None] & (terms.G != 0), axis=0)
    dim, count = terms.G.values.shape[0], terms.G.count
    pushes = acts.reshape(-1, dim)[:, 0]
    touched = jnp.zeros(count + 1, bool)  # the last entry, index -1, is the world
    for bodies in (terms.G.first, terms.G.second):
        touched = touched.at[jnp.asarray(bodies)].max(pushes)
    return jnp.repeat(touched[:-1], 3 * dim - 3)


def step(
    model: Model,
    state: State,
    tau: jax.Array,
    *,
    dt: Any,
    cone: str = "associated",
    formulation: str = "complementary",
    solver: Newton = NEWTON,
    warm_start: jax.Array | None = None,
    max_contacts: int | None = None,
    stretch: jax.Array | None = None,
    zeta: Any = None,
) -> tuple[State, StepInfo]:
    """One step of length dt: v+ from the convex problem of its constraints, then q+ = q retracted by dt v+.

    First order in dt and L-stable where constraints push: as dt grows, a deviation dies in one step
    (Drumwright, eqs 36-39). Parts of a mechanism without such constraints move to second order, and keep
    their momentum; stiff springs and dampers of joints and linear gains of actuators are stable at any gain.

    Args:
        model: the mechanism and its numbers; `params.law` says how its constraints yield.
        state: where it starts.
        tau: (nv,) generalized forces beside gravity and the forces of the system; of a robot with actuators
            its controls (nu,).
        dt: s; 1e-8 to 0.1 tested with stiffness up to 1e15 N/m and damping up to 1e12 N s/m.
        cone: "associated", "staggered", "pyramid", or "coupled" with "min_norm"; see `solve`.
        formulation: "complementary", or "min_norm" for the paper's programs.
        solver: limits of the search.
        warm_start: (nr,) forces of the last step, `info.lam`: where the search starts, and in which modes.
        max_contacts: the step sees so many contacts, those of least gap; the others have no force. One that
            closes within a step is seen at the next. None is all candidates.
        stretch: (nc, nt) of the friction springs of the law at the start, m, along the tangents of each
            contact: `info.stretch` of the step before. None is zero: in a loop that does not hand it on, the
            springs start anew at every step, and what they hold creeps.
        zeta: of "min_norm", see `solve`.

    Returns:
        The next State, and StepInfo.

    Raises:
        TypeError: arguments in another order, a Model, or what is no array or number.
        ValueError: params carry no law, tau has another shape, dt is a number that is not positive and
            finite; what `solve` raises.

    Status: that of `solve`; NONFINITE also for q or t at the end; OVERFLOW where more than `max_contacts`
        touch at the start (gap <= 1e-6 m).

    Derivative: as `solve`; exact for the step by state, tau and params, any order. The reverse mode keeps
        state, forces and matrices of each step, and computes its kinematics again.
    """
    _check(model, state, solver, formulation, dt, max_contacts)
    check_array("tau", tau, (model.num_controls,))
    stretch = start_of_springs(model, state, stretch)
    return _step(model, state, tau, dt, cone, formulation, solver, warm_start, max_contacts, stretch, zeta)


def _check(model: Model, state: State, solver: Newton, formulation: str, dt: Any, max_contacts: Any) -> None:
    check_mechanism(model, state)
    check_type("solver", solver, Newton)
    if max_contacts is not None:
        check_count("max_contacts", max_contacts)
    if not isinstance(dt, jax.Array):  # reading one would wait for its device
        check_positive("dt", dt)
    if formulation == "min_norm" and model.params.law is not None and model.params.law.potential is not None:
        raise ValueError("formulation: 'min_norm' has springs and dampers only, got a law with a potential")


def start_of_springs(model: Model, state: State, stretch: jax.Array | None = None) -> jax.Array | None:
    """Stretch (nc, nt) of the friction springs, zero where it is not given; None where the law has none."""
    shape = (model.structure.num_contacts, model.structure.dim - 1)
    if model.params.law is None or model.params.law.friction_spring is None:
        if stretch is not None:
            raise ValueError("stretch: expected None, for the law has no friction_spring, got an array")
        return None
    if stretch is None:
        return jnp.zeros(shape, state.q.dtype)
    check_array("stretch", stretch, shape)
    return stretch


@functools.partial(jit, static_argnames=("cone", "formulation", "solver", "max_contacts"))
def _step(
    model: Model,
    state: State,
    tau: jax.Array,
    dt: Any,
    cone: str,
    formulation: str,
    solver: Newton,
    warm_start: jax.Array | None,
    max_contacts: int | None,
    stretch: jax.Array | None,
    zeta: Any,
) -> tuple[State, StepInfo]:
    whole = formulation == "min_norm" or cone == "staggered"  # those eliminate with one matrix
    if max_contacts is not None and max_contacts >= model.structure.num_contacts:
        max_contacts = None
    by_body = not whole and max_contacts is None and kept_by_body(model.system)
    # The reverse mode keeps the state and computes its mechanics again: less than to store and read them.
    again = functools.partial(jax.checkpoint, prevent_cse=False)
    if max_contacts is not None:
        make = functools.partial(assemble_nearest, max_contacts=max_contacts)
        problem, free, taken = again(make)(model, state, tau, dt)
        if warm_start is not None:
            check_array("warm_start", warm_start, (taken.num_rows,))
            warm_start = warm_start[taken.rows]
        loose = None
        if model.params.law is not None and stretch is not None:
            problem = problem.replace(stretch=stretch[taken.nearest.index])
            loose = stretch_after(model.params.law, stretch, jnp.zeros_like(stretch), problem.dt)
        v, info = solve_velocity(problem, warm_start, cone, formulation, solver, zeta)
        touched = _touched(problem.terms, info.lam)
        info = info_of_all(info, taken, loose)
    else:
        problem, free = again(functools.partial(assemble_all, by_body=by_body))(model, state, tau, dt)
        problem = problem.replace(stretch=stretch)
        v, info = solve_velocity(problem, warm_start, cone, formulation, solver, zeta)
        touched = _touched(problem.terms, info.lam)
    v, rate = take_free_step(model.system, free, v, touched)
    q = again(functools.partial(retract, model.system))(state.q, problem.dt * rate)
    t = state.t + problem.dt
    moved = jnp.all(jnp.isfinite(q)) & jnp.isfinite(t)  # v is finite, and dt v may not be
    own = flag(~moved, Status.NONFINITE) | flag(~free.settled, Status.MAX_ITERS)
    return State(q=q, v=v, t=t), info.replace(status=info.status | own)


def rollout(
    model: Model,
    state: State,
    controls: jax.Array,
    *,
    dt: Any,
    cone: str = "associated",
    formulation: str = "complementary",
    solver: Newton = NEWTON,
    warm_start: jax.Array | None = None,
    max_contacts: int | None = None,
    stretch: jax.Array | None = None,
    zeta: Any = None,
) -> tuple[State, StepInfo]:
    """Steps under the controls (T, nu), each started from the forces of the one before.

    Args:
        model: the mechanism and its numbers.
        state: where it starts.
        controls: (T, nu) of the actuators of a robot; (T, nv) generalized forces where there are none.
        dt: s.
        cone: see `solve`.
        formulation: see `solve`.
        solver: limits of the search.
        warm_start: (nr,) forces before the first step.
        max_contacts: see `step`.
        stretch: (nc, nt) of the friction springs before the first step, m; None is zero.
        zeta: of "min_norm", see `solve`.

    Returns:
        States and StepInfos after each step, time first: T rows, the last is the final state.

    Raises:
        TypeError, ValueError: as `step`.

    Status: of each step.

    Derivative: as `step`; memory grows with T.
    """
    _check(model, state, solver, formulation, dt, max_contacts)
    check_array("controls", controls)
    width = model.num_controls
    if jnp.ndim(controls) != 2 or jnp.shape(controls)[1] != width:
        raise ValueError(f"controls: expected shape (T, {width}), got {jnp.shape(controls)}")
    stretch = start_of_springs(model, state, stretch)
    return _rollout(
        model,
        state,
        controls,
        dt,
        cone,
        formulation,
        solver,
        warm_start,
        max_contacts,
        stretch,
        zeta,
    )


@functools.partial(jit, static_argnames=("cone", "formulation", "solver", "max_contacts"))
def _rollout(
    model: Model,
    state: State,
    controls: jax.Array,
    dt: Any,
    cone: str,
    formulation: str,
    solver: Newton,
    warm_start: jax.Array | None,
    max_contacts: int | None,
    stretch: jax.Array | None,
    zeta: Any,
) -> tuple[State, StepInfo]:
    options: dict[str, Any] = {
        "dt": dt, "cone": cone, "formulation": formulation, "solver": solver, "max_contacts": max_contacts,
        "zeta": zeta,
    }  # fmt: skip

    def advance(carry: tuple[State, jax.Array, jax.Array | None], tau: jax.Array) -> tuple:
        now, forces, stretch = carry
        then, info = step(model, now, tau, warm_start=forces, stretch=stretch, **options)
        return (then, lax.stop_gradient(info.lam), info.stretch), (then, info)

    if warm_start is None:
        terms = rows_by_body if kept_by_body(model.system) else constraint_terms
        rows = jax.eval_shape(terms, model, state).phi
        warm_start = jnp.zeros(rows.shape, rows.dtype)
    state = _moving_with(state, (model.params, state, controls))
    return lax.scan(advance, (state, lax.stop_gradient(warm_start), stretch), controls)[1]


def _moving_with(state: State, causes: Any) -> State:
    """The same state, with a derivative by whatever of `causes` is differentiated by, if only of zero.

    After a step it has one, and JAX would derive the step again when it finds out.
    """
    floats = [x for x in jax.tree.leaves(causes) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
    nothing = sum(jnp.where(False, jnp.ravel(x)[0], 0.0).astype(state.q.dtype) for x in floats if jnp.size(x))
    return state.replace(q=state.q + nothing, v=state.v + nothing)
