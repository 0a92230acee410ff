"""Rows of contacts between free bodies: each touches two bodies at most, so only their entries are kept.

Products, and the Hessian M + G^T S G as a block-tridiagonal matrix, follow from lists of bodies that are
known when a program is traced. Arrays carry the contact on the axis after those of one contact, and a batch,
if any, last; p (nr, ...) are the normals of all contacts, then all t1[, all t2].
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import Record, static
from jaxcontact.algebra import small_dense
from jaxcontact.algebra.block_tridiagonal import BlockTridiagonal, as_blocks

LEAST = 20  # bodies; steps of fewer are faster with whole matrices (10 spheres: by a third to a half)
MANY_RUNS = 6  # of consecutive indices; more are gathered


class Diagonal(Record):
    """A diagonal matrix, `values` (nv, ...)."""

    values: jax.Array


class BodyRows(Record):
    """The rows (n, t1[, t2]) of contacts, by their bodies.

    Attributes:
        values: (dim, 2, w, nc, ...) entries of every row for the first and the second body, zero for the
            world; w = 3 in the plane, 6 in space.
        first: (nc,) first body of each contact, -1 for the world (static).
        second: (nc,) the other (static).
        count: number of bodies (static).
    """

    values: jax.Array
    first: tuple[int, ...] = static()
    second: tuple[int, ...] = static()
    count: int = static()

    @property
    def reach(self) -> int:
        """Bodies of one block of the Hessian: the largest distance of two in contact, at least 1."""
        return reach_of(self.first, self.second)


def reach_of(first: Sequence[int], second: Sequence[int]) -> int:
    """The largest distance |a - b| in the list of bodies of two that may touch, at least 1."""
    return max([1, *(abs(a - b) for a, b in zip(first, second, strict=True) if min(a, b) >= 0)])


def suits(first: Sequence[int], second: Sequence[int], count: int, width: int) -> bool:
    """Whether contacts of these bodies, with `width` velocities each, are better kept as `BodyRows`.

    They are where many bodies meet neighbours only: blocks must be small enough to be written out.
    """
    apart = all(a != b for a, b in zip(first, second, strict=True))
    return apart and count >= LEAST and reach_of(first, second) * width <= small_dense.UNROLLED


def take(array: jax.Array, index: Sequence[int], axis: int) -> jax.Array:
    """The entries of a static index along an axis, zero for -1; runs of consecutive ones are slices."""
    runs: list[list[int]] = []
    for i in index:
        if runs and (i == sum(runs[-1]) if min(i, runs[-1][0]) >= 0 else max(i, runs[-1][0]) < 0):
            runs[-1][1] += 1
        else:
            runs.append([i, 1])

    def zeros(length: int) -> jax.Array:
        return jnp.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), array.dtype)

    if len(runs) <= MANY_RUNS:
        parts = [
            jax.lax.slice_in_dim(array, i, i + length, axis=axis) if i >= 0 else zeros(length)
            for i, length in runs
        ]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis)
    padded = jnp.concatenate([array, zeros(1)], axis)
    place = np.where(np.array(index) >= 0, np.array(index), array.shape[axis])
    return jnp.take(padded, place, axis=axis, mode="clip")


def _places(keys: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Lists that together name every contact whose key is wanted, at the place where it is; -1 elsewhere."""
    contacts: dict[tuple[int, int], list[int]] = {}
    for contact, key in enumerate(keys):
        contacts.setdefault(key, []).append(contact)
    most = max((len(contacts.get(key, [])) for key in wanted), default=0)
    return [[[*contacts.get(key, []), *[-1] * most][m] for key in wanted] for m in range(most)]


def _by_body(G: BodyRows, x: jax.Array) -> jax.Array:
    return jnp.moveaxis(x.reshape(G.count, -1, *x.shape[1:]), 0, 1)


def apply_rows(G: BodyRows, x: jax.Array) -> jax.Array:
    """G x (nr, ...)."""
    bodies = _by_body(G, x)
    ends = jnp.stack([take(bodies, G.first, 1), take(bodies, G.second, 1)])
    return jnp.sum(G.values * ends[None], axis=(1, 2)).reshape(-1, *x.shape[1:])


def apply_columns(G: BodyRows, p: jax.Array) -> jax.Array:
    """G^T p (nv, ...)."""
    impulses = p.reshape(-1, len(G.first), *p.shape[1:])
    ends = jnp.sum(G.values * impulses[:, None, None], axis=0)
    wanted = [(body, 0) for body in range(G.count)]
    total = jnp.zeros((ends.shape[1], G.count, *ends.shape[3:]), ends.dtype)
    for end, bodies in zip(ends, (G.first, G.second), strict=True):
        for place in _places([(body, 0) for body in bodies], wanted):
            total = total + take(end, place, 1)
    return jnp.moveaxis(total, 1, 0).reshape(-1, *p.shape[1:])


def squares(G: BodyRows, weight: jax.Array) -> jax.Array:
    """Sums of G_ij^2 weight_j (nr, ...)."""
    return apply_rows(G.replace(values=G.values**2), weight)


def hessian(M: Diagonal, G: BodyRows, yields: list[list[jax.Array]]) -> BlockTridiagonal:
    """M + G^T S G with S[i][j] (nc, ...) between the rows of a contact, in blocks of `reach` bodies."""
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

    def part(row: int, column: int, number: int) -> jax.Array:
        """(w, w, number, ...) between the bodies row + k reach and column + k reach."""
        wanted = [(row + k * reach, column + k * reach) for k in range(number)]
        total = jnp.zeros((width, width, number, *G.values.shape[4:]), G.values.dtype)
        for (s, t), product in pair.items():
            for place in _places(list(zip(ends[s], ends[t], strict=True)), wanted):
                total = total + take(product, place, 2)
        return total

    def whole(shift: int, number: int) -> jax.Array:
        rows = [jnp.concatenate([part(shift + r, c, number) for c in range(reach)], 1) for r in range(reach)]
        return jnp.concatenate(rows, 0)

    masses = as_blocks(M.values, reach * width, 1.0)
    unit = jnp.eye(masses.shape[0], dtype=masses.dtype)
    unit = unit.reshape(*unit.shape, *(1,) * (masses.ndim - 1))
    return BlockTridiagonal(whole(0, blocks) + unit * masses[None], whole(reach, blocks - 1))


def as_matrix(G: BodyRows) -> jax.Array:
    """G as one matrix (nr, nv), of a single problem."""
    rows = jnp.zeros((G.values.shape[0], len(G.first), G.count, G.values.shape[2]), G.values.dtype)
    for side, bodies in enumerate((G.first, G.second)):
        moving = np.flatnonzero(np.array(bodies) >= 0)
        block = jnp.swapaxes(G.values[:, side], 1, 2)
        rows = rows.at[:, moving, np.array(bodies)[moving]].add(block[:, moving])
    return rows.reshape(-1, G.count * G.values.shape[2])
