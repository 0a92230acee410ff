"""First-order maps of crossings: saltation matrices, their products in an order, and rescaled guards.

Owns the linear maps of crossings at a point for a given order, without integration; `b_derivative` finds the
order that a direction takes. Entries: `saltation_matrix`, `ordering_map`, `rescale_guards`. Page:
docs/methods/event-selected.md.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.arguments import check_entries, check_not_empty, check_number, check_number_leaves
from jaxcontact.ess.inputs import as_jax, check_guards, count_guards, system_of
from jaxcontact.front_door import POSITIVE, checked
from jaxcontact.mechanics.event_system import EventSystem
from jaxcontact.mechanics.system import Model
from jaxcontact.precision import jit

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@checked(x=check_not_empty, t=check_number, control=check_number_leaves)
def saltation_matrix(
    model: Model,
    x: Float[jax.Array, " n"],
    guard: int | Int[jax.Array, ""],
    crossed: Bool[jax.Array, " m"],
    *,
    t: float | Float[jax.Array, ""] = 0.0,
    control: PyTree = None,
) -> jax.Array:
    """Compute the map (n, n) of one crossing: X = DJ + (f_after - DJ f_before) Dh / (Dh f_before).

    To first order a displacement dx of the state at the time of the crossing becomes X dx after it; J is the
    jump, the identity without one (Aizerman & Gantmacher 1958; Burden et al. 2016, eq. 43).

    Args:
        model: the system (static) and its numbers.
        x: (n,) state on the guard, before its jump.
        guard: index of the guard.
        crossed: (m,) bool, mask before the crossing.
        t: time, s.
        control: as for the field.

    Returns:
        X; NaN if a traced `guard` is no index of a guard.

    Raises:
        ValueError: `guard` is no index of a guard.

    Derivative: by x, t, control and params.
    """
    es, params, control = system_of(model), as_jax(model.params), as_jax(control)
    bad = check_guards("guard", count_guards("x", model, x, control), guard)
    matrix = _saltation(es, params, x, guard, crossed, jnp.asarray(t, x.dtype), control)
    return jnp.where(bad, jnp.nan, matrix)


@functools.partial(jit, static_argnames="es", inline=True)
def _saltation(
    es: EventSystem,
    params: PyTree,
    x: jax.Array,
    guard: PyTree,
    crossed: jax.Array,
    t: jax.Array,
    control: PyTree,
) -> jax.Array:
    """Compute the saltation matrix of arguments that have been checked."""
    basis = jnp.eye(x.shape[0], dtype=x.dtype)
    after, jumped = jax.vmap(
        lambda d: jax.jvp(lambda y: es.after(y, guard, params), (x,), (d,)), out_axes=(None, 1)
    )(basis)
    gradient = jax.vmap(lambda d: es.guard_rates(x, d, params)[1][guard])(basis)
    f_before = es.xdot(t, x, crossed, control, params)
    f_after = es.xdot(t, after, es.cross(crossed, guard), control, params)
    rise = f_after - jumped @ f_before
    return jumped + rise[:, None] * gradient[None, :] / jnp.sum(gradient * f_before)


@checked(order=check_entries, x_corner=check_not_empty, t=check_number, control=check_number_leaves)
def ordering_map(
    model: Model,
    x_corner: Float[jax.Array, " n"],
    order: jax.Array | Sequence[int],
    *,
    crossed: Bool[jax.Array, " m"] | None = None,
    t: float | Float[jax.Array, ""] = 0.0,
    control: PyTree = None,
) -> jax.Array:
    """Compute the first-order map (n, n) of crossing guards at one corner in a given order.

    It is the product of saltation matrices, `order[0]` being crossed first; on the directions that take this
    order, it is the B-derivative across the corner (Burden et al. 2016; Council, Revzen & Burden 2022).

    Args:
        model: the system (static) and its numbers.
        x_corner: (n,) state on all the guards of `order`, before any jump.
        order: (k,) distinct guards, each of them not crossed before.
        crossed: (m,) bool, mask before; default: guards of `order` are not crossed, the others if h >= 0.
        t: time, s.
        control: as for the field.

    Returns:
        The product; NaN if a traced `order` is not one of distinct guards.

    Raises:
        ValueError: `order` is not a list of distinct guards.

    Derivative: by x_corner, t, control and params.
    """
    es, params, control = system_of(model), as_jax(model.params), as_jax(control)
    if np.ndim(order) != 1:
        raise ValueError(f"order: expected (k,) indices of guards, got {np.ndim(order)} axes")
    indices = order if isinstance(order, jax.core.Tracer) else np.asarray(order)
    if isinstance(indices, np.ndarray) and np.unique(indices).size < indices.size:
        raise ValueError(f"order: expected distinct guards, got {indices}")
    bad = check_guards("order", count_guards("x_corner", model, x_corner, control), indices)
    order = jnp.asarray(indices)
    repeated = jnp.any(jnp.tril(order[:, None] == order[None, :], -1))
    if crossed is None:
        behind = es.guards(x_corner, params) >= 0
        crossed = behind & ~jnp.any(jnp.arange(behind.shape[0])[:, None] == order[None, :], axis=1)

    t = jnp.asarray(t, x_corner.dtype)
    product = _saltation_product(es, params, x_corner, order, crossed, t, control)
    return jnp.where(bad | repeated, jnp.nan, product)


@functools.partial(jit, static_argnames="es", inline=True)
def _saltation_product(
    es: EventSystem,
    params: PyTree,
    x: jax.Array,
    order: jax.Array,
    crossed: jax.Array,
    t: jax.Array,
    control: PyTree,
) -> jax.Array:
    """Multiply the saltation matrices of guards crossed in an order, the arguments checked."""

    def across(carry: PyTree, guard: jax.Array) -> tuple[PyTree, None]:
        product, x, mask = carry
        saltation = _saltation(es, params, x, guard, mask, t, control)
        return (saltation @ product, es.after(x, guard, params), es.cross(mask, guard)), None

    return lax.scan(across, (jnp.eye(x.shape[0], dtype=x.dtype), x, crossed), order)[0][0]


@dataclasses.dataclass(frozen=True)
class _ScaledGuards:
    guards: Callable[[jax.Array, PyTree], jax.Array]
    factors: tuple[float, ...]

    def __call__(self, x: jax.Array, params: PyTree) -> jax.Array:
        h = self.guards(x, params)
        return h * jnp.asarray(self.factors, h.dtype)


@checked(states=check_not_empty, eps=POSITIVE, t=check_number, control=check_number_leaves)
def rescale_guards(
    model: Model,
    states: Float[jax.Array, "k n"],
    *,
    eps: float,
    crossed: Bool[jax.Array, " m"] | None = None,
    t: float | Float[jax.Array, ""] = 0.0,
    control: PyTree = None,
) -> Model:
    """Scale the guards of a system to h_k eps / mu_k, mu_k the largest |Dh_k f| over some states.

    Anderson & Revzen, section 2.2: then |Dh_k f| <= eps at these states, and the bands of all guards take
    equally long to cross. Their inequality mixes units: here `eps` is a rate, so a half width w in
    `integrate` is crossed in w / eps seconds or more. A host function; the factors are fixed numbers.

    Args:
        model: the system and its numbers.
        states: (k, n) states that stand for the region of interest.
        eps: wanted bound on the rates, guard units per second.
        crossed: (k, m) bool, masks at the states; default h >= 0.
        t: time, s.
        control: as for the field.

    Raises:
        ValueError: `states` is not (k, n), eps is not > 0, or a guard does not move at any of the states.
    """
    es, params, control = system_of(model), as_jax(model.params), as_jax(control)
    if jnp.ndim(states) != 2 or jnp.shape(states)[0] == 0:
        raise ValueError(f"states: expected shape (k, n), k >= 1, got {jnp.shape(states)}")
    count_guards("states", model, states[0], control)

    def rates(x: jax.Array, mask: jax.Array) -> jax.Array:
        return es.guard_rates(x, es.xdot(jnp.asarray(t, x.dtype), x, mask, control, params), params)[1]

    masks = jax.vmap(lambda x: es.guards(x, params) >= 0)(states) if crossed is None else crossed
    fastest = np.max(np.abs(np.asarray(jax.vmap(rates)(states, masks))), axis=0)
    if not np.all(fastest > 0):
        raise ValueError(f"states: guard {int(np.argmin(fastest))} has no rate at any of them")
    factors = tuple(float(f) for f in eps / fastest)
    return model.replace(system=dataclasses.replace(es, guards=_ScaledGuards(es.guards, factors)))
