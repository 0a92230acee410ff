"""The record of a motion with impacts: its states, its contacts, its impacts.

Owns `Trajectory`, `Impacts` and their description in words; entries `motion_record`, `append_impact`.
"""

from __future__ import annotations

from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from jaxcontact._pytree import PyTree, Record
from jaxcontact.io.records import FileRecord
from jaxcontact.mechanics.mocap import MocapPoses
from jaxcontact.mechanics.system import State
from jaxcontact.precision import jit
from jaxcontact.status import Status


class Impacts(Record):
    """The impacts of a trajectory in the order of time; unused rows hold NaN, -1 and zeros.

    Attributes:
        t: (k,) s.
        touching: (k, nc) bool, the contacts that were closed.
        approaching: (k, nc) bool, those of them that approached; none in an impact without a collision.
        order: (k, max_reflections) contacts in the order of their single impacts, -1 in unused entries.
        impulse: (k, nc) normal impulses, N s.
        v_minus, v_plus: (k, nv) velocities before and after.
        plastic: (k,) bool, impacts made plastic because they come too soon after another one (Zeno).
        count: number of impacts, also of those beyond k, which are not kept.
    """

    t: jax.Array
    touching: jax.Array
    approaching: jax.Array
    order: jax.Array
    impulse: jax.Array
    v_minus: jax.Array
    v_plus: jax.Array
    plastic: jax.Array
    count: jax.Array


class Trajectory(FileRecord):
    """A motion at T + 1 times, dt apart; the last row is the final state.

    Attributes:
        states: State with q (T + 1, nq), v (T + 1, nv), t (T + 1,); v = M^-1 p with the discrete momentum p.
            At an impact the state is the one after it.
        contacts: (T + 1, nc) bool, contacts that stay closed.
        impulse: (T, nc, dim) impulses of the closed contacts during each step, n first, N s.
        impacts: Impacts; None if the method has only contacts that last.
        status: (T,) uint32 bits of `Status`, of each step.
        inputs: (T, nu) controls of each step; None if there were none.
        info: `StepperInfo` of each step; None if the method has none.
        mocap: poses (T + 1, nm, ...) of the mocap bodies, position (3,) and orientation (4,), in the order of
            the model; None if they stay at those of the file.
    """

    states: State
    contacts: jax.Array
    impulse: jax.Array
    impacts: PyTree
    status: jax.Array
    inputs: jax.Array | None = None
    info: PyTree = None
    mocap: MocapPoses | None = None

    @property
    def notes(self) -> list[str]:
        """Remarks in words on one motion (not a batch), in the order of time: special impacts, a failure."""
        lines = []
        impacts = self.impacts
        for i in range(0 if impacts is None else min(int(impacts.count), impacts.t.shape[0])):
            when = f"t = {float(impacts.t[i]):.6g} s"
            striking = ", ".join(str(c) for c in np.flatnonzero(np.asarray(impacts.approaching[i])))
            if bool(impacts.plastic[i]):
                lines.append(f"{when}: contact {striking} chatters and is made plastic (ZENO)")
            elif not striking:
                jammed = ", ".join(str(c) for c in np.flatnonzero(np.asarray(impacts.impulse[i])))
                lines.append(f"{when}: contact {jammed} jams, an impact without a collision")
            elif int(np.sum(np.asarray(impacts.touching[i]))) > 1:
                lines.append(f"{when}: contact {striking} strikes while others touch (SIMULTANEOUS)")
        bad = np.asarray(self.status) & int(Status.FAILURES)
        if np.any(bad):
            first = int(np.flatnonzero(bad)[0])
            lines.append(
                f"t = {float(self.states.t[first]):.6g} s, step {first}: {Status.describe(bad[first])}"
            )
        return lines


def no_impacts(nv: int, nc: int, rows: int, dtype: jnp.dtype, length: int = 1) -> Impacts:
    """Make an empty record with room for `rows` impacts of up to `length` single impacts."""
    return Impacts(
        t=jnp.full(rows, jnp.nan, dtype),
        touching=jnp.zeros((rows, nc), bool),
        approaching=jnp.zeros((rows, nc), bool),
        order=jnp.full((rows, length), -1, jnp.int32),
        impulse=jnp.zeros((rows, nc), dtype),
        v_minus=jnp.full((rows, nv), jnp.nan, dtype),
        v_plus=jnp.full((rows, nv), jnp.nan, dtype),
        plastic=jnp.zeros(rows, bool),
        count=jnp.int32(0),
    )


@jit
def append_impact(
    impacts: Impacts, before: PyTree, after: PyTree, touching: jax.Array, approaching: jax.Array,
    plastic: jax.Array | bool, impulse: jax.Array, order: jax.Array | None = None,
) -> Impacts:  # fmt: skip
    """Append one impact to the record; beyond its rows only `count` grows.

    Args:
        before, after: states or nodes with v, and the time t after it.
        order: of single impacts; None if the law has none.
    """
    i = impacts.count
    rows = {"t": after.t, "touching": touching, "approaching": approaching, "impulse": impulse,
            "v_minus": before.v, "v_plus": after.v, "plastic": plastic}  # fmt: skip
    if order is not None:
        rows["order"] = order
    return impacts.replace(
        count=i + 1,
        **{name: getattr(impacts, name).at[i].set(row, mode="drop") for name, row in rows.items()},
    )


def motion_record(
    start: State, closed: jax.Array, states: State, info: PyTree, impacts: PyTree, inputs: PyTree = None
) -> Trajectory:
    """Make the record of a motion: one row for its start before those of T steps.

    Rows in NumPy are joined there, where no program is compiled for their number.
    """
    xp: ModuleType = np if isinstance(states.q, np.ndarray) else jnp
    return Trajectory(
        states=jax.tree.map(lambda first, later: xp.concatenate([first[None], later]), start, states),
        contacts=xp.concatenate([closed[None], info.contacts]),
        impulse=info.impulse,
        impacts=impacts,
        status=info.status,
        inputs=inputs,
        info=info,
    )


def in_one_list(impacts: Impacts) -> Impacts:
    """Join the impacts of T steps with rows (T, k) into one list with rows (T k,); rows in use come first."""
    xp: ModuleType = np if isinstance(impacts.t, np.ndarray) else jnp
    steps, rows = impacts.t.shape
    unused = xp.arange(rows, dtype=impacts.count.dtype)[None] >= impacts.count[:, None]
    order = xp.argsort(unused.ravel(), stable=True)
    return jax.tree.map(
        lambda x: xp.sum(x, dtype=x.dtype) if x.ndim == 1 else x.reshape(steps * rows, *x.shape[2:])[order],
        impacts,
    )
