"""Joints within a variational motion: loops that stay closed, and dry friction that sticks or slides.

A loop is held like a contact that may pull. A dry joint is the last of the contacts of `terms_at`: at rest it
is closed, and the bound of its friction presses it; while it slides its friction is a force without choice.
Page: docs/methods/motion.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.mechanics.configuration import retract
from jaxcontact.mechanics.system import Model
from jaxcontact.simulate.projection import deviations
from jaxcontact.simulate.steppers.dry_joints import DryRows

# Gauss's rule of five points on 0..1: exact to the eleventh power of the angle of a step.
_PLACES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


class LoopRows(NamedTuple):
    """Rows (nb, nv) of closed loops and held joints at a configuration, and their deviations (nb,)."""

    rows: jax.Array
    deviation: jax.Array


class JointRows(NamedTuple):
    """The loops and the dry joints of a mechanism at a configuration, None for none."""

    loops: LoopRows | None
    dry: DryRows | None


class LoopResponse(NamedTuple):
    """The response of a step to impulses of loops at its start.

    Changes (nv, nb) of its mean velocity, of the mean rates of loops (nb, nb), and the derivative (nb, nv) of
    these rates by the mean velocity.
    """

    change: jax.Array
    gram: jax.Array
    slope: jax.Array


class LoopRates(NamedTuple):
    """Mean rates (nb,) of deviations over a step of mean velocity w, and their derivative (nb, nv) by w."""

    mean: jax.Array
    slope: jax.Array


def mean_loop_rates(model: Model, q: jax.Array, w: jax.Array, h: jax.Array) -> jax.Array:
    """Compute the mean rates (nb,) of the deviations of loops over h w from q.

    A difference of two deviations divided by h would be round-off in a short step.
    """

    def rate(length: jax.Array) -> jax.Array:
        def along(length: jax.Array) -> jax.Array:
            return deviations(model, retract(model.system, q, length * w))

        return jax.jvp(along, (length,), (jnp.ones_like(length),))[1]

    places, weights = (jnp.asarray(x, q.dtype) for x in (0.5 + 0.5 * _PLACES, 0.5 * _WEIGHTS))
    return jnp.tensordot(weights, jax.vmap(rate)(places * h), 1)


def loop_impulses(gram: jax.Array, rates: jax.Array) -> jax.Array:
    """Solve D x = rates for the impulses x (nb, k) of loops; dependent loops count once.

    Derivative: by D and rates, if the rank of D is constant.
    """
    size = lax.stop_gradient(jnp.sqrt(jnp.abs(jnp.diagonal(gram))))
    scale = jnp.where(size > 0, 1.0 / jnp.where(size > 0, size, 1.0), 0.0)
    scaled = gram * scale[:, None] * scale[None]
    inverse, _ = small_dense.generalized_inverse(lax.stop_gradient(scaled))
    return scale[:, None] * implicit.solve_spd(scaled, scale[:, None] * rates, inverse)


def loop_response(loops: LoopRows, slope: jax.Array, inverse: jax.Array) -> LoopResponse:
    """Compute the response to impulses of loops, with `inverse` (nv, nv) that of a step to any impulse."""
    change = inverse @ loops.rows.T
    return LoopResponse(change, slope @ change, slope)


def hold_loops(
    loops: LoopResponse, changes: jax.Array, rates: jax.Array | float = 0.0
) -> tuple[jax.Array, jax.Array]:
    """Add to changes (nv, k) of the mean velocity the impulses of loops that make `rates` (nb, k) zero.

    Returns:
        The changes with these impulses, and the impulses (nb, k).
    """
    pull = -loop_impulses(loops.gram, rates + loops.slope @ changes)
    return changes + loops.change @ pull, pull


def hold_momentum(mass: jax.Array, rows: jax.Array, p: jax.Array) -> jax.Array:
    """Return the momentum p (nv,) after the impulses of loops that make their rates G M^-1 p zero."""
    response = implicit.solve_spd(mass, jnp.concatenate([rows.T, p[:, None]], axis=1))
    return p - rows.T @ loop_impulses(rows @ response[:, :-1], rows @ response[:, -1:])[:, 0]


def num_dry(joints: JointRows | None) -> int:
    """Return the number of dry joints, the last of the contacts."""
    return 0 if joints is None or joints.dry is None else int(joints.dry.bound.shape[0])


def without_dry(joints: JointRows | None, contacts: jax.Array) -> jax.Array:
    """Return contacts (nc,) bool without dry joints, which take part in no impact."""
    count = num_dry(joints)
    return contacts if count == 0 else contacts.at[-count:].set(False)


def close_slow_dry(joints: JointRows | None, v: jax.Array, slowest: float, closed: jax.Array) -> jax.Array:
    """Close the dry joints no faster than `slowest`, beside `closed` contacts; return both (nc,) bool."""
    count = num_dry(joints)
    if count == 0:
        return closed
    assert joints is not None and joints.dry is not None
    speed = jnp.abs(small_dense.apply_matrix(joints.dry.rows, v))
    return closed.at[-count:].set(closed[-count:] & (speed <= slowest))


def sliding_ways(dry: DryRows, v: jax.Array, closed: jax.Array) -> jax.Array:
    """Return the ways (nd,) in which dry joints slide, 1 or -1; 0 for those at rest or without friction."""
    moves = ~closed[closed.shape[0] - dry.bound.shape[0] :] & (dry.bound > 0)
    return jnp.where(moves, jnp.sign(lax.stop_gradient(small_dense.apply_matrix(dry.rows, v))), 0.0)


def dry_force(joints: JointRows | None, v: jax.Array, closed: jax.Array) -> jax.Array | None:
    """Compute the force (nv,) of the dry joints that slide; None if there are none."""
    if joints is None or joints.dry is None:
        return None
    return -small_dense.apply_matrix(
        joints.dry.rows.T, sliding_ways(joints.dry, v, closed) * joints.dry.bound
    )


def press_rows(
    joints: JointRows | None, delassus: jax.Array, velocity: jax.Array, time: jax.Array | float
) -> tuple[jax.Array, jax.Array]:
    """Return D (nc dim, nc dim) and velocities (nc, dim) in which dry joints carry `time` times their bounds.

    Their normal rows, which nothing moves, approach so fast that these normal impulses stop them.
    """
    count = num_dry(joints)
    if count == 0:
        return delassus, velocity
    assert joints is not None and joints.dry is not None
    nc, dim = velocity.shape
    normal = np.arange(nc - count, nc) * dim
    mobility = lax.stop_gradient(jnp.diagonal(delassus)[normal + 1])
    mobility = jnp.where(mobility > 0, mobility, 1.0)
    loads = jnp.maximum(joints.dry.bound, 0.0) * time
    return delassus.at[normal, normal].set(mobility), velocity.at[nc - count :, 0].set(-mobility * loads)


def dry_speeds(
    joints: JointRows, v: jax.Array, after: jax.Array, closed: jax.Array, momentum: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Compute the speeds (nd,) of dry joints, along the way in which they slide, at both ends of a step.

    They are relative to the size of the numbers that they are sums of, `momentum` (nv,) being |M^-1| |p|;
    a joint that does not slide has speeds of 1.

    Returns:
        The speeds at the end, those at the start, and whether each joint slides.
    """
    assert joints.dry is not None
    rows = joints.dry.rows
    way = sliding_ways(joints.dry, v, closed)
    size = small_dense.apply_matrix(jnp.abs(rows), jnp.abs(v) + momentum)
    way = way / jnp.where(size > 0, size, 1.0)
    slides = way != 0
    first, last = (jnp.where(slides, way * small_dense.apply_matrix(rows, x), 1.0) for x in (v, after))
    return last, first, slides
