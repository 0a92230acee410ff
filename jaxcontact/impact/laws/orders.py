"""All orders of the single impacts within a simultaneous impact.

Entries: `propagate_all` computes the outcomes of all orders, `indeterminacy` their largest distance, and
`unique_order` tells whether all orders agree. docs/methods/propagative.md has the law.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
from jaxcontact.arguments import check_rows
from jaxcontact.batching.bounded_loop import bounded_loop
from jaxcontact.front_door import NOT_NEGATIVE, checked
from jaxcontact.impact import inputs
from jaxcontact.impact.laws.contact_space import mass_norm
from jaxcontact.impact.laws.reflections import (
    Normals,
    normals,
    normals_gram,
    reflect,
    repeat_reflections,
    tolerance,
)
from jaxcontact.precision import jit
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

if TYPE_CHECKING:
    from jaxtyping import Float

SAME_OUTCOME = 1e-9  # outcomes closer than this, relative to |v|_M, count as one
MAX_PERMUTED = 4  # largest number of contacts for which `indeterminacy` compares all orders
_MINIMAL = 10  # largest length of a sequence that is compared with all its parts, 2^10 of them


class Sequences(Record):
    """Orders of single impacts, one per outcome of `propagate_all`.

    Attributes:
        order: (k, max_reflections) int32 contacts, -1 after the last.
        length: (k,) int32.
        minimal: (k,) bool, True if no proper part of the sequence gives a feasible velocity (Definition 1).
            False for a sequence of more than 10 impacts, which is not tested.
        status: () uint32 bits.
    """

    order: jax.Array
    length: jax.Array
    minimal: jax.Array
    status: jax.Array


class _Front(NamedTuple):
    """Impulses x (K, nc) after `stage` reflections with their orders, and the outcomes (k, nc) so far."""

    x: jax.Array
    order: jax.Array
    alive: jax.Array
    outcomes: jax.Array
    outcome_order: jax.Array
    valid: jax.Array
    full: jax.Array
    stage: jax.Array


@checked(max_outcomes=check_rows, max_reflections=check_rows)
def propagate_all(
    terms: ContactTerms, v: Float[jax.Array, " nv"], *, max_outcomes: int = 16, max_reflections: int = 64
) -> tuple[jax.Array, Sequences, jax.Array]:
    """Find every distinct elastic outcome over all physical orders of single impacts.

    Seghete & Murphey, Section III: at every stage any approaching contact may be next. Orders that reach the
    same velocity after equally many impacts continue as one order; the result names the first of them.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        max_outcomes: k; a stage follows up to 4 k distinct velocities.
        max_reflections: largest number of single impacts.

    Returns:
        v_plus (k, nv), Sequences, and valid (k,) bool. If no contact approaches the only outcome is v.

    Raises:
        ValueError, TypeError: as `propagate`.

    Status: MAX_ITERS if outcomes or velocities of a stage did not fit; UNTERMINATED if some order has
        not ended; NONFINITE, INVALID, PENETRATION as other laws.

    Derivative: by v and terms, of each sequence.
    """
    inputs.check(terms, v)
    inputs.check_count("max_outcomes", max_outcomes)
    inputs.check_count("max_reflections", max_reflections)
    return _propagate_all(terms, v, int(max_outcomes), int(max_reflections))


@functools.partial(jit, static_argnames=("k", "length"))
def _propagate_all(
    terms: ContactTerms, v: jax.Array, k: int, length: int
) -> tuple[jax.Array, Sequences, jax.Array]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    unit_normals, speed = normals(terms, v), mass_norm(terms.M, v)
    fixed_normals = lax.stop_gradient(unit_normals)
    front = _follow_orders(fixed_normals, speed, k, length)

    def replay(order: jax.Array) -> jax.Array:
        return v + unit_normals.response @ repeat_reflections(unit_normals, order)

    v_plus = jax.vmap(replay)(front.outcome_order)
    status |= flag(front.full, Status.MAX_ITERS) | flag(jnp.any(front.alive), Status.UNTERMINATED)
    unusable = (status & jnp.uint32(int(Status.NONFINITE | Status.INVALID | Status.PENETRATION))) != 0
    sequences = Sequences(
        order=front.outcome_order,
        length=jnp.sum(front.outcome_order >= 0, axis=1, dtype=jnp.int32),
        minimal=front.valid
        & jax.vmap(lambda order: _is_minimal(fixed_normals, speed, order))(front.outcome_order),
        status=status,
    )
    return jnp.where(unusable, v_in[None], v_plus), sequences, front.valid


def _follow_orders(unit_normals: Normals, speed: jax.Array, k: int, length: int) -> _Front:
    """Follow all velocities stage by stage; a velocity without an approaching contact is an outcome."""
    nc = unit_normals.rate.shape[0]
    width = 4 * k
    no_order = jnp.full((1, length), -1, jnp.int32)

    def rates(x: jax.Array) -> jax.Array:
        return unit_normals.rate[None] + x @ unit_normals.gram

    def approaching(x: jax.Array) -> jax.Array:
        return unit_normals.active[None] & (rates(x) < -tolerance(x.dtype) * speed)

    def stage(front: _Front) -> _Front:
        front = _collect_ended(front, approaching, rates, speed, k)
        # For the other velocities, every approaching contact has the next impact.
        step = jnp.eye(nc, dtype=front.x.dtype)[None] * (-2.0 * rates(front.x))[:, :, None]
        children = (front.x[:, None] + step).reshape(-1, nc)
        orders = jnp.broadcast_to(front.order[:, None], (width, nc, length))
        orders = orders.at[:, :, front.stage].set(jnp.arange(nc, dtype=jnp.int32)[None])
        born = (front.alive[:, None] & approaching(front.x)).reshape(-1)
        x, order, alive, crowded = _first_distinct(
            children, orders.reshape(-1, length), born, rates, speed, width
        )
        return front._replace(x=x, order=order, alive=alive, full=front.full | crowded, stage=front.stage + 1)

    start = _Front(
        x=jnp.zeros((width, nc), unit_normals.rate.dtype),
        order=jnp.broadcast_to(no_order, (width, length)),
        alive=jnp.arange(width) == 0,
        outcomes=jnp.zeros((k, nc), unit_normals.rate.dtype),
        outcome_order=jnp.broadcast_to(no_order, (k, length)),
        valid=jnp.zeros(k, bool),
        full=jnp.bool_(False),
        stage=jnp.int32(0),
    )
    last_front = bounded_loop(lambda f: jnp.any(f.alive) & (f.stage < length), stage, start, max_iters=length)
    return lax.cond(
        jnp.any(last_front.alive),
        lambda f: _collect_ended(f, approaching, rates, speed, k),
        lambda f: f,
        last_front,
    )


def _collect_ended(
    front: _Front,
    approaching: Callable[..., jax.Array],
    rates: Callable[..., jax.Array],
    speed: jax.Array,
    k: int,
) -> _Front:
    """Move the velocities of the front at which no contact approaches to the outcomes."""
    ended = front.alive & ~jnp.any(approaching(front.x), axis=1)
    outcomes, order, valid, crowded = _first_distinct(
        jnp.concatenate([front.outcomes, front.x]),
        jnp.concatenate([front.outcome_order, front.order]),
        jnp.concatenate([front.valid, ended]),
        rates, speed, k,
    )  # fmt: skip
    return front._replace(
        outcomes=outcomes,
        outcome_order=order,
        valid=valid,
        full=front.full | crowded,
        alive=front.alive & ~ended,
    )


def _first_distinct(
    x: jax.Array,
    order: jax.Array,
    valid: jax.Array,
    rates: Callable[..., jax.Array],
    speed: jax.Array,
    size: int,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Select the first `size` distinct valid rows, and tell whether there were more."""
    s = rates(x)
    limit = max(SAME_OUTCOME, 10.0 * tolerance(x.dtype)) * speed
    distinct = jnp.max(jnp.abs(s[:, None] - s[None]), axis=2) > limit
    number = jnp.arange(x.shape[0], dtype=jnp.int32)
    earlier = valid[None] & (number[None] < number[:, None])
    first_of_kind = valid & ~jnp.any(earlier & ~distinct, axis=1)
    rows = jnp.argsort(~first_of_kind, stable=True)[:size]
    return (
        x[rows],
        jnp.where(first_of_kind[rows, None], order[rows], -1),
        first_of_kind[rows],
        jnp.sum(first_of_kind) > size,
    )


def _is_minimal(unit_normals: Normals, speed: jax.Array, order: jax.Array) -> jax.Array:
    """Tell whether no proper part of the sequence gives a feasible velocity."""
    stages = min(_MINIMAL, order.shape[0])
    length = jnp.sum(order >= 0)
    picks = np.array(list(itertools.product([False, True], repeat=stages)))

    def rate(pick: jax.Array) -> jax.Array:
        s = unit_normals.rate
        for i in range(stages):
            contact = jnp.maximum(order[i], 0)
            s = jnp.where(pick[i] & (order[i] >= 0), s - 2.0 * s[contact] * unit_normals.gram[contact], s)
        return s

    choices = jnp.asarray(picks)
    inside = jnp.all(~choices | (jnp.arange(stages) < length)[None], axis=1)
    proper = inside & (jnp.sum(choices, axis=1) < length)
    s = jax.vmap(rate)(choices)
    feasible = jnp.all(~unit_normals.active[None] | (s >= -tolerance(s.dtype) * speed), axis=1)
    return (length <= stages) & ~jnp.any(proper & feasible)


@checked(max_reflections=check_rows)
def indeterminacy(
    terms: ContactTerms,
    v: Float[jax.Array, " nv"],
    *,
    orders: tuple[tuple[int, ...], ...] | None = None,
    max_reflections: int = 64,
) -> jax.Array:
    """Compute xi, the largest distance |v_a - v_b|_M / |v|_M between elastic outcomes of several orders.

    Seghete & Murphey, Section VII-A; a ratio of norms of momenta, not of energies.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        orders: cycles of contact indices to compare; default all permutations, for up to 4 contacts.
        max_reflections: largest number of single impacts.

    Returns:
        xi (); 0 for v = 0, NaN for bad numbers inside `jit`.

    Raises:
        ValueError, TypeError: as `propagate`; more than 4 contacts without `orders`.

    Derivative: by v and terms, of the pair that is farthest apart; 0 if all agree.
    """
    inputs.check(terms, v)
    inputs.check_count("max_reflections", max_reflections)
    nc = terms.phi.shape[0]
    if orders is None:
        if nc > MAX_PERMUTED:
            raise ValueError(
                f"orders: expected cycles to compare for more than {MAX_PERMUTED} contacts, got None"
            )
        orders = tuple(itertools.permutations(range(nc)))
    cycles = [inputs.check_order("orders", order, nc) for order in orders] if np.iterable(orders) else []
    if len({len(cycle) for cycle in cycles}) != 1:
        raise ValueError(f"orders: expected cycles of one length, got {orders}")
    return _indeterminacy(terms, v, jnp.asarray(cycles, jnp.int32), int(max_reflections))


@functools.partial(jit, static_argnames="length")
def _indeterminacy(terms: ContactTerms, v: jax.Array, orders: jax.Array, length: int) -> jax.Array:
    terms, v, status = inputs.prepare(terms, v)
    unit_normals, speed = normals(terms, v), mass_norm(terms.M, v)
    x, _ = jax.vmap(lambda order: reflect(unit_normals, speed, order, length))(orders)
    impulse_difference = (x[:, None] - x[None]).reshape(-1, x.shape[1])
    square = jnp.sum((impulse_difference @ unit_normals.gram) * impulse_difference, axis=1)
    farthest = square[jnp.argmax(square)]
    positive = farthest > 0
    energy = v @ terms.M @ v
    has_energy = energy > 0
    xi = jnp.sqrt(jnp.where(positive, farthest, 1.0) / jnp.where(has_energy, energy, 1.0))
    return jnp.where(status != 0, jnp.nan, jnp.where(positive & has_energy, xi, 0.0))


class UniqueOrder(Record):
    """Whether an elastic impact of the contacts has the same outcome in every order, and why.

    Attributes:
        unique: () bool.
        stages: (nc, nc) int32, the n with <u_i, u_j> = -cos(pi / n) within `tol`, which is the largest number
            of impacts of the pair; 2 for orthogonal normals; 0 if no such n exists or a contact is
            inactive.
    """

    unique: jax.Array
    stages: jax.Array

    @property
    def theorem(self) -> str | None:
        """Name the theorem that guarantees one outcome for all orders; None if no theorem does."""
        if not bool(self.unique):
            return None
        pair_stages = set(np.asarray(self.stages).ravel().tolist()) - {0}
        if pair_stages <= {2}:
            return "Theorem 2: the normals are orthogonal"
        if np.sum(np.asarray(self.stages) > 0) == 2:
            return f"Theorem 3: <u, v> = -cos(pi / {max(pair_stages)})"
        return "reflection group: every <u_i, u_j> = -cos(pi / n_ij)"


@checked(tol=NOT_NEGATIVE)
def unique_order(terms: ContactTerms, tol: float = 1e-9) -> UniqueOrder:
    """Find the theorem, if any, which guarantees that elastic impacts do not depend on the order.

    Seghete & Murphey, Theorem 2 (orthogonal normals) and Theorem 3 (<u, v> = -1/2). Both extend to
    <u, v> = -cos(pi / n) and to more than two contacts. If every pair satisfies this equation and the normals
    are independent, the reflections generate a finite Coxeter group, whose chamber {<p, u_i> >= 0} meets
    every orbit in one point. For equal balls of Newton's cradle the group is that of the permutations.

    If the normals nearly satisfy the equation, the outcomes nearly agree. For two normals at an angle of
    pi / n + d the outcomes differ by up to |v_a - v_b|_M = 2 n |d| |v|_M. So the nearer two normals are to
    opposite directions, the smaller the allowed deviation.

    Args:
        terms: contact terms, nc contacts; inactive contacts do not count.
        tol: largest difference |v_a - v_b|_M / |v|_M at which two outcomes count as equal.

    Raises:
        ValueError: tol < 0.

    Derivative: none, the result is a decision.
    """
    if not tol >= 0:
        raise ValueError(f"tol: expected a number >= 0, got {tol}")
    gram = lax.stop_gradient(normals_gram(terms))
    active = terms.active & (jnp.diagonal(gram) > 0)
    pairs = active[:, None] & active[None, :] & ~jnp.eye(gram.shape[0], dtype=bool)
    angle = jnp.arccos(jnp.clip(-gram, -1.0, 1.0))
    n = jnp.round(jnp.pi / jnp.maximum(angle, 1e-3))
    fits = pairs & (n >= 2) & (2.0 * n * jnp.abs(angle - jnp.pi / n) <= tol)
    active_gram = jnp.where(active[:, None] & active[None, :], gram, jnp.eye(gram.shape[0], dtype=gram.dtype))
    exact = jnp.where(fits, -jnp.cos(jnp.pi / n), jnp.eye(gram.shape[0], dtype=gram.dtype))
    agree = _bound_difference(active_gram, exact, jnp.sum(active)) <= tol
    independent = jnp.linalg.eigvalsh(active_gram)[0] > 1e-9
    return UniqueOrder(
        unique=jnp.all(~pairs | fits) & agree & independent,
        stages=jnp.where(fits, n, 0.0).astype(jnp.int32),
    )


def _bound_difference(gram: jax.Array, exact: jax.Array, count: jax.Array) -> jax.Array:
    """Bound the difference of the outcomes of two orders, relative to |v|_M; inf or NaN without a bound.

    Reflections by the exact normals fold a velocity into the chamber; the folded velocity is the same for
    every order, and folding makes no distance longer. A reflection by a normal u' near the exact u changes
    the folded velocity by |R' - R| = 2 |sin(u, u')| at most. A sequence has at most nc h / 2 reflections,
    with h the Coxeter number: the exact Gram matrix of a component of the group has the lowest eigenvalue
    1 - cos(pi / h).

    Args:
        gram: (nc, nc) Gram matrix of the normals.
        exact: (nc, nc) Gram matrix of the normals of a reflection group.
        count: () number of active contacts.
    """

    def root(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None]) @ vectors.T, values[0]

    (root_of_gram, _), (root_of_exact, lowest) = root(gram), root(exact)
    reflections = 0.5 * count * jnp.pi / jnp.arccos(jnp.clip(1.0 - lowest, 0.0, 1.0))
    # sin(u, u') to first order
    largest_sine = jnp.max(jnp.sqrt(jnp.sum((root_of_gram - root_of_exact) ** 2, axis=1)))
    return 4.0 * reflections * largest_sine
