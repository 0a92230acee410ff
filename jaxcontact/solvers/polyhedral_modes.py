"""Contact modes in space, with a friction cone of k sides: every assignment, tabulated as in the plane.

The modes are the complementary bases of the linear complementarity problem of Anitescu & Potra and of Halm &
Posa's eq (75), with all bases of one sticking contact as one mode. Entry: `mode_table`.
Page: docs/methods/set-valued.md.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree
from jaxcontact.algebra import small_dense
from jaxcontact.solvers.contact_modes import (
    ModeMaps,
    feasibility_tolerance,
    free_outcomes,
    possible_velocities,
)

_REDUNDANT = 3  # contacts; from this number on, ends of segments are tabulated
_WRENCH = 6  # numbers in the impulse on one body
MAX_TABULATED = 2**17  # modes that are tabulated: four contacts with four sides, three with eight
_TILE = 64  # modes tabulated together


def num_kinds(num_directions: int, capped: bool) -> int:
    """Count the modes of one contact: 3 + 4 k with a cap for k friction directions, 2 + 2 k without."""
    return 3 + 4 * num_directions if capped else 2 + 2 * num_directions


def most_contacts(num_directions: int) -> int:
    """Compute the largest number of contacts of which all modes of a step are tabulated."""
    return int(np.log(MAX_TABULATED) / np.log(num_kinds(num_directions, True)))


class _Kinds(NamedTuple):
    """The C modes of one contact; F forms each, as weights of velocities and impulses.

    Attributes:
        separate, rest: (C,) bool.
        free: (C, 2, 2) projector on the tangential directions that stick.
        corner: (C, 2) a friction direction that opposes sliding most; 0 if the contact sticks.
        velocity: (C, F, 3) weights of the outgoing velocity (n, t1, t2).
        friction: (C, F, 2) weights of lam_t, over the length of a ray of the cone.
        limit: (C, F) weights of mu lam_n, over that length.
        along: (C, F) weights of lam_n, times that length.
        below_cap: (C, F) weights of cap - lam_n.
    """

    separate: np.ndarray
    rest: np.ndarray
    free: np.ndarray
    corner: np.ndarray
    velocity: np.ndarray
    friction: np.ndarray
    limit: np.ndarray
    along: np.ndarray
    below_cap: np.ndarray


@functools.cache
def _tabulate_constants(fan: tuple[tuple[float, float], ...], capped: bool) -> _Kinds:
    """Tabulate constants of the modes of one contact, for friction directions in order of their angles."""
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
        "friction": (forms, 2), "limit": (forms,), "along": (forms,), "below_cap": (forms,),
    }  # fmt: skip
    kinds = _Kinds(**{name: np.zeros((number, *shape)) for name, shape in shapes.items()})
    kinds.separate[0] = 1.0
    kinds.velocity[0, 0, 0] = 1.0
    for c in range(1, number):
        rests, kind = c <= 1 + 2 * k, (c - 1) % (1 + 2 * k)
        kinds.rest[c] = rests
        if rests and capped:
            kinds.below_cap[c, 0] = 1.0
        elif not rests:
            kinds.velocity[c, 0, 0] = -1.0
        if kind == 0:
            kinds.free[c] = np.eye(2)
            kinds.friction[c, 1 : k + 1] = -facets
            kinds.limit[c, 1 : k + 1] = reach
            kinds.along[c, k + 1] = rests
        elif kind <= k:
            i = kind - 1
            kinds.corner[c] = corners[i]
            kinds.velocity[c, 1, 1:], kinds.velocity[c, 2, 1:] = edges[i], -edges[i - 1]
            kinds.along[c, 3] = rests
        else:
            i = kind - 1 - k
            kinds.free[c] = np.outer(edges[i], edges[i])
            kinds.corner[c] = corners[i]
            kinds.velocity[c, 1, 1:] = -facets[i]
            kinds.friction[c, 2], kinds.friction[c, 3] = edges[i], -edges[i]
            kinds.limit[c, 2:4] = half
            kinds.along[c, 4] = rests
    return kinds._replace(separate=kinds.separate > 0, rest=kinds.rest > 0)


@functools.cache
def mode_codes(num_contacts: int, num_directions: int, capped: bool) -> np.ndarray:
    """List all assignments (m, K) of modes to contacts."""
    codes = range(num_kinds(num_directions, capped))
    return np.array(list(itertools.product(codes, repeat=num_contacts)), np.int32).T


def mode_table(
    delassus: jax.Array, mu: jax.Array, active: jax.Array, directions: np.ndarray, *, capped: bool
) -> ModeMaps:
    """Tabulate all contact modes of a spatial problem; `contact_modes.mode_table` is that of the plane.

    The same problem with lam_t in -mu lam_n argmax_d (d . u'_t) over the polygon of the directions. A contact
    separates; or it rests, or has its largest impulse, and then sticks, slides against one corner of the
    friction polygon, or along one edge of it, whose two corners oppose it equally.

    If contacts are redundant (a box on four corners), a mode may leave one impulse free that changes the
    outcome. The solutions are then a segment. At its ends one more velocity vanishes, and they need not be in
    any basis. The table has these ends as modes of their own.

    Args:
        delassus: D (3m, 3m), contact-major rows (n, t1, t2), best scaled to unit diagonal.
        mu: (m,) friction in the same scaling, one for both tangents.
        active: (m,) bool; inactive contacts get no impulse.
        directions: (k, 2) corners of the friction polygon, regular, in the order of their angles.
        capped: whether x = (u, impulse_max), L = 4m, or x = u, L = 3m.

    Returns:
        ModeMaps with rows (n, t1, t2) of impulse, and (k + 2) m forms. A last row of codes is 0, or for
        the end of a segment the number of the velocity that vanishes there.
    """
    m, k, dtype = mu.shape[0], len(directions), delassus.dtype
    fan = tuple(map(tuple, np.asarray(directions).tolist()))
    kinds = jax.tree.map(
        lambda a: jnp.asarray(a, a.dtype if a.dtype == bool else dtype), _tabulate_constants(fan, capped)
    )
    tabulate = functools.partial(_tabulate, delassus, mu, active, kinds, capped)
    codes = jnp.asarray(mode_codes(m, k, capped))
    every, free = _in_tiles(tabulate, codes)
    max_ends = _count_possible_ends(m, k)
    segments = free == 1
    ends, vanishing, count = _list_segment_ends(fan, capped, segments, delassus, max_ends)
    lost = (free > 1) | (segments & (count > max_ends))
    table = (jnp.pad(codes, [(0, 1), (0, 0)]), *every, lost)
    if max_ends:
        nothing = jax.tree.map(lambda leaf: jnp.zeros((*leaf.shape[:-1], max_ends), leaf.dtype), every)
        end_maps = lax.cond(count > 0, lambda: _in_tiles(tabulate, ends, vanishing)[0], lambda: nothing)
        last = (jnp.concatenate([ends, 1 + vanishing[None]]), *end_maps, jnp.zeros(max_ends, bool))
        table = tuple(jnp.concatenate(pair, axis=-1) for pair in zip(table, last, strict=True))
    names = ("codes", "impulse", "margin", "score", "regular", "unresolved")
    return ModeMaps(**dict(zip(names, table, strict=True)))


def _in_tiles(tabulate: Callable[..., PyTree], *modes: jax.Array) -> PyTree:
    """Tabulate modes (..., K) by `_tabulate` in tiles; modes are the last axis of the result."""
    number = modes[0].shape[-1]
    tile = min(_TILE, number)
    tiles = [jnp.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, -number % tile)]) for array in modes]
    tiles = [jnp.moveaxis(array.reshape(*array.shape[:-1], -1, tile), -2, 0) for array in tiles]
    maps = lax.map(lambda chunk: tabulate(*chunk), tiles)
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], -1)[..., :number], maps)


def _count_possible_ends(num_contacts: int, num_directions: int) -> int:
    """Count ends of segments if all contacts of one body rest, and only all together are redundant."""
    if num_contacts < _REDUNDANT:
        return 0
    k, number = num_directions, 0
    for choice in itertools.product(((1, 2, k), (2, 1, k), (3, 0, 1)), repeat=num_contacts):
        impulses, velocities = sum(e[0] for e in choice), sum(e[1] for e in choice)
        ends = velocities if impulses < _WRENCH else int(impulses == _WRENCH)
        number += ends * int(np.prod([e[2] for e in choice]))
    return number


def _list_segment_ends(
    fan: tuple[tuple[float, float], ...],
    capped: bool,
    segments: jax.Array,
    delassus: jax.Array,
    max_ends: int,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """List ends of segments: modes (m, max_ends), the velocity (max_ends,) that vanishes there; count them.

    The velocity is one of the 3m velocity forms of the mode; or 3m, all of them, if the mode has at
    least as many impulses as the contacts have independent velocities; or -1 in an unused entry.
    """
    m = delassus.shape[0] // 3
    kinds, codes = _tabulate_constants(fan, capped), mode_codes(m, len(fan), capped)
    moves = np.any(kinds.velocity[:, :3] != 0, axis=2)[codes.T].reshape(-1, 3 * m)
    impulses = np.sum((kinds.rest + np.trace(kinds.free, axis1=1, axis2=2))[codes], axis=0)
    vanish_together = jnp.asarray(impulses + 0.5) > small_dense.generalized_inverse(delassus)[1]
    together = vanish_together[:, None]
    slots = jnp.concatenate([moves & ~together, together], axis=1) & segments[:, None]
    place = jnp.nonzero(slots.ravel(), size=max_ends, fill_value=0)[0].astype(jnp.int32)
    count = jnp.sum(slots, dtype=jnp.int32)
    vanishing = jnp.where(jnp.arange(max_ends) < count, place % (3 * m + 1), -1)
    return jnp.asarray(codes)[:, place // (3 * m + 1)], vanishing, count


def _tabulate(
    delassus: jax.Array,
    mu: jax.Array,
    active: jax.Array,
    kinds: _Kinds,
    capped: bool,
    codes: jax.Array,
    vanishing: jax.Array | None = None,
) -> tuple[tuple[jax.Array, jax.Array, jax.Array, jax.Array], jax.Array]:
    """Tabulate modes (m, T): impulse (3m, L, T), margin (F m, L, T), score (L, T), regular (T,); free (T,).

    `free` is the result of `free_outcomes`, 0 for modes of inactive contacts.
    `vanishing` (T,) is the velocity form that determines the one of a segment; -1 for no mode.
    """
    dtype, m = delassus.dtype, mu.shape[0]
    rows, length = 3 * m, (4 if capped else 3) * m
    of_mode = jax.tree.map(lambda a: a[codes.T], kinds)  # (T, m, ...)
    x = jnp.eye(length, dtype=dtype)
    if vanishing is not None:  # redundant equations agree for velocities that bodies can have
        x = x.at[:rows, :rows].set(possible_velocities(delassus))
    u, cap = x[:rows].reshape(m, 3, -1), x[rows:] if capped else jnp.zeros((m, length), dtype)
    unit = jnp.eye(rows, dtype=dtype).reshape(m, 3, -1)
    response = delassus.reshape(m, 3, -1)
    ray = lax.rsqrt(1.0 + mu**2)  # scales friction rows to length one, for any mu

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

    of_all = equations, sources
    if vanishing is not None:
        # One more equation, added to all with weights that no dependence between them has by chance.
        velocity = _vanishing_velocity(of_mode, vanishing)
        weights = (1.0 + 0.5 * jnp.cos(jnp.arange(rows) * 2.3 + 0.7)).astype(dtype)[None, :, None]
        equations = equations + weights * (velocity @ delassus)[:, None]
        sources = sources - weights * (velocity @ x[:rows])[:, None]

    by_row = jnp.moveaxis(equations, 0, -1)
    inverse_by_row, rank = small_dense.generalized_inverse(by_row)
    inverse = jnp.moveaxis(inverse_by_row, -1, 0)
    impulse = inverse @ sources
    impulse = impulse + inverse @ (sources - equations @ impulse)
    misfit = jnp.max(jnp.abs(of_all[0] @ impulse - of_all[1]), axis=(1, 2))
    size = 1.0 + jnp.max(jnp.abs(impulse), axis=(1, 2))
    regular = (rank == rows) & (misfit <= feasibility_tolerance(dtype) * size)
    used = jnp.all(active[:, None] | (codes == 0), axis=0)
    dimensions = free_outcomes(delassus, by_row, jnp.moveaxis(sources, 0, -1), inverse_by_row, rank)
    free = jnp.where(used, dimensions, 0)
    regular &= used if vanishing is None else used & (vanishing >= 0)

    outgoing = jnp.einsum("ij,kjl->kil", delassus, impulse) + x[None, :rows]
    out, lam = outgoing.reshape(-1, m, 3, length), impulse.reshape(-1, m, 3, length)
    lam_n = lam[:, :, None, 0]
    forms = jnp.einsum("kcfi,kcil->kcfl", of_mode.velocity, out)
    forms = forms + jnp.einsum("kcfi,kcil->kcfl", of_mode.friction, lam[:, :, 1:]) * ray[None, :, None, None]
    weight = of_mode.limit * (mu * ray)[None, :, None] + of_mode.along / ray[None, :, None]
    forms = forms + weight[..., None] * lam_n + of_mode.below_cap[..., None] * (cap[None, :, None] - lam_n)
    forms = forms * active[None, :, None, None]
    generic = jnp.cos(jnp.arange(rows) * 1.7 + 0.3).astype(dtype)  # no special direction
    maps = (
        jnp.moveaxis(impulse, 0, -1),
        jnp.moveaxis(forms.reshape(forms.shape[0], -1, length), 0, -1),
        jnp.einsum("i,kil->lk", generic, outgoing),
        regular,
    )
    return maps, free


def _vanishing_velocity(of_mode: _Kinds, vanishing: jax.Array) -> jax.Array:
    """Select for each mode the form (T, 3m) of the outgoing velocity with this number; for 3m any form."""
    number, m = of_mode.rest.shape
    chosen = (vanishing[:, None] == jnp.arange(3 * m)[None]).reshape(number, m, 3)
    chosen_form = jnp.einsum("kcf,kcfi->kci", chosen, of_mode.velocity[:, :, :3]).reshape(number, 3 * m)
    any_form = jnp.sin(jnp.arange(3 * m) * 1.3 + 0.4).astype(chosen_form.dtype)
    return jnp.where((vanishing == 3 * m)[:, None], any_form[None], chosen_form)
