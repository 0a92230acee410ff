"""Impacts as reflections in the metric of the kinetic energy: unit normals, their Gram matrix, one order.

All functions compute with the rates s = U v along the unit normals U of the contacts, where
<u, u>_g = u M^-1 u = 1, and with the impulses x along U: v_plus = v + M^-1 U^T x and s_plus = s + G x, with
the Gram matrix G.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import implicit, small_dense
from jaxcontact.arguments import check_array
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.front_door import checked
from jaxcontact.impact import inputs
from jaxcontact.solvers.lcp import solve_lcp
from jaxcontact.terms import ContactTerms
from jaxcontact.tolerances import NO_APPROACH, SAME_RATE, rounding

if TYPE_CHECKING:
    from jaxtyping import Float

TIE_DIGITS = SAME_RATE  # power of eps; rates of approach closer than that, relative, have no order
Order = str | tuple[int, ...]
ORDERS = ("most_violated", "least_violated")


def check_order_word(name: str, value: object) -> None:
    """Raise an error if a value is neither a rule of `ORDERS` nor a sequence of contact indices."""
    cycle = isinstance(value, list | tuple) and all(isinstance(k, int | np.integer) for k in value)
    if not cycle and value not in ORDERS:
        raise ValueError(f"{name}: expected one of {', '.join(ORDERS)}, or contact indices, got {value!r}")


class Normals(NamedTuple):
    """Unit normals of the active contacts.

    Attributes:
        response: M^-1 U^T (nv, nc).
        gram: G (nc, nc); zero for inactive contacts.
        size: (nc,) norm |J_n|_g of each normal, 1 for inactive contacts.
        rate: s = U v (nc,), in units of the square root of energy.
        active: (nc,) bool.
    """

    response: jax.Array
    gram: jax.Array
    size: jax.Array
    rate: jax.Array
    active: jax.Array


@checked()
def reset_map(M: Float[jax.Array, "nv nv"], u: Float[jax.Array, " nv"]) -> jax.Array:
    """Compute Gamma (nv, nv), the reflection of an elastic impact on one contact.

    Seghete & Murphey, eq (7b): Gamma = I - 2 M^-1 u^T u / (u M^-1 u^T). A velocity becomes Gamma v, a
    momentum, as a row, p Gamma.

    Args:
        M: (nv, nv) mass matrix.
        u: (nv,) normal of the contact, a row of J_n; its length does not matter.

    Inside jit the result is NaN, for lack of a status, if u = 0 or the mass matrix is not positive definite.

    Raises:
        TypeError, ValueError: shapes or dtypes that do not fit; outside of jit also NaN, u = 0, a mass matrix
            that is not symmetric positive definite.

    Derivative: exact.
    """
    check_array("M", M)
    check_array("u", u)
    if jnp.ndim(u) != 1 or jnp.shape(M) != (*jnp.shape(u), *jnp.shape(u)):
        raise ValueError(f"reset_map: expected M (nv, nv) and u (nv,), got {jnp.shape(M)} and {jnp.shape(u)}")
    if inputs.is_concrete(M, u):
        inputs.check_mass("M", np.asarray(M))
        if not np.all(np.isfinite(np.asarray(u))) or not np.any(np.asarray(u)):
            raise ValueError(f"u: expected finite numbers, not all zero, got {np.asarray(u)}")
    largest = lax.stop_gradient(jnp.max(jnp.abs(u)))  # the length of u does not matter, but might overflow
    unit = u / jnp.where(largest > 0, largest, jnp.nan)
    response = implicit.solve_spd(M, unit)
    square = unit @ response
    reflected = 2.0 * jnp.outer(response, unit) / jnp.where(square > 0, square, jnp.nan)
    return jnp.eye(u.shape[0], dtype=u.dtype) - reflected


@checked()
def normals_gram(terms: ContactTerms) -> jax.Array:
    """Compute the products <u_i, u_j>_g (nc, nc) of the unit normals of contacts; zero for inactive ones.

    Seghete & Murphey, eq (5a) and Section V: if every product off the diagonal is 0 or -cos(pi / n), the
    outcome of an elastic impact does not depend on the order.

    Derivative: exact.
    """
    inputs.check_terms(terms)
    return normals(terms, jnp.zeros(terms.M.shape[0], terms.M.dtype)).gram


def normals(terms: ContactTerms, v: jax.Array) -> Normals:
    """Compute the unit normals of `terms`, and the rates of v along them."""
    jacobian = jnp.where(terms.active[:, None], terms.J_n, 0.0)
    response = implicit.solve_spd(terms.M, jacobian.T)
    square = jnp.sum(jacobian.T * response, axis=0)
    active = terms.active & (square > 0)
    size = jnp.sqrt(jnp.where(active, square, 1.0))
    unit = jacobian / size[:, None]
    return Normals(response / size[None], unit @ response / size[None], size, unit @ v, active)


def tolerance(dtype: jnp.dtype) -> float:
    """Return the rate, relative to |v|_M, below which a contact does not approach: eps^0.7."""
    return rounding(dtype, NO_APPROACH)


def tied(rate: jax.Array, k: jax.Array, active: jax.Array) -> jax.Array:
    """Find the contacts (nc,) that approach at the rate of contact k, within round-off."""
    tie = rounding(rate.dtype, TIE_DIGITS)
    return active & (jnp.abs(rate - rate[k]) <= tie * jnp.abs(rate[k]))


def reflect_together(gram: jax.Array, rate: jax.Array, together: jax.Array) -> jax.Array:
    """Compute the equal impulses (nc,) of contacts `together` (nc,) that keep the energy.

    It is the reflection along the sum of their normals, for a single contact -2 times its rate.
    """
    weights = together.astype(rate.dtype)
    square = weights @ gram @ weights
    return weights * (-2.0 * (weights @ rate) / jnp.where(square > 0, square, 1.0))


def reflection(
    unit_normals: Normals, threshold: jax.Array, order: str | jax.Array
) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]]:
    """Make a function (x, place) -> (x, place, contact) for the next elastic impact; contact -1 if none.

    Args:
        threshold: () or (nc,) rate of approach above which a contact counts as approaching.
        order: "most_violated", "least_violated", or a cycle (m,) of contact indices; `place` is the
            position in the cycle at which the search for the next impact begins. Contacts that tie for a
            rule strike together, and the first of them is returned.
    """

    def next_impact(impulse: jax.Array, place: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        rate = unit_normals.rate + unit_normals.gram @ impulse
        approaches = unit_normals.active & (rate < -threshold)
        if isinstance(order, str):
            sign = 1.0 if order == "most_violated" else -1.0
            k = jnp.argmin(jnp.where(approaches, sign * rate, jnp.inf)).astype(jnp.int32)
            needed = jnp.any(approaches)
            together = needed & tied(rate, k, unit_normals.active)
            impulse = impulse + reflect_together(unit_normals.gram, rate, together)
            return impulse, place, jnp.where(needed, k, -1)
        cycle = order.shape[0]
        ahead = jnp.where(approaches[order], (jnp.arange(cycle, dtype=jnp.int32) - place) % cycle, cycle)
        position = (place + jnp.min(ahead)) % cycle
        k, needed = order[position], jnp.min(ahead) < cycle
        place = jnp.where(needed, (position + 1) % cycle, place)
        impulse = impulse.at[k].add(jnp.where(needed, -2.0 * rate[k], 0.0))
        return impulse, place, jnp.where(needed, k, -1)

    return next_impact


def reflect(
    unit_normals: Normals, speed: jax.Array, order: str | jax.Array, length: int
) -> tuple[jax.Array, jax.Array]:
    """Compute the impulses x (nc,) of at most `length` reflections, and their sequence, -1 after the last.

    The sequence has the shape (length,).

    Args:
        speed: |v|_M.
        order: as in `reflection`.

    Derivative: of the sequence taken, which is piecewise constant; forward and reverse.
    """
    next_impact = reflection(unit_normals, tolerance(unit_normals.rate.dtype) * speed, order)

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        impulse, place, contact = next_impact(*carry)
        return (impulse, place), contact

    start = (jnp.zeros_like(unit_normals.rate), jnp.int32(0))
    (impulse, _), sequence = lax.scan(step, start, length=length)
    return impulse, sequence


def reflect_while_any(
    unit_normals: Normals, threshold: jax.Array, order: str | jax.Array, max_reflections: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Reflect as `reflect`, in a loop that ends early; also return whether a contact still approaches.

    Args:
        threshold: (nc,) rate of approach above which a contact counts as approaching.

    Derivative: none in reverse; see `repeat_reflections`.
    """
    next_impact = reflection(unit_normals, threshold, order)

    def unfinished(carry: tuple) -> jax.Array:
        *_, more, count = carry
        return more & (count < max_reflections)

    def step(carry: tuple) -> tuple:
        impulse, sequence, place, _, count = carry
        impulse, place, contact = next_impact(impulse, place)
        return impulse, sequence.at[count].set(contact), place, contact >= 0, count + 1

    no_contacts = jnp.full(max_reflections, -1, jnp.int32)
    start = (jnp.zeros_like(unit_normals.rate), no_contacts, jnp.int32(0), jnp.bool_(True), jnp.int32(0))
    impulse, sequence, *_ = bounded_loop(unfinished, step, start, max_iters=max_reflections)
    still_approaching = unit_normals.active & (unit_normals.rate + unit_normals.gram @ impulse < -threshold)
    return impulse, sequence, jnp.any(still_approaching)


def repeat_reflections(unit_normals: Normals, sequence: jax.Array, *, ties: bool = False) -> jax.Array:
    """Compute the impulses x (nc,) of a sequence (k,) of reflections, -1 after the last.

    With `ties` each contact strikes together with those that approach as fast.

    Derivative: exact, forward and reverse.
    """

    def step(impulse: jax.Array, contact: jax.Array) -> tuple[jax.Array, None]:
        index = jnp.maximum(contact, 0)
        if ties:
            rates = unit_normals.rate + unit_normals.gram @ impulse
            together = (contact >= 0) & tied(rates, index, unit_normals.active)
            return impulse + reflect_together(unit_normals.gram, rates, together), None
        rate = unit_normals.rate[index] + unit_normals.gram[index] @ impulse
        return impulse.at[index].add(jnp.where(contact >= 0, -2.0 * rate, 0.0)), None

    return lax.scan(step, jnp.zeros_like(unit_normals.rate), sequence)[0]


def stop(unit_normals: Normals, speed: jax.Array, unilateral: bool) -> tuple[jax.Array, jax.Array]:
    """Compute the impulses x (nc,) of the plastic impact, and status bits; see `plastic`."""
    if unilateral:
        inactive_diagonal = jnp.diag(jnp.where(unit_normals.active, 0.0, 1.0))
        x, info = solve_lcp(
            unit_normals.gram + inactive_diagonal, jnp.where(unit_normals.active, unit_normals.rate, 0.0)
        )
        return x, info.status
    touching = unit_normals.active & (unit_normals.rate <= tolerance(unit_normals.rate.dtype) * speed)
    both_touch = touching[:, None] & touching[None, :]
    inverse, _ = small_dense.generalized_inverse(
        jnp.where(both_touch, unit_normals.gram, jnp.diag(jnp.where(touching, 0.0, 1.0)))
    )
    return inverse @ jnp.where(touching, -unit_normals.rate, 0.0), jnp.uint32(0)


def share(
    gram: jax.Array, rate: jax.Array, bounces: jax.Array, stops: jax.Array, restitution: jax.Array
) -> jax.Array:
    """Compute the fraction alpha of the elastic outcome that makes the loss (1 - R^2) times the plastic one.

    alpha = R if <p_p, p_e> = |p_p|^2, eq (18). Otherwise alpha is the root of
    (1 - s) alpha^2 + s alpha = R^2 with s = 2 (<p_p, p_e> - |p_p|^2) / (|p_minus|^2 - |p_p|^2). With the
    unilateral plastic outcome 0 <= s < 1, because <p_p, p_e - p_p> is a sum of products of rates and
    impulses >= 0; so there is one root in 0..1.
    """
    energy_lost = -2.0 * (rate @ stops) - stops @ gram @ stops
    product = (rate + gram @ stops) @ (bounces - stops)
    s = jnp.where(energy_lost > 0, 2.0 * product / jnp.where(energy_lost > 0, energy_lost, 1.0), 0.0)
    root = jnp.sqrt(jnp.maximum(s * s + 4.0 * (1.0 - s) * restitution**2, 1e-30))
    return jnp.where(restitution > 0, 2.0 * restitution**2 / (s + root), 0.0)
