"""The loop over time: trial steps, the search for the time of an impact, impacts, contacts that stay closed.

Owns what happens within one time step. The step itself is in `discrete.py`, the impact in `strike.py`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact import implicit
from jaxcontact.impact.contact_space import collision_tolerance
from jaxcontact.simulate.discrete import Contacts, onto_closed_contacts, take_step
from jaxcontact.simulate.strike import Law, Strike, strike
from jaxcontact.simulate.trajectory import Impacts, Trajectory
from jaxcontact.status import Status, flag
from jaxcontact.system import Params, State, System, mass_matrix
from jaxcontact.terms import CONTACT_TOLERANCE, ContactTerms, contact_terms

MAX_TURNS = 1000  # of the loop within one step: trial steps and impacts


class _Node(NamedTuple):
    """A configuration with its momentum, and the contacts there."""

    q: jax.Array
    p: jax.Array
    v: jax.Array
    t: jax.Array
    terms: ContactTerms
    closed: jax.Array  # (nc,) bool: touching, not approaching and not leaving


class _Search(NamedTuple):
    """The search for the time of an impact within a step."""

    low: jax.Array  # no gap has closed after this long
    high: jax.Array  # one has
    h: jax.Array  # the next trial
    suspects: jax.Array  # (nc,) bool, gaps that close in between
    near: jax.Array  # whether the last trial ended on a gap
    tries: jax.Array


class _Carry(NamedTuple):
    node: _Node
    search: _Search
    last: jax.Array  # (nc,) time of the last impact
    impacts: Impacts
    impulse: jax.Array  # (nc, dim) of closed contacts in this step
    status: jax.Array
    turns: jax.Array


class _Setting(NamedTuple):
    restitution: jax.Array
    zeno: jax.Array
    key: jax.Array | None
    order: str | tuple[int, ...]
    law: Law | None


def _touching(terms: ContactTerms) -> jax.Array:
    """Contacts (nc,) that an impact takes part in: gaps below 1e-9 m, 1e-5 m in single precision."""
    return terms.phi <= (1e-9 if jnp.finfo(terms.phi.dtype).bits >= 64 else 1e-5)


def _approaching(node: _Node) -> jax.Array:
    return _touching(node.terms) & (node.terms.J_n @ node.v < -collision_tolerance(node.v.dtype))


def _at(system: System, params: Params, q: jax.Array, t: jax.Array) -> ContactTerms:
    if system.structure.num_contacts:
        return contact_terms(system, params, State(q=q, v=jnp.zeros(system.structure.num_velocities), t=t))
    nv, dtype = system.structure.num_velocities, q.dtype
    none = jnp.zeros(0, dtype)
    return ContactTerms(
        M=mass_matrix(system, params, q),
        J_n=jnp.zeros((0, nv), dtype),
        J_t=jnp.zeros((0, system.structure.dim - 1, nv), dtype),
        phi=none,
        mu=none,
        active=jnp.zeros(0, bool),
    )


def _contacts(terms: ContactTerms, closed: jax.Array) -> Contacts:
    return Contacts(jnp.concatenate([terms.J_n[:, None], terms.J_t], axis=1), terms.mu, closed)


def _arrive(terms: ContactTerms, q: jax.Array, p: jax.Array, t: jax.Array) -> _Node:
    v = implicit.solve_spd(terms.M, p[:, None])[:, 0]
    # Contacts that leave so slowly that they would be back within the round-off of a gap stay closed, which
    # does not hold them: closed contacts push but never pull.
    rate, tolerance = terms.J_n @ v, collision_tolerance(v.dtype)
    return _Node(q, p, v, t, terms, _touching(terms) & (rate >= -tolerance) & (rate <= 100.0 * tolerance))


@functools.partial(jax.jit, static_argnums=(0, 7, 8, 9, 10))
def run(
    system: System, params: Params, state: State, dt: jax.Array, restitution: jax.Array, zeno: jax.Array,
    key: jax.Array | None, order: str | tuple[int, ...], law: Law | None, num_steps: int, max_impacts: int,
) -> Trajectory:  # fmt: skip
    """The motion over `num_steps` steps of dt from `state`; arguments as `variational`."""
    setting = _Setting(restitution, zeno, key, order, law)
    terms = _at(system, params, state.q, state.t)
    start = _arrive(terms, state.q, terms.M @ state.v, jnp.asarray(state.t, state.q.dtype))
    nc, dim = terms.phi.shape[0], system.structure.dim
    bad = flag(jnp.any(terms.phi < -CONTACT_TOLERANCE), Status.PENETRATION)
    impacts = _no_impacts(system, setting, start, max_impacts)
    last = jnp.full(nc, -jnp.inf, start.q.dtype)

    def body(carry: tuple[_Node, jax.Array, Impacts], k: jax.Array) -> tuple[Any, Any]:
        node, last, impacts = carry
        t_end = start.t + (k + 1) * dt
        none = jnp.zeros((nc, dim), node.q.dtype)
        begin = _Carry(node, _whole(t_end - node.t, nc), last, impacts, none, jnp.uint32(0), jnp.int32(0))

        def moving(c: _Carry) -> jax.Array:
            unfinished = (c.node.t < t_end) | jnp.any(_approaching(c.node))
            return unfinished & (c.turns < MAX_TURNS) & jnp.all(jnp.isfinite(c.node.p))

        end = lax.while_loop(moving, lambda c: _turn(system, params, setting, t_end, c), begin)
        status = end.status | flag(end.turns >= MAX_TURNS, Status.MAX_ITERS)
        status = (
            status | flag(~jnp.all(jnp.isfinite(end.node.p)), Status.NONFINITE) | jnp.where(k == 0, bad, 0)
        )
        row = (end.node.q, end.node.v, end.node.t, end.node.closed, end.impulse, status)
        return (end.node, end.last, end.impacts), row

    steps = jnp.arange(num_steps)
    (_, _, impacts), rows = lax.scan(body, (start, last, impacts), steps)
    first = (start.q, start.v, start.t, start.closed)
    q, v, t, closed = (jnp.concatenate([a[None], b]) for a, b in zip(first, rows[:4], strict=True))
    return Trajectory(
        states=State(q=q, v=v, t=t), contacts=closed, impulse=rows[4], impacts=impacts, status=rows[5]
    )


def _whole(remaining: jax.Array, nc: int) -> _Search:
    """A first trial: all that remains of the step."""
    zero = jnp.zeros_like(remaining)
    return _Search(zero, remaining, remaining, jnp.zeros(nc, bool), jnp.array(False), jnp.int32(0))


def _turn(system: System, params: Params, setting: _Setting, t_end: jax.Array, carry: _Carry) -> _Carry:
    """An impact where one is due, else a trial step."""
    carry = carry._replace(turns=carry.turns + 1)
    if carry.last.shape[0] == 0:
        return _move(system, params, t_end, carry)
    return lax.cond(
        jnp.any(_approaching(carry.node)),
        lambda c: _collide(setting, t_end, c),
        lambda c: _move(system, params, t_end, c),
        carry,
    )


def _collide(setting: _Setting, t_end: jax.Array, carry: _Carry) -> _Carry:
    """The impact of all touching contacts."""
    node, impacts = carry.node, carry.impacts
    touching, approaching = _touching(node.terms), _approaching(node)
    soon = jnp.any(approaching & (node.t - carry.last < setting.zeno))
    key = None if setting.key is None else jax.random.fold_in(setting.key, impacts.count)
    terms = node.terms.replace(active=touching)
    hit = strike(terms, node.v, key, soon, setting.restitution, setting.order, setting.law)
    p = node.p + terms.M @ (hit.v_plus - node.v)  # what the impact leaves alone stays as it is, to the bit
    after = _arrive(node.terms, node.q, p, node.t)
    status = carry.status | hit.status | flag(soon, Status.ZENO)
    return carry._replace(
        node=after,
        search=_whole(t_end - node.t, touching.shape[0]),
        last=jnp.where(approaching, node.t, carry.last),
        impacts=_recorded(impacts, node, after, touching, approaching, soon, hit),
        status=status | flag(jnp.sum(touching) > 1, Status.SIMULTANEOUS),
    )


def _no_impacts(system: System, setting: _Setting, node: _Node, rows: int) -> Impacts:
    nc, nv, dtype = node.terms.phi.shape[0], node.v.shape[0], node.v.dtype
    length = 1
    if nc:
        key, order, law = setting.key, setting.order, setting.law
        one = jnp.zeros((), dtype)
        length = jax.eval_shape(
            lambda terms, v: strike(terms, v, key, jnp.array(False), one, order, law), node.terms, node.v
        ).order.shape[0]
    return Impacts(
        t=jnp.full(rows, jnp.nan, dtype),
        touching=jnp.zeros((rows, nc), bool),
        approaching=jnp.zeros((rows, nc), bool),
        order=jnp.full((rows, length), -1, jnp.int32),
        impulse=jnp.zeros((rows, nc), dtype),
        v_minus=jnp.full((rows, nv), jnp.nan, dtype),
        v_plus=jnp.full((rows, nv), jnp.nan, dtype),
        plastic=jnp.zeros(rows, bool),
        count=jnp.int32(0),
    )


def _recorded(
    impacts: Impacts, before: _Node, after: _Node, touching: jax.Array, approaching: jax.Array,
    soon: jax.Array, hit: Strike,
) -> Impacts:  # fmt: skip
    i = impacts.count
    return Impacts(
        t=impacts.t.at[i].set(before.t, mode="drop"),
        touching=impacts.touching.at[i].set(touching, mode="drop"),
        approaching=impacts.approaching.at[i].set(approaching, mode="drop"),
        order=impacts.order.at[i].set(hit.order, mode="drop"),
        impulse=impacts.impulse.at[i].set(hit.impulse, mode="drop"),
        v_minus=impacts.v_minus.at[i].set(before.v, mode="drop"),
        v_plus=impacts.v_plus.at[i].set(after.v, mode="drop"),
        plastic=impacts.plastic.at[i].set(soon, mode="drop"),
        count=i + 1,
    )


def _move(system: System, params: Params, t_end: jax.Array, carry: _Carry) -> _Carry:
    """A trial step: to the end of the time step if no gap closes, else nearer to where the first one does."""
    node, search = carry.node, carry.search
    contacts = _contacts(node.terms, node.closed)
    step, rate = take_step(system, params, node.q, node.p, node.t, node.v, contacts, search.h)
    eps = float(jnp.finfo(node.q.dtype).eps)
    finite = jnp.all(jnp.isfinite(step.p)) & jnp.isfinite(search.h)
    # A gap that starts a little below zero, by round-off, closes when it comes back to where it was.
    gap = step.phi - lax.stop_gradient(jnp.minimum(node.terms.phi, 0.0))
    fell = ~node.closed & (gap < -512.0 * eps)
    crossed = jnp.any(fell) & finite
    whole = (search.tries == 0) & ~crossed
    suspects = jnp.where(crossed, fell, search.suspects)
    # On a gap: within 450 eps seconds, 1e-13 in float64, or as near as its round-off lets one see.
    allowed = 450.0 * eps * jnp.abs(rate) + 16.0 * eps
    early = jnp.any(suspects & (gap < -allowed))
    near = jnp.any(suspects & (jnp.abs(gap) <= allowed)) & ~early
    low = jnp.where(crossed, search.low, search.h)
    high = jnp.where(crossed, search.h, search.high)
    shut = (high - low <= 4.0 * eps * (jnp.abs(t_end) + high)) & ~crossed
    # One more step of Newton's method from a point on the gap carries the derivative of the time exactly.
    found = (near & search.near) | shut
    falls = suspects & (rate < 0)
    ahead = jnp.where(falls, search.h - gap / jnp.where(falls, rate, -1.0), jnp.inf)
    newton = jnp.min(ahead, initial=jnp.inf)
    inside = (newton >= low) & (newton <= high) & (search.tries % 8 != 7)
    trial = jnp.where(inside | near, newton, 0.5 * (low + high))
    following = _Search(low, high, trial, suspects, near, search.tries + 1)

    def accept(_: None) -> tuple[Any, ...]:
        terms = _at(system, params, step.q, node.t)
        stay = node.closed & _touching(terms)
        p, second, fine = onto_closed_contacts(terms.M, step.p, _contacts(terms, stay), step.impulse)
        t = jnp.where(whole, t_end, node.t + search.h)
        arrived = _arrive(terms, step.q, p, t)
        status = flag(~(step.solved & fine), Status.STALLED)
        return arrived, _whole(t_end - t, fell.shape[0]), carry.impulse + step.impulse + second, status

    def refuse(_: None) -> tuple[Any, ...]:
        return node, following, carry.impulse, jnp.uint32(0)

    new, search, impulse, status = lax.cond(whole | found | ~finite, accept, refuse, None)
    return carry._replace(node=new, search=search, impulse=impulse, status=carry.status | status)
