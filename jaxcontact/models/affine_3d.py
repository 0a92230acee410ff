"""Three guards, eight affine fields: the order test of Anderson & Revzen (2024), table 1 and figure 3."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxcontact._pytree import PyTree
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model

# Rows of the affine fields, coefficients of (x, y, 1), for (x < 0, y < 0), (x >= 0, y < 0),
# (x < 0, y >= 0), (x >= 0, y >= 0).
_X_RATE = ((0.0, -1.0, 1.0), (0.0, -2.0, 1.0), (0.0, 1.0, 1.0), (10.0, 0.0, 1.0))
_Y_RATE = ((1.0, 0.0, 1.0), (0.5, 0.0, 2.0), (-1.0, 0.0, 1.0), (0.0, 1.0, 1.0))
_Z_RATE = ((-1.0, -1.0), (3.0, -1.0))  # of (z, 1), for z > 0 and z <= 0


def _field(t: jax.Array, x: jax.Array, signs: jax.Array, control: PyTree, params: PyTree) -> jax.Array:
    past = (signs > 0).astype(jnp.int32)
    piece = past[0] + 2 * past[1]
    planar = jnp.stack([x[0], x[1], jnp.ones_like(x[0])])
    vertical = jnp.stack([x[2], jnp.ones_like(x[2])])
    return jnp.stack(
        [
            jnp.sum(params["x_rate"][piece] * planar),
            jnp.sum(params["y_rate"][piece] * planar),
            jnp.sum(params["z_rate"][past[2]] * vertical),
        ]
    )


def _guards(x: jax.Array, params: PyTree) -> jax.Array:
    return jnp.stack([x[0], x[1], -x[2]])


AFFINE_3D = EventSystem(_field, _guards)


def affine_3d() -> Model:
    """Make an affine event-selected system with three guards, for t in (0, 0.5).

    Anderson & Revzen, table 1. `system` is an EventSystem, the initial state (3,). Guards must grow along the
    flow, so the third is -z instead of the paper's z. All three are crossed, in the order y, z, x. Params are
    the coefficients of the eight affine fields.
    """
    return Model(
        system=AFFINE_3D,
        params={
            "x_rate": jnp.array(_X_RATE),
            "y_rate": jnp.array(_Y_RATE),
            "z_rate": jnp.array(_Z_RATE),
        },
        initial=jnp.array([-0.4, -0.15, 0.3]),
    )
