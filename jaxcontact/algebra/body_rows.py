"""Rows of contacts between free bodies, stored by body: `BodyRows`. A row has entries for at most two bodies.

The lists of bodies are static. They determine products with the rows, and the Hessian M + G^T S G as a
block-tridiagonal matrix. In every array the contact is the axis after the axes of one contact, and a batch,
if any, comes last. Impulses p (nr, ...) are the normals of all contacts, then all t1[, all t2].
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.algebra.block_tridiagonal import BlockTridiagonal, as_blocks

FEWEST_BODIES = 20  # with fewer bodies, steps with whole matrices are faster
LARGEST_BLOCK = 12  # rows of a block; a larger block is not small enough to be unrolled
MANY_RUNS = 6  # largest number of runs of consecutive indices that are sliced; more runs are gathered


class Diagonal(Record):
    """A diagonal matrix, `values` (nv, ...)."""

    values: jax.Array


class BodyRows(Record):
    """The rows (n, t1[, t2]) of contacts, by their bodies.

    Attributes:
        values: (dim, 2, w, nc, ...) entries of every row for the first and the second body, zero for the
            world; w = 3 in the plane, 6 in space.
        first: (nc,) first body of each contact, -1 for the world (static).
        second: (nc,) second body of each contact, -1 for the world (static).
        count: number of bodies (static).
    """

    values: jax.Array
    first: tuple[int, ...] = static()
    second: tuple[int, ...] = static()
    count: int = static()

    @property
    def reach(self) -> int:
        """Number of bodies in one block of the Hessian: `reach_of` the bodies in contact."""
        return reach_of(self.first, self.second)


def reach_of(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the largest distance |a - b| between the indices of two bodies that may touch, at least 1."""
    return max([1, *(abs(a - b) for a, b in zip(first, second, strict=True) if min(a, b) >= 0)])


def suits(first: Sequence[int], second: Sequence[int], count: int, width: int) -> bool:
    """Return whether `BodyRows` suit contacts of `first` with `second`, bodies of `width` velocities each.

    They suit many bodies that meet only their neighbours, so that blocks are small enough to be unrolled.
    """
    distinct_bodies = all(a != b for a, b in zip(first, second, strict=True))
    block = reach_of(first, second) * width
    return distinct_bodies and count >= FEWEST_BODIES and block <= LARGEST_BLOCK


def take(array: jax.Array, index: Sequence[int], axis: int) -> jax.Array:
    """Take entries at a static index along an axis, zero for -1; runs of consecutive indices are slices."""
    runs: list[list[int]] = []
    for i in index:
        if runs and (i == sum(runs[-1]) if min(i, runs[-1][0]) >= 0 else max(i, runs[-1][0]) < 0):
            runs[-1][1] += 1
        else:
            runs.append([i, 1])

    def zeros(length: int) -> jax.Array:
        return jnp.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), array.dtype)

    if len(runs) <= MANY_RUNS:
        slices = [
            jax.lax.slice_in_dim(array, i, i + length, axis=axis) if i >= 0 else zeros(length)
            for i, length in runs
        ]
        return slices[0] if len(slices) == 1 else jnp.concatenate(slices, axis)
    padded = jnp.concatenate([array, zeros(1)], axis)
    index_in_padded = np.where(np.array(index) >= 0, np.array(index), array.shape[axis])
    return jnp.take(padded, index_in_padded, axis=axis, mode="clip")


def _places(keys: Sequence[tuple[int, int]], wanted_keys: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Make lists with one contact per wanted key, or -1; together they name all contacts with a wanted key.

    A key is a body or a pair of bodies. The number of lists is the number of contacts of the most frequent
    wanted key.
    """
    contacts: dict[tuple[int, int], list[int]] = {}
    for contact, key in enumerate(keys):
        contacts.setdefault(key, []).append(contact)
    num_lists = max((len(contacts.get(key, [])) for key in wanted_keys), default=0)
    return [[[*contacts.get(key, []), *[-1] * num_lists][m] for key in wanted_keys] for m in range(num_lists)]


def _by_body(G: BodyRows, x: jax.Array) -> jax.Array:
    return jnp.moveaxis(x.reshape(G.count, -1, *x.shape[1:]), 0, 1)


def apply_rows(G: BodyRows, x: jax.Array) -> jax.Array:
    """Compute G x (nr, ...)."""
    bodies = _by_body(G, x)
    ends = jnp.stack([take(bodies, G.first, 1), take(bodies, G.second, 1)])
    return jnp.sum(G.values * ends[None], axis=(1, 2)).reshape(-1, *x.shape[1:])


def apply_columns(G: BodyRows, p: jax.Array) -> jax.Array:
    """Compute G^T p (nv, ...)."""
    impulses = p.reshape(-1, len(G.first), *p.shape[1:])
    ends = jnp.sum(G.values * impulses[:, None, None], axis=0)
    body_keys = [(body, 0) for body in range(G.count)]
    total = jnp.zeros((ends.shape[1], G.count, *ends.shape[3:]), ends.dtype)
    for end, bodies in zip(ends, (G.first, G.second), strict=True):
        for contact_index in _places([(body, 0) for body in bodies], body_keys):
            total = total + take(end, contact_index, 1)
    return jnp.moveaxis(total, 1, 0).reshape(-1, *p.shape[1:])


def squares(G: BodyRows, weight: jax.Array) -> jax.Array:
    """Compute the sums over j of G_ij^2 weight_j (nr, ...)."""
    return apply_rows(G.replace(values=G.values**2), weight)


def hessian(M: Diagonal, G: BodyRows, yields: list[list[jax.Array]]) -> BlockTridiagonal:
    """Compute M + G^T S G with S[i][j] (nc, ...) between rows of a contact, in blocks of `reach` bodies."""
    axes, _, width = G.values.shape[:3]
    weighted = [
        sum((line[j][None, None] * G.values[j] for j in range(1, axes)), line[0][None, None] * G.values[0])
        for line in yields
    ]  # (2, w, nc, ...) each
    ends = (G.first, G.second)
    pair = {
        (s, t): sum(
            (G.values[i, s][:, None] * weighted[i][t][None, :] for i in range(1, axes)),
            G.values[0, s][:, None] * weighted[0][t][None, :],
        )
        for s in (0, 1)
        for t in (0, 1)
    }
    reach = G.reach
    blocks = -(-G.count // reach)

    def block_entries(row: int, column: int, number: int) -> jax.Array:
        """Sum the entries (w, w, number, ...) of bodies row + k reach and column + k reach, k < number."""
        body_pairs = [(row + k * reach, column + k * reach) for k in range(number)]
        total = jnp.zeros((width, width, number, *G.values.shape[4:]), G.values.dtype)
        for (s, t), product in pair.items():
            for contact_index in _places(list(zip(ends[s], ends[t], strict=True)), body_pairs):
                total = total + take(product, contact_index, 2)
        return total

    def blocks_at(shift: int, number: int) -> jax.Array:
        rows = [
            jnp.concatenate([block_entries(shift + r, c, number) for c in range(reach)], 1)
            for r in range(reach)
        ]
        return jnp.concatenate(rows, 0)

    masses = as_blocks(M.values, reach * width, 1.0)
    unit = jnp.eye(masses.shape[0], dtype=masses.dtype)
    unit = unit.reshape(*unit.shape, *(1,) * (masses.ndim - 1))
    return BlockTridiagonal(blocks_at(0, blocks) + unit * masses[None], blocks_at(reach, blocks - 1))
