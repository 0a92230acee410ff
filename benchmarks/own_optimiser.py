"""A motion planned by another package, OpenSCvx (`pip install openscvx`), with compliant steps as dynamics.

A step and its derivatives are functions of JAX, so a planner that takes functions of JAX needs no more. Page:
docs/extend/own-optimiser.md.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxcontact as jc
from benchmarks.runner import Case

DT, STEPS, NODES = 0.01, 5, 11  # s, steps with equal controls, and how often
WAY = 0.2  # m, of the trunk, which ends as high and as upright as it begins
MAX_ITERS = 60
# Of steps, errors of the dynamics, conditions, effort. The first stays, or the search stops far from a plan.
WEIGHTS = {"lam_prox": 1.0, "lam_vc": 10.0, "lam_vb": 10.0, "lam_cost": 1e-2}


def make_advance(model: jc.Model, state: jc.State) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Make (x, u) -> x at the next node, x = (q, v)."""
    nv = model.structure.num_velocities

    def advance(x: jax.Array, u: jax.Array) -> jax.Array:
        controls = jnp.broadcast_to(u, (STEPS, model.num_controls))
        states, _ = jc.compliant.rollout(model, state.replace(q=x[:nv], v=x[nv:]), controls, dt=DT)
        return jnp.concatenate([states.q[-1], states.v[-1]])

    return advance


def at_state(condition: Callable[[jax.Array], jax.Array], motion: Any) -> Callable[..., jax.Array]:
    """Turn a condition of a state into one of OpenSCvx's form, which knows the slice of a state later."""
    return lambda x, w, node, params: condition(x[motion.slice])


def make_problem(
    advance: Callable[..., jax.Array], x0: np.ndarray, guess: tuple[np.ndarray, np.ndarray],
    conditions: Sequence[tuple[Callable[[jax.Array], jax.Array], list[int]]] = (),
) -> tuple[Any, Any]:  # fmt: skip
    """Make the problem of OpenSCvx, and its controls: of least squares from x0 to its pose farther on.

    The guess has states and controls of the nodes; conditions are functions of a state, not to be positive,
    with their nodes.
    """
    import openscvx as ox

    goal, reach = x0 + WAY * np.eye(x0.size)[0], np.repeat([2.0, 20.0], x0.size // 2)
    motion = ox.State("motion", shape=(x0.size,))
    motion.min, motion.max, motion.initial, motion.guess = x0 - reach, x0 + reach, x0, guess[0]
    motion.final = [*goal[:3], *(ox.Free(value) for value in goal[3:])]
    effort = ox.State("effort", shape=(1,))
    effort.min, effort.max, effort.initial, effort.final = [0.0], [100.0], [0.0], [ox.Minimize(0.5)]
    effort.guess = np.cumsum(np.sum(guess[1] ** 2, axis=1))[:, None]
    nu = guess[1].shape[1]
    u = ox.Control("u", shape=(nu,), parameterization="impulsive", nodes=list(range(NODES)))
    u.min, u.max, u.guess = -np.ones(nu), np.ones(nu), guess[1]
    rows = [{"constraint_fn": at_state(condition, motion), "nodes": nodes} for condition, nodes in conditions]
    problem = ox.Problem(
        dynamics={"motion": np.zeros(x0.size) * motion, "effort": 0.0 * effort},  # all motion is in the step
        dynamics_discrete={"effort": effort + ox.Sum(u * u)},
        byof={
            "dynamics_discrete": {"motion": lambda x, w, node, params: advance(x[motion.slice], w[u.slice])},
            "nodal_constraints": rows,
        },
        constraints=[],
        states=[motion, effort],
        controls=[u],
        time=ox.Time(initial=0.0, final=1.0, min=0.0, max=1.0),
        N=NODES,
        float_dtype="float64",
        algorithm={"autotuner": "ConstantProximalWeight", **WEIGHTS},
    )
    return problem, u


def _lean() -> Callable[[], dict[str, Any]]:
    model = jc.models.hopper()
    state = jc.place_on_ground(model, model.initial_state())[0]
    nv = model.structure.num_velocities
    x0, advance = np.concatenate([state.q, state.v]), make_advance(model, state)

    def run() -> dict[str, Any]:
        begin = time.perf_counter(), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            line = np.linspace(x0, x0 + WAY * np.eye(x0.size)[0], NODES)
            problem, control = make_problem(advance, x0, (line, np.zeros((NODES, model.num_controls))))
            problem.initialize()
            compiled = time.process_time() - begin[1]
            result = problem.solve(max_iters=MAX_ITERS)
        controls = np.asarray(result.u)[:, control.slice]
        x, move, gaps = jnp.asarray(x0), jax.jit(advance), []
        gap = jax.jit(lambda q: jnp.min(jc.contact_terms(model, state.replace(q=q)).phi))
        for u in controls:  # the plan, carried out by the step itself
            x = move(x, jnp.asarray(u))
            gaps.append(float(gap(x[:nv])))
        miss = np.asarray(x)[:3] - x0[:3] - WAY * np.eye(3)[0]
        return {
            "converged": bool(result.converged),
            "iterations": problem.state.k,
            "mean square of controls": float(np.mean(controls**2)),
            "way, m": float(x[0] - x0[0]),
            "miss of the end, m or rad": float(np.max(np.abs(miss))),
            "lowest point above ground by at most, m": max(gaps),
            "processor s until compiled": compiled,
            "processor s": time.process_time() - begin[1],
            "s": time.perf_counter() - begin[0],
        }

    return run


CASES = [Case(name="hopper by OpenSCvx", items=1, setup=_lean, repeats=1)]
