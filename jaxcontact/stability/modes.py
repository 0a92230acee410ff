"""Contact modes of the zero-order dynamics: forces and accelerations of every word of F, S, P, N.

Owns the table of modes, entry function `contact_modes`, the equilibrium test, the ambiguity test, and the
impact at one contact, in floating point with JAX; `rational_modes.py` has the same modes in rational numbers.
Page: docs/methods/stability.md.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.algebra import implicit, small_dense
from jaxcontact.arguments import check_array, check_integer
from jaxcontact.front_door import checked
from jaxcontact.precision import jit
from jaxcontact.stability.body import Body, LocalTerms, as_terms
from jaxcontact.tolerances import HALF_DIGITS, ZERO_NUMBER

if TYPE_CHECKING:
    from jaxtyping import Float

LETTERS = "FSPN"  # free, stick, slip in the positive and in the negative direction


class ModeTable(Record):
    """Every contact mode of a body; axis 0 is the mode, in the order of `words`.

    Attributes:
        words: one letter per contact: F free, S stick, P or N slip in the positive or negative direction.
        admissible: (nm,) some state has this motion, with slips other than zero; three slips are compared
            in pairs.
        consistent: (nm,) the forces push and obey Coulomb's law.
        at_rest: (nm,) consistent in a state of rest: the acceleration also keeps or opens the free contacts
            and starts the slips in their directions. For the all-stick mode this is equilibrium.
        forces: (nm, nc, 2) normal and tangential contact forces.
        acceleration: (nm, nv).
        residual: (nm,) of the equations of the mode, relative to the force.
    """

    words: tuple[str, ...] = static()
    admissible: jax.Array
    consistent: jax.Array
    at_rest: jax.Array
    forces: jax.Array
    acceleration: jax.Array
    residual: jax.Array


def mode_words(num_contacts: int) -> tuple[str, ...]:
    """List all words of F, S, P, N: 4^nc of them."""
    return tuple("".join(word) for word in itertools.product(LETTERS, repeat=num_contacts))


class _Metric(NamedTuple):
    """A body in coordinates with unit mass matrix; rows are (n, t) of each contact."""

    rows: jax.Array  # (2 nc, nv)
    pull: jax.Array  # (nv,)
    back: jax.Array  # (nv, nv): acceleration = back @ its whitened form
    mu: jax.Array  # (nc,)


def _whiten(terms: LocalTerms) -> _Metric:
    inverse = small_dense.inverse_factor_lanes(terms.M).T
    rows = jnp.stack([terms.J_n, terms.J_t], axis=1).reshape(-1, terms.force.shape[0])
    return _Metric(rows @ inverse, terms.force @ inverse, inverse, terms.mu)


def _solve(matrix: jax.Array, rhs: jax.Array) -> jax.Array:
    inverse, _ = small_dense.generalized_inverse(matrix)
    x = inverse @ rhs
    for _ in range(2):
        x = x + inverse @ (rhs - matrix @ x)
    return x


def _mode_forces(metric: _Metric, word: jax.Array, loaded: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute forces (nc, 2) of a mode and the residual of its equations; others than `loaded` are idle."""
    nc = metric.mu.shape[0]
    delassus, drift = metric.rows @ metric.rows.T, metric.rows @ metric.pull
    active = word > 0
    sign = jnp.where(word == 2, -1.0, jnp.where(word == 3, 1.0, 0.0)) * metric.mu  # lam_t = sign lam_n
    identity = jnp.eye(2 * nc, dtype=drift.dtype)
    slide = identity[1::2] - sign[:, None] * identity[0::2]
    stick = (word == 1) & loaded
    normal = jnp.where((active & loaded)[:, None], delassus[0::2], identity[0::2])
    tangent = jnp.where(stick[:, None], delassus[1::2], slide)
    matrix = jnp.stack([normal, tangent], axis=1).reshape(2 * nc, 2 * nc)
    rhs = jnp.stack(
        [jnp.where(active & loaded, -drift[0::2], 0.0), jnp.where(stick, -drift[1::2], 0.0)], axis=1
    )
    size = jnp.sqrt(jnp.sum(matrix**2, axis=1))
    forces = _solve(matrix / size[:, None], rhs.ravel() / size).reshape(nc, 2)
    rate = (delassus @ forces.ravel() + drift).reshape(nc, 2)
    left = jnp.maximum(
        jnp.where(active, jnp.abs(rate[:, 0]), 0.0), jnp.where(word == 1, jnp.abs(rate[:, 1]), 0.0)
    )
    return forces, jnp.max(left)


def _coulomb(metric: _Metric, forces: jax.Array, size: jax.Array, power: float) -> jax.Array:
    slack = metric.mu * forces[:, 0] - jnp.abs(forces[:, 1])
    return jnp.all((forces[:, 0] >= -power * size) & (slack >= -power * size * (1.0 + metric.mu)))


def _static_forces(terms: LocalTerms, metric: _Metric) -> tuple[jax.Array, jax.Array]:
    """Find forces (nc, 2) that hold the body, among those on few edges of the friction cones.

    Equations and edges are scaled to length one, so that lengths, masses and frictions of other sizes count
    alike. The residual is relative, row by row, to the terms that the row adds up; or, if
    smaller, the norm of all rows relative to the force in the kinetic metric.
    """
    nc, nv = terms.mu.shape[0], terms.force.shape[0]
    edges = jnp.concatenate(
        [terms.J_n - terms.mu[:, None] * terms.J_t, terms.J_n + terms.mu[:, None] * terms.J_t]
    )
    row_size = jnp.max(jnp.abs(edges), axis=0)
    row_size = jnp.where(row_size > 0, row_size, 1.0)
    edges = edges / row_size[None]
    edge_size = jnp.sqrt(jnp.sum(edges**2, axis=1))
    edges = edges / jnp.where(edge_size > 0, edge_size, 1.0)[:, None]
    load = -terms.force / row_size
    load_size = jnp.max(jnp.abs(load))
    load = load / jnp.where(load_size > 0, load_size, 1.0)
    pull = jnp.sqrt(jnp.sum(metric.pull**2))
    pull = jnp.where(pull > 0, pull, 1.0)
    num_edges = min(nv, 2 * nc)
    chosen = np.array(list(itertools.combinations(range(2 * nc), num_edges)))

    def attempt(index: jax.Array) -> tuple[jax.Array, jax.Array]:
        few = edges[index]
        part = _solve(jnp.pad(few.T, ((0, 0), (0, nv - num_edges))), load)[:num_edges]
        left = few.T @ part - load
        added = jnp.abs(few).T @ jnp.abs(part) + jnp.abs(load)
        by_row = jnp.max(jnp.abs(left) / jnp.where(added > 0, added, 1.0))
        overall = jnp.sqrt(jnp.sum((left * row_size * load_size @ metric.back) ** 2)) / pull
        largest = jnp.max(jnp.abs(part))
        negative = -jnp.min(part) / jnp.where(largest > 0, largest, 1.0)
        bad = jnp.maximum(jnp.minimum(by_row, overall), negative)
        return jnp.zeros(2 * nc, part.dtype).at[index].set(part), bad

    parts, bad = jax.vmap(attempt)(jnp.asarray(chosen))
    part = parts[jnp.argmin(bad)] * load_size / jnp.where(edge_size > 0, edge_size, 1.0)
    forces = jnp.stack([part[:nc] + part[nc:], terms.mu * (part[nc:] - part[:nc])], axis=1)
    return forces, jnp.min(bad)


def _kinematics(metric: _Metric, word: jax.Array, tolerance: float) -> jax.Array:
    """Return whether some velocity has the equalities and strict slips of the mode."""
    nv = metric.pull.shape[0]
    size = jnp.sqrt(jnp.sum(metric.rows**2, axis=1))
    rows = metric.rows / jnp.where(size > 0, size, 1.0)[:, None]
    held = jnp.stack([word > 0, word == 1], axis=1).ravel()
    held_rows = jnp.where(held[:, None], rows, 0.0)
    inverse, _ = small_dense.generalized_inverse(held_rows @ held_rows.T)
    free = jnp.eye(nv, dtype=rows.dtype) - held_rows.T @ inverse @ held_rows
    slips = jnp.where(word == 2, 1.0, -1.0)[:, None] * rows[1::2] @ free
    sliding = word >= 2
    length = jnp.sqrt(jnp.sum(slips**2, axis=1))
    unit = slips / jnp.where(length > tolerance, length, 1.0)[:, None]
    apart = jnp.sum((unit[:, None] + unit[None]) ** 2, axis=2)  # zero if two slips exclude each other
    both = sliding[:, None] & sliding[None]
    return jnp.all(~sliding | (length > tolerance)) & jnp.all(~both | (apart > tolerance**2))


@checked()
def contact_modes(body: Body) -> ModeTable:
    """Tabulate the contact modes of a body: whether each is possible, its forces and its acceleration.

    In a mode, lam = 0 at a free contact F; gap'' = 0 at the others, slip'' = 0 at S, lam_t = -mu lam_n at P
    and +mu lam_n at N (Varkonyi, Table I). If the equations leave forces free (the body at rest on two feet,
    three feet in a line), feasible ones are searched, and one choice is returned.

    Args:
        body: a PlanarBiped or LocalTerms.

    Returns:
        ModeTable with 4^nc rows.

    Raises:
        ValueError: bad numbers in the body, if they are not traced.

    Derivative: of forces and accelerations, exact away from changes of feasibility and singular modes.
    """
    return _list_modes(as_terms(body))


@jit
def _list_modes(terms: LocalTerms) -> ModeTable:
    metric = _whiten(terms)
    nc = terms.mu.shape[0]
    words = mode_words(nc)
    codes = jnp.asarray([[LETTERS.index(letter) for letter in word] for word in words])
    eps = float(jnp.finfo(metric.pull.dtype).eps)
    tolerance = eps**ZERO_NUMBER * 100.0
    pull = jnp.sqrt(jnp.sum(metric.pull**2))
    pull = jnp.where(pull > 0, pull, 1.0)
    idle = [np.ones(nc, bool)] + ([~np.eye(nc, dtype=bool)[i] for i in range(nc)] if nc > 2 else [])

    def one(word: jax.Array) -> tuple[jax.Array, ...]:
        def attempt(loaded: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            forces, left = _mode_forces(metric, word, loaded)
            size = jnp.maximum(pull, jnp.max(jnp.abs(forces)))
            residual = left / size
            good = (residual < tolerance) & _coulomb(metric, forces, size, tolerance)
            return forces, residual, good

        forces, residual, good = jax.vmap(attempt)(jnp.asarray(np.array(idle)))
        best = jnp.argmax(good)
        return forces[best], residual[best], good[best]

    forces, residual, consistent = jax.vmap(one)(codes)
    still = words.index("S" * nc)
    static_forces, bad = _static_forces(terms, metric)
    forces = forces.at[still].set(static_forces)
    residual = residual.at[still].set(bad)
    consistent = consistent.at[still].set(bad < tolerance)
    whitened = metric.pull[None] + forces.reshape(len(words), -1) @ metric.rows
    rate = (whitened @ metric.rows.T).reshape(-1, nc, 2) / pull
    slip = jnp.where(codes == 2, 1.0, -1.0) * rate[..., 1]
    starts = jnp.where(codes == 0, rate[..., 0] > -tolerance, (codes < 2) | (slip > -tolerance))
    moving = jnp.sqrt(jnp.sum(whitened**2, axis=1)) > tolerance * pull
    at_rest = consistent & jnp.all(starts, axis=1) & (moving | (jnp.arange(len(words)) == still))
    return ModeTable(
        words=words,
        admissible=jax.vmap(lambda word: _kinematics(metric, word, eps**HALF_DIGITS))(codes),
        consistent=consistent,
        at_rest=at_rest,
        forces=forces,
        acceleration=whitened @ metric.back.T,
        residual=residual,
    )


@checked()
def is_equilibrium(body: Body) -> jax.Array:
    """Return whether contact forces within Coulomb's law hold the body at rest, as a bool.

    For the biped on a slope (phi = 0, force through the middle of its feet) this is mu1 + mu2 >= 2 tan alpha.

    Derivative: none.
    """
    table = contact_modes(body)
    return table.at_rest[..., table.words.index("S" * (len(table.words[0])))]


@checked()
def is_ambiguous(body: Body) -> jax.Array:
    """Return whether the body at rest may also start to move, as a bool: another mode is consistent at rest.

    Such an equilibrium is never Lyapunov stable. For the biped on a slope, foot 1 uphill: d < h tan alpha and
    mu1 < tan alpha - d / h, by the mode PF (Varkonyi, 57-58).

    Derivative: none.
    """
    table = contact_modes(body)
    still = table.words.index("S" * (len(table.words[0])))
    return jnp.any(jnp.delete(table.at_rest, still, axis=-1), axis=-1)


@checked()
def impact(body: Body, v: Float[jax.Array, " nv"], contact: int) -> tuple[jax.Array, jax.Array]:
    """Compute the velocity after an impact at one contact, and its impulse (normal, tangential).

    gap'+ = -e gap'-, and Coulomb's law on the impulse with the slip after the impact (Varkonyi, 27-33; with
    mu in 28). The first consistent one of stick, slip P and slip N is taken. Without approach the
    velocity does not change.

    Args:
        body: a PlanarBiped or LocalTerms.
        v: (nv,) velocity before.
        contact: index of the contact that hits, static.

    Returns:
        v_plus (nv,) and impulse (2,), NaN if no kind of impact is consistent, or v is not finite.

    Raises:
        TypeError, ValueError: bad numbers in the body, v of another shape or dtype, no such contact.

    Derivative: that of the kind of impact taken.
    """
    terms = as_terms(body)
    check_array("v", v, jnp.shape(terms.force))
    check_integer("contact", contact, 0, jnp.shape(terms.mu)[0] - 1)
    pair = jnp.stack([terms.J_n[contact], terms.J_t[contact]])
    push = implicit.solve_spd(terms.M, pair.T)  # velocity per impulse, (nv, 2)
    impulse = impact_impulse(pair @ push, pair @ v, terms.mu[contact], terms.e[contact])
    return v + push @ impulse, impulse


def impact_impulse(g: jax.Array, speed: jax.Array, mu: jax.Array, e: jax.Array) -> jax.Array:
    """Compute the impulse (2,) of an impact from the Delassus matrix (2, 2) and the contact velocity (2,)."""
    normal, tangential = speed[0], speed[1]
    need = -(1.0 + e) * normal
    det = g[0, 0] * g[1, 1] - g[0, 1] ** 2
    stick = jnp.stack(
        [g[1, 1] * need + g[0, 1] * tangential, -g[0, 1] * need - g[0, 0] * tangential]
    ) / jnp.where(det > 0, det, 1.0)
    sticks = (jnp.abs(stick[1]) <= mu * stick[0]) & (det > 0)

    def slip(sign: float) -> tuple[jax.Array, jax.Array]:
        along = g[0, 0] - sign * mu * g[0, 1]
        size = need / jnp.where(along > 0, along, 1.0)
        after = tangential + (g[0, 1] - sign * mu * g[1, 1]) * size
        return jnp.stack([size, -sign * mu * size]), (along > 0) & (sign * after >= 0)

    (plus, is_plus), (minus, is_minus) = slip(1.0), slip(-1.0)
    impulse = jnp.where(sticks, stick, jnp.where(is_plus, plus, jnp.where(is_minus, minus, jnp.nan)))
    return jnp.where(normal < 0, impulse, 0.0)
