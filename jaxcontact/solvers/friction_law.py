"""Coulomb's law of contacts with regular, redundant or no friction: its residual and its linear equations.

Rows are by axis: the normals of all contacts, all t1[, all t2]. A `ScaledFriction` has rows of unit mobility,
by powers of two, so that no digit changes. Page: docs/methods/friction.md.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from jaxcontact.algebra.cones import positive
from jaxcontact.tolerances import SOFTNESS, rounding

Rows = list[jax.Array]  # one (nc,) per axis
Blocks = list[list[jax.Array]]  # rows and columns of a block per contact


class ScaledFriction(NamedTuple):
    """The problem u = W r + q in units of its contacts; n rows by axis.

    Attributes:
        W: (n, n) with a diagonal near one.
        q: (n,) whose largest entry is near one.
        mu: (nc,) friction in scaled impulses.
        active: (nc,) bool, contacts that may push.
        impulse: (n,) unit of every impulse.
        velocity: (n,) unit of every velocity.
        friction: (nc,) mu.
        mobility: (nc,) largest own mobility of each contact.
        size: the largest |q| of active contacts.
        softness: (n,) of the rows of redundant contacts that share a load: equal in the user's units.
    """

    W: jax.Array
    q: jax.Array
    mu: jax.Array
    active: jax.Array
    impulse: jax.Array
    velocity: jax.Array
    friction: jax.Array
    mobility: jax.Array
    size: jax.Array
    softness: jax.Array


class Linearised(NamedTuple):
    """The law F(r, u) = 0 near a point: by_impulse dr + by_velocity du = -value, a block per contact."""

    by_impulse: Blocks
    by_velocity: Blocks
    value: Rows


def split(rows: jax.Array, nc: int) -> Rows:
    """Split rows (n,) by axis."""
    return [rows[at : at + nc] for at in range(0, rows.shape[0], nc)]


def by_axis(rows: jax.Array, dim: int) -> jax.Array:
    """Order contact-major rows (n, ...) by axis."""
    return jnp.swapaxes(rows.reshape(-1, dim, *rows.shape[1:]), 0, 1).reshape(rows.shape)


def by_contact(rows: jax.Array, dim: int) -> jax.Array:
    """Order rows (n, ...) that are by axis contact-major."""
    return jnp.swapaxes(rows.reshape(dim, -1, *rows.shape[1:]), 0, 1).reshape(rows.shape)


def length(parts: Rows) -> jax.Array:
    """Compute the length (nc,) of tangential vectors, safe to differentiate at zero."""
    if len(parts) == 1:
        return jnp.abs(parts[0])
    square = sum((part * part for part in parts), jnp.zeros_like(parts[0]))
    return jnp.sqrt(positive(square)) * (square > 0)


def dot(a: Rows, b: Rows) -> jax.Array:
    """Multiply tangential vectors contact by contact."""
    return sum((x * y for x, y in zip(a, b, strict=True)), jnp.zeros_like(a[0]))


def power_of_two(x: jax.Array) -> jax.Array:
    """Round positive numbers to powers of two."""
    mantissa, exponent = jnp.frexp(x)
    return jnp.ldexp(jnp.ones_like(x), exponent - (mantissa < 0.75))


def scale_friction(
    W: jax.Array, q: jax.Array, mu: jax.Array, active: jax.Array, softness: jax.Array | None = None
) -> ScaledFriction:
    """Scale a problem with rows by axis; all tangents of a contact have one unit."""
    nc, data = mu.shape[0], (W, q)
    W, q = lax.stop_gradient(data)
    diagonal = [jnp.where(active, part, 0.0) for part in split(jnp.abs(jnp.diagonal(W)), nc)]
    tangential = jnp.max(jnp.stack(diagonal[1:]), axis=0)
    mobility = jnp.maximum(diagonal[0], tangential)
    largest = jnp.max(mobility)
    mobility = jnp.where(mobility > 0, mobility, jnp.where(largest > 0, largest, 1.0))
    normal, tangential = (jnp.where(part > 0, part, mobility) for part in (diagonal[0], tangential))
    units = [power_of_two(jnp.sqrt(part)) for part in (normal, tangential)]
    velocity = jnp.concatenate([units[0], *[units[1]] * (len(diagonal) - 1)])
    is_row = jnp.tile(active, len(diagonal))
    both = is_row[:, None] & is_row[None, :]
    rates = jnp.where(is_row, q, 0.0)
    largest = jnp.max(jnp.abs(rates / velocity))
    unit = jnp.where(largest > 0, power_of_two(positive(largest)), 1.0)
    soft = (1.0 if softness is None else lax.stop_gradient(softness)) / velocity**2
    soft = soft / positive(jnp.max(jnp.where(is_row, soft, 0.0)))
    return ScaledFriction(
        W=jnp.where(both, data[0] / velocity[:, None] / velocity[None, :], 0.0),
        q=jnp.where(is_row, data[1], 0.0) / (velocity * unit),
        mu=mu * (units[1] / units[0]),
        active=active,
        impulse=unit / velocity,
        velocity=unit * velocity,
        friction=lax.stop_gradient(mu),
        mobility=mobility,
        size=jnp.max(jnp.abs(rates)),
        softness=jnp.where(is_row, rounding(W.dtype, SOFTNESS) * soft, 0.0),
    )


def natural_residual(
    problem: ScaledFriction, impulse: jax.Array, rate: jax.Array, lifts: bool = False
) -> jax.Array:
    """Compute the distance of scaled impulses (n,) with rates u (n,) from the law, in the user's units.

    The natural map of De Saxce's form, r = P(r - (u + mu |u_t| n) / w) with the projection P on the friction
    cone and the largest own mobility w of each contact: the largest change by it, as a velocity, over the
    largest |q|. A law that `lifts` sliding contacts, the associated law, has no term mu |u_t|. No derivative.
    """
    nc, mu = problem.mu.shape[0], problem.friction
    pushes, (u_n, *u_t) = (split(x, nc) for x in (impulse * problem.impulse, rate * problem.velocity))
    pushes = [problem.mobility * part for part in pushes]
    asked_n = pushes[0] - (u_n if lifts else u_n + mu * length(u_t))
    asked_t = [p - u for p, u in zip(pushes[1:], u_t, strict=True)]
    size = length(asked_t)
    inside = (size <= mu * asked_n) & (asked_n >= 0)
    granted_n = jnp.where(inside, asked_n, jnp.maximum(asked_n + mu * size, 0.0) / (1.0 + mu * mu))
    share = jnp.where(inside, 1.0, mu * granted_n / positive(size))
    change = [granted_n - pushes[0]] + [share * a - p for a, p in zip(asked_t, pushes[1:], strict=True)]
    worst = jnp.max(jnp.stack([jnp.where(problem.active, jnp.abs(part), 0.0) for part in change]))
    worst = worst / positive(problem.size)
    return jnp.where(jnp.isfinite(worst), worst, jnp.inf)


def linearise(problem: ScaledFriction, impulse: jax.Array, rate: jax.Array, margin: float) -> Linearised:
    """Linearise Alart and Curnier's equations in the mode of each contact; see `docs/methods/friction.md`.

    A contact within `margin` of a change of mode rests and sticks.
    """
    nc = problem.mu.shape[0]
    (r_n, *r_t), (u_n, *u_t) = split(impulse, nc), split(rate, nc)
    z_n, z_t = r_n - u_n, [r - u for r, u in zip(r_t, u_t, strict=True)]
    rests = (z_n > -margin) & problem.active
    bound = problem.mu * jnp.where(rests, jnp.maximum(z_n, 0.0), 0.0)
    size = length(z_t)
    slides = (size > bound * (1.0 + margin) + margin) | ~rests
    unit = [z / positive(size) for z in z_t]
    share = jnp.where(slides, bound / positive(size), 1.0)
    ones, zeros = jnp.ones_like(z_n), jnp.zeros_like(z_n)
    value = [jnp.where(rests, u_n, r_n)]
    by_velocity = [[jnp.where(rests, ones, zeros)] + [zeros] * len(z_t)]
    by_impulse = [[jnp.where(rests, zeros, ones)] + [zeros] * len(z_t)]
    for j, z in enumerate(z_t):
        value.append(r_t[j] - share * z)
        grip = jnp.where(slides & rests, problem.mu * unit[j], 0.0)
        turning = [
            share * ((1.0 if j == k else 0.0) - jnp.where(slides, unit[j] * unit[k], 0.0))
            for k in range(len(z_t))
        ]
        by_velocity.append([grip, *turning])
        by_impulse.append([-grip, *[(1.0 if j == k else 0.0) - turn for k, turn in enumerate(turning)]])
    return Linearised(by_impulse, by_velocity, value)


def linearise_associated(
    problem: ScaledFriction, impulse: jax.Array, rate: jax.Array, margin: float
) -> Linearised:
    """Linearise r = P(r - u), with the projection P on the friction cone, as `linearise` does."""
    nc, mu = problem.mu.shape[0], problem.mu
    r, u = split(impulse, nc), split(rate, nc)
    z_n, *z_t = [x - y for x, y in zip(r, u, strict=True)]
    size = length(z_t)
    free = (mu * size < -z_n - margin) | ~problem.active
    inside = ~free & (size <= mu * z_n + margin)
    edge = ~free & ~inside
    unit = [z / positive(size) for z in z_t]
    ray = [jnp.ones_like(z_n), *[mu * d for d in unit]]
    weight = 1.0 / (1.0 + mu * mu)
    push = weight * (z_n + mu * size)
    turning = jnp.where(edge, mu * push / positive(size), 0.0)
    value, by_impulse, by_velocity = [], [], []
    for j in range(len(r)):
        granted = jnp.where(edge, push * ray[j], 0.0)
        value.append(jnp.where(inside, u[j], r[j] - granted))
        line = []
        for k in range(len(r)):
            same = 1.0 if j == k else 0.0
            bend = jnp.where(edge, weight * ray[j] * ray[k], 0.0) + jnp.where(inside, same, 0.0)
            if j and k:
                bend = bend + turning * (same - unit[j - 1] * unit[k - 1])
            line.append(bend)
        by_velocity.append(line)
        by_impulse.append([(1.0 if j == k else 0.0) - bend for k, bend in enumerate(line)])
    return Linearised(by_impulse, by_velocity, value)


def apply_blocks(blocks: Blocks, rows: Rows) -> Rows:
    """Multiply the block of each contact with its rows."""
    return [sum((b * x for b, x in zip(line, rows, strict=True)), jnp.zeros_like(rows[0])) for line in blocks]


def scale_lines(by_impulse: Blocks, by_velocity: Blocks) -> tuple[Blocks, Blocks, Rows]:
    """Scale the lines of all blocks to unit size; return them and the factors."""
    weights = []
    for by_impulse_line, by_velocity_line in zip(by_impulse, by_velocity, strict=True):
        largest = jnp.max(jnp.abs(jnp.stack([*by_impulse_line, *by_velocity_line])), axis=0)
        weights.append(1.0 / positive(largest))
    pairs = [
        [[w * x for x in line] for w, line in zip(weights, lines, strict=True)]
        for lines in (by_impulse, by_velocity)
    ]
    return pairs[0], pairs[1], weights


def assemble_law(by_impulse: Blocks, by_velocity: Blocks, W: jax.Array) -> jax.Array:
    """Build the matrix (n, n) of by_impulse dr + by_velocity W dr."""
    nc, dim = by_impulse[0][0].shape[0], len(by_impulse)
    response, unit = W.reshape(dim, nc, dim * nc), jnp.eye(nc, dtype=W.dtype)
    lines = []
    for by_impulse_line, by_velocity_line in zip(by_impulse, by_velocity, strict=True):
        diagonals = jnp.concatenate([block[:, None] * unit for block in by_impulse_line], axis=1)
        lines.append(sum((b[:, None] * response[k] for k, b in enumerate(by_velocity_line)), diagonals))
    return jnp.concatenate(lines)
