"""The bodies of contacts: a static tuple, or an array if the state selects the contacts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact import geometry
from jaxcontact._pytree import PyTree

Bodies = tuple[int, ...] | jax.Array  # (nc,) body of each contact, WORLD for the world


def on_bodies(bodies: Bodies) -> PyTree:
    """Tell for each contact (nc,) whether it is on a body, False for the world."""
    return (bodies if isinstance(bodies, jax.Array) else np.array(bodies, int)) >= 0


def all_move(bodies: Bodies) -> bool:
    """Tell whether the bodies are static and none is the world."""
    return not isinstance(bodies, jax.Array) and bool(np.all(on_bodies(bodies)))


def of_bodies(array: jax.Array, bodies: Bodies) -> jax.Array:
    """Return array[bodies]; the entries for the world are arbitrary."""
    if isinstance(bodies, jax.Array):
        return array[jnp.maximum(bodies, 0)]
    return geometry.rows(array, [max(body, 0) for body in bodies])


def none_moves(bodies: Bodies) -> bool:
    """Tell whether the bodies are static and all are the world."""
    return not isinstance(bodies, jax.Array) and not np.any(on_bodies(bodies))
