"""All modes of many contacts, the last contact in closed form: seven modes for little more than one.

If the modes of all other contacts are fixed, the last contact has a free velocity (a_n, a_t), linear in x,
and a response (2, 2) to its own impulse l. So each of its seven modes has a formula for l, and the forms of
the others change by G l: a quarter of the arithmetic of independent linear maps. Entries: `leaves`, `valid`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record
from jaxcontact.solvers import contact_modes

_BLOCK = 49  # stems evaluated together
_LOOSE = 128  # loose modes are padded to a multiple of this


class Leaves(Record):
    """Validity of K = 7 P modes from P stems: modes of all contacts but the last, which separates.

    Attributes:
        forms: (P / B, 3m - 1, L, B) in blocks of B stems: a_n, a_t, then the margins of the other contacts.
        gain: (P / B, 3m - 3, 2, B) change of these margins by l.
        response: (P / B, 2, 2, B) change of (a_n, a_t) by l.
        regular: (P / B, 7, B) False for modes without a unique impulse, and for loose ones.
        mu: () friction of the last contact, in the scaling of the table.
        loose: the modes whose stem has no unique impulse.
        place: (Q,) int32 their numbers.
    """

    forms: jax.Array
    gain: jax.Array
    response: jax.Array
    regular: jax.Array
    mu: jax.Array
    loose: contact_modes.ModeMaps
    place: jax.Array


def leaves(table: contact_modes.ModeMaps, delassus: jax.Array, mu: jax.Array) -> Leaves:
    """Build the `Leaves` of a table of all capped modes of at least three contacts; not for traced arrays.

    Args:
        delassus, mu: as in `contact_modes.mode_table`.
    """
    # In NumPy, because there is little to compute, and nothing to compile.
    table = jax.tree.map(np.asarray, table)
    matrix, m = np.asarray(delassus), mu.shape[0]
    stems = table.take(np.arange(0, table.regular.shape[0], 7))
    last_columns = matrix[:, 2 * m - 2 :]  # (2m, 2)
    a_t = np.einsum("i,ilk->lk", matrix[2 * m - 1], stems.impulse)
    a_t[2 * m - 1] += 1.0
    forms = np.concatenate([stems.margin[3 * m - 3][None], a_t[None], stems.margin[: 3 * m - 3]])
    change = np.einsum("rlk,lj->rjk", forms[:, : 2 * m], last_columns)
    regular = np.asarray(table.regular).reshape(-1, 7).T
    loose = np.flatnonzero((regular & ~regular[:1]).T)
    place = np.concatenate([loose, np.zeros(-loose.size % _LOOSE, loose.dtype)])
    rest = table.take(place)
    arrays: dict[str, PyTree] = {
        "forms": _blocks(forms),
        "gain": _blocks(change[2:]),
        "response": _blocks(change[:2]),
        "regular": _blocks(regular & regular[:1]),
        "mu": mu[-1],
        "loose": rest.replace(regular=rest.regular & (np.arange(place.size) < loose.size)),
        "place": place.astype(np.int32),
    }
    return Leaves(**arrays)


def valid(leaves_of_modes: Leaves, x: jax.Array, limit: jax.Array) -> jax.Array:
    """Test that no margin of the modes (K, *batch) at x (L, *batch) is below -limit.

    The same as `contact_modes.evaluate(table, x) <= limit` up to rounding.
    """
    cap = x[-1][None]

    def of_block(block: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        forms, gain, response, regular = block
        # The result of a loop is computed once; otherwise the compiler repeats it for each of the leaves.
        rows = list(lax.map(lambda form: contact_modes.apply(form, x), forms))
        return _leaves(rows, gain, response, regular, leaves_of_modes.mu, cap, limit)

    blocks = leaves_of_modes.forms, leaves_of_modes.gain, leaves_of_modes.response, leaves_of_modes.regular
    accepted = lax.map(of_block, blocks)
    accepted = jnp.stack(accepted, axis=2).reshape(-1, *x.shape[1:])  # block, stem, leaf
    if leaves_of_modes.place.shape[0]:
        loose = contact_modes.evaluate(leaves_of_modes.loose, x) <= limit
        accepted = accepted.at[leaves_of_modes.place].max(loose)
    return accepted


def _leaves(
    rows: list[jax.Array],
    gain: jax.Array,
    response: jax.Array,
    regular: jax.Array,
    mu: jax.Array,
    cap: jax.Array,
    limit: jax.Array,
) -> tuple[jax.Array, ...]:
    """Test the seven leaves (B, *batch) of every stem in a block for validity."""
    a_n, a_t, *margins = rows
    wide = (slice(None),) + (None,) * (a_n.ndim - 1)
    (nn, nt), (tn, tt) = ((entry[wide] for entry in row) for row in response)
    gains = [(g[0][wide], g[1][wide]) for g in gain]
    ray = lax.rsqrt(1.0 + mu**2)

    def worst(lowest: jax.Array, moved: list[jax.Array]) -> jax.Array:
        for margin in moved:
            lowest = jnp.minimum(lowest, margin)
        return lowest

    def stick(l_n: jax.Array, l_t: jax.Array, normal: jax.Array) -> jax.Array:
        cone = (mu * l_n - jnp.abs(l_t)) * ray
        moved = [margin + g_n * l_n + g_t * l_t for margin, (g_n, g_t) in zip(margins, gains, strict=True)]
        return worst(jnp.minimum(normal, cone), moved)

    def slide(sign: float, l_n: jax.Array, lowest: jax.Array) -> jax.Array:
        velocity = a_t + (tn - sign * mu * tt) * l_n
        moved = [
            margin + (g_n - sign * mu * g_t) * l_n for margin, (g_n, g_t) in zip(margins, gains, strict=True)
        ]
        return worst(jnp.minimum(lowest, sign * velocity), moved)

    inverse, inverse_tt = 1.0 / (nn * tt - nt * tn), 1.0 / tt
    rest_n, rest_t = (nt * a_t - tt * a_n) * inverse, (tn * a_n - nn * a_t) * inverse
    cap_t = -(a_t + tn * cap) * inverse_tt
    least_margins = [worst(a_n, margins), stick(rest_n, rest_t, cap - rest_n)]
    for sign in (1.0, -1.0):
        l_n = -a_n * (1.0 / (nn - sign * mu * nt))
        least_margins.append(slide(sign, l_n, jnp.minimum(cap - l_n, l_n * (1.0 / ray))))
    least_margins.append(stick(cap, cap_t, -(a_n + nn * cap + nt * cap_t)))
    least_margins += [slide(sign, cap, -(a_n + (nn - sign * mu * nt) * cap)) for sign in (1.0, -1.0)]
    return tuple(ok[wide] & (lowest >= -limit) for ok, lowest in zip(regular, least_margins, strict=True))


def _blocks(array: np.ndarray) -> np.ndarray:
    """Split the last axis into blocks: (..., P) -> (P / B, ..., B)."""
    return np.ascontiguousarray(np.moveaxis(array.reshape(*array.shape[:-1], -1, _BLOCK), -2, 0))
