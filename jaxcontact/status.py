"""Status bits: the report of every solve and every step on itself. The entry is `Status`.

A status is a uint32 array of OR-ed bits, one per world under `vmap`; 0 is success. Results with a bit of
`Status.FAILURES` are not to be trusted; bits of `Status.NOTES` are facts about a good result.
"""

from __future__ import annotations

import enum
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.front_door import checked


class Status(enum.IntFlag):
    """Bits of a status word; combine with `|`, test with `&`, print with `describe`."""

    SUCCESS = 0
    MAX_ITERS = 1 << 0  # an iteration limit was reached
    STALLED = 1 << 1  # no further progress; the residual is above its tolerance
    NONFINITE = 1 << 2  # NaN or inf in the input or the result
    SINGULAR = 1 << 3  # equations without a unique solution, although one is needed
    UNTERMINATED = 1 << 4  # contacts still approach after the last allowed impact or step
    INVALID = 1 << 5  # negative friction, mass matrix not symmetric positive definite
    PENETRATION = 1 << 6  # a gap is negative beyond the contact tolerance
    RAY = 1 << 7  # Lemke's method ended on a secondary ray: no solution found
    ENERGY = 1 << 8  # energy rose by more than the work done and the order of the step explain
    INACCURATE = 1 << 9  # an estimated error is above the tolerance asked for
    OVERFLOW = 1 << 10  # more contacts touch than `max_contacts` lets a step see
    GRAZING = 1 << 16  # a guard is touched without being crossed
    SIMULTANEOUS = 1 << 17  # several events at once whose order matters
    ZENO = 1 << 18  # infinitely many impacts in finite time were cut short
    WIDE_BAND = 1 << 19  # a guard's band is too wide for the motion in it
    KINK = 1 << 20  # a minimum at which the derivative jumps
    UNTIMED = 1 << 21  # more impacts in a step than have times of their own: up to a step early
    JUMP = 1 << 22  # the result jumps or branches at this input: no one-sided derivative

    NOTES = GRAZING | SIMULTANEOUS | ZENO | WIDE_BAND | KINK | UNTIMED | JUMP
    FAILURES = (
        MAX_ITERS | STALLED | NONFINITE | SINGULAR | UNTERMINATED | INVALID | PENETRATION | RAY | ENERGY
        | INACCURATE | OVERFLOW
    )  # fmt: skip

    @classmethod
    def failed(cls, status: jax.typing.ArrayLike) -> jax.Array:
        """Tell which results are not to be trusted: bool, of the shape of `status`, traceable."""
        return (jnp.asarray(status) & jnp.uint32(int(cls.FAILURES))) != 0

    @classmethod
    def describe(cls, status: jax.typing.ArrayLike) -> str:
        """List the names of the bits set in `status`, e.g. "MAX_ITERS|STALLED", or "SUCCESS"."""
        bits = int(np.bitwise_or.reduce(np.atleast_1d(np.asarray(status)).ravel().astype(np.uint32)))
        names = [m.name for m in cls if m.value and bits & m.value and m.name is not None]
        return "|".join(names) if names else "SUCCESS"


def is_finite(tree: PyTree) -> jax.Array:
    """Decide whether no number in a tree of arrays is NaN or infinite; traceable."""
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]
    return jnp.all(jnp.stack(finite))


def flag(condition: jax.Array | bool, bit: Status) -> jax.Array:
    """Return `bit` if `condition` holds, else 0, elementwise, as uint32."""
    return jnp.where(condition, jnp.uint32(int(bit)), jnp.uint32(0))


class FailureError(RuntimeError):
    """An error for results not to be trusted; the message names bits and index of the first failed entry."""


@checked()
def raise_if_failed(info: Any, what: str = "result") -> None:  # any record with a status
    """Raise if any status has a bit of `Status.FAILURES`; for drivers on the host.

    Args:
        info: a record with `status`, or a status; of any shape.
        what: name of the result in the message, for example "step"; its index is added.

    Raises:
        TypeError: info without a status.
        FailureError: with the failure bits and the index of the first failed entry, and how many failed.
    """
    try:
        status = np.asarray(getattr(info, "status", info))
    except ValueError:  # rows of different lengths
        status = np.asarray(None)
    if status.dtype.kind not in "iu" or np.any((status < 0) | (status >= 2**32)):
        raise TypeError(f"info: expected a record with status, or a status of 32 bits, got {info!r:.60}")
    status = status.astype(np.uint32)
    bad = status & np.uint32(int(Status.FAILURES))
    if not bad.any():
        return
    first = np.unravel_index(int(np.flatnonzero(bad)[0]), bad.shape)
    where = f" {', '.join(map(str, first))}" if first else ""
    share = f"; {np.count_nonzero(bad)} of {bad.size} failed" if bad.size > 1 else ""
    raise FailureError(f"{what}{where}: {Status.describe(bad[first])}{share}")


class Info(Record):
    """What every solver, law and step says of itself beside its result; one per world under `vmap`.

    Attributes:
        status: uint32 bits of `Status`; 0 is success.
        residual: by how much the equations are violated; each record says which, and in what units.
        num_iters: int32, iterations, or steps of a loop that ends with its work.
    """

    status: jax.Array
    residual: jax.Array
    num_iters: jax.Array
