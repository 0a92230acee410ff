"""Rows of contacts between a tree of bodies and the world, as wrenches: their Hessian without the zeros.

A contact moves only the velocities between its body and the root, so that G^T S G has zeros where no
velocity of two is above the other, and a factor from the tips to the root keeps them. Entry: `add_contacts`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxcontact._pytree import PyTree, Record, static

GROUP = 4  # contacts that a sum takes or leaves together, at least

Block = list[list[jax.Array]]  # S by two rows of a contact, (nc,) each


class TreeRows(Record):
    """The rows of the contacts of a tree.

    Attributes:
        wrench: (nc, axes, 6) moment about the origin of its tree, N m, and force, N, of a unit along a row.
        below: (nc, ng) 1 where the velocities of a group move the contact, 0 elsewhere, and everywhere if
            two bodies meet in it.
        pair: (nc,) bool, whether two moving bodies meet in the contact; None if that is nowhere so.
        screws: (nv, 6) motion of each velocity, about the origin of its tree.
        group: (nv,) group of each velocity; those of a group move the same shapes (static).
        above: (nv,) for each velocity those that come earlier and move its body (static).
    """

    wrench: jax.Array
    below: jax.Array
    pair: jax.Array | None
    screws: jax.Array
    group: tuple[int, ...] = static()
    above: tuple[tuple[int, ...], ...] = static()


def pushes(block: Block) -> jax.Array:
    """Decide for each contact (nc,) whether it changes its impulse with its rate."""
    return functools.reduce(jnp.logical_or, (s != 0 for line in block for s in line))


def sum_over_contacts(
    add: Callable[[jax.Array, PyTree, Block], jax.Array],
    total: jax.Array,
    rows: PyTree,
    block: Block,
    size: int = GROUP,
) -> jax.Array:
    """Add to `total` what contacts with `rows` (nc, ...) give, without groups of `size` that do not push."""
    count = block[0][0].shape[0]
    groups = -(-count // size)

    def in_groups(values: jax.Array) -> jax.Array:
        padded = jnp.pad(values, ((0, groups * size - count), *((0, 0),) * (values.ndim - 1)))
        return padded.reshape(groups, size, *values.shape[1:])

    def add_group(total: jax.Array, group: tuple[PyTree, Block]) -> tuple[jax.Array, None]:
        acts = jnp.any(pushes(group[1]))
        return lax.cond(acts, lambda total: add(total, *group), lambda total: total, total), None

    return lax.scan(add_group, total, jax.tree.map(in_groups, (rows, block)))[0]


def add_contacts(total: jax.Array, rows: TreeRows, block: Block) -> jax.Array:
    """Compute total + G^T S G (nv, nv) of the contacts in which one body moves.

    H_ij = s_i . (sum of W^T S W over the contacts that j moves) s_j for a velocity i above j, with screws s
    and wrenches W: the matrices (6, 6) are added up for each group of velocities.
    """

    def add(sums: jax.Array, contacts: tuple[jax.Array, jax.Array], S: Block) -> jax.Array:
        wrench, below = contacts
        matrix = jnp.zeros((wrench.shape[0], 6, 6), wrench.dtype)
        for axis, line in enumerate(S):
            weighted = sum(
                (s[:, None] * wrench[:, k] for k, s in enumerate(line)), jnp.zeros_like(wrench[:, 0])
            )
            matrix = matrix + wrench[:, axis, :, None] * weighted[:, None]
        return sums + jnp.tensordot(below.T, matrix, 1)

    nv, screws = total.shape[0], rows.screws
    sums = jnp.zeros((rows.below.shape[1], 6, 6), total.dtype)
    sums = sum_over_contacts(add, sums, (rows.wrench, rows.below), block)[np.array(rows.group)]
    right, left = jnp.einsum("jab,jb->ja", sums, screws), jnp.einsum("jab,ja->jb", sums, screws)
    is_above = np.zeros((nv, nv))
    for j, above in enumerate(rows.above):
        is_above[list(above), j] = 1.0
    upper, lower = is_above * (screws @ right.T), is_above.T * (left @ screws.T)
    return total + upper + lower + jnp.diag(jnp.sum(screws * right, axis=1))
