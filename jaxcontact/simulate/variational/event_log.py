"""The log of a motion: its moves and impacts in the order of time, with the numbers that repeat them.

Owns the record `MotionPieces`, which links a run, which searches, to its repetition, which has derivatives.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxcontact.simulate.variational.discrete_mechanics import Slopes

UNUSED, WHOLE, EVENT, IMPACT, JAM = range(5)


class MotionPieces(NamedTuple):
    """One piece, or with a first axis all of them.

    A move ends at the end of a time step (WHOLE) or at the time at which a gap closes or a contact lets go
    (EVENT). A JAM is an impact without a collision.
    """

    kind: jax.Array
    step: jax.Array  # number of the time step
    h: jax.Array  # length of a move, s
    w: jax.Array  # (nv,) its mean velocity
    impulse: jax.Array  # (nc, dim) of closed contacts at its start, or of a jam, N s
    second: jax.Array  # (nc, dim) of closed contacts at its end, N s
    participants: jax.Array  # (nc,) bool: the contact whose event ended a move; the contacts of an impact
    plastic: jax.Array  # whether an impact was made plastic
    order: jax.Array  # (k,) of single impacts
    closed: jax.Array  # (nc,) bool, contacts that stay closed from its end on
    q: jax.Array  # its end
    p: jax.Array
    t: jax.Array
    slopes: Slopes  # of a move


def no_pieces(
    sizes: tuple[int, int, int, int | None], dim: int, length: int, dtype: jnp.dtype
) -> MotionPieces:
    """Make an unused piece; sizes are nq, nv, nc and nb, None without loops, `length` is that of `order`."""
    nq, nv, nc, nb = sizes
    zero, forces, none = jnp.zeros((), dtype), jnp.zeros((nc, dim), dtype), jnp.zeros(nc, bool)
    square = jnp.zeros((nv, nv), dtype)
    loops = None if nb is None else jnp.zeros((nb, nv), dtype)
    return MotionPieces(
        kind=jnp.int32(UNUSED),
        step=jnp.int32(0),
        h=zero,
        w=jnp.zeros(nv, dtype),
        q=jnp.zeros(nq, dtype),
        p=jnp.zeros(nv, dtype),
        t=zero,
        slopes=Slopes(square, square, jnp.zeros((nc, dim, nv), dtype), loops),
        impulse=forces,
        second=forces,
        participants=none,
        plastic=jnp.array(False),
        order=jnp.full(length, -1, jnp.int32),
        closed=none,
    )


def append_piece(
    pieces: MotionPieces, count: jax.Array, piece: MotionPieces
) -> tuple[MotionPieces, jax.Array]:
    """Append `piece` to the others unless it is unused; return them and their number.

    A piece beyond the room is counted and not stored.
    """
    used = piece.kind != UNUSED
    capacity = pieces.kind.shape[0]
    at = jnp.where(used, count, capacity)
    if capacity:
        pieces = jax.tree.map(lambda rows, row: rows.at[at].set(row, mode="drop"), pieces, piece)
    return pieces, count + used.astype(jnp.int32)
