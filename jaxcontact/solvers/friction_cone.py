"""Friction strictly inside its cones, for interior points: bounds and forces, speeds and slips.

Of every cone (bound, force) o (speed, slip) = (k, 0) in the Jordan algebra of second-order cones, with the
slip w = u + R force - o of a row of compliance R at rates u. Entry: `FrictionCone`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.solvers.friction_interior import distance_to_boundary
from jaxcontact.solvers.friction_law import Rows, dot


class FrictionCone(NamedTuple):
    """Cones (n,) with |force| < bound and |slip| < speed; the rows of one that does not act have no force."""

    acts: jax.Array
    bound: jax.Array
    speed: jax.Array
    force: Rows
    slip: Rows
    compliance: jax.Array


class ConeChange(NamedTuple):
    """Changes of a cone."""

    bound: jax.Array
    speed: jax.Array
    force: Rows
    slip: Rows


def move(cone: FrictionCone, change: ConeChange, step: jax.Array) -> FrictionCone:
    """Move cones by a fraction of their change."""
    return cone._replace(
        bound=cone.bound + step * change.bound,
        speed=cone.speed + step * change.speed,
        force=[f + step * df for f, df in zip(cone.force, change.force, strict=True)],
        slip=[w + step * dw for w, dw in zip(cone.slip, change.slip, strict=True)],
    )


def products(cone: FrictionCone) -> jax.Array:
    """Compute the product of bound and force with speed and slip, zero where a cone does not act."""
    return jnp.where(cone.acts, cone.bound * cone.speed + dot(cone.force, cone.slip), 0.0)


def solve_force(cone: FrictionCone, rhs: Rows) -> Rows:
    """Solve ((speed + bound R) 1 - (force / bound) (slip + R force)^T) dp = rhs by Sherman and Morrison."""
    R = cone.compliance
    stiff = jnp.where(cone.acts, cone.speed + cone.bound * R, 1.0)
    ratio = [f / cone.bound for f in cone.force]
    pulled = [w + R * f for w, f in zip(cone.slip, cone.force, strict=True)]
    rest = stiff - dot(ratio, pulled)
    weight = dot(pulled, rhs) / jnp.where(rest > 0, rest, 1.0)
    return [jnp.where(cone.acts, (b + q * weight) / stiff, 0.0) for b, q in zip(rhs, ratio, strict=True)]


def force_per_slip(cone: FrictionCone) -> list[Rows]:
    """Compute the loss of force per slip (nt, nt): rows of a symmetric part and of what speed takes."""
    ratio, columns = [f / cone.bound for f in cone.force], []
    for k, f in enumerate(cone.force):
        columns.append(
            solve_force(cone, [(cone.bound if j == k else 0.0) - q * f for j, q in enumerate(ratio)])
        )
    return [[column[j] for column in columns] for j in range(len(ratio))]


def right_hand_sides(
    cone: FrictionCone, target: jax.Array, before: ConeChange | None
) -> tuple[Rows, jax.Array]:
    """Compute right-hand sides of the turning and of the product, less the products of a predictor."""
    product = target - cone.bound * cone.speed - dot(cone.force, cone.slip)
    turning = [-(cone.bound * w + cone.speed * f) for w, f in zip(cone.slip, cone.force, strict=True)]
    if before is not None:
        product = product - before.bound * before.speed - dot(before.force, before.slip)
        pairs = zip(turning, before.slip, before.force, strict=True)
        turning = [r - before.bound * w - before.speed * f for r, w, f in pairs]
    return [r - f / cone.bound * product for r, f in zip(turning, cone.force, strict=True)], product


def longest_step(cone: FrictionCone, change: ConeChange) -> jax.Array:
    """Compute the steps (n,) at which cones meet their boundary; inf where they do not act."""
    limit = jnp.minimum(
        distance_to_boundary(cone.bound, cone.force, change.bound, change.force),
        distance_to_boundary(cone.speed, cone.slip, change.speed, change.slip),
    )
    return jnp.where(cone.acts, limit, jnp.inf)


def speed_change(cone: FrictionCone, product: jax.Array, change: ConeChange) -> jax.Array:
    """Compute the change of speed (n,) that makes the linearised product change by `product`."""
    rest = product - cone.speed * change.bound - dot(cone.slip, change.force) - dot(cone.force, change.slip)
    return jnp.where(cone.acts, rest / cone.bound, 0.0)


def centred_speed(cone: FrictionCone, k: jax.Array) -> jax.Array:
    """Compute the speed (n,) of cones without force whose product is at least k."""
    half = 0.5 * k / cone.bound
    return jnp.where(cone.acts, half + jnp.sqrt(half**2 + dot(cone.slip, cone.slip)), 1.0)
