"""Contact modes in space, with a friction cone of k sides: every assignment, tabulated as in the plane.

A contact separates; or it rests, or has taken all the impulse it may, and then sticks, slides against one
corner of the friction polygon, or along one edge of it, where two neighbouring corners oppose it equally:
3 + 4 k modes, 2 + 2 k without a cap. These are the complementary bases of the linear complementarity problem
of Anitescu & Potra and of Halm & Posa's eq (75), those of one sticking contact taken together.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact.algebra import small_dense
from jaxcontact.solvers.contact_modes import ModeMaps, feasibility_tolerance

MOST = 2**17  # modes that are tabulated: four contacts with four sides, three with eight
_TILE = 64  # modes tabulated together


def num_kinds(num_directions: int, capped: bool) -> int:
    """Modes of one contact."""
    return 3 + 4 * num_directions if capped else 2 + 2 * num_directions


def most_contacts(num_directions: int) -> int:
    """Contacts of which all modes of a step are tabulated."""
    return int(np.log(MOST) / np.log(num_kinds(num_directions, True)))


class _Kinds(NamedTuple):
    """The C modes of one contact; F forms each, as weights of what they are made of.

    Attributes:
        separate, rest: (C,) bool.
        free: (C, 2, 2) projector on the tangential directions that stick.
        corner: (C, 2) a friction direction that opposes sliding most; 0 where the contact sticks.
        velocity: (C, F, 3) weights of the outgoing velocity (n, t1, t2).
        friction: (C, F, 2) weights of lam_t, over the length of a ray of the cone.
        limit: (C, F) weights of mu lam_n, over that length.
        along: (C, F) weights of lam_n, times that length.
        room: (C, F) weights of cap - lam_n.
    """

    separate: np.ndarray
    rest: np.ndarray
    free: np.ndarray
    corner: np.ndarray
    velocity: np.ndarray
    friction: np.ndarray
    limit: np.ndarray
    along: np.ndarray
    room: np.ndarray


@functools.cache
def _kinds(fan: tuple[tuple[float, float], ...], capped: bool) -> _Kinds:
    """Constants of the modes of one contact, for friction directions in the order of their angles."""
    corners = np.array(fan)
    k = len(corners)
    ahead = np.roll(corners, -1, axis=0)  # edge i goes from corner i to corner i + 1
    edges = ahead - corners
    half = 0.5 * np.linalg.norm(edges[0])  # sin(pi / k)
    edges = edges / np.linalg.norm(edges, axis=1, keepdims=True)
    facets = (corners + ahead) / np.linalg.norm(corners + ahead, axis=1, keepdims=True)
    reach = np.sqrt(1.0 - half**2)
    number, forms = num_kinds(k, capped), k + 2
    shapes = {
        "separate": (), "rest": (), "free": (2, 2), "corner": (2,), "velocity": (forms, 3),
        "friction": (forms, 2), "limit": (forms,), "along": (forms,), "room": (forms,),
    }  # fmt: skip
    made = _Kinds(**{name: np.zeros((number, *shape)) for name, shape in shapes.items()})
    made.separate[0] = 1.0
    made.velocity[0, 0, 0] = 1.0
    for c in range(1, number):
        rests, kind = c <= 1 + 2 * k, (c - 1) % (1 + 2 * k)
        made.rest[c] = rests
        if rests and capped:
            made.room[c, 0] = 1.0
        elif not rests:
            made.velocity[c, 0, 0] = -1.0
        if kind == 0:
            made.free[c] = np.eye(2)
            made.friction[c, 1 : k + 1] = -facets
            made.limit[c, 1 : k + 1] = reach
            made.along[c, k + 1] = rests
        elif kind <= k:
            i = kind - 1
            made.corner[c] = corners[i]
            made.velocity[c, 1, 1:], made.velocity[c, 2, 1:] = edges[i], -edges[i - 1]
            made.along[c, 3] = rests
        else:
            i = kind - 1 - k
            made.free[c] = np.outer(edges[i], edges[i])
            made.corner[c] = corners[i]
            made.velocity[c, 1, 1:] = -facets[i]
            made.friction[c, 2], made.friction[c, 3] = edges[i], -edges[i]
            made.limit[c, 2:4] = half
            made.along[c, 4] = rests
    return made._replace(separate=made.separate > 0, rest=made.rest > 0)


@functools.cache
def mode_codes(num_contacts: int, num_directions: int, capped: bool) -> np.ndarray:
    """All assignments (m, K) of modes to contacts."""
    codes = range(num_kinds(num_directions, capped))
    return np.array(list(itertools.product(codes, repeat=num_contacts)), np.int32).T


def mode_table(
    delassus: jax.Array, mu: jax.Array, active: jax.Array, directions: np.ndarray, *, capped: bool
) -> ModeMaps:
    """Tabulate all contact modes of a spatial problem; `contact_modes.mode_table` is that of the plane.

    The same problem with lam_t in -mu lam_n argmax_d (d . u'_t) over the polygon of the directions.

    Args:
        delassus: D (3m, 3m), contact-major rows (n, t1, t2), best scaled to unit diagonal.
        mu: (m,) friction in the same scaling, one for both tangents.
        active: (m,) bool; inactive contacts get no impulse.
        directions: (k, 2) corners of the friction polygon, regular, in the order of their angles.
        capped: whether x = (u, impulse_max), L = 4m, or x = u, L = 3m.

    Returns:
        ModeMaps with rows (n, t1, t2) of impulse, and (k + 2) m forms.
    """
    m, k, dtype = mu.shape[0], len(directions), delassus.dtype
    codes = mode_codes(m, k, capped)
    number = codes.shape[1]
    tile = min(_TILE, number)
    tiles = np.pad(codes, [(0, 0), (0, -number % tile)]).reshape(m, -1, tile).transpose(1, 0, 2)
    kinds = _kinds(tuple(map(tuple, np.asarray(directions).tolist())), capped)
    kinds = jax.tree.map(lambda a: jnp.asarray(a, a.dtype if a.dtype == bool else dtype), kinds)
    made = lax.map(functools.partial(_tabulate, delassus, mu, active, kinds, capped), jnp.asarray(tiles))
    impulse, margin, score, regular = (
        jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], -1)[..., :number] for a in made
    )
    return ModeMaps(
        codes=jnp.asarray(codes),
        impulse=impulse,
        margin=margin,
        score=score,
        regular=regular,
        kinds=num_kinds(k, True),
    )


def _tabulate(
    delassus: jax.Array, mu: jax.Array, active: jax.Array, kinds: _Kinds, capped: bool, codes: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Of modes (m, T): impulse (3m, L, T), margin (F m, L, T), score (L, T), regular (T,)."""
    dtype, m = delassus.dtype, mu.shape[0]
    rows, length = 3 * m, (4 if capped else 3) * m
    of_mode = jax.tree.map(lambda a: a[codes.T], kinds)  # (T, m, ...)
    x = jnp.eye(length, dtype=dtype)
    u, cap = x[:rows].reshape(m, 3, -1), x[rows:] if capped else jnp.zeros((m, length), dtype)
    unit = jnp.eye(rows, dtype=dtype).reshape(m, 3, -1)
    response = delassus.reshape(m, 3, -1)
    ray = lax.rsqrt(1.0 + mu**2)  # friction rows of length one, for any mu

    separate, rest = of_mode.separate[:, :, None], of_mode.rest[:, :, None]
    equation_n = jnp.where(rest, response[None, :, 0], unit[None, :, 0])
    source_n = jnp.where(rest, -u[None, :, 0], jnp.where(separate, 0.0, cap[None]))
    slope = (mu * ray)[None, :, None] * of_mode.corner
    cone = ray[None, :, None, None] * unit[None, :, 1:] - slope[..., None] * unit[None, :, None, 0]
    held = jnp.eye(2, dtype=dtype)[None, None] - of_mode.free
    equation_t = jnp.einsum("kcij,cjr->kcir", of_mode.free, response[:, 1:])
    equation_t = equation_t + jnp.einsum("kcij,kcjr->kcir", held, cone)
    equation_t = jnp.where(separate[..., None], unit[None, :, 1:], equation_t)
    source_t = -jnp.einsum("kcij,cjl->kcil", of_mode.free, u[:, 1:])
    equations = jnp.concatenate([equation_n[:, :, None], equation_t], axis=2).reshape(-1, rows, rows)
    sources = jnp.concatenate([source_n[:, :, None], source_t], axis=2).reshape(-1, rows, length)

    inverse, rank = small_dense.generalized_inverse(jnp.moveaxis(equations, 0, -1))
    inverse = jnp.moveaxis(inverse, -1, 0)
    impulse = inverse @ sources
    impulse = impulse + inverse @ (sources - equations @ impulse)
    misfit = jnp.max(jnp.abs(equations @ impulse - sources), axis=(1, 2))
    size = 1.0 + jnp.max(jnp.abs(impulse), axis=(1, 2))
    regular = (rank == rows) & (misfit <= feasibility_tolerance(dtype) * size)
    regular &= jnp.all(active[:, None] | (codes == 0), axis=0)

    outgoing = jnp.einsum("ij,kjl->kil", delassus, impulse) + x[None, :rows]
    out, lam = outgoing.reshape(-1, m, 3, length), impulse.reshape(-1, m, 3, length)
    lam_n = lam[:, :, None, 0]
    forms = jnp.einsum("kcfi,kcil->kcfl", of_mode.velocity, out)
    forms = forms + jnp.einsum("kcfi,kcil->kcfl", of_mode.friction, lam[:, :, 1:]) * ray[None, :, None, None]
    weight = of_mode.limit * (mu * ray)[None, :, None] + of_mode.along / ray[None, :, None]
    forms = forms + weight[..., None] * lam_n + of_mode.room[..., None] * (cap[None, :, None] - lam_n)
    forms = forms * active[None, :, None, None]
    generic = jnp.cos(jnp.arange(rows) * 1.7 + 0.3).astype(dtype)  # no special direction
    return (
        jnp.moveaxis(impulse, 0, -1),
        jnp.moveaxis(forms.reshape(forms.shape[0], -1, length), 0, -1),
        jnp.einsum("i,kil->lk", generic, outgoing),
        regular,
    )
