"""Mechanics becomes linear algebra here and nowhere else: (System, Params, State) -> Contact/ConstraintTerms.

Everything below this module (impact laws, solvers) sees matrices only, so a record built by hand serves
as well as one from a mechanism.
"""

from __future__ import annotations

import enum
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import Record, static
from jaxcontact.algebra import body_rows
from jaxcontact.algebra.body_rows import BodyRows
from jaxcontact.mechanics.configuration import position_rate, tangent_jacobian
from jaxcontact.mechanics.motion_equations import body_frames, free_rates, mass_matrix
from jaxcontact.mechanics.system import FrameMotion, Params, State, System, check_mechanism, free_poses

CONTACT_TOLERANCE = 1e-6  # m; a gap below it is a touching contact, below minus it a penetration


class ContactTerms(Record):
    """A configuration in contact, as matrices.

    Attributes:
        M: (nv, nv) mass matrix.
        J_n: (nc, nv) normal velocity Jacobian; J_n v > 0 separates.
        J_t: (nc, nt, nv) tangential velocity Jacobian, nt = 1 in the plane, 2 in space.
        phi: (nc,) gap, m.
        mu: (nc,) friction coefficient.
        active: (nc,) bool, True where a contact touches.
    """

    M: jax.Array
    J_n: jax.Array
    J_t: jax.Array
    phi: jax.Array
    mu: jax.Array
    active: jax.Array


class Kind(enum.IntEnum):
    """What a row of `ConstraintTerms` is; it decides the sign of its force."""

    BILATERAL = 0  # a joint: force of either sign
    LIMIT = 1  # phi >= 0, force >= 0, no friction
    NORMAL = 2  # phi >= 0, force >= 0, followed by the tangents of its contact
    TANGENT = 3  # friction, bounded by mu times the normal force before it


BILATERAL, LIMIT, NORMAL, TANGENT = Kind


class ConstraintTerms(Record):
    """Joints, limits and contacts at one configuration, as rows: G^T lam is the generalized force.

    Rows are ordered: every bilateral row, every limit, then each contact as (n, t1) in the plane or
    (n, t1, t2) in space. The number of rows is fixed; a row far from contact has phi > 0.

    Attributes:
        G: (nr, nv) velocity Jacobian (dphi/dq) N(q); G v > 0 separates on limits and normals, and is the
            tangential velocity of a relative to b on tangents. Steps of long chains of free bodies keep it
            as `BodyRows`.
        phi: (nr,) deviation or gap, m or rad; 0 on tangents.
        gdot_v: (nr,) the part of d(G v)/dt that does not come from vdot, m/s^2.
        mu: (nc,) friction coefficient of each contact.
        kind: (nr,) the `Kind` of each row (static).
    """

    G: Any
    phi: jax.Array
    gdot_v: jax.Array
    mu: jax.Array
    kind: tuple[Kind, ...] = static()


def contact_terms(system: System, params: Params, state: State) -> ContactTerms:
    """Mass matrix, gaps and contact Jacobians of a mechanism at a state.

    J_n = (dphi/dq) N(q); J_t v is the tangential velocity of the material point of a in contact
    relative to that of b. A contact is active where phi <= 1e-6 m: a physical length, whatever the size of
    the bodies, so lengths are in metres here. Impact laws, which take the terms, have no other such number.

    Args:
        system: the mechanism (static).
        params: its numbers.
        state: configuration and velocity; only q matters here.

    Returns:
        ContactTerms with nc candidate contacts in the order of `system.structure.pairs`.

    Raises:
        TypeError: arguments in another order, or a Model.
        ValueError: q or v has the wrong length, params do not fit the structure.

    Derivative: exact by q and params, any order; `active` is piecewise constant.
    """
    check_mechanism(system, params, state)
    return _contact_terms(system, params, state)


@functools.partial(jax.jit, static_argnums=0)
def _contact_terms(system: System, params: Params, state: State) -> ContactTerms:
    if system.structure.num_contacts == 0:
        raise ValueError("system: the structure has no candidate contacts; give it shapes and pairs")
    _check_sizes(system, params, state)
    phi, rows = _contact_rows(system, params, state.q)
    return ContactTerms(
        M=mass_matrix(system, params, state.q),
        J_n=rows[:, 0],
        J_t=rows[:, 1:],
        phi=phi,
        mu=_friction(system, params, phi.dtype),
        active=phi <= CONTACT_TOLERANCE,
    )


def constraint_terms(system: System, params: Params, state: State) -> ConstraintTerms:
    """Joints, limits and contacts of a mechanism at a state, as rows of one matrix.

    With phi the deviation of a joint, the slack of a limit or the gap of a contact, G = (dphi/dq) N(q) and
    phidot = G v, phiddot = G vdot + Gdot v (Drumwright, eqs 29-31). Tangent rows have phi = 0 and the sliding
    velocity of the material points in contact. All candidate contacts are there, however far away.

    Args:
        system: the mechanism (static).
        params: its numbers.
        state: configuration and velocity.

    Returns:
        ConstraintTerms with the rows of joints, then of limits, then of each contact as (n, t1[, t2]) in the
        order of `system.structure.pairs`.

    Raises:
        TypeError: arguments in another order, or a Model.
        ValueError: q or v has the wrong length, params do not fit the structure, `constraints` returns
            something else than two vectors.

    Derivative: exact by q, v and params, any order.
    """
    check_mechanism(system, params, state)
    return _constraint_terms(system, params, state)


@functools.partial(jax.jit, static_argnums=0)
def _constraint_terms(system: System, params: Params, state: State) -> ConstraintTerms:
    structure = system.structure
    _check_sizes(system, params, state)
    q, v, dtype = state.q, state.v, state.q.dtype
    qdot = position_rate(system, q, v)
    nb, nl = _count_constraints(system, params, q)
    kind = (BILATERAL,) * nb + (LIMIT,) * nl
    G, phi, gdot_v = [jnp.zeros((0, structure.num_velocities), dtype)], [jnp.zeros(0, dtype)], []
    mu = jnp.zeros(0, dtype)
    if nb + nl:

        def holonomic(x: jax.Array) -> jax.Array:
            assert system.constraints is not None
            return jnp.concatenate(system.constraints(structure, x, params))

        def rate(x: jax.Array) -> jax.Array:
            return jax.jvp(holonomic, (x,), (position_rate(system, x, v),))[1]

        G.append(tangent_jacobian(system, holonomic, q))
        phi.append(holonomic(q))
        gdot_v.append(jax.jvp(rate, (q,), (qdot,))[1])
    if structure.num_contacts:
        gap, rows = _contact_rows(system, params, q)
        contacts = _contact_columns(system, params, state, gap)
        G.append(rows.reshape(-1, structure.num_velocities))
        phi.append(contacts["phi"])
        gdot_v.append(contacts["gdot_v"])
        kind += contacts["kind"]
        mu = contacts["mu"]
    return ConstraintTerms(
        G=jnp.concatenate(G),
        phi=jnp.concatenate(phi),
        gdot_v=jnp.concatenate([jnp.zeros(0, dtype), *gdot_v]),
        mu=mu,
        kind=kind,
    )


def _contact_columns(system: System, params: Params, state: State, gap: jax.Array) -> dict[str, Any]:
    """What the rows of contacts have beside G: phi, gdot_v, mu and kind."""
    structure, q = system.structure, state.q
    drift: jax.Array
    if system.mechanics is not None:
        now, rate = system.mechanics.motion(structure, q, state.v, params)
        drift = jax.jvp(functools.partial(_slip, system, params), (now,), (rate,))[1]
    else:

        def slip(x: jax.Array) -> jax.Array:
            return contact_velocities(system, params, x, state.v)

        drift = jax.jvp(slip, (q,), (position_rate(system, q, state.v),))[1]
    return {
        "phi": jnp.zeros((*gap.shape, structure.dim), gap.dtype).at[:, 0].set(gap).ravel(),
        "gdot_v": drift.ravel(),
        "mu": _friction(system, params, gap.dtype),
        "kind": (NORMAL, *(TANGENT,) * (structure.dim - 1)) * structure.num_contacts,
    }


def _count_constraints(system: System, params: Params, q: jax.Array) -> tuple[int, int]:
    """Number of joint and of limit rows, found without computing them."""
    if system.constraints is None:
        return 0, 0
    found = jax.eval_shape(functools.partial(system.constraints, system.structure), q, params)
    shapes = [each.shape for each in found] if isinstance(found, tuple) else []
    if len(shapes) != 2 or any(len(shape) != 1 for shape in shapes):
        raise ValueError(
            f"system.constraints: expected two vectors (deviations, limits), got shapes {shapes or found}"
        )
    return shapes[0][0], shapes[1][0]


def _friction(system: System, params: Params, dtype: Any) -> jax.Array:
    """Friction coefficient (nc,) of every candidate contact."""
    return jnp.broadcast_to(jnp.asarray(params.mu, dtype), (system.structure.num_contacts,))


def _found(system: System, params: Params, frames: tuple[jax.Array, jax.Array]) -> geometry.Candidates:
    structure = system.structure
    return geometry.candidates(
        structure.dim, structure.bodies, structure.shape_table, structure.pairs, *frames, params.constants
    )


def _contact_rows(system: System, params: Params, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gaps (nc,) and velocity Jacobians (nc, dim, nv) in the order n, t1[, t2]."""
    frames = body_frames(system, params, q)
    found = _found(system, params, frames)
    if system.poses is free_poses:
        return found.phi, _free_contact_rows(system, found, *frames)
    gap = found.phi
    if system.mechanics is not None:
        bodies, points = found.body_a + found.body_b, jnp.concatenate([found.point, found.point_b])
        jacobians = system.mechanics.point_jacobians(system.structure, q, params, bodies, points)
        first, second = jnp.split(jacobians, 2)
        return gap, jnp.einsum("cad,cdv->cav", _axes(found), first - second)
    basis = jnp.eye(system.structure.num_velocities, dtype=q.dtype)
    rows = jax.vmap(lambda v: contact_velocities(system, params, q, v), out_axes=-1)(basis)
    return gap, rows


def _free_contact_rows(
    system: System, found: geometry.Candidates, positions: jax.Array, orientations: jax.Array
) -> jax.Array:
    """Velocity Jacobians (nc, dim, nv) of bodies that move freely: only the two in contact have entries."""
    nb, dim = len(system.structure.bodies), system.structure.dim
    nc, width = found.phi.shape[0], 3 * dim - 3
    rows = jnp.zeros((dim, nb, width, nc), found.phi.dtype)
    blocks = _free_blocks(dim, found, positions, orientations)
    for bodies, block in zip((found.body_a, found.body_b), blocks, strict=True):
        moving = np.array([i for i, body in enumerate(bodies) if body >= 0], int)
        if moving.size == 0:
            continue
        if nb == 1:
            rows = rows + block[:, None]
        else:
            place = (slice(None), np.array(bodies)[moving], slice(None), moving)  # (moving, dim, width)
            rows = rows.at[place].add(jnp.moveaxis(block[..., moving], -1, 0))
    return jnp.transpose(rows.reshape(dim, nb * width, nc), (2, 0, 1))


def _free_blocks(
    dim: int, found: geometry.Candidates, positions: jax.Array, orientations: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Entries (dim, 3 or 6, nc) of those rows for the first and the second body, zero for the world."""
    # The contacts last: long vectors.
    frame = jnp.concatenate([found.normal.T[None], jnp.transpose(found.tangents, (1, 2, 0))])

    def own(sign: float, bodies: tuple[int, ...], points: jax.Array) -> jax.Array:
        """F . (p' + R (w x arm)) = f . p' + w . (arm x R^T f), arm in body axes."""
        index = [max(body, 0) for body in bodies]
        arm = (points - geometry.rows(positions, index)).T
        if dim == 2:
            around = arm[None, :1] * frame[:, 1:] - arm[None, 1:] * frame[:, :1]
        else:
            turn = jnp.transpose(geometry.rows(orientations, index), (1, 2, 0))

            def back(x: jax.Array) -> jax.Array:
                return turn[0] * x[:1] + turn[1] * x[1:2] + turn[2] * x[2:]

            around = jnp.cross(back(arm)[None], jax.vmap(back)(frame), axis=1)
        block = sign * jnp.concatenate([frame, around], axis=1)
        moves = np.array(bodies) >= 0
        return block if moves.all() else jnp.where(moves[None, None], block, 0.0)

    return own(1.0, found.body_a, found.point), own(-1.0, found.body_b, found.point_b)


def kept_by_body(system: System) -> bool:
    """Whether `rows_by_body` suits a mechanism: many free bodies, without joints, in a chain."""
    structure = system.structure
    if system.poses is not free_poses or system.constraints is not None or not structure.num_contacts:
        return False
    ends = geometry.contact_bodies(structure.dim, structure.bodies, structure.shape_table, structure.pairs)
    return body_rows.suits(*ends, len(structure.bodies), 3 * structure.dim - 3)


@functools.partial(jax.jit, static_argnums=0)
def rows_by_body(system: System, params: Params, state: State) -> ConstraintTerms:
    """`constraint_terms` of free bodies that meet in contacts only, with G as `BodyRows`.

    Derivative: exact by q, v and params, any order.
    """
    _check_sizes(system, params, state)
    structure = system.structure
    frames = body_frames(system, params, state.q)
    found = _found(system, params, frames)
    blocks = jnp.stack(_free_blocks(structure.dim, found, *frames), axis=1)
    return ConstraintTerms(
        G=BodyRows(
            values=blocks,
            first=found.body_a,
            second=found.body_b,
            count=len(structure.bodies),
        ),
        **_contact_columns(system, params, state, found.phi),
    )


def contact_gaps(system: System, params: Params, q: jax.Array) -> jax.Array:
    """Gaps (nc,) of all candidate contacts, m."""
    return _found(system, params, body_frames(system, params, q)).phi


def contact_velocities(system: System, params: Params, q: jax.Array, v: jax.Array) -> jax.Array:
    """Velocity (nc, dim) of the material point of a in contact relative to b's, along n, t1[, t2]."""
    if system.mechanics is not None:
        return _slip(system, params, system.mechanics.motion(system.structure, q, v, params)[0])
    if system.poses is free_poses:
        frames = body_frames(system, params, q)
        drift, turning = free_rates(system, frames[1], v)
    else:
        qdot = position_rate(system, q, v)
        frames, (drift, turning) = jax.jvp(lambda x: body_frames(system, params, x), (q,), (qdot,))
    return _slip(system, params, FrameMotion(*frames, drift, turning))


def _axes(found: geometry.Candidates) -> jax.Array:
    """Normal and tangents (nc, dim, dim) of every contact, as rows."""
    return jnp.concatenate([found.normal[:, None], found.tangents], axis=1)


def _slip(system: System, params: Params, motion: FrameMotion) -> jax.Array:
    """`contact_velocities` of bodies that move like this."""
    positions, orientations, drift, turning = motion
    found = _found(system, params, (positions, orientations))

    def velocity(bodies: tuple[int, ...], points: jax.Array) -> jax.Array:
        index = [max(body, 0) for body in bodies]
        if all(body < 0 for body in bodies):
            return jnp.zeros_like(points)
        arm = points - geometry.rows(positions, index)
        local = geometry.products(jnp.swapaxes(geometry.rows(orientations, index), 1, 2), arm)
        moved = geometry.rows(drift, index) + geometry.products(geometry.rows(turning, index), local)
        if min(bodies) >= 0:
            return moved
        return jnp.where(np.array([body >= 0 for body in bodies])[:, None], moved, 0.0)

    relative = velocity(found.body_a, found.point) - velocity(found.body_b, found.point_b)
    return geometry.products(_axes(found), relative)


def _check_sizes(system: System, params: Params, state: State) -> None:
    structure = system.structure
    nb, nc = len(structure.bodies), structure.num_contacts
    inertia = (nb,) if structure.dim == 2 else (nb, 3) if structure.tree is None else (nb, 3, 3)
    expected: list[tuple[str, tuple[int, ...], list[tuple[int, ...]]]] = [
        ("state.q", jnp.shape(state.q), [(structure.num_positions,)]),
        ("state.v", jnp.shape(state.v), [(structure.num_velocities,)]),
        ("params.mass", jnp.shape(params.mass), [(nb,)]),
        ("params.inertia", jnp.shape(params.inertia), [inertia]),
        ("params.mu", jnp.shape(params.mu), [(), (nc,)]),
        ("params.gravity", jnp.shape(params.gravity), [(structure.dim,)]),
    ]
    for name, found, allowed in expected:
        if found not in allowed:
            wanted = " or ".join(str(each) for each in allowed)
            raise ValueError(f"{name}: expected shape {wanted}, got {found}")
    geometry.check_constants(structure.dim, structure.shapes, params.constants)
