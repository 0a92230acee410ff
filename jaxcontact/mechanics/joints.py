"""Joints as deviations that are zero if the joint holds, for the `constraints` function of a `System`.

Each function takes the poses (position (dim,), rotation (dim, dim)) of two bodies, and points or axes in
their body coordinates. The pose of the world is zeros and the identity. Concatenate the returned deviations.
In the plane `ball` is a pin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp

from jaxcontact.arguments import check_not_negative
from jaxcontact.front_door import checked
from jaxcontact.geometry import tangent_frame

if TYPE_CHECKING:
    from jaxtyping import Float

Pose = tuple[jax.Array, jax.Array]


@checked(pose="dim; dim dim")
def point(pose: Pose, at: Float[jax.Array, " dim"]) -> jax.Array:
    """Return the world coordinates (dim,) of a point `at` in body coordinates, m."""
    position, rotation = pose
    return position + rotation @ at


@checked(a="dim; dim dim", b="dim; dim dim")
def ball(a: Pose, at_a: Float[jax.Array, " dim"], b: Pose, at_b: Float[jax.Array, " dim"]) -> jax.Array:
    """Return the distances (dim,) of two points along the world axes, m; a pin joint in the plane."""
    return point(a, at_a) - point(b, at_b)


@checked(a="dim; dim dim", b="dim; dim dim", length=check_not_negative)
def distance(
    a: Pose,
    at_a: Float[jax.Array, " dim"],
    b: Pose,
    at_b: Float[jax.Array, " dim"],
    length: float | Float[jax.Array, ""],
) -> jax.Array:
    """Return the deviation (1,) of a massless rod of `length` > 0 between two points, m.

    Its negative, as a limit, is a rope.

    The deviation is (d^2 - l^2) / (2 l) at distance d. It equals d - l to first order and is smooth at d = 0.
    """
    square = jnp.sum((point(a, at_a) - point(b, at_b)) ** 2)
    return (0.5 * (square - length**2) / length)[None]


@checked(a="dim; dim dim", b="dim; dim dim")
def hinge(
    a: Pose,
    at_a: Float[jax.Array, " dim"],
    axis_a: Float[jax.Array, " dim"],
    b: Pose,
    at_b: Float[jax.Array, " dim"],
    axis_b: Float[jax.Array, " dim"],
) -> jax.Array:
    """Return the deviation (5,) of a pin joint in space: distances (3,), m, then sines (2,) between axes."""
    across = tangent_frame(axis_b) @ b[1].T @ a[1] @ axis_a
    return jnp.concatenate([ball(a, at_a, b, at_b), across])


@checked(a="dim; dim dim", b="dim; dim dim")
def weld(a: Pose, at_a: Float[jax.Array, " dim"], b: Pose, at_b: Float[jax.Array, " dim"]) -> jax.Array:
    """Return the distances of two points, m, and the small angles of two bodies, rad: (3,), in space (6,)."""
    relative = b[1].T @ a[1]
    skew = 0.5 * (relative - relative.T)
    angles = skew[1:, 0] if skew.shape[0] == 2 else jnp.stack([skew[2, 1], skew[0, 2], skew[1, 0]])
    return jnp.concatenate([ball(a, at_a, b, at_b), angles])
