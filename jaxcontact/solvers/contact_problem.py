"""The contact problem, stated once: its data, its residual, and the equations of its contact modes.

Rows are contact-major: (n, t1) of each contact in the plane, (n, t1, t2) in space. Kernels that are faster in
another layout convert to this one, and a test checks them against it. Entry: `ContactProblem`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact._pytree import Record

SEPARATE, STICK, SLIDE = range(3)


class ContactProblem(Record):
    """The data of one problem; r = nc (1 + nt) rows.

    Contact velocities are affine in the impulses, u = velocity + delassus lam, and every contact obeys

        0 <= lam_n <= cap,   u_n >= 0 if lam_n < cap,   u_n <= 0 if lam_n > 0,
        |lam_t| <= mu lam_n,   lam_t opposes u_t with |lam_t| = mu lam_n if u_t is not zero.

    Attributes:
        delassus: (r, r) velocity per impulse; need not be symmetric.
        velocity: (r,) contact velocities without impulses.
        mu: (nc,) friction.
        cap: (nc,) largest normal impulses; inf for no bound.
        mask: (nc,) bool, the contacts that take part; the others carry no impulse.
    """

    delassus: jax.Array
    velocity: jax.Array
    mu: jax.Array
    cap: jax.Array
    mask: jax.Array

    @property
    def num_tangents(self) -> int:
        """nt: 1 in the plane, 2 in space."""
        return self.velocity.shape[0] // self.mu.shape[0] - 1


class ContactModes(Record):
    """The mode of every contact.

    Attributes:
        kind: (nc,) int, SEPARATE, STICK or SLIDE.
        capped: (nc,) bool, True for a contact with its largest impulse, which may still approach.
        direction: (nc, nt) unit direction of sliding, u_t = |u_t| direction; read if the contact slides.
    """

    kind: jax.Array
    capped: jax.Array
    direction: jax.Array


def mobility(problem: ContactProblem) -> jax.Array:
    """Compute the velocity (nc, 1 + nt) of each row per impulse on itself, one for all tangents; 1 if zero.

    It makes impulses and velocities of rows comparable in any units. No derivative.
    """
    nc = problem.mu.shape[0]
    diagonal = jnp.abs(jnp.diagonal(lax.stop_gradient(problem.delassus))).reshape(nc, -1)
    tangential = jnp.max(diagonal[:, 1:], axis=1, keepdims=True)
    diagonal = jnp.concatenate([diagonal[:, :1], jnp.broadcast_to(tangential, diagonal[:, 1:].shape)], axis=1)
    return jnp.where(diagonal > 0, diagonal, 1.0)


def residual(problem: ContactProblem, impulse: jax.Array) -> jax.Array:
    """Compute the distance of impulses (r,) from the law with a round cone: the natural map, relative.

    It is the largest change of a row's impulse if the law is evaluated at its velocity, in units of the root
    of energy, over the largest of velocities and impulses in the same units. It does not depend on the units
    of mass, length and time. No derivative.
    """
    problem, impulse = lax.stop_gradient((problem, impulse))
    nc = problem.mu.shape[0]
    mobilities = mobility(problem)
    root = jnp.sqrt(mobilities)
    lam = impulse.reshape(nc, -1)
    u = (problem.velocity + problem.delassus @ impulse).reshape(nc, -1)
    asked = lam - u / mobilities
    normal = jnp.clip(asked[:, 0], 0.0, problem.cap)
    length = jnp.sqrt(jnp.sum(asked[:, 1:] ** 2, axis=1))
    limit = problem.mu * lam[:, 0]
    share = jnp.clip(limit / jnp.where(length > 0, length, 1.0), 0.0, 1.0)
    granted = jnp.concatenate([normal[:, None], share[:, None] * asked[:, 1:]], axis=1)
    granted = jnp.where(problem.mask[:, None], granted, 0.0)
    start = problem.velocity.reshape(nc, -1) / root
    scale = jnp.maximum(jnp.max(jnp.abs(start), initial=0.0), jnp.max(jnp.abs(lam * root), initial=0.0))
    worst = jnp.max(jnp.abs((granted - lam) * root), initial=0.0)
    worst = worst / jnp.where(scale > 0, scale, 1.0)
    return jnp.where(jnp.isfinite(worst), worst, jnp.inf)


def mode_equations(problem: ContactProblem, modes: ContactModes) -> tuple[jax.Array, jax.Array]:
    """Build A (r, r) and b (r,), the linear equations A lam = b of given modes.

    A contact that separates, or takes no part, has lam = 0. Else u_n = 0, or lam_n = cap if it is
    capped; and u_t = 0 if it sticks, lam_t = -mu lam_n direction if it slides.

    Derivative: by the problem, any order; the modes are constants.
    """
    nc, nt = problem.mu.shape[0], problem.num_tangents
    unit = jnp.eye(nc * (1 + nt), dtype=problem.velocity.dtype).reshape(nc, 1 + nt, -1)
    response = problem.delassus.reshape(nc, 1 + nt, -1)
    u = problem.velocity.reshape(nc, 1 + nt)
    free = (modes.kind == SEPARATE) | ~problem.mask
    rests = ~free & ~modes.capped
    sticks = ~free & (modes.kind == STICK)
    row_n = jnp.where(rests[:, None], response[:, 0], unit[:, 0])
    cap = jnp.where(modes.capped & ~free, problem.cap, 0.0)
    rhs_n = jnp.where(rests, -u[:, 0], cap)
    cone = unit[:, 1:] + (problem.mu[:, None] * modes.direction)[:, :, None] * unit[:, :1]
    row_t = jnp.where(sticks[:, None, None], response[:, 1:], cone)
    row_t = jnp.where(free[:, None, None], unit[:, 1:], row_t)
    rhs_t = jnp.where(sticks[:, None], -u[:, 1:], 0.0)
    rows = jnp.concatenate([row_n[:, None], row_t], axis=1).reshape(unit.shape[2], -1)
    return rows, jnp.concatenate([rhs_n[:, None], rhs_t], axis=1).reshape(-1)
