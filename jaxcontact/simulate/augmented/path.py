"""The record of a motion over s: `AugmentedPath`, and its info."""

from __future__ import annotations

import enum

import jax

from jaxcontact._pytree import Record
from jaxcontact.status import Info


class PieceKind(enum.IntEnum):
    """The kind of a piece of a path."""

    UNUSED = -1
    FREE = 0
    CONTACT = 1
    IMPACT = 2
    CHATTER = 3


class AugmentedPath(Record):
    """A motion over s in K pieces; nodes have K + 1 rows, the last is the end. Unused pieces have no length.

    Attributes:
        s: (K + 1,) time plus accumulated normal impulse, in s and N s.
        t: (K + 1,) s.
        q: (K + 1, nq).
        v: (K + 1, nv).
        lam: (K, nc, dim) impulse (n, t) per unit of s at the start of each piece. In an impact it is constant
            and |lam_n|_1 = 1; else the contact force is lam / t_rate.
        t_rate: (K,) dt/ds at the start of each piece; 1 - |lam_n|_1.
        kind: (K,) int32 `PieceKind`.
        impact: (K,) int32 number of the impact that a piece belongs to, -1 outside.
        collision: (K,) bool, of the pieces of an impact, whether it began with an approach. False is an
            impact without a collision.
    """

    s: jax.Array
    t: jax.Array
    q: jax.Array
    v: jax.Array
    lam: jax.Array
    t_rate: jax.Array
    kind: jax.Array
    impact: jax.Array
    collision: jax.Array


class AugmentedInfo(Info):
    """The info of a path.

    Attributes:
        status: uint32 bits of `Status`.
        residual: the largest violation of the inequalities of a mode at its choice, relative to the size of
            accelerations or of impulse rates.
        num_iters: int32, pieces in use.
        num_impacts: int32.
        num_without_collision: int32, impacts without a collision.
    """

    num_impacts: jax.Array
    num_without_collision: jax.Array
