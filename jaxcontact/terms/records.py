"""The records that hold contacts and constraints of a mechanism at one configuration, as matrices."""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp

from jaxcontact._pytree import Record, static

CONTACT_TOLERANCE = 1e-6  # m; a gap below it is a touching contact, below minus it a penetration
TOUCH_ROUNDING = 16.0  # in units of rounding of the largest length of a scene, up to which a gap is zero


def touch_tolerance(*lengths: jax.Array) -> jax.Array:
    """Compute the gap in m up to which bodies touch: 1e-6 m, and no less than the rounding of `lengths`.

    Lengths are coordinates of points or the lever arms in a contact Jacobian. Derivative: none.
    """
    largest = jnp.stack([jnp.max(jnp.abs(jax.lax.stop_gradient(x)), initial=0.0) for x in lengths])
    rounding = TOUCH_ROUNDING * float(jnp.finfo(largest.dtype).eps) * jnp.max(largest)
    return jnp.maximum(CONTACT_TOLERANCE, jnp.where(jnp.isfinite(rounding), rounding, 0.0))


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
    """The kind of a row of `ConstraintTerms`, which decides the bounds of its force."""

    BILATERAL = 0  # a joint: force of either sign
    LIMIT = 1  # phi >= 0, force >= 0, no friction
    NORMAL = 2  # phi >= 0, force >= 0, followed by the tangents of its contact
    TANGENT = 3  # friction, bounded by mu times the normal force before it
    DRY = 4  # dry friction of a joint: force of either sign, bounded by a constant


BILATERAL, LIMIT, NORMAL, TANGENT, DRY = Kind


class ConstraintTerms(Record):
    """Joints, limits and contacts at one configuration, as rows: G^T lam is the generalized force.

    Rows are ordered: every bilateral row, the dry friction of joints, every limit, then each contact as
    (n, t1) in the plane or (n, t1, t2) in space. The number of rows is fixed; a row far from contact has
    phi > 0.

    Attributes:
        G: (nr, nv) velocity Jacobian (dphi/dq) N(q). On limits and normals G v > 0 separates; on dry joints
            and tangents G v is the sliding velocity, at a contact that of a relative to b. For long chains of
            free bodies a step keeps G as `BodyRows`.
        phi: (nr,) deviation or gap, m or rad; 0 on dry joints and tangents.
        gdot_v: (nr,) the part of d(G v)/dt that does not come from vdot, m/s^2.
        mu: (nc,) friction coefficient of each contact.
        kind: (nr,) the `Kind` of each row (static).
        dry: (nd,) largest force of dry friction of each row `DRY`, N or N m; None without such rows.
        apart: True where every limit moves one velocity alone, as those of hinges and slides do (static).
    """

    G: Any
    phi: jax.Array
    gdot_v: jax.Array
    mu: jax.Array
    kind: tuple[Kind, ...] = static()
    dry: jax.Array | None = None
    apart: bool = static(default=False)
