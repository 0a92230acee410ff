"""Painleve's paradox: a sliding contact with several possible forces, or none.

Entry `paradox` decides it at one state; the modes are those of `force_modes`.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import static
from jaxcontact.algebra import implicit
from jaxcontact.arguments import check_rows
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.impact.analysis.force_modes import acceleration_size, force_modes, near_zero, presses
from jaxcontact.impact.laws.contact_enumeration import check_enumeration
from jaxcontact.impact.laws.contact_space import ContactSpace, contact_space, friction_directions
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes, mode_choice
from jaxcontact.status import Info, Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

MAX_SOLUTIONS = 16  # largest number of solutions that are returned; fixes the shape of the result


class Paradox(enum.IntEnum):
    """The number of accelerations that finite contact forces allow: one, several or none."""

    NONE = 0
    INDETERMINATE = 1
    INCONSISTENT = 2


class ParadoxInfo(Info):
    """The solutions of a state.

    Attributes:
        status: uint32 bits of `Status`.
        residual: smallest violation of the inequalities by a mode, relative to the size of accelerations; 0
            without a solution.
        num_iters: number of contact modes tried.
        count: number of distinct solutions; 0 is `INCONSISTENT`, 2 and more `INDETERMINATE`.
        force: (16, nc, 1 + nt) contact forces (n, t1, t2) of the solutions in the order of a score, N; NaN
            after the last.
        acceleration: (16, nc, 1 + nt) of the contacts under these forces, m/s^2; NaN after the last.
        presses: (nc,) bool, contacts pressed together by their own sliding friction; they can begin an
            impact without a collision.
        complete: as `ImpactInfo.complete`.
    """

    count: jax.Array
    force: jax.Array
    acceleration: jax.Array
    presses: jax.Array
    complete: bool = static(default=True)


@checked(num_directions=check_rows)
def paradox(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    f: Float[jax.Array, " nv"],
    *,
    drift: Float[jax.Array, "nc 1+nt"] | None = None,
    num_directions: int = 8,
) -> tuple[jax.Array, ParadoxInfo]:
    """Decide Painleve's paradox at a state: none, indeterminate or inconsistent under the forces f.

    M a = f + J^T lam with finite lam: the contacts at rest along their normals have accelerations
    J a + drift >= 0, complementary to lam_n >= 0 (Halm & Posa, eqs (10), (12), (16), differentiated). At a
    sliding contact lam_t = -mu lam_n u_t / |u_t|, exactly, also in space. Without a solution the contact
    cannot continue without an impact, which then has no collision. With several solutions forces do not
    determine the motion that follows.

    Args:
        terms: contact terms, nc contacts; those that touch and neither approach nor separate take part.
        v: (nv,) velocity.
        f: (nv,) generalized forces without contacts, such as `-jc.bias(model, state)`, N.
        drift: (nc, 1 + nt) accelerations of the contacts at a = 0, (dJ/dt) v, m/s^2: the rate of
            `jc.terms.contact_velocities` at constant v. None is zero, as for bodies that do not rotate.
        num_directions: sides of the friction cone in space of contacts that do not slide.

    Returns:
        A `Paradox` as int32, and ParadoxInfo.

    Raises:
        ValueError, TypeError: as `anitescu_potra`; f or drift of the wrong shape or not finite; more contacts
            than enumeration allows.

    Status: UNTERMINATED if a contact still approaches, so that a collision comes first; OVERFLOW for more
        than 16 solutions; NONFINITE, INVALID, PENETRATION for bad numbers.

    Derivative: none of the decision; of `info.force` by all arguments, in the modes found.
    """
    inputs.check(terms, v)
    inputs.check_array("f", f, jnp.shape(v))
    nc, nt = jnp.shape(terms.J_t)[:2]
    if drift is None:
        drift = jnp.zeros((nc, 1 + nt), v.dtype)
    inputs.check_array("drift", drift, (nc, 1 + nt))
    for name, value in (("f", f), ("drift", drift)):
        if inputs.is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
            raise ValueError(f"{name}: expected finite numbers, got NaN or inf")
    check_enumeration(terms, num_directions, "paradox")
    return _paradox(terms, v, f, drift, num_directions)


@functools.partial(jit, static_argnames="num_directions")
def _paradox(
    terms: ContactTerms, v: jax.Array, f: jax.Array, drift: jax.Array, num_directions: int
) -> tuple[jax.Array, ParadoxInfo]:
    terms, v, status = inputs.prepare(terms, v)
    finite = jnp.all(jnp.isfinite(f)) & jnp.all(jnp.isfinite(drift))
    status = status | flag(~finite, Status.NONFINITE)
    good = status == 0
    f, drift = jnp.where(good, f, 0.0), jnp.where(good, drift, 0.0)
    nc, nt, _ = terms.J_t.shape
    terms, turn = _along_slip(terms, v)
    space = contact_space(terms)
    near = near_zero(space, v, jnp.zeros((), v.dtype)).reshape(nc, -1)
    u = (space.jacobian @ v).reshape(nc, -1)
    approaches = terms.active & (u[:, 0] < -near[:, 0])
    closed = terms.active & (jnp.abs(u[:, 0]) <= near[:, 0])
    slides = closed & (jnp.linalg.norm(u[:, 1:], axis=1) > near[:, 1])

    space = contact_space(terms.replace(active=closed))
    free = implicit.solve_spd(terms.M, f[:, None])[:, 0]
    drift_rate = space.scale * jnp.einsum("cij,cj->ci", turn, drift).reshape(-1)
    drift_rate = jnp.where(jnp.repeat(closed, 1 + nt), drift_rate, 0.0)
    rate = space.jacobian @ free + drift_rate
    size = acceleration_size(space, free, drift_rate)
    directions = friction_directions(nt, num_directions)
    forward = u[:, 1] > 0
    table, violation = force_modes(space, rate, slides, forward, size, directions)
    valid = violation <= contact_modes.feasibility_tolerance(v.dtype)
    score = jnp.sum(table.score * rate[:, None], axis=0)
    modes, count = mode_choice.distinct(valid, score, size, MAX_SOLUTIONS)
    heading = jnp.zeros((nc, nt), v.dtype).at[:, 0].set(jnp.where(forward, 1.0, -1.0))
    kind = jnp.where(
        count == 0, Paradox.INCONSISTENT, jnp.where(count > 1, Paradox.INDETERMINATE, Paradox.NONE)
    )
    kind = jnp.where(good, kind, Paradox.NONE).astype(jnp.int32)
    force, acceleration = _solutions(space, table, modes, count, rate, turn)
    info = ParadoxInfo(
        status=status
        | flag(jnp.any(approaches), Status.UNTERMINATED)
        | flag(count > MAX_SOLUTIONS, Status.OVERFLOW),
        residual=jnp.where(count > 0, jnp.min(violation), 0.0),
        num_iters=jnp.int32(violation.shape[0]),
        count=count,
        force=force,
        acceleration=acceleration,
        presses=presses(space, slides, heading),
        complete=nt == 1,
    )
    return kind, info


def _along_slip(terms: ContactTerms, v: jax.Array) -> tuple[ContactTerms, jax.Array]:
    """Express the terms in frames whose t1 is the direction of sliding; also return the rotations to them.

    In the plane frames stay unchanged. The direction carries no derivative: it is that of the state.
    """
    nc, nt, _ = terms.J_t.shape
    turn = jnp.broadcast_to(jnp.eye(1 + nt, dtype=v.dtype), (nc, 1 + nt, 1 + nt))
    if nt == 1:
        return terms, turn
    slip = jnp.einsum("ctv,v->ct", terms.J_t, v)
    length = jnp.sqrt(jnp.sum(slip**2, axis=1, keepdims=True))
    along = jnp.where(length > 0, slip / jnp.where(length > 0, length, 1.0), jnp.array([1.0, 0.0], v.dtype))
    across = jnp.stack([-along[:, 1], along[:, 0]], axis=1)
    plane = jnp.stack([along, across], axis=1)
    turn = turn.at[:, 1:, 1:].set(plane)
    return terms.replace(J_t=jnp.einsum("cij,cjv->civ", plane, terms.J_t)), turn


def _solutions(
    space: ContactSpace, table: contact_modes.ModeMaps, modes: jax.Array, count: jax.Array,
    rate: jax.Array, turn: jax.Array,
) -> tuple[jax.Array, jax.Array]:  # fmt: skip
    """Compute forces and accelerations (16, nc, 1 + nt) in the original frames of the terms."""
    scaled = jnp.einsum("rlk,l->kr", table.impulse[:, :, modes], rate)
    scale = space.scale[None]
    both = scale * scaled, (scaled @ space.delassus.T + rate[None]) / scale
    nc, rows = turn.shape[:2]
    is_solution = (jnp.arange(MAX_SOLUTIONS) < count)[:, None, None]
    force, acceleration = (
        jnp.where(is_solution, jnp.einsum("cji,kcj->kci", turn, x.reshape(MAX_SOLUTIONS, nc, rows)), jnp.nan)
        for x in both
    )
    return force, acceleration
