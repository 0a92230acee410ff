"""(System, Params, State) -> ContactTerms: the only place where mechanics becomes linear algebra.

Everything below this module (impact laws, solvers) sees matrices only, so a record built by hand serves
as well as one from a mechanism.
"""

from __future__ import annotations

import enum
import functools

import jax
import jax.numpy as jnp

from jaxcontact import geometry
from jaxcontact._pytree import Record, static
from jaxcontact.system import (
    Params,
    State,
    System,
    body_frames,
    mass_matrix,
    tangent_jacobian,
)

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
            tangential velocity of a relative to b on tangents.
        phi: (nr,) deviation or gap, m or rad; 0 on tangents.
        gdot_v: (nr,) the part of d(G v)/dt that does not come from vdot, m/s^2.
        mu: (nc,) friction coefficient of each contact.
        kind: (nr,) the `Kind` of each row (static).
    """

    G: jax.Array
    phi: jax.Array
    gdot_v: jax.Array
    mu: jax.Array
    kind: tuple[Kind, ...] = static()


@functools.partial(jax.jit, static_argnums=0)
def contact_terms(system: System, params: Params, state: State) -> ContactTerms:
    """Mass matrix, gaps and contact Jacobians of a mechanism at a state.

    J_n = (dphi/dq) N(q); J_t v is the tangential velocity of the material point of a in contact
    relative to that of b. A contact is active where phi <= 1e-6 m.

    Args:
        system: the mechanism (static).
        params: its numbers.
        state: configuration and velocity; only q matters here.

    Returns:
        ContactTerms with nc candidate contacts in the order of `system.structure.pairs`.

    Raises:
        ValueError: q or v has the wrong length, params do not fit the structure.

    Derivative: exact by q and params, any order; `active` is piecewise constant.
    """
    structure = system.structure
    _check_sizes(system, params, state)
    q = state.q
    positions, orientations = body_frames(system, params, q)
    found = geometry.candidates(
        structure.dim,
        structure.bodies,
        structure.shape_table,
        structure.pairs,
        positions,
        orientations,
        params.constants,
    )

    def point_jacobian(bodies: tuple[int, ...], points: jax.Array) -> jax.Array:
        """World velocity (nc, dim, nv) of the material points now at `points`; zero on the world."""
        index = jnp.array([max(body, 0) for body in bodies])
        moving = jnp.array([body >= 0 for body in bodies])
        local = jnp.einsum("cji,cj->ci", orientations[index], points - positions[index])

        def world(x: jax.Array) -> jax.Array:
            origin, turned = body_frames(system, params, x)
            return origin[index] + jnp.einsum("cij,cj->ci", turned[index], local)

        return jnp.where(moving[:, None, None], tangent_jacobian(system, world, q), 0.0)

    relative = point_jacobian(found.body_a, found.point) - point_jacobian(found.body_b, found.point_b)
    mass = mass_matrix(system, params, q)
    return ContactTerms(
        M=mass,
        J_n=jnp.einsum("cd,cdv->cv", found.normal, relative),
        J_t=jnp.einsum("ctd,cdv->ctv", found.tangents, relative),
        phi=found.phi,
        mu=jnp.broadcast_to(jnp.asarray(params.mu, mass.dtype), found.phi.shape),
        active=found.phi <= CONTACT_TOLERANCE,
    )


def _check_sizes(system: System, params: Params, state: State) -> None:
    structure = system.structure
    nb, nc = len(structure.bodies), structure.num_contacts
    if nc == 0:
        raise ValueError("system: the structure has no candidate contacts; give it shapes and pairs")
    inertia = (nb,) if structure.dim == 2 else (nb, 3)
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
    for shape in structure.shapes:
        for attribute in ("size", "at", "radius", "offset"):
            needed = getattr(shape, attribute, None)
            if needed is not None and needed not in params.constants:
                raise ValueError(
                    f"params.constants: no {needed!r}, the {attribute} of shape {shape.name!r}; "
                    f"there are {sorted(params.constants)}"
                )
