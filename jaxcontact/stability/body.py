"""Zero-order dynamics: a planar mechanism at rest on its contacts, with everything constant but q and v.

Owns the records `PlanarBiped` and `LocalTerms`; entry functions `local_terms`, `as_terms`. Gaps and slips are
linear; mass matrix, forces and Jacobians keep their values at the equilibrium (Varkonyi, section II-E). The
motion is invariant under q ~ s^2, v ~ s, t ~ s. Page: docs/methods/stability.md.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.arguments import check_not_negative, check_number
from jaxcontact.front_door import checked
from jaxcontact.mechanics.motion_equations import bias
from jaxcontact.mechanics.system import Model, State
from jaxcontact.mechanics.tree_constraints import check_no_held_joints
from jaxcontact.terms import contact_terms

if TYPE_CHECKING:
    from jaxtyping import Float

IMPACT_LAW = "Newton's restitution and Coulomb's friction by the slip after the impact, contact by contact"
AT_ONCE_LAW = "no restitution and Coulomb's friction by the slip after the impact, all contacts at once"
MAX_CONTACTS = 3  # of a body; the table of contact modes has 4^contacts rows


class LocalTerms(Record):
    """The zero-order dynamics M vdot = force + J_n^T lam_n + J_t^T lam_t with gaps J_n q and slips J_t q.

    Attributes:
        M: (nv, nv) mass matrix.
        J_n: (nc, nv) gradients of the gaps; the contacts touch at q = 0.
        J_t: (nc, nv) gradients of the tangential displacements.
        mu: (nc,) friction coefficients.
        e: (nc,) Newton's coefficients of restitution.
        force: (nv,) all other generalized forces.
    """

    M: jax.Array
    J_n: jax.Array
    J_t: jax.Array
    mu: jax.Array
    e: jax.Array
    force: jax.Array


@checked(
    alpha=check_number,
    h=check_number,
    L1=check_number,
    L2=check_number,
    phi1=check_number,
    phi2=check_number,
    F=check_number,
    T=check_number,
    mu1=check_not_negative,
    mu2=check_not_negative,
    e1=check_not_negative,
    e2=check_not_negative,
)
class PlanarBiped(Record):
    """A rigid body on two point feet (Varkonyi, Fig. 1); its mass and radius of gyration are one.

    Foot i is at (L_i, -h) from the centre of mass, on a line inclined by phi_i; the external force is
    F (sin alpha, -cos alpha), so on a slope of angle alpha the x axis points downhill. The feet may
    also differ in height: h is a number or (2,).

    Attributes:
        alpha: direction of the force, rad.
        h: height of the centre of mass above the feet.
        L1: x of foot 1.
        L2: x of foot 2.
        phi1: inclination of the ground at foot 1, rad.
        phi2: inclination of the ground at foot 2, rad.
        mu1: friction coefficient at foot 1.
        mu2: friction coefficient at foot 2.
        e1: coefficient of restitution at foot 1.
        e2: coefficient of restitution at foot 2.
        F: size of the force.
        T: external torque.
    """

    alpha: float | jax.Array
    h: float | jax.Array
    L1: float | jax.Array
    L2: float | jax.Array
    phi1: float | jax.Array = 0.0
    phi2: float | jax.Array = 0.0
    mu1: float | jax.Array
    mu2: float | jax.Array
    e1: float | jax.Array = 0.0
    e2: float | jax.Array = 0.0
    F: float | jax.Array = 1.0
    T: float | jax.Array = 0.0


Body = PlanarBiped | LocalTerms


def as_terms(body: Body) -> LocalTerms:
    """Write a body as zero-order dynamics; check its shapes, and its numbers if they are not traced.

    For a biped J_n = (-sin phi, cos phi, L cos phi - h sin phi), J_t = (cos phi, sin phi, h cos phi +
    L sin phi) and force = (F sin alpha, -F cos alpha, T). The paper's (22), (46) have the last entry of J_t
    with the opposite sign; this is the velocity of the foot.

    Raises:
        TypeError: neither a PlanarBiped nor LocalTerms.
        ValueError: negative friction, restitution outside [0, 1), coincident feet or contacts, numbers that
            are not finite, M that is not symmetric positive definite, if the numbers are not traced; shapes
            that do not fit, more than three contacts or none.

    Derivative: exact by every number of the body.
    """
    if isinstance(body, LocalTerms):
        _check_terms(body)
        return body
    if not isinstance(body, PlanarBiped):
        raise TypeError(f"body: expected a PlanarBiped or LocalTerms, got {type(body).__name__}")
    leaves = jax.tree.leaves(body)
    dtype = jnp.result_type(float, *(x if isinstance(x, jax.Array) else np.asarray(x) for x in leaves))
    xp: ModuleType = (
        jnp if any(isinstance(x, jax.Array) for x in leaves) else np
    )  # plain numbers need no device
    L, phi, mu, e = (
        xp.stack([xp.asarray(first, dtype), xp.asarray(second, dtype)])
        for first, second in (
            (body.L1, body.L2),
            (body.phi1, body.phi2),
            (body.mu1, body.mu2),
            (body.e1, body.e2),
        )
    )
    h = xp.broadcast_to(xp.asarray(body.h, dtype), (2,))
    alpha = xp.asarray(body.alpha, dtype)
    force = xp.asarray(body.F, dtype) * xp.stack([xp.sin(alpha), -xp.cos(alpha), xp.zeros((), dtype)])
    sin, cos = xp.sin(phi), xp.cos(phi)
    terms = LocalTerms(
        M=xp.eye(3, dtype=dtype),
        J_n=xp.stack([-sin, cos, L * cos - h * sin], axis=1),
        J_t=xp.stack([cos, sin, h * cos + L * sin], axis=1),
        mu=mu,
        e=e,
        force=(force + xp.stack([xp.zeros((), dtype), xp.zeros((), dtype), xp.asarray(body.T, dtype)])),
    )
    if _seen(L, h) and L[0] == L[1] and h[0] == h[1]:
        raise ValueError(f"L1, L2: the feet coincide at {float(L[0]):g}; expected two points")
    _check_terms(terms, ("mu1", "mu2"), ("e1", "e2"))
    return terms


@checked(e=check_number)
def local_terms(
    model: Model, state: State, *, e: float | Float[jax.Array, ""] | Float[jax.Array, " nc"] = 0.0
) -> LocalTerms:
    """Compute the zero-order dynamics of a planar mechanism that rests on one to three contacts.

    Args:
        model: the mechanism and its numbers.
        state: a configuration in contact; its velocity is ignored.
        e: coefficient of restitution, a number or one per active contact.

    Returns:
        LocalTerms with the active contacts only, in the order of `model.structure.pairs`.

    Raises:
        ValueError: a spatial mechanism, no active contact or more than three, restitution outside [0, 1).

    Derivative: none, because this function reads which contacts are active; with the active contacts known,
        `contact_terms` and `bias` have derivatives by `params`.
    """
    if model.structure.dim != 2:
        raise ValueError("system: expected a planar mechanism, got a spatial one")
    check_no_held_joints(model.system, "local_terms")
    rest = state.replace(v=jnp.zeros_like(state.v))
    terms = contact_terms(model, rest)
    touching = np.flatnonzero(np.asarray(terms.active))
    if not 1 <= touching.size <= MAX_CONTACTS:
        raise ValueError(f"state: expected 1 to {MAX_CONTACTS} active contacts, got {touching.size}")
    local = LocalTerms(
        M=terms.M,
        J_n=terms.J_n[touching],
        J_t=terms.J_t[touching, 0],
        mu=terms.mu[touching],
        e=jnp.broadcast_to(jnp.asarray(e, terms.M.dtype), (touching.size,)),
        force=-bias(model, rest),
    )
    _check_terms(local)
    return local


def _seen(*arrays: PyTree) -> bool:
    return not any(isinstance(array, jax.core.Tracer) for array in arrays)


def _check_terms(terms: LocalTerms, mu_names: tuple[str, ...] = (), e_names: tuple[str, ...] = ()) -> None:
    """Check shapes, and numbers that are not traced; raise ValueError."""
    nv, nc = jnp.shape(terms.force)[-1], jnp.shape(terms.mu)[-1]
    if not 1 <= nc <= MAX_CONTACTS:
        raise ValueError(f"body: expected 1 to {MAX_CONTACTS} contacts, got {nc}")
    shapes = {"M": (nv, nv), "J_n": (nc, nv), "J_t": (nc, nv), "mu": (nc,), "e": (nc,), "force": (nv,)}
    for name, shape in shapes.items():
        if jnp.shape(getattr(terms, name)) != shape:
            raise ValueError(f"body.{name}: expected shape {shape}, got {jnp.shape(getattr(terms, name))}")
        value = getattr(terms, name)
        if _seen(value) and not np.all(np.isfinite(value)):
            raise ValueError(f"body.{name}: expected finite numbers, got {np.asarray(value)}")
    if not _seen(*jax.tree.leaves(terms)):
        return
    for i, value in enumerate(np.asarray(terms.mu)):
        if value < 0:
            raise ValueError(
                f"{mu_names[i] if mu_names else f'mu[{i}]'}: expected friction >= 0, got {value:g}"
            )
    for i, value in enumerate(np.asarray(terms.e)):
        if not 0 <= value < 1:
            name = e_names[i] if e_names else f"e[{i}]"
            raise ValueError(f"{name}: expected restitution in [0, 1), got {value:g}")
    mass = np.asarray(terms.M)
    if not np.allclose(mass, mass.T) or np.min(np.linalg.eigvalsh(mass)) <= 0:
        raise ValueError("body.M: expected a symmetric positive definite matrix")
    rows = np.concatenate([np.asarray(terms.J_n), np.asarray(terms.J_t)], axis=1)
    for i in range(nc):
        for k in range(i):
            if np.array_equal(rows[i], rows[k]):
                raise ValueError(f"body: contacts {k} and {i} coincide; expected different points")
