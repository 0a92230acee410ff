"""All orders of the single impacts of a simultaneous one: their outcomes, how far apart, when they agree."""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import Record
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
from jaxcontact.status import Status, flag
from jaxcontact.terms import ContactTerms

SAME = 1e-9  # outcomes closer than this, relative to |v|_M, are one
MAX_PERMUTED = 4  # contacts of which `indeterminacy` compares all orders
_MINIMAL = 10  # stages up to which a sequence is compared with all its parts


class Sequences(Record):
    """Orders of single impacts, one per outcome of `propagate_all`.

    Attributes:
        order: (k, max_reflections) int32 contacts, -1 behind the last.
        length: (k,) int32.
        minimal: (k,) bool, no proper part of the sequence gives a feasible velocity (Definition 1); False,
            too, where the sequence has more than 10 stages.
        status: () uint32 bits.
    """

    order: jax.Array
    length: jax.Array
    minimal: jax.Array
    status: jax.Array


class _Front(NamedTuple):
    """Impulses reached after some number of reflections (K, nc), by which sequence; and what has ended."""

    x: jax.Array
    order: jax.Array
    alive: jax.Array
    found: jax.Array
    found_order: jax.Array
    valid: jax.Array
    full: jax.Array
    stage: jax.Array


def propagate_all(
    terms: ContactTerms, v: jax.Array, *, max_outcomes: int = 16, max_reflections: int = 64
) -> tuple[jax.Array, Sequences, jax.Array]:
    """Every distinct elastic outcome over all physical orders of single impacts.

    Seghete & Murphey, Section III: at every stage any approaching contact may be next. Orders that reach the
    same velocity after equally many impacts go on as one; the first is reported.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        max_outcomes: k, also the largest number of distinct velocities followed at a stage, times 4.
        max_reflections: largest number of single impacts.

    Returns:
        v_plus (k, nv), Sequences, and valid (k,) bool. v itself where nothing approaches.

    Raises:
        ValueError, TypeError: as `propagate`.

    Status: MAX_ITERS where there were more outcomes or velocities than are kept; UNTERMINATED where some
        order has not ended; NONFINITE, INVALID, PENETRATION as other laws.

    Derivative: by v and terms, of each sequence.
    """
    inputs.check(terms, v)
    inputs.check_count("max_outcomes", max_outcomes)
    inputs.check_count("max_reflections", max_reflections)
    return _propagate_all(terms, v, int(max_outcomes), int(max_reflections))


@functools.partial(jax.jit, static_argnums=(2, 3))
def _propagate_all(
    terms: ContactTerms, v: jax.Array, k: int, length: int
) -> tuple[jax.Array, Sequences, jax.Array]:
    v_in = v
    terms, v, status = inputs.prepare(terms, v)
    these, speed = normals(terms, v), mass_norm(terms.M, v)
    fixed = lax.stop_gradient(these)
    front = _follow(fixed, speed, k, length)

    def replay(order: jax.Array) -> jax.Array:
        return v + these.response @ repeat_reflections(these, order)

    v_plus = jax.vmap(replay)(front.found_order)
    status |= flag(front.full, Status.MAX_ITERS) | flag(jnp.any(front.alive), Status.UNTERMINATED)
    bad = (status & jnp.uint32(int(Status.NONFINITE | Status.INVALID | Status.PENETRATION))) != 0
    sequences = Sequences(
        order=front.found_order,
        length=jnp.sum(front.found_order >= 0, axis=1, dtype=jnp.int32),
        minimal=front.valid & jax.vmap(lambda order: _minimal(fixed, speed, order))(front.found_order),
        status=status,
    )
    return jnp.where(bad, v_in[None], v_plus), sequences, front.valid


def _follow(these: Normals, speed: jax.Array, k: int, length: int) -> _Front:
    """All velocities stage by stage; those without an approaching contact have ended."""
    nc = these.rate.shape[0]
    width = 4 * k
    none = jnp.full((1, length), -1, jnp.int32)

    def rates(x: jax.Array) -> jax.Array:
        return these.rate[None] + x @ these.gram

    def near(x: jax.Array) -> jax.Array:
        return these.active[None] & (rates(x) < -tolerance(x.dtype) * speed)

    def stage(front: _Front) -> _Front:
        front = _harvest(front, near, rates, speed, k)
        # Every approaching contact of every other velocity is next.
        step = jnp.eye(nc, dtype=front.x.dtype)[None] * (-2.0 * rates(front.x))[:, :, None]
        children = (front.x[:, None] + step).reshape(-1, nc)
        orders = jnp.broadcast_to(front.order[:, None], (width, nc, length))
        orders = orders.at[:, :, front.stage].set(jnp.arange(nc, dtype=jnp.int32)[None])
        born = (front.alive[:, None] & near(front.x)).reshape(-1)
        x, order, alive, crowded = _kept(children, orders.reshape(-1, length), born, rates, speed, width)
        return front._replace(x=x, order=order, alive=alive, full=front.full | crowded, stage=front.stage + 1)

    start = _Front(
        x=jnp.zeros((width, nc), these.rate.dtype),
        order=jnp.broadcast_to(none, (width, length)),
        alive=jnp.arange(width) == 0,
        found=jnp.zeros((k, nc), these.rate.dtype),
        found_order=jnp.broadcast_to(none, (k, length)),
        valid=jnp.zeros(k, bool),
        full=jnp.bool_(False),
        stage=jnp.int32(0),
    )
    going = lax.while_loop(lambda f: jnp.any(f.alive) & (f.stage < length), stage, start)
    return lax.cond(jnp.any(going.alive), lambda f: _harvest(f, near, rates, speed, k), lambda f: f, going)


def _harvest(front: _Front, near: Any, rates: Any, speed: jax.Array, k: int) -> _Front:
    """Velocities of the front that no contact approaches any more go to those found."""
    ended = front.alive & ~jnp.any(near(front.x), axis=1)
    found, order, valid, lost = _kept(
        jnp.concatenate([front.found, front.x]),
        jnp.concatenate([front.found_order, front.order]),
        jnp.concatenate([front.valid, ended]),
        rates, speed, k,
    )  # fmt: skip
    return front._replace(
        found=found, found_order=order, valid=valid, full=front.full | lost, alive=front.alive & ~ended
    )


def _kept(
    x: jax.Array, order: jax.Array, valid: jax.Array, rates: Any, speed: jax.Array, size: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The first `size` distinct valid rows, and whether there were more."""
    s = rates(x)
    limit = max(SAME, 10.0 * tolerance(x.dtype)) * speed
    apart = jnp.max(jnp.abs(s[:, None] - s[None]), axis=2) > limit
    number = jnp.arange(x.shape[0], dtype=jnp.int32)
    earlier = valid[None] & (number[None] < number[:, None])
    new = valid & ~jnp.any(earlier & ~apart, axis=1)
    at = jnp.argsort(~new, stable=True)[:size]
    return x[at], jnp.where(new[at, None], order[at], -1), new[at], jnp.sum(new) > size


def _minimal(these: Normals, speed: jax.Array, order: jax.Array) -> jax.Array:
    """Whether no proper part of the sequence gives a feasible velocity."""
    stages = min(_MINIMAL, order.shape[0])
    length = jnp.sum(order >= 0)
    picks = np.array(list(itertools.product([False, True], repeat=stages)))

    def rate(pick: jax.Array) -> jax.Array:
        s = these.rate
        for i in range(stages):
            at = jnp.maximum(order[i], 0)
            s = jnp.where(pick[i] & (order[i] >= 0), s - 2.0 * s[at] * these.gram[at], s)
        return s

    picks_ = jnp.asarray(picks)
    inside = jnp.all(~picks_ | (jnp.arange(stages) < length)[None], axis=1)
    proper = inside & (jnp.sum(picks_, axis=1) < length)
    s = jax.vmap(rate)(picks_)
    feasible = jnp.all(~these.active[None] | (s >= -tolerance(s.dtype) * speed), axis=1)
    return (length <= stages) & ~jnp.any(proper & feasible)


def indeterminacy(
    terms: ContactTerms,
    v: jax.Array,
    *,
    orders: tuple[tuple[int, ...], ...] | None = None,
    max_reflections: int = 64,
) -> jax.Array:
    """xi: how far apart the elastic outcomes of several orders are, |v_a - v_b|_M / |v|_M at most.

    Seghete & Murphey, Section VII-A; a ratio of norms of momenta, not of energies.

    Args:
        terms: contact terms, nc contacts.
        v: (nv,) velocity before the impact.
        orders: cycles of contact indices to compare; default all permutations, for up to 4 contacts.
        max_reflections: largest number of single impacts.

    Returns:
        xi (); 0 where v is, NaN for bad numbers inside `jit`.

    Raises:
        ValueError, TypeError: as `propagate`; more than 4 contacts without `orders`.

    Derivative: by v and terms, of the pair that is farthest apart; 0 where all agree.
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


@functools.partial(jax.jit, static_argnums=3)
def _indeterminacy(terms: ContactTerms, v: jax.Array, orders: jax.Array, length: int) -> jax.Array:
    terms, v, status = inputs.prepare(terms, v)
    these, speed = normals(terms, v), mass_norm(terms.M, v)
    x, _ = jax.vmap(lambda order: reflect(these, speed, order, length))(orders)
    apart = (x[:, None] - x[None]).reshape(-1, x.shape[1])
    square = jnp.sum((apart @ these.gram) * apart, axis=1)
    farthest = square[jnp.argmax(square)]
    positive = farthest > 0
    energy = v @ terms.M @ v
    moving = energy > 0
    xi = jnp.sqrt(jnp.where(positive, farthest, 1.0) / jnp.where(moving, energy, 1.0))
    return jnp.where(status != 0, jnp.nan, jnp.where(positive & moving, xi, 0.0))


class UniqueOrder(Record):
    """Whether the outcome of any elastic impact of these contacts is the same in every order, and why.

    Attributes:
        unique: () bool.
        stages: (nc, nc) int32, n where <u_i, u_j> = -cos(pi / n) as far as `tol` can tell, the largest number
            of impacts of the pair; 2 for orthogonal normals, 0 where there is no such n or a contact is
            inactive.
    """

    unique: jax.Array
    stages: jax.Array

    @property
    def theorem(self) -> str | None:
        """The theorem that guarantees it, None if none does."""
        if not bool(self.unique):
            return None
        found = set(np.asarray(self.stages).ravel().tolist()) - {0}
        if found <= {2}:
            return "Theorem 2: the normals are orthogonal"
        if np.sum(np.asarray(self.stages) > 0) == 2:
            return f"Theorem 3: <u, v> = -cos(pi / {max(found)})"
        return "reflection group: every <u_i, u_j> = -cos(pi / n_ij)"


def unique_order(terms: ContactTerms, tol: float = 1e-9) -> UniqueOrder:
    """Which theorem, if any, guarantees that elastic impacts do not depend on the order.

    Seghete & Murphey, Theorem 2 (orthogonal normals) and Theorem 3 (<u, v> = -1/2), which hold for
    <u, v> = -cos(pi / n), and for more contacts than two: if that is so of every pair and the normals are
    independent, the reflections generate a finite Coxeter group, whose chamber {<p, u_i> >= 0} meets every
    orbit in one point. Equal balls of Newton's cradle are the permutations.

    Normals that nearly do so have outcomes that nearly agree. Two at an angle of pi / n + d differ by up to
    |v_a - v_b|_M = 2 n |d| |v|_M, so the nearer they are to opposite, the less they may deviate.

    Args:
        terms: contact terms, nc contacts; inactive ones do not count.
        tol: largest difference of two outcomes, |v_a - v_b|_M / |v|_M, that counts as none.

    Raises:
        ValueError: tol < 0.

    Derivative: none, it is a decision.
    """
    if not tol >= 0:
        raise ValueError(f"tol: expected a number >= 0, got {tol}")
    gram = lax.stop_gradient(normals_gram(terms))
    active = terms.active & (jnp.diagonal(gram) > 0)
    pairs = active[:, None] & active[None, :] & ~jnp.eye(gram.shape[0], dtype=bool)
    angle = jnp.arccos(jnp.clip(-gram, -1.0, 1.0))
    n = jnp.round(jnp.pi / jnp.maximum(angle, 1e-3))
    fits = pairs & (n >= 2) & (2.0 * n * jnp.abs(angle - jnp.pi / n) <= tol)
    whole = jnp.where(active[:, None] & active[None, :], gram, jnp.eye(gram.shape[0], dtype=gram.dtype))
    exact = jnp.where(fits, -jnp.cos(jnp.pi / n), jnp.eye(gram.shape[0], dtype=gram.dtype))
    agree = _difference(whole, exact, jnp.sum(active)) <= tol
    independent = jnp.linalg.eigvalsh(whole)[0] > 1e-9
    return UniqueOrder(
        unique=jnp.all(~pairs | fits) & agree & independent,
        stages=jnp.where(fits, n, 0.0).astype(jnp.int32),
    )


def _difference(gram: jax.Array, exact: jax.Array, count: jax.Array) -> jax.Array:
    """How far apart outcomes of two orders can be, relative to |v|_M; inf or NaN where nothing is known.

    Folding into the chamber of the exact normals is the same in every order and makes no distance longer. A
    reflection by a normal u' beside the exact u moves what is folded by |R' - R| = 2 |sin(u, u')| at most. A
    sequence has at most nc h / 2 of them, h the Coxeter number: the exact Gram matrix of a component of
    the group has the least eigenvalue 1 - cos(pi / h).

    Args:
        gram: (nc, nc) of the normals.
        exact: (nc, nc) of those of a reflection group.
        count: () of active contacts.
    """

    def root(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
        values, vectors = jnp.linalg.eigh(matrix)
        return (vectors * jnp.sqrt(jnp.maximum(values, 0.0))[None]) @ vectors.T, values[0]

    (given, _), (near, lowest) = root(gram), root(exact)
    reflections = 0.5 * count * jnp.pi / jnp.arccos(jnp.clip(1.0 - lowest, 0.0, 1.0))
    apart = jnp.max(jnp.sqrt(jnp.sum((given - near) ** 2, axis=1)))  # sin(u, u') to first order
    return 4.0 * reflections * apart
