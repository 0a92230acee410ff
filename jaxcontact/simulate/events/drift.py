"""The drift of contacts at rest: gaps and velocities that are not zero, as round-off and steps leave them.

Owns its removal, and the derivative of that. Entries: `remove_drift`, `repeat_removal`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.dtypes import float0

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import small_dense
from jaxcontact.impact.laws.contact_space import contact_space
from jaxcontact.mechanics.configuration import position_rate, retract
from jaxcontact.mechanics.system import Model, Params, State, System
from jaxcontact.simulate.augmented.contact_forces import shortest_forces
from jaxcontact.simulate.variational.contact_state import terms_and_joints, terms_at
from jaxcontact.solvers.contact_problem import SEPARATE, SLIDE
from jaxcontact.terms import ContactTerms
from jaxcontact.terms.closed_loops import project_velocity
from jaxcontact.terms.motion import has_loops


def remove_drift(model: Model, state: State, kind: jax.Array) -> tuple[State, ContactTerms]:
    """Remove the drift of the gaps and velocities of contacts at rest from a state; return it and its terms.

    The quaternions of the result have length one.

    Derivative: none; see `repeat_removal`.
    """
    state = state.replace(q=retract(model.system, state.q, jnp.zeros_like(state.v)))
    nothing = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: _measure_drift(model, state).terms)
    )
    loops = has_loops(model, state.q)
    rests = jnp.any(kind != SEPARATE) | loops

    def evaluate(q: jax.Array, v: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array, ContactTerms]:
        measured = _measure_drift(model, state.replace(q=q, v=v))
        if kind.shape[0] or loops:

            def undo() -> tuple[jax.Array, jax.Array]:
                delta, change = _undo_drift(measured, measured.drift, kind)
                return retract(model.system, q, delta), v + change

            q, v = lax.cond(last, lambda: (q, v), undo)
        return q, v, measured.terms

    def correct(carry: tuple[jax.Array, jax.Array], last: jax.Array) -> tuple[PyTree, ContactTerms]:
        q, v = carry
        q, v, terms = lax.cond(rests | last, evaluate, lambda q, v, _: (q, v, nothing), q, v, last)
        return (q, v), terms

    # The terms before and after are evaluated by the same code.
    (q, v), terms = lax.scan(correct, (state.q, state.v), jnp.array([False, True]))
    return state.replace(q=q, v=v), jax.tree.map(lambda x: x[-1], terms)


def repeat_removal(model: Model, state: State, kind: jax.Array) -> tuple[State, ContactTerms]:
    """Return a state without drift and its terms, with the derivative that `remove_drift` has there.

    A drift is removed by a change that is linear in it: where it is zero, only the drift has a derivative.
    """
    state = state.replace(q=retract(model.system, state.q, jnp.zeros_like(state.v)))
    settled: tuple[State, ContactTerms] = _settling(model.system)(model.params, state, kind)
    return settled


@functools.lru_cache(maxsize=64)
def _settling(system: System) -> Callable[..., tuple[State, ContactTerms]]:
    @jax.custom_jvp
    def settle(params: Params, state: State, kind: jax.Array) -> tuple[State, ContactTerms]:
        return state, terms_at(Model(system=system, params=params), state.q, state.t)

    @settle.defjvp
    def _(primals: tuple[PyTree, ...], tangents: tuple[PyTree, ...]) -> tuple[PyTree, PyTree]:
        (params, state, kind), (rates, change, _) = primals, tangents

        def measure(params: Params, state: State) -> tuple[_Measured, _Measured]:
            measured = _measure_drift(Model(system=system, params=params), state)
            return measured, measured

        def correct(change: State, last: jax.Array) -> tuple[State, list[jax.Array]]:
            _, moved, at = jax.jvp(measure, (params, state), (rates, change), has_aux=True)
            undo = functools.partial(_undo_drift, at, kind=kind)
            _, (delta, faster) = jax.jvp(undo, (at.drift,), (moved.drift,))
            q = change.q + position_rate(system, state.q, delta)
            ahead = change.replace(q=q, v=change.v + faster)
            after = jax.tree.map(lambda a, b: jnp.where(last, a, b), change, ahead)
            return after, [x for x in jax.tree.leaves(moved.terms) if x.dtype != float0]

        # The terms before and after are differentiated by the same code.
        change, moves = lax.scan(correct, change, jnp.array([False, True]))
        out = settle(params, state, kind)
        leaves, structure = jax.tree.flatten(out[1])
        move = iter(moves)
        moved = [
            next(move)[-1] if jnp.issubdtype(x.dtype, jnp.inexact) else np.zeros(x.shape, float0)
            for x in leaves
        ]
        return out, (change, jax.tree.unflatten(structure, moved))

    return settle


class _Drift(NamedTuple):
    """Deviations (nb,) of loops and their rates (nb,); gaps (nc,) of contacts, their velocities (nc, dim)."""

    deviation: jax.Array
    loop_rate: jax.Array
    gap: jax.Array
    speed: jax.Array


class _Measured(NamedTuple):
    """The terms at a state, the rows (nb, nv) of loops there, and the drift."""

    terms: ContactTerms
    rows: jax.Array
    drift: _Drift


def _measure_drift(model: Model, state: State) -> _Measured:
    """Compute the terms at a state, and the drift that all contacts have if they are at rest."""
    terms, joints = terms_and_joints(model, state.q, state.t)
    rows, deviation = jnp.zeros((0, state.v.shape[0]), state.q.dtype), jnp.zeros(0, state.q.dtype)
    rate = deviation
    if joints is not None and joints.loops is not None:
        rows, deviation = joints.loops
        rate = rows @ state.v
    along = jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1)
    speed = small_dense.apply_matrix(along, state.v)
    if terms.surface is not None:
        speed = speed + terms.surface
    return _Measured(terms, rows, _Drift(deviation, rate, terms.phi, speed))


def _undo_drift(measured: _Measured, drift: _Drift, kind: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute the changes of q and v (nv,) that remove a drift to first order; they are linear in it."""
    terms, rows, _ = measured
    delta = change = jnp.zeros_like(terms.M[0])
    if rows.shape[0]:
        delta = project_velocity(terms.M, rows, delta, drift.deviation)
        change = project_velocity(terms.M, rows, change, drift.loop_rate)
    if not kind.shape[0]:
        return delta, change
    closed = kind != SEPARATE
    space = contact_space(terms.replace(active=closed, mu=jnp.zeros_like(terms.mu)))
    none = jnp.zeros_like(drift.speed[:, 1:])
    gap = jnp.concatenate([drift.gap[:, None], none], axis=1)
    off = jnp.where(closed[None, :, None], jnp.stack([gap, drift.speed]), 0.0).reshape(2, -1)
    kinds = jnp.stack([jnp.where(closed, SLIDE, SEPARATE), kind])
    moves = jax.vmap(lambda x, kind: shortest_forces(space, x, kind, none))(space.scale[None] * off, kinds)
    moved = moves @ space.response.T
    return delta + moved[0], change + moved[1]
