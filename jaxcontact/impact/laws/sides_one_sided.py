"""One-sided derivatives of impact laws whose friction cone has sides, in space.

Owns the modes of a contact with such a cone, each of whose corners is a variable of a linear complementarity
problem. Entry `sided_impulse`. Page: docs/understand/derivatives.md.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.impact.laws.contact_space import ContactSpace
from jaxcontact.impact.laws.pivoting import corner_rows, impact_lcp
from jaxcontact.solvers.contact_directions import border_size
from jaxcontact.solvers.lcp_directions import (
    BORDER,
    POSITIVE,
    SHARED,
    ZERO,
    LcpAnswer,
    at_border,
    has_jump,
    one_sided_answer,
)
from jaxcontact.tolerances import FOLD, rounding

PROBES = 16  # random motions for each contact, to see whether the law jumps
TESTED = 2  # contacts at borders whose combinations of modes are tested


def sided_impulse(
    space: ContactSpace,
    v: jax.Array,
    impulse: jax.Array,
    directions: np.ndarray,
    size: jax.Array,
    cap: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the impulse (r,) of a solution with its one-sided derivative, and whether there is none.

    Args:
        impulse: (r,) scaled impulse of the solution; it carries no derivative.
        directions: (k, 2) corners of the friction cone, in the order of their angles.
        size: the root of energy with which impulses and velocities are compared.
        cap: (nc,) largest scaled normal impulses, or None.
    """
    u = space.rates(v)
    W, w = impact_lcp(space, u, directions, cap)
    fixed, fixed_u, fixed_cap, impulse = lax.stop_gradient((space, u, cap, impulse))
    corners = _corners_of(fixed, fixed_u, impulse, directions)
    kind, z = _kinds(fixed, corners, fixed_cap, border_size(v.dtype, lax.stop_gradient(size)))
    nc = space.mu.shape[0]
    caps = 0 if cap is None else nc  # whose rows come first, those of slip last
    rows = jnp.asarray(np.pad(corner_rows(nc, directions), ((caps, nc), (0, 0))), v.dtype)
    answer = LcpAnswer(z, kind, reading=rows.T, effect=fixed.delassus)
    pushes = jnp.asarray(np.random.default_rng(0).normal(size=(PROBES * nc, len(impulse))), v.dtype)
    motions = pushes @ fixed.delassus @ rows.T
    has_caps, k = cap is not None, len(directions)
    jumps = lax.cond(
        jnp.any(at_border(kind)),
        lambda: has_jump(
            lax.stop_gradient(W),
            motions,
            answer,
            _tested_rows(fixed, kind, k, has_caps),
            _mode_sets(k, has_caps),
        ),
        lambda: jnp.array(False),
    )
    return one_sided_answer(W, w, impulse, jumps, answer), jumps


def _tested_rows(space: ContactSpace, kind: jax.Array, k: int, has_caps: bool) -> jax.Array:
    """List variables (c, m) of the first contacts at borders; n, none, if contacts depend on one another."""
    nc = space.mu.shape[0]
    first = nc if has_caps else 0
    rows = np.concatenate(
        [
            np.arange(nc)[:, None] if has_caps else np.zeros((nc, 0), int),
            first + np.arange(nc)[:, None],
            first + nc + np.arange(nc * k).reshape(nc, k),
            first + nc * (1 + k) + np.arange(nc)[:, None],
        ],
        axis=1,
    )
    (chosen,) = jnp.nonzero(jnp.any(at_border(kind[rows]), axis=1), size=min(nc, TESTED), fill_value=nc)
    chosen_rows = jnp.asarray(rows).at[chosen].get(mode="fill", fill_value=len(kind))
    moves = jnp.where(jnp.repeat(space.active, 3), 1.0, 0.0)
    sizes = jnp.linalg.eigvalsh(space.delassus + jnp.diag(1.0 - moves))
    return jnp.where(sizes[0] > rounding(sizes.dtype, FOLD) * sizes[-1], chosen_rows, len(kind))


def _mode_sets(k: int, has_caps: bool) -> np.ndarray:
    """List the variables (m, k + 2) or (m, k + 3) that are positive in each mode of a contact."""
    corners = np.eye(k, dtype=bool)
    edges = corners | np.roll(corners, 1, axis=1)
    friction = np.concatenate([corners, edges, edges])
    slip = np.arange(3 * k)[:, None] < 2 * k
    touching = np.concatenate([np.ones((3 * k, 1), bool), friction, slip], axis=1)
    if has_caps:
        touching = np.concatenate(
            [np.pad(touching, ((0, 0), (1, 0)), constant_values=is_capped) for is_capped in (False, True)]
        )
    return np.concatenate([np.zeros((1, touching.shape[1]), bool), touching])


class _ConeState(NamedTuple):
    """A solution by the corners of the friction cones: impulses, and velocities of the contacts."""

    load: jax.Array  # (nc,) normal impulse
    used: jax.Array  # (nc, k) friction impulse of each corner, at most two positive
    approach: jax.Array  # (nc,) normal velocity
    speed: jax.Array  # (nc,) largest speed against a corner
    lag: jax.Array  # (nc, k) that speed minus the speed against each corner
    is_sector: jax.Array  # (nc, k) bool, the two corners between which friction is


def _corners_of(space: ContactSpace, u: jax.Array, impulse: jax.Array, directions: np.ndarray) -> _ConeState:
    """Divide friction between the two corners next to it."""
    k = len(directions)
    lam = impulse.reshape(-1, 3)
    out = (u + space.delassus @ impulse).reshape(-1, 3)
    turn = 2.0 * np.pi / k
    angle = jnp.arctan2(lam[:, 2], lam[:, 1]) % (2.0 * np.pi)
    first = jnp.floor(angle / turn).astype(jnp.int32) % k
    beyond = angle - first * turn
    friction = jnp.hypot(lam[:, 1], lam[:, 2])[:, None] / math.sin(turn)
    ahead = jnp.arange(k)[None] == first[:, None]
    after = jnp.arange(k)[None] == (first[:, None] + 1) % k
    used = friction * (ahead * jnp.sin(turn - beyond)[:, None] + after * jnp.sin(beyond)[:, None])
    against = -out[:, 1:] @ jnp.asarray(directions.T, u.dtype)
    speed = jnp.max(against, axis=1)
    return _ConeState(
        load=lam[:, 0],
        used=jnp.maximum(used, 0.0),
        approach=out[:, 0],
        speed=speed,
        lag=speed[:, None] - against,
        is_sector=ahead | after,
    )


def _kinds(
    space: ContactSpace, corners: _ConeState, cap: jax.Array | None, small: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Find the kind (n,) of every variable of the problem of `impact_lcp`, and their values (n,)."""
    load, used, mu = corners.load, corners.used, space.mu
    slack = mu * load - jnp.sum(used, axis=1)
    left = jnp.zeros_like(load) if cap is None else jnp.maximum(-corners.approach, 0.0)
    bears = space.active & (load > small)
    opens = ~space.active | (~bears & (corners.approach > small))
    slides = ~opens & (corners.speed > small)
    sticks = bears & ~slides & (slack > (1.0 + mu) * small)
    normal = jnp.where(opens, ZERO, jnp.where(bears | (left > small), POSITIVE, BORDER))
    next_to = corners.lag <= small
    alone = next_to & (jnp.sum(next_to, axis=1, keepdims=True) == 1)
    sliding = jnp.where(next_to, jnp.where((used > small) | alone, POSITIVE, BORDER), ZERO)
    turning = jnp.where(bears[:, None] & (used > small), POSITIVE, BORDER)
    friction = jnp.where(slides[:, None], sliding, turning)
    friction = jnp.where(sticks[:, None], jnp.where(corners.is_sector, POSITIVE, ZERO), friction)
    friction = jnp.where(opens[:, None], ZERO, friction)
    has_corner = jnp.any(friction == POSITIVE, axis=1)
    slip = jnp.where(opens | sticks, ZERO, jnp.where(has_corner, POSITIVE, SHARED))
    slip = jnp.where(~opens & ~sticks & ~slides, BORDER, slip)
    kinds, values = [normal, friction.reshape(-1), slip], [load, used.reshape(-1), corners.speed]
    if cap is not None:
        spare = cap - load > small
        kinds.insert(0, jnp.where(left > small, POSITIVE, jnp.where(spare | opens, ZERO, BORDER)))
        values.insert(0, left)
    kind = jnp.concatenate(kinds)
    return kind, jnp.where(kind == ZERO, 0.0, jnp.concatenate(values))
