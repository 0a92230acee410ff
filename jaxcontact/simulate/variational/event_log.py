"""The pieces of a motion, moves and impacts in the order of time, as far as it takes to repeat them.

Owns the record that links a run, which searches, to its repetition, which can be differentiated.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

UNUSED, WHOLE, EVENT, IMPACT = range(4)


class Pieces(NamedTuple):
    """One piece, or with a first axis all of them.

    A move goes to the end of a time step (WHOLE) or to where a gap closes or a contact lets go (EVENT).
    """

    kind: jax.Array
    step: jax.Array  # number of the time step
    h: jax.Array  # length of a move, s
    w: jax.Array  # (nv,) its mean velocity
    impulse: jax.Array  # (nc, dim) of closed contacts at its start
    second: jax.Array  # (nc, dim) and at its end
    who: jax.Array  # (nc,) bool: whose event ended a move; what touched in an impact
    plastic: jax.Array  # whether an impact was made plastic
    order: jax.Array  # (k,) of single impacts
    closed: jax.Array  # (nc,) bool, contacts that stay closed from its end on


def no_pieces(nv: int, nc: int, dim: int, length: int, dtype: jnp.dtype) -> Pieces:
    """An unused piece; `length` is that of `order`."""
    zero, forces, none = jnp.zeros((), dtype), jnp.zeros((nc, dim), dtype), jnp.zeros(nc, bool)
    return Pieces(
        kind=jnp.int32(UNUSED),
        step=jnp.int32(0),
        h=zero,
        w=jnp.zeros(nv, dtype),
        impulse=forces,
        second=forces,
        who=none,
        plastic=jnp.array(False),
        order=jnp.full(length, -1, jnp.int32),
        closed=none,
    )


def kept(pieces: Pieces, count: jax.Array, piece: Pieces) -> tuple[Pieces, jax.Array]:
    """`piece` put behind the others unless it is unused, and their number; beyond the room it only counts."""
    used = piece.kind != UNUSED
    room = pieces.kind.shape[0]
    at = jnp.where(used, count, room)
    if room:
        pieces = jax.tree.map(lambda rows, one: rows.at[at].set(one, mode="drop"), pieces, piece)
    return pieces, count + used.astype(jnp.int32)
