"""The scaled space in which impact laws are solved (`contact_space`), and the residual of an impulse in it.

Rows are contact-major (n, t1, t2). Scaled by the apparent mass of each direction, contact velocities u and
impulses lam have the same unit (square root of energy), and the Delassus matrix D = J M^-1 J^T has a unit
diagonal, for the two tangents of a contact in space on average. A tolerance relative to |v|_M means the same
for a gram and for a ton.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.algebra import implicit
from jaxcontact.precision import jit
from jaxcontact.solvers import contact_modes
from jaxcontact.status import Info, Status, flag
from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import NO_MOTION, SQUARE, rounding


class ContactSpace(Record):
    """Scaled contact matrices of one configuration; r = nc (1 + nt) rows, contact-major.

    Attributes:
        jacobian: S J (r, nv), rows of inactive contacts zero.
        response: M^-1 J^T S (nv, r).
        delassus: S J M^-1 J^T S (r, r).
        scale: diagonal of S (r,); lam = S lam_scaled, u_scaled = S u.
        mu: (nc,) friction in scaled impulses.
        mass: M (nv, nv).
        active: (nc,) bool.
        clearance: (r,) scaled velocities that the law adds to J v; None is none.
    """

    jacobian: jax.Array
    response: jax.Array
    delassus: jax.Array
    scale: jax.Array
    mu: jax.Array
    mass: jax.Array
    active: jax.Array
    clearance: jax.Array | None = None

    @property
    def num_tangents(self) -> int:
        """nt: 1 in the plane, 2 in space."""
        return self.scale.shape[0] // self.mu.shape[0] - 1

    def rates(self, v: jax.Array) -> jax.Array:
        """Compute the scaled velocities (r,) that the law bounds: J v with the clearance."""
        u = self.jacobian @ v
        return u if self.clearance is None else u + self.clearance

    def normal_rates(self, v: jax.Array) -> jax.Array:
        """Compute the normal components (nc,) of `rates`."""
        normals = slice(None, None, 1 + self.num_tangents)
        u = self.jacobian[normals] @ v
        return u if self.clearance is None else u + self.clearance[normals]


class ImpactInfo(Info):
    """Info that an impact law returns with v_plus.

    Attributes:
        status: uint32 bits of `Status`.
        residual: largest of: normal complementarity relative to |v|_M; friction cone relative to
            mu lam_n + |v|_M / |J_t|_g, with the norm |J_t|_g of the tangents in M^-1; deviation from maximal
            dissipation relative to that times |J_t|_g |v|_M. Free of units.
        impulse: (nc, 1 + nt) total contact impulse (n, t1, t2), N s.
        energy_ratio: kinetic energy after / before; 1 without energy before.
        num_iters: number of steps or single impacts.
        complete: bool, whether every solution of every step was a candidate, of a continuum its corners.
            False by pivoting, which has frequencies of its own and misses families of outcomes, and for
            contacts so redundant that corners are not tabulated, such as three at one point. In single
            precision rounding may hide solutions of friction near 100 or of unequal masses.
    """

    impulse: jax.Array
    energy_ratio: jax.Array
    complete: jax.Array | bool = False


def contact_space(terms: ContactTerms, clearance: jax.Array | None = None) -> ContactSpace:
    """Compute the scaled contact matrices of `terms`; `clearance` (nc,) or (nc, 1 + nt) is in m/s."""
    nc, nt, nv = terms.J_t.shape
    jacobian = jnp.concatenate([terms.J_n[:, None, :], terms.J_t], axis=1)
    jacobian = jnp.where(terms.active[:, None, None], jacobian, 0.0).reshape(-1, nv)
    response = implicit.solve_spd(terms.M, jacobian.T)
    diagonal = lax.stop_gradient(jnp.sum(jacobian.T * response, axis=0)).reshape(nc, 1 + nt)
    # A direction without motion is set to exact zero against round-off; its derivative stays.
    share = NO_MOTION * rounding(diagonal.dtype, SQUARE)
    moves = diagonal > share * jnp.max(diagonal, axis=1, keepdims=True)
    jacobian, response = (
        x - jnp.where(moves.reshape(shape), 0.0, lax.stop_gradient(x))
        for x, shape in ((jacobian, (-1, 1)), (response, (1, -1)))
    )
    diagonal = jnp.where(moves, diagonal, 0.0)
    tangential = jnp.mean(diagonal[:, 1:], axis=1, keepdims=True)
    diagonal = jnp.concatenate([diagonal[:, :1], jnp.broadcast_to(tangential, (nc, nt))], axis=1)
    scale = jnp.where(diagonal > 0, lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1.0)), 1.0)
    mu = terms.mu * scale[:, 0] / scale[:, 1]
    scale = scale.reshape(-1)
    jacobian, response = jacobian * scale[:, None], response * scale[None, :]
    if clearance is not None:
        clearance = clearance if clearance.ndim == 2 else jnp.pad(clearance[:, None], ((0, 0), (0, nt)))
        clearance = jnp.where(terms.active[:, None], scale.reshape(nc, 1 + nt) * clearance, 0.0).ravel()
    return ContactSpace(
        jacobian=jacobian,
        response=response,
        delassus=jacobian @ response,
        scale=scale,
        mu=mu,
        mass=terms.M,
        active=terms.active,
        clearance=clearance,
    )


def friction_directions(num_tangents: int, num_directions: int) -> np.ndarray:
    """List the unit vectors (k, nt) of extreme friction: +-1 in the plane, a regular k-gon in space."""
    if num_tangents == 1:
        return np.array([[1.0], [-1.0]])
    if num_directions < 4 or num_directions % 2:
        raise ValueError(f"num_directions: expected an even number >= 4, got {num_directions}")
    angle = 2.0 * np.pi * np.arange(num_directions) / num_directions
    fan = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return np.where(np.abs(fan) < 1e-15, 0.0, fan)


def collision_tolerance(dtype: jnp.dtype) -> float:
    """Return the speed below which a contact counts as not approaching: 1e-8 in float64, 1e-5 in float32.

    Impact laws use it relative to the fastest approach before, see `slowest_approach`; motion in time, which
    has no such speed, uses it in m/s.
    """
    return 1e-8 if jnp.finfo(dtype).bits >= 64 else 1e-5


def slowest_approach(space: ContactSpace, v: jax.Array) -> jax.Array:
    """Compute the scaled speeds (nc,) above which an approach counts in an impact that begins with v.

    They are 1e-8 of the fastest approach of v (float32: 1e-5), and no less than round-off, which is relative
    to |v|_M. No derivative.
    """
    space, v = lax.stop_gradient((space, v))
    rows = 1 + space.num_tangents
    scale = space.scale[::rows]
    fastest = jnp.max(-space.normal_rates(v) / scale, initial=0.0)
    noise = contact_modes.feasibility_tolerance(v.dtype) * mass_norm(space.mass, v)
    return jnp.maximum(collision_tolerance(v.dtype) * fastest * scale, noise)


def approaching(space: ContactSpace, v: jax.Array, slowest: jax.Array) -> jax.Array:
    """Return a mask (nc,) of the active contacts that approach faster than `slowest` (nc,), scaled."""
    return space.active & (space.normal_rates(v) < -slowest)


@jit
def colliding(terms: ContactTerms, v: jax.Array, before: jax.Array) -> jax.Array:
    """Return a mask (nc,) of the contacts that still approach at v in an impact that begins with `before`."""
    space = contact_space(terms)
    return approaching(space, v, slowest_approach(space, before))


def mass_norm(mass: jax.Array, v: jax.Array) -> jax.Array:
    """Compute |v|_M = sqrt(v^T M v), for use as a scale: it carries no derivative."""
    v = lax.stop_gradient(v)
    return jnp.sqrt(jnp.maximum(v @ lax.stop_gradient(mass) @ v, 0.0))


def residual(
    space: ContactSpace,
    v: jax.Array,
    impulse: jax.Array,
    directions: np.ndarray | None,
    impulse_max: jax.Array | None = None,
    impulse_min: jax.Array | None = None,
) -> jax.Array:
    """Measure the violation of the law by a scaled impulse (r,); see `ImpactInfo.residual`. No derivative.

    `directions` (k, nt) are the corners of the friction cone; None is the circular cone.
    """
    space, v, impulse = lax.stop_gradient((space, v, impulse))
    nc, nt = space.mu.shape[0], space.num_tangents
    speed = mass_norm(space.mass, v)
    speed = jnp.where(speed > 0, speed, 1.0)  # at rest every impulse is wrong, in any unit
    per_speed = 1.0 / speed
    out = (space.rates(v) + space.delassus @ impulse).reshape(nc, 1 + nt)
    lam = impulse.reshape(nc, 1 + nt)
    cap = jnp.inf if impulse_max is None else lax.stop_gradient(impulse_max)
    floor = 0.0 if impulse_min is None else lax.stop_gradient(impulse_min)
    normal = jnp.abs(lam[:, 0] - jnp.clip(lam[:, 0] - out[:, 0], floor, cap)) * per_speed
    used, best = _friction_sizes(lam[:, 1:], out[:, 1:], directions)
    limit = space.mu * lam[:, 0]
    unit = jnp.maximum(limit, 0.0) + speed
    cone = jnp.maximum(used - limit, 0.0) / unit
    dissipation = jnp.sum(lam[:, 1:] * out[:, 1:], axis=1) + limit * best
    dissipation = jnp.abs(dissipation) * per_speed / unit
    worst = jnp.max(jnp.maximum(jnp.maximum(normal, cone), dissipation) * space.active)
    return jnp.where(jnp.isfinite(worst), worst, jnp.inf)


def _friction_sizes(
    friction: jax.Array, slip: jax.Array, directions: np.ndarray | None
) -> tuple[jax.Array, jax.Array]:
    """Compute the size (nc,) of friction in the norm of its cone, and the largest power per unit of it."""
    if directions is None:
        return jnp.sqrt(jnp.sum(friction**2, axis=1)), jnp.sqrt(jnp.sum(slip**2, axis=1))
    # |lam_t| in the polyhedral norm whose unit ball is conv(directions)
    fan, facets = (jnp.asarray(x, friction.dtype) for x in (directions, cone_facets(directions)))
    used = jnp.max(jnp.sum(facets[None] * friction[:, None], axis=-1), axis=1)
    return used, jnp.max(-jnp.sum(fan[None] * slip[:, None], axis=-1), axis=1)


def cone_facets(directions: np.ndarray) -> np.ndarray:
    """Compute the facets (k, nt), f . lam_t = mu lam_n, of the cone with these corners (k, nt)."""
    if directions.shape[1] == 1:
        return directions
    reach = float(np.cos(np.pi / len(directions)))
    return (directions + np.roll(directions, -1, axis=0)) / (2.0 * reach**2)


def energy_ratio(mass: jax.Array, v: jax.Array, v_plus: jax.Array) -> jax.Array:
    """Compute the kinetic energy of v_plus over that of v; 1 for v = 0. No derivative."""
    mass, v, v_plus = lax.stop_gradient((mass, v, v_plus))
    before = v @ mass @ v
    return jnp.where(before > 0, v_plus @ mass @ v_plus / jnp.where(before > 0, before, 1.0), 1.0)


def residual_limit(dtype: jnp.dtype) -> float:
    """Return the largest residual of a success: 1e-9, in float32 3e-6.

    Near a jam or a fold of the law a violation grows a thousandfold on its way to v_plus, so the limit is not
    far above round-off.
    """
    return 1e-9 if jnp.finfo(dtype).bits >= 64 else 3e-6


def residual_status(worst: jax.Array) -> jax.Array:
    """Return STALLED for a residual above its limit or NaN, else 0."""
    return flag(~(worst <= residual_limit(worst.dtype)), Status.STALLED)
