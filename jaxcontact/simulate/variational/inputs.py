"""Checks of a variational motion, and its first memory: `check_motion`, `no_memory`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact.arguments import check_number
from jaxcontact.impact.inputs import is_concrete
from jaxcontact.mechanics.motion_equations import mass_matrix
from jaxcontact.mechanics.numbers import is_inertia
from jaxcontact.mechanics.surfaces import check_paths
from jaxcontact.mechanics.system import Model, State
from jaxcontact.precision import warn_if_single
from jaxcontact.simulate.variational.contact_state import count_rows
from jaxcontact.simulate.variational.motion_records import MotionMemory


def check_motion(
    model: Model,
    state: State,
    order: str | tuple[int, ...],
    restitution: float | jax.Array,
    zeno: float | jax.Array,
) -> None:
    """Check the arguments of a motion: raise ValueError if one is bad, and warn of single precision."""
    check_paths(model)
    count = count_rows(model, state)
    nc = model.structure.num_contacts
    if np.shape(restitution) not in ((), (nc,)):
        raise ValueError(f"restitution: expected shape () or ({nc},), got {np.shape(restitution)}")
    if np.ndim(restitution) and count != nc:
        raise ValueError(
            f"restitution: expected one number for a mechanism with limits, got {np.size(restitution)}"
        )
    _check_order(order, count)
    _check_numbers(model, state, restitution, zeno)
    warn_if_single(state.q.dtype, "`variational`")


def no_memory(model: Model, state: State, key: jax.Array | None) -> MotionMemory:
    """Make the memory that a motion has before its first impact."""
    never = jnp.full(count_rows(model, state), -jnp.inf, state.q.dtype)
    return MotionMemory(key=key, last=never, number=jnp.int32(0))


def _check_numbers(
    model: Model, state: State, restitution: float | jax.Array, zeno: float | jax.Array
) -> None:
    """Raise ValueError for known numbers that are out of range; traced ones set bits."""
    for name, value in (("state.q", state.q), ("state.v", state.v), ("params.gravity", model.params.gravity)):
        if is_concrete(value):
            check_number(name, value)
    inertia = model.params.inertia
    if is_concrete(inertia):
        check_number("params.inertia", inertia)
        with jax.ensure_compile_time_eval():
            usable = bool(is_inertia(jnp.asarray(inertia)))
        if not usable:
            raise ValueError(f"params.inertia: expected no negative eigenvalue, got {np.asarray(inertia)}")
    nonnegative = {"params.mass": model.params.mass, "params.mu": model.params.mu}
    for name, value in {**nonnegative, "restitution": restitution, "zeno": zeno}.items():
        if is_concrete(value):
            check_number(name, value, 0.0)
    if is_concrete(restitution) and np.any(np.asarray(restitution) > 1):
        raise ValueError(f"restitution: expected a number in 0..1, got {restitution}")
    if is_concrete(model.params, state.q) and not np.all(np.asarray(model.params.mass) > 0):
        with jax.ensure_compile_time_eval():
            mass = np.asarray(mass_matrix(model, state.q))
        if np.linalg.eigvalsh(mass)[0] <= 0:
            raise ValueError(
                "params.mass: expected masses that every coordinate moves, got "
                f"{np.asarray(model.params.mass)}"
            )


def _check_order(order: str | tuple[int, ...], nc: int) -> None:
    names = ("most_violated", "least_violated")
    good = order in names if isinstance(order, str) else order and all(0 <= k < nc for k in order)
    if not good:
        raise ValueError(
            f"order: expected {names[0]!r}, {names[1]!r} or indices in 0..{nc - 1}, got {order!r}"
        )
