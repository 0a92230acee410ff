"""Steps in time: (State, forces) -> State, and many of them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.compliant.problem import Problem
from jaxcontact.compliant.solve import NEWTON, Newton, StepInfo, solve_velocity
from jaxcontact.system import Params, State, System, bias, mass_matrix, retract
from jaxcontact.terms import constraint_terms


def assemble(system: System, params: Params, state: State, tau: jax.Array, dt: Any) -> Problem:
    """The algebra of a step of a mechanism at a state.

    Raises:
        ValueError: params carry no law.
    """
    if params.law is None:
        raise ValueError("params.law: expected a compliant.Law, got None")
    return Problem(
        M=mass_matrix(system, params, state.q),
        v=state.v,
        # Forces that depend on time, `System.drive`, are those of the end of the step.
        f=tau - bias(system, params, state.replace(t=state.t + dt)),
        terms=constraint_terms(system, params, state),
        law=params.law,
        dt=jnp.asarray(dt, state.q.dtype),
    )


@functools.partial(jax.jit, static_argnames=("system", "cone", "formulation", "solver"))
def step(
    system: System,
    params: Params,
    state: State,
    tau: jax.Array,
    *,
    dt: Any,
    cone: str = "associated",
    formulation: str = "complementary",
    solver: Newton = NEWTON,
    warm_start: jax.Array | None = None,
) -> tuple[State, StepInfo]:
    """One step of length dt."""
    problem = assemble(system, params, state, tau, dt)
    v, info = solve_velocity(problem, warm_start, cone, formulation, solver)
    return State(q=retract(system, state.q, problem.dt * v), v=v, t=state.t + problem.dt), info


@functools.partial(jax.jit, static_argnames=("system", "cone", "formulation", "solver"))
def rollout(
    system: System,
    params: Params,
    state: State,
    controls: jax.Array,
    *,
    dt: Any,
    cone: str = "associated",
    formulation: str = "complementary",
    solver: Newton = NEWTON,
    warm_start: jax.Array | None = None,
) -> tuple[State, StepInfo]:
    """Steps under the controls (T, nv); each starts from the forces of the last."""
    options: dict[str, Any] = {"dt": dt, "cone": cone, "formulation": formulation, "solver": solver}

    def advance(carry: tuple[State, jax.Array], tau: jax.Array) -> tuple:
        now, forces = carry
        then, info = step(system, params, now, tau, warm_start=forces, **options)
        return (then, info.lam), (then, info)

    if warm_start is None:
        warm_start = jnp.zeros_like(jax.eval_shape(constraint_terms, system, params, state).phi)
    return lax.scan(advance, (state, warm_start), controls)[1]
