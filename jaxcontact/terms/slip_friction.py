"""Friction that depends on slip and time, as the numbers `Params.mu` of each step: `apply_friction`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxcontact.mechanics.system import Model, State
from jaxcontact.terms.mocap import relative_velocities

# (slip speeds (nc,) m/s, t) -> friction coefficients (nc,), or one number
Friction = Callable[[jax.Array, jax.Array], jax.Array]


def slip_speeds(model: Model, state: State) -> jax.Array:
    """Compute the sliding speeds (nc,) of all candidate contacts, m/s, with surfaces and mocap bodies.

    Derivative: exact by q, v and params; zero where a contact does not slide.
    """
    slips = relative_velocities(model, state.q, state.v)
    square = jnp.sum(slips[:, 1:] ** 2, axis=1)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def apply_friction(model: Model, state: State, friction: Friction | None) -> Model:
    """Give a model the friction of its slip speeds at a state; None leaves it.

    Raises:
        ValueError: the function returns something else than nc numbers or one.
    """
    count = model.structure.num_contacts
    if friction is None or not count:
        return model
    mu = jnp.asarray(friction(slip_speeds(model, state), state.t), state.q.dtype)
    if mu.shape not in ((), (count,)):
        raise ValueError(f"friction: expected a function that returns ({count},) or (), got {mu.shape}")
    return model.replace(params=model.params.replace(mu=jnp.broadcast_to(mu, (count,))))
